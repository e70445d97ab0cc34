"""Rows of tables that people write, each with its place; every fault of a row is reported."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.patterns import (
    ENGLISH,
    NameTable,
    Pattern,
    Writing,
    shown_writing,
)
from consilience.core.text import LANGUAGE_TAG, control_in, is_language_tag, names_a_file
from consilience.files.read import Faults, FirstFault, read_rows

GROUP_NAME = "a short name that can name a file"

Problems = Faults  # Everything that is wrong with a suite, in the order of its files


@dataclass(frozen=True, slots=True)
class Table:
    """What the columns of a table hold."""

    needed: Sequence[str]
    optional: Sequence[str] = ()
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The texts that a column may have; in place of another one, the first is meant."""


NAMES = Table(("name", "language", "text"), ("form",))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its place ``file:line``, its cells, and where its problems go."""

    where: str
    cells: Mapping[str, Any]
    problems: Problems

    def report(self, problem: str, *, expected: str = "", todo: str = "") -> None:
        error = ConsilienceError(problem, expected=expected, where=self.where, todo=todo)
        self.problems.append(error)

    def read(self, table: Table) -> dict[str, str] | None:
        """The texts of the columns of a table by name; None where a needed one is not there."""
        values = {name: self.text(name) for name in table.needed}
        is_whole = all(values.values())
        values |= {name: self.optional_text(name) for name in table.optional}
        for name, known in table.choices.items():
            if values[name] and values[name] not in known:
                self.problems.append(
                    unknown_name(f"the {name} '{values[name]}'", values[name], known, self.where)
                )
            if values[name] not in known:
                values[name] = known[0]
        return values if is_whole else None

    def is_new(self, key: Any, places: dict[Any, str], found: str, todo: str = "") -> bool:
        """Whether a key is not among ``places``, to which it is added; else it is reported."""
        first = places.setdefault(key, self.where)
        if first != self.where:
            self.report(f"duplicate {found}", todo=todo or f"Remove it; the first is {first}.")
        return first == self.where

    def text(self, name: str) -> str:
        """A field that must hold text; empty, with a problem reported, where it does not."""
        value, todo = self.cells.get(name), "Fill it in or remove the line."
        if isinstance(value, str) and value.strip():
            return self._without_controls(value, name)
        if name not in self.cells:
            problem = f"no field '{name}'"
        elif isinstance(value, str):
            problem = f"an empty '{name}'"
        else:
            problem = f"'{name}' is {_shown(value)}"
        self.report(problem, expected=f"text in '{name}'", todo=todo)
        return ""

    def optional_text(self, name: str) -> str:
        """A field that may hold text, a number or a date; empty if absent, null or neither."""
        value = self.cells.get(name)
        if value is None:
            return ""
        if isinstance(value, date | time):
            value = as_day(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            return self._without_controls(str(value), name)
        self.report(f"'{name}' is {_shown(value)}", expected=f"text in '{name}'")
        return ""

    def flag(self, name: str) -> bool:
        """A field that holds 0 or 1, or false or true."""
        text = str(self.cells.get(name)).lower()
        if text not in ("0", "1", "false", "true"):
            self.report(f"'{name}' is {self.cells.get(name)!r}", expected="0 or 1")
        return text in ("1", "true")

    def is_language(self, tag: str) -> bool:
        """Whether a language is a BCP 47 tag; otherwise it is reported, but an empty one."""
        is_valid = is_language_tag(tag)
        if tag and not is_valid:
            self.report(f"the language '{tag}'", expected=LANGUAGE_TAG, todo="Write its tag.")
        return is_valid

    def pattern(self, column: str = "pattern", language: str = ENGLISH) -> Pattern | None:
        """The pattern in that column, in its language or ``language``; None if it is not valid."""
        text = self.text(column)
        if not text:
            return None
        names = ("lemma", "extended_lemma", "tense")
        annotations = {name: self.optional_text(name) for name in names}
        tag = self.optional_text("language")
        try:
            return Pattern.parse(
                text,
                where=self.where,
                language=tag if self.is_language(tag) else language,
                object_form=self.optional_text("form"),
                subject_form=self.optional_text("subject_form"),
                **annotations,
            )
        except ConsilienceError as error:
            self.problems.append(error)
            return None

    def refuse_relation(self, id_: str, known: list[str]) -> None:
        hint = did_you_mean(id_, known)
        self.report(f"the relation '{id_}' is not among the relations", todo=hint)

    def is_relation_id(self, id_: str) -> bool:
        """Whether an id can name a file of answers; otherwise it is reported, if not empty."""
        is_valid = names_a_file(id_)
        if id_ and not is_valid:
            self.report(f"the relation id '{id_}'", expected=GROUP_NAME, todo="Rename it.")
        return is_valid

    def _without_controls(self, text: str, name: str) -> str:
        """The text; empty, with a problem reported, where it holds a control character.

        A question and a context may have several lines.
        """
        has_lines = name in ("question", "context")
        if control := control_in(re.sub(r"[\n\t]", " ", text) if has_lines else text):
            self.report(f"{control} in '{name}'", todo="Remove it from the text.")
            return ""
        return text


def as_day(value: date | time) -> str:
    """A date or a time as a text; of a midnight, as libraries of tables have it, the date."""
    return value.isoformat().removesuffix("T00:00:00")


def _shown(value: object) -> str:
    return json.dumps(value, default=lambda one: f"{type(one).__name__} {one}")


def nfc(text: str) -> str:
    """The text in Unicode form NFC, in which equal texts are the same characters."""
    return unicodedata.normalize("NFC", text)


def names_of_rows(rows: Iterable[Row], language: str) -> NameTable:
    """The table of names."""
    table: dict[Writing, dict[str, str]] = {}
    places: dict[Any, str] = {}
    for row in rows:
        cells = row.read(NAMES)
        if "relation" in row.cells:
            row.report("the column 'relation'", expected="names for all relations, without it")
        elif cells is not None and row.is_language(cells["language"]):
            name, writing = nfc(cells["name"]), (cells["language"], cells["form"])
            row.is_new((writing, name), places, f"name '{name}' in {shown_writing(writing)}")
            table.setdefault(writing, {})[name] = cells["text"]
    return NameTable(language, table)


def rows_of_frame(frame: pl.DataFrame, where: str, **usual: str) -> Iterator[Row]:
    """The rows of a frame; the first problem raises. ``usual``: values of empty cells."""
    for at, cells in enumerate(frame.iter_rows(named=True), start=1):
        known = {name: text for name, text in usual.items() if cells.get(name) is None}
        yield row_of(f"{where}, row {at}", cells | known)


def row_of(where: str, cells: Mapping[str, Any]) -> Row:
    """A row whose first problem raises; whole numbers are texts."""
    texts = {
        name: str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in cells.items()
    }
    return Row(where, texts, FirstFault())


def suite_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a JSONL, TSV (no quoting) or CSV table; what cannot be read is a problem."""
    quoted = path.suffix == ".csv"
    try:
        for where, cells in read_rows(path, quoted=quoted, faults=problems):
            if path.suffix == ".jsonl" or any(cell.strip() for cell in cells.values()):
                yield Row(where, cells, problems)
    except ConsilienceError as error:
        problems.append(error)


def plain_name(column: str) -> str:
    """A name without case, punctuation and the plural."""
    return re.sub(r"[^a-z0-9]", "", column.casefold()).removesuffix("s")


def find_table(
    folder: Path, name: str, suffixes: Sequence[str] = (".jsonl", ".tsv")
) -> Path | None:
    """``folder/name`` with one of the suffixes; None without any. Two of them raise."""
    paths = [path for suffix in suffixes if (path := folder / (name + suffix)).is_file()]
    if len(paths) > 1:
        found = f"both {paths[0].name} and {paths[1].name}"
        todo = "Remove the one that is not meant."
        raise ConsilienceError(found, expected="one of them", where=str(folder), todo=todo)
    return paths[0] if paths else None


def raise_first(
    problems: Problems, how_to_list: str = "; `consilience suite check` lists all."
) -> None:
    """Raise the first problem with the number of further ones, if there is any."""
    if not problems:
        return
    first = problems[0]
    if len(problems) > 1:
        first.args = (f"{first.args[0]} ({len(problems) - 1} more{how_to_list})",)
    raise first
