"""verify: the same answers, changed files, another suite, and runs that cannot be repeated."""

import json
from pathlib import Path

import polars as pl
import pytest

from consilience.errors import ConsilienceError
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.probing import probe
from consilience.workflow.run_options import VerifyOptions
from consilience.workflow.verifying import verify

QUESTIONS = {"question": "2 + 2?", "answer": "4", "options": ["3", "4"], "item": "a"}


def probed(folder, model="baseline:random", suite="mini", **options):
    probe(ProbeOptions(model=model, suite=suite, folder=folder, **options))
    return folder


def test_the_same_machine_gives_the_same_answers_of_whole_items_of_each_group(tmp_path):
    run = probed(tmp_path / "run", groups=("capital", "painter"), limit=3)
    verified = verify(VerifyOptions(run, sample=20))
    assert verified.is_same
    assert verified.is_exact
    answers = pl.read_parquet(run / "answers" / "*.parquet")
    asked = verified.rows.group_by("group", "item").len()
    sizes = answers.group_by("group", "item").len()
    assert set(asked["group"]) == {"capital", "painter"}
    assert asked.join(sizes, on=["group", "item", "len"], how="anti").is_empty()
    assert verified.verdict.startswith("same answers to the last bit")


def test_another_model_gives_other_answers(tmp_path):
    run = probed(tmp_path / "run", groups=("capital",), limit=5)
    verified = verify(VerifyOptions(run, model="baseline:majority"))
    assert not verified.is_same
    assert 0 < verified.differing.height <= verified.rows.height
    assert verified.settings["model: model"] == ("baseline:random", "baseline:majority")
    assert "answers differ" in verified.verdict


def test_changed_missing_and_unknown_files_are_named(tmp_path):
    run = probed(tmp_path / "run", groups=("capital", "painter", "author"), limit=2)
    folder = run / "answers"
    table = pl.read_parquet(folder / "capital.parquet")
    table.with_columns(answer=pl.lit("x")).write_parquet(folder / "capital.parquet")
    (folder / "painter.parquet").rename(folder / "new.parquet")
    verified = verify(VerifyOptions(run))
    assert verified.files == {"capital": "changed", "painter": "missing", "new": "unknown"}
    assert not verified.is_same
    assert set(verified.differing["group"]) == {"capital"}


def test_a_run_of_questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(QUESTIONS) + "\n")
    run = probed(tmp_path / "run", suite=str(file))
    assert verify(VerifyOptions(run)).is_same
    file.write_text(json.dumps(QUESTIONS | {"question": "3 + 1?"}) + "\n")
    with pytest.raises(ConsilienceError, match="another run"):
        verify(VerifyOptions(run))


def test_a_run_without_options_cannot_be_repeated(tmp_path):
    run = probed(tmp_path / "run", groups=("capital",), limit=2)
    record = json.loads(Path(run, "run.json").read_text())
    del record["options"]
    Path(run, "run.json").write_text(json.dumps(record))
    with pytest.raises(ConsilienceError, match="does not have the options"):
        verify(VerifyOptions(run))
