"""Statistics: chance, the bootstrap, intervals, tests, correlations."""

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

from consilience.core.items import Bools, Floats, Ints

NAN = float("nan")


class Chance:
    """The number of pairs that agree by chance, a function of sums of counts over items.

    The columns of the sums are: same pairs, all pairs, those of the subclass, then each answer in
    each variant (variant and word).
    """

    def __init__(self, width: int, variants: int, words: int) -> None:
        """``width``: the number of columns of the subclass."""
        self._width, self._shape = width, (variants, words)
        self._last: tuple[Floats, Floats] | None = None

    def __call__(self, sums: Floats) -> Floats:
        """(...) of sums (..., column). The last result is kept: two metrics need the same."""
        last = self._last  # read once, because another thread may replace it
        if last is None or last[0] is not sums:
            counts, shares, _ = self._parts(sums)
            last = self._last = sums, (counts * self._agree(shares)).sum(axis=-1)
        return last[1]

    def slopes(self, sums: Floats) -> Floats:
        """Its derivatives (column,) at sums (column,).

        By the count of the answer a in variant k, of N_k answers:
        ``(w_k(a) - sum_b w_k(b) p_k(b)) / N_k``, where ``w_k(a)`` is the derivative by ``p_k(a)``.
        """
        counts, shares, totals = self._parts(sums)
        weights = self._weights(counts, shares)
        mean_weights = (weights * shares).sum(axis=1, keepdims=True)
        by_count = ((weights - mean_weights) / totals).ravel()
        return np.concatenate([np.zeros(2), self._agree(shares), by_count])

    def _parts(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Its columns, p (..., variant, word) and the answers of each variant (..., v, 1)."""
        counts, answer_counts = np.split(sums[..., 2:], [self._width], axis=-1)
        by_variant = answer_counts.reshape(*sums.shape[:-1], *self._shape)
        totals = np.maximum(by_variant.sum(axis=-1, keepdims=True), 1)
        return counts, by_variant / totals, totals

    def _agree(self, shares: Floats) -> Floats:
        """The pairs that agree by chance for a count of 1 in each column (..., column)."""
        raise NotImplementedError

    def _weights(self, counts: Floats, shares: Floats) -> Floats:
        """W (variant, word)."""
        raise NotImplementedError


class ChanceOfPairs(Chance):
    """``Chance`` of given pairs; its columns are the items with both answers of each pair, n_kl.

    ``sum_kl n_kl sum_a p_k(a) p_l(a)``, so ``w_k(a) = sum_l n_kl p_l(a)``.
    """

    def __init__(self, pairs: Ints, variants: int, words: int) -> None:
        super().__init__(len(pairs), variants, words)
        self._first, self._second = pairs.T

    def _agree(self, shares: Floats) -> Floats:
        expected: Floats = shares @ np.swapaxes(shares, -1, -2)
        return expected[..., self._first, self._second]

    def _weights(self, counts: Floats, shares: Floats) -> Floats:
        compared = np.zeros((len(shares), len(shares)))
        np.add.at(compared, (self._first, self._second), counts)
        np.add.at(compared, (self._second, self._first), counts)
        return np.asarray(compared @ shares)


class ChanceOfAll(Chance):
    """``Chance`` of every two of many variants, without an array of pairs.

    Items that lack the same answers are a class c of N_c items, its columns; t_ck is 1 if it has
    answers in variant k, and ``u_c(a) = sum_k t_ck p_k(a)``. The sum over pairs is then
    ``sum_c N_c sum_a (u_c(a)^2 - sum_k t_ck p_k(a)^2) / 2``, and
    ``w_k(a) = sum_c N_c t_ck (u_c(a) - p_k(a))``.
    """

    def __init__(self, classes: Bools, words: int) -> None:
        """``classes``: t (class, variant)."""
        super().__init__(len(classes), classes.shape[1], words)
        self._classes = classes.astype(np.float64)

    def _agree(self, shares: Floats) -> Floats:
        squares = np.einsum("...va,...va->...v", shares, shares) @ self._classes.T
        together = self._classes @ shares
        return np.asarray((np.einsum("...ca,...ca->...c", together, together) - squares) / 2)

    def _weights(self, counts: Floats, shares: Floats) -> Floats:
        weighted = counts[:, None] * self._classes
        alone = weighted.sum(axis=0)[:, None] * shares
        return np.asarray(weighted.T @ (self._classes @ shares) - alone)


REPLICATES = 2000  # The number of bootstrap samples

CELLS = 4_000_000  # About how many numbers are in memory at the same time

KEPT = 2**28  # At most this many bytes of resampled clusters are kept

CACHED = 2**19
"""About how many numbers are computed at once, so that they fit the processor's cache."""

Weights = npt.NDArray[np.float32]


class Draws:
    """How often each of ``clusters`` was drawn in each of ``REPLICATES`` bootstrap samples.

    A sample draws as many clusters as exist. Every pass over ``parts`` gives the same numbers.
    """

    def __init__(self, clusters: int, seed: int | Sequence[int], *, keep: bool = False) -> None:
        """``keep``: for further passes, as bytes; a cluster is drawn 256 times with p < 1/256!."""
        self.clusters, self._seed, self._keep = clusters, seed, keep
        self._kept: npt.NDArray[np.uint8] | None = None
        self.generator = np.random.default_rng(seed)
        """After a pass: the generator of what follows the draws."""

    def parts(self, width: int = 0) -> Iterator[Weights]:
        """Counts (cluster, replicate) in parts, so that not all must fit into memory.

        ``width``: the number of values computed from a replicate, if larger than that of clusters.
        """
        if self._kept is None:
            generator = np.random.default_rng(self._seed)
            drawn = resamples_in_parts(self.clusters, REPLICATES, generator, width)
            self.generator = generator
            if not self._keep:
                yield from drawn
                return
            self._kept = np.concatenate([part.astype(np.uint8) for part in drawn], axis=1)
        start = 0
        for size in parts_of(REPLICATES, max(self.clusters, width), CELLS):
            yield self._kept[:, start : start + size].astype(np.float32)
            start += size


def resamples(clusters: int, replicates: int, generator: np.random.Generator) -> Weights:
    """How often each cluster was drawn (replicate, cluster); a replicate draws as many as exist."""
    parts = resamples_in_parts(clusters, replicates, generator)
    return np.concatenate([np.ascontiguousarray(part.T) for part in parts])


def resamples_in_parts(
    clusters: int, replicates: int, generator: np.random.Generator, width: int = 0
) -> Iterator[Weights]:
    """The same (cluster, replicate) in parts; ``width`` as of ``Draws.parts``."""
    for size in parts_of(replicates, max(clusters, width), CELLS):
        counts = np.empty((clusters, size), dtype=np.float32)
        start = 0
        for few in parts_of(size, clusters):
            places = generator.integers(0, clusters, (few, clusters))
            places *= few
            places += np.arange(few)[:, None]
            drawn = np.bincount(places.ravel(), minlength=few * clusters)
            counts[:, start : start + few] = drawn.reshape(clusters, few)
            start += few
        yield counts


def parts_of(rows: int, width: int, cells: int = CACHED) -> Iterator[int]:
    """Sizes of the parts in which ``rows`` of ``width`` numbers are computed: multiples of 16.

    ``cells``: about how many numbers a part has.
    """
    most = max(16, cells // max(1, width) // 16 * 16)
    for start in range(0, rows, most):
        yield min(most, rows - start)


LEVEL = 0.95  # The share of intervals that contain the true value

CLEAR = 0.05  # A difference is called clear if p, adjusted for the number of tests, is less

TIE = 1e-12  # Values that differ by less are the same

POWER = 0.8  # The probability with which the minimum detectable difference is detected

SYMMETRIC = 1e-6  # Values with a skewness nearer to 0 than this have none


def bootstrap_interval(
    value: float,
    replicates: Floats,
    clusters: int,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> tuple[float, float]:
    """``bootstrap_intervals`` of one number."""
    intervals = bootstrap_intervals(
        np.array([value]), replicates[None], np.array([clusters]), bounds, proportion=proportion
    )
    return float(intervals[0, 0]), float(intervals[0, 1])


def bootstrap_error(replicates: Floats, clusters: int) -> float:
    """``bootstrap_errors`` of one number."""
    return float(bootstrap_errors(replicates[None], clusters)[0])


def bootstrap_errors(replicates: Floats, clusters: int) -> Floats:
    """Standard errors (number,) of numbers with ``replicates`` (number, replicate).

    The standard deviation of the replicates over ``clusters``, times ``sqrt(n/(n-1))``. 0 where
    nothing varies; NaN with fewer than two clusters, and where half of the replicates have no
    value.
    """
    errors = np.full(len(replicates), NAN)
    if clusters < 2:
        return errors
    replicates = np.ascontiguousarray(replicates)
    missing = np.isnan(replicates)
    whole = ~missing.any(axis=1)
    varies = np.zeros(len(replicates), dtype=np.bool_)
    if whole.any():
        known = replicates if whole.all() else replicates[whole]
        varies[whole] = np.ptp(known, axis=1) >= TIE
        errors[whole] = known.std(axis=1)
    for at in np.flatnonzero(~whole):
        some = replicates[at, ~missing[at]]
        if len(some) > replicates.shape[1] / 2:
            varies[at], errors[at] = np.ptp(some) >= TIE, some.std()
    errors[~varies & ~np.isnan(errors)] = 0.0
    errors *= math.sqrt(clusters / (clusters - 1))
    return errors


def bootstrap_intervals(
    values: Floats,
    replicates: Floats,
    clusters: Ints,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> Floats:
    """``intervals_of`` with the ``bootstrap_errors`` of ``replicates`` (number, replicate).

    ``clusters`` (number,): how many were counted.
    """
    ends = np.full((len(values), 2), NAN)
    for size in np.unique(clusters).tolist():
        of = clusters == size
        errors = bootstrap_errors(replicates[of], size)
        ends[of] = intervals_of(values[of], errors, size, bounds, proportion=proportion)
    return ends


def intervals_of(
    values: Floats,
    errors: Floats,
    clusters: int,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> Floats:
    """Low and high bounds (number, 2) for ``values`` with standard ``errors``.

    ``logit_intervals``. Where nothing varies there is no interval (NaN), with one exception: a
    ``proportion`` that is 0 or 1 has the exact binomial interval (Clopper-Pearson) of 0 or n of n
    clusters. NaN too with fewer than two clusters, and where half of the replicates have no value.
    """
    there, varies = ~np.isnan(values) & ~np.isnan(errors), errors > 0
    ends = np.full((len(values), 2), NAN)
    moving = there & varies
    ends[moving] = logit_intervals(values[moving], errors[moving], clusters, bounds)
    if proportion and clusters > 1:
        unseen = unseen_share(clusters)
        ends[there & ~varies & (values == 0)] = 0.0, unseen
        ends[there & ~varies & (values == 1)] = 1 - unseen, 1.0
    return ends


def within_error(replicates: Floats, groups: int, subjects: int) -> float:
    """The standard error of a mean over the same groups.

    ``replicates`` (replicate,): its values when the subjects of each group are resampled.
    ``subjects``: how many all groups have together.
    """
    return bootstrap_error(replicates, max(2, round(subjects / max(1, groups))))


def unseen_share(clusters: float, level: float = LEVEL) -> float:
    """The greatest share that 0 of n clusters are compatible with (Clopper and Pearson 1934).

    ``1 - ((1 - level) / 2)^(1/n)``; 0 of 10 at 95 %: 0.308.
    """
    return float(1 - ((1 - level) / 2) ** (1 / clusters))


def logit_interval(
    value: float, error: float, clusters: int, bounds: tuple[float, float], level: float = LEVEL
) -> tuple[float, float]:
    """``logit_intervals`` of one number."""
    intervals = logit_intervals(np.array([value]), np.array([error]), clusters, bounds, level)
    return float(intervals[0, 0]), float(intervals[0, 1])


def logit_intervals(
    values: Floats, errors: Floats, clusters: int, bounds: tuple[float, float], level: float = LEVEL
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
    reach = -stdtrit(clusters - 1, (1 - level) / 2) * errors / width / (shares * (1 - shares))
    middle = logit(shares)
    ends[known] = least + width * expit(np.stack([middle - reach, middle + reach], axis=1))
    return ends


def skewness(values: Sequence[float]) -> float:
    """The third central moment over the second to the power 3/2; 0 where nothing varies."""
    off = np.asarray(values, dtype=np.float64)
    off = off - off.mean() if len(off) else off
    square = float((off**2).mean()) if len(off) else 0.0
    return float((off**3).mean()) / square**1.5 if square > TIE**2 else 0.0


def skewed_reach(clusters: int, skewness: float, level: float = LEVEL) -> float:
    """How many standard errors below a mean of skewed values its lower bound is.

    Hall's cubic correction of t (Hall 1992): ``sqrt(n) 3/g ((1 + g (t/sqrt(n) - g/6n))^(1/3) - 1)``
    of ``n`` clusters whose values have the skewness ``g``. With ``-g``: how many above it the upper
    bound is. t itself for ``g`` near 0.
    """
    t = -float(stdtrit(clusters - 1, (1 - level) / 2))
    if abs(skewness) < SYMMETRIC:
        return t
    root = math.sqrt(clusters)
    inner = 1 + skewness * (t / root - skewness / (6 * clusters))
    return root * 3 / skewness * (math.cbrt(inner) - 1)


def wilson_interval(share: float, observations: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of independent observations (Wilson 1927), from 0 to 1.

    ``(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``. One of one: 0.207 to 1. NaN
    without observations.
    """
    if not observations:
        return NAN, NAN
    z = -float(ndtri((1 - LEVEL) / 2))
    extra = z * z / observations
    spread = z * math.sqrt(share * (1 - share) / observations + extra / 4 / observations)
    middle = share + extra / 2
    return max(0.0, (middle - spread) / (1 + extra)), min(1.0, (middle + spread) / (1 + extra))


def difference_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """The bounds of a difference of two values within ``bounds``."""
    width = bounds[1] - bounds[0]
    return -width, width


def detectable_difference(error: float, clusters: int) -> float:
    """The minimum detectable difference: found as significant with the probability ``POWER``.

    ``t[1 - (1-LEVEL)/2] + t[POWER]`` standard errors ``error``, with the t of ``clusters`` - 1
    degrees of freedom (Bloom 1995): 2.80 of many clusters, 3.49 of six. NaN where nothing varies.
    """
    if not error > 0:
        return NAN
    quantiles = stdtrit(clusters - 1, [1 - (1 - LEVEL) / 2, POWER])
    return float(quantiles.sum()) * error


PERMUTATIONS = 9999  # The number of random permutations; all are used if there are fewer

FEW = 6  # With fewer clusters no permutation test can reach p < 0.05


def smallest_p(clusters: int) -> float:
    """The smallest p of a sign or permutation test of ``clusters``."""
    return min(1.0, 2 * 0.5**clusters)


def mcnemar(first_only: int, second_only: int) -> float:
    """``mcnemars`` of one pair of counts."""
    return float(mcnemars(np.array([first_only]), np.array([second_only]))[0])


def mcnemars(first_only: Ints, second_only: Ints) -> Floats:
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
    high: float
    t: float
    freedom: float
    p: float  # Two-sided


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

    with warnings.catch_warnings():  # beside a constant group the other alone says how sure
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_ind(first, second, equal_var=False, nan_policy="omit")
        return _t_test(result, float(np.nanmean(first) - np.nanmean(second)))


def paired_t(first: Sequence[float], second: Sequence[float]) -> TTest:
    """Student's t-test of paired values, such as two models on the same relations or seeds."""
    from scipy import stats

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    result = stats.ttest_rel(first, second, nan_policy="omit")
    return _t_test(result, float(np.nanmean(differences)))


def _t_test(result: Any, difference: float) -> TTest:
    interval = result.confidence_interval(LEVEL)
    numbers = interval.low, interval.high, result.statistic, result.df, result.pvalue
    return TTest(difference, *map(float, numbers))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjust p so that the probability of any false finding stays below the level (Holm 1979).

    NaN stays NaN and does not count as a test.
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


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation coefficient with its interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float
    n: int


def correlation(
    x: Sequence[float], y: Sequence[float], *, method: Literal["pearson", "spearman"]
) -> Correlation:
    """Correlation of pairs, with the interval of Fisher's z.

    The interval is ``arctanh(r) +- z * error``. The error is ``1 / sqrt(n - 3)``, for Spearman's
    coefficient ``sqrt((1 + r**2 / 2) / (n - 3))`` (Bonett and Wright 2000). ``p`` uses all orders
    of one side if there are at most ``PERMUTATIONS`` (up to seven pairs), else the t distribution.
    Pairs with a NaN are left out. The value is NaN if fewer than three pairs are left or one side
    is constant. There is no interval with fewer than ``FEW`` pairs or perfect agreement.
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
        low, high = (math.tanh(math.atanh(value) + step) for step in (-reach, reach))
    if math.factorial(count) <= PERMUTATIONS:
        orders = np.array(list(permutations(ranks[1])))
        extreme = np.abs(_pearson(ranks[0], orders)) >= abs(value) - 1e-12
        p = float(extreme.mean())
    else:
        p = float(stats.pearsonr(ranks[0], ranks[1]).pvalue)
    return Correlation(value, low, high, p, count)


def _pearson(x: Floats, y: Floats) -> Floats:
    """Pearson's r along the last axis; NaN where one side is constant."""
    x, y = (values - values.mean(axis=-1, keepdims=True) for values in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1)))
