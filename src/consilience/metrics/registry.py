"""What a metric counts, and the registry of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from consilience.metrics.grid import Grid, View
from consilience.metrics.statistics import Floats


@dataclass(frozen=True, slots=True)
class Share:
    """A number of hits and a total."""

    hits: float
    total: float
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


Level = Literal["headline", "main", "detail"]
"""Where a metric is shown.

headline: in every table and figure. main: in tables of one run. detail: in the summary of a run.
``metrics.csv`` has every metric.
"""

Better = Literal["higher", "lower"]

Count = Callable[[Grid], Tally | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How a metric is counted and shown."""

    count: Count
    """What is counted in a grid; None where the metric does not apply."""
    view: View
    """The grid that it reads."""
    label: str
    """The heading of its column."""
    meaning: str
    """What the value means, in a few words."""
    short: str = ""
    """The heading on a narrow screen; empty for the label."""
    level: Level = "main"
    better: Better | None = None
    """Which values are better; None where it cannot be said."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest value that it can have; its intervals stay between them."""
    binary: bool = False
    """Whether an item counts once, as a hit or not."""
    one_form: bool = False
    """Whether it is of each form alone, instead of two forms together."""
    by_form: bool = False
    """Whether it is also counted of each perturbed form together with the original."""
    by_edit: bool = False
    """Whether it is also counted by kinds of edits."""
    by_expectation: bool = False
    """Whether it is also counted by kinds of expectations."""
    scores: tuple[str, ...] = ()
    """The columns of the answers table that it reads as ``Grid.scores``."""
    alias_of: str = ""
    """The metric that has this name on N-M relations; empty for a metric of its own."""


METRICS: dict[str, Metric] = {}
"""The metrics that are counted."""

DESCRIPTIONS: dict[str, Metric] = {}
"""These and their other names, in the order in which tables show them."""


def metric(view: View, label: str, meaning: str, **options: Any) -> Callable[[Count], Count]:
    """Register a function as the metric of its name, with the other fields of ``Metric``.

    It appears in the tables, the report and the docs. A name that is taken raises.
    """

    def register(count: Count) -> Count:
        name = count.__name__
        if name in DESCRIPTIONS:
            raise ValueError(f"there is a metric '{name}' already")
        made = Metric(count=count, view=view, label=label, meaning=meaning, **options)
        DESCRIPTIONS[name] = METRICS[name] = made
        return count

    return register


def label_of(name: str) -> str:
    """The label of a metric; without a description, its name in words."""
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name].label
    return name.replace("_", " ").capitalize()


def short_label_of(name: str) -> str:
    """The label of a metric on a narrow screen."""
    return (name in DESCRIPTIONS and DESCRIPTIONS[name].short) or label_of(name)


def headline_metrics(*, aliases: bool = False) -> list[str]:
    """The metrics of every table and figure; ``aliases``: with their names on N-M relations."""
    headline = [name for name, metric in DESCRIPTIONS.items() if metric.level == "headline"]
    return [name for name in headline if aliases or not DESCRIPTIONS[name].alias_of]


def main_metrics() -> list[str]:
    """The metrics of tables of one run."""
    return [name for name, description in DESCRIPTIONS.items() if description.level != "detail"]
