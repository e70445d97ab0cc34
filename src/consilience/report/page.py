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
    """The chart, as wide as in a file."""
    caption: str
    """How to read it."""
    is_fluid: bool = True
    """Whether its plane is as wide as the page has room for; else the chart only shrinks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values."""

    rows: Sequence[tuple[str, str]]
    """Names and values."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline number with its sentence; numbers are in percent, NaN without data."""

    label: str
    value: float
    low: float
    """Lower bound of its 95 % confidence interval."""
    high: float
    """Upper bound of the interval."""
    chance: float
    baseline: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Tiles:
    """Headline numbers side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts that are side by side where the page is wide enough."""

    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs."""

    paragraphs: Sequence[str]
    code: bool = False
    """Whether they are commands, which keep their lines."""


@dataclass(frozen=True, slots=True)
class Points:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Links:
    """A list of links to other pages."""

    rows: Sequence[tuple[str, str]]
    """Texts, and addresses relative to the page."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts that a reader unfolds."""

    summary: str
    """The line that unfolds them."""
    parts: Sequence[Part]


Part = Table | Figure | Facts | Text | Points | Links | Folded | Tiles | Beside


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading."""

    id: str
    """Its anchor."""
    heading: str
    """Its heading, also in the menu."""
    intro: str
    """One paragraph below the heading; may be empty."""
    parts: Sequence[Part]
    """The content."""


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    """The question that the page answers, about which models."""
    subtitle: str
    """The suite and its size."""
    sections: Sequence[Section]
    """The sections in their order."""
    notes: Sequence[str] = (
        "All numbers are percentages unless the heading says otherwise. Made by consilience.",
    )
    """Lines below all sections."""

    @property
    def figures(self) -> list[Figure]:
        """All figures, in their order."""
        return [
            part
            for section in self.sections
            for outer in section.parts
            for part in (outer.parts if isinstance(outer, Beside) else [outer])
            if isinstance(part, Figure)
        ]
