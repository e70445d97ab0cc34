"""Suites in our own plain folder layout (``docs/suites.md``): tables of JSONL or TSV."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import Path

from consilience.cloze import ENGLISH, Pattern
from consilience.design import Edge
from consilience.errors import ConsilienceError, did_you_mean
from consilience.names import NameTable
from consilience.read import parse_json, read_text
from consilience.suites.name_tables import read_names, unused_names_note
from consilience.suites.rows import Problems, Row, find_table, refuse_misspelt, require, suite_rows
from consilience.text import LANGUAGE_TAG, control_in, is_language_tag
from consilience.types import Candidates, Cardinality, Fact, Relation, Suite

CARDINALITIES: tuple[Cardinality, ...] = ("N-1", "N-M")


ABOUT = (
    "name", "language", "description", "licence", "license", "creator", "url", "date", "version",
    "citation",
)  # fmt: skip
"""The keys of ``suite.json``; others are the user's own."""


@dataclass(slots=True)
class _Draft:
    """A relation while its tables are read."""

    id: str
    label: str
    """Its name for people."""
    cardinality: Cardinality
    """N-1 or N-M."""
    where: str
    """``file:line`` of its row."""
    patterns: dict[str, Pattern] = field(default_factory=dict)
    """Its patterns by their text in Unicode form NFC."""
    places: dict[Pattern, str] = field(default_factory=dict)
    """``file:line`` of each pattern."""
    facts: list[Fact] = field(default_factory=list)
    items: set[str] = field(default_factory=set)
    """The items of its facts."""
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)
    """How pairs of its patterns differ."""

    def relation(
        self, names: NameTable, problems: Problems, *, needs_patterns: bool = True
    ) -> Relation:
        """The relation; a missing pattern, fact or name is reported."""
        if needs_patterns:
            require(self.patterns, "pattern", self.id, self.where, problems)
        require(self.facts, "fact", self.id, self.where, problems)
        patterns, facts = tuple(self.patterns.values()), tuple(self.facts)
        candidates = Candidates.of(facts)
        relation = Relation(
            self.id, self.label, self.cardinality, patterns, facts, self.edges, candidates
        )
        if not facts:
            return relation
        pairs = [(fact.subject, fact.object) for fact in facts]
        return replace(relation, names=names.of_relation(self.id, pairs, self.places, problems))


Drafts = dict[str, _Draft]


def folder_root(folder: Path) -> Path | None:
    """The folder itself, if it is meant to be a suite in this layout."""
    is_suite = any(find_table(folder, name) for name in ("patterns", "facts"))
    return folder if is_suite else None


def read_folder(folder: Path, problems: Problems, *, needs_patterns: bool = True) -> Suite:
    """Read a suite and report everything that is wrong with it.

    ``needs_patterns=False``: relations may still be without patterns, and the table may be missing.
    """
    patterns = _required_table(folder, "patterns") if needs_patterns else None
    patterns = patterns or find_table(folder, "patterns")
    relations, facts = (_required_table(folder, name) for name in ("relations", "facts"))
    drafts = _read_relations(relations, problems)
    if not drafts:
        no_relation = ConsilienceError(
            "no relation", where=str(relations), todo="Add one line for each relation."
        )
        raise problems.pop(0) if problems else no_relation
    name, language = _about(folder)
    if patterns:
        _read_patterns(patterns, drafts, language, problems)
    _read_facts(facts, drafts, problems)
    if edges := find_table(folder, "edges"):
        _read_edges(edges, drafts, problems)
    names, unused = NameTable(language), Problems()
    if path := find_table(folder, "names"):
        facts_of = {id_: draft.facts for id_, draft in drafts.items()}
        names = read_names(path, language, facts_of, problems, unused)
    before = len(problems)
    finished = tuple(
        draft.relation(names, problems, needs_patterns=needs_patterns) for draft in drafts.values()
    )
    if len(problems) > before:  # an unused name may be a missing one that is misspelt
        problems[before:before] = unused
    notes = unused_names_note(unused)
    return Suite(name, finished, protocol="strict", notes=notes, language=language)


def _required_table(folder: Path, name: str) -> Path:
    path = find_table(folder, name)
    if path is None:
        raise ConsilienceError(
            f"no {name}.jsonl or {name}.tsv",
            expected="a suite folder with relations, patterns and facts",
            where=str(folder),
            todo="See docs/suites.md for the layout.",
        )
    return path


def _about(folder: Path) -> tuple[str, str]:
    """The name and the language in ``suite.json``; else that of the folder, and English."""
    about = folder / "suite.json"
    if not about.is_file():
        name = folder.resolve().name
        if control := control_in(name):
            raise ConsilienceError(
                f"{control} in the name of the folder, which names the suite",
                where=ascii(str(folder)),
                todo="Rename the folder.",
            )
        return name, ENGLISH
    try:
        content = parse_json(read_text(about))
        refuse_misspelt(dict(content), ABOUT, str(about), "key")
        name, language = content["name"], content.get("language") or ENGLISH
        if not isinstance(name, str) or not name.strip():
            raise ValueError("no name")
    except (ValueError, KeyError, TypeError) as error:
        raise ConsilienceError(
            "not a JSON object with a 'name'", where=str(about), todo="Correct or remove the file."
        ) from error
    if control := control_in(name):
        raise ConsilienceError(f"{control} in 'name'", where=str(about), todo="Remove it.")
    if not isinstance(language, str) or not is_language_tag(language):
        raise ConsilienceError(
            f"'language' is {json.dumps(language)}",
            expected=LANGUAGE_TAG,
            where=str(about),
            todo="Correct or remove it.",
        )
    return name, language


def _read_relations(path: Path, problems: Problems) -> Drafts:
    drafts: Drafts = {}
    for row in suite_rows(path, problems):
        id_ = row.text("relation")
        cardinality = row.cells.get("cardinality", "N-1")
        if cardinality not in CARDINALITIES:
            row.report(f"cardinality '{cardinality}'", expected="N-1 or N-M")
            cardinality = "N-1"  # the relation is still known to the other tables
        if id_ in drafts:
            row.report(
                f"duplicate relation '{id_}'", todo=f"Remove it; the first is {drafts[id_].where}."
            )
        elif row.is_relation_id(id_):
            drafts[id_] = _Draft(id_, row.optional_text("label") or id_, cardinality, row.where)
    return drafts


def _draft_of(row: Row, drafts: Drafts) -> _Draft | None:
    """The relation that a row names; an unknown one is reported."""
    id_ = row.text("relation")
    if id_ and id_ not in drafts:
        row.report(
            f"the relation '{id_}' is not among the relations", todo=did_you_mean(id_, list(drafts))
        )
    return drafts.get(id_)


def _read_patterns(path: Path, drafts: Drafts, language: str, problems: Problems) -> None:
    for row in suite_rows(path, problems):
        draft, pattern = _draft_of(row, drafts), row.pattern(language=language)
        if draft is None or pattern is None:
            continue
        text = _composed(pattern.text)
        if first := draft.patterns.get(text):
            form = "" if first.text == pattern.text else ", in another Unicode form (NFC or NFD)"
            row.report(
                f"duplicate pattern '{pattern.text}' of '{draft.id}'{form}",
                todo=f"Remove one of the two; the first is {draft.places[first]}. "
                "`suite audit --fix` keeps the first.",
            )
        draft.patterns[text] = pattern
        draft.places[pattern] = row.where


def _composed(text: str) -> str:
    """The text in Unicode form NFC, in which equal texts are the same characters."""
    return unicodedata.normalize("NFC", text)


def _read_facts(path: Path, drafts: Drafts, problems: Problems) -> None:
    for row in suite_rows(path, problems):
        draft, subject, object_ = _draft_of(row, drafts), row.text("subject"), row.text("object")
        if draft is None or not subject or not object_:
            continue
        item = row.optional_text("item") or f"{draft.id}-{len(draft.facts) + 1}"
        if item in draft.items:
            row.report(f"duplicate item '{item}' of '{draft.id}'", todo="Give each fact its own.")
        draft.items.add(item)
        draft.facts.append(Fact(item, subject, object_))


def _read_edges(path: Path, drafts: Drafts, problems: Problems) -> None:
    positions = {
        id_: {text: index for index, text in enumerate(draft.patterns)}
        for id_, draft in drafts.items()
    }
    for row in suite_rows(path, problems):
        id_ = row.text("relation")
        texts = [_composed(row.text(name)) for name in ("pattern_a", "pattern_b")]
        known = positions.get(id_, {})
        unknown = [text for text in texts if text not in known]
        if unknown or texts[0] == texts[1]:
            problem = f"'{unknown[0]}'" if unknown else "an edge from a pattern to itself"
            row.report(problem, expected=f"two patterns of '{id_}'", todo="Correct it.")
            continue
        edge = Edge(*(row.flag(name) for name in Edge.__slots__))
        first, second = sorted(known[text] for text in texts)
        if (first, second) in drafts[id_].edges:
            row.report(
                f"duplicate pair '{texts[0]}' and '{texts[1]}'",
                expected="each pair of patterns once",
            )
        drafts[id_].edges[first, second] = edge
