"""Intervals and tests, the same for every number (``docs/statistics.md`` has the formulas).

Everything random is seeded. Probabilities of error are two-sided. scipy.stats is imported where it
is used: it takes as long as all other imports of a command together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtrit

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
"""The share of intervals that hold the true value."""

REPLICATES = 2000
"""Bootstrap samples."""

PERMUTATIONS = 9999
"""Random permutations; all of them where there are fewer."""

CELLS = 4_000_000
"""Numbers that are held at once, about."""

FEW = 6
"""Of fewer clusters no bootstrap tells how they vary, and no permutation reaches a p of 5 %."""

POWER = 0.8
"""The chance to find the smallest difference that the data could have shown."""

NAN = float("nan")


def resamples(
    clusters: int, replicates: int, generator: np.random.Generator
) -> npt.NDArray[np.float32]:
    """How often each cluster was drawn, (replicate, cluster): as many draws as clusters."""
    drawn = np.empty((replicates, clusters), dtype=np.float32)
    part = max(1, CELLS // clusters)
    for start in range(0, replicates, part):
        rows = min(part, replicates - start)
        places = generator.integers(0, clusters, (rows, clusters))
        places += np.arange(rows)[:, None] * clusters
        counts = np.bincount(places.ravel(), minlength=rows * clusters)
        drawn[start : start + rows] = counts.reshape(rows, clusters)
    return drawn


def percentile_interval(
    value: float,
    replicates: Floats,
    clusters: int,
    bounds: tuple[float, float],
) -> tuple[float, float]:
    """Low and high end for ``value``, of bootstrap ``replicates`` (replicate,) over ``clusters``.

    Expanded percentiles (Hesterberg 2015): plain ones are too narrow with few clusters by the
    factor ``sqrt((n-1)/n)`` and by that between the normal and the t distribution. With fewer than
    ``FEW`` clusters replicates do not reach far enough, and the ends are those of the t
    distribution: the standard error is the deviation of the replicates, widened likewise. Where
    nothing varies at 0 or at one of the ``bounds`` of the value, the share of clusters that may
    yet be otherwise is that of the exact binomial interval (Clopper-Pearson). NaN with fewer than
    two clusters, where fewer than ``FEW`` tie elsewhere, or where half of the replicates have no
    value.
    """
    known = replicates[~np.isnan(replicates)]
    if clusters < 2 or math.isnan(value) or len(known) <= len(replicates) / 2:
        return NAN, NAN
    if np.ptp(known) < 1e-12:
        unseen = 1 - ((1 - LEVEL) / 2) ** (1 / clusters) if value in (0.0, *bounds) else 0.0
        if clusters < FEW and not unseen:
            return NAN, NAN  # a tie of a few
        return max(bounds[0], value - unseen), min(bounds[1], value + unseen)
    tail = stdtrit(clusters - 1, (1 - LEVEL) / 2) * math.sqrt(clusters / (clusters - 1))
    if clusters < FEW:
        low, high = value + tail * known.std(), value - tail * known.std()
    else:
        share = float(ndtr(tail))
        low, high = np.quantile(known, [share, 1 - share])
    return max(bounds[0], float(low)), min(bounds[1], float(high))


def smallest_difference(replicates: Floats) -> float:
    """The smallest true difference that such data show as significant with the chance ``POWER``.

    ``(z[1 - (1-LEVEL)/2] + z[POWER])`` standard errors, which are the standard deviation of the
    bootstrap ``replicates`` (replicate,) of the difference. NaN where they do not vary.
    """
    known = replicates[~np.isnan(replicates)]
    if len(known) < 2 or np.ptp(known) < 1e-12:
        return NAN
    return float((ndtri(1 - (1 - LEVEL) / 2) + ndtri(POWER)) * known.std(ddof=1))


def mcnemar(first_only: int, second_only: int) -> float:
    """Exact McNemar test (McNemar 1947): p of a fair coin over the items where two runs differ.

    ``first_only`` and ``second_only`` count the items that only one of them has right. 1 where
    there is none.
    """
    from scipy import stats

    differ = first_only + second_only
    return float(stats.binomtest(first_only, differ).pvalue) if differ else 1.0


class Signs:
    """Random signs of names, (permutation, name): 1 and -1 with equal probability.

    A name has the same signs wherever it occurs, so a subject changes in all relations at once.
    """

    def __init__(self, names: Sequence[str], seed: int) -> None:
        size = -(-PERMUTATIONS // 8)
        drawn = [np.random.default_rng([seed, *name.encode()]).bytes(size) for name in names]
        self._bits = np.frombuffer(b"".join(drawn), dtype=np.uint8).reshape(-1, size)

    def sums(self, values: Floats) -> Floats:
        """Sums (permutation, column) of signed ``values`` (name, column)."""
        moving = np.flatnonzero(values.any(axis=1))
        bits, values = self._bits[moving], values[moving]
        step = max(1, CELLS // (8 * max(1, len(bits))))
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
    """The p of the mean of paired ``differences``: the sign of each as likely one as the other.

    Over all signs where there are at most ``PERMUTATIONS``, else over random ones: with n
    differences p is at least 2 / 2^n. NaN with fewer than two, where the sign alone says nothing.
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
    """Mean difference (first minus second) with its interval, t, degrees of freedom, and p."""

    difference: float
    low: float
    high: float
    t: float
    freedom: float
    p: float


def student_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Student's t-test of two independent groups of the same variance, which is pooled."""
    from scipy import stats

    found = stats.ttest_ind(first, second, equal_var=True)
    return _t_test(found, float(np.mean(first) - np.mean(second)))


def welch_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Welch's t-test of two independent groups, whose variances may differ.

    For groups of tasks or relations, such as NLI against STS (CALUM, Section 5.1.1, which does not
    say which t-test it uses).
    """
    from scipy import stats

    with warnings.catch_warnings():  # where one group is constant the other alone says how sure
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_ind(first, second, equal_var=False, nan_policy="omit")
    return _t_test(found, float(np.nanmean(first) - np.nanmean(second)))


def paired_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Student's t-test of paired values, such as two models on the same relations or seeds."""
    from scipy import stats

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return _t_test(
        stats.ttest_rel(first, second, nan_policy="omit"), float(np.nanmean(differences))
    )


def _t_test(found: Any, difference: float) -> TTest:
    interval = found.confidence_interval(LEVEL)
    return TTest(
        difference,
        float(interval.low),
        float(interval.high),
        float(found.statistic),
        float(found.df),
        float(found.pvalue),
    )


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjusted so that the chance of any false finding stays below the level (Holm 1979).

    NaN stays NaN and does not count as a test.
    """

    def adjust(ordered: Floats) -> Floats:
        steps = np.arange(len(ordered), 0, -1)
        return np.minimum(np.maximum.accumulate(ordered * steps), 1.0)

    return _adjusted(probabilities, adjust)


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Adjusted so that the expected share of false findings stays below the level (1995).

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
    return [float(each) for each in adjusted]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A coefficient with its interval, p, and the number of pairs."""

    value: float
    low: float
    high: float
    p: float
    n: int


def correlation(
    x: Sequence[float],
    y: Sequence[float],
    *,
    method: Literal["pearson", "spearman"],
    seed: int = 0,
) -> Correlation:
    """Correlation of pairs, with a bootstrap interval over them.

    ``p`` is that of all orders of one side where these are at most ``PERMUTATIONS`` (up to seven
    pairs), else that of the t distribution. A pair with a NaN is left out. NaN where fewer than
    three are left or one side is constant; no interval with fewer than ``FEW``, or where no
    resample varies.
    """
    from scipy import stats

    pairs = np.asarray([x, y], dtype=np.float64)
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    count = pairs.shape[1]
    if count < 3 or (np.ptp(pairs, axis=1) == 0).any():
        return Correlation(NAN, NAN, NAN, NAN, count)
    ranks = stats.rankdata(pairs, axis=1) if method == "spearman" else pairs
    value = float(_pearson(ranks[0], ranks[1]))
    generator = np.random.default_rng(seed)
    drawn = pairs[:, generator.integers(0, count, (REPLICATES, count))]
    if method == "spearman":
        drawn = stats.rankdata(drawn, axis=-1)
    replicates = _pearson(drawn[0], drawn[1])
    low, high = NAN, NAN
    if count >= FEW and np.ptp(replicates[~np.isnan(replicates)]) > 1e-12:
        low, high = percentile_interval(value, replicates, count, (-1.0, 1.0))
    if math.factorial(count) <= PERMUTATIONS:
        orders = np.array(list(permutations(ranks[1])))
        extreme = np.abs(_pearson(ranks[0], orders)) >= abs(value) - 1e-12
        p = float(extreme.mean())
    else:
        p = float(stats.pearsonr(ranks[0], ranks[1]).pvalue)
    return Correlation(value, low, high, p, count)


def _pearson(x: Floats, y: Floats) -> Floats:
    """Pearson's r along the last axis; NaN where one side is constant."""
    x, y = (each - each.mean(axis=-1, keepdims=True) for each in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        r: Floats = (x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return r
