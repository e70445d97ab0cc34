"""Where inconsistency comes from: consistency, variance components, accuracy by factor.

The tables have a row a factor of the design, over the items of all groups together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics import uncertainty
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Clusters, Grid, Tally
from consilience.metrics.uncertainty import Index, Interval, intervals
from consilience.types import Suite

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
        finish = partial(share, has_items=outcome == "correctness")
        for effect, factors, part in _effects(variation, of_factors, names):
            columns = np.stack([part, variation, *means.T, squares, ones], axis=1)
            parts[(outcome, effect, factors), False] = Tally.of_values(clusters, part)
            parts[(outcome, effect, factors), True] = Tally.of_sums(
                columns, finish, clusters, len(right)
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


def share(sums: Any, *, has_items: bool) -> tuple[Any, Any]:
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


OF_PAIRS = ("consistency", "chance_consistency", "corrected_consistency")
"""The metrics that are counted of the pairs of each factor."""


@dataclass(frozen=True, slots=True)
class FactorTables:
    """What an analysis of factors has of one run."""

    consistency: pl.DataFrame
    """A row a factor: agreement of the pairs that differ in it alone, with its level of chance."""
    components: pl.DataFrame
    """A row a part of the variation of the answer and of correctness, of a full design."""
    levels: pl.DataFrame  # A row a level of each factor: the accuracy of the variants that have it
    notes: Sequence[str]
    name: str = ""  # Of the run
    noise: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=METRICS_SCHEMA))
    """The noise floor that the run measured; empty for none."""

    @property
    def is_exact(self) -> bool:
        """Whether main effects and interactions are known."""
        return "main" in self.components["effect"]


def factors_of(
    name: str, suite: Suite, answers: CheckedAnswers, noise: pl.DataFrame | None
) -> list[FactorTables]:
    """The factors of a run; groups with the same factors are counted together, others not."""
    designs: dict[FactorialDesign, list[str]] = {}
    for relation in answers.relations:
        if any(kind == "factor" for kind, _ in relation.design.parts):
            designs.setdefault(relation.design.factorial, []).append(relation.id)
    found = []
    for design, groups in designs.items():
        grids = {group: answers.views(suite[group], "strict")["pairs"] for group in groups}
        label = name if len(designs) == 1 else f"{name}, {', '.join(groups)}"
        tables = replace(factor_tables(grids, design), name=label)
        found.append(tables if noise is None else replace(tables, noise=noise))
    return found


def factor_tables(grids: Mapping[str, Grid], design: FactorialDesign) -> FactorTables:
    """The tables of a run; ``grids``: its answers (item, cell) by group."""
    asked, right, answers = (
        np.concatenate([getattr(grid, name) for grid in grids.values()])
        for name in ("asked", "right", "answers")
    )
    subjects = np.concatenate([of.subjects.names[of.subjects.places] for of in grids.values()])
    is_whole = asked.all(axis=1)
    clusters, left_out = Clusters.of(subjects[is_whole]), int((~is_whole).sum())
    components, notes = variance_components(
        answers[is_whole], right[is_whole], clusters, left_out, design
    )
    return FactorTables(
        consistency_by_factor(grids, design),
        components,
        accuracy_by_level(right, asked, Clusters.of(subjects), design),
        notes,
    )


def consistency_by_factor(grids: Mapping[str, Grid], design: FactorialDesign) -> pl.DataFrame:
    """Consistency of the pairs of each factor, over the items of all groups together."""
    levels = {factor.name: len(factor.levels) for factor in design.factors}
    rows = []
    for factor, pairs in design.pairs_by_factor().items():
        if not pairs:
            continue
        of_pairs = {group: grid.only_pairs(pairs) for group, grid in grids.items()}
        same, chance, corrected = (pooled(of_pairs, name) for name in OF_PAIRS)
        row = {"factor": factor, "levels": levels[factor], **asdict(same), "chance": chance.value}
        ends = {f"corrected_{end}": getattr(corrected, end) for end in ("low", "high")}
        rows.append({**row, "corrected": corrected.value, **ends})
    return pl.DataFrame(rows)


def pooled(grids: Mapping[str, Grid], metric: str) -> Interval:
    """A metric of all groups together."""
    counts = {group: METRICS[metric].count(grid) for group, grid in grids.items()}
    number = uncertainty.pooled([(1, {of: one for of, one in counts.items() if one})], Index())
    ends = number.interval(DESCRIPTIONS[metric].bounds)
    return Interval(number.value, *ends, number.n, number.left_out)


def accuracy_by_level(
    right: Bools, asked: Bools, clusters: Clusters, design: FactorialDesign
) -> pl.DataFrame:
    """Right answers over those asked in the variants of a level, a row a level of each factor.

    ``factor, level, value, low, high, n, n_excluded``; ``n``: items.
    """
    tallies: dict[tuple[str, str], Tally] = {}
    for factor in design.factors:
        for level in factor.levels if len(factor.levels) > 1 else ():
            has_level = np.array([name == level for name in design.levels[factor.name]])
            scores = np.stack([of[:, has_level].sum(axis=1) for of in (right, asked)], axis=1)
            n = int((scores[:, 1] > 0).sum())
            tallies[factor.name, level] = Tally(scores * 1.0, clusters, n, len(asked) - n)
    return pl.DataFrame(
        [
            {"factor": factor, "level": level, **asdict(estimate)}
            for (factor, level), estimate in intervals(tallies).items()
        ]
    )


COMPONENTS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("outcome", "effect", "factors"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "n_excluded"), pl.Int64),
    **dict.fromkeys(("share", "share_low", "share_high"), pl.Float64),
}


def variance_components(
    answers: Ints, right: Bools, clusters: Clusters, left_out: int, design: FactorialDesign
) -> tuple[pl.DataFrame, list[str]]:
    """The parts of the variation, of items that have a full design (``COMPONENTS``).

    ``answers``, ``right`` (item, cell): of items asked in every cell; ``left_out``: how many others
    there are.
    """
    if not (design.is_full and len(answers)):
        of_design = "no question was asked in all variants"
        reason = of_design if design.is_full else "the design is not a full one"
        return pl.DataFrame(schema=COMPONENTS), [f"{reason}, so there are no shares of variance"]
    notes = []
    if left_out:
        every = len(answers) + left_out
        notes.append(
            f"main and total effects are over the {len(answers)} of {every} questions that were "
            f"asked in all variants, consistency is over all {every}: neither follows from the "
            "other"
        )
    alone = -1 - np.arange(answers.shape[1])  # what has no answer agrees with nothing
    codes = np.where(answers < 0, alone, answers)
    numbers = intervals(exact_parts(codes, right, design, clusters))
    rows = []
    for part in dict.fromkeys(part for part, _ in numbers):
        share = numbers[part, True]
        shares = {"share": share.value, "share_low": share.low, "share_high": share.high}
        outcome, effect, factors = part
        row = {"outcome": outcome, "effect": effect, "factors": " x ".join(factors)}
        rows.append({**row, **asdict(numbers[part, False]), "n_excluded": left_out, **shares})
    return pl.DataFrame(rows, COMPONENTS), notes
