"""The section of a report on several runs: later runs minus the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import headline_metrics, label_of, main_metrics
from consilience.report.comparison_tables import difference_cells
from consilience.report.metric_tables import form_metrics
from consilience.report.page import Folded, Part, Points, Section
from consilience.report.run_view import name_and_id
from consilience.report.table import Column, Table, Value
from consilience.report.task_tables import SYMBOLS

INTRO = (
    "All runs have the same questions, so their answers are paired. A difference is the later run "
    "minus the first, in percentage points, over the items that both answered; so a value may "
    "differ from that of the run alone. p is two-sided: * .05, ** .01, *** .001. Holm: adjusted "
    "over relations, or over the forms of a number. The intervals are not adjusted. Detectable: "
    "the minimum detectable difference at 80 % power."
)
"""How to read the tables."""


def differences(
    compared: pl.DataFrame | None, notes: Sequence[str], names: Mapping[str, str]
) -> list[Section]:
    """Later runs minus the first (``COMPARISON_SCHEMA``); none without differences and notes.

    ``names``: how the page names the groups.
    """
    parts: list[Part] = [Points(notes)] if notes else []
    if compared is None:
        return [Section("differences", "Differences", "", parts)] if parts else []
    for (first, second), rows in compared.group_by(["first", "second"], maintain_order=True):
        columns = _columns(str(first), str(second), int(rows["seeds"][0]))
        minus = f"{second} minus {first}"
        if "MACRO" in rows["group"]:
            parts += _over_relations(rows, columns, minus, names)
        else:
            parts += _by_form(rows, columns, minus)
    return [Section("differences", "Differences", INTRO, parts)]


def _columns(first: str, second: str, seeds: int) -> list[Column]:
    """The columns of ``_numbers``."""
    columns = [
        Column(first, "share"), Column(second, "share"), Column("points", "points"),
        Column("95 % CI", "points"), Column("p", "p"), Column("p, Holm", "p"),
        Column("detectable", "share"),
    ]  # fmt: skip
    return columns + ([Column("p over seeds", "p")] if seeds > 1 else [])


def _numbers(row: dict[str, Any]) -> list[Value]:
    """Both values of a row, their difference, its interval and tests."""
    over_seeds = [row["p_seeds"]] if row["seeds"] > 1 else []
    return [*difference_cells(row), row["p"], row["p_holm"], row["detectable"], *over_seeds]


def _over_relations(
    rows: pl.DataFrame, columns: list[Column], minus: str, names: Mapping[str, str]
) -> Iterator[Table | Folded]:
    """Means over relations, and folded the headline metrics of each relation."""
    rows = rows.filter((pl.col("subset") == "all") & pl.col("metric").is_in(main_metrics()))
    means = [
        [label_of(row["metric"]), *_numbers(row)]
        for row in rows.filter(pl.col("group") == "MACRO").iter_rows(named=True)
    ]
    title = f"{minus}: means over relations"
    yield Table(title, [Column("number"), *columns], means, sortable=False)
    is_relation = ~pl.col("group").is_in(["MACRO", "MICRO"])
    by_relation = [
        [name_and_id(names, row["group"]), label_of(row["metric"]), *_numbers(row)]
        for row in rows.filter(is_relation).iter_rows(named=True)
        if row["metric"] in headline_metrics(aliases=True)
    ]
    title = f"{minus}: each relation"
    table = Table(title, [Column("relation"), Column("number"), *columns], by_relation)
    yield Folded(title, [table])


def _by_form(rows: pl.DataFrame, columns: list[Column], minus: str) -> Iterator[Table | Folded]:
    """Of each group the consistency by form and the accuracy, and folded all other numbers."""
    columns = [Column("number"), Column("form"), *columns]
    rows = rows.filter(pl.col("metric").is_in(form_metrics(rows)))
    is_main = (pl.col("metric") == "consistency") | (
        pl.col("metric").is_in(["accuracy", "f1"]) & (pl.col("subset") == "all")
    )
    for (group,), of_group in rows.group_by("group", maintain_order=True):
        title = f"{group}: {minus}"
        main, others = (
            [_form_row(row) for row in of_group.filter(chosen).to_dicts()]
            for chosen in (is_main, ~is_main)
        )
        yield Table(title, columns, main)
        title += ", all other numbers"
        if others:
            yield Folded(title, [Table(title, columns, others)])


def _form_row(row: dict[str, Any]) -> list[Value]:
    metric, form = row["metric"], row["subset"]
    name = SYMBOLS.get((metric, form), label_of(metric))
    shown_form = "original" if form == "all" and metric == "accuracy" else form
    return [name, shown_form, *_numbers(row)]
