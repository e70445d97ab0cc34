"""``probe`` of questions that a model answers in its own words."""

import json
from dataclasses import replace

import polars as pl
import pytest

from checks import output, refused
from consilience import analyze_factors, open_run
from consilience.core.errors import SILENT
from consilience.options.probe import ProbeOptions
from consilience.probing.probe import plan_probe, probe

OPEN = "question,question_2,answer\nRome and Paris ?,the capital Paris ?,Rome\nthe Italy ?,Italy ?,Italy\n"
CLOSED = "question,answer,options\nRome and Paris ?,Rome,Rome;Paris\nthe Italy ?,Italy,Italy;Rome\n"


@pytest.fixture
def options(tmp_path, model_folder):
    """``options(OPEN, generate=True)``: a probe of a file of questions with a tiny model."""

    def build(rows, **more):
        path = tmp_path / "own.csv"
        path.write_text(rows, encoding="utf-8")
        fields = {"model": str(model_folder("llama")), "out": tmp_path / "run", "device": "cpu"}
        return ProbeOptions(suite=str(path), **fields | {"max_new_tokens": 4} | more)

    return build


def test_a_run_of_sampled_texts_keeps_them_and_is_resumed(options, tmp_path):
    """2 questions in 2 phrasings, 3 samples each; the same command asks nothing again."""
    vary = ["paraphrase", "sample=3"]
    asked = options(OPEN, vary=vary, temperature=1.5, match="contains")
    first = probe(asked, SILENT)
    (path,) = (tmp_path / "run" / "answers").glob("*.parquet")
    table = pl.read_parquet(path)
    assert (table["sample"].to_list(), table["text"].null_count()) == (["1", "2", "3"] * 4, 0)
    assert table["text"].n_unique() > 1
    settings = first.record["settings"]
    assert settings["writing"] == {"match": "contains"}
    assert settings["model"]["temperature"] == 1.5
    assert settings["factors"]["sample"] == ["1", "2", "3"]
    assert any("match no option, or no right answer" in note for note in first.notes)
    assert {"sample", "paraphrase"} <= set(first.metrics["level"])
    written = path.stat().st_mtime_ns
    again = probe(asked, SILENT)
    assert path.stat().st_mtime_ns == written
    assert again.metrics.equals(first.metrics)
    assert again.notes == first.notes


def test_examples_show_what_was_written_and_why_it_is_no_match(options, tmp_path, consilience):
    """A random model writes neither Rome nor Italy: two wrong answers to each question."""
    run = tmp_path / "run"
    probe(options(OPEN), SILENT)
    table = pl.read_parquet(next((run / "answers").glob("*.parquet")))
    status, out, err = consilience("analyze", "examples", run, "--examples", "9")
    assert status == 0, err
    assert "pattern" not in out and "not the gold" in out
    assert "the rule: contains for open questions" in err
    csv = consilience("analyze", "examples", run, "--examples", "9", "--format", "csv")[1]
    replies = pl.read_csv(csv.encode())
    assert replies["text"].to_list() == table["text"].to_list()
    assert replies["unmatched"].to_list() == ["not the gold"] * 4
    assert "the capital Paris ?" in replies["prompt"][1]


def test_options_are_written_with_generate(options, tmp_path):
    plan = plan_probe(options(CLOSED, generate=True), SILENT)
    assert plan.queries == 2 * 2
    counted = probe(options(CLOSED, generate=True), SILENT)
    table = pl.read_parquet(next((tmp_path / "run" / "answers").glob("*.parquet")))
    assert {"text", "unmatched", "option"} <= set(table.columns)
    assert (
        counted.record["settings"]["writing"]["match"] == "contains for open questions, else exact"
    )


def test_the_share_of_answers_that_are_no_option_is_a_number(tmp_path, consilience):
    """One of four texts, in one of two groups; `score`, that of the run and the report have it."""
    answers, run = tmp_path / "answers.csv", tmp_path / "run"
    texts = ("Yes.", "no", "no idea", "yes")
    table = {"item": range(4), "gold": "yes", "options": '["yes", "no"]', "answer": texts}
    pl.DataFrame({**table, "group": [*"abab"]}).write_csv(answers)
    table = ("score", answers, "--out", run, "--json")
    for command in (table, ("score", run, "--json")):
        out = output(consilience, *command)
        (row,) = (r for r in json.loads(out)["summary"]["rows"] if r["metric"] == "no_option")
        assert row["value"] == 1 / 4
        assert row["low"] is None, "four questions are too few for an interval"
    assert "answers that are no option" in consilience("score", run)[1]
    assert consilience("report", run)[0] == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Answers that are no option." in page


def test_a_baseline_is_read_whatever_the_rule(options):
    for rows in (OPEN, CLOSED):
        asked = options(rows, model="baseline:oracle", match="regex:is (.*)", generate=True)
        counted = probe(replace(asked, out=asked.out / rows[-8:].strip()), SILENT)
        assert counted.metrics.filter(metric="accuracy", over="all")["value"].to_list() == [1.0]


def test_a_run_has_groups_with_options_and_open_ones(options, tmp_path):
    """Written answers have further columns; the run is read as a whole, and counts the same."""
    closed = "closed,Rome and Paris ?,the Paris ?,Rome,Rome;Paris\n"
    rows = f"group,question,question_2,answer,options\n{closed}open,the Italy ?,Italy ?,Italy,\n"
    counted = probe(options(rows), SILENT)
    opened = open_run(tmp_path / "run")
    assert opened.answers["text"].null_count() == 2 * 2
    assert opened.metrics.equals(counted.metrics)
    names = analyze_factors(opened).tables["consistency"]["run"].unique(maintain_order=True)
    assert [name.split(", ")[1] for name in names] == ["closed", "open"]


def test_what_does_not_fit_is_refused_before_a_model_is_loaded(options):
    for rows, more, expected in (
        (CLOSED, {"vary": ["sample=2"], "temperature": 1.0}, "Add --generate"),
        (CLOSED, {"match": "contains"}, "Add --generate"),
        (OPEN, {"vary": ["sample=2"]}, "at temperature 0"),
        (OPEN, {"match": "contain"}, "Did you mean 'contains'"),
        (OPEN, {"vary": ["sample=two"], "temperature": 1.0}, "how many texts to sample"),
        (OPEN, {"model": "baseline:majorty"}, "Did you mean 'majority'"),
    ):
        refused(expected, probe, options(rows, **more), SILENT)
