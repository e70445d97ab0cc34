"""compare: two runs or more on the same questions."""

from __future__ import annotations

from typing import Annotated

import typer

from consilience.cli.command import command_of, names_in
from consilience.cli.console import out, warn
from consilience.cli.printing import ByOption, FormatOption, print_tables
from consilience.cli.shared import AsJson, CsvFile, print_json, rows_of
from consilience.files import csv_of, write_whole
from consilience.provenance import git_revision, versions
from consilience.report.comparison_tables import comparison_table
from consilience.workflow.comparing import compare_runs
from consilience.workflow.options import OUTPUT
from consilience.workflow.run_options import CompareOptions


@command_of(CompareOptions)
def compare(
    options: CompareOptions,
    show: Annotated[
        str | None,
        typer.Option(
            help="Print these metrics [default: those of the summary]; --csv and --json have all.",
            metavar="M,M",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    by: ByOption = None,
    file: CsvFile = None,
    format_: FormatOption = "table",
    as_json: AsJson = False,
) -> None:
    """Compare runs on the same questions: differences with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % confidence interval, an
    exact McNemar or permutation test, and the minimum detectable difference. With --by, p is also
    adjusted over relations or forms.
    """
    compared = compare_runs(options)
    table = compared.table
    if file:
        write_whole(file, csv_of(table))
    if as_json or format_ == "json":
        settings = {
            "runs": [str(run.path) for run in compared.runs],
            "suite": compared.suite.name,
            "protocol": compared.protocol,
        }
        record = {"settings": settings, "versions": versions(), "git": git_revision()}
        print_json({"run": record, "differences": rows_of(table), "warnings": compared.warnings()})
        return
    shown = comparison_table(table, compared.suite, names_in(show) if show else (), by)
    print_tables([shown], format_)
    if by is None and format_ == "table":
        out.print("Details: --by group, edit, form or metric", highlight=False)
    warn(compared.notes)
