"""A report as a value: a page of sections, whose parts are tables, figures and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.report.table import Table

if TYPE_CHECKING:
    import altair


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart."""

    id: str
    """Its name on the page and as a file."""
    title: str
    """Its title as a file; empty if the chart has one."""
    chart: altair.Chart
    """What is drawn."""
    caption: str
    """What is to be seen."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    rows: Sequence[tuple[str, str]]
    """Name and value of each."""


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs."""

    paragraphs: Sequence[str]
    """The texts."""
    code: bool = False
    """Whether they are commands, which keep their lines."""


@dataclass(frozen=True, slots=True)
class Points:
    """A list."""

    items: Sequence[str]
    """The texts."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts that a reader unfolds."""

    summary: str
    """What is shown of them before."""
    parts: Sequence[Part]
    """The parts."""


Part = Table | Figure | Facts | Text | Points | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading of its own."""

    id: str
    """Its anchor."""
    heading: str
    """What stands above it and in the menu."""
    intro: str
    """What it is about; may be empty."""
    parts: Sequence[Part]
    """What it consists of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    """The question that the page answers, of which models."""
    subtitle: str
    """What was asked."""
    sections: Sequence[Section]
    """The sections in their order."""
    notes: Sequence[str] = (
        "Numbers are percentages with 95 % intervals. Made by consilience, whose docs/report.md "
        "explains each of them.",
    )
    """What stands below all sections."""

    @property
    def figures(self) -> list[Figure]:
        """All figures, in their order."""
        return [
            part for section in self.sections for part in section.parts if isinstance(part, Figure)
        ]
