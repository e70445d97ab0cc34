"""The tables of a study: the headline numbers of all runs, and all comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from consilience.metrics.registry import label_of, short_label_of
from consilience.report.columns import Columns, contradictions, difference_columns, frame_table
from consilience.report.comparison_tables import LABELS
from consilience.report.noise_tables import worst_flips
from consilience.report.summary import SummaryRow
from consilience.report.table import CI, NAN, Cell, Column, Table, Value
from consilience.text import counted


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The headline numbers of a model on one suite with one combination of factors."""

    model: str
    missing: str
    """Why there are no numbers; empty where there are."""
    numbers: Mapping[str, SummaryRow] = field(default_factory=dict)
    metrics: pl.DataFrame | None = None
    """The metrics table of the run (``METRICS_SCHEMA``)."""
    notes: Sequence[str] = ()
    """What a reader of the run should know."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """``run.json``."""
    page: Path | None = None
    """The report of the run, where there is one."""

    @property
    def items(self) -> int | None:
        """The items that accuracy counts."""
        if self.metrics is None:
            return None
        rows = self.metrics.filter((pl.col("metric") == "accuracy") & (pl.col("subset") == "all"))
        pooled = rows.filter(group="MICRO")
        return int((pooled if pooled.height else rows)["n"].sum()) if rows.height else None

    @property
    def noise_floor(self) -> float:
        """The share of answers that changed when nothing in the prompt did; NaN if not measured."""
        worst = None if self.metrics is None else worst_flips(self.metrics)
        return NAN if worst is None else float(worst["value"])


@dataclass(frozen=True, slots=True)
class StudyCell:
    """All models on one suite with one combination of factors."""

    name: str
    """The suite and the factors."""
    rows: Sequence[StudyRow]
    """The models, in the order of the study."""


def headlines_table(cells: Sequence[StudyCell], study: str) -> Table:
    """One row for each model in each cell, also for missing runs; a block for each cell."""
    known = [row for cell in cells for row in cell.rows if not row.missing]
    metrics = list(dict.fromkeys(name for row in known for name in row.numbers))
    has_noise = any(row.noise_floor == row.noise_floor for row in known)
    columns = [Column("model")]
    for name in metrics:
        label = LABELS.get(name, label_of(name))
        columns += [
            Column(label, "share", short_label_of(name)),
            Column(CI, "share", is_extra=True),
        ]
    columns += [Column("items", "count", is_extra=True)]
    columns += [Column("noise floor", "share", is_extra=True)] * has_noise
    rows, blocks = [], []
    for cell in cells:
        for row in cell.rows:
            rows.append(_cells_of(row, metrics, len(columns)))
            blocks.append(cell.name)
    missing = [f"{row.model} on {cell.name}" for cell in cells for row in cell.rows if row.missing]
    notes = list(_meanings(known, metrics))
    notes += [f"Missing: {', '.join(missing)}."] if missing else []
    title = f"{study}: {counted(len(rows) - len(missing), 'run')} in percent"
    title += f", {len(missing)} missing" if missing else ""
    return Table(title, columns, rows, notes, blocks)


def _cells_of(row: StudyRow, metrics: Sequence[str], size: int) -> list[Value]:
    if row.missing:
        return [row.model, row.missing, *[""] * (size - 2)]
    values: list[Value] = [row.model]
    for name in metrics:
        number = row.numbers.get(name)
        if number is None:
            values += [Cell(), Cell()]
        else:
            values += [Cell(number.value, number.std), Cell(low=number.low, high=number.high)]
    return [*values, row.items, row.noise_floor][:size]


def _meanings(rows: Sequence[StudyRow], metrics: Sequence[str]) -> Iterator[str]:
    """What each number counts; the same number may be called by other words in another suite."""
    for name in metrics:
        meanings = dict.fromkeys(
            row.numbers[name].meaning.partition(" (")[0] for row in rows if name in row.numbers
        )
        yield f"{LABELS.get(name, label_of(name))}: {', or '.join(meanings)}."
    if any(row.numbers and next(iter(row.numbers.values())).std >= 0 for row in rows):
        yield "±: standard deviation over seeds."


def comparisons_table(differences: pl.DataFrame, study: str) -> Table:
    """All headline comparisons (``COMPARISON_SCHEMA`` with ``cell``), p adjusted over all of them.

    A block for each two models in each cell.
    """
    records = [
        {"name": LABELS.get(row["metric"], label_of(row["metric"])), **row}
        for row in differences.iter_rows(named=True)
    ]
    shown = difference_columns(differences, Column("first", "share"), Column("second", "share"))
    last: Columns = {"q_value": Column("q (BH)", "p"), "detectable": shown["detectable"]}
    columns = {"name": Column("number"), **shown}
    columns.pop("detectable")  # the last one
    tested = differences["p"].is_not_nan().sum()
    cells = counted(differences["cell"].n_unique(), "combination")
    tests = ", ".join(differences["test"].drop_nulls().unique(maintain_order=True))
    notes = [
        f"p (Holm) and q (BH) are adjusted over one family: all {tested} tests of this table, in "
        f"{cells} of suite and factors. Intervals and p are not adjusted.",
        *contradictions(differences),
        f"p: {tests}. detectable: the minimum detectable difference (80 % power, one test). * .05 "
        "** .01 *** .001",
    ]
    blocks = [f"{row['cell']}: {row['second']} minus {row['first']}" for row in records]
    title = f"{study}: differences between models, in percent and points"
    return frame_table(records, title, {**columns, **last}, notes, blocks)
