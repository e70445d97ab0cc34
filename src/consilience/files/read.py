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
import math
import re
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from consilience.core.errors import ConsilienceError, reason_of, shortened

POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a damaged file; a panic is a BaseException, which Exception misses."""

UNPACKED = 256 << 20  # Bytes that a compressed table of any size may unpack to

TIMES = 100  # Beyond that, how many times its size a compressed table may unpack to

DEEPEST = 100
ROWS = 1 << 20

TIMES_PARQUET = 1_000
"""How many times its size a Parquet file may unpack to; it keeps equal texts once."""

ROWS_A_BYTE = 16  # Beyond that, rows for each byte of a Parquet file


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark; line ends as they are."""
    return decoded(path, guess=False)[0]


def decoded(path: Path, *, guess: bool) -> tuple[str, str]:
    """The text of a file, gzipped or not, and its encoding if that is not UTF-8.

    UTF-16 has a byte order mark. ``guess``: whether other bytes are read as Windows-1252, which
    has the letters of Latin-1.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16"), "UTF-16"
        return content.decode("utf-8-sig"), ""
    except OSError as error:
        raise ConsilienceError(
            f"cannot be read: {error.strerror or error}", where=str(path), todo="Check the path."
        ) from error
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if guess and error.encoding == "utf-8":
                return content.decode("cp1252"), "Windows-1252"
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


def parse_json(text: str | bytes, *, last_wins: bool = False) -> Any:
    """The value of a JSON document; every fault is a ``json.JSONDecodeError``.

    ``json.loads`` raises other errors for deep nesting and for numbers of thousands of digits. What
    it can still read may be nested too deeply to print, so nesting ends at ``DEEPEST``. A key that
    an object has twice is a fault, or its last value counts (``last_wins``, for what machines
    send). Half a surrogate pair becomes U+FFFD (``whole_characters``).
    """
    document = text if isinstance(text, str) else text.decode(json.detect_encoding(text))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            message = f"a second '{shortened(twice, 200)}'"
            raise json.JSONDecodeError(message, document, document.rfind(json.dumps(twice)))
        return value

    try:
        value = json.loads(document, object_pairs_hook=None if last_wins else unique)
        if document.count("[") + document.count("{") > DEEPEST:
            _refuse_endless(value)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", *_place(document, r"[\[{]{100}")) from None
    except ValueError:
        raise json.JSONDecodeError("too long a number", *_place(document, r"\d{4000}")) from None
    return whole_characters(value) if HALF.search(document) else value


HALF = re.compile(r"\\u[dD][89a-fA-F]")  # How JSON and YAML write half a surrogate pair


def whole_characters(value: Any) -> Any:
    """A value of JSON with U+FFFD for each half of a surrogate pair, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {whole_characters(name): whole_characters(part) for name, part in value.items()}
    return list(map(whole_characters, value)) if isinstance(value, list) else value


def read_document(path: Path) -> Any:
    """The value that a JSON, YAML or TOML file holds, by its suffix; other content raises."""
    text = read_text(path)
    try:
        if path.suffix == ".json":
            return parse_json(text)
        return tomllib.loads(text) if path.suffix == ".toml" else parse_yaml(text)
    except json.JSONDecodeError as error:
        raise _not_json(error, f"{path}:{error.lineno}") from error
    except (ValueError, RecursionError) as error:
        raise ConsilienceError(f"cannot be read: {error}", where=str(path)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        problem = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        todo = "Put texts with ':', '?' or quotes between quotes."
        raise ConsilienceError(f"no YAML: {problem}", where=str(path), todo=todo) from error


def parse_yaml(text: str) -> Any:
    """The value of a YAML document: of texts, whole numbers, true and false, null, lists, mappings.

    Everything else is a text as it is written: a date, a time, 3.10, 007, yes and no. Keys are
    texts as they are written, each once. Aliases unfold to at most ``UNFOLDED`` characters. Other
    documents raise ``ValueError``, ``RecursionError`` or ``yaml.YAMLError``.
    """
    import yaml

    tag = "tag:yaml.org,2002:"

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar = {
            first: [one for one in rules if one[0] != f"{tag}timestamp"]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        yaml_constructors: ClassVar = {
            name: make
            for name, make in yaml.SafeLoader.yaml_constructors.items()
            if str(name).removeprefix(tag) not in ("binary", "omap", "pairs", "set", "timestamp")
        }

        def resolve(self, kind: type, value: Any, implicit: Any) -> Any:
            resolved = str(super().resolve(kind, value, implicit))
            is_plain = kind is yaml.ScalarNode and implicit[0]
            is_text = is_plain and {  # as it is written: 10:30, 3.10, 007, NO
                f"{tag}bool": value.lower() not in ("true", "false"),
                f"{tag}int": not re.fullmatch("[-+]?(0|[1-9][0-9]*)", value),
                f"{tag}float": True,
            }.get(resolved, False)
            return f"{tag}str" if is_text else resolved

        def compose_mapping_node(self, anchor: str | None) -> Any:
            node = super().compose_mapping_node(anchor)
            names = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != f"{tag}merge":
                    key.tag = f"{tag}str"
                    if key.value in names:
                        problem = f"a second '{shortened(key.value, 200)}'"
                        raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                    names.add(key.value)
            return node

    value = yaml.load(text, Loader)
    _refuse_endless(value, max(UNFOLDED, len(text)))
    return whole_characters(value) if HALF.search(text) else value


UNFOLDED = 1 << 22
"""Characters and values that the aliases of a YAML document of any size may unfold to."""


def _refuse_endless(value: Any, most: float = math.inf) -> None:
    """Raise for more than ``DEEPEST`` levels, or more than ``most`` values and characters."""
    level, size = [value], 0
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(part.values())
            elif isinstance(part, list):
                inner.extend(part)
            size += len(part) if isinstance(part, str) else 1
            if size + len(inner) > most:
                raise ValueError(f"its aliases unfold to more than {most:,} characters")
        if not inner:
            return
        level = inner
    if any(isinstance(part, dict | list) for part in level):
        raise RecursionError("nested too deeply")


def _place(document: str, pattern: str) -> tuple[str, int]:
    """The document and the position of the first match of the pattern."""
    match = re.search(pattern, document)
    return document, match.start() if match else 0


Faults = list[ConsilienceError]


class FirstFault(Faults):
    """Faults of which the first raises."""

    def append(self, fault: ConsilienceError) -> None:
        raise fault


def read_rows(
    path: Path,
    *,
    quoted: bool | None = None,
    faults: Faults | None = None,
    notes: list[str] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row of a JSONL, TSV or CSV file with its place ``file:line``.

    JSONL has one object a line, TSV and CSV a header line. Blank lines are skipped. Faults of rows
    go to ``faults``; without it the first one raises. A file that is no table raises. ``quoted``
    and ``notes``: as for ``read_cells``.
    """
    faults = FirstFault() if faults is None else faults
    if path.suffix == ".jsonl":
        yield from _json_rows(path, faults)
        return
    header: list[str] = []
    for where, row in read_cells(path, quoted=quoted, notes=notes):
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


def read_cells(
    path: Path, *, quoted: bool | None = None, notes: list[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of a table, with the row's place ``file:line``.

    A .tsv file has tabs between them. Every other one has commas, or semicolons or tabs if its
    first line has more of them. ``quoted``: whether cells are quoted as in CSV. None: with tabs as
    separators only where every cell that begins with a quotation mark is. GLUE's files hold such
    marks as text. ``notes`` gets what is unusual; without it a text in Windows-1252 is refused.
    """
    text, encoding = decoded(path, guess=notes is not None)
    separator = separator_of(path, text)
    if notes is not None:
        notes += _form(path, separator, encoding)
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
    """The table of a Parquet file; one of more rows or texts than it has room for is refused."""
    try:
        size = path.stat().st_size
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        problem, expected = f"{rows:,} rows in {size:,} bytes", f"{ROWS_A_BYTE} rows for each byte"
        if rows <= ROWS or rows <= size * ROWS_A_BYTE:
            table = pl.read_parquet(path, glob=False)  # equal texts share their memory
            unpacked = int(table.estimated_size())
            if unpacked <= UNPACKED or unpacked <= size * TIMES_PARQUET:
                return table
            problem = f"{size:,} bytes that unpack to {unpacked:,}"
            expected = f"{TIMES_PARQUET:,} times the size of the file"
    except POLARS_FAULTS as error:
        raise _no_table(path, error) from error
    todo = "The file is damaged, or made to exhaust memory. Get it again."
    raise ConsilienceError(problem, expected=f"at most {expected}", where=str(path), todo=todo)


def read_csv(path: Path, notes: list[str] | None = None, **options: Any) -> pl.DataFrame:
    """A CSV file by ``polars.read_csv``, gzipped or not; one that unpacks to too much raises.

    Separators and ``notes``: as for ``read_cells``.
    """
    encoding = ""
    try:
        _refuse_bomb(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.readline(1 << 16)
        separator = separator_of(path, head.replace(b"\0", b"").decode(errors="replace"))
        options |= {"glob": False, "separator": separator}
        try:
            table = pl.read_csv(path, **options)
        except pl.exceptions.PolarsError as error:
            if "utf-8" not in str(error).lower():
                raise
            text, encoding = decoded(path, guess=notes is not None)
            table = pl.read_csv(text.encode(), **options)
    except (*POLARS_FAULTS, EOFError, zlib.error) as error:
        raise _no_table(path, error) from error
    if notes is not None:
        notes += _form(path, separator, encoding)
    return table


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def separator_of(path: Path, text: str) -> str:
    """What stands between the columns of a table: by its name, or by the first line of its text."""
    if path.suffix == ".tsv":
        return "\t"
    plain = QUOTED.sub("", text.partition("\n")[0])
    return max(SEPARATORS, key=plain.count)


def _form(path: Path, separator: str, encoding: str) -> list[str]:
    """A note of how a table is written, unless it is as most are."""
    usual = "\t" if path.suffix == ".tsv" else ","
    named = [f"{SEPARATORS[separator]} between the columns"] if separator != usual else []
    named += [f"text in {encoding}"] if encoding else []
    return [f"{path}: read with {' and '.join(named)}"] if named else []


def _refuse_bomb(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4)
    if head[:2] in (b"\x78\x01", b"\x78\x9c", b"\x78\xda") or head == b"\x28\xb5\x2f\xfd":
        found = "compressed in another way than gzip"
        expected = "a .csv file, or a .csv.gz file made with gzip"
        raise ConsilienceError(found, expected=expected, where=str(path), todo="Unpack it first.")
    if head[:2] != b"\x1f\x8b":
        return
    packed, unpacked = path.stat().st_size, 0
    with gzip.open(path) as table:
        while chunk := table.read(1 << 20):
            unpacked += len(chunk)
            if unpacked > UNPACKED and unpacked > packed * TIMES:
                found = f"{packed:,} bytes that unpack to {unpacked:,} or more"
                expected = f"at most {TIMES} times the size of the file"
                todo = "If the table is really so large, unpack it with gunzip first."
                raise ConsilienceError(found, expected=expected, where=str(path), todo=todo)


CELLS = 1 << 22  # Cells of a sheet, empty ones included, from the first to the last row and column

_SHEET_TAG = re.compile(
    rb"""<(?:[\w.-]+:)?(?:(row|c)((?:[^>"']|"[^"]*"|'[^']*')*+)>|v\b[^>]*>\s*(\d{1,9})\s*<)"""
)

_REFERENCE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]*)(\d*)""")


def refuse_large_workbook(path: Path) -> None:
    """Refuse an .xlsx file that fastexcel would unpack into all of the memory.

    A sheet is held from its first to its last cell, and each cell has its own copy of its text.
    """
    packed = path.stat().st_size
    most = max(UNPACKED, packed * TIMES)
    try:
        with zipfile.ZipFile(path) as book:
            problem = ""
            if (unpacked := sum(part.file_size for part in book.infolist())) > most:
                problem = f"{packed:,} bytes that unpack to {unpacked:,}"
            texts: list[int] = []
            names = [] if problem else book.namelist()
            for name in sorted(names, key=lambda name: name.lower() != "xl/sharedstrings.xml"):
                content = book.read(name)
                if name.lower() == "xl/sharedstrings.xml":
                    texts = list(map(len, re.split(rb"<(?:[\w.-]+:)?si\b", content)))[1:]
                else:
                    problem = problem or _too_large(content, texts, most)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError) as error:
        raise ConsilienceError(f"cannot be read as a workbook: {error}", where=str(path)) from error
    if problem:
        expected = f"at most {CELLS:,} cells, and {most:,} bytes"
        todo = "Remove cells far from the table, or save the table as CSV."
        raise ConsilienceError(problem, expected=expected, where=str(path), todo=todo)


def _too_large(sheet: bytes, texts: Sequence[int], most: int) -> str:
    """What of a part of a workbook is too large; ``texts``: the sizes of the shared texts."""
    row = column = last_row = last_column = size = 0
    is_shared = False
    for match in _SHEET_TAG.finditer(sheet):
        tag, attributes, value = match.groups()
        if not tag:
            size += texts[int(value)] if is_shared and int(value) < len(texts) else 0
            continue
        reference = _REFERENCE.search(attributes)
        letters, digits = reference.groups() if reference else (b"", b"")
        if len(letters) > 3 or len(digits) > 7:
            return f"a cell {(letters + digits)[:20].decode()}"
        row = int(digits) if digits else row + (tag == b"row")
        column = 0 if tag == b"row" or letters else column + 1
        for letter in letters.upper():
            column = column * 26 + letter - 64
        is_shared = b'"s"' in attributes or b"'s'" in attributes
        last_row, last_column = max(row, last_row), max(column, last_column)
        if last_row * last_column > CELLS:
            return f"a sheet of {last_row:,} rows and {last_column:,} columns, or more"
    return f"texts of {size:,} bytes" if size > most else ""


def _no_table(path: Path, error: BaseException, todo: str = "") -> ConsilienceError:
    damaged = isinstance(error, pl.exceptions.PanicException)
    return ConsilienceError(
        "cannot be read as a table: "
        + (f"the file is damaged ({reason_of(error)})" if damaged else reason_of(error)),
        where=str(path),
        todo=todo,
    )
