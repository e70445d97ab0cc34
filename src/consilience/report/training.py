"""What a training brought, as tables for people."""

from __future__ import annotations

import polars as pl
from rich.table import Table

from consilience.report.comparison import points, probability
from consilience.report.tables import COLUMNS, mean_and_std, new_table, percent


def table_7(rows: pl.DataFrame, relations: int) -> tuple[Table, Table]:
    """The paper's Table 7, and each row's differences from the model before.

    ``rows``: ``Improved.table``.
    """
    names = rows["name"].unique(maintain_order=True).to_list()
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    found = {(row["name"], row["metric"]): row for row in rows.iter_rows(named=True)}
    means = new_table(f"Table 7: means ± std over {relations} test relations, in percent")
    changes = new_table("After minus before, in points; the largest p of all seeds")
    seeds = max(row["seeds"] for row in found.values())
    if seeds > 1:
        means.title = f"{means.title}; means of {seeds} seeds"
        changes.title = f"{changes.title}; mean (lowest to highest of {seeds} seeds)"
    for table in (means, changes):
        table.add_column("model", no_wrap=True)
        for metric in metrics:
            table.add_column(COLUMNS.get(metric, metric), justify="right")
    means.add_column("perplexity", justify="right")
    for name in names:
        shown = [found[name, metric] for metric in metrics]
        perplexity = shown[0]["perplexity"]
        means.add_row(
            name,
            *(mean_and_std(row["value"], row["std"]) for row in shown),
            "-" if perplexity is None else f"{perplexity:.2f}",
        )
        if name != names[0]:
            changes.add_row(name, *(_change(row, seeds) for row in shown))
    return means, changes


def _change(row: dict[str, float], seeds: int) -> str:
    text = points(row["difference"])
    if seeds > 1:
        text += f" ({points(row['lowest'])} to {points(row['highest'])})"
    return f"{text} {probability(row['p'])}".rstrip()


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """What each lambda reached on the validation relations; ``lambdas``: ``Improved.lambdas``."""
    table = new_table("Validation relations, best checkpoint of each training, in percent")
    shown = ("accuracy", "consistency", "consistent_accuracy")
    for heading in ("model", "seed", "lambda", *(COLUMNS[each] for each in shown), "perplexity"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in lambdas.iter_rows(named=True):
        perplexity = row["perplexity"]
        table.add_row(
            row["name"],
            str(row["seed"]),
            f"{row['lambda']:g}" + (" (kept)" if row["kept"] else ""),
            *(percent(row[each]) for each in shown),
            "-" if perplexity is None else f"{perplexity:.2f}",
        )
    return table
