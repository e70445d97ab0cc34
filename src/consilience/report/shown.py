"""A run of ``probe`` as a report shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.report.page import Cell

if TYPE_CHECKING:
    import altair


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with what was found in it.

    ``record``: of ``run.json``, empty for a table of answers. ``metrics``: of the metrics table;
    ``by_other``: the same answers counted by the other protocol.
    ``patterns, pairs, edits, items``: of the analysis of patterns.
    ``examples``: the most telling by kind. ``excluded``: ``group, excluded, len``. ``vectors``:
    mean V-measures with correlations, and the drawing, where the run has representations.
    ``left_out``: how many facts the accuracy is over, where it is not over all of them.
    """

    name: str
    record: Mapping[str, Any]
    metrics: pl.DataFrame
    by_other: pl.DataFrame
    patterns: pl.DataFrame
    pairs: pl.DataFrame
    edits: pl.DataFrame
    items: pl.DataFrame
    examples: Mapping[str, Sequence[Any]]
    excluded: pl.DataFrame
    warnings: Sequence[str]
    vectors: pl.DataFrame | None = None
    drawing: altair.Chart | None = None
    left_out: str = ""

    @property
    def model(self) -> str:
        """The model that was asked, or the run's name where that is not known.

        Of a model in a folder the folder's name.
        """
        model = str(self.record.get("asked", {}).get("model", {}).get("model", self.name))
        return Path(model).name if model.startswith((".", "/", "~")) else model


def values_of(metrics: pl.DataFrame, group: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a group by metric and subset."""
    rows = metrics.filter(pl.col("group") == group).iter_rows(named=True)
    return {(row["metric"], row["subset"]): row for row in rows}


def of_relations(runs: Sequence[Shown], names: Sequence[str]) -> pl.DataFrame:
    """Rows of single relations of all runs; determinism goes by the name of consistency."""
    parts = [
        run.metrics.filter(~pl.col("group").is_in(["MACRO", "MICRO"]) & (pl.col("subset") == "all"))
        .with_columns(metric=pl.col("metric").replace({"determinism": "consistency"}))
        .filter(pl.col("metric").is_in(names))
        .select(pl.lit(run.name).alias("run"), "metric", "group", "value", "low", "high", "n")
        for run in runs
    ]
    return pl.concat(parts)


def without_run(
    runs: Sequence[Shown], rows: list[list[Cell]], columns: list[str]
) -> tuple[list[list[Cell]], list[str]]:
    """Without the second column, which names the run, where there is only one."""
    if len(runs) > 1:
        return rows, columns
    return [[row[0], *row[2:]] for row in rows], [columns[0], *columns[2:]]
