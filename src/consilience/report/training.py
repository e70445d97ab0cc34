"""What a training brought, as tables for people."""

from __future__ import annotations

import polars as pl
from rich.table import Table

from consilience.report.comparison import points, probability
from consilience.report.tables import COLUMNS, mean_and_std, new_table, percent

HEADINGS = {
    "accuracy": "Accuracy",
    "consistency": "Consis-\ntency",
    "consistent_accuracy": "Consist-\nent-Acc",
    "corrected_consistency": "chance-\ncorrected",
}


def table_7(rows: pl.DataFrame, relations: int) -> tuple[Table, Table]:
    """The paper's Table 7, and each row's differences from the model before.

    ``rows``: ``Improved.table``.
    """
    names = rows["name"].unique(maintain_order=True).to_list()
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    found = {(row["name"], row["metric"]): row for row in rows.iter_rows(named=True)}
    seeds = max(row["seeds"] for row in found.values())
    over = f"; means of {seeds} seeds" if seeds > 1 else ""
    means = new_table(f"Table 7: means ± std over {relations} test relations, in percent{over}")
    means.add_column("model", no_wrap=True)
    for metric in metrics:
        means.add_column(HEADINGS[metric], justify="right", no_wrap=True)
    means.add_column("perplex-\nity", justify="right", no_wrap=True)
    changes = new_table("After minus before, in points; p: the largest of all seeds")
    headings = ("model", "metric", "points", *(("lowest", "highest") if seeds > 1 else ()), "p")
    for heading in headings:
        changes.add_column(
            heading, justify="left" if heading in ("model", "metric") else "right", no_wrap=True
        )
    for name in names:
        shown = [found[name, metric] for metric in metrics]
        means.add_row(
            name,
            *(mean_and_std(row["value"], row["std"]) for row in shown),
            _perplexity(shown[0]["perplexity"]),
        )
        for row in shown if name != names[0] else ():
            ends = [points(row["lowest"]), points(row["highest"])] if seeds > 1 else []
            changes.add_row(
                name if row is shown[0] else "",
                COLUMNS[row["metric"]],
                points(row["difference"]),
                *ends,
                probability(row["p"]),
            )
    return means, changes


def lambda_table(lambdas: pl.DataFrame) -> Table:
    """What each lambda reached on the validation relations; ``lambdas``: ``Improved.lambdas``."""
    table = new_table("Validation relations, best checkpoint of each training, in percent")
    shown = ("accuracy", "consistency", "consistent_accuracy")
    for heading in ("model", "seed", "lambda", "", *(HEADINGS[each] for each in shown)):
        table.add_column(
            heading, justify="left" if heading in ("model", "") else "right", no_wrap=True
        )
    table.add_column("perplex-\nity", justify="right", no_wrap=True)
    for row in lambdas.iter_rows(named=True):
        table.add_row(
            row["name"],
            str(row["seed"]),
            f"{row['lambda']:g}",
            "kept" if row["kept"] else "",
            *(percent(row[each]) for each in shown),
            _perplexity(row["perplexity"]),
        )
    return table


def _perplexity(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
