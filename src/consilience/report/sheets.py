"""Tables for papers: as CSV, Markdown and LaTeX (booktabs); mean ± std, the best in bold."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from consilience.files import csv_cell, write_whole


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is printed: with ``digits`` behind the point, and its std where it has one."""

    value: float
    std: float = math.nan
    digits: int = 1

    @property
    def plain(self) -> str:
        """The value; ``-`` where there is none."""
        return (
            "-"
            if math.isnan(self.value)
            else f"{round(self.value, self.digits) + 0:.{self.digits}f}"
        )

    @property
    def spread(self) -> str:
        """The std, or nothing."""
        return "" if math.isnan(self.std) else f"{self.std:.{self.digits}f}"


Cell = Number | str


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as a paper prints it.

    ``rows``: name of the block that a row belongs to (may be empty), its own name, its cells, one a
    heading of ``columns``. ``best``: columns whose largest number is bold, among all rows but those
    of ``apart`` (such as a baseline), or among those of a block (``by_block``). ``notes``: what its
    reader should know.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    best: Collection[str] = ()
    apart: Collection[str] = ()
    by_block: bool = False
    notes: Sequence[str] = ()

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell has the largest number of its column, as it is printed."""
        cell = self.rows[row][2][column]
        if self.columns[column] not in self.best or not isinstance(cell, Number):
            return False
        others = [
            float(each.plain)
            for block, name, cells in self.rows
            if name not in self.apart
            and not (self.by_block and block != self.rows[row][0])
            and isinstance(each := cells[column], Number)
            and not math.isnan(each.value)
        ]
        ours = self.rows[row][1] not in self.apart and not math.isnan(cell.value)
        return ours and len(others) > 1 and float(cell.plain) == max(others)


def as_csv(sheet: Sheet) -> str:
    """Every number with its std in a column behind it, in full precision."""
    spread = [
        any(isinstance(cell, Number) and cell.spread for cell in column)
        for column in zip(*(cells for _, _, cells in sheet.rows), strict=True)
    ] or [False] * len(sheet.columns)
    heading = ["group", sheet.corner]
    for at, column in enumerate(sheet.columns):
        heading += [column, f"{column} std"] if spread[at] else [column]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(csv_cell, heading))
    for group, name, cells in sheet.rows:
        line: list[object] = [csv_cell(group), csv_cell(name)]
        for at, cell in enumerate(cells):
            value, std = (cell.value, cell.std) if isinstance(cell, Number) else (cell, math.nan)
            if isinstance(value, str):
                line.append(csv_cell(value))
            else:
                line.append(_exact(value) if isinstance(value, float) else value)
            if spread[at]:
                line.append(_exact(std))
        writer.writerow(line)
    return written.getvalue()


def as_markdown(sheet: Sheet) -> str:
    """A table with pipes; blocks have a row of their own. Then the notes as a list."""

    def cell(row: int, column: int) -> str:
        found = sheet.rows[row][2][column]
        if not isinstance(found, Number):
            return _markdown(found)
        text = f"**{found.plain}**" if sheet.is_best(row, column) else found.plain
        return f"{text} ± {found.spread}" if found.spread else text

    lines = [f"**{_markdown(sheet.title)}**", ""]
    if sheet.columns:
        lines.append("| " + " | ".join(map(_markdown, (sheet.corner, *sheet.columns))) + " |")
        lines.append("|---" + "|---:" * len(sheet.columns) + "|")
    block = ""
    for at, (group, name, cells) in enumerate(sheet.rows):
        if group != block and group:
            lines.append(f"| *{_markdown(group)}* |" + " |" * len(cells))
        block = group
        shown = [cell(at, column) for column in range(len(cells))]
        lines.append(f"| {_markdown(name)} | " + " | ".join(shown) + " |")
    if sheet.notes:
        lines += [""] * bool(sheet.columns) + [f"* {_markdown(note)}" for note in sheet.notes]
    return "\n".join(lines) + "\n"


def as_latex(sheet: Sheet) -> str:
    """A table with booktabs' rules; blocks are parted by a rule and have a row of their own.

    Notes are comments below it.
    """

    def cell(row: int, column: int) -> str:
        found = sheet.rows[row][2][column]
        if not isinstance(found, Number):
            return _latex(found)
        plain = found.plain.replace("-", "$-$") if found.plain != "-" else "--"
        text = rf"\textbf{{{plain}}}" if sheet.is_best(row, column) else plain
        return rf"{text} $\pm$ {found.spread}" if found.spread else text

    width = len(sheet.columns) + 1
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(sheet.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        " & ".join((_first(sheet.corner), *map(_latex, sheet.columns))) + r" \\",
        r"\midrule",
    ]
    block = ""
    for at, (group, name, cells) in enumerate(sheet.rows):
        if group != block:
            if at:
                lines.append(r"\midrule")
            if group:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_latex(group)}}}}} \\")
        block = group
        shown = [cell(at, column) for column in range(len(cells))]
        lines.append(" & ".join((_first(name), *shown)) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    lines += [f"% {' '.join(note.split())}" for note in sheet.notes]
    return "\n".join(lines) + "\n"


SHEET_FORMATS = {".csv": as_csv, ".md": as_markdown, ".tex": as_latex}
"""Suffixes of the files of a table, and what writes them."""


def save_sheet(sheet: Sheet, folder: Path, name: str) -> list[Path]:
    """``folder/name`` in all three formats."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, make in SHEET_FORMATS.items():
        path = folder / f"{name}{suffix}"
        write_whole(path, make(sheet).encode())
        written.append(path)
    return written


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "\N{MINUS SIGN}": "$-$", "<": r"\textless{}", ">": r"\textgreater{}",
    "…": r"\ldots{}", "|": r"\textbar{}",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(each, each) for each in " ".join(text.split()))


def _first(text: str) -> str:
    """The cell that begins a row, which TeX would read as an argument of what ended the last."""
    return ("{}" if text.startswith(("[", "*")) else "") + _latex(text)


def _markdown(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\|*_`<>[]" else each for each in " ".join(text.split()))


def _exact(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
