"""Numbers as the cells of a report's tables."""

from __future__ import annotations

import math

from consilience.report.comparison import between, points, probability
from consilience.report.page import Cell
from consilience.report.tables import interval, percent


def share(value: float | None) -> Cell:
    """A share in percent."""
    return _number(value, percent(value))


def ends(low: float | None, high: float | None) -> Cell:
    """An interval in percent, sorted by its width."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return Cell("-", missing=True)
    return Cell(interval(low, high).replace(" ", " to "), high - low)


def change(value: float | None) -> Cell:
    """A difference in points of percent."""
    return _number(value, points(value))


def change_ends(low: float | None, high: float | None) -> Cell:
    """The interval of a difference."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return Cell("-", missing=True)
    return Cell(between(low, high), high - low)


def chance(p: float | None) -> Cell:
    """A p-value."""
    return _number(p, probability(p).strip())


def count(value: int | None) -> Cell:
    """A whole number."""
    return Cell("-", missing=True) if value is None else Cell(f"{value:,}", float(value))


def _number(value: float | None, text: str) -> Cell:
    if value is None or math.isnan(value):
        return Cell(text, missing=True)
    return Cell(text, float(value))
