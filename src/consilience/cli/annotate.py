"""annotate: ask people the same pairs in every form, and count how they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.table import Table

from consilience.cli.pairs import IndicatorsOption, TaskOption, task_of
from consilience.cli.shared import AsJson, names_in, out, print_json, rows_of, warn
from consilience.files import csv_of, write_whole
from consilience.provenance import git_revision, versions
from consilience.report.tables import interval, mean_and_std, new_table, percent
from consilience.resource import annotation
from consilience.suites.pairs import read_pairs
from consilience.suites.perturbations import PAPERS, chosen

app = typer.Typer(no_args_is_help=True, help="How people answer: sheets, and what they say.")

NAMES = {
    "accuracy": "Accuracy",
    "consistency": "Consistency",
    "pairwise_agreement": "Pairwise agreement",
    "fleiss_kappa": "Fleiss' kappa",
}


@app.command()
def sheet(
    task: TaskOption,
    data: Annotated[str, typer.Option(help="Labelled pairs: a file, or hub:SPLIT.")],
    folder: Annotated[Path, typer.Option("--out", help="A new folder for the sheets.")],
    items: Annotated[int, typer.Option(help="So many pairs.", min=1)] = 30,
    annotators: Annotated[int, typer.Option(help="So many sheets.", min=1)] = 5,
    perturbations: Annotated[
        str, typer.Option(help="The forms that the original is asked beside; or all.")
    ] = ",".join(PAPERS),
    indicators: IndicatorsOption = None,
    question: Annotated[str, typer.Option(help="What is asked, in your own words.")] = "",
    seed: Annotated[int, typer.Option(help="Of the pairs and their orders.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw pairs, and write for each annotator a page and a table with all forms of all of them.

    Annotators get one of the two, never key.json. The page works from disk, without a network; what
    it downloads goes back into the folder, in the place of the table.
    """
    asked = task_of(task, indicators)
    pairs = read_pairs(data, asked)
    key = annotation.draw(
        pairs,
        asked,
        chosen(names_in(perturbations)),
        items=items,
        annotators=annotators,
        seed=seed,
        question=question,
    )
    annotation.write(key, folder)
    few = [f"{data} has {len(key.items)} pairs, not {items}"] if len(key.items) < items else []
    warnings = [*pairs.notes, *few]
    questions = len(key.items) * len(key.variants)
    if as_json:
        record = {
            "asked": {"task": key.task, "data": data, "question": key.question, "seed": seed},
            "versions": versions(),
            "git": git_revision(),
        }
        sheets = {"folder": str(folder), "sheets": len(key.sheets), "questions": questions}
        print_json({"run": record, **sheets, "warnings": warnings})
        return
    warn(warnings)
    out.print(
        f"{len(key.sheets)} sheets of {questions} questions: {folder}/annotator-1.html (or .csv), "
        f"...\nKeep key.json to yourself. Then: consilience annotate score {folder}",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
def score(
    folder: Annotated[Path, typer.Argument(help="The sheets with their answers, and key.json.")],
    file: Annotated[
        Path | None, typer.Option("--out", help="Write the metrics table here, as CSV.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Accuracy and consistency of the annotators, and how much they agree (CALUM, Section 4.4)."""
    found = annotation.score(folder, seed)
    if file:
        write_whole(file, csv_of(found.metrics))
    if as_json:
        key = found.key
        asked: dict[str, object] = {"sheets": str(folder), "task": key.task}
        asked |= {"question": key.question, "digest": key.digest, "seed": key.seed}
        asked["annotators"] = found.annotators
        record = {"asked": asked, "versions": versions(), "git": git_revision()}
        document = {"run": record, "metrics": rows_of(found.metrics), "warnings": found.warnings}
        print_json(document)
        return
    for table in _tables(found):
        out.print(table)
    warn(found.warnings)


def _tables(found: annotation.Scored) -> tuple[Table, Table]:
    """The numbers over annotators, and accuracy and consistency of each, in percent."""
    task, metrics = found.key.task, found.metrics
    people, items = len(found.annotators), len(found.key.items)
    total = new_table(f"{task}: {people} people, {items} items, in percent")
    for heading in ("metric", "form"):
        total.add_column(heading, no_wrap=True)
    for heading in ("mean ± std", "95 %", "counted", "left\nout"):
        total.add_column(heading, justify="right", no_wrap=True)
    own = new_table("each annotator: right, and the same as in the original, in percent")
    own.add_column("annotator")
    values: dict[str, list[str]] = {name: [] for name in found.annotators}
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
