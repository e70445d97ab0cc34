"""The metrics, each a function of a grid. Counts in, counts out: a metric is hits over total.

A function says how many of the things that it counts are hits, how many there are, and how many
were left out because an answer is missing. Its value is hits/total; without any it is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consilience.metrics.grid import Bools, Grid, View, all_of, any_of


@dataclass(frozen=True, slots=True)
class Share:
    """``hits`` of ``total``, and how many were left out."""

    hits: int
    total: int
    left_out: int = 0

    @property
    def value(self) -> float:
        """hits/total; NaN where the total is 0."""
        return self.hits / self.total if self.total else float("nan")

    def __add__(self, other: Share) -> Share:
        return Share(
            self.hits + other.hits, self.total + other.total, self.left_out + other.left_out
        )


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's function, the view it reads, and whether it is also told by kinds of edits."""

    count: Callable[[Grid], Share]
    view: View
    by_edit: bool


METRICS: dict[str, Metric] = {}


def metric(
    view: View, *, by_edit: bool = False
) -> Callable[[Callable[[Grid], Share]], Callable[[Grid], Share]]:
    """Register a function as the metric of its name; a name that is taken raises."""

    def register(count: Callable[[Grid], Share]) -> Callable[[Grid], Share]:
        name = count.__name__
        if name in METRICS:
            raise ValueError(f"there is a metric '{name}' already")
        METRICS[name] = Metric(count, view, by_edit)
        return count

    return register


def _share(hits: Bools, counted: Bools) -> Share:
    return Share(int((hits & counted).sum()), int(counted.sum()), int((~counted).sum()))


@metric("tuples")
def accuracy(grid: Grid) -> Share:
    """Share of tuples whose answer in the base pattern is the gold (Section 5.2, Accuracy)."""
    return _share(grid.right[:, 0], grid.taken[:, 0])


@metric("pairs", by_edit=True)
def consistency(grid: Grid) -> Share:
    """Share of pairs of patterns that give the same answer, over all tuples (Section 5.2).

    ``sum_i sum_{k<l} [a_ik = a_il] / sum_i n_i (n_i - 1) / 2`` for tuples i and patterns k, l.
    On N-M relations the same number is called ``determinism`` (Section 3.1).
    """
    return _agreement(grid, np.ones(len(grid.answers), dtype=np.bool_))


@metric("tuples")
def consistent_accuracy(grid: Grid) -> Share:
    """Share of tuples whose answer is the gold in every pattern (Section 5.2, Consistent-Acc).

    A tuple that lacks an answer in some pattern that others were asked in is left out.
    """
    return _share(all_of(grid.right[:, grid.asked], axis=1), grid.complete)


@metric("tuples")
def consistent_wrong(grid: Grid) -> Share:
    """Share of tuples with one and the same wrong answer in every pattern (released code)."""
    answers = grid.answers[:, grid.asked]
    alike = all_of(answers == answers[:, :1], axis=1)
    return _share(alike & ~any_of(grid.right, axis=1), grid.complete)


@metric("pairs")
def successful_patterns(grid: Grid) -> Share:
    """Share of patterns that give at least one right answer (Section 6.1, Succ-Patt)."""
    return _share(any_of(grid.right, axis=0), grid.asked)


@metric("pairs")
def successful_objects(grid: Grid) -> Share:
    """Share of tuples that at least one pattern answers right (Section 6.1, Succ-Objs)."""
    return _share(any_of(grid.right, axis=1), any_of(grid.taken, axis=1))


@metric("pairs")
def known_consistency(grid: Grid) -> Share:
    """Consistency over the tuples that at least one pattern answers right (Know-Const)."""
    return _agreement(grid, any_of(grid.right, axis=1))


@metric("pairs")
def unknown_consistency(grid: Grid) -> Share:
    """Consistency over the tuples that no pattern answers right (Section 6.1, Unk-Const)."""
    return _agreement(grid, ~any_of(grid.right, axis=1) & any_of(grid.taken, axis=1))


def _agreement(grid: Grid, items: Bools) -> Share:
    """Pairs of answers that are the same, of those of ``items`` (item,)."""
    answers = grid.answers[items]
    first, second = answers[:, grid.pairs[:, 0]], answers[:, grid.pairs[:, 1]]
    return _share(first == second, (first >= 0) & (second >= 0))
