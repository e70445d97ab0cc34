"""Readers of files that others wrote: JSON, tables and Parquet. Every fault of a file is one error.

A file may be damaged or hostile; nothing in it is run. A native abort in the Parquet decoder of
polars is the one fault that ends the process (``docs/reliability.md``).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, reason_of

POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a damaged file; a panic is a BaseException, which Exception misses."""


def read_text(path: Path, *, guess: bool = False) -> str:
    """The text of a file, gzipped or not, in UTF-8, or in UTF-16 with its byte order mark.

    ``guess``: whether other bytes are read as Windows-1252, which has the letters of Latin-1.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16")
        return content.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', '') or error}"
        raise ConsilienceError(reason, where=str(path), todo="Check the path.") from error
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if guess and error.encoding == "utf-8":
                return content.decode("cp1252")
        raise ConsilienceError(
            f"not UTF-8 at byte {error.start}", where=str(path), todo="Save the file as UTF-8."
        ) from error


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file, each with its place ``file:line``."""
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                yield f"{path}:{number}", line.rstrip("\r\n")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConsilienceError(reason, where=str(path), todo="Check the path.") from error
    except UnicodeDecodeError as error:
        where = f"{path}:{number + 1}"
        raise ConsilienceError(
            "not UTF-8 here or soon after", where=where, todo="Save the file as UTF-8."
        ) from error


HALF = re.compile(r"\\u[dD][89a-fA-F]")  # How JSON writes half a surrogate pair


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON document; every fault is a ``json.JSONDecodeError``."""
    try:
        value = json.loads(text)
        if isinstance(text, str) and HALF.search(text):  # half an emoji, which is no UTF-8
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        return value
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


def read_document(path: Path) -> Any:
    """The value that a JSON or TOML file holds, by its suffix; other content raises."""
    text = read_text(path)
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else parse_json(text)
    except json.JSONDecodeError as error:
        raise _not_json(error, f"{path}:{error.lineno}") from error
    except (ValueError, RecursionError) as error:
        raise ConsilienceError(f"cannot be read: {error}", where=str(path)) from error


Faults = list[ConsilienceError]


class FirstFault(Faults):
    """Faults of which the first raises."""

    def append(self, fault: ConsilienceError) -> None:
        raise fault


def read_rows(
    path: Path, *, quoted: bool | None = None, faults: Faults | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row of a JSONL, TSV or CSV file with its place ``file:line``.

    JSONL has one object a line, TSV and CSV a header line. Blank lines are skipped. Faults of rows
    go to ``faults``; without it the first one raises. A file that is no table raises. ``quoted``:
    as for ``read_cells``.
    """
    faults = FirstFault() if faults is None else faults
    if path.suffix == ".jsonl":
        yield from _json_rows(path, faults)
        return
    header: list[str] = []
    for where, row in read_cells(path, quoted=quoted):
        if not header:
            header = row
            for at, name in enumerate(header):
                if name.strip() and name in header[:at]:
                    raise ConsilienceError(
                        f"two columns '{name}'", where=where, todo="Rename or remove one of them."
                    )
        elif len(row) == len(header):
            yield where, dict(zip(header, row, strict=True))
        elif any(cell.strip() for cell in row):
            fault = ConsilienceError(
                f"{len(row)} columns",
                expected=f"{len(header)}, as in the header",
                where=where,
                todo="Check for missing or extra separators, and for line breaks in a cell.",
            )
            faults.append(fault)


def _json_rows(path: Path, faults: Faults) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            faults.append(_not_json(error, where, "Correct or remove the line."))
            continue
        if isinstance(row, dict):
            yield where, row
        else:
            message = f"a JSON {type(row).__name__}"
            fault = ConsilienceError(message, expected="one object a line", where=where)
            faults.append(fault)


def _not_json(error: json.JSONDecodeError, where: str, todo: str = "") -> ConsilienceError:
    return ConsilienceError(
        f"not JSON: {error.msg} at column {error.colno}", where=where, todo=todo
    )


def read_cells(path: Path, *, quoted: bool | None = None) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of a table, with the row's place ``file:line``.

    A .tsv file has tabs between them. Every other one has commas, or semicolons or tabs if its
    first line has more of them. ``quoted``: whether cells are quoted as in CSV. None: with tabs as
    separators only where every cell that begins with a quotation mark is. GLUE's files hold such
    marks as text.
    """
    text = read_text(path, guess=True)
    separator = separator_of(path, text)
    if quoted is None and separator == "\t":
        cells = [cell for cell in re.split(r"[\t\n]", text) if cell.startswith('"')]
        quoted = bool(cells) and all(QUOTED.fullmatch(cell.removesuffix("\r")) for cell in cells)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quoting=csv.QUOTE_NONE if quoted is False else csv.QUOTE_MINIMAL,
        strict=True,
    )
    try:
        for row in reader:
            yield f"{path}:{reader.line_num}", row
    except csv.Error as error:
        found = f"cannot be read as a table: {error}"
        todo = "Check for a quotation mark that is not closed, or not doubled inside a cell."
        raise ConsilienceError(found, where=f"{path}:{reader.line_num}", todo=todo) from error


QUOTED = re.compile(r'"(?:[^"]|"")*"')


def parquet_metadata(path: Path) -> dict[str, str]:
    """The metadata that the writer of a Parquet file added."""
    try:
        return pl.read_parquet_metadata(path)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def read_parquet(path: Path) -> pl.DataFrame:
    """The table of a Parquet file."""
    try:
        return pl.read_parquet(path, glob=False)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def read_csv(path: Path, **options: Any) -> pl.DataFrame:
    """A CSV file by ``polars.read_csv``, gzipped or not; separators: as for ``read_cells``."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.readline(1 << 16)
        separator = separator_of(path, head.replace(b"\0", b"").decode(errors="replace"))
        options |= {"glob": False, "separator": separator}
        try:
            return pl.read_csv(path, **options)
        except pl.exceptions.PolarsError as error:
            if "utf-8" not in str(error).lower():
                raise
            return pl.read_csv(read_text(path, guess=True).encode(), **options)
    except (*POLARS_FAULTS, EOFError) as error:
        raise _no_table(path, error) from error


def separator_of(path: Path, text: str) -> str:
    """What stands between the columns of a table: by its name, or by the first line of its text."""
    if path.suffix == ".tsv":
        return "\t"
    return max(",;\t", key=QUOTED.sub("", text.partition("\n")[0]).count)


def _no_table(path: Path, error: BaseException) -> ConsilienceError:
    damaged = isinstance(error, pl.exceptions.PanicException)
    reason = f"the file is damaged ({reason_of(error)})" if damaged else reason_of(error)
    return ConsilienceError(f"cannot be read as a table: {reason}", where=str(path))
