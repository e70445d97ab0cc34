"""Knowledge and consistency: do models answer alike where they know (paper, Section 6.2)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal, get_args

import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics.statistics import correlation

Method = Literal["pearson", "spearman"]

PAIRS = (
    ("accuracy", "consistency"),
    ("accuracy", "corrected_consistency"),
    ("successful_objects", "consistency"),
)
"""What is correlated over relations; the first is the paper's."""

BY_SIZE = ("accuracy", "consistency", "corrected_consistency", "consistent_accuracy")
"""Table 4, and the chance-corrected consistency."""


def correlation_table(metrics: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Correlations over the relations that have one right answer, for each run's metrics table.

    One row a run, pair of metrics and method: ``run, x, y, method, value, low, high, p, n``. The
    paper does not say which coefficient its 67.3 to 82.1 are; both are given.
    """
    rows = []
    for run, table in metrics.items():
        for (x, y), method in product(PAIRS, get_args(Method)):
            pairs = _of_relations(table, x).join(_of_relations(table, y), on="group")
            found = correlation(
                pairs["value"].to_list(), pairs["value_right"].to_list(), method=method
            )
            rows.append(
                {
                    "run": run,
                    "x": x,
                    "y": y,
                    "method": method,
                    "value": found.value,
                    "low": found.low,
                    "high": found.high,
                    "p": found.p,
                    "n": found.n,
                }
            )
    return pl.DataFrame(rows)


def size_table(metrics: Mapping[str, pl.DataFrame], sizes: Sequence[float]) -> pl.DataFrame:
    """Means over relations of each run, in the order of what it was trained on (Table 4).

    ``sizes``: words, tokens or anything of each run. One row a run: ``run, size`` and for each
    metric its value, ``_std``, ``_low`` and ``_high``.
    """
    if len(sizes) != len(metrics):
        raise ConsilienceError(
            f"{len(sizes)} sizes of {len(metrics)} runs", expected="one size for each run, in order"
        )
    rows = []
    for (run, table), size in zip(metrics.items(), sizes, strict=True):
        row: dict[str, object] = {"run": run, "size": float(size)}
        overall = table.filter((pl.col("group") == "MACRO") & (pl.col("subset") == "all"))
        for name in BY_SIZE:
            (found,) = overall.filter(pl.col("metric") == name).to_dicts() or ({},)
            row[name] = found.get("value", math.nan)
            row |= {f"{name}_{end}": found.get(end, math.nan) for end in ("std", "low", "high")}
        rows.append(row)
    return pl.DataFrame(rows).sort("size")


def size_correlations(by_size: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of size and each metric over runs: ``metric, value, low, high, p, n``.

    With few runs this can only be coarse: with four, p is at least 1/12.
    """
    rows = []
    for name in BY_SIZE:
        sizes, values = by_size["size"].to_list(), by_size[name].to_list()
        found = correlation(sizes, values, method="spearman")
        ends = {"low": found.low, "high": found.high, "p": found.p, "n": found.n}
        rows.append({"metric": name, "value": found.value, **ends})
    return pl.DataFrame(rows)


def _of_relations(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """A metric's value in each relation that the mean over relations is made of."""
    averaged = set(metrics.filter(pl.col("metric") == "consistency")["group"])
    chosen = metrics.filter(
        (pl.col("metric") == name)
        & (pl.col("subset") == "all")
        & ~pl.col("group").is_in(["MACRO", "MICRO"])
        & pl.col("group").is_in(list(averaged))
    )
    return chosen.select("group", "value")
