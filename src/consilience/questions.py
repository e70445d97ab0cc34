"""Questions: items that are asked in words, with options to choose from or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

ALIAS_SEPARATOR = "|"
"""Separates the texts of one answer: ``Go|Golang``."""

DEFAULT_LANGUAGE = ""
"""The language of questions whose file names none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer that may be chosen or is right: a text, and others that mean the same."""

    text: str
    """What is shown, and what the answers table calls it."""
    aliases: tuple[str, ...] = ()
    """Other texts that count as this answer."""

    @classmethod
    def parse(cls, text: str) -> Choice:
        """``Go|Golang``: the first text is shown, the others are aliases."""
        first, *others = (part.strip() for part in text.split(ALIAS_SEPARATOR))
        return cls(first, tuple(dict.fromkeys(other for other in others if other != first)))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text and its aliases."""
        return self.text, *self.aliases

    def written(self, text: str) -> Choice:
        """The same answer, shown as ``text``."""
        return Choice(text, tuple(other for other in self.texts if other != text))


@dataclass(frozen=True, slots=True)
class Question:
    """An item of a question suite."""

    item: str
    """Names the question."""
    group: str
    """The group that it is reported in."""
    paraphrases: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Language -> the question in one or several phrasings, the base phrasing first."""
    gold: Choice
    """The right answer; one of ``options`` where there are any."""
    options: tuple[Choice, ...] = ()
    """What may be chosen, in the order of the file; empty for an open question."""
    context: str = ""
    """A text that the question is about."""
    where: str = field(default="", compare=False)
    """``file:line`` of its first row; empty where it comes from no file."""
    written: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict, hash=False)
    """(language, position of a phrasing) -> the texts of the options, or of the gold of an open
    question, in that phrasing. Empty where they are the same in all phrasings."""

    def in_phrasing(self, language: str, paraphrase: int) -> Question:
        """The question with the options or the gold written as in a phrasing.

        The texts in other phrasings are aliases, so an answer in another language counts.
        """
        texts = self.written.get((language, paraphrase))
        if texts is None:
            return self
        if not self.options:
            return replace(self, gold=self.gold.written(texts[0]))
        options = tuple(
            option.written(text) for option, text in zip(self.options, texts, strict=True)
        )
        return replace(self, options=options, gold=options[self.gold_position])

    @property
    def gold_position(self) -> int:
        """The position of the gold among the options."""
        return self.options.index(self.gold)

    @property
    def phrasings(self) -> int:
        """How many phrasings it has, in the language that has most."""
        return max(map(len, self.paraphrases.values()))
