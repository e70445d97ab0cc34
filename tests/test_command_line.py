"""What every command has: help, examples, short options, completion, defaults from a file."""

import json
import os
import re
import shlex
import subprocess
import sys

import click
import pytest

from checks import output, refusal
from conftest import cases
from consilience.app import console
from consilience.cli import program
from consilience.core import provenance
from consilience.options import parameters
from consilience.options.probe import ProbeOptions

HEAVY = (
    "torch", "transformers", "polars", "pydantic", "typer", "numpy", "scipy", "sklearn", "rich",
)  # fmt: skip


def test_help_and_usage_errors_import_no_library():
    """Each in a process of its own would take seconds, so all are in one that has nothing yet."""
    light = [(), ("--help",), ("-h",), ("--version",), ("-V",), ("suite", "--help"), ("prob",)]
    light += [("data", "list"), ("--wrong",), ("probe", "--wrong"), ("analyze", "-h")]
    light += [(*words, "--help") for words in ALL]
    code = f"""if True:
        import contextlib, io, sys
        from consilience import cli
        for arguments in {light!r}:
            sys.argv = ["consilience", *arguments]
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                with contextlib.suppress(SystemExit):
                    cli.main()
            assert text.getvalue(), arguments
        print(*[name for name in {HEAVY!r} if name in sys.modules])
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "\n", "")


@pytest.mark.parametrize("name", ["probe", "compare", "suite"])
def test_help_is_plain_text_that_names_defaults_and_examples(name, consilience):
    status, out, err = consilience(name, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: consilience {name} ")
    assert not re.search(r"<\w+>|list\[", out)
    assert "{" not in out.splitlines()[0]
    assert max(map(len, out.splitlines())) <= 100
    if name == "probe":
        assert "--max-new-tokens" in out and "[questions only]" in out
        assert "[default: packaged:smollm2]" in " ".join(out.split())


def test_the_short_help_of_every_command_fits_on_a_screen(consilience, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = ((), ("suite",), ("suite", "annotate"), ("study",), ("analyze",))
    for words in (*groups, *(words for words, _ in leaves(program()))):
        status, out, err = consilience(*words, "-h")
        lines = out.splitlines()
        assert (status, err, len(lines) <= 24, max(map(len, lines)) <= 80) == (0, "", True, True)
        more = f"Everything: {' '.join(('consilience', *words))} --help"
        assert words in groups or lines[-1] == more
        assert not any(line.endswith("...") for line in lines[1:]), "a sentence is whole"
    assert "  -o, --out " in consilience("probe", "-h")[1]
    assert "--max-new-tokens" not in consilience("probe", "-h")[1]


def leaves(group, words=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(leaves(program()))


def test_every_command_has_an_example_that_can_be_parsed():
    for words, command in ALL.items():
        assert command.examples, words
        for example in command.examples:
            typed = shlex.split(example)
            *start, rest = typed[: len(words)], typed[len(words) :]
            assert start == [list(words)], example
            parent = program().make_context("consilience", ["x"])
            assert command.make_context(" ".join(words), rest, parent=parent).params is not None


RUNNABLE = [  # examples of the help, with a baseline in place of a model that takes long
    ("probe -m baseline:majority -n 8 -o runs/bert", "Consistent accuracy"),
    ("suite list", "mini"),
    ("suite check mini", "good"),
    ("analyze patterns runs/bert", "capital"),
    ("analyze examples runs/bert --examples 10", ""),
    ("score runs/bert", "Accuracy"),
    ("score runs/bert --by item", "of Luxembourgish is [Y]."),
    ("reproduce", "pararel-table-3"),
]


def test_examples_run(consilience):
    for example, expected in RUNNABLE:
        assert expected in output(consilience, *example.split()), example


def test_an_option_means_the_same_in_all_commands():
    """One name has one kind of value: a path, a number, a list of groups; and one short name."""
    kinds, long = {}, {}
    for command in ALL.values():
        for param in command.get_params(click.Context(command)):
            if param.param_type_name == "option":
                if len(param.opts) == 2:
                    long.setdefault(min(param.opts, key=len), set()).add(max(param.opts, key=len))
                names, _ = param.get_help_record(click.Context(command))
                kind = (
                    "flag"
                    if param.is_flag
                    else names.removesuffix(" ...").split()[-1].split(",")[0]
                )
                kind = {"FILE": "PATH", "DIR": "PATH", "R": "X"}.get(kind, kind)
                kinds.setdefault(max(param.opts, key=len), set()).add(kind)
    assert {"-m", "-s", "-o", "-n", "-q"} <= set(long)
    assert all(len(names) == 1 for names in long.values()), long
    mixed = {name: values for name, values in kinds.items() if len(values) > 1}
    assert mixed == {
        "--data": {"F", "PATH"},  # a recipe reads several data sets
        "--format": {  # of a result, of prompts and of what is published
            "[eee|model-card]", "[table|md|latex|csv|json]", "[jsonl|csv|lm-eval]",
        },
    }  # fmt: skip


def test_quiet_leaves_results_and_errors(consilience, tmp_path):
    run = ("probe", "-m", "baseline:random", "--groups", "sport", "-n", "2", "-o", tmp_path / "r")
    loud, quiet = consilience(*run), consilience(*run, "-q")
    assert loud[2].startswith("asking: ")
    assert (quiet[1], quiet[2]) == (loud[1], "")
    assert consilience("probe", "-m", "baseline:lost", "-q")[2].startswith("error: ")
    assert consilience(*run)[2].startswith("asking: ")


def test_a_shell_completes_commands_and_options(consilience, monkeypatch):
    def complete(words):
        monkeypatch.setenv("_CONSILIENCE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return [line.partition(",")[2] for line in consilience()[1].splitlines()]

    assert complete("consilience pro") == ["probe"]
    assert complete("consilience probe --suit") == ["--suite"]
    monkeypatch.delenv("_CONSILIENCE_COMPLETE")
    assert re.fullmatch(r"consilience \d+\.\d+\.\d+\n", output(consilience, "--version"))


def test_a_configuration_file_sets_defaults(consilience, tmp_path, monkeypatch):
    file = tmp_path / "consilience.toml"
    file.write_text('[probe]\nmodel = "baseline:oracle"\nlimit = 2\ngroups = ["sport"]\n[score]\n')
    status, out, err = consilience("probe", "-o", "one", "--json")
    assert status == 0
    settings = json.loads(out)["run"]["settings"]
    assert (settings["model"]["model"], settings["limit"]) == ("baseline:oracle", 2)
    assert settings["groups"] == ["sport"]
    assert err.startswith("defaults from consilience.toml: groups, limit, model\n")
    out = consilience("probe", "-n", "1", "-o", "two", "--json")[1]
    assert json.loads(out)["run"]["settings"]["limit"] == 1, "the command line decides"
    assert "defaults from" not in consilience("suite", "list")[2], "none of them is used"
    other = tmp_path / "other.toml"
    other.write_text('[probe]\nmodel = "baseline:constant"\ngroups = "sport"\nlimit = 1\n')
    out = consilience("probe", "--config", other, "-o", "three", "--json")[1]
    assert json.loads(out)["run"]["settings"]["model"]["model"] == "baseline:constant"
    for off in ("", os.devnull):
        monkeypatch.setenv("CONSILIENCE_CONFIG", off)
        assert "defaults from" not in consilience("probe", "--dry-run", "-m", "baseline:oracle")[2]


def test_a_recorded_command_has_the_values_of_the_file(consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text(
        '[probe]\nlimit = 1\ngroups = ["sport", "capital"]\ndata-dir = "my data"\nquiet = true\n'
    )
    err = consilience("probe", "-m", "baseline:oracle", "-n", "2", "-o", "run")[2]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert err == "", "quiet"
    assert record["command"] == (
        "consilience probe -m baseline:oracle -n 2 -o run --groups sport,capital "
        "--data-dir 'my data'"
    ), "no --limit 1"
    assert provenance.from_file.get() == ()
    vary = parameters(ProbeOptions)["vary"]
    assert vary.arguments(("order", "labels")) == ["--vary", "order", "--vary", "labels"]


@pytest.mark.parametrize("words", [
    "probe -h", "--help", "--version", "probe --config consilience.toml -h", "probe -n x --help",
])  # fmt: skip
def test_nothing_that_is_wrong_hides_the_help(words, consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text("quit = true\n")
    assert consilience(*words.split())[0] == 0


@pytest.mark.parametrize(("text", "message"), cases("configuration_bad"))
def test_a_wrong_configuration_is_one_message(text, message, consilience, tmp_path):
    (tmp_path / "consilience.toml").write_text(text)
    assert message in refusal(consilience, "probe", "-m", "baseline:oracle")


def test_a_dry_run_writes_nothing(consilience, tmp_path):
    run = ("probe", "-m", "baseline:majority", "-n", "3", "--groups", "capital,sport", "-o", "run")
    out = output(consilience, *run, "--dry-run")
    assert "Groups    2\nItems     6, each in 9 patterns\nQueries   54, each with" in out
    assert "Folder    run (new)\nTime      about 1 s to ask 54 queries" in out
    assert not list(tmp_path.glob("run*"))
    assert consilience(*run)[0] == 0
    plan = json.loads(consilience(*run, "--dry-run", "--json")[1])["plan"]
    assert (plan["queries"], plan["complete"], plan["is_new"]) == (54, 54, False)
    assert "this folder holds another run" in refusal(consilience, *run, "--dry-run", "--seed", "1")


def test_progress_is_lines_where_no_terminal_is(
    consilience, model_folder, tmp_path, monkeypatch, capsys
):
    """Of a real model: nothing of other libraries is between them."""
    monkeypatch.setattr(console, "INTERVAL", 0)
    run = ("probe", "-m", model_folder("gpt2"), "--groups", "sport", "-n", "3")
    capsys.readouterr()  # what building the model says
    lines = consilience(*run, "-o", tmp_path / "r")[2].splitlines()
    assert (lines[0], lines[1]) == (f"loading {model_folder('gpt2')} ...", "asking: 27 queries")
    *middle, last = [line for line in lines[2:] if line.startswith("asking")]
    shown = r"asking: \d+ of 27 queries(, \d+ s left)?"
    assert all(re.fullmatch(shown, line) for line in middle)
    assert re.fullmatch(r"asking: 27 queries in \d+ s, [\d.,]+/s", last)
    assert all(line.startswith(("loading", "asking", "note: ")) for line in lines)
