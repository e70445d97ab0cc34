"""probe and score: answers, and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.options import command_of
from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    Screen,
    SuiteOption,
    out,
    print_json,
    rows_of,
    warn,
)
from consilience.files import csv_of, write_whole
from consilience.report.metric_tables import group_table, summary_table
from consilience.workflow.probe import Counted, ProbeOptions
from consilience.workflow.probe import probe as ask_and_count
from consilience.workflow.probe import score as count


@command_of(ProbeOptions)
def probe(options: ProbeOptions, as_json: AsJson = False) -> None:
    """Ask a model every fact of a suite in every pattern, and measure its answers.

    The run is kept in a folder. Rerun the same command to resume an interrupted run.
    """
    found = ask_and_count(options, Screen())
    _show(found, f"{found.suite.name}, {options.model}, protocol {found.protocol}", as_json)
    if not as_json:
        out.print(f"Run: {found.record['path']}", soft_wrap=True)


def score(
    answers: Annotated[
        Path, typer.Argument(help="A table (.parquet, .csv, .csv.gz) or the folder of a run.")
    ],
    suite: SuiteOption,
    protocol: ProtocolOption = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write the metrics table here, as CSV.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Count answers that were given elsewhere. No model is needed.

    The columns group, item, subject, variant, gold, answer suffice; docs/suites.md has an example.
    """
    found = count(answers, suite, protocol, data_dir)
    if file:
        write_whole(file, csv_of(found.metrics))
    _show(found, f"{found.suite.name}, {answers.name}, protocol {found.protocol}", as_json)


def _show(found: Counted, title: str, as_json: bool) -> None:
    if as_json:
        warnings = [found.left_out, *found.notes] if found.left_out else found.notes
        metrics = rows_of(found.metrics)
        print_json({"run": found.record, "metrics": metrics, "warnings": warnings})
        return
    out.print(group_table(found.metrics, found.suite))
    out.print(summary_table(found.metrics, title, found.left_out))
    warn(found.notes)
