"""A report as one HTML file that needs no network."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from consilience.errors import ConsilienceError
from consilience.report.figures import InScript, spec_of
from consilience.report.page import Beside, Facts, Figure, Links, Page, Points, Text, Tiles
from consilience.report.table import (
    Cell,
    Column,
    Table,
    all_notes,
    number_text,
    spread_of,
    text_of,
    without_empty_columns,
)
from consilience.text import visible

LARGEST = 5_000_000
"""Bytes of a page that still opens and travels well."""


@dataclass(frozen=True, slots=True)
class HtmlCell:
    """A cell of a table as the page shows it."""

    text: str
    is_number: bool
    """Whether it is right-aligned."""
    number: float | None
    """What rows are sorted by; None for text and for no data, which comes last."""
    interval: str = ""
    """The interval below a number; empty without one."""


def html_rows(table: Table) -> Sequence[Sequence[HtmlCell]]:
    """The rows of a table as the page shows them."""
    return [
        [
            HtmlCell(_text(cell, column), column.is_number, cell.number, _interval(cell, column))
            for cell, column in zip(table.cells(at), table.columns, strict=True)
        ]
        for at in range(len(table.rows))
    ]


def _text(cell: Cell, column: Column) -> str:
    spread = spread_of(cell, column)
    return text_of(cell, column) + (f" ± {spread}" if spread else "")


def _interval(cell: Cell, column: Column) -> str:
    if cell.number is None or cell.value is None or not cell.has_interval:
        return ""
    return text_of(replace(cell, value=None, mark=""), column)


def render(page: Page) -> str:
    """The page as HTML, at most ``LARGEST`` bytes. Everything that came from data is escaped.

    Control characters and bidi controls of data become U+FFFD.
    """
    import jinja2 as jinja
    import markupsafe

    environment = jinja.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
        finalize=_visible,
    )
    environment.filters["rows"] = html_rows
    environment.filters["notes"] = all_notes
    environment.filters["filled"] = without_empty_columns
    environment.tests["table"] = lambda part: isinstance(part, Table)
    environment.tests["figure"] = lambda part: isinstance(part, Figure)
    environment.tests["facts"] = lambda part: isinstance(part, Facts)
    environment.tests["text"] = lambda part: isinstance(part, Text)
    environment.tests["tiles"] = lambda part: isinstance(part, Tiles)
    environment.tests["beside"] = lambda part: isinstance(part, Beside)
    environment.tests["links"] = lambda part: isinstance(part, Links)
    environment.tests["points"] = lambda part: isinstance(part, Points)
    template = environment.from_string(
        (files("consilience.report") / "page.html").read_text(encoding="utf-8")
    )
    charts = {
        figure.id: json.dumps(_fluid(figure), cls=InScript, separators=(",", ":"), allow_nan=False)
        for figure in page.figures
    }
    markup = markupsafe.Markup
    text: str = template.render(
        number=lambda value: "-" if math.isnan(value) else number_text(value, "number"),
        within=lambda value: f"{min(100.0, max(0.0, value)):.1f}",
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


def _fluid(figure: Figure) -> dict[str, Any]:
    """A chart as Vega-Lite whose plane takes the width of the page, if it may."""
    spec = spec_of(figure.chart)
    if figure.is_fluid:
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return spec


def _visible(value: object) -> object:
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return visible(str(value)) if is_text else value


@cache
def _vega() -> str:
    """The libraries that draw the charts (vega, vega-lite, vega-embed), as vl-convert has them."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.embedChart = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")
