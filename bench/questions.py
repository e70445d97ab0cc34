"""What everybody is asked: real ParaRel queries where the data is, those of `mini` elsewhere."""

from __future__ import annotations

import os
import random
from pathlib import Path

from consilience import ConsilienceError, Pattern, Query, Relation, Suite, load_suite

ROOT = Path(__file__).resolve().parents[1]


def shared() -> Path:
    """The folder with data and models from outside the project."""
    return Path(os.environ.get("CONSILIENCE_SHARED", ROOT.parent / "shared"))


def suite() -> Suite:
    """ParaRel, or `mini` if it is not here."""
    for place in (shared() / "data" / "pararel", "pararel"):
        try:
            return load_suite(str(place))
        except ConsilienceError:
            continue
    return load_suite("mini")


def sample(relation: Relation, size: int) -> list[Query]:
    """Queries of a relation: any fact in any pattern, the same queries every time."""
    every = [
        Query(pattern, fact.subject, fact.object)
        for fact in relation.facts
        for pattern in relation.patterns
    ]
    return random.Random(0).sample(every, min(size, len(every)))


def position(pattern: Pattern) -> str:
    """Where the object stands: first, last, or in the middle."""
    if pattern.object_first:
        return "first"
    return "last" if pattern.object_last else "middle"


def by_position(chosen: Suite, subjects: int) -> dict[str, list[tuple[Relation, list[Query]]]]:
    """For each position of the object two relations of middling size, one pattern of each."""
    found: dict[str, list[tuple[Relation, list[Query]]]] = {"last": [], "middle": [], "first": []}
    sizes = sorted(chosen.relations, key=lambda each: abs(len(each.candidates.words) - 60))
    for relation in sizes:
        for pattern in relation.patterns:
            queries = [Query(pattern, f.subject, f.object) for f in relation.facts[:subjects]]
            place = found[position(pattern)]
            if len(place) < 2 and all(relation is not other for other, _ in place):
                place.append((relation, queries))
    return found
