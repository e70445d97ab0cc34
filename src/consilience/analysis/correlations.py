"""Tests of tasks and runs against each other, and correlations over relations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from consilience.core.items import Floats
from consilience.metrics.statistics import FEW, LEVEL, NAN, PERMUTATIONS, TIE


@dataclass(frozen=True, slots=True)
class TTest:
    """The difference of two means, first minus second."""

    difference: float
    low: float
    high: float
    t: float
    freedom: float
    p: float  # Two-sided


Test = Literal["Student", "Welch", "paired"]


def t_test(first: Sequence[float], second: Sequence[float], test: Test) -> TTest:
    """The t-test of two groups of values, without NaN.

    Student: of the same variance, which is pooled. Welch: variances may differ, as of groups of
    tasks (CALUM, Section 5.1.1, which does not say which t-test it uses). paired: of paired values,
    such as two models on the same tasks. NaN but for the difference, with fewer than two values on
    a side or without variation.
    """
    from scipy import stats

    if not first or not second:
        return TTest(*[NAN] * 6)
    differences = np.subtract(first, second) if test == "paired" else np.array([])
    groups = [differences] if test == "paired" else [first, second]
    difference = float(np.mean(first) - np.mean(second))
    if min(len(first), len(second)) < 2 or max(np.ptp(group) for group in groups) < 1e-12:
        return TTest(difference, *[NAN] * 5)
    with warnings.catch_warnings():  # beside a constant group the other alone says how sure
        warnings.simplefilter("ignore", RuntimeWarning)
        result: Any
        if test == "paired":
            difference, result = float(np.mean(differences)), stats.ttest_rel(first, second)
        else:
            result = stats.ttest_ind(first, second, equal_var=test == "Student")
        interval = result.confidence_interval(LEVEL)
    numbers = interval.low, interval.high, result.statistic, result.df, result.pvalue
    return TTest(difference, *map(float, numbers))


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
