"""What a training brought, on a screen."""

from __future__ import annotations

import polars as pl

from consilience.metrics.descriptions import label_of
from consilience.report.metric_tables import metric_column
from consilience.report.table import Cell, Column, Table, Value

PERPLEXITY = Column("perplexity", "number", digits=2)


def table_7(rows: pl.DataFrame, relations: int) -> tuple[Table, Table]:
    """The paper's Table 7, and each row's differences from the model before.

    ``rows``: ``Improved.table``.
    """
    names = rows["name"].unique(maintain_order=True).to_list()
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    values = {(row["name"], row["metric"]): row for row in rows.iter_rows(named=True)}
    seeds = max(row["seeds"] for row in values.values())
    over = f"; means of {seeds} seeds" if seeds > 1 else ""
    means: list[list[Value]] = []
    changes: list[list[Value]] = []
    for name in names:
        shown = [values[name, metric] for metric in metrics]
        numbers = [Cell(row["value"], row["std"]) for row in shown]
        means.append([name, *numbers, shown[0]["perplexity"]])
        for row in shown if name != names[0] else ():
            bounds = [row["lowest"], row["highest"]] if seeds > 1 else []
            first = name if row is shown[0] else ""
            difference = [row["difference"], *bounds, row["p"]]
            changes.append([first, label_of(row["metric"]), *difference])
    headings = ("points", *(("lowest", "highest") if seeds > 1 else ()))
    columns = [Column(heading, "points") for heading in headings]
    return (
        Table(
            f"Table 7: means ± std over {relations} test relations, in percent{over}",
            [Column("model"), *map(metric_column, metrics), PERPLEXITY],
            means,
        ),
        Table(
            "After minus before, in points; p: the largest of all seeds",
            [Column("model"), Column("metric"), *columns, Column("p", "p")],
            changes,
        ),
    )


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """What each lambda reached on the validation relations; ``lambdas``: ``Improved.lambdas``."""
    shown = ("accuracy", "consistency", "consistent_accuracy")
    columns = [
        Column("model"), Column("seed", "count"), Column("lambda", "number"), Column(""),
        *map(metric_column, shown), PERPLEXITY,
    ]  # fmt: skip
    rows = [
        [
            row["name"], row["seed"], f"{row['lambda']:g}", "kept" if row["kept"] else "",
            *(row[name] for name in shown), row["perplexity"],
        ]
        for row in lambdas.iter_rows(named=True)
    ]  # fmt: skip
    title = "Validation relations, best checkpoint of each training, in percent"
    return Table(title, columns, rows)
