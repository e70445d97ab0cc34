"""Differences between runs on a screen: percent, and points of percent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.registry import label_of
from consilience.report.table import Column, Table, Value, bounds_of, interval_notes

VALUES = (
    Column("first", "share"),
    Column("second", "share"),
    Column("points", "points"),
    Column("95 %", "points"),
)
"""The columns of ``difference_cells``."""


def difference_cells(row: dict[str, Any]) -> list[Value]:
    """Both values of a row of a comparison, their difference and its interval."""
    return [row["first_value"], row["second_value"], row["difference"], bounds_of(row)]


def comparison_tables(
    compared: pl.DataFrame, metrics: Sequence[str], title: str
) -> Iterator[Table]:
    """For each run and metric one table: a row a relation, then over relations.

    p of a relation is adjusted (Holm) over relations; intervals are not adjusted. The interval and
    the minimum detectable difference are in points of percent.
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
            heading = f"{title}: {name}\n{first} -> {second}"
            yield _relations_table(rows.filter(pl.col("metric") == name), heading)


def _relations_table(rows: pl.DataFrame, title: str) -> Table:
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    notes = [
        f"p: {tests}; of relations adjusted (Holm), * .05 ** .01 *** .001",
        "Intervals are not adjusted. MACRO: relations like these; MICRO: these relations, subjects "
        "like these",
    ]
    cells = []
    for row in rows.iter_rows(named=True):
        p = row["p"] if row["group"] in ("MACRO", "MICRO") else row["p_holm"]
        cells.append([row["group"], *difference_cells(row), p, row["smallest"]])
    columns = [Column("relation"), *VALUES, Column("p", "p"), Column("detectable", "share")]
    return Table(title, columns, cells, [*notes, *interval_notes(rows)])


def difference_tables(compared: pl.DataFrame, metrics: Sequence[str]) -> Iterator[Table]:
    """One table a task and pair of runs; ``compared``: ``DIFFERENCE_SCHEMA`` with both names.

    The p of a perturbed form is adjusted over the forms of a metric.
    """
    for (group, first, second), rows in compared.group_by(
        ["group", "first", "second"], maintain_order=True
    ):
        seeds = rows["seeds"][0]
        over = f", means of {seeds} seeds" if seeds > 1 else ""
        columns = [Column("form"), *VALUES, Column("p, Holm", "p")]
        columns += [Column("p over seeds", "p")] if seeds > 1 else []
        cells: list[list[Value]] = []
        for metric in metrics:
            chosen = rows.filter(pl.col("metric") == metric)
            if chosen.height:
                cells.append([label_of(metric), *[""] * (len(columns) - 1)])
            cells += [_form_cells(row) for row in chosen.iter_rows(named=True)]
        notes = ["p of a form is adjusted (Holm) over forms, the interval is not"]
        title = f"{group}: {second} minus {first}{over}"
        yield Table(title, columns, cells, notes + interval_notes(rows))


def _form_cells(row: dict[str, Any]) -> list[Value]:
    form = row["subset"]
    p = row["p" if form == "all" else "p_holm"]
    if form == "all" and row["metric"] in ("accuracy", "f1"):
        form = "original"
    over_seeds = [row["p_seeds"]] if row["seeds"] > 1 else []
    return [f"  {form}", *difference_cells(row), p, *over_seeds]
