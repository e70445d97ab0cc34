"""Tables: on a screen, in files, and of any result."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import zip_longest
from shutil import get_terminal_size
from typing import Any, Literal

import polars as pl
from rich.cells import cell_len
from rich.text import Text

from consilience.core.provenance import git_revision, versions
from consilience.core.text import counted, truncated, visible
from consilience.files.rows import as_pandas
from consilience.metrics.measure import FEWEST
from consilience.report.cautions import SHOWN

Kind = Literal["text", "share", "points", "p", "count", "number"]
"""What a column holds.

share: a fraction, shown in percent. points: a difference of fractions, shown in points of percent
with its sign. p: a p-value, with stars. count: a whole number. number: shown as it is.
"""

NAN = math.nan
PERCENT = {"share": 100, "points": 100}  # from a value to what is shown
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
CI = "95 % CI"
LOW_HIGH = ("low", "high")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what the cells below it hold; a text in a column of numbers stays a text."""

    heading: str
    kind: Kind = "text"
    short: str = ""  # The heading on a narrow screen; empty for the same one
    longest: int | None = None  # Characters of a text that people see; CSV has all
    is_extra: bool = False  # Whether a narrow screen leaves it out before other columns
    bounds: tuple[str, str] | None = None
    """The columns of a data frame with the bounds of an interval; but for that of ``LOW_HIGH`` a
    narrow screen leaves it out first."""

    @property
    def is_number(self) -> bool:
        """Whether the column is right-aligned; p-values are aligned at their digits."""
        return self.kind not in ("text", "p")


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, or a number with its interval."""

    value: str | float | None = None  # The text or number; None or NaN if there is none
    std: float = NAN
    low: float = NAN
    high: float = NAN
    digits: int = 1  # After the decimal point of a share, points or a number

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
    over: str = ""  # What its intervals are over, in the plural

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
    """A text, or a number with its standard deviation if it has one; ``-`` for no data."""
    if isinstance(cell.value, str):
        return truncated(cell.value, column.longest or len(cell.value))
    if cell.number is None:
        return "-"
    spread = f"±{cell.std * PERCENT.get(column.kind, 1):.{cell.digits}f}"
    return number_text(cell.number, column.kind, cell.digits) + spread * (not math.isnan(cell.std))


def interval_of(cell: Cell, column: Column) -> str:
    """The interval of a cell; empty unless both bounds are known."""
    bounds = cell.low, cell.high
    is_known = not any(map(math.isnan, bounds))
    return " to ".join(number_text(of, column.kind, cell.digits) for of in bounds) * is_known


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
    over: str = "",
) -> Table:
    """The rows of a data frame, or of a list, without columns in which no row has anything.

    The first two stay: the name of a row, and its number even where it is undefined.
    """
    records = frame.to_dicts() if isinstance(frame, pl.DataFrame) else frame
    names = {name for record in records for name in record}
    known = {name: of for name, of in columns.items() if name in names or not records}
    rows = [[_value_of(row, *of) for of in known.items()] for row in records]
    table = Table(title, list(known.values()), rows, notes, blocks, over)
    texts = [[text_of(*pair) for pair in row] for _, row in table.by_block()]
    filled = [any(row[at] not in ("", "-") for row in texts) for at in range(len(known))]
    return table.only([at for at, of in enumerate(filled) if of or at < 2 or not rows])


def _value_of(row: Row, name: Any, column: Column) -> Value:
    value: Value = row.get(name)
    if not column.bounds or column.bounds[0] not in row:
        return value
    low, high = (NAN if row[bound] is None else row[bound] for bound in column.bounds)
    return replace(value if isinstance(value, Cell) else Cell(value), low=low, high=high)


def as_text(table: Table) -> Table:
    """The table with each interval as a text in a column after its number, as the title says."""
    columns, rows = list[Column](), [list[Value]() for _ in table.rows]
    for at, column in enumerate(table.columns):
        cells = [row[at] for row in table.grid()]
        intervals = [interval_of(cell, column) for cell in cells]
        is_apart = bool(column.bounds) or any(intervals)
        interval = Column(CI, column.kind, is_extra=column.is_extra or column.bounds != LOW_HIGH)
        columns += [replace(column, bounds=None), interval][: 1 + is_apart]
        for row, cell, text in zip(rows, cells, intervals, strict=True):
            missing = "" if cell.number is None else "-"
            row.extend([cell, Cell(text or missing)][: 1 + is_apart])
    has_title = bool(table.over) and any(column.heading == CI for column in columns)
    title = table.title + f"; {CI} over {table.over}" * has_title
    return replace(table, title=title, columns=columns, rows=rows)


def all_notes(table: Table) -> list[str]:
    """The notes of a table, and what a dash in it means."""
    cells = (pair for _, row in table.by_block() for pair in row)
    dashes = {column.heading for cell, column in cells if text_of(cell, column) == "-"}
    why = f", or no interval: nothing varies, or fewer than {FEWEST} {table.over or 'items'}"
    return [*table.notes, *[f"A dash means undefined{why * (CI in dashes)}."] * bool(dashes)]


BETWEEN = 2  # spaces between two columns
Lines = list[str]  # of a heading or a cell


def fitted_text(table: Table, width: int) -> Text:
    """A table for a screen of ``width`` columns, between its title and its notes.

    A word that is wider than the screen stays whole.
    """
    table = as_text(table)
    texts = [[text_of(*pair) for pair in row] for _, row in table.by_block()]
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

    Where not all fit, headings are short and wrapped at words, and texts are wrapped, first those
    on the left. What still does not fit is left out, but for two columns: extra ones, then those
    on the right.
    """
    cells = [[row[at] for row in texts] for at in range(len(columns))]
    whole = [_width_of(line for text in of for line in text.split("\n")) for of in cells]
    headings = [of.heading for of in columns]
    natural = [max(pair) for pair in zip(whole, map(cell_len, headings), strict=True)]
    if _total(natural) > width:
        headings = [of.short or of.heading for of in columns]
    least = [
        max(
            _width_of(heading.split()),
            room if of.is_number else max(_width_of(" ".join(rows).split()), min(room, width // 4)),
        )
        for of, heading, rows, room in zip(columns, headings, cells, whole, strict=True)
    ]
    shown = [*range(len(columns))]
    for at in sorted(shown, key=lambda at: (not columns[at].is_extra, -at)):
        if len(shown) > 2 and _total([least[of] for of in shown]) > width:
            shown.remove(at)
    rooms = {at: max(whole[at], cell_len(headings[at])) for at in shown}
    for at in sorted(shown, key=lambda at: not columns[at].is_number):
        rooms[at] = max(least[at], rooms[at] - max(0, _total([*rooms.values()]) - width))
    return shown, [_wrap(headings[at], rooms[at]) for at in shown], [*rooms.values()]


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


def rendered(name: str, **values: Any) -> str:
    """A template of this folder with values. Everything that came from data is escaped.

    Control characters and bidi controls of data become U+FFFD.
    """
    import jinja2

    def finalize(value: object) -> object:
        is_text = isinstance(value, str) and not hasattr(value, "__html__")
        return visible(str(value)) if is_text else value

    options: Any = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    strict = jinja2.Environment(undefined=jinja2.StrictUndefined, finalize=finalize, **options)
    template = (files("consilience.report") / name).read_text(encoding="utf-8")
    return strict.from_string(template).render(values)


def table_text(table: Table) -> str:
    """The table as text without colours, as wide as the terminal, or 120 columns."""
    return visible(fitted_text(table, get_terminal_size((120, SCREEN)).columns).plain)


def as_csv(table: Table) -> str:
    """Every number in full precision, in percent where it is shown so.

    A standard deviation and the bounds of an interval have columns of their own, after the number.
    A table with blocks begins with the column ``group``.
    """
    columns: list[list[object]] = [["group", *table.blocks]] if table.blocks else []
    for at, column in enumerate(table.columns):
        cells, parts = [row[at] for row in table.grid()], [("value", "")]
        parts += [("std", " std")] * any(not math.isnan(cell.std) for cell in cells)
        has_bounds = bool(column.bounds) or any(interval_of(cell, column) for cell in cells)
        for part, more in [*parts, *[("low", " low"), ("high", " high")] * has_bounds]:
            values = [_csv_value(getattr(cell, part), column) for cell in cells]
            columns.append([column.heading + more, *values])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(zip(*columns, strict=True))
    return written.getvalue()


def _csv_value(value: str | float | None, column: Column) -> object:
    if value is None or isinstance(value, str | int):
        return value
    return "" if math.isnan(value) else repr(value * PERCENT.get(column.kind, 1))


def as_markdown(table: Table) -> str:
    """A table with pipes; a block has a row of its own. The notes follow as a list."""
    table = as_text(table)
    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title else []
    has_columns = len(table.columns) > 1
    if has_columns:
        headings = (escape_markdown(column.heading) for column in table.columns)
        lines.append("| " + " | ".join(headings) + " |")
        lines.append("|" + "|".join("---:" if c.is_number else "---" for c in table.columns) + "|")
    for block, row in table.by_block():
        if block:
            lines.append(f"| *{escape_markdown(block)}* |" + " |" * (len(table.columns) - 1))
        lines.append("| " + " | ".join(escape_markdown(text_of(*pair)) for pair in row) + " |")
    if notes := all_notes(table):
        lines += [""] * has_columns + [f"* {escape_markdown(note)}" for note in notes]
    return "\n".join(lines) + "\n"


def as_latex(table: Table) -> str:
    """A table with booktabs' rules; a block has a row of its own and a rule before it."""
    table = as_text(table)

    def line(cells: Iterable[str]) -> str:
        """A row; TeX would read these signs as an argument of what ended the last one."""
        text = " & ".join(cells)
        return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"

    def shown(cell: Cell, column: Column) -> str:
        text = text_of(cell, column)
        if not column.is_number:
            return _latex(text)
        return "--" if text == "-" else _latex(text).replace("-", "$-$")

    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        rf"\begin{{tabular}}{{{''.join('lr'[c.is_number] for c in table.columns)}}}",
        r"\toprule",
        line(_latex(column.heading) for column in table.columns),
        r"\midrule",
    ]
    for at, (block, row) in enumerate(table.by_block()):
        lines += [r"\midrule"] * (block is not None and at > 0)
        if block:
            lines.append(
                rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\emph{{{_latex(block)}}}}} \\"
            )
        lines.append(line(shown(*pair) for pair in row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\small {_latex(note)}" for note in all_notes(table)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "\N{MINUS SIGN}": "$-$", "<": r"\textless{}", ">": r"\textgreater{}",
    "…": r"\ldots{}", "|": r"\textbar{}",
})  # fmt: skip


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def escape_markdown(text: str) -> str:
    """A text on one line, whose signs mean nothing in Markdown."""
    return re.sub(r"([\\|*_`<>\[\]$])", r"\\\1", " ".join(text.split()))


SCREEN = 22  # Lines of a result that Python prints


class Displayed:
    """A value that a command prints, a notebook shows, and a data frame holds the numbers of."""

    __slots__ = ()

    def output(self) -> Output:
        """What is printed and shown of it."""
        raise NotImplementedError

    def to_polars(self) -> pl.DataFrame:
        """All numbers in one data frame, whatever part a command shows of them."""
        return self.output().numbers()

    def to_pandas(self) -> Any:
        """All numbers as a pandas frame."""
        return as_pandas(self.to_polars())

    def __repr__(self) -> str:
        """What a command shows, as far as it fits a screen."""
        lines = "\n\n".join(map(table_text, self.output().tables_shown())).splitlines()
        return "\n".join(lines[:SCREEN] + ["..."] * (len(lines) > SCREEN))

    def _repr_markdown_(self) -> str:
        return visible("\n".join(map(as_markdown, self.output().tables_shown())))


@dataclass(frozen=True, slots=True, repr=False)
class Output(Displayed):
    """What a command found."""

    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Data frames by their names in the JSON document."""
    shown: Sequence[Table | str] = ()
    """What people read: tables, and lines that are printed beside tables of text only."""
    verdict: Sequence[str] = ()  # The result in one to three sentences
    cautions: Sequence[str] = ()  # What a reader should know
    facts: Mapping[str, Any] = field(default_factory=dict)  # Further fields of the document
    csv: pl.DataFrame | Table | None = None
    """What ``--format csv`` prints; None for the first of ``tables``, or what is shown."""
    faults: Sequence[str] = ()  # Errors that it lists
    status: int = 0  # The exit status

    def output(self) -> Output:
        return self

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        tables = {name: table.to_dicts() for name, table in self.tables.items()}
        document = {"verdict": [*self.verdict], **self.facts, **tables}
        return {**document, "warnings": [*self.cautions]}

    def numbers(self) -> pl.DataFrame:
        """All numbers in one data frame; empty without any."""
        if isinstance(self.csv, pl.DataFrame):
            return self.csv
        return next(iter(self.tables.values()), pl.DataFrame())

    def notes(self) -> list[str]:
        """The first cautions, and how many more there are."""
        more = len(self.cautions) - SHOWN
        rest = [f"{counted(more, 'more note')}; --json prints all"] if more > 0 else []
        return [*self.cautions[:SHOWN], *rest]

    def tables_shown(self) -> list[Table]:
        """The verdict, the tables and the notes, as a notebook shows them; lines without tables."""
        tables = [item for item in self.shown if isinstance(item, Table)]
        lines = [] if tables else [item for item in self.shown if isinstance(item, str)]
        texts = [Table("", [], [], of) for of in (self.verdict, lines, self.notes())]
        return [one for one in [*texts[:1], *tables, *texts[1:]] if one.columns or one.notes]


def record_of(**settings: object) -> dict[str, Any]:
    """How a result was made, for a document: settings, versions and revision."""
    return {"settings": settings, "versions": versions(), "git": git_revision()}


def without_nan(value: Any) -> Any:
    """A document with None for NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
