"""The figure of factors: what answers agree on, and what their variation comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.report.chart_parts import (
    chart_data,
    percent_axis,
    percent_tip,
    percents,
    run_colour,
    run_shape,
    styled,
    tips,
    with_line,
)
from consilience.report.factor_tables import NOISE, FactorView, parts_of

if TYPE_CHECKING:
    import altair

PANELS = {
    "": "consistency",
    "answer": "variation of the answer",
    "correctness": "variation of correctness",
}
"""The planes of the figure, by outcome."""

WIDTH = 190
"""Width of a plane in pixels."""

SCHEMA = {
    "run": pl.String,
    "panel": pl.String,
    "name": pl.String,
    **dict.fromkeys(("value", "low", "high", "chance", "main"), pl.Float64),
}
"""The rows of the figure. ``main`` is drawn as a bar, ``chance`` as a tick."""


def factor_rows(views: Sequence[FactorView]) -> pl.DataFrame:
    """The numbers of the figure (``SCHEMA``)."""
    rows = [row for view in views for row in _rows(view)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _rows(view: FactorView) -> Iterator[dict[str, Any]]:
    parts = parts_of(view.tables)
    number = ("share", "share_low", "share_high") if view.is_exact else ("value", "low", "high")
    for row in view.tables.consistency.iter_rows(named=True):
        factor = row["factor"]
        numbers = {name: row[name] for name in ("value", "low", "high", "chance")}
        yield {"run": view.name, "panel": PANELS[""], "name": factor, **numbers}
        for outcome in ("answer", "correctness"):
            total = parts[outcome, "total", factor]
            main = parts.get((outcome, "main", factor))
            yield {
                "run": view.name,
                "panel": PANELS[outcome],
                "name": factor,
                **dict(
                    zip(("value", "low", "high"), (total[name] for name in number), strict=True)
                ),
                "main": main["share"] if main else None,
            }
    for (outcome, effect, factors), part in parts.items():
        if effect in ("interactions", "between questions"):
            named = {"run": view.name, "panel": PANELS[outcome], "name": effect + factors}
            yield named | {"main": part["share"]}
    if view.noise.height:
        least = 1 - view.noise["value"].fill_nan(None).max()  # type: ignore[operator]
        yield {"run": view.name, "panel": PANELS[""], "name": NOISE, "value": least}


def factor_figure(views: Sequence[FactorView]) -> altair.Chart:
    """Consistency by factor, and shares of the variation of the answer and of correctness.

    A mark is the consistency or the total effect, with its 95 % interval; a bar is the main effect,
    a tick the consistency expected by chance.
    """
    import altair as alt

    table = factor_rows(views)
    numbers = ("value", "low", "high", "chance", "main")
    rows = table.with_columns(percents(*numbers))
    runs = [view.name for view in views]
    names = rows["name"].unique(maintain_order=True).to_list()
    last = [name for name in ("interactions", "between questions", NOISE) if name in names]
    order = [*(name for name in names if name not in last), *last]
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    y = alt.Y("name:N", title=None, sort=order, axis=alt.Axis(labelLimit=0, ticks=False))
    base = alt.Chart().encode(y=y, yOffset=across)
    colour = run_colour(runs)
    shared = percent_axis() | {"axis": alt.Axis(values=[0, 50, 100])}
    layered = alt.layer(
        base.mark_bar(opacity=0.35, height=9 if len(runs) == 1 else alt.Undefined).encode(
            x=alt.X("main:Q", title="percent", **shared), color=colour
        ),
        base.mark_rule(strokeWidth=1.5).encode(
            x=alt.X("start:Q", title="percent", **shared), x2="stop:Q", color=colour
        ),
        base.mark_tick(thickness=2, size=11, opacity=0.8).encode(x="chance:Q", color=colour),
        base.mark_point(filled=True, opacity=1, size=40).encode(
            x="value:Q",
            color=colour,
            shape=run_shape(runs),
            tooltip=tips({"run": "run", "name": "factor"})
            + [percent_tip(name) for name in numbers],
        ),
        data=chart_data(with_line(rows, "value")),
    ).properties(width=WIDTH, height=alt.Step(22 if len(runs) == 1 else 11 * len(runs)))
    panels = [name for name in PANELS.values() if name in rows["panel"]]
    faceted = layered.facet(
        alt.Facet("panel:N", title=None, sort=panels, header=alt.Header(labelAnchor="start")),
        columns=len(panels),
        spacing=14,
    )
    return styled(faceted, "Consistency by factor, and what the variation of answers comes from.")
