"""The levels of chance against loops over pairs of items; the file's order of options is no matter."""

from dataclasses import replace

import numpy as np
import pytest

import grids
from consilience.core.factors import Expectation, Reference, instances
from consilience.metrics import definitions
from consilience.metrics.definitions import _distributions
from consilience.metrics.registry import METRICS, Places
from consilience.plans.presentation import orders_of
from consilience.probing import _majority

SEEDS = range(12)
SOME_LACK = [(0, 0), (0.2, 0), (0, 0.3), (0.3, 0.3)]  # no answer, not asked


def summed(grid, weights, of_pair):
    """The level of an item in a pair of variants, over the pairs it was asked in, by its vote."""
    return sum(
        weights[item] * grid.votes[item] * of_pair(item, k, m)
        for k, m in grid.pairs
        for item in np.flatnonzero(grid.asked[:, k] & grid.asked[:, m])
    )


def levels(grid, weights, values, of):
    """The mean of ``values`` (item, item, variant, variant, ...) of two different items among
    ``of``, one asked in each variant; of all two variants together where they are drawn."""
    asked = grid.asked & of[:, None]
    others = np.einsum("i,j,ik,jm->ijkm", weights, weights, asked, asked) * grid.is_compared
    others[np.arange(len(of)), np.arange(len(of))] = 0
    sums = np.einsum("ijkm,ijkm...->km...", others, np.where(np.isnan(values), 0, values))
    totals = others.sum(axis=(0, 1)).reshape(grid.is_compared.shape + (1,) * (sums.ndim - 2))
    if not grid.has_base:
        return sums.sum(axis=(0, 1)) / (totals.sum() or 1) + 0 * sums
    return sums / np.where(totals > 0, totals, 1)


def by_answer(grid, weights):
    """Pairs of two different items, one asked in each variant: how often the answers are the same."""
    one, other = grid.answers[:, None, :, None], grid.answers[None, :, None, :]
    of = levels(grid, weights, ((one == other) & (one >= 0)) * 1.0, np.full(len(weights), True))
    return summed(grid, weights, lambda _, k, m: of[k, m])


def by_place(grid, weights, values, compare):
    """``values`` (item, variant, place) of two different questions of a size in two variants."""
    of = {}
    for size in np.unique(grid.places.sizes):
        some = values[..., :size]
        pairs = compare(some[:, None, :, None, :, None], some[None, :, None, :, None, :])
        of[size] = levels(grid, weights, pairs, grid.places.sizes == size)

    def of_pair(item, k, m):
        size = grid.places.sizes[item]
        one, other = grid.places.positions[grid.places.orders[item, [k, m]], :size]
        return of[size][k, m, one, other].sum()

    return summed(grid, weights, of_pair)


def shown(grid):
    """Whether the option at a place is chosen (item, variant, place)."""
    return (grid.places.of(grid.answers)[..., None] == np.arange(5)) * 1.0


def probabilities(grid):
    """The probability of the option at each place (item, variant, place)."""
    found = np.zeros((*grid.answers.shape, 5))
    for item, size in enumerate(grid.places.sizes):
        for variant in np.flatnonzero(grid.golds[item] >= 0):
            places = grid.places.positions[grid.places.orders[item, variant], :size]
            found[item, variant, places] = grid.distributions[item, variant, :size]
    return found


def product(one, other):
    return one * other


def half_distance(one, other):
    return np.abs(one - other) / 2


def drawn(seed):
    """What is contributed to a level, and the level by its definition, of items with weights."""
    missing, excluded = SOME_LACK[seed % 4]
    of = {"items": seed % 8 + 1, "missing": missing, "excluded": excluded}
    compared = None if seed % 3 else [(0, at) for at in range(1, 4)]
    has_base = seed % 5 > 0
    for by_pair in (True, False):
        grid = grids.drawn_facts(seed, compared=compared, by_pair=by_pair, has_base=has_base, **of)
        level = lambda weights, grid=grid: by_answer(grid, weights)  # noqa: E731
        yield definitions.chance_by_answer(grid), level
    for has_pins in (False, True):
        some = None if seed % 4 else np.array([(0, 1), (1, 2), (0, 4)])
        grid = grids.drawn_questions(seed, **of, has_pins=has_pins)
        grid = replace(grid, has_base=has_base, compared=some)
        one = shown(grid)
        level = lambda weights, of=(grid, one): by_place(of[0], weights, of[1], product)  # noqa: E731
        yield definitions.chance_by_place(grid), level
        shares, known = _distributions(grid)
        two = probabilities(known)
        level = lambda weights, of=(known, two): by_place(of[0], weights, of[1], half_distance)  # noqa: E731
        yield definitions.chance_distance(known, shares), level


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_and_their_derivatives_are_those_of_pairs_of_other_items(seed):
    """A contribution is the derivative of the level by the weight of the item."""
    for contributed, level in drawn(seed):
        one, step = np.ones(len(contributed)), 1e-5 * np.eye(len(contributed))
        assert contributed.sum() == pytest.approx(level(one), abs=1e-9)
        slopes = [(level(one + of) - level(one - of)) / 2e-5 for of in step]
        assert contributed == pytest.approx(slopes, abs=1e-8)


def expectations(seed, sizes, kinds=("same", "implied")):
    """Instances of expectations with random answers in three variants; some lack an answer."""
    draw, orders, found = np.random.default_rng(seed), ("ABCD", "DCBA", "BCDA"), []
    for at in range(seed % 6 + 1):
        size = draw.choice(sizes)
        options = tuple(f"{letter}{at * (len(sizes) > 1)}" for letter in "abcd"[:size])
        one, two = Reference(f"p{at}", options), Reference(f"c{at}", options)
        rules = {(options[0],): options[: int(draw.integers(1, size))]}
        kind = draw.choice(kinds)
        replies = {(of.item, str(v)): [None, "", *options][draw.integers(0, size + 2)]
                   for of in (one, two) for v in range(3)}  # fmt: skip
        known = {(two.item, str(v)): orders_of((order,), size)[0] for v, order in enumerate(orders)}
        made = Expectation(str(kind), (one,), two, rules if kind == "implied" else {})
        found.append(tuple(instances(made, replies, "012", known)))
    return tuple(found)


def violations(units, weights):
    """Each instance with an answer to another expectation of its kind and size in its variant."""
    kinds = {}
    for one in (one for unit in units for one in unit if one.is_asked):
        kinds.setdefault(one.expectation.kind, set()).add(one.expectation.conclusion.options)
    level = total = 0.0
    for at, unit in enumerate(units):
        for one in (one for one in unit if one.is_asked and one.is_permitted is not None):
            kind, options = one.expectation.kind, one.expectation.conclusion.options
            by_place = len(kinds[kind]) > 1
            others = [
                (weights[j], other) for j, of in enumerate(units) for other in of
                if j != at and other.is_asked and other.expectation.kind == kind
                and other.variant == one.variant
                and len(other.expectation.conclusion.options) == len(options)
            ]  # fmt: skip
            if others:
                given = [(w, one.text(of.code(by_place=by_place))) for w, of in others]
                refused = sum(w * (not one.permits(text)) for w, text in given)
                level += weights[at] * refused / sum(w for w, _ in given)
                total += weights[at]
    return level, total


@pytest.mark.parametrize("seed", range(24))
def test_violations_by_chance_are_those_with_the_answers_to_other_expectations(seed):
    units = expectations(seed, (2, 3) if seed % 2 else (3,))
    tally = METRICS["chance_violation_rate"].tally(grids.grid_of(np.zeros((0, 1)), instances=units))
    one, step = np.ones(len(units)), 1e-5 * np.eye(len(units))
    assert (tally.hits, tally.total) == pytest.approx(violations(units, one))
    slopes = [(np.array(violations(units, one + of)) - violations(units, one - of)) / 2e-5 for of in step]  # fmt: skip
    assert tally.scores == pytest.approx(np.array(slopes), abs=1e-8)


def permuted(grid, seed):
    """The options in another order in the file, and everything else the same."""
    draw = np.random.default_rng(seed)
    answers, golds, shares = grid.answers.copy(), grid.golds.copy(), grid.distributions.copy()
    places, tables = grid.places, [grid.places.positions]
    orders = places.orders.copy()
    for size in np.unique(places.sizes):
        new, rows = draw.permutation(size), places.sizes == size
        orders[rows] = np.where(orders[rows] < 0, -1, orders[rows] + sum(map(len, tables)))
        tables.append(np.full_like(places.positions, -1))
        tables[-1][:, new] = places.positions[:, :size]
        for codes in (answers, golds):
            codes[rows] = np.where(codes[rows] >= 0, new[codes[rows]], -1)
        moved = shares[rows]
        moved[..., new] = shares[rows][..., :size]
        shares[rows] = moved
    places = Places(places.sizes, orders, np.concatenate(tables))
    return replace(grid, answers=answers, golds=golds, distributions=shares, places=places)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_options_in_the_file_and_of_items_changes_no_number(seed):
    grid = grids.drawn_questions(seed, seed + 1)
    other = permuted(grid, seed)
    grids.same_numbers(grids.numbers(grid), grids.numbers(other))
    grids.same_numbers(grids.numbers(_majority(grid, None)), grids.numbers(_majority(other, None)))
    grids.same_numbers(
        grids.numbers(grid), grids.numbers(grids.chosen(grid, np.arange(seed + 1)[::-1]))
    )


def test_answers_that_are_all_the_same_are_not_above_chance():
    """Whatever rounding leaves of 1 - 1."""
    for items in range(2, 20):
        for variants in range(2, 8):
            facts = grids.grid_of(np.zeros((items, variants)))
            shown = replace(facts, places=grids.places_of([3] * items, ["ABC"] * variants))
            assert np.isnan(grids.value("corrected_consistency", facts)), (items, variants)
            for name in ("corrected_consistency", "label_kappa"):
                assert np.isnan(grids.value(name, shown)), (items, variants)


def test_an_item_alone_has_no_chance_level():
    """A second one that was left out, or has other options, says nothing of it either."""
    alone = grids.grid_of([[0, 1]], places=grids.places_of([3], ["ABC"] * 2))
    left_out = grids.grid_of([[0, 1], [0, 0]], asked=np.array([[True, True], [False, False]]))
    other_size = grids.grid_of([[0, 1], [0, 0]], places=grids.places_of([2, 3], ["ABC"] * 2))
    never = grids.grid_of([[0, 1], [0, 0]], asked=np.zeros((2, 2), bool))
    for grid in (alone, left_out, other_size, never, grids.grid_of([[0, 1]])):
        for name in ("corrected_consistency", "chance_consistency"):
            tally = METRICS[name].tally(grid)
            assert np.isnan(tally.value) and tally.n == 0


PREFERRED = np.array([0, 1, 2, 3])  # the position that each template makes the model choose


def test_chance_of_templates_times_orders_is_that_of_the_positions_of_each():
    """A model that chooses A, B, C, D in four templates, each in four orders: 16 variants, of
    whose 240 ordered pairs 48 differ in the template alone, 48 in the order alone, 144 in both;
    where both are moved by as many places (48) the option is the same."""
    orders = ["ABCD", "BCDA", "CDAB", "DABC"]
    shown = np.array([[(place + shift) % 4 for shift in range(4)] for place in PREFERRED])
    grid = grids.grid_of(
        np.tile(shown.ravel(), (5, 1)), places=grids.places_of([4] * 5, orders * 4)
    )
    assert grids.value("consistency", grid) == pytest.approx(48 / 240)
    assert grids.value("chance_consistency", grid) == pytest.approx(48 / 240)
    assert grids.value("corrected_consistency", grid) == pytest.approx(0)
