"""How far the probabilities of the options are from each other in two variants of an item.

``P_ik(a)`` is the probability of option a of item i in variant k: the scores of the run, normalised
over the options (``option_probabilities``). Options are compared by their position in the file. The
distance is the total variation ``d(P, Q) = sum_a |P(a) - Q(a)| / 2``, from 0 to 1. A change of
probability from 0.49 to 0.51 changes the answer, and one from 0.51 to 0.99 does not; this distance
counts both by their size.
"""

from __future__ import annotations

import numpy as np

from consilience.metrics.grid import Bools, Floats, Grid
from consilience.metrics.registry import metric
from consilience.metrics.tally import Tally, ratio


@metric(
    "pairs",
    label="Total variation",
    short="Total var.",
    meaning="distance between the option probabilities in two variants",
    by_edit=True,
    better="lower",
)
def total_variation(grid: Grid) -> Tally | None:
    """Mean distance of two variants: ``sum_i sum_{k<l} d(P_ik, P_il)`` over the number of pairs.

    A pair without both distributions is left out. None of a run without scores of options.
    """
    shares = grid.distributions
    if shares is None:
        return None
    known, counts = _known(grid, shares), np.zeros((len(shares), 2))
    for first, second in grid.pairs:
        both = known[:, first] & known[:, second]
        moved = np.abs(shares[both, first] - shares[both, second])
        counts[both, 0] += moved.sum(axis=1) / 2
        counts[:, 1] += both
    return _tally(grid, counts)


@metric(
    "pairs",
    label="Total variation expected by chance",
    short="Chance var.",
    meaning="total variation if each variant had its own distributions for other items",
    by_edit=True,
)
def chance_total_variation(grid: Grid) -> Tally | None:
    """Total variation if each variant had its own distributions, equally often, for other items.

    ``sum_{k<l} n_kl V_kl / sum_{k<l} n_kl``: ``V_kl`` is the mean of ``d(P_ik, P_jl)`` over the
    items i of variant k and the other items j of variant l, ``n_kl`` the number of items that have
    both. A resample changes both items of a distance. What an item counts is therefore the
    derivative of the sum by the weight of the item, so that resamples are exact to first order.
    """
    shares = grid.distributions
    if shares is None:
        return None
    known = _known(grid, shares)
    first, second = grid.pairs.T
    compared = np.zeros((known.shape[1],) * 2, dtype=bool)
    compared[first, second] = compared[second, first] = True
    together = compared * (known.T.astype(float) @ known)
    means, counts = np.zeros(compared.shape), np.zeros((len(known), 2))
    for other in np.flatnonzero(together.any(axis=0)):
        of_other = known[:, [other]]
        to_itself = np.abs(shares - shares[:, [other]]).sum(axis=2) / 2
        sums = _distances(shares, known, int(other)) - np.where(known & of_other, to_itself, 0)
        others = known * (of_other.sum() - of_other.astype(float))
        sizes = np.maximum(others.sum(axis=0), 1)
        means[:, other] = sums.sum(axis=0) / sizes
        together[others.sum(axis=0) == 0, other] = 0
        counts[:, 0] += (sums - means[:, other] * others) @ (together[:, other] / sizes)
    for k, m in grid.pairs[together[first, second] > 0]:
        both = known[:, k] & known[:, m]
        counts[both, 0] += means[k, m]
        counts[:, 1] += both
    return _tally(grid, counts)


def _known(grid: Grid, shares: Floats) -> Bools:
    """Whether an answer has probabilities (item, variant)."""
    known: Bools = grid.taken & np.isfinite(shares).any(axis=2)
    return known


def _tally(grid: Grid, counts: Floats) -> Tally | None:
    """The tally of the sums (item, 2) of distances and of pairs; None without a pair."""
    n = int(counts[:, 1].sum())
    if not n:
        return None
    left_out = len(counts) * grid.n_pairs - n
    return Tally(counts.astype(np.float32), grid.subjects, n, left_out, finish=ratio)


def _distances(shares: Floats, known: Bools, other: int) -> Floats:
    """``sum_j d(P_ik, P_jl)`` over the items j of the variant l (item, variant); 0 for none.

    ``sum_j |x - y_j|`` of all x at once, from cumulative sums over the sorted values.
    """
    of_other = np.broadcast_to(np.arange(known.shape[1]) == other, known.shape)[known]
    sums = np.zeros(len(of_other))
    for values in shares[known].T:
        order = np.argsort(values, kind="stable")
        ordered, is_other = values[order], of_other[order]
        below, sum_below = np.cumsum(is_other), np.cumsum(ordered * is_other)
        sums[order] += ordered * (2 * below - below[-1]) + sum_below[-1] - 2 * sum_below
    distances = np.zeros(known.shape)
    distances[known] = sums / 2
    return distances
