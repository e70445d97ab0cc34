"""Components of variance by factor, sensitivity to a factor, and the positions of answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics import errors
from consilience.metrics.errors import Index
from consilience.metrics.registry import Clusters, Tally
from consilience.metrics.statistics import NAN

Factors = tuple[str, ...]  # A factor alone, or several in combination


def decompose(values: Floats, factors: Sequence[str]) -> tuple[Floats, dict[Factors, Floats]]:
    """The variation of each item (item,), and what each factor or combination contributes to it.

    ``values`` (item, level, ..., level, component), an axis of levels for each factor. The
    variation of an item is the mean squared distance of its cells from their mean; its parts sum
    to it.
    """
    axes = {name: axis for axis, name in enumerate(factors, start=1)}
    grand = values.mean(axis=tuple(axes.values()), keepdims=True)
    effects: dict[Factors, Floats] = {(): grand}
    for size in range(1, len(factors) + 1):
        for subset in combinations(factors, size):
            others = tuple(axis for name, axis in axes.items() if name not in subset)
            effect = values.mean(axis=others, keepdims=True) if others else values.copy()
            for lower in range(size):
                for contained in combinations(subset, lower):
                    effect = effect - effects[contained]
            effects[subset] = effect
    effects.pop(())
    return _mean_square(values - grand), {of: _mean_square(part) for of, part in effects.items()}


def one_hot(answers: Ints) -> Floats:
    """Answers (item, level, ...) as values for ``decompose``, with one more axis: the answer.

    An answer is numbered within its item, because only answers to one item are compared, so the
    last axis is as long as the greatest number of different answers to an item. The variation of
    an item is then the probability that two of its cells, drawn with replacement, differ.
    """
    flat = answers.reshape(len(answers), -1)
    codes = np.stack([np.unique(row, return_inverse=True)[1] for row in flat])
    values = (codes[..., None] == np.arange(codes.max(initial=-1) + 1)).astype(np.float64)
    return np.asarray(values.reshape(*answers.shape, -1))


def _mean_square(effect: Floats) -> Floats:
    """The mean over cells of the squared length of an effect (item,)."""
    squares = (effect**2).sum(axis=-1)
    return np.asarray(squares.reshape(len(squares), -1).mean(axis=1))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; NaN for no data or without an interval."""

    value: float
    low: float
    high: float
    n: int  # How many things were counted
    n_excluded: int  # How many were left out, because they were not asked


Name = TypeVar("Name", bound=Hashable)

RANGE = (0.0, 1.0)


def mean_of(values: Floats, clusters: Clusters, *, proportion: bool = True) -> Tally:
    """The mean of ``values`` (item,), without those that are NaN."""
    known = ~np.isnan(values)
    scores = np.stack([np.where(known, values, 0), known], axis=1)
    n = int(known.sum())
    return Tally(scores, clusters, n, len(known) - n, is_proportion=proportion)


def estimates(runs: Sequence[Mapping[Name, Tally]]) -> dict[Name, Estimate]:
    """Each number, of several seeds the means, with its interval between 0 and 1."""
    found: dict[Name, Estimate] = {}
    for name in runs[0] if runs else ():
        terms = [(1 / len(runs), run[name]) for run in runs]
        number = errors.of_group(terms, Index())
        ends = number.interval(RANGE)
        found[name] = Estimate(number.value, *ends, number.n, number.left_out)
    return found


Outcome = Literal["answer", "correctness"]

Effect = Literal["main", "total", "interaction", "interactions", "within questions"]
"""A part of the variation.

- main: one factor alone, averaged over the levels of the others.
- total: every part that involves the factor. The probability that the outcome changes when only
  the level of this factor is resampled.
- interaction: what two or more factors contribute beyond their main effects.
- interactions: all interactions together.
- within questions: all parts together, the variation over variants.
"""

Part = tuple[Outcome, Effect, Factors]  # The outcome, the kind of part, and the factors

Cell = TypeVar("Cell", np.int64, np.bool_)


def exact_parts(
    answers: Ints, right: Bools, design: FactorialDesign, clusters: Clusters
) -> dict[tuple[Part, bool], Tally]:
    """Every part of the variation of items that were asked in every cell of a full design.

    ``answers`` (item, cell), compared within an item only; ``right`` (item, cell). The key says
    which part it is, and whether the number is a share of the whole variation instead of a
    probability. The variation of an item is the probability that the answers in two of its cells,
    drawn with replacement, differ; that of correctness likewise. A share is the part over the
    variation within items, of correctness and between them.
    """
    names = tuple(factor.name for factor in design.factors if len(factor.levels) > 1)
    is_right = _crossed(right, design)
    correctness = np.stack([is_right, ~is_right], axis=-1).astype(np.float64)
    mean = right.mean(axis=1)
    outcomes: tuple[tuple[Outcome, Floats, Floats], ...] = (
        ("answer", one_hot(_crossed(answers, design)), np.zeros((len(right), 1))),
        ("correctness", correctness, np.stack([mean, 1 - mean], axis=1)),
    )
    parts: dict[tuple[Part, bool], Tally] = {}
    for outcome, values, means in outcomes:
        variation, of_factors = decompose(values, names)
        squares, ones = (means**2).sum(axis=1), np.ones(len(right))
        share = partial(_share, has_items=outcome == "correctness")
        for effect, factors, part in _effects(variation, of_factors, names):
            columns = np.stack([part, variation, *means.T, squares, ones], axis=1)
            parts[(outcome, effect, factors), False] = mean_of(part, clusters)
            parts[(outcome, effect, factors), True] = Tally.of_sums(
                columns, share, clusters, len(right)
            )
    return parts


def _crossed(values: npt.NDArray[Cell], design: FactorialDesign) -> npt.NDArray[Cell]:
    """``values`` (item, cell) with an axis of levels for each factor that varies."""
    varied = [at for at, factor in enumerate(design.factors) if len(factor.levels) > 1]
    shape = [len(design.factors[at].levels) for at in varied]
    cells = np.array(design.cells, dtype=np.int64)[:, varied]
    order = np.argsort(np.ravel_multi_index(tuple(cells.T), shape))
    return values[:, order].reshape(len(values), *shape)


def _effects(
    variation: Floats, parts: Mapping[Factors, Floats], names: Sequence[str]
) -> Iterator[tuple[Effect, Factors, Floats]]:
    """Each part of the variation of each item (item,)."""
    for name in names:
        yield "main", (name,), parts[name,]
        involved = [part for factors, part in parts.items() if name in factors]
        yield "total", (name,), np.sum(involved, axis=0)
    combined = {factors: part for factors, part in parts.items() if len(factors) > 1}
    for factors, part in combined.items():
        yield "interaction", factors, part
    if combined:
        yield "interactions", (), np.sum(list(combined.values()), axis=0)
    yield "within questions", (), variation


def _share(sums: Any, *, has_items: bool) -> tuple[Any, Any]:
    """A part and the variation; ``has_items``: with that between items, as far as it is positive.

    ``sums`` (..., column): of a part, the variation, the means, the sum of their squares, 1. The
    variation between items is the unbiased variance of their means.
    """
    size = sums[..., -1]
    between = np.zeros(sums.shape[:-1])
    if has_items:
        spread = sums[..., -2] - (sums[..., 2:-2] ** 2).sum(axis=-1) / size
        between = np.where(spread.real > 0, spread * size / np.maximum(size.real - 1, 1), 0)
    return sums[..., 0], between + sums[..., 1]


def accuracy_range(right: Bools) -> tuple[float, float]:
    """The lowest and the highest accuracy of a variant, of ``right`` (item, variant).

    Sclar et al. call it the performance interval, and its width the spread (Quantifying Language
    Models' Sensitivity to Spurious Features in Prompt Design, ICLR 2024). This one is over all
    variants that were asked, of the items that were asked in all of them; NaN without such items.
    It grows with the number of variants and with the noise of few items; a maximum has no
    derivative and no interval.
    """
    if not right.size:
        return NAN, NAN
    accuracy = right.mean(axis=0)
    return float(accuracy.min()), float(accuracy.max())
