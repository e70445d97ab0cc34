"""Charts as SVG: intervals, and vectors in the plane."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.files.write import write_whole
from consilience.report.table import rendered
from consilience.types import Suite

INK = "currentColor"  # Of text and lines: that of the text around a chart
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", INK, "#a39000",
)  # fmt: skip
"""Okabe and Ito's colours, for colour-blind readers, with a darker yellow and ink for black."""

CIRCLE = "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z"
BAR = "M-.2,-1.25H.2V1.25H-.2Z"  # What is expected by chance

FONT, LINE, CHARACTER = 13, 16, 7.0  # Pixels: of text, from a line to the next, of a character
LABEL = 30  # Characters in a line of a label
WIDTH, PLANE = 360, 320  # Of the plane of intervals, and of that of vectors, in pixels
GAP, PER_RUN = 10, 12  # Pixels between a label and what it is of, and between runs


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture; its text and lines have the colour of the text around it."""

    about: str  # What it shows, also for a reader who does not see it
    svg: str = field(repr=False)  # An element of a page, with nothing that runs
    name: str = ""  # Of its file

    def save(self, path: Path) -> None:
        """Write it as an SVG file, whose ink is black."""
        write_whole(path, self.svg.replace(INK, "#000").encode())

    def _repr_html_(self) -> str:
        return self.svg


def _chart(about: str, **values: Any) -> Chart:
    """A drawing of ``chart.svg``: rows of intervals, or points in the plane."""
    sizes = {"ink": INK, "size": FONT, "pitch": LINE, "gap": GAP, "plane": PLANE}
    known = {"titles": (), "left": 0, "about": about, "px": "{:.1f}".format}
    lines = rendered("chart.svg", **sizes, **known | values).split("\n")
    return Chart(about, "\n".join(filter(None, lines)))


def percents(*names: str) -> pl.Expr:
    """Fractions in percent, rounded as tables round: to one digit, halves to the even one."""
    return (pl.col(*names) * 100).round(1, mode="half_to_even").fill_nan(None)


def interval_chart(rows: pl.DataFrame, about: str) -> Chart:
    """A share of each of some parts with its interval, a colour a run; the rows' order is kept.

    ``rows``: ``run, name, value, low, high, chance``, fractions.
    """
    rows = rows.with_columns(percents("value", "low", "high", "chance"))
    runs, names = (rows[of].unique(maintain_order=True).to_list() for of in ("run", "name"))
    labels = {name: textwrap.wrap(name, LABEL) or [""] for name in names}
    left = CHARACTER * max(len(line) for of in labels.values() for line in of) + GAP
    colours = [COLOURS[at % len(COLOURS)] for at in range(len(runs))]
    legend = [(CIRCLE, *of) for of in zip(colours, runs, strict=True) if len(runs) > 1]
    legend.append((BAR, INK, "expected by chance"))
    top = bottom = len(legend) * (LINE + 2) + GAP
    intervals = []
    for name, lines in labels.items():
        of_runs = rows.filter(name=name).to_dicts()
        for row in of_runs:
            row["number"] = runs.index(row["run"])
            row["outline"], row["colour"] = CIRCLE, colours[row["number"]]
            is_between = row["low"] is not None and row["high"] is not None
            row["bounds"] = f" ({row['low']:.1f} to {row['high']:.1f})" if is_between else ""
        height = max(22, LINE * len(lines) + 6, PER_RUN * len(runs) + 8)
        intervals.append((bottom + height / 2, lines, of_runs))
        bottom += height
    return _chart(
        about, width=left + WIDTH + 2 * GAP, height=bottom + 2.6 * LINE, legend=legend, left=left,
        top=top, bottom=bottom, ticks=range(0, 101, 20), axis="percent",
        place=lambda value: left + value * WIDTH / 100,
        intervals=intervals, per_run=PER_RUN, runs=len(runs),
    )  # fmt: skip


def consistency_rows(runs: Mapping[str, pl.DataFrame], suite: Suite) -> pl.DataFrame:
    """The consistency of each group, or of each form of sentence pairs, for a chart.

    ``runs``: metrics tables by run. The least consistent of the first run come first. Determinism
    goes by the name of consistency.
    """
    of_runs = (rows.with_columns(run=pl.lit(name)) for name, rows in runs.items())
    kind, on = "form" if suite.words.over == "group" else "whole", ["run", "group", "level"]
    parts = pl.concat(of_runs).filter(over="group", kind=kind)
    chance = parts.filter(metric="chance_consistency").select(*on, chance="value")
    rows = parts.filter(pl.col("metric").is_in(["consistency", "determinism"]))
    rows = rows.select(*on, "value", "low", "high")
    rows = rows.join(chance, on=on, how="left", maintain_order="left")
    name = pl.col("group").replace(suite.group_names)
    if kind == "form":
        several = rows["group"].n_unique() > 1
        name = pl.format("{}: {}", name, "level") if several else pl.col("level")
    of_first = pl.col("value").fill_nan(None).filter(run=next(iter(runs))).first().over("name")
    return rows.with_columns(name=name).sort(of_first, nulls_last=True, maintain_order=True)


def consistency_chart(rows: pl.DataFrame, suite: Suite) -> Chart:
    """The chart of ``consistency_rows``."""
    what = suite.words.variant if suite.words.over == "group" else suite.words.group
    about = (
        f"{', '.join(rows['run'].unique(maintain_order=True))}: consistency of each {what} with "
    )
    about += f"95 % intervals over {suite.words.clusters}. The line is what is expected by chance."
    return replace(interval_chart(rows, about), name=f"{what}s")


def tsne_chart(table: pl.DataFrame, title: str) -> Chart:
    """Points in the plane (the paper's Figure 3): each is the number of its pattern.

    Its colour is that of its subject, from dark to light in alphabetical order, which every eye and
    printer shows. ``table`` has a row a query: ``x, y, subject, gold, variant``.
    """
    patterns = table["variant"].unique(maintain_order=True).to_list()
    subjects = sorted(table["subject"].unique().to_list())
    steps = [15 + 65 * at / len(subjects) for at in range(len(subjects))]
    shades = (f"hsl({250 - lightness:.0f},60%,{lightness:.0f}%)" for lightness in steps)
    colours = dict(zip(subjects, shades, strict=True))
    legend = f"{len(subjects)} subjects, from dark to light in alphabetical order"
    titles, room = textwrap.wrap(title, 46), PLANE - 2 * GAP
    top = (len(titles) + 1) * (LINE + 2) + GAP
    bottom = top + PLANE

    def scaled(column: str) -> pl.Expr:
        of = pl.col(column)
        return (of - of.min()) / pl.max_horizontal(of.max() - of.min(), 1e-9) * room + GAP

    return _chart(
        "t-SNE of vectors, the number of a pattern in the colour of a subject.",
        width=max(PLANE, CHARACTER * max(map(len, patterns)) + 20), top=top, bottom=bottom,
        height=bottom + len(patterns) * (LINE + 2) + 2 * GAP, titles=titles,
        legend=[(CIRCLE, INK, legend)], colours=colours,
        points=table.with_columns(scaled("x"), scaled("y")).to_dicts(), patterns=patterns,
    )  # fmt: skip
