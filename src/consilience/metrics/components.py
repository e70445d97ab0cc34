"""Which factor changes answers: parts of the variation of answers, as numbers of each item.

Two outcomes are decomposed. *Answer*: which answer was given. *Correctness*: whether it is the
gold. The variation of either is the probability that two variants of an item, drawn with
replacement, differ in it; of correctness this is twice the variance of the values 0 and 1.
``decomposition`` has the method and its sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from consilience.factors import FactorialDesign
from consilience.metrics.decomposition import Factors, decompose, one_hot
from consilience.metrics.grid import Bools, Floats
from consilience.metrics.item_means import ItemNumbers, mean_of
from consilience.metrics.tally import quotient

Outcome = Literal["answer", "correctness"]

Effect = Literal[
    "main", "total", "interaction", "interactions", "between questions", "within questions"
]
"""A part of the variation.

- main: one factor alone, averaged over the levels of the others.
- total: every part that involves the factor. The probability that the outcome changes when only
  the level of this factor is resampled.
- interaction: what two or more factors contribute beyond their main effects.
- interactions: all interactions together.
- between questions: how much the items differ in their mean over variants (correctness only).
- within questions: all parts but that between questions: the variation over variants.
"""

Part = tuple[Outcome, Effect, Factors]
"""The outcome, the kind of part, and the factors."""

Ints = npt.NDArray[np.int64]

Cell = TypeVar("Cell", np.int64, np.bool_)


def exact_parts(
    answers: Ints, right: Bools, design: FactorialDesign
) -> dict[tuple[Part, bool], ItemNumbers]:
    """Every part of the variation of items that were answered in every cell of a full design.

    ``answers`` (item, cell), compared within an item only; ``right`` (item, cell). An item without
    an answer (-1) in some cell has no numbers. The key says which part it is, and whether the
    number is a share of the whole variation instead of a probability.
    """
    names = tuple(factor.name for factor in design.factors if len(factor.levels) > 1)
    complete = (answers >= 0).all(axis=1)
    is_right = _crossed(right[complete], design)
    correctness = np.stack([is_right, ~is_right], axis=-1).astype(np.float64)
    parts: dict[tuple[Part, bool], ItemNumbers] = {}
    outcomes: tuple[tuple[Outcome, Floats], ...] = (
        ("answer", one_hot(_crossed(answers[complete], design))),
        ("correctness", correctness),
    )
    for outcome, values in outcomes:
        mean = right[complete].mean(axis=1) if outcome == "correctness" else None
        for part, columns in _parts(outcome, values, names, mean):
            spread = np.full((len(answers), columns.shape[1]), np.nan)
            spread[complete] = columns
            parts[part, False] = _probability(part, spread)
            parts[part, True] = _share(part, spread, has_items=mean is not None)
    return parts


def _crossed(values: npt.NDArray[Cell], design: FactorialDesign) -> npt.NDArray[Cell]:
    """``values`` (item, cell) with an axis of levels for each factor that varies."""
    varied = [at for at, factor in enumerate(design.factors) if len(factor.levels) > 1]
    shape = [len(design.factors[at].levels) for at in varied]
    cells = np.array(design.cells, dtype=np.int64)[:, varied]
    order = np.argsort(np.ravel_multi_index(tuple(cells.T), shape))
    return values[:, order].reshape(len(values), *shape)


def _parts(
    outcome: Outcome, values: Floats, names: Sequence[str], mean: Floats | None
) -> Iterator[tuple[Part, Floats]]:
    """Each part with its columns (item, 5): the part, the variation, mean, mean squared, 1."""
    variation = decompose(values, names)
    items = len(values)
    mean = np.zeros(items) if mean is None else mean

    def columns(part: Floats) -> Floats:
        return np.stack([part, variation.total, mean, mean**2, np.ones(items)], axis=1)

    for name in names:
        yield (outcome, "main", (name,)), columns(variation.parts[name,])
        yield (outcome, "total", (name,)), columns(variation.total_effect(name))
    combined = {factors: part for factors, part in variation.parts.items() if len(factors) > 1}
    for factors, part in combined.items():
        yield (outcome, "interaction", factors), columns(part)
    if combined:
        together: Floats = np.sum(list(combined.values()), axis=0)
        yield (outcome, "interactions", ()), columns(together)
    if outcome == "correctness":
        yield (outcome, "between questions", ()), columns(np.zeros(items))
    yield (outcome, "within questions", ()), columns(variation.total)


def _probability(part: Part, columns: Floats) -> ItemNumbers:
    if part[1] == "between questions":
        return ItemNumbers(columns, _between)
    return ItemNumbers(columns, mean_of, is_mean=True)


def _share(part: Part, columns: Floats, *, has_items: bool) -> ItemNumbers:
    """A part divided by the variation, with ``has_items`` by that between and within questions."""

    def value(sums: Floats) -> Floats:
        between = _between(sums) * sums[..., -1] if has_items else np.zeros(sums.shape[:-1])
        hits = between if part[1] == "between questions" else sums[..., 0]
        whole = np.maximum(between, 0) + sums[..., 1]
        return quotient(hits, whole)

    return ItemNumbers(columns, value)


def _between(sums: Floats) -> Floats:
    """Twice the unbiased variance of the items' means, from sums (..., column) of ``_parts``."""
    size = sums[..., -1]
    squares = sums[..., 3] - quotient(sums[..., 2] ** 2, size)
    return 2 * quotient(squares, size - 1)


def pair_parts(
    answers: Ints, right: Bools, design: FactorialDesign
) -> dict[tuple[Part, bool], ItemNumbers]:
    """The total effect of each factor from pairs of cells that differ in it alone.

    The pairwise estimator of Jansen (Analysis of variance designs for model output, Computer
    Physics Communications 117, 1999): half the mean squared difference of two answers of which only
    this factor was resampled, which for answers is the share of pairs that differ. A pair has
    different levels, and of L levels a redrawn one is the same with probability 1 / L, so the share
    is multiplied by ``1 - 1 / L``. Of a full design this is the exact total effect. Of a radial
    design it is unbiased for the whole design, but for its first point, which is not drawn. Of a
    one-factor design it holds at the base levels of the other factors only.

    Items without a pair of answers are left out. Every pair has the same weight.
    """
    parts: dict[tuple[Part, bool], ItemNumbers] = {}
    levels = {factor.name: len(factor.levels) for factor in design.factors}
    taken = answers >= 0
    outcomes: tuple[tuple[Outcome, npt.NDArray[np.generic]], ...] = (
        ("answer", answers),
        ("correctness", right),
    )
    for name, pairs in design.pairs_by_factor().items():
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        both = taken[:, first] & taken[:, second]
        count = both.sum(axis=1).astype(np.float64)
        for outcome, values in outcomes:
            differ = ((values[:, first] != values[:, second]) & both).sum(axis=1)
            columns = np.stack([(1 - 1 / levels[name]) * differ, count], axis=1)
            columns[count == 0] = np.nan
            parts[(outcome, "total", (name,)), False] = ItemNumbers(columns, is_mean=True)
    return parts
