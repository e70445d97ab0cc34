"""The results of trainings as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import polars as pl

from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.columns import POINTS, difference_columns, frame_table, metric_column
from consilience.report.comparison_tables import compared_on
from consilience.report.table import CI, Cell, Column, Table, Value, bounds_of
from consilience.types import Suite

PERPLEXITY = Column("perplexity", "number", digits=2)


def result_table(compared: pl.DataFrame, suite: Suite, title: str) -> Table:
    """The headline metrics before and after training, as means over the held-out relations.

    ``compared``: the comparison of the two models on some of a suite (``COMPARISON_SCHEMA``).
    """
    means = compared.filter(group="MACRO", subset="all").drop("detectable")
    by_metric = {row["metric"]: row for row in means.iter_rows(named=True)}
    rows = [
        {"label": label_of(metric), **by_metric[metric]}
        for metric in headline_metrics()
        if metric in by_metric
    ]
    columns = difference_columns(means, Column("before", "share"), Column("after", "share"))
    tests = ", ".join(means["test"].drop_nulls().unique(maintain_order=True))
    notes = [*compared_on(compared, suite), f"p: {tests}"]
    return frame_table(rows, title, {"label": Column("metric"), **columns}, notes)


def table_7(rows: pl.DataFrame, relations: int) -> tuple[Table, Table]:
    """ParaRel's Table 7, and each row's differences from the model before.

    ``rows``: ``Improved.table``. ``relations``: the number of test relations.
    """
    names = rows["name"].unique(maintain_order=True).to_list()
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    numbers = {(row["name"], row["metric"]): row for row in rows.iter_rows(named=True)}
    seeds = max(row["seeds"] for row in numbers.values())
    over = f"; means of {seeds} seeds" if seeds > 1 else ""
    means = Table(
        f"Table 7 of the ParaRel paper: means ± std over {relations} held-out relations, in "
        f"percent{over}",
        [Column("model"), *map(metric_column, metrics), PERPLEXITY],
        [_means(name, [numbers[name, metric] for metric in metrics]) for name in names],
    )
    of_seeds = ("lowest", "highest") if seeds > 1 else ()
    largest_p = ("largest_p",) if seeds > 1 else ()
    changes = Table(
        "After minus before, in points" + over,
        [
            Column("model"), Column("metric"), POINTS, Column(CI, "points"), Column("p", "p"),
            *(Column(f"{name} seed", "points") for name in of_seeds),
            *(Column("largest p of a seed", "p") for _ in largest_p),
        ],
        [
            [
                name if metric == metrics[0] else "",
                label_of(metric),
                row["difference"],
                bounds_of(row),
                *(row[column] for column in ("p", *of_seeds, *largest_p)),
            ]
            for name in names[1:]
            for metric in metrics
            for row in [numbers[name, metric]]
        ],
    )  # fmt: skip
    return means, changes


def _means(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Value]:
    return [name, *(Cell(row["value"], std=row["std"]) for row in rows), rows[0]["perplexity"]]


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """Validation of every training; ``lambdas``: ``Improved.lambdas``."""
    metrics = ("accuracy", "consistency", "consistent_accuracy")
    columns = [
        *(Column("model"), Column("seed", "count"), Column("lambda", "number"), Column("")),
        Column("updates", "count"),
    ]
    return Table(
        "Every training: validation relations, best checkpoint, in percent",
        [*columns, *map(metric_column, metrics), PERPLEXITY],
        [
            [
                row["name"],
                str(row["seed"]),
                f"{row['lambda']:g}",
                "chosen" if row["kept"] else "",
                str(row["step"]),
                *(row[name] for name in metrics),
                row["perplexity"],
            ]
            for row in lambdas.iter_rows(named=True)
        ],
    )


def grid_table(rows: Sequence[tuple[int, float, float, bool]], task: str) -> Table:
    """Fine-tunings with the first seed: batch size, learning rate, accuracy, whether chosen."""
    return Table(
        "Tried with the first seed: validation accuracy, in percent",
        [
            Column("batch size", "count"),
            Column("learning rate", "number"),
            Column(task, "share"),
            Column(""),
        ],
        [
            [str(batch), f"{rate:g}", accuracy, "chosen" if is_best else ""]
            for batch, rate, accuracy, is_best in rows
        ],
    )


def seed_table(
    model: str, validation: Mapping[int, Mapping[str, float]], costs: Sequence[tuple[int, float]]
) -> Table:
    """Accuracy of each seed on each task, and the mean; ``costs``: epochs and seconds."""
    tasks = list(next(iter(validation.values())))
    rows: list[list[Value]] = [
        [str(seed), *accuracies.values(), epochs, seconds / 60]
        for (seed, accuracies), (epochs, seconds) in zip(validation.items(), costs, strict=True)
    ]
    if len(rows) > 1:
        values = [[accuracies[task] for accuracies in validation.values()] for task in tasks]
        means = [Cell(fmean(accuracies), std=stdev(accuracies)) for accuracies in values]
        rows.append(["mean", *means, "", ""])
    return Table(
        f"{model}: validation accuracy of the best checkpoint, in percent",
        [
            Column("seed", "count"),
            *(Column(task, "share") for task in tasks),
            Column("epochs", "count"),
            Column("minutes", "number"),
        ],
        rows,
    )
