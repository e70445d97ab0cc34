"""The report on one run or several: the page, its figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis.examples import KINDS, about, examples
from consilience.analysis.expectation_tables import violated_examples
from consilience.analysis.patterns import (
    annotated_kinds,
    edit_table,
    form_tables,
    item_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.choices import Protocol
from consilience.counting import count_run, record_notes
from consilience.errors import ConsilienceError
from consilience.files import texts_of, write_whole
from consilience.kinds import kind_of_run, protocol_notes, suite_notes, suite_of
from consilience.kinds.pairs import changed_answers_of, task_of_run
from consilience.metrics.answers_table import is_blank
from consilience.metrics.counts import Prepared, ResampleCache
from consilience.metrics.measure import measure
from consilience.metrics.notes import few_relations
from consilience.read import read_csv
from consilience.report.export import save_table
from consilience.report.figures import for_paper, save_figure
from consilience.report.html import render
from consilience.report.overview import by_run
from consilience.report.page import Page
from consilience.report.report_page import report_page
from consilience.report.run_layouts import layouts_of
from consilience.report.run_view import FactView, PairView, RunView
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import Suite
from consilience.watch import SILENT, Advance, Watch
from consilience.workflow.comparing import (
    differences_of,
    refuse_mixed,
    refuse_other_variants,
    settings_notes,
)
from consilience.workflow.factor_analysis import factor_views
from consilience.workflow.run_options import ReportOptions
from consilience.workflow.vector_clusters import correlations_of, drawing_of

EXAMPLES = 3
"""Examples of each kind."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in ParaRel's Figure 3."""

FIGURE_FORMATS = ("svg", "png", "pdf")
"""Suffixes of the files of a figure."""


@dataclass(frozen=True, slots=True)
class Report:
    """A page, tables of the same runs for files, and what a reader should know."""

    runs: Sequence[Run]
    page: Page
    """The page, not yet rendered."""
    tables: Mapping[str, Table]
    """Tables by the names of their files: the papers' layouts, or those of questions."""
    notes: Sequence[str]
    """Differences between the settings of the runs, and the warnings of each run."""


def report(options: ReportOptions, watch: Watch = SILENT) -> Report:
    """One page on one run, or on several with the first as the reference."""
    runs = open_runs(options.runs)
    _page_of(runs, options.page)
    refuse_mixed(runs)
    suite, protocol = suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    if options.group and not suite.words.pool:
        raise ConsilienceError("--group with runs of sentence pairs", todo="Leave it out.")
    if options.group:
        _groups_of_runs(suite, runs).relation(options.group)
    with watch.steps("counting", 2 * len(runs) - 1, "tables") as advance:
        views, compared, notes = _measured(runs, suite, protocol, options.seed, advance)
    page = report_page(views, compared, notes, options.group)
    warnings = [*notes, *by_run({view.name: view.warnings for view in views})]
    tables = layouts_of(suite.words, {view.name: view.metrics for view in views}, warnings)
    return Report(runs, page, tables, warnings)


def save_report(made: Report, options: ReportOptions) -> list[Path]:
    """Write the page, and its figures and tables if folders for them are given."""
    page = _page_of(made.runs, options.page)
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
    first, chosen, cache = runs[0], _groups_of_runs(suite, runs), ResampleCache()
    reference: list[Prepared] = []
    views: list[RunView] = []
    differences: list[pl.DataFrame] = []
    notes = settings_notes(runs) if suite.words.pool else []
    for run in runs:
        view, prepared = view_of(run, chosen, protocol, seed, suite, cache)
        views.append(view)
        reference = reference or prepared
        advance(1)
        if run is first:
            continue
        try:
            refuse_other_variants([first, run])
            tables = {first.label: reference, run.label: prepared}
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


def view_of(
    run: Run, chosen: Suite, protocol: Protocol, seed: int, whole: Suite, cache: ResampleCache
) -> tuple[RunView, list[Prepared]]:
    """What the page shows of a run, and its answers; those of sentence pairs are in its own forms.

    Numbers of several seeds are averaged. ``chosen``: the groups of all runs, of ``whole``.
    """
    suite = chosen if chosen.words.pool else suite_of(run)[0]
    seeds = [Prepared(part.answers, suite, cache) for part in run.seeds]
    counted = count_run(run, suite, protocol, seed, seeds)
    warnings = [
        *suite_notes(run, whole),
        *record_notes(run),
        *counted.notes,
        *protocol_notes(run, protocol),
    ]
    view = RunView(
        name=run.label,
        records=[part.record for part in run.seeds if part.record],
        suite=suite,
        metrics=counted.metrics,
        summary=counted.summary,
        baseline=counted.baseline,
        warnings=list(dict.fromkeys(warnings)),
    )
    if not suite.words.pool:
        agreement, forms = form_tables(run.tables, suite)
        changed = changed_answers_of(run.path)
        pairs = PairView(task_of_run(run), changed, counted.changes, agreement, forms)
        return replace(view, pairs=pairs), seeds
    facts = _facts_of(run, seeds, protocol, seed, counted.metrics)
    return replace(
        view, facts=facts, factors=factor_views(run, seed=seed) if run.varies else ()
    ), seeds


def _facts_of(
    run: Run, seeds: Sequence[Prepared], protocol: Protocol, seed: int, metrics: pl.DataFrame
) -> FactView:
    """More on a run of facts or questions; the examples are those of the first seed.

    The spread over facts counts the facts of all seeds.
    """
    table, suite, kind = seeds[0], seeds[0].suite, kind_of_run(run)
    by_other = pl.DataFrame()
    for other in suite.words.protocols:
        if other != protocol:
            by_other = measure(seeds, suite, other, seed)
            for prepared in seeds:
                prepared.forget(other)
    pairs = pair_table(seeds, suite, protocol, seed)
    chosen = kind.with_texts(run, examples(table, suite, list(KINDS), EXAMPLES))
    items = {(one.group, one.item) for of_kind in chosen.values() for one in of_kind}
    sent = {(item, variant): text for _, item, variant, text in run.prompts.iter_rows()}
    vectors, drawing = _vectors(run, metrics, seed)
    return FactView(
        protocol=protocol,
        by_other=by_other,
        patterns=with_changes(pattern_table(seeds, suite, protocol), pairs),
        pairs=pairs,
        edits=edit_table(seeds, suite, protocol, annotated_kinds(suite), seed),
        items=pl.concat(item_table(one, suite, protocol) for one in seeds),
        examples={about(kind): of_kind for kind, of_kind in chosen.items()},
        excluded=_without_answer(pl.concat([one.answers for one in seeds])),
        prompts=kind.shown_texts(run, suite, items),
        violations=violated_examples(table.instances, sent, EXAMPLES),
        vectors=vectors,
        drawing=drawing,
    )


def _without_answer(answers: pl.DataFrame) -> pl.DataFrame:
    """How many queries have no answer, by relation and reason: ``group, excluded, len``."""
    is_known = "excluded" in answers.columns
    reason = pl.col("excluded") if is_known else pl.lit(None, pl.String)
    blank = answers.filter(is_blank()).with_columns(excluded=reason.fill_null("no answer"))
    return blank.group_by("group", "excluded", maintain_order=True).len()


def _vectors(run: Run, metrics: pl.DataFrame, seed: int) -> tuple[pl.DataFrame | None, Any]:
    """The clusters of a run of `analyze representations`, and the vectors of one relation drawn."""
    if not (run.path / "clusters.csv").is_file():
        return None, None
    clusters = texts_of(read_csv(run.path / "clusters.csv"))
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run.path, drawn, DRAWN, "subject", f"{run.label}: {drawn}", seed)
    return correlations_of(metrics, clusters), drawing
