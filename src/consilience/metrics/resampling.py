"""What numbers would have been with other subjects and relations.

Facts of one subject hang together, and so do all facts of a relation; both are drawn again as
wholes. A number of one relation varies by its subjects, a number over relations by the relations.
Where the same subjects stand in several relations, that adds what their answers have in common
(two-way clustering: Cameron, Gelbach and Miller 2011).
"""

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
from consilience.metrics.statistics import (
    KEPT,
    REPLICATES,
    Signs,
    drawn,
    in_parts,
    parts_of,
    resamples,
    resamples_in_parts,
)
from consilience.metrics.tally import Share, Tally, quotient

S = TypeVar("S")
T = TypeVar("T")

Weights = npt.NDArray[np.float32]
Hits = tuple[Floats, Floats]
"""Hits and totals (replicate,)."""

Key = tuple[str, str]
"""(metric, subset)"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Hits and totals (replicate,) of a metric in a group, and of how many clusters."""

    hits: Floats
    total: Floats
    clusters: int

    @property
    def values(self) -> Floats:
        """hits/total (replicate,); NaN where the total is 0."""
        return quotient(self.hits, self.total)

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.hits + other.hits, self.total + other.total, self.clusters)


@dataclass(frozen=True, slots=True)
class Draws:
    """A metric of a group ``within`` which subjects were drawn, and when drawn for all groups."""

    within: Drawn
    across: Drawn


@dataclass(frozen=True, slots=True)
class Spread:
    """Replicates (replicate,) of a number over groups, of ``clusters`` groups that have data.

    Drawn again were the groups (``relations``), the subjects of each group for themselves
    (``within``), the subjects of all groups together (``across``).
    """

    relations: Floats
    within: Floats
    across: Floats
    clusters: int

    def __sub__(self, other: Spread) -> Spread:
        return Spread(
            self.relations - other.relations,
            self.within - other.within,
            self.across - other.across,
            self.clusters,
        )

    @property
    def replicates(self) -> Floats:
        """``relations``, stretched by what recurring subjects have in common.

        The variance is V(relations) + V(across) - V(within), and at least V(relations).
        """
        relations, within, across = (
            float(np.var(each[~np.isnan(each)])) if not np.isnan(each).all() else 0.0
            for each in (self.relations, self.within, self.across)
        )
        if relations == 0 or across <= within:
            return self.relations
        middle = np.nanmean(self.relations)
        return middle + (self.relations - middle) * math.sqrt(1 + (across - within) / relations)


Tallies = Mapping[Key, Tally]

DENSE = 0.1
"""Share of clusters above which a column is faster to sum with its zeros than without them."""


class Counted:
    """What tallies count, by cluster, ready to be summed under many weightings of the clusters.

    ``width``: how many columns they have.
    """

    def __init__(self, tallies: Tallies, names: Sequence[str]) -> None:
        """``names``: the clusters. Tallies that have no clusters keep their own values."""
        self._finishers = {key: each.finish for key, each in tallies.items()}
        self._constant = {
            key: each.share() for key, each in tallies.items() if each.clusters is None
        }
        clustered = {key: each for key, each in tallies.items() if each.clusters is not None}
        place = {name: at for at, name in enumerate(names)}
        grouped = {id(each.clusters): _Grouped(each, place) for each in clustered.values()}
        once = {id(each.counts): each for each in clustered.values()}  # some share their counts
        full = {name: grouped[id(each.clusters)].full(each.counts) for name, each in once.items()}
        sparse = {
            name: grouped[id(each.clusters)].sparse(each.sparse)
            for name, each in once.items()
            if each.sparse is not None
        }
        self._sums = Sums(
            np.hstack(list(full.values())),
            csr_array(hstack(list(sparse.values()), format="csr")) if sparse else None,
        )
        columns: dict[int, tuple[npt.NDArray[np.int64], int]] = {}
        start, after = 0, sum(counts.shape[1] for counts in full.values())
        for name, counts in full.items():
            own, counted = np.arange(start, start + counts.shape[1]), counts.any(axis=1)
            start += counts.shape[1]
            if name in sparse:
                more = sparse[name]
                own = np.concatenate([own, np.arange(after, after + more.shape[1])])
                counted |= np.diff(more.indptr) > 0
                after += more.shape[1]
            columns[name] = own, int(counted.sum())
        self._columns = {key: columns[id(each.counts)] for key, each in clustered.items()}
        self.width = after

    def weigh(self, parts: Iterable[Weights]) -> dict[Key, Drawn]:
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
        """The same of sums (sum, replicate) that fit the processor's cache."""
        of_columns: dict[int, Floats] = {}
        found: dict[Key, Hits] = {}
        for key, (columns, _) in self._columns.items():
            if id(columns) not in of_columns:
                own = summed[self._sums.place[columns]].T
                of_columns[id(columns)] = np.ascontiguousarray(own, dtype=np.float64)
            hits, total = self._finishers[key](of_columns[id(columns)])
            found[key] = hits.copy(), total.copy()  # what is a part of the sums keeps all of them
        return found

    def joined(self, parts: Sequence[Mapping[Key, Hits]]) -> dict[Key, Drawn]:
        """The replicates of all parts."""
        size = sum(len(next(iter(part.values()))[0]) for part in parts)
        drawn = {
            key: Drawn(np.full(size, each.hits), np.full(size, each.total), 0)
            for key, each in self._constant.items()
        }
        for key, (_, clusters) in self._columns.items():
            both = zip(*(part[key] for part in parts), strict=True)
            hits, total = (np.concatenate(each) for each in both)
            drawn[key] = Drawn(hits, total, clusters)
        return drawn


class _Grouped:
    """Sums counts (unit, column) over the units of each cluster (cluster, column)."""

    def __init__(self, tally: Tally, place: Mapping[str, int]) -> None:
        self._clusters = len(place)
        self._places = _places(tally, place)
        self._order = np.argsort(self._places, kind="stable")
        self._present, self._starts = np.unique(self._places[self._order], return_index=True)

    def full(self, counts: Weights) -> Weights:
        """Of an array."""
        summed = np.zeros((self._clusters, counts.shape[1]), dtype=np.float32)
        if len(counts):
            ordered = counts[self._order]
            summed[self._present] = np.add.reduceat(ordered, self._starts, dtype=np.float32)
        return summed

    def sparse(self, counts: csr_array) -> csr_array:
        """Of a sparse array."""
        ones = np.ones(len(self._places), dtype=np.float32)
        where = self._places, np.arange(len(self._places))
        return csr_array((ones, where), shape=(self._clusters, len(self._places))) @ counts


class Sums:
    """Sums of columns under weights of their rows, which are clusters.

    Columns that are the same are summed once, and those that are mostly 0 without the zeros. Whole
    numbers below 2^24 are exact in single precision, in whatever order they are added.
    ``place`` (column,): which of the sums is that of a column.
    """

    def __init__(self, full: Weights, sparse: csr_array | None) -> None:
        """``full`` and ``sparse``, whose columns follow: (cluster, column)."""
        clusters, width = full.shape
        most = [abs(each).max() for each in (full, sparse) if each is not None and each.size]
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


class Resampled:
    """Resampled clusters, and sums over their items.

    ``draw`` gives how often each cluster was drawn (cluster, replicate), in parts; ``places``
    (item,): the cluster of each item, of which each has one.
    """

    def __init__(
        self,
        draw: Callable[[], Iterable[npt.NDArray[Any]]],
        places: npt.NDArray[np.int64],
    ) -> None:
        self._draw = draw
        self._order = np.argsort(places, kind="stable")
        self._starts = np.unique(places[self._order], return_index=True)[1]

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """Sums of whole numbers ``values`` (item, column), (column, replicate)."""
        ordered = values[self._order].astype(np.float32)
        columns = np.ascontiguousarray(np.add.reduceat(ordered, self._starts, axis=0).T)
        parts = [columns @ part.astype(np.float32, copy=False) for part in self._draw()]
        return np.concatenate(parts, axis=1, dtype=np.float64)


def weigh(tallies: Tallies, names: Sequence[str], weights: Weights) -> dict[Key, Drawn]:
    """Every metric of a group under ``weights`` (replicate, cluster) of its subjects ``names``."""
    counted = Counted(tallies, names)
    sizes = list(parts_of(len(weights), max(len(names), counted.width)))
    parts = np.split(weights.T, np.cumsum(sizes)[:-1], axis=1)
    return counted.weigh(np.ascontiguousarray(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Flipped:
    """Hits and total of the first run, then of the second: ``own`` (4,) as they are.

    ``flipped`` (4, permutation): when what each subject contributes keeps or changes its sign.
    """

    own: Floats
    flipped: Floats

    def __add__(self, other: Flipped) -> Flipped:
        return Flipped(self.own + other.own, self.flipped + other.flipped)

    def differences(self) -> Floats:
        """The difference of hits/total, second minus first, under each flip (permutation,).

        With the common value theta = all hits / all totals, a run with total T is off by
        ``sum_i (h_i - theta t_i) / T``; each subject's part of this, in both runs, changes its
        sign. Without flips this is the difference itself. NaN where a total is 0.
        """
        hits, totals = self.own[::2], self.own[1::2]
        if totals.min() <= 0:
            return np.full(self.flipped.shape[1], np.nan)
        common = hits.sum() / totals.sum()
        off = (self.flipped[::2] - common * self.flipped[1::2]) / totals[:, None]
        difference: Floats = off[1] - off[0]
        return difference


def flip(first: Tallies, second: Tallies, names: Sequence[str], signs: Signs) -> dict[Key, Flipped]:
    """Every metric of two runs under ``signs`` of the subjects ``names``.

    Without the metrics that have no clusters.
    """
    keys = [key for key, tally in first.items() if tally.clusters is not None]
    place = {name: at for at, name in enumerate(names)}
    runs = [run[key] for key in keys for run in (first, second)]
    places = {id(each.clusters): _places(each, place) for each in runs}
    scores = np.stack(
        [
            np.bincount(places[id(each.clusters)], column, minlength=len(names))
            for each in runs
            for column in each.scores().T
        ]
    )
    columns, same = distinct(scores)
    flipped = signs.sums(np.ascontiguousarray(columns.T)).T[same].reshape(len(keys), 4, -1)
    own = scores.sum(axis=1).reshape(len(keys), 4)
    return {key: Flipped(own[at], flipped[at]) for at, key in enumerate(keys)}


def _places(tally: Tally, place: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The ``place`` of each unit's cluster (unit,)."""
    names = () if tally.clusters is None else tally.clusters
    return np.array([place[name] for name in names], dtype=np.int64)


def distinct(columns: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Columns (column, row), each once, and which of them each column is (column,)."""
    once: dict[bytes, int] = {}
    same = np.array(
        [once.setdefault(each.tobytes(), len(once)) for each in columns], dtype=np.int64
    )
    return columns[np.unique(same, return_index=True)[1]], same


class Resampling:
    """Subjects and relations, resampled the same way for whatever is weighed.

    ``subjects``: the subjects of each group, each once. ``keep``: what was drawn is kept where it
    fits, because it is needed again.
    """

    def __init__(
        self, subjects: Mapping[str, Sequence[str]], seed: int, *, keep: bool = False
    ) -> None:
        self.subjects, self.seed = subjects, seed
        shared = Counter(name for names in subjects.values() for name in names)
        self._recur = any(count > 1 for count in shared.values())
        place = {name: at for at, name in enumerate(shared)} if self._recur else {}
        self._size = len(shared)
        self._places = {
            group: np.array([place[name] for name in names], dtype=np.int64)
            for group, names in subjects.items()
            if self._recur
        }
        size = sum(map(len, subjects.values())) + self._size
        self._kept: dict[str, npt.NDArray[np.uint8]] | None = None
        if keep and size * REPLICATES <= KEPT:
            self._kept = {}
        self._relations = np.empty((0, len(subjects)), dtype=np.float32)

    def draw(self, counted: Mapping[str, Sequence[Counted]]) -> dict[str, list[dict[Key, Draws]]]:
        """Every metric of each group, of one run or several, under resampled subjects."""

        def of_group(group: str, parts: Iterable[Weights]) -> list[dict[Key, Drawn]]:
            return _weigh_all({group: counted[group]}, ({group: part} for part in parts))[group]

        def alone(group: str) -> list[dict[Key, Drawn]]:
            return of_group(group, self._within(group, _width({group: counted[group]})))

        def together(group: str) -> list[dict[Key, Drawn]]:
            weights = every[self._places[group]]
            return of_group(group, in_parts(weights, _width({group: counted[group]})))

        within = dict(zip(counted, in_threads(alone, counted), strict=True))
        across = within
        generator = np.random.default_rng(self.seed)
        if self._recur and self._kept is None:
            parts = resamples_in_parts(self._size, REPLICATES, generator, _width(counted))
            shared = ({group: part[self._places[group]] for group in counted} for part in parts)
            across = _weigh_all(counted, shared)
        elif self._recur:
            every = self._keep("across", self._size, generator)
            across = dict(zip(counted, in_threads(together, counted), strict=True))
        if not len(self._relations):
            self._relations = resamples(len(self.subjects), REPLICATES, generator)
        return {
            group: [
                {key: Draws(each, other[key]) for key, each in own.items()}
                for own, other in zip(within[group], across[group], strict=True)
            ]
            for group in counted
        }

    def _within(self, group: str, width: int) -> Iterator[Weights]:
        """Subjects of a group (subject, replicate), drawn for themselves, in parts."""
        generator = np.random.default_rng([self.seed, zlib.crc32(group.encode())])
        size = len(self.subjects[group])
        if self._kept is not None:
            return in_parts(self._keep(f"within {group}", size, generator), width)
        return resamples_in_parts(size, REPLICATES, generator, width)

    def _keep(
        self, name: str, clusters: int, generator: np.random.Generator
    ) -> npt.NDArray[np.uint8]:
        """What was drawn under a name, now or earlier (cluster, replicate)."""
        if self._kept is None:
            raise ValueError("nothing is kept")
        if name not in self._kept:
            self._kept[name] = drawn(clusters, generator)
        return self._kept[name]

    def over(self, shares: Mapping[str, Share], draws: Mapping[str, Draws]) -> tuple[Spread, Drawn]:
        """How the mean over groups varies, and how all counts together vary by their subjects."""
        empty = next(iter(shares.values())).empty
        own = [Drawn(np.array([each.hits]), np.array([each.total]), 0) for each in shares.values()]
        within = [draws[group].within for group in shares]
        across = [draws[group].across for group in shares]
        relations, clusters = own, sum(not math.isnan(each.value) for each in shares.values())
        groups = list(self.subjects)
        weights = self._relations[:, [groups.index(group) for group in shares]]
        if len(groups) == 1:
            relations, clusters = within, within[0].clusters
        once = np.ones((1, len(shares)), dtype=np.float32)
        ways = ((weights, relations), (once, within), (once, across))
        macro = [_macro(weights, drawn, empty) for weights, drawn in ways]
        subjects = min(sum(each.clusters for each in across), self._size)
        hits = np.sum([each.hits for each in across], axis=0)
        total = np.sum([each.total for each in across], axis=0)
        return Spread(macro[0], macro[1], macro[2], clusters), Drawn(hits, total, subjects)


@cache
def _libraries() -> ThreadpoolController:
    """The libraries with threads of their own; to find them takes milliseconds."""
    return ThreadpoolController()


def in_threads(work: Callable[[T], S], items: Iterable[T]) -> Iterator[S]:
    """The results of ``work`` on each item, in their order.

    Meanwhile no product has threads of its own: those of small arrays cost more than they gain.
    """
    with _libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(work, items)


def _width(counted: Mapping[str, Sequence[Counted]]) -> int:
    """The most columns that any of them has."""
    return max((each.width for runs in counted.values() for each in runs), default=0)


def _weigh_all(
    counted: Mapping[str, Sequence[Counted]], parts: Iterable[Mapping[str, Weights]]
) -> dict[str, list[dict[Key, Drawn]]]:
    """Every metric of each run of each group; ``parts``: of some replicates, weights by group."""
    found: dict[str, list[list[dict[Key, Hits]]]]
    found = {group: [[] for _ in runs] for group, runs in counted.items()}
    for part in parts:

        def finish(group: str, part: Mapping[str, Weights] = part) -> None:
            for each, kept in zip(counted[group], found[group], strict=True):
                kept.append(each.finish(part[group]))

        list(map(finish, counted) if len(counted) == 1 else in_threads(finish, counted))
    return {
        group: [each.joined(kept) for each, kept in zip(runs, found[group], strict=True)]
        for group, runs in counted.items()
    }


def _macro(weights: Weights, drawn: Sequence[Drawn], empty: float) -> Floats:
    """Mean of values over groups (replicate,), of those that have one."""
    values = np.stack([each.values for each in drawn], axis=1)
    values = np.where(np.isnan(values), empty, values)
    known = (weights * ~np.isnan(values)).sum(axis=1)
    return quotient((weights * np.nan_to_num(values)).sum(axis=1), known)
