"""Where inconsistency comes from: tables worked out by hand, and components that are known."""

import csv
import math
from itertools import product

import numpy as np
import polars as pl
import pytest

from consilience.analysis.factor_effects import factor_tables
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.registry import Clusters, Grid
from consilience.report.analysis_tables import FactorView, factor_table
from consilience.report.export import as_csv

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


def grid_of(answers, golds):
    """A grid of answers (item, cell)."""
    answers = np.asarray(answers)
    golds = np.broadcast_to(np.asarray(golds)[:, None], answers.shape)
    subjects = Clusters.of(f"q{at}" for at in range(len(answers)))
    return Grid(np.maximum(answers, -1), golds, answers != NOT_ASKED, None, subjects)


def tables_of(answers=ANSWERS, golds=GOLDS, design=TWO_BY_TWO):
    return factor_tables({"g": grid_of(answers, golds)}, design)


def parts_of(tables):
    """(outcome, effect, factors) -> row of the components."""
    rows = tables.components.to_dicts()
    return {(row["outcome"], row["effect"], row["factors"]): row for row in rows}


def index_of(tables, name):
    (index,) = tables.indices.filter(index=name).to_dicts()
    return index


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
    whole = parts["answer", "within questions", ""]
    assert whole["value"] == pytest.approx((1 / 2 + 1 / 2 + 0 + 3 / 8) / 4)
    # Item 4: the means of the indicator of 1 are 0 and 1/2 by either factor: twice (1/4)^2.
    assert parts["answer", "main", "order"]["value"] == pytest.approx((1 / 2 + 1 / 8) / 4)
    assert parts["answer", "main", "labels"]["value"] == pytest.approx((1 / 8) / 4)
    assert parts["answer", "interactions", ""]["value"] == pytest.approx((1 / 2 + 1 / 8) / 4)
    assert parts["answer", "total", "order"]["value"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 4) / 4)
    assert parts["answer", "main", "order"]["share"] == pytest.approx((5 / 8) / (11 / 8))
    assert parts["answer", "interactions", ""]["share"] == pytest.approx((5 / 8) / (11 / 8))


def test_components_of_correctness_by_hand():
    """Right: items 1 and 2 in two cells, item 3 in all, item 4 in one; means 1/2 1/2 1 1/4."""
    parts = parts_of(tables_of())
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
    assert index_of(tables, "accuracy_range")["n"] == 4


def test_a_single_factor_is_all_of_the_variation():
    parts = parts_of(tables_of([[0, 1], [0, 0]], [0, 0], FactorialDesign.full([ORDER])))
    assert parts["answer", "main", "order"]["share"] == 1
    assert ("answer", "interactions", "") not in parts


def test_answers_that_never_change_have_no_shares():
    """All variation is 0: a probability of 0 with an interval, and no share of nothing."""
    parts = parts_of(tables_of(np.zeros((30, 4), int), np.zeros(30, int)))
    main = parts["answer", "main", "order"]
    assert (main["value"], main["low"]) == (0, 0)
    assert main["high"] == pytest.approx(1 - 0.025 ** (1 / 30))
    assert math.isnan(main["share"])


def test_accuracy_by_level_by_hand():
    """Right in the cells: items 1, 2, 3; items 1, 3; item 3; items 2, 3, 4; of 8 by level."""
    levels = tables_of().levels
    assert levels["level"].to_list() == ["AB", "BA", "A", "1"]
    assert levels["value"].to_list() == [5 / 8, 4 / 8, 4 / 8, 5 / 8]
    answers = ANSWERS.copy()
    answers[0] = [0, 0, NOT_ASKED, NOT_ASKED]
    given, rotated = tables_of(answers).levels["value", "n"].rows()[:2]
    assert (given, rotated) == ((5 / 8, 4), (4 / 6, 3))


def test_the_range_of_accuracy_by_hand():
    """Right in the cells: items 1, 2, 3; items 1, 3; item 3; items 2, 3, 4."""
    index = index_of(tables_of(), "accuracy_range")
    assert (index["lowest"], index["highest"], index["value"]) == (1 / 4, 3 / 4, 1 / 2)
    assert index["lowest_variant"] == "order=BA, labels=A"
    assert (index["n_lowest"], index["n_highest"]) == (1, 2)
    none = index_of(
        tables_of(np.where(ANSWERS[:, :1] == ANSWERS, NOT_ASKED, ANSWERS)), "accuracy_range"
    )
    assert all(math.isnan(none[name]) for name in ("value", "lowest", "highest"))
    assert (none["n"], none["n_excluded"], none["lowest_variant"], none["n_lowest"]) == (
        0,
        4,
        "",
        0,
    )
    table = factor_table([FactorView("run", tables_of(), noise())], "title")
    assert "lowest in order=BA, labels=A (25.0)" in table.notes[-1]


def test_groups_are_counted_together():
    """Numbers over the items of two groups are those of one group with all items."""
    halves = {"a": grid_of(ANSWERS[:2], GOLDS[:2]), "b": grid_of(ANSWERS[2:], GOLDS[2:])}
    apart = factor_tables(halves, TWO_BY_TWO)
    whole = tables_of()
    assert apart.consistency["value"].to_list() == whole.consistency["value"].to_list()
    assert apart.components["value"].to_list() == pytest.approx(whole.components["value"].to_list())


def mixture(generator, items, shares):
    """Items that follow the order alone, the labels alone, both together, or nothing."""
    kind = generator.choice(4, items, p=[*shares, 1 - sum(shares)])
    cells = np.array(list(product(range(2), range(2))))
    patterns = np.stack([cells[:, 0], cells[:, 1], cells.sum(axis=1) % 2, 0 * cells[:, 0]])
    return patterns[kind]


def test_components_and_their_intervals_hold_what_items_were_drawn_from():
    """Half of the variation of an item that follows one factor is 1/2: its share times 1/2."""
    shares, hits, values = (0.3, 0.2, 0.1), [], []
    generator = np.random.default_rng(5)
    for _ in range(60):
        parts = parts_of(tables_of(mixture(generator, 40, shares), np.zeros(40, int)))
        rows = [parts["answer", *each] for each in EFFECTS]
        values.append([row["value"] for row in rows])
        hits += [r["low"] <= s / 2 <= r["high"] for r, s in zip(rows, shares, strict=True)]
    assert np.mean(values, axis=0) == pytest.approx(np.array(shares) / 2, abs=0.01)
    assert np.mean(hits) > 0.9


def noise(**flips):
    row = {"metric": "noise_floor", "over": "all", "group": "", "kind": "factor", "n": 256}
    rows = [row | {"level": name, "value": value} for name, value in flips.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def test_the_table_has_a_row_for_each_factor_and_what_is_beyond_them():
    """Shares of the answer sum to 100; a row of the noise floor has a consistency alone."""
    view = FactorView("run", tables_of(), noise(reordered=0.02))
    rows = list(csv.DictReader(as_csv(factor_table([view], "title")).splitlines()))
    assert [row["factor"] for row in rows] == ["order", "labels", "interactions", "noise"]
    shares = [float(row["answer: main effect"]) for row in rows[:3]]
    assert (sum(shares), shares[0]) == (pytest.approx(100), pytest.approx(100 * (5 / 8) / (11 / 8)))
    assert [row["consistency"] for row in rows] == ["37.5", "62.5", "", "98.0"]
