"""What the figures of a report share: data, axes, colours, shapes, tooltips and style."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import polars.selectors as cs

from consilience.report.figures import BLACK, COLOURS, INK, Rows

RUN_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
"""A shape for each run."""


REFERENCES = "line: expected by chance; diamond: majority baseline"
"""The references of a figure of intervals."""

MEASURED = "measured"
"""The source of a number that is not a paper's."""

LINES = "split(datum.label, '\\n')"
"""How Vega shows a label of several lines."""

LINE_HEIGHT = 13
"""Pixels from a line of a label to the next."""

LABEL = 34
"""Characters in a line of a label."""


def wrapped(text: str) -> str:
    """A label in as few lines of at most ``LABEL`` characters as possible, of similar length."""
    words = " ".join(text.split())
    lines = textwrap.wrap(words, LABEL)
    widths = range(len(words) // max(1, len(lines)), LABEL)
    even = (textwrap.wrap(words, width) for width in widths if width > 0)
    return "\n".join(next((wrap for wrap in even if len(wrap) == len(lines)), lines)) or text


def chooser(
    field: str, options: Sequence[str], name: str, first: str = "", labels: Sequence[str] = ()
) -> Any:
    """A menu that chooses the rows with one value of a field; ``first`` is chosen first."""
    import altair as alt

    shown = list(labels) or list(options)
    bind = alt.binding_select(options=list(options), labels=shown, name=f"{name} ")
    value = [{field: first or options[0]}]
    return alt.selection_point(name=field, fields=[field], bind=bind, value=value)


def lined_axis() -> Any:
    """An axis of labels of several lines, which are centred at their place."""
    import altair as alt

    lifted = [
        {"test": f"length({LINES}) == {lines}", "value": -LINE_HEIGHT * (lines - 1) / 2}
        for lines in range(2, 7)
    ]
    return alt.Axis(
        labelExpr=LINES,
        labelLimit=0,
        labelLineHeight=LINE_HEIGHT,
        labelOffset={"condition": lifted, "value": 0},
        ticks=False,
    )


def with_line(rows: pl.DataFrame, value: str) -> pl.DataFrame:
    """With the bounds of the line that is drawn: ``low`` and ``high``, else the value alone."""
    return rows.with_columns(start=pl.coalesce("low", value), stop=pl.coalesce("high", value))


def percents(*names: str) -> pl.Expr:
    """Fractions in percent, rounded as tables round: to one digit, halves to the even one."""
    return (pl.col(*names) * 100).round(1, mode="half_to_even").fill_nan(None)


def chart_data(rows: pl.DataFrame) -> Any:
    """Rows for a chart; JSON has no NaN."""
    import altair as alt

    known = rows.with_columns(cs.float().fill_nan(None))
    return alt.InlineData(values=Rows.of(known.to_dicts()))


def percent_axis() -> dict[str, Any]:
    """An axis from 0 to 100 percent."""
    import altair as alt

    scale = alt.Scale(domain=[0, 100])
    return {"scale": scale, "axis": alt.Axis(values=list(range(0, 101, 20)))}


def run_colour(runs: Sequence[str]) -> Any:
    """A colour for each run, with a legend if there are several; black is the ink."""
    import altair as alt

    legend = alt.Legend(title=None, orient="top", labelLimit=0)
    colours = [INK if colour == BLACK else colour for colour in COLOURS]
    return alt.Color(
        "run:N",
        scale=alt.Scale(domain=runs, range=[colours[at % len(colours)] for at in range(len(runs))]),
        legend=legend if len(runs) > 1 else None,
    )


def run_shape(runs: Sequence[str]) -> Any:
    """A shape for each run, with a legend if there are several."""
    import altair as alt

    shapes = [RUN_SHAPES[at % len(RUN_SHAPES)] for at in range(len(runs))]
    legend = alt.Legend(title=None, orient="top", labelLimit=0) if len(runs) > 1 else None
    return alt.Shape("run:N", scale=alt.Scale(domain=runs, range=shapes), legend=legend)


def tips(names: Mapping[str, str]) -> list[Any]:
    """Tooltips: fields and their titles."""
    import altair as alt

    return [alt.Tooltip(f"{name}:N", title=shown) for name, shown in names.items()]


def percent_tip(name: str, title: str = "") -> Any:
    """A tooltip of a percentage."""
    import altair as alt

    return alt.Tooltip(f"{name}:Q", title=title or name, format=".1f")


def finished(chart: Any, *, width: Any, height: Any, description: str) -> Any:
    """A chart of one plane, with its size and style."""
    return styled(chart.properties(width=width, height=height), description)


def styled(chart: Any, description: str) -> Any:
    """A chart with our style; its text and lines have the colour of the text around it."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11}
    return (
        chart.properties(description=description, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(
            **text,
            titleFontWeight="normal",
            domainColor=INK,
            tickColor=INK,
            gridColor=INK,
            gridOpacity=0.15,
        )
        .configure_legend(**text, columns=2)
        .configure_header(**text, labelFontWeight="bold", labelAngle=0, labelAlign="left")
        .configure_title(color=INK, subtitleColor=INK)
    )
