"""The tables of a suite folder, to which rows are added; the rows that are there do not change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.files import cannot_write, write_whole
from consilience.read import read_text
from consilience.suites.rows import find_table

Rows = Sequence[Mapping[str, object]]
"""Rows of a table: their cells by the names of their columns."""


def append_rows(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Add rows to the tables of a folder; a table that is not there becomes a JSONL file.

    All rows are prepared before the first file is written. A TSV table whose header lacks a column
    of the rows raises.
    """
    files = {
        path: _with_rows(path, rows)
        for name, rows in tables.items()
        if rows
        for path in [find_table(folder, name) or folder / f"{name}.jsonl"]
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for path, text in files.items():
        write_whole(path, text.encode())


def _with_rows(path: Path, rows: Rows) -> str:
    """The text of a table with more rows."""
    text = read_text(path) if path.is_file() else ""
    text += "\n" if text and not text.endswith("\n") else ""
    if path.suffix == ".jsonl":
        return text + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    header = text.partition("\n")[0].rstrip("\r").split("\t")
    return text + "".join(_tsv_line(path, header, row) for row in rows)


def _tsv_line(path: Path, header: Sequence[str], row: Mapping[str, object]) -> str:
    if missing := [name for name in row if name not in header]:
        raise ConsilienceError(
            f"no column '{missing[0]}', which a new row has",
            expected=f"{', '.join(row)} in the header",
            where=str(path),
            todo="Add the column to the header, or save the table as JSONL.",
        )
    return "\t".join(_cell(row.get(name, "")) for name in header) + "\n"


def _cell(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
