"""The figure of agreement between patterns or forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

if TYPE_CHECKING:
    import altair


@dataclass(frozen=True, slots=True)
class MatrixWords:
    """What a figure of agreement calls things."""

    group: str
    """A group of items."""
    variant: str
    """A row and column."""
    caption: str
    """How to read it."""


MATRIX_OF_FACTS = MatrixWords(
    "relation",
    "pattern",
    "How often two patterns of a relation get the same answer, in percent. The diagonal is "
    "left out. A cell is empty where no fact has both patterns.",
)
"""The words for facts."""

MATRIX_OF_PAIRS = MatrixWords(
    "task",
    "form",
    "How often two forms of a sentence pair get the same label, in percent. The diagonal is "
    "left out.",
)
"""The words for sentence pairs."""

MATRIX_OF_QUESTIONS = MatrixWords(
    "group",
    "variant",
    "How often two variants of a question get the same answer, in percent. The diagonal is left "
    "out. A cell is empty where no question has both variants.",
)
"""The words for questions."""


def matrix_figure(
    pairs: pl.DataFrame,
    patterns: pl.DataFrame,
    group: str,
    names: Mapping[str, str],
    kind: MatrixWords = MATRIX_OF_FACTS,
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
                kind.group.capitalize(),
                group,
                [names.get(name, name) for name in groups],
            )
        ]
        if len(groups) > 1 or kind is not MATRIX_OF_PAIRS
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
            *tips({"group": kind.group, "pattern": kind.variant, "b": "with"}),
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
        description=kind.caption,
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
