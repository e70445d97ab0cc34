"""The numbers of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import polars as pl

from consilience.report.table import NAN, Cell


def paper_numbers(table: str) -> pl.DataFrame:
    """The numbers that a paper prints in a table, or in the text of a section, in its order.

    Columns: ``table, section, group, row, column, value, std, unit, digits``.
    """
    text = (files("consilience.report") / "papers.csv").read_bytes()
    rows = pl.read_csv(text, infer_schema=False).filter(pl.col("table") == table)
    decimals = pl.col("value").str.split(".").list.get(1, null_on_oob=True).str.len_chars()
    return rows.fill_null("").with_columns(
        digits=decimals.fill_null(0),
        value=pl.col("value").cast(pl.Float64),
        std=pl.col("std").replace("", None).cast(pl.Float64).fill_null(NAN),
    )


PAPER_KEYS: Mapping[str, tuple[str, str, str]] = {
    "Succ-Patt": ("successful_patterns", "whole", ""),
    "Succ-Objs": ("successful_objects", "whole", ""),
    "Unk-Const": ("unknown_consistency", "whole", ""),
    "Know-Const": ("known_consistency", "whole", ""),
    "Accuracy": ("accuracy", "whole", ""),
    "Consistency": ("consistency", "whole", ""),
    "Consistent-Acc": ("consistent_accuracy", "whole", ""),
    "Diff-Syntax": ("consistency", "edit", "diff_syntax"),
    "No-Change": ("consistency", "edit", "no_change"),
    "Acc_val": ("accuracy", "whole", ""),
    "C_R": ("consistency", "form", "reverse"),
    "C_S": ("consistency", "form", "signal"),
}
"""Columns of the papers' tables: metric, kind and level."""

TUPLES = (22_964, 23_097, 22_949, 23_082)
"""Of ParaRel's N-1 relations: without and with those of note 11; the same, each counted once."""
Values = Mapping[tuple[str, str, str], Cell]  # cells of a row by metric, kind and level


def paper_values(table: str, group: str = "") -> dict[str, Values]:
    """The rows of a paper's table as fractions, by row; ``group``: only those of a task."""
    rows: dict[str, dict[tuple[str, str, str], Cell]] = {}
    for number in paper_numbers(table).iter_rows(named=True):
        if not group or number["group"].lower() == group:
            cell = Cell(number["value"] / 100, number["std"] / 100)
            rows.setdefault(number["row"], {})[PAPER_KEYS[number["column"]]] = cell
    return dict(rows)


def is_of_pararel(metrics: pl.DataFrame) -> bool:
    """Whether a metrics table has as many facts with one right answer as ParaRel has."""
    whole = metrics.filter(metric="accuracy", over="all", kind="whole")
    return any(rows in TUPLES for rows in whole["n"] + whole["n_excluded"])
