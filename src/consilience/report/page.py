"""One self-contained page: what it is made of, and how it becomes HTML that asks no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from consilience.errors import ConsilienceError
from consilience.report.figures import InScript, optional, spec_of
from consilience.types import visible

if TYPE_CHECKING:
    import altair

LARGEST = 5_000_000
"""Bytes of a page that still opens and travels well."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table, and the number that it is sorted by; None for text.

    ``missing``: a number that there is none of; it is sorted behind all others.
    """

    text: str
    number: float | None = None
    missing: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it stands at the right."""
        return self.number is not None or self.missing


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. The first column names the row; ``sortable``: its headings are buttons."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sortable: bool = True

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers."""
        return any(row[column].is_number for row in self.rows)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what is to be seen in it. ``id`` and ``title`` are its own as a file, too."""

    id: str
    title: str
    chart: altair.Chart
    caption: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; ``code``: a command, which keeps its lines."""

    paragraphs: Sequence[str]
    code: bool = False


@dataclass(frozen=True, slots=True)
class Points:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Folded:
    """What is shown when it is asked for."""

    summary: str
    parts: Sequence[Part]


Part = Grid | Figure | Facts | Text | Points | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, what it is about, and its parts."""

    id: str
    heading: str
    intro: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    notes: Sequence[str] = (
        "Numbers are percentages with 95 % intervals. Made by consilience, whose docs/report.md "
        "explains each of them.",
    )

    @property
    def figures(self) -> list[Figure]:
        """All figures, in their order."""
        return [
            part for section in self.sections for part in section.parts if isinstance(part, Figure)
        ]


def render(page: Page) -> str:
    """The page as HTML, at most ``LARGEST`` bytes. Everything that came from data is escaped.

    Control characters and bidi controls of data become U+FFFD.
    """
    jinja = optional("jinja2")
    optional("vl_convert")
    environment = jinja.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
        finalize=_shown,
    )
    environment.tests["grid"] = lambda part: isinstance(part, Grid)
    environment.tests["figure"] = lambda part: isinstance(part, Figure)
    environment.tests["facts"] = lambda part: isinstance(part, Facts)
    environment.tests["text"] = lambda part: isinstance(part, Text)
    environment.tests["points"] = lambda part: isinstance(part, Points)
    template = environment.from_string(
        (files("consilience.report") / "page.html").read_text(encoding="utf-8")
    )
    charts = {
        each.id: json.dumps(
            spec_of(each.chart), cls=InScript, separators=(",", ":"), allow_nan=False
        )
        for each in page.figures
    }
    markup = jinja.utils.markupsafe.Markup
    text: str = template.render(
        page=page,
        charts={name: markup(chart) for name, chart in charts.items()},
        vega=markup(_vega()) if charts else "",
    )
    if len(text.encode()) > LARGEST:
        raise ConsilienceError(
            f"a page of {len(text.encode()) / 1e6:.1f} MB",
            expected=f"at most {LARGEST / 1e6:.0f} MB",
            todo="Report fewer runs at once.",
        )
    return text


def _shown(value: object) -> object:
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return visible(str(value)) if is_text else value


@cache
def _vega() -> str:
    """What draws the charts: vega, vega-lite and vega-embed, as vl-convert carries them."""
    bundle: str = optional("vl_convert").javascript_bundle("window.embedChart = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")
