"""Knowledge and consistency: are models consistent where they know (paper, Section 6.2)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from statistics import fmean
from typing import Literal, get_args

import polars as pl

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.correlations import correlation
from consilience.metrics.measure import measure
from consilience.metrics.registry import headline_metrics
from consilience.types import Suite

Method = Literal["pearson", "spearman"]

PAIRS = (
    ("accuracy", "consistency"),
    ("accuracy", "corrected_consistency"),
    ("successful_objects", "consistency"),
)
"""What is correlated over relations; the first is the paper's."""


def correlation_table(metrics: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Correlations over the N-1 relations, of each run's metrics table.

    One row a run, pair of metrics and method: ``run, x, y, method, value, low, high, p, n``. The
    paper does not say which coefficient its 67.3 to 82.1 are; both are given.
    """
    rows = []
    for run, table in metrics.items():
        for (x, y), method in product(PAIRS, get_args(Method)):
            pairs = _of_relations(table, x).join(_of_relations(table, y), on="group")
            values = pairs["value"].to_list(), pairs["value_right"].to_list()
            r = correlation(*values, method=method)
            rows.append({"run": run, "x": x, "y": y, "method": method} | asdict(r))
    return pl.DataFrame(rows)


def size_table(metrics: Mapping[str, pl.DataFrame], sizes: Sequence[float]) -> pl.DataFrame:
    """Means over relations of each run, by the size of its training data (Table 4).

    ``sizes``: words, tokens or any other unit, one a run. One row a run: ``run, size`` and for each
    metric its value, ``_std``, ``_low`` and ``_high``.
    """
    if len(sizes) != len(metrics):
        raise ConsilienceError(
            f"{len(sizes)} sizes of {len(metrics)} runs", expected="one size for each run, in order"
        )
    rows = []
    for (run, table), size in zip(metrics.items(), sizes, strict=True):
        rows.append({"run": run, "size": float(size), **_means(table)})
    return pl.DataFrame(rows).sort("size")


def size_correlations(by_size: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of size and each metric over runs: ``metric, value, low, high, p, n``.

    With few runs this can only be coarse: with four, p is at least 1/12.
    """
    rows = []
    for name in headline_metrics():
        sizes, values = by_size["size"].to_list(), by_size[name].to_list()
        r = correlation(sizes, values, method="spearman")
        rows.append({"metric": name} | asdict(r))
    return pl.DataFrame(rows)


def abstaining_table(
    answers: Sequence[pl.DataFrame],
    suite: Suite,
    protocol: Protocol,
    thresholds: Sequence[float],
) -> pl.DataFrame:
    """Means over relations if the model gives no answer below a probability (paper, Section 9).

    ``answers``: of one seed or several. One row a threshold: ``threshold, answered`` and for each
    headline metric its value, ``_low`` and ``_high``. The probability is that of the answer among
    the candidates, ``exp(logprob)``. ``answered``: share of the answers in N-1 relations that are
    at least as probable as the threshold. Other answers count in no metric, so consistency is over
    the pairs of patterns that are both answered. An answer without a probability raises.
    """
    averaged = [relation.id for relation in suite.relations if relation.cardinality == "N-1"]
    for table in answers:
        has_none = pl.col("answer").is_not_null() & pl.col("logprob").is_null()
        if "logprob" not in table.columns or table.select(has_none.any()).item():
            raise ConsilienceError(
                "answers without probabilities",
                expected="a run of a model that scores all candidates",
                todo="Probe again with --keep-scores, or leave --abstain-below out.",
            )
    rows = []
    for threshold in thresholds:
        if not 0 <= threshold <= 1:
            raise ConsilienceError(f"--abstain-below {threshold:g}", expected="numbers from 0 to 1")
        is_kept = pl.col("logprob").exp() >= threshold
        confident = [
            table.with_columns(answer=pl.when(is_kept).then("answer")) for table in answers
        ]
        is_answer = pl.col("answer").is_not_null() & pl.col("group").is_in(averaged)
        shares = [table.filter(is_answer).select(is_kept.mean()).item() for table in answers]
        row: dict[str, object] = {"threshold": float(threshold), "answered": fmean(shares)}
        rows.append(row | _means(measure(confident, suite, protocol)))
    return pl.DataFrame(rows)


def _means(metrics: pl.DataFrame) -> dict[str, float]:
    """The mean over relations of each headline metric, with ``_std``, ``_low`` and ``_high``."""
    overall = metrics.filter((pl.col("group") == "MACRO") & (pl.col("subset") == "all"))
    means: dict[str, float] = {}
    for name in headline_metrics():
        (mean,) = overall.filter(pl.col("metric") == name).to_dicts() or ({},)
        means[name] = mean.get("value", math.nan)
        means |= {f"{name}_{part}": mean.get(part, math.nan) for part in ("std", "low", "high")}
    return means


MULTIPLIERS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def number_of(text: str) -> float:
    """``10M`` is ten million."""
    unit = MULTIPLIERS.get(text[-1:].lower(), 1)
    try:
        return float(text.rstrip("kKmMbBtT")) * unit
    except ValueError:
        raise ConsilienceError(f"no number in '{text}'", expected="such as 1000000 or 1M") from None


def short_number(number: float) -> str:
    """Ten million is ``10M``."""
    for unit, size in reversed(MULTIPLIERS.items()):
        if number >= size:
            return f"{number / size:g}{unit.upper()}"
    return f"{number:g}"


def _of_relations(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """A metric's value in each relation that the mean over relations includes."""
    averaged = set(metrics.filter(pl.col("metric") == "consistency")["group"])
    chosen = metrics.filter(
        (pl.col("metric") == name)
        & (pl.col("subset") == "all")
        & ~pl.col("group").is_in(["MACRO", "MICRO"])
        & pl.col("group").is_in(list(averaged))
    )
    return chosen.select("group", "value")
