"""compare: two runs or more on the same questions."""

from __future__ import annotations

from typing import Annotated

import typer

from consilience.cli.command import command_of, names_in
from consilience.cli.console import out, warn
from consilience.cli.shared import AsJson, CsvFile, print_json, rows_of
from consilience.files import csv_of, write_whole
from consilience.metrics.registry import headline_metrics
from consilience.provenance import git_revision, versions
from consilience.report.comparison_tables import comparison_tables
from consilience.workflow.comparing import CompareOptions, compare_runs

SHOWN = ",".join(headline_metrics(aliases=True))


@command_of(CompareOptions)
def compare(
    options: CompareOptions,
    show: Annotated[
        str, typer.Option(help="Metrics to print; all are in --csv and --json.", metavar="M,M")
    ] = SHOWN,
    file: CsvFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs on the same questions: differences with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % interval, an exact McNemar
    or permutation test, p adjusted over relations or forms, and the minimum detectable difference.
    """
    compared = compare_runs(options)
    table = compared.table
    if file:
        write_whole(file, csv_of(table))
    if as_json:
        settings = {
            "runs": [str(run.path) for run in compared.runs],
            "suite": compared.suite.name,
            "protocol": compared.protocol,
        }
        record = {"asked": settings, "versions": versions(), "git": git_revision()}
        print_json({"run": record, "differences": rows_of(table), "warnings": compared.notes})
        return
    shown = names_in(show)
    if show == SHOWN:  # of N-M relations the determinism, of N-1 relations the consistency
        shown = [name for name in shown if name in set(table["metric"])]
    title = f"{compared.suite.name}, protocol {compared.protocol}"
    for shown_table in comparison_tables(table, shown, title):
        out.print(shown_table)
    warn(compared.notes)
