"""Distances between distributions over options: by hand, as properties, and their chance level."""

import numpy as np
import polars as pl
import pytest

from consilience import score
from consilience.core.items import Choice
from consilience.metrics import definitions
from consilience.metrics.registry import option_probabilities
from grids import grid_of as grid_of_answers
from grids import places_of


def grid_of(distributions, golds=0):
    """A grid whose answers are the most probable options; NaN is no distribution."""
    shares = np.array(distributions, dtype=float)
    answers = np.where(np.isfinite(shares).all(axis=2), np.nan_to_num(shares).argmax(axis=2), -1)
    items, variants, options = shares.shape
    places = places_of([options] * items, ["ABCD"] * variants)
    return grid_of_answers(answers, golds, distributions=shares, places=places)


def value(metric, grid):
    return metric(grid).value


TWO = [[[0.8, 0.2], [0.5, 0.5]], [[0.1, 0.9], [0.3, 0.7]]]
NONE = [float("nan")] * 2
YES, NO = Choice("yes"), Choice("no")


def test_the_distance_of_two_variants_and_its_chance_level_by_hand():
    """|.8 - .5| and |.1 - .3|; of two items, |.8 - .3| and |.5 - .1|, mean .45."""
    grid = grid_of(TWO, golds=[0, 1])
    assert value(definitions.total_variation, grid) == pytest.approx((0.3 + 0.2) / 2)
    assert value(definitions.chance_total_variation, grid) == pytest.approx(0.45)
    of_variation = definitions.total_variation(grid)
    assert (of_variation.n, of_variation.left_out) == (2, 0)


def test_an_item_without_a_distribution_in_a_variant_is_left_out_there():
    """Its other distribution still counts for the chance level, as an answer does."""
    grid = grid_of([*TWO, [[0.6, 0.4], NONE]], golds=[0, 1, 0])
    tally = definitions.total_variation(grid)
    assert (tally.n, tally.left_out, tally.value) == (2, 1, pytest.approx(0.25))
    # Of two more pairs of items: .6 in the first variant from .5 and .3 in the second.
    by_chance = (0.5 + 0.4 + 0.1 + 0.3) / 4
    assert value(definitions.chance_total_variation, grid) == pytest.approx(by_chance)
    assert definitions.total_variation(grid_of([[NONE, NONE]])) is None
    assert definitions.chance_total_variation(grid_of([[[0.6, 0.4], NONE]])) is None


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
    first = {"a": {"1": 0.7, "2": 0.5}, "b": {"1": 0.4, "2": 0.4}}
    rows = [
        {"item": item, "gold": "yes", "paraphrase": level, "order": "12"[step < 0], "answer": "yes",
         "options": ["yes", "no"][::step], "scores": np.log([p, 1 - p])[::step].tolist()}
        for item, of in first.items() for level, p in of.items() for step in (1, -1)
    ]  # fmt: skip
    table = score(rows).metrics
    variation = table.filter(metric="total_variation", over="all")
    values = dict(variation.select("level", "value").iter_rows())
    assert values == pytest.approx({"": 0.1 * 4 / 6, "paraphrase": 0.1, "order": 0})
    by_chance = table.filter(metric="chance_total_variation", over="all", level="order")
    # "yes" is first and then second: .7 of a is .3 from .4 of b in phrasing 1, .5 is .1 in 2.
    assert by_chance["value"].item() == pytest.approx(0.2)
    without = score(pl.DataFrame(rows).drop("scores"))
    assert without.metrics.filter(pl.col("metric").str.contains("variation")).is_empty()


def test_calibration_by_hand():
    """The gold is option 0: .8 and right, .9 and wrong, in one bin of two answers.

    Brier: .2^2 + .2^2 and .9^2 + .9^2. The error is |.8 + .9 - 1| / 2.
    """
    grid = grid_of(TWO)
    assert value(definitions.brier_score, grid) == pytest.approx((0.08 + 1.62) / 2)
    assert value(definitions.calibration_error, grid) == pytest.approx(0.7 / 2)
    half = grid_of([*TWO, [NONE, [0.6, 0.4]]])
    for metric in (definitions.brier_score, definitions.calibration_error):
        assert metric(half).n == 2 and metric(half).left_out == 1
        assert value(metric, half) == pytest.approx(value(metric, grid))
        assert metric(grid_of([[NONE, [0.6, 0.4]]])) is None


def test_bins_have_equal_size_and_at_least_twenty_answers():
    sizes = {
        n: [len(of) for of in definitions.bins_of(np.linspace(0, 1, n))] for n in (5, 60, 1000)
    }
    assert sizes[5] == [5] and sizes[60] == [20] * 3 and len(sizes[1000]) == 15
    assert max(sizes[1000]) - min(sizes[1000]) <= 1
    last_bit = definitions.bins_of(np.repeat([0.59999999999, 0.6], 20))
    assert [len(of) for of in last_bit] == [40]
    equal = definitions.bins_of(np.repeat([0.1, 0.5, 0.9], [10, 180, 10]))
    assert [len(of) for of in equal] == [10, 190], "whatever the order of equal ones"
