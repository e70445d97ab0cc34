"""The vote: the answer that most variants of an item give, and what it gains over one variant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import comb

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import levels_of
from consilience.core.items import Bools, Floats, Ints
from consilience.core.text import counted
from consilience.metrics.components import ItemNumbers, item_estimates, one_hot
from consilience.metrics.counts import Prepared
from consilience.metrics.registry import grids, quotient
from consilience.metrics.statistics import CELLS, NAN, TIE, paired_permutation
from consilience.types import Suite

SUBSETS = 1000  # Where there are more subsets of k variants, so many draws of them count
SPLITS = 100  # Of the subjects into halves: the best variant is chosen on one for the other
FEWEST = 100  # Items, to say it: with 50 its standard deviation is up to 8 points, its bias 5
SIZES = 10  # For about how many numbers of variants the vote is counted

SINGLE, BEST_SAME, BEST, VOTE = "single variant", "best, same items", "best, other items", "vote"
"""What answers an item: one variant, on average; the most accurate variant, chosen on the same
items or on those of half of the other subjects; the vote."""


OF_VARIANTS = ("answers", "right", "taken", "logprob")  # The fields (item, variant)


@dataclass(frozen=True, slots=True)
class Ballots:
    """The answers to items; those of one that lacks an answer in a variant are left out."""

    answers: Ints
    """The answer (item, variant); -1 for none, or for a text that is none of the options, which has
    no vote."""
    right: Bools  # (item, variant)
    taken: Bools  # Whether there is an answer (item, variant)
    logprob: Floats  # Natural log-probability of the answer (item, variant); NaN where not known
    subjects: npt.NDArray[np.object_]  # (item,)

    def vote(self, masks: Bools) -> tuple[Bools, Bools]:
        """Whether the vote is right, and whether several answers have most votes (item, subset).

        ``masks`` (variant, subset): which variants vote. Of answers with equally many votes that
        with the highest sum of their log-probabilities wins; where these are equal, or not all
        known, that of the first variant. Without a vote it is wrong.
        """
        voting = self.answers >= 0
        seen = np.swapaxes(one_hot(self.answers) * voting[..., None], 1, 2)
        known = (np.isfinite(self.logprob) | ~voting).all(axis=1, keepdims=True)
        weighted = seen * np.where(known & voting, self.logprob, 0)[:, None]
        codes, parts = seen.argmax(axis=1)[..., None], []
        step = max(1, CELLS // max(1, len(seen) * max(seen.shape[1:])))
        for some in np.split(masks, range(step, masks.shape[1], step), axis=1):
            votes, sums = seen @ some, weighted @ some
            leads = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
            sums = np.where(leads, sums, -np.inf)
            wins = leads & (sums >= sums.max(axis=1, keepdims=True) - TIE)
            gave = np.take_along_axis(wins, codes, axis=1) & voting[..., None] & some
            right = np.take_along_axis(self.right, gave.argmax(axis=1), axis=1) & gave.any(axis=1)
            parts.append((right, leads.sum(axis=1) > 1))
        right, tied = (np.concatenate(of, axis=1) for of in zip(*parts, strict=True))
        return right, tied

    def accuracy(self, size: int, seed: int) -> Floats:
        """The expected accuracy (item,) of the vote of ``size`` variants, of all if it has fewer.

        They are drawn without replacement from those that the item has: every subset counts once,
        or ``SUBSETS`` draws do.
        """
        found = np.full(len(self.answers), NAN)
        for there in np.unique(self.taken, axis=0):  # the variants that some items have
            if there.any():
                of = (self.taken == there).all(axis=1)
                some = {name: getattr(self, name)[of][:, there] for name in OF_VARIANTS}
                found[of] = replace(self, **some, subjects=self.subjects[of])._accuracy(size, seed)
        return found

    def _accuracy(self, size: int, seed: int) -> Floats:
        """``accuracy`` of items that have every variant."""
        width = self.answers.shape[1]
        size = min(size, width)
        if math.comb(width, size) <= SUBSETS:
            chosen = np.array(list(combinations(range(width), size)))
        else:
            every = np.tile(np.arange(width), (SUBSETS, 1))
            chosen = np.random.default_rng(seed).permuted(every, axis=1)[:, :size]
        masks = (chosen[..., None] == np.arange(width)).any(axis=1).T
        return np.asarray(self.vote(masks)[0].mean(axis=1))

    def best(self, seed: int, *, others: bool) -> Floats:
        """Whether the most accurate variant that an item has is right (item,).

        It is chosen on all items, where its accuracy is too high: it is the greatest of several. Of
        ``others``: on those of half of the subjects for the other half; the mean of ``SPLITS``.
        """
        names, places = np.unique(self.subjects.astype(str), return_inverse=True)
        sides, random = np.arange(len(names)) % 2 == 0, np.random.default_rng(seed)
        halves: list[Bools] = [random.permutation(sides)[places] for _ in range(SPLITS)]
        split = [np.where(half, self._best_on(~half), self._best_on(half)) for half in halves]
        right = np.mean(split, axis=0) if others else self._best_on(np.ones(len(places), bool))
        return np.where(self.taken.any(axis=1), right, NAN)

    def _best_on(self, some: Bools) -> Floats:
        """Whether the variant that is the most accurate on ``some`` items is right (item,)."""
        rates = quotient(self.right[some].sum(axis=0), self.taken[some].sum(axis=0))
        chosen = np.where(self.taken, np.nan_to_num(rates), -1).argmax(axis=1)[:, None]
        return np.take_along_axis(self.right, chosen, axis=1)[:, 0].astype(float)


def ballots_of(run: Prepared, suite: Suite, protocol: Protocol) -> dict[tuple[str, ...], Ballots]:
    """The ballots by the group and, after it, the variants.

    Groups of a pooled suite with the same variants are together, under no name. N-M relations,
    where other objects are right too, and variants that hint at the right answer are left out.
    """
    blocks: dict[tuple[str, ...], list[tuple[npt.NDArray[np.generic], ...]]] = {}
    for relation in run.of_kind("N-1"):
        variants = relation.design.variants
        blind = [at for at, name in enumerate(variants) if levels_of(name).get("cue") != "right"]
        grid = grids(run.rows(relation.id), relation, protocol, ("logprob",))["tuples"]
        grid = grid.only_variants(blind)
        there = grid.complete[:, None]
        votes = np.where(there & ~np.isin(grid.answers, grid.invalid), grid.answers, -1)
        parts = (votes, grid.right & there, grid.taken & there, grid.scores["logprob"])
        name = "" if suite.words.is_pooled else relation.id
        key = name, *(variants[at] for at in blind)
        blocks.setdefault(key, []).append((*parts, grid.subjects))
    merged = {key: map(np.concatenate, zip(*of, strict=True)) for key, of in blocks.items()}
    return {key: Ballots(*of) for key, of in merged.items()}


@dataclass(frozen=True, slots=True)
class VoteTables:
    """What the vote gives."""

    votes: pl.DataFrame
    """A row a way to answer: ``answer, variants, accuracy, low, high``, minus a single variant
    ``difference, difference_low, difference_high, p``, and ``n, n_excluded``."""
    left_out: pl.DataFrame
    """A row a variant: ``group, variant, accuracy, others, difference``: the vote of the others."""
    curve: pl.DataFrame  # ``right_counts``
    fewest: int  # The smallest number of variants of an item; the largest is the last of ``votes``
    tied: int  # Items, of all seeds, of which several answers have most votes
    items: int  # Items of all seeds
    has_scores: bool  # Whether log-probabilities decide ties


def vote_tables(
    seeds: Sequence[Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> VoteTables:
    """What the vote gives over one variant; of several seeds the means.

    Of facts, means over relations: relations are resampled, and p permutes them. Other items are
    pooled, and subjects are. ``seed``: that of the bootstrap, of p and of drawn subsets.
    """
    runs = [ballots_of(run, suite, protocol) for run in seeds]
    every = [of for run in runs for of in run.values()]
    sizes = [size for of in every for size in of.taken.sum(axis=1).tolist() if size]
    most = max(sizes, default=0)
    if most < 2:
        expected = "items with one right answer that were answered in two variants or more"
        todo = "Vary something: consilience probe --vary order."
        raise ConsilienceError(f"{counted(most, 'variant')} to vote", expected=expected, todo=todo)
    votes = _estimated([{"": run} for run in runs], ways_of(most), (SINGLE, 1), suite, seed)
    tied = sum(int(of.vote(np.ones((of.answers.shape[1], 1), bool))[1].sum()) for of in every)
    known_all = all(np.isfinite(of.logprob[of.answers >= 0]).all() for of in every)
    left_out = [row for key in runs[0] for row in _left_out(key, [run[key] for run in runs])]
    tables = votes, pl.DataFrame(left_out), right_counts(seeds, suite, protocol, seed)
    return VoteTables(*tables, min(sizes), tied, len(sizes), known_all)


def against_vote(
    before: Prepared, after: Sequence[Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """What single variants and the vote give before and after a training; ``after``: of each seed.

    Rows as in ``VoteTables.votes``, but the difference is from the vote before. Empty where no item
    with one right answer has two variants.
    """
    first, *trained = (ballots_of(run, suite, protocol) for run in (before, *after))
    most = max((int(of.taken.sum(axis=1).max(initial=0)) for of in first.values()), default=0)
    if most < 2:
        return pl.DataFrame()
    runs = [{", before": first, ", after": one} for one in trained]
    return _estimated(runs, [(SINGLE, 1), (VOTE, most)], (f"{VOTE}, before", most), suite, seed)


Way = tuple[str, int]  # How an item is answered, and with how many variants


def _estimated(
    seeds: Sequence[Mapping[str, Mapping[tuple[str, ...], Ballots]]],
    ways: Sequence[Way], base: Way, suite: Suite, seed: int,
) -> pl.DataFrame:  # fmt: skip
    """The rows of ``VoteTables.votes``: means of the seeds, and differences from ``base``.

    ``seeds``: of each seed the ballots, by what follows the name of a way to answer.
    """
    (first, *_) = seeds[0].values()
    by_group = suite.words.has_means and len(first) > 1
    clusters = np.concatenate([of.subjects for of in first.values()])
    clusters = np.array([name for name, *_ in first], object) if by_group else clusters
    values = [
        {(way + more, size): _values(run.values(), way, size, seed, by_group=by_group)
         for more, run in runs.items() for way, size in ways}
        for runs in seeds
    ]  # fmt: skip
    gains = [{way: of - run[base] for way, of in run.items()} for run in values]
    numbers = [
        {(way, False): ItemNumbers.mean(of) for way, of in run.items()}
        | {(way, True): ItemNumbers.mean(of, least=-1.0) for way, of in moved.items()}
        for run, moved in zip(values, gains, strict=True)
    ]
    estimates, rows = item_estimates(numbers, clusters, seed, are_means=by_group), []
    no_test = {base} if by_group else {base, (BEST_SAME, 1), (BEST, 1)}  # Items share a choice
    for way in values[0]:
        accuracy, gain = (estimates[way, part] for part in (False, True))
        moved = np.mean([run[way] for run in gains], axis=0)
        known = ~np.isnan(moved)
        places = np.unique(clusters[known].astype(str), return_inverse=True)[1]
        p = paired_permutation(np.bincount(places, moved[known]).tolist(), seed)
        low, high, p = (NAN, NAN, NAN) if way in no_test else (gain.low, gain.high, p)
        rows.append({
            "answer": way[0], "variants": way[1],
            "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high,
            "difference": NAN if way == base else gain.value,
            "difference_low": low, "difference_high": high, "p": p,
            "n": accuracy.n, "n_excluded": accuracy.n_excluded,
        })  # fmt: skip
    return pl.DataFrame(rows)


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
    runs = [ballots_of(run, suite, protocol) for run in seeds]
    most = max((int(of.taken.sum(axis=1).max(initial=0)) for of in runs[0].values()), default=0)
    if most < 2:
        return pl.DataFrame()
    by_group = suite.words.has_means and len(runs[0]) > 1
    clusters = np.concatenate([of.subjects for of in runs[0].values()])
    clusters = np.array([name for name, *_ in runs[0]], object) if by_group else clusters
    steps = sorted({1, *np.linspace(1, most, min(most, 2 * SIZES)).round().astype(int).tolist()})

    def numbers(run: Iterable[Ballots]) -> dict[tuple[int, bool], ItemNumbers]:
        counts = [(of.right.sum(axis=1), of.taken.sum(axis=1)) for of in run]
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


def _joined(parts: Sequence[Floats], *, by_group: bool) -> Floats:
    """The values of all items, or the mean of each group."""
    if by_group:
        parts = [np.array([np.nanmean(part) if np.isfinite(part).any() else NAN]) for part in parts]
    return np.concatenate(parts)


def _values(blocks: Iterable[Ballots], way: str, size: int, seed: int, *, by_group: bool) -> Floats:
    """The accuracy of a way to answer (item,); ``by_group``: means (group,)."""
    is_best = way in (BEST_SAME, BEST)
    parts = [
        of.best(seed, others=way == BEST) if is_best else of.accuracy(size, seed) for of in blocks
    ]
    return _joined(parts, by_group=by_group)


def ways_of(most: int) -> list[Way]:
    """The ways to answer, each with its number of variants: odd numbers, evenly spread, and all."""
    sizes = [*range(1, most, 2 * -(-most // (2 * SIZES))), most]
    return [(SINGLE, 1), (BEST_SAME, 1), (BEST, 1), *((VOTE, size) for size in sizes[1:])]


def _left_out(key: Sequence[str], seeds: Sequence[Ballots]) -> list[dict[str, object]]:
    """Each variant of a group, and the vote of the others on its items; means over seeds."""
    group, *names = key
    shares = []
    for of in seeds:
        kept = of.taken & (of.taken.sum(axis=1) > 1)[:, None]  # where others voted
        others = of.vote(~np.eye(len(names), dtype=bool))[0]
        hits = np.stack([(of.right & kept).sum(axis=0), (others & kept).sum(axis=0)])
        shares.append(quotient(hits, kept.sum(axis=0)))
    columns = ("group", "variant", "accuracy", "others", "difference")
    means = zip(names, *np.mean(shares, axis=0).tolist(), strict=True)
    return [dict(zip(columns, (group, *of, of[2] - of[1]), strict=True)) for of in means]
