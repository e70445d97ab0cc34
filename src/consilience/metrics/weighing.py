"""Hits and totals of metrics under many weightings of the clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, hstack

from consilience.metrics.bootstrap import parts_of
from consilience.metrics.grid import Floats
from consilience.metrics.tally import Tally, quotient

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
