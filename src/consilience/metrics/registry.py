"""The metrics by name: how they are counted, what they mean, and in which tables they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from consilience.metrics.grid import Grid, View
from consilience.metrics.tally import Tally

Level = Literal["headline", "main", "detail"]
"""Where a metric is shown.

headline: in every table and figure. main: in tables of one run. detail: in the summary of a run.
``metrics.csv`` has every metric.
"""

Better = Literal["higher", "lower"]
"""The direction of a metric: which values are better."""


@dataclass(frozen=True, slots=True)
class Description:
    """How a metric is shown."""

    label: str
    """The heading of its column."""
    meaning: str
    """What the value means, in a few words."""
    short: str
    """The heading on a narrow screen."""
    level: Level
    """Where it is shown."""
    better: Better | None
    """Which values are better; None where it cannot be said."""
    alias_of: str
    """The metric that has this name on N-M relations; empty for a metric of its own."""


DESCRIPTIONS: dict[str, Description] = {}
"""Metrics by name, in the order in which tables show them."""


def describe(
    name: str,
    *,
    label: str,
    meaning: str,
    short: str = "",
    level: Level = "main",
    better: Better | None = None,
    alias_of: str = "",
) -> None:
    """Register how a metric is shown; a name that is taken raises."""
    if name in DESCRIPTIONS:
        raise ValueError(f"there is a metric '{name}' already")
    DESCRIPTIONS[name] = Description(label, meaning, short or label, level, better, alias_of)


Count = Callable[[Grid], Tally | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is counted; its ``Description`` says how it is shown."""

    count: Count
    """What is counted in a grid; None where the metric does not apply."""
    view: View
    """The grid that it reads."""
    by_edit: bool
    """Whether it is also counted by kinds of edits."""
    binary: bool
    """Whether an item counts once, as a hit or not."""
    bounds: tuple[float, float]
    """The least and the greatest value that it can have; its intervals stay between them."""
    one_form: bool
    """Whether it is of each form alone, instead of two forms together."""
    by_form: bool
    """Whether it is also counted of each perturbed form together with the original."""
    scores: tuple[str, ...]
    """The columns of the answers table that it reads as ``Grid.scores``."""
    by_expectation: bool = False
    """Whether it is also counted by kinds of expectations."""


METRICS: dict[str, Metric] = {}


def metric(
    view: View,
    *,
    label: str,
    meaning: str,
    short: str = "",
    level: Level = "main",
    better: Better | None = None,
    by_edit: bool = False,
    binary: bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    one_form: bool = False,
    by_form: bool = False,
    scores: tuple[str, ...] = (),
    by_expectation: bool = False,
) -> Callable[[Count], Count]:
    """Register a function as the metric of its name; a name that is taken raises.

    ``label``, ``meaning``, ``short``, ``level`` and ``better`` are those of its ``Description``:
    with them the metric appears in the tables, the report and the docs. The other arguments are
    those of ``Metric``.
    """

    def register(count: Count) -> Count:
        name = count.__name__
        describe(name, label=label, meaning=meaning, short=short, level=level, better=better)
        METRICS[name] = Metric(
            count, view, by_edit, binary, bounds, one_form, by_form, scores, by_expectation
        )
        return count

    return register


def label_of(name: str) -> str:
    """The label of a metric; without a description, its name in words."""
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name].label
    return name.replace("_", " ").capitalize()


def short_label_of(name: str) -> str:
    """The label of a metric on a narrow screen."""
    return DESCRIPTIONS[name].short if name in DESCRIPTIONS else label_of(name)


def headline_metrics(*, aliases: bool = False) -> list[str]:
    """The metrics of every table and figure; ``aliases``: with their names on N-M relations."""
    return [
        name
        for name, description in DESCRIPTIONS.items()
        if description.level == "headline" and (aliases or not description.alias_of)
    ]


def main_metrics() -> list[str]:
    """The metrics of tables of one run."""
    return [name for name, description in DESCRIPTIONS.items() if description.level != "detail"]
