"""The page of a study: the numbers of all runs, the comparisons, and the state of each run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from consilience.report.chart_parts import MEASURED
from consilience.report.charts import headline_figure
from consilience.report.comparison_tables import LABELS
from consilience.report.overview import by_run
from consilience.report.page import Figure, Folded, Links, Page, Part, Points, Section
from consilience.report.repeat import again
from consilience.report.study_tables import StudyCell
from consilience.report.table import Table, intervals_below


def study_page(
    name: str,
    cells: Sequence[StudyCell],
    tables: Mapping[str, Table],
    states: Table,
    notes: Sequence[str],
    folder: Path,
) -> Page:
    """The page. ``tables``: those of the study; ``states``: a row for each run.

    ``notes``: on the comparisons. ``folder``: where the page will be, for links to other pages.
    """
    figures: list[Part] = [
        _figure(at, cell)
        for at, cell in enumerate(cells, start=1)
        if any(not row.missing for row in cell.rows)
    ]
    sections = [
        Section("study", "Numbers", "", [intervals_below(tables["study"]), *figures]),
    ]
    if "comparisons" in tables:
        intro = "Paired: on the same questions. A difference has a 95 % interval and a test."
        parts: list[Part] = [tables["comparisons"], Points(notes)]
        sections.append(Section("comparisons", "Comparisons", intro, parts))
    labelled = [(f"{row.model}, {cell.name}", row) for cell in cells for row in cell.rows]
    links = [(label, os.path.relpath(row.page, folder)) for label, row in labelled if row.page]
    warnings = by_run({label: row.notes for label, row in labelled if not row.missing})
    about: list[Part] = [states, *([Links(links)] if links else [])]
    about += [Folded("Notes on single runs", [Points(warnings)])] if warnings else []
    sections.append(Section("runs", "Runs", "", about))
    sections.append(again([(label, row.record) for label, row in labelled if not row.missing]))
    models = len(dict.fromkeys(row.model for cell in cells for row in cell.rows))
    subtitle = f"{models} models, {len(cells)} combinations of suite and factors"
    return Page(f"How consistent are the models of {name}?", subtitle, sections)


def _figure(at: int, cell: StudyCell) -> Figure:
    """The headline numbers of all models in a cell, a panel a number."""
    rows = [
        {
            "model": row.model, "number": LABELS.get(metric, number.label), "value": number.value,
            "low": number.low, "high": number.high, "source": MEASURED,
        }
        for row in cell.rows
        for metric, number in row.numbers.items()
    ]  # fmt: skip
    return Figure(
        f"headlines-{at}",
        f"{cell.name}: headline numbers",
        headline_figure(pl.DataFrame(rows)),
        f"{cell.name}: the headline numbers of each model, with 95 % confidence intervals.",
        is_fluid=False,
    )
