"""Cloze patterns: a sentence with a slot for the subject and one for the object."""

from __future__ import annotations

from dataclasses import dataclass, field

from consilience.errors import ConsilienceError
from consilience.particles import with_particle
from consilience.text import closes_sentence

SUBJECT_SLOT = "[X]"

OBJECT_SLOT = "[Y]"

ENGLISH = "en"
"""The language of patterns and facts that name none."""


@dataclass(frozen=True, slots=True, repr=False)
class Pattern:
    """A cloze pattern with one ``[X]`` (subject) and one ``[Y]`` (object).

    It is parsed once; a missing or duplicate slot raises.
    """

    text: str
    """The pattern with its two slots."""
    lemma: str = ""
    """The lemma of the predicate, as ParaRel annotates it."""
    extended_lemma: str = ""
    """The lemma with its particles and prepositions."""
    tense: str = ""
    form: str = ""
    """The perturbation that made the pattern of another one; empty for a pattern of the suite."""
    language: str = ENGLISH
    """Its language, as a BCP 47 tag."""
    object_form: str = ""
    """The form that the object is written in, such as ``dative``; empty for the base form."""
    subject_form: str = ""
    """The form that the subject is written in."""
    parts: tuple[str, str, str] = field(init=False)
    """The literal text before, between and after the two slots."""
    object_first: bool = field(init=False)
    """Whether the object's slot precedes the subject's."""

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
    def parse(
        cls,
        text: str,
        *,
        lemma: str = "",
        extended_lemma: str = "",
        tense: str = "",
        language: str = ENGLISH,
        object_form: str = "",
        subject_form: str = "",
        where: str = "",
    ) -> Pattern:
        """Parse ``"[X] was born in [Y]."``; ``where``: its place, for a message."""
        _check_slots(text, where)
        return cls(
            text,
            lemma,
            extended_lemma,
            tense,
            language=language,
            object_form=object_form,
            subject_form=subject_form,
        )

    @property
    def name(self) -> str:
        """What the answers table calls the variant: the text, after the perturbation if any."""
        return f"{self.form}: {self.text}" if self.form else self.text

    def fill(self, subject: str, object_: str) -> str:
        """The sentence with both slots filled."""
        left, right = self.around_object(subject)
        return left + object_ + with_particle(object_, right)

    def fill_blank(self, subject: str, blank: str) -> str:
        """The sentence with a mask or a blank for the object.

        A Korean particle after it keeps both forms, because the object decides which one fits.
        """
        left, right = self.around_object(subject)
        return left + blank + right

    def around_object(self, subject: str) -> tuple[str, str]:
        """The text on the left and on the right of the object slot, with the subject filled in.

        A Korean particle after the subject has the form that fits (``particles``).
        """
        start, middle, end = self.parts
        if self.object_first:
            return start, middle + subject + with_particle(subject, end)
        return start + subject + with_particle(subject, middle), end

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


def _check_slots(text: object, where: str = "") -> None:
    """Raise for a pattern that does not have each slot once."""
    if not isinstance(text, str):
        raise ConsilienceError(
            f"a pattern of type {type(text).__name__}",
            expected="text such as '[X] was born in [Y].'",
            where=where,
        )
    for slot, role in ((SUBJECT_SLOT, "subject"), (OBJECT_SLOT, "object")):
        count = text.count(slot)
        if count != 1:
            raise ConsilienceError(
                f"the pattern '{text}' has {count} {slot}",
                expected=f"exactly one {slot} for the {role}",
                where=where,
                todo="Correct the pattern.",
            )
