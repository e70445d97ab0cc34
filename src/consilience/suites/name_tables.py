"""The table ``names`` of a suite's files: how subjects and objects are written."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from consilience.cloze import Pattern
from consilience.errors import did_you_mean
from consilience.names import NameTable, Writing, WrittenName, shown_writing
from consilience.suites.rows import Problems, Row, suite_rows
from consilience.text import counted
from consilience.types import Fact, Relation


def read_names(
    path: Path,
    language: str,
    facts: Mapping[str, Sequence[Fact]],
    problems: Problems,
    unused: Problems,
) -> NameTable:
    """Read the table; ``facts``: of each relation, whose subjects and objects it names.

    ``unused``: where rows go that name something else, such as the names of facts to come.
    """
    known = {id_: _names_in(of_relation) for id_, of_relation in facts.items()}
    known[""] = {nfc: name for of_relation in known.values() for nfc, name in of_relation.items()}
    rows: dict[tuple[str, Writing], dict[str, WrittenName]] = {}
    for row in suite_rows(path, problems):
        read = _name_in(row, known, unused)
        if read is None:
            continue
        relation, writing, name, text = read
        of_writing = rows.setdefault((relation, writing), {})
        if name in of_writing:
            row.report(
                f"duplicate name '{name}' in {shown_writing(writing)}",
                todo=f"Remove it; the first is {of_writing[name].where}.",
            )
        of_writing[name] = WrittenName(text, row.where)
    return NameTable(language, rows)


def unused_names_note(unused: Problems) -> tuple[str, ...]:
    """A note on the rows of the table that name no subject or object; none without any.

    A name with several rows is shown once.
    """
    first: dict[str, str] = {}
    for row in unused:
        hint = f" {row.todo}" if row.todo.startswith("Did") else ""
        first.setdefault(row.found, f"{Path(row.where).name}: {row.found}.{hint}")
    number = counted(len(unused), "unused row")
    return (f"{number} of the table names: {' '.join([*first.values()][:3])}",) if unused else ()


def missing_names(relation: Relation) -> list[tuple[Writing, str]]:
    """The names of its facts that a relation cannot write as its patterns need them."""
    return [
        (writing, name)
        for pattern in relation.patterns
        for writing, name in _needed(pattern, relation.facts)
        if writing in relation.names and name not in relation.names[writing]
    ]


def _needed(pattern: Pattern, facts: Iterable[Fact]) -> Iterator[tuple[Writing, str]]:
    for fact in facts:
        yield (pattern.language, pattern.subject_form), fact.subject
        yield (pattern.language, pattern.object_form), fact.object


def _names_in(facts: Iterable[Fact]) -> dict[str, str]:
    """The subjects and objects of facts, by their Unicode form NFC."""
    return {
        unicodedata.normalize("NFC", name): name
        for fact in facts
        for name in (fact.subject, fact.object)
    }


def _name_in(
    row: Row, known: Mapping[str, Mapping[str, str]], unused: Problems
) -> tuple[str, Writing, str, str] | None:
    """Relation, writing, name and text of a row; None, with a problem reported, if one is wrong."""
    relation, form = row.optional_text("relation"), row.optional_text("form")
    name, language, text = row.text("name"), row.text("language"), row.text("text")
    if relation not in known:
        row.report(
            f"the relation '{relation}' is not among the relations",
            todo=did_you_mean(relation, [id_ for id_ in known if id_]),
        )
        return None
    if not (name and text and row.is_language(language)):
        return None
    names = known[relation]
    spelled = names.get(unicodedata.normalize("NFC", name))
    if spelled is None:
        of = f"of '{relation}'" if relation else "of the facts"
        replace(row, problems=unused).report(
            f"'{name}' is no subject or object {of}", todo=did_you_mean(name, list(names.values()))
        )
        return None
    return relation, (language, form), spelled, text
