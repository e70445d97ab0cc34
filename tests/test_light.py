"""Without the extra ``models`` (torch, transformers): what needs no model works, the rest says so."""

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT

MODULES = "metrics.measure report.page report.export suites cli"

WITHOUT_MODELS = f"""if True:
    import importlib, json, sys

    from consilience.core.errors import OF_MODELS

    class Absent:
        names, wanted = {{*OF_MODELS}} | {{"accelerate", "peft", "gguf"}}, []

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in self.names:
                if sys._getframe(2).f_code.co_name != "find_spec":  # not an import: it only looks
                    self.wanted.append(name)
                raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

    sys.meta_path.insert(0, Absent())
    for module in {MODULES.split()}:
        importlib.import_module(f"consilience.{{module}}")
        assert not Absent.wanted, (module, Absent.wanted)
    from consilience.cli import main

    for arguments in json.loads(sys.argv[1]):
        sys.argv[1:] = arguments
        print("---", *arguments[:2], file=sys.stderr, flush=True)
        try:
            main()
        except SystemExit as stop:
            print("status", stop.code, file=sys.stderr, flush=True)
"""
"""The modules import none of the extra, even where it is installed, so that they start at once."""

COMMANDS = """
probe --model baseline:majority --suite mini --limit 2 --groups capital,borders --out other
probe --model baseline:random --suite mini --limit 2 --groups capital,borders --out facts
probe --model baseline:majority --suite mini-questions --limit 2 --groups capital,borders --out questions
score facts
compare facts other
gate other --rule consistency>=0.01
report facts
suite list
suite check mini
suite export mini --limit 1 --out prompts.csv
analyze patterns facts
analyze edits facts
analyze factors questions
publish facts --format eee --model-id me/mine --organization me
study run study.toml
"""


REFUSED = """
probe --model packaged:smollm2 --suite mini --limit 1
probe --model gpt2 --suite mini-questions --limit 1
improve --model gpt2 --suite mini --train-groups capital --validation-groups sport --out improved
"""
CALLS = """
    print("--- calls", file=sys.stderr, flush=True)
    import consilience as cs

    result = cs.evaluate("mini", lambda prompts: ["Paris"] * len(prompts), limit=1)
    assert result.metrics.height
    try:
        cs.evaluate("mini-open", "openai:x", base_url="http://127.0.0.1:9/v1", limit=1)
    except cs.ConsilienceError as error:
        assert "127.0.0.1:9" in str(error), error
    for call in (lambda: cs.load_model("gpt2"), lambda: cs.evaluate("mini", "gpt2", limit=1)):
        try:
            call()
            raise AssertionError("a model was loaded")
        except cs.ConsilienceError as error:
            assert "consilience[models]" in str(error), error
    Absent.names, Absent.wanted[:] = {"torch"}, []
    importlib.import_module("consilience.analysis.representations")
    assert not Absent.wanted
    print("done", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What commands and calls say in one process in which torch cannot be imported, in parts."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "study.toml").write_text(
        '[[models]]\nmodel = "baseline:random"\n[[suites]]\nsuite = "mini"\nlimit = 1\n'
    )
    commands = [line.split() for line in (COMMANDS + REFUSED).splitlines() if line]
    options = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(ROOT / "src")}}
    call = [sys.executable, "-c", WITHOUT_MODELS + CALLS, json.dumps(commands)]
    done = subprocess.run(call, **options, capture_output=True, text=True, check=False)
    assert "--- " in done.stderr, done.stderr[-2000:]
    return done.stderr.split("--- ")[1:]


def test_what_needs_no_model_works_without_the_extra(outcomes):
    assert len(outcomes) == 15 + 3 + 1
    assert [part for part in outcomes[:15] if "status" in part or "Traceback" in part] == []


def test_the_functions_and_servers_of_a_light_install(outcomes):
    """A Python function is asked; a model behind a URL fails at its address, not at an import."""
    assert outcomes[-1].endswith("done\n"), outcomes[-1][-2000:]


def test_a_model_without_the_extra_is_one_message(outcomes):
    for part in outcomes[15:-1]:
        extra = r"is not installed\. Install the extra consilience\[(models|train)\]: `pip"
        assert re.search(extra, part)
        assert part.endswith("status 2\n") and "Traceback" not in part
