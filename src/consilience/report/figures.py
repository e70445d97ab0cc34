"""Figures as PNG, SVG, PDF, or as a page that needs no network; the drawing of vectors."""

from __future__ import annotations

import hashlib
import io
import json
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.choices import Colour
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.text import visible

if TYPE_CHECKING:
    import altair

COLUMNS: Mapping[Colour, str] = {"subject": "subject", "object": "gold", "pattern": "variant"}
"""What colours may show, and the column that holds it."""

BLACK = "#000000"
"""The one colour that a dark page does not show."""

COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", BLACK, "#a39000",
)  # fmt: skip
"""Okabe and Ito's colours, which colour-blind readers tell apart, with a darker yellow."""

CIRCLE = "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z"
SQUARE = "M-.9,-.9H.9V.9H-.9Z"
DIAMOND = "M0,-1.2L1.2,0L0,1.2L-1.2,0Z"
UP, DOWN = "M0,-1.1L1.1,.9H-1.1Z", "M0,1.1L1.1,-.9H-1.1Z"
PLUS, CROSS = "M0,-1.1V1.1M-1.1,0H1.1", "M-.9,-.9L.9,.9M-.9,.9L.9,-.9"
SHAPES = (
    CIRCLE, UP, SQUARE, PLUS, DIAMOND, CROSS, DOWN, PLUS + CROSS,
    CIRCLE + "M0,-1V1M-1,0H1", SQUARE + CROSS, UP + DOWN, DIAMOND + "M0,-1.2V1.2M-1.2,0H1.2",
    "M-1,-1H1L-1,1H1Z", "M-1,-1V1L1,-1V1Z", CIRCLE + "M-.7,-.7L.7,.7M-.7,.7L.7,-.7",
    SQUARE + "M0,-.9V.9M-.9,0H.9", "M0,-1.2V1.2", "M-1.2,0H1.2",
    "M1,-1.1V1.1L-1,0Z", "M-1,-1.1V1.1L1,0Z",
)  # fmt: skip
"""Outlines in a square from -1 to 1, the most different first: ParaRel has up to 20 patterns."""

INK = "currentColor"
"""The colour of text and lines: that of the text around a figure, on a light or dark page."""

WIDTH = 320
"""Width and height of a figure in pixels of a screen: a column of a page."""


def tsne_figure(table: pl.DataFrame, colour: Colour, title: str) -> altair.Chart:
    """Points in the plane, with a shape for each pattern and a colour for each ``colour``.

    ``table`` has a row a query, with the columns ``x``, ``y``, ``subject``, ``gold`` and
    ``variant``. As in the paper's Figure 3: points of one colour together mean that the vectors are
    grouped by subject (or object), points of one shape that they are grouped by pattern. More than
    eight colours have no legend; they go from dark to light in alphabetical order, so that every
    eye, and every printer, sees whether a group is of one colour or of many. On a page, pointing at
    a point names it, and a click on it brings out all of its colour.
    """
    import altair as alt

    column = COLUMNS[colour]
    patterns = table["variant"].unique(maintain_order=True).to_list()
    values = patterns if colour == "pattern" else sorted(table[column].unique().to_list())
    few = len(values) <= len(COLOURS)
    scale: dict[str, Any] = {"range": COLOURS[: len(values)]}
    if not few:
        scale = {"scheme": alt.SchemeParams("viridis", count=len(values), extent=[0, 0.9])}
    axis = {"axis": None, "scale": alt.Scale(zero=False, nice=False, padding=8)}
    legend = alt.Legend(title="pattern", orient="bottom", columns=1)
    colours = legend if colour == "pattern" else None
    heading = alt.Title(textwrap.wrap(title, 52))
    if colour != "pattern" and few:
        colours = alt.Legend(title=colour, orient="top", columns=4, labelLimit=WIDTH / 4 - 20)
    elif colour != "pattern":
        heading.subtitle = f"{len(values)} {colour}s, from dark to light in alphabetical order"
    chosen = alt.selection_point(fields=[column])
    return (
        alt.Chart(alt.InlineData(values=table.to_dicts()))
        .mark_point(size=30, strokeWidth=1, filled=False)
        .encode(
            x=alt.X("x:Q", **axis),
            y=alt.Y("y:Q", **axis),
            color=alt.Color(f"{column}:N", scale=alt.Scale(domain=values, **scale), legend=colours),
            shape=alt.Shape(
                "variant:N", scale=alt.Scale(domain=patterns, range=SHAPES), legend=legend
            ),
            opacity=alt.when(chosen).then(alt.value(0.9)).otherwise(alt.value(0.1)),
            tooltip=[alt.Tooltip(f"{name}:N", title=shown) for shown, name in COLUMNS.items()],
        )
        .add_params(chosen)
        .properties(
            width=WIDTH,
            height=WIDTH,
            title=heading,
            description=f"t-SNE of vectors, a shape for each pattern, a colour for each {colour}.",
        )
        .configure_title(
            anchor="start", fontSize=12, subtitleFontSize=10, offset=6, color=INK, subtitleColor=INK
        )
        .configure_legend(
            labelLimit=WIDTH - 20,
            symbolLimit=0,
            symbolSize=45,
            offset=6,
            labelColor=INK,
            titleColor=INK,
            symbolBaseStrokeColor=INK,
        )
        .configure_view(stroke=INK, strokeOpacity=0.3)
    )


class InScript(json.JSONEncoder):
    """JSON for a script of a page: no text in it ends that script."""

    def encode(self, o: Any) -> str:
        """JSON with ``<`` escaped."""
        return super().encode(o).replace("<", "\\u003c")


def for_paper(chart: altair.Chart, title: str) -> altair.Chart:
    """A chart on white and with a title, for a file."""
    import altair as alt

    heading = alt.Title(textwrap.wrap(title, 60), anchor="start", fontSize=12)
    titled = chart.properties(title=heading) if title else chart
    return titled.properties(background="white")


FORMATS = (".png", ".svg", ".pdf", ".html")
"""Suffixes of the files of figures; a PNG has four times the resolution of a screen."""


def save_figure(chart: altair.Chart, *paths: Path) -> None:
    """Write a chart in the format of each file's suffix (``FORMATS``); ink is black.

    Each file is complete or absent. The chart is drawn once, as SVG, whatever the formats.
    """
    import altair as alt
    import vl_convert

    for path in paths:
        if path.suffix.lower() not in FORMATS:
            raise ConsilienceError(
                f"a figure as '{path.suffix or path.name}'",
                expected=", ".join(FORMATS),
                where=str(path),
            )
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    svg = ""
    for path in paths:
        suffix = path.suffix.lower()
        if suffix == ".html":
            content = _page_of(chart).encode()
        else:
            svg = svg or vl_convert.vegalite_to_svg(_in_black(chart), vl_version=version)
            content = _still(svg, suffix)
        write_whole(path, content)


def _still(svg: str, suffix: str) -> bytes:
    """A drawing in another format."""
    import vl_convert

    if suffix == ".png":
        return vl_convert.svg_to_png(svg, scale=4)
    return vl_convert.svg_to_pdf(svg) if suffix == ".pdf" else svg.encode()


def _page_of(chart: altair.Chart) -> str:
    """A page with a chart that needs no network."""
    written = io.StringIO()
    in_black(chart).save(
        written,
        format="html",
        inline=True,
        embed_options={"actions": False},
        json_kwds={"cls": InScript},
    )
    return written.getvalue()


def in_black(chart: altair.Chart) -> altair.Chart:
    """A self-contained chart: its ink is black, and its data are plain rows."""
    import altair as alt

    black: altair.Chart = alt.Chart.from_dict(_in_black(chart))
    return black


def _in_black(chart: altair.Chart) -> dict[str, Any]:
    """The specification of a self-contained chart."""
    text = json.dumps(spec_of(chart), sort_keys=True).replace(f'"{INK}"', '"black"')
    spec: dict[str, Any] = json.loads(text)
    return spec


class Rows(str):
    """The rows of a chart as text, which ``spec_of`` replaces by the rows.

    Altair checks and copies every value of a list of rows whenever it derives a chart.
    """

    values: list[dict[str, Any]]

    @classmethod
    def of(cls, values: list[dict[str, Any]]) -> Rows:
        """The rows as the JSON from which Altair derives the name of a data set."""
        rows = cls(json.dumps(values, sort_keys=True, default=str))
        rows.values = values
        return rows

    @property
    def name(self) -> str:
        """The name that Altair gives to the data."""
        return f"data-{hashlib.sha256(self.encode()).hexdigest()[:32]}"


def spec_of(chart: altair.Chart) -> dict[str, Any]:
    """A chart as Vega-Lite, with ``visible`` text: vl-convert aborts the process at an ESC."""
    spec = chart.to_dict(validate=False)  # Altair has checked each part of it
    data = spec.get("datasets", {})
    names = {name: rows.name for name, rows in data.items() if isinstance(rows, Rows)}
    shown: dict[str, Any] = _visible(spec, names)
    return shown


def _visible(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a specification, with visible text; ``names``: new names of data sets."""
    if isinstance(value, dict):
        return {_visible(key, names): _visible(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_visible(item, names) for item in value]
    if isinstance(value, Rows):
        return _visible(value.values, names)
    return _visible_text(names.get(value, value)) if isinstance(value, str) else value


_visible_text = lru_cache(maxsize=2**16)(visible)
