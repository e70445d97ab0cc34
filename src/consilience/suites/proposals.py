"""Proposed patterns and phrasings."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from consilience.core.errors import ConsilienceError
from consilience.files.write import csv_of, json_lines, table_of, write_whole

TEXTS = ("source", "parent", "edit", "reason", "language")

Names = tuple[str, str]  # What the columns of the group and of the text are called
OF_FACTS: Names = ("relation", "pattern")
OF_QUESTIONS: Names = ("item", "question")
RULE = "rule"  # The source of what no model wrote


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pattern that may join a suite, and where it comes from.

    Of a suite of questions ``relation`` is the item, and ``pattern`` a phrasing of its question.
    """

    relation: str
    pattern: str
    origin: str  # ``mined``, ``rewritten`` or ``imported``
    source: str = ""  # The name of a corpus, file or model that it comes from; no absolute path
    parent: str = ""  # The pattern that it was rewritten from
    edit: str = ""  # The edit kind or the rule that separates it from ``parent`` or the base
    language: str = ""  # Its language (BCP 47); empty for that of the suite
    evidence: tuple[str, ...] = ()  # Short texts that speak for it, such as sentences of a corpus
    scores: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the step that proposed it, such as ``facts`` or ``meaning``; all finite."""
    reason: str = ""  # Why a rule keeps the meaning

    def row(self, names: Names = OF_FACTS) -> dict[str, object]:
        """The columns that are not empty, in the order in which they are written."""
        cells: dict[str, object] = dict(zip(names, (self.relation, self.pattern), strict=True))
        cells |= {name: text for name in ("origin", *TEXTS) if (text := getattr(self, name))}
        evidence = {"evidence": list(self.evidence)} if self.evidence else {}
        return {**cells, **evidence, **self.scores}


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


def write_proposals(path: Path, proposals: Iterable[Proposal], names: Names = OF_FACTS) -> None:
    """Write proposals as JSONL, or as CSV for spreadsheets, by the suffix; one row each."""
    rows = [{"accept": "yes", **one.row(names)} for one in proposals]
    is_csv = path.suffix == ".csv"
    write_whole(path, codecs.BOM_UTF8 + csv_of(table_of(rows)) if is_csv else json_lines(rows))
