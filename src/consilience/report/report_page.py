"""The report on one run or several, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from consilience.report.difference_sections import differences
from consilience.report.fact_sections import fact_sections
from consilience.report.form_sections import form_sections
from consilience.report.overview import asked, care, numbers, subtitle_of
from consilience.report.page import Page
from consilience.report.repeat import again
from consilience.report.run_view import RunView


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    relation: str | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: in what the runs
    were asked differently. ``relation``: the relation whose agreement is shown first; None for the
    least consistent.
    """
    sections = [
        asked(runs),
        numbers(runs),
        *differences(compared, notes),
        *fact_sections(runs, relation),
        *form_sections(runs),
        care(runs),
        again(_records(runs)),
    ]
    names = ", ".join(run.model if run.facts else run.name for run in runs)
    title = f"{names}: the same answer, however it is asked?"
    return Page(title, subtitle_of(runs), sections)


def _records(runs: Sequence[RunView]) -> list[tuple[str, Mapping[str, Any]]]:
    """The record of each seed of each run, by name; an empty one for a table of answers."""
    return [
        (f"{run.name}, seed {at + 1} of {run.seeds}" if run.seeds > 1 else run.name, record)
        for run in runs
        for at, record in enumerate(run.records or [{}])
    ]
