"""How metrics are shown: their labels, what they mean, and in which tables they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["headline", "main", "detail"]
"""Where a metric is shown.

headline: in every table and figure. main: in tables of one run. detail: in the summary of a run.
``metrics.csv`` has every metric.
"""


@dataclass(frozen=True, slots=True)
class Description:
    """How a metric is shown."""

    label: str
    """The heading of its column."""
    meaning: str
    """What its value is the share of."""
    short: str
    """The heading on a narrow screen."""
    level: Level
    """Where it is shown."""
    least: float
    """The lower bound of its values; the upper bound is 1."""
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
    least: float = 0.0,
    alias_of: str = "",
) -> None:
    """Register how a metric is shown; a name that is taken raises."""
    if name in DESCRIPTIONS:
        raise ValueError(f"there is a metric '{name}' already")
    DESCRIPTIONS[name] = Description(label, meaning, short or label, level, least, alias_of)


def label_of(name: str) -> str:
    """The label of a metric; of one that is not described its name in words."""
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
