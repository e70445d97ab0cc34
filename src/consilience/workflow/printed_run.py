"""The numbers of a run as ``probe`` and ``score`` print them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from consilience.asking.planning import ShardReport
from consilience.core.errors import By, ConsilienceError
from consilience.core.text import counted
from consilience.counting import CountedRun
from consilience.endpoints.usage import cost_in_words
from consilience.kinds import kind_of
from consilience.options import Output
from consilience.report import metric_tables
from consilience.report.columns import in_words
from consilience.report.metric_tables import language_table
from consilience.report.shown import Lines, Shown, rows_of
from consilience.report.summary import brief_notes
from consilience.report.table import Table
from consilience.types import SuiteWords
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.run_options import ScoreOptions


@dataclass(frozen=True)
class PrintedRun(Shown):
    """The summary of a run, or one of its tables."""

    run: CountedRun
    named: str
    """The arguments of ``score`` that count the same answers."""
    report: str
    """The command of a report; empty where there is none."""

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The summary and what to do next, or the table of ``--by``; then examples."""
        if output.by is not None:
            yield _table_by(output.by, self.run)
        elif output.format != "table":
            yield self.run.summary.table()
        else:
            yield self.run.summary.table()
            if cost := self.run.record.get("cost"):
                yield f"Cost:    {cost_in_words(cost)}"
            if self.report:
                yield f"Report:  {self.report}"
            yield self._details()
        changed = self.run.changed_answers
        if output.examples and changed is not None and changed.height:
            yield metric_tables.changed_answers_table(changed, output.examples)

    def document(self) -> Mapping[str, Any]:
        """The numbers as rows."""
        run = self.run
        return {
            "run": run.record,
            "summary": run.summary.to_dict(),
            "metrics": rows_of(run.metrics),
            "changes": rows_of(run.changes),
            "warnings": [*([run.left_out] if run.left_out else []), *run.notes],
        }

    def frame(self) -> pl.DataFrame:
        """The metrics table."""
        return self.run.metrics

    def remarks(self, output: Output) -> Sequence[str]:
        """All notes below a table of details; the first ones below a summary."""
        if output.by is not None:
            return self.run.notes
        return brief_notes(self.run.summary, self.run.notes, "--by group prints all")

    def _details(self) -> str:
        suite = self.run.suite
        has_languages = any(group.design.languages for group in suite)
        absent = {"group"}
        absent |= set() if any(group.edges for group in suite) else {"edit"}
        absent |= set() if any(len(group.design.forms) > 1 for group in suite) else {"form"}
        absent |= {"factor"} if suite.words.has_means and not has_languages else set()
        choices = ", ".join(name for name in suite.words.tables if name not in absent)
        return f"Details: consilience score {self.named} --by group  (or {choices})"


def printed_probe(run: CountedRun) -> PrintedRun:
    """The numbers of a run in its folder."""
    named = shlex.quote(str(run.record["path"]))
    return PrintedRun(run, named, f"consilience report {named}")


def printed_score(options: ScoreOptions, run: CountedRun) -> PrintedRun:
    """The numbers of answers, and how they are counted again and reported.

    A table whose answers are matched with a suite becomes a run before it is reported.
    """
    if run.record.get("path"):
        return printed_probe(run)
    named = shlex.quote(str(options.answers))
    named += f" --suite {shlex.quote(options.suite)}" if options.suite else ""
    named += f" --provider {shlex.quote(options.provider)}" if options.provider else ""
    if options.answers.is_dir():
        return PrintedRun(run, named, f"consilience report {named}")
    if options.match is None and run.suite.words.has_means:
        return PrintedRun(run, named, f"consilience report {named} --out report.html")
    named += f" --match {shlex.quote(options.match)}" if options.match else ""
    report = "add --out RUN, then consilience report RUN"
    return PrintedRun(run, named, report if run.suite.words.pool else "")


def printed_shard(report: ShardReport, *, is_plan: bool = False) -> Lines:
    """The part of a run that a shard asks, or has asked, and what is left."""
    every = counted(report.total_groups, "group")
    part = f"Shard {report.shard}: {len(report.groups):,} of {every}"
    queries = f"{report.queries:,} of {report.total_queries:,} queries"
    if not report.groups:
        lines = [f"Shard {report.shard} has none of {every}; nothing to ask."]
    elif is_plan:
        groups = f"Groups: {', '.join(report.groups)}"
        lines = [f"{part}, {queries}. Nothing is written.", groups]
    else:
        done = f"{part} complete ({queries}) in {report.folder}"
        lines = [done, f"Left: {', '.join(report.left)}"]
    return Lines({"shard": report.to_dict()}, *lines)


def refuse_table(by: By | None, options: ProbeOptions) -> None:
    """Raise for a table that a run will not have."""
    words = kind_of(options.suite, options.as_questions).words
    _refuse(by, words, has_forms=bool(options.perturbations))


def _refuse(by: By | None, words: SuiteWords, *, has_forms: bool) -> None:
    tables = words.tables
    if by is not None and by not in tables:
        raise ConsilienceError(
            f"--by {by} with {words.item}s",
            expected=f"--by {', '.join(tables[:-1])} or {tables[-1]}",
        )
    if by == "form" and words.pool and not has_forms:
        raise ConsilienceError(
            "--by form of facts in one form",
            todo="Add --perturbations to probe, or use --by pattern.",
        )


def _table_by(by: By, run: CountedRun) -> Table:
    forms = {form for group in run.suite.relations for form in group.design.forms}
    _refuse(by, run.suite.words, has_forms=len(forms) > 1)
    return in_words(_details(by, run), run.suite.words)


def _details(by: By, run: CountedRun) -> Table:
    metrics, suite, title = run.metrics, run.suite, f"{run.summary.title}, in percent"
    match by:
        case "group":
            return metric_tables.group_table(metrics, suite)
        case "edit":
            table = metric_tables.edit_table(metrics, suite)
            if not table.rows:
                raise ConsilienceError(
                    f"--by edit: the suite '{suite.name}' does not say how its patterns differ",
                    todo="Use --by pattern, or add an edges file (docs/suites.md).",
                )
            return table
        case "factor":
            return _factor_table(run)
        case "pattern" | "variant":
            return metric_tables.pattern_table(run.patterns(), suite)
        case "form":
            chosen = metrics.filter(metrics["group"] == "MACRO") if suite.words.pool else metrics
            return metric_tables.form_table(chosen, title, run.changes)
        case "metric":
            is_pooled = suite.words.is_pooled
            return metric_tables.metric_table(metrics, title, run.left_out, is_pooled=is_pooled)


def _factor_table(run: CountedRun) -> Table:
    """Of questions a row a factor; of facts, whose factors are pattern and language, a language."""
    if run.suite.words.is_pooled:
        return metric_tables.factor_table(run.metrics, run.suite)
    table = language_table(run.metrics, run.suite)
    if not table.rows:
        raise ConsilienceError(
            f"--by factor: the patterns of '{run.suite.name}' are in one language",
            todo="Use --by pattern.",
        )
    return table
