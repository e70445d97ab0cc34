"""The table ``names``: how subjects and objects are written in a language and a form."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consilience.cloze import Pattern
from consilience.errors import ConsilienceError, did_you_mean
from consilience.suites.rows import Problems, Row, suite_rows
from consilience.text import counted, listed
from consilience.types import Fact, Relation, Writing

NAMED = 3
"""The number of missing names that a message shows."""


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A row of the table."""

    text: str
    """How the name is written."""
    where: str
    """``file:line``."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of a suite, as they are in its files."""

    language: str
    """The language of the facts: without a row, its base form is the name itself."""
    rows: Mapping[tuple[str, Writing], Mapping[str, WrittenName]] = field(default_factory=dict)
    """(relation, writing) -> name -> row; the relation is empty for names of all relations."""

    @classmethod
    def read(
        cls, path: Path, language: str, facts: Mapping[str, Sequence[Fact]], problems: Problems
    ) -> NameTable:
        """Read the table; ``facts``: of each relation, whose subjects and objects it may name."""
        known = {id_: _names_in(of_relation) for id_, of_relation in facts.items()}
        known[""] = {
            nfc: name for of_relation in known.values() for nfc, name in of_relation.items()
        }
        rows: dict[tuple[str, Writing], dict[str, WrittenName]] = {}
        for row in suite_rows(path, problems):
            read = _name_in(row, known)
            if read is None:
                continue
            relation, writing, name, text = read
            of_writing = rows.setdefault((relation, writing), {})
            if name in of_writing:
                row.report(
                    f"duplicate name '{name}' in {_shown(writing)}",
                    todo=f"Remove it; the first is {of_writing[name].where}.",
                )
            of_writing[name] = WrittenName(text, row.where)
        return cls(language, rows)

    def of_relation(
        self, relation: Relation, places: Mapping[Pattern, str], problems: Problems
    ) -> dict[Writing, dict[str, str]]:
        """The names that the patterns of a relation need (``Relation.names``).

        What is missing, and two objects with one text, are reported. ``places``: ``file:line`` of
        each pattern.
        """
        names: dict[Writing, dict[str, str]] = {}
        objects = dict.fromkeys(fact.object for fact in relation.facts)
        subjects = dict.fromkeys(fact.subject for fact in relation.facts)
        needed: dict[tuple[str, Writing], Pattern] = {}
        for pattern in relation.patterns:
            needed.setdefault(("object", (pattern.language, pattern.object_form)), pattern)
            needed.setdefault(("subject", (pattern.language, pattern.subject_form)), pattern)
        for (role, writing), pattern in needed.items():
            rows = self._rows_of(relation.id, writing)
            is_own = writing == (self.language, "")
            if is_own and not rows:
                continue
            wanted = objects if role == "object" else subjects
            missing = [] if is_own else [name for name in wanted if name not in rows]
            if missing:
                where = places[pattern]
                problems.append(_missing(role, relation.id, writing, missing, len(wanted), where))
            texts = {name: rows[name].text if name in rows else name for name in wanted}
            names.setdefault(writing, {}).update(texts)
            if role == "object":
                problems += _homonyms(relation.id, writing, texts, rows)
        return names

    def _rows_of(self, relation: str, writing: Writing) -> dict[str, WrittenName]:
        """The rows of a writing by name; those of the relation come before those of all."""
        return {**self.rows.get(("", writing), {}), **self.rows.get((relation, writing), {})}


def missing_names(relation: Relation) -> list[tuple[Writing, str]]:
    """The names of its facts that a relation cannot write as its patterns need them."""
    return [
        (writing, name)
        for pattern in relation.patterns
        for writing, name in _needed(pattern, relation.facts)
        if writing in relation.names and name not in relation.names[writing]
    ]


def _needed(pattern: Pattern, facts: Iterable[Fact]) -> Iterator[tuple[Writing, str]]:
    """The names that a pattern writes, and how."""
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
    row: Row, known: Mapping[str, Mapping[str, str]]
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
        row.report(
            f"'{name}' is no subject or object {of}", todo=did_you_mean(name, list(names.values()))
        )
        return None
    return relation, (language, form), spelled, text


def _missing(
    role: str, relation: str, writing: Writing, missing: Sequence[str], total: int, where: str
) -> ConsilienceError:
    """The error for names that a pattern needs and the table does not have."""
    language, form = writing
    row = {"name": missing[0], "language": language, **({"form": form} if form else {})}
    example = json.dumps(row | {"text": "..."}, ensure_ascii=False)
    shown = [f"'{name}'" for name in missing]
    return ConsilienceError(
        f"{len(missing)} of {counted(total, role)} of '{relation}' without a name in "
        f"{_shown(writing)}: {listed(shown, NAMED)}",
        expected="a row for each in the table names",
        where=where,
        todo=f"Add rows such as {example}.",
    )


def _homonyms(
    relation: str, writing: Writing, texts: Mapping[str, str], rows: Mapping[str, WrittenName]
) -> Iterator[ConsilienceError]:
    """An error for each object that is written like an earlier one."""
    first: dict[str, str] = {}
    for name, text in texts.items():
        other = first.setdefault(unicodedata.normalize("NFC", text), name)
        if other != name:
            row = rows.get(name) or rows.get(other)
            yield ConsilienceError(
                f"the objects '{other}' and '{name}' of '{relation}' are both '{text}' in "
                f"{_shown(writing)}",
                expected="another text for each, because an answer names one of them",
                where=row.where if row else "",
                todo="Write one of them in another way, or remove its facts.",
            )


def _shown(writing: Writing) -> str:
    """``'de'`` or ``'de', form 'dative'``."""
    language, form = writing
    return f"'{language}'" + (f", form '{form}'" if form else "")
