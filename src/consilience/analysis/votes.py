"""Whether a training beats the vote of the variants of an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import Protocol
from consilience.core.items import Floats, Ints
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.counts import Prepared
from consilience.metrics.definitions import voted
from consilience.metrics.registry import quotient
from consilience.metrics.statistics import NAN, paired_permutation
from consilience.types import Suite

SINGLE, VOTE = "single variant", "vote"


class Accuracy(NamedTuple):
    """Whether the items of a group are right; items that lack an answer in a variant are NaN."""

    single: Floats  # Of one variant, on average (item,)
    vote: Floats  # Of the vote of all variants (item,)
    variants: Ints  # How many have an answer (item,)
    subjects: npt.NDArray[np.object_]  # (item,)


def accuracy_of(run: Prepared, protocol: Protocol) -> Mapping[str, Accuracy]:
    """The accuracy of each N-1 relation; in others further objects are right, too."""
    found = {}
    for relation in run.of_kind("N-1"):
        grid = run.views(relation, protocol)["tuples"]
        taken = grid.taken.sum(axis=1) * grid.complete
        single = quotient(grid.right.sum(axis=1, dtype=float), taken.astype(float))
        vote = np.where(taken > 0, voted(grid), NAN)
        found[relation.id] = Accuracy(single, vote, taken, grid.subjects)
    return found


def against_vote(
    before: Prepared, after: Sequence[Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """What single variants and the vote give before and after a training; ``after``: of each seed.

    A row a way to answer: ``answer, variants, accuracy, low, high``; minus the vote before
    ``difference, difference_low, difference_high, p``; and ``n, n_excluded``. Of facts, means over
    relations: relations are resampled, and p permutes them. Other items are pooled, and subjects
    are. Empty where no item with one right answer has two variants.
    """
    first, *trained = (accuracy_of(run, protocol) for run in (before, *after))
    most = max((int(of.variants.max(initial=0)) for of in first.values()), default=0)
    if most < 2:
        return pl.DataFrame()
    by_group = suite.words.has_means and len(first) > 1
    clusters = np.concatenate([of.subjects for of in first.values()])
    clusters = np.array([*first], object) if by_group else clusters

    def joined(parts: list[Floats]) -> Floats:
        known = [part[np.isfinite(part)] for part in parts]
        means = [np.array([of.mean() if len(of) else NAN]) for of in known]
        return np.concatenate(means if by_group else parts)

    values = [
        {
            f"{way}, {when}": joined([(of.single, of.vote)[at] for of in run.values()])
            for when, run in (("before", first), ("after", one))
            for at, way in enumerate((SINGLE, VOTE))
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
        difference = (NAN,) * 4 if way == base else (gain.value, gain.low, gain.high, p)
        rows.append((way, most if VOTE in way else 1, accuracy.value, accuracy.low, accuracy.high,
                     *difference, accuracy.n, accuracy.n_excluded))  # fmt: skip
    columns = ("answer", "variants", "accuracy", "low", "high", "difference", "difference_low",
               "difference_high", "p", "n", "n_excluded")  # fmt: skip
    return pl.DataFrame(rows, columns, orient="row")
