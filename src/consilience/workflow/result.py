"""The result of a run in Python: its numbers, its answers, its figures and its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.analysis.patterns import pair_table, pattern_table
from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.files import path_of
from consilience.metrics.grid import MANY_VARIANTS
from consilience.metrics.registry import label_of
from consilience.options import Output, options_of
from consilience.report.charts import against_figure, interval_figure
from consilience.report.fact_sections import accuracy_and_consistency
from consilience.report.figures import for_paper, in_black
from consilience.report.first_screen import form_rows, relation_rows
from consilience.report.matrix import MATRIX_OF_FACTS, MATRIX_OF_QUESTIONS, matrix_figure
from consilience.report.run_view import RunView, group_names
from consilience.report.shown import Shown
from consilience.report.summary import Key, Summary, brief_notes
from consilience.report.table import Table
from consilience.run import Run
from consilience.suites.saving import save_suite
from consilience.types import Suite
from consilience.workflow.comparing import Comparison, compare_opened
from consilience.workflow.reporting import report, save_report
from consilience.workflow.run_options import ReportOptions

if TYPE_CHECKING:
    import altair

CONSISTENCY = ("consistency", "corrected_consistency")
"""The metrics of ``plot.consistency``."""


@dataclass(frozen=True, repr=False, eq=False)
class Result(Shown):
    """What a model answered, and how consistent that is.

    In a notebook it is shown as its summary. ``metrics`` has all numbers, ``answers`` all answers.
    """

    run: Run
    """The run, with its folder and settings."""
    suite: Suite
    """The suite with its questions."""
    protocol: Protocol
    """How the answers were counted."""
    metrics: pl.DataFrame
    """The metrics table: one row a number (``METRICS_SCHEMA``)."""
    summary: Summary
    """The headline numbers, with those of the majority baseline."""
    baseline: Mapping[Key, float] = field(repr=False)
    """Every metric of the majority baseline, by group, metric and subset."""
    notes: Sequence[str]
    """What a reader should know."""
    temporary: TemporaryDirectory[str] | None = field(default=None)
    """The folder of a run that is not kept: it lives as long as this value."""

    def __fspath__(self) -> str:
        """The path of the run, so that a result can be passed where a run is expected."""
        return str(self.run.path)

    def printed(self, output: Output) -> Iterator[Table]:
        """The summary with the notes that the command line prints below it."""
        table = self.summary.table()
        notes = brief_notes(self.summary, self.notes, "see .notes")
        yield replace(table, notes=[*table.notes, *notes])

    @property
    def label(self) -> str:
        """What tables call the run."""
        return self.run.label

    @property
    def folder(self) -> Path | None:
        """The folder that the run is kept in; None for a temporary one."""
        return None if self.temporary else self.run.path

    @property
    def answers(self) -> pl.DataFrame:
        """The answers (``ANSWERS_SCHEMA``), one row a query; of several seeds with ``seed``."""
        if not self.run.parts:
            return self.run.answers
        return pl.concat(
            [part.answers.with_columns(seed=pl.lit(part.label)) for part in self.run.parts]
        )

    def frame(self) -> pl.DataFrame:
        """The metrics table."""
        return self.metrics

    @property
    def plot(self) -> Plots:
        """The figures of the run."""
        return Plots(self)

    def compare(self, *others: Result | Run | str | Path) -> Comparison:
        """Other runs against this one: paired differences with intervals and tests."""
        runs = distinct_runs([self, *others])
        return compare_opened(runs, self.suite, self.protocol, 0)

    def report(self, page: str | Path, **options: Any) -> Path:
        """Write the run as one HTML page that needs no network; the path of the page.

        ``options`` are those of the command ``report``.
        """
        path = path_of(page, "the page")
        keywords = {"runs": [f"{self.label}={self.run.path}"], "out": path}
        with TemporaryDirectory(prefix="consilience-") as folder:
            if not self.run.settings and "suite" not in options:  # a table does not name its suite
                keywords["suite"] = save_suite(self.suite, Path(folder, self.suite.name))
                keywords["protocol"] = self.protocol
            chosen = options_of(ReportOptions, {**keywords, **options})
            save_report(report(chosen), chosen)
        return path


def distinct_runs(runs: Sequence[Result | Run | str | Path]) -> list[Run]:
    """The runs of results, runs and paths, each with a label that no other one has."""
    opened: list[Run] = []
    for source in runs:
        run = source.run if isinstance(source, Result) else source
        run = run if isinstance(run, Run) else Run.open(run).named_by_model()
        taken = {other.label for other in opened}
        label, at = run.label, 2
        while label in taken:
            label, at = f"{run.label} ({at})", at + 1
        opened.append(replace(run, label=label))
    return opened


@dataclass(frozen=True, slots=True)
class Plots:
    """The figures of a result, as Altair charts."""

    result: Result = field(repr=False)
    """The result."""

    def agreement(self, group: str | None = None) -> altair.Chart:
        """How often each two patterns of a relation, or variants of questions, agree.

        Without ``group``, an id or a label, the least consistent relation or group.
        """
        suite, tables = self._facts()
        least = self.result.summary.least
        relation = suite[group or least[0][0]] if group or least else suite.relations[0]
        variant = suite.words.variant
        if len(relation.design.variants or relation.patterns) < 2:
            raise ConsilienceError(
                f"{relation.id} has one {variant}",
                expected=f"two {variant}s or more, which may agree",
                where=self.result.label,
            )
        if (size := len(relation.design.variants)) > MANY_VARIANTS:
            raise ConsilienceError(
                f"{relation.id} has {size:,} {variant}s",
                expected=f"at most {MANY_VARIANTS}, to be legible",
                where=self.result.label,
                todo="The table of patterns has their mean agreement: "
                "`consilience analyze patterns`.",
            )
        answers = [table.filter(pl.col("group") == relation.id) for table in tables]
        if answers[0].is_empty():
            raise ConsilienceError(f"no answers for {relation.id}", where=self.result.label)
        name = pl.lit(self.result.label).alias("run")
        words = MATRIX_OF_QUESTIONS if self.result.run.is_of_questions else MATRIX_OF_FACTS
        pairs = pair_table(answers, suite, self.result.protocol).with_columns(name)
        patterns = pattern_table(answers, suite, self.result.protocol).with_columns(name)
        return _still(
            matrix_figure(pairs, patterns, relation.id, group_names(suite), words),
            f"{relation.label}: agreement of {words.variant}s",
        )

    def consistency(self) -> altair.Chart:
        """Consistency with its 95 % interval: of each relation or group, or of each form."""
        title = f"{self.result.label}: consistency"
        view = self._view()
        is_of_pairs = self.result.run.is_of_pairs
        rows = form_rows([view]) if is_of_pairs else relation_rows([view])
        rows = rows.filter(pl.col("metric").is_in([label_of(name) for name in CONSISTENCY]))
        noun = "form" if is_of_pairs else self.result.suite.words.group
        return _still(interval_figure(rows, noun), title)

    def accuracy_consistency(self) -> altair.Chart:
        """Accuracy against consistency, a mark for each relation or group of questions."""
        self._facts()
        table = accuracy_and_consistency([self._view()])
        title = f"{self.result.label}: accuracy and consistency"
        return _still(against_figure(table, self.result.suite.words.group), title)

    def _view(self) -> RunView:
        """What the figures of a report draw."""
        result = self.result
        return RunView(
            name=result.label,
            records=[],
            suite=result.suite,
            metrics=result.metrics,
            summary=result.summary,
            baseline=result.baseline,
        )

    def _facts(self) -> tuple[Suite, list[pl.DataFrame]]:
        """The suite and the answers of each seed of a run of facts or questions."""
        if self.result.run.is_of_pairs:
            raise ConsilienceError(
                "a figure of patterns for a run of sentence pairs",
                expected="a run of facts or questions",
                todo="Use plot.consistency().",
            )
        return self.result.suite, self.result.run.tables


def _still(chart: altair.Chart, title: str) -> altair.Chart:
    """A chart for a notebook: on white, with a title."""
    return in_black(for_paper(chart, title))
