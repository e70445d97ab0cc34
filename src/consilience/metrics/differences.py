"""Differences between runs on the same questions, with intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import get_args

import numpy as np
import polars as pl

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.counts import (
    Answers,
    Prepared,
    ResampleCache,
    bounds_of,
    count,
    empty_value,
    is_averaged,
    metric_of,
    prepared_seeds,
    refuse_other_questions,
)
from consilience.metrics.flips import flip
from consilience.metrics.intervals import (
    NAN,
    Floats,
    bootstrap_error,
    bootstrap_interval,
    detectable_difference,
    difference_bounds,
    skewness,
    within_error,
)
from consilience.metrics.paired import RELATIONS, Difference, RunPair, Test
from consilience.metrics.registry import METRICS
from consilience.metrics.resampling import Resampling, Spread, TwoWayReplicates, in_threads
from consilience.metrics.significance import FEW, benjamini_hochberg, holm, paired_permutation
from consilience.metrics.tally import Share, Tally
from consilience.metrics.weighing import ClusterCounts, Key
from consilience.schemas import COMPARISON_SCHEMA, PRECISION_SCHEMA
from consilience.text import counted
from consilience.types import Cardinality, Relation, Suite

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
        tables.append(_adjusted(table, suite))
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
        known = {relation.id for relation, _ in runs[0][1].of_kind(kind)}
        groups = [relation for relation, _ in self.first.of_kind(kind) if relation.id in known]
        self.relations = {relation.id: relation for relation in groups}
        self.subjects = self.first.subjects(kind)
        self.differences: dict[str, dict[Key, Difference]] = {}
        self.tests: dict[Key, dict[str, Test]] = {}
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
                spreads = [self._within(run[group], key) for run in draws]
                test = self.tests[key][group]
                yield _row(
                    key, group, difference, [spread[0] for spread in spreads], spreads[0][1], test
                )
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
            boths = [
                self._count_seed(seed, relation, counted[seed]) for seed in range(len(counted))
            ]
            keys = [key for key in boths[0] if all(key in both for both in boths)]
            return {key: Difference(tuple(both[key] for both in boths)) for key in keys}

        groups = list(self.relations.values())
        for relation, by_key in zip(groups, in_threads(of, groups), strict=True):
            if not by_key:
                continue
            for key, difference in by_key.items():
                self.tests.setdefault(key, {})[relation.id] = difference.test
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
            if len(draws) < len(self.differences):
                whole = [run.counts(self.kind, self.protocol, self.seed) for run in runs]
                for group in self.differences:
                    if group not in draws:
                        draws[group] = whole[0].draws[group], whole[1].draws[group]
            samples.append(draws)
        return samples

    def _within(self, draws: ReplicatesOfBoth, key: Key) -> tuple[Floats, int]:
        """The differences when subjects are resampled (replicate,), and how many there are."""
        one, two = (run[key].within for run in draws)
        empty = empty_value(key, self.protocol)
        first, second = (np.where(np.isnan(run.values), empty, run.values) for run in (one, two))
        return second - first, one.clusters

    def _rows_over(
        self, key: Key, groups: Sequence[str], draws: Sequence[Mapping[str, ReplicatesOfBoth]]
    ) -> Iterator[dict[str, object]]:
        """``MACRO`` over the groups where both models have data, and ``MICRO``."""
        by_group = {group: self.differences[group][key] for group in groups}
        known = {
            group: difference
            for group, difference in by_group.items()
            if not math.isnan(difference.difference)
        }
        if not known:
            return
        spreads = [self._spread(key, known, draws[seed], seed) for seed in range(len(draws))]
        counts, pooled = (len(known), len(by_group) - len(known)), self.pooled[key]
        macro = Difference(
            tuple(
                replace(both, shares=_mean_shares(known, seed, counts))
                for seed, both in enumerate(pooled.seeds)
            )
        )
        values = [difference.difference for difference in known.values()]
        if len(known) > 1:
            test: Test = RELATIONS, paired_permutation(values, self.seed)
        else:
            test = self.tests[key][next(iter(known))]
        relations = [spread.replicates for spread, _, _ in spreads]
        row = _row(key, "MACRO", macro, relations, spreads[0][0].clusters, test)
        micro, clusters = [values for _, values, _ in spreads], spreads[0][2]
        within = np.mean([spread.within for spread, _, _ in spreads], axis=0)
        error = within_error(within, spreads[0][0].clusters, clusters)
        row |= {"within_error": error, "skewness": skewness(values), "units": clusters}
        yield row | ({"detectable": NAN} if 1 < len(known) < FEW else {})
        yield _row(key, "MICRO", pooled, micro, clusters, pooled.test)

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
    return METRICS[metric_of(key[0])].binary


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
    rows, others = first.rows_of(relation), second.rows_of(relation)
    one, two = first.views(relation, rows, protocol), second.views(relation, others, protocol)
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
        tallies = (
            first.tallies(relation, rows, protocol),
            second.tallies(relation, others, protocol),
        )
        return *tallies, True
    return count(both[0], relation), count(both[1], relation), False


def _only(first: Tally, second: Tally) -> tuple[int, int]:
    """The number of items that are hits only in the first, and only in the second."""
    moved = second.counts[:, 0] - first.counts[:, 0]
    return int((moved < 0).sum()), int((moved > 0).sum())


def _row(
    key: Key,
    group: str,
    difference: Difference,
    spreads: Sequence[Floats],
    clusters: int,
    test: Test,
) -> dict[str, object]:
    """A row of the table; ``spreads``: each seed's difference resampled (replicate,)."""
    replicates = np.mean(spreads, axis=0)
    bounds = difference_bounds(bounds_of(key))
    low, high = bootstrap_interval(difference.difference, replicates, clusters, bounds)
    error = bootstrap_error(replicates, clusters)
    shares = [share for both in difference.seeds for share in both.shares]
    return {
        "metric": key[0],
        "subset": key[1],
        "group": group,
        "first_value": difference.values[0],
        "second_value": difference.values[1],
        "difference": difference.difference,
        "low": low,
        "high": high,
        "test": test[0],
        "p": test[1],
        "detectable": detectable_difference(error, clusters),
        "n": min(share.n for share in shares),
        "n_excluded": max(share.left_out for share in shares),
        "seeds": len(difference.seeds),
        "p_seeds": difference.p_seeds,
        "error": error,
        "within_error": NAN,
        "skewness": 0.0,
        "clusters": clusters,
        "units": clusters,
    }


def _adjusted(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The table with p adjusted over groups of one metric and subset, or over forms of a group."""
    over = ["MACRO", "MICRO"]
    averaged = [group.id for group in suite.relations if group.design.is_averaged]
    of_groups = pl.col("group").is_in([*averaged, *over])
    is_tested = (of_groups & ~pl.col("group").is_in(over)) | (
        ~of_groups & (pl.col("subset") != "all")
    )
    within = pl.when(of_groups).then("subset").otherwise("group")
    family = ["metric", of_groups.alias("of_groups"), within.alias("within")]
    parts = []
    for _, rows in table.group_by(family, maintain_order=True):
        tested = rows.select(pl.when(is_tested).then("p").otherwise(NAN)).to_series().to_list()
        parts.append(
            rows.with_columns(
                p_holm=pl.Series(holm(tested), dtype=pl.Float64),
                q_value=pl.Series(benjamini_hochberg(tested), dtype=pl.Float64),
            )
        )
    return pl.concat(parts) if parts else table
