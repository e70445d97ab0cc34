"""Tables as Python shows them: text for a terminal, HTML for a notebook."""

from __future__ import annotations

from html import escape
from shutil import get_terminal_size

from consilience.report.html import html_rows
from consilience.report.table import Table, all_notes
from consilience.report.terminal import fitted_text
from consilience.text import visible

NUMBER_STYLE = "text-align: right; font-variant-numeric: tabular-nums"
TEXT_STYLE = "text-align: left"


def table_text(table: Table) -> str:
    """The table as text without colours, as wide as the terminal."""
    return visible(fitted_text(table, get_terminal_size().columns).plain)


def table_html(table: Table) -> str:
    """The table as HTML that needs no style sheet, script or network."""
    heads = [_cell("th", column.heading, column.is_number) for column in table.columns]
    rows = [[_cell("td", cell.text, cell.is_number) for cell in row] for row in html_rows(table)]
    lines = [f"<tr>{''.join(cells)}</tr>" for cells in (heads, *rows)]
    title = f"<p><b>{_shown(table.title)}</b></p>" if table.title else ""
    notes = "".join(f"<p>{_shown(note)}</p>" for note in all_notes(table))
    return f"<div>{title}<table>{''.join(lines)}</table>{notes}</div>"


def _cell(tag: str, text: str, is_number: bool) -> str:
    style = NUMBER_STYLE if is_number else TEXT_STYLE
    return f'<{tag} style="{style}">{_shown(text)}</{tag}>'


def _shown(text: str) -> str:
    return escape(visible(text))
