"""Where the patterns and facts of a suite are in its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from consilience.read import Faults, read_rows

TABLES = (
    "patterns.*", "facts.*", "relations.jsonl", "TREx/*.jsonl", "trex_lms_vocab/*.jsonl",
    "pattern_data/graphs_json/*.jsonl",
)  # fmt: skip
"""The tables of all layouts that have patterns or facts."""


@dataclass(frozen=True, slots=True)
class Places:
    """Places (``file:line``) in the tables of a suite."""

    patterns: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Relation and pattern -> its place."""
    facts: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    """Relation, subject and object -> the places of the fact."""

    def pattern(self, relation: str, *texts: str) -> tuple[str, ...]:
        keys = ((relation, text) for text in texts)
        return tuple(self.patterns[key] for key in keys if key in self.patterns)

    def fact(self, relation: str, subject: str, object_: str) -> tuple[str, ...]:
        """The places of a fact, more than one if it is there more than once."""
        return self.facts.get((relation, subject, object_), ())


def places_in(root: Path) -> Places:
    """The places of all patterns and facts in the tables below the root of a suite."""
    patterns: dict[tuple[str, str], str] = {}
    facts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for path in _tables(root):
        faults: Faults = []  # ``suite check`` reports them
        for where, cells in read_rows(path, quoted=False, faults=faults):
            location = where.replace(str(path), str(path.relative_to(root)), 1)
            relation = str(cells.get("relation", path.stem))
            text = cells.get("pattern", cells.get("template"))
            if text is not None:
                patterns.setdefault((relation, str(text)), location)
            elif "subject" in cells or "sub_label" in cells:
                subject, object_ = (
                    str(cells.get(ours, cells.get(theirs, "")))
                    for ours, theirs in (("subject", "sub_label"), ("object", "obj_label"))
                )
                facts[relation, subject, object_].append(location)
    return Places(patterns, {key: tuple(places) for key, places in facts.items()})


def _tables(root: Path) -> Iterator[Path]:
    for name in TABLES:
        yield from (path for path in sorted(root.glob(name)) if path.suffix in (".jsonl", ".tsv"))
