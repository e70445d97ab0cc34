"""Paired differences between runs, between answers, between languages."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import get_args

import numpy as np
import polars as pl

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import BETWEEN, OF_LANGUAGE, WITHIN, Design
from consilience.core.schemas import COMPARISON_SCHEMA, PRECISION_SCHEMA
from consilience.core.text import AGGREGATES, counted
from consilience.metrics.counts import (
    Answers,
    Prepared,
    ResampleCache,
    count,
    empty_value,
    is_averaged,
    name_of,
    prepared_seeds,
    refuse_other_questions,
)
from consilience.metrics.grid import Grid
from consilience.metrics.measure import Number, precision_of
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Metric, Share, Tally, quotient
from consilience.metrics.resampling import (
    ClusterCounts,
    ClusterSampler,
    Key,
    Resampling,
    Spread,
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
    Floats,
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


@dataclass(frozen=True, slots=True)
class Flipped:
    """A metric of two runs under random sign flips of the contribution of each subject."""

    observed: Floats
    """Hits and total of the first run, then of the second (4,)."""
    flipped: Floats
    """The sums under each flip (4, permutation)."""

    def __add__(self, other: Flipped) -> Flipped:
        return Flipped(self.observed + other.observed, self.flipped + other.flipped)

    def differences(self) -> Floats:
        """The difference of hits/total, second minus first, under each flip (permutation,).

        With the common value theta = all hits / all totals, a run with total T is off by
        ``sum_i (h_i - theta t_i) / T``; each subject's part of this, in both runs, changes its
        sign. Without flips this is the difference itself. NaN where a total is 0.
        """
        hits, totals = self.observed[::2], self.observed[1::2]
        if totals.min() <= 0:
            return np.full(self.flipped.shape[1], np.nan)
        common = hits.sum() / totals.sum()
        off = (self.flipped[::2] - common * self.flipped[1::2]) / totals[:, None]
        difference: Floats = off[1] - off[0]
        return difference


def flip(first: Tallies, second: Tallies, names: Sequence[str], signs: Signs) -> dict[Key, Flipped]:
    """Every metric that has clusters in two runs, under ``signs`` of the subjects ``names``."""
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
    observed = scores.sum(axis=1).reshape(len(keys), 4)
    return {key: Flipped(observed[at], flipped[at]) for at, key in enumerate(keys)}


MCNEMAR = "exact McNemar"

SUBJECTS = "sign flips of subjects"

RELATIONS = "paired permutation of relations"


Test = tuple[str | None, float]
"""Which test, and its p."""


@dataclass(frozen=True, slots=True)
class RunPair:
    """One metric in two runs: of one group, or of several together."""

    shares: tuple[Share, Share]
    flipped: Flipped | None
    """Both under sign flips of what subjects contribute; None for a metric without subjects."""
    only: tuple[int, int] | None
    """How many items are hits in the first run only, and in the second only; None for a metric
    that is not binary."""

    def plus(self, other: RunPair) -> RunPair:
        """The counts of two groups together."""
        flipped, only = None, None
        if self.flipped is not None and other.flipped is not None:
            flipped = self.flipped + other.flipped
        if self.only is not None and other.only is not None:
            only = self.only[0] + other.only[0], self.only[1] + other.only[1]
        shares = self.shares[0] + other.shares[0], self.shares[1] + other.shares[1]
        return RunPair(shares, flipped, only)


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of two models: a pair of runs for each seed."""

    seeds: tuple[RunPair, ...]
    tested: Test | None = None
    """The test, where it is known."""

    @property
    def values(self) -> tuple[float, float]:
        """The means over seeds."""
        first, second = (fmean(self.of_seeds(side)) for side in (0, 1))
        return first, second

    def of_seeds(self, side: int) -> list[float]:
        """The values of one model's seeds."""
        return [both.shares[side].value for both in self.seeds]

    @property
    def difference(self) -> float:
        """Second minus first."""
        first, second = self.values
        return second - first

    @property
    def test(self) -> Test:
        """McNemar's of one seed, else sign flips of the mean difference.

        NaN without data, which is then no test of a family either.
        """
        if self.tested is not None:
            return self.tested
        if len(self.seeds) == 1 and self.seeds[0].only is not None:
            only = self.seeds[0].only
            return MCNEMAR, NAN if math.isnan(self.difference) else mcnemar(*only)
        flipped = [both.flipped.differences() for both in self.seeds if both.flipped is not None]
        if len(flipped) < len(self.seeds):
            return None, NAN
        mean = np.mean(flipped, axis=0)
        if np.isnan(mean).all():
            return SUBJECTS, NAN
        return SUBJECTS, permutation_p(self.difference, mean)

    @property
    def p_seeds(self) -> float:
        """P of Welch's t test over seeds; NaN where they do not vary."""
        first, second = self.of_seeds(0), self.of_seeds(1)
        varies = len(self.seeds) > 1 and any(np.ptp(values) > 0 for values in (first, second))
        return welch_t(second, first).p if varies else NAN

    def plus(self, other: Difference) -> Difference:
        """The counts of two groups together."""
        pairs = zip(self.seeds, other.seeds, strict=True)
        return Difference(tuple(one.plus(two) for one, two in pairs))

    def without_flips(self) -> Difference:
        """The same, tested, without what the test needs, which fills the memory."""
        return Difference(tuple(replace(both, flipped=None) for both in self.seeds), self.test)


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
    for relation, _ in seeds[0].relations:
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
    ends = bootstrap_intervals(change, replicates, len(subjects), (-1.0, 1.0))
    names = [MCNEMAR if len(grids) == 1 else SUBJECTS] * len(tested)
    columns = (*values, change, *ends.T, names, tested, adjusted)
    return dict(zip(CHANGE_SCHEMA, columns, strict=True))


OF_THE_SUITE = ("uniform_consistency", "top_label")
"""Metrics of the questions themselves; they are not compared between runs."""

Seeds = Answers | Sequence[Answers]
"""The answers of one model: of one run, or of several seeds."""


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
            expected="two runs or more, the first is the reference, or one run of facts in "
            "several languages",
            todo=_one_language(suite),
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
                rows += PairedComparison(runs, kind, protocol, seed).rows()
        pair = {"suite": suite.name, "first": first, "second": second}
        table = pl.DataFrame([{**pair, **row} for row in rows], schema=schema)
        tables.append(_adjusted_over_groups(table, suite))
    return pl.concat(tables)


def _one_language(suite: Suite) -> str:
    """What to do with a single run that has no languages to compare."""
    languages = {pattern.language for group in suite for pattern in group.patterns}
    second = "Name a second run of the same questions."
    return f"All patterns of this run are in '{min(languages)}'. {second}" if languages else second


CountBoth = Callable[
    [Prepared, Prepared, Relation, Protocol],
    tuple[Mapping[Key, Tally], Mapping[Key, Tally], bool],
]
"""Every metric of both sides in a group, and whether these are all answers of both runs."""

ReplicatesOfBoth = tuple[Mapping[Key, TwoWayReplicates], Mapping[Key, TwoWayReplicates]]
"""Every metric of a group in both runs, under the same resampling."""


class PairedComparison:
    """Two models on the groups of one kind, with a pair of runs for each seed.

    ``count_both`` counts what is compared; by default every query that both runs answered. A group
    in which it counts nothing has no rows.
    """

    def __init__(
        self,
        runs: Sequence[tuple[Prepared, Prepared]],
        kind: Cardinality,
        protocol: Protocol,
        seed: int,
        count_both: CountBoth | None = None,
    ) -> None:
        self.runs, self.kind, self.protocol, self.seed = runs, kind, protocol, seed
        self.count_both = count_both or _count_both
        self.first = runs[0][0]
        known = {relation.id for relation in runs[0][1].of_kind(kind)}
        groups = self.first.of_kind(kind)
        self.relations = {group.id: group for group in groups if group.id in known}
        self.subjects = self.first.subjects(kind)
        self.differences: dict[str, dict[Key, Difference]] = {}
        self.pooled: dict[Key, Difference] = {}
        self.resampling: Resampling = self.first.cache.resampling(
            self.subjects, seed, joint=self.first.suite.words.is_pooled
        )

    def rows(self) -> Iterator[dict[str, object]]:
        """A row for each metric of each group, then for each metric over the groups."""
        draws = self._draw(self._count())
        averaged: dict[Key, list[str]] = {}
        for group, by_key in self.differences.items():
            for key, difference in by_key.items():
                clusters = draws[0][group][0][key].within.clusters
                numbers = [
                    Number(self._within(run[group], key), clusters, clusters) for run in draws
                ]
                yield _row(key, group, difference, numbers)
                if is_averaged(key, self.relations[group]):
                    averaged.setdefault(key, []).append(group)
        for key, groups in averaged.items():
            yield from self._rows_over(key, groups, draws)

    def _count(self) -> list[dict[str, list[ClusterCounts]]]:
        """Count and test every metric of each group.

        Returns the counts of both runs that are still to be resampled, for each seed by group:
        those of groups where one run lacks an answer that is then excluded from both.
        """
        counted: list[dict[str, list[ClusterCounts]]] = [{} for _ in self.runs]

        def of(relation: Relation) -> dict[Key, Difference]:
            boths = [self._count_seed(at, relation, of_seed) for at, of_seed in enumerate(counted)]
            keys = [key for key in boths[0] if all(key in both for both in boths)]
            return {key: Difference(tuple(both[key] for both in boths)) for key in keys}

        groups = list(self.relations.values())
        for relation, by_key in zip(groups, in_threads(of, groups), strict=True):
            if not by_key:
                continue
            for key, difference in by_key.items():
                if is_averaged(key, relation):
                    pooled = self.pooled.get(key)
                    self.pooled[key] = pooled.plus(difference) if pooled else difference
            self.differences[relation.id] = {
                key: difference.without_flips() for key, difference in by_key.items()
            }
        return counted

    def _count_seed(
        self, seed: int, relation: Relation, counted: dict[str, list[ClusterCounts]]
    ) -> dict[Key, RunPair]:
        """Every metric of one seed's two runs in a group; keeps what must be resampled."""
        names = self.subjects[relation.id]
        one, two, is_whole = self.count_both(*self.runs[seed], relation, self.protocol)
        if not one:
            return {}
        if not is_whole:
            counted[relation.id] = [ClusterCounts(tallies, names) for tallies in (one, two)]
        keys = [key for key in one if key[0] not in OF_THE_SUITE and key in two]
        several = len(self.runs) > 1
        tested = {key: one[key] for key in keys if several or not _is_binary(key)}
        flipped = flip(tested, two, names, self.first.cache.signs(names, self.seed))
        boths = {}
        for key in keys:
            empty = empty_value(key, self.protocol)
            shares = one[key].share(empty), two[key].share(empty)
            only = _only(one[key], two[key]) if _is_binary(key) else None
            boths[key] = RunPair(shares, flipped.get(key), only)
        return boths

    def _draw(
        self, counted: Sequence[Mapping[str, list[ClusterCounts]]]
    ) -> list[dict[str, ReplicatesOfBoth]]:
        """Every metric of both runs of each group, resampled, for each seed."""
        samples = []
        for runs, by_group in zip(self.runs, counted, strict=True):
            draws: dict[str, ReplicatesOfBoth] = {
                group: (one, two) for group, (one, two) in self.resampling.draw(by_group).items()
            }
            if whole := self.differences.keys() - draws.keys():
                first, second = (run.counts(self.kind, self.protocol, self.seed) for run in runs)
                draws |= {group: (first.draws[group], second.draws[group]) for group in whole}
            samples.append(draws)
        return samples

    def _within(self, draws: ReplicatesOfBoth, key: Key) -> Floats:
        """The differences when subjects are resampled (replicate,)."""
        values, empty = [run[key].within.values for run in draws], empty_value(key, self.protocol)
        first, second = (np.where(np.isnan(run), empty, run) for run in values)
        return second - first

    def _rows_over(
        self, key: Key, groups: Sequence[str], draws: Sequence[Mapping[str, ReplicatesOfBoth]]
    ) -> Iterator[dict[str, object]]:
        """``MACRO`` over the groups where both models have data, and ``MICRO``."""
        by_group = {group: self.differences[group][key] for group in groups}
        known = {group: of for group, of in by_group.items() if not math.isnan(of.difference)}
        if not known:
            return
        spreads = [self._spread(key, known, of, seed) for seed, of in enumerate(draws)]
        counts, pooled = (len(known), len(by_group) - len(known)), self.pooled[key]
        values = [difference.difference for difference in known.values()]
        test: Test = RELATIONS, paired_permutation(values, self.seed)
        if len(known) == 1:
            test = next(iter(known.values())).test
        macro = Difference(
            tuple(
                replace(both, shares=_mean_shares(known, seed, counts))
                for seed, both in enumerate(pooled.seeds)
            ),
            test,
        )
        size, clusters = spreads[0][0].clusters, spreads[0][2]
        means = [Number(one.replicates, size, clusters, one.within) for one, _, _ in spreads]
        row = _row(key, "MACRO", macro, means) | {"skewness": skewness(values)}
        yield row | ({"detectable": NAN} if 1 < len(known) < FEW else {})
        numbers = [Number(replicates, clusters, clusters) for _, replicates, _ in spreads]
        yield _row(key, "MICRO", pooled, numbers)

    def _spread(
        self,
        key: Key,
        known: Mapping[str, Difference],
        draws: Mapping[str, ReplicatesOfBoth],
        seed: int,
    ) -> tuple[Spread, Floats, int]:
        """How the differences of one seed vary: the mean over groups, and all counts together."""
        one, two = (
            self.resampling.over(
                {group: difference.seeds[seed].shares[side] for group, difference in known.items()},
                {group: draws[group][side][key] for group in known},
            )
            for side in (0, 1)
        )
        return two[0] - one[0], two[1].values - one[1].values, one[1].clusters


def _is_binary(key: Key) -> bool:
    return DESCRIPTIONS[key[0]].binary


def _mean_shares(
    known: Mapping[str, Difference], seed: int, counts: tuple[int, int]
) -> tuple[Share, Share]:
    """The means of one seed's two runs over the groups that have data."""
    first, second = (
        Share(fmean(group.seeds[seed].shares[side].value for group in known.values()), 1, *counts)
        for side in (0, 1)
    )
    return first, second


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


def _only(first: Tally, second: Tally) -> tuple[int, int]:
    """The number of items that are hits only in the first, and only in the second."""
    moved = second.counts[:, 0] - first.counts[:, 0]
    return int((moved < 0).sum()), int((moved > 0).sum())


def _row(
    key: Key, group: str, difference: Difference, numbers: Sequence[Number]
) -> dict[str, object]:
    """A row of the table; ``numbers``: how each seed's difference varies."""
    (first, second), (test, p) = difference.values, difference.test
    bounds = difference_bounds(DESCRIPTIONS[key[0]].bounds)
    precision = precision_of(difference.difference, numbers, bounds)
    shares = [share for both in difference.seeds for share in both.shares]
    return {
        "metric": key[0],
        "subset": key[1],
        "group": group,
        "first_value": first,
        "second_value": second,
        "difference": difference.difference,
        "test": test,
        "p": p,
        "detectable": detectable_difference(precision["error"], precision["clusters"]),
        "n": min(share.n for share in shares),
        "n_excluded": max(share.left_out for share in shares),
        "seeds": len(difference.seeds),
        "p_seeds": difference.p_seeds,
        **precision,
    }


def _adjusted_over_groups(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The table with p adjusted over groups of one metric and subset, or over forms of a group."""
    is_over, is_whole = pl.col("group").is_in(AGGREGATES), pl.col("subset") == "all"
    averaged = [group.id for group in suite.relations if group.design.is_averaged]
    of_groups = pl.col("group").is_in([*averaged, *AGGREGATES])
    is_tested = (of_groups & ~is_over) | (~of_groups & ~is_whole)
    within = pl.when(of_groups).then("subset").otherwise("group")
    family = ["metric", of_groups.alias("of_groups"), within.alias("within")]
    adjusted = _adjusted(table, family, pl.when(is_tested).then("p").otherwise(NAN))
    parts = [rows for _, rows in adjusted.group_by(family, maintain_order=True)]
    return pl.concat(parts) if parts else table


def _adjusted(table: pl.DataFrame, family: Sequence[str | pl.Expr], p: pl.Expr) -> pl.DataFrame:
    """The table with ``p`` adjusted over the rows of each family."""

    def over_family(adjust: Callable[[Sequence[float]], list[float]]) -> pl.Expr:
        values = p.map_batches(lambda of: pl.Series(adjust(of.to_list())), pl.Float64)
        return values.over(family)

    return table.with_columns(p_holm=over_family(holm), q_value=over_family(benjamini_hochberg))


def compare_languages(
    answers: Seeds, suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """Compare every two languages of a run on the same facts (``COMPARISON_SCHEMA``).

    ``first`` and ``second`` are languages; of the last comparison, the pairs of patterns within
    languages and between them. A metric of one pattern, such as accuracy, is that of the first
    pattern in each language. A fact counts where both languages have the number, so facts without
    an answer in one of them are excluded from both. ``p_holm`` and ``q_value`` adjust over the
    pairs of languages of one metric and group.
    """
    seeds = prepared_seeds(answers, suite)
    languages = list(dict.fromkeys(name for group in suite for name in group.design.languages))
    rows: list[dict[str, object]] = []
    for first, second in [*combinations(languages, 2), (WITHIN, BETWEEN)]:
        pair = {"suite": suite.name, "first": first, "second": second}
        for kind in get_args(Cardinality):
            if seeds[0].of_kind(kind):
                runs = [(run, run) for run in seeds]
                compared = PairedComparison(runs, kind, protocol, seed, _counter(first, second))
                rows += [{**pair, **row} for row in compared.rows()]
    family = ["metric", "group", pl.col("first") == WITHIN]
    return _adjusted(pl.DataFrame(rows, schema=COMPARISON_SCHEMA), family, pl.col("p"))


def _counter(first: str, second: str) -> CountBoth:
    """What counts the metrics of two languages, or of the pairs within and between languages."""

    def count_both(
        run: Prepared, _: Prepared, relation: Relation, protocol: Protocol
    ) -> tuple[Mapping[Key, Tally], Mapping[Key, Tally], bool]:
        views = run.views(relation, protocol)
        tallies: tuple[dict[Key, Tally], dict[Key, Tally]] = {}, {}
        for metric_name, metric in METRICS.items():
            key, view = (name_of(metric_name, relation.cardinality), "all"), views[metric.view]
            grids = [_of_language(view, relation.design, metric, name) for name in (first, second)]
            for side, grid in zip(tallies, _on_same_items(metric, grids), strict=False):
                if (tally := metric.count(grid)) is not None:
                    side[key] = tally
        return *tallies, False

    return count_both


def _of_language(grid: Grid, design: Design, metric: Metric, side: str) -> Grid | None:
    """The part of a group that a metric counts of a language; None where there is none."""
    if metric.one_form:
        return grid.only_variants(design.languages[side]) if side in design.languages else None
    kind = side if side in (WITHIN, BETWEEN) else OF_LANGUAGE + side
    if metric.by_form and kind in design.kinds:
        return grid.only_pairs(design.kinds[kind])
    return None


def _on_same_items(metric: Metric, grids: Sequence[Grid | None]) -> list[Grid]:
    """Both grids with the answers to items that have a number in both; [] if one is missing."""
    known = [grid for grid in grids if grid is not None]
    if len(known) < 2:
        return []
    have = [grid.taken[:, 0] if metric.one_form else grid.n_both > 0 for grid in known]
    has_number = np.all(have, axis=0)[:, None]
    return [replace(grid, answers=np.where(has_number, grid.answers, -1)) for grid in known]
