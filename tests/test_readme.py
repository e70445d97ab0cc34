"""README.md: a reader can run every command of it, and gets the output that it shows."""

import json
import re
import shlex

import polars as pl
import pytest

from conftest import ROOT, real_data
from consilience import load_suite

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    command.strip()
    for command in re.findall(r"(?m)(?:^|`)(consilience [a-z][^`#\n]*)", README)
    if not command.startswith("consilience suite fetch")  # a server of test_pararel.py is asked
]
PROBE, *OTHERS = COMMANDS
OUTPUT = re.search(r"(?s)```\n(packaged:smollm2 on mini.*?)```", README)[1]
PYTHON = re.search(r"(?s)```python\n(.*?)```", README)[1]

OWN_SUITE = {
    "relations.tsv": "relation\tlabel\tcardinality\nlang\tlanguage\tN-1\n",
    "patterns.tsv": "relation\tpattern\nlang\t[X] is written in [Y].\nlang\t[X] uses [Y].\n",
    "facts.tsv": "relation\tsubject\tobject\nlang\tItaly\tRome\nlang\tFrance\tParis\n",
}
"""A suite of a reader, with words that the tiny model knows."""


@pytest.fixture
def reader(consilience, monkeypatch, tmp_path, model_folder, classifier):
    """``reader(command)``: what a command prints, where a reader has what the README names.

    Tiny models stand in for the packaged one and for those of the Hub.
    """
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-suite").mkdir()
    for name, text in OWN_SUITE.items():
        (tmp_path / "my-suite" / name).write_text(text)
    rows = ["sentence1\tsentence2\tlabel", "Rome is old.\tRome is a town.\tentailment"]
    (tmp_path / "dev.tsv").write_text("\n".join([*rows, "A dog.\tA cat.\tnot_entailment\n"]))
    write_answers(tmp_path / "answers.csv")
    arc = tmp_path / "data" / "arc" / "ARC-Challenge"
    arc.mkdir(parents=True)
    (arc / "test.jsonl").write_text(json.dumps(
        {"id": "a", "question": "Where is Rome?", "answerKey": "B",
         "choices": {"text": ["France", "Italy"], "label": ["A", "B"]}}))  # fmt: skip
    models = {
        "packaged:smollm2": model_folder("gpt2"),  # test_notebooks.py asks the packaged one
        "--suite arc --vary order=rotations --model org/name": f"--suite arc --vary order=rotations --model {model_folder('gpt2')}",
        "org/name": model_folder("bert"),
        "org/classifier": classifier("bert", ("entailment", "not_entailment")),
    }

    def run(command):
        for name, model in models.items():
            command = command.replace(name, str(model))
        status, printed, messages = consilience(*shlex.split(command)[1:])
        assert status == 0, f"{command}\n{messages}"
        assert printed, command
        return printed

    return run


def test_every_command_runs_and_prints_what_is_shown(reader, model_folder):
    """In the order of the page; of the suite a part, for which the same words are printed."""
    number = re.compile(r"-?\d+(\.\d)?")
    probe = PROBE.replace("--limit 8", "--limit 2 --groups capital,painter,borders")
    printed = (reader(probe), OUTPUT.replace("packaged:smollm2", model_folder("gpt2").name))
    words, expected = (
        [
            " ".join(line.split()).replace("# to #", "-")
            for line in number.sub("#", text).splitlines()
        ]
        for text in printed
    )
    assert words[: len(expected)] == expected
    reader(probe.replace("packaged:smollm2", "baseline:majority").replace("smollm2", "other"))
    for command in OTHERS:
        if "pararel" not in command:
            few = command.replace("mini --model", "mini -n 2 --groups borders --model")
            reader(few.replace("my-questions --vary", "my-questions --model baseline:first --vary"))


@pytest.mark.parametrize("command", [command for command in OTHERS if "pararel" in command])
def test_every_command_of_pararel_runs(reader, command, monkeypatch):
    """With two facts of a relation, or dry, and a baseline instead of the reader's model."""
    command = command.replace("org/name", "baseline:random")
    monkeypatch.setenv("CONSILIENCE_DATA", str(real_data("pararel").parent))
    reader(f"{command} {'--limit 2 --groups P36' if ' probe ' in command else '--dry-run'}")


def test_the_python_runs(reader, tmp_path, capsys):
    exec(PYTHON.replace("packaged:smollm2", "baseline:majority").replace("limit=8", "limit=1"), {})
    assert "Consistency" in capsys.readouterr().out
    assert (tmp_path / "page.html").stat().st_size > 10_000


def write_answers(path):
    relation = load_suite("mini")["capital"]
    rows = [
        ("capital", fact.item, fact.subject, pattern.text, fact.object, fact.object)
        for fact in relation.facts for pattern in relation.patterns
    ]  # fmt: skip
    names = ["group", "item", "subject", "variant", "gold", "answer"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 100
