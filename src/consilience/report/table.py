"""The table that every result is shown as, and tables in a terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.cells import cell_len
from rich.text import Text

Kind = Literal["text", "share", "points", "p", "count", "number", "detectable"]
"""What a column holds.

share: a fraction, shown in percent. points: a difference of fractions, shown in points of percent
with its sign. p: a p-value, with stars. count: a whole number. number: shown as it is.
detectable: a share; one above 1 is shown as ">100".
"""

NAN = math.nan

PERCENT = {"share": 100, "points": 100, "detectable": 100}
"""Factors from a value to the number that is shown; 1 for the other kinds."""

STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Levels of significance and their marks."""

DASH = "A dash means"
"""The beginning of a note on cells that show ``-``."""

NO_DATA = f"{DASH} undefined"
"""The note below a table with a cell that shows ``-``: there are no data, or nothing varied."""

CI = "95 % CI"
"""The heading of a confidence interval."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what the cells below it hold."""

    heading: str
    """The heading on a page, in a file and on a wide screen."""
    kind: Kind = "text"
    """What the cells hold; a text cell in a column of numbers is shown as it is."""
    short: str = ""
    """The heading on a narrow screen; empty for the same one."""
    digits: int = 1
    """Digits after the decimal point of a share, points or a number."""
    is_extra: bool = False
    """Whether a narrow screen leaves it out before other columns."""

    @property
    def is_number(self) -> bool:
        """Whether the column is right-aligned and sorted by number."""
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Cell:
    """One text, number or interval."""

    value: str | float | None = None
    """The text or number; None or NaN if there is none."""
    std: float = NAN
    """Standard deviation, shown after the value."""
    low: float = NAN
    """Lower bound, shown where there is no value."""
    high: float = NAN
    """Upper bound, shown where there is no value."""
    digits: int | None = None
    """Digits after the decimal point; None for those of the column."""
    mark: str = ""
    """What is appended to the number, such as a reference to a note."""
    is_best: bool = False
    """Whether the number is shown in bold."""

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are known."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def number(self) -> float | None:
        """What rows are sorted by: the value, or the width of an interval; None for text."""
        if isinstance(self.value, str):
            return None
        if self.value is None:
            return self.high - self.low if self.has_interval else None
        return None if math.isnan(self.value) else float(self.value)


Value = Cell | str | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, in the order in which they are shown."""

    title: str
    columns: Sequence[Column]
    """The columns; the first one names the row."""
    rows: Sequence[Sequence[Value]]
    """A value for each column."""
    notes: Sequence[str] = ()
    """What a reader should know, below the table."""
    blocks: Sequence[str] = ()
    """The block of each row, which has a heading of its own; empty without blocks."""
    rules: Collection[int] = ()
    """Rows that a line follows on a screen."""
    sortable: bool = True
    """Whether a reader of the page may sort the rows."""

    def cells(self, row: int) -> list[Cell]:
        return [value if isinstance(value, Cell) else Cell(value) for value in self.rows[row]]


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
    if math.isnan(cell.std) or cell.number is None:
        return ""
    digits = column.digits if cell.digits is None else cell.digits
    return f"{cell.std * PERCENT.get(column.kind, 1):.{digits}f}"


def number_text(value: float, kind: Kind, digits: int = 1) -> str:
    """A number as its kind is shown."""
    shown = value * PERCENT.get(kind, 1)
    match kind:
        case "points":
            return f"{shown:+.{digits}f}"
        case "p":
            stars = next((stars for level, stars in STARS if value < level), "")
            return (f"{value:.3f}" if value >= 0.0005 else "<.001") + stars
        case "detectable" if value > 1:
            return ">100"
        case "count":
            return f"{value:,.0f}"
        case _:
            return f"{round(shown, digits) + 0:.{digits}f}"


def estimate(row: Mapping[str, Any] | None, *, std: bool = False) -> tuple[Cell, Cell]:
    """The value of a row of the metrics table and its interval; ``std``: with its deviation."""
    if row is None:
        return Cell(), Cell()
    value = Cell(row["value"], std=row["std"] if std else NAN)
    return value, Cell(low=row["low"], high=row["high"])


def with_interval(row: Mapping[str, Any] | None) -> Cell:
    """The value of a row of the metrics table with its interval in one cell."""
    return Cell(row["value"], low=row["low"], high=row["high"]) if row else Cell()


def bounds_of(row: Mapping[str, Any], low: str = "low", high: str = "high") -> Cell:
    """An interval, from the columns of its bounds; a bound may be null."""
    lower, upper = (NAN if row[name] is None else row[name] for name in (low, high))
    return Cell(low=lower, high=upper)


def intervals_below(table: Table) -> Table:
    """The table with each interval in the cell of its number, which a page shows below it."""
    merged = [at for at, column in enumerate(table.columns) if column.heading == CI]
    rows = [table.cells(row) for row in range(len(table.rows))]
    for cells in rows:
        for at in merged:
            cells[at - 1] = replace(cells[at - 1], low=cells[at].low, high=cells[at].high)
    others = [at for at in range(len(table.columns)) if at not in merged]
    return replace(
        table,
        title=f"{table.title}; below a number its {CI}",
        columns=[table.columns[at] for at in others],
        rows=[[cells[at] for at in others] for cells in rows],
    )


def without_empty_columns(table: Table) -> Table:
    """The table without columns in which no row has a number or a text.

    The first two stay: the name of a row, and its number even where it is undefined.
    """
    rows = [table.cells(row) for row in range(len(table.rows))]
    filled = [
        at
        for at, column in enumerate(table.columns)
        if at < 2 or not rows or any(text_of(cells[at], column) not in ("", "-") for cells in rows)
    ]
    if len(filled) == len(table.columns):
        return table
    columns = [table.columns[at] for at in filled]
    return replace(table, columns=columns, rows=[[cells[at] for at in filled] for cells in rows])


def all_notes(table: Table) -> list[str]:
    """The notes of a table, with that on missing data if a cell has none."""
    shows_dash = any(
        text_of(cell, column) == "-"
        for at in range(len(table.rows))
        for cell, column in zip(table.cells(at), table.columns, strict=True)
    )
    is_explained = any(DASH in note for note in table.notes)
    return [*table.notes, *([NO_DATA] if shows_dash and not is_explained else [])]


def mark_best(
    table: Table,
    headings: Collection[str],
    apart: Collection[int] = (),
    *,
    by_block: bool = False,
) -> Table:
    """The table with the largest number of some columns marked, as it is printed.

    ``apart``: rows that are not compared, such as a baseline. ``by_block``: compare the
    rows of one block only. A number without another to compare it with is not marked.
    """
    rows = [table.cells(at) for at in range(len(table.rows))]
    blocks = table.blocks if by_block else [""] * len(rows)
    for at, column in enumerate(table.columns):
        if column.heading not in headings:
            continue
        printed = {
            row: float(text_of(cells[at], column))
            for row, cells in enumerate(rows)
            if cells[at].number is not None and row not in apart
        }
        for row, number in printed.items():
            rivals = [other for at_row, other in printed.items() if blocks[at_row] == blocks[row]]
            if len(rivals) > 1 and number == max(rivals):
                rows[row][at] = replace(rows[row][at], is_best=True)
    return replace(table, rows=rows)


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
