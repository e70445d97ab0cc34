"""Components of variance by factor, sensitivity to a factor, and the positions of answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.registry import Tally, hits_of_total, quotient, ratio
from consilience.metrics.resampling import ClusterCounts, cluster_matrix
from consilience.metrics.statistics import NAN, Draws, bootstrap_interval

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
    n_excluded: int  # How many were left out, because an answer is missing


@dataclass(frozen=True, slots=True)
class ItemNumbers:
    """Numbers of each item, whose sums give a value as those of a ``Tally`` do."""

    columns: Floats  # The numbers (item, column); an item with NaN is left out
    finish: Callable[[Floats], tuple[Floats, Floats]] = hits_of_total
    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest possible value; intervals stay between them."""

    @classmethod
    def mean(cls, values: Floats, least: float = 0.0) -> ItemNumbers:
        """The mean of ``values`` (item,), from ``least`` to 1."""
        columns = np.stack([values, np.where(np.isnan(values), np.nan, 1.0)], axis=1)
        return cls(columns, ratio if least else hits_of_total, (least, 1.0))


Name = TypeVar("Name", bound=Hashable)


def item_estimates(
    runs: Sequence[Mapping[Name, ItemNumbers]],
    subjects: npt.NDArray[np.object_],
    seed: int,
    *,
    are_means: bool = False,
) -> dict[Name, Estimate]:
    """Each number with its interval; of several seeds the means.

    ``runs``: the numbers of each seed by name, of the same items. ``subjects`` (item,): the items
    of one subject are resampled together. Numbers of the same items share their resamples. The
    interval is that of ``bootstrap_interval``; ``are_means``: numbers of groups are no proportions.
    """
    known = {
        name: np.all(np.stack([~np.isnan(run[name].columns).any(axis=1) for run in runs]), axis=0)
        for name in (runs[0] if runs else ())
    }
    by_items: dict[bytes, list[Name]] = {}
    for name, items in known.items():
        by_items.setdefault(items.tobytes(), []).append(name)
    estimates: dict[Name, Estimate] = {}
    for names in by_items.values():
        items = known[names[0]]
        clusters, places = np.unique(subjects[items].astype(str), return_inverse=True)
        matrix, n = cluster_matrix(places, len(clusters)), int(items.sum())
        tallies = {
            (str(of_seed), str(at)): Tally(
                matrix @ run[name].columns[items], clusters, n, finish=run[name].finish
            )
            for of_seed, run in enumerate(runs)
            for at, name in enumerate(names)
        }
        counts = ClusterCounts(tallies, clusters.tolist())
        drawn = counts.weigh(Draws(len(clusters), seed).parts(counts.width)) if n else {}
        for at, name in enumerate(names):
            keys = [(str(of_seed), str(at)) for of_seed in range(len(runs))]
            value, low, high = (NAN,) * 3
            if n:
                value = float(np.mean([tallies[key].share().value for key in keys]))
                low, high = bootstrap_interval(
                    value,
                    np.mean([drawn[key].values for key in keys], axis=0),
                    len(clusters),
                    runs[0][name].bounds,
                    proportion=tallies[keys[0]].is_proportion and not are_means,
                )
            estimates[name] = Estimate(value, low, high, n, len(items) - n)
    return {name: estimates[name] for name in known}


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
    mean, ones = right[complete].mean(axis=1), np.ones(complete.sum())
    outcomes: tuple[tuple[Outcome, Floats, Floats], ...] = (
        ("answer", one_hot(_crossed(answers[complete], design)), np.zeros((len(ones), 1))),
        ("correctness", correctness, np.stack([mean, 1 - mean], axis=1)),
    )
    parts: dict[tuple[Part, bool], ItemNumbers] = {}
    for outcome, values, means in outcomes:
        variation, of_factors = decompose(values, names)
        has_items, squares = outcome == "correctness", (means**2).sum(axis=1)
        for effect, factors, part in _effects(variation, of_factors, names):
            columns = np.full((len(answers), means.shape[1] + 4), np.nan)
            columns[complete] = np.stack([part, variation, *means.T, squares, ones], axis=1)
            parts[(outcome, effect, factors), False] = ItemNumbers(columns[:, [0, -1]])
            share = partial(_share, has_items=has_items)
            parts[(outcome, effect, factors), True] = ItemNumbers(columns, share)
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


def _between(sums: Floats) -> tuple[Floats, Floats]:
    """The unbiased variance of the items' means, summed over outcomes, as hits and total.

    ``sums`` (..., column): of a part, the variation, the means, the sum of their squares, 1.
    """
    size = sums[..., -1]
    return sums[..., -2] - quotient((sums[..., 2:-2] ** 2).sum(axis=-1), size), size - 1


def _share(sums: Floats, *, has_items: bool) -> tuple[Floats, Floats]:
    """A part and the variation; ``has_items``: with that between items."""
    between = np.zeros(sums.shape[:-1])
    if has_items:
        between = quotient(*_between(sums)) * sums[..., -1]
    return sums[..., 0], np.maximum(between, 0) + sums[..., 1]


def accuracy_range(right: Bools) -> tuple[float, float]:
    """The lowest and the highest accuracy of a variant, of ``right`` (item, variant).

    Sclar et al. call it the performance interval, and its width the spread (Quantifying Language
    Models' Sensitivity to Spurious Features in Prompt Design, ICLR 2024). This one is over all
    variants that were asked, of the items that were answered in all of them; NaN without such
    items. It grows with the number of variants and with the noise of few items, and the bootstrap
    is not valid for a maximum.
    """
    if not right.size:
        return NAN, NAN
    accuracy = right.mean(axis=0)
    return float(accuracy.min()), float(accuracy.max())
