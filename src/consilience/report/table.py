"""The table that every result is shown as, and tables in a terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl
from rich.cells import cell_len
from rich.text import Text

Kind = Literal["text", "share", "points", "p", "count", "number", "detectable"]
"""What a column holds.

share: a fraction, shown in percent. points: a difference of fractions, shown in points of percent
with its sign. p: a p-value, with stars. count: a whole number. number: shown as it is.
detectable: a share; one above 1 is shown as ">100".
"""

NAN = math.nan
PERCENT = {"share": 100, "points": 100, "detectable": 100}  # from a value to what is shown
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
DASH = "A dash means"  # begins a note on cells that show "-"
NO_DATA = f"{DASH} undefined"  # there are no data, or nothing varied
CI = "95 % CI"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what the cells below it hold; a text in a column of numbers stays a text."""

    heading: str
    kind: Kind = "text"
    short: str = ""  # The heading on a narrow screen; empty for the same one
    digits: int = 1  # Digits after the decimal point of a share, points or a number
    is_extra: bool = False  # Whether a narrow screen leaves it out before other columns

    @property
    def is_number(self) -> bool:
        """Whether the column is right-aligned and sorted by number."""
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Cell:
    """One text, number or interval; the bounds are shown where there is no value."""

    value: str | float | None = None  # The text or number; None or NaN if there is none
    std: float = NAN
    low: float = NAN
    high: float = NAN
    digits: int | None = None  # Digits after the decimal point; None for those of the column
    mark: str = ""  # What is appended to the number, such as a reference to a note

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are known."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def number(self) -> float | None:
        """The value; None for a text and without one."""
        if self.value is None or isinstance(self.value, str) or math.isnan(self.value):
            return None
        return float(self.value)


Value = Cell | str | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, in the order in which they are shown."""

    title: str
    columns: Sequence[Column]  # The columns; the first one names the row
    rows: Sequence[Sequence[Value]]  # A value for each column
    notes: Sequence[str] = ()  # What a reader should know, below the table
    blocks: Sequence[str] = ()
    """The block of each row, which has a heading of its own; empty without blocks."""
    rules: Collection[int] = ()  # Rows that a line follows on a screen

    def cells(self, row: int) -> list[Cell]:
        return [value if isinstance(value, Cell) else Cell(value) for value in self.rows[row]]

    def grid(self) -> list[list[Cell]]:
        """The cells of all rows."""
        return [self.cells(row) for row in range(len(self.rows))]

    def by_block(self) -> Iterator[tuple[str | None, list[tuple[Cell, Column]]]]:
        """The cells of each row with their columns, after the block that begins there, if any."""
        block = ""
        for at, cells in enumerate(self.grid()):
            name = self.blocks[at] if self.blocks else ""
            yield None if name == block else name, list(zip(cells, self.columns, strict=True))
            block = name

    def only(self, columns: Sequence[int]) -> Table:
        """The table with some of its columns."""
        rows = [[row[at] for at in columns] for row in self.rows]
        return replace(self, columns=[self.columns[at] for at in columns], rows=rows)


def text_of(cell: Cell, column: Column) -> str:
    """A cell without its standard deviation; ``-`` for no data."""
    if isinstance(cell.value, str):
        return cell.value
    digits = column.digits if cell.digits is None else cell.digits
    if cell.value is not None and not math.isnan(cell.value):
        return number_text(cell.value, column.kind, digits) + cell.mark
    if cell.value is None and cell.has_interval:
        bounds = (number_text(bound, column.kind, digits) for bound in (cell.low, cell.high))
        return " to ".join(bounds)
    return "-" + cell.mark


def spread_of(cell: Cell, column: Column) -> str:
    """The standard deviation of a cell; empty without one or without a value."""
    digits = column.digits if cell.digits is None else cell.digits
    is_known = not math.isnan(cell.std) and cell.number is not None
    return f"{cell.std * PERCENT.get(column.kind, 1):.{digits}f}" * is_known


def number_text(value: float, kind: Kind, digits: int = 1) -> str:
    """A number as its kind is shown."""
    shown = value * PERCENT.get(kind, 1)
    match kind:
        case "points":
            return f"{round(shown, digits) + 0:+.{digits}f}"
        case "p":
            stars = next((stars for level, stars in STARS if value < level), "")
            return (f"{value:.3f}" if value >= 0.0005 else "<.001") + stars
        case "count":
            return f"{value:,.0f}"
    is_above = kind == "detectable" and value > 1
    return ">100" if is_above else f"{round(shown, digits) + 0:.{digits}f}"


def bounds_of(row: Mapping[str, Any], low: str = "low", high: str = "high") -> Cell:
    """An interval, from the columns of its bounds; a bound may be null."""
    lower, upper = (NAN if row[name] is None else row[name] for name in (low, high))
    return Cell(low=lower, high=upper)


Row = Mapping[str, Any]

Columns = Mapping[str | tuple[str, str], Column]
"""The columns of a data frame by name, in the order in which they are shown; two names: bounds."""


def frame_table(
    frame: pl.DataFrame | Sequence[Row],
    title: str,
    columns: Columns,
    notes: Sequence[str] = (),
    blocks: Sequence[str] = (),
    missing: Value = "",
) -> Table:
    """The rows of a data frame, or of a list, in those of the columns that some row has.

    ``missing``: the cell of a row that lacks a column.
    """
    records = frame.to_dicts() if isinstance(frame, pl.DataFrame) else frame
    names = {name for record in records for name in record}
    known = {
        name: column
        for name, column in columns.items()
        if not records or names >= {*([name] if isinstance(name, str) else name)}
    }
    rows = [
        [
            row.get(name, missing)
            if isinstance(name, str)
            else bounds_of(row, *name) if name[0] in row else missing
            for name in known
        ]
        for row in records
    ]  # fmt: skip
    return Table(title, list(known.values()), rows, notes, blocks)


def for_page(table: Table) -> Table:
    """The table without empty columns, each interval in the cell of its number.

    A page shows it below the number, and the title says so.
    """
    table = without_empty_columns(table)
    merged = [at for at, column in enumerate(table.columns) if column.heading == CI]
    rows = table.grid()
    for cells in rows:
        for at in merged:
            cells[at - 1] = replace(cells[at - 1], low=cells[at].low, high=cells[at].high)
    where = f"; below a number its {CI}" * any(cell.has_interval for row in rows for cell in row)
    whole = replace(table, title=table.title + where, rows=rows)
    return whole.only([at for at in range(len(table.columns)) if at not in merged])


def without_empty_columns(table: Table) -> Table:
    """The table without columns in which no row has a number or a text.

    The first two stay: the name of a row, and its number even where it is undefined.
    """
    rows = table.grid()
    texts = [{text_of(row[at], of) for row in rows} for at, of in enumerate(table.columns)]
    return table.only([at for at, of in enumerate(texts) if at < 2 or not rows or of - {"", "-"}])


def all_notes(table: Table) -> list[str]:
    """The notes of a table, with that on missing data if a cell has none."""
    shows_dash = any(text_of(*pair) == "-" for _, row in table.by_block() for pair in row)
    is_explained = any(DASH in note for note in table.notes)
    return [*table.notes, *[NO_DATA] * (shows_dash and not is_explained)]


BETWEEN = 2  # spaces between two columns
Lines = list[str]  # of a heading or a cell


def fitted_text(table: Table, width: int, rule: str = "─") -> Text:
    """A table for a screen of ``width`` columns, between its title and its notes.

    ``rule``: the character of the lines between rows. A word that is wider than the screen stays
    whole.
    """
    texts = [[_text(*pair) for pair in row] for _, row in table.by_block()]
    shown, headings, widths = _fitted(table.columns, texts, width)
    fitting = table.only(shown)
    titles = _wrap(table.title, width) if table.title else []
    lines = [Text(line, style="table.title") for line in titles]

    def add_row(cells: Sequence[Lines], style: str = "") -> None:
        for at in range(max(map(len, cells))):
            line = Text()
            for column, cell, room in zip(fitting.columns, cells, widths, strict=True):
                text = cell[at] if at < len(cell) else ""
                space = " " * (room - cell_len(text))
                line.append(space + text if column.is_number else text + space, style)
                line.append(" " * BETWEEN)
            lines.append(line)

    if any(any(heading) for heading in headings):
        height = max(map(len, headings))
        at_bottom = [[""] * (height - len(heading)) + heading for heading in headings]
        add_row(at_bottom, "table.header")
    for at, (block, _) in enumerate(fitting.by_block()):
        lines += map(Text, _wrap(f"{block}:", width) if block else [])
        cells = [_wrap(texts[at][column], room) for column, room in zip(shown, widths, strict=True)]
        add_row(cells)
        if at in table.rules:
            lines.append(Text(rule * _total(widths)))
    notes = all_notes(fitting)
    left_out = [column.heading for at, column in enumerate(table.columns) if at not in shown]
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        notes.append(
            f"Not shown at this width: {names}. A wider terminal or a pipe shows all columns."
        )
    lines += [Text(line, style="table.caption") for note in notes for line in _wrap(note, width)]
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _fitted(
    columns: Sequence[Column], texts: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[Lines], list[int]]:
    """The columns that fit a screen: their positions, headings and widths.

    At least two: extra ones and those on the right are left out first. Headings are wrapped at
    words, then shortened; then texts are wrapped, first those on the left.
    """
    cells = [[row[at] for row in texts] for at in range(len(columns))]
    natural = [_width_of(line for text in rows for line in text.split("\n")) for rows in cells]
    words = [
        whole if column.is_number else _width_of(word for text in rows for word in text.split())
        for column, rows, whole in zip(columns, cells, natural, strict=True)
    ]
    partial = [
        max(word, min(whole, width // 4)) for word, whole in zip(words, natural, strict=True)
    ]

    def wrapped(headings: Iterable[str]) -> list[Lines]:
        """Headings in the width of their cells, or of their longest words."""
        rooms = zip(headings, natural, strict=True)
        return [_wrap(text, max(room, _width_of(text.split()))) for text, room in rooms]

    whole = wrapped(column.heading for column in columns)
    short = wrapped(column.short or column.heading for column in columns)
    forms = [([[column.heading] for column in columns], natural), (whole, natural)]
    forms += [(short, natural), (short, partial)]
    left_out = sorted(range(len(columns)), key=lambda at: (not columns[at].is_extra, -at))
    choices = [
        [at for at in range(len(columns)) if at not in left_out[:count]]
        for count in range(max(1, len(columns) - 1))
    ]
    attempts = [(shown, *form) for shown in choices for form in forms]
    for shown, headings, least in [*attempts, (choices[-1], short, words)]:
        floors = [max(least[at], _width_of(headings[at])) for at in shown]
        widths = [max(floor, natural[at]) for floor, at in zip(floors, shown, strict=True)]
        for at, floor in enumerate(floors):
            widths[at] = max(floor, widths[at] - max(0, _total(widths) - width))
        if _total(widths) <= width:
            break
    return shown, [headings[at] for at in shown], widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1)


def _width_of(lines: Iterable[str]) -> int:
    return max(map(cell_len, lines), default=0)


def _wrap(text: str, width: int) -> Lines:
    """The lines of a text, wrapped at spaces; lines that fit are kept as they are."""
    lines: Lines = []
    for line in text.split("\n"):
        rest = line if cell_len(line) <= width else line[: len(line) - len(line.lstrip(" "))]
        for word in line.split() if rest != line else ():
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
