"""Where inconsistency comes from: tables worked out by hand, and components that are known."""

import csv
import json
import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.analysis.factor_effects import factor_tables
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.report.layouts import factor_table
from consilience.report.table import as_csv
from consilience.runs.run import Run
from consilience.types import Candidates, Relation
from grids import grid_of
from report_builders import kept_run

NAN = math.nan
ORDER = Factor("order", ("AB", "BA"))
LABELS = Factor("labels", ("A", "1"))
TWO_BY_TWO = FactorialDesign.full([ORDER, LABELS])
ANSWERS = np.array([[0, 0, 1, 1], [0, 1, 1, 0], [2, 2, 2, 2], [0, 0, 0, 1]])
"""Answers (item, cell); cells are (AB, A), (AB, 1), (BA, A), (BA, 1).

They follow the order alone, neither alone (both together), nothing, and change in one cell.
"""
GOLDS = np.array([0, 0, 2, 1])
EFFECTS = [("main", "order"), ("main", "labels"), ("interactions", "")]


NOT_ASKED = -2  # in a table of answers; -1 is no answer


def tables_of(answers=ANSWERS, golds=GOLDS, design=TWO_BY_TWO):
    answers = np.asarray(answers)
    return factor_tables({"g": grid_of(answers, golds, asked=answers != NOT_ASKED)}, design)


def parts_of(tables):
    """(outcome, effect, factors) -> row of the components."""
    rows = tables.components.to_dicts()
    return {(row["outcome"], row["effect"], row["factors"]): row for row in rows}


def test_consistency_by_factor_by_hand():
    """Pairs that differ in the order only: cells 0-2 and 1-3; in the labels only: 0-1 and 2-3."""
    order, labels = tables_of().consistency.sort("factor", descending=True).to_dicts()
    assert (order["factor"], labels["factor"]) == ("order", "labels")
    # Item 1: 0 of 2, item 2: 0 of 2, item 3: 2 of 2, item 4: 1 of 2.
    assert (order["value"], order["n"]) == (3 / 8, 8)
    assert (labels["value"], labels["n"]) == ((2 + 0 + 2 + 1) / 8, 8)
    # The answers 0, 1, 2 in the cells: (3 0 1) (2 1 1) (1 2 1) (1 2 1); 12 pairs of two items, of
    # which 4 - 2 and 5 - 1 have the same answer.
    assert order["chance"] == pytest.approx((2 / 12 + 4 / 12) / 2)
    assert order["corrected"] == pytest.approx((3 / 8 - 1 / 4) / (1 - 1 / 4))
    assert order["low"] < 3 / 8 < order["high"]


def test_components_by_hand():
    """Two cells with replacement differ with probability 1/2, 1/2, 0, 3/8 in the four items."""
    parts = parts_of(tables_of())
    for effect, factors, total in (
        ("within questions", "", 1 / 2 + 1 / 2 + 0 + 3 / 8),
        # Item 4: the means of the indicator of 1 are 0 and 1/2 by either factor: twice (1/4)^2.
        ("main", "order", 1 / 2 + 1 / 8), ("main", "labels", 1 / 8),
        ("interactions", "", 1 / 2 + 1 / 8), ("total", "order", 1 / 2 + 1 / 2 + 1 / 4),
    ):  # fmt: skip
        row = parts["answer", effect, factors]
        assert [row["value"], row["share"]] == pytest.approx([total / 4, total / (11 / 8)])
    # Right: items 1 and 2 in two cells, item 3 in all, item 4 in one; means 1/2 1/2 1 1/4.
    between = 2 * np.var([0.5, 0.5, 1, 0.25], ddof=1)
    within = (1 / 2 + 1 / 2 + 0 + 3 / 8) / 4
    assert parts["correctness", "within questions", ""]["value"] == pytest.approx(within)
    shares = sum(parts["correctness", *each]["share"] for each in EFFECTS)
    assert shares == pytest.approx(within / (between + within))


def test_items_that_lack_a_variant_have_pairs_but_no_components():
    """Item 4 was not asked in a cell: its other pair counts as 1, its components do not."""
    answers = ANSWERS.copy()
    answers[3, 3] = NOT_ASKED
    tables = tables_of(answers)
    order = tables.consistency.row(0, named=True)
    # Of items 1 and 2 no pair agrees, of item 3 both, of item 4 the one that it has does.
    assert (order["value"], order["n"], order["n_excluded"]) == (2 / 4, 7, 1)
    whole = parts_of(tables)["answer", "within questions", ""]
    assert (whole["value"], whole["n"], whole["n_excluded"]) == (pytest.approx(1 / 3), 3, 1)
    assert "effects are over the 3 of 4 questions" in tables.notes[0]
    tables = tables_of(np.where(np.eye(4, dtype=bool), NOT_ASKED, ANSWERS))
    assert tables.notes[0].startswith("no question was asked in all variants")
    assert tables.components.is_empty()


def test_what_has_no_answer_is_wrong_and_agrees_with_nothing():
    """Item 3 in cells 0 and 1: two cells with replacement agree with 1/16 + 1/16 + 4/16."""
    answers = ANSWERS.copy()
    answers[2, :2] = -1
    tables = tables_of(answers)
    order, labels = tables.consistency.to_dicts()
    assert (order["value"], labels["value"]) == ((0 + 0 + 0 + 1) / 8, (2 + 0 + 1 + 1) / 8)
    parts = parts_of(tables)
    whole = parts["answer", "within questions", ""]
    assert whole["value"] == pytest.approx((1 / 2 + 1 / 2 + 5 / 8 + 3 / 8) / 4)
    # Right in cells: items 1, 2; 1; 3; 2, 3, 4.
    assert tables.levels["value"].to_list() == [3 / 8, 4 / 8, 3 / 8, 4 / 8]


def test_a_single_factor_is_all_of_the_variation_and_nothing_has_no_shares():
    """Where answers never change: a probability of 0 with an interval, and no share of nothing."""
    parts = parts_of(tables_of([[0, 1], [0, 0]], [0, 0], FactorialDesign.full([ORDER])))
    assert parts["answer", "main", "order"]["share"] == 1
    assert ("answer", "interactions", "") not in parts
    parts = parts_of(tables_of(np.zeros((30, 4), int), np.zeros(30, int)))
    main = parts["answer", "main", "order"]
    assert (main["value"], main["low"]) == (0, 0)
    assert main["high"] == pytest.approx(1 - 0.025 ** (1 / 30))
    assert math.isnan(main["share"])


def test_accuracy_by_level_by_hand():
    """Right in the cells: items 1, 2, 3; items 1, 3; item 3; items 2, 3, 4; of 8 by level."""
    tables = tables_of()
    assert tables.levels["level"].to_list() == ["AB", "BA", "A", "1"]
    assert tables.levels["value"].to_list() == [5 / 8, 4 / 8, 4 / 8, 5 / 8]
    answers = ANSWERS.copy()
    answers[0] = [0, 0, NOT_ASKED, NOT_ASKED]
    assert tables_of(answers).levels["value", "n"].rows()[:2] == [(5 / 8, 4), (4 / 6, 3)]


def test_groups_are_counted_together():
    """Numbers over the items of two groups are those of one group with all items."""
    halves = {"a": grid_of(ANSWERS[:2], GOLDS[:2]), "b": grid_of(ANSWERS[2:], GOLDS[2:])}
    apart = factor_tables(halves, TWO_BY_TWO)
    whole = tables_of()
    assert apart.consistency["value"].to_list() == whole.consistency["value"].to_list()
    assert apart.components["value"].to_list() == pytest.approx(whole.components["value"].to_list())


def test_the_table_has_a_row_for_each_factor_with_its_total_effect():
    rows = list(csv.DictReader(as_csv(factor_table([tables_of()], "title")).splitlines()))
    assert [row["factor"] for row in rows] == ["order", "labels"]
    share = 100 * (1 / 2 + 1 / 2 + 1 / 4) / (11 / 8)
    assert float(rows[0]["effect on answers"]) == pytest.approx(share)
    assert [row["consistency"] for row in rows] == ["37.5", "62.5"]


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

    The report of the run has the table.
    """
    run = probed("first")
    output(consilience, "report", run)
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("What each factor changes, in percent", "on correctness"):
        assert text in page
    status, _, said = consilience("analyze", "factors", run, "--groups", "natur")
    assert (status, "nature" in said) == (2, True), "a group that the run does not have"
    document = json.loads(output(consilience, "analyze", "factors", run, "--json"))
    consistency = {row["factor"]: row for row in document["consistency"]}
    assert (consistency["order"]["value"], consistency["paraphrase"]["value"]) == (0, 1)
    assert (consistency["order"]["levels"], consistency["order"]["n"]) == (3, 5 * 2 * 3)
    keys = ("outcome", "effect", "factors")
    parts = {tuple(row[key] for key in keys): row for row in document["components"]}
    for part, name, number in (
        (("answer", "within questions", ""), "value", 2 / 3), (("answer", "main", "order"), "share", 1),
        (("answer", "total", "paraphrase"), "value", 0),
        (("correctness", "within questions", ""), "value", 2 * 1 / 3 * 2 / 3),
    ):  # fmt: skip
        assert parts[part][name] == pytest.approx(number)
    assert document["warnings"] == []


def test_the_consistency_by_factor_is_that_of_the_metrics_of_the_run(consilience, probed):
    """The same value and the same interval as the row of all questions in metrics.csv.

    The noise floor stands beside it: a baseline that draws by the question is steady.
    """
    run = probed("random", "--noise-floor", "256")
    metrics = pl.read_csv(run / "metrics.csv").filter(metric="consistency", over="all")
    analysis = cs.analyze_factors(run)
    assert "What each factor changes in the answers of " in analysis._repr_markdown_()
    assert analysis.tables["noise"].select("level", "value").rows() == [("", 0)]
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
    for name, begins in ("latex", "% needs"), ("md", "**What each factor changes"):
        assert output(consilience, "analyze", "factors", *runs, "--format", name).startswith(begins)


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
    (tmp_path / "pairs.tsv").write_text("id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n2\tc\td\t1\n")
    for suite, options, message in (
        ("mini", ("--limit", 2), "in a run of facts; .*each pattern changes"),
        ("mrpc", ("--data", "pairs.tsv"), "in a run of sentence pairs; .*each form changes"),
    ):
        probe = ("probe", "--model", "baseline:majority", "--suite", suite, "--out", suite)
        output(consilience, *probe, *options)
        said = " ".join(refusal(consilience, "analyze", "factors", suite).split())
        assert re.search(f"no factor with two levels {message}", said)
