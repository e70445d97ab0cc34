"""Suites of facts: tables of names, the folder, selections, sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import Edge
from consilience.core.patterns import ENGLISH, Names
from consilience.core.text import rejoined
from consilience.files.read import Problems, read_document, read_rows
from consilience.files.rows import (
    Column,
    Row,
    TableError,
    find_table,
    flag,
    language_tag,
    line,
    one_of,
    read_table,
)
from consilience.types import (
    FACT_COLUMNS,
    PATTERN_COLUMNS,
    Draft,
    Relation,
    Suite,
    add_name,
    sentence,
    translations,
)

ID = Column("relation", line)
RELATIONS = (
    ID, Column("label", line, "", is_needed=False),
    Column("cardinality", one_of("N-1", "N-M"), "N-1", is_needed=False),
)  # fmt: skip
NAMES = Column("name", line), Column("text", line)
EDGES = (
    ID, Column("pattern_a", sentence), Column("pattern_b", sentence),
    *(Column(name, flag) for name in Edge.__slots__),
)  # fmt: skip


def is_suite(folder: Path) -> bool:
    """Whether a folder is meant to be a suite in our layout."""
    return any(find_table(folder, name) for name in ("patterns", "facts"))


def read_folder(folder: Path, problems: Problems, *, needs_patterns: bool = True) -> Suite:
    """Read a suite and report everything that is wrong with it.

    ``needs_patterns=False``: relations may still be without patterns, and the table may be missing.
    """
    paths = {name: find_table(folder, name) for name in ("patterns", "relations", "facts")}
    for name, path in paths.items():
        if path is None and (needs_patterns or name != "patterns"):
            raise ConsilienceError(
                f"no {name}.jsonl or {name}.tsv",
                expected="a suite folder with relations, patterns and facts",
                where=str(folder),
                todo="See docs/suites.md for the layout.",
            )

    def rows(name: str, columns: Sequence[Column]) -> Iterator[Row]:
        path = paths.get(name) or find_table(folder, name)
        cells = [*read_rows(path, problems)] if path else []
        return read_table(cells, (*columns, *translations(cells)), problems, str(path))

    drafts: dict[str, Draft] = {}
    places: dict[str, str] = {}
    names: Names = {}
    for row in rows("relations", RELATIONS):
        id_ = row["relation"]
        if row.is_new(id_, places, f"relation '{id_}'"):
            drafts[id_] = Draft(
                id_, row["label"] or id_, row["cardinality"], row.where, names=names
            )
    if not drafts:
        todo, where = "Add one line for each relation.", str(paths["relations"])
        raise (
            problems.pop(0) if problems else ConsilienceError("no relation", where=where, todo=todo)
        )
    name, language = _about(folder)
    tables: dict[str, tuple[Sequence[Column], Callable[[Draft, Row], None]]] = {
        "patterns": ((ID, *PATTERN_COLUMNS), lambda draft, row: draft.add_pattern(row, language)),
        "facts": ((ID, *FACT_COLUMNS), Draft.add_fact),
        "edges": (EDGES, _add_edge),
    }
    for table, (columns, add) in tables.items():
        for row in rows(table, columns):
            if draft := drafts.get(row["relation"]):
                add(draft, row)
            else:
                found = f"the relation '{row['relation']}' is not among the relations"
                todo = did_you_mean(row["relation"], list(drafts))
                row.report(found, "relation", todo=todo)
    known = {one for draft in drafts.values() for fact in draft.facts for one in fact.names}
    for row in rows("names", (Column("language", language_tag, language), *NAMES)):
        add_name(row, names, row["name"], row["language"], row["text"])
        if row["name"] not in known:
            todo = did_you_mean(row["name"], list(known))
            row.report(f"no subject or object '{row['name']}'", "name", todo=todo)
    finished = tuple(
        draft.relation(problems, needs_patterns=needs_patterns) for draft in drafts.values()
    )
    return Suite(name, finished, "strict", language=language)


def _about(folder: Path) -> tuple[str, str]:
    """The name and the language in ``suite.json``; else that of the folder, and English."""
    about, where = folder / "suite.json", ascii(str(folder))
    content = {"name": folder.resolve().name}
    if about.is_file():
        where, content = str(about), read_document(about)
    if not isinstance(content, dict):
        raise ConsilienceError("no JSON object", where=where, todo="Correct or remove the file.")
    problems: Problems = []
    columns = Column("name", line), Column("language", language_tag, ENGLISH, is_needed=False)
    for row in read_table([(where, content)], columns, problems, where):
        return row["name"], row["language"]
    raise TableError(problems)


def _add_edge(draft: Draft, row: Row) -> None:
    texts, known = [row["pattern_a"], row["pattern_b"]], list(draft.patterns)
    unknown = [text for text in texts if text not in known]
    if unknown or texts[0] == texts[1]:
        problem = f"'{unknown[0]}'" if unknown else "an edge from a pattern to itself"
        row.report(problem, expected=f"two patterns of '{draft.id}'", todo="Correct it.")
        return
    first, second = sorted(map(known.index, texts))
    row.is_new((first, second), draft.places, f"pair '{texts[0]}' and '{texts[1]}'")
    draft.edges[first, second] = Edge(*(row[name] for name in Edge.__slots__))


def select_relations(suite: Suite, ids: Sequence[str]) -> Suite:
    """The suite with only the relations of these ids or labels, in the suite's order."""
    known = [name for relation in suite for name in (relation.id, relation.label)]
    ids = [suite[name].id for name in rejoined(ids, known)]
    left_out = {relation.id for relation in suite.relations} - set(ids)
    return replace(
        suite,
        relations=tuple(relation for relation in suite.relations if relation.id in ids),
        notes=tuple(note for note in suite.notes if note.split(":")[0] not in left_out),
    )


def select_languages(suite: Suite, languages: Sequence[str]) -> Suite:
    """The suite with only the patterns in these languages; relations without any are left out."""
    every = [pattern.language for relation in suite.relations for pattern in relation.patterns]
    known = list(dict.fromkeys(every))
    for language in languages:
        if language not in known:
            raise ConsilienceError(
                f"the suite '{suite.name}' has no pattern in '{language}'",
                todo=did_you_mean(language, known),
            )
    relations = []
    for relation in suite.relations:
        chosen = {one.name for one in relation.patterns if one.language in languages}
        names = {tag: of for tag, of in relation.names.items() if tag in languages}
        relations.append(replace(relation.only(chosen), names=names))
    left_out = [relation.id for relation in relations if not relation.patterns]
    notes = [f"no pattern in {', '.join(languages)}: {', '.join(left_out)}"] if left_out else []
    return replace(
        suite,
        relations=tuple(relation for relation in relations if relation.patterns),
        notes=(*suite.notes, *notes),
    )


def sample_facts(suite: Suite, limit: int, seed: int) -> Suite:
    """At most ``limit`` facts a relation, by ``seed``, in their order; all candidates stay."""
    if limit < 1:
        raise ConsilienceError(f"a limit of {limit} facts", expected="1 or more")

    def sample(relation: Relation) -> Relation:
        if len(relation.facts) <= limit:
            return relation
        order = random.Random(f"{seed} {relation.id}")
        chosen = sorted(order.sample(range(len(relation.facts)), limit))
        return replace(relation, facts=tuple(relation.facts[index] for index in chosen))

    return replace(suite, relations=tuple(map(sample, suite.relations)))
