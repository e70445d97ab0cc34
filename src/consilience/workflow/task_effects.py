"""Which kinds of tasks make models consistent: runs of several models on several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from consilience.analysis.task_types import read_runs, task_effects, without_models
from consilience.report.task_tables import calum_tables, effects_tables
from consilience.run import short_names, split_label
from consilience.suites.perturbations import PERTURBATIONS
from consilience.suites.tasks import TASKS
from consilience.workflow.analyses import Analysis
from consilience.workflow.run_options import TaskEffectsOptions

TITLE = "Accuracy, and consistency when reversed (C_R) and with other punctuation (C_S), in percent"


def analyze_tasks(options: TaskEffectsOptions) -> Analysis:
    """The numbers of all runs, and tests of tasks against tasks: ``metrics, effects``."""
    names, paths = _labelled(options.runs)
    metrics = read_runs(paths, names, tasks=TASKS, perturbations=PERTURBATIONS)
    tested = without_models(metrics, options.leave_out) if options.leave_out else metrics
    kinds = {name: task.kind for name, task in TASKS.items()}
    effects = task_effects(tested, kinds, options.small)
    tables = {"metrics": metrics, "effects": effects}
    shown = [*calum_tables(metrics, TITLE), *effects_tables(with_tests(effects))]
    notes = _notes(tested, effects)
    return Analysis(tables, notes, main="effects", layout=lambda _: shown)


def with_tests(effects: pl.DataFrame) -> pl.DataFrame:
    """The comparisons of tasks in which some test has a p; runs of one model have none."""
    return effects.filter(pl.col("p").is_not_nan().any().over("first", "second"))


def _labelled(runs: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The model and the path of each run; a run without a model is named by its folder."""
    models, paths = zip(*map(split_label, runs), strict=True)
    files = [Path(path) for path in paths]
    folders = [file.parent if file.name == "metrics.csv" else file for file in files]
    unnamed = [folder for folder, model in zip(folders, models, strict=True) if not model]
    short = iter(short_names(unnamed))
    return [model or next(short) for model in models], files


def _notes(metrics: pl.DataFrame, effects: pl.DataFrame) -> list[str]:
    """Why there are fewer tests than a reader may expect."""
    present = metrics["task"].unique(maintain_order=True).to_list()
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
    untested = contrasts.join(with_tests(effects), on=["first", "second"], how="anti")
    notes += [f"no test of {first} against {second}: {needed}" for first, second in untested.rows()]
    return notes
