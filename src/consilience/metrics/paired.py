"""One metric in two runs of the same questions: its difference and its test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from consilience.metrics.flips import Flipped
from consilience.metrics.intervals import NAN
from consilience.metrics.significance import mcnemar, permutation_p, welch_t
from consilience.metrics.tally import Share

MCNEMAR = "exact McNemar"

SUBJECTS = "sign flips of subjects"

RELATIONS = "paired permutation of relations"


@dataclass(frozen=True, slots=True)
class RunPair:
    """One metric in two runs: of one group, or of several together."""

    shares: tuple[Share, Share]
    """Hits and totals of both runs."""
    flipped: Flipped | None
    """Both under sign flips of what subjects contribute; None for a metric without subjects."""
    only: tuple[int, int] | None
    """How many items are hits in the first run only, and in the second only; None for a metric
    that is not binary."""

    def plus(self, other: RunPair) -> RunPair:
        """The counts of two groups together."""
        flipped, only = None, None
        if self.flipped is not None and other.flipped is not None:
            flipped = self.flipped + other.flipped
        if self.only is not None and other.only is not None:
            only = self.only[0] + other.only[0], self.only[1] + other.only[1]
        shares = self.shares[0] + other.shares[0], self.shares[1] + other.shares[1]
        return RunPair(shares, flipped, only)


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of two models, with a pair of runs for each seed."""

    seeds: tuple[RunPair, ...]
    """The metric in both runs of each seed."""

    @property
    def values(self) -> tuple[float, float]:
        """The means over seeds."""
        first, second = (fmean(self.of_seeds(side)) for side in (0, 1))
        return first, second

    def of_seeds(self, side: int) -> list[float]:
        """The values of one model's seeds."""
        return [both.shares[side].value for both in self.seeds]

    @property
    def difference(self) -> float:
        """Second minus first."""
        first, second = self.values
        return second - first

    @property
    def test(self) -> tuple[str | None, float]:
        """Which test, and its p: McNemar's of one seed, else sign flips of the mean difference.

        NaN without data, which is then no test of a family either.
        """
        if len(self.seeds) == 1 and self.seeds[0].only is not None:
            only = self.seeds[0].only
            return MCNEMAR, NAN if math.isnan(self.difference) else mcnemar(*only)
        flipped = [both.flipped.differences() for both in self.seeds if both.flipped is not None]
        if len(flipped) < len(self.seeds):
            return None, NAN
        mean = np.mean(flipped, axis=0)
        if np.isnan(mean).all():
            return SUBJECTS, NAN
        return SUBJECTS, permutation_p(self.difference, mean)

    @property
    def p_seeds(self) -> float:
        """P of Welch's t test over seeds; NaN where they do not vary."""
        first, second = self.of_seeds(0), self.of_seeds(1)
        varies = len(self.seeds) > 1 and any(np.ptp(values) > 0 for values in (first, second))
        return welch_t(second, first).p if varies else NAN

    def plus(self, other: Difference) -> Difference:
        """The counts of two groups together."""
        pairs = zip(self.seeds, other.seeds, strict=True)
        return Difference(tuple(one.plus(two) for one, two in pairs))

    def without_flips(self) -> Difference:
        """The same without what the test needs, which fills the memory."""
        return Difference(tuple(replace(both, flipped=None) for both in self.seeds))


Test = tuple[str | None, float]
"""Which test, and its p."""
