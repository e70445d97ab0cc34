"""Distances between distributions over options: by hand, as properties, and their chance level."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from consilience.core.factors import Factor, FactorialDesign
from consilience.core.items import Choice, Question
from consilience.kinds.variants import GroupOfQuestions, suite_of_questions
from consilience.metrics.definitions import (
    bins_of,
    brier_score,
    calibration_error,
    chance_total_variation,
    total_variation,
)
from consilience.metrics.measure import measure
from consilience.metrics.registry import Grid, option_probabilities
from consilience.types import Fact


def grid_of(distributions, pairs=((0, 1),), taken=None):
    """A grid whose answers are the most probable options; NaN is no distribution."""
    shares = np.array(distributions, dtype=float)
    known = np.isfinite(shares).all(axis=2) if taken is None else np.array(taken)
    answers = np.where(known, np.nan_to_num(shares).argmax(axis=2), -1)
    subjects = np.array([str(at) for at in range(len(shares))], dtype=object)
    return Grid(
        answers, np.zeros_like(answers), np.array(pairs), subjects,
        np.arange(shares.shape[2]), distributions=shares,
    )  # fmt: skip


TWO = [[[0.8, 0.2], [0.5, 0.5]], [[0.1, 0.9], [0.3, 0.7]]]
NONE = [float("nan")] * 2
YES, NO = Choice("yes"), Choice("no")


def value(metric, grid):
    return metric(grid).share().value


def test_the_distance_of_two_variants_and_its_chance_level_by_hand():
    """|.8 - .5| and |.1 - .3|; of other items |.8 - .3| and |.1 - .5|."""
    grid = grid_of(TWO)
    assert value(total_variation, grid) == pytest.approx((0.3 + 0.2) / 2)
    assert value(chance_total_variation, grid) == pytest.approx((0.5 + 0.4) / 2)
    of_variation = total_variation(grid)
    assert (of_variation.n, of_variation.left_out) == (2, 0)


def test_an_item_without_a_distribution_in_a_variant_is_left_out_there():
    """Its other distribution still counts for the chance level, as an answer does."""
    grid = grid_of([*TWO, [[0.6, 0.4], NONE]])
    tally = total_variation(grid)
    assert (tally.n, tally.left_out, tally.share().value) == (2, 1, pytest.approx(0.25))
    assert value(chance_total_variation, grid) == pytest.approx((0.5 + 0.4 + 0.1 + 0.3) / 4)
    assert total_variation(grid_of([[NONE, NONE]])) is None
    assert chance_total_variation(grid_of([[[0.6, 0.4], NONE]])) is None


def plain_chance(grid):
    """The chance level by its definition."""
    shares, known = grid.distributions, grid.taken
    hits = total = 0.0
    for k, m in grid.pairs:
        together = (known[:, k] & known[:, m]).sum()
        distances = [
            np.abs(shares[i, k] - shares[j, m]).sum() / 2
            for i in np.flatnonzero(known[:, k])
            for j in np.flatnonzero(known[:, m])
            if i != j
        ]
        if distances:
            hits += together * np.mean(distances)
            total += together
    return hits / total if total else None


@pytest.mark.parametrize("seed", range(20))
def test_the_chance_level_is_the_mean_over_other_items(seed):
    generator = np.random.default_rng(seed)
    items, variants, options = generator.integers(1, 7, 3)
    shares = generator.dirichlet(np.ones(options), (items, variants))
    shares[generator.random((items, variants)) < 0.3] = np.nan
    pairs = list(combinations(range(variants), 2))
    grid = grid_of(shares, np.array(pairs, dtype=int).reshape(-1, 2))
    tally, expected = chance_total_variation(grid), plain_chance(grid)
    assert (tally is None) == (expected is None)
    if tally:
        assert tally.share().value == pytest.approx(expected, abs=1e-6)
        assert 0 <= value(total_variation, grid) <= 1
        # Neither the order of the items nor that of the options matters.
        moved = grid_of(shares[::-1, :, ::-1], grid.pairs)
        assert value(chance_total_variation, moved) == pytest.approx(expected, abs=1e-6)


def test_what_an_item_counts_is_the_derivative_by_its_weight():
    """The level where the first item has a weight of 1 + h: distances to others of their weight."""
    shares = np.random.default_rng(1).dirichlet(np.ones(3), (5, 2))
    counts = chance_total_variation(grid_of(shares)).counts.astype(float)
    distances = np.abs(shares[:, None, 0] - shares[None, :, 1]).sum(axis=2) / 2

    def level(first):
        weights = np.array([first, 1, 1, 1, 1])
        pairs = np.outer(weights, weights) * (1 - np.eye(5))
        return weights.sum() * (pairs * distances).sum() / pairs.sum()

    slope = (level(1 + 1e-4) - level(1 - 1e-4)) / 2e-4
    assert counts[0, 0] == pytest.approx(slope, rel=1e-4)
    assert counts[:, 0].sum() == pytest.approx(level(1), rel=1e-6)


def table_of(*scores):
    return pl.DataFrame({"option_scores": pl.Series(scores, dtype=pl.List(pl.Float64))})


def test_scores_become_probabilities():
    """Normalised; an option without a score has what the others leave, if that is nothing."""
    half, quarter = np.log(0.5), np.log(0.25)
    three = [half - 2, half - 2, quarter - 2]
    table = table_of(three, [half, half, None], [quarter, None], None, [])
    shares = option_probabilities(table)
    assert shares[:2].tolist() == [pytest.approx([0.4, 0.4, 0.2]), pytest.approx([0.5, 0.5, 0])]
    assert np.isnan(shares[2:]).all()
    assert option_probabilities(table_of([0.0, -1.0]))[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_they_are_in_the_metrics_table_by_factor():
    """Two phrasings in two orders; only the phrasing moves a probability, by .2 and by 0."""
    factors = [Factor("paraphrase", ("1", "2")), Factor("order", ("given", "reversed"))]
    design = FactorialDesign.full(factors)
    questions = [Question(item, "g", {"": ("one", "two")}, YES, (YES, NO)) for item in ("a", "b")]
    facts = tuple(Fact(one.item, one.item, "yes") for one in questions)
    group = GroupOfQuestions("g", facts, (0, 0), 2, writes_freely=False)
    suite = suite_of_questions("s", [group], design)
    first = {"a": {"1": 0.7, "2": 0.5}, "b": {"1": 0.4, "2": 0.4}}
    rows = [
        {
            "group": "g", "item": item, "subject": item, "variant": name, "gold": "yes",
            "answer": "yes", "option": 0, "gold_option": 0,
            "option_scores": list(np.log([p := first[item][level], 1 - p])),
        }
        for item in first
        for name, level in zip(design.names, design.levels("paraphrase"), strict=True)
    ]  # fmt: skip
    table = measure(pl.DataFrame(rows), suite)
    variation = table.filter(metric="total_variation", group="MICRO")
    values = dict(variation.select("subset", "value").iter_rows())
    assert values == pytest.approx({"all": 0.1 * 4 / 6, "paraphrase": 0.1, "order": 0})
    by_chance = table.filter(metric="chance_total_variation", group="g", subset="order")
    # Of orders: |.7 - .4| in phrasing 1, |.5 - .4| in phrasing 2.
    assert by_chance["value"].item() == pytest.approx((0.3 + 0.1) / 2)
    without = measure(pl.DataFrame(rows).drop("option_scores"), suite)
    assert without.filter(pl.col("metric").str.contains("variation")).is_empty()


def test_calibration_by_hand():
    """The gold is option 0: .8 and right, .9 and wrong, in one bin of two answers.

    Brier: .2^2 + .2^2 and .9^2 + .9^2. The error is |.8 + .9 - 1| / 2.
    """
    grid = grid_of(TWO)
    assert value(brier_score, grid) == pytest.approx((0.08 + 1.62) / 2)
    assert value(calibration_error, grid) == pytest.approx(0.7 / 2)
    half = grid_of([*TWO, [NONE, [0.6, 0.4]]])
    for metric in (brier_score, calibration_error):
        assert metric(half).n == 2 and metric(half).left_out == 1
        assert value(metric, half) == pytest.approx(value(metric, grid))
        assert metric(grid_of([[NONE, [0.6, 0.4]]])) is None


def test_an_overconfident_model_has_an_error_of_its_excess():
    """400 answers, right with their probability less 25 points; 40 models."""
    generator, found = np.random.default_rng(2), []
    for _ in range(40):
        sure = generator.uniform(0.5, 1, 400)
        is_right = generator.random(400) < sure - 0.25
        shares = np.where(is_right, sure, 1 - sure)
        grid = grid_of(np.stack([shares, 1 - shares], axis=1)[:, None], pairs=np.zeros((0, 2), int))
        found.append(value(calibration_error, grid))
    assert np.mean(found) == pytest.approx(0.25, rel=0.1)


def test_bins_have_equal_size_and_at_least_twenty_answers():
    sizes = {n: [len(of) for of in bins_of(np.linspace(0, 1, n))] for n in (5, 60, 1000)}
    assert sizes[5] == [5] and sizes[60] == [20] * 3 and len(sizes[1000]) == 15
    assert max(sizes[1000]) - min(sizes[1000]) <= 1
    equal = bins_of(np.repeat([0.1, 0.5, 0.9], [10, 180, 10]))
    assert [len(of) for of in equal] == [10, 190], "whatever the order of equal ones"
