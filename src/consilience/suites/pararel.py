"""The ParaRel release (Elazar et al., TACL 2021) as its repository lays it out.

``pattern_data/graphs_json/P19.jsonl`` holds the patterns of a relation, ``pattern_data/graphs/
P19.graph`` the same patterns with how each pair differs, ``trex_lms_vocab/P19.jsonl`` its facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.suites.folder import parse_pattern
from consilience.suites.graphs import read_graph
from consilience.suites.rows import (
    optional_text,
    raise_first,
    read_rows,
    require,
    text_field,
)
from consilience.types import (
    Candidates,
    Cardinality,
    Edge,
    Fact,
    Pattern,
    Relation,
    Suite,
)

N_TO_1: dict[str, str] = {
    "P17": "country",
    "P19": "place of birth",
    "P20": "place of death",
    "P27": "country of citizenship",
    "P30": "continent",
    "P36": "capital",
    "P37": "official language",
    "P101": "field of work",
    "P103": "native language",
    "P106": "occupation",
    "P127": "owned by",
    "P131": "located in the administrative entity",
    "P136": "genre",
    "P138": "named after",
    "P140": "religion",
    "P159": "headquarters location",
    "P176": "manufacturer",
    "P178": "developer",
    "P264": "record label",
    "P276": "location",
    "P279": "subclass of",
    "P361": "part of",
    "P364": "original language of a work",
    "P407": "language of a work",
    "P413": "position played on a team",
    "P449": "original broadcaster",
    "P495": "country of origin",
    "P740": "location of formation",
    "P937": "work location",
    "P1376": "capital of",
    "P1412": "languages spoken or written",
}
"""The 31 relations that the paper reports consistency for, with Wikidata's name of each."""

N_TO_M: dict[str, str] = {
    "P39": "position held",
    "P47": "shares border with",
    "P108": "employer",
    "P190": "twinned administrative body",
    "P463": "member of",
    "P530": "diplomatic relation",
    "P1303": "instrument",
}
"""The 7 relations that the paper reports determinism for."""

MIXED_OBJECTS: dict[str, frozenset[str]] = {
    "P101": frozenset({"folklore", "Judaism", "diplomat", "Hebrew", "cave"}),
    "P136": frozenset({"satire", "sitcom", "thriller", "fantasy"}),
}
"""Objects that do not fit the patterns of their relation (paper, footnote 11).

The release still holds them; without them its 26,946 tuples are the paper's 26,813.
"""


def pararel_root(folder: Path) -> Path | None:
    """The folder with ``pattern_data`` and ``trex_lms_vocab``: this one, or its ``data``."""
    for root in (folder, folder / "data"):
        if (root / "pattern_data" / "graphs_json").is_dir() and (root / "trex_lms_vocab").is_dir():
            return root
    return None


def load_pararel(root: Path, *, as_shipped: bool = False) -> Suite:
    """The 38 relations of the paper, with its 26,813 tuples; the first problem is raised."""
    problems: list[ConsilienceError] = []
    suite = read_pararel(root, problems, as_shipped=as_shipped)
    raise_first(problems)
    return suite


def read_pararel(
    root: Path, problems: list[ConsilienceError], *, as_shipped: bool = False
) -> Suite:
    """Read the release and add everything that is wrong with it to ``problems``.

    ``as_shipped`` keeps the objects of ``MIXED_OBJECTS``.
    """
    relations: list[Relation] = []
    notes: list[str] = []
    kinds: tuple[tuple[Cardinality, dict[str, str]], ...] = (("N-1", N_TO_1), ("N-M", N_TO_M))
    for cardinality, labels in kinds:
        for id_, label in labels.items():
            relation = _read_relation(root, id_, label, cardinality, problems)
            if not as_shipped:
                relation, dropped = without_objects(relation, MIXED_OBJECTS.get(id_, frozenset()))
                if dropped:
                    notes.append(mixed_note(id_, dropped))
            relations.append(relation)
    if not any(relation.edges for relation in relations):
        notes.append("no pattern graphs: no numbers for kinds of edits")
    return Suite("pararel", tuple(relations), "published", tuple(notes))


def mixed_note(id_: str, dropped: int) -> str:
    """What a reader is told of the objects that were left out."""
    return f"{id_}: {dropped} tuples left out, as the paper does (note 11)"


def without_objects(relation: Relation, objects: Iterable[str]) -> tuple[Relation, int]:
    """The relation without the facts that have one of ``objects``, and how many these were."""
    left_out = frozenset(objects)
    facts = tuple(fact for fact in relation.facts if fact.object not in left_out)
    dropped = len(relation.facts) - len(facts)
    if not dropped:
        return relation, 0
    return replace(relation, facts=facts, candidates=Candidates.of(facts)), dropped


def _read_relation(
    root: Path,
    id_: str,
    label: str,
    cardinality: Cardinality,
    problems: list[ConsilienceError],
) -> Relation:
    patterns: list[Pattern] = []
    path = root / "pattern_data" / "graphs_json" / f"{id_}.jsonl"
    for where, row in read_rows(path, problems):
        text = text_field(row, "pattern", where, problems)
        if text:
            try:
                patterns.append(parse_pattern(row, text, where, problems))
            except ConsilienceError as error:
                problems.append(error)
    require(patterns, "pattern", id_, str(path), problems)
    edges: dict[tuple[int, int], Edge] = {}
    graph = root / "pattern_data" / "graphs" / f"{id_}.graph"
    if graph.is_file():
        nodes, edges = read_graph(graph)
        if nodes != [pattern.text for pattern in patterns]:
            problems.append(
                ConsilienceError(
                    "its patterns are not those of graphs_json",
                    expected="the same patterns in the same order",
                    where=str(graph),
                    todo="Fetch the release again with `consilience data fetch pararel`.",
                )
            )
            edges = {}
    facts = read_trex(root / "trex_lms_vocab" / f"{id_}.jsonl", id_, problems)
    return Relation(id_, label, cardinality, tuple(patterns), facts, edges, Candidates.of(facts))


def read_trex(path: Path, id_: str, problems: list[ConsilienceError]) -> tuple[Fact, ...]:
    """Facts of a T-REx file, ParaRel's or LAMA's: ``sub_label``, ``obj_label``, ``uuid``."""
    facts: list[Fact] = []
    items: set[str] = set()
    for where, row in read_rows(path, problems):
        subject = text_field(row, "sub_label", where, problems)
        object_ = text_field(row, "obj_label", where, problems)
        item = optional_text(row, "uuid", where, problems) or f"{id_}-{len(facts) + 1}"
        if item in items:
            problems.append(
                ConsilienceError(f"the uuid '{item}' a second time in '{id_}'", where=where)
            )
        elif subject and object_:
            items.add(item)
            facts.append(Fact(item, subject, object_))
    require(facts, "fact", id_, str(path), problems)
    return tuple(facts)
