"""What everybody is asked: real ParaRel queries where the data is, those of `mini` elsewhere."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

from consilience import ConsilienceError, Query, Relation, Suite, load_suite

ROOT = Path(__file__).resolve().parents[1]


def suite() -> Suite:
    """ParaRel, or `mini` if it is not here."""
    shared = os.environ.get("CONSILIENCE_SHARED", ROOT.parent / "shared")
    for place in (Path(shared, "data", "pararel"), "pararel"):
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


Asked = list[tuple[Relation, list[Query]]]


def by_position(chosen: Suite, subjects: int) -> dict[str, Asked]:
    """For each position of the object two relations of middling size, one pattern of each.

    Last three groups of 8 facts of `mini` in all patterns: there is less to share.
    """
    found: dict[str, Asked] = {"last": [], "middle": [], "first": []}
    sizes = sorted(chosen.relations, key=lambda each: abs(len(each.candidates.words) - 60))
    for relation in sizes:
        for pattern in relation.patterns:
            queries = [Query(pattern, f.subject, f.object) for f in relation.facts[:subjects]]
            is_last = "last" if pattern.object_last else "middle"
            place = found["first" if pattern.object_first else is_last]
            if len(place) < 2 and all(relation is not other for other, _ in place):
                place.append((relation, queries))
    few = [replace(group, facts=group.facts[:8]) for group in load_suite("mini").relations[:3]]
    return {**found, "anywhere": [(group, sample(group, 100)) for group in few]}
