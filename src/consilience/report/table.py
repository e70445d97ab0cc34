"""The table that every result is shown as, and tables in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

import polars as pl
from rich.cells import cell_len
from rich.text import Text

from consilience.metrics.measure import FEWEST

Kind = Literal["text", "share", "points", "p", "count", "number"]
"""What a column holds.

share: a fraction, shown in percent. points: a difference of fractions, shown in points of percent
with its sign. p: a p-value, with stars. count: a whole number. number: shown as it is.
"""

NAN = math.nan
PERCENT = {"share": 100, "points": 100}  # from a value to what is shown
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
NO_INTERVAL = f"no interval: nothing varies, or fewer than {FEWEST} counted"
CI = "95 % CI"
LOW_HIGH = ("low", "high")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what the cells below it hold; a text in a column of numbers stays a text."""

    heading: str
    kind: Kind = "text"
    short: str = ""  # The heading on a narrow screen; empty for the same one
    digits: int = 1  # Digits after the decimal point of a share, points or a number
    is_extra: bool = False  # Whether a narrow screen leaves it out before other columns
    bounds: tuple[str, str] | None = None
    """The columns of a data frame with the bounds of an interval, which texts show in a column of
    its own; but for ``LOW_HIGH`` a narrow screen leaves it out first."""

    @property
    def is_number(self) -> bool:
        """Whether the column is right-aligned and sorted by number."""
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, or a number with its interval."""

    value: str | float | None = None  # The text or number; None or NaN if there is none
    std: float = NAN
    low: float = NAN
    high: float = NAN
    digits: int | None = None  # Digits after the decimal point; None for those of the column

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

    def grid(self) -> list[list[Cell]]:
        """The cells of all rows."""
        return [[of if isinstance(of, Cell) else Cell(of) for of in row] for row in self.rows]

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
    return "-" if cell.number is None else number_text(cell.number, column.kind, digits)


def interval_of(cell: Cell, column: Column) -> str:
    """The interval of a cell; empty unless both bounds are known."""
    digits = column.digits if cell.digits is None else cell.digits
    bounds = cell.low, cell.high
    is_known = not any(map(math.isnan, bounds))
    return " to ".join(number_text(bound, column.kind, digits) for bound in bounds) * is_known


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
    return f"{round(shown, digits) + 0:.{digits}f}"


Row = Mapping[str, Any]

Columns = Mapping[Any, Column]
"""The columns of a data frame by name, in the order in which they are shown."""


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
    known = {name: of for name, of in columns.items() if name in names or not records}
    rows = [[_value_of(row, *of, missing) for of in known.items()] for row in records]
    return Table(title, list(known.values()), rows, notes, blocks)


def _value_of(row: Row, name: Any, column: Column, missing: Value) -> Value:
    value: Value = row.get(name, missing)
    if not column.bounds or column.bounds[0] not in row:
        return value
    low, high = (NAN if row[bound] is None else row[bound] for bound in column.bounds)
    return replace(value if isinstance(value, Cell) else Cell(value), low=low, high=high)


def as_text(table: Table, *, every: bool = False) -> Table:
    """The table with each interval as a text in a column after its number.

    ``every``: also the intervals of columns without ``bounds``.
    """
    columns, rows = list[Column](), [list[Value]() for _ in table.rows]
    for at, column in enumerate(table.columns):
        intervals = [interval_of(cells[at], column) for cells in table.grid()]
        is_apart = bool(column.bounds) or (every and any(intervals))
        is_extra = column.is_extra or column.bounds != LOW_HIGH
        interval = Column(CI, column.kind, is_extra=is_extra)
        columns += [replace(column, bounds=None), interval][: 1 + is_apart]
        for row, cells, text in zip(rows, table.grid(), intervals, strict=True):
            missing = "" if cells[at].value == "" else "-"
            row.extend([cells[at], Cell(text or missing)][: 1 + is_apart])
    return replace(table, columns=columns, rows=rows)


def for_page(table: Table) -> Table:
    """The table without empty columns; the title says where a page shows its intervals."""
    has_intervals = any(interval_of(*pair) for _, row in table.by_block() for pair in row)
    title = table.title + f"; below a number its {CI}" * has_intervals
    return replace(without_empty_columns(table), title=title)


def without_empty_columns(table: Table) -> Table:
    """The table without columns in which no row has a number or a text.

    The first two stay: the name of a row, and its number even where it is undefined.
    """
    rows = table.grid()
    texts = [{text_of(row[at], of) for row in rows} for at, of in enumerate(table.columns)]
    return table.only([at for at, of in enumerate(texts) if at < 2 or not rows or of - {"", "-"}])


def all_notes(table: Table) -> list[str]:
    """The notes of a table, and what a dash in it means."""
    dashes = set[bool]()  # whether they are those of intervals
    for _, row in table.by_block():
        texts = [text_of(*pair) for pair in row]
        for (_, column), text, number in zip(row, texts, ["", *texts], strict=False):
            is_interval = column.heading == CI
            if text == "-" and not (is_interval and number == "-"):
                dashes.add(is_interval)
    reasons = ["undefined"] * (False in dashes) + [NO_INTERVAL] * (True in dashes)
    return [*table.notes, *[f"A dash means {', or '.join(reasons)}."] * bool(reasons)]


BETWEEN = 2  # spaces between two columns
Lines = list[str]  # of a heading or a cell


def fitted_text(table: Table, width: int) -> Text:
    """A table for a screen of ``width`` columns, between its title and its notes.

    A word that is wider than the screen stays whole.
    """
    table = as_text(table)
    texts = [[_text(*pair) for pair in row] for _, row in table.by_block()]
    shown, headings, widths = _fitted(table.columns, texts, width)
    lines = [Text(line, "table.title") for line in _wrap(table.title, width) if table.title]

    def add_row(cells: Sequence[Lines], style: str = "") -> None:
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                " " * (room - cell_len(text)) + text
                if table.columns[at].is_number
                else text + " " * (room - cell_len(text))
                for at, text, room in zip(shown, parts, widths, strict=True)
            ]
            lines.append(Text((" " * BETWEEN).join(padded).rstrip(), style))

    if any(any(heading) for heading in headings):
        height = max(map(len, headings))
        add_row([[""] * (height - len(of)) + of for of in headings], "table.header")
    for (block, _), row in zip(table.by_block(), texts, strict=True):
        lines += map(Text, _wrap(f"{block}:", width) if block else [])
        add_row([_wrap(row[of], room) for of, room in zip(shown, widths, strict=True)])
    notes = all_notes(table.only(shown))
    left_out = [column.heading for at, column in enumerate(table.columns) if at not in shown]
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        wider = "A wider terminal or a pipe shows all columns."
        notes.append(f"Not shown at this width: {names}. {wider}")
    lines += [Text(line, "table.caption") for note in notes for line in _wrap(note, width)]
    return Text("\n").join(lines)


def _fitted(
    columns: Sequence[Column], texts: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[Lines], list[int]]:
    """The columns that fit a screen: their positions, headings and widths.

    Headings are shortened and wrapped at words, and texts are wrapped, first those on the left.
    What still does not fit is left out, but for two columns: extra ones, then those on the right.
    """
    cells = [[row[at] for row in texts] for at in range(len(columns))]
    natural = [_width_of(line for text in of for line in text.split("\n")) for of in cells]
    least = [
        whole if of.is_number else max(_width_of(" ".join(rows).split()), min(whole, width // 4))
        for of, rows, whole in zip(columns, cells, natural, strict=True)
    ]

    def wrapped(headings: Sequence[str]) -> list[Lines]:
        rooms = zip(headings, natural, strict=True)
        return [_wrap(text, max(room, _width_of(text.split()))) for text, room in rooms]

    long = [column.heading for column in columns]
    short = [column.short or column.heading for column in columns]
    forms = [([[of] for of in long], natural), (wrapped(long), natural), (wrapped(short), least)]
    left_out = sorted(range(len(columns)), key=lambda at: (not columns[at].is_extra, -at))
    for count in range(max(1, len(columns) - 1)):
        shown = [at for at in range(len(columns)) if at not in left_out[:count]]
        for headings, narrow in forms:
            floors = [max(narrow[at], _width_of(headings[at])) for at in shown]
            widths = [max(floor, natural[at]) for floor, at in zip(floors, shown, strict=True)]
            for at, floor in enumerate(floors):
                widths[at] = max(floor, widths[at] - max(0, _total(widths) - width))
            if _total(widths) <= width:
                return shown, [headings[at] for at in shown], widths
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
