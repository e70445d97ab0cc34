"""Readers of files that others wrote: texts, JSON, and the rows of tables in every format.

Nothing in a file is run. A native abort in the Parquet decoder of polars is the one fault that ends
the process (``docs/cli.md``).
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

from consilience.core.errors import ConsilienceError, how_to_install, needs_extra, reason_of

POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a damaged file; a panic is a BaseException, which Exception misses."""

Problems = list[ConsilienceError]


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
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if guess and error.encoding == "utf-8":
                return content.decode("cp1252")
        raise ConsilienceError(
            f"not UTF-8 at byte {error.start}", where=str(path), todo="Save the file as UTF-8."
        ) from error


def _unreadable(path: Path, error: Exception) -> ConsilienceError:
    reason = f"cannot be read: {getattr(error, 'strerror', '') or error}"
    return ConsilienceError(reason, where=str(path), todo="Check the path.")


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file, each with its place ``file:line``."""
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                yield f"{path}:{number}", line.rstrip("\r\n")
    except OSError as error:
        raise _unreadable(path, error) from error
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


def _not_json(error: json.JSONDecodeError, where: str) -> ConsilienceError:
    return ConsilienceError(f"not JSON: {error.msg} at column {error.colno}", where=where)


SUFFIXES = (".csv", ".csv.gz", ".tsv", ".jsonl", ".json", ".xlsx", ".parquet")
"""The formats of tables."""

Rows = Iterator[tuple[str, dict[str, Any]]]
"""The rows of a table, each with its place and its cells by the names of their columns."""


def read_rows(path: Path, problems: Problems | None = None) -> Rows:
    """The rows of a table that are not empty, in any format of ``SUFFIXES``.

    CSV, TSV and a workbook have a line with names first, JSONL an object a line, JSON a list of
    objects. The place is ``file:line``, or ``file, row N`` of JSON and Parquet. What is wrong with
    a row goes to ``problems``; without them the first raises, as a file does that is no table.
    """
    suffix = ".csv" if path.name.endswith(".csv.gz") else path.suffix
    if suffix in (".csv", ".tsv"):
        rows = _named_cells(read_cells(path), problems)
    elif suffix == ".jsonl":
        rows = _json_rows(path, problems)
    elif suffix == ".json":
        values = read_document(path)
        if not isinstance(values, list):
            raise ConsilienceError("no list of rows", expected="one object each", where=str(path))
        rows = ((f"{path}, row {number}", row) for number, row in enumerate(values, start=1))
    elif suffix == ".xlsx":
        table = read_workbook(path)
        lines = ((f"{path}:{at}", list(row)) for at, row in enumerate(table.rows(), start=2))
        rows = _named_cells(lines, problems, table.columns)
    elif suffix == ".parquet":
        table, labels = read_parquet(path), _class_labels(parquet_metadata(path))
        named = table.iter_rows(named=True)
        rows = ((f"{path}, row {at}", with_labels(row, labels)) for at, row in enumerate(named, 1))
    else:
        found = f"a table in '{suffix or path.name}'"
        raise ConsilienceError(found, expected=", ".join(SUFFIXES), where=str(path))
    for where, row in rows:
        if not isinstance(row, dict):
            message = f"a JSON {type(row).__name__}"
            report(problems, ConsilienceError(message, expected="an object", where=where))
        else:
            for value in row.values():
                if value.strip() if isinstance(value, str) else value is not None:
                    yield where, row
                    break


def report(problems: Problems | None, problem: ConsilienceError) -> None:
    """Add a problem to the others; raise it where they are not collected."""
    if problems is None:
        raise problem
    problems.append(problem)


def _json_rows(path: Path, problems: Problems | None) -> Rows:
    for where, line in read_lines(path):
        try:
            if line.strip():
                yield where, parse_json(line)
        except json.JSONDecodeError as error:
            report(problems, _not_json(error, where))


def _named_cells(
    rows: Iterator[tuple[str, list[Any]]],
    problems: Problems | None,
    header: list[str] | None = None,
) -> Rows:
    """The cells of each row by the names in the first one, which are all different."""
    for where, row in rows:
        if header is None:
            header = [name.strip() for name in row]
            for at, name in enumerate(header):
                if name and name in header[:at]:
                    expected = "a line with the names of the columns, all different"
                    raise ConsilienceError(f"two columns '{name}'", expected=expected, where=where)
        elif len(row) == len(header):
            yield where, dict(zip(header, row, strict=True))
        elif any(cell.strip() for cell in row):
            found, expected = f"{len(row)} columns", f"{len(header)}, as in the first line"
            todo = "Check for missing or extra separators, and for line breaks in a cell."
            report(problems, ConsilienceError(found, expected=expected, where=where, todo=todo))


def dialect_of(text: str, suffix: str) -> dict[str, Any]:
    """How the cells of a CSV or TSV table are separated and quoted, as arguments of ``csv``.

    A .tsv file has tabs between them. Every other one has commas, or semicolons or tabs if its
    first line has more of them. Cells are quoted as in CSV; with tabs as separators only where
    every cell that begins with a quotation mark is. GLUE's files hold such marks as text.
    """
    separator, is_quoted = "\t", True
    if suffix != ".tsv":
        separator = max(",;\t", key=QUOTED.sub("", text.partition("\n")[0]).count)
    if separator == "\t":
        cells = [cell for cell in re.split(r"[\t\n]", text) if cell.startswith('"')]
        is_quoted = all(QUOTED.fullmatch(cell.removesuffix("\r")) for cell in cells or [""])
    is_spaced = re.search(f'(?m)(^|{separator}) +"', text) is not None
    return {
        "delimiter": separator, "skipinitialspace": is_quoted and is_spaced,
        "quoting": csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
    }  # fmt: skip


QUOTED = re.compile(r'"(?:[^"]|"")*"')


def read_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of a CSV or TSV file, with the row's place ``file:line``."""
    text = read_text(path, guess=True)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, **dialect_of(text, path.suffix))
    line = 1
    try:
        for row in reader:
            yield f"{path}:{line}", row
            line = reader.line_num + 1
    except csv.Error as error:
        found = f"cannot be read as a table: {error}"
        todo = "Check for a quotation mark that is not closed, or not doubled inside a cell."
        raise ConsilienceError(found, where=f"{path}:{line}", todo=todo) from error


def read_workbook(path: Path) -> pl.DataFrame:
    """The first sheet of a workbook, with empty rows; a date is text. Row 1 names the columns."""
    try:
        import fastexcel
    except ImportError as error:
        found = "fastexcel is not installed, which reads Excel workbooks"
        todo = f"{how_to_install('excel')} Or save the table as CSV."
        raise ConsilienceError(found, where=str(path), todo=todo) from error
    try:
        table = pl.read_excel(path, infer_schema_length=0, drop_empty_rows=False)
    except IndexError as error:  # polars takes the first sheet
        raise ConsilienceError("a workbook without a sheet", where=str(path)) from error
    except (*POLARS_FAULTS, fastexcel.FastExcelError) as error:
        raise ConsilienceError(
            f"cannot be read as a workbook: {reason_of(error)}", where=str(path)
        ) from error
    dates = pl.all().str.replace(r"^(\d{4}-\d\d-\d\d) 00:00:00$", "$1")
    return table.with_columns(dates.str.replace(r"^1899-12-3[01] ", ""))  # a time alone


def parquet_metadata(path: Path) -> dict[str, str]:
    """The metadata that the writer of a Parquet file added."""
    try:
        return pl.read_parquet_metadata(path)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def read_parquet(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """The table of a Parquet file, or some of its columns."""
    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error


def _no_table(path: Path, error: BaseException) -> ConsilienceError:
    damaged = isinstance(error, pl.exceptions.PanicException)
    reason = f"the file is damaged ({reason_of(error)})" if damaged else reason_of(error)
    return ConsilienceError(f"cannot be read as a table: {reason}", where=str(path))


def _class_labels(metadata: dict[str, str]) -> dict[str, list[str]]:
    """The names of labels that the datasets library wrote into a Parquet file, by column."""
    with suppress(KeyError, TypeError, AttributeError, json.JSONDecodeError):
        features = parse_json(metadata["huggingface"])["info"]["features"].items()
        return {
            column: list(map(str, feature["names"]))
            for column, feature in features
            if feature.get("_type") == "ClassLabel"
        }
    return {}


def with_labels(row: dict[str, Any], labels: dict[str, list[str]]) -> dict[str, Any]:
    """A row of a data set with the names of its class labels instead of their numbers."""
    for column, names in labels.items():
        if isinstance(label := row.get(column), int):
            row[column] = names[label] if 0 <= label < len(names) else None
    return row


def hub_rows(*name: str | None, split: str, where: str) -> Rows:
    """The rows of a split of a data set on the Hub; ``name``: its name and its configuration."""
    with needs_extra("hub"):
        from datasets import load_dataset
    try:
        dataset: Any = load_dataset(*name, split=split)
    except Exception as error:  # the network, a wrong name, a script: nearly anything
        found = f"cannot be loaded: {reason_of(error)}"
        todo = "Check the network, the name, the configuration and the split, or give a file."
        raise ConsilienceError(found, where=where, todo=todo) from error
    features = dataset.features.items()
    labels = {name: one.names for name, one in features if type(one).__name__ == "ClassLabel"}
    for number, row in enumerate(dataset, start=1):
        yield f"{where}, row {number}", with_labels(dict(row), labels)
