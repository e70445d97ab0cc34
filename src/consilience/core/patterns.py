"""Cloze patterns: reading them, and the names that fill them."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from consilience.core.errors import ConsilienceError
from consilience.core.text import closes_sentence

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

Names = dict[str, dict[str, str]]
"""Language -> name in Unicode form NFC -> its text."""


def written_names(
    names: Names,
    relation: str,
    facts: Collection[tuple[str, str]],
    places: Mapping[Pattern, str],
    problems: list[ConsilienceError],
) -> Names:
    """The names that the patterns of a relation need (``Relation.names``).

    A name without a text in a language is the same name. Two objects with one text are reported.
    ``names``: of the suite. ``facts``: subjects and objects. ``places``: the patterns, and where
    each is.
    """
    found: Names = {}
    for pattern in places:
        language = pattern.language
        if language in found or not (texts := names.get(language)):
            continue
        first: dict[str, str] = {}
        found[language] = of_language = {}
        for at, role in ((1, "object"), (0, "subject")):
            for name in dict.fromkeys(fact[at] for fact in facts):
                text = texts.get(unicodedata.normalize("NFC", name), name)
                of_language[name] = text
                other = first.setdefault(unicodedata.normalize("NFC", text), name)
                if role == "object" and other != name:
                    error = ConsilienceError(
                        f"the objects '{other}' and '{name}' of '{relation}' are both '{text}' in "
                        f"'{language}'",
                        expected="another text for each, because an answer names one of them",
                        where=places[pattern],
                        todo="Write one of them in another way, or remove its facts.",
                    )
                    problems.append(error)
    return found
