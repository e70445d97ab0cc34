"""How precise a number is: what each subject and each group contributes to it.

A number is hits/total, or a mean of such numbers over groups, or a difference of two. The
*influence* of a cluster says how far its answers move the number, to first order: ``psi_c =
sum_i in c (h_i - v t_i) / T``. Without it the number is ``v - psi_c / (1 - s_c)``, with the share
``s_c = t_c / T``. The standard error is that of the jackknife over clusters (Efron
and Stein 1981; *CR3* of Bell and McCaffrey 2002): ``SE^2 = (n - 1) / n sum_c (psi_c / (1 -
s_c))^2``. Where all clusters are alike this is ``n / (n - 1) sum_c psi_c^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from scipy.special import stdtr

from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.registry import ENOUGH, Clusters, Tally, quotient, share_of
from consilience.metrics.statistics import (
    LEVEL,
    NAN,
    TIE,
    Bounds,
    binomial_interval,
    difference_interval,
    logit_interval,
    with_two_more,
)

Tallies = Mapping[str, Tally]
"""What a metric counts in each group, by the group."""

Terms = Sequence[tuple[float, Tallies]]
"""A number as a weighted sum: of one run ``[(1, run)]``, a difference of two ``[(-1, first), (1,
second)]``."""

Parts = tuple[Floats, Sequence[tuple[Ints, Floats]]]
"""A number in several counts (count,), and clusters with their influences (cluster, count)."""

ROUNDING = 1e-9  # By how much of itself a sum of squares may be larger by rounding


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error."""

    value: float
    error: float  # 0 where nothing varies; NaN where it is not known
    n_clusters: int  # How many subjects it depends on; of a mean over groups how many groups
    n: int  # How many things were counted; of a mean over groups how many groups
    left_out: int
    is_proportion: bool = False
    by_group: Mapping[str, float] = field(default_factory=dict)
    """Of a mean over groups, what each contributes to it: the values sum to that of the number."""
    shares_subjects: bool = False  # Whether groups are not independent, as their subjects are
    lower: Estimate | None = None  # Of a number above chance: that with one more item at chance
    part: float = 0.0  # Of a difference: the part that an item has in it; 0 of a value
    move: float = NAN  # How far those items differ that differ between the runs; NaN of none
    phrasings: Phrasings | None = None  # What other phrasings add; None where it is not known

    def interval(self, bounds: Bounds, level: float = LEVEL) -> Bounds:
        """The bounds of its interval (``logit_interval``, of a difference ``difference_interval``).

        Where nothing varies there is none (NaN), with one exception: a proportion that is 0 or 1
        has the exact binomial interval of 0 or n of n clusters. Where it may be negative, that of 0
        is on both sides, and that of -1 is mirrored. NaN too of fewer than two clusters.

        Of a number above chance the lower bound is also that of one more item which agrees by
        chance, if it is lower: where hardly an item deviates, the others do not show how many may.
        """
        value, error, clusters = self.value, self.error, self.n_clusters
        if self.part:
            move = bounds[1] if math.isnan(self.move) else self.move
            if len(self.by_group) < 2:
                return difference_interval(value, error, clusters, bounds, level, reach=move)
            error = math.hypot(error, self.part * move, self.part * move)
        is_end = min(abs(value), abs(abs(value) - 1)) <= TIE and error <= TIE and clusters > 1
        if self.is_proportion and is_end:
            low, high = binomial_interval(round(abs(value) * clusters), clusters, level)
            low = -high if bounds[0] < 0 and low == 0 else low
            low, high = sorted(math.copysign(1, value) * end for end in (low, high))
        else:
            low, high = logit_interval(value, error, clusters, bounds, level)
        if self.lower is not None:
            least, _ = self.lower.interval(bounds, level)
            if self.value > bounds[1] - TIE:
                return least, bounds[1]
            low = min(low, least)  # NaN where nothing varies
        return low, high

    def interval_over_phrasings(self, bounds: Bounds, level: float = LEVEL) -> Bounds:
        """The bounds with phrasings as a sample, too; at least as far as those of ``interval``."""
        if self.phrasings is None:
            return NAN, NAN
        of_items = self.interval(bounds, level)
        clusters, middle, error = self.n_clusters, self.value, self.error
        if self.part and len(self.by_group) < 2:
            move = bounds[1] if math.isnan(self.move) else self.move
            clusters, middle, error = with_two_more(middle, error, clusters, move)
        variance, freedom = self.phrasings.beside(error**2, clusters)
        low, high = logit_interval(middle, math.sqrt(variance), freedom + 1, bounds, level)
        return float(np.fmin(low, of_items[0])), float(np.fmax(high, of_items[1]))

    def p_over_phrasings(self) -> float:
        """The two-sided p of t, with phrasings as a sample, too; NaN where nothing varies."""
        if self.phrasings is None or not self.error**2 + self.phrasings.variance > 0:
            return NAN
        variance, freedom = self.phrasings.beside(self.error**2, self.n_clusters)
        return 2 * float(stdtr(freedom, -abs(self.value) / math.sqrt(variance)))


@dataclass(frozen=True, slots=True)
class Phrasings:
    """What other phrasings than those that were asked add to the variance of a number."""

    parts: tuple[tuple[float, float, int], ...] = ()
    """Of each factor: the variance of the jackknife over its levels, the part of it that clusters
    contribute apart, and how many levels it has. It adds what is left, if anything is."""

    @property
    def added(self) -> list[tuple[float, float, int]]:
        """The parts that add to the variance."""
        return [part for part in self.parts if part[0] > part[1] * (1 + ROUNDING)]

    @property
    def variance(self) -> float:
        return sum(of_levels - apart for of_levels, apart, _ in self.added)

    def beside(self, variance: float, clusters: int) -> tuple[float, float]:
        """The variance with that over clusters, and its degrees of freedom (Satterthwaite 1946).

        These are at least the fewest of any part.
        """
        of_both = variance + self.variance
        spread = sum(of**2 / (m - 1) for of, _, m in self.added) + variance**2 / max(
            1, clusters - 1
        )
        least = min([clusters - 1, *(m - 1 for *_, m in self.added)])
        return of_both, max(least, of_both**2 / spread) if spread > 0 else 1.0


@dataclass(slots=True)
class Index:
    """The position of each cluster among those of all groups and runs, by its name."""

    _places: dict[str, int] = field(default_factory=dict)
    _known: dict[int, tuple[Clusters, Ints]] = field(default_factory=dict)

    def places(self, clusters: Clusters) -> Ints:
        """The positions of clusters (cluster,)."""
        if id(clusters) not in self._known:
            size = self._places
            found = np.array([size.setdefault(name, len(size)) for name in clusters.names], int)
            self._known[id(clusters)] = clusters, found  # kept, so that the id stays its own
        return self._known[id(clusters)][1]


@dataclass(slots=True)
class Influences:
    """Those of clusters on a number that is a sum of terms."""

    index: Index
    terms: dict[int, list[tuple[Ints, Floats, Floats, Bools]]] = field(default_factory=dict)
    """Of each term: clusters, their influences and shares of the total, and if they are counted."""
    is_known: bool = True

    def add(
        self, term: int, weight: float, tally: Tally, slopes: Sequence[float], total: float
    ) -> None:
        """Add ``weight`` times the combination of the contributions of a tally by ``slopes``.

        ``slopes``: of hits, of the total, and of the sizes, which are the total where the tally has
        none. ``total``: that of the term.
        """
        if tally.clusters is None:
            self.is_known = False
            return
        sums, totals = tally.clusters.sums, tally.scores[:, 1]
        sizes = totals if tally.sizes is None else tally.sizes
        columns = tally.scores @ np.array(slopes[:2]) + slopes[2] * sizes
        part = weight * sums(columns), sums(totals) / total, sums(np.abs(sizes)) > 0
        self.terms.setdefault(term, []).append((self.index.places(tally.clusters), *part))

    def sums(self) -> tuple[Ints, Floats]:
        """The clusters and the influence of each (cluster,)."""
        places, moves, _, _ = _by_cluster([part for of in self.terms.values() for part in of])
        return places, moves

    def one_more(self, value: float) -> Estimate | None:
        """The number with one more item that agrees by chance: 0 of the mean total of a cluster.

        None but for a number of one run.
        """
        if len(self.terms) != 1:
            return None
        _, moves, shares, counted = _by_cluster(next(iter(self.terms.values())))
        n = int(counted.sum())
        scale = n / (n + 1)
        moves = np.append((moves + value * shares / (n + 1)) * scale, -value * scale / (n + 1))
        falls = moves / (1 - np.append(shares * scale, 1 / (n + 1)))
        return Estimate(value * scale, jackknife_error(falls, n + 1), n + 1, n, 0)

    def without_each(self) -> tuple[Ints, Floats, Bools]:
        """The clusters, by how much the number falls without each, and if it is counted.

        NaN where the number is not defined without it.
        """
        parts = []
        for of_term in self.terms.values():
            places, moves, shares, counted = _by_cluster(of_term)
            rest = np.where(shares < 1 - TIE, 1 - shares, NAN)
            parts.append((places, moves / rest, shares, counted))
        places, moves, _, counted = _by_cluster(parts)
        return places, moves, counted


def _by_cluster(
    parts: Sequence[tuple[Ints, Floats, Floats, Bools]],
) -> tuple[Ints, Floats, Floats, Bools]:
    """The parts with one row a cluster."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.bool_)
    places, moves, shares, counted = (np.concatenate(of) for of in zip(*parts, strict=True))
    different, at = np.unique(places, return_inverse=True)
    size = len(different)
    of_moves, of_shares, there = (
        np.bincount(at, of, minlength=size).astype(np.float64) for of in (moves, shares, counted)
    )
    return np.asarray(different, dtype=np.int64), of_moves, of_shares, there > 0


def jackknife_error(falls: Floats, clusters: int) -> float:
    """``sqrt((n - 1) / n sum_c d_c^2)`` of the falls d without each of n clusters; NaN of one."""
    if clusters < 2:
        return NAN
    return math.sqrt((clusters - 1) / clusters * float((falls**2).sum()))


def phrasings_of(terms: Terms, parts_of: Callable[[Sequence[Terms]], Parts]) -> Phrasings | None:
    """What phrasings add: the variance that clusters have in common between phrasings.

    The jackknife over the m phrasings of a factor has the variance ``(m - 1) / m sum_j (v_j -
    mean)^2`` of the numbers v_j without each. Its part that clusters would have if they moved
    independently of each other, ``n / (n - 1) sum_c`` of the same of their influences, is in the
    error over clusters already. The rest is added, if it is above 0: two-way clustering (Cameron,
    Gelbach and Miller 2011), of linear numbers the variance component of a two-way random-effects
    model. None unless every group has phrasings enough (``registry.ENOUGH``).
    """
    tallies = [tally for _, of in terms for tally in of.values()]
    every = dict.fromkeys(key for tally in tallies for key in tally.leave_one_out)
    if not all(tally.leave_one_out for tally in tallies):
        return None
    of_factors = list[tuple[float, float, int]]()
    for factor in dict.fromkeys(name for name, _ in every):
        recounts = [
            [(w, {g: of.leave_one_out.get(key, of) for g, of in run.items()}) for w, run in terms]
            for key in every
            if key[0] == factor
        ]
        if any(of is None for rest in recounts for _, run in rest for of in run.values()):
            return None
        values, parts = parts_of(recounts)  # type: ignore[arg-type]
        places, m = np.unique(np.concatenate([of for of, _ in parts])), len(recounts)
        if np.isnan(values).any() or len(places) < 2 or m < ENOUGH[0]:
            return None
        moves = np.zeros((len(places), m))
        for of, some in parts:
            moves[np.searchsorted(places, of)] += some
        of_levels, apart = (
            float(((of - of.mean(axis=-1, keepdims=True)) ** 2).sum()) * (m - 1) / m
            for of in (values, moves)
        )
        apart *= len(places) / (len(places) - 1)
        of_factors.append((of_levels, apart, m))
    return Phrasings(tuple(of_factors))


def of_group(terms: Sequence[tuple[float, Tally]], index: Index) -> Estimate:
    """The number of one group."""
    return pooled([(weight, {"": tally}) for weight, tally in terms], index)


def pooled(terms: Terms, index: Index) -> Estimate:
    """The number of all groups together: hits and totals are summed over groups."""
    value, influences = _pooled_influences(terms, index)
    _, falls, counted = influences.without_each()
    clusters = int(counted.sum())
    is_known = influences.is_known and not math.isnan(value)
    every = [(weight, tally) for weight, of in terms for tally in of.values()]
    is_above_chance = all(tally.sizes is not None for _, tally in every)
    lower = influences.one_more(value) if is_above_chance and is_known and value > 0 else None
    is_difference = min(weight for weight, _ in terms) < 0
    return Estimate(
        value,
        jackknife_error(falls, clusters) if is_known else NAN,
        clusters,
        min(sum(tally.n for tally in of.values()) for _, of in terms),
        max(sum(tally.left_out for tally in of.values()) for _, of in terms),
        all(weight > 0 and tally.is_proportion for weight, tally in every),
        lower=lower,
        part=1 / max(1, clusters) if is_difference else 0.0,
        move=_move((value + falls * (clusters - 1))[counted], terms) if is_difference else NAN,
        phrasings=_pooled_phrasings(terms, index) if is_known else None,
    )


def _pooled_phrasings(terms: Terms, index: Index) -> Phrasings | None:
    """What phrasings add to the number of all groups; None of several with their own phrasings."""
    if len(terms[0][1]) > 1 and have_own_phrasings(terms):
        return None

    def parts_of(recounts: Sequence[Terms]) -> Parts:
        values, parts = np.zeros(len(recounts)), list[tuple[Ints, Floats]]()
        for (weight, first), *runs in zip(terms, *recounts, strict=True):
            sums = [[(of.hits, of.total) for of in run.values()] for _, run in runs]
            hits, totals = np.array(sums).sum(axis=1).T
            of_term = quotient(hits, totals)
            values += weight * of_term
            scale = weight / np.where(totals > 0, totals, 1)
            for name, tally in first.items():
                assert tally.clusters is not None, "is_known"
                scores = np.array([run[name].scores for _, run in runs]).T
                moves = tally.clusters.sums((scores[0] - scores[1] * of_term) * scale)
                parts.append((index.places(tally.clusters), moves))
        return values, parts

    return phrasings_of(terms, parts_of)


def have_own_phrasings(terms: Terms) -> bool:
    """Whether each group has phrasings of its own: a sample within the group."""
    return all(tally.has_own_phrasings for _, of in terms for tally in of.values())


def _pooled_influences(terms: Terms, index: Index) -> tuple[float, Influences]:
    influences, value = Influences(index), 0.0
    for at, (weight, tallies) in enumerate(terms):
        of_term, total = pooled_value(tallies), math.fsum(of.total for of in tallies.values())
        value += weight * of_term
        for tally in tallies.values() if total > 0 else ():
            influences.add(at, weight, tally, (1 / total, -of_term / total, 0.0), total)
    return value, influences


def pooled_value(tallies: Tallies) -> float:
    """The value of all groups of a run together."""
    of = tallies.values()
    return share_of(math.fsum(tally.hits for tally in of), math.fsum(tally.total for tally in of))


def mean_value(tallies: Tallies, groups: Sequence[str], empty: float) -> float:
    """The mean of a run over ``groups``; over those of its own with data where these are none."""
    names = groups or [name for name, tally in tallies.items() if _counts(tally, empty)]
    parts = [_parts(tallies[name], empty) for name in names]
    return share_of(math.fsum(hits for hits, _, _ in parts), math.fsum(of for _, of, _ in parts))


def changed(one: Tally, two: Tally) -> set[str]:
    """The subjects that count otherwise in both runs; of a number above chance: agree otherwise."""
    assert one.clusters is not None
    moved = two.scores - one.scores
    if one.sizes is not None and two.sizes is not None:
        moved = (moved[:, :1] - moved[:, 1:]) + (two.sizes - one.sizes)[:, None]
    return set(one.clusters.names[(np.abs(one.clusters.sums(moved)) > TIE).any(axis=1)])


def _move(moves: Floats, terms: Terms) -> float:
    """How far items differ that differ at all: ``sum d^2 / sum |d|``; NaN where none does.

    NaN too if no item of a number above chance agrees more or less often than before: only the
    chance level differs then, which does not show how far items may differ.
    """
    size = float(np.nansum(np.abs(moves)))
    (_, first), (_, second) = terms
    both = [(of, second[group]) for group, of in first.items() if group in second]
    is_known = all(of.clusters and of.sizes is not None for tallies in both for of in tallies)
    if size <= TIE or (is_known and not any(changed(*tallies) for tallies in both)):
        return NAN
    return float(np.nansum(moves**2)) / size


def mean(terms: Terms, index: Index, empty: float = NAN) -> Estimate:
    """The mean over groups: ``V = sum_g (H_g / S_g) / sum_g (T_g / S_g)``, S the sizes of groups.

    Where the size is the total, this is the mean of the groups' values; ``empty`` is the value of a
    group without data, NaN for none.

    Groups are clusters, with the influence ``((H_g - V T_g) / S_g) / sum (T / S)``. Subjects that
    several groups share vary it, too (Cameron, Gelbach and Miller 2011): the variance is that over
    groups, plus ``max(0, V(subjects over all groups) - V(subjects in each group))``.
    """
    every = terms[0][1]
    groups = [name for name in every if all(_counts(of[name], empty) for _, of in terms)]
    if not groups:
        return Estimate(NAN, NAN, 0, 0, len(every))
    if len(groups) == 1:
        (group,) = groups
        alone = of_group([(weight, of[group]) for weight, of in terms], index)
        value = math.fsum(weight * of[group].value_or(empty) for weight, of in terms)
        return replace(alone, value=value, n=1, left_out=len(every) - 1, by_group={group: value})
    influences = {group: Influences(index) for group in groups}
    value, falls, by_group = 0.0, np.zeros(len(groups)), np.zeros(len(groups))
    for at, (weight, of) in enumerate(terms):
        parts = np.array([_parts(of[group], empty) for group in groups]).reshape(-1, 3)
        hits, totals, _ = parts.T
        total = totals.sum()
        of_term = float(hits.sum() / total) if total > 0 else NAN
        value += weight * of_term
        moves = weight * (hits - of_term * totals) / total
        by_group += moves + weight * of_term / len(groups)
        falls += moves / np.where(totals < total, 1 - totals / total, NAN)
        for group, group_hits, group_total, size in zip(groups, *parts.T.tolist(), strict=True):
            if of[group].total > 0:
                parts_of_slopes = 1, -of_term, of_term * group_total - group_hits
                slopes = [one / size / total for one in parts_of_slopes]
                influences[group].add(at, weight, of[group], slopes, of[group].total)
    separate, parts_of_all, moved, part = 0.0, [], [np.zeros(0)], 0.0
    is_difference = min(weight for weight, _ in terms) < 0
    for share, influence in zip(by_group.tolist(), influences.values(), strict=True):
        places, within, counted = influence.without_each()
        clusters = int(counted.sum())
        if is_difference:
            moved.append(len(groups) * (share + within * (clusters - 1))[counted])
            part += 1 / clusters / len(groups) ** 2 if clusters else 0.0
        within = np.nan_to_num(within) * math.sqrt(max(0, clusters - 1) / max(1, clusters))
        separate += float((within**2).sum())
        parts_of_all.append((places, within, within, within != 0))
    joint = float((_by_cluster(parts_of_all)[1] ** 2).sum())
    error = jackknife_error(falls, len(groups))
    is_shared = joint > separate * (1 + ROUNDING)
    if is_shared and not math.isnan(error):
        error = math.sqrt(error**2 + (joint - separate) * len(groups) / (len(groups) - 1))
    return Estimate(
        value, error, len(groups), len(groups), len(every) - len(groups),
        by_group=dict(zip(groups, by_group.tolist(), strict=True)), shares_subjects=is_shared,
        part=part, move=_move(np.concatenate(moved), terms) if is_difference else NAN,
        phrasings=_mean_phrasings(terms, groups, index, empty),
    )  # fmt: skip


def _mean_phrasings(
    terms: Terms, groups: Sequence[str], index: Index, empty: float
) -> Phrasings | None:
    """What phrasings add to a mean over groups: nothing where each has phrasings of its own."""
    if have_own_phrasings(terms):
        return Phrasings()

    def parts_of(recounts: Sequence[Terms]) -> Parts:
        numbers = [mean(rest, index, empty) for rest in recounts]
        none = dict.fromkeys(groups, NAN)
        shares = [of.by_group if len(of.by_group) == len(groups) else none for of in numbers]
        moves = np.array([[*of.values()] for of in shares]).T
        return moves.sum(axis=0), [(np.arange(len(groups)), moves - moves.mean(axis=0))]

    return phrasings_of([(w, {name: of[name] for name in groups}) for w, of in terms], parts_of)


def group_contributions(terms: Terms, groups: Sequence[str], empty: float) -> list[float]:
    """What each group contributes to a difference, if the true values are equal (group,).

    With the common value theta of all terms: ``sum_terms w (n_g - theta d_g) / sum_g d_g``. They
    sum to the difference. Of a mean of values: the difference of each group over their number.
    """
    parts = [(weight, [_parts(of[group], empty) for group in groups]) for weight, of in terms]
    totals = [math.fsum(part for _, part, _ in of) for _, of in parts]
    common = math.fsum(hits for _, of in parts for hits, _, _ in of) / math.fsum(totals)
    return [
        math.fsum(
            weight * (of[at][0] - common * of[at][1]) / total
            for (weight, of), total in zip(parts, totals, strict=True)
        )
        for at in range(len(groups))
    ]


def _counts(tally: Tally, empty: float) -> bool:
    return tally.total > 0 or not math.isnan(empty)


def _parts(tally: Tally, empty: float) -> tuple[float, float, float]:
    """Hits and total of a group by its size, and the size."""
    if not tally.total > 0:
        return empty, 1.0, 0.0
    size = tally.total if tally.sizes is None else float(tally.sizes.sum())
    return tally.hits / size, tally.total / size, size


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its interval; NaN for no data or without an interval."""

    value: float
    low: float
    high: float
    n: int  # How many things were counted
    n_excluded: int  # How many were left out, because they were not asked


Name = TypeVar("Name", bound=Hashable)

RANGE = (0.0, 1.0)


def intervals(tallies: Mapping[Name, Tally]) -> dict[Name, Interval]:
    """Each number with its interval between 0 and 1."""
    found: dict[Name, Interval] = {}
    for name, tally in tallies.items():
        number = of_group([(1, tally)], Index())
        ends = number.interval(RANGE)
        found[name] = Interval(number.value, *ends, number.n, number.left_out)
    return found
