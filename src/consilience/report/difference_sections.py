"""The section of a report on several runs: later runs minus the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from consilience.metrics.descriptions import headline_metrics, label_of, main_metrics
from consilience.report.comparison_tables import difference_cells
from consilience.report.page import Folded, Part, Points, Section
from consilience.report.table import Column, Table, Value
from consilience.report.task_tables import SYMBOLS


def fact_differences(compared: pl.DataFrame, notes: Sequence[str]) -> Section:
    """Later runs on facts minus the first: means over relations, and folded each relation."""
    chosen = compared.filter(pl.col("subset") == "all")
    parts: list[Part] = [Points(notes)] if notes else []
    for (first, second), rows in chosen.group_by(["first", "second"], maintain_order=True):
        columns = [
            Column("number"), Column(str(first), "share"), Column(str(second), "share"),
            Column("points", "points"), Column("95 %", "points"), Column("p", "p"),
            Column("detectable", "share"),
        ]  # fmt: skip
        minus = f"{second} minus {first}"
        means = [
            [label_of(row["metric"]), *difference_cells(row), row["p"], row["smallest"]]
            for row in rows.filter(pl.col("group") == "MACRO").iter_rows(named=True)
            if row["metric"] in main_metrics()
        ]
        parts.append(Table(f"{minus}: means over relations", columns, means, sortable=False))
        by_relation = [
            [row["group"], label_of(row["metric"]), *difference_cells(row), row["p_holm"],
             row["smallest"]]
            for row in rows.iter_rows(named=True)
            if row["group"] not in ("MACRO", "MICRO")
            and row["metric"] in headline_metrics(aliases=True)
        ]  # fmt: skip
        columns = [Column("relation"), *columns[:5], Column("p, Holm", "p"), columns[6]]
        title = f"{minus}: each relation; p adjusted over relations"
        folded = Table(title, columns, by_relation)
        parts.append(Folded(f"Each relation, {minus}", [folded]))
    intro = (
        "Both runs were asked the same facts in the same patterns, so their answers are paired: "
        "question by question, the later run minus the first. Points of percent; p two-sided; "
        "* .05, ** .01, *** .001. “Detectable” is the smallest true difference that "
        "this suite would have found with a chance of 80 %."
    )
    return Section("differences", "Differences", intro, parts)


def pair_differences(compared: pl.DataFrame | None, notes: Sequence[str]) -> list[Section]:
    """Later runs on sentence pairs minus the first; none without differences and notes."""
    parts: list[Part] = [Points(notes)] if notes else []
    if compared is None:
        return [Section("differences", "Differences", "", parts)] if parts else []
    shown = compared.filter(pl.col("metric").is_in(main_metrics()))
    for (group, first, second), rows in shown.group_by(
        ["group", "first", "second"], maintain_order=True
    ):
        columns = [
            Column("number"), Column("form"), Column(str(first), "share"),
            Column(str(second), "share"), Column("points", "points"), Column("95 %", "points"),
            Column("p", "p"), Column("p, Holm", "p"),
        ]  # fmt: skip
        columns += [Column("p over seeds", "p")] if rows["seeds"][0] > 1 else []
        shown_first = (pl.col("metric") == "consistency") | (
            pl.col("metric").is_in(["accuracy", "f1"]) & (pl.col("subset") == "all")
        )
        title = f"{group}: {second} minus {first}"
        chosen, others = rows.filter(shown_first), rows.filter(~shown_first)
        parts.append(Table(title, columns, [_pair_difference(row) for row in chosen.to_dicts()]))
        title += ", all other numbers"
        cells = [_pair_difference(row) for row in others.to_dicts()]
        parts.append(Folded(title, [Table(title, columns, cells)]))
    intro = (
        "The same pairs, so the answers are paired. p: sign flips of items; Holm: "
        "adjusted over forms; over seeds: Welch's t. * .05, ** .01, *** .001."
    )
    return [Section("differences", "Differences", intro, parts)]


def _pair_difference(row: dict[str, Any]) -> list[Value]:
    metric, form = row["metric"], row["subset"]
    name = SYMBOLS.get((metric, form), label_of(metric))
    over_seeds = [row["p_seeds"]] if row["seeds"] > 1 else []
    shown_form = "original" if form == "all" and metric == "accuracy" else form
    return [name, shown_form, *difference_cells(row), row["p"], row["p_holm"], *over_seeds]
