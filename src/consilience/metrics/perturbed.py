"""Sentence pairs under perturbations: is the label of the original kept? (CALUM, Section 3).

Every number is that of one perturbation (``subset``) against the original form, variant 0. Several
runs of the same items, such as one a seed, are averaged; then ``low`` and ``high`` are over items,
and ``seed_low`` and ``seed_high`` over the runs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics import ALL_BUT_CONSTANT
from consilience.metrics.agreement import METRICS, Tally, ratio
from consilience.metrics.changes import CHANGE_SCHEMA, accuracy_changes
from consilience.metrics.descriptions import describe
from consilience.metrics.grid import Grid, grid_of
from consilience.metrics.resampling import Key, Resampled, Tallies, Weights, flip, weigh
from consilience.metrics.statistics import (
    NAN,
    REPLICATES,
    Signs,
    bootstrap_interval,
    difference_bounds,
    holm,
    logit_interval,
    permutation_p,
    resamples,
    welch_t,
)
from consilience.types import METRICS_SCHEMA

PERTURBED_SCHEMA: dict[str, type[pl.DataType]] = {
    **METRICS_SCHEMA,
    "seeds": pl.Int64,
    "seed_low": pl.Float64,
    "seed_high": pl.Float64,
}
"""The metrics table, with how many runs were averaged and the interval of their mean.

``std`` is the standard deviation over the runs. ``group`` is the task.
"""

FORM_CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    "first": pl.String,
    "second": pl.String,
    **CHANGE_SCHEMA,
    "seeds": pl.Int64,
    "n": pl.Int64,
}
"""One row for each two forms of a group: what accuracy gains or loses, mean over the runs."""

DIFFERENCE_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "group": pl.String,
    "subset": pl.String,
    "first_value": pl.Float64,
    "second_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "p_seeds": pl.Float64,
    "seeds": pl.Int64,
    "n": pl.Int64,
}
"""One row a difference, ``second`` minus ``first``, of means over the same items and as many seeds.

``low``, ``high`` and ``p`` (sign flips of items) are over items, ``p_seeds`` (Welch's t)
over seeds. ``p_holm``: p adjusted over the perturbed forms of one metric.
"""

NO_LABEL = "no label in "
"""Begins what stands for an answer that is no label: another word in every variant, so that two
such answers never agree."""

OF_PAIRS = (
    "consistency",
    "corrected_consistency",
    "chance_consistency",
    "consistent_accuracy",
    "agree_right",
    "agree_wrong",
)
"""What is counted of the original and one perturbed form together."""


describe("f1", label="F1", meaning="F1 of the last label")
describe(
    "top_label",
    label="Top label",
    meaning="items whose gold is the most common one: the accuracy of a constant classifier",
)
describe("no_label", label="No label", meaning="answers that are not a label")


@dataclass(frozen=True, slots=True)
class Labels:
    """What may be answered in a group; ``f1``: whether that of the last label is told too."""

    words: tuple[str, ...]
    f1: bool = False


def measure_perturbed(
    runs: Sequence[pl.DataFrame], labels: Mapping[str, Labels], seed: int = 0
) -> pl.DataFrame:
    """The metrics (``PERTURBED_SCHEMA``) of answers tables of the same items, one a run.

    ``labels``: those of each group. Accuracy of the subset ``all`` is that on the original form, of
    another subset that on the perturbed one; ``top_answer`` is the share of the label that is said
    most often there. Consistency of the subset ``all`` is over all perturbations.
    """
    _same_items(runs)
    rows: list[dict[str, object]] = []
    for group in runs[0]["group"].unique(maintain_order=True):
        tables = [run.filter(pl.col("group") == group) for run in runs]
        unheard = any(_says_no_label(table, labels[group]) for table in tables)
        counted = [_count(table, labels[group], unheard) for table in tables]
        names = tables[0]["subject"].unique().sort().to_list()
        weights = _weights(names, group, seed)
        drawn = [weigh(each, names, weights) for each in counted]
        for key, first in counted[0].items():
            shares = [each[key].share() for each in counted]
            values = [each.value for each in shares if not math.isnan(each.value)]
            mean = fmean(values) if values else NAN
            ends = (NAN, NAN)
            if first.clusters is not None:
                replicates = np.mean([each[key].values for each in drawn], axis=0)
                clusters = min(each[key].clusters for each in drawn)
                ends = bootstrap_interval(
                    mean, replicates, clusters, _bounds(key), proportion=first.is_proportion
                )
            seed_ends = _over_seeds(values, _bounds(key))
            rows.append(
                {
                    "metric": key[0],
                    "suite": str(tables[0]["suite"][0]),
                    "group": group,
                    "subset": key[1],
                    "value": mean,
                    "std": stdev(values) if len(values) > 1 else NAN,
                    "low": ends[0],
                    "high": ends[1],
                    "n": min(each.n for each in shares),
                    "n_excluded": max(each.left_out for each in shares),
                    "seeds": len(runs),
                    "seed_low": seed_ends[0],
                    "seed_high": seed_ends[1],
                }
            )
    return pl.DataFrame(rows, schema=PERTURBED_SCHEMA)


def form_changes(
    runs: Sequence[pl.DataFrame], labels: Mapping[str, Labels], seed: int = 0
) -> pl.DataFrame:
    """Accuracy in each form minus that in each earlier one (``FORM_CHANGE_SCHEMA``), paired.

    ``runs``: answers tables of the same items, one a run. The original form is the first.
    """
    _same_items(runs)
    tables = []
    for group in runs[0]["group"].unique(maintain_order=True):
        own = [run.filter(pl.col("group") == group) for run in runs]
        unheard = any(_says_no_label(table, labels[group]) for table in own)
        asked = [_grid(table, labels[group], unheard) for table in own]
        counted, names = [grid for grid, _ in asked], asked[0][1]
        subjects, places = np.unique(counted[0].subjects.astype(str), return_inverse=True)
        weights = np.ascontiguousarray(_weights(subjects.tolist(), group, seed).T)
        resampled = Resampled(partial(iter, (weights,)), places)
        pairs = [[names[at] for at in each] for each in counted[0].pairs.T]
        columns = {
            "group": [group] * len(pairs[0]),
            "first": pairs[0],
            "second": pairs[1],
            **accuracy_changes(counted, resampled, seed),
            "seeds": [len(runs)] * len(pairs[0]),
            "n": np.min([grid.both.sum(axis=0) for grid in counted], axis=0),
        }
        tables.append(pl.DataFrame(columns, schema=FORM_CHANGE_SCHEMA))
    return pl.concat(tables)


def compare_perturbed(
    first: Sequence[pl.DataFrame],
    second: Sequence[pl.DataFrame],
    labels: Mapping[str, Labels],
    seed: int = 0,
) -> pl.DataFrame:
    """Differences (``DIFFERENCE_SCHEMA``) between two models, asked the same with as many seeds."""
    if len(first) != len(second):
        raise ConsilienceError(
            f"{len(first)} runs against {len(second)}", expected="as many seeds of both"
        )
    _same_items([*first, *second])
    rows: list[dict[str, object]] = []
    for group in first[0]["group"].unique(maintain_order=True):
        tables = [
            [run.filter(pl.col("group") == group) for run in runs] for runs in (first, second)
        ]
        unheard = any(_says_no_label(table, labels[group]) for runs in tables for table in runs)
        one, two = ([_count(table, labels[group], unheard) for table in runs] for runs in tables)
        names = tables[0][0]["subject"].unique().sort().to_list()
        weights, signs = _weights(names, group, seed), Signs(names, seed)
        drawn = [[weigh(each, names, weights) for each in runs] for runs in (one, two)]
        flipped = [flip(a, b, names, signs) for a, b in zip(one, two, strict=True)]
        for key, tally in one[0].items():
            if tally.clusters is None:
                continue
            values = [[each[key].share().value for each in runs] for runs in (one, two)]
            means = [float(np.mean(each)) for each in values]
            difference = means[1] - means[0]
            replicates = np.mean([each[key].values for each in drawn[1]], axis=0) - np.mean(
                [each[key].values for each in drawn[0]], axis=0
            )
            permuted = np.mean([each[key].differences() for each in flipped], axis=0)
            clusters = drawn[0][0][key].clusters
            bounds = difference_bounds(_bounds(key))
            low, high = bootstrap_interval(difference, replicates, clusters, bounds)
            varies = len(first) > 1 and any(np.ptp(each) > 0 for each in values)
            rows.append(
                {
                    "metric": key[0],
                    "group": group,
                    "subset": key[1],
                    "first_value": means[0],
                    "second_value": means[1],
                    "difference": difference,
                    "low": low,
                    "high": high,
                    "p": permutation_p(difference, permuted),
                    "p_holm": NAN,
                    "p_seeds": welch_t(values[1], values[0]).p if varies else NAN,
                    "seeds": len(first),
                    "n": min(each[key].n for runs in (one, two) for each in runs),
                }
            )
    return _adjusted(pl.DataFrame(rows, schema=DIFFERENCE_SCHEMA))


def _adjusted(differences: pl.DataFrame) -> pl.DataFrame:
    """With p adjusted over the perturbed forms of one metric of one group."""
    parts = []
    for _, rows in differences.group_by(["group", "metric"], maintain_order=True):
        tested = rows.select(pl.when(pl.col("subset") != "all").then("p").otherwise(NAN))
        adjusted = pl.Series(holm(tested.to_series().to_list()), dtype=pl.Float64)
        parts.append(rows.with_columns(p_holm=adjusted))
    return pl.concat(parts) if parts else differences


def perturbed_remarks(answers: pl.DataFrame, metrics: pl.DataFrame) -> list[str]:
    """What a reader of these numbers should know."""
    found = []
    values = {
        (row["group"], row["metric"]): row["value"]
        for row in metrics.filter(pl.col("subset") == "all").iter_rows(named=True)
    }
    for (group,), rows in answers.group_by("group", maintain_order=True):
        left_out = rows.filter(pl.col("excluded").is_not_null())
        if left_out.height:
            found.append(
                f"{group}: {left_out['item'].n_unique()} of {rows['item'].n_unique()} items left "
                f"out, such as {left_out['item'][0]}: {left_out['excluded'][0]}"
            )
        said, is_gold = values[group, "top_answer"], values[group, "top_label"]
        if said > ALL_BUT_CONSTANT:
            found.append(
                f"{group}: {'a constant' if said == 1 else 'an all but constant'} classifier: "
                f"{said:.0%} of all answers to the original form are one and the same (the most "
                f"common label is that of {is_gold:.0%} of the items), so its consistency says "
                f"{'nothing' if said == 1 else 'little'}; corrected_consistency takes that into "
                "account"
            )
        if values.get((group, "no_label"), 0) > ALL_BUT_CONSTANT:
            found.append(
                f"{group}: {values[group, 'no_label']:.0%} of all answers to the original form are "
                "no label; what the model can say depends on the template"
            )
        if is_gold == 1:
            found.append(f"{group}: all items have one label, so accuracy means little")
    return found


def _same_items(runs: Sequence[pl.DataFrame]) -> None:
    """Raise unless all runs have the same items in the same forms; a subject is a sentence."""
    question = ["group", "item", "variant", "subject", "gold"]
    asked = runs[0].select(question)
    for run in runs[1:]:
        other = run.select(question)
        if asked.height != other.height or asked.join(other, on=question, how="anti").height:
            raise ConsilienceError(
                "runs of other items or perturbations",
                expected="the same --data, --limit, --half and --perturbations",
            )


def _weights(names: Sequence[str], group: str, seed: int) -> Weights:
    generator = np.random.default_rng([seed, zlib.crc32(group.encode())])
    return resamples(len(names), REPLICATES, generator)


def _over_seeds(values: Sequence[float], bounds: tuple[float, float]) -> tuple[float, float]:
    """The t interval of the mean of several runs; NaN where they do not vary."""
    if len(values) < 2:
        return NAN, NAN
    return logit_interval(fmean(values), stdev(values) / len(values) ** 0.5, len(values), bounds)


def _bounds(key: Key) -> tuple[float, float]:
    return (METRICS[key[0]].least if key[0] in METRICS else 0.0), 1.0


def _says_no_label(table: pl.DataFrame, labels: Labels) -> bool:
    return not table["answer"].drop_nulls().is_in(list(labels.words)).all()


def _grid(table: pl.DataFrame, labels: Labels, unheard: bool) -> tuple[Grid, list[str]]:
    """The answers (item, form) of one run in one group, and the names of the forms.

    The original form is the first. ``unheard``: whether any of the runs that are counted together
    says what is no label; ``words`` has a code for that of each form then, after the labels.
    """
    variants = dict(
        table.select("variant", "variant_index").unique().sort("variant_index").iter_rows()
    )
    if 0 not in variants.values():
        raise ConsilienceError("no answers to the original form", where="the answers table")
    names = list(variants)
    is_label = pl.col("answer").is_in(list(labels.words)) | pl.col("answer").is_null()
    place = pl.col("variant").replace_strict(
        {name: at for at, name in enumerate(names)}, return_dtype=pl.Int32
    )
    known = table.with_columns(
        answer=pl.when(is_label).then("answer").otherwise(NO_LABEL + pl.col("variant")),
        variant_index=place,
    )
    words = [*labels.words, *(NO_LABEL + name for name in sorted(names) if unheard)]
    grid = grid_of(known, pl.col("item"), len(names), words, len(labels.words))
    return replace(grid, words=np.arange(len(words))), names


def _count(table: pl.DataFrame, labels: Labels, unheard: bool) -> Tallies:
    """Every metric of one run's answers in one group; runs that are compared count alike.

    ``unheard``: whether any of these runs says what is no label.
    """
    grid, names = _grid(table, labels, unheard)
    words = grid.words
    none = list(range(len(labels.words), len(words)))
    others = list(range(1, len(names)))
    tallies: dict[Key, Tally] = {}
    single = dict(_single(grid.variants_of([0]), labels, none))
    tallies |= {(metric, "all"): tally for metric, tally in single.items()}
    tallies["top_label", "all"] = top_label(grid.variants_of([0]))
    if others:
        against = grid.pairs_of([(0, at) for at in others])
        for metric in ("consistency", "consistent_accuracy"):
            tallies[metric, "all"] = METRICS[metric].count(against)
    for at in others:
        subset, pair = names[at], grid.variants_of([0, at])
        for metric in OF_PAIRS:
            tallies[metric, subset] = METRICS[metric].count(pair)
        for metric, tally in _single(grid.variants_of([at]), labels, none):
            tallies[metric, subset] = tally
    return tallies


def _single(grid: Grid, labels: Labels, none: Sequence[int]) -> Iterator[tuple[str, Tally]]:
    """What is counted of one form alone."""
    yield "accuracy", METRICS["accuracy"].count(grid)
    if labels.f1:
        yield "f1", f1(grid, len(labels.words) - 1)
    yield "top_answer", top_answer(grid, none)
    if none:
        yield "no_label", _share(grid, np.isin(grid.answers[:, :1], none))


def f1(grid: Grid, positive: int) -> Tally:
    """F1 of a label: 2 TP / (2 TP + FP + FN), over the items that were answered."""
    said = (grid.answers[:, 0] == positive) & grid.taken[:, 0]
    gold = (grid.golds[:, 0] == positive) & grid.taken[:, 0]
    counts = np.stack([2 * (said & gold), said.astype(np.int64) + gold], axis=1)
    tally = METRICS["accuracy"].count(grid)
    return replace(tally, counts=counts.astype(np.float32), finish=ratio)


def top_answer(grid: Grid, none: Sequence[int]) -> Tally:
    """Share of the label that is said most often; ``none``: the codes of what is no label."""
    said = grid.answers[:, 0]
    is_label = grid.taken[:, 0] & ~np.isin(said, none)
    counts = [is_label & (said == code) for code in np.unique(said[is_label])]
    counts.append(grid.taken[:, 0] & ~is_label)
    return Tally(
        np.stack(counts, axis=1).astype(np.float32),
        None,
        int(grid.taken[:, 0].sum()),
        int((~grid.taken[:, 0]).sum()),
        lambda sums: (sums[..., :-1].max(axis=-1, initial=0), sums.sum(axis=-1)),
    )


def top_label(grid: Grid) -> Tally:
    """Share of the most common gold of the items that were answered.

    It is the accuracy of a constant classifier.
    """
    taken = grid.taken[:, 0]
    golds = grid.golds[taken, 0]
    counts = (golds[:, None] == np.unique(golds)).astype(np.float32)
    return Tally(
        counts,
        None,
        len(golds),
        int((~taken).sum()),
        lambda sums: (sums.max(axis=-1, initial=0), sums.sum(axis=-1)),
    )


def _share(grid: Grid, hits: npt.NDArray[np.bool_]) -> Tally:
    """Hits (item, 1) among the items that were answered."""
    taken = grid.taken[:, :1]
    counts = np.concatenate([hits & taken, taken], axis=1).astype(np.float32)
    return Tally(counts, grid.subjects, int(taken.sum()), int((~taken).sum()))
