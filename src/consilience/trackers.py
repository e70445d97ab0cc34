"""Log the numbers of a run to an experiment tracker: mlflow, trackio or Weights & Biases.

``track`` imports the package of a tracker when it is called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import polars as pl

from consilience.analysis.examples import disagreements
from consilience.core.errors import needs_extra
from consilience.core.provenance import build
from consilience.files.write import csv_of
from consilience.results.evaluation import open_run
from consilience.results.reporting import Result
from consilience.runs.run import Run

PROJECT = "consilience"  # The project, or the experiment of mlflow, of a run that is begun here

MOST_ROWS = 1_000  # Rows of a table of items

QUIET = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
"""Options of a run of trackio that is begun: no page in a notebook, and nothing of the machine."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """What a tracker is given of a run."""

    name: str  # What a run is called that is begun for it
    parameters: Mapping[str, str]  # The model, the suite and how answers were counted
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


def track(
    run: Result | Run | str | Path,
    tracker: Literal["mlflow", "trackio", "wandb"],
    *,
    step: int | None = None,
) -> None:
    """Log a run to the active run of a tracker; without one a run is begun and ended.

    Parameters, metrics and tables; a run of trackio has parameters where it is begun here.
    ``step``: that of the metrics, such as the step of a training.
    """
    of_run = tracked(run)
    with needs_extra(tracker):
        module = import_module(tracker)
    if tracker == "mlflow":
        _log_to_mlflow(module, of_run, step)
        return
    tables = {
        f"{PROJECT}/{name}": module.Table(
            columns=table.columns,
            data=[list(row) for row in table.fill_nan(None).iter_rows()],  # JSON has no NaN
        )
        for name, table in of_run.tables.items()
    }
    logged = {**of_run.metrics, **tables}
    parameters = dict(of_run.parameters)
    if tracker == "wandb" and module.run is not None:
        module.run.config.update({PROJECT: parameters}, allow_val_change=True)
    try:
        module.log(logged, step=step)
    except (RuntimeError, getattr(module, "Error", RuntimeError)):  # no run is active
        options = QUIET if tracker == "trackio" else {}
        config = parameters if tracker == "trackio" else {PROJECT: parameters}
        module.init(project=PROJECT, name=of_run.name, config=config, **options)
        try:
            module.log(logged, step=step)
        finally:
            module.finish()


def _log_to_mlflow(mlflow: Any, of_run: Tracked, step: int | None) -> None:
    is_active = mlflow.active_run() is not None
    if not is_active:
        mlflow.set_experiment(PROJECT)
        mlflow.start_run(run_name=of_run.name)
    try:
        parameters = {f"{PROJECT}.{name}": text for name, text in of_run.parameters.items()}
        known = mlflow.get_run(mlflow.active_run().info.run_id).data.params  # mlflow changes none
        mlflow.log_params({name: parameters[name] for name in parameters if name not in known})
        mlflow.log_metrics(dict(of_run.metrics), step=step)
        for name, table in of_run.tables.items():
            mlflow.log_text(csv_of(table).decode(), f"{PROJECT}/{name}.csv")
    finally:
        if not is_active:
            mlflow.end_run()
