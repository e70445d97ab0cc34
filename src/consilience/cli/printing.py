"""Results on standard output: tables in the format of ``--format``, and JSON documents."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.cli.console import out
from consilience.cli.process import json_text
from consilience.core.errors import TableFormat
from consilience.report.export import as_csv, as_latex, as_markdown
from consilience.report.table import Table, all_notes

DRY_RUN = "Nothing was trained. Rerun the command without --dry-run to start."
"""The last line of the dry run of a training."""


def print_tables(tables: Iterable[Table], format_: TableFormat) -> None:
    """Print tables, with an empty line between them."""
    for at, table in enumerate(tables):
        if at:
            out.print()
        match format_:
            case "csv":
                out.print(as_csv(table), end="")
            case "md":
                text = as_markdown(replace(table, notes=all_notes(table)))
                out.print(text, end="")
            case "latex":
                out.print(as_latex(replace(table, notes=all_notes(table))), end="")
            case _:
                out.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        out.print(line)


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    print(json_text(document))


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def rows_of(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN."""
    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()
