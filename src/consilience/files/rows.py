"""Tables: declared columns, what is read from a cell, all that is wrong, and frames."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, missing_column, reason_of, unknown_name
from consilience.core.text import CONTROLS
from consilience.files.read import SUFFIXES, Problems, parse_json

MOST = 20  # Problems that an error names


class TableError(ConsilienceError):
    """All that is wrong with the tables of a suite, a line each, ``MOST`` at most."""

    def __init__(self, problems: Sequence[ConsilienceError]) -> None:
        every = [one for of in problems for one in getattr(of, "problems", [of])]
        super().__init__(**every[0].parts)
        self.problems = every[:MOST]
        if (rest := len(every) - MOST) > 0:
            self.problems.append(ConsilienceError(f"and {rest} more problems"))
        self.args = ("\n".join(map(str, self.problems)),)


def raise_all(problems: Problems) -> None:
    """Raise all problems in one error, if there is any."""
    if problems:
        raise TableError(problems)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    ``parse``: the value of a cell; None where it is empty, an error where it is wrong. ``default``:
    the value of an empty cell; None where it must be filled. ``others``: names that are accepted
    besides ours, in the order in which they are looked for; of all names case and punctuation mean
    nothing. ``a.b`` is the part ``b`` of an object in the column ``a``.
    """

    name: str
    parse: Callable[[Any], Any]
    default: Any = None
    others: tuple[str, ...] = ()
    is_needed: bool = True  # Whether the table must have the column

    def found(self, names: Sequence[str]) -> list[str]:
        """What the column may be called among the names of a table, ours first."""
        plain = {plain_name(name): name for name in reversed(names)}
        wanted = (self.name, *self.others)
        known = (one if one in names else plain.get(plain_name(one)) for one in wanted)
        return list(dict.fromkeys(one for one in known if one is not None))


def plain_name(column: str) -> str:
    """The name of a column without case and punctuation."""
    return re.sub(r"[\W_]", "", column.casefold())


class Row(dict[str, Any]):
    """The values of a row by our names of the columns, its place ``file:line``, and its cells."""

    def __init__(self, where: str, cells: Mapping[str, Any], problems: Problems) -> None:
        self.where, self.cells, self.problems = where, cells, problems
        self.is_whole = True  # Whether no problem of it was reported

    def report(self, found: str, column: str = "", *, expected: str = "", todo: str = "") -> None:
        self.add(ConsilienceError(found, expected=expected, todo=todo), column)

    def add(self, problem: ConsilienceError, column: str = "") -> None:
        """Add what is wrong with a cell, or with the whole row, to the other problems."""
        where = f"{self.where}, column '{column}'" if column else self.where
        self.problems.append(problem.replaced(where=where))
        self.is_whole = False

    def is_new(self, key: Any, places: dict[Any, str], found: str, todo: str = "") -> bool:
        """Whether a key is not among ``places``, to which it is added; else it is reported."""
        first = places.setdefault(key, self.where)
        if first != self.where:
            self.report(f"duplicate {found}", todo=todo or f"Remove it; the first is {first}.")
        return first == self.where


def read_table(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    columns: Sequence[Column],
    problems: Problems,
    where: str,
    sources: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """The rows of a table without a problem, under our names; what is wrong is reported.

    ``where``: the table; one that lacks a column raises. ``sources``: what columns
    are called there; None for the names that they accept.
    """
    rows = list(rows)
    if sources is None:
        names = names_of(rows)
        found = {column.name: column.found(names) for column in columns}
        sources = {name: of[0] for name, of in found.items() if of}
        lacking = [one.name for one in columns if one.is_needed and one.name not in sources]
        if lacking and rows:
            expected = ", ".join(one.name for one in columns if one.is_needed)
            raise missing_column(lacking[0], names, expected=expected, where=where)
    plan = [(one.name, one.parse, one.default, sources.get(one.name)) for one in columns]
    for place, cells in rows:
        row = Row(place, cells, problems)
        for name, parse, default, source in plan:
            try:
                value = None if source is None else parse(cell_of(cells, source))
            except ConsilienceError as error:
                row.add(error, source or "")
                continue
            row[name] = value = default if value is None else value
            if value is None:
                row.report(f"no '{name}'", source or "", todo="Fill it in or remove the line.")
        if row.is_whole:
            yield row


def read_one(table: Mapping[str, Any], columns: Sequence[Column], where: str) -> dict[str, Any]:
    """The values of a table that is one row; all that is wrong with it raises."""
    problems: Problems = []
    rows = [*read_table([(where, table)], columns, problems, where)]
    raise_all(problems)
    return dict(rows[0])


def names_of(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The columns of all rows, and ``a.b`` for each part of an object, in order of appearance."""
    names: dict[str, None] = {}
    for _, cells in rows:
        if cells.keys() <= names.keys():
            continue
        for name, value in cells.items():
            names[str(name)] = None
            if isinstance(value, Mapping):
                names |= dict.fromkeys(f"{name}.{part}" for part in value)
    return list(names)


def cell_of(cells: Mapping[str, Any], name: str) -> Any:
    """The value of a column; of ``a.b`` the part ``b`` of the object in ``a``."""
    if name in cells:
        return cells[name]
    first, _, rest = name.partition(".")
    inner = cells.get(first)
    return cell_of(inner, rest) if isinstance(inner, Mapping) else None


# What is read from a cell.


def text(value: Any) -> str | None:
    """A text, a number, a date, true or false, as a text in Unicode form NFC.

    Line ends are one, and without control characters and outer white space. None of an empty cell.
    """
    if isinstance(value, str):
        if not (value.isascii() and value.isprintable()):
            value = unicodedata.normalize("NFC", CONTROLS.sub("", LINE_ENDS.sub("\n", value)))
        return value.strip() or None
    if value is None or _is_nan(value):
        return None
    if isinstance(value, date | time):  # of a midnight, as libraries of tables have it, the date
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float | Decimal):
        return str(value)
    shown = json.dumps(value, default=lambda one: f"{type(one).__name__} {one}", ensure_ascii=False)
    raise ConsilienceError(shown, expected="a text")


LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
BREAKS = re.compile(r"\s*[\n\t]\s*")


def line(value: Any) -> str | None:
    """As ``text``, on one line."""
    found = text(value)
    return BREAKS.sub(" ", found) if found and not found.isprintable() else found


def as_written(value: Any) -> str | None:
    """A text unchanged, also an empty one."""
    return value if isinstance(value, str) else text(value)


def flag(value: Any) -> bool | None:
    """0 or 1, false or true."""
    if (found := line(value)) is None:
        return None
    if found.lower() in ("0", "1", "false", "true"):
        return found.lower() in ("1", "true")
    raise ConsilienceError(f"'{found}'", expected="0 or 1")


def language_tag(value: Any) -> str | None:
    """The BCP 47 tag of a language, such as ``de``, ``pt-BR`` or ``zh-Hant-TW``, by its shape."""
    tag = line(value)
    if tag is not None and not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{1,8})*", tag):
        expected = "a BCP 47 tag such as de, pt-BR or zh-Hant"
        raise ConsilienceError(f"the language '{tag}'", expected=expected)
    return tag


def one_of(*known: str) -> Callable[[Any], str | None]:
    """One of some texts."""

    def parse(value: Any) -> str | None:
        if (found := line(value)) is None or found in known:
            return found
        raise unknown_name(f"'{found}'", found, known)

    return parse


ITEM = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-+.\w]+"
NUMPY_LIST = re.compile(rf"\[\s*(?:{ITEM})(?:\s+(?:{ITEM}))+\s*\]")


def list_in(value: str) -> Any:
    """The list or object that a text is: in JSON, as Python or numpy write it; None of others.

    numpy has no commas: ``['a' 'b']``; pandas writes it inside others as ``array(['a', 'b'])``.
    """
    value = value.strip()
    if value[:1] not in ("[", "{"):
        return None
    if NUMPY_LIST.fullmatch(value):
        found = re.findall(ITEM, value)
        return [ast.literal_eval(one) if one[0] in "'\"" else one for one in found]
    try:
        return parse_json(value)
    except json.JSONDecodeError:
        pass
    try:
        tree = ast.parse(value, mode="eval")
        return ast.literal_eval(_WithoutArrays().visit(tree))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


class _WithoutArrays(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_array = isinstance(node.func, ast.Name) and node.func.id == "array" and node.args
        return self.visit(node.args[0]) if is_array else node


def find_table(folder: Path, name: str) -> Path | None:
    """``folder/name`` in one of the formats; None without any. Two of them raise."""
    paths = [path for suffix in SUFFIXES if (path := folder / (name + suffix)).is_file()]
    if len(paths) > 1:
        found = f"both {paths[0].name} and {paths[1].name}"
        todo = "Remove the one that is not meant."
        raise ConsilienceError(found, expected="one of them", where=str(folder), todo=todo)
    return paths[0] if paths else None


def text_of(value: Any) -> str | None:
    """A value as ``text`` reads it; a text as it is, lists and objects as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, bool | int | float | Decimal | date | time):
        return text(value)
    return json.dumps(value, ensure_ascii=False, default=str)


PART = 2**17  # Rows of a large table that are joined, or told apart, at once


def different(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The different rows of some columns, in their order, found in parts to save memory."""
    parts = [part.unique(maintain_order=True) for part in table.select(columns).iter_slices(PART)]
    return pl.concat(parts or [table.select(columns)]).unique(maintain_order=True)


def joined(table: pl.DataFrame, other: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The rows of a table, each with its row of another one, joined in parts to save memory."""
    how: dict[str, Any] = {"how": "left", "nulls_equal": True, "maintain_order": "left"}
    parts = [part.join(other, on=on, **how) for part in table.iter_slices(PART)]
    return pl.concat(parts or [table.join(other, on=on, **how)])


def repeated(first: pl.Series, second: pl.Series) -> pl.Series:
    """Whether each pair of numbers below 2^32 occurs several times."""
    keys = first.cast(pl.UInt64) * 2**32 + second.cast(pl.UInt64)
    ordered = keys.sort()
    again = ordered.filter(ordered == ordered.shift()).unique()
    return keys.is_in(again.implode()) if len(again) else pl.repeat(False, len(keys), eager=True)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


THE_FRAME = "the frame"


def frame_rows(frame: object, where: str = THE_FRAME) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a frame or of a list of mappings, each with its place."""
    is_list = isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame)
    rows: Any = frame if is_list else as_polars(frame, where).iter_rows(named=True)
    return ((f"{where}, row {at}", dict(row)) for at, row in enumerate(rows, start=1))


def as_polars(frame: object, where: str = THE_FRAME) -> pl.DataFrame:
    """A polars or pandas frame, or a list of mappings, as a polars frame with nulls.

    pyarrow is not needed.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        rows = [{name: None if _is_nan(of) else of for name, of in row.items()} for row in frame]
        return pl.DataFrame(rows, infer_schema_length=None, strict=False)
    kind = type(frame)
    if kind.__name__ != "DataFrame" or kind.__module__.partition(".")[0] != "pandas":
        expected = "a polars or pandas DataFrame, or a list of dictionaries"
        todo = "Make one with polars.DataFrame(...), or read a file with read_answers(path)."
        raise ConsilienceError(f"{where} is of type {kind.__name__}", expected=expected, todo=todo)
    columns: dict[str, list[Any]] = {}
    if not frame.columns.is_unique:  # type: ignore[attr-defined]
        raise ConsilienceError(f"{where} has two columns of one name", todo="Rename one of them.")
    for name in frame.columns:  # type: ignore[attr-defined]
        series = frame[name]  # type: ignore[index]
        missing = series.isna().tolist()
        values = zip(series.tolist(), missing, strict=True)
        columns[str(name)] = [None if is_missing else value for value, is_missing in values]
    try:
        return pl.DataFrame(columns)
    except (TypeError, pl.exceptions.PolarsError) as error:
        found = f"a column with values of several types: {reason_of(error)}"
        todo = "Convert it to one type, such as text: frame[column].astype(str)."
        raise ConsilienceError(found, where=where, todo=todo) from error


def as_pandas(frame: pl.DataFrame) -> Any:
    """A polars frame as a pandas frame, without pyarrow."""
    try:
        import pandas as pd
    except ImportError as error:
        todo = "Install it with `pip install pandas`, or use to_polars()."
        raise ConsilienceError("pandas is not installed", todo=todo) from error
    return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
