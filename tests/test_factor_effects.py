"""Where inconsistency comes from: tables worked out by hand, and components that are known."""

import csv
import math
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from checks import refused
from consilience.analysis.factor_effects import (
    CellAnswers,
    OptionScores,
    factor_tables,
    option_scores,
)
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.components import (
    accuracy_range,
    exact_parts,
    pair_parts,
    posix,
    prompt_sensitivity,
    shuffled_spreads,
)
from consilience.metrics.registry import Grid, quotient
from consilience.report.charts import factor_rows
from consilience.report.export import as_csv, as_markdown, render, spec_of
from consilience.report.report_page import factor_parts, report_page
from consilience.report.run_view import FactorView, factor_table, index_table
from report_builders import shown

NAN = math.nan
ORDER = Factor("order", ("given", "rotation 1"))
LABELS = Factor("labels", ("A", "1"))
TWO_BY_TWO = FactorialDesign.full([ORDER, LABELS])
ANSWERS = np.array([[0, 0, 1, 1], [0, 1, 1, 0], [2, 2, 2, 2], [0, 0, 0, 1]])
"""Answers (item, cell); cells are (given, A), (given, 1), (rotation 1, A), (rotation 1, 1).

They follow the order alone, neither alone (both together), nothing, and change in one cell.
"""
GOLDS = np.array([0, 0, 2, 1])
EFFECTS = [("main", "order"), ("main", "labels"), ("interactions", "")]


def grid_of(answers, golds, design=TWO_BY_TWO):
    """A grid of answers (item, cell) with all pairs of cells."""
    answers = np.asarray(answers)
    width = len(design.cells)
    pairs = np.array([(a, b) for a in range(width) for b in range(a + 1, width)])
    subjects = np.array([f"q{at}" for at in range(len(answers))], dtype=object)
    golds = np.broadcast_to(np.asarray(golds)[:, None], answers.shape)
    words = np.unique(answers[answers >= 0])
    return Grid(answers, golds, pairs, subjects, words)


def tables_of(answers=ANSWERS, golds=GOLDS, design=TWO_BY_TWO, **options):
    return factor_tables([CellAnswers({"g": grid_of(answers, golds, design)}, **options)], design)


def parts_of(tables):
    """(outcome, effect, factors) -> row of the components."""
    rows = tables.components.to_dicts()
    return {(row["outcome"], row["effect"], row["factors"]): row for row in rows}


def index_of(tables, name):
    (index,) = tables.indices.filter(index=name).to_dicts()
    return index


def value_of(numbers):
    """The value of a part from the numbers of all items."""
    return quotient(*numbers.finish(numbers.columns.sum(axis=0)))


def test_consistency_by_factor_by_hand():
    """Pairs that differ in the order only: cells 0-2 and 1-3; in the labels only: 0-1 and 2-3."""
    order, labels = tables_of().consistency.sort("factor", descending=True).to_dicts()
    assert (order["factor"], labels["factor"]) == ("order", "labels")
    # Item 1: 0 of 2, item 2: 0 of 2, item 3: 2 of 2, item 4: 1 of 2.
    assert (order["value"], order["n"]) == (3 / 8, 8)
    assert (labels["value"], labels["n"]) == ((2 + 0 + 2 + 1) / 8, 8)
    # Shares of the answers 0, 1, 2 in the cells: (3 0 1) (2 1 1) (1 2 1) (1 2 1) of 4.
    assert order["chance"] == pytest.approx(((3 + 0 + 1) / 16 + (2 + 2 + 1) / 16) / 2)
    assert order["corrected"] == pytest.approx((3 / 8 - 9 / 32) / (1 - 9 / 32))
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
    assert ("answer", "between questions", "") not in parts


def test_components_of_correctness_by_hand():
    """Right: items 1 and 2 in two cells, item 3 in all, item 4 in one; means 1/2 1/2 1 1/4."""
    parts = parts_of(tables_of())
    between = 2 * np.var([0.5, 0.5, 1, 0.25], ddof=1)
    assert parts["correctness", "between questions", ""]["value"] == pytest.approx(between)
    within = (1 / 2 + 1 / 2 + 0 + 3 / 8) / 4
    assert parts["correctness", "within questions", ""]["value"] == pytest.approx(within)
    share = parts["correctness", "between questions", ""]["share"]
    assert share == pytest.approx(between / (between + within))
    effects = [*EFFECTS, ("between questions", "")]
    assert sum(parts["correctness", *each]["share"] for each in effects) == pytest.approx(1)


def test_a_total_effect_is_what_the_pairs_of_the_factor_say():
    """(1 - 1/L) (1 - consistency) for L levels, from pairs as from the decomposition."""
    design = FactorialDesign.full([Factor("order", ("given", "reversed", "BAC")), LABELS])
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, (20, 6))
    right = answers == 0
    exact, pairs = exact_parts(answers, right, design), pair_parts(answers, right, design)
    for part in pairs:
        assert value_of(pairs[part]) == pytest.approx(value_of(exact[part]))
    consistency = tables_of(answers, np.zeros(20, int), design).consistency
    values = dict(consistency.select("factor", "value").iter_rows())
    (total,) = (pairs[key] for key in pairs if key[0] == ("answer", "total", ("order",)))
    assert value_of(total) == pytest.approx(2 / 3 * (1 - values["order"]))


def test_items_that_lack_a_variant_have_pairs_but_no_components():
    """Item 4 without an answer in a cell: its other pair counts, its components do not."""
    answers = ANSWERS.copy()
    answers[3, 3] = -1
    tables = tables_of(answers)
    order = tables.consistency.row(0, named=True)
    assert (order["value"], order["n"], order["n_excluded"]) == (3 / 7, 7, 1)
    whole = parts_of(tables)["answer", "within questions", ""]
    assert (whole["value"], whole["n"], whole["n_excluded"]) == (pytest.approx(1 / 3), 3, 1)
    assert "effects are over the 3 of 4 questions" in tables.notes[0]
    tables = tables_of(np.where(np.eye(4, dtype=bool), -1, ANSWERS))
    assert tables.notes[0].startswith("no question was answered in all variants")
    assert set(tables.components["effect"]) == {"total"}


def test_a_fractional_design_has_total_effects_of_pairs():
    """One factor at a time: item 1 changes with the order, item 2 with both, item 3 with none."""
    design = FactorialDesign.one_factor([ORDER, LABELS])
    tables = tables_of([[0, 1, 0], [0, 1, 1], [0, 0, 0]], [0, 0, 0], design)
    parts = parts_of(tables)
    assert parts["answer", "total", "order"]["value"] == pytest.approx(1 / 2 * 2 / 3)
    assert parts["correctness", "total", "labels"]["value"] == pytest.approx(1 / 2 * 1 / 3)
    assert math.isnan(parts["answer", "total", "order"]["share"])
    assert "not a full one" in tables.notes[0]


def test_a_total_effect_counts_the_levels_that_a_question_has():
    """Of two options there are two orders: a random one is the other with probability 1/2."""
    orders = Factor("order", ("given", "rotation 1", "rotation 2", "rotation 3"))
    answers = np.array([[0, 1, -1, -1]] * 10)
    parts = pair_parts(answers, answers == 0, FactorialDesign.full([orders]))
    assert value_of(parts[("answer", "total", ("order",)), False]) == 1 / 2


def test_radial_designs_estimate_the_total_effects_of_the_whole_design():
    """Of answers that follow the order in half of the items: (1 - 1/3) / 2 of 2 x 3 x 2 cells."""
    orders = Factor("order", ("given", "reversed", "BAC"))
    factors = [Factor("paraphrase", ("1", "2")), orders, LABELS]
    order = np.array(FactorialDesign.full(factors).cells)[:, 1]
    cells = {cell: at for at, cell in enumerate(FactorialDesign.full(factors).cells)}
    answers = np.concatenate([np.tile(order, (50, 1)), np.zeros((50, 12), int)])
    for seed in range(5):
        design = FactorialDesign.radial(factors, 2, seed)
        some = answers[:, [cells[cell] for cell in design.cells]]
        parts = pair_parts(some, some == 0, design)
        totals = {
            factors[0]: value_of(numbers)
            for ((outcome, _, factors), _), numbers in parts.items()
            if outcome == "answer"
        }
        assert totals == pytest.approx({"paraphrase": 0, "order": 1 / 3, "labels": 0})


def test_a_single_factor_is_all_of_the_variation():
    """One of one level is refused."""
    parts = parts_of(tables_of([[0, 1], [0, 0]], [0, 0], FactorialDesign.full([ORDER])))
    assert parts["answer", "main", "order"]["share"] == 1
    assert ("answer", "interactions", "") not in parts
    design = FactorialDesign.full([Factor("order", ("given",))])
    refused("no factor with two levels", tables_of, [[0]], [0], design)


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
    assert levels["level"].to_list() == ["given", "rotation 1", "A", "1"]
    assert levels["value"].to_list() == [5 / 8, 4 / 8, 4 / 8, 5 / 8]
    answers = ANSWERS.copy()
    answers[0] = [0, 0, -1, -1]
    given, rotated = tables_of(answers).levels["value", "n"].rows()[:2]
    assert (given, rotated) == ((5 / 8, 4), (4 / 6, 3))


def test_prompt_sensitivity_by_hand():
    """3 of 4 right: 3 of 6 pairs differ. A missing answer has no pairs; one answer none at all.

    n / (n - 1) times the probability that two variants, drawn with replacement, differ.
    """
    right = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
    taken = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
    assert prompt_sensitivity(right, taken) == pytest.approx([1 / 2, 1, 0, NAN], nan_ok=True)
    tables = tables_of()
    within = parts_of(tables)["correctness", "within questions", ""]["value"]
    assert index_of(tables, "prompt_sensitivity")["value"] == pytest.approx(4 / 3 * within)


def test_the_range_of_accuracy_by_hand():
    """Right in the cells: items 1, 2, 3; items 1, 3; item 3; items 2, 3, 4."""
    index = index_of(tables_of(), "accuracy_range")
    assert (index["lowest"], index["highest"], index["value"]) == (1 / 4, 3 / 4, 1 / 2)
    assert index["lowest_variant"] == "order=rotation 1, labels=A"
    assert (index["n_lowest"], index["n_highest"]) == (1, 2)
    assert math.isnan(index["low"])
    assert all(map(math.isnan, accuracy_range(np.zeros((0, 4), dtype=bool))))
    table = index_table([FactorView("run", tables_of(), noise())], "title")
    assert [row[0] for row in table.rows] == ["PromptSensiScore", "Range of accuracy"]
    assert "lowest in order=rotation 1, labels=A (25.0)" in table.notes[0]


def test_a_range_that_shuffled_answers_have_too_means_little():
    """One right answer of two, in one item, falls on either variant: the range is always 1."""
    assert (shuffled_spreads(np.array([[True, False]]), 0, 20) == 1).all()
    level = np.array([[True, False]] * 50 + [[False, True]] * 50)
    assert 0.03 < shuffled_spreads(level, 0).mean() < 0.2  # E|2B/100 - 1| = 0.08, B of 100 halves
    worse = np.array([[True, False]] * 100)
    assert shuffled_spreads(worse, 0).max() < 1


def test_posix_by_hand():
    """Three variants choose options 0, 0 and 1: sum of |differences| / tokens over 3 x 2."""
    scores = np.array([[[-1.0, -3.0], [-2.0, -4.0], [-5.0, -1.0]]])
    tokens = np.array([[[1, 1], [2, 2], [1, 2]]], dtype=float)
    # Option 0 of variant 1: |-2+1| + |-5+1| = 5; of variant 2: (1 + 3) / 2; option 1 of variant 3:
    # (|-3+1| + |-4+1|) / 2.
    expected = (5 + 4 / 2 + 5 / 2) / 6
    assert posix(scores, tokens, np.array([[0, 0, 1]])) == pytest.approx([expected])
    assert posix(scores, tokens, np.array([[0, -1, -1]])) == pytest.approx([NAN], nan_ok=True)
    same = np.repeat(scores[:, :1], 3, axis=1)
    assert posix(same, tokens, np.array([[0, 0, 0]])) == pytest.approx([0])


def test_posix_is_a_mean_over_items_with_an_interval():
    generator = np.random.default_rng(0)
    scores = generator.normal(-3, 1, (4, 4, 3))
    chosen = scores.argmax(axis=-1)
    options = {"g": OptionScores(scores, np.ones_like(scores), chosen)}
    index = index_of(tables_of(options=options), "posix")
    psi = posix(scores, np.ones_like(scores), chosen)
    assert index["value"] == pytest.approx(psi.mean())
    assert 0 < index["low"] < index["value"] < index["high"]
    # Far below its bound the interval is that of the logarithm.
    assert index["low"] * index["high"] == pytest.approx(index["value"] ** 2, rel=1e-2)


def test_seeds_are_averaged():
    """The mean of a run that never changes and of one that always does; pairs of the fewest.

    An answer that is missing in one seed is one of ten pairs of each factor.
    """
    steady, moving = np.zeros((5, 4), int), np.tile([0, 1, 2, 3], (5, 1))
    fewer = np.where(np.arange(20).reshape(5, 4) == 0, -1, steady)

    def seeds(*runs):
        grids = (grid_of(answers, np.zeros(5, int)) for answers in runs)
        return factor_tables([CellAnswers({"g": grid}) for grid in grids], TWO_BY_TWO)

    tables = seeds(steady, moving)
    assert tables.consistency["value"].to_list() == [0.5, 0.5]
    assert parts_of(tables)["answer", "within questions", ""]["value"] == pytest.approx(3 / 8)
    for order in ((steady, fewer), (fewer, steady)):
        table = seeds(*order).consistency
        assert table.select("n", "n_excluded").rows() == [(9, 1), (9, 1)]


def test_groups_are_counted_together():
    """Numbers over the items of two groups are those of one group with all items."""
    halves = {"a": grid_of(ANSWERS[:2], GOLDS[:2]), "b": grid_of(ANSWERS[2:], GOLDS[2:])}
    apart = factor_tables([CellAnswers(halves)], TWO_BY_TWO)
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


def test_option_scores_come_from_the_answers_table():
    """Padded where a question has fewer options; totals of the rule mean are scores x tokens."""
    table = pl.DataFrame({
        "item": ["b", "b", "a", "a"], "variant_index": [0, 1, 0, 1], "option": [1, None, 0, 0],
        "option_scores": [[-3.0, -1.0, -2.0], None, [-1.0, -2.0], [-4.0, -5.0]],
        "option_tokens": [[1, 2, 1], None, [1, 1], [2, 3]],
    })  # fmt: skip
    options = option_scores(table, 2, "label")
    assert options.chosen.tolist() == [[0, 0], [1, -1]]  # items in the order of their names
    assert options.scores[1, 0].tolist() == [-3, -1, -2]
    assert options.tokens[0, 1].tolist()[:2] == [2, 3]
    assert np.isnan([*options.scores[0, :, 2], *options.scores[1, 1]]).all()
    assert option_scores(table, 2, "mean").scores[0, 1].tolist()[:2] == [-8, -15]
    assert option_scores(table, 2, "pmi") is None
    assert option_scores(table.drop("option_scores"), 2, "label") is None
    unsized = table.with_columns(option_tokens=pl.lit(None, dtype=table.schema["option_tokens"]))
    assert option_scores(unsized, 2, "label") is None, "log-probabilities that were imported"
    # Item a: |-4 + 1| / 1 and |-1 + 4| / 2, by 2; item b has one scored variant.
    psi = posix(options.scores, options.tokens, options.chosen)
    assert psi == pytest.approx([(3 + 3 / 2) / 2, NAN], nan_ok=True)


def noise(**flips):
    row = {"metric": "flips", "group": "MICRO", "n": 256}
    rows = [row | {"subset": name, "value": value} for name, value in flips.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def test_the_table_has_a_row_for_each_factor_and_what_is_beyond_them():
    """Shares of the answer sum to 100; a row of the noise floor has a consistency alone."""
    view = FactorView("run", tables_of(), noise(reordered=0.02))
    rows = list(csv.DictReader(as_csv(factor_table([view], "title")).splitlines()))
    names = ["order", "labels", "interactions", "between questions"]
    names += ["noise"]
    assert [row["factor"] for row in rows] == names
    shares = [float(row["answer: main effect"]) for row in rows[:3]]
    assert (sum(shares), shares[0]) == (pytest.approx(100), pytest.approx(100 * (5 / 8) / (11 / 8)))
    assert [row["consistency"] for row in rows] == ["37.5", "62.5", "", "", "98.0"]
    text = as_markdown(factor_table([view], "title"))
    assert "have different answers in 34.4 % (95 % CI " in text


def test_the_table_of_pairs_has_probabilities():
    """Item 1 of 3 changes with the order: half of the redrawn levels are the same."""
    design = FactorialDesign.one_factor([ORDER, LABELS])
    tables = tables_of([[0, 1, 0], [0, 1, 1], [0, 0, 0]], [0, 0, 0], design)
    view = FactorView("run", tables, noise())
    rows = list(csv.DictReader(as_csv(factor_table([view], "title")).splitlines()))
    assert [row["factor"] for row in rows] == ["order", "labels"]
    assert [float(row["answer changes"]) for row in rows] == pytest.approx([100 / 3, 100 / 6])
    assert factor_rows([view])["main"].null_count() == 6


def test_the_section_draws_every_number_of_the_table():
    """A bar of each main effect, a mark of each total effect, a tick of each level of chance."""
    views = [FactorView(name, tables_of(), noise(reordered=0.02)) for name in ("first", "second")]
    rows = factor_rows(views)
    sizes = rows.group_by("run", "panel", maintain_order=True).len()["len"]
    assert sizes.to_list() == [3, 3, 4] * 2
    assert rows.filter(name="noise")["value"].to_list() == [0.98, 0.98]
    lead, _, figure, table, folded_indices, folded, levels, notes = factor_parts(views)
    assert lead.startswith("first: The order of the options (order) changes answers most: ")
    (indices,) = folded_indices.parts
    assert notes[0] == "first: no POSIX: not every option has a log-probability in every variant"
    assert (len(table.rows), len(indices.rows), len(folded.parts[0].rows)) == (10, 4, 2)
    assert len(levels.parts[0].rows) == 8
    spec = spec_of(figure.chart)
    panels = ["consistency", "answer: total effect", "correctness: total effect"]
    assert spec["facet"]["sort"] == panels
    assert len(spec["data"]["values"]) == rows.height


def test_the_report_has_the_section_where_a_run_has_factors():
    run = shown()
    page = report_page([replace(run, factors=[FactorView("run", tables_of(), noise())])])
    for parts in (page.sections, page.figures):
        assert "factors" in {part.id for part in parts}
    assert "What each factor changes, in percent" in render(page)
    assert "factors" not in {section.id for section in report_page([run]).sections}
