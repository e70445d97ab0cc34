"""probe and score: answers, and their numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from consilience.asking.planning import ProbePlan
from consilience.cli.console import Screen, out, warn
from consilience.cli.output_options import ProbeOutput, ScoreOutput
from consilience.cli.printing import print_json, print_lines, print_tables, rows_of, without_nan
from consilience.core.errors import By, ConsilienceError
from consilience.core.text import counted
from consilience.endpoints.usage import cost_in_words
from consilience.files.write import csv_of, write_whole
from consilience.report import metric_tables
from consilience.report.columns import in_words
from consilience.report.metric_tables import language_table
from consilience.report.summary import brief_notes, fitted_summary
from consilience.report.table import Table
from consilience.suites.pairs import is_task
from consilience.suites.question_suites import is_questions
from consilience.types import FACT_WORDS, PAIR_WORDS, QUESTION_WORDS, SuiteWords
from consilience.workflow import probing
from consilience.workflow.counting import CountedRun
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.run_options import ScoreOptions
from consilience.workflow.sharding import Shard, ShardReport

SUMMARY_LINES = 12
"""Lines of a summary on a screen, with the two that say what to do next."""


def probe(options: ProbeOptions, output: ProbeOutput) -> None:
    """Ask a model, and print the summary of its answers or a table."""
    shard = None if output.shard is None else Shard.parse(output.shard)
    if output.dry_run and shard is not None:
        _show_shard(probing.plan_shard(options, shard, Screen()), output, is_plan=True)
        return
    if output.dry_run:
        plan = probing.plan_probe(options, Screen())
        _show_plan(plan, as_json=output.as_json or output.format_ == "json")
        return
    words = _words_of(options)
    _refuse(output.by, words, has_forms=bool(options.perturbations))
    if shard is None:
        probed = probing.probe(options, Screen())
    else:
        result = probing.probe_shard(options, shard, Screen())
        if isinstance(result, ShardReport):
            _show_shard(result, output)
            return
        probed = result
    named = shlex.quote(str(probed.record["path"]))
    _show(probed, named, f"consilience report {named}", output)
    changed, is_document = probed.changed_answers, output.as_json or output.format_ == "json"
    if output.examples and not is_document and changed is not None and changed.height:
        tables = [metric_tables.changed_answers_table(changed, output.examples)]
        print_tables(tables, output.format_)


def _show_shard(report: ShardReport, output: ProbeOutput, *, is_plan: bool = False) -> None:
    """Print the part of a run that a shard asks, or has asked, and what is left."""
    if output.as_json or output.format_ == "json":
        print_json({"shard": report.to_dict()})
        return
    every = counted(report.total_groups, "group")
    part = f"Shard {report.shard}: {len(report.groups):,} of {every}"
    queries = f"{report.queries:,} of {report.total_queries:,} queries"
    if not report.groups:
        print_lines([f"Shard {report.shard} has none of {every}; nothing to ask."])
    elif is_plan:
        names = ", ".join(report.groups)
        print_lines([f"{part}, {queries}. Nothing is written.", f"Groups: {names}"])
    else:
        left = ", ".join(report.left)
        print_lines([f"{part} complete ({queries}) in {report.folder}", f"Left: {left}"])


def score(options: ScoreOptions, output: ScoreOutput) -> None:
    """Measure answers, and print their summary or a table."""
    probed = probing.score(options)
    if output.file:
        write_whole(output.file, csv_of(probed.metrics))
    _show(probed, *_next_of(options, probed), output)


def _next_of(options: ScoreOptions, probed: CountedRun) -> tuple[str, str]:
    """The arguments of ``score`` that count the same answers, and the command of a report.

    A table whose answers are matched with a suite becomes a run before it is reported.
    """
    if path := probed.record.get("path"):
        named = shlex.quote(str(path))
        return named, f"consilience report {named}"
    named = shlex.quote(str(options.answers))
    named += f" --suite {shlex.quote(options.suite)}" if options.suite else ""
    named += f" --provider {shlex.quote(options.provider)}" if options.provider else ""
    words = probed.suite.words
    if options.answers.is_dir():
        return named, f"consilience report {named}"
    if options.match is None and words is FACT_WORDS:
        return named, f"consilience report {named} --out report.html"
    named += f" --match {shlex.quote(options.match)}" if options.match else ""
    report = "add --out RUN, then consilience report RUN"
    return named, "" if words is PAIR_WORDS else report


def _show_plan(plan: ProbePlan, *, as_json: bool) -> None:
    if as_json:
        print_json({"plan": plan.to_dict()})
        return
    print_lines(plan.lines())


TABLES: Mapping[SuiteWords, Sequence[By]] = {
    FACT_WORDS: ("group", "edit", "factor", "pattern", "form", "metric"),
    PAIR_WORDS: ("group", "form", "metric"),
    QUESTION_WORDS: ("group", "factor", "variant", "metric"),
}
"""The tables of each kind of suite."""


def _words_of(options: ProbeOptions) -> SuiteWords:
    if options.as_questions is not None or is_questions(options.suite):
        return QUESTION_WORDS
    return PAIR_WORDS if is_task(options.suite) else FACT_WORDS


def _refuse(by: By | None, words: SuiteWords, *, has_forms: bool) -> None:
    """Raise for a table that a run does not have."""
    tables = TABLES[words]
    if by is not None and by not in tables:
        raise ConsilienceError(
            f"--by {by} with {words.item}s",
            expected=f"--by {', '.join(tables[:-1])} or {tables[-1]}",
        )
    if by == "form" and words is FACT_WORDS and not has_forms:
        raise ConsilienceError(
            "--by form of facts in one form",
            todo="Add --perturbations to probe, or use --by pattern.",
        )


def _show(probed: CountedRun, named: str, report: str, output: ProbeOutput | ScoreOutput) -> None:
    """Print the summary, or a table of details, and what to do next (``_next_of``)."""
    by, format_ = output.by, output.format_
    if output.as_json or format_ == "json":
        print_json(
            {
                "run": probed.record,
                "summary": without_nan(probed.summary.to_dict()),
                "metrics": rows_of(probed.metrics),
                "changes": rows_of(probed.changes),
                "warnings": [*([probed.left_out] if probed.left_out else []), *probed.notes],
            }
        )
        return
    if by is not None:
        print_tables([_table_by(by, probed)], format_)
        warn(probed.notes)
        return
    table = probed.summary.table()
    notes: list[str] = []
    if format_ == "table":
        cost = probed.record.get("cost")
        most = SUMMARY_LINES - 2 - bool(cost)
        table, notes = fitted_summary(probed.summary, out.table_width, most)
    print_tables([table], format_)
    if format_ == "table":
        has_forms = any(len(group.design.forms) > 1 for group in probed.suite)
        absent = {"group"} | ({"edit"} if not any(g.edges for g in probed.suite) else set())
        absent |= set() if has_forms else {"form"}
        is_of_facts = probed.suite.words is FACT_WORDS
        has_languages = any(group.design.languages for group in probed.suite)
        absent |= {"factor"} if is_of_facts and not has_languages else set()
        choices = ", ".join(name for name in TABLES[probed.suite.words] if name not in absent)
        details = f"Details: consilience score {named} --by group  (or {choices})"
        lines = [f"Cost:    {cost_in_words(cost)}"] if cost else []
        print_lines([*lines, f"Report:  {report}", details] if report else [*lines, details])
    warn([*notes, *brief_notes(probed.summary, probed.notes, "--by group prints all")])


def _table_by(by: By, probed: CountedRun) -> Table:
    suite = probed.suite
    forms = {form for group in suite.relations for form in group.design.forms}
    _refuse(by, suite.words, has_forms=len(forms) > 1)
    return in_words(_details(by, probed), suite.words)


def _details(by: By, probed: CountedRun) -> Table:
    metrics, suite, title = probed.metrics, probed.suite, probed.summary.title
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
            return _factor_table(probed)
        case "pattern" | "variant":
            return metric_tables.pattern_table(probed.patterns(), suite)
        case "form":
            chosen = metrics if probed.is_of_pairs else metrics.filter(metrics["group"] == "MACRO")
            return metric_tables.form_table(chosen, f"{title}, in percent", probed.changes)
        case "metric":
            is_pooled = suite.words is QUESTION_WORDS
            title = f"{title}, in percent"
            return metric_tables.metric_table(metrics, title, probed.left_out, is_pooled=is_pooled)


def _factor_table(probed: CountedRun) -> Table:
    """Of questions a row a factor; of facts, whose factors are pattern and language, a language."""
    suite = probed.suite
    if suite.words is QUESTION_WORDS:
        return metric_tables.factor_table(probed.metrics, suite)
    table = language_table(probed.metrics, suite)
    if not table.rows:
        raise ConsilienceError(
            f"--by factor: the patterns of '{suite.name}' are in one language",
            todo="Use --by pattern.",
        )
    return table
