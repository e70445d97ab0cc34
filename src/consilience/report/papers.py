"""The numbers of the papers."""

from __future__ import annotations

from importlib.resources import files

import polars as pl

from consilience.report.table import NAN


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
