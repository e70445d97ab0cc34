"""How often two variants of an item agree by chance.

Chance is what two *different* items say of it: a level that an item's own answers are part of is
too high where items are few, and a number above it too low. Each function returns what an item
contributes (item,): its own level, and how much its answers move that of the others, to first
order. The contributions sum to the level of all items; a pair counts as ``Grid.votes`` says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.registry import Grid


def by_answer(grid: Grid) -> Floats:
    """Chance of answers that mean the same in all items: objects, labels, texts.

    For variants k and l it is the share of pairs of two different items, one answered in k and one
    in l, whose answers are the same: ``c_kl = (N_k N_l sum_a p_k(a) p_l(a) - S_kl) / (N_k N_l -
    N_kl)``, with ``p_k(a)`` the share of the answer a among the ``N_k`` items asked in k, ``N_kl``
    the items asked in both and ``S_kl`` those with the same answer in both. Without ``S_kl`` and
    ``N_kl`` it is the chance level of Cohen's kappa (Cohen 1960), with the item itself.
    """
    asked, counts, same = grid.asked.astype(np.float64), _counts(grid), _same(grid)
    sizes, pairs = asked.sum(axis=0), _pairs_of_others(grid)
    there = np.where(pairs > 0, pairs, 1)
    chance = (np.asarray((counts @ counts.T).todense()) - same) / there
    weights = np.where(pairs > 0, _weights(grid) / there, 0)
    moved = ((asked @ (weights * chance)) * asked).sum(axis=1)
    for at, answers in enumerate(grid.answers.T):
        slopes = np.asarray(weights[at] @ counts)  # by the number of each answer in this variant
        of_answers = np.where(answers >= 0, slopes[answers], 0)
        moved += np.where(grid.asked[:, at], of_answers - (weights * chance)[at] @ sizes, 0)
        moved -= _equal(grid, at) @ weights[at]
    return np.asarray(grid.shares_of(chance) + moved)


def by_place(grid: Grid) -> Floats:
    """Chance of a model that chooses by the shown position alone.

    ``c_ikl = sum over the options o of Q(position of o in k, position of o in l)``: ``Q(p, q)`` is
    the share of pairs of answers to two different questions with as many options, of which one
    chose the option shown at p and the other that at q. The order of the options in the file plays
    no part. A question without another of its size has no chance level: 0.
    """
    assert grid.places is not None, "needs"
    shown = grid.places.of(grid.answers)

    def level(rows: Ints, size: int, places: Floats) -> tuple[Floats, Floats]:
        asked = grid.asked[rows].sum(axis=1).astype(np.float64)
        counts = np.stack([(shown[rows] == place).sum(axis=1) for place in range(size)], axis=1)
        total = counts.sum(axis=0)
        both = np.outer(total, total) - counts.T @ counts
        moved = (counts * (total @ (places + places.T))).sum(axis=1)
        moved -= 2 * np.einsum("ip,pq,iq->i", counts, places, counts, optimize=True)
        return _of_others(both, moved, asked, places)

    return _over_places(grid, level)


def distance_by_place(grid: Grid, shares: Floats) -> Floats:
    """Total variation of a model whose probabilities belong to the shown positions alone.

    ``c_ikl = sum over the options o of A(position of o in k, position of o in l) / 2``: ``A(p, q)``
    is the mean of ``|x - y|`` over pairs of two different questions with as many options, x the
    probability of the option shown at p to one and y of that shown at q to the other. ``shares``
    (item, variant, option): the probabilities, in the order of the file; those of ``grid.asked``
    are known.
    """

    def level(rows: Ints, size: int, places: Floats) -> tuple[Floats, Floats]:
        assert grid.places is not None, "needs"
        known, some = grid.asked[rows], shares[rows][..., :size]
        shown = grid.places.positions[grid.places.orders[rows], : some.shape[2]]
        values = np.zeros((*known.shape, size))
        np.put_along_axis(values, np.clip(shown, 0, size - 1), some, axis=2)
        both, moved = np.zeros((size, size)), np.zeros(len(rows))
        for p, q in np.argwhere(places + places.T):
            one, other = (np.where(known, values[:, :, at], np.nan) for at in (p, q))
            sums = _distances(one, other)
            both[p, q] = sums.sum()
            moved += (places[p, q] + places[q, p]) * sums
        return _of_others(both, moved, known.sum(axis=1).astype(np.float64), places)

    return _over_places(grid, level) / 2


def _over_places(grid: Grid, level: Callable[[Ints, int, Floats], tuple[Floats, Floats]]) -> Floats:
    """What items contribute to a level of chance that depends on two shown positions.

    ``level(rows, size, places)`` is of the items at ``rows``, which have ``size`` options.
    ``places`` (p, q): how often an option is at p in one variant and at q in the other. It returns
    the level of each p and q (p, q), and by how much an item moves the sum over them (item,).
    """
    assert grid.places is not None, "needs"
    chance, of_items = np.zeros(len(grid.answers)), grid.places
    for size in np.unique(of_items.sizes).tolist():
        rows = np.flatnonzero(of_items.sizes == size)
        different, at = np.unique(of_items.orders[rows], axis=0, return_inverse=True)
        alike = [rows[at.reshape(-1) == number] for number in range(len(different))]
        tables = np.where(different[..., None] < 0, -1, of_items.positions[different, :size])
        places = np.zeros((size, size))
        for some, table in zip(alike, tables, strict=True):
            one = np.asarray(table[..., None] == np.arange(size), dtype=np.float64)
            weights = _weights(grid, some)
            places += np.einsum("kl,kop,loq->pq", weights, one, one, optimize=True) / 2
        both, moved = level(rows, size, places)
        chance[rows] = moved
        for some, table in zip(alike, tables, strict=True):
            is_known = (table >= 0)[:, None] & (table >= 0)[None]
            of_pairs = np.where(is_known, both[table[:, None], table[None]], 0).sum(axis=2)
            chance[some] += grid.shares_of(of_pairs, some)
    return chance


def _of_others(both: Floats, moved: Floats, asked: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Sums over pairs of answers to two different items as means, and what an item moves."""
    pairs = asked.sum() ** 2 - (asked**2).sum()
    if pairs <= 0:
        return np.zeros_like(both), np.zeros_like(moved)
    mean = both / pairs
    by_size = 2 * (places * mean).sum() * (asked * asked.sum() - asked**2)
    return mean, (moved - by_size) / pairs


def _distances(one: Floats, other: Floats) -> Floats:
    """``sum |x - y|`` over the values x of an item and y of all other items (item,).

    ``one``, ``other``: x and y (item, variant); NaN for none. From cumulative sums over the sorted
    values of all items, less those of the item itself.
    """
    values = np.sort(other[~np.isnan(other)])
    below = np.concatenate([[0.0], np.cumsum(values)])
    at = np.searchsorted(values, one)
    sums = one * (2 * at - len(values)) + below[-1] - 2 * below[at]
    own = np.abs(one[:, :, None] - other[:, None, :])
    return np.asarray(np.nansum(sums, axis=1) - np.nansum(own, axis=(1, 2)))


def has_level(grid: Grid) -> Bools:
    """Whether other items that were asked say what chance is (item,).

    Nothing does where the right option is always at the same place: a model that knows the answer
    and one that prefers the place look alike.
    """
    if grid.places is None:
        return np.asarray(grid.shares_of((_pairs_of_others(grid) <= 0).astype(np.float64)) == 0)
    shown, has_level = grid.places.of(grid.golds), np.zeros(len(grid.places), dtype=np.bool_)
    for size in np.unique(grid.places.sizes):
        rows = (grid.places.sizes == size) & grid.asked.any(axis=1)
        several = np.unique(shown[rows][grid.asked[rows]])
        has_level[grid.places.sizes == size] = rows.sum() > 1 and len(several[several >= 0]) > 1
    return has_level


def _pairs_of_others(grid: Grid) -> Floats:
    """How many pairs of two different items were asked, one in each variant (variant, variant)."""
    asked = grid.asked.astype(np.float64)
    return np.outer(asked.sum(axis=0), asked.sum(axis=0)) - asked.T @ asked


def _counts(grid: Grid) -> csr_array:
    """How many items got each answer in a variant (variant, answer)."""
    items, variants = (grid.answers >= 0).nonzero()
    shape = grid.answers.shape[1], int(grid.answers.max(initial=0)) + 1
    return csr_array((np.ones(len(items)), (variants, grid.answers[items, variants])), shape=shape)


def _equal(grid: Grid, variant: int) -> Bools:
    """Where items have the answer that they have in a variant (item, variant)."""
    answers = grid.answers[:, [variant]]
    return np.asarray((grid.answers == answers) & (answers >= 0))


def _same(grid: Grid) -> Floats:
    """How many items have the same answer in two variants (variant, variant)."""
    sums = [_equal(grid, at).sum(axis=0) for at in range(grid.answers.shape[1])]
    return np.array(sums, dtype=np.float64).reshape(len(sums), -1)


def _weights(grid: Grid, rows: Ints | slice = slice(None)) -> Floats:
    """The votes of the items in each pair of variants (variant, variant)."""
    asked = grid.asked[rows].astype(np.float64)
    return np.asarray((asked.T @ (asked * grid.votes[rows, None])) * grid.is_compared)
