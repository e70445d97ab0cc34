"""Two-sided tests and adjusted p, the same for every number (``docs/statistics.md``).

Everything random is seeded. scipy.stats is imported where it is used: it takes as long as all other
imports of a command together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from consilience.metrics.bootstrap import CACHED
from consilience.metrics.intervals import LEVEL, NAN, Floats

PERMUTATIONS = 9999
"""The number of random permutations; all are used if there are fewer."""

FEW = 6
"""With fewer clusters no permutation test can reach p < 0.05."""


def mcnemar(first_only: int, second_only: int) -> float:
    """``mcnemars`` of one pair of counts."""
    return float(mcnemars(np.array([first_only]), np.array([second_only]))[0])


def mcnemars(first_only: npt.NDArray[np.int64], second_only: npt.NDArray[np.int64]) -> Floats:
    """Exact McNemar tests (1947): two-sided binomial p of the items that only one run has right.

    ``first_only`` and ``second_only`` (test,) count the items that only one of them has right. 1
    where there is none.
    """
    from scipy import stats

    fewer, differ = np.minimum(first_only, second_only), first_only + second_only
    p = np.ones(len(differ))
    tested = first_only != second_only
    least, size = fewer[tested], differ[tested]
    p[tested] = np.minimum(
        stats.binom.cdf(least, size, 0.5) + stats.binom.sf(size - least - 1, size, 0.5), 1.0
    )
    return p


class Signs:
    """Random signs of names, (permutation, name): 1 and -1 with equal probability.

    A name has the same signs wherever it occurs, so a subject changes in all relations at once.
    """

    def __init__(self, names: Sequence[str], seed: int) -> None:
        size = -(-PERMUTATIONS // 8)
        head = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(1, seed.bit_length()), 32)]
        self._bits = np.empty((len(names), size), dtype=np.uint8)
        for at, name in enumerate(names):
            # np.random.default_rng([seed, *name.encode()]).bytes(size), five times as fast.
            entropy = np.array([*head, *name.encode()], dtype=np.uint32)
            drawn = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(-(-size // 8))
            self._bits[at] = drawn.astype("<u8").view(np.uint8)[:size]

    def sums(self, values: Floats) -> Floats:
        """Sums (permutation, column) of signed ``values`` (name, column)."""
        moving = np.flatnonzero(values.any(axis=1))
        bits, values = self._bits[moving], values[moving]
        step = max(8, CACHED // (8 * max(1, len(bits))))
        parts = []
        for start in range(0, bits.shape[1], step):
            changed = np.unpackbits(bits[:, start : start + step], axis=1).astype(np.float64)
            parts.append(values.sum(axis=0) - 2 * (changed.T @ values))
        return np.concatenate(parts)[:PERMUTATIONS]


def permutation_p(observed: float, permuted: Floats) -> float:
    """Share of ``permuted`` (permutation,) at least as far from 0 as ``observed``.

    The observed one counts among them (Phipson and Smyth 2010), so that p is never 0.
    """
    if math.isnan(observed):
        return NAN
    known = permuted[~np.isnan(permuted)]
    extreme = int((np.abs(known) >= abs(observed) - 1e-12).sum())
    return (extreme + 1) / (len(known) + 1)


def paired_permutation(differences: Sequence[float], seed: int = 0) -> float:
    """The p of the mean of paired ``differences``, by flipping each sign with probability 1/2.

    All combinations of signs are used if there are at most ``PERMUTATIONS``, else random ones. With
    n differences p is at least 2 / 2^n. NaN with fewer than two differences.
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return NAN
    moved = values[values != 0]
    if 2 ** len(moved) <= PERMUTATIONS:
        signs = 1.0 - 2 * (np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1)
        sums = signs @ moved
        return float((np.abs(sums) >= abs(moved.sum()) - 1e-12).mean())
    generator = np.random.default_rng(seed)
    signs = generator.choice([-1.0, 1.0], (PERMUTATIONS, len(moved)))
    return permutation_p(float(moved.sum()), signs @ moved)


@dataclass(frozen=True, slots=True)
class TTest:
    """The difference of two means, first minus second."""

    difference: float
    low: float
    """Lower bound of its interval."""
    high: float
    """Upper bound of its interval."""
    t: float
    freedom: float
    p: float
    """Two-sided p."""


def student_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Student's t-test of two independent groups of the same variance, which is pooled."""
    from scipy import stats

    result = stats.ttest_ind(first, second, equal_var=True)
    return _t_test(result, float(np.mean(first) - np.mean(second)))


def welch_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Welch's t-test of two independent groups, whose variances may differ.

    For groups of tasks or relations, such as NLI against STS (CALUM, Section 5.1.1, which does not
    say which t-test it uses).
    """
    from scipy import stats

    with warnings.catch_warnings():  # where one group is constant the other alone says how sure
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_ind(first, second, equal_var=False, nan_policy="omit")
    return _t_test(result, float(np.nanmean(first) - np.nanmean(second)))


def paired_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Student's t-test of paired values, such as two models on the same relations or seeds."""
    from scipy import stats

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return _t_test(
        stats.ttest_rel(first, second, nan_policy="omit"), float(np.nanmean(differences))
    )


def _t_test(result: Any, difference: float) -> TTest:
    interval = result.confidence_interval(LEVEL)
    return TTest(
        difference,
        float(interval.low),
        float(interval.high),
        float(result.statistic),
        float(result.df),
        float(result.pvalue),
    )


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjust p so that the probability of any false finding stays below the level (Holm 1979).

    NaN stays NaN and does not count as a test.
    """

    def adjust(ordered: Floats) -> Floats:
        steps = np.arange(len(ordered), 0, -1)
        return np.minimum(np.maximum.accumulate(ordered * steps), 1.0)

    return _adjusted(probabilities, adjust)


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Adjust p so that the expected share of false findings stays below the level (1995).

    NaN stays NaN and does not count as a test.
    """

    def adjust(ordered: Floats) -> Floats:
        scaled = ordered * len(ordered) / np.arange(1, len(ordered) + 1)
        return np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)

    return _adjusted(probabilities, adjust)


def _adjusted(probabilities: Sequence[float], adjust: Callable[[Floats], Floats]) -> list[float]:
    values = np.asarray(probabilities, dtype=np.float64)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    adjusted = np.full(len(values), NAN)
    if len(order):
        adjusted[order] = adjust(values[order])
    return [float(p) for p in adjusted]
