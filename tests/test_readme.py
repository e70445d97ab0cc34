"""README.md: a reader can run every command of it, and gets the output that it shows."""

import csv
import re
import shlex

import pytest

from conftest import ROOT, real_data

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    command.strip()
    for command in re.findall(r"(?m)(?:^|`)(consilience [a-z][^`#\n]*)", README)
    if not command.startswith("consilience suite fetch")  # a server of test_fetch.py is asked
]
PROBE, *OTHERS = COMMANDS
OUTPUT = re.search(r"(?s)```\n(packaged:smollm2 on mini.*?)```", README)[1]
PYTHON = re.search(r"(?s)```python\n(.*?)```", README)[1]

RELATIONS = ["capital", "official_language"]
OWN_SUITE = {
    "relations.tsv": "relation\tlabel\tcardinality\nlang\tlanguage\tN-1\n",
    "patterns.tsv": "relation\tpattern\nlang\t[X] is written in [Y].\nlang\t[X] uses [Y].\n",
    "facts.tsv": "relation\tsubject\tobject\nlang\tItaly\tRome\nlang\tFrance\tParis\n",
}
"""A suite of a reader, with words that the tiny model knows."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder and the output of the first command, run as the README writes it."""
    import contextlib
    import io
    import sys

    from consilience import cli

    folder = tmp_path_factory.mktemp("readme")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "argv", shlex.split(PROBE))
        cli.main()
    return folder, printed.getvalue()


@pytest.fixture
def reader(shown, consilience, monkeypatch, model_folder, classifier):
    """``reader(command)``: status, output and messages of a command, in a reader's folder."""
    folder, _ = shown
    monkeypatch.chdir(folder)
    (folder / "my-suite").mkdir(exist_ok=True)
    for name, text in OWN_SUITE.items():
        (folder / "my-suite" / name).write_text(text)
    models = {
        "org/name": model_folder("bert"),
        "org/classifier": classifier("bert", ("entailment", "not_entailment")),
    }

    def run(command):
        for name, model in models.items():
            command = command.replace(name, str(model))
        return consilience(*shlex.split(command)[1:])

    return run


def test_the_first_command_prints_what_is_shown(shown):
    """Words and layout are equal; a number may differ by rounding on another processor."""
    number = re.compile(r"\d+\.\d")
    lines = shown[1].splitlines()[: len(OUTPUT.splitlines())]
    assert [number.sub("#", line) for line in lines] == [
        number.sub("#", line) for line in OUTPUT.splitlines()
    ]
    values = [float(value) for value in number.findall("\n".join(lines))]
    assert values == pytest.approx([float(value) for value in number.findall(OUTPUT)], abs=1.5)


@pytest.mark.parametrize("command", OTHERS)
def test_every_other_command_runs(reader, shown, command):
    folder, _ = shown
    if "pararel" in command:
        command = command.replace("org/name", "baseline:random")
        command += f" --data-dir {real_data('pararel').parent}"
    elif "runs/other" in command:
        reader("consilience probe --model baseline:majority --suite mini --limit 8 --out runs/other")
    elif "answers.csv" in command:
        write_answers(folder / "answers.csv")
    elif "dev.tsv" in command:
        rows = ["sentence1\tsentence2\tlabel", "Rome is old.\tRome is a town.\tentailment"]
        (folder / "dev.tsv").write_text("\n".join([*rows, "A dog.\tA cat.\tnot_entailment\n"]))
    status, printed, messages = reader(command)
    assert status == 0, messages
    assert printed


def write_answers(path):
    """The golds of one relation as answers made elsewhere."""
    from consilience import load_suite

    relation = load_suite("mini")["capital"]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["group", "item", "subject", "variant", "gold", "answer"])
        for fact in relation.facts:
            for pattern in relation.patterns:
                row = ("capital", fact.item, fact.subject, pattern.text, fact.object, fact.object)
                table.writerow(row)


def test_the_python_runs(shown, monkeypatch, capsys):
    monkeypatch.chdir(shown[0])
    exec(PYTHON.replace("packaged:smollm2", "baseline:majority"), {})
    assert "Consistency" in capsys.readouterr().out
    assert (shown[0] / "page.html").stat().st_size > 10_000


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120
