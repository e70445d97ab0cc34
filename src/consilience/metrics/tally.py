"""The counts of a metric for each unit, and the value that follows from their sums.

A metric is hits over total. It counts hits and total of every item (or variant). The sums over all
items give its value; the sums over resampled items give the value in that sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from consilience.metrics.grid import Floats


@dataclass(frozen=True, slots=True)
class Share:
    """A number of hits and a total."""

    hits: float
    """The numerator."""
    total: float
    """The denominator."""
    n: int
    """How many things were counted."""
    left_out: int
    """How many things were left out, because an answer is missing."""
    empty: float = float("nan")
    """The value if the total is 0."""

    @property
    def value(self) -> float:
        """hits/total."""
        return self.hits / self.total if self.total > 0 else self.empty

    def __add__(self, other: Share) -> Share:
        return Share(
            self.hits + other.hits,
            self.total + other.total,
            self.n + other.n,
            self.left_out + other.left_out,
        )


def hits_of_total(sums: Floats) -> tuple[Floats, Floats]:
    """The two columns of ``sums`` (..., 2)."""
    return sums[..., 0], sums[..., 1]


def ratio(sums: Floats) -> tuple[Floats, Floats]:
    """``hits_of_total`` for values whose hits are no part of the total, such as F1."""
    return hits_of_total(sums)


def columns_of_total(sums: Floats) -> tuple[Floats, Floats]:
    """The derivatives (column,) of ``hits_of_total``: 1 in its own column, 0 in the other."""
    return np.array([1.0, 0.0]), np.array([0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Tally:
    """What a metric counts."""

    counts: npt.NDArray[np.floating]
    """What is counted (unit, column)."""
    clusters: npt.NDArray[np.object_] | None
    """The subject of each unit (unit,); units of one cluster are not independent.

    None where resampling the clusters does not show how precise the value is.
    """
    n: int
    """How many things were counted."""
    left_out: int = 0
    """How many things were left out, because an answer is missing."""
    finish: Callable[[Floats], tuple[Floats, Floats]] = hits_of_total
    """Hits (...) and total (...) from sums over units (..., column).

    Both are homogeneous of degree 1: they double where all sums double. The value is hits/total,
    NaN where the total is 0.
    """
    slopes: Callable[[Floats], tuple[Floats, Floats]] = columns_of_total
    """The derivatives (column,) of hits and total at sums (column,)."""
    sparse: csr_array | None = None
    """Further columns (unit, column) that are mostly 0; their sums follow the others."""

    @property
    def is_proportion(self) -> bool:
        """Whether hits are counted among the total, so that 0 of n has an exact interval."""
        return self.finish is hits_of_total

    def scores(self) -> Floats:
        """What each unit contributes to hits and total (unit, 2), to first order.

        The columns sum to the hits and the total of all units (Euler's theorem).
        """
        slopes = np.stack(self.slopes(self.sums()), axis=1)
        width = self.counts.shape[1]
        scores: Floats = self.counts.astype(np.float64) @ slopes[:width]
        if self.sparse is not None:
            scores += self.sparse @ slopes[width:]
        return scores

    def sums(self) -> Floats:
        """Each column (column,) over all units."""
        sums: Floats = self.counts.sum(axis=0, dtype=np.float64)
        if self.sparse is None:
            return sums
        more: Floats = self.sparse.sum(axis=0, dtype=np.float64)
        return np.concatenate([sums, more])

    def share(self, empty: float = float("nan")) -> Share:
        """Hits and total over all units; ``empty`` is the value without data."""
        hits, total = self.finish(self.sums())
        return Share(float(hits), float(total), self.n, self.left_out, empty)


def quotient(hits: Floats, total: Floats) -> Floats:
    """hits/total; NaN where the total is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, hits / total, np.nan)
