"""Charts."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.export import BLACK, COLOURS, INK, Rows, alt
from consilience.report.run_view import (
    NOISE,
    FactorView,
    RunView,
    group_names,
    groups_with_forms,
    parts_of,
    relation_values,
)
from consilience.types import SuiteWords

if TYPE_CHECKING:
    import altair


RUN_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
REFERENCES = "line: expected by chance; diamond: majority baseline"
MEASURED = "measured"  # the source of a number that is not a paper's
LINES = "split(datum.label, '\\n')"  # how Vega shows a label of several lines
LINE_HEIGHT = 13  # pixels from a line of a label to the next
LABEL = 34  # characters in a line of a label
WIDE, NARROW, PANEL, PLANE = 360, 280, 120, 190  # widths of planes in pixels of a file
OUTLYING = 6  # groups of a scatter plot that are labelled
LONGEST_LABEL = 34  # characters of their labels
LETTER, LABEL_HEIGHT = 2, 6  # size of a character of their labels, in points of the axes


def wrapped(text: str) -> str:
    """A label in as few lines of at most ``LABEL`` characters as possible, of similar length."""
    words = " ".join(text.split())
    lines = textwrap.wrap(words, LABEL)
    widths = range(len(words) // max(1, len(lines)), LABEL)
    even = (textwrap.wrap(words, width) for width in widths if width > 0)
    return "\n".join(next((wrap for wrap in even if len(wrap) == len(lines)), lines)) or text


def _chooser(
    field: str, options: Sequence[str], name: str, first: str = "", labels: Sequence[str] = ()
) -> Any:
    """A menu that chooses the rows with one value of a field; ``first`` is chosen first."""
    shown = list(labels) or list(options)
    bind = alt.binding_select(options=list(options), labels=shown, name=f"{name} ")
    value = [{field: first or options[0]}]
    return alt.selection_point(name=field, fields=[field], bind=bind, value=value)


def _lined_axis() -> Any:
    """An axis of labels of several lines, which are centred at their place."""
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


def _labels(names: pl.Series) -> tuple[pl.Expr, int]:
    """Names as labels of several lines, and the most lines of one."""
    label = pl.col(names.name).map_elements(wrapped, pl.String)
    return label, max(wrapped(name).count("\n") + 1 for name in names)


def percents(*names: str) -> pl.Expr:
    """Fractions in percent, rounded as tables round: to one digit, halves to the even one."""
    return (pl.col(*names) * 100).round(1, mode="half_to_even").fill_nan(None)


def _data(rows: pl.DataFrame, value: str = "") -> Any:
    """Rows for a chart; JSON has no NaN. ``value``: also the line from ``low`` to ``high``.

    The line is a point at the value where there are no bounds.
    """
    if value:
        rows = rows.with_columns(start=pl.coalesce("low", value), stop=pl.coalesce("high", value))
    known = rows.with_columns(cs.float().fill_nan(None))
    return alt.InlineData(values=Rows.of(known.to_dicts()))


def _names(rows: pl.DataFrame, column: str) -> list[str]:
    return rows[column].unique(maintain_order=True).to_list()


def _percent_axis(ticks: Sequence[int]) -> dict[str, Any]:
    """An axis from 0 to 100 percent."""
    return {"scale": alt.Scale(domain=[0, 100]), "axis": alt.Axis(values=list(ticks))}


def _of_run(channel: Any, runs: Sequence[str], values: Sequence[str]) -> Any:
    """A value of a channel for each run, with a legend if there are several."""
    return channel(
        "run:N",
        scale=alt.Scale(domain=runs, range=[values[at % len(values)] for at in range(len(runs))]),
        legend=alt.Legend(title=None, orient="top", labelLimit=0) if len(runs) > 1 else None,
    )


def _run_colour(runs: Sequence[str]) -> Any:
    """A colour for each run; black is the ink."""
    return _of_run(alt.Color, runs, [INK if colour == BLACK else colour for colour in COLOURS])


def _across(runs: Sequence[str], channel: str = "YOffset") -> Any:
    """The marks of several runs beside each other."""
    return getattr(alt, channel)("run:N", sort=runs) if len(runs) > 1 else alt.Undefined


def _tips(names: Mapping[str, str], percents: Mapping[str, str] | Sequence[str] = ()) -> list[Any]:
    """Tooltips: fields and their titles, of texts and of percentages."""
    numbers = percents if isinstance(percents, Mapping) else {name: name for name in percents}
    return [
        *(alt.Tooltip(f"{name}:N", title=shown) for name, shown in names.items()),
        *(alt.Tooltip(f"{name}:Q", title=shown, format=".1f") for name, shown in numbers.items()),
    ]


def _rule(base: Any, x: Any, colour: Any) -> Any:
    """The line of an interval."""
    return base.mark_rule(strokeWidth=1.5).encode(x=x, x2="stop:Q", color=colour)


def _marks(base: Any, x: Any, runs: Sequence[str], tooltip: Sequence[Any]) -> Any:
    """A mark a run, with its colour and shape."""
    return base.mark_point(filled=True, opacity=1, size=40).encode(
        x=x, color=_run_colour(runs), shape=_of_run(alt.Shape, runs, RUN_SHAPES), tooltip=tooltip
    )


def _line(axis: str, values: Sequence[float]) -> Any:
    """A dashed line across a plane."""
    data = alt.InlineData(values=[{axis: value} for value in values])
    return (
        alt.Chart(data)
        .mark_rule(color=INK, strokeDash=[3, 3], opacity=0.7)
        .encode(**{axis: f"{axis}:Q"})
    )


def _panels(layered: Any, field: str, names: Sequence[str]) -> Any:
    """A plane for each name, side by side."""
    return layered.facet(
        alt.Facet(f"{field}:N", title=None, sort=names, header=alt.Header(labelAnchor="start")),
        columns=len(names),
        spacing=14,
    )


def _styled(chart: Any, description: str, **size: Any) -> altair.Chart:
    """A chart with our style; its text and lines have the colour of the text around it.

    ``size``: width and height of a chart of one plane.
    """
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11}
    lines = {"domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.15}
    sized = chart.properties(**size) if size else chart
    styled: altair.Chart = (
        sized.properties(description=description, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(**text, titleFontWeight="normal", **lines)
        .configure_legend(**text, columns=2)
        .configure_header(**text, labelFontWeight="bold", labelAngle=0, labelAlign="left")
        .configure_title(color=INK, subtitleColor=INK)
    )
    return styled


def interval_figure(rows: pl.DataFrame, kind: str) -> altair.Chart:
    """Groups or forms by a number with its interval, a mark a run; a menu chooses the number.

    ``rows``: ``run, name, metric`` (a label)``, value, low, high, chance, majority, n``. The first
    metric is shown first; names are in the order of their first value. ``kind``: what they name,
    such as relation or form.
    """
    numbers, runs = _names(rows, "metric"), _names(rows, "run")
    bounds = ("value", "low", "high", "chance", "majority")
    first = rows.filter(pl.col("run") == runs[0]).select("metric", "name", order="value")
    label, lines = _labels(rows["name"])
    rows = rows.with_columns(percents(*bounds), label=label)
    rows = rows.join(first, on=["metric", "name"], how="left", maintain_order="left")
    menu = [_chooser("metric", numbers, "Number")] if len(numbers) > 1 else []
    order = alt.EncodingSortField("order", op="min")
    base = alt.Chart(_data(rows, "value")).encode(
        y=alt.Y("label:N", title=None, sort=order, axis=_lined_axis()), yOffset=_across(runs)
    )
    for selection in menu:
        base = base.transform_filter(selection)
    scale = _scale(rows, has_menu=bool(menu))
    x = alt.X("start:Q", title="percent", scale=scale, axis=alt.Axis(tickCount=5))
    tooltip = _tips({"run": "run", "name": kind, "metric": "number"}, bounds)
    tooltip.append(alt.Tooltip("n:Q", title="counted"))
    layers = [
        _rule(base, x, _run_colour(runs)),
        base.mark_tick(thickness=2, size=11, opacity=0.8).encode(
            x=alt.X("chance:Q", scale=scale), color=_run_colour(runs)
        ),
        base.transform_filter(alt.datum.run == runs[0])
        .mark_point(shape="diamond", size=42, color=INK, opacity=0.65)
        .encode(x=alt.X("majority:Q", scale=scale), yOffset=alt.Undefined),
        _marks(base, alt.X("value:Q", scale=scale), runs, tooltip),
    ]
    per_run = {1: 0, 2: 12, 3: 10}.get(len(runs), 8) * len(runs)
    return _styled(
        alt.layer(*layers).add_params(*menu),
        f"A number of each {kind} with its 95 % confidence interval, for each run.",
        width=WIDE,
        height=len(set(rows["name"])) * max(18, 14 * lines, per_run),
    )


def _scale(rows: pl.DataFrame, *, has_menu: bool) -> Any:
    """Percent to 100, from 0 or from the lowest number or bound of the metric that is shown."""
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
    bounds = ("value", "low", "high")
    label, lines = _labels(rows["model"])
    order = [wrapped(model) for model in _names(rows, "model")]
    rows = rows.with_columns(percents(*bounds), label=label)
    base = alt.Chart().encode(y=alt.Y("label:N", title=None, sort=order, axis=_lined_axis()))
    sources = _names(rows, "source")
    fills = [COLOURS[0] if source == MEASURED else "transparent" for source in sources]
    legend = alt.Legend(title=None, orient="top") if len(sources) > 1 else None
    least = rows.select(_lowest()).item()
    scale = alt.Scale(domain=[min(0.0, least or 0.0), 100], nice=False, padding=6)
    x = alt.X("start:Q", title="percent", scale=scale, axis=alt.Axis(values=[0, 50, 100]))
    layered = alt.layer(
        base.mark_rule(strokeWidth=1.5, color=COLOURS[0]).encode(x=x, x2="stop:Q"),
        base.mark_point(opacity=1, size=45, stroke=COLOURS[0]).encode(
            x=alt.X("value:Q", scale=scale),
            fill=alt.Fill("source:N", scale=alt.Scale(domain=sources, range=fills), legend=legend),
            tooltip=_tips({"model": "model", "number": "number", "source": "source"}, bounds),
        ),
        data=_data(rows, "value"),
    ).properties(width=PANEL, height=alt.Step(max(18, 14 * lines)))
    about = "The headline numbers of each model with 95 % confidence intervals."
    return _styled(_panels(layered, "number", _names(rows, "number")), about)


def against_figure(table: pl.DataFrame, noun: str = "relation") -> altair.Chart:
    """Accuracy against consistency, a mark a relation and run; outlying relations have labels.

    ``table``: ``run, name, accuracy, consistency, chance``. The dashed line is the mean consistency
    of the first run expected by chance. ``noun``: what a mark is, such as group.
    """
    runs, numbers = _names(table, "run"), ("accuracy", "consistency")
    rows = table.with_columns(percents(*numbers))
    labelled = outlying(rows.filter(pl.col("run") == runs[0]))
    is_labelled = (pl.col("run") == runs[0]) & pl.col("name").is_in(labelled)
    short = pl.col("name").map_elements(
        lambda name: textwrap.shorten(name, LONGEST_LABEL, placeholder=" ..."), pl.String
    )
    rows = rows.with_columns(label=pl.when(is_labelled).then(short))
    chosen = alt.selection_point(fields=["name"], on="pointerover", nearest=True, empty=False)
    axis = _percent_axis(range(0, 101, 20))
    base = alt.Chart(_data(rows.drop("chance"))).encode(
        x=alt.X("accuracy:Q", title="accuracy, percent", **axis),
        y=alt.Y("consistency:Q", title="consistency, percent", **axis),
    )
    marks = base.mark_point(filled=True, size=45).encode(
        color=_run_colour(runs),
        shape=_of_run(alt.Shape, runs, RUN_SHAPES),
        opacity=alt.when(chosen).then(alt.value(1)).otherwise(alt.value(0.65)),
        tooltip=_tips({"run": "run", "name": noun}, numbers),
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
    line = _line("y", [100 * float(known.sum()) / len(known)] if len(known) else [])
    return _styled(
        alt.layer(marks.add_params(chosen), left, right, line),
        f"Accuracy against consistency of each {noun}, for each run.",
        width=NARROW,
        height=NARROW,
    )


def outlying(rows: pl.DataFrame) -> list[str]:
    """The names of the marks that are farthest from the mean and have room for a label.

    A label begins at its mark, away from the nearer side; it covers no mark and no other label.
    ``rows``: ``name, accuracy, consistency`` in percent.
    """
    known = rows.drop_nulls(["accuracy", "consistency"])
    if known.is_empty():
        return []
    centre: list[Any] = [known[name].mean() for name in ("accuracy", "consistency")]
    points = [(name, (x, y)) for name, x, y in
              known.select("name", "accuracy", "consistency").iter_rows()]  # fmt: skip
    points.sort(key=lambda point: -math.dist(point[1], centre))
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
    runs, kinds = _names(edits, "run"), _names(edits, "kind")
    bounds = ("difference", "low", "high")
    base = alt.Chart(_data(edits.with_columns(percents(*bounds)), "difference")).encode(
        y=alt.Y("kind:N", title=None, sort=kinds), yOffset=_across(runs)
    )
    x = alt.X("start:Q", title="difference of consistency, points")
    counts = [alt.Tooltip("relations:Q"), alt.Tooltip("pairs:Q")]
    tooltip = [*_tips({"run": "run", "kind": "edit"}, bounds), *counts]
    marks = _marks(base, "difference:Q", runs, tooltip)
    return _styled(
        alt.layer(_line("x", [0]), _rule(base, x, _run_colour(runs)), marks),
        "Consistency of pairs that differ in a way, minus that of the others.",
        width=NARROW,
        height=len(kinds) * (26 if len(runs) == 1 else 13 * len(runs)),
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
    runs = _names(items, "run")
    shares = _tips({"run": "run", "agreement": "agreement"}, ["share"])
    bars = alt.Chart(_data(in_tenths(items).with_columns(percents("share")))).mark_bar()
    return _styled(
        bars.encode(
            x=alt.X(
                "agreement:O",
                title=f"pairs of {words.variant}s that agree, percent",
                scale=alt.Scale(domain=TENTHS),
                axis=alt.Axis(labelAngle=-40),
            ),
            xOffset=_across(runs, "XOffset"),
            y=alt.Y("share:Q", title=f"{words.item}s, percent"),
            color=_run_colour(runs),
            tooltip=[*shares, alt.Tooltip("items:Q")],
        ),
        f"How many {words.item}s have how much agreement among their {words.variant}s.",
        width=WIDE,
        height=180,
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
    groups, runs, menus = _names(pairs, "group"), _names(pairs, "run"), []
    if len(groups) > 1 or words.pool:
        labels = [names.get(name, name) for name in groups]
        menus.append(_chooser("group", groups, words.group.capitalize(), group, labels))
    menus += [_chooser("run", runs, "Run")] if len(runs) > 1 else []
    base = _matrix_base(pairs, patterns, menus)
    cells = base.mark_rect().encode(
        color=alt.Color(
            "v:Q",
            title="agreement, percent",
            scale=alt.Scale(scheme="viridis", domain=[0, 100]),
            legend=alt.Legend(orient="bottom", gradientLength=200),
        ),
        tooltip=_tips(
            {"group": words.group, "pattern": words.variant, "b": "with"}, {"v": "agree"}
        ),
    )
    ink = alt.when("datum.v > 55").then(alt.value("black")).otherwise(alt.value("white"))
    numbers = base.transform_filter("datum.v != null").mark_text(fontSize=9)
    _, lines = _labels(patterns["variant"])
    return _styled(
        alt.layer(cells, numbers.encode(text=alt.Text("shown:N"), color=ink)).add_params(*menus),
        matrix_caption(words),
        width=alt.Step(26),
        height=alt.Step(LINE_HEIGHT * lines + 6),
    )


def _matrix_base(pairs: pl.DataFrame, patterns: pl.DataFrame, menus: Sequence[Any]) -> Any:
    """Each pair of patterns in two cells; the patterns are listed once for all runs."""
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
    order = alt.EncodingSortField("a", op="min")
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("b:O", title=None, axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y("pattern:N", title=None, sort=order, axis=_lined_axis()),
    )
    for menu in menus:
        base = base.transform_filter(menu)
    return (
        base.transform_calculate(a="[datum.one, datum.two]", b="[datum.two, datum.one]")
        .transform_flatten(["a", "b"])
        .transform_calculate(key="datum.group + ' ' + datum.a")
        .transform_lookup("key", alt.LookupData(_data(labels), "key", ["pattern"]))
    )


PANELS = {
    "": "consistency",
    "answer": "variation of the answer",
    "correctness": "variation of correctness",
}
"""The planes of the figure of factors, by outcome."""

FACTOR_SCHEMA = {
    **dict.fromkeys(("run", "panel", "name"), pl.String),
    **dict.fromkeys(("value", "low", "high", "chance", "main"), pl.Float64),
}
"""The rows of the figure of factors. ``main`` is drawn as a bar, ``chance`` as a tick."""


def factor_rows(views: Sequence[FactorView]) -> pl.DataFrame:
    """The numbers of the figure (``FACTOR_SCHEMA``)."""
    rows = [{"run": view.name, **row} for view in views for row in _factor_rows(view)]
    return pl.DataFrame(rows, schema=FACTOR_SCHEMA)


def _factor_rows(view: FactorView) -> Iterator[dict[str, Any]]:
    parts = parts_of(view.tables)
    number = ("share", "share_low", "share_high") if view.is_exact else ("value", "low", "high")
    for row in view.tables.consistency.iter_rows(named=True):
        factor = row["factor"]
        numbers = {name: row[name] for name in ("value", "low", "high", "chance")}
        yield {"panel": PANELS[""], "name": factor, **numbers}
        for outcome in ("answer", "correctness"):
            total = parts[outcome, "total", factor]
            main = parts.get((outcome, "main", factor))
            value, low, high = (total[name] for name in number)
            numbers = {"value": value, "low": low, "high": high}
            numbers["main"] = main["share"] if main else None
            yield {"panel": PANELS[outcome], "name": factor, **numbers}
    for (outcome, effect, factors), part in parts.items():
        if effect in ("interactions", "between questions"):
            yield {"panel": PANELS[outcome], "name": effect + factors, "main": part["share"]}
    if view.noise.height:
        least = 1 - view.noise["value"].fill_nan(None).max()  # type: ignore[operator]
        yield {"panel": PANELS[""], "name": NOISE, "value": least}


def factor_figure(views: Sequence[FactorView]) -> altair.Chart:
    """Consistency by factor, and shares of the variation of the answer and of correctness.

    A mark is the consistency or the total effect, with its 95 % interval; a bar is the main effect,
    a tick the consistency expected by chance.
    """
    numbers = ("value", "low", "high", "chance", "main")
    rows = factor_rows(views).with_columns(percents(*numbers))
    runs, names = [view.name for view in views], _names(rows, "name")
    last = [name for name in ("interactions", "between questions", NOISE) if name in names]
    order = [*(name for name in names if name not in last), *last]
    y = alt.Y("name:N", title=None, sort=order, axis=alt.Axis(labelLimit=0, ticks=False))
    base = alt.Chart().encode(y=y, yOffset=_across(runs))
    main, start = (
        alt.X(f"{name}:Q", title="percent", **_percent_axis([0, 50, 100]))
        for name in ("main", "start")
    )
    colour, bar = _run_colour(runs), 9 if len(runs) == 1 else alt.Undefined
    layered = alt.layer(
        base.mark_bar(opacity=0.35, height=bar).encode(x=main, color=colour),
        _rule(base, start, colour),
        base.mark_tick(thickness=2, size=11, opacity=0.8).encode(x="chance:Q", color=colour),
        _marks(base, "value:Q", runs, _tips({"run": "run", "name": "factor"}, numbers)),
        data=_data(rows, "value"),
    ).properties(width=PLANE, height=alt.Step(22 if len(runs) == 1 else 11 * len(runs)))
    panels = [name for name in PANELS.values() if name in rows["panel"]]
    about = "Consistency by factor, and what the variation of answers comes from."
    return _styled(_panels(layered, "panel", panels), about)


def relation_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """The headline metrics of each relation for ``interval_figure``, consistency first."""
    names = group_names(runs[0].suite)
    shown = sorted(headline_metrics(), key=lambda name: name != "consistency")
    metrics = relation_values(runs, (*shown, "chance_consistency"))
    shown = [name for name in shown if name in set(metrics["metric"])]
    rows = _with_references(runs, metrics.with_columns(subset=pl.lit("all")), shown)
    return rows.with_columns(name=pl.col("group").replace(names))


def form_rows(runs: Sequence[RunView]) -> pl.DataFrame:
    """Consistency of each form with the original one for ``interval_figure``."""
    shown = ["consistency", "corrected_consistency"]
    columns = ("metric", "group", "subset", "value", "low", "high", "n")
    parts = [
        run.metrics.filter(
            pl.col("metric").is_in([*shown, "chance_consistency"])
            & (pl.col("subset") != "all")
            & pl.col("group").is_in(groups_with_forms(run))
        ).select(pl.lit(run.name).alias("run"), *columns)
        for run in runs
    ]
    rows = _with_references(runs, pl.concat(parts), shown)
    several = rows["group"].n_unique() > 1
    name = pl.col("group") + ": " + pl.col("subset") if several else pl.col("subset")
    return rows.with_columns(name=name)


def _with_references(
    runs: Sequence[RunView], metrics: pl.DataFrame, shown: Sequence[str]
) -> pl.DataFrame:
    """The rows of some metrics by their labels, with ``chance`` and ``majority``."""
    on = ["run", "group", "subset"]
    is_chance = pl.col("metric") == "chance_consistency"
    chance = metrics.filter(is_chance).select(*on, chance="value", metric=pl.lit("consistency"))
    baselines = pl.DataFrame(
        [
            (run.name, group, subset, "consistency" if name == "determinism" else name, value)
            for run in runs
            for (group, name, subset), value in run.baseline.items()
        ],
        schema=dict.fromkeys((*on, "metric"), pl.String) | {"majority": pl.Float64},
        orient="row",
    ).unique(maintain_order=True)
    rows = metrics.filter(pl.col("metric").is_in(shown))
    for references in (chance, baselines):
        rows = rows.join(references, on=[*on, "metric"], how="left", maintain_order="left")
    order = {name: at for at, name in enumerate(shown)}
    rows = rows.sort(pl.col("metric").replace_strict(order), maintain_order=True)
    return rows.with_columns(
        metric=pl.col("metric").replace_strict({n: label_of(n) for n in shown})
    )


def accuracy_and_consistency(runs: Sequence[RunView]) -> pl.DataFrame:
    """Both numbers of each relation for ``against_figure``."""
    names = group_names(runs[0].suite)
    wanted = ("accuracy", "consistency", "chance_consistency")
    values = relation_values(runs, wanted).pivot(
        "metric", index=["run", "group"], values="value", maintain_order=True
    )
    known = [name if name in values.columns else pl.lit(math.nan).alias(name) for name in wanted]
    name = pl.col("group").replace(names)
    return values.select("run", *known, name=name).rename({"chance_consistency": "chance"})
