"""Tables on a screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from consilience.report.table import Cell, Column, Table, spread_of, text_of

BETWEEN = 2
"""Spaces between two columns, where the screen is wide enough."""


TEXT = 24
"""Characters of a text that are shown in one line before columns move together."""


class TerminalTable:
    """A table as wide as its screen allows, between its title and its notes."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, the table, the notes; titles and notes are as wide as the screen."""
        if self.table.title:
            yield Text(self.table.title, style="table.title")
        yield _grid(self.table, options.max_width)
        for note in self.table.notes:
            yield Text(note, style="table.caption")


def _grid(table: Table, width: int) -> Grid:
    """The rows, with headings that are wrapped or shortened where the screen is narrow."""
    texts = [
        [_text(cell, column) for cell, column in zip(table.cells(at), table.columns, strict=True)]
        for at in range(len(table.rows))
    ]
    widths = [
        max((cell_len(line) for row in texts for line in row[at].plain.split("\n")), default=0)
        for at in range(len(table.columns))
    ]
    headings = [column.heading for column in table.columns]
    between = BETWEEN
    if _width(headings, widths, between) > width:
        headings = [
            _wrapped(column, most) for column, most in zip(table.columns, widths, strict=True)
        ]
        lines = [max(heading.split("\n"), key=cell_len) for heading in headings]
        least = [
            most if column.is_number else min(most, TEXT)
            for column, most in zip(table.columns, widths, strict=True)
        ]
        between = BETWEEN if _width(lines, least, BETWEEN) <= width else 1
    grid = Grid(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, between - 1, 0, 0),
        show_header=any(headings),
    )
    for heading, column in zip(headings, table.columns, strict=True):
        if column.is_number:
            grid.add_column(heading, justify="right", no_wrap=True)
        else:
            grid.add_column(heading, overflow="fold")
    block = ""
    for at, row in enumerate(texts):
        if table.blocks and table.blocks[at] and table.blocks[at] != block:
            grid.add_row(f"{table.blocks[at]}:")
        block = table.blocks[at] if table.blocks else ""
        grid.add_row(*row, end_section=at in table.rules)
    return grid


def _width(headings: Sequence[str], widths: Sequence[int], between: int) -> int:
    """The width of a table whose columns have these headings and cells of these widths."""
    columns = map(max, widths, map(cell_len, headings))
    return sum(columns) + between * len(widths) + 1


def _wrapped(column: Column, width: int) -> str:
    """A heading wrapped at words to the width of its cells, or of its longest word."""
    heading = column.short or column.heading
    words = textwrap.wrap(heading, 1, break_long_words=False)
    longest = max(map(len, words), default=1)
    return textwrap.fill(heading, max(width, longest), break_long_words=False)


def _text(cell: Cell, column: Column) -> Text:
    """A cell with its standard deviation; p-values are aligned at their digits."""
    text = text_of(cell, column, " to " if column.kind == "points" else " ")
    if spread := spread_of(cell, column):
        text = f"{text}±{spread}"
    if column.kind == "p" and cell.number is not None:
        text = text.rstrip("*") + f"{'*' * text.count('*'):3}"
    return Text(text, style="bold" if cell.is_best else "")
