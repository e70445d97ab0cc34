"""The runs of CALUM's recipes: where pairs are, how models are trained and asked, their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from consilience.analysis.task_types import read_runs
from consilience.errors import ConsilienceError
from consilience.report.measured import Measured
from consilience.report.papers import Key
from consilience.reproduce.recipe import KOREAN, Recipe
from consilience.reproduce.work import UNAVAILABLE, MissingError, Request, Work
from consilience.suites.pairs import HUB, read_pairs
from consilience.suites.perturbations import PERTURBATIONS
from consilience.suites.tasks import CALUM, TASKS

GROUPS = {name: "KorNLI" if name == "kornli" else name.upper() for name in (*CALUM, *KOREAN)}
"""The paper's names of our tasks."""

COLUMNS = {
    "Acc_val": ("accuracy", "all"),
    "C_R": ("consistency", "reverse"),
    "C_S": ("consistency", "signal"),
}
"""The paper's columns as metric and subset."""

SPLITS = ("train", "validation", "test")
WRITERS = ("T5-base", "T5-large")
"""Models that write the label and are not trained here: T5 was trained on all five tasks."""

GENERATED = "-generated"
"""Follows a task's name in the group of freely written answers."""

VARIANTS: Mapping[str, Sequence[str]] = {"Single": (), "Para": ("qqp", "mrpc"), "All": CALUM}
"""The tasks that a model is trained on in addition to its own (Section 6.1)."""


def trained_and_asked(recipe: Recipe, work: Work, row: str, task: str) -> Path:
    """The run of a row's model on a task; the model is trained first unless it writes labels.

    The checkpoint is chosen on the pairs that are then asked, as in the paper.
    """
    request, (model, variant) = work.request, parts_of(row)
    spec = request.models.get(model, recipe.models[model])
    if spec in work.faults:
        raise MissingError(work.faults[spec])
    folder = pairs_folder(request, row, task)
    held_out = readable_source(work, task, "validation")
    half = ["--half", "1"] if is_halved(request, task) else []
    try:
        if model not in WRITERS:
            others = [other for other in VARIANTS[variant] if other != task]
            training = [(other, readable_source(work, other, "train")) for other in others]
            work.run(
                row, "finetune", "--model", spec, "--task", task,
                "--train", readable_source(work, task, "train"), "--validation", held_out, *half,
                *(word for name, file in training for word in ("--with-task", f"{name}={file}")),
                "--out", folder / "model", "--device", request.training_device, part=GROUPS[task],
            )  # fmt: skip
        trained = spec if model in WRITERS else folder / "model"
        _ask_forms(work, row, task, trained, [held_out, *half], folder / "run")
    except MissingError as reason:
        if f"cannot load '{spec}'" in str(reason):
            work.faults[spec] = str(reason)
        raise
    work.stop_if_dry()
    return folder / "run"


def _ask_forms(
    work: Work, row: str, task: str, model: str | Path, data: Sequence[str], out: Path
) -> None:
    """Ask a model the pairs of a task in all forms. ``data``: the file, and which half of it."""
    writes = ["--generate"] if row in WRITERS else []
    work.run(
        row, "probe", "--model", model, "--suite", task, "--data", *data, "--out", out,
        "--device", work.request.device, *writes, part=GROUPS[task],
    )  # fmt: skip


def readable_source(work: Work, task: str, split: str) -> str:
    """Where the pairs of a split are (``source_of``); raises where they cannot be read."""
    name, source = f"{task}:{split}", source_of(work.request, task, split)
    if not work.request.dry and name not in work.faults:
        work.faults[name] = ""
        try:
            read_pairs(source, TASKS[task])
        except ConsilienceError as error:
            work.faults[name] = f"{UNAVAILABLE}: {error}"
    if fault := work.faults.get(name):
        raise MissingError(fault)
    return source


def source_of(request: Request, task: str, split: str) -> str:
    """The file that ``data`` names, else the split of the task's dataset on the Hub."""
    file, name = request.data.get(f"{task}:{split}"), TASKS[task].splits[SPLITS.index(split)]
    if not file and not name:
        raise MissingError(f"{UNAVAILABLE}: no split of its own on the Hub; give {task}:{split}")
    return file or f"{HUB}:{name}"


def is_halved(request: Request, task: str) -> bool:
    """Whether validation and test are the halves of one set, as with KLUE (Section 4.1)."""
    return not TASKS[task].splits[2] and f"{task}:test" not in request.data


def pairs_folder(request: Request, row: str, task: str) -> Path:
    """The folder of ``model``, the trainings, and ``run``, the answers; recipes share them."""
    model, variant = parts_of(row)
    return request.folder_of(model, "calum") / (
        task if variant == "Single" else f"{task}-{variant}"
    )


def parts_of(row: str) -> tuple[str, str]:
    """A row's model, and the variant of its training."""
    model, _, variant = row.rpartition("-")
    return (model, variant) if variant in VARIANTS else (row, "Single")


def read_rows(file: Path, row: str, task: str) -> pl.DataFrame:
    """A row's numbers on a task in a table of metrics (``LONG`` and more)."""
    rows = read_runs([file], [row], tasks=TASKS, perturbations=PERTURBATIONS)
    group = task + (GENERATED if row in WRITERS else "")
    return rows.filter(pl.col("task") == group).with_columns(task=pl.lit(task))


def read_numbers(file: Path, row: str, task: str) -> dict[Key, Measured]:
    """Accuracy, C_R and C_S in percent; the interval is over items, the deviation over seeds."""
    rows = read_rows(file, row, task).iter_rows(named=True)
    values = {(number["metric"], number["subset"]): number for number in rows}
    return {
        (GROUPS[task], row, column): Measured(
            *(100 * values[key][name] for name in ("value", "std", "low", "high"))
        )
        for column, key in COLUMNS.items()
        if key in values
    }
