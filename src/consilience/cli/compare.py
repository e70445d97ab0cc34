"""compare: two runs or more on the same questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.shared import (
    AsJson,
    DataDir,
    ProtocolOption,
    names_in,
    out,
    print_json,
    rows_of,
    warn,
)
from consilience.files import csv_of, write_whole
from consilience.provenance import git_revision, versions
from consilience.report.comparison_tables import comparison_tables, difference_tables
from consilience.run import open_runs
from consilience.workflow.compare import compare_runs

SHOWN = "accuracy,consistency,determinism,corrected_consistency,consistent_accuracy"


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, or answers tables; LABEL=RUN names one. The first is the "
            "reference.",
            metavar="RUN...",
        ),
    ],
    suite: Annotated[
        str | None,
        typer.Option(help="A name or a folder; else that of the first run.", metavar="S"),
    ] = None,
    protocol: ProtocolOption = None,
    show: Annotated[
        str, typer.Option(help="Metrics to print; all are in --out and --json.", metavar="M,M")
    ] = SHOWN,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write all differences here, as CSV.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and the permutations.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Differences between runs on the same questions, with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % interval, an exact McNemar
    or permutation test, p adjusted over relations, and the smallest difference that the data could
    have shown.
    """
    opened = open_runs(runs)
    compared = compare_runs(opened, suite, protocol, seed=seed, data_dir=data_dir)
    table = compared.table
    if file:
        write_whole(file, csv_of(table))
    if as_json:
        asked: dict[str, object] = {"runs": [str(run.path) for run in opened]}
        if compared.suite:
            asked |= {"suite": compared.suite.name, "protocol": compared.protocol}
        record = {"asked": asked, "versions": versions(), "git": git_revision()}
        document = {"run": record, "differences": rows_of(table), "warnings": compared.notes}
        print_json(document)
        return
    shown = names_in(show)
    if compared.suite is None:
        tables = difference_tables(table, shown)
    else:
        if show == SHOWN:  # of N-M relations the determinism, of N-1 relations the consistency
            shown = [name for name in shown if name in set(table["metric"])]
        title = f"{compared.suite.name}, protocol {compared.protocol}"
        tables = comparison_tables(table, shown, title)
    for each in tables:
        out.print(each)
    warn(compared.notes)
