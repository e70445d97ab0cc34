"""How many variants of an item are right, and whether a training beats their vote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import comb

from consilience.core.errors import Protocol
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.counts import Prepared
from consilience.metrics.definitions import voted
from consilience.metrics.registry import grids, quotient
from consilience.metrics.statistics import NAN, TIE, paired_permutation
from consilience.types import Suite

SIZES = 10  # For about how many numbers of variants right ones are counted
SINGLE, VOTE = "single variant", "vote"


@dataclass(frozen=True, slots=True)
class Ballots:
    """The answers to the items of a group; items that lack one in a variant have none."""

    right: Ints  # How many variants are right (item,)
    taken: Ints  # How many have an answer (item,)
    vote: Bools  # Whether the vote of all variants is right (item,)
    subjects: npt.NDArray[np.object_]  # (item,)

    @property
    def ways(self) -> dict[str, Floats]:
        """The accuracy (item,) of one variant, on average, and of the vote; NaN without answers."""
        return {
            SINGLE: quotient(self.right.astype(float), self.taken.astype(float)),
            VOTE: np.where(self.taken > 0, self.vote, NAN),
        }


Groups = Mapping[str, Ballots]  # By the name of the group


def ballots_of(run: Prepared, protocol: Protocol) -> Groups:
    """The ballots of each N-1 relation; in others further objects are right, too."""
    found = {}
    for relation in run.of_kind("N-1"):
        grid = grids(run.rows(relation.id), relation, protocol, ("logprob",))["tuples"]
        there = grid.complete
        right, taken = (of.sum(axis=1) * there for of in (grid.right, grid.taken))
        found[relation.id] = Ballots(right, taken, voted(grid) & there, grid.subjects)
    return found


def _most(groups: Groups) -> int:
    """The largest number of variants of an item."""
    return max((int(of.taken.max(initial=0)) for of in groups.values()), default=0)


def _clusters(groups: Groups, *, by_group: bool) -> npt.NDArray[np.object_]:
    """What is resampled: the groups, or the subjects of all items."""
    if by_group:
        return np.array([*groups], object)
    return np.concatenate([of.subjects for of in groups.values()])


def _joined(parts: Iterable[Floats], *, by_group: bool) -> Floats:
    """The values of all items, or the mean of each group."""
    if by_group:
        parts = [np.array([np.nanmean(part) if np.isfinite(part).any() else NAN]) for part in parts]
    return np.concatenate([*parts])


def against_vote(
    before: Prepared, after: Sequence[Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """What single variants and the vote give before and after a training; ``after``: of each seed.

    A row a way to answer: ``answer, variants, accuracy, low, high``; minus the vote before
    ``difference, difference_low, difference_high, p``; and ``n, n_excluded``. Of facts, means over
    relations: relations are resampled, and p permutes them. Other items are pooled, and subjects
    are. Empty where no item with one right answer has two variants.
    """
    first, *trained = (ballots_of(run, protocol) for run in (before, *after))
    if (most := _most(first)) < 2:
        return pl.DataFrame()
    by_group = suite.words.has_means and len(first) > 1
    clusters = _clusters(first, by_group=by_group)
    values = [
        {
            f"{way}, {when}": _joined((of.ways[way] for of in run.values()), by_group=by_group)
            for when, run in (("before", first), ("after", one))
            for way in (SINGLE, VOTE)
        }
        for one in trained
    ]
    base, rows = f"{VOTE}, before", []
    gains = [{way: of - run[base] for way, of in run.items()} for run in values]
    numbers = [
        {(way, False): ItemNumbers.mean(of) for way, of in run.items()}
        | {(way, True): ItemNumbers.mean(of, least=-1.0) for way, of in moved.items()}
        for run, moved in zip(values, gains, strict=True)
    ]
    estimates = item_estimates(numbers, clusters, seed, are_means=by_group)
    for way in values[0]:
        accuracy, gain = (estimates[way, part] for part in (False, True))
        moved = np.mean([run[way] for run in gains], axis=0)
        known = ~np.isnan(moved)
        places = np.unique(clusters[known].astype(str), return_inverse=True)[1]
        p = paired_permutation(np.bincount(places, moved[known]).tolist(), seed)
        difference = gain.value, gain.low, gain.high, p
        if way == base:
            difference = NAN, NAN, NAN, NAN
        rows.append((way, most if VOTE in way else 1, accuracy.value, accuracy.low, accuracy.high,
                     *difference, accuracy.n, accuracy.n_excluded))  # fmt: skip
    columns = ("answer", "variants", "accuracy", "low", "high", "difference", "difference_low",
               "difference_high", "p", "n", "n_excluded")  # fmt: skip
    return pl.DataFrame(rows, columns, orient="row")


def right_counts(
    seeds: Sequence[Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """How many items are right in k of n variants; of several seeds the means. Empty for n < 2.

    Columns: ``k, at_least, low, high, all_of_k, all_low, all_high, n``.

    ``at_least``: the share of items that are right in k variants or more. Of items with other
    numbers of variants than the largest, n, in the same share of theirs. Over k this is the
    consistency-accuracy curve (CAR) of Cavalin et al. (CAT, arXiv 2512.23711, 2025). Where all
    items have n variants, its mean is the mean accuracy, its end the consistent accuracy.
    ``all_of_k``: the probability that k variants, drawn without replacement, are all right:
    ``C(c, k) / C(n, k)`` for c right ones, the unbiased estimator of pass^k (Yao et al., tau-bench,
    arXiv 2406.12045, 2024). Means over relations for facts; items with fewer than k variants are
    left out of it.
    """
    runs = [ballots_of(run, protocol) for run in seeds]
    if (most := _most(runs[0])) < 2:
        return pl.DataFrame()
    by_group = suite.words.has_means and len(runs[0]) > 1
    clusters = _clusters(runs[0], by_group=by_group)
    steps = sorted({1, *np.linspace(1, most, min(most, 2 * SIZES)).round().astype(int).tolist()})

    def numbers(run: Iterable[Ballots]) -> dict[tuple[int, bool], ItemNumbers]:
        counts = [(of.right, of.taken) for of in run]
        found = {}
        for k in steps:
            at_least = [np.where(n > 0, c * most >= k * n - TIE, NAN) for c, n in counts]
            drawn = [quotient(comb(c, k), comb(n, k)) for c, n in counts]
            for kind, parts in ((False, at_least), (True, drawn)):
                found[k, kind] = ItemNumbers.mean(_joined(parts, by_group=by_group))
        return found

    of_runs = [numbers(run.values()) for run in runs]
    of = item_estimates(of_runs, clusters, seed, are_means=by_group)
    rows = [
        {"k": k, "at_least": of[k, False].value, "low": of[k, False].low, "high": of[k, False].high,
         "all_of_k": of[k, True].value, "all_low": of[k, True].low, "all_high": of[k, True].high,
         "n": of[k, False].n}
        for k in steps
    ]  # fmt: skip
    return pl.DataFrame(rows)
