"""Tables on standard output, in the format of ``--format``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.choices import By, TableFormat
from consilience.workflow.options import OUTPUT

if TYPE_CHECKING:
    from consilience.report.table import Table

ByOption = Annotated[
    By | None,
    typer.Option(
        metavar="group|edit|pattern|form|metric",
        rich_help_panel=OUTPUT,
        help="Print a table of details, with a row for each relation or task "
        "(group), kind of edit, pattern, form or metric.",
    ),
]
FormatOption = Annotated[
    TableFormat,
    typer.Option(
        "--format",
        metavar="table|md|csv|json",
        rich_help_panel=OUTPUT,
        help="Format of the printed table: Markdown (md), CSV with all digits, or json, the "
        "document that --json prints.",
    ),
]


def print_tables(tables: Iterable[Table], format_: TableFormat) -> None:
    """Print tables, with an empty line between them."""
    from consilience.cli.console import out
    from consilience.report.export import as_csv, as_markdown
    from consilience.report.table import all_notes

    for at, table in enumerate(tables):
        if at:
            out.print()
        match format_:
            case "csv":
                _print_text(as_csv(table))
            case "md":
                _print_text(as_markdown(replace(table, notes=all_notes(table))))
            case _:
                out.print(table)


def _print_text(text: str) -> None:
    from consilience.cli.console import out

    out.print(text, end="", soft_wrap=True, highlight=False)
