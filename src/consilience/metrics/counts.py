"""Every metric of each group of an answers table, and how it varies.

A ``Prepared`` table can be counted under both protocols and compared with others. Tables that have
one ``ResampleCache`` keep their counts, and share random resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.choices import Protocol
from consilience.design import OF_LANGUAGE, Design, is_language_kind
from consilience.errors import ConsilienceError
from consilience.expectations import Instance
from consilience.frames import as_polars
from consilience.metrics.answers_table import by_relation, prepare
from consilience.metrics.bootstrap import (
    KEPT,
    REPLICATES,
    draw_counts,
    in_parts,
    resamples_in_parts,
)
from consilience.metrics.expected import instances_of
from consilience.metrics.grid import Grid, View, grids, words_of
from consilience.metrics.registry import METRICS, Metric
from consilience.metrics.resampling import Resampling, TwoWayReplicates, in_threads
from consilience.metrics.significance import PERMUTATIONS, Signs
from consilience.metrics.tally import Share, Tally
from consilience.metrics.weighing import ClusterCounts, Key
from consilience.types import QUESTION_WORDS, Cardinality, Relation, Suite

T = TypeVar("T")

NAN = float("nan")

EMPTY_AS_ZERO = {"published": ("known_consistency", "unknown_consistency"), "strict": ()}
"""Metrics of groups without data that the released code logs as 0, which its means include."""


def name_of(metric: str, cardinality: Cardinality) -> str:
    """The name of a metric in groups of a cardinality."""
    return "determinism" if metric == "consistency" and cardinality == "N-M" else metric


def metric_of(name: str) -> str:
    """The metric of a name."""
    return "consistency" if name == "determinism" else name


def bounds_of(key: Key) -> tuple[float, float]:
    """The lowest and the highest possible value of a metric."""
    return METRICS[metric_of(key[0])].bounds


def scores_read() -> tuple[str, ...]:
    """The scores that at least one metric reads."""
    return tuple(dict.fromkeys(name for metric in METRICS.values() for name in metric.scores))


def empty_value(key: Key, protocol: Protocol) -> float:
    """The value of a group without data."""
    return 0.0 if key[0] in EMPTY_AS_ZERO[protocol] else NAN


def is_averaged(key: Key, relation: Relation) -> bool:
    """Whether a metric is averaged over groups: in N-M relations only determinism is.

    In N-M relations an answer that is another gold of its subject counts as wrong.
    """
    is_of_kind = relation.cardinality == "N-1" or key[0] == "determinism"
    return relation.design.is_averaged and is_of_kind


def count(views: Mapping[View, Grid], relation: Relation) -> dict[Key, Tally]:
    """Every metric of the two views of one group, over all of it and by its subsets."""
    design = relation.design
    tallies: dict[Key, Tally] = {}
    for metric_name, metric in METRICS.items():
        name = name_of(metric_name, relation.cardinality)
        for subset, grid in _subsets(views[metric.view], design, metric):
            tally = metric.count(grid)
            if tally is not None:
                tallies[name, subset] = tally
    return tallies


def _subsets(grid: Grid, design: Design, metric: Metric) -> Iterator[tuple[str, Grid]]:
    """The parts of a group that a metric is counted on: all, then each form, language or kind."""
    base, *others = design.forms.items()
    if metric.one_form:
        yield "all", grid.only_variants(base[1]) if others else grid
        for form, variants in others:
            yield form, grid.only_variants(variants)
        for language, variants in design.languages.items():
            yield f"{OF_LANGUAGE}{language}", grid.only_variants(variants)
        return
    yield "all", grid
    if metric.by_expectation:
        for subset in dict.fromkeys(of[0].expectation.subset for of in grid.instances):
            yield subset, grid.only_expectations(subset)
        return
    for kind, pairs in design.kinds.items():
        is_form = kind in design.forms or is_language_kind(kind)
        if metric.by_form if is_form else metric.by_edit:
            yield kind, grid.only_pairs(pairs)


class OtherQuestionsError(ConsilienceError):
    """Two runs have answers to different questions."""


class ResampleCache:
    """The random resamples and signs of several tables, each drawn once.

    It holds at most ``size`` bytes. Samples that do not fit are computed anew, identically.
    """

    def __init__(self, size: int = KEPT) -> None:
        self.keeps = size > 0
        self._kept: dict[object, Any] = {}
        self._left = size
        self._lock = Lock()

    def resampling(
        self, subjects: Mapping[str, Sequence[str]], seed: int, *, joint: bool
    ) -> Resampling:
        """The resampling of these subjects (``Resampling``)."""
        key = seed, joint, tuple((group, *names) for group, names in subjects.items())
        size = 2 * REPLICATES * sum(map(len, subjects.values()))
        keep = size <= self._left
        return self._keep(key, size, lambda: Resampling(subjects, seed, keep=keep, joint=joint))

    def signs(self, names: Sequence[str], seed: int) -> Signs:
        """The signs of these names."""
        size = len(names) * PERMUTATIONS // 8
        return self._keep(("signs", seed, *names), size, lambda: Signs(names, seed))

    def resamples(self, clusters: int, seed: int) -> Iterator[npt.NDArray[Any]]:
        """How often each of this many clusters was drawn (cluster, replicate), in parts."""
        key, size = (clusters, seed), clusters * REPLICATES
        if key not in self._kept and size > self._left:
            return resamples_in_parts(clusters, REPLICATES, np.random.default_rng(seed))
        return in_parts(
            self._keep(key, size, lambda: draw_counts(clusters, np.random.default_rng(seed)))
        )

    def _keep(self, key: object, size: int, make: Callable[[], T]) -> T:
        if key in self._kept:
            value: T = self._kept[key]
            return value
        made = make()
        with self._lock:
            if size <= self._left:
                self._left -= size
                self._kept[key] = made
        return made


@dataclass(frozen=True, slots=True)
class Counts:
    """Every metric of each group of a kind."""

    shares: Mapping[str, Mapping[Key, Share]]
    """Hits and totals by group and metric."""
    draws: Mapping[str, Mapping[Key, TwoWayReplicates]]
    """The same under resampled subjects."""
    proportions: frozenset[Key]
    """The metrics whose hits are counted among the total."""
    resampling: Resampling
    """The resamples."""


class Prepared:
    """An answers table that was checked against its suite (``answers_table.prepare``).

    With a ``cache`` all counts are kept too, until ``forget``: for a table that is counted under
    both protocols, or compared with several others.
    """

    def __init__(
        self, answers: pl.DataFrame, suite: Suite, cache: ResampleCache | None = None
    ) -> None:
        self.answers, self.suite = answers, suite
        self.table = prepare(answers, suite)
        self.cache = cache or ResampleCache(0)
        self._kept: dict[tuple[Protocol, object], Any] = {}

    @cached_property
    def relations(self) -> list[tuple[Relation, pl.DataFrame]]:
        """The groups that have rows, with their rows, in the order of the suite."""
        return list(by_relation(self.table, self.suite))

    def rows_of(self, relation: Relation) -> pl.DataFrame:
        return self._rows[relation.id]

    @cached_property
    def _rows(self) -> dict[str, pl.DataFrame]:
        return {relation.id: rows for relation, rows in self.relations}

    def of_kind(self, kind: Cardinality) -> list[tuple[Relation, pl.DataFrame]]:
        """The groups of a cardinality, with their rows."""
        return [(group, rows) for group, rows in self.relations if group.cardinality == kind]

    def subjects(self, kind: Cardinality) -> dict[str, list[str]]:
        """The distinct subjects of each group of a cardinality, sorted."""
        return {relation.id: self._subjects[relation.id] for relation, _ in self.of_kind(kind)}

    @cached_property
    def _subjects(self) -> dict[str, list[str]]:
        return {
            relation.id: rows["subject"].unique().sort().to_list()
            for relation, rows in self.relations
        }

    def views(
        self, relation: Relation, rows: pl.DataFrame, protocol: Protocol
    ) -> Mapping[View, Grid]:
        """The two views of a relation's answers."""
        return self._keep(
            protocol,
            ("views", relation.id),
            lambda: self._views(relation, rows, protocol),
        )

    def _views(
        self, relation: Relation, rows: pl.DataFrame, protocol: Protocol
    ) -> Mapping[View, Grid]:
        views = grids(rows, relation, protocol, words_of(rows), scores_read())
        instances = tuple(self.instances.get(relation.id, ()))
        return {name: replace(grid, instances=instances) for name, grid in views.items()}

    @cached_property
    def instances(self) -> Mapping[str, Sequence[tuple[Instance, ...]]]:
        """The instances of each expectation, by the group of its first premise."""
        return instances_of(self.table, self.suite)

    def tallies(
        self, relation: Relation, rows: pl.DataFrame, protocol: Protocol
    ) -> Mapping[Key, Tally]:
        """Every metric of a relation."""
        return self._keep(
            protocol,
            ("tallies", relation.id),
            lambda: count(self.views(relation, rows, protocol), relation),
        )

    def counts(self, kind: Cardinality, protocol: Protocol, seed: int) -> Counts:
        """Every metric of the relations of a kind, resampled."""
        return self._keep(
            protocol, ("counts", kind, seed), lambda: self._count(kind, protocol, seed)
        )

    def _count(self, kind: Cardinality, protocol: Protocol, seed: int) -> Counts:
        subjects = self.subjects(kind)
        counted: dict[str, list[ClusterCounts]] = {}
        shares: dict[str, dict[Key, Share]] = {}
        proportions: set[Key] = set()

        def of(group: tuple[Relation, pl.DataFrame]) -> None:
            relation, rows = group
            tallies = self.tallies(relation, rows, protocol)
            counted[relation.id] = [ClusterCounts(tallies, subjects[relation.id])]
            shares[relation.id] = {
                key: tally.share(empty_value(key, protocol)) for key, tally in tallies.items()
            }
            proportions.update(key for key, tally in tallies.items() if tally.is_proportion)

        for relation, _ in self.of_kind(kind):  # in their order
            counted[relation.id], shares[relation.id] = [], {}
        list(in_threads(of, self.of_kind(kind)))
        joint = self.suite.words is QUESTION_WORDS
        resampling = self.cache.resampling(subjects, seed, joint=joint)
        draws = {group: runs[0] for group, runs in resampling.draw(counted).items()}
        return Counts(shares, draws, frozenset(proportions), resampling)

    def forget(self, protocol: Protocol | None = None) -> None:
        """Drop the counts of one protocol, or of both."""
        self._kept = {
            key: counts for key, counts in self._kept.items() if protocol not in (None, key[0])
        }

    def _keep(self, protocol: Protocol, name: object, make: Callable[[], T]) -> T:
        key = protocol, name
        counted: T = self._kept[key] if key in self._kept else make()
        if self.cache.keeps:
            self._kept[key] = counted
        return counted


Answers = pl.DataFrame | Prepared
"""The answers of one run."""


def prepared(answers: Answers, suite: Suite, cache: ResampleCache | None = None) -> Prepared:
    """A table that is ready to be counted."""
    if isinstance(answers, Prepared):
        return answers
    return Prepared(as_polars(answers, "the answers table"), suite, cache)


def prepared_seeds(
    answers: Answers | Sequence[Answers], suite: Suite, cache: ResampleCache | None = None
) -> list[Prepared]:
    """The answers of one run, or of several seeds, which must be to the same questions."""
    tables: Sequence[Any] = answers if isinstance(answers, list | tuple) else [answers]
    seeds = [prepared(table, suite, cache) for table in tables]
    for other in seeds[1:]:
        refuse_other_questions(("the first run", seeds[0]), ("another run", other))
    return seeds


def refuse_other_questions(first: tuple[str, Prepared], second: tuple[str, Prepared]) -> None:
    """Raise unless two runs, each with its name, have answers to the same questions."""
    question = ["group", "item", "variant", "subject", "gold"]
    for (name, run), (other_name, other) in ((first, second), (second, first)):
        queries = run.table.select(question)
        missing = queries.join(other.table.select(question), on=question, how="anti")
        if missing.height:
            row = missing.row(0, named=True)
            raise OtherQuestionsError(
                f"{missing.height} of {queries.height} queries of {name} are not in {other_name}, "
                f"such as {row['group']}, item {row['item']}, '{row['variant']}'",
                expected="runs of the same items in the same variants",
                todo="Probe both with the same --suite, --data, --groups, --perturbations, --limit "
                "and --seed.",
            )
