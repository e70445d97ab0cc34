"""probe and score: answers, and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from consilience.cli.command import command_of
from consilience.cli.shared import (
    AsJson,
    CsvFile,
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
from consilience.report.metric_tables import (
    change_table,
    changed_answers_table,
    form_tables,
    group_table,
    summary_table,
)
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.probed import Probed
from consilience.workflow.probing import probe as ask_and_measure
from consilience.workflow.probing import score as measure_answers


@command_of(ProbeOptions)
def probe(
    options: ProbeOptions,
    examples: Annotated[
        int,
        typer.Option(
            help="Changed answers to print; all are in the folder.",
            min=0,
            rich_help_panel="Sentence pairs",
        ),
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Ask a model every item of a suite in every variant, and measure its answers.

    A suite is a set of facts, asked in every pattern (ParaRel), or a task of sentence pairs, asked
    in its original form and in perturbed forms (CALUM). The run is kept in a folder. Rerun the same
    command to resume an interrupted run.
    """
    probed = ask_and_measure(options, Screen())
    _show(probed, options.model, as_json, examples)
    if not as_json:
        out.print(f"Run: {probed.record['path']}", soft_wrap=True)


def score(
    answers: Annotated[
        Path, typer.Argument(help="A table (.parquet, .csv, .csv.gz) or the folder of a run.")
    ],
    suite: SuiteOption,
    protocol: ProtocolOption = None,
    file: CsvFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure answers that were made elsewhere. No model is needed.

    The columns group, item, subject, variant, gold, answer suffice; docs/suites.md has an example.
    """
    probed = measure_answers(answers, suite, protocol, data_dir)
    if file:
        write_whole(file, csv_of(probed.metrics))
    _show(probed, answers.name, as_json)


def _show(probed: Probed, source: str, as_json: bool, examples: int = 0) -> None:
    """Print the numbers; ``source``: the model or the file."""
    if as_json:
        print_json(
            {
                "run": probed.record,
                "metrics": rows_of(probed.metrics),
                "changes": rows_of(probed.changes),
                "warnings": [*([probed.left_out] if probed.left_out else []), *probed.notes],
            }
        )
        return
    if probed.changed_answers is None:
        title = f"{probed.suite.name}, {source}, protocol {probed.protocol}"
        out.print(group_table(probed.metrics, probed.suite))
        out.print(summary_table(probed.metrics, title, probed.left_out))
    else:
        _show_pairs(probed, probed.changed_answers, source, examples)
    warn(probed.notes)


def _show_pairs(probed: Probed, changed: pl.DataFrame, source: str, examples: int) -> None:
    """The tables of sentence pairs, group by group, and changed answers."""
    for group in probed.metrics["group"].unique(maintain_order=True):
        of_group = pl.col("group") == group
        metrics = probed.metrics.filter(of_group)
        seeds = metrics["seeds"][0]
        several = f", {seeds} seeds" if seeds > 1 else ""
        for table in form_tables(metrics, f"{group}, {source}{several}, in percent"):
            out.print(table)
        out.print(change_table(probed.changes.filter(of_group)))
    if examples and changed.height:
        out.print(changed_answers_table(changed, examples))
