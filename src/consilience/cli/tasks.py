"""analyze tasks: which kinds of tasks make consistent, over runs of several models and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from consilience.analysis.tasktypes import SMALL, read_runs, task_effects, without_models
from consilience.cli.shared import AsJson, names_in, out, print_json, rows_of, warn
from consilience.files import csv_of, write_whole
from consilience.report.perturbed import calum_tables, effects_tables
from consilience.run import short_names
from consilience.suites.perturbations import PERTURBATIONS
from consilience.suites.tasks import TASKS

TITLE = "Accuracy, and consistency when reversed (C_R) and with other signs (C_S), in percent"


def tasks(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs of perturb, or tables as CSV; MODEL=RUN names the model.",
            metavar="RUN...",
        ),
    ],
    small: Annotated[
        str, typer.Option(help="The tasks with few training examples.", metavar="T,T")
    ] = ",".join(SMALL),
    leave_out: Annotated[
        str | None,
        typer.Option(help="Models that the tests leave out; the table has all.", metavar="M,M"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write the tests here, as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which tasks: similarity against inference, small training sets against others (CALUM, 5.1).

    Runs of one model on several tasks belong together: roberta=runs/a roberta=runs/b.
    """
    names, paths = _named(runs)
    rows = read_runs(paths, names, tasks=TASKS, perturbations=PERTURBATIONS)
    tested = without_models(rows, names_in(leave_out)) if leave_out else rows
    kinds = {name: task.kind for name, task in TASKS.items()}
    effects = task_effects(tested, kinds, names_in(small))
    if file:
        write_whole(file, csv_of(effects))
    warnings = _notes(tested, effects)
    if as_json:
        document = {"metrics": rows_of(rows), "effects": rows_of(effects), "warnings": warnings}
        print_json(document)
        return
    for table in (*calum_tables(rows, TITLE), *effects_tables(_tested(effects))):
        out.print(table)
    warn(warnings)


def _tested(effects: pl.DataFrame) -> pl.DataFrame:
    """The comparisons of tasks in which some test has a p; runs of one model have none."""
    return effects.filter(pl.col("p").is_not_nan().any().over("first", "second"))


def _named(runs: list[str]) -> tuple[list[str], list[Path]]:
    """The model and the path of each run; the folder's name where none is given."""
    given = [("", run) if Path(run).exists() or "=" not in run else _split(run) for run in runs]
    paths = [Path(path) for _, path in given]
    folders = [path.parent if path.name == "metrics.csv" else path for path in paths]
    unnamed = [folder for folder, (name, _) in zip(folders, given, strict=True) if not name]
    found = iter(short_names(unnamed))
    return [name or next(found) for name, _ in given], paths


def _split(run: str) -> tuple[str, str]:
    name, _, path = run.partition("=")
    return name, path


def _notes(rows: pl.DataFrame, effects: pl.DataFrame) -> list[str]:
    """Why there are fewer tests than a reader may expect."""
    present = rows["task"].unique(maintain_order=True).to_list()
    notes = []
    unknown = [task for task in present if task not in TASKS]
    if unknown:
        notes.append(f"not known to be STS or NLI, so in neither: {', '.join(unknown)}")
    if "STS" not in set(effects["first"]):
        notes.append(f"no test of STS against NLI: the tasks are {', '.join(present)}")
    if set(effects["first"]) <= {"STS"}:
        notes.append(f"no test of small training sets: the tasks are {', '.join(present)}")
    needed = "it needs two models with tasks of both sides"
    paired = effects.filter(pl.col("test") == "paired")
    if not paired.is_empty() and paired["p"].is_nan().all():
        return [*notes, f"no paired test: {needed}"]
    contrasts = effects.select("first", "second").unique(maintain_order=True)
    untested = contrasts.join(_tested(effects), on=["first", "second"], how="anti")
    notes += [f"no test of {first} against {second}: {needed}" for first, second in untested.rows()]
    return notes
