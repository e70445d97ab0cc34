"""The section of a report on factors: where inconsistency comes from."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from consilience.factors import FACTORS
from consilience.report.factor_charts import factor_figure
from consilience.report.factor_tables import (
    FactorView,
    factor_table,
    index_table,
    interaction_table,
    level_table,
)
from consilience.report.page import Figure, Folded, Part, Points, Section, Text
from consilience.report.run_view import RunView
from consilience.report.table import intervals_below

INTRO = (
    "The same questions were asked in variants. A factor is what differs between them, such as the "
    "order of the options. The less variants agree that differ in one factor only, the more this "
    "factor changes answers."
)
"""What the section shows."""

CAPTION = (
    "Consistency: mark with 95 % CI, and a tick at the level expected by chance. Answer and "
    "correctness: the bar is the main effect of a factor as a share of the variation over "
    "variants, the mark with 95 % CI its total effect, which has all interactions of the factor."
)
"""How to read the figure."""

CAPTION_OF_PAIRS = (
    "Consistency: mark with 95 % CI, and a tick at the level expected by chance. Answer and "
    "correctness: probability, with 95 % CI, that it changes when this factor alone gets a random "
    "level."
)
"""How to read the figure of a design without main effects."""


def factor_sections(runs: Sequence[RunView]) -> list[Section]:
    """That of runs on questions; none without."""
    views = [view for run in runs for view in run.factors]
    return [factor_section(views)] if views else []


def _most_changed(view: FactorView, *, several: bool) -> str:
    """Which factor changes answers most, in a sentence with its consistency and the others'."""
    rows = view.tables.consistency.filter(pl.col("value").is_not_nan()).sort(
        "value", maintain_order=True
    )
    of_run = f"{view.name}: " if several else ""
    shares = [
        (FACTORS.get(name, name), value) for name, value in rows.select("factor", "value").rows()
    ]
    if not shares:
        return f"{of_run}No two variants that differ in one factor only have answers."
    (label, lowest), *others = shares
    text = f"{of_run}Two variants that differ only in {label} get the same answer "
    text += f"{100 * lowest:.1f} % of the time"
    text += "".join(f"; only in {name}, {100 * value:.1f} %" for name, value in others)
    changes_most = bool(others) and lowest < others[0][1]
    return text + "." + f" So {label} changes answers most." * changes_most


def factor_section(views: Sequence[FactorView]) -> Section:
    """The table and the figure of factors, the indices, and every interaction."""
    is_exact = all(view.is_exact for view in views)
    caption = CAPTION if is_exact else CAPTION_OF_PAIRS
    title = "What each factor changes, in percent"
    parts: list[Part] = [
        Text([_most_changed(view, several=len(views) > 1) for view in views]),
        Figure(
            "factors", "What each factor changes", factor_figure(views), caption, is_fluid=False
        ),
        intervals_below(factor_table(views, title)),
        Folded(
            "Sensitivity indices, to compare with other models on the same questions",
            [index_table(views, "Sensitivity indices: the larger, the more variants differ")],
        ),
    ]
    interactions = interaction_table(views, "Interactions, percent of the variation")
    if interactions.rows:
        parts.append(Folded("Each interaction", [interactions]))
    levels = level_table(views, "Accuracy by level")
    parts.append(Folded("Accuracy by level", [levels]))
    several = len(views) > 1
    notes = [
        f"{view.name}: {note}" if several else note for view in views for note in view.tables.notes
    ]
    if notes:
        parts.append(Points(notes))
    return Section("factors", "Factors", INTRO, parts)
