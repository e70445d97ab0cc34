"""The command line as a process: streams that end, encodings, signals, and text that is hostile."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib

import pytest
from rich.table import Table

from checks import output, refusal, refused
from conftest import ROOT, cases, run_command
from consilience.app import json_text
from consilience.app.console import Terminal
from consilience.runs.folder import record_of
from replay_server import replay

COMMAND = [sys.executable, "-m", "consilience"]
HOSTILE = "a\x1b]0;PWN\x07\x1b[2Jb\x9b2Jc\u202ed\r"


def start(*arguments, **more):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *arguments], **pipes, **more)


def test_text_that_would_control_a_terminal_is_shown_and_json_escapes_it(monkeypatch):
    document = {"text": HOSTILE, "path": "n\udcff", "town": "Z\u00fcrich"}
    text = json_text(document)
    assert json.loads(text) == document and text.isprintable() and "Z\u00fcrich" in text
    written = io.StringIO()
    terminal = Terminal(markup=False, file=written, force_terminal=True, width=200)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    terminal.print(table)
    terminal.print(HOSTILE, style="bold", soft_wrap=True)
    plain = "tab\t line\n Z\u00fcrich \u65e5\u672c \u0627\u0644\u0639\u200c\u0631 \U0001f600"
    terminal.print(plain, "\udcff", soft_wrap=True)
    text = written.getvalue()
    assert text.count("PWN") == 4 and plain.partition("\n")[2] in text and text.endswith("\ufffd\n")
    assert not any(mark in text for mark in ("\x07", "\x9b", "\u202e", "\r", "\x1b]", "\x1b[2J"))
    assert "\x1b[1m" in text, "a style of ours"
    monkeypatch.setenv("COLUMNS", "0")  # of some containers
    Terminal(file=written).print("no width")
    assert written.getvalue().endswith("no width\n")


def test_a_reader_that_has_read_enough_is_no_error(consilience, tmp_path):
    consilience("probe", "-m", "baseline:random", "-s", "mini", "-n", "4", "-o", tmp_path / "r")
    command = f"{shlex.join([*COMMAND, 'analyze', 'patterns', str(tmp_path / 'r')])} | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=True)
    assert ran.stdout and not ran.stderr


@pytest.mark.parametrize("arguments", [
    [HOSTILE],
    [f"--{HOSTILE}"],
    ["probe", f"--{HOSTILE}", "x"],
    ["probe", "--model", "m", "--suite", "mini", "--protocol", HOSTILE],
    ["analyze", HOSTILE],
    ["suite", "fetch", "pararel", f"--{HOSTILE}" + "x" * 100_000],
])  # fmt: skip
def test_a_usage_error_quotes_an_argument_as_a_terminal_may_show_it(arguments, consilience):
    err = refusal(consilience, *arguments)
    assert "PWN" in err and not {"\x07", "\x9b", "\x1b", "\u202e", "\r"} & {*err}
    assert len(err) < 10_000


@pytest.mark.parametrize("arguments", ["--help", "suite list"])
def test_a_reader_that_has_enough_gets_no_message(arguments):
    with start(*arguments.split()) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait() in (0, 1)) == (b"", True)


def test_an_output_without_unicode(tmp_path):
    """Text shows a question mark for what the encoding lacks; JSON escapes it."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    environment["CONSILIENCE_DATA"] = str(tmp_path / "Z\u4e00")
    (tmp_path / "Z\u4e00" / "pararel").mkdir(parents=True)
    found = [
        subprocess.run(
            [sys.executable, "-m", "consilience", "suite", "list", *more],
            capture_output=True, env=environment, check=True,
        )
        for more in (["--json"], [])
    ]  # fmt: skip
    document, text = (one.stdout for one in found)
    assert not any(b"Traceback" in one.stderr for one in found)
    assert b"Z\\u4e00" in document and b"Z?" in text and (document + text).isascii()


def test_ctrl_c_while_the_command_is_being_loaded(tmp_path):
    """One of the libraries that it loads is pressing the keys."""
    press = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    (tmp_path / "click.py").write_text(press)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with start("--help", env={**os.environ, "PYTHONPATH": path}) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"interrupted; ")


SIGNALLED = """
import atexit, json, os, signal, sys
from consilience.app import process
from consilience.authoring import checks as named_suites

real = named_suites.suites.data_dir

def run(when, hang_up, names):
    signal.signal(signal.SIGHUP, signal.Handlers(hang_up))

    def send(*_):
        for name in names:
            os.kill(os.getpid(), getattr(signal, name))

    def data_dir():
        send()
        return real()

    if when == "at work":
        named_suites.suites.data_dir = data_dir
    else:
        atexit.register(send)
    process.run_process()

cases, sys.argv = json.loads(sys.argv[1]), ["consilience", "suite", "list"]
for case in cases:
    if not (child := os.fork()):
        run(*case)
        break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("status", status, file=sys.stderr, flush=True)
"""
REST = "every file that was written is complete, and the same command does the rest\n"
ENDS = {
    ("at work", signal.SIG_DFL, "SIGINT"): f"interrupted; {REST}status 130\n",
    ("at work", signal.SIG_DFL, "SIGTERM"): f"terminated; {REST}status 143\n",
    ("at work", signal.SIG_DFL, "SIGHUP"): f"the terminal was closed; {REST}status 129\n",
    ("at work", signal.SIG_IGN, "SIGHUP"): "status 0\n",  # as nohup has it
}


def test_a_signal_ends_a_command_with_one_message_unless_it_has_ended_or_ignores_it():
    cases = [(when, hang_up, names) for when, hang_up, *names in ENDS]
    command = [sys.executable, "-c", SIGNALLED, json.dumps(cases)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stderr == "".join(ENDS.values())


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["suite", "lost"], 2)])
def test_a_process_with_torch_ends_at_once_and_whole(arguments, status):
    """What is registered for the end runs; nothing after the command does."""
    code = (
        "import atexit, sys\nsys.modules['torch'] = sys\natexit.register(print, 'at the end')\n"
        f"sys.argv = ['consilience', *{arguments!r}]\n"
        "from consilience.app.process import run_process\nrun_process()\nprint('Python frees torch')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (status, "at the end")
    assert "Python frees torch" not in run.stdout
    assert ("consilience " in run.stdout) == (status == 0)
    assert ("no such command 'lost'" in run.stderr) == (status == 2)


def test_no_garbage_is_collected_among_imports(tmp_path):
    """Until the work begins; from then on it is, without a look at what was imported."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text(
        "import atexit, gc, os, sys\n"
        "sys.path.remove(os.path.dirname(__path__[0]))\n"
        "print('imports', gc.isenabled())\n"
        "atexit.register(lambda: print('work', gc.isenabled(), gc.get_freeze_count() > 10_000))\n"
        "del sys.modules['rich']\n"
        "import rich\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = ["probe", "--model", "baseline:majority", "--groups", "sport"]
    with start(*run, "--out", tmp_path / "run", env={**os.environ, "PYTHONPATH": path}) as process:
        out, _ = process.communicate(timeout=60)
    lines = out.decode().splitlines()
    assert (lines[0], lines[-1]) == ("imports False", "work True True")


@pytest.mark.parametrize(("arguments", "message", "is_usage"), cases("errors_in_documents"))
def test_an_error_is_in_the_document_too(arguments, message, is_usage, consilience):
    status, out, err = consilience(*arguments, "--json")
    assert (status, bool(err)) == (2, True)
    error = json.loads(out)["error"]
    assert error["message"].startswith(message) and (error["kind"] == "usage") is is_usage
    assert set(error) == {"message", "found", "expected", "where", "todo", "kind"}


# Without the extra ``models`` (torch, transformers): what needs no model works, the rest says so.

MODULES = "metrics.measure report.page report.table suites app.process"

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
    from consilience.app.process import run as main

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
study status study.toml
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


def test_what_needs_no_model_works_without_the_extra(tmp_path):
    """Commands and calls in one process in which torch cannot be imported.

    A Python function is asked; a model behind a URL fails at its address, not at an import.
    """
    (tmp_path / "study.toml").write_text(
        '[[models]]\nmodel = "baseline:random"\n[[suites]]\nsuite = "mini"\nlimit = 1\n'
    )
    works, refused = (
        [line.split() for line in of.splitlines() if line] for of in (COMMANDS, REFUSED)
    )
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT / "src")}}
    call = [sys.executable, "-c", WITHOUT_MODELS + CALLS, json.dumps(works + refused)]
    done = subprocess.run(call, **options, capture_output=True, text=True, check=False)
    *parts, calls = done.stderr.split("--- ")[1:]
    assert len(parts) == len(works + refused), done.stderr[-2000:]
    assert not [of for of in parts[: len(works)] if "\nstatus" in of or "Traceback" in of]
    for part in parts[len(works) :]:
        extra = r"is not installed\. Install the extra consilience\[(models|train)\]: `pip"
        assert re.search(extra, part)
        assert part.endswith("status 2\n") and "Traceback" not in part
    assert calls.endswith("done\n"), calls[-2000:]


# What a run or a configuration file of somebody else cannot do, and what every reader notices.

RUN = ("probe", "--model", "baseline:majority", "--suite", "mini", "--limit", "2")

PAIRS = "sentence1\tsentence2\tlabel\nA b.\tC d.\tentailment\nE f.\tG h.\tnot_entailment\n"

CODE = """
from pathlib import Path
Path({marker!r}).write_text("this code was run")
def polite(text, *more):
    return text
"""

READERS = [
    ("score", "{run}"),
    ("gate", "{run}", "--rule", "accuracy >= 0.0001"),
    ("compare", "{run}", "other"),
    ("compare", "other", "{run}"),
    ("report", "{run}"),
    ("publish", "{run}", "--format", "eee", "--model-id", "a/b"),
]
"""Commands that read runs of every kind; ``other`` is a second run of the same suite."""

READERS_OF_FACTS = [("analyze", name, "{run}") for name in ("patterns", "edits", "examples")]


def of_run(command, run):
    return [part.format(run=run) for part in command]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two relations."""
    folder = tmp_path_factory.mktemp("finished")
    output(run_command, *RUN, "--groups", "capital,sport", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path):
    for name in ("run", "other"):
        shutil.copytree(finished, tmp_path / name)
    return tmp_path / "run"


@pytest.mark.parametrize("command", READERS + READERS_OF_FACTS, ids=" ".join)
def test_a_finished_run_without_an_answers_file_is_not_counted(command, run, consilience):
    (run / "answers" / "1.parquet").unlink()
    err = refusal(consilience, *of_run(command, "run"))
    assert "1 answers file of a finished run missing: sport; expected the 2 that are in" in err
    assert err.count("error: ") == 1


def test_a_run_in_an_unknown_format_is_refused_by_all(run, consilience):
    for version in (1, 3, 4, "5", None):
        change(run, lambda record: record["settings"].update(format=version))  # noqa: B023
        refused(f"a run in format {json.dumps(version)}; expected", record_of, run)
    change(run, lambda record: record["settings"].update(format=4))
    before = (run / "run.json").read_bytes()
    again = (*RUN, "--groups", "capital,sport", "--out", "{run}")
    for command in (*READERS, *READERS_OF_FACTS, again):
        err = refusal(consilience, *of_run(command, "run"))
        message = "run.json: a run in format 4; expected format 5, which this version of"
        assert message in err, command
    assert (run / "run.json").read_bytes() == before


def change(run, how):
    record = json.loads((run / "run.json").read_text())
    how(record)
    (run / "run.json").write_text(json.dumps(record))


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A model and a file whose code leaves a marker; keys are in the environment."""
    monkeypatch.setenv("MY_SECRET", "topsecretvalue")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mysecretkey")
    marker, model = tmp_path / "marker", tmp_path / "model"
    model.mkdir()
    for folder in (tmp_path, model):
        (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    settings = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (model / "config.json").write_text(json.dumps(settings))
    return marker


ATTACKS = {
    "--trust-remote-code": {"model": "model", "trust_remote_code": True},
    "--perturbations own.py:polite": {
        "suite": "rte", "data": "pairs.tsv", "perturbations": ["own.py:polite"],
    },
    "--base-url {url} --api-key-env MY_SECRET": {
        "model": "openai:x", "suite": "mini-questions", "base_url": "{url}", "api_key_env": "MY_SECRET",
    },
    "--base-url {url}": {"model": "openai:x", "suite": "mini-questions", "base_url": "{url}"},
}  # fmt: skip
"""Options of a record or a configuration file, and what has to be repeated to obey them."""


@pytest.mark.parametrize("asked", ATTACKS)
def test_a_record_runs_no_code_and_sends_no_key(asked, run, hostile, consilience):
    with replay(lambda *request: (404, {}, {})) as server:
        options = json.loads(json.dumps(ATTACKS[asked]).replace("{url}", server.url))
        change(run, lambda record: record["options"].update(options))
        assert consilience(*of_run(READERS[0], "run"))[0] == 0
        assert (hostile.exists(), server.headers) == (False, [])


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_found_file_has_no_power(attack, hostile, consilience, tmp_path):
    table, file = "[probe]", "consilience.toml"
    with replay(lambda *request: (404, {}, {})) as server:
        options = {"model": "baseline:majority", "suite": "mini", "limit": 1}
        options |= ATTACKS[attack]
        (tmp_path / "pairs.tsv").write_text(PAIRS)
        lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in options.items()]
        text = "\n".join([table, *lines]).replace("{url}", server.url)
        assert tomllib.loads(text)
        (tmp_path / file).write_text(text)
        status, out, err = consilience("probe", "--out", "new")
        assert (status, out, hostile.exists(), server.headers) == (2, "", False, [])
        key = attack.split()[0][2:]
        assert f"{key}, which runs code" in err
        assert f"If you trust the file, name it: --config {file}." in err
        consilience("probe", "--out", "new", "--config", tmp_path / file)
        assert hostile.exists() or server.headers
        harmless = f'{table}\ntrust-remote-code = false\nlimit = 1\ngroups = "sport"\n'
        (tmp_path / file).write_text(harmless)
        assert consilience("probe", "-m", "baseline:first", "-s", "mini-questions")[0] == 0
