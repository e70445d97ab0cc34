"""probe and score: answers, and their numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.choices import By, TableFormat
from consilience.cli.command import command_of
from consilience.cli.printing import ByOption, FormatOption, print_tables
from consilience.cli.shared import (
    AsJson,
    CsvFile,
    DataDir,
    ProtocolOption,
    print_json,
    rows_of,
    without_nan,
)
from consilience.errors import ConsilienceError
from consilience.workflow.options import OUTPUT, PAIRS, QUESTIONS
from consilience.workflow.probe_options import ProbeOptions

if TYPE_CHECKING:
    from consilience.report.table import Table
    from consilience.workflow.counting import CountedRun
    from consilience.workflow.probe_plan import ProbePlan

BRIEF_LENGTH = 120
"""Characters of a note that are printed below a summary."""

BRIEF_NOTES = 2
"""Notes that are printed below a summary."""


@command_of(ProbeOptions)
def probe(
    options: ProbeOptions,
    by: ByOption = None,
    examples: Annotated[
        int,
        typer.Option(
            help="Changed answers to print; all are in inconsistent.csv.",
            min=0,
            rich_help_panel=PAIRS,
            metavar="N",
        ),
    ] = 0,
    format_: FormatOption = "table",
    as_json: AsJson = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            help="Print what would be asked, and an estimate of the time; write nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Ask a model every item of a suite in every variant, and measure its answers.

    A suite is a set of facts, asked in every pattern (ParaRel), or a task of sentence pairs, asked
    in its original form and in perturbed forms (CALUM). The run is kept in a folder. Rerun the same
    command to resume an interrupted run.
    """
    from consilience.cli.console import Screen
    from consilience.report.metric_tables import changed_answers_table
    from consilience.suites.tasks import is_task
    from consilience.workflow import probing

    if dry_run:
        _show_plan(probing.plan_probe(options, Screen()), as_json=as_json or format_ == "json")
        return
    _refuse(by, is_of_pairs=is_task(options.suite), has_forms=bool(options.perturbations))
    probed = probing.probe(options, Screen())
    _show(probed, Path(probed.record["path"]), None, by, "json" if as_json else format_)
    changed = probed.changed_answers
    if examples and changed is not None and changed.height:
        print_tables([changed_answers_table(changed, examples)], format_)


def score(
    answers: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, or a table: .parquet, .csv, .csv.gz.", metavar="ANSWERS"
        ),
    ],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="Use this suite for a table of answers: mini, pararel or a folder.",
            metavar="S",
            rich_help_panel=QUESTIONS,
        ),
    ] = None,
    protocol: ProtocolOption = None,
    by: ByOption = None,
    file: CsvFile = None,
    data_dir: DataDir = None,
    format_: FormatOption = "table",
    as_json: AsJson = False,
) -> None:
    """Measure answers that were made elsewhere, or those of a run. No model is needed.

    The columns group, item, subject, variant, gold, answer suffice; docs/suites.md has an example.
    """
    from consilience.files import csv_of, write_whole
    from consilience.workflow import probing

    probed = probing.score(answers, suite, protocol, data_dir)
    if file:
        write_whole(file, csv_of(probed.metrics))
    _show(probed, answers, suite, by, "json" if as_json else format_)


def _show_plan(plan: ProbePlan, *, as_json: bool) -> None:
    from consilience.cli.console import duration, out

    if as_json:
        print_json({"plan": plan.to_dict()})
        return
    left = plan.queries - plan.complete
    folder = "new" if plan.is_new else f"resumes: {plan.complete:,} of {plan.queries:,} complete"
    rows = {
        "Groups": f"{plan.groups:,}",
        "Items": f"{plan.items:,}, each in {plan.variants}",
        "Queries": f"{plan.queries:,}, each with {plan.candidates} candidates",
        "Folder": f"{plan.folder} ({folder})",
        "Time": f"about {duration(plan.seconds)} to ask {left:,} queries; loading took "
        f"{duration(plan.loading)}",
        "Measured": f"{plan.rate:,.1f} queries/s in a sample of {plan.sampled:,}",
    }
    out.print(f"Plan: {plan.model} on {plan.suite} ({plan.protocol}). Nothing is written.")
    for name, text in rows.items():
        out.print(f"{name:9} {text}", soft_wrap=True, highlight=False)


def _refuse(by: By | None, *, is_of_pairs: bool, has_forms: bool) -> None:
    """Raise for a table that a run does not have."""
    if is_of_pairs and by in ("edit", "pattern"):
        raise ConsilienceError(
            f"--by {by} with sentence pairs", expected="--by group, form or metric"
        )
    if by == "form" and not is_of_pairs and not has_forms:
        raise ConsilienceError(
            "--by form of facts in one form",
            todo="Add --perturbations to probe, or use --by pattern.",
        )


def _show(
    probed: CountedRun, source: Path, suite: str | None, by: By | None, format_: TableFormat
) -> None:
    """Print the summary, or a table ``by`` something; ``source``: a run, or answers to a suite."""
    from consilience.cli.console import out, warn

    if format_ == "json":
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
    print_tables([probed.summary.table()], format_)
    if format_ == "table":
        named = shlex.quote(str(source)) + (f" --suite {shlex.quote(suite)}" if suite else "")
        page = "" if source.is_dir() else " --out report.html"
        others = "form, metric" if probed.is_of_pairs else "edit, pattern, metric"
        for line in (
            f"Report:  consilience report {named}{page}",
            f"Details: consilience score {named} --by group  (or {others})",
        ):
            out.print(line, soft_wrap=True, highlight=False)
    _warn_briefly(probed)


def _table_by(by: By, probed: CountedRun) -> Table:
    from consilience.report import metric_tables

    metrics, suite = probed.metrics, probed.suite
    forms = {form for group in suite.relations for form in group.design.forms}
    _refuse(by, is_of_pairs=probed.is_of_pairs, has_forms=len(forms) > 1)
    title = probed.summary.title
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
        case "pattern":
            return metric_tables.pattern_table(probed.patterns(), suite)
        case "form":
            chosen = metrics if probed.is_of_pairs else metrics.filter(metrics["group"] == "MACRO")
            return metric_tables.form_table(chosen, probed.changes, f"{title}, in percent")
        case "metric":
            return metric_tables.metric_table(metrics, f"{title}, in percent", probed.left_out)


def _warn_briefly(probed: CountedRun) -> None:
    """The first notes in a line each, without those that the summary has."""
    from consilience.cli.console import warn

    known = [note.rstrip(".") for note in probed.summary.notes]
    notes = [note for note in probed.notes if not any(map(note.startswith, known))]
    brief = [
        note if len(note) <= BRIEF_LENGTH else f"{note[:BRIEF_LENGTH].rsplit(' ', 1)[0]} ..."
        for note in notes
    ]
    more = len(notes) - BRIEF_NOTES
    warn(brief[:BRIEF_NOTES])
    if more > 0:
        warn([f"{more} more note{'s' * (more > 1)}; --by group prints all"])
