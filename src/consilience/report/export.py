"""Tables outside a terminal, and how any result is shown: HTML, notebooks, files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import polars as pl

from consilience.core.provenance import git_revision, versions
from consilience.core.text import counted, visible
from consilience.files.rows import as_pandas
from consilience.files.write import write_whole
from consilience.report.cautions import SHOWN
from consilience.report.table import (
    PERCENT,
    Cell,
    Column,
    Table,
    all_notes,
    as_text,
    fitted_text,
    interval_of,
    spread_of,
    text_of,
)


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


def html_text(cell: Cell, column: Column) -> tuple[str, str]:
    """A cell as the page shows it, and the interval below its number; empty without one."""
    interval = interval_of(cell, column) * (cell.number is not None)
    return _with_spread(text_of(cell, column), cell, column), interval


def _with_spread(text: str, cell: Cell, column: Column, sign: str = "±") -> str:
    spread = spread_of(cell, column)
    return f"{text} {sign} {spread}" if spread else text


def table_text(table: Table) -> str:
    """The table as text without colours, as wide as the terminal."""
    return visible(fitted_text(table, get_terminal_size().columns).plain)


def as_csv(table: Table) -> str:
    """Every number in full precision, in percent where it is shown so.

    A standard deviation and the bounds of an interval have columns of their own, after the number.
    A table with blocks begins with the column ``group``.
    """
    columns = list[tuple[str, Sequence[object]]]()
    if table.blocks:
        columns.append(("group", table.blocks))
    for at, column in enumerate(table.columns):
        cells = [row[at] for row in table.grid()]
        has_std = any(not math.isnan(cell.std) for cell in cells)
        has_bounds = bool(column.bounds) or any(interval_of(cell, column) for cell in cells)
        for part in ["", *["std"] * has_std, *["low", "high"] * has_bounds]:
            values = [_csv_value(cell, column, part) for cell in cells]
            columns.append((f"{column.heading} {part}".strip(), values))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(name for name, _ in columns)
    writer.writerows(zip(*(values for _, values in columns), strict=True))
    return written.getvalue()


def _csv_value(cell: Cell, column: Column, part: str) -> object:
    value = getattr(cell, part or "value")
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return ""
    is_whole = isinstance(value, int) and not part
    return value if is_whole else repr(value * PERCENT.get(column.kind, 1))


def as_markdown(table: Table) -> str:
    """A table with pipes; a block has a row of its own. The notes follow as a list."""
    table = as_text(table)

    def shown(cell: Cell, column: Column) -> str:
        return _with_spread(escape_markdown(text_of(cell, column)), cell, column)

    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title else []
    has_columns = len(table.columns) > 1
    if has_columns:
        headings = (escape_markdown(column.heading) for column in table.columns)
        lines.append("| " + " | ".join(headings) + " |")
        lines.append("|" + "|".join("---:" if c.is_number else "---" for c in table.columns) + "|")
    for block, row in table.by_block():
        if block:
            lines.append(f"| *{escape_markdown(block)}* |" + " |" * (len(table.columns) - 1))
        lines.append("| " + " | ".join(shown(*pair) for pair in row) + " |")
    if notes := all_notes(table):
        lines += [""] * has_columns + [f"* {escape_markdown(note)}" for note in notes]
    return "\n".join(lines) + "\n"


def as_latex(table: Table, name: str = "") -> str:
    """A table with booktabs' rules; a block has a row of its own and a rule before it.

    Notes are small below the table. ``name``: of its label; no label without one.
    """
    table = as_text(table)

    def line(cells: Iterable[str]) -> str:
        """A row; TeX would read these signs as an argument of what ended the last one."""
        text = " & ".join(cells)
        return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"

    def shown(cell: Cell, column: Column) -> str:
        text = text_of(cell, column)
        if not column.is_number:
            return _latex(text)
        plain = "--" if text == "-" else _latex(text).replace("-", "$-$")
        return _with_spread(plain, cell, column, r"$\pm$")

    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        *[rf"\label{{tab:{name}}}"] * bool(name),
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


def save_table(table: Table, folder: Path, name: str) -> list[Path]:
    """``folder/name`` in all three formats, with all intervals."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = as_text(table, every=True)
    texts = {"csv": as_csv(table), "md": as_markdown(whole), "tex": as_latex(whole, name)}
    for suffix, text in texts.items():
        write_whole(folder / f"{name}.{suffix}", text.encode())
    return [folder / f"{name}.{suffix}" for suffix in texts]


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "\N{MINUS SIGN}": "$-$", "<": r"\textless{}", ">": r"\textgreater{}",
    "…": r"\ldots{}", "|": r"\textbar{}",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """A text on one line, whose signs mean nothing in Markdown."""
    return "".join(
        f"\\{sign}" if sign in "\\|*_`<>[]$" else sign for sign in " ".join(text.split())
    )


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
        return "\n\n".join(map(table_text, self.output().tables_shown()))

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

    def __repr__(self) -> str:
        tables = self.tables or ({} if self.csv is None else {"table": self.numbers()})
        sizes = [f"{name} {table.shape}" for name, table in tables.items()]
        lines = [item for item in self.shown if isinstance(item, str)]
        return f"Output({', '.join(sizes)}; rows and columns)" if sizes else "\n".join(lines)

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
