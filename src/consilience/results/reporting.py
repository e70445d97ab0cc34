"""Reports of runs, and the result that Python gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from consilience.core.errors import SILENT, Advance, ConsilienceError, Progress, Protocol
from consilience.elsewhere import open_run, open_runs
from consilience.files.write import path_of, write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, asked_of_all, legible
from consilience.probing import CountedRun, count_run, counted_by, notes_on
from consilience.report import charts
from consilience.report.page import Page, RunView, render, report_page
from consilience.report.questions import question_data
from consilience.report.table import Displayed, Output, record_of
from consilience.results import comparing
from consilience.runs.run import Run
from consilience.types import Suite


def report(
    paths: Sequence[str],
    out: Path | None = None,
    figures: Path | None = None,
    protocol: Protocol | None = None,
    progress: Progress = SILENT,
) -> Output:
    """Write one page on one run, or on several with the first as the reference."""
    runs = open_runs(paths)
    file = _page_of(runs, out)
    if figures:
        figures.mkdir(parents=True, exist_ok=True)
    suite = counted_by(runs[0], protocol)
    with progress.steps("counting", len(runs), "tables") as advance:
        page = _measured(runs, suite, advance)
    written = [file]
    if figures:
        for figure in page.figures:
            written.append(figures / f"{figure.name}.svg")
            figure.save(written[-1])
    write_whole(file, render(page).encode())
    paths = [*map(str, written)]
    record = record_of(runs=[run.where for run in runs])
    return Output(shown=paths, cautions=page.cautions, facts={"run": record, "files": paths})


def _page_of(runs: Sequence[Run], file: Path | None) -> Path:
    """The file of the page. An ending of another format is refused; a device has no ending."""
    if file is None:
        if runs[0].source is None and len(runs) == 1:
            return runs[0].path / "report.html"
        problem = "several runs, or a file of answers, without --out"
        raise ConsilienceError(problem, todo="Name the page: --out F.html.")
    if file.suffix.lower() not in ("", ".html", ".htm"):
        todo = "Open the page in a browser to print it as PDF." if file.suffix == ".pdf" else ""
        found = f"a page in '{file.suffix}'"
        raise ConsilienceError(found, expected=".html", where=str(file), todo=todo)
    if not file.parent.is_dir():
        raise ConsilienceError("no such folder", where=str(file.parent), todo="Make it first.")
    return file


def _measured(runs: Sequence[Run], suite: Suite, advance: Advance) -> Page:
    """The page, of several runs on what all of them were asked."""
    notes: list[str] = []
    compared, flips, asked = None, None, {runs[0].label: CheckedAnswers(runs[0].answers, suite)}
    of_all = asked
    if len(runs) > 1:
        common = comparing.Common.of(runs, suite)
        runs, suite, asked = common.runs, common.suite, {**common.answers}
        of_all = asked_of_all(asked)
        compared = compare(of_all, suite, suite.protocol)
        flips = comparing.flips_of(runs, common).tables["flips"]
        notes = comparing.cautions_on(common, compared)
    views = []
    for run in runs:
        counted, answers = count_run(run, suite, of_all[run.label]), of_all[run.label]
        warnings = notes_on(run, suite, asked[run.label], counted.metrics)
        metrics = legible(counted.metrics)
        views.append(RunView(run, suite, answers, metrics, counted.summary, warnings))
        advance(1)
    tables = {label: one.answers for label, one in asked.items()}
    questions = question_data(tables, suite, runs[0].queries)
    return report_page(views, compared, notes, flips, questions)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Result(Displayed, CountedRun):
    """What a model answered, and how consistent that is: ``metrics``, ``answers``, ``summary``."""

    run: Run
    temporary: TemporaryDirectory[str] | None = None
    """The folder of a run that is not kept: it lives as long as this value."""

    def __fspath__(self) -> str:
        """The path of the run, so that a result can be passed where a run is expected."""
        return str(self.run.path)

    def output(self) -> Output:
        return Output({"metrics": self.metrics}, [self.summary.table()], cautions=self.notes)

    @property
    def folder(self) -> Path | None:
        """The folder that the run is kept in; None for a temporary one."""
        return None if self.temporary else self.run.path

    @property
    def answers(self) -> pl.DataFrame:
        """The answers (``ANSWERS_SCHEMA``), one row a query."""
        return self.run.answers

    def plot(self) -> charts.Chart:
        """Consistency of each relation or group, or of each form, with its 95 % interval."""
        rows = charts.consistency_rows({self.run.label: self.metrics}, self.suite)
        return charts.consistency_chart(rows, self.suite)

    def report(self, page: str | Path) -> Path:
        """Write the run as one HTML page that needs no network; the path of the page."""
        path = path_of(page, "the page")
        label = self.run.label.replace("=", ":")  # LABEL=PATH ends at the first one
        runs = [f"{label}={self.run.path}"]
        report(runs, path, protocol=self.protocol)
        return path


def distinct_runs(runs: Sequence[Result | Run | str | Path]) -> list[Run]:
    """The runs of results, runs and paths, each with a label that no other one has."""
    opened: list[Run] = []
    for source in runs:
        run = source.run if isinstance(source, Result) else source
        run = run if isinstance(run, Run) else open_run(run).named_by_model()
        taken = {other.label for other in opened}
        label, at = run.label, 2
        while label in taken:
            label, at = f"{run.label} ({at})", at + 1
        opened.append(replace(run, label=label))
    return opened
