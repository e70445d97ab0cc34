"""The figure of agreement between patterns or forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.report.chart_parts import (
    LINE_HEIGHT,
    chart_data,
    chooser,
    finished,
    lined_axis,
    percent_tip,
    percents,
    tips,
    wrapped,
)
from consilience.types import FACT_WORDS, SuiteWords

if TYPE_CHECKING:
    import altair


def matrix_caption(words: SuiteWords) -> str:
    """How to read the figure."""
    caption = (
        f"How often two {words.variant}s of a {words.item} get the same {words.answer}, in "
        "percent. The diagonal is left out."
    )
    empty = f" A cell is empty where no {words.item} has both {words.variant}s."
    return caption + empty if words.pool else caption


def matrix_figure(
    pairs: pl.DataFrame,
    patterns: pl.DataFrame,
    group: str,
    names: Mapping[str, str],
    words: SuiteWords = FACT_WORDS,
) -> altair.Chart:
    """How often each two patterns or forms of a group agree; menus choose group and run.

    ``pairs`` and ``patterns``: those of the analysis of patterns, with ``run``. ``group`` is shown
    first. ``names``: how the menu names the groups.
    """
    import altair as alt

    groups = pairs["group"].unique(maintain_order=True).to_list()
    runs = pairs["run"].unique(maintain_order=True).to_list()
    menus = (
        [
            chooser(
                "group",
                groups,
                words.group.capitalize(),
                group,
                [names.get(name, name) for name in groups],
            )
        ]
        if len(groups) > 1 or words.pool
        else []
    )
    menus += [chooser("run", runs, "Run")] if len(runs) > 1 else []
    base = _matrix_base(pairs, patterns, menus)
    cells = base.mark_rect().encode(
        color=alt.Color(
            "v:Q",
            title="agreement, percent",
            scale=alt.Scale(scheme="viridis", domain=[0, 100]),
            legend=alt.Legend(orient="bottom", gradientLength=200),
        ),
        tooltip=[
            *tips({"group": words.group, "pattern": words.variant, "b": "with"}),
            percent_tip("v", "agree"),
        ],
    )
    text = (
        base.transform_filter("datum.v != null")
        .mark_text(fontSize=9)
        .encode(
            text=alt.Text("shown:N"),
            color=alt.when("datum.v > 55").then(alt.value("black")).otherwise(alt.value("white")),
        )
    )
    return finished(
        alt.layer(cells, text).add_params(*menus),
        width=alt.Step(26),
        height=alt.Step(
            LINE_HEIGHT * max(wrapped(text).count("\n") + 1 for text in patterns["variant"]) + 6
        ),
        description=matrix_caption(words),
    )


def _matrix_base(pairs: pl.DataFrame, patterns: pl.DataFrame, menus: Sequence[Any]) -> Any:
    """Each pair of patterns in two cells; the patterns are listed once for all runs."""
    import altair as alt

    number = (pl.col("variant_index") + 1).cast(pl.String)
    text = pl.col("variant").map_elements(wrapped, pl.String)
    labels = patterns.filter(pl.col("run") == pairs["run"][0]).select(
        key=pl.col("group") + " " + number, pattern=number + "  " + text
    )
    rows = pairs.select(
        "run",
        "group",
        one=pl.col("first") + 1,
        two=pl.col("second") + 1,
        v=percents("agreement"),
        shown=pl.col("agreement").map_elements(lambda value: f"{100 * value:.0f}", pl.String),
    )
    base = alt.Chart(chart_data(rows)).encode(
        x=alt.X("b:O", title=None, axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y(
            "pattern:N",
            title=None,
            sort=alt.EncodingSortField("a", op="min"),
            axis=lined_axis(),
        ),
    )
    for menu in menus:
        base = base.transform_filter(menu)
    return (
        base.transform_calculate(a="[datum.one, datum.two]", b="[datum.two, datum.one]")
        .transform_flatten(["a", "b"])
        .transform_calculate(key="datum.group + ' ' + datum.a")
        .transform_lookup("key", alt.LookupData(chart_data(labels), "key", ["pattern"]))
    )
