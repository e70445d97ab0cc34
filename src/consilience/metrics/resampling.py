"""Resampling groups and items, and metrics of weighed items."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, hstack
from threadpoolctl import ThreadpoolController

from consilience.core.items import Floats, Ints
from consilience.core.provenance import cores
from consilience.metrics.registry import Share, Tally, quotient
from consilience.metrics.statistics import KEPT, REPLICATES, Draws, Weights, parts_of, resamples

Hits = tuple[Floats, Floats]  # Hits and totals (replicate,)

Key = tuple[str, str]  # (metric, subset)


@dataclass(frozen=True, slots=True)
class Replicates:
    """A metric of a group under resampled clusters: hits and totals (replicate,)."""

    hits: Floats
    total: Floats
    counted: Ints  # The positions of the clusters that have counts

    @property
    def clusters(self) -> int:
        return len(self.counted)

    @property
    def values(self) -> Floats:
        """hits/total (replicate,); NaN where the total is 0."""
        return quotient(self.hits, self.total)


NONE = np.zeros(0, dtype=np.int64)

Tallies = Mapping[Key, Tally]

Finished = list[dict[Key, Hits]]  # Hits and totals of each metric, in parts of the replicates

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
        position = {name: at for at, name in enumerate(names)}
        clustered = {key: tally for key, tally in tallies.items() if tally.clusters is not None}
        matrices = {
            id(tally.clusters): cluster_matrix(cluster_positions(tally, position), len(names))
            for tally in clustered.values()
        }
        # Metrics of the same array of counts share its columns.
        once = {id(tally.counts): tally for tally in clustered.values()}
        full, sparse = [], []
        for tally in once.values():
            by_cluster = matrices[id(tally.clusters)]
            full.append(by_cluster @ tally.counts)
            has_sparse = tally.sparse is not None
            sparse.append(by_cluster @ tally.sparse if has_sparse else csr_array((len(names), 0)))
        self._sums = Sums(np.hstack(full), csr_array(hstack(sparse, format="csr")))
        ends = np.cumsum([matrix.shape[1] for matrix in (*full, *sparse)])
        places = np.split(np.arange(ends[-1]), ends[:-1])
        columns = {
            name: (
                np.concatenate([places[at], places[len(full) + at]]),
                np.flatnonzero(full[at].any(axis=1)),  # one answer alone is no pair
            )
            for at, name in enumerate(once)
        }
        self._columns = {key: columns[id(tally.counts)] for key, tally in clustered.items()}
        self.width = int(ends[-1])

    def weigh(self, parts: Iterable[Weights]) -> dict[Key, Replicates]:
        """Every metric under weights (cluster, replicate) of its clusters, given in parts."""
        return self.joined([self.finish(part) for part in parts])

    def finish(self, weights: Weights) -> Finished:
        """Hits and totals of each metric that has clusters; a part fits the processor's cache."""
        summed = self._sums(weights)
        ends = np.cumsum(list(parts_of(weights.shape[1], self.width)))
        return [self._finish_part(part) for part in np.split(summed, ends[:-1], axis=1)]

    def _finish_part(self, summed: npt.NDArray[np.floating]) -> dict[Key, Hits]:
        of_columns: dict[int, Floats] = {}
        finished: dict[Key, Hits] = {}
        for key, (columns, _) in self._columns.items():
            if id(columns) not in of_columns:
                selected = summed[self._sums.place[columns]].T
                of_columns[id(columns)] = np.ascontiguousarray(selected, dtype=np.float64)
            hits, total = self._finishers[key](of_columns[id(columns)])
            finished[key] = hits.copy(), total.copy()  # a view would keep all sums in memory
        return finished

    def joined(self, finished: Iterable[Finished]) -> dict[Key, Replicates]:
        """The results of ``finish``, with the metrics that have one value in all replicates."""
        parts = list(chain.from_iterable(finished))
        size = sum(len(next(iter(part.values()))[0]) for part in parts)
        drawn = {
            key: Replicates(np.full(size, share.hits), np.full(size, share.total), NONE)
            for key, share in self._constant.items()
        }
        for key, (_, counted) in self._columns.items():
            both = zip(*(part[key] for part in parts), strict=True)
            hits, total = (np.concatenate(of_parts) for of_parts in both)
            drawn[key] = Replicates(hits, total, counted)
        return drawn


def cluster_matrix(positions: Ints, clusters: int) -> csr_array:
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

    def __init__(self, full: npt.NDArray[np.floating], sparse: csr_array) -> None:
        """``full`` and ``sparse``, whose columns follow: (cluster, column)."""
        clusters, width = full.shape
        most = max(abs(counts).max() if 0 not in counts.shape else 0 for counts in (full, sparse))
        is_single = full.dtype == np.float32 or (full == np.rint(full)).all()
        self._type = np.float32 if is_single and clusters * most < 2**24 else np.float64
        by_column = csc_array(sparse, dtype=self._type)
        is_full = np.diff(by_column.indptr) >= DENSE * clusters
        columns = [full.T.astype(self._type), by_column[:, is_full].toarray().T]
        self._full, same = distinct(np.concatenate(columns))
        self._sparse = csr_array(by_column[:, ~is_full].T)
        self.place = np.empty(width + len(is_full), dtype=np.int64)
        self.place[:width] = same[:width]
        self.place[width:][is_full] = same[width:]
        self.place[width:][~is_full] = len(self._full) + np.arange((~is_full).sum())

    def __call__(self, weights: Weights) -> npt.NDArray[np.floating]:
        """(sum, replicate) under ``weights`` (cluster, replicate)."""
        weights = weights.astype(self._type, copy=False)
        summed: npt.NDArray[np.floating] = np.matmul(self._full, weights)
        if not self._sparse.shape[0]:
            return summed
        return np.concatenate([summed, self._sparse @ weights])


def cluster_positions(tally: Tally, position: Mapping[str, int]) -> Ints:
    """The ``position`` of each unit's cluster (unit,)."""
    names = () if tally.clusters is None else tally.clusters
    return np.array([position[name] for name in names], dtype=np.int64)


def largest_cluster(tallies: Iterable[Tally]) -> float:
    """How many times as much as the mean cluster the largest one counts in the total."""
    parts = [(one.clusters, one.scores()[:, 1]) for one in tallies if one.clusters is not None]
    if not parts:
        return 1.0
    names, sizes = (np.concatenate(of_parts) for of_parts in zip(*parts, strict=True))
    by_cluster = np.bincount(np.unique(names.astype(str), return_inverse=True)[1], sizes)
    known = np.abs(by_cluster[by_cluster != 0])
    return round(float(known.max() / known.mean()), 9) if len(known) else 1.0


def distinct(columns: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints]:
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

    within: Replicates  # Subjects are resampled independently in each group
    across: Replicates  # Subjects are resampled jointly across groups


@dataclass(frozen=True, slots=True)
class Number:
    """How a value, or the difference of two, varies."""

    replicates: Floats  # Its values when subjects or groups are resampled (replicate,)
    clusters: int  # How many of these there are
    units: int
    """How many subjects were counted; of a mean over groups the sum of those of each. Of a mean
    that does not vary, of which each group has an equal part: groups times those of the smallest,
    but each subject once."""
    ways: tuple[Floats, ...] = ()
    """Of a mean over groups: its values when groups are resampled, when the subjects of each of the
    same groups are, and when the subjects of all are jointly."""


def two_way(ways: Sequence[Floats]) -> Floats:
    """A mean under resampled groups, scaled to the variance of groups and subjects (replicate,).

    V(groups) + V(subjects, jointly) - V(subjects of each group), which is at least V(groups).
    ``ways``: see ``Number``.
    """
    of_groups, alone, jointly = (
        float(np.var(values[~np.isnan(values)])) if not np.isnan(values).all() else 0.0
        for values in ways
    )
    if jointly <= alone:
        return ways[0]
    base, variance = (ways[0], of_groups) if of_groups > 0 else (ways[2], jointly)
    middle = np.nanmean(base)
    return middle + (base - middle) * math.sqrt((of_groups + jointly - alone) / variance)


class ClusterSampler:
    """Sums over the items of resampled clusters, which ``draws`` draws.

    ``places`` (item,): the cluster of each item; every cluster has an item.
    """

    def __init__(self, draws: Draws, places: Ints) -> None:
        self._draws, self._by_cluster = draws, cluster_matrix(places, draws.clusters)

    def clusters(self, values: npt.NDArray[Any]) -> Ints:
        """How many clusters have an item with a value but 0 (column,)."""
        return np.asarray((self._by_cluster @ values.astype(np.float32) > 0).sum(axis=0))

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """Sums of whole numbers ``values`` (item, column), (column, replicate)."""
        columns = np.ascontiguousarray((self._by_cluster @ values.astype(np.float32)).T)
        parts = [columns @ part for part in self._draws.parts()]
        return np.concatenate(parts, axis=1, dtype=np.float64)


Runs = Sequence[ClusterCounts]  # The counts of a group in one run or several


class Resampling:
    """The same resamples of subjects and groups for every metric and every run.

    ``subjects``: the distinct subjects of each group. ``keep``: the resamples are kept if they fit,
    because they are needed again.
    """

    def __init__(
        self,
        subjects: Mapping[str, Sequence[str]],
        seed: int,
        *,
        keep: bool = False,
    ) -> None:
        self.subjects, self.seed = subjects, seed
        shared = Counter(name for names in subjects.values() for name in names)
        self._have_common = any(count > 1 for count in shared.values())
        self._recur = len(subjects) > 1
        self._size = len(shared)
        size = sum(map(len, subjects.values())) + self._size
        keep = keep and size * REPLICATES <= KEPT
        position = {name: at for at, name in enumerate(shared)}
        self._positions = {
            group: np.array([position[name] for name in names], dtype=np.int64)
            for group, names in subjects.items()
        }
        self._across = Draws(self._size, seed, keep=keep and self._recur)
        self._within = {
            group: Draws(len(names), [seed, zlib.crc32(group.encode())], keep=keep)
            for group, names in subjects.items()
        }
        self._relations = np.empty((0, len(subjects)), dtype=np.float32)

    def draw(self, counted: Mapping[str, Runs]) -> dict[str, list[dict[Key, TwoWayReplicates]]]:
        """Every metric of each group, of one run or several, under resampled subjects."""

        def draw_alone(group: str) -> list[dict[Key, Replicates]]:
            parts = self._within[group].parts(_width(counted[group]))
            return _joined(counted[group], [_finish(counted[group], part) for part in parts])

        def finish_group(part: Weights, group: str) -> list[Finished]:
            return _finish(counted[group], part[self._positions[group]])

        within = dict(zip(counted, in_threads(draw_alone, counted), strict=True))
        across = within
        if self._recur:
            parts = [
                list(in_threads(partial(finish_group, part), counted))
                for part in self._across.parts(max(map(_width, counted.values()), default=0))
            ]
            across = {
                group: _joined(counted[group], [of_groups[at] for of_groups in parts])
                for at, group in enumerate(counted)
            }
        if not len(self._relations):
            generator = self._across.generator
            self._relations = resamples(len(self.subjects), REPLICATES, generator)
        return {
            group: [
                {key: TwoWayReplicates(alone[key], together[key]) for key in alone}
                for alone, together in zip(within[group], across[group], strict=True)
            ]
            for group in counted
        }

    def over(
        self,
        *sides: tuple[Mapping[str, Share], Mapping[str, TwoWayReplicates]],
        weights: Sequence[float] = (),
    ) -> tuple[Number, Number]:
        """How the mean over groups varies, and how all counts together vary by their subjects.

        ``sides``: shares and draws by group; ``weights``: of their sum; without them two sides give
        their difference, second minus first, of as many subjects as the run with fewer has.
        """
        means, totals, sizes, in_groups, clusters, fewest = [], [], [], [], 0, self._size
        for shares, draws in sides:
            within = [draws[group].within for group in shares]
            across = [draws[group].across for group in shares]
            groups = list(self.subjects)
            if len(groups) == 1:
                relations = within
            else:
                relations = [
                    Replicates(np.array([share.hits]), np.array([share.total]), NONE)
                    for share in shares.values()
                ]
                clusters = sum(not math.isnan(share.value) for share in shares.values())
            drawn = self._relations[:, [groups.index(group) for group in shares]]
            once = np.ones((1, len(shares)), dtype=np.float32)
            together = across if self._have_common else within
            three = ((drawn, relations), (once, within), (once, together))
            empty = next(iter(shares.values())).empty
            means.append([_macro(each, replicates, empty) for each, replicates in three])
            hits = np.sum([group.hits for group in across], axis=0)
            totals.append(quotient(hits, np.sum([group.total for group in across], axis=0)))
            there = np.zeros(self._size, dtype=np.bool_)
            for name, group in zip(shares, across, strict=True):
                there[self._positions[name][group.counted]] = True
                fewest = min(fewest, group.clusters or fewest)
            sizes.append(int(there.sum()))
            in_groups.append(sum(group.clusters for group in across))

        def weighted(parts: Iterable[Floats]) -> Floats:
            of_sides = weights or (-1.0, 1.0)[-len(sides) :]
            return np.asarray(sum(w * part for w, part in zip(of_sides, parts, strict=True)))

        ways, total = tuple(map(weighted, zip(*means, strict=True))), weighted(totals)
        size, units = min(sizes), min(in_groups)
        if len(self.subjects) == 1:
            clusters = units = size
        elif not any(np.nanvar(way) > 0 for way in ways if not np.isnan(way).all()):
            units = min(size, clusters * fewest)  # of the smallest group nothing is known but these
        return Number(two_way(ways), clusters, units, ways), Number(total, size, size)


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries that start threads; finding them takes milliseconds."""
    return ThreadpoolController()


def in_threads(work: Callable[[T], S], items: Iterable[T], most: int | None = None) -> Iterator[S]:
    """The results of ``work`` on each item, in their order, in at most ``most`` threads.

    Matrix products are single-threaded meanwhile, because threads slow down those of small arrays.
    """
    workers = ThreadPoolExecutor(min(most or cores(), cores()))
    with _libraries().limit(limits=1, user_api="blas"), workers as pool:
        yield from pool.map(work, items)


def _width(runs: Runs) -> int:
    """The greatest number of columns."""
    return max(counts.width for counts in runs)


def _finish(runs: Runs, weights: Weights) -> list[Finished]:
    return [counts.finish(weights) for counts in runs]


def _joined(runs: Runs, parts: Sequence[Sequence[Finished]]) -> list[dict[Key, Replicates]]:
    return [counts.joined(part[at] for part in parts) for at, counts in enumerate(runs)]


def _macro(weights: Weights, groups: Sequence[Replicates], empty: float) -> Floats:
    """The mean of the values of groups that have data (replicate,)."""
    values = np.stack([group.values for group in groups], axis=1)
    values = np.where(np.isnan(values), empty, values)
    known = (weights * ~np.isnan(values)).sum(axis=1)
    return quotient((weights * np.nan_to_num(values)).sum(axis=1), known)
