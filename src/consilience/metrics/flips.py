"""Sign flips: the difference of two runs if the contribution of each subject changes its sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.metrics.grid import Floats
from consilience.metrics.significance import Signs
from consilience.metrics.weighing import Key, Tallies, cluster_positions, distinct


@dataclass(frozen=True, slots=True)
class Flipped:
    """A metric of two runs under random sign flips of the contribution of each subject."""

    observed: Floats
    """Hits and total of the first run, then of the second (4,)."""
    flipped: Floats
    """The same under each flip (4, permutation)."""

    def __add__(self, other: Flipped) -> Flipped:
        return Flipped(self.observed + other.observed, self.flipped + other.flipped)

    def differences(self) -> Floats:
        """The difference of hits/total, second minus first, under each flip (permutation,).

        With the common value theta = all hits / all totals, a run with total T is off by
        ``sum_i (h_i - theta t_i) / T``; each subject's part of this, in both runs, changes its
        sign. Without flips this is the difference itself. NaN where a total is 0.
        """
        hits, totals = self.observed[::2], self.observed[1::2]
        if totals.min() <= 0:
            return np.full(self.flipped.shape[1], np.nan)
        common = hits.sum() / totals.sum()
        off = (self.flipped[::2] - common * self.flipped[1::2]) / totals[:, None]
        difference: Floats = off[1] - off[0]
        return difference


def flip(first: Tallies, second: Tallies, names: Sequence[str], signs: Signs) -> dict[Key, Flipped]:
    """Every metric that has clusters in two runs, under ``signs`` of the subjects ``names``."""
    keys = [key for key, tally in first.items() if tally.clusters is not None]
    if not keys:
        return {}
    position = {name: at for at, name in enumerate(names)}
    tallies = [run[key] for key in keys for run in (first, second)]
    positions = {id(tally.clusters): cluster_positions(tally, position) for tally in tallies}
    scores = np.stack(
        [
            np.bincount(positions[id(tally.clusters)], column, minlength=len(names))
            for tally in tallies
            for column in tally.scores().T
        ]
    )
    columns, same = distinct(scores)
    flipped = signs.sums(np.ascontiguousarray(columns.T)).T[same].reshape(len(keys), 4, -1)
    observed = scores.sum(axis=1).reshape(len(keys), 4)
    return {key: Flipped(observed[at], flipped[at]) for at, key in enumerate(keys)}
