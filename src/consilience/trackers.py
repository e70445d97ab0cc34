"""Log the numbers of a run to an experiment tracker: mlflow, trackio or Weights & Biases.

Each function logs into the tracker's active run. Without one it begins a run and ends it. The
packages of trackers are imported when a function is called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis.examples import disagreements
from consilience.core.errors import needs_extra
from consilience.core.provenance import build
from consilience.results.reporting import Result
from consilience.runs.run import Run
from consilience.workflow.evaluation import open_run

PROJECT = "consilience"
"""The project, or the experiment of mlflow, of a run that a function begins."""

MOST_ROWS = 1_000
"""Rows of a table of items."""

QUIET = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
"""Options of a run of trackio that is begun: no page in a notebook, and nothing of the machine."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """What a tracker is given of a run."""

    name: str
    """What a run is called that is begun for it."""
    parameters: Mapping[str, str]
    """The model, the suite and how answers were counted."""
    metrics: Mapping[str, float]
    """The headline numbers by ``SUITE/METRIC`` or ``SUITE/METRIC/SUBSET``, fractions from 0 to 1;
    with ``/low`` and ``/high`` the bounds of their 95 % intervals."""
    tables: Mapping[str, pl.DataFrame]
    """``metrics``: all numbers (``METRICS_SCHEMA``); ``disagreements``: items with different
    answers (``DISAGREEMENT_SCHEMA``), of the first seed."""


def tracked(run: Result | Run | str | Path) -> Tracked:
    """What a tracker is given of a result, or of the folder of a run."""
    result = run if isinstance(run, Result) else open_run(Path(run))
    settings = result.run.settings
    parameters = {
        "model": str(settings.get("model", {}).get("model", result.label)),
        "suite": result.suite.name,
        "protocol": result.protocol,
        "version": build(),
    }
    items = disagreements(result.run.tables[0], result.suite, result.protocol)
    tables = {"metrics": result.metrics, "disagreements": items.head(MOST_ROWS)}
    name = f"{result.label} on {result.suite.name}"
    return Tracked(name, parameters, headline_metrics(result), tables)


def headline_metrics(result: Result) -> dict[str, float]:
    """The headline numbers of a result (``Tracked.metrics``); those without data are left out."""
    metrics: dict[str, float] = {}
    for row in result.summary.rows:
        parts = [result.suite.name, *row.names]
        name = "/".join(re.sub(r"[^\w .-]+", "-", part) for part in parts)
        values = {name: row.value, f"{name}/low": row.low, f"{name}/high": row.high}
        metrics |= {key: value for key, value in values.items() if not math.isnan(value)}
    return metrics


def to_mlflow(run: Result | Run | str | Path, *, step: int | None = None) -> None:
    """Log a run to mlflow: parameters, metrics, and tables as artifacts.

    ``step``: that of the metrics, such as the step of a training.
    """
    with needs_extra("mlflow"):
        import mlflow
    of_run = tracked(run)
    is_active = mlflow.active_run() is not None
    if not is_active:
        mlflow.set_experiment(PROJECT)
        mlflow.start_run(run_name=of_run.name)
    try:
        mlflow.log_params({f"{PROJECT}.{name}": text for name, text in of_run.parameters.items()})
        mlflow.log_metrics(dict(of_run.metrics), step=step)
        for name, table in of_run.tables.items():
            mlflow.log_text(table.write_csv(), f"{PROJECT}/{name}.csv")
    finally:
        if not is_active:
            mlflow.end_run()


def _logged(of_run: Tracked, table_of: Callable[..., Any]) -> dict[str, Any]:
    """Metrics and tables by their names; ``table_of`` makes a tracker's table."""
    tables = {
        f"{PROJECT}/{name}": table_of(columns=table.columns, data=_rows(table))
        for name, table in of_run.tables.items()
    }
    return {**of_run.metrics, **tables}


def to_trackio(run: Result | Run | str | Path, *, step: int | None = None) -> None:
    """Log a run to trackio: metrics and tables, and the parameters of a run that is begun.

    ``step``: that of the metrics, such as the step of a training.
    """
    with needs_extra("trackio"):
        import trackio
    of_run = tracked(run)
    logged = _logged(of_run, trackio.Table)
    try:
        trackio.log(logged, step=step)
    except RuntimeError:  # no run is active
        trackio.init(PROJECT, name=of_run.name, config=dict(of_run.parameters), **QUIET)
        try:
            trackio.log(logged, step=step)
        finally:
            trackio.finish()


def to_wandb(run: Result | Run | str | Path, *, step: int | None = None) -> None:
    """Log a run to Weights & Biases: configuration, metrics and tables.

    ``step``: that of the metrics, such as the step of a training.
    """
    with needs_extra("wandb"):
        import wandb
    of_run = tracked(run)
    logged = _logged(of_run, wandb.Table)
    is_active = wandb.run is not None
    active = wandb.run or wandb.init(project=PROJECT, name=of_run.name)
    try:
        active.config.update({PROJECT: dict(of_run.parameters)}, allow_val_change=True)
        active.log(logged, step=step)
    finally:
        if not is_active:
            active.finish()


def _rows(table: pl.DataFrame) -> list[list[object]]:
    """The rows of a table; NaN, which JSON does not have, becomes None."""
    return [list(row) for row in table.fill_nan(None).iter_rows()]
