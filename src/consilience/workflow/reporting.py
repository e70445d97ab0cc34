"""The report on one run or several: what is counted for its page, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from consilience.analysis.examples import KINDS, about, examples
from consilience.analysis.patterns import (
    annotated_kinds,
    edit_table,
    item_table,
    pair_table,
    pattern_table,
    with_changes,
)
from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.files import texts_of, write_whole
from consilience.metrics.answers_table import is_blank
from consilience.metrics.changes import form_changes
from consilience.metrics.counts import Prepared, ResampleCache
from consilience.metrics.differences import compare, few_relations
from consilience.metrics.measure import measure
from consilience.metrics.notes import facts_left_out, notes_on
from consilience.read import read_csv
from consilience.report.export import save_table
from consilience.report.figures import for_paper, optional, save_figure
from consilience.report.html import render
from consilience.report.page import Page
from consilience.report.papers import fact_layouts, pair_layouts
from consilience.report.report_page import report_page
from consilience.report.run_view import FactView, PairView, RunView
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.schemas import METRICS_SCHEMA
from consilience.suites.selection import select_relations
from consilience.types import Suite
from consilience.watch import SILENT, Advance, Watch
from consilience.workflow.comparing import differences_of, refuse_mixed, settings_notes
from consilience.workflow.options import (
    BootstrapSeed,
    DataDir,
    Option,
    ProtocolName,
    RunSpecs,
    RunSuite,
)
from consilience.workflow.probing_pairs import seed_notes
from consilience.workflow.suite import (
    any_suite_of,
    protocol_notes,
    suite_notes,
    task_of_run,
)
from consilience.workflow.vector_clusters import correlations_of, drawing_of

FIGURE_FORMATS = ("svg", "png", "pdf")
"""Suffixes of the files of a figure."""

EXAMPLES = 3
"""Examples of each kind."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in ParaRel's Figure 3."""

PAIRED_SETTINGS = {
    "task": "another task",
    "pairs": "other pairs",
    "limit": "another --limit",
    "half": "another half",
    "perturbations": "other perturbations",
}
"""Settings that runs of sentence pairs must have in common to be compared, and what differs."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which runs are reported, and how."""

    runs: RunSpecs
    page: Annotated[
        Path | None,
        Option(
            "The page; without it, report.html in the folder of the run.",
            metavar="FILE",
            flag="--out",
        ),
    ] = None
    figures: Annotated[
        Path | None, Option("A folder for every figure as SVG, PNG and PDF.", metavar="DIR")
    ] = None
    tables: Annotated[
        Path | None,
        Option(
            "A folder for the papers' tables of these runs, as CSV, Markdown and LaTeX.",
            metavar="DIR",
        ),
    ] = None
    group: Annotated[
        str | None,
        Option(
            "Relation whose patterns are shown first [default: the least consistent].", metavar="G"
        ),
    ] = None
    suite: RunSuite = None
    protocol: ProtocolName = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class Report:
    """A page, the papers' tables of the same runs, and what a reader should know."""

    runs: Sequence[Run]
    """The runs, opened."""
    page: Page
    """The page, not yet rendered."""
    tables: Mapping[str, Table]
    """The papers' tables by the names of their files."""
    notes: Sequence[str]
    """Differences in how the runs were asked, and the warnings of each run."""


def report(options: ReportOptions, watch: Watch = SILENT) -> Report:
    """One page on one run, or on several with the first as the reference."""
    runs = open_runs(options.runs)
    _page_of(runs, options.page)
    for library in ("altair", "jinja2", "vl_convert"):
        optional(library)  # before the minutes that counting may take
    refuse_mixed(runs)
    is_of_pairs = runs[0].is_of_pairs
    if options.group and is_of_pairs:
        raise ConsilienceError("--group with runs of sentence pairs", todo="Leave it out.")
    suite, protocol = any_suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    if options.group:
        _asked_groups(suite, runs).relation(options.group)
    measure_all = _measure_pairs if is_of_pairs else _measure_facts
    with watch.steps("counting", 2 * len(runs) - 1, "tables") as advance:
        views, compared, notes = measure_all(runs, suite, protocol, options.seed, advance)
    page = report_page(views, compared, notes, options.group)
    warnings = [*notes, *(f"{view.name}: {note}" for view in views for note in view.warnings)]
    layouts = pair_layouts if is_of_pairs else fact_layouts
    tables = layouts({view.name: view.metrics for view in views}, warnings)
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
    """The file of the page."""
    if file is not None:
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
        chart = for_paper(figure.chart, figure.title)
        for suffix in FIGURE_FORMATS:
            written.append(folder / f"{figure.id}.{suffix}")
            save_figure(chart, written[-1])
    return written


def _asked_groups(suite: Suite, runs: Sequence[Run]) -> Suite:
    """The groups of a suite that any run asked; all if it is not known."""
    groups = set[str]().union(*(run.answers["group"].unique() for run in runs))
    groups = groups.union(*(run.settings.get("groups") or () for run in runs))
    asked = [relation.id for relation in suite.relations if relation.id in groups]
    return select_relations(suite, asked) if asked else suite


Measured = tuple[list[RunView], pl.DataFrame | None, list[str]]
"""The runs, later ones against the first (``COMPARISON_SCHEMA``) if any, and notes on that."""


def _measure_facts(
    runs: Sequence[Run], suite: Suite, protocol: Protocol, seed: int, advance: Advance
) -> Measured:
    """Runs on facts, or answers tables, on the same suite; of its relations those asked."""
    asked, cache = _asked_groups(suite, runs), ResampleCache()
    reference = Prepared(runs[0].answers, asked, cache)
    views = [_fact_view(runs[0], reference, protocol, seed, suite)]
    advance(1)
    differences = []
    for run in runs[1:]:
        table = Prepared(run.answers, asked, cache)
        views.append(_fact_view(run, table, protocol, seed, suite))
        advance(1)
        differences.append(
            compare({runs[0].label: reference, run.label: table}, asked, protocol, seed)
        )
        advance(1)
    compared = pl.concat(differences) if differences else None
    notes = settings_notes(runs)
    if compared is not None:
        notes += few_relations(compared)
    return views, compared, notes


def _measure_pairs(
    runs: Sequence[Run], suite: Suite, protocol: Protocol, seed: int, advance: Advance
) -> Measured:
    """Runs on sentence pairs; those that were asked the same as the first are compared with it."""
    views = []
    for run in runs:
        views.append(_pair_view(run, seed))
        advance(1)
    differs = {run.label: _different_settings(runs[0], run) for run in runs}
    notes = [
        f"{label} has no differences from {runs[0].label}: {why}"
        for label, why in differs.items()
        if why
    ]
    alike = [run for run in runs if not differs[run.label]]
    compared = None
    if len(alike) > 1:
        compared, more = differences_of(alike, suite, protocol, seed)
        notes += more
    advance(len(runs) - 1)
    return views, compared, notes


def _fact_view(run: Run, table: Prepared, protocol: Protocol, seed: int, whole: Suite) -> RunView:
    """What the page shows of a run on facts."""
    answers, suite = table.answers, table.suite
    other: Protocol = "strict" if protocol == "published" else "published"
    by_other = measure(table, suite, other, seed)
    table.forget(other)
    metrics = measure(table, suite, protocol, seed)
    pairs = pair_table(table, suite, protocol, seed)
    vectors, drawing = _vectors(run, metrics, seed)
    facts = FactView(
        protocol=protocol,
        by_other=by_other,
        patterns=with_changes(pattern_table(table, suite, protocol), pairs),
        pairs=pairs,
        edits=edit_table(table, suite, protocol, annotated_kinds(suite), seed),
        items=item_table(table, suite, protocol),
        examples={
            about(kind): found
            for kind, found in examples(table, suite, list(KINDS), EXAMPLES).items()
        },
        excluded=_without_answer(answers),
        left_out=facts_left_out(answers, metrics, suite, protocol),
        vectors=vectors,
        drawing=drawing,
    )
    notes = [
        *suite_notes(run, whole),
        *_unfinished(run.record),
        *run.record.get("warnings", []),
        *protocol_notes(run, protocol),
        *notes_on(answers, metrics, suite, protocol),
    ]
    return RunView(
        name=run.label,
        records=[run.record] if run.record else [],
        suite=suite,
        metrics=pl.concat([metrics, _flips(run)], how="diagonal"),
        warnings=list(dict.fromkeys(notes)),
        facts=facts,
    )


def _flips(run: Run) -> pl.DataFrame:
    """The noise floor that a run measured, as rows of the metrics table."""
    file = run.path / "metrics.csv"
    if not file.is_file():
        return pl.DataFrame(schema=METRICS_SCHEMA)
    metrics = texts_of(read_csv(file))
    known = [name for name in METRICS_SCHEMA if name in metrics.columns]
    flips = metrics.filter(pl.col("metric") == "flips")
    return flips.select(pl.col(name).cast(METRICS_SCHEMA[name]) for name in known)


def _without_answer(answers: pl.DataFrame) -> pl.DataFrame:
    """How many questions have no answer, by relation and reason: ``group, excluded, len``."""
    is_known = "excluded" in answers.columns
    reason = pl.col("excluded") if is_known else pl.lit(None, pl.String)
    blank = answers.filter(is_blank()).with_columns(excluded=reason.fill_null("no answer"))
    return blank.group_by("group", "excluded", maintain_order=True).len()


def _unfinished(record: Mapping[str, Any]) -> list[str]:
    """A note on a run that has not ended; none on a table of answers."""
    if not record or record.get("finished"):
        return []
    return ["not finished: the numbers are of what is answered; rerun the same command to resume"]


def _vectors(run: Run, metrics: pl.DataFrame, seed: int) -> tuple[pl.DataFrame | None, Any]:
    """The clusters of a run of `analyze representations`, and the vectors of one relation drawn."""
    if not (run.path / "clusters.csv").is_file():
        return None, None
    clusters = texts_of(read_csv(run.path / "clusters.csv"))
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run.path, drawn, DRAWN, "subject", f"{run.label}: {drawn}", seed)
    return correlations_of(metrics, clusters), drawing


def _pair_view(run: Run, seed: int) -> RunView:
    """What the page shows of a run on sentence pairs, of one seed or several."""
    answers = [part.answers for part in run.seeds]
    suite, protocol = any_suite_of(run, None, None, None)
    notes = {
        part.label if run.parts else "": [*_unfinished(part.record), *part.record["warnings"]]
        for part in run.seeds
    }
    changes = form_changes(answers, suite, protocol, seed)
    return RunView(
        name=run.label,
        records=[part.record for part in run.seeds],
        suite=suite,
        metrics=measure(answers, suite, protocol, seed),
        warnings=seed_notes(notes),
        pairs=PairView(task_of_run(run), _changed_answers(run.path), changes),
    )


def _changed_answers(run: Path) -> pl.DataFrame:
    """The answers that a form changed; those of one seed are in the folder of all seeds."""
    for folder, seed in ((run, None), (run.resolve().parent, run.resolve().name)):
        file = folder / "inconsistent.csv"
        if file.is_file():
            changed = texts_of(read_csv(file, infer_schema=False))
            if seed is None:
                return changed
            if seed in {part.name for part in folder.glob("seed-*")}:
                return changed.filter(pl.col("seed") == seed)
    raise ConsilienceError(
        "no inconsistent.csv",
        where=str(run),
        todo="Of one seed it is in the folder of all seeds. Rerun the same `consilience probe` "
        "command to finish an interrupted run.",
    )


def _different_settings(first: Run, run: Run) -> str:
    """Why a run is not compared with the first; empty if it is."""
    reasons = [
        reason
        for name, reason in PAIRED_SETTINGS.items()
        if first.settings.get(name) != run.settings.get(name)
    ]
    if len(first.seeds) != len(run.seeds):
        reasons.append("another number of seeds")
    return ", ".join(reasons)
