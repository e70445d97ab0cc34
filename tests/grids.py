"""Grids of answers that tests of metrics write down or draw, and the numbers of grids."""

from dataclasses import replace

import numpy as np

from consilience.metrics import uncertainty
from consilience.metrics.registry import METRICS, Clusters, Grid, Places
from consilience.metrics.uncertainty import Index
from consilience.plans.presentation import orders_of

NAN = float("nan")
ORDERS = ("ABCDE", "EDCBA", "BCDEA", "DBECA", "BACDE")


def grid_of(answers, golds=0, subjects=None, asked=None, compared=None, **more):
    """A grid of answers (item, variant), -1 for none; everything was asked unless ``asked`` says.

    ``golds``: one, one of each item, or (item, variant).
    """
    answers = np.array(answers, dtype=np.int64)
    golds = np.array(golds, dtype=np.int64)
    golds = np.broadcast_to(golds[:, None] if golds.ndim == 1 else golds, answers.shape)
    asked = np.ones(answers.shape, bool) if asked is None else np.array(asked)
    names = [f"s{at}" for at in range(len(answers))] if subjects is None else subjects
    compared = None if compared is None else np.array(compared, dtype=np.int64).reshape(-1, 2)
    answers = np.where(asked, answers, -1)
    return Grid(answers, golds, asked, compared, Clusters.of(names), **more)


def places_of(sizes, orders, pins=None):
    """Where the options of questions are shown in variants with these orders.

    ``pins``: the options of each question that stay at their place.
    """
    levels = tuple(dict.fromkeys(orders))
    kinds = zip(np.array(sizes).tolist(), pins or [()] * len(sizes), strict=True)
    shown = [dict(zip(levels, orders_of(levels, *kind), strict=True)) for kind in kinds]
    different = [*dict.fromkeys(order for of in shown for order in of.values() if order)]
    rows = [[different.index(of[at]) if of[at] else -1 for at in orders] for of in shown]
    positions = np.full((len(different), max(map(len, different))), -1)
    for at, order in enumerate(different):
        positions[at, list(order)] = np.arange(len(order))
    return Places(np.array(sizes), np.array(rows), positions)


def drawn_facts(seed, items=8, variants=4, missing=0.2, excluded=0.2, **more):
    """Facts with random answers: some have none, and some were not asked."""
    draw, shape = np.random.default_rng(seed), (items, variants)
    answers = np.where(draw.random(shape) < missing, -1, draw.integers(0, 3, shape))
    return grid_of(
        answers, draw.integers(0, 3, items), asked=draw.random(shape) >= excluded, **more
    )


def drawn_questions(
    seed, items=8, orders=ORDERS, sizes=(2, 3, 4, 5), missing=0.2, excluded=0.2, has_pins=False
):
    """Questions with random answers and probabilities, which have as many options as ``sizes``.

    ``has_pins``: every other question has a last option that stays last.
    """
    draw, shape = np.random.default_rng(seed), (items, len(orders))
    size = draw.choice(sizes, items)
    pins = [(of - 1,) * (has_pins and at % 2) for at, of in enumerate(size.tolist())]
    places = places_of(size, orders, pins)
    has = places.orders >= 0
    asked = has & (draw.random(shape) >= excluded)
    answers = np.where(draw.random(shape) < missing, -1, draw.integers(0, size[:, None], shape))
    shares = np.where(
        np.arange(max(sizes)) < size[:, None, None], draw.random((*shape, 5))[..., : max(sizes)], 0
    )
    shares[~asked | (answers < 0)] = NAN
    return grid_of(
        answers, np.where(has, draw.integers(0, size)[:, None], -1), asked=asked, places=places,
        orders=np.stack(np.triu_indices(len(orders), 1), axis=1), is_ragged=True,
        may_have_none=True, distributions=shares / shares.sum(axis=2, keepdims=True),
    )  # fmt: skip


def chosen(grid, items):
    """A grid of only these items."""
    of = grid.places
    places = of and Places(of.sizes[items], of.orders[items], of.positions)
    shares = None if grid.distributions is None else grid.distributions[items]
    return replace(
        grid, answers=grid.answers[items], golds=grid.golds[items], asked=grid.asked[items],
        subjects=Clusters.of(grid.subjects.names[grid.subjects.places[items]]), places=places,
        distributions=shares, logprob=None,
    )  # fmt: skip


def value(metric, grid):
    return METRICS[metric].tally(grid).value


def numbers(grid):
    """Value, interval and counts of each metric of a grid."""
    found = {}
    for name, metric in METRICS.items():
        if (tally := metric.tally(grid)) is not None:
            number = uncertainty.of_group([(1.0, tally)], Index())
            counts = number.n_clusters, number.n, number.left_out
            found[name] = [number.value, *number.interval(metric.bounds), *counts]
    return found


def same_numbers(one, other):
    assert one.keys() == other.keys()
    for name, of in one.items():
        np.testing.assert_allclose(of, other[name], rtol=1e-9, atol=1e-11, err_msg=name)
