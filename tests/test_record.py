"""A damaged run.json is one message and exit 2, in whatever reads a run; nothing is overwritten."""

import json
import shutil

import polars as pl
import pytest

from checks import refused
from conftest import run_command
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.runs.folder import RunFolder
from consilience.runs.run import read_answers

BROKEN = {
    "list": "[]",
    "nothing": "",
    "truncated": '{"settings": {',
    "deep": "[" * 100_000,
    "number": '{"settings": ' + "9" * 5000 + "}",
    "latin": '{"settings": "é"}'.encode("latin-1"),
    "settings": {"settings": "mini"},
    "warnings": {"warnings": {"a": 1}},
    "versions": {"versions": 3},
}  # fmt: skip


PROBE = (
    "probe", "--model", "baseline:majority", "--suite", "mini", "--limit", 2, "--groups", "capital,sport",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "good"
    assert run_command(*PROBE, "--out", folder)[0] == 0
    return folder


def refusals(consilience, commands):
    """What commands say that end with one message and status 2."""
    for command in commands:
        status, out, err = consilience(*command)
        assert (status, out) == (2, ""), command
        assert err.count("error: ") == 1, command
        yield err


@pytest.mark.parametrize("damage", BROKEN)
def test_commands_that_read_a_run_of_probe(damage, good, consilience, tmp_path):
    shutil.copytree(good, tmp_path / "bad")
    record, text = tmp_path / "bad" / "run.json", BROKEN[damage]
    if isinstance(text, dict):
        text = json.dumps(json.loads(record.read_text()) | text)
    record.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = {path: path.read_bytes() for path in record.parent.rglob("*") if path.is_file()}
    commands = [
        ("score", "bad"), ("compare", "bad", good), ("compare", good, "bad"),
        ("report", "bad"), ("report", good, "bad", "--out", "page.html"),
        *(("analyze", name, "bad") for name in ("patterns", "edits", "examples")),
        ("analyze", "knowledge", good, "bad"), (*PROBE, "--out", "bad"),
    ]  # fmt: skip
    for err in refusals(consilience, commands):
        assert "run.json: not the record of a run: " in err and len(err) < 1500
    assert before == {path: path.read_bytes() for path in before}


def test_answers_beside_a_damaged_record_are_not_counted_unchecked(tmp_path):
    run = RunFolder(tmp_path, {"suite": "mini", "groups": ["capital"]})
    run.write_answers("capital", pl.DataFrame(schema=ANSWERS_SCHEMA))
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"answers": []}))
    refused("no 'answers'", read_answers, tmp_path)


def test_a_folder_of_several_runs_says_which_there_are(good, tmp_path):
    for seed in (0, 1):
        shutil.copytree(good, tmp_path / "seeds" / f"seed-{seed}")
    refused("Name one of the runs in it: seed-0, seed-1", read_answers, tmp_path / "seeds")
    (tmp_path / "empty").mkdir()
    refused("no run.json; expected the folder of a", read_answers, tmp_path / "empty")
