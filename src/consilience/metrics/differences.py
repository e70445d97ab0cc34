"""Paired differences between runs and between answers."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

import numpy as np
import polars as pl
from scipy.special import stdtr

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Floats
from consilience.core.schemas import COMPARISON_SCHEMA, PRECISION_SCHEMA
from consilience.core.text import AGGREGATES, counted
from consilience.metrics.counts import (
    Answers,
    Prepared,
    ResampleCache,
    count,
    empty_value,
    is_averaged,
    prepared_seeds,
    refuse_other_questions,
)
from consilience.metrics.measure import precision_of
from consilience.metrics.registry import DESCRIPTIONS, Grid, Share, Tally, quotient
from consilience.metrics.resampling import (
    ClusterCounts,
    ClusterSampler,
    Key,
    Number,
    Resampling,
    Tallies,
    TwoWayReplicates,
    cluster_positions,
    distinct,
    in_threads,
)
from consilience.metrics.statistics import (
    FEW,
    NAN,
    REPLICATES,
    Draws,
    Signs,
    benjamini_hochberg,
    bootstrap_intervals,
    detectable_difference,
    difference_bounds,
    holm,
    mcnemar,
    mcnemars,
    paired_permutation,
    permutation_p,
    skewness,
    welch_t,
)
from consilience.types import Cardinality, Relation, Suite


def flip(first: Tallies, second: Tallies, names: Sequence[str], signs: Signs) -> dict[Key, Floats]:
    """Every metric that has clusters in two runs: its sums (4, 1 + permutation).

    Hits and total of the first run, then of the second: as they are, then under the random
    ``signs`` of the contribution of each subject, of ``names``.
    """
    keys = [key for key, tally in first.items() if tally.clusters is not None]
    if not keys:
        return {}
    position = {name: at for at, name in enumerate(names)}
    tallies = [run[key] for key in keys for run in (first, second)]
    positions = {id(tally.clusters): cluster_positions(tally, position) for tally in tallies}
    scores = np.stack(
        [
            np.bincount(positions[id(tally.clusters)], column, minlength=len(names))
            for tally in tallies
            for column in tally.scores().T
        ]
    )
    columns, same = distinct(scores)
    flipped = signs.sums(np.ascontiguousarray(columns.T)).T[same].reshape(len(keys), 4, -1)
    observed = scores.sum(axis=1).reshape(len(keys), 4, 1)
    return dict(zip(keys, np.concatenate([observed, flipped], axis=2), strict=True))


def flipped_differences(sums: Floats) -> Floats:
    """The difference of hits/total, second minus first, under each flip (permutation,).

    ``sums``: those of ``flip``. With the common value theta = all hits / all totals, a run with
    total T is off by ``sum_i (h_i - theta t_i) / T``; each subject's part of this, in both runs,
    changes its sign. Without flips this is the difference itself. NaN where a total is 0.
    """
    hits, totals, flipped = sums[::2, 0], sums[1::2, 0], sums[:, 1:]
    if totals.min() <= 0:
        return np.full(flipped.shape[1], np.nan)
    common = hits.sum() / totals.sum()
    off = (flipped[::2] - common * flipped[1::2]) / totals[:, None]
    return np.asarray(off[1] - off[0])


MCNEMAR = "exact McNemar"

SUBJECTS = "sign flips of subjects"

RELATIONS = "paired permutation of relations"

SHARED = "t over relations that share subjects"

Test = tuple[str | None, float]  # Which test, and its p


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of two models, in one group or in several together."""

    shares: tuple[tuple[Share, Share], ...]  # Of both models, for each seed
    flips: tuple[Floats, ...] = ()
    """``flip`` of each seed; none of a metric without subjects, or with ``only``."""
    only: tuple[int, int] | None = None
    """Of a binary metric and one seed: how many items are hits in the first run only, and in the
    second only."""
    test: Test = None, NAN

    @property
    def values(self) -> tuple[float, float]:
        """The means over seeds."""
        first, second = (fmean(both[side].value for both in self.shares) for side in (0, 1))
        return first, second

    @property
    def difference(self) -> float:
        """Second minus first."""
        first, second = self.values
        return second - first

    @property
    def p_seeds(self) -> float:
        """P of Welch's t test over seeds; NaN where they do not vary."""
        first, second = ([both[side].value for both in self.shares] for side in (0, 1))
        varies = len(self.shares) > 1 and any(np.ptp(values) > 0 for values in (first, second))
        return welch_t(second, first).p if varies else NAN

    def plus(self, other: Difference) -> Difference:
        """The counts of two groups together."""
        pairs = zip(self.shares, other.shares, strict=True)
        shares = tuple((one[0] + two[0], one[1] + two[1]) for one, two in pairs)
        only = None
        if self.only and other.only:
            only = self.only[0] + other.only[0], self.only[1] + other.only[1]
        return Difference(shares, tuple(map(np.add, self.flips, other.flips)), only)

    def tested(self) -> Difference:
        """The same with its test, without what the test needs, which fills the memory.

        McNemar's of one seed, else sign flips of the mean difference. NaN without data, which is
        then no test of a family either.
        """
        test: Test = None, NAN
        if self.only is not None:
            test = MCNEMAR, NAN if math.isnan(self.difference) else mcnemar(*self.only)
        elif self.flips:
            mean = np.mean([flipped_differences(sums) for sums in self.flips], axis=0)
            test = SUBJECTS, NAN if np.isnan(mean).all() else permutation_p(self.difference, mean)
        return Difference(self.shares, test=test)


CHANGES = ("first_accuracy", "second_accuracy", "change", "change_low", "change_high")

CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(CHANGES, pl.Float64),
    "test": pl.String,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
}
"""Accuracy in two variants, over the items that were answered in both.

``change`` is the second minus the first, with the bounds of its 95 % interval over subjects. ``p``
of ``test`` is two-sided. ``p_holm`` is adjusted over the pairs with the base variant, and over all
other pairs.
"""

FORM_CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("group", "first", "second"), pl.String),
    **CHANGE_SCHEMA,
    **dict.fromkeys(("seeds", "n"), pl.Int64),
}
"""One row for every two forms of a group: the change of accuracy, mean over seeds."""


def form_changes(
    answers: Answers | Sequence[Answers], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """Accuracy in each form minus that in each earlier one (``FORM_CHANGE_SCHEMA``), paired.

    A form's accuracy is that of its first variant. Groups with one form have no rows.
    """
    seeds = prepared_seeds(answers, suite)
    tables = []
    for relation in seeds[0].relations:
        forms = relation.design.forms
        if len(forms) < 2:
            continue
        firsts = [variants[0] for variants in forms.values()]
        tuples = [run.views(relation, protocol)["tuples"] for run in seeds]
        grids = [grid.only_variants(firsts) for grid in tuples]
        subjects, places = np.unique(grids[0].subjects.astype(str), return_inverse=True)
        draws = Draws(len(subjects), [seed, zlib.crc32(relation.id.encode())], keep=True)
        resampled = ClusterSampler(draws, places)
        first, second = ([list(forms)[at] for at in side] for side in grids[0].pairs.T)
        columns = {
            "group": [relation.id] * len(first),
            "first": first,
            "second": second,
            **accuracy_changes(grids, resampled, seed),
            "seeds": [len(seeds)] * len(first),
            "n": np.min([grid.both.sum(axis=0) for grid in grids], axis=0),
        }
        tables.append(pl.DataFrame(columns, schema=FORM_CHANGE_SCHEMA))
    return pl.concat(tables) if tables else pl.DataFrame(schema=FORM_CHANGE_SCHEMA)


def accuracy_changes(
    grids: Sequence[Grid], resampled: ClusterSampler, seed: int
) -> dict[str, Sequence[object]]:
    """Columns (``CHANGE_SCHEMA``) with one value for each pair that the grids compare.

    ``grids``: one for each run of the same items; values are means over runs. ``resampled``: their
    subjects. The test of one run is McNemar's over items. The test of several runs flips the sign
    of each subject's contribution to the mean change.
    """
    first, second = grids[0].pairs.T
    subjects, places = np.unique(grids[0].subjects.astype(str), return_inverse=True)
    values = np.zeros((2, len(first)))
    replicates = np.zeros((len(first), REPLICATES))
    parts = np.zeros((len(subjects), len(first)))
    for grid in grids:
        one, two = (grid.right[:, side] & grid.both for side in (first, second))
        moved = two.astype(np.float32) - one
        total = grid.both.sum(axis=0)
        values += np.stack([quotient(side.sum(axis=0), total) for side in (one, two)]) / len(grids)
        replicates += quotient(resampled.sums(moved), resampled.sums(grid.both)) / len(grids)
        if len(grids) > 1:
            np.add.at(parts, places, quotient(moved.astype(np.float64), total) / len(grids))
    change = values[1] - values[0]
    if len(grids) == 1:
        tested = mcnemars((moved < 0).sum(axis=0), (moved > 0).sum(axis=0))
        tested[total == 0] = NAN
    else:
        flipped = Signs(subjects.tolist(), seed).sums(np.nan_to_num(parts))
        tested = np.array(
            [permutation_p(float(value), row) for value, row in zip(change, flipped.T, strict=True)]
        )
    with_base = (first == 0) | (second == 0)
    adjusted = np.full(len(tested), NAN)
    for family in (with_base, ~with_base):
        adjusted[family] = holm(tested[family].tolist())
    sizes = resampled.clusters(np.sum([grid.both for grid in grids], axis=0))
    ends = bootstrap_intervals(change, replicates, sizes, (-1.0, 1.0))
    names = [MCNEMAR if len(grids) == 1 else SUBJECTS] * len(tested)
    columns = (*values, change, *ends.T, names, tested, adjusted)
    return dict(zip(CHANGE_SCHEMA, columns, strict=True))


Seeds = Answers | Sequence[Answers]  # The answers of one model: of one run, or of several seeds


def compare(
    models: Mapping[str, Seeds],
    suite: Suite,
    protocol: Protocol,
    seed: int = 0,
    *,
    precision: bool = False,
) -> pl.DataFrame:
    """Compare models with the first, on the queries that both answered (``COMPARISON_SCHEMA``).

    ``models``: the answers of each by its name, of as many seeds; values of several seeds are
    averaged. Runs of other items or variants raise. ``p_holm`` and ``q_value`` adjust over the
    groups of one metric and subset of one comparison, or over the forms of one metric and group.
    ``precision``: with the columns of ``PRECISION_SCHEMA``.
    """
    schema = COMPARISON_SCHEMA | (PRECISION_SCHEMA if precision else {})
    names = list(models)
    if len(names) < 2:
        raise ConsilienceError(
            f"{len(names)} run to compare",
            expected="two runs or more; the first is the reference",
            todo="Name a second run of the same questions.",
        )
    cache = ResampleCache() if len(names) > 2 else None
    first, *others = names
    reference = prepared_seeds(models[first], suite, cache)
    tables = []
    for second in others:
        seeds = prepared_seeds(models[second], suite, cache)
        if len(seeds) != len(reference):
            raise ConsilienceError(
                f"{counted(len(reference), 'seed')} of {first}, {len(seeds)} of {second}",
                expected="as many seeds of both",
            )
        refuse_other_questions((first, reference[0]), (second, seeds[0]))
        rows: list[dict[str, object]] = []
        for kind in get_args(Cardinality):
            if reference[0].of_kind(kind) and seeds[0].of_kind(kind):
                runs = list(zip(reference, seeds, strict=True))
                rows += _paired_rows(runs, kind, protocol, seed)
        pair = {"suite": suite.name, "first": first, "second": second}
        table = pl.DataFrame([{**pair, **row} for row in rows], schema=schema)
        tables.append(_adjusted_over_groups(table, suite))
        for run in seeds if len(others) > 1 else ():
            run.forget(protocol)  # the counts of many runs would fill the memory
    return pl.concat(tables)


DrawnRuns = Sequence[Mapping[Key, TwoWayReplicates]]
"""Every metric of a group in both runs, under the same resampling."""


def _paired_rows(
    runs: Sequence[tuple[Prepared, Prepared]],
    kind: Cardinality,
    protocol: Protocol,
    seed: int,
) -> Iterator[dict[str, object]]:
    """A row for each metric of each group of a kind, then for each metric over the groups.

    ``runs``: those of two models for each seed. A group in which nothing is counted has no rows.
    """
    first, several = runs[0][0], len(runs) > 1
    known = {relation.id for relation in runs[0][1].of_kind(kind)}
    relations = [group for group in first.of_kind(kind) if group.id in known]
    subjects = first.subjects(kind)
    resampling = first.cache.resampling(subjects, seed)
    counted: list[dict[str, list[ClusterCounts]]] = [{} for _ in runs]  # what is not yet resampled

    def of_group(relation: Relation) -> dict[Key, Difference]:
        names = subjects[relation.id]
        seeds = [_count_both(*both, relation, protocol) for both in runs]
        for of_seed, (one, two, is_whole) in zip(counted, seeds, strict=True):
            if one and not is_whole:
                of_seed[relation.id] = [ClusterCounts(tallies, names) for tallies in (one, two)]
        every = [tallies for one, two, _ in seeds for tallies in (one, two)]
        keys = [key for key in every[0] if all(key in tallies for tallies in every)]
        if not keys:
            return {}
        binary = {key for key in keys if DESCRIPTIONS[key[0]].binary and not several}
        signs = first.cache.signs(names, seed)
        flips = [
            flip({key: one[key] for key in keys if key not in binary}, two, names, signs)
            for one, two, _ in seeds
        ]
        differences = {}
        for key in keys:
            empty, only = empty_value(key, protocol), None
            if key in binary:
                moved = seeds[0][1][key].counts[:, 0] - seeds[0][0][key].counts[:, 0]
                only = int((moved < 0).sum()), int((moved > 0).sum())
            shares = tuple((one[key].share(empty), two[key].share(empty)) for one, two, _ in seeds)
            of_seeds = tuple(of_seed[key] for of_seed in flips if key in of_seed)
            differences[key] = Difference(shares, of_seeds, only)
        return differences

    differences: dict[str, dict[Key, Difference]] = {}
    averaged: dict[Key, dict[str, Difference]] = {}
    pooled: dict[Key, Difference] = {}
    for relation, by_key in zip(relations, in_threads(of_group, relations), strict=True):
        for key, difference in by_key.items():
            tested = differences.setdefault(relation.id, {})[key] = difference.tested()
            if is_averaged(key, relation):
                averaged.setdefault(key, {})[relation.id] = tested
                pooled[key] = pooled[key].plus(difference) if key in pooled else difference
    draws: list[dict[str, DrawnRuns]] = []
    for both, by_group in zip(runs, counted, strict=True):
        drawn: dict[str, DrawnRuns] = {**resampling.draw(by_group)}
        if whole := differences.keys() - drawn.keys():
            counts = [run.counts(kind, protocol, seed) for run in both]
            drawn |= {group: [of_run.draws[group] for of_run in counts] for group in whole}
        draws.append(drawn)
    for group, by_key in differences.items():
        for key, difference in by_key.items():
            numbers = [_within([run[key] for run in of[group]], key, protocol) for of in draws]
            yield _row(key, group, difference, numbers)
    for key, of_groups in averaged.items():
        yield from _rows_over(key, of_groups, pooled[key], draws, resampling)


def _within(both: Sequence[TwoWayReplicates], key: Key, protocol: Protocol) -> Number:
    """How a difference varies when subjects are resampled."""
    values, empty = [run.within.values for run in both], empty_value(key, protocol)
    first, second = (np.where(np.isnan(run), empty, run) for run in values)
    size = min(run.within.clusters for run in both)
    return Number(second - first, size, size)


def _rows_over(
    key: Key,
    by_group: Mapping[str, Difference],
    pooled: Difference,
    draws: Sequence[Mapping[str, DrawnRuns]],
    resampling: Resampling,
) -> Iterator[dict[str, object]]:
    """``MACRO`` over the groups where both models have data, and ``MICRO``."""
    known = {group: of for group, of in by_group.items() if not math.isnan(of.difference)}
    if not known:
        return

    def numbers(groups: Mapping[str, Difference]) -> list[tuple[Number, Number]]:
        return [
            resampling.over(
                *(
                    (
                        {group: of.shares[at][side] for group, of in groups.items()},
                        {group: drawn[group][side][key] for group in groups},
                    )
                    for side in (0, 1)
                )
            )
            for at, drawn in enumerate(draws)
        ]

    of_known = numbers(known)
    of_all = of_known if len(known) == len(by_group) else numbers(by_group)
    counts = len(known), len(by_group) - len(known)
    shares = []
    for seed in zip(*(of.shares for of in known.values()), strict=True):
        mean, other = (fmean(both[side].value for both in seed) for side in (0, 1))
        shares.append((Share(mean, 1, *counts), Share(other, 1, *counts)))
    values = [difference.difference for difference in known.values()]
    test: Test = RELATIONS, paired_permutation(values, resampling.seed)
    if len(known) == 1:
        test = next(iter(known.values())).test
    macro = Difference(tuple(shares), test=test)
    means = [mean for mean, _ in of_known]
    row = _row(key, "MACRO", macro, means) | {"skewness": skewness(values)}
    shares_subjects = any(mean.replicates is not mean.ways[0] for mean in means)
    if row["error"] and shares_subjects:  # relations are not independent, as the flips have them
        p = 2 * float(stdtr(row["clusters"] - 1, -abs(macro.difference) / row["error"]))
        row |= {"test": SHARED, "p": p} if p > row["p"] else {}
    yield row | ({"detectable": NAN} if 1 < len(known) < FEW else {})
    yield _row(key, "MICRO", pooled.tested(), [total for _, total in of_all])


def _count_both(
    first: Prepared, second: Prepared, relation: Relation, protocol: Protocol
) -> tuple[Mapping[Key, Tally], Mapping[Key, Tally], bool]:
    """Every metric of both runs, of the queries that both answered; whether these are all.

    Counts over all queries are reused if both runs answered the same queries.
    """
    one, two = first.views(relation, protocol), second.views(relation, protocol)
    both = (
        {view: grid.with_(two[view]) for view, grid in one.items()},
        {view: grid.with_(one[view]) for view, grid in two.items()},
    )
    is_whole = all(
        restricted[view] is grid
        for restricted, run in zip(both, (one, two), strict=True)
        for view, grid in run.items()
    )
    if is_whole and first.cache.keeps and second.cache.keeps:
        return first.tallies(relation, protocol), second.tallies(relation, protocol), True
    return count(both[0], relation), count(both[1], relation), False


def _row(key: Key, group: str, difference: Difference, numbers: Sequence[Number]) -> dict[str, Any]:
    """A row of the table; ``numbers``: how each seed's difference varies."""
    (first, second), (test, p) = difference.values, difference.test
    bounds = difference_bounds(DESCRIPTIONS[key[0]].bounds)
    precision = precision_of(difference.difference, numbers, bounds)
    shares = [share for both in difference.shares for share in both]
    return {
        "metric": key[0], "subset": key[1], "group": group, "first_value": first,
        "second_value": second, "difference": difference.difference, "test": test, "p": p,
        "detectable": detectable_difference(precision["error"], precision["clusters"]),
        "n": min(share.n for share in shares),
        "n_excluded": max(share.left_out for share in shares),
        "seeds": len(difference.shares), "p_seeds": difference.p_seeds, **precision,
    }  # fmt: skip


def _adjusted_over_groups(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The table with p adjusted over groups of one metric and subset, or over forms of a group."""
    is_over, is_whole = pl.col("group").is_in(AGGREGATES), pl.col("subset") == "all"
    averaged = [group.id for group in suite.relations if group.design.is_averaged]
    of_groups = pl.col("group").is_in([*averaged, *AGGREGATES])
    is_tested = (of_groups & ~is_over) | (~of_groups & ~is_whole)
    within = pl.when(of_groups).then("subset").otherwise("group")
    family: list[str | pl.Expr] = ["metric", of_groups.alias("of_groups"), within.alias("within")]
    adjusted = _adjusted(table, family, pl.when(is_tested).then("p").otherwise(NAN))
    parts = [rows for _, rows in adjusted.group_by(family, maintain_order=True)]
    return pl.concat(parts) if parts else table


def _adjusted(table: pl.DataFrame, family: Sequence[str | pl.Expr], p: pl.Expr) -> pl.DataFrame:
    """The table with ``p`` adjusted over the rows of each family."""

    def over_family(adjust: Callable[[Sequence[float]], list[float]]) -> pl.Expr:
        values = p.map_batches(lambda of: pl.Series(adjust(of.to_list())), pl.Float64)
        return values.over(family)

    return table.with_columns(p_holm=over_family(holm), q_value=over_family(benjamini_hochberg))
