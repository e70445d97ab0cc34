"""The report on one run or several, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from consilience.report.difference_sections import differences
from consilience.report.expectation_sections import expectation_sections
from consilience.report.fact_sections import fact_sections
from consilience.report.factor_sections import factor_sections
from consilience.report.first_screen import first_screen
from consilience.report.form_sections import form_sections
from consilience.report.overview import caveats, numbers, setup, subtitle_of
from consilience.report.page import Page
from consilience.report.page_words import page_in_words
from consilience.report.repeat import again
from consilience.report.run_view import RunView, group_names
from consilience.report.server_sections import server_sections

SHOWN = 3
"""Models that the title names."""


def report_page(
    runs: Sequence[RunView],
    compared: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    relation: str | None = None,
) -> Page:
    """The report of runs on the same suite.

    ``compared``: later runs against the first (``COMPARISON_SCHEMA``). ``notes``: differences
    between the settings of the runs. ``relation``: the relation whose agreement is shown first;
    None for the least consistent.
    """
    words = runs[0].suite.words
    sections = [
        first_screen(runs, relation),
        *differences(compared, notes, group_names(runs[0].suite), words.pool),
        numbers(runs),
        *fact_sections(runs),
        *form_sections(runs),
        *factor_sections(runs),
        *expectation_sections(runs),
        *server_sections(runs),
        caveats(runs),
        setup(runs),
        again(_records(runs)),
    ]
    names = [run.name for run in runs]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    title = f"How consistent {'is' if len(names) == 1 else 'are'} {', '.join(names[:SHOWN])}{more}?"
    return page_in_words(Page(title, subtitle_of(runs), sections), words)


def _records(runs: Sequence[RunView]) -> list[tuple[str, Mapping[str, Any]]]:
    """The record of each seed of each run, by name; an empty one for a table of answers."""
    return [
        (f"{run.name}, seed {at + 1} of {run.seeds}" if run.seeds > 1 else run.name, record)
        for run in runs
        for at, record in enumerate(run.records or [{}])
    ]
