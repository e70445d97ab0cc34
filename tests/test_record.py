"""A damaged run.json is one message and exit 2, in whatever reads a run; nothing is overwritten."""

import copy
import json

import polars as pl
import pytest

from consilience.errors import ConsilienceError
from consilience.record import fault_of_run
from consilience.run import read_answers
from consilience.run_folder import LARGEST, RunFolder, record_of
from consilience.schemas import ANSWERS_SCHEMA
from test_report import pair_run

RECORD = {
    "asked": {
        "format": 2,
        "suite": "mini",
        "groups": ["capital"],
        "limit": None,
        "protocol": "strict",
        "model": {
            "model": "m", "architecture": "B", "parameters": 7, "dtype": "float32", "device": "cpu",
            "digest": None, "revision": None,
        },
    },
    "started": "2026-01-31T12:00:00+00:00",
    "finished": None,
    "command": "",
    "versions": {"python": "3.11"},
    "git": None,
    "warnings": ["a note"],
    "answers": {"capital": "0" * 64},
    "screened": {"capital": {"queries": 3, "bound": 0.5, "enlarged": False}},
}  # fmt: skip

GONE = object()

DAMAGES = [
    ("asked", ["suite", "mini"], "'asked' is [\"suite\", \"mini\"]; expected an object"),
    ("asked", GONE, "no 'asked'"),
    ("started", 7, "'started' is 7; expected a time"),
    ("started", GONE, "no 'started'"),
    ("finished", "yes", "'finished' is \"yes\"; expected a time or null"),
    ("finished", True, "'finished' is true"),
    ("command", ["probe"], "'command' is"),
    ("versions", [["python", "3"]], "'versions' is"),
    ("versions", {"python": 3}, "'versions' is {\"python\": 3}; expected an object of texts"),
    ("versions", GONE, "no 'versions'"),
    ("git", 7, "'git' is 7"),
    ("warnings", "a note", "'warnings' is"),
    ("warnings", [1], "'warnings' is [1]; expected a list of texts"),
    ("answers", None, "'answers' is null"),
    ("answers", ["0" * 64], "'answers' is"),
    ("answers", {"capital": "0" * 63}, "expected an object of SHA-256 digests"),
    ("answers", {"capital": 0}, "expected an object of SHA-256 digests"),
    ("products", "onednn", "'products' is"),
    ("screened", {"capital": [1]}, "'screened' is"),
    ("screened", {"capital": {"queries": "3"}}, "'screened' is"),
    ("suite_source", {"folder": 7}, "'suite_source' is"),
    ("words", {"capital": ["a", 1]}, "'words' is"),
    ("asked.suite", 7, "'asked.suite' is 7; expected a text"),
    ("asked.groups", "capital", "'asked.groups' is"),
    ("asked.limit", "5", "'asked.limit' is"),
    ("asked.limit", True, "'asked.limit' is true; expected a whole number or null"),
    ("asked.protocol", None, "'asked.protocol' is null"),
    ("asked.model", 7, "'asked.model' is 7; expected a text or an object"),
    ("asked.model.parameters", "7", "'asked.model.parameters' is"),
    ("asked.model.device", GONE, "no 'asked.model.device'"),
    ("asked.model.model", ["m"], "'asked.model.model' is"),
]  # fmt: skip


def damaged(record, place, value):
    """The record with another value at a place such as asked.model, or without it."""
    *path, last = place.split(".")
    changed = inner = copy.deepcopy(record)
    for name in path:
        inner = inner[name]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    return changed


@pytest.mark.parametrize(("place", "value", "message"), DAMAGES)
def test_every_field_that_is_read_is_checked(place, value, message):
    assert message in fault_of_run(damaged(RECORD, place, value))


def test_records_of_others_and_of_older_versions_pass():
    assert fault_of_run(RECORD) == ""
    old = {name: RECORD[name] for name in ("asked", "started", "versions", "warnings")}
    assert fault_of_run(old) == ""
    assert fault_of_run(damaged(RECORD, "asked.model", "m")) == ""
    assert (
        fault_of_run(damaged(RECORD, "asked.model", {"model": "baseline:random", "seed": 1})) == ""
    )


BROKEN = {
    "list": "[]",
    "nothing": "",
    "truncated": '{"asked": {',
    "deep": "[" * 100_000,
    "number": '{"asked": ' + "9" * 5000 + "}",
    "latin": '{"asked": "é"}'.encode("latin-1"),
    "digests": {"answers": {"capital": "x"}},
    "finished": {"finished": "yes"},
    "asked": {"asked": "mini"},
    "warnings": {"warnings": {"a": 1}},
    "versions": {"versions": 3},
}  # fmt: skip


@pytest.mark.parametrize("damage", BROKEN)
def test_commands_that_read_a_run_of_probe(damage, consilience, tmp_path):
    probe = ["probe", "--model", "baseline:majority", "--suite", "mini", "--limit", 2, "--groups"]
    for name in ("good", "bad"):
        assert consilience(*probe, "capital,sport", "--out", name)[0] == 0
    record, text = tmp_path / "bad" / "run.json", BROKEN[damage]
    if isinstance(text, dict):
        text = json.dumps(json.loads(record.read_text()) | text)
    record.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = {path: path.read_bytes() for path in record.parent.rglob("*") if path.is_file()}
    for command in (
        ["score", "bad", "--suite", "mini"],
        ["compare", "bad", "good"],
        ["compare", "good", "bad"],
        ["report", "bad"],
        ["report", "good", "bad", "--out", "page.html"],
        ["analyze", "patterns", "bad"],
        ["analyze", "edits", "bad"],
        ["analyze", "examples", "bad"],
        ["analyze", "knowledge", "good", "bad"],
        [*probe, "capital,sport", "--out", "bad"],
    ):
        status, out, err = consilience(*command)
        assert (status, out) == (2, ""), command
        assert err.count("error: ") == 1, command
        assert "run.json: not the record of a run: " in err, command
        assert len(err) < 1500, command
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"task": 7}, "'asked.task' is 7"),
        ({"task": {}}, "no 'name'"),
        ({"task": {"name": "rte", "kind": ["NLI"]}}, "'kind' is"),
        ({"pairs": 7}, "'asked.pairs' is 7"),
        ({"kind": 7}, "'asked.kind' is 7"),
    ],
)
def test_commands_that_read_a_run_of_perturb(damage, message, consilience, tmp_path):
    for name in ("good", "bad"):
        pair_run(tmp_path / name, {1})
    record = json.loads((tmp_path / "bad" / "run.json").read_text())
    record["asked"] |= damage
    (tmp_path / "bad" / "run.json").write_text(json.dumps(record))
    for command in (
        ["compare", "bad", "good"],
        ["compare", "good", "bad"],
        ["report", "bad"],
        ["report", "good", "bad", "--out", "page.html"],
    ):
        status, out, err = consilience(*command)
        assert (status, out) == (2, ""), command
        assert err.count("error: ") == 1, command
        assert message in err, command


def test_what_is_no_file_or_too_large_is_not_read(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(ConsilienceError, match=r"run\.json: not the record of a run: no file"):
        record_of(tmp_path)
    (tmp_path / "run.json").rmdir()
    assert record_of(tmp_path) == {}
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(ConsilienceError, match="67,108,865 bytes; expected at most 67,108,864"):
        record_of(tmp_path)


def test_answers_beside_a_damaged_record_are_not_counted_unchecked(tmp_path):
    """With digests that are no object they were read as those of a version without digests."""
    run = RunFolder(tmp_path, {"suite": "mini"})
    run.write_answers("capital", pl.DataFrame(schema=ANSWERS_SCHEMA))
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"answers": []}))
    with pytest.raises(ConsilienceError, match="expected an object of SHA-256 digests"):
        read_answers(tmp_path)


def test_a_folder_of_several_runs_says_which_there_are(consilience, tmp_path):
    for seed in (0, 1):
        pair_run(tmp_path / "seeds" / f"seed-{seed}", {1})
    for folder in ("seeds", "seeds/seed-0"):
        status, _, err = consilience("score", folder, "--suite", "mini")
        assert status == 2
        assert "a run of sentence pairs" in err
        assert "`consilience compare`" in err
    with pytest.raises(ConsilienceError, match="Name one of the runs in it: seed-0, seed-1"):
        read_answers(tmp_path / "seeds")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConsilienceError, match=r"no answers/\*\.parquet; expected the folder of a"):
        read_answers(tmp_path / "empty")
