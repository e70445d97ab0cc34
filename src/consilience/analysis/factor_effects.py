"""Where inconsistency comes from: consistency, variance components, accuracy by factor.

The tables have a row a factor of the design, over the items of all groups together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics import errors
from consilience.metrics.errors import Estimate, Index, estimates, mean_of
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Clusters, Grid, Tally
from consilience.metrics.statistics import NAN, TIE

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


OF_PAIRS = ("consistency", "chance_consistency", "corrected_consistency")
"""The metrics that are counted of the pairs of each factor."""


@dataclass(frozen=True, slots=True)
class CellAnswers:
    """The answers of one seed of a run in the cells of a design."""

    grids: Mapping[str, Grid]  # The answers of each group (item, cell)

    @property
    def answers(self) -> Ints:
        """The answers of all groups (item, cell), comparable within an item; -1 for none."""
        return np.concatenate([grid.answers for grid in self.grids.values()])

    @property
    def right(self) -> Bools:
        return np.concatenate([grid.right for grid in self.grids.values()])

    @property
    def asked(self) -> Bools:
        """Whether the question was asked (item, cell)."""
        return np.concatenate([grid.asked for grid in self.grids.values()])

    @property
    def subjects(self) -> npt.NDArray[np.object_]:
        """The subject of each item (item,)."""
        subjects = [grid.subjects for grid in self.grids.values()]
        return np.concatenate([of.names[of.places] for of in subjects])


@dataclass(frozen=True, slots=True)
class FactorTables:
    """What an analysis of factors has of one run."""

    consistency: pl.DataFrame
    """A row a factor: agreement of the pairs that differ in it alone, with its level of chance."""
    components: pl.DataFrame
    """A row a part of the variation of the answer and of correctness, of a full design."""
    indices: pl.DataFrame  # One row: the range of accuracy
    levels: pl.DataFrame  # A row a level of each factor: the accuracy of the variants that have it
    notes: Sequence[str]


def factor_tables(seeds: Sequence[CellAnswers], design: FactorialDesign) -> FactorTables:
    """The tables of one run; of several seeds the means."""
    if not any(design.pairs_by_factor().values()):
        expected = "answers to several variants of each question"
        todo = "Vary a factor: consilience probe --vary order."
        raise ConsilienceError("no factor with two levels", expected=expected, todo=todo)
    components, notes = variance_components(seeds, design)
    return FactorTables(
        consistency_by_factor(seeds, design),
        components,
        range_of_accuracy(seeds, design),
        accuracy_by_level(seeds, design),
        notes,
    )


def consistency_by_factor(seeds: Sequence[CellAnswers], design: FactorialDesign) -> pl.DataFrame:
    """Consistency of the pairs of each factor, over the items of all groups together."""
    levels = {factor.name: len(factor.levels) for factor in design.factors}
    rows = []
    for factor, pairs in design.pairs_by_factor().items():
        if not pairs:
            continue
        grids = [{group: of.only_pairs(pairs) for group, of in one.grids.items()} for one in seeds]
        same, chance, corrected = (_pooled(grids, name) for name in OF_PAIRS)
        row = {"factor": factor, "levels": levels[factor], **asdict(same), "chance": chance.value}
        ends = {f"corrected_{end}": getattr(corrected, end) for end in ("low", "high")}
        rows.append({**row, "corrected": corrected.value, **ends})
    return pl.DataFrame(rows)


def _pooled(seeds: Sequence[Mapping[str, Grid]], metric: str) -> Estimate:
    """A metric of all groups together, of several seeds the mean."""
    runs = [
        {group: tally for group, grid in one.items() if (tally := METRICS[metric].count(grid))}
        for one in seeds
    ]
    number = errors.pooled(errors.seeds_of(runs), Index())
    ends = number.interval(DESCRIPTIONS[metric].bounds)
    return Estimate(number.value, *ends, number.n, number.left_out)


def accuracy_by_level(seeds: Sequence[CellAnswers], design: FactorialDesign) -> pl.DataFrame:
    """Right answers over those asked in the variants of a level, a row a level of each factor.

    ``factor, level, value, low, high, n, n_excluded``; ``n``: items.
    """
    numbers: list[dict[tuple[str, str], Tally]] = [{} for _ in seeds]
    for one, of_seed in zip(seeds, numbers, strict=True):
        asked, right, clusters = one.asked, one.right, Clusters.of(one.subjects)
        for factor in design.factors:
            for level in factor.levels if len(factor.levels) > 1 else ():
                has_level = np.array([name == level for name in design.levels(factor.name)])
                scores = [of[:, has_level].sum(axis=1) for of in (right, asked)]
                n = int((scores[1] > 0).sum())
                of_seed[factor.name, level] = Tally(
                    np.stack(scores, axis=1, dtype=np.float64), clusters, n, len(asked) - n
                )
    return pl.DataFrame(
        [
            {"factor": factor, "level": level, **asdict(estimate)}
            for (factor, level), estimate in estimates(numbers).items()
        ]
    )


COMPONENTS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("outcome", "effect", "factors"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "n_excluded"), pl.Int64),
    **dict.fromkeys(("share", "share_low", "share_high"), pl.Float64),
}


def variance_components(
    seeds: Sequence[CellAnswers], design: FactorialDesign
) -> tuple[pl.DataFrame, list[str]]:
    """The parts of the variation, of items that have a full design (``COMPONENTS``)."""
    complete = _complete(seeds)
    items, every = int(complete.sum()), len(complete)
    if not (design.is_full and items):
        of_design = "no question was asked in all variants"
        reason = of_design if design.is_full else "the design is not a full one"
        return pl.DataFrame(schema=COMPONENTS), [f"{reason}, so there are no shares of variance"]
    notes = []
    if items < every:
        notes.append(
            f"main and total effects are over the {items} of {every} questions that were asked in "
            f"all variants, consistency is over all {every}: neither follows from the other"
        )
    runs, clusters = [], Clusters.of(seeds[0].subjects[complete])
    for one in seeds:
        answers = one.answers[complete]
        alone = -1 - np.arange(answers.shape[1])  # what has no answer agrees with nothing
        answers = np.where(answers < 0, alone, answers)
        runs.append(exact_parts(answers, one.right[complete], design, clusters))
    numbers = estimates(runs)
    rows = []
    for part in dict.fromkeys(part for part, _ in numbers):
        share = numbers[part, True]
        shares = {"share": share.value, "share_low": share.low, "share_high": share.high}
        outcome, effect, factors = part
        row = {"outcome": outcome, "effect": effect, "factors": " x ".join(factors)}
        rows.append({**row, **asdict(numbers[part, False]), "n_excluded": every - items, **shares})
    return pl.DataFrame(rows, COMPONENTS), notes


def _complete(seeds: Sequence[CellAnswers]) -> Bools:
    """Whether an item was asked in every cell in all seeds (item,)."""
    return np.asarray(np.all([one.asked.all(axis=1) for one in seeds], axis=0))


def range_of_accuracy(seeds: Sequence[CellAnswers], design: FactorialDesign) -> pl.DataFrame:
    """The range of accuracy over the variants, of the items that were asked in all of them."""
    complete = _complete(seeds)
    right = [one.right[complete] for one in seeds]
    lowest, highest = np.array([accuracy_range(of) for of in right]).mean(axis=0)
    row = {"index": "accuracy_range", "value": highest - lowest, "lowest": lowest}
    row |= {"highest": highest, "n": int(complete.sum()), "n_excluded": int((~complete).sum())}
    ends: dict[str, Any] = {"lowest_variant": "", "highest_variant": ""}
    ends |= {"n_lowest": 0, "n_highest": 0}
    if complete.any():
        accuracy = np.mean([of.mean(axis=0) for of in right], axis=0)
        ends = {
            "lowest_variant": design.names[int(accuracy.argmin())],
            "highest_variant": design.names[int(accuracy.argmax())],
            "n_lowest": int((accuracy < accuracy.min() + TIE).sum()),
            "n_highest": int((accuracy > accuracy.max() - TIE).sum()),
        }
    return pl.DataFrame([row | ends])
