"""Confidence intervals, the same for every number (``docs/statistics.md`` has the formulas)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri, stdtrit

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
"""The share of intervals that contain the true value."""

TIE = 1e-12
"""Values that differ by less are the same."""

POWER = 0.8
"""The probability with which the minimum detectable difference is detected."""

SYMMETRIC = 1e-6
"""Values with a skewness nearer to 0 than this have none."""

NAN = float("nan")


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
        np.array([value]), replicates[None], clusters, bounds, proportion=proportion
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
    clusters: int,
    bounds: tuple[float, float],
    *,
    proportion: bool = False,
) -> Floats:
    """Low and high bounds (number, 2) for ``values``, of ``replicates`` (number, replicate).

    ``logit_intervals`` with ``bootstrap_errors`` as the standard errors. Where nothing varies there
    is no interval (NaN), with one exception: a ``proportion`` that is 0 or 1 has the exact binomial
    interval (Clopper-Pearson) of 0 or n of n clusters. NaN too with fewer than two clusters, and
    where half of the replicates have no value.
    """
    ends = np.full((len(values), 2), NAN)
    if clusters < 2:
        return ends
    errors = bootstrap_errors(replicates, clusters)
    there, varies = ~np.isnan(values) & ~np.isnan(errors), errors > 0
    moving = there & varies
    ends[moving] = logit_intervals(values[moving], errors[moving], clusters, bounds)
    if proportion:
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


def unseen_share(clusters: int, level: float = LEVEL) -> float:
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
    values: Floats,
    errors: Floats,
    clusters: int,
    bounds: tuple[float, float],
    level: float = LEVEL,
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
