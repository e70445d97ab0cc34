"""Reading what others wrote: JSON, CSV and Parquet. Every fault of a file is one error.

What this module reads may be damaged or made to do harm; nothing in it is run. A native abort in
the Parquet decoder of polars is the one fault that ends the process (``docs/reliability.md``).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError

POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a damaged file; a panic is a BaseException, which Exception misses."""

UNPACKED = 256 << 20
"""Bytes that a compressed table may unpack to whatever its size."""

TIMES = 100
"""How many times its size a compressed table may unpack to beyond that."""

DEEPEST = 100
"""Lists and objects within each other in a JSON document."""

ROWS = 1 << 20
"""Rows that a Parquet file may hold whatever its size."""

ROWS_A_BYTE = 16
"""Rows that each byte of a Parquet file may stand for beyond that."""


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror or error}", where=str(path), todo="Check the path."
        ) from error
    except UnicodeDecodeError as error:
        raise ConsilienceError(
            f"not UTF-8 at byte {error.start}", where=str(path), todo="Save the file as UTF-8."
        ) from error


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON document; whatever is wrong with it is a ``json.JSONDecodeError``.

    ``json.loads`` raises other errors for deep nesting and for numbers of thousands of digits, and
    what it nests less deeply than it can read, others cannot print. Nesting ends at ``DEEPEST``.
    """
    try:
        value = json.loads(text)
        if not _is_deep(text, value):
            return value
        raise RecursionError
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", *_place(text, r"[\[{]{100}")) from None
    except ValueError:
        raise json.JSONDecodeError("too long a number", *_place(text, r"\d{4000}")) from None


def _is_deep(text: str | bytes, value: Any) -> bool:
    document = text if isinstance(text, str) else text.decode(errors="replace")
    if document.count("[") + document.count("{") <= DEEPEST:
        return False
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not inner:
            return False
        level = inner
    return any(isinstance(each, dict | list) for each in level)


def _place(text: str | bytes, pattern: str) -> tuple[str, int]:
    """The document and where the pattern first matches."""
    document = text if isinstance(text, str) else text.decode(errors="replace")
    found = re.search(pattern, document)
    return document, found.start() if found else 0


def parquet_metadata(path: Path) -> dict[str, str]:
    """The metadata that the writer of a Parquet file added."""
    try:
        return pl.read_parquet_metadata(path)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def read_parquet(path: Path) -> pl.DataFrame:
    """The table of a Parquet file; one of more rows than it has room for is refused."""
    try:
        size = path.stat().st_size
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        if rows > ROWS and rows > size * ROWS_A_BYTE:
            raise ConsilienceError(
                f"{rows:,} rows in {size:,} bytes",
                expected=f"at most {ROWS_A_BYTE} rows for each byte",
                where=str(path),
                todo="The file is damaged, or made to exhaust memory. Get it again.",
            )
        return pl.read_parquet(path, glob=False)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def read_csv(path: Path, **options: Any) -> pl.DataFrame:
    """A CSV file, gzipped or not; ``options`` are those of ``polars.read_csv``.

    One that unpacks to far more than its size is refused before it is read.
    """
    try:
        _refuse_bomb(path)
        table = pl.read_csv(path, glob=False, **options)
    except (*POLARS_FAULTS, EOFError, zlib.error) as error:
        encoded = "utf-8" in str(error).lower()
        todo = LATIN_1 if encoded else _other_separator(_first_line(path), options)
        raise _no_table(path, error, todo) from error
    if table.width == 1 and (todo := _other_separator(table.columns[0], options)):
        raise ConsilienceError(
            "a table of one column", expected="commas between columns", where=str(path), todo=todo
        )
    return table


LATIN_1 = "Save it as UTF-8. From Latin-1: iconv -f LATIN1 -t UTF-8 OLD.csv > NEW.csv."


def _first_line(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.readline(10_000).decode(errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""


def _other_separator(header: str, options: Mapping[str, Any]) -> str:
    """What to do with a table whose header has another separator than it is read with."""
    expected = options.get("separator", ",")
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if expected == "," and header.count(separator) > header.count(","):
            return f"Its columns are separated by {name}. Save it with commas."
    return ""


def _refuse_bomb(path: Path) -> None:
    """Polars decompresses whatever begins like gzip, zlib or zstd, all of it into memory."""
    with path.open("rb") as file:
        head = file.read(4)
    if head[:2] in (b"\x78\x01", b"\x78\x9c", b"\x78\xda") or head == b"\x28\xb5\x2f\xfd":
        raise ConsilienceError(
            "compressed in another way than gzip",
            expected="a .csv file, or a .csv.gz file made with gzip",
            where=str(path),
            todo="Unpack it first.",
        )
    if head[:2] != b"\x1f\x8b":
        return
    packed, unpacked = path.stat().st_size, 0
    with gzip.open(path) as table:
        while chunk := table.read(1 << 20):
            unpacked += len(chunk)
            if unpacked > UNPACKED and unpacked > packed * TIMES:
                raise ConsilienceError(
                    f"{packed:,} bytes that unpack to {unpacked:,} or more",
                    expected=f"at most {TIMES} times the size of the file",
                    where=str(path),
                    todo="If the table is really so large, unpack it with gunzip first.",
                )


def _no_table(path: Path, error: BaseException, todo: str = "") -> ConsilienceError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    damaged = isinstance(error, pl.exceptions.PanicException)
    return ConsilienceError(
        "cannot be read as a table: "
        + (f"the file is damaged ({reason})" if damaged else reason.rstrip(".")),
        where=str(path),
        todo=todo,
    )
