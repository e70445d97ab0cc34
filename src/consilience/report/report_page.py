"""The report on one run or several, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from consilience.report import fact_sections, pair_sections
from consilience.report.difference_sections import fact_differences, pair_differences
from consilience.report.overview import (
    care,
    fact_numbers,
    facts_asked,
    forms_of,
    pair_numbers,
    pairs_asked,
    relations_in_words,
)
from consilience.report.page import Page
from consilience.report.repeat import again
from consilience.report.run_view import RunView
from consilience.types import Protocol, Suite


def fact_page(
    suite: Suite,
    protocol: Protocol,
    runs: Sequence[RunView],
    compared: pl.DataFrame | None,
    kinds: Mapping[str, str],
    notes: Sequence[str] = (),
    relation: str | None = None,
) -> Page:
    """The report of runs on the same suite, of which ``suite`` has the relations that were asked.

    ``compared``: later runs against the first. ``kinds``: what the kinds of examples are.
    ``notes``: in what the runs were asked differently. ``relation``: whose agreement is shown
    first, else that of the lowest consistency.
    """
    sections = [facts_asked(suite, protocol, runs), fact_numbers(runs, protocol)]
    if compared is not None:
        sections.append(fact_differences(compared, notes))
    sections += [
        fact_sections.relations(suite, runs),
        fact_sections.knowledge(suite, runs),
        *fact_sections.patterns(runs, relation),
        *fact_sections.edits(runs),
        *fact_sections.items(runs),
        *fact_sections.examples(runs, kinds),
        *fact_sections.vectors(runs),
        care(runs),
        again(_records(runs)),
    ]
    names = ", ".join(run.model for run in runs)
    title = f"{names}: the same answer, however it is asked?"
    return Page(title, f"{suite.name}, {relations_in_words(suite)}, protocol {protocol}", sections)


def pair_page(
    runs: Sequence[RunView], compared: pl.DataFrame | None, notes: Sequence[str] = ()
) -> Page:
    """The report of runs on sentence pairs.

    ``compared``: later runs against the first, where both were asked the same. ``notes``: what has
    no differences, and why.
    """
    sections = [
        pairs_asked(runs),
        pair_numbers(runs),
        *pair_differences(compared, notes),
        pair_sections.forms(runs),
        pair_sections.label_changes(runs),
        pair_sections.changed_examples(runs),
        care(runs),
        again(_records(runs)),
    ]
    tasks = ", ".join(dict.fromkeys(run.pairs.task.name for run in runs if run.pairs))
    names = ", ".join(run.name for run in runs)
    title = f"{names}: the same label, in whatever order and format?"
    return Page(title, f"{tasks}; {', '.join(forms_of(runs[0]))}", sections)


def _records(runs: Sequence[RunView]) -> list[tuple[str, Mapping[str, object]]]:
    """The record of each seed of each run, by name; an empty one for a table of answers."""
    return [
        (f"{run.name}, seed {at + 1} of {run.seeds}" if run.seeds > 1 else run.name, record)
        for run in runs
        for at, record in enumerate(run.records or [{}])
    ]
