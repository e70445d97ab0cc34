"""How subjects and objects are written in the languages and forms that patterns need."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from consilience.cloze import Pattern
from consilience.errors import ConsilienceError
from consilience.text import counted, listed

NAMED = 3
"""The number of missing names that a message shows."""

Writing = tuple[str, str]
"""A language and a form in which names are written, such as ``("de", "dative")``; the base form is
empty."""


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A row of the table."""

    text: str
    where: str
    """``file:line``."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of a suite, as they are in its files."""

    language: str
    """The language of the facts: without a row, its base form is the name itself."""
    rows: Mapping[tuple[str, Writing], Mapping[str, WrittenName]] = field(default_factory=dict)
    """(relation, writing) -> name -> row; the relation is empty for names of all relations."""

    def of_relation(
        self,
        relation: str,
        facts: Collection[tuple[str, str]],
        places: Mapping[Pattern, str],
        problems: list[ConsilienceError],
    ) -> dict[Writing, dict[str, str]]:
        """The names that the patterns of a relation need (``Relation.names``).

        What is missing, and two objects with one text, are reported. ``facts``: subjects and
        objects. ``places``: the patterns, and where each is.
        """
        names: dict[Writing, dict[str, str]] = {}
        subjects, objects = (dict.fromkeys(fact[at] for fact in facts) for at in (0, 1))
        needed: dict[tuple[str, Writing], Pattern] = {}
        for pattern in places:
            needed.setdefault(("object", (pattern.language, pattern.object_form)), pattern)
            needed.setdefault(("subject", (pattern.language, pattern.subject_form)), pattern)
        for (role, writing), pattern in needed.items():
            rows = self._rows_of(relation, writing)
            is_own = writing == (self.language, "")
            if is_own and not rows:
                continue
            wanted = objects if role == "object" else subjects
            missing = [] if is_own else [name for name in wanted if name not in rows]
            if missing:
                where = places[pattern]
                problems.append(_missing(role, relation, writing, missing, len(wanted), where))
            texts = {name: rows[name].text if name in rows else name for name in wanted}
            names.setdefault(writing, {}).update(texts)
            if role == "object":
                problems += _homonyms(relation, writing, texts, rows)
        return names

    def _rows_of(self, relation: str, writing: Writing) -> dict[str, WrittenName]:
        """The rows of a writing by name; those of the relation come before those of all."""
        return {**self.rows.get(("", writing), {}), **self.rows.get((relation, writing), {})}


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
        f"{shown_writing(writing)}: {listed(shown, NAMED)}",
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
                f"{shown_writing(writing)}",
                expected="another text for each, because an answer names one of them",
                where=row.where if row else "",
                todo="Write one of them in another way, or remove its facts.",
            )


def shown_writing(writing: Writing) -> str:
    """``'de'`` or ``'de', form 'dative'``."""
    language, form = writing
    return f"'{language}'" + (f", form '{form}'" if form else "")
