"""Figures, as Vega-Lite."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import polars.selectors as cs

from consilience.core.factors import Kind
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.export import INK, Spec
from consilience.report.run_view import (
    NOISE,
    FactorView,
    RunView,
    factor_records,
    group_names,
)

COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", INK, "#a39000",
)  # fmt: skip
"""Okabe and Ito's colours, for colour-blind readers, with a darker yellow and ink for black."""
RUN_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
EXPECTED, MAJORITY, MAIN = "expected by chance", "majority baseline", "main effect"
OUTLINES = {
    EXPECTED: "M-.15,-1H.15V1H-.15Z",
    MAJORITY: "M0,-1L1,0L0,1L-1,0ZM0,-.6L-.6,0L0,.6L.6,0Z",
    MAIN: "M-1,-.6H1V.6H-1Z",
}
"""What a legend shows beside the runs, and its outlines in a square from -1 to 1."""
MARKS = "marks"  # the layer of a chart that its menus and pointers are for
LINES = "split(datum.label, '\\n')"  # how Vega shows a label of several lines
LINE_HEIGHT = 13  # pixels from a line of a label to the next
LABEL = 30  # characters in a line of a label
WIDE, NARROW, PLANE = 360, 280, 190  # widths of planes in pixels of a file
LIFTS = [
    {"test": f"length({LINES}) == {lines}", "value": -LINE_HEIGHT * (lines - 1) / 2}
    for lines in range(2, 7)
]
LINED_AXIS: Spec = {
    "labelExpr": LINES, "labelLimit": 0, "labelLineHeight": LINE_HEIGHT, "ticks": False,
    "labelOffset": {"condition": LIFTS, "value": 0},
}  # fmt: skip
"""An axis of labels of several lines, which are centred at their place."""

BOUNDS: Spec = {"type": "rule", "strokeWidth": 1.5}
CHANCE: Spec = {"type": "tick", "thickness": 2, "size": 11, "opacity": 0.8, "aria": False}
MARK: Spec = {"type": "point", "filled": True, "opacity": 1, "size": 40}
STOP: Spec = {"field": "stop"}  # where the line of an interval ends


def wrapped(text: str) -> str:
    """A label in as few lines of at most ``LABEL`` characters as possible, of similar length."""
    words = " ".join(text.split())
    lines = textwrap.wrap(words, LABEL)
    widths = range(len(words) // max(1, len(lines)), LABEL)
    even = (textwrap.wrap(words, width) for width in widths if width > 0)
    return "\n".join(next((wrap for wrap in even if len(wrap) == len(lines)), lines)) or text


def _field(name: str, type_: str = "quantitative", **more: Any) -> Spec:
    return {"field": name, "type": type_, **more}


def _layer(mark: Spec, channels: Spec, *filters: object) -> Spec:
    transform = [{"filter": one} for one in filters]
    return {"mark": mark, "encoding": channels, "transform": transform}


def _chooser(
    field: str, options: Sequence[str], name: str, first: str = "", labels: Sequence[str] = ()
) -> Spec:
    """A menu that chooses the rows with one value of a field; ``first`` is chosen first."""
    menu = {"input": "select", "options": options, "labels": labels or options, "name": f"{name} "}
    value = [{field: first or options[0]}]
    return {
        "name": field, "select": {"type": "point", "fields": [field]}, "bind": menu, "value": value,
        "views": [MARKS],
    }  # fmt: skip


def _labels(names: pl.Series) -> tuple[pl.Expr, int]:
    """Names as labels of several lines, and the most lines of one."""
    label = pl.col(names.name).map_elements(wrapped, pl.String)
    return label, max(wrapped(name).count("\n") + 1 for name in names)


def percents(*names: str) -> pl.Expr:
    """Fractions in percent, rounded as tables round: to one digit, halves to the even one."""
    return (pl.col(*names) * 100).round(1, mode="half_to_even").fill_nan(None)


def _data(rows: pl.DataFrame, value: str = "") -> Spec:
    """Rows for a chart; JSON has no NaN. ``value``: also the line of its interval."""
    if value:
        rows = rows.with_columns(start=pl.coalesce("low", value), stop=pl.coalesce("high", value))
    return {"values": rows.with_columns(cs.float().fill_nan(None)).to_dicts()}


def _names(rows: pl.DataFrame, column: str) -> list[str]:
    return rows[column].unique(maintain_order=True).to_list()


def _percent_axis(*ticks: int) -> Spec:
    return {"scale": {"domain": [0, 100]}, "axis": {"values": list(ticks)}}


def _by_run(runs: Sequence[str], more: Sequence[str] = (), *, has_shapes: bool = False) -> Spec:
    """The colour and the shape of each run, with a legend that also has ``more`` (``OUTLINES``)."""
    names = [*runs, *more]
    shown = {"title": None, "orient": "top", "labelLimit": 0, "symbolOpacity": 1}
    legend = shown if len(names) > 1 else None

    def channel(values: Sequence[str], rest: Sequence[str]) -> Spec:
        chosen = [values[at % len(values)] for at in range(len(runs))] + [*rest]
        return _field("run", "nominal", scale={"domain": names, "range": chosen}, legend=legend)

    shape = {"shape": channel(RUN_SHAPES, [OUTLINES[name] for name in more])}
    return {"color": channel(COLOURS, [INK] * len(more))} | (shape if has_shapes else {})


def _beside(runs: Sequence[str], channel: str = "yOffset") -> Spec:
    """The marks of several runs beside each other."""
    return {channel: _field("run", "nominal", sort=runs)} if len(runs) > 1 else {}


def _tips(names: Mapping[str, str], percents: Sequence[str] = (), **counts: str) -> Spec:
    """Tooltips: fields and their titles, of texts, of percentages and of counts."""
    texts = [_field(name, "nominal", title=title) for name, title in names.items()]
    numbers = [_field(name, title=name, format=".1f") for name in percents]
    return {"tooltip": texts + numbers + [_field(of, title=shown) for of, shown in counts.items()]}


def _line(axis: str, rows: Sequence[Mapping[str, Any]], **channels: Spec) -> Spec:
    """Dashed lines across an axis, at its values in the rows."""
    mark = {"type": "rule", "color": INK, "strokeDash": [3, 3], "opacity": 0.7}
    return {"data": {"values": rows}, **_layer(mark, {axis: _field(axis), **channels})}


def _panels(spec: Spec, field: str, names: Sequence[str], data: Spec) -> Spec:
    lines = "split(replace(datum.label, ' ', '\\n'), '\\n')"  # after the first word
    header = {"labelAnchor": "start", "labelExpr": lines}
    facet = _field(field, "nominal", title=None, sort=names, header=header)
    return {"data": data, "facet": facet, "spec": spec, "columns": len(names), "spacing": 14}


def _styled(about: str, **spec: Any) -> Spec:
    """A chart with our style; its text and lines have the colour of the text around it."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11}
    lines = {"domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.15}
    header = {"labelFontWeight": "bold", "labelAngle": 0, "labelAlign": "left"}
    config = {
        "view": {"stroke": None},
        "axis": {**text, "titleFontWeight": "normal", **lines},
        "legend": {**text, "columns": 2},
        "header": {**text, **header},
        "title": {"color": INK, "subtitleColor": INK},
    }
    return {"description": about, "background": "transparent", "config": config, **spec}


def interval_figure(rows: pl.DataFrame, kind: str) -> Spec:
    """Groups or forms by a number with its interval, a mark a run; a menu chooses the number.

    ``rows``: ``run, name, metric`` (a label)``, value, low, high, chance, majority, n``. The first
    metric is shown first. ``kind``: what names are of, such as relation or form.
    """
    numbers, runs = _names(rows, "metric"), _names(rows, "run")
    bounds = ("value", "low", "high", "chance", "majority")
    first = rows.filter(pl.col("run") == runs[0]).select("metric", "name", order="value")
    label, lines = _labels(rows["name"])
    rows = rows.with_columns(percents(*bounds), label=label)
    rows = rows.join(first, on=["metric", "name"], how="left", maintain_order="left")
    menu = [_chooser("metric", numbers, "Number")] if len(numbers) > 1 else []
    order = {"field": "order", "op": "min"}
    y = {"y": _field("label", "nominal", title=None, sort=order, axis=LINED_AXIS)}
    y |= _beside(runs)
    least = {of: _least(rows.filter(metric=of)) for of in numbers}
    by_number = {"expr": f"({json.dumps(least)})[metric_metric]"}  # of the menu
    scale = _scale(by_number if len(set(least.values())) > 1 else least[numbers[0]])
    references = {EXPECTED: "chance", MAJORITY: "majority"}
    known = [name for name, of in references.items() if rows[of].is_not_null().any()]
    of_run = y | _by_run(runs, known)
    start, chance, majority, value = (
        _field(name, scale=scale) for name in ("start", "chance", "majority", "value")
    )
    start |= {"title": "percent", "axis": {"tickCount": 5}}
    diamond = {"type": "point", "shape": "diamond", "size": 42, "color": INK, "opacity": 0.65}
    tips = _tips({"run": "run", "name": kind, "metric": "number"}, bounds, n="counted")
    chosen = [{"filter": {"param": "metric"}}] * bool(menu)
    layers = [
        _layer(BOUNDS, of_run | {"x": start, "x2": STOP}) | {"name": MARKS},
        _layer(CHANCE, of_run | {"x": chance}),
        _layer(diamond, y | {"x": majority}, {"field": "run", "equal": runs[0]}),
        _layer(MARK, y | _by_run(runs, known, has_shapes=True) | {"x": value} | tips),
    ]
    per_run = {1: 0, 2: 12, 3: 10}.get(len(runs), 8) * len(runs)
    return _styled(
        f"A number of each {kind} with its 95 % confidence interval, for each run.",
        data=_data(rows, "value"), transform=chosen, params=menu, layer=layers, width=WIDE,
        height=len(set(rows["name"])) * max(18, 14 * lines, per_run),
    )  # fmt: skip


def _least(rows: pl.DataFrame) -> float:
    """Zero, or the lowest number or bound of an interval below it."""
    lowest = rows.select(pl.min_horizontal(pl.col("value", "low").fill_nan(None)).min()).item()
    return min(0.0, lowest or 0.0)


def _scale(start: Any) -> Spec:
    return {"domain": [start, 100], "nice": False, "padding": 6}


def edit_figure(edits: pl.DataFrame) -> Spec:
    """What each kind of edit costs in consistency, a mark a run; ``edits`` has ``run``."""
    runs, kinds = _names(edits, "run"), _names(edits, "kind")
    bounds = ("difference", "low", "high")
    of_run = {"y": _field("kind", "nominal", title=None, sort=kinds)} | _beside(runs)
    of_run |= _by_run(runs)
    start = _field("start", title="difference of consistency, points")
    tips = _tips({"run": "run", "kind": "edit"}, bounds, relations="relations", pairs="pairs")
    layers = [
        _line("x", [{"x": 0}]),
        _layer(BOUNDS, of_run | {"x": start, "x2": STOP}),
        _layer(MARK, of_run | _by_run(runs, has_shapes=True) | {"x": _field("difference")} | tips),
    ]
    return _styled(
        "Consistency of pairs that differ in a way, minus that of the others.",
        data=_data(edits.with_columns(percents(*bounds)), "difference"), layer=layers,
        width=NARROW, height=len(kinds) * (26 if len(runs) == 1 else 13 * len(runs)),
    )  # fmt: skip


OUTCOMES = ("", "answer", "correctness")  # of the planes of the figure of factors

FACTOR_SCHEMA = {
    **dict.fromkeys(("run", "panel", "name"), pl.String),
    **dict.fromkeys(("value", "low", "high", "chance", "main"), pl.Float64),
}
"""The rows of the figure of factors. ``main`` is drawn as a bar, ``chance`` as a tick."""


def factor_rows(views: Sequence[FactorView]) -> pl.DataFrame:
    """The numbers of the figure (``FACTOR_SCHEMA``)."""
    rows: list[dict[str, Any]] = []
    for view in views:
        for record in factor_records(view):
            for outcome in OUTCOMES:
                panel = f"{outcome}: total effect" if outcome else "consistency"
                before = f"{outcome}_" * bool(outcome)
                names = {name: before + name for name in ("low", "high", "chance", "main")}
                names["value"] = f"{outcome}_total" if outcome else "value"
                numbers = {name: record[of] for name, of in names.items() if of in record}
                row = {"run": view.name, "panel": panel, "name": record["factor"]}
                rows += [row | numbers] if numbers else []
        for flips in view.noise["value"]:
            named = {"run": view.name, "panel": "consistency", "name": NOISE}
            rows.append(named | {"value": 1 - flips})
    return pl.DataFrame(rows, schema=FACTOR_SCHEMA)


def factor_figure(views: Sequence[FactorView]) -> Spec:
    """Consistency, and shares of the variation of the answer and of correctness, by factor."""
    numbers = ("value", "low", "high", "chance", "main")
    rows = factor_rows(views).with_columns(percents(*numbers))
    runs, names = [view.name for view in views], _names(rows, "name")
    last = [name for name in ("interactions", NOISE) if name in names]
    order = [*(name for name in names if name not in last), *last]
    axis = {"labelLimit": 0, "ticks": False}
    known = [name for name, of in {EXPECTED: "chance", MAIN: "main"}.items() if rows[of].count()]
    y = {"y": _field("name", "nominal", title=None, sort=order, axis=axis)} | _beside(runs)
    of_run = y | _by_run(runs, known)
    main, start = (
        _field(name, title="percent", **_percent_axis(0, 50, 100)) for name in ("main", "start")
    )
    bar = {"type": "bar", "opacity": 0.35, "aria": False} | (
        {"height": 9} if len(runs) == 1 else {}
    )
    tips = _tips({"run": "run", "name": "factor"}, numbers)
    layers = [
        _layer(bar, of_run | {"x": main}),
        _layer(BOUNDS, of_run | {"x": start, "x2": STOP}),
        _layer(CHANCE, of_run | {"x": _field("chance")}),
        _layer(MARK, y | _by_run(runs, known, has_shapes=True) | {"x": _field("value")} | tips),
    ]
    step = 22 if len(runs) == 1 else 11 * len(runs)
    plane = {"layer": layers, "width": PLANE, "height": {"step": step}}
    return _styled(
        "Consistency by factor, and what the variation of answers comes from.",
        **_panels(plane, "panel", _names(rows, "panel"), _data(rows, "value")),
    )


def interval_rows(runs: Sequence[RunView], kind: Kind) -> pl.DataFrame:
    """The rows of ``interval_figure``: each group as a ``whole``, or each ``form`` of each task.

    Determinism goes by the name of consistency.
    """
    shown = sorted(headline_metrics(), key=lambda name: name != "consistency")
    shown = shown if kind == "whole" else ["consistency", "corrected_consistency"]
    on = ["run", "group", "level", "metric"]

    def rows_of(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        metric = pl.col("metric").replace({"determinism": "consistency"})
        of_runs = (
            table.filter(over="group", kind=kind).with_columns(metric, run=pl.lit(name))
            for name, table in tables.items()
        )
        return pl.concat(of_runs).select(*on, "value", "low", "high", "n")

    metrics = rows_of({run.name: run.metrics for run in runs})
    majority = rows_of({run.name: run.baseline for run in runs}).select(*on, majority="value")
    chance = metrics.filter(metric="chance_consistency").select(*on, chance="value")
    rows = metrics.filter(pl.col("metric").is_in(shown))
    for references in (chance.with_columns(metric=pl.lit("consistency")), majority):
        rows = rows.join(references, on=on, how="left", maintain_order="left")
    order = {name: at for at, name in enumerate(shown)}
    rows = rows.sort(pl.col("metric").replace_strict(order), maintain_order=True)
    name, level = pl.col("group").replace(group_names(runs[0].suite)), pl.col("level")
    if kind == "form":
        name = name + ": " + level if rows["group"].n_unique() > 1 else level
    labels = {name: label_of(name) for name in shown}
    return rows.with_columns(name=name, metric=pl.col("metric").replace_strict(labels))


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

COLUMN = 320  # width and height of a drawing of vectors in pixels: a column of a page


def tsne_figure(table: pl.DataFrame, title: str) -> Spec:
    """Points in the plane, with a shape for each pattern and a colour for each subject.

    ``table`` has a row a query, with the columns ``x``, ``y``, ``subject``, ``gold`` and
    ``variant``. As in the paper's Figure 3: points of one colour together mean that the vectors are
    grouped by subject, points of one shape that they are grouped by pattern. More than
    eight colours have no legend; they go from dark to light in alphabetical order, so that every
    eye, and every printer, sees whether a group is of one colour or of many. On a page, pointing at
    a point names it, and a click on it brings out all of its colour.
    """
    patterns, values = _names(table, "variant"), sorted(table["subject"].unique().to_list())
    heading: Spec = {"text": textwrap.wrap(title, 52), "anchor": "start", "offset": 6}
    symbols = {"symbolSize": 45, "symbolLimit": 0, "offset": 6}
    legend: Spec = {"title": "pattern", "orient": "bottom", "columns": 1, **symbols}
    legend["labelLimit"] = COLUMN - 20
    scale: Spec = {"range": COLOURS[: len(values)]}
    room = COLUMN / 4 - 20
    colours = {"title": "subject", "orient": "top", "columns": 4, "labelLimit": room, **symbols}
    if len(values) > len(COLOURS):
        scale = {"scheme": {"name": "viridis", "count": len(values), "extent": [0, 0.9]}}
        heading["subtitle"] = f"{len(values)} subjects, from dark to light in alphabetical order"
    axis: Spec = {"axis": None, "scale": {"zero": False, "nice": False, "padding": 8}}
    channels = {
        "x": _field("x", **axis),
        "y": _field("y", **axis),
        "color": _field(
            "subject", "nominal", scale={"domain": values, **scale},
            legend=colours if len(values) <= len(COLOURS) else None,
        ),
        "shape": _field(
            "variant", "nominal", scale={"domain": patterns, "range": SHAPES},
            legend=legend | {"symbolStrokeColor": INK},
        ),
        "opacity": {"condition": {"param": "chosen", "value": 0.9}, "value": 0.1},
        **_tips({"subject": "subject", "gold": "object", "variant": "pattern"}),
    }  # fmt: skip
    return _styled(
        "t-SNE of vectors, a shape for each pattern, a colour for each subject.",
        title=heading, data=_data(table), width=COLUMN, height=COLUMN,
        view={"stroke": INK, "strokeOpacity": 0.3},
        params=[{"name": "chosen", "select": {"type": "point", "fields": ["subject"]}}],
        **_layer({"type": "point", "size": 30, "strokeWidth": 1, "filled": False}, channels),
    )  # fmt: skip
