"""What an audit corrects: spaces and endings of patterns, and exact duplicates."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.authoring.pattern_checks import has_ending
from consilience.files import write_whole
from consilience.read import parse_json, read_text
from consilience.suites.rows import find_table

Cells = dict[str, Any]
Renamed = Mapping[tuple[str, str], str]
"""Relation and pattern -> the corrected pattern."""

PATTERN_TABLES = {
    "patterns": ("pattern",),
    "edges": ("pattern_a", "pattern_b"),
    "provenance": ("pattern", "parent"),
    "signoff": ("pattern",),
}
"""The tables of a suite that name patterns, and their columns with them."""

KEYS = {
    "patterns": ("relation", "pattern"),
    "facts": ("relation", "subject", "object"),
    "edges": ("relation", "pattern_a", "pattern_b"),
    "provenance": ("relation", "pattern"),
}
"""The columns of a table whose values two rows may not share."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a table that was corrected."""

    where: str
    """``file:line``, as the file was before."""
    before: str
    """The text, or the row, as it was."""
    after: str
    """The text as it is now; empty for a row that was removed as a duplicate."""
    duplicate_of: str = ""
    """``file:line`` of the row that a removed one repeats, and whether its Unicode form differs."""


def fix_folder(folder: Path) -> list[Change]:
    """Correct the tables of a suite in our layout, and list every change.

    Runs of spaces become one space; spaces at the ends and before a stop or comma go; a pattern
    without an ending gets that of most patterns in its language; of rows that are the same fact, or
    the same pattern of a relation, in one Unicode form or two, the first stays. All tables that
    name a pattern follow. Lines without a change stay as they are, byte by byte.
    """
    renamed, references = _corrections(folder)
    changes: list[Change] = []
    for name in dict.fromkeys([*PATTERN_TABLES, *KEYS]):
        path = find_table(folder, name)
        if path is not None:
            names = renamed if name == "patterns" else references
            text, of_table = _corrected_table(path, name, names)
            if of_table:
                write_whole(path, text.encode())
            changes += of_table
    return changes


def _corrections(folder: Path) -> tuple[Renamed, Renamed]:
    """The corrections of the table ``patterns``, and of patterns as other tables name them.

    Other tables may name a pattern in another Unicode form: the second has NFC as its keys, and
    leads to the first of the patterns that are the same.
    """
    path = find_table(folder, "patterns")
    rows = (
        [cells for _, cells in _rows(path) if isinstance(cells.get("pattern"), str)] if path else []
    )
    endings: dict[str, Counter[str]] = {}
    for cells in rows:
        if has_ending(cells["pattern"]):
            language = endings.setdefault(str(cells.get("language", "")), Counter())
            language[cells["pattern"].rstrip()[-1]] += 1
    renamed: dict[tuple[str, str], str] = {}
    references: dict[tuple[str, str], str] = {}
    first: dict[tuple[str, str], str] = {}
    for cells in rows:
        relation, pattern = str(cells.get("relation")), cells["pattern"]
        common = endings.get(str(cells.get("language", "")), Counter()).most_common(1)
        after = corrected(pattern, common[0][0] if common else "")
        if after != pattern:
            renamed[relation, pattern] = after
        remaining = first.setdefault((relation, _composed(after)), after)
        references[relation, _composed(pattern)] = remaining
    return renamed, references


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def corrected(pattern: str, ending: str) -> str:
    """A pattern with plain spaces, and with an ending if it stops after a word or a slot."""
    text = re.sub(r"\s+", " ", pattern).strip()
    text = re.sub(r" (?=[.,](?: |$))", "", text)
    is_word = bool(text) and unicodedata.category(text[-1])[0] in "LMN"
    is_open = is_word or text[-1:] == "]"
    return text + ending if is_open and not has_ending(text) else text


def _rows(path: Path) -> list[tuple[str, Cells]]:
    """The rows of a table that can be read, with their lines."""
    lines = read_text(path).split("\n")
    read = _reader(path, lines)
    rows = ((line, read(line)) for line in lines[_first(path) :] if line.strip())
    return [(line, cells) for line, cells in rows if cells is not None]


def _first(path: Path) -> int:
    """The position of the first line that is a row."""
    return 0 if path.suffix == ".jsonl" else 1


def _reader(path: Path, lines: list[str]) -> Callable[[str], Cells | None]:
    """What reads a line of a table; None for a line that is no row."""
    if path.suffix == ".jsonl":
        return _json_row
    header = lines[0].rstrip("\r").split("\t")
    return lambda line: dict(zip(header, line.rstrip("\r").split("\t"), strict=False))


def _json_row(line: str) -> Cells | None:
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _corrected_table(path: Path, name: str, renamed: Renamed) -> tuple[str, list[Change]]:
    lines = read_text(path).split("\n")
    read, remaining = _reader(path, lines), lines[: _first(path)]
    changes: list[Change] = []
    seen: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    for number, line in enumerate(lines[_first(path) :], _first(path) + 1):
        cells = read(line) if line.strip() else None
        if cells is None:
            remaining.append(line)
            continue
        where, after = f"{path.name}:{number}", line
        for column in PATTERN_TABLES.get(name, ()):
            before = str(cells.get(column))
            key_text = before if name == "patterns" else _composed(before)
            text = renamed.get((str(cells.get("relation")), key_text), before)
            if text != before:
                changes.append(Change(where, cells[column], text))
                cells[column] = text
                after = _written(path, cells, line)
        written = tuple(str(cells.get(column)) for column in KEYS.get(name, ()))
        key = tuple(map(_composed, written))
        if key and (key in seen or (name == "edges" and key[1] == key[2])):
            first, as_first = seen.get(key, ("", written))
            form = "" if as_first == written else ", in another Unicode form (NFC or NFD)"
            changes.append(Change(where, line.strip(), "", first + form))
            continue
        seen[key] = where, written
        remaining.append(after)
    return "\n".join(remaining), changes


def _written(path: Path, cells: Cells, line: str) -> str:
    end = "\r" if line.endswith("\r") else ""
    if path.suffix == ".jsonl":
        return json.dumps(cells, ensure_ascii=False) + end
    return "\t".join(cells.values()) + end
