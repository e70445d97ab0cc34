"""Models and tasks on a screen: consistency under perturbation (CALUM, Tables 2, 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from consilience.report.columns import Columns, difference_columns, frame_table
from consilience.report.table import (
    Cell,
    Column,
    Table,
    mark_best,
    spread_of,
    text_of,
)
from consilience.suites.tasks import CALUM

WIDTH = 100
"""Characters in a line that is legible."""

AT_ONCE = 3
"""Tasks beside each other, at most."""

ORDER = (*CALUM, "kornli", "klue-nli", "klue-sts")
"""Tasks in the order of the paper's tables; others come after."""

SYMBOLS: Mapping[tuple[str, str], str] = {
    ("accuracy", "all"): "Acc",
    ("consistency", "reverse"): "C_R",
    ("consistency", "signal"): "C_S",
}
"""Metric and form -> the paper's symbol."""


def symbol_of(metric: str, form: str) -> str:
    """How the papers' tables head a metric of a form."""
    return SYMBOLS.get((metric, form), f"C {form}")


def calum_tables(
    rows: pl.DataFrame, title: str, metrics: Mapping[tuple[str, str], str] = SYMBOLS
) -> Iterator[Table]:
    """A row a model; for each task a column for each of ``metrics``, the best value in bold.

    ``rows``: a row a number (``model, task, metric, subset, value, std``). Mean ± standard
    deviation where there are several seeds. As many tables as are needed to stay legible.
    """
    cells = {
        (row["model"], row["task"], row["metric"], row["subset"]): Cell(row["value"], row["std"])
        for row in rows.iter_rows(named=True)
    }
    models = rows["model"].unique(maintain_order=True).to_list()
    tasks = sorted(rows["task"].unique(maintain_order=True).to_list(), key=_order)
    column = Column("", "share")
    numbers = (text_of(cell, column) + f"±{spread_of(cell, column)}" for cell in cells.values())
    widest = max(map(len, (*tasks, *metrics.values(), *numbers))) + 1
    room = WIDTH - min(max(map(len, (*models, "model"))), WIDTH // 3) - 1
    fitting = max(1, min(AT_ONCE, room // (widest * len(metrics))))
    for start in range(0, len(tasks), fitting):
        keys = [(task, *metric) for task in tasks[start : start + fitting] for metric in metrics]
        headings = [f"{task} {metrics[metric, form]}" for task, metric, form in keys]
        columns = [Column("model"), *(Column(heading, "share") for heading in headings)]
        table_rows = [[model, *(cells.get((model, *key)) for key in keys)] for model in models]
        yield mark_best(Table(title, columns, table_rows), headings)


def _order(task: str) -> int:
    return ORDER.index(task) if task in ORDER else len(ORDER)


def effects_tables(effects: pl.DataFrame) -> Iterator[Table]:
    """For each comparison of tasks a table, a row a test: means, and their difference in points.

    ``effects``: the differences of tasks and their t-tests (``docs/calum-statistics.md``).
    """
    notes = [
        "paired: over models, the test to use; Student, Welch: as if each model were independent",
        "p (Holm): adjusted over the rows of all tables with the same test. * .05 ** .01 *** .001",
    ]
    for (first, second), rows in effects.group_by(["first", "second"], maintain_order=True):
        named: list[dict[str, Any]] = []
        previous = ""
        for row in rows.iter_rows(named=True):
            name = symbol_of(row["metric"], row["subset"])
            named.append({"name": "" if name == previous else name, **row})
            previous = name
        title = f"{first} against {second}: difference of the means, in points"
        of_tasks = Column(str(first), "share"), Column(str(second), "share")
        columns: Columns = {
            "name": Column(""),
            "test": Column("test"),
            **difference_columns(rows, *of_tasks),
        }
        yield frame_table(named, title, columns, notes)
