"""Files of proposals: patterns and phrasings that a person reads, and lets join a suite."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.files.write import csv_of, json_lines, table_of, write_whole

Proposal = dict[str, Any]
"""A pattern or a phrasing that may join a suite, by the columns of its file: ``accept`` (yes, until
a person writes no), ``relation`` and ``pattern`` or ``item`` and ``question``, ``origin`` (mined or
rewritten), ``source`` (a corpus, a model or *rule*), what it was made of, and numbers."""


def check_no_file(path: Path | None) -> None:
    """Refuse, before the work, to replace a file, which may hold a person's edits.

    And a file that could not be written or read again: in no folder, or with another suffix.
    """
    if path is not None and path.is_file() and path.stat().st_size:
        raise ConsilienceError(
            "there is a file already, and it may have edits",
            expected="a new file",
            where=str(path),
            todo="Choose another file with --out, or delete this one.",
        )
    is_plain = path is not None and (path.is_file() or not path.exists())
    if path is not None and is_plain and path.suffix not in (".jsonl", ".csv"):
        found, expected = "a file in another format", "a name that ends in .jsonl or .csv"
        raise ConsilienceError(found, expected=expected, where=str(path))
    if path is not None and not path.parent.is_dir():
        raise ConsilienceError("no such folder", where=str(path.parent), todo="Make it first.")


def write_proposals(path: Path | None, proposals: Sequence[Proposal]) -> Path | None:
    """Write proposals as JSONL, or as CSV for spreadsheets; without any there is no file."""
    if path is None or not proposals:
        return None
    is_csv = path.suffix == ".csv"
    content = codecs.BOM_UTF8 + csv_of(table_of(proposals)) if is_csv else json_lines(proposals)
    write_whole(path, content)
    return path
