"""Data frames of users: pandas or polars, and the facts and patterns that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean, missing_column
from consilience.text import control_in, names_a_group

COLUMNS = ("relation", "subject", "object", "pattern", "item")
"""The columns of a frame of facts and patterns (``Suite.from_frame``)."""

THE_FRAME = "the frame"


def as_polars(frame: object, where: str = THE_FRAME) -> pl.DataFrame:
    """A polars or pandas frame as a polars frame; anything else raises.

    Missing values of pandas become null. pyarrow is not needed.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if not _is_pandas(frame):
        raise ConsilienceError(
            f"{where} is of type {type(frame).__name__}",
            expected="a polars or pandas DataFrame",
            todo="Make one with polars.DataFrame(...), or read a file with read_answers(path).",
        )
    columns: dict[str, list[Any]] = {}
    for name in frame.columns:  # type: ignore[attr-defined]
        series = frame[name]  # type: ignore[index]
        missing = series.isna().tolist()
        values = zip(series.tolist(), missing, strict=True)
        columns[str(name)] = [None if is_missing else value for value, is_missing in values]
    try:
        return pl.DataFrame(columns)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise ConsilienceError(
            f"a column with values of several types: {str(error).splitlines()[0]}",
            where=where,
            todo="Convert it to one type, such as text: frame[column].astype(str).",
        ) from error


def as_pandas(frame: pl.DataFrame) -> Any:
    """A polars frame as a pandas frame, without pyarrow."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ConsilienceError(
            "pandas is not installed",
            todo="Install it with `pip install pandas`, or use to_polars().",
        ) from error
    return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})


def _is_pandas(frame: object) -> bool:
    kind = type(frame)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


@dataclass(slots=True)
class RelationTexts:
    """The texts of one relation, and where each was first: a row, or a position in a list."""

    patterns: dict[str, str] = field(default_factory=dict)
    """Texts of patterns, the base pattern first, and their places."""
    facts: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Item (empty where the facts are numbered), subject and object, and their places."""
    items: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """The fact of each item."""

    def add_fact(self, item: str, subject: str, object_: str, where: str) -> None:
        """Add a fact. The same fact again changes nothing; another fact of its item raises."""
        fact = (item, subject, object_)
        known = self.items.setdefault(item, fact) if item else fact
        if known != fact:
            raise ConsilienceError(
                f"the item '{item}' is '{subject}', '{object_}' here and '{known[1]}', "
                f"'{known[2]}' in {self.facts[known]}",
                expected="one subject and one object for each item",
                where=where,
            )
        self.facts.setdefault(fact, where)


Texts = dict[str, RelationTexts]
"""Relation -> its texts."""


def texts_of_frame(frame: object, patterns: object = None, relation: str = "facts") -> Texts:
    """The facts and patterns of a frame by relation.

    ``patterns``: the patterns of all relations, or of each by its name, where the frame has none.
    ``relation``: the name of the relation where the frame has no such column.
    """
    table = as_polars(frame)
    _check_columns(table, has_patterns=patterns is not None)
    rows = (
        (f"{THE_FRAME}, row {at}", {"relation": relation} | row)
        for at, row in enumerate(table.iter_rows(named=True), start=1)
    )
    return _texts_of_rows(rows, patterns)


def texts_of_lists(patterns: object, facts: object, relation: str = "facts") -> Texts:
    """The same from lists: patterns, and facts as (subject, object) or {subject: object}.

    Both may be mappings from the name of a relation.
    """
    by_relation: Mapping[Any, Any] = {relation: facts}
    if isinstance(facts, Mapping) and not any(
        isinstance(value, str | int) for value in facts.values()
    ):
        by_relation = facts
    if not by_relation:
        raise ConsilienceError("no facts", expected="pairs (subject, object)")
    rows = (
        (f"{name}, fact {at}", {"relation": name, "subject": subject, "object": object_})
        for name, of_relation in by_relation.items()
        for at, (subject, object_) in enumerate(_pairs(of_relation, name), start=1)
    )
    return _texts_of_rows(rows, patterns, by_relation)


def _texts_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], patterns: object, relations: Iterable[Any] = ()
) -> Texts:
    """The facts and patterns of rows, each with its place; ``patterns`` as in a frame.

    ``relations``: the names of relations that may have no row.
    """
    texts: Texts = {_relation_id(name, "the facts"): RelationTexts() for name in relations}
    for where, row in rows:
        id_ = _relation_id(_text(row, "relation", where), where)
        texts_of_relation = texts.setdefault(id_, RelationTexts())
        if row.get("pattern") is not None:
            texts_of_relation.patterns.setdefault(_text(row, "pattern", where), where)
        if row.get("subject") is not None or row.get("object") is not None or patterns is not None:
            item = _text(row, "item", where) if row.get("item") is not None else ""
            subject, object_ = (_text(row, column, where) for column in ("subject", "object"))
            texts_of_relation.add_fact(item, subject, object_, where)
    _add_patterns(texts, patterns)
    return texts


def _check_columns(table: pl.DataFrame, *, has_patterns: bool) -> None:
    """Raise for a missing or unknown column."""
    needed = ["subject", "object"] if has_patterns else ["subject", "object", "pattern"]
    for name in needed:
        if name not in table.columns:
            apart = "Add it, or give the patterns apart: from_frame(frame, patterns=[...])."
            raise missing_column(
                name,
                table.columns,
                expected=f"the columns {', '.join(needed)}; relation and item are optional",
                where=THE_FRAME,
                todo=apart if name == "pattern" else "",
            )
    if has_patterns and "pattern" in table.columns:
        raise ConsilienceError(
            "patterns in the column 'pattern' and in patterns=",
            expected="one of the two",
            where=THE_FRAME,
        )
    if table.is_empty():
        raise ConsilienceError("no rows", where=THE_FRAME)


def _add_patterns(texts: Texts, patterns: object) -> None:
    """Add patterns that were given apart from the facts."""
    if patterns is None:
        return
    if isinstance(patterns, Mapping):
        for name in patterns:
            if name not in texts:
                raise ConsilienceError(
                    f"patterns of the relation '{name}', which has no facts",
                    todo=did_you_mean(str(name), list(texts)),
                )
        by_relation = patterns
    else:
        by_relation = dict.fromkeys(texts, patterns)
    for name, of_relation in by_relation.items():
        for at, pattern in enumerate(_strings(of_relation), start=1):
            row, where = {"pattern": pattern}, f"{name}, pattern {at}"
            texts[name].patterns.setdefault(_text(row, "pattern", where), where)


def _strings(patterns: object) -> Sequence[Any]:
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ConsilienceError(
            f"patterns of type {type(patterns).__name__}",
            expected="a list of texts, or one for each relation: {'capital': ['[X] is [Y].']}",
        )
    return list(patterns)


def _pairs(facts: object, relation: object) -> Iterator[tuple[object, object]]:
    """The facts of a list or of a mapping from subjects; what is no pair raises."""
    if isinstance(facts, Mapping):
        facts = facts.items()
    if isinstance(facts, str) or not isinstance(facts, Iterable):
        raise _no_pair(relation, 1, facts)
    for at, fact in enumerate(facts, start=1):
        if isinstance(fact, str) or not isinstance(fact, Sequence) or len(fact) != 2:
            raise _no_pair(relation, at, fact)
        yield fact[0], fact[1]


def _no_pair(relation: object, at: int, fact: object) -> ConsilienceError:
    return ConsilienceError(
        f"{fact!r}",
        expected="a pair (subject, object), such as ('France', 'Paris')",
        where=f"{relation}, fact {at}",
    )


def _relation_id(name: object, where: str) -> str:
    """The name of a relation, which also names a file."""
    if isinstance(name, str) and names_a_group(name):
        return name
    raise ConsilienceError(
        f"the relation {name!r}",
        expected="a short name that can name a file and is not MACRO or MICRO",
        where=where,
    )


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    """The text of a cell; a whole number becomes text."""
    value, where_in_row = row.get(column), f"{where}, column '{column}'"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        shown = "no value" if value is None else f"{value!r}"
        raise ConsilienceError(shown, expected="text", where=where_in_row)
    if control := control_in(value):
        raise ConsilienceError(f"{control} in a text", where=where_in_row, todo="Remove it.")
    return value
