"""Tables as files: CSV, Markdown and LaTeX (booktabs)."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from consilience.files import csv_cell, write_whole
from consilience.report.table import PERCENT, Cell, Column, Table, spread_of, text_of


def as_csv(table: Table) -> str:
    """Every number in full precision, in percent where it is shown so.

    A standard deviation and the bounds of an interval have columns of their own, after the number.
    A table with blocks begins with the column ``group``.
    """
    rows = [table.cells(at) for at in range(len(table.rows))]
    parts = [_csv_parts([row[at] for row in rows]) for at in range(len(table.columns))]
    heading = ["group"] if table.blocks else []
    for column, names in zip(table.columns, parts, strict=True):
        heading += [f"{column.heading} {name}".strip() for name in names]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(csv_cell, heading))
    for at, row in enumerate(rows):
        line: list[object] = [csv_cell(table.blocks[at])] if table.blocks else []
        for cell, column, names in zip(row, table.columns, parts, strict=True):
            line += [_csv_value(cell, column, name) for name in names]
        writer.writerow(line)
    return written.getvalue()


def _csv_parts(cells: list[Cell]) -> list[str]:
    """What a column of cells is written as: the value (``""``), ``std``, ``low``, ``high``."""
    if any(cell.has_interval and cell.value is None for cell in cells):
        return ["low", "high"]
    return ["", "std"] if any(not math.isnan(cell.std) for cell in cells) else [""]


def _csv_value(cell: Cell, column: Column, part: str) -> object:
    if part:
        value = {"std": cell.std, "low": cell.low, "high": cell.high}[part]
    elif isinstance(cell.value, str):
        return csv_cell(cell.value)
    elif cell.value is None:
        return ""
    elif isinstance(cell.value, int):
        return cell.value
    else:
        value = cell.value
    return "" if math.isnan(value) else repr(value * PERCENT.get(column.kind, 1))


def as_markdown(table: Table) -> str:
    """A table with pipes; a block has a row of its own. The notes follow as a list."""
    lines = [f"**{_markdown(table.title)}**", ""] if table.title else []
    has_columns = len(table.columns) > 1
    if has_columns:
        headings = (_markdown(column.heading) for column in table.columns)
        lines.append("| " + " | ".join(headings) + " |")
        lines.append("|" + "|".join("---:" if c.is_number else "---" for c in table.columns) + "|")
    block = ""
    for at in range(len(table.rows)):
        group = table.blocks[at] if table.blocks else ""
        if group != block and group:
            lines.append(f"| *{_markdown(group)}* |" + " |" * (len(table.columns) - 1))
        block = group
        cells = zip(table.cells(at), table.columns, strict=True)
        lines.append("| " + " | ".join(_markdown_cell(*pair) for pair in cells) + " |")
    if table.notes:
        lines += [""] * has_columns + [f"* {_markdown(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell, column: Column) -> str:
    text = _markdown(text_of(cell, column))
    text = f"**{text}**" if cell.is_best else text
    spread = spread_of(cell, column)
    return f"{text} ± {spread}" if spread else text


def as_latex(table: Table) -> str:
    """A table with booktabs' rules; a block has a row of its own and a rule before it.

    Notes are comments below the table.
    """
    width = len(table.columns)
    alignment = "".join("r" if column.is_number else "l" for column in table.columns)
    first, *others = (column.heading for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join((_begins_row(_latex(first)), *map(_latex, others))) + r" \\",
        r"\midrule",
    ]
    block = ""
    for at in range(len(table.rows)):
        group = table.blocks[at] if table.blocks else ""
        if group != block:
            if at:
                lines.append(r"\midrule")
            if group:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_latex(group)}}}}} \\")
        block = group
        cells = zip(table.cells(at), table.columns, strict=True)
        name, *numbers = (_latex_cell(*pair) for pair in cells)
        lines.append(" & ".join((_begins_row(name), *numbers)) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    lines += [f"% {' '.join(note.split())}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell, column: Column) -> str:
    text = text_of(cell, column)
    if isinstance(cell.value, str):
        return _latex(text)
    plain = "--" if text == "-" else _latex(text).replace("-", "$-$")
    plain = rf"\textbf{{{plain}}}" if cell.is_best else plain
    spread = spread_of(cell, column)
    return rf"{plain} $\pm$ {spread}" if spread else plain


def _begins_row(text: str) -> str:
    """The cell that begins a row, which TeX would read as an argument of what ended the last."""
    return ("{}" if text.startswith(("[", "*")) else "") + text


TABLE_FORMATS = {".csv": as_csv, ".md": as_markdown, ".tex": as_latex}
"""Suffixes of the files of a table, and what writes them."""


def save_table(table: Table, folder: Path, name: str) -> list[Path]:
    """``folder/name`` in all three formats."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, make in TABLE_FORMATS.items():
        path = folder / f"{name}{suffix}"
        write_whole(path, make(table).encode())
        written.append(path)
    return written


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "\N{MINUS SIGN}": "$-$", "<": r"\textless{}", ">": r"\textgreater{}",
    "…": r"\ldots{}", "|": r"\textbar{}",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _markdown(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "\\|*_`<>[]" else sign for sign in " ".join(text.split()))
