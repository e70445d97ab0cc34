"""Rows of JSONL and TSV files, each with the place that it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sized
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.read import parse_json, read_text
from consilience.types import LINE_CONTROLS, names_a_file

Row = dict[str, object]

AGGREGATES = ("MACRO", "MICRO")
"""Names of rows of the metrics table, which no relation may have."""


def find_table(folder: Path, name: str) -> Path | None:
    """``folder/name.jsonl`` or ``folder/name.tsv``; None where neither is there, never both."""
    found = [path for ext in (".jsonl", ".tsv") if (path := folder / (name + ext)).is_file()]
    if len(found) > 1:
        raise ConsilienceError(
            f"both {name}.jsonl and {name}.tsv",
            expected="one of them",
            where=str(folder),
            todo="Remove the one that is not meant.",
        )
    return found[0] if found else None


def read_rows(path: Path, problems: list[ConsilienceError]) -> Iterator[tuple[str, Row]]:
    """Each row of ``path`` with its place ``file:line``; bad lines are added to ``problems``.

    JSONL: one object a line. TSV: a header line, no quoting. Blank lines are skipped.
    """
    try:
        lines = read_text(path).split("\n")
    except ConsilienceError as error:
        problems.append(error)
        return
    header: list[str] | None = None
    for number, raw in enumerate(lines, start=1):
        line = raw.removesuffix("\r")
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if path.suffix == ".jsonl":
            try:
                row = parse_json(line)
            except json.JSONDecodeError as error:
                problems.append(
                    ConsilienceError(
                        f"not JSON: {error.msg} at column {error.colno}",
                        where=where,
                        todo="Mend or remove the line.",
                    )
                )
                continue
            if not isinstance(row, dict):
                problems.append(
                    ConsilienceError(
                        f"a JSON {type(row).__name__}", expected="one object a line", where=where
                    )
                )
                continue
            yield where, row
        elif header is None:
            header = line.split("\t")
        else:
            cells = line.split("\t")
            if len(cells) != len(header):
                problems.append(
                    ConsilienceError(
                        f"{len(cells)} columns",
                        expected=f"{len(header)}, as in the header",
                        where=where,
                        todo="Check for missing or extra tabs.",
                    )
                )
                continue
            yield where, dict(zip(header, cells, strict=True))


def text_field(row: Row, name: str, where: str, problems: list[ConsilienceError]) -> str:
    """A field that must hold text; an absent or empty one is added to ``problems``."""
    value = row.get(name)
    if isinstance(value, str) and value.strip():
        return _sound(value, name, where, problems)
    if name not in row:
        found = f"no field '{name}'"
    elif isinstance(value, str):
        found = f"an empty '{name}'"
    else:
        found = f"'{name}' is {json.dumps(value)}"
    problems.append(
        ConsilienceError(
            found, expected=f"text in '{name}'", where=where, todo="Fill it in or remove the line."
        )
    )
    return ""


def optional_text(row: Row, name: str, where: str, problems: list[ConsilienceError]) -> str:
    """A field that may hold text or a number; empty where it is absent, null or holds neither."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        found = f"'{name}' is {json.dumps(value)}"
        problems.append(ConsilienceError(found, expected=f"text in '{name}'", where=where))
        return ""
    return _sound(str(value), name, where, problems)


def is_relation_id(id_: str, where: str, problems: list[ConsilienceError]) -> bool:
    """Whether the id of a relation can name its file of answers; else ``problems`` says so.

    An empty id is no problem of this function: ``text_field`` has reported it.
    """
    if not id_:
        return False
    if names_a_file(id_) and id_ not in AGGREGATES:
        return True
    problems.append(
        ConsilienceError(
            f"the relation id '{id_}'",
            expected="a short id that can name a file and is not MACRO or MICRO",
            where=where,
            todo="Rename it.",
        )
    )
    return False


def control_in(text: str) -> str:
    """Which character of ``text`` no id, label or cloze text may hold; empty where there is none.

    Such characters control a terminal, reorder what a reader sees, or cannot be written as UTF-8.
    """
    found = LINE_CONTROLS.search(text)
    if found is None:
        return ""
    is_half = "\ud800" <= found[0] <= "\udfff"
    kind = "half a character (a lone surrogate)" if is_half else "a control character"
    return f"{kind}, U+{ord(found[0]):04X},"


def _sound(text: str, name: str, where: str, problems: list[ConsilienceError]) -> str:
    """The text; empty where it holds a control character, which is added to ``problems``."""
    found = control_in(text)
    if not found:
        return text
    problems.append(
        ConsilienceError(f"{found} in '{name}'", where=where, todo="Remove it from the text.")
    )
    return ""


def require(rows: Sized, what: str, id_: str, where: str, problems: list[ConsilienceError]) -> None:
    """Add to ``problems`` that a relation has none of what it needs, if it has none."""
    if not rows:
        found = f"the relation '{id_}' has no {what}"
        todo = f"Add {what}s to it or remove it."
        problems.append(ConsilienceError(found, where=where, todo=todo))


def raise_first(problems: list[ConsilienceError]) -> None:
    """Raise the first problem, saying how many more there are; nothing where there is none."""
    if not problems:
        return
    first = problems[0]
    if len(problems) > 1:
        first.args = (
            f"{first.args[0]} ({len(problems) - 1} more; `consilience data check` lists them all.)",
        )
    raise first
