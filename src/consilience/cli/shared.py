"""What the commands share: the options of their output, and JSON documents."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.choices import Protocol
from consilience.cli.process import json_text
from consilience.workflow.options import ADVANCED, COUNTING, OUTPUT

if TYPE_CHECKING:
    import polars as pl


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Folder of fetched suites [env: CONSILIENCE_DATA].",
        metavar="DIR",
        rich_help_panel=ADVANCED,
    ),
]
ProtocolOption = Annotated[
    Protocol | None,
    typer.Option(
        help="Count by the papers' released code (published) or by the definitions in their text "
        "(strict) [default: that of the run or the suite].",
        metavar="published|strict",
        rich_help_panel=COUNTING,
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        help="Also write the table to this CSV file.",
        metavar="FILE",
        rich_help_panel=OUTPUT,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print only one JSON document.", rich_help_panel=OUTPUT),
]
AsShipped = Annotated[
    bool,
    typer.Option(
        "--as-shipped",
        help="Keep the ParaRel tuples that the ParaRel paper leaves out.",
        rich_help_panel=ADVANCED,
    ),
]


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
    import polars as pl

    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()
