"""Charts as SVG: intervals, differences, and vectors in the plane."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.factors import Kind
from consilience.core.text import visible
from consilience.files.write import write_whole
from consilience.types import Suite

INK = "currentColor"  # Of text and lines: that of the text around a chart
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", INK, "#a39000",
)  # fmt: skip
"""Okabe and Ito's colours, for colour-blind readers, with a darker yellow and ink for black."""

CIRCLE = "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z"
MARKS = (
    CIRCLE, "M-.9,-.9H.9V.9H-.9Z", "M0,-1.1L1.1,.9H-1.1Z", "M0,-1.2L1.2,0L0,1.2L-1.2,0Z",
    "M0,1.1L1.1,-.9H-1.1Z", "M1,-1.1V1.1L-1,0Z",
)  # fmt: skip
"""Outlines of the marks of runs, in a square from -1 to 1."""

BAR = "M-.2,-1.25H.2V1.25H-.2Z"  # What is expected by chance

EXPECTED = "expected by chance"
FONT, LINE, CHARACTER = 13, 16, 7.0  # Pixels: of text, from a line to the next, of a character
LABEL = 30  # Characters in a line of a label
WIDTH, PLANE = 360, 320  # Of the plane of intervals, and of that of vectors, in pixels
GAP = 10  # Pixels between a label and what it is of
TICKS = 5  # About so many on an axis


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture; its text and lines have the colour of the text around it."""

    about: str  # What it shows, for a reader who does not see it
    width: float
    height: float
    elements: Sequence[str] = field(repr=False)

    @property
    def svg(self) -> str:
        """The chart as an element of a page, with nothing that runs."""
        return _element(
            "svg", "".join(self.elements), xmlns="http://www.w3.org/2000/svg", role="img",
            viewBox=f"0 0 {self.width:.0f} {self.height:.0f}", width=f"{self.width:.0f}",
            height=f"{self.height:.0f}", font_size=FONT, font_family="sans-serif",
            aria_label=visible(self.about),
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Write it as an SVG file, whose ink is black."""
        write_whole(path, self.svg.replace(INK, "#000").encode())

    def _repr_html_(self) -> str:
        return self.svg


def _element(tag: str, content: str = "", **attributes: Any) -> str:
    """An element of SVG; ``content`` is SVG, and attributes are escaped."""
    named = (f'{name.replace("_", "-")}="{escape(str(of))}"' for name, of in attributes.items())
    renamed = (text.replace("view-box", "viewBox") for text in named)
    return f"<{tag} {' '.join(renamed)}>{content}</{tag}>"


def _text(text: str, x: float, y: float, anchor: str = "start", **more: Any) -> str:
    where: Any = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor, "fill": INK}
    return _element("text", escape(visible(text)), **where, **more)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = INK, **more: Any) -> str:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return _element(
        "line", **{name: f"{of:.1f}" for name, of in ends.items()}, stroke=colour, **more
    )


def _mark(outline: str, x: float, y: float, colour: str, tip: str = "") -> str:
    """A filled outline around a point; a reader who points at it sees the ``tip``."""
    return _element(
        "path", f"<title>{escape(visible(tip))}</title>" if tip else "", d=outline,
        transform=f"translate({x:.1f},{y:.1f}) scale(4)", fill=colour,
        stroke=colour, stroke_width=0.2,
    )  # fmt: skip


def percents(*names: str) -> pl.Expr:
    """Fractions in percent, rounded as tables round: to one digit, halves to the even one."""
    return (pl.col(*names) * 100).round(1, mode="half_to_even").fill_nan(None)


def ticks_of(least: float, most: float) -> list[float]:
    """Round numbers in a range, about ``TICKS`` of them."""
    raw = (most - least or 1.0) / TICKS
    unit = 10.0 ** math.floor(math.log10(raw))
    step = min((of * unit for of in (1, 2, 5, 10)), key=lambda of: abs(math.log(of / raw)))
    first = math.ceil(least / step - 1e-9)
    return [at * step for at in range(first, math.floor(most / step + 1e-9) + 1)]


def interval_chart(rows: pl.DataFrame, about: str, axis: str = "percent") -> Chart:
    """A number of each of some parts with its interval, a mark a run; the rows' order is kept.

    ``rows``: ``run, name, value, low, high``, fractions, and ``chance`` if there is any. ``axis``:
    of differences from 0 with ``points`` in it, else of shares up to 1.
    """
    has_chance, is_difference = "chance" in rows.columns, "points" in axis
    rows = rows.with_columns(percents("value", "low", "high", *["chance"] * has_chance))
    runs, names = (rows[of].unique(maintain_order=True).to_list() for of in ("run", "name"))
    labels = {name: textwrap.wrap(name, LABEL) or [""] for name in names}
    per_run = {1: 0, 2: 14, 3: 12}.get(len(runs), 10)
    bands = [max(22, LINE * len(of) + 6, per_run * len(runs) + 8) for of in labels.values()]
    left = CHARACTER * max(len(line) for of in labels.values() for line in of) + GAP
    known = [
        of for of in rows.select("value", "low", "high").iter_rows() for of in of if of is not None
    ]
    least, most = min(0.0, *known, 0.0), max([0.0 if is_difference else 100.0, *known])
    width = WIDTH / ((most - least) or 1.0)
    elements: list[str] = []
    entries = [(*_mark_of(at), run) for at, run in enumerate(runs)] if len(runs) > 1 else []
    entries += [(BAR, INK, EXPECTED)] * has_chance
    top = _legend(elements, entries, left, 0.0) + GAP
    bottom = top + sum(bands)

    def place(value: float) -> float:
        return float(left + (value - least) * width)

    for tick in ticks_of(least, most):
        elements.append(_line(place(tick), top, place(tick), bottom, stroke_opacity=0.15))
        elements.append(_text(f"{tick:g}", place(tick), bottom + LINE, "middle"))
    elements.append(_text(axis, left, bottom + 2.3 * LINE))
    if is_difference:
        elements.append(_line(place(0), top, place(0), bottom, stroke_dasharray="3 3"))
    for (name, lines), end in zip(labels.items(), accumulate(bands), strict=True):
        middle = top + end - bands[names.index(name)] / 2
        for at, line in enumerate(lines):
            y = middle + LINE * (at - (len(lines) - 1) / 2) + 0.35 * FONT
            elements.append(_text(line, left - GAP, y, "end"))
        for row in rows.filter(name=name).to_dicts():
            number = runs.index(row["run"])
            y = middle + per_run * (number - (len(runs) - 1) / 2)
            elements += _interval(row, y, place, number, has_chance)
    return Chart(about, left + WIDTH + 2 * GAP, bottom + 2.6 * LINE, elements)


def _interval(
    row: Mapping[str, Any], y: float, place: Any, number: int, has_chance: bool
) -> Iterator[str]:
    """A row's interval, what chance would give, and its value."""
    value, low, high = (row[of] for of in ("value", "low", "high"))
    outline, colour = _mark_of(number)
    if low is not None and high is not None:
        yield _line(place(low), y, place(high), y, colour, stroke_width=1.5)
    if has_chance and row["chance"] is not None:
        x = place(row["chance"])
        yield _line(x, y - 5, x, y + 5, colour, stroke_width=2, stroke_opacity=0.8)
    if value is not None:
        bounds = f" ({low:.1f} to {high:.1f})" if low is not None and high is not None else ""
        tip = f"{row['run']}, {row['name']}: {value:.1f}{bounds}"
        yield _mark(outline, place(value), y, colour, tip)


def _mark_of(number: int) -> tuple[str, str]:
    """The outline and the colour of a run."""
    return MARKS[number % len(MARKS)], COLOURS[number % len(COLOURS)]


def _legend(
    elements: list[str], entries: Iterable[tuple[str, str, str]], left: float, y: float
) -> float:
    """Add a line for each outline, colour and text below ``y``; where the last one is."""
    for outline, colour, text in entries:
        y += LINE + 2
        elements += [_mark(outline, left + 5, y - 4, colour), _text(text, left + 5 + GAP, y)]
    return y


def numbers_of(
    runs: Mapping[str, pl.DataFrame], *metrics: str, **where: str | pl.Expr
) -> pl.DataFrame:
    """Numbers of runs, with what chance would give: ``run, group, level, n, value, ..., chance``.

    ``runs``: metrics tables by run. The chance is that of the first of ``metrics``.
    """
    of_runs = (rows.with_columns(run=pl.lit(name)) for name, rows in runs.items())
    rows, on = pl.concat(of_runs).filter(**where), ["run", "group", "level"]
    chance = rows.filter(metric=f"chance_{metrics[0]}").select(*on, chance="value")
    rows = rows.filter(pl.col("metric").is_in(metrics))
    rows = rows.select(*on, "n", "value", "low", "high")
    return rows.join(chance, on=on, how="left", maintain_order="left")


def consistency_rows(runs: Mapping[str, pl.DataFrame], suite: Suite, kind: Kind) -> pl.DataFrame:
    """The consistency of each group as a ``whole``, or of each form, for a chart.

    ``runs``: metrics tables by run. The least consistent of the first run come first. Determinism
    goes by the name of consistency.
    """
    rows = numbers_of(runs, "consistency", "determinism", over="group", kind=kind)
    name = pl.col("group").replace(suite.group_names)
    if kind != "whole":
        several = rows["group"].n_unique() > 1
        name = pl.format("{}: {}", name, "level") if several else pl.col("level")
    of_first = pl.col("value").fill_nan(None).filter(run=next(iter(runs))).first().over("name")
    return rows.with_columns(name=name).sort(of_first, nulls_last=True, maintain_order=True)


def tsne_chart(table: pl.DataFrame, title: str) -> Chart:
    """Points in the plane: each is the number of its pattern in the colour of its subject.

    ``table`` has a row a query, with the columns ``x``, ``y``, ``subject``, ``gold`` and
    ``variant``. As in the paper's Figure 3: points of one colour together mean that the vectors are
    grouped by subject, points of one number that they are grouped by pattern. More than
    eight colours have no legend; they go from dark to light in alphabetical order, so that every
    eye, and every printer, sees whether a group is of one colour or of many.
    """
    patterns = table["variant"].unique(maintain_order=True).to_list()
    subjects = sorted(table["subject"].unique().to_list())
    colours = dict(zip(subjects, COLOURS, strict=False))
    legend = [*colours.items()]
    if len(subjects) > len(COLOURS):
        steps = [15 + 65 * at / (len(subjects) - 1) for at in range(len(subjects))]
        shades = (f"hsl({250 - lightness:.0f},60%,{lightness:.0f}%)" for lightness in steps)
        colours = dict(zip(subjects, shades, strict=True))
        legend = [(f"{len(subjects)} subjects, from dark to light in alphabetical order", INK)]
    elements, y = list[str](), 0.0
    for line in textwrap.wrap(title, 46):
        y += LINE + 2
        elements.append(_text(line, 0, y, font_weight="bold"))
    y = _legend(elements, [(CIRCLE, colour, text) for text, colour in legend], 0.0, y)
    top, room = y + GAP, PLANE - 2 * GAP
    frame: Any = {"x": 0.5, "y": f"{top:.1f}", "width": PLANE - 1, "height": PLANE, "fill": "none"}
    elements.append(_element("rect", **frame, stroke=INK, stroke_opacity=0.3))

    def scaled(column: str) -> pl.Expr:
        of = pl.col(column)
        return (of - of.min()) / pl.max_horizontal(of.max() - of.min(), 1e-9) * room + GAP

    for row in table.with_columns(scaled("x"), scaled("y")).to_dicts():
        tip = escape(visible(f"{row['subject']}, {row['gold']}: {row['variant']}"))
        number = f"{patterns.index(row['variant']) + 1}<title>{tip}</title>"
        place = {"x": f"{row['x']:.1f}", "y": f"{top + PLANE - row['y']:.1f}"}
        colour = colours[row["subject"]]
        elements.append(_element("text", number, **place, text_anchor="middle", fill=colour))
    y = top + PLANE + GAP
    for at, pattern in enumerate(patterns):
        y += LINE + 2
        elements.append(_text(f"{at + 1}  {pattern}", 0, y))
    about = "t-SNE of vectors, the number of a pattern in the colour of a subject."
    return Chart(about, max(PLANE, CHARACTER * max(map(len, patterns)) + 20), y + GAP, elements)
