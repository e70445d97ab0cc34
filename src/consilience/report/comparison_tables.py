"""Differences between runs on a screen: percent, and points of percent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.registry import headline_metrics, label_of
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
    """Later runs minus the first (``COMPARISON_SCHEMA``), in points of percent.

    For each run and metric one table with a row a relation; of sentence pairs one table a task,
    with a row a form.
    """
    known = set(compared["metric"])
    for name in metrics:
        if name not in known:
            raise ConsilienceError(
                f"no metric '{name}' in the comparison", todo=did_you_mean(name, sorted(known))
            )
    for (first, second), rows in compared.group_by(["first", "second"], maintain_order=True):
        if "MACRO" in rows["group"]:
            chosen = rows.filter(pl.col("subset") == "all")
            for name in metrics:
                heading = f"{title}: {name}\n{first} -> {second}"
                yield _relations_table(chosen.filter(pl.col("metric") == name), heading)
        else:
            for (group,), of_group in rows.group_by("group", maintain_order=True):
                yield _forms_table(of_group, metrics, f"{group}: {second} minus {first}")


def _relations_table(rows: pl.DataFrame, title: str) -> Table:
    """A row a relation, then over relations; p of a relation is adjusted (Holm)."""
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    notes = [
        f"p: {tests}; of relations adjusted (Holm), * .05 ** .01 *** .001",
        "Intervals are not adjusted. MACRO: relations like these; MICRO: these relations, subjects "
        "like these",
    ]
    cells = []
    for row in rows.iter_rows(named=True):
        p = row["p"] if row["group"] in ("MACRO", "MICRO") else row["p_holm"]
        cells.append([row["group"], *difference_cells(row), p, row["detectable"]])
    columns = [Column("relation"), *VALUES, Column("p", "p"), Column("detectable", "share")]
    return Table(title, columns, cells, [*notes, *interval_notes(rows)])


def _forms_table(rows: pl.DataFrame, metrics: Sequence[str], title: str) -> Table:
    """A block a metric with a row a form; p of a perturbed form is adjusted (Holm) over forms."""
    seeds = rows["seeds"][0]
    columns = [Column("form"), *VALUES, Column("p, Holm", "p")]
    columns += [Column("p over seeds", "p")] if seeds > 1 else []
    cells: list[list[Value]] = []
    for metric in metrics:
        chosen = rows.filter(pl.col("metric") == metric)
        if chosen.height:
            cells.append([label_of(metric), *[""] * (len(columns) - 1)])
        cells += [_form_cells(row) for row in chosen.iter_rows(named=True)]
    note = "p of a form is adjusted (Holm) over forms, the interval is not"
    over = f", means of {seeds} seeds" if seeds > 1 else ""
    return Table(f"{title}{over}", columns, cells, [note, *interval_notes(rows)])


def _form_cells(row: dict[str, Any]) -> list[Value]:
    form = row["subset"]
    p = row["p" if form == "all" else "p_holm"]
    if form == "all" and row["metric"] in ("accuracy", "f1"):
        form = "original"
    over_seeds = [row["p_seeds"]] if row["seeds"] > 1 else []
    return [f"  {form}", *difference_cells(row), p, *over_seeds]


def headline_differences(compared: pl.DataFrame, title: str) -> Table:
    """The headline numbers of later runs against the first, a row a metric and run.

    Of facts the means over relations, of sentence pairs those of each task.
    """
    rows = compared.filter(
        (pl.col("subset") == "all") & pl.col("metric").is_in(headline_metrics(aliases=True))
    )
    means = rows.filter(pl.col("group") == "MACRO")
    shown = means if means.height else rows
    several = shown.select("group", "second").unique().height > 1
    cells: list[list[Value]] = []
    for row in shown.iter_rows(named=True):
        of = f" ({row['second']}{'' if means.height else ', ' + row['group']})" if several else ""
        cells.append([f"{label_of(row['metric'])}{of}", *difference_cells(row), row["p"]])
    notes = ["Points of percent, with 95 % confidence intervals. p: * .05 ** .01 *** .001"]
    columns = [Column(""), *VALUES, Column("p", "p")]
    return Table(title, columns, cells, [*notes, *interval_notes(shown)], sortable=False)
