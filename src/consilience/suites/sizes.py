"""The sizes of a suite and of its relations (the paper's Table 1), and what to mind in it."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from consilience.design import Edge
from consilience.text import counted, listed
from consilience.types import Relation, Suite


@dataclass(frozen=True, slots=True)
class RelationStatistics:
    """Counts of one relation."""

    relation: str
    """Its id."""
    label: str
    """Its name."""
    cardinality: str
    """N-1 or N-M."""
    patterns: int
    """Number of patterns."""
    syntactic_variants: float
    """Kinds of patterns by syntax (``variants``); NaN where edges are not known."""
    lexical_variants: float
    """Kinds of patterns by lemmas; NaN where edges are not known."""
    facts: int
    """Number of facts."""
    subjects: int
    """Number of different subjects."""
    candidates: int
    """Number of different objects."""
    majority: float
    """Share of the facts that have the most frequent object."""
    edits: dict[str, int]
    """Number of unordered pairs of patterns of each kind of edit."""


@dataclass(frozen=True, slots=True)
class SuiteStatistics:
    """Counts of a suite, with the means over relations of the paper's Table 1."""

    relations: int
    """Number of relations."""
    patterns: int
    """Number of patterns of all relations."""
    min_patterns: int
    """Fewest patterns of a relation."""
    max_patterns: int
    """Most patterns of a relation."""
    mean_patterns: float
    """Patterns of a relation."""
    mean_syntactic_variants: float
    """Kinds of patterns of a relation by syntax."""
    mean_lexical_variants: float
    """Kinds of patterns of a relation by lemmas."""
    facts: int
    """Number of facts of all relations."""
    queries: int
    """Facts times patterns, summed over relations."""
    by_relation: tuple[RelationStatistics, ...] = field(repr=False)
    """The counts of each relation."""


def cautions(suite: Suite) -> list[str]:
    """Properties of a suite that are no errors but decide what its numbers mean.

    Relations with one pattern, which have no consistency; N-1 relations with subjects that have
    several objects; duplicate facts; objects that differ only in case, spaces or Unicode form;
    subjects that are written alike in a language.
    """
    single = [relation.id for relation in suite.relations if len(relation.patterns) == 1]
    notes = [f"one pattern, so no consistency: {listed(single)}"] if single else []
    for relation in suite.relations:
        notes += [f"{relation.id}: {caution}" for caution in _cautions_of(relation)]
    return notes


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
            f"'{several[0]}': {listed(golds)}"
        )
    duplicates = {pair: names for pair, names in items.items() if len(names) > 1}
    if duplicates:
        (subject, gold), names = next(iter(duplicates.items()))
        surplus = sum(map(len, duplicates.values())) - len(duplicates)
        yield (
            f"{counted(surplus, 'duplicate fact')}, such as "
            f"'{subject}', '{gold}' (items {listed(names)})"
        )
    yield from _similar_objects(relation)
    for (language, form), texts in relation.names.items():
        written: dict[str, set[str]] = defaultdict(set)
        for subject in objects:
            written[texts.get(subject, subject)].add(subject)
        alike = {text: subjects for text, subjects in written.items() if len(subjects) > 1}
        if alike:
            text, subjects = next(iter(alike.items()))
            where = language + (f", {form}" if form else "")
            yield f"{where}: {listed(sorted(subjects))} are all written '{text}'"


def _similar_objects(relation: Relation) -> Iterator[str]:
    """A note for each set of objects that differ only in case, spaces or Unicode form."""
    spellings: dict[str, set[str]] = defaultdict(set)
    for fact in relation.facts:
        plain = unicodedata.normalize("NFC", fact.object).casefold()
        spellings[" ".join(plain.split())].add(fact.object)
    for words in spellings.values():
        if len(words) > 1:
            quoted = [f"'{word}'" for word in sorted(words)]
            forms = {unicodedata.normalize("NFC", word) for word in words}
            how = "case or spaces" if len(forms) == len(words) else "case, spaces or Unicode form"
            yield f"{', '.join(quoted[:-1])} and {quoted[-1]} differ only in {how}"


def variants(relation: Relation, changed: Callable[[Edge], bool]) -> float:
    """The number of kinds of patterns, where only edits that are ``changed`` make another kind.

    The number of connected components of the patterns when all pairs with other edges are joined.
    Over the 38 relations its means are Table 1's 4.74 (syntax) and 6.03 (lexical), 180/38 and
    229/38. NaN where the edges of several patterns are not known.
    """
    size = len(relation.patterns)
    if size > 1 and not relation.edges:
        return float("nan")
    joined = [pair for pair, edge in relation.edges.items() if not changed(edge)]
    places = ([first for first, _ in joined], [second for _, second in joined])
    graph = coo_array(([1] * len(joined), places), shape=(size, size))
    return int(connected_components(graph, directed=False, return_labels=False))


def suite_statistics(suite: Suite) -> SuiteStatistics:
    """Count a whole suite."""
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
    edits = Counter(edge.kind for edge in relation.edges.values())
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
        dict(edits),
    )
