"""Intervals and tests, the same for every number (``docs/statistics.md`` has the formulas).

Everything random is seeded. Probabilities of error are two-sided. scipy.stats is imported where it
is used: it takes as long as all other imports of a command together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri, stdtrit

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
"""The share of intervals that hold the true value."""

REPLICATES = 2000
"""Bootstrap samples."""

PERMUTATIONS = 9999
"""Random permutations; all of them where there are fewer."""

CELLS = 4_000_000
"""Numbers that are held at once, about."""

KEPT = 2**28
"""Bytes of resampled clusters that several countings share, at most."""

CACHED = 2**19
"""Numbers that are worked on at once, about: so few that they stay in the processor's cache."""

FEW = 6
"""With fewer clusters no permutation test can reach p < 0.05."""

TIE = 1e-12
"""Values that differ by less are the same."""

POWER = 0.8
"""The chance to find the smallest difference that the data could have shown."""

NAN = float("nan")


def resamples(
    clusters: int, replicates: int, generator: np.random.Generator
) -> npt.NDArray[np.float32]:
    """How often each cluster was drawn, (replicate, cluster): as many draws as clusters."""
    parts = resamples_in_parts(clusters, replicates, generator)
    return np.concatenate([np.ascontiguousarray(part.T) for part in parts])


def resamples_in_parts(
    clusters: int, replicates: int, generator: np.random.Generator, width: int = 0
) -> Iterator[npt.NDArray[np.float32]]:
    """The same in parts of some replicates, (cluster, replicate): all of them need not fit.

    ``width``: how many numbers are made of each replicate, if more than there are clusters.
    """
    for size in parts_of(replicates, max(clusters, width), CELLS):
        part = np.empty((clusters, size), dtype=np.float32)
        _draw(part, generator)
        yield part


def drawn(clusters: int, generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The same in bytes (cluster, replicate), all ``REPLICATES``.

    They suffice: that a cluster is drawn 256 times has a chance of less than 1 / 256!.
    """
    counts = np.empty((clusters, REPLICATES), dtype=np.uint8)
    _draw(counts, generator)
    return counts


def in_parts(counts: npt.NDArray[np.uint8], width: int = 0) -> Iterator[npt.NDArray[np.float32]]:
    """What was ``drawn`` (cluster, replicate), as ``resamples_in_parts`` has it."""
    start = 0
    for size in parts_of(counts.shape[1], max(len(counts), width), CELLS):
        yield counts[:, start : start + size].astype(np.float32)
        start += size


def _draw(counts: npt.NDArray[Any], generator: np.random.Generator) -> None:
    """Fill ``counts`` (cluster, replicate) with how often each cluster was drawn."""
    clusters, replicates = counts.shape
    start = 0
    for size in parts_of(replicates, clusters):
        places = generator.integers(0, clusters, (size, clusters))
        places *= size
        places += np.arange(size)[:, None]
        found = np.bincount(places.ravel(), minlength=size * clusters)
        counts[:, start : start + size] = found.reshape(clusters, size)
        start += size


def parts_of(rows: int, width: int, cells: int = CACHED) -> Iterator[int]:
    """Sizes of the parts in which ``rows`` of ``width`` numbers are computed: multiples of 16.

    ``cells``: how many numbers a part has, about.
    """
    most = max(16, cells // max(1, width) // 16 * 16)
    for start in range(0, rows, most):
        yield min(most, rows - start)


def bootstrap_interval(
    value: float,
    replicates: Floats,
    clusters: int,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> tuple[float, float]:
    """``bootstrap_intervals`` of one number."""
    found = bootstrap_intervals(
        np.array([value]), replicates[None], clusters, bounds, proportion=proportion
    )
    return float(found[0, 0]), float(found[0, 1])


def bootstrap_intervals(
    values: Floats,
    replicates: Floats,
    clusters: int,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> Floats:
    """Low and high bounds (number, 2) for ``values``, of ``replicates`` (number, replicate).

    ``logit_intervals`` with the standard deviation of the replicates over ``clusters``, times
    ``sqrt(n/(n-1))``, as the standard error. Where nothing varies there is no interval (NaN), with
    one exception: a ``proportion`` that is 0 or 1 has the exact binomial interval (Clopper-Pearson)
    of 0 or n of n clusters. NaN too with fewer than two clusters, and where half of the replicates
    have no value.
    """
    ends = np.full((len(values), 2), NAN)
    if clusters < 2:
        return ends
    replicates = np.ascontiguousarray(replicates)
    missing = np.isnan(replicates)
    whole = ~missing.any(axis=1)
    errors = np.full(len(values), NAN)
    varies = np.zeros(len(values), dtype=np.bool_)
    if whole.any():
        known = replicates if whole.all() else replicates[whole]
        varies[whole] = np.ptp(known, axis=1) >= TIE
        errors[whole] = known.std(axis=1)
    for at in np.flatnonzero(~whole):
        some = replicates[at, ~missing[at]]
        if len(some) > replicates.shape[1] / 2:
            varies[at], errors[at] = np.ptp(some) >= TIE, some.std()
    errors *= math.sqrt(clusters / (clusters - 1))
    there = ~np.isnan(values) & ~np.isnan(errors)
    moving = there & varies
    ends[moving] = logit_intervals(values[moving], errors[moving], clusters, bounds)
    if proportion:
        unseen = 1 - ((1 - LEVEL) / 2) ** (1 / clusters)
        ends[there & ~varies & (values == 0)] = 0.0, unseen
        ends[there & ~varies & (values == 1)] = 1 - unseen, 1.0
    return ends


def logit_interval(
    value: float, error: float, clusters: int, bounds: tuple[float, float]
) -> tuple[float, float]:
    """``logit_intervals`` of one number."""
    found = logit_intervals(np.array([value]), np.array([error]), clusters, bounds)
    return float(found[0, 0]), float(found[0, 1])


def logit_intervals(
    values: Floats, errors: Floats, clusters: int, bounds: tuple[float, float]
) -> Floats:
    """The t intervals (number, 2) of ``clusters`` - 1 degrees of freedom on the logit scale.

    With ``x = (value - least) / (greatest - least)``: the bounds are those of
    ``logit(x) +- t * error / (greatest - least) / (x (1 - x))``. Between -1 and 1 this is Fisher's
    z. NaN where nothing varies (``error`` 0) and for a value at its own bound.
    """
    least, width = bounds[0], bounds[1] - bounds[0]
    ends = np.full((len(values), 2), NAN)
    shares = (values - least) / width
    known = (shares > 0) & (shares < 1) & (errors > TIE)
    if clusters < 2 or not known.any():
        return ends
    shares, errors = shares[known], errors[known]
    reach = -stdtrit(clusters - 1, (1 - LEVEL) / 2) * errors / width / (shares * (1 - shares))
    middle = logit(shares)
    ends[known] = least + width * expit(np.stack([middle - reach, middle + reach], axis=1))
    return ends


def difference_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """The bounds of a difference of two values within ``bounds``."""
    width = bounds[1] - bounds[0]
    return -width, width


def smallest_difference(replicates: Floats) -> float:
    """The smallest true difference that such data show as significant with the chance ``POWER``.

    ``(z[1 - (1-LEVEL)/2] + z[POWER])`` standard errors, which are the standard deviation of the
    bootstrap ``replicates`` (replicate,) of the difference. NaN where they do not vary.
    """
    known = replicates[~np.isnan(replicates)]
    if len(known) < 2 or np.ptp(known) < TIE:
        return NAN
    return float((ndtri(1 - (1 - LEVEL) / 2) + ndtri(POWER)) * known.std(ddof=1))


def mcnemar(first_only: int, second_only: int) -> float:
    """``mcnemars`` of one pair of counts."""
    return float(mcnemars(np.array([first_only]), np.array([second_only]))[0])


def mcnemars(first_only: npt.NDArray[np.int64], second_only: npt.NDArray[np.int64]) -> Floats:
    """Exact McNemar tests (McNemar 1947): p of a fair coin over the items where two runs differ.

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
) -> Correlation:
    """Correlation of pairs, with the interval of Fisher's z.

    ``arctanh(r) +- z * error``: the error is ``1 / sqrt(n - 3)``, of Spearman's coefficient
    ``sqrt((1 + r**2 / 2) / (n - 3))`` (Bonett and Wright 2000). ``p`` is that of all orders of one
    side where these are at most ``PERMUTATIONS`` (up to seven pairs), else that of the t
    distribution. A pair with a NaN is left out. NaN where fewer than three are left or one side is
    constant; no interval with fewer than ``FEW`` pairs, or where they agree perfectly.
    """
    from scipy import stats

    pairs = np.asarray([x, y], dtype=np.float64)
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    count = pairs.shape[1]
    if count < 3 or (np.ptp(pairs, axis=1) == 0).any():
        return Correlation(NAN, NAN, NAN, NAN, count)
    ranks = stats.rankdata(pairs, axis=1) if method == "spearman" else pairs
    value = float(_pearson(ranks[0], ranks[1]))
    low, high = NAN, NAN
    if count >= FEW and abs(value) < 1 - TIE:
        spread = 1 + value**2 / 2 if method == "spearman" else 1.0
        reach = ndtri(1 - (1 - LEVEL) / 2) * math.sqrt(spread / (count - 3))
        low, high = (math.tanh(math.atanh(value) + each) for each in (-reach, reach))
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
