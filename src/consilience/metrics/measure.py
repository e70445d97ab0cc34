"""From answers to the table of metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import stdev
from typing import get_args

import numpy as np
import polars as pl
from scipy.special import stdtrit

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import Kind
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR
from consilience.metrics import errors
from consilience.metrics.counts import (
    Answers,
    Key,
    Prepared,
    empty_value,
    is_averaged,
    name_of,
    prepared,
)
from consilience.metrics.errors import Index, Number
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Tally
from consilience.metrics.statistics import LEVEL, NAN
from consilience.types import Cardinality, Relation, Suite

Row = dict[str, object]

NEARLY_CONSTANT = 0.9  # Share of the top answer above which consistency says nothing
FEWEST = 5  # Items, or groups of a mean, below which no interval is shown


def measure(
    answers: Answers, suite: Suite, protocol: Protocol | None = None, level: float = LEVEL
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers``, of polars or pandas, needs the columns ``group, item, subject, variant, gold,
    answer`` (``docs/elsewhere.md``). ``protocol`` is that of the suite unless given. A column that
    is missing, a group or variant that the suite does not have and a repeated row raise. ``low``
    and ``high`` are the bounds of an interval of ``level`` (``docs/statistics.md``).
    """
    if not isinstance(suite, Suite):
        raise ConsilienceError(
            f"a suite of type {type(suite).__name__}",
            expected="a Suite",
            todo="Load it: load_suite(name).",
        )
    run, rules = prepared(answers, suite), protocol or suite.protocol
    rows = [row for kind in get_args(Cardinality) for row in _of_kind(run, kind, rules, level)]
    return pl.DataFrame(_in_order(rows, suite), schema=METRICS_SCHEMA)


def _of_kind(run: Prepared, kind: Cardinality, protocol: Protocol, level: float) -> Iterator[Row]:
    """Rows of all groups of a kind, and over them."""
    index, of_metrics = Index(), dict[Key, list[tuple[Relation, Tally]]]()
    for relation in run.of_kind(kind):
        for key, tally in run.tallies(relation, protocol).items():
            of_metrics.setdefault(key, []).append((relation, tally))
    for key, of_groups in of_metrics.items():
        empty = empty_value(key, protocol)
        for relation, tally in of_groups:
            number = errors.of_group([(1, tally)], index)
            yield _row(key, "group", number, tally.value_or(empty), level, group=relation.id)
        averaged = {of.id: tally for of, tally in of_groups if is_averaged(key, of)}
        if averaged:
            terms = [(1, averaged)]
            number = errors.mean(terms, index, empty)
            value = errors.mean_value(averaged, [*number.by_group], empty)
            values = [tally.value_or(empty) for tally in averaged.values()]
            known = [value for value in values if not math.isnan(value)]
            std = stdev(known) if len(known) > 1 else NAN
            yield _row(key, "mean", number, value, level, std=std)
            number = errors.pooled(terms, index)
            yield _row(key, "all", number, number.value, level)


def _row(
    key: Key,
    over: str,
    number: Number,
    value: float,
    level: float,
    group: str = "",
    std: float = NAN,
) -> Row:
    """A number with its interval over items."""
    (metric, (kind, part)), bounds = key, DESCRIPTIONS[key[0]].bounds
    low, high = number.interval(bounds, level)
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "value": value, "low": low, "high": high, "n": number.n, "n_excluded": number.left_out,
        "std": std,
    }  # fmt: skip


def mean_over_runs(tables: Iterable[pl.DataFrame], of: str = "value") -> pl.DataFrame:
    """Means over runs, such as the seeds of a training: a row a number, by metric to level.

    ``tables``: the metrics table of each run, or with ``of="difference"`` a comparison of each.
    Of the R runs that have a number x: ``value`` is its mean ``m = sum_r x_r / R``, ``std`` its
    sample standard deviation ``s``, with ``s^2 = sum_r (x_r - m)^2 / (R - 1)``, ``low`` and
    ``high`` the bounds ``m -+ t[R - 1] s / sqrt(R)`` of a 95 % t interval, which tells how runs
    vary, and ``runs`` is R. NaN: ``value`` of no run, ``std`` and bounds of fewer than two.
    """
    number, x = ["metric", "over", "group", "kind", "level"], pl.col(of).fill_nan(None)
    rows = pl.concat(table.select(*number, x=x) for table in tables)
    x = pl.col("x")
    means = rows.group_by(number, maintain_order=True).agg(
        value=x.mean(), std=x.std(), runs=x.count().cast(pl.Int64)
    )
    runs = means["runs"].to_numpy()
    reach = pl.col("std") * pl.Series(stdtrit(runs - 1, (1 + LEVEL) / 2) / np.sqrt(runs))
    ends = {"low": pl.col("value") - reach, "high": pl.col("value") + reach}
    return means.with_columns(**ends).with_columns(pl.col(pl.Float64).fill_null(NAN))


def _in_order(rows: Sequence[Row], suite: Suite) -> list[Row]:
    """Rows by metric, then by part (forms as they were asked), then by group."""
    names = [name_of(metric, kind) for metric in METRICS for kind in get_args(Cardinality)]
    metrics = {name: at for at, name in enumerate(dict.fromkeys(names))}
    groups = {relation.id: at for at, relation in enumerate(suite.relations)}
    forms = {form: at for group in suite.relations for at, form in enumerate(group.design.forms)}
    overs = {over: len(groups) + at for at, over in enumerate(("mean", "all"))}
    kinds = {kind: at for at, kind in enumerate(get_args(Kind))}

    def rank(row: Mapping[str, object]) -> tuple[int, int, int, str, int]:
        kind, part, over = str(row["kind"]), str(row["level"]), str(row["over"])
        of_group = overs.get(over, groups.get(str(row["group"]), 0))
        return metrics[str(row["metric"])], kinds[kind], forms.get(part, 0), part, of_group

    return sorted(rows, key=rank)


def legible(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of metrics or differences without the intervals over fewer than ``FEWEST`` clusters.

    Clusters are the items of a group or of all groups, by their accuracy; of a mean the groups, or
    the items where only one is averaged.
    """
    on = [name for name in ("first", "second", "over", "group") if name in rows.columns]
    accuracy = rows.filter(metric="accuracy", kind="whole").select(*on, items="n")
    several = accuracy.filter(pl.col("over") == "mean", pl.col("items") > 1)
    means = accuracy.filter(over="all").with_columns(over=pl.lit("mean"))
    items = pl.concat([accuracy.filter(pl.col("over") != "mean"), means])
    items = items.join(several, on=on, how="anti")
    joined = rows.join(items, on=on, how="left", maintain_order="left")
    counted = (
        pl.when(pl.col("metric") == NOISE_FLOOR).then("n").otherwise(pl.coalesce("items", "n"))
    )
    is_few = (counted < FEWEST).fill_null(False)
    bounds = pl.col([name for name in ("low", "high") if name in rows.columns])
    return joined.with_columns(pl.when(~is_few).then(bounds).otherwise(NAN)).drop("items")


def constant_groups(metrics: pl.DataFrame) -> list[str]:
    """The groups of several variants with a share of the top answer above ``NEARLY_CONSTANT``."""
    of_groups = metrics.filter(pl.col("n") > 0, over="group", kind="whole")
    compared = of_groups.filter(metric="chance_consistency")["group"]
    is_constant = (pl.col("value") > NEARLY_CONSTANT) & pl.col("group").is_in(compared.implode())
    return of_groups.filter(is_constant, metric="top_answer")["group"].to_list()
