"""Correlation coefficients with intervals and p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import numpy as np
from scipy.special import ndtri

from consilience.metrics.intervals import LEVEL, NAN, TIE, Floats
from consilience.metrics.significance import FEW, PERMUTATIONS


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation coefficient."""

    value: float
    """The coefficient."""
    low: float
    """Lower bound of its interval."""
    high: float
    """Upper bound of its interval."""
    p: float
    """Two-sided p."""
    n: int


def correlation(
    x: Sequence[float],
    y: Sequence[float],
    *,
    method: Literal["pearson", "spearman"],
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
        r: Floats = (x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return r
