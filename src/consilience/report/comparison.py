"""Differences between runs as tables for people: percent, and points of percent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.table import Table

from consilience.errors import ConsilienceError, did_you_mean
from consilience.report.tables import NO_INTERVAL, new_table, percent

STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Levels of significance and their marks."""


def comparison_tables(
    compared: pl.DataFrame, metrics: Sequence[str], title: str
) -> Iterator[Table]:
    """For each run and metric one table: a row a relation, then over relations.

    p of a relation is Holm's, over all relations; intervals are not adjusted. The interval and the
    smallest difference that would have been found are in points of percent.
    """
    for name in metrics:
        if name not in set(compared["metric"]):
            known = sorted(set(compared["metric"]))
            raise ConsilienceError(
                f"no metric '{name}' in the comparison", todo=did_you_mean(name, known)
            )
    chosen = compared.filter(pl.col("subset") == "all")
    for (first, second), rows in chosen.group_by(["first", "second"], maintain_order=True):
        for name in metrics:
            yield _table(rows.filter(pl.col("metric") == name), f"{title}: {name}", first, second)


def _table(rows: pl.DataFrame, title: str, first: Any, second: Any) -> Table:
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    table = new_table(f"{title}\n{first} -> {second}")
    lines = [
        f"p: {tests}; of relations adjusted (Holm), * .05 ** .01 *** .001",
        "Intervals are not adjusted. MACRO: relations like these; MICRO: these relations, subjects "
        "like these",
        *([NO_INTERVAL] if rows["low"].is_nan().any() else []),
    ]
    table.caption = "\n".join(lines)
    table.add_column("relation", overflow="fold")
    for heading in ("first", "second", "points", "95 % interval", "p", "could show"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        over = row["group"] in ("MACRO", "MICRO")
        table.add_row(
            row["group"],
            percent(row["first_value"]),
            percent(row["second_value"]),
            points(row["difference"]),
            between(row["low"], row["high"]),
            probability(row["p"] if over else row["p_holm"]),
            percent(row["smallest"]),
        )
    return table


def between(low: float, high: float) -> str:
    """Both bounds of a difference, in points of percent."""
    return "-" if math.isnan(low) or math.isnan(high) else f"{points(low)} to {points(high)}"


def points(difference: float | None) -> str:
    """A difference in points of percent, with its sign."""
    return "-" if difference is None or math.isnan(difference) else f"{difference * 100:+.1f}"


def probability(p: float | None) -> str:
    """Three digits and stars."""
    if p is None or math.isnan(p):
        return "-"
    stars = next((stars for level, stars in STARS if p < level), "")
    return (f"{p:.3f}" if p >= 0.0005 else "<.001") + f"{stars:3}"
