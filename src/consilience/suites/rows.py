"""Rows of JSONL and TSV files, each with the place that it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sized
from pathlib import Path

from consilience.errors import ConsilienceError

Row = dict[str, object]


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
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        found, todo = f"cannot be read: {error.strerror}", "Check the path."
        problems.append(ConsilienceError(found, where=str(path), todo=todo))
        return
    except UnicodeDecodeError as error:
        found, todo = f"not UTF-8 at byte {error.start}", "Save the file as UTF-8."
        problems.append(ConsilienceError(found, where=str(path), todo=todo))
        return
    header: list[str] | None = None
    for number, raw in enumerate(lines, start=1):
        line = raw.removesuffix("\r")
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if path.suffix == ".jsonl":
            try:
                row = json.loads(line)
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
        if not any("\ud800" <= sign <= "\udfff" for sign in value):
            return value
        found = f"half a character (a lone surrogate) in '{name}'"
        problems.append(ConsilienceError(found, where=where, todo="Mend the text."))
        return ""
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
