"""``analyze factors``: runs of questions whose numbers follow from what the model does."""

import csv
import json
import re
from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.runs.run import Run
from consilience.types import Candidates, Relation
from report_builders import kept_run

QUESTIONS = """question,question_2,answer,distractors,group
Which gas do plants take in?,What do plants absorb?,carbon,oxygen;helium,nature
Which planet is closest to the sun?,What orbits nearest to the sun?,Mercury,Venus;Mars,nature
What do bees make?,What is it that bees make?,honey,milk;silk,nature
Who wrote Hamlet?,By whom was Hamlet written?,Shakespeare,Dickens;Homer,culture
In which country is Kyoto?,Where is Kyoto?,Japan,China;Korea,culture
"""


@pytest.fixture
def probed(consilience, tmp_path):
    """``probed("first")``: the folder of a run of a baseline, in two phrasings and three orders."""
    (tmp_path / "own.csv").write_text(QUESTIONS, encoding="utf-8")

    def probe(baseline, *arguments):
        out = tmp_path / f"run-{baseline}"
        model = ("--model", f"baseline:{baseline}", "--suite", "own.csv", "--out", out)
        output(consilience, "probe", *model, *arguments)
        return out

    return probe


def test_the_first_option_shown_follows_the_order_and_nothing_else(consilience, probed):
    """Each of three rotations has another first option: two variants differ with 2/3.

    The report of the run has the table and the figure.
    """
    run = probed("first")
    output(consilience, "report", run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert (
        "What each factor changes, in percent" in page
        and "correctness: total effect" in page
        and "<svg " in page
    )
    status, _, said = consilience("analyze", "factors", run, "--groups", "natur")
    assert (status, "nature" in said) == (2, True), "a group that the run does not have"
    document = json.loads(output(consilience, "analyze", "factors", run, "--json"))
    consistency = {row["factor"]: row for row in document["consistency"]}
    assert (consistency["order"]["value"], consistency["paraphrase"]["value"]) == (0, 1)
    assert (consistency["order"]["levels"], consistency["order"]["n"]) == (3, 5 * 2 * 3)
    parts = {(row["outcome"], row["effect"], row["factors"]): row for row in document["components"]}
    assert parts["answer", "within questions", ""]["value"] == pytest.approx(2 / 3)
    assert parts["answer", "main", "order"]["share"] == pytest.approx(1)
    assert parts["answer", "total", "paraphrase"]["value"] == pytest.approx(0)
    assert parts["correctness", "within questions", ""]["value"] == pytest.approx(2 * 1 / 3 * 2 / 3)
    assert document["warnings"] == []


def test_the_consistency_by_factor_is_that_of_the_metrics_of_the_run(consilience, probed):
    """The same value and the same interval as the row of all questions in metrics.csv."""
    run = probed("random")
    metrics = pl.read_csv(run / "metrics.csv").filter(metric="consistency", over="all")
    analysis = cs.analyze_factors(run)
    assert "What each factor changes in the answers of " in analysis._repr_html_()
    for row in analysis.tables["consistency"].iter_rows(named=True):
        (of_run,) = metrics.filter(kind="factor", level=row["factor"]).to_dicts()
        assert (row["value"], row["n"]) == (pytest.approx(of_run["value"]), of_run["n"])
        bounds = pytest.approx([of_run["low"], of_run["high"]], nan_ok=True)
        assert [row["low"], row["high"]] == bounds


def test_every_number_is_in_one_file_and_tables_are_in_every_format(consilience, probed, tmp_path):
    runs = ("one=" + str(probed("first")), "two=" + str(probed("constant")))
    out = output(consilience, "analyze", "factors", *runs)
    assert "one:" in out and "two:" in out
    text = output(consilience, "analyze", "factors", *runs, "--format", "csv")
    rows = list(csv.DictReader(text.splitlines()))
    numbers = {(row["run"], row["table"], row["factor"] + row["level"]): row for row in rows}
    assert numbers["one", "consistency", "order"]["value"] == "0.0"
    assert numbers["two", "consistency", "order"]["value"] == "1.0"
    assert float(numbers["one", "levels", "orderABC"]["n"]) == 5
    effects = {(row["outcome"], row["effect"]) for row in rows}
    assert {("answer", "main"), ("correctness", "within questions")} <= effects
    for name, begins in (
        ("latex", "% needs"),
        ("md", "* one: The factors order and paraphrase"),
    ):
        assert output(consilience, "analyze", "factors", *runs, "--format", name).startswith(begins)


def test_a_run_that_measured_its_noise_floor_shows_it(consilience, probed):
    """A baseline that draws its answers by the question is steady: no answer changes."""
    run = probed("random", "--noise-floor", "256")
    table = cs.analyze_factors(run).tables["noise"]
    assert table.select("level", "value").rows() == [("", 0)]
    assert "noise  " in output(consilience, "analyze", "factors", run)


def test_a_run_of_one_level_of_each_factor_is_refused_and_reported(consilience, probed):
    run = probed("first", "--vary", "labels=A")
    assert "no factor with two levels" in refusal(consilience, "analyze", "factors", run)
    output(consilience, "report", run)


def test_groups_with_other_factors_are_analyzed_apart(consilience, probed, tmp_path):
    """Questions without options have no order; here the phrasing alone changes an answer.

    A group in one variant has no factor.
    """
    first = Run.open(probed("first"))
    phrasings = FactorialDesign.full([Factor("paraphrase", ("1", "2"))])
    design = Design.of_cells(phrasings, 0, writes_freely=True)
    written = [
        {"group": "open", "item": item, "subject": item, "variant": variant, "gold": "Rome",
         "answer": answer, "input": ["?"]}
        for item, answers in (("a", ("Rome", "Rome")), ("b", ("Rome", "Oslo")))
        for variant, answer in zip(phrasings.names, answers, strict=True)
    ]  # fmt: skip
    written += [{**row, "group": "alone"} for row in written if row["variant"] == "paraphrase=1"]
    nature = first.answers.with_columns(input=first.queries["input"]).filter(group="nature")
    answers = pl.concat([nature, pl.DataFrame(written)], how="diagonal")
    opened = Relation.of_design("open", (), Candidates((), ()), design)
    alone = replace(opened, id="alone", given_design=design.only([0]))
    suite = replace(first.suite, relations=(first.suite["nature"], opened, alone))
    analysis = cs.analyze_factors(kept_run(tmp_path / "mixed", suite, answers))
    consistency = analysis.tables["consistency"].select("run", "factor", "value").rows()
    assert [(run.split(", ")[-1], *rest) for run, *rest in consistency] == [
        ("nature", "paraphrase", 1.0), ("nature", "order", 0.0), ("open", "paraphrase", 0.5)
    ]  # fmt: skip


def test_runs_of_anything_else_are_refused_with_the_command_that_helps(consilience, tmp_path):
    arguments = ("--suite", "mini", "--limit", 2, "--groups", "capital", "--out", "facts")
    assert consilience("probe", "--model", "baseline:majority", *arguments)[0] == 0
    (tmp_path / "pairs.tsv").write_text("id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n2\tc\td\t1\n")
    arguments = ("--suite", "mrpc", "--data", "pairs.tsv", "--out", "pairs")
    assert consilience("probe", "--model", "baseline:majority", *arguments)[0] == 0
    for run, message in (
        ("facts", "no factor with two levels in a run of facts; .*each pattern changes"),
        ("pairs", "no factor with two levels in a run of sentence pairs; .*each form changes"),
    ):
        assert re.search(message, " ".join(refusal(consilience, "analyze", "factors", run).split()))
