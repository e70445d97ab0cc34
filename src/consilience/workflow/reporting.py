"""The report on one run or several: the page, its figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.metrics.counts import Prepared, ResampleCache
from consilience.metrics.notes import few_relations
from consilience.report.export import save_table
from consilience.report.figures import for_paper, save_figure
from consilience.report.html import render
from consilience.report.overview import by_run
from consilience.report.page import Page
from consilience.report.report_page import report_page
from consilience.report.run_layouts import fact_layouts, pair_layouts, question_layouts
from consilience.report.run_view import RunView
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import PAIR_WORDS, QUESTION_WORDS, Suite
from consilience.watch import SILENT, Advance, Watch
from consilience.workflow.comparing import (
    differences_of,
    refuse_mixed,
    refuse_other_variants,
    settings_notes,
)
from consilience.workflow.run_options import ReportOptions
from consilience.workflow.suite import any_suite_of
from consilience.workflow.viewing import fact_view, pair_view

FIGURE_FORMATS = ("svg", "png", "pdf")
"""Suffixes of the files of a figure."""


@dataclass(frozen=True, slots=True)
class Report:
    """A page, tables of the same runs for files, and what a reader should know."""

    runs: Sequence[Run]
    """The runs, opened."""
    page: Page
    """The page, not yet rendered."""
    tables: Mapping[str, Table]
    """Tables by the names of their files: the papers' layouts, or those of questions."""
    notes: Sequence[str]
    """Differences between the settings of the runs, and the warnings of each run."""


def report(options: ReportOptions, watch: Watch = SILENT) -> Report:
    """One page on one run, or on several with the first as the reference."""
    runs = open_runs(options.runs)
    _page_of(runs, options.out)
    refuse_mixed(runs)
    is_of_pairs = runs[0].is_of_pairs
    if options.group and is_of_pairs:
        raise ConsilienceError("--group with runs of sentence pairs", todo="Leave it out.")
    suite, protocol = any_suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    if options.group:
        _groups_of_runs(suite, runs).relation(options.group)
    with watch.steps("counting", 2 * len(runs) - 1, "tables") as advance:
        views, compared, notes = _measured(runs, suite, protocol, options.seed, advance)
    page = report_page(views, compared, notes, options.group)
    warnings = [*notes, *by_run({view.name: view.warnings for view in views})]
    layouts = {PAIR_WORDS: pair_layouts, QUESTION_WORDS: question_layouts}
    layout = layouts.get(views[0].suite.words, fact_layouts)
    tables = layout({view.name: view.metrics for view in views}, warnings)
    return Report(runs, page, tables, warnings)


def save_report(made: Report, options: ReportOptions) -> list[Path]:
    """Write the page, and its figures and tables if folders for them are given."""
    page = _page_of(made.runs, options.out)
    written = [page]
    if options.figures:
        written += _save_figures(made.page, options.figures)
    if options.tables:
        for name, table in made.tables.items():
            written += save_table(table, options.tables, name)
    write_whole(page, render(made.page).encode())
    return written


def _page_of(runs: Sequence[Run], file: Path | None) -> Path:
    """The file of the page. An ending of another format is refused; a device has no ending."""
    if file is not None:
        if file.suffix.lower() not in ("", ".html", ".htm"):
            raise ConsilienceError(
                f"a page in '{file.suffix}'",
                expected=".html",
                where=str(file),
                todo="Open the page in a browser to print it as PDF."
                if file.suffix == ".pdf"
                else "",
            )
        if not file.parent.is_dir():
            raise ConsilienceError("no such folder", where=str(file.parent), todo="Make it first.")
        return file
    if len(runs) == 1 and runs[0].path.is_dir():
        return runs[0].path / "report.html"
    raise ConsilienceError(
        "several runs, or a table of answers, without --out", todo="Name the page: --out F.html."
    )


def _save_figures(page: Page, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures:
        files = [folder / f"{figure.id}.{suffix}" for suffix in FIGURE_FORMATS]
        save_figure(for_paper(figure.chart, figure.title), *files)
        written += files
    return written


def _groups_of_runs(suite: Suite, runs: Sequence[Run]) -> Suite:
    """The groups of a suite that any run has; all if it is not known."""
    tables = (part.answers for run in runs for part in run.seeds)
    groups = set[str]().union(*(table["group"].unique() for table in tables))
    groups = groups.union(*(run.settings.get("groups") or () for run in runs))
    names = [relation.id for relation in suite.relations if relation.id in groups]
    return select_relations(suite, names) if names else suite


def _measured(
    runs: Sequence[Run], suite: Suite, protocol: Protocol, seed: int, advance: Advance
) -> tuple[list[RunView], pl.DataFrame | None, list[str]]:
    """The runs, later ones against the first (``COMPARISON_SCHEMA``) if any, and notes on that.

    Seeds are averaged. A run that ``compare`` refuses to compare with the first has a note instead.
    """
    first, is_of_pairs = runs[0], runs[0].is_of_pairs
    chosen, cache = suite if is_of_pairs else _groups_of_runs(suite, runs), ResampleCache()
    reference: list[Prepared] = []
    views: list[RunView] = []
    differences: list[pl.DataFrame] = []
    notes = [] if is_of_pairs else settings_notes(runs)
    for run in runs:
        if is_of_pairs:
            views.append(pair_view(run, seed))
            tables = None
        else:
            prepared = [Prepared(part.answers, chosen, cache) for part in run.seeds]
            views.append(fact_view(run, prepared, protocol, seed, suite))
            reference = reference or prepared
            tables = {first.label: reference, run.label: prepared}
        advance(1)
        if run is first:
            continue
        try:
            refuse_other_variants([first, run])
            compared, more = differences_of([first, run], chosen, protocol, seed, tables)
            differences.append(compared)
            notes += [note for note in more if note not in notes]
        except ConsilienceError as error:
            notes.append(f"{run.label} is not compared with {first.label}: {error.found}")
        advance(1)
    compared_all = pl.concat(differences) if differences else None
    if compared_all is not None:
        notes += few_relations(compared_all, chosen)
    return views, compared_all, notes
