"""The columns of questions: which of a file's are used, and which were meant to be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.rows import MAKE_A_SUITE, holds_facts, plain_name

COLUMNS: Mapping[str, str] = {
    "question": "the question, or a list of its phrasings",
    "answer": "the right answer as a text (aliases: Go|Golang), or its letter; in JSON also its "
    "position from 0",
    "options": "what may be chosen, the right answer included",
    "distractors": "wrong options, instead of options",
    "group": "the group that the question is reported in",
    "item": "an id; further rows with the same id are phrasings of the question",
    "context": "a text that the question is about",
    "language": "the language of the phrasing",
}
"""The columns of a question, and what they hold."""

NEEDED = ("question", "answer")
"""The columns that every question has."""

WITH_OPTIONS = ("options", "distractors")
"""The columns of questions with options."""

COLUMN_JOIN = "+"
"""Joins columns that each have one option: ``options=A+B+C+D``."""

OPTION_NAMES = ("option", "choice", "candidate", "alternative", "answer", "ending")
"""What columns with options are called elsewhere, without case and the plural."""

SIMILAR = 0.88
"""From this similarity (``difflib``) a column is taken for a misspelt one."""

SIMILAR_PHRASING = 0.8
"""The same for the name of a phrasing, before its number; a swap of letters has 0.875."""


def check_columns(columns: Mapping[str, str], *, in_python: bool) -> None:
    """Raise for a mapping of a column that questions do not have."""
    for name in columns:
        if name not in COLUMNS:
            raise ConsilienceError(
                _mapping({name: "..."}, in_python=in_python),
                expected=", ".join(COLUMNS),
                todo=did_you_mean(name, list(COLUMNS)),
            )


def recognised(
    cells: Mapping[str, Any], columns: Mapping[str, str], where: str, *, in_python: bool
) -> None:
    """Raise for a column that is needed or mapped and not there, and for one with another name.

    The message has the mapping to write. Without the second error a file whose options are called
    otherwise would be read as open questions.
    """
    sources = {name: columns.get(name, name) for name in NEEDED} | dict(columns)
    absent = {
        column: name
        for name, source in sources.items()
        for column in source.split(COLUMN_JOIN)
        if column not in cells
    }
    meant = _meant(cells, columns)
    for column in unused(cells, columns):
        if phrasing := _meant_phrasing(column):
            raise ConsilienceError(
                f"a column '{column}'",
                expected=f"'{phrasing}' for a further phrasing of the question",
                where=where,
                todo=f"Did you mean '{phrasing}'? Rename it.",
            )
    if not absent and not meant:
        return
    wrong = dict.fromkeys(absent.values(), "COLUMN")
    todo = f"{_mapping({**columns, **wrong, **meant}, in_python=in_python)}."
    if absent:
        column, name = next(iter(absent.items()))
        raise ConsilienceError(
            f"no column '{column}' among {', '.join(map(str, cells))}",
            expected=f"{COLUMNS[name]} in '{column}'",
            where=where,
            todo=MAKE_A_SUITE if holds_facts(cells) else f"Name the column that has it: {todo}",
        )
    name, source = next(iter(meant.items()))
    noun = "columns" if COLUMN_JOIN in source else "column"
    raise ConsilienceError(
        f"the {noun} {source.replace(COLUMN_JOIN, ', ')}, and none called '{name}'",
        expected=COLUMNS[name],
        where=where,
        todo=f"Rename what is something else, or name it: {todo}",
    )


def unused(cells: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    """The columns that hold nothing of a question."""
    mapped = {part for source in columns.values() for part in source.split(COLUMN_JOIN)}
    return [
        str(key)
        for key in cells
        if key not in COLUMNS and key not in mapped and _phrasing_number(str(key)) is None
    ]


def renamed(cells: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """The cells by our names of their columns."""
    ours = {key: cells[key] for key in COLUMNS if key in cells}
    for name, source in columns.items():
        parts = source.split(COLUMN_JOIN)
        if len(parts) == 1:
            ours[name] = cells.get(source)
        else:
            values = [cells.get(part) for part in parts]
            ours[name] = [value for value in values if value not in (None, "")]
    more = sorted(
        (number, key)
        for key in cells
        if (number := _phrasing_number(str(key))) is not None and key not in columns.values()
    )
    if more:
        first = ours.get("question")
        texts = first if isinstance(first, list) else [first]
        ours["question"] = [*texts, *(cells[key] for _, key in more if cells[key])]
    return ours


def _phrasing_number(column: str) -> int | None:
    """The number of the phrasing that a column such as ``question_2`` has; None of others.

    ``question2`` and ``Question 2`` are the same column.
    """
    match = re.fullmatch(r"question[ _-]?(\d+)", column.strip().casefold())
    return int(match[1]) if match else None


def _meant_phrasing(column: str) -> str:
    """The column of a phrasing that a misspelt one such as ``questoin_2`` means; or empty."""
    match = re.fullmatch(r"(\D+?)[ _-]?(\d+)", column.strip().casefold())
    if match and get_close_matches(match[1], ["question"], cutoff=SIMILAR_PHRASING):
        return f"question_{match[2]}"
    return ""


def _meant(cells: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, str]:
    """The columns that a file lacks, and what they are probably called there."""
    known = {*columns, *(name for name in COLUMNS if name in cells)}
    has_options = bool(known & {*WITH_OPTIONS})
    others = unused(cells, columns)
    run = [] if has_options else _run_of_options(others)
    plain = {plain_name(column): column for column in reversed(others) if column not in run}
    meant = {"options": COLUMN_JOIN.join(run)} if run else {}
    for name in COLUMNS:
        if name in known or ((has_options or run) and name in WITH_OPTIONS):
            continue
        names = [name, *(OPTION_NAMES[:-2] if name == "options" else ())]
        exact = [plain[plain_name(one)] for one in names if plain_name(one) in plain]
        close = get_close_matches(plain_name(name), plain, n=1, cutoff=SIMILAR)
        if exact or close:
            meant[name] = exact[0] if exact else plain[close[0]]
    return meant


def _run_of_options(columns: Sequence[str]) -> list[str]:
    """Columns with an option each, such as A to D, option_a to option_d or choice1 to choice4."""
    runs: dict[str, dict[str, str]] = {}
    for column in columns:
        match = re.fullmatch(r"(.*?)[ _-]*([a-z]|\d+)", column.strip().casefold())
        if match and (match[1] in OPTION_NAMES or not match[1]):
            runs.setdefault(match[1], {})[match[2]] = column
    for run in runs.values():
        for labels in ("abcdefghij", "0123456789", "123456789"):
            first = labels[: len(run)]
            if len(run) > 1 and {*run} == {*first}:
                return [run[label] for label in first]
    return []


def _mapping(columns: Mapping[str, str], *, in_python: bool) -> str:
    """How a user writes a mapping of columns."""
    if in_python:
        return f"columns={dict(columns)!r}"
    return f"--columns {','.join(f'{name}={source}' for name, source in columns.items())}"
