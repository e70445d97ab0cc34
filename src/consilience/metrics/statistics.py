"""Intervals of numbers and of differences, and tests of differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import bdtr, betaincinv, expit, logit, stdtrit

from consilience.core.items import Floats

NAN = float("nan")


LEVEL = 0.95  # The share of intervals that contain the true value

CLEAR = 0.05  # A difference is called clear if p, adjusted for the number of tests, is less

TIE = 1e-12  # Values that differ by less are the same

POWER = 0.8  # The probability with which the minimum detectable difference is detected


Bounds = tuple[float, float]  # Of an interval, or of the values that a number can have


def binomial_interval(hits: int, total: int, level: float = LEVEL) -> Bounds:
    """The exact bounds of the share of ``hits`` (Clopper and Pearson 1934).

    The shares with which so many hits or more, and so many or fewer, have the probability ``(1 -
    level) / 2``; 0 of 10 at 95 %: 0 to 0.308.
    """
    tail, misses = (1 - level) / 2, total - hits
    low = float(betaincinv(hits, misses + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - tail)) if misses else 1.0
    return low, high


def logit_interval(
    value: float, error: float, clusters: float, bounds: Bounds, level: float = LEVEL
) -> Bounds:
    """The bounds of the t interval of ``clusters`` - 1 degrees of freedom on the logit scale.

    With ``x = (value - least) / (greatest - least)``: the bounds are those of
    ``logit(x) +- t * error / (greatest - least) / (x (1 - x))``. Between -1 and 1 this is Fisher's
    z. NaN where nothing varies (``error`` 0) and for a value at its own bound.
    """
    least, width = bounds[0], bounds[1] - bounds[0]
    share = (value - least) / width
    if not (0 < share < 1 and error > TIE and clusters > 1):
        return NAN, NAN
    reach = -stdtrit(clusters - 1, (1 - level) / 2) * error / width / (share * (1 - share))
    low, high = (float(expit(logit(share) + end)) for end in (-reach, reach))
    return least + width * low, least + width * high


def difference_interval(
    value: float, error: float, clusters: int, bounds: Bounds, level: float = LEVEL, *, reach: float
) -> Bounds:
    """The bounds of the interval of a paired difference with the standard ``error``.

    ``logit_interval`` of the clusters and two more: one moves by ``reach`` up, one down (Agresti
    and Min 2005). Where few items differ between two runs, these do not show how many may.
    Runs with the same answers have an interval, too. NaN with fewer than two clusters.
    """
    if clusters < 2:
        return NAN, NAN
    more, middle, spread = with_two_more(value, error, clusters, reach)
    low, high = logit_interval(middle, spread, more, bounds, level)
    return min(low, value), max(high, value)


def with_two_more(
    value: float, error: float, clusters: int, reach: float
) -> tuple[int, float, float]:
    """Clusters, value and error with two more clusters, of which one moves up and one down."""
    more = clusters + 2
    middle = value * clusters / more
    squares = error**2 * clusters * (clusters - 1) + clusters * (value - middle) ** 2
    squares += (reach - middle) ** 2 + (reach + middle) ** 2
    return more, middle, math.sqrt(squares / (more * (more - 1)))


def difference_bounds(bounds: Bounds) -> Bounds:
    """The bounds of a difference of two values within ``bounds``."""
    width = bounds[1] - bounds[0]
    return -width, width


def detectable_difference(error: float, clusters: int, level: float = LEVEL) -> float:
    """The minimum detectable difference: found as significant with the probability ``POWER``.

    ``t[1 - (1-level)/2] + t[POWER]`` standard errors ``error``, with the t of ``clusters`` - 1
    degrees of freedom (Bloom 1995): 2.80 of many clusters, 3.49 of six. NaN where nothing varies,
    and of fewer clusters than any test needs.
    """
    if not error > 0 or clusters < FEW:
        return NAN
    quantiles = stdtrit(clusters - 1, [1 - (1 - level) / 2, POWER])
    return float(quantiles.sum()) * error


FEW = 6  # With fewer clusters no permutation test can reach p < 0.05

PERMUTATIONS = 9999  # The number of random permutations; all are used if there are fewer

MOST_EXACT = PERMUTATIONS.bit_length() - 1  # Units of which no more combinations of signs exist

CACHED = 2**16
"""About how many numbers are computed at once, so that they fit the processor's cache."""


def smallest_p(clusters: int) -> float:
    """The smallest p of a sign or permutation test of ``clusters``."""
    return min(1.0, 2 * 0.5**clusters)


def mcnemar(first_only: int, second_only: int, *, mid: bool = False) -> float:
    """Exact McNemar test (1947): the two-sided binomial p of the items that only one run has right.

    1 where there is none. ``mid``: the mid-p, which counts the observed counts half: it finds 5 %
    of equal models with few items, too, where the exact test finds fewer (Fagerland, Lydersen and
    Laake 2013).

    >>> mcnemar(1, 9)  # 2 * (1 + 10) / 2**10
    0.021484375
    """
    fewer, differ = min(first_only, second_only), first_only + second_only
    if not differ:
        return 1.0
    tail = float(bdtr(fewer, differ, 0.5))
    below = float(bdtr(fewer - 1, differ, 0.5)) if fewer else 0.0
    return min(1.0, tail + below if mid else 2 * tail)


def paired_permutation(differences: Sequence[float]) -> float:
    """``sign_flips`` of the mean of paired ``differences``; NaN with fewer than two of them.

    >>> paired_permutation([1, 2, 3])  # of 8 signs two have a sum as far from 0
    0.25
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[~np.isnan(values)]
    return sign_flips([values])[0] if len(values) > 1 else NAN


def sign_flips(differences: Sequence[Floats]) -> list[float]:
    """The two-sided p of each sum of ``differences`` (unit,), each sign flipped with p = 1/2.

    All combinations of signs of the n units that differ are used if there are at most
    ``PERMUTATIONS``; p is then at least 2 / 2^n. Else random ones, among which the observed one
    counts (Phipson and Smyth 2010). The order and the names of the units do not matter, nor which
    run is the first: the sizes of the differences are sorted, and have the signs.
    """
    sizes = [np.sort(np.abs(of)) for of in differences]
    moved = [of[of > TIE * of.max(initial=0)] for of in sizes]
    few = [len(of) <= MOST_EXACT for of in moved]
    drawn = iter(_random_flips([of for of, is_few in zip(moved, few, strict=True) if not is_few]))
    tests = list[float]()
    for all_of, of, is_few in zip(differences, moved, few, strict=True):
        if is_few:
            signs = 1.0 - 2 * (np.arange(2 ** len(of))[:, None] >> np.arange(len(of)) & 1)
        sums = signs @ of if is_few else next(drawn)
        extreme = int((np.abs(sums) >= abs(all_of.sum()) - TIE).sum())
        tests.append(extreme / len(sums) if is_few else (extreme + 1) / (len(sums) + 1))
    return tests


def _random_flips(differences: Sequence[Floats]) -> Floats:
    """Sums (number, permutation) of ``differences`` (unit,) with random signs, the same for all."""
    units = max(map(len, differences), default=0)
    columns = np.zeros((len(differences), units))
    for row, of in zip(columns, differences, strict=True):
        row[: len(of)] = of
    words = -(-PERMUTATIONS // 64)
    drawn = np.random.PCG64(0).random_raw(units * words).astype("<u8")
    bits = drawn.view(np.uint8).reshape(units, 8 * words)
    step, parts = max(8, CACHED // (8 * max(1, units))), []
    for start in range(0, bits.shape[1], step):
        flipped = np.unpackbits(bits[:, start : start + step], axis=1).astype(np.float64)
        parts.append(columns @ flipped)
    sums = columns.sum(axis=1, keepdims=True) - 2 * np.concatenate(parts, axis=1)
    return np.asarray(sums[:, :PERMUTATIONS])


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjust p so that the probability of any false finding stays below the level (Holm 1979).

    NaN stays NaN and does not count as a test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    return _adjusted(probabilities, lambda p: np.maximum.accumulate(p * np.arange(len(p), 0, -1)))


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Adjust p so that the expected share of false findings stays below the level (1995).

    NaN stays NaN and does not count as a test.
    """

    def adjust(ordered: Floats) -> Floats:
        scaled = ordered * len(ordered) / np.arange(1, len(ordered) + 1)
        return np.minimum.accumulate(scaled[::-1])[::-1]

    return _adjusted(probabilities, adjust)


def _adjusted(probabilities: Sequence[float], adjust: Callable[[Floats], Floats]) -> list[float]:
    """``adjust`` of the sorted p, at most 1, in the order of ``probabilities``."""
    values = np.asarray(probabilities, dtype=np.float64)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    adjusted = np.full(len(values), NAN)
    if len(order):
        adjusted[order] = np.minimum(adjust(values[order]), 1.0)
    return adjusted.tolist()
