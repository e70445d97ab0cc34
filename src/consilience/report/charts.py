"""Charts."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from consilience.report.export import BLACK, COLOURS, INK, Rows
from consilience.report.run_view import NOISE, FactorView, parts_of
from consilience.types import SuiteWords

if TYPE_CHECKING:
    import altair


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


WIDE, NARROW, PANEL = 360, 280, 120
"""Width of a figure's plane in pixels of a file; on a page most planes are wider."""

OUTLYING = 6
"""Groups of a scatter plot that are labelled."""

LONGEST_LABEL = 34
"""Characters of a label of a scatter plot."""

LETTER, LABEL_HEIGHT = 2, 6
"""Width of a character and height of a label of a scatter plot, in points of its axes."""


def interval_figure(rows: pl.DataFrame, kind: str) -> altair.Chart:
    """Groups or forms by a number with its interval, a mark a run; a menu chooses the number.

    ``rows``: ``run, name, metric`` (a label)``, value, low, high, chance, majority, n``. The first
    metric is shown first; names are in the order of their first value. ``kind``: what they name,
    such as relation or form.
    """
    import altair as alt

    numbers = rows["metric"].unique(maintain_order=True).to_list()
    runs = rows["run"].unique(maintain_order=True).to_list()
    bounds = ("value", "low", "high", "chance", "majority")
    first = rows.filter(pl.col("run") == runs[0]).select("metric", "name", order="value")
    rows = rows.with_columns(
        percents(*bounds), label=pl.col("name").map_elements(wrapped, pl.String)
    )
    rows = rows.join(first, on=["metric", "name"], how="left", maintain_order="left")
    lines = max(label.count("\n") + 1 for label in rows["label"])
    menu = [chooser("metric", numbers, "Number")] if len(numbers) > 1 else []
    across = alt.YOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined
    axis = lined_axis()
    base = alt.Chart(chart_data(with_line(rows, "value"))).encode(
        y=alt.Y("label:N", title=None, sort=alt.EncodingSortField("order", op="min"), axis=axis),
        yOffset=across,
    )
    for selection in menu:
        base = base.transform_filter(selection)
    colour = run_colour(runs)
    scale = _scale(rows, has_menu=bool(menu))
    named = {"run": "run", "name": kind, "metric": "number"}
    layers = [
        base.mark_rule(strokeWidth=1.5).encode(
            x=alt.X("start:Q", title="percent", scale=scale, axis=alt.Axis(tickCount=5)),
            x2="stop:Q",
            color=colour,
        ),
        base.mark_tick(thickness=2, size=11, opacity=0.8).encode(
            x=alt.X("chance:Q", scale=scale), color=colour
        ),
        base.transform_filter(alt.datum.run == runs[0])
        .mark_point(shape="diamond", size=42, color=INK, opacity=0.65)
        .encode(x=alt.X("majority:Q", scale=scale), yOffset=alt.Undefined),
        base.mark_point(filled=True, opacity=1, size=40).encode(
            x=alt.X("value:Q", scale=scale),
            color=colour,
            shape=run_shape(runs),
            tooltip=tips(named)
            + [percent_tip(name) for name in bounds]
            + [alt.Tooltip("n:Q", title="counted")],
        ),
    ]
    per_run = {1: 0, 2: 12, 3: 10}.get(len(runs), 8) * len(runs)
    return finished(
        alt.layer(*layers).add_params(*menu),
        width=WIDE,
        height=len(set(rows["name"])) * max(18, 14 * lines, per_run),
        description=f"A number of each {kind} with its 95 % confidence interval, for each run.",
    )


def _scale(rows: pl.DataFrame, *, has_menu: bool) -> Any:
    """Percent to 100, from 0 or from the lowest number or bound of the metric that is shown."""
    import altair as alt

    lows = rows.group_by("metric", maintain_order=True).agg(_lowest()).rows()
    least = {metric: min(0.0, low if low is not None else 0.0) for metric, low in lows}
    start: Any = least[rows["metric"][0]]
    if has_menu and len(set(least.values())) > 1:
        start = alt.ExprRef(f"({json.dumps(least)})[metric_metric]")
    return alt.Scale(domain=[start, 100], nice=False, padding=6)


def _lowest() -> pl.Expr:
    """The lowest number or bound of an interval; null without any."""
    return pl.min_horizontal(pl.col("value", "low").fill_nan(None)).min().alias("lowest")


def headline_figure(rows: pl.DataFrame) -> altair.Chart:
    """The headline numbers of several models with their intervals, a panel a number.

    ``rows``: ``model, number, value, low, high, source``; a row of a paper has a hollow mark.
    """
    import altair as alt

    bounds = ("value", "low", "high")
    numbers = rows["number"].unique(maintain_order=True).to_list()
    models = rows["model"].unique(maintain_order=True).to_list()
    rows = rows.with_columns(
        percents(*bounds),
        label=pl.col("model").map_elements(wrapped, pl.String),
    )
    lines = max(label.count("\n") + 1 for label in rows["label"])
    order = [wrapped(model) for model in models]
    axis = lined_axis()
    base = alt.Chart().encode(y=alt.Y("label:N", title=None, sort=order, axis=axis))
    sources = rows["source"].unique(maintain_order=True).to_list()
    fills = [COLOURS[0] if source == MEASURED else "transparent" for source in sources]
    legend = alt.Legend(title=None, orient="top") if len(sources) > 1 else None
    x_axis = alt.Axis(values=[0, 50, 100])
    least = rows.select(_lowest()).item()
    scale = alt.Scale(domain=[min(0.0, least or 0.0), 100], nice=False, padding=6)
    layered = alt.layer(
        base.mark_rule(strokeWidth=1.5, color=COLOURS[0]).encode(
            x=alt.X("start:Q", title="percent", scale=scale, axis=x_axis), x2="stop:Q"
        ),
        base.mark_point(opacity=1, size=45, stroke=COLOURS[0]).encode(
            x=alt.X("value:Q", scale=scale),
            fill=alt.Fill("source:N", scale=alt.Scale(domain=sources, range=fills), legend=legend),
            tooltip=tips({"model": "model", "number": "number", "source": "source"})
            + [percent_tip(name) for name in bounds],
        ),
        data=chart_data(with_line(rows, "value")),
    ).properties(width=PANEL, height=alt.Step(max(18, 14 * lines)))
    faceted = layered.facet(
        alt.Facet("number:N", title=None, sort=numbers, header=alt.Header(labelAnchor="start")),
        columns=len(numbers),
        spacing=14,
    )
    return styled(faceted, "The headline numbers of each model with 95 % confidence intervals.")


def against_figure(table: pl.DataFrame, noun: str = "relation") -> altair.Chart:
    """Accuracy against consistency, a mark a relation and run; outlying relations have labels.

    ``table``: ``run, name, accuracy, consistency, chance``. The dashed line is the mean consistency
    of the first run expected by chance. ``noun``: what a mark is, such as group.
    """
    import altair as alt

    runs = table["run"].unique(maintain_order=True).to_list()
    numbers = ("accuracy", "consistency")
    rows = table.with_columns(percents(*numbers))
    labelled = outlying(rows.filter(pl.col("run") == runs[0]))
    is_labelled = (pl.col("run") == runs[0]) & pl.col("name").is_in(labelled)
    short = pl.col("name").map_elements(
        lambda name: textwrap.shorten(name, LONGEST_LABEL, placeholder=" ..."), pl.String
    )
    rows = rows.with_columns(label=pl.when(is_labelled).then(short))
    data = chart_data(rows.drop("chance"))
    chosen = alt.selection_point(fields=["name"], on="pointerover", nearest=True, empty=False)
    base = alt.Chart(data).encode(
        x=alt.X("accuracy:Q", title="accuracy, percent", **percent_axis()),
        y=alt.Y("consistency:Q", title="consistency, percent", **percent_axis()),
    )
    marks = base.mark_point(filled=True, size=45).encode(
        color=run_colour(runs),
        shape=run_shape(runs),
        opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.65)),
        tooltip=[*tips({"run": "run", "name": noun}), *map(percent_tip, numbers)],
    )
    left, right = (
        base.transform_filter(f"datum.label && {side}")
        .mark_text(align=align, dx=dx, fontSize=11, color=INK)
        .encode(text="label:N")
        for side, align, dx in (
            ("datum.accuracy <= 50", "left", 7),
            ("datum.accuracy > 50", "right", -7),
        )
    )
    known = table.filter((pl.col("run") == runs[0]) & pl.col("chance").is_not_nan())["chance"]
    values = [{"y": 100 * known.sum() / len(known)}] if len(known) else []
    reference = alt.Chart(alt.InlineData(values=values))
    line = reference.mark_rule(color=INK, strokeDash=[3, 3], opacity=0.7).encode(y="y:Q")
    return finished(
        alt.layer(marks.add_params(chosen), left, right, line),
        width=NARROW,
        height=NARROW,
        description=f"Accuracy against consistency of each {noun}, for each run.",
    )


def outlying(rows: pl.DataFrame) -> list[str]:
    """The names of the marks that are farthest from the mean and have room for a label.

    A label begins at its mark, away from the nearer side; it covers no mark and no other label.
    ``rows``: ``name, accuracy, consistency`` in percent.
    """
    known = rows.drop_nulls(["accuracy", "consistency"])
    if known.is_empty():
        return []
    centre = [known[name].mean() for name in ("accuracy", "consistency")]
    points = [(name, (x, y)) for name, x, y in
              known.select("name", "accuracy", "consistency").iter_rows()]  # fmt: skip
    points.sort(key=lambda point: -math.dist(point[1], centre))  # type: ignore[arg-type]
    chosen: dict[str, tuple[float, float, float]] = {}
    for name, (x, y) in points:
        width = LETTER * min(len(name), LONGEST_LABEL)
        left, right = (x + 2, x + width) if x <= 50 else (x - width, x - 2)
        covers_mark = any(
            left < other_x < right and abs(y - other_y) < LABEL_HEIGHT / 2
            for other, (other_x, other_y) in points
            if other != name
        )
        covers_label = any(
            left < other_right and other_left < right and abs(y - other_y) < LABEL_HEIGHT
            for other_left, other_right, other_y in chosen.values()
        )
        if not covers_mark and not covers_label and len(chosen) < OUTLYING:
            chosen[name] = (left, right, y)
    return list(chosen)


def edit_figure(edits: pl.DataFrame) -> altair.Chart:
    """What each kind of edit costs in consistency, with its interval, a mark a run.

    ``edits``: the edit table, with ``run``.
    """
    import altair as alt

    runs = edits["run"].unique(maintain_order=True).to_list()
    bounds = ("difference", "low", "high")
    rows = edits.with_columns(percents(*bounds))
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
        height=len(kinds) * (26 if len(runs) == 1 else 13 * len(runs)),
        description="Consistency of pairs that differ in a way, minus that of the others.",
    )


TENTHS = [f"{10 * at} to {10 * at + 10}" for at in range(10)]
"""Bars of the distribution over items, in percent; each has its lower bound."""


def in_tenths(items: pl.DataFrame) -> pl.DataFrame:
    """How many items have how much agreement among their variants.

    ``items``: ``run, agreement``; those without a pair are left out. One row a run and tenth that
    has any: ``run, agreement`` (of ``TENTHS``), ``items, share`` of the run's items.
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
            share=pl.col("items") / pl.col("items").sum().over("run"),
        )
    )


def item_figure(items: pl.DataFrame, words: SuiteWords) -> altair.Chart:
    """How many items have how much agreement, in tenths; ``items`` as for ``in_tenths``."""
    import altair as alt

    runs = items["run"].unique(maintain_order=True).to_list()
    binned = in_tenths(items).with_columns(percents("share"))
    return finished(
        alt.Chart(chart_data(binned))
        .mark_bar()
        .encode(
            x=alt.X(
                "agreement:O",
                title=f"pairs of {words.variant}s that agree, percent",
                scale=alt.Scale(domain=TENTHS),
                axis=alt.Axis(labelAngle=-40),
            ),
            xOffset=alt.XOffset("run:N", sort=runs) if len(runs) > 1 else alt.Undefined,
            y=alt.Y("share:Q", title=f"{words.item}s, percent"),
            color=run_colour(runs),
            tooltip=[
                *tips({"run": "run", "agreement": "agreement"}),
                percent_tip("share"),
                alt.Tooltip("items:Q"),
            ],
        ),
        width=WIDE,
        height=180,
        description=f"How many {words.item}s have how much agreement among their {words.variant}s.",
    )


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
    words: SuiteWords,
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
