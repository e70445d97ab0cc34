"""Where inconsistency comes from: consistency, variance components, accuracy by factor.

The tables have a row a factor of the design, over the items of all groups together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Ints
from consilience.metrics.components import (
    ItemNumbers,
    accuracy_range,
    exact_parts,
    item_estimates,
)
from consilience.metrics.counts import resampled
from consilience.metrics.measure import pooled_row
from consilience.metrics.registry import METRICS, Grid, Tally
from consilience.metrics.resampling import Key, Resampling
from consilience.metrics.statistics import TIE

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
    def taken(self) -> Bools:
        """Whether there is an answer (item, cell)."""
        return self.answers >= 0

    @property
    def subjects(self) -> npt.NDArray[np.object_]:
        return np.concatenate([grid.subjects for grid in self.grids.values()])


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


def factor_tables(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int = 0
) -> FactorTables:
    """The tables of one run; of several seeds the means. ``seed``: that of the bootstrap."""
    if not any(design.pairs_by_factor().values()):
        expected = "answers to several variants of each question"
        todo = "Vary a factor: consilience probe --vary order."
        raise ConsilienceError("no factor with two levels", expected=expected, todo=todo)
    components, notes = variance_components(seeds, design, seed)
    return FactorTables(
        consistency_by_factor(seeds, design, seed),
        components,
        range_of_accuracy(seeds, design),
        accuracy_by_level(seeds, design, seed),
        notes,
    )


def consistency_by_factor(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int
) -> pl.DataFrame:
    """Consistency of the pairs of each factor, over the items of all groups (``MICRO``)."""
    pairs = {
        factor: of_factor for factor, of_factor in design.pairs_by_factor().items() if of_factor
    }
    counted: list[dict[str, dict[Key, Tally]]] = []
    for one in seeds:
        counted.append({})
        for group, grid in one.grids.items():
            of_pairs = {factor: grid.only_pairs(of_factor) for factor, of_factor in pairs.items()}
            counted[-1][group] = {
                (metric, factor): tally
                for factor, metric in product(pairs, OF_PAIRS)
                if (tally := METRICS[metric].count(of_pairs[factor])) is not None
            }
    subjects = {group: sorted(set(grid.subjects)) for group, grid in seeds[0].grids.items()}
    resampling = Resampling(subjects, seed, keep=len(counted) > 1)
    runs = [resampled(tallies.__getitem__, resampling) for tallies in counted]
    pooled = {key: pooled_row(runs, list(subjects), key) for key in product(OF_PAIRS, pairs)}
    levels = {factor.name: len(factor.levels) for factor in design.factors}
    rows = []
    for factor in pairs:
        same, chance, corrected = (pooled[name, factor] for name in OF_PAIRS)
        row = {"factor": factor, "levels": levels[factor]}
        row |= {name: same[name] for name in ("value", "low", "high", "n", "n_excluded")}
        row |= {"chance": chance["value"]}
        ends = {f"corrected_{end}": corrected[end] for end in ("low", "high")}
        rows.append({**row, "corrected": corrected["value"], **ends})
    return pl.DataFrame(rows)


def accuracy_by_level(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int
) -> pl.DataFrame:
    """Share of right answers in the variants that have a level, a row a level of each factor.

    ``factor, level, value, low, high, n, n_excluded``; items count once.
    """
    cells = {
        (factor.name, level): np.array([name == level for name in design.levels(factor.name)])
        for factor in design.factors
        if len(factor.levels) > 1
        for level in factor.levels
    }
    numbers: list[dict[tuple[str, str], ItemNumbers]] = [{} for _ in seeds]
    for one, of_seed in zip(seeds, numbers, strict=True):
        for key, of_level in cells.items():
            count = one.taken[:, of_level].sum(axis=1).astype(np.float64)
            columns = np.stack([one.right[:, of_level].sum(axis=1), count], axis=1)
            columns[count == 0] = np.nan
            of_seed[key] = ItemNumbers(columns)
    estimates = item_estimates(numbers, seeds[0].subjects, seed)
    return pl.DataFrame(
        [
            {"factor": factor, "level": level, **asdict(estimate)}
            for (factor, level), estimate in estimates.items()
        ]
    )


COMPONENTS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("outcome", "effect", "factors"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "n_excluded"), pl.Int64),
    **dict.fromkeys(("share", "share_low", "share_high"), pl.Float64),
}


def variance_components(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int
) -> tuple[pl.DataFrame, list[str]]:
    """The parts of the variation, of items that have a full design (``COMPONENTS``)."""
    complete = np.all(np.stack([one.taken.all(axis=1) for one in seeds]), axis=0)
    items, every = int(complete.sum()), len(complete)
    if not (design.is_full and items):
        of_design = "no question was answered in all variants"
        reason = of_design if design.is_full else "the design is not a full one"
        return pl.DataFrame(schema=COMPONENTS), [f"{reason}, so there are no shares of variance"]
    notes = []
    if items < every:
        notes.append(
            f"main and total effects are over the {items} of {every} questions that were answered "
            f"in all variants, consistency is over all {every}: neither follows from the other"
        )
    numbers = [exact_parts(one.answers, one.right, design) for one in seeds]
    estimates = item_estimates(numbers, seeds[0].subjects, seed)
    rows = []
    for part in dict.fromkeys(part for part, _ in estimates):
        share = estimates[part, True]
        shares = {"share": share.value, "share_low": share.low, "share_high": share.high}
        outcome, effect, factors = part
        row = {"outcome": outcome, "effect": effect, "factors": " x ".join(factors)}
        rows.append({**row, **asdict(estimates[part, False]), **shares})
    return pl.DataFrame(rows, COMPONENTS), notes


def range_of_accuracy(seeds: Sequence[CellAnswers], design: FactorialDesign) -> pl.DataFrame:
    """The range of accuracy over the variants, of the items that were answered in all of them."""
    complete = np.all(np.stack([one.taken.all(axis=1) for one in seeds]), axis=0)
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
