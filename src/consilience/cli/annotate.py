"""annotate: ask people the same pairs in every form, and count how they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.table import Table

from consilience.authoring.annotation_scores import ScoredSheets
from consilience.cli.options import command_of
from consilience.cli.shared import AsJson, out, print_json, rows_of, warn
from consilience.files import csv_of, write_whole
from consilience.report.tables import interval, mean_and_std, new_table, percent
from consilience.workflow.annotators import (
    ScoreSheetsOptions,
    SheetOptions,
    count_sheets,
    make_sheets,
)

app = typer.Typer(no_args_is_help=True, help="How people answer: sheets, and what they say.")

NAMES = {
    "accuracy": "Accuracy",
    "consistency": "Consistency",
    "pairwise_agreement": "Pairwise agreement",
    "fleiss_kappa": "Fleiss' kappa",
}


@app.command()
@command_of(SheetOptions)
def sheet(options: SheetOptions, as_json: AsJson = False) -> None:
    """Sample pairs, and write a page and a table with all their forms for each annotator.

    Give annotators one of the two, never key.json. The page works from disk, without a network. Put
    the table that it downloads into the folder, in place of the empty one.
    """
    sheets = make_sheets(options)
    key, folder = sheets.key, options.folder
    if as_json:
        document = {"run": sheets.record, "folder": str(folder), "sheets": len(key.sheets)}
        print_json(document | {"questions": sheets.questions, "warnings": sheets.notes})
        return
    warn(sheets.notes)
    out.print(
        f"{len(key.sheets)} sheets of {sheets.questions} questions: {folder}/annotator-1.html "
        f"(or .csv), ...\nKeep key.json to yourself. Then: consilience annotate score {folder}",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
@command_of(ScoreSheetsOptions)
def score(
    options: ScoreSheetsOptions,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write the metrics table here, as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure annotators' accuracy, consistency and agreement (CALUM, Section 4.4)."""
    scored, record = count_sheets(options)
    if file:
        write_whole(file, csv_of(scored.metrics))
    if as_json:
        metrics = rows_of(scored.metrics)
        print_json({"run": record, "metrics": metrics, "warnings": scored.warnings})
        return
    for table in _tables(scored):
        out.print(table)
    warn(scored.warnings)


def _tables(scored: ScoredSheets) -> tuple[Table, Table]:
    """The numbers over annotators, and accuracy and consistency of each, in percent."""
    task, metrics = scored.key.task, scored.metrics
    people, items = len(scored.annotators), len(scored.key.items)
    total = new_table(f"{task}: {people} people, {items} items, in percent")
    for heading in ("metric", "form"):
        total.add_column(heading, no_wrap=True)
    for heading in ("mean ± std", "95 %", "counted", "left\nout"):
        total.add_column(heading, justify="right", no_wrap=True)
    own = new_table("each annotator: right, and the same as in the original, in percent")
    own.add_column("annotator")
    values: dict[str, list[str]] = {name: [] for name in scored.annotators}
    for name, heading in NAMES.items():
        for row in metrics.filter(pl.col("metric") == name).iter_rows(named=True):
            if row["group"] in values:
                values[row["group"]].append(percent(row["value"]))
                continue
            form = "original" if row["subset"] == "all" else row["subset"]
            shown = mean_and_std(row["value"], row["std"]), interval(row["low"], row["high"])
            counts = str(row["n"]), str(row["n_excluded"])
            total.add_row(heading, form, *shown, *counts)
            if name in ("accuracy", "consistency"):
                own.add_column(f"{heading}\n{form}", justify="right")
    for annotator, cells in values.items():
        own.add_row(annotator, *cells)
    return total, own
