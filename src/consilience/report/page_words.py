"""A page in the words of its suite: it is written for facts in patterns of relations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from consilience.report.columns import in_words
from consilience.report.page import (
    Beside,
    Facts,
    Figure,
    Folded,
    Page,
    Part,
)
from consilience.report.table import Table
from consilience.types import FACT_WORDS, SuiteWords


def page_in_words(page: Page, words: SuiteWords) -> Page:
    """The page with the words that a kind of suite has for its groups, items and variants.

    Headings, captions and notes are changed; the cells of tables and the texts of commands are not.
    """
    text = _Words(words)
    sections = [
        replace(
            section,
            heading=text(section.heading),
            intro=text(section.intro),
            parts=text.parts(section.parts),
        )
        for section in page.sections
    ]
    return replace(page, sections=sections)


class _Words:
    """Replaces the words for facts."""

    def __init__(self, words: SuiteWords) -> None:
        self.words = words
        pairs = zip(FACT_WORDS.nouns, words.nouns, strict=True)
        known = {one + s: other + s for one, other in pairs for s in ("", "s")}
        self.known = known | {one.capitalize(): other.capitalize() for one, other in known.items()}
        self.pattern = re.compile(rf"\b({'|'.join(self.known)})\b")

    def __call__(self, text: str) -> str:
        return self.pattern.sub(lambda match: self.known[match[1]], text)

    def parts(self, parts: Sequence[Part]) -> list[Part]:
        """Parts of a section in these words."""
        return [self.part(part) for part in parts]

    def part(self, part: Part) -> Part:
        """A part of a section in these words; texts and lists of the run's own stay."""
        match part:
            case Table():
                table = in_words(part, self.words)
                return replace(
                    table, title=self(table.title), notes=[self(note) for note in table.notes]
                )
            case Figure():
                return replace(part, title=self(part.title), caption=self(part.caption))
            case Folded():
                return Folded(self(part.summary), self.parts(part.parts))
            case Beside():
                return Beside(self.parts(part.parts))
            case Facts():
                return Facts([(self(name), value) for name, value in part.rows])
        return part
