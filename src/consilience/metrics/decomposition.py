"""Where the answers to one item vary: an exact decomposition of variance over crossed factors.

The variants of an item are the cells of a full factorial design, such as paraphrase x option order
x option labels. Each answer is a vector with a 1 for the answer that was given. The variation of an
item is the mean squared distance of its cells from their mean. It is the probability that two cells
drawn at random with replacement have different answers, ``1 - sum_a p(a)^2`` (Light and Margolin,
An analysis of variance for categorical data, JASA 1971). The functional analysis of variance
(Hoeffding 1948; Sobol' 1993) splits it without a remainder: one part for each factor alone, and one
for each combination of factors.

The parts that involve a factor sum to its total effect (Homma and Saltelli 1996): the probability
that the answer changes when only the level of this factor is resampled, the others unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Factors = tuple[str, ...]
"""A factor alone, or several in combination."""


@dataclass(frozen=True, slots=True)
class Variation:
    """How the values of each item vary over the cells of a factorial design."""

    total: Floats
    """The variation of each item (item,)."""
    parts: dict[Factors, Floats]
    """What each factor or combination contributes to the variation of each item (item,).

    The parts of an item sum to its total.
    """
    systematic: dict[Factors, float]
    """The part that is the same effect in all items; unbiased for items drawn at random.

    The rest of the mean part differs between items. Estimates may be slightly below 0.
    """
    between: float
    """The variance of the mean over cells between items, unbiased; NaN for one item."""

    def total_effect(self, factor: str) -> Floats:
        """The sum of all parts that involve the factor (item,)."""
        involved = [part for factors, part in self.parts.items() if factor in factors]
        total: Floats = np.sum(involved, axis=0)
        return total


def decompose(values: Floats, factors: Sequence[str]) -> Variation:
    """Decompose values (item, level, ..., level, component), an axis of levels for each factor.

    The variation of an item is the mean squared distance of its cells from their mean.
    """
    axes = {name: axis for axis, name in enumerate(factors, start=1)}
    items = len(values)
    grand = values.mean(axis=tuple(axes.values()), keepdims=True)
    effects: dict[Factors, Floats] = {(): grand}
    parts: dict[Factors, Floats] = {}
    systematic: dict[Factors, float] = {}
    for size in range(1, len(factors) + 1):
        for subset in combinations(factors, size):
            others = tuple(axis for name, axis in axes.items() if name not in subset)
            effect = values.mean(axis=others, keepdims=True) if others else values.copy()
            for lower in range(size):
                for contained in combinations(subset, lower):
                    effect = effect - effects[contained]
            effects[subset] = effect
            parts[subset] = _mean_square(effect)
            systematic[subset] = _systematic(effect)
    within = _mean_square(values - grand)
    between = float(grand.var(axis=0, ddof=1).sum()) if items > 1 else float("nan")
    return Variation(within, parts, systematic, between)


def one_hot(answers: npt.NDArray[np.int64]) -> Floats:
    """Answers (item, level, ...) as values for ``decompose``, with one more axis: the answer.

    An answer is numbered within its item, because only answers to one item are compared, so the
    last axis is as long as the greatest number of different answers to an item. The variation of
    an item is then the probability that two of its cells, drawn with replacement, differ.
    """
    flat = answers.reshape(len(answers), -1)
    codes = np.stack([np.unique(row, return_inverse=True)[1] for row in flat])
    values = (codes[..., None] == np.arange(codes.max(initial=-1) + 1)).astype(np.float64)
    shaped: Floats = values.reshape(*answers.shape, -1)
    return shaped


def _mean_square(effect: Floats) -> Floats:
    """The mean over cells of the squared length of an effect (item,)."""
    squares = (effect**2).sum(axis=-1)
    means: Floats = squares.reshape(len(squares), -1).mean(axis=1)
    return means


def _systematic(effect: Floats) -> float:
    """The squared length of the mean effect over items, without what sampling the items adds."""
    items = len(effect)
    mean = effect.mean(axis=0)
    length = float((mean**2).sum(axis=-1).mean())
    if items < 2:
        return float("nan")
    return length - float(effect.var(axis=0, ddof=1).sum(axis=-1).mean()) / items
