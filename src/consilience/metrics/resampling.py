"""Resampling groups and items, and metrics of weighed items."""

from __future__ import annotations

import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, hstack
from threadpoolctl import ThreadpoolController

from consilience.metrics.grid import Floats
from consilience.metrics.registry import Share, Tally, quotient
from consilience.metrics.statistics import (
    KEPT,
    REPLICATES,
    draw_counts,
    in_parts,
    parts_of,
    resamples,
    resamples_in_parts,
)

Weights = npt.NDArray[np.float32]

Hits = tuple[Floats, Floats]
"""Hits and totals (replicate,)."""

Key = tuple[str, str]
"""(metric, subset)"""


@dataclass(frozen=True, slots=True)
class Replicates:
    """A metric of a group under resampled clusters."""

    hits: Floats
    """Its hits (replicate,)."""
    total: Floats
    """Its totals (replicate,)."""
    clusters: int

    @property
    def values(self) -> Floats:
        """hits/total (replicate,); NaN where the total is 0."""
        return quotient(self.hits, self.total)

    def __add__(self, other: Replicates) -> Replicates:
        return Replicates(self.hits + other.hits, self.total + other.total, self.clusters)


Tallies = Mapping[Key, Tally]

DENSE = 0.1
"""Share of clusters above which a column is faster to sum with its zeros than without them."""


class ClusterCounts:
    """The counts of tallies by cluster, ready to be summed under many weightings.

    ``width``: the number of columns.
    """

    def __init__(self, tallies: Tallies, names: Sequence[str]) -> None:
        """``names``: the clusters. A tally without clusters has one value in all replicates."""
        self._finishers = {key: tally.finish for key, tally in tallies.items()}
        self._constant = {
            key: tally.share() for key, tally in tallies.items() if tally.clusters is None
        }
        clustered = {key: tally for key, tally in tallies.items() if tally.clusters is not None}
        position = {name: at for at, name in enumerate(names)}
        grouped = {
            id(tally.clusters): cluster_matrix(cluster_positions(tally, position), len(names))
            for tally in clustered.values()
        }
        # Metrics of the same array of counts share its columns.
        once = {id(tally.counts): tally for tally in clustered.values()}
        full = {name: grouped[id(tally.clusters)] @ tally.counts for name, tally in once.items()}
        sparse = {
            name: grouped[id(tally.clusters)] @ tally.sparse
            for name, tally in once.items()
            if tally.sparse is not None
        }
        self._sums = Sums(
            np.hstack(list(full.values())),
            csr_array(hstack(list(sparse.values()), format="csr")) if sparse else None,
        )
        columns: dict[int, tuple[npt.NDArray[np.int64], int]] = {}
        start, after = 0, sum(counts.shape[1] for counts in full.values())
        for name, counts in full.items():
            places, counted = np.arange(start, start + counts.shape[1]), counts.any(axis=1)
            start += counts.shape[1]
            if name in sparse:
                more = sparse[name]
                places = np.concatenate([places, np.arange(after, after + more.shape[1])])
                counted |= np.diff(more.indptr) > 0
                after += more.shape[1]
            columns[name] = places, int(counted.sum())
        self._columns = {key: columns[id(tally.counts)] for key, tally in clustered.items()}
        self.width = after

    def weigh(self, parts: Iterable[Weights]) -> dict[Key, Replicates]:
        """Every metric under weights (cluster, replicate) of its clusters, given in parts.

        A metric without clusters keeps its own value in all replicates.
        """
        return self.joined([self.finish(part) for part in parts])

    def finish(self, weights: Weights) -> dict[Key, Hits]:
        """Hits and totals (replicate,) of each metric under ``weights`` (cluster, replicate)."""
        summed = self._sums(weights)
        sizes = list(parts_of(weights.shape[1], self.width))
        parts = [
            self._finish_part(part) for part in np.split(summed, np.cumsum(sizes)[:-1], axis=1)
        ]
        if len(parts) == 1:
            return parts[0]
        return {
            key: (
                np.concatenate([part[key][0] for part in parts]),
                np.concatenate([part[key][1] for part in parts]),
            )
            for key in parts[0]
        }

    def _finish_part(self, summed: npt.NDArray[np.floating]) -> dict[Key, Hits]:
        """The same for sums (sum, replicate) that fit the processor's cache."""
        of_columns: dict[int, Floats] = {}
        finished: dict[Key, Hits] = {}
        for key, (columns, _) in self._columns.items():
            if id(columns) not in of_columns:
                selected = summed[self._sums.place[columns]].T
                of_columns[id(columns)] = np.ascontiguousarray(selected, dtype=np.float64)
            hits, total = self._finishers[key](of_columns[id(columns)])
            finished[key] = hits.copy(), total.copy()  # a view would keep all sums in memory
        return finished

    def joined(self, parts: Sequence[Mapping[Key, Hits]]) -> dict[Key, Replicates]:
        size = sum(len(next(iter(part.values()))[0]) for part in parts)
        drawn = {
            key: Replicates(np.full(size, constant.hits), np.full(size, constant.total), 0)
            for key, constant in self._constant.items()
        }
        for key, (_, clusters) in self._columns.items():
            both = zip(*(part[key] for part in parts), strict=True)
            hits, total = (np.concatenate(constant) for constant in both)
            drawn[key] = Replicates(hits, total, clusters)
        return drawn


def cluster_matrix(positions: npt.NDArray[np.int64], clusters: int) -> csr_array:
    """The matrix (cluster, unit) that sums units by their clusters, at ``positions`` (unit,)."""
    units = len(positions)
    ones = np.ones(units, dtype=np.float32)
    return csr_array((ones, (positions, np.arange(units))), shape=(clusters, units))


class Sums:
    """Sums of columns under weights of their rows, the clusters.

    Equal columns are summed once, and columns with few nonzero counts are sparse. Whole numbers
    below 2^24 are exact in single precision in any order of addition. ``place`` (column,): the
    position of a column's sum.
    """

    def __init__(self, full: Weights, sparse: csr_array | None) -> None:
        """``full`` and ``sparse``, whose columns follow: (cluster, column)."""
        clusters, width = full.shape
        most = [
            abs(counts).max() for counts in (full, sparse) if counts is not None and counts.size
        ]
        self._type = np.float32 if clusters * max(most, default=0) < 2**24 else np.float64
        columns = np.ascontiguousarray(full.T, dtype=self._type)
        is_full = np.zeros(0, dtype=np.bool_)
        self._sparse = None
        if sparse is not None:
            by_column = csc_array(sparse, dtype=self._type)
            is_full = np.diff(by_column.indptr) >= DENSE * clusters
            columns = np.concatenate([columns, by_column[:, is_full].toarray().T])
            self._sparse = csr_array(by_column[:, ~is_full].T)
        self._full, same = distinct(columns)
        self.place = np.empty(width + len(is_full), dtype=np.int64)
        self.place[:width] = same[:width]
        self.place[width:][is_full] = same[width:]
        self.place[width:][~is_full] = len(self._full) + np.arange((~is_full).sum())

    def __call__(self, weights: Weights) -> npt.NDArray[np.floating]:
        """(sum, replicate) under ``weights`` (cluster, replicate)."""
        weights = weights.astype(self._type, copy=False)
        summed: npt.NDArray[np.floating] = np.matmul(self._full, weights)
        return summed if self._sparse is None else np.concatenate([summed, self._sparse @ weights])


def cluster_positions(tally: Tally, position: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The ``position`` of each unit's cluster (unit,)."""
    names = () if tally.clusters is None else tally.clusters
    return np.array([position[name] for name in names], dtype=np.int64)


def distinct(columns: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The distinct ones of columns (column, row), and the position of each among them (column,)."""
    once: dict[bytes, int] = {}
    same = np.array(
        [once.setdefault(column.tobytes(), len(once)) for column in columns], dtype=np.int64
    )
    return columns[np.unique(same, return_index=True)[1]], same


S = TypeVar("S")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TwoWayReplicates:
    """A metric of a group under two ways to resample subjects."""

    within: Replicates
    """Subjects are resampled independently in each group."""
    across: Replicates
    """Subjects are resampled jointly across groups."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over groups under three bootstrap schemes (replicate,)."""

    relations: Floats
    """Groups are resampled."""
    within: Floats
    """Subjects are resampled independently in each group."""
    across: Floats
    """Subjects are resampled jointly across groups."""
    clusters: int
    """How many groups have data."""

    def __sub__(self, other: Spread) -> Spread:
        return Spread(
            self.relations - other.relations,
            self.within - other.within,
            self.across - other.across,
            self.clusters,
        )

    @property
    def replicates(self) -> Floats:
        """``relations``, scaled to the variance V(relations) + V(across) - V(within).

        The variance is at least V(relations).
        """
        relations, within, across = (
            float(np.var(values[~np.isnan(values)])) if not np.isnan(values).all() else 0.0
            for values in (self.relations, self.within, self.across)
        )
        if relations == 0 or across <= within:
            return self.relations
        middle = np.nanmean(self.relations)
        return middle + (self.relations - middle) * math.sqrt(1 + (across - within) / relations)


class ClusterSampler:
    """Sums over the items of resampled clusters.

    ``draw`` gives how often each cluster was drawn (cluster, replicate), in parts. ``places``
    (item,): the cluster of each item; every cluster has an item.
    """

    def __init__(
        self,
        draw: Callable[[], Iterable[npt.NDArray[Any]]],
        places: npt.NDArray[np.int64],
    ) -> None:
        self._draw = draw
        self._by_cluster = cluster_matrix(places, int(places.max(initial=-1)) + 1)

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """Sums of whole numbers ``values`` (item, column), (column, replicate)."""
        columns = np.ascontiguousarray((self._by_cluster @ values.astype(np.float32)).T)
        parts = [columns @ part.astype(np.float32, copy=False) for part in self._draw()]
        return np.concatenate(parts, axis=1, dtype=np.float64)


class Resampling:
    """The same resamples of subjects and groups for every metric and every run.

    ``subjects``: the distinct subjects of each group. ``keep``: the resamples are kept if they fit,
    because they are needed again. ``joint``: the subjects are a sample of their own, not one for
    each group, so all counts together vary as if there were no groups; the groups of questions may
    be as small as one.
    """

    def __init__(
        self,
        subjects: Mapping[str, Sequence[str]],
        seed: int,
        *,
        keep: bool = False,
        joint: bool = False,
    ) -> None:
        self.subjects, self.seed = subjects, seed
        shared = Counter(name for names in subjects.values() for name in names)
        self._have_common = any(count > 1 for count in shared.values())
        self._recur = (joint and len(subjects) > 1) or self._have_common
        position = {name: at for at, name in enumerate(shared)} if self._recur else {}
        self._size = len(shared)
        self._positions = {
            group: np.array([position[name] for name in names], dtype=np.int64)
            for group, names in subjects.items()
            if self._recur
        }
        size = sum(map(len, subjects.values())) + self._size
        self._kept: dict[str, npt.NDArray[np.uint8]] | None = None
        if keep and size * REPLICATES <= KEPT:
            self._kept = {}
        self._relations = np.empty((0, len(subjects)), dtype=np.float32)

    def draw(
        self, counted: Mapping[str, Sequence[ClusterCounts]]
    ) -> dict[str, list[dict[Key, TwoWayReplicates]]]:
        """Every metric of each group, of one run or several, under resampled subjects."""

        def of_group(group: str, parts: Iterable[Weights]) -> list[dict[Key, Replicates]]:
            return _weigh_all({group: counted[group]}, ({group: part} for part in parts))[group]

        def draw_alone(group: str) -> list[dict[Key, Replicates]]:
            return of_group(group, self._within(group, _width({group: counted[group]})))

        def draw_together(group: str) -> list[dict[Key, Replicates]]:
            weights = every[self._positions[group]]
            return of_group(group, in_parts(weights, _width({group: counted[group]})))

        within = dict(zip(counted, in_threads(draw_alone, counted), strict=True))
        across = within
        generator = np.random.default_rng(self.seed)
        if self._recur and self._kept is None:
            parts = resamples_in_parts(self._size, REPLICATES, generator, _width(counted))
            shared = ({group: part[self._positions[group]] for group in counted} for part in parts)
            across = _weigh_all(counted, shared)
        elif self._recur:
            every = self._keep("across", self._size, generator)
            across = dict(zip(counted, in_threads(draw_together, counted), strict=True))
        if not len(self._relations):
            self._relations = resamples(len(self.subjects), REPLICATES, generator)
        return {
            group: [
                {key: TwoWayReplicates(alone[key], together[key]) for key in alone}
                for alone, together in zip(within[group], across[group], strict=True)
            ]
            for group in counted
        }

    def _within(self, group: str, width: int) -> Iterator[Weights]:
        """How often each subject of a group was drawn (subject, replicate), in parts."""
        generator = np.random.default_rng([self.seed, zlib.crc32(group.encode())])
        size = len(self.subjects[group])
        if self._kept is not None:
            return in_parts(self._keep(f"within {group}", size, generator), width)
        return resamples_in_parts(size, REPLICATES, generator, width)

    def _keep(
        self, name: str, clusters: int, generator: np.random.Generator
    ) -> npt.NDArray[np.uint8]:
        """How often each cluster was drawn (cluster, replicate), the same for the same name."""
        if self._kept is None:
            raise ValueError("nothing is kept")
        if name not in self._kept:
            self._kept[name] = draw_counts(clusters, generator)
        return self._kept[name]

    def over(
        self, shares: Mapping[str, Share], draws: Mapping[str, TwoWayReplicates]
    ) -> tuple[Spread, Replicates]:
        """How the mean over groups varies, and how all counts together vary by their subjects."""
        empty = next(iter(shares.values())).empty
        observed = [
            Replicates(np.array([share.hits]), np.array([share.total]), 0)
            for share in shares.values()
        ]
        within = [draws[group].within for group in shares]
        across = [draws[group].across for group in shares]
        has_data = [not math.isnan(share.value) for share in shares.values()]
        relations, clusters = observed, sum(has_data)
        groups = list(self.subjects)
        weights = self._relations[:, [groups.index(group) for group in shares]]
        if len(groups) == 1:
            relations, clusters = within, within[0].clusters
        once = np.ones((1, len(shares)), dtype=np.float32)
        together = across if self._have_common else within
        ways = ((weights, relations), (once, within), (once, together))
        macro = [_macro(weights, replicates, empty) for weights, replicates in ways]
        subjects = min(sum(group.clusters for group in across), self._size)
        hits = np.sum([group.hits for group in across], axis=0)
        total = np.sum([group.total for group in across], axis=0)
        return Spread(macro[0], macro[1], macro[2], clusters), Replicates(hits, total, subjects)


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries that start threads; finding them takes milliseconds."""
    return ThreadpoolController()


def in_threads(work: Callable[[T], S], items: Iterable[T]) -> Iterator[S]:
    """The results of ``work`` on each item, in their order.

    Matrix products are single-threaded meanwhile, because threads slow down those of small arrays.
    """
    with _libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(work, items)


def _width(counted: Mapping[str, Sequence[ClusterCounts]]) -> int:
    """The greatest number of columns."""
    return max((counts.width for runs in counted.values() for counts in runs), default=0)


def _weigh_all(
    counted: Mapping[str, Sequence[ClusterCounts]], parts: Iterable[Mapping[str, Weights]]
) -> dict[str, list[dict[Key, Replicates]]]:
    """Every metric of each run of each group; ``parts``: weights of some replicates, by group."""
    finished: dict[str, list[list[dict[Key, Hits]]]]
    finished = {group: [[] for _ in runs] for group, runs in counted.items()}
    for part in parts:

        def finish(group: str, part: Mapping[str, Weights] = part) -> None:
            for counts, hits in zip(counted[group], finished[group], strict=True):
                hits.append(counts.finish(part[group]))

        list(map(finish, counted) if len(counted) == 1 else in_threads(finish, counted))
    return {
        group: [counts.joined(hits) for counts, hits in zip(runs, finished[group], strict=True)]
        for group, runs in counted.items()
    }


def _macro(weights: Weights, groups: Sequence[Replicates], empty: float) -> Floats:
    """The mean of the values of groups that have data (replicate,)."""
    values = np.stack([group.values for group in groups], axis=1)
    values = np.where(np.isnan(values), empty, values)
    known = (weights * ~np.isnan(values)).sum(axis=1)
    return quotient((weights * np.nan_to_num(values)).sum(axis=1), known)
