"""The figures of a report: interactive on its page, still in a paper.

Text and lines have the colour of the text around them, so that a page may be light or dark; data
have Okabe and Ito's colours and a shape for each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.metrics.registry import label_of
from consilience.report.chart_parts import (
    chart_data,
    finished,
    percent_axis,
    percent_tip,
    run_colour,
    run_shape,
    styled,
    tips,
    with_line,
)
from consilience.report.figures import INK, optional

if TYPE_CHECKING:
    import altair

WIDE, NARROW, HALF = 330, 260, 150
"""Width of a figure's plane in pixels of a screen; with its axis it is as wide as a column."""

LABEL = 480
"""Pixels of a pattern beside the matrix: all of ParaRel's are whole; longer ones are truncated."""


def relation_figure(metrics: pl.DataFrame, shown: Sequence[str]) -> altair.Chart:
    """Each relation's number with its interval, a mark a run; a menu chooses the metric.

    ``metrics``: ``run`` and the columns of the metrics table, of single relations. Relations are in
    the order of the first run.
    """
    alt = optional("altair")
    names = {name: label_of(name) for name in shown}
    rows = metrics.with_columns(
        metric=pl.col("metric").replace_strict(names),
        **{name: (pl.col(name) * 100).round(2).fill_nan(None) for name in ("value", "low", "high")},
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
    data = chart_data(with_line(rows, "value"))
    base = alt.Chart(data).encode(y=y, yOffset=across).transform_filter(chosen)
    colour = run_colour(runs)
    scale = alt.Scale(domainMax=100, zero=True, nice=False)  # below 0 where it is below chance
    return finished(
        alt.layer(
            base.mark_rule(strokeWidth=1.5).encode(
                x=alt.X("start:Q", title="percent", scale=scale, axis=alt.Axis(tickCount=5)),
                x2="stop:Q",
                color=colour,
            ),
            base.mark_point(filled=True, opacity=1, size=34).encode(
                x=alt.X("value:Q", scale=scale),
                color=colour,
                shape=run_shape(runs),
                tooltip=tips({"run": "run", "group": "relation", "metric": "number"})
                + [percent_tip(name) for name in ("value", "low", "high")]
                + [alt.Tooltip("n:Q", title="counted")],
            ),
        ).add_params(chosen),
        width=WIDE,
        height=alt.Step(17 if len(runs) == 1 else 9),
        description="Each relation's number with its 95 % interval, for each run.",
    )


def against_figure(table: pl.DataFrame) -> altair.Chart:
    """Accuracy against consistency, a mark a relation and run.

    ``table``: ``run, group, accuracy, consistency``. A mark low on the right: the model knows, but
    not in every pattern. A mark high on the left: it gives the same answer, and that is wrong.
    """
    alt = optional("altair")
    runs = table["run"].unique(maintain_order=True).to_list()
    rows = table.with_columns((pl.col("accuracy", "consistency") * 100).round(2).fill_nan(None))
    chosen = alt.selection_point(fields=["group"], on="pointerover", nearest=True, empty=False)
    base = alt.Chart(chart_data(rows)).encode(
        x=alt.X("accuracy:Q", title="accuracy, percent", **percent_axis()),
        y=alt.Y("consistency:Q", title="consistency, percent", **percent_axis()),
    )
    marks = base.mark_point(filled=True, size=45).encode(
        color=run_colour(runs),
        shape=run_shape(runs),
        opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.65)),
        tooltip=[
            *tips({"run": "run", "group": "relation"}),
            percent_tip("accuracy"),
            percent_tip("consistency"),
        ],
    )
    names = base.mark_text(align="left", dx=7, fontSize=11, color=INK).encode(
        text=alt.when(chosen).then("group:N").otherwise(alt.value(""))
    )
    return finished(
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
    menus = _matrix_menus(pairs, relation)
    base = _matrix_base(pairs, patterns, menus)
    cells = base.mark_rect().encode(
        color=alt.Color(
            "v:Q",
            title="agreement, percent",
            scale=alt.Scale(scheme="viridis", domain=[0, 100]),
            legend=alt.Legend(orient="bottom", gradientLength=200),
        ),
        tooltip=[
            *tips({"group": "relation", "pattern": "pattern", "b": "with"}),
            percent_tip("v", "agree"),
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
    return finished(
        alt.layer(cells, text).add_params(*menus),
        width=alt.Step(22),
        height=alt.Step(18),
        description="How often each two patterns of a relation give the same answer, in percent.",
    )


def _matrix_menus(pairs: pl.DataFrame, relation: str) -> list[Any]:
    """The menus of relations and, with several, of runs."""
    alt = optional("altair")
    chosen = {"relation": ("group", relation), "run": ("run", pairs["run"][0])}
    menus = []
    for name, (field, value) in chosen.items():
        options = pairs[field].unique(maintain_order=True).to_list()
        if name == "relation" or len(options) > 1:
            bind = alt.binding_select(options=options, name=f"{name.capitalize()} ")
            menus.append(
                alt.selection_point(name=name, fields=[field], bind=bind, value=[{field: value}])
            )
    return menus


def _matrix_base(pairs: pl.DataFrame, patterns: pl.DataFrame, menus: Sequence[Any]) -> Any:
    """Each pair of patterns in two cells; the patterns are listed once for all runs."""
    alt = optional("altair")
    number = (pl.col("variant_index") + 1).cast(pl.String)
    names = patterns.filter(pl.col("run") == pairs["run"][0]).select(
        key=pl.col("group") + " " + number, pattern=number + "  " + pl.col("variant")
    )
    rows = pairs.select(
        "run",
        "group",
        one=pl.col("first") + 1,
        two=pl.col("second") + 1,
        v=(pl.col("agreement") * 100).round(1).fill_nan(None),
    )
    base = alt.Chart(chart_data(rows)).encode(
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
    return (
        base.transform_calculate(a="[datum.one, datum.two]", b="[datum.two, datum.one]")
        .transform_flatten(["a", "b"])
        .transform_calculate(key="datum.group + ' ' + datum.a")
        .transform_lookup("key", alt.LookupData(chart_data(names), "key", ["pattern"]))
    )


def edit_figure(edits: pl.DataFrame) -> altair.Chart:
    """What each kind of edit costs in consistency, with its interval, a mark a run.

    ``edits``: the edit table, with ``run``.
    """
    alt = optional("altair")
    runs = edits["run"].unique(maintain_order=True).to_list()
    bounds = ("difference", "low", "high")
    rows = edits.with_columns((pl.col(*bounds) * 100).round(2).fill_nan(None))
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    kinds = edits["kind"].unique(maintain_order=True).to_list()
    y = alt.Y("kind:N", title=None, sort=kinds)
    data = chart_data(with_line(rows, "difference"))
    base = alt.Chart(data).encode(y=y, yOffset=across)
    zero = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(
        color=INK, strokeDash=[3, 3], opacity=0.7
    )
    colour = run_colour(runs)
    return finished(
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
                shape=run_shape(runs),
                tooltip=tips({"run": "run", "kind": "edit"})
                + [percent_tip(name) for name in bounds]
                + [alt.Tooltip("relations:Q"), alt.Tooltip("pairs:Q")],
            ),
        ),
        width=NARROW,
        height=alt.Step(26 if len(runs) == 1 else 13),
        description="Consistency of pairs that differ in a way, minus that of the others.",
    )


TENTHS = [f"{10 * at} to {10 * at + 10}" for at in range(10)]
"""Bars of the distribution over items, in percent; each has its lower bound."""


def in_tenths(items: pl.DataFrame) -> pl.DataFrame:
    """How many items have how much agreement among their variants.

    ``items``: ``run, agreement``; those without a pair are left out. One row a run and tenth that
    has any: ``run, agreement`` (of ``TENTHS``), ``items, share`` in percent of the run's.
    """
    tenth = (pl.col("agreement") * 10 + 1e-9).floor().clip(0, 9).cast(pl.Int32)
    return (
        items.filter(pl.col("agreement").is_not_nan())
        .with_columns(tenth=tenth)
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
    return finished(
        alt.Chart(chart_data(binned))
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
            color=run_colour(runs),
            tooltip=[
                *tips({"run": "run", "agreement": "agreement"}),
                percent_tip("share"),
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
    bounds = ("value", "low", "high")
    rows = metrics.with_columns(
        (pl.col(*bounds) * 100).round(2).fill_nan(None),
        shown=pl.col("metric").replace_strict(
            {"consistency": "consistency", "corrected_consistency": "above chance (kappa)"}
        ),
    )
    forms = metrics["subset"].unique(maintain_order=True).to_list()
    groups = metrics["group"].unique(maintain_order=True).to_list()
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    base = alt.Chart().encode(y=alt.Y("subset:N", title=None, sort=forms), yOffset=across)
    colour = run_colour(runs)
    layered = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(
            x=alt.X("start:Q", title="percent", axis=alt.Axis(tickCount=4, labelFlush=False)),
            x2="stop:Q",
            color=colour,
        ),
        base.mark_point(filled=True, opacity=1, size=40).encode(
            x="value:Q",
            color=colour,
            shape=run_shape(runs),
            tooltip=tips({"run": "run", "group": "task", "subset": "form", "shown": "number"})
            + [percent_tip(name) for name in bounds],
        ),
        data=chart_data(with_line(rows, "value")),
    ).properties(width=HALF, height=alt.Step(26 if len(runs) == 1 else 13))
    return styled(
        layered.facet(
            row=alt.Row("group:N", title=None, sort=groups) if len(groups) > 1 else alt.Undefined,
            column=alt.Column("shown:N", title=None, sort=["consistency"]),
        ).resolve_scale(x="independent"),
        "Consistency with the original form in every other form.",
    )
