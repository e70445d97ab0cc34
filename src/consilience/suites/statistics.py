"""What a suite holds, counted: the paper's Table 1 and the sizes of each relation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from consilience.types import Edge, Relation, Suite


@dataclass(frozen=True, slots=True)
class RelationStatistics:
    """Counts of one relation; ``edits`` counts unordered pairs of patterns by edit kind."""

    relation: str
    label: str
    cardinality: str
    patterns: int
    syntactic_variants: float
    lexical_variants: float
    facts: int
    subjects: int
    candidates: int
    majority: float
    edits: dict[str, int]


@dataclass(frozen=True, slots=True)
class SuiteStatistics:
    """The paper's Table 1, the number of facts, and the counts of each relation."""

    relations: int
    patterns: int
    min_patterns: int
    max_patterns: int
    mean_patterns: float
    mean_syntactic_variants: float
    mean_lexical_variants: float
    facts: int
    queries: int
    by_relation: tuple[RelationStatistics, ...]


def cautions(suite: Suite) -> list[str]:
    """What is no error in a suite, but decides what its numbers mean.

    Relations with one pattern, which have no consistency; N-1 relations with subjects that have
    several objects; duplicate facts. ParaRel's release has the last two.
    """
    single = [relation.id for relation in suite.relations if len(relation.patterns) == 1]
    found = [f"one pattern, so no consistency: {_listed(single)}"] if single else []
    for relation in suite.relations:
        found += [f"{relation.id}: {caution}" for caution in _cautions_of(relation)]
    return found


def _cautions_of(relation: Relation) -> Iterator[str]:
    items: dict[tuple[str, str], list[str]] = defaultdict(list)
    objects: dict[str, set[str]] = defaultdict(set)
    for fact in relation.facts:
        items[fact.subject, fact.object].append(fact.item)
        objects[fact.subject].add(fact.object)
    several = [subject for subject, golds in objects.items() if len(golds) > 1]
    if several and relation.cardinality == "N-1":
        golds = [gold for subject, gold in items if subject == several[0]]
        yield (
            f"{counted(len(several), 'subject')} of an N-1 relation with several objects, such as "
            f"'{several[0]}': {_listed(golds)}"
        )
    twins = {pair: names for pair, names in items.items() if len(names) > 1}
    if twins:
        (subject, gold), names = next(iter(twins.items()))
        yield (
            f"{counted(sum(map(len, twins.values())) - len(twins), 'duplicate fact')}, such as "
            f"'{subject}', '{gold}' (items {_listed(names)})"
        )


def counted(number: int, noun: str) -> str:
    """``1 problem`` or ``2 problems``."""
    return f"{number} {noun}" + ("s" if number != 1 else "")


def _listed(names: list[str], longest: int = 6) -> str:
    more = f" and {len(names) - longest} more" if len(names) > longest else ""
    return ", ".join(names[:longest]) + more


def variants(relation: Relation, changed: Callable[[Edge], bool]) -> float:
    """How many kinds of patterns there are where only some edits count.

    The number of connected components of the patterns when every pair whose edge is not
    ``changed`` is joined. Over the 38 relations its means are Table 1's 4.74 (syntax) and 6.03
    (lexical), 180/38 and 229/38. NaN where the edges of several patterns are not known.
    """
    size = len(relation.patterns)
    if size > 1 and not relation.edges:
        return float("nan")
    joined = [pair for pair, edge in relation.edges.items() if not changed(edge)]
    rows, columns = [a for a, _ in joined], [b for _, b in joined]
    graph = coo_array(([1] * len(joined), (rows, columns)), shape=(size, size))
    return int(connected_components(graph, directed=False, return_labels=False))


def suite_statistics(suite: Suite) -> SuiteStatistics:
    """Count everything; a mean is over relations."""
    rows = tuple(map(_relation_statistics, suite.relations))
    sizes = [row.patterns for row in rows]
    return SuiteStatistics(
        relations=len(rows),
        patterns=sum(sizes),
        min_patterns=min(sizes),
        max_patterns=max(sizes),
        mean_patterns=sum(sizes) / len(rows),
        mean_syntactic_variants=sum(row.syntactic_variants for row in rows) / len(rows),
        mean_lexical_variants=sum(row.lexical_variants for row in rows) / len(rows),
        facts=sum(row.facts for row in rows),
        queries=sum(row.facts * row.patterns for row in rows),
        by_relation=rows,
    )


def _relation_statistics(relation: Relation) -> RelationStatistics:
    edits: dict[str, int] = {}
    for edge in relation.edges.values():
        edits[edge.kind] = edits.get(edge.kind, 0) + 1
    return RelationStatistics(
        relation.id,
        relation.label,
        relation.cardinality,
        len(relation.patterns),
        variants(relation, lambda edge: edge.syntactic),
        variants(relation, lambda edge: edge.lexical),
        len(relation.facts),
        len({fact.subject for fact in relation.facts}),
        len(relation.candidates.words),
        max(relation.candidates.counts) / sum(relation.candidates.counts),
        edits,
    )
