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
from consilience.errors import ConsilienceError
from consilience.files import texts_of, write_whole
from consilience.metrics.changes import form_changes
from consilience.metrics.counts import Prepared, Shared
from consilience.metrics.differences import compare, few_relations
from consilience.metrics.measure import measure
from consilience.metrics.notes import facts_left_out, notes_on
from consilience.metrics.table import is_blank
from consilience.read import read_csv
from consilience.report.export import save_table
from consilience.report.figures import for_paper, optional, save_figure
from consilience.report.html import render
from consilience.report.page import Page
from consilience.report.papers import fact_layouts, pair_layouts
from consilience.report.report_page import fact_page, pair_page
from consilience.report.run_view import FactView, PairView, RunView
from consilience.report.table import Table
from consilience.run import Run, open_runs
from consilience.suites.selection import select_relations
from consilience.types import METRICS_SCHEMA, Protocol
from consilience.workflow.comparing import differences_of, refuse_mixed, settings_notes
from consilience.workflow.options import DataDir, Option, ProtocolName
from consilience.workflow.probing_pairs import seed_notes
from consilience.workflow.suite import (
    any_suite_of,
    protocol_notes,
    suite_notes,
    suite_of,
    task_of_run,
)
from consilience.workflow.vector_clusters import correlations_of, drawing_of
from consilience.workflow.watch import SILENT, Advance, Watch

FIGURE_FORMATS = ("svg", "png", "pdf")
"""Suffixes of the files of a figure."""

EXAMPLES = 3
"""Of each kind in the report."""

DRAWN = 30
"""Facts in the drawing of a run's vectors, as in the paper's Figure 3."""

SETTINGS_OF_PAIRS = {
    "task": "another task",
    "pairs": "other pairs",
    "limit": "another --limit",
    "half": "another half",
    "perturbations": "other perturbations",
}
"""What runs of perturb must have in common to be paired, and what is said if not."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which runs are reported, and how."""

    runs: Annotated[
        Sequence[str],
        Option(
            "Folders of runs, or answers tables; LABEL=RUN names one. The first is the reference.",
            metavar="RUN...",
            is_argument=True,
        ),
    ]
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
    relation: Annotated[
        str | None,
        Option("The relation whose patterns are shown first; without it, the least consistent."),
    ] = None
    suite: Annotated[
        str | None, Option("A name or a folder; without it, that of the first run.", metavar="S")
    ] = None
    protocol: ProtocolName = None
    seed: Annotated[int, Option("Seed of the bootstrap and the permutations.")] = 0
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
    make = _report_pairs if any(run.is_of_pairs for run in runs) else _report_facts
    with watch.steps("counting", 2 * len(runs) - 1, "tables") as advance:
        return make(runs, options, advance)


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


def _report_facts(runs: Sequence[Run], options: ReportOptions, advance: Advance) -> Report:
    """Runs of probe, or answers tables, on the same suite; of its relations those asked."""
    seed, relation = options.seed, options.relation
    whole, rules = suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    groups = set[str]().union(*(run.answers["group"].unique() for run in runs))
    groups = groups.union(*(run.settings.get("groups") or () for run in runs))
    asked = [each.id for each in whole.relations if each.id in groups]
    chosen = select_relations(whole, asked) if asked else whole
    if relation is not None:
        chosen.relation(relation)
    shared, reference = Shared(), None
    shown, differences = [], []
    for run in runs:
        table = Prepared(run.answers, chosen, shared)
        shown.append(_shown(run, table, rules, seed, suite_notes(run, whole)))
        advance(1)
        if reference is None:
            reference = table
            continue
        both = {runs[0].label: reference, run.label: table}
        differences.append(compare(both, chosen, rules, seed))
        advance(1)
    compared = pl.concat(differences) if differences else None
    kinds = {name: about(name) for name in KINDS}
    notes = settings_notes(runs)
    if compared is not None:
        notes += few_relations(compared)
    page = fact_page(chosen, rules, shown, compared, kinds, notes, relation)
    warnings = notes + _named(shown)
    layouts = fact_layouts({view.name: view.metrics for view in shown}, warnings)
    return Report(runs, page, layouts, warnings)


def _named(views: Sequence[RunView]) -> list[str]:
    """The warnings of all runs."""
    return [f"{view.name}: {warning}" for view in views for warning in view.warnings]


def _shown(
    run: Run, table: Prepared, protocol: Protocol, seed: int, changed: Sequence[str]
) -> RunView:
    """Everything that the page shows of one run."""
    answers, suite, record = table.answers, table.suite, run.record
    kept = run.path / "metrics.csv"
    other: Protocol = "strict" if protocol == "published" else "published"
    by_other = measure(table, suite, other, seed)
    table.forget(other)
    metrics = measure(table, suite, protocol, seed)
    if kept.is_file():
        measured = texts_of(read_csv(kept, schema=METRICS_SCHEMA))
        metrics = metrics.vstack(measured.filter(pl.col("metric") == "flips"))
    known = "excluded" in answers.columns
    reason = pl.col("excluded") if known else pl.lit(None, pl.String)
    blank = answers.filter(is_blank()).with_columns(excluded=reason.fill_null("no answer"))
    without = blank.group_by("group", "excluded", maintain_order=True).len()
    noted = [*changed, *_unfinished(record), *record.get("warnings", [])]
    noted += [*protocol_notes(run, protocol), *notes_on(answers, metrics, suite, protocol)]
    pairs = pair_table(table, suite, protocol, seed)
    vectors, drawing = _vectors(run, metrics, seed)
    facts = FactView(
        by_other=by_other,
        patterns=with_changes(pattern_table(table, suite, protocol), pairs),
        pairs=pairs,
        edits=edit_table(table, suite, protocol, annotated_kinds(suite), seed),
        items=item_table(table, suite, protocol),
        examples=examples(table, suite, list(KINDS), EXAMPLES),
        excluded=without,
        left_out=facts_left_out(answers, metrics, suite, protocol),
        vectors=vectors,
        drawing=drawing,
    )
    records = [record] if record else []
    return RunView(run.label, records, metrics, list(dict.fromkeys(noted)), facts)


def _unfinished(record: Mapping[str, Any]) -> list[str]:
    """What to say of a run that has not ended; nothing of a table of answers."""
    if not record or record.get("finished"):
        return []
    return ["not finished: the numbers are of what is answered; rerun the same command to resume"]


def _vectors(run: Run, metrics: pl.DataFrame, seed: int) -> tuple[pl.DataFrame | None, Any]:
    """What `analyze representations` left in a run's folder: numbers, and one relation drawn."""
    if not (run.path / "clusters.csv").is_file():
        return None, None
    clusters = texts_of(read_csv(run.path / "clusters.csv"))
    drawn = str(clusters["relation"][0])
    drawing = drawing_of(run.path, drawn, DRAWN, "subject", f"{run.label}: {drawn}", seed)
    return correlations_of(metrics, clusters), drawing


def _report_pairs(runs: Sequence[Run], options: ReportOptions, advance: Advance) -> Report:
    """Runs of sentence pairs, each of one seed or of several."""
    refuse_mixed(runs)
    if options.relation:
        raise ConsilienceError("--relation with runs of sentence pairs", todo="Leave it out.")
    suite, protocol = any_suite_of(runs[0], options.suite, options.protocol, options.data_dir)
    shown = []
    for run in runs:
        shown.append(_shown_pairs(run, options.seed))
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
        compared, more = differences_of(alike, suite, protocol, options.seed)
        notes += more
    advance(len(runs) - 1)
    warnings = notes + _named(shown)
    layouts = pair_layouts({view.name: view.metrics for view in shown}, warnings)
    return Report(runs, pair_page(shown, compared, notes), layouts, warnings)


def _shown_pairs(run: Run, seed: int) -> RunView:
    """Everything that the page shows of one run of sentence pairs."""
    answers = [each.answers for each in run.seeds]
    suite, protocol = any_suite_of(run, None, None, None)
    notes = {
        each.label if run.parts else "": [*_unfinished(each.record), *each.record["warnings"]]
        for each in run.seeds
    }
    return RunView(
        run.label,
        [each.record for each in run.seeds],
        measure(answers, suite, protocol, seed),
        seed_notes(notes),
        pairs=PairView(
            task_of_run(run),
            _changed(run.path),
            form_changes(answers, suite, protocol, seed),
        ),
    )


def _changed(run: Path) -> pl.DataFrame:
    """The answers that changed; those of one seed stand in the folder of all."""
    for folder, seed in ((run, None), (run.resolve().parent, run.resolve().name)):
        file = folder / "inconsistent.csv"
        if file.is_file():
            found = texts_of(read_csv(file, infer_schema=False))
            if seed is None:
                return found
            if seed in {each.name for each in folder.glob("seed-*")}:
                return found.filter(pl.col("seed") == seed)
    raise ConsilienceError(
        "no inconsistent.csv",
        where=str(run),
        todo="Of one seed it is in the folder of all seeds. Rerun the same `consilience probe` "
        "command to finish an interrupted run.",
    )


def _different_settings(first: Run, run: Run) -> str:
    """Why a run has no differences from the first; empty where it has."""
    found = [
        what
        for name, what in SETTINGS_OF_PAIRS.items()
        if first.settings.get(name) != run.settings.get(name)
    ]
    if len(first.seeds) != len(run.seeds):
        found.append("another number of seeds")
    return ", ".join(found)
