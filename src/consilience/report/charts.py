"""The figures of a report: interactive on its page, still in a paper.

Text and lines have the colour of the text around them, so that a page may be light or dark; data
have Okabe and Ito's colours and a shape for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from consilience.metrics.descriptions import label_of
from consilience.report.figures import COLOURS, INK, Rows, optional

if TYPE_CHECKING:
    import altair

WIDE, NARROW, HALF = 330, 260, 150
"""Width of a figure's plane in pixels of a screen; with its axis it is as wide as a column."""

LABEL = 480
"""Pixels of a pattern beside the matrix: all of ParaRel's are whole; longer ones are truncated."""

RUN_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


def relation_figure(metrics: pl.DataFrame, shown: Sequence[str]) -> altair.Chart:
    """Each relation's number with its interval, a mark a run; a menu chooses the metric.

    ``metrics``: ``run`` and the columns of the metrics table, of single relations. Relations are in
    the order of the first run.
    """
    alt = optional("altair")
    names = {name: label_of(name) for name in shown}
    rows = metrics.with_columns(
        metric=pl.col("metric").replace_strict(names),
        **{each: (pl.col(each) * 100).round(2).fill_nan(None) for each in ("value", "low", "high")},
    )
    chosen = alt.selection_point(
        name="metric",
        fields=["metric"],
        bind=alt.binding_select(options=list(names.values()), name="Number "),
        value=[{"metric": next(iter(names.values()))}],
    )
    y = alt.Y("group:N", title=None, sort=alt.EncodingSortField("order", op="min"))
    runs = rows["run"].unique(maintain_order=True).to_list()
    first = rows.filter(pl.col("run") == runs[0]).select("metric", "group", order="value")
    rows = rows.join(first, on=["metric", "group"], how="left", maintain_order="left")
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    drawn = _data(_with_line(rows, "value"))
    base = alt.Chart(drawn).encode(y=y, yOffset=across).transform_filter(chosen)
    colour = _colour(runs)
    scale = alt.Scale(domainMax=100, zero=True, nice=False)  # below 0 where it is below chance
    return _finished(
        alt.layer(
            base.mark_rule(strokeWidth=1.5).encode(
                x=alt.X("start:Q", title="percent", scale=scale, axis=alt.Axis(tickCount=5)),
                x2="stop:Q",
                color=colour,
            ),
            base.mark_point(filled=True, opacity=1, size=34).encode(
                x=alt.X("value:Q", scale=scale),
                color=colour,
                shape=_shape(runs),
                tooltip=_tips({"run": "run", "group": "relation", "metric": "number"})
                + [_percent(each) for each in ("value", "low", "high")]
                + [alt.Tooltip("n:Q", title="counted")],
            ),
        ).add_params(chosen),
        width=WIDE,
        height=alt.Step(17 if len(runs) == 1 else 9),
        description="Each relation's number with its 95 % interval, for each run.",
    )


def against_figure(table: pl.DataFrame) -> altair.Chart:
    """Accuracy against consistency, a mark a relation and run.

    ``table``: ``run, group, accuracy, consistency``. A mark on the right and low: it knows, and
    does not say so always; on the left and high: it says the same, and that is wrong.
    """
    alt = optional("altair")
    runs = table["run"].unique(maintain_order=True).to_list()
    rows = table.with_columns((pl.col("accuracy", "consistency") * 100).round(2).fill_nan(None))
    chosen = alt.selection_point(fields=["group"], on="pointerover", nearest=True, empty=False)
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("accuracy:Q", title="accuracy, percent", **_whole()),
        y=alt.Y("consistency:Q", title="consistency, percent", **_whole()),
    )
    marks = base.mark_point(filled=True, size=45).encode(
        color=_colour(runs),
        shape=_shape(runs),
        opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.65)),
        tooltip=[
            *_tips({"run": "run", "group": "relation"}),
            _percent("accuracy"),
            _percent("consistency"),
        ],
    )
    names = base.mark_text(align="left", dx=7, fontSize=11, color=INK).encode(
        text=alt.when(chosen).then("group:N").otherwise(alt.value(""))
    )
    return _finished(
        alt.layer(marks.add_params(chosen), names),
        width=NARROW,
        height=NARROW,
        description="Accuracy against consistency of each relation, for each run.",
    )


def matrix_figure(pairs: pl.DataFrame, patterns: pl.DataFrame, relation: str) -> altair.Chart:
    """How often each two patterns of a relation agree; menus choose relation and run.

    ``pairs`` and ``patterns``: those of the analysis of patterns, with ``run``. ``relation`` is
    shown first.
    """
    alt = optional("altair")
    runs = pairs["run"].unique(maintain_order=True).to_list()
    relations = pairs["group"].unique(maintain_order=True).to_list()
    number = (pl.col("variant_index") + 1).cast(pl.String)
    names = patterns.filter(pl.col("run") == runs[0]).select(
        key=pl.col("group") + " " + number, pattern=number + "  " + pl.col("variant")
    )
    rows = pairs.select(
        "run",
        "group",
        one=pl.col("first") + 1,
        two=pl.col("second") + 1,
        v=(pl.col("agreement") * 100).round(1).fill_nan(None),
    )
    pick = alt.selection_point(
        name="relation",
        fields=["group"],
        bind=alt.binding_select(options=relations, name="Relation "),
        value=[{"group": relation}],
    )
    menus = [pick]
    if len(runs) > 1:
        which = alt.binding_select(options=runs, name="Run ")
        menus.append(
            alt.selection_point(name="run", fields=["run"], bind=which, value=[{"run": runs[0]}])
        )
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("b:O", title=None, axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y(
            "pattern:N",
            title=None,
            sort=alt.EncodingSortField("a", op="min"),
            axis=alt.Axis(labelLimit=LABEL),
        ),
    )
    for menu in menus:
        base = base.transform_filter(menu)
    base = (  # each pair stands in two cells; its patterns are listed once for all runs
        base.transform_calculate(a="[datum.one, datum.two]", b="[datum.two, datum.one]")
        .transform_flatten(["a", "b"])
        .transform_calculate(key="datum.group + ' ' + datum.a")
        .transform_lookup("key", alt.LookupData(_data(names), "key", ["pattern"]))
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "v:Q",
            title="agreement, percent",
            scale=alt.Scale(scheme="viridis", domain=[0, 100]),
            legend=alt.Legend(orient="bottom", gradientLength=200),
        ),
        tooltip=[
            *_tips({"group": "relation", "pattern": "pattern", "b": "with"}),
            _percent("v", "agree"),
        ],
    )
    text = (
        base.transform_filter("datum.v != null")
        .mark_text(fontSize=9)
        .encode(
            text=alt.Text("v:Q", format=".0f"),
            color=alt.when("datum.v > 55").then(alt.value("black")).otherwise(alt.value("white")),
        )
    )
    return _finished(
        alt.layer(cells, text).add_params(*menus),
        width=alt.Step(22),
        height=alt.Step(18),
        description="How often each two patterns of a relation give the same answer, in percent.",
    )


def edit_figure(edits: pl.DataFrame) -> altair.Chart:
    """What each kind of edit costs in consistency, with its interval, a mark a run.

    ``edits``: the edit table, with ``run``.
    """
    alt = optional("altair")
    runs = edits["run"].unique(maintain_order=True).to_list()
    ends = ("difference", "low", "high")
    rows = edits.with_columns((pl.col(*ends) * 100).round(2).fill_nan(None))
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    kinds = edits["kind"].unique(maintain_order=True).to_list()
    y = alt.Y("kind:N", title=None, sort=kinds)
    drawn = _data(_with_line(rows, "difference"))
    base = alt.Chart(drawn).encode(y=y, yOffset=across)
    zero = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(
        color=INK, strokeDash=[3, 3], opacity=0.7
    )
    colour = _colour(runs)
    return _finished(
        alt.layer(
            zero.encode(x="x:Q"),
            base.mark_rule(strokeWidth=1.5).encode(
                x=alt.X("start:Q", title="difference of consistency, points"),
                x2="stop:Q",
                color=colour,
            ),
            base.mark_point(filled=True, opacity=1, size=40).encode(
                x="difference:Q",
                color=colour,
                shape=_shape(runs),
                tooltip=_tips({"run": "run", "kind": "edit"})
                + [_percent(each) for each in ends]
                + [alt.Tooltip("relations:Q"), alt.Tooltip("pairs:Q")],
            ),
        ),
        width=NARROW,
        height=alt.Step(26 if len(runs) == 1 else 13),
        description="Consistency of pairs that differ in a way, minus that of the others.",
    )


TENTHS = [f"{10 * at} to {10 * at + 10}" for at in range(10)]
"""Bars of the distribution over items, in percent; each holds its left end, the last both."""


def in_tenths(items: pl.DataFrame) -> pl.DataFrame:
    """How many items have how much agreement among their variants.

    ``items``: ``run, agreement``; those without a pair are left out. One row a run and tenth that
    has any: ``run, agreement`` (of ``TENTHS``), ``items, share`` in percent of the run's.
    """
    place = (pl.col("agreement") * 10 + 1e-9).floor().clip(0, 9).cast(pl.Int32)
    return (
        items.filter(pl.col("agreement").is_not_nan())
        .with_columns(tenth=place)
        .group_by("run", "tenth", maintain_order=True)
        .len("items")
        .sort("tenth", maintain_order=True)
        .select(
            "run",
            pl.col("tenth").replace_strict(dict(enumerate(TENTHS))).alias("agreement"),
            pl.col("items").cast(pl.Int64),
            share=(pl.col("items") / pl.col("items").sum().over("run") * 100).round(2),
        )
    )


def item_figure(items: pl.DataFrame) -> altair.Chart:
    """How many items have how much agreement, in tenths; ``items`` as for ``in_tenths``."""
    alt = optional("altair")
    runs = items["run"].unique(maintain_order=True).to_list()
    binned = in_tenths(items)
    return _finished(
        alt.Chart(_data(binned))
        .mark_bar()
        .encode(
            x=alt.X(
                "agreement:O",
                title="pairs of patterns that agree, percent",
                scale=alt.Scale(domain=TENTHS),
                axis=alt.Axis(labelAngle=-40),
            ),
            xOffset=alt.XOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined,
            y=alt.Y("share:Q", title="facts, percent"),
            color=_colour(runs),
            tooltip=[
                *_tips({"run": "run", "agreement": "agreement"}),
                _percent("share"),
                alt.Tooltip("items:Q"),
            ],
        ),
        width=WIDE,
        height=180,
        description="How many items have how much agreement among their patterns.",
    )


def form_figure(metrics: pl.DataFrame) -> altair.Chart:
    """Consistency with the original form in every other one, with its interval, a mark a run.

    ``metrics``: ``run, group`` and the rows of consistency and corrected consistency of the
    perturbed metrics table.
    """
    alt = optional("altair")
    runs = metrics["run"].unique(maintain_order=True).to_list()
    ends = ("value", "low", "high")
    rows = metrics.with_columns(
        (pl.col(*ends) * 100).round(2).fill_nan(None),
        shown=pl.col("metric").replace_strict(
            {"consistency": "consistency", "corrected_consistency": "above chance (kappa)"}
        ),
    )
    forms = metrics["subset"].unique(maintain_order=True).to_list()
    groups = metrics["group"].unique(maintain_order=True).to_list()
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    base = alt.Chart().encode(y=alt.Y("subset:N", title=None, sort=forms), yOffset=across)
    colour = _colour(runs)
    layered = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(
            x=alt.X("start:Q", title="percent", axis=alt.Axis(tickCount=4, labelFlush=False)),
            x2="stop:Q",
            color=colour,
        ),
        base.mark_point(filled=True, opacity=1, size=40).encode(
            x="value:Q",
            color=colour,
            shape=_shape(runs),
            tooltip=_tips({"run": "run", "group": "task", "subset": "form", "shown": "number"})
            + [_percent(each) for each in ends],
        ),
        data=_data(_with_line(rows, "value")),
    ).properties(width=HALF, height=alt.Step(26 if len(runs) == 1 else 13))
    return _styled(
        layered.facet(
            row=alt.Row("group:N", title=None, sort=groups) if len(groups) > 1 else alt.Undefined,
            column=alt.Column("shown:N", title=None, sort=["consistency"]),
        ).resolve_scale(x="independent"),
        "Consistency with the original form in every other form.",
    )


def _with_line(rows: pl.DataFrame, value: str) -> pl.DataFrame:
    """With the ends of the line that is drawn: ``low`` and ``high``, else the value alone."""
    return rows.with_columns(start=pl.coalesce("low", value), stop=pl.coalesce("high", value))


def _data(rows: pl.DataFrame) -> Any:
    """Rows for a chart; JSON has no NaN."""
    known = rows.with_columns(cs.float().fill_nan(None))
    return optional("altair").InlineData(values=Rows.of(known.to_dicts()))


def _whole() -> dict[str, Any]:
    """An axis from 0 to 100 percent."""
    alt = optional("altair")
    scale = alt.Scale(domain=[0, 100])
    return {"scale": scale, "axis": alt.Axis(values=list(range(0, 101, 20)))}


def _colour(runs: Sequence[str]) -> Any:
    alt = optional("altair")
    legend = alt.Legend(title=None, orient="top", labelLimit=0, columns=2)
    return alt.Color(
        "run:N",
        scale=alt.Scale(domain=runs, range=[COLOURS[at % len(COLOURS)] for at in range(len(runs))]),
        legend=legend if len(runs) > 1 else None,
    )


def _shape(runs: Sequence[str]) -> Any:
    alt = optional("altair")
    shapes = [RUN_SHAPES[at % len(RUN_SHAPES)] for at in range(len(runs))]
    legend = alt.Legend(title=None, orient="top", labelLimit=0) if len(runs) > 1 else None
    return alt.Shape("run:N", scale=alt.Scale(domain=runs, range=shapes), legend=legend)


def _tips(names: Mapping[str, str]) -> list[Any]:
    alt = optional("altair")
    return [alt.Tooltip(f"{name}:N", title=shown) for name, shown in names.items()]


def _percent(name: str, title: str = "") -> Any:
    return optional("altair").Tooltip(f"{name}:Q", title=title or name, format=".1f")


def _finished(chart: Any, *, width: Any, height: Any, description: str) -> Any:
    return _styled(chart.properties(width=width, height=height), description)


def _styled(chart: Any, description: str) -> Any:
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
        .configure_legend(**text)
        .configure_header(**text, labelFontWeight="bold", labelAngle=0, labelAlign="left")
        .configure_title(color=INK, subtitleColor=INK)
    )
