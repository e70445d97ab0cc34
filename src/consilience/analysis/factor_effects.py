"""Where inconsistency comes from: consistency, variance components and indices by factor.

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
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.components import (
    Estimate,
    ItemNumbers,
    accuracy_range,
    exact_parts,
    item_estimates,
    pair_parts,
    posix,
    prompt_sensitivity,
    shuffled_spreads,
)
from consilience.metrics.counts import resampled
from consilience.metrics.measure import pooled_row
from consilience.metrics.registry import METRICS, Grid, Tally, rows_of_lists
from consilience.metrics.resampling import Key, Resampling
from consilience.metrics.statistics import NAN, TIE

MOST_NATS = 1000.0
"""An upper bound of POSIX for its interval, which so far from it is that of its logarithm."""

LOG_PROBABILITIES = ("label", "sum", "mean", "decision")
"""The scoring rules whose scores and tokens give the log-probability of an option."""

NO_VARIANT: dict[str, Any] = {
    "lowest_variant": "", "highest_variant": "", "n_lowest": 0, "n_highest": 0,
}  # fmt: skip
"""The variants of an index that has none, and how many tie with each."""

OF_PAIRS = ("consistency", "chance_consistency", "corrected_consistency")
"""The metrics that are counted of the pairs of each factor."""


@dataclass(frozen=True, slots=True)
class OptionScores:
    """What a model scored of every option, of the items of a group in the order of its grid."""

    scores: Floats
    """Log-probability of an option in nats, not normalised (item, cell, option); NaN for none."""
    tokens: Floats  # How many tokens an option has (item, cell, option)
    chosen: Ints  # The position of the chosen option (item, cell); -1 for none


def option_scores(answers: pl.DataFrame, cells: int, rule: str) -> OptionScores | None:
    """The scores in an answers table of one group with ``questions.QUESTION_COLUMNS``.

    ``rule``: the scoring rule, one of ``presentation.RULES``. None where the table has no scores,
    or where no log-probability follows from them: those of ``bytes`` and ``pmi``.
    """
    if rule not in LOG_PROBABILITIES or "option_scores" not in answers.columns:
        return None
    items = answers["item"].rank("dense").cast(pl.Int64) - 1
    there = pl.all_horizontal(pl.col("option_scores", "option_tokens").is_not_null())
    known = answers.with_columns(place=items).filter(there)
    if known.is_empty():
        return None
    shape = (int(items.max()) + 1, cells)  # type: ignore[arg-type]
    at = known["place"].to_numpy(), known["variant_index"].to_numpy()
    chosen = np.full(shape, -1, dtype=np.int64)
    chosen[at] = known["option"].cast(pl.Int64).fill_null(-1).to_numpy()
    rows = np.stack([rows_of_lists(known[name]) for name in ("option_scores", "option_tokens")])
    scores, tokens = np.full((2, *shape, rows.shape[-1]), np.nan)
    scores[at], tokens[at] = rows
    return OptionScores(scores * tokens if rule == "mean" else scores, tokens, chosen)


@dataclass(frozen=True, slots=True)
class CellAnswers:
    """The answers of one seed of a run in the cells of a design."""

    grids: Mapping[str, Grid]  # The answers of each group (item, cell)
    options: Mapping[str, OptionScores] | None = None
    """The scores of each group, where the model gave them."""

    @property
    def answers(self) -> Ints:
        """The answers of all groups (item, cell), comparable within an item; -1 for none."""
        return np.concatenate([grid.answers for grid in self.grids.values()])

    @property
    def right(self) -> Bools:
        return np.concatenate([grid.right for grid in self.grids.values()])

    @property
    def graded(self) -> Bools:
        """Whether there is an answer that is right or wrong (item, cell)."""
        return np.concatenate([grid.taken for grid in self.grids.values()])

    @property
    def subjects(self) -> npt.NDArray[np.object_]:
        return np.concatenate([grid.subjects for grid in self.grids.values()])


@dataclass(frozen=True, slots=True)
class FactorTables:
    """What an analysis of factors has of one run."""

    consistency: pl.DataFrame
    """A row a factor: agreement of the pairs that differ in it alone, with its level of chance."""
    components: pl.DataFrame  # A row a part of the variation of the answer and of correctness
    indices: pl.DataFrame  # A row an index: PromptSensiScore, POSIX, range of accuracy
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
    indices, more = sensitivity_indices(seeds, design, seed)
    return FactorTables(
        consistency_by_factor(seeds, design, seed),
        components,
        indices,
        accuracy_by_level(seeds, design, seed),
        [*notes, *more],
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
            count = one.graded[:, of_level].sum(axis=1).astype(np.float64)
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


def variance_components(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int
) -> tuple[pl.DataFrame, list[str]]:
    """The parts of the variation: exact where items have a full design, else total effects."""
    complete = np.all(np.stack([(one.answers >= 0).all(axis=1) for one in seeds]), axis=0)
    items, every = int(complete.sum()), len(complete)
    is_exact = design.is_full and items > 0
    notes = []
    if not is_exact:
        of_design = "no question was answered in all variants"
        reason = of_design if design.is_full else "the design is not a full one"
        notes.append(
            f"{reason}, so there are no main effects and interactions; total effects are those of "
            "pairs"
        )
    elif items < every:
        notes.append(
            f"main and total effects are over the {items} of {every} questions that were answered "
            f"in all variants, consistency is over all {every}: neither follows from the other"
        )
    count = exact_parts if is_exact else pair_parts
    numbers = [count(one.answers, one.right, design) for one in seeds]
    for one, of_seed in zip(seeds, numbers, strict=True):
        for columns in (of.columns for (part, _), of in of_seed.items() if part[0] != "answer"):
            columns[~one.graded.any(axis=1)] = np.nan
    estimates = item_estimates(numbers, seeds[0].subjects, seed)
    rows = []
    for part in dict.fromkeys(part for part, _ in estimates):
        share = estimates.get((part, True), Estimate(NAN, NAN, NAN, 0, 0))
        shares = {"share": share.value, "share_low": share.low, "share_high": share.high}
        outcome, effect, factors = part
        row = {"outcome": outcome, "effect": effect, "factors": " x ".join(factors)}
        method = {"method": "exact" if is_exact else "pairs"}
        rows.append({**row, **asdict(estimates[part, False]), **shares, **method})
    return pl.DataFrame(rows), notes


def sensitivity_indices(
    seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int
) -> tuple[pl.DataFrame, list[str]]:
    """PromptSensiScore, POSIX where options have scores, and the range of accuracy."""
    numbers = [
        {"prompt_sensitivity": ItemNumbers.mean(prompt_sensitivity(one.right, one.graded))}
        for one in seeds
    ]
    notes = []
    if all(one.options is not None for one in seeds):
        for one, of_seed in zip(seeds, numbers, strict=True):
            values = np.concatenate(
                [posix(of.scores, of.tokens, of.chosen) for of in (one.options or {}).values()]
            )
            of_seed["posix"] = ItemNumbers.mean(values, greatest=MOST_NATS)
    else:
        notes.append("no POSIX: not every option has a log-probability in every variant")
    estimates = item_estimates(numbers, seeds[0].subjects, seed)
    unknown = dict.fromkeys(("lowest", "highest", "expected", "p"), NAN) | NO_VARIANT
    rows = [{"index": name, **asdict(estimate), **unknown} for name, estimate in estimates.items()]
    return pl.DataFrame([*rows, _range_row(seeds, design, seed)]), notes


def _range_row(seeds: Sequence[CellAnswers], design: FactorialDesign, seed: int) -> dict[str, Any]:
    """The range of accuracy over the variants, of the items that were answered in all of them."""
    complete = np.all(np.stack([one.graded.all(axis=1) for one in seeds]), axis=0)
    right = [one.right[complete] for one in seeds]
    ranges = np.array([accuracy_range(of) for of in right])
    lowest, highest = ranges.mean(axis=0)
    value = highest - lowest
    estimate = Estimate(value, NAN, NAN, int(complete.sum()), int((~complete).sum()))
    row = {"index": "accuracy_range", **asdict(estimate), "lowest": lowest, "highest": highest}
    if not complete.any():
        return row | {"expected": NAN, "p": NAN} | NO_VARIANT
    shuffled = np.mean([shuffled_spreads(of, seed) for of in right], axis=0)
    as_wide = int((shuffled >= value - TIE).sum())
    accuracy = np.mean([of.mean(axis=0) for of in right], axis=0)
    return row | {
        "expected": float(shuffled.mean()),
        "p": (1 + as_wide) / (1 + len(shuffled)),
        "lowest_variant": design.names[int(accuracy.argmin())],
        "highest_variant": design.names[int(accuracy.argmax())],
        "n_lowest": int((accuracy < accuracy.min() + TIE).sum()),
        "n_highest": int((accuracy > accuracy.max() - TIE).sum()),
    }
