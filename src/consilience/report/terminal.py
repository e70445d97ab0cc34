"""Tables on a screen. No word is broken; columns that do not fit are left out and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.text import Text

from consilience.report.table import Cell, Column, Table, all_notes, spread_of, text_of

BETWEEN = 2
"""Spaces between two columns."""


"""The width of what is no screen, such as a pipe or a file."""

Lines = list[str]
"""The lines of a heading or of a cell."""


def fitted_text(table: Table, width: int, rule: str = "─") -> Text:
    """A table for a screen of ``width`` columns, between its title and its notes.

    ``rule``: the character of the lines between rows. A word that is wider than the screen stays
    whole.
    """
    grid = _fitted(table, width)
    shown = _only(table, grid.shown)
    notes = [*all_notes(shown), *grid.note(table)]
    title = _wrap(table.title, width) if table.title else []
    lines = [Text(line, style="table.title") for line in title]
    lines += grid.lines(shown, width, rule)
    lines += [Text(line, style="table.caption") for note in notes for line in _wrap(note, width)]
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


@dataclass(frozen=True, slots=True)
class _Grid:
    """The columns of a table that fit a screen."""

    shown: Sequence[int]
    """The positions of these columns."""
    headings: Sequence[Lines]
    """Their headings."""
    cells: Sequence[Sequence[Lines]]
    """The cells below them, by row."""
    widths: Sequence[int]
    """The widths of these columns."""

    def note(self, table: Table) -> Iterator[str]:
        """The columns of the table that do not fit, if any."""
        left_out = [
            column.heading for at, column in enumerate(table.columns) if at not in self.shown
        ]
        if left_out:
            names = ", ".join(dict.fromkeys(left_out))
            yield f"Not shown at this width: {names}. A wider terminal or a pipe shows all columns."

    def lines(self, table: Table, width: int, rule: str) -> Iterator[Text]:
        """Headings and rows, with the headings of blocks and rules between rows."""
        if any(any(heading) for heading in self.headings):
            height = max(map(len, self.headings))
            bottom = [[""] * (height - len(heading)) + heading for heading in self.headings]
            yield from self._row(table.columns, bottom, ["table.header"] * len(bottom))
        block = ""
        for at, cells in enumerate(self.cells):
            if table.blocks and table.blocks[at] != block:
                block = table.blocks[at]
                if block:
                    yield from map(Text, _wrap(f"{block}:", width))
            styles = ["bold" if cell.is_best else "" for cell in table.cells(at)]
            yield from self._row(table.columns, cells, styles)
            if at in table.rules:
                yield Text(rule * (sum(self.widths) + BETWEEN * (len(self.widths) - 1)))

    def _row(
        self, columns: Sequence[Column], cells: Sequence[Lines], styles: Sequence[str]
    ) -> Iterator[Text]:
        for at in range(max(map(len, cells))):
            line = Text()
            for column, cell, width, style in zip(columns, cells, self.widths, styles, strict=True):
                text = cell[at] if at < len(cell) else ""
                space = " " * (width - cell_len(text))
                line.append(space + text if column.is_number else text + space, style)
                line.append(" " * BETWEEN)
            yield line


def _fitted(table: Table, width: int) -> _Grid:
    """As many columns as fit, at least two; extra ones and those on the right are left out first.

    Headings are wrapped at words, then shortened; then texts are wrapped, first those on the left.
    """
    columns, size = table.columns, len(table.columns)
    texts = [
        [_text(*pair) for pair in zip(table.cells(at), columns, strict=True)]
        for at in range(len(table.rows))
    ]
    natural = [
        max((_width_of(row[at].split("\n")) for row in texts), default=0) for at in range(size)
    ]
    words = [
        natural[at] if column.is_number else _longest_word(row[at] for row in texts)
        for at, column in enumerate(columns)
    ]
    partial = [
        max(word, min(whole, width // 4)) for word, whole in zip(words, natural, strict=True)
    ]
    full = [[column.heading] for column in columns]
    wrapped = [
        _heading(column.heading, room) for column, room in zip(columns, natural, strict=True)
    ]
    short = [
        _heading(column.short or column.heading, room)
        for column, room in zip(columns, natural, strict=True)
    ]
    choices = list(_choices(columns))
    attempts = [
        (shown, headings, least)
        for shown in choices
        for headings, least in (
            (full, natural), (wrapped, natural), (short, natural), (short, partial),
        )
    ]  # fmt: skip
    for shown, headings, least in [*attempts, (choices[-1], short, words)]:
        chosen = [headings[at] for at in shown]
        widths = _widths(chosen, [natural[at] for at in shown], [least[at] for at in shown], width)
        if _total(widths) <= width:
            break
    cells = [
        [_wrap(row[at], room) for at, room in zip(shown, widths, strict=True)] for row in texts
    ]
    return _Grid(shown, chosen, cells, widths)


def _choices(columns: Sequence[Column]) -> Iterator[list[int]]:
    """The positions of all columns, and of ever fewer: without the extra ones, from the right."""
    shown = list(range(len(columns)))
    yield shown
    for at in sorted(shown, key=lambda at: (not columns[at].is_extra, -at)):
        if len(shown) > 2:
            shown = [position for position in shown if position != at]
            yield shown


def _only(table: Table, shown: Sequence[int]) -> Table:
    """The table with some of its columns."""
    columns = [table.columns[at] for at in shown]
    return replace(table, columns=columns, rows=[[row[at] for at in shown] for row in table.rows])


def _widths(
    headings: Sequence[Lines], natural: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    """The widths of columns that fill at most ``width``, or are at their ``least``."""
    floors = [max(low, _width_of(lines)) for low, lines in zip(least, headings, strict=False)]
    widths = [max(low, whole) for low, whole in zip(floors, natural, strict=False)]
    for at, floor in enumerate(floors):
        widths[at] = max(floor, widths[at] - max(0, _total(widths) - width))
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1)


def _width_of(lines: Iterable[str]) -> int:
    return max(map(cell_len, lines), default=0)


def _longest_word(texts: Iterable[str]) -> int:
    return max((_width_of(text.split()) for text in texts), default=0)


def _heading(text: str, width: int) -> Lines:
    """A heading, wrapped to the width of its cells or of its longest word."""
    return _wrap(text, max(width, _longest_word([text])))


def _wrap(text: str, width: int) -> Lines:
    """The lines of a text, wrapped at spaces; lines that fit are kept as they are."""
    lines: Lines = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        rest = line[: len(line) - len(line.lstrip(" "))]
        for word in line.split():
            if rest.strip() and cell_len(rest) + 1 + cell_len(word) > width:
                lines.append(rest)
                rest = word
            else:
                rest += (" " if rest.strip() else "") + word
        lines.append(rest)
    return lines


def _text(cell: Cell, column: Column) -> str:
    """A cell with its standard deviation; p-values are aligned at their digits."""
    text = text_of(cell, column)
    if spread := spread_of(cell, column):
        text = f"{text}±{spread}"
    if column.kind == "p" and cell.number is not None:
        text = text.rstrip("*") + f"{'*' * text.count('*'):3}"
    return text
