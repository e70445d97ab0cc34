"""What numbers would have been with other subjects and relations.

Facts of one subject hang together, and so do all facts of a relation; both are drawn again as
wholes. A number of one relation varies by its subjects, a number over relations by the relations.
Where the same subjects stand in several relations, that adds what their answers have in common
(two-way clustering: Cameron, Gelbach and Miller 2011).
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consilience.metrics.agreement import Floats, Share, Tally, quotient
from consilience.metrics.statistics import CELLS, REPLICATES, Signs, resamples

Weights = npt.NDArray[np.float32]

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


def weigh(tallies: Tallies, names: Sequence[str], weights: Weights) -> dict[Key, Drawn]:
    """Every metric of a group under ``weights`` (replicate, cluster) of its subjects ``names``.

    A metric without clusters keeps its own value in all replicates.
    """
    drawn = {key: _constant(each, len(weights)) for key, each in tallies.items()}
    counts, clustered = _side_by_side(tallies, names)
    return drawn | _finished(tallies, clustered, counts, weights)


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
    scores = np.hstack([_scores(run[key], names) for key in keys for run in (first, second)])
    flipped = signs.sums(scores).T.reshape(len(keys), 4, -1)
    own = scores.sum(axis=0).reshape(len(keys), 4)
    return {key: Flipped(own[at], flipped[at]) for at, key in enumerate(keys)}


def _scores(tally: Tally, names: Sequence[str]) -> Floats:
    """What each cluster contributes to hits and total (cluster, 2), in the order of ``names``."""
    scores = np.zeros((len(names), 2))
    if tally.clusters is not None and len(tally.counts):
        at = {name: place for place, name in enumerate(names)}
        np.add.at(scores, [at[name] for name in tally.clusters], tally.scores())
    return scores


def _constant(tally: Tally, size: int) -> Drawn:
    share = tally.share()
    return Drawn(np.full(size, share.hits), np.full(size, share.total), 0)


def _side_by_side(
    tallies: Tallies, names: Sequence[str]
) -> tuple[Weights, dict[Key, tuple[slice, int]]]:
    """The counts of all tallies that have clusters (cluster, column).

    With the columns of each, which tallies of the same counts share, and how many clusters count.
    """
    blocks: dict[int, tuple[slice, int]] = {}
    counts: list[Weights] = []
    end = 0
    clustered = {key: each for key, each in tallies.items() if each.clusters is not None}
    for tally in clustered.values():
        if id(tally.counts) not in blocks:
            counts.append(by_cluster(tally, names))
            start, end = end, end + counts[-1].shape[1]
            blocks[id(tally.counts)] = slice(start, end), int(counts[-1].any(axis=1).sum())
    return np.hstack(counts), {key: blocks[id(each.counts)] for key, each in clustered.items()}


def _finished(
    tallies: Tallies,
    blocks: Mapping[Key, tuple[slice, int]],
    counts: Weights,
    weights: Weights,
) -> dict[Key, Drawn]:
    """Hits and totals of weighted ``counts`` (cluster, column)."""
    step = max(1, CELLS // counts.shape[1])
    parts: dict[Key, list[tuple[Floats, Floats]]] = {key: [] for key in blocks}
    for start in range(0, len(weights), step):
        sums = (weights[start : start + step] @ counts).astype(np.float64)
        for key, (columns, _) in blocks.items():
            parts[key].append(tallies[key].finish(sums[:, columns]))
    drawn: dict[Key, Drawn] = {}
    for key, (_, clusters) in blocks.items():
        hits, total = (np.concatenate(each) for each in zip(*parts[key], strict=True))
        drawn[key] = Drawn(hits, total, clusters)
    return drawn


def by_cluster(tally: Tally, names: Sequence[str]) -> Weights:
    """Counts summed over the units of each cluster (cluster, column), in the order of ``names``."""
    counts = np.zeros((len(names), tally.counts.shape[1]), dtype=np.float32)
    if tally.clusters is not None and len(tally.counts):
        at = {name: place for place, name in enumerate(names)}
        places = np.array([at[name] for name in tally.clusters])
        order = np.argsort(places, kind="stable")
        present, starts = np.unique(places[order], return_index=True)
        counts[present] = np.add.reduceat(tally.counts[order], starts, axis=0, dtype=np.float32)
    return counts


class Resampling:
    """Subjects and relations, drawn again and again, the same for whatever is weighed.

    ``subjects``: the subjects of each group, each once.
    """

    def __init__(self, subjects: Mapping[str, Sequence[str]], seed: int) -> None:
        self._subjects, self._seed = subjects, seed
        generator = np.random.default_rng(seed)
        shared = Counter(name for names in subjects.values() for name in names)
        self._places = {name: place for place, name in enumerate(shared)}
        self._shared: Weights | None = None
        if any(count > 1 for count in shared.values()):
            self._shared = resamples(len(shared), REPLICATES, generator)
        self._groups = list(subjects)
        self._relations = resamples(len(subjects), REPLICATES, generator)

    def draw(self, group: str, tallies: Tallies) -> dict[Key, Draws]:
        """Every metric of a group under subjects that are drawn again."""
        names = self._subjects[group]
        generator = np.random.default_rng([self._seed, zlib.crc32(group.encode())])
        within = weigh(tallies, names, resamples(len(names), REPLICATES, generator))
        across = within
        if self._shared is not None:
            shared = self._shared[:, [self._places[name] for name in names]]
            across = weigh(tallies, names, shared)
        return {key: Draws(within[key], across[key]) for key in tallies}

    def over(self, shares: Mapping[str, Share], draws: Mapping[str, Draws]) -> tuple[Spread, Drawn]:
        """How the mean over groups varies, and how all counts together vary by their subjects."""
        empty = next(iter(shares.values())).empty
        own = [Drawn(np.array([each.hits]), np.array([each.total]), 0) for each in shares.values()]
        within = [draws[group].within for group in shares]
        across = [draws[group].across for group in shares]
        relations, clusters = own, sum(not math.isnan(each.value) for each in shares.values())
        weights = self._relations[:, [self._groups.index(group) for group in shares]]
        if len(self._groups) == 1:
            relations, clusters = within, within[0].clusters
        once = np.ones((1, len(shares)), dtype=np.float32)
        ways = ((weights, relations), (once, within), (once, across))
        macro = [_macro(weights, drawn, empty) for weights, drawn in ways]
        subjects = min(sum(each.clusters for each in across), len(self._places))
        hits = np.sum([each.hits for each in across], axis=0)
        total = np.sum([each.total for each in across], axis=0)
        return Spread(macro[0], macro[1], macro[2], clusters), Drawn(hits, total, subjects)


def _macro(weights: Weights, drawn: Sequence[Drawn], empty: float) -> Floats:
    """Mean of values over groups (replicate,), of those that have one."""
    values = np.stack([each.values for each in drawn], axis=1)
    values = np.where(np.isnan(values), empty, values)
    known = (weights * ~np.isnan(values)).sum(axis=1)
    return quotient((weights * np.nan_to_num(values)).sum(axis=1), known)
