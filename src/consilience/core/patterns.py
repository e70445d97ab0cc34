"""Cloze patterns: reading them, and the names that fill them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields

from consilience.core.errors import ConsilienceError
from consilience.core.text import closes_sentence, counted, listed

SUBJECT_SLOT, OBJECT_SLOT = "[X]", "[Y]"
ENGLISH = "en"  # The language of patterns and facts that name none


@dataclass(frozen=True, slots=True, repr=False)
class Pattern:
    """A cloze pattern with one ``[X]`` (subject) and one ``[Y]`` (object)."""

    text: str
    lemma: str = ""
    extended_lemma: str = ""  # The lemma with its particles and prepositions
    tense: str = ""
    language: str = ENGLISH
    object_form: str = ""
    """The form that the object is written in, such as ``dative``; empty for the base form."""
    subject_form: str = ""
    parts: tuple[str, str, str] = field(init=False)
    """The literal text before, between and after the two slots."""
    object_first: bool = field(init=False)  # Whether the object's slot precedes the subject's

    def __post_init__(self) -> None:
        _check_slots(self.text)
        subject_at, object_at = self.text.index(SUBJECT_SLOT), self.text.index(OBJECT_SLOT)
        first, second = sorted((subject_at, object_at))
        parts = (self.text[:first], self.text[first + 3 : second], self.text[second + 3 :])
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "object_first", object_at < subject_at)

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"

    @classmethod
    def parse(cls, text: str, *, where: str = "", **fields: str) -> Pattern:
        """Parse ``"[X] was born in [Y]."``; ``where``: its place, for a message."""
        try:
            return cls(text, **fields)
        except ConsilienceError as error:
            raise error.replaced(where=where) from error

    @property
    def record(self) -> dict[str, str]:
        """Its fields that are not at their defaults, as values of JSON."""
        known = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        usual = {one.name: one.default for one in fields(self)}
        return {name: value for name, value in known.items() if value != usual[name]}

    @property
    def name(self) -> str:
        """What the answers table calls the variant."""
        return self.text

    def fill(self, subject: str, object_: str) -> str:
        left, right = self.around_object(subject)
        return left + object_ + right

    def fill_blank(self, subject: str, blank: str) -> str:
        """The sentence with a mask or blank for the object."""
        left, right = self.around_object(subject)
        return left + blank + right

    def around_object(self, subject: str) -> tuple[str, str]:
        """The text on the left and on the right of the object slot, with the subject filled in."""
        start, middle, end = self.parts
        if self.object_first:
            return start, middle + subject + end
        return start + subject + middle, end

    @property
    def object_last(self) -> bool:
        """Whether nothing but spaces and closing punctuation follows the object.

        Then a causal model has read all that the sentence says when it is asked for the object.
        Closing punctuation of any script ends a sentence (``ENDINGS``), or closes a quotation or
        a bracket that was opened before the object: brackets of category Pe, and all quotation
        marks, since one that nothing follows cannot open a quotation, whichever way it faces
        (German closes with U+201C). A comma, a colon, a per cent sign or a dash is none.
        """
        return not self.object_first and all(map(closes_sentence, self.parts[2]))

    @property
    def article(self) -> str | None:
        """``a`` or ``an`` where exactly that word precedes the one that holds ``[Y]``.

        The test of ParaRel's released evaluation, which splits at single spaces. Patterns in other
        languages than English have none: ``an`` is a preposition in German.
        """
        if self.language.partition("-")[0] != ENGLISH:
            return None
        words = self.text.split(" ")
        at = next(index for index, word in enumerate(words) if OBJECT_SLOT in word)
        before = words[at - 1] if at else ""
        return before if before in ("a", "an") else None


def _check_slots(text: object) -> None:
    """Raise for a pattern that does not have each slot once."""
    if not isinstance(text, str):
        raise ConsilienceError(
            f"a pattern of type {type(text).__name__}",
            expected="text such as '[X] was born in [Y].'",
        )
    for slot, role in zip((SUBJECT_SLOT, OBJECT_SLOT), ROLES, strict=True):
        count = text.count(slot)
        if count != 1:
            raise ConsilienceError(
                f"the pattern '{text}' has {count} {slot}",
                expected=f"exactly one {slot} for the {role}",
                todo="Correct the pattern.",
            )


ROLES = ("subject", "object")

Writing = tuple[str, str]
"""A language and a form in which names are written, such as ``("de", "dative")``; the base form is
empty."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of a suite, as they are in its files."""

    language: str  # The language of the facts: without a row, its base form is the name itself
    rows: Mapping[Writing, Mapping[str, str]] = field(default_factory=dict)
    """Writing -> name in Unicode form NFC -> its text."""

    def of_relation(
        self,
        relation: str,
        facts: Collection[tuple[str, str]],
        places: Mapping[Pattern, str],
        problems: list[ConsilienceError],
    ) -> dict[Writing, dict[str, str]]:
        """The names that the patterns of a relation need (``Relation.names``).

        What is missing is reported. ``facts``: subjects and objects. ``places``: the patterns, and
        where each is.
        """
        names: dict[Writing, dict[str, str]] = {}
        wanted = {role: dict.fromkeys(fact[at] for fact in facts) for at, role in enumerate(ROLES)}
        needed: dict[tuple[str, Writing], Pattern] = {}
        for pattern in places:
            needed.setdefault(("object", (pattern.language, pattern.object_form)), pattern)
            needed.setdefault(("subject", (pattern.language, pattern.subject_form)), pattern)
        for (role, writing), pattern in needed.items():
            rows = self.rows.get(writing, {})
            is_own = writing == (self.language, "")
            if is_own and not rows:
                continue
            plain = {name: unicodedata.normalize("NFC", name) for name in wanted[role]}
            texts = {name: rows.get(plain[name], name) for name in wanted[role]}
            lost = [] if is_own else [name for name in texts if plain[name] not in rows]
            if lost:
                where = places[pattern]
                problems.append(_missing(role, relation, writing, lost, len(texts), where))
            first: dict[str, str] = {}
            for name, text in texts.items() if role == "object" else ():
                other = first.setdefault(unicodedata.normalize("NFC", text), name)
                if other != name:
                    problems.append(_same(relation, writing, text, (other, name), places[pattern]))
            names.setdefault(writing, {}).update(texts)
        return names


def _same(
    relation: str, writing: Writing, text: str, names: tuple[str, str], where: str
) -> ConsilienceError:
    """The error for two objects with one text."""
    return ConsilienceError(
        f"the objects '{names[0]}' and '{names[1]}' of '{relation}' are both '{text}' in "
        f"{shown_writing(writing)}",
        expected="another text for each, because an answer names one of them",
        where=where,
        todo="Write one of them in another way, or remove its facts.",
    )


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
        f"{shown_writing(writing)}: {listed(shown, 3)}",
        expected="a row for each in the table names",
        where=where,
        todo=f"Add rows such as {example}.",
    )


def shown_writing(writing: Writing) -> str:
    """``'de'`` or ``'de', form 'dative'``."""
    language, form = writing
    return f"'{language}'" + (f", form '{form}'" if form else "")
