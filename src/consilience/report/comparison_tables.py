"""Differences between runs: one table, in percent and in points of percent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.choices import By
from consilience.design import is_language_kind
from consilience.errors import ConsilienceError
from consilience.factors import FACTORS, several_factors
from consilience.metrics.notes import few_relations
from consilience.metrics.registry import headline_metrics, label_of
from consilience.report.columns import (
    Columns,
    contradictions,
    difference_columns,
    frame_table,
    test_in_words,
)
from consilience.report.language_tables import OVER, known_metrics, language_label
from consilience.report.metric_tables import SUBSETS
from consilience.report.summary import FACT_ROWS, FORM_ROWS, VIOLATIONS
from consilience.report.table import NAN, Column, Table
from consilience.text import counted
from consilience.types import Suite

LABELS = {metric: label for metric, label, _ in FACT_ROWS}
"""Labels of the metrics of a summary."""

CORRECTED = "corrected_consistency"
"""The metric that a constant model does not have."""

OVER_QUESTIONS = {"MACRO": "mean of groups", "MICRO": "all questions"}
"""What rows over all questions are called."""

CONSTANT = (
    "A model that always gives the same answer is 100 % consistent, so no test of consistency "
    "against it says anything: read the chance-corrected consistency of the other model."
)
"""How to read a comparison with a constant model."""

NAME = 10
"""Characters of a run's name in a heading on a narrow screen."""

NAMED = 3
"""Most different relations that are named."""


def comparison_table(
    compared: pl.DataFrame, suite: Suite, metrics: Sequence[str] = (), by: By | None = None
) -> Table:
    """Later runs minus the first (``COMPARISON_SCHEMA``), with a block for each later run.

    - ``metrics``: their names; without any, those of a summary, or all with ``by`` "metric".
    - ``by``: a row a group, kind of edit, factor or form of each metric; None or "metric": a row a
      metric, of facts the mean over relations, of questions all of them together.
    """
    is_pooled, pool = suite.words.is_pooled, suite.words.pool
    if by is None and not is_pooled:
        compared = with_undefined_means(compared, suite)
    rows = _chosen(compared, metrics or _defaults(compared, by), by, pool)
    if rows.is_empty():
        raise ConsilienceError(
            f"no difference by {by or 'metric'} in this comparison",
            expected="--by group or metric; form for runs in several forms; edit for suites that "
            "say how patterns differ; factor for questions",
        )
    pairs = compared.select("first", "second").unique(maintain_order=True).rows()
    over = OVER_QUESTIONS if is_pooled else OVER
    labels = {group.id: group.label for group in suite.relations} | over
    records = list(rows.iter_rows(named=True))
    blocks = [_block(row, by, labels, len(pairs)) for row in records]
    columns: Columns = {
        "name": Column(by if by not in (None, "group") else _first_heading(suite, by)),
        **difference_columns(rows, *_run_columns(pairs)),
    }
    (first, second), *others = pairs
    title = f"{suite.name}: {second} minus {first}, in percent and points"
    if others:
        title = f"{suite.name}: each run minus {first}, in percent and points"
    notes = list(_notes(rows, compared, labels, by, suite, has_holm="p_holm" in columns))
    named = [{"name": _name(row, by, labels), **row} for row in records]
    return frame_table(named, title, columns, notes, blocks if any(blocks) else [])


def _run_columns(pairs: Sequence[tuple[str, str]]) -> tuple[Column, Column]:
    """The columns of both values, with the names of the runs if they fit."""
    first, second = pairs[0] if len(pairs) == 1 else (pairs[0][0], "later run")
    short = [short_name(name) for name in (first, second)]
    if short[0] == short[1]:
        short = ["first", "second"]
    return Column(first, "share", short[0]), Column(second, "share", short[1])


def short_name(run: str) -> str:
    """The name of a run without its folder or provider, at most ``NAME`` characters."""
    name = re.split("[/:]", run.rstrip("/:"))[-1]
    return name if len(name) <= NAME else f"{name[: NAME // 2]}…{name[-(NAME // 2 - 1) :]}"


def _defaults(compared: pl.DataFrame, by: By | None) -> list[str]:
    """The metrics that are shown without a choice; determinism where nothing else is measured."""
    measured = compared["metric"].unique(maintain_order=True).to_list()
    if by == "metric":
        return measured
    if by in ("edit", "factor"):
        return ["consistency"]
    rank = {name: at for at, name in enumerate(LABELS)}
    if by is None and {"accuracy"} <= set(compared.filter(pl.col("group") == "MACRO")["metric"]):
        return [name for name in (*LABELS, VIOLATIONS) if name in measured]
    known = [name for name in headline_metrics(aliases=True) if name in measured]
    return sorted(known, key=lambda name: rank.get(name, len(rank)))


def with_undefined_means(compared: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Also a mean without a difference, where a constant run has no chance-corrected consistency.

    The value of the other run is its mean over relations.
    """
    averaged = [group.id for group in suite.relations if group.cardinality == "N-1"]
    rows = compared.filter((pl.col("metric") == CORRECTED) & (pl.col("subset") == "all"))
    means = compared.filter((pl.col("group") == "MACRO") & (pl.col("metric") == "consistency"))
    added: list[dict[str, Any]] = []
    for row in means.filter(pl.col("subset") == "all").iter_rows(named=True):
        of_run = rows.filter(pl.col("second") == row["second"])
        if "MACRO" in of_run["group"]:
            continue
        of_relations = of_run.filter(pl.col("group").is_in(averaged)).fill_nan(None)
        values = {
            name: NAN if (mean := of_relations[name].mean()) is None else mean
            for name in ("first_value", "second_value")
        }
        unknown = ("difference", "low", "high", "p", "p_holm", "q_value", "p_seeds", "detectable")
        added.append(
            row | dict.fromkeys(unknown, NAN) | values | {"metric": CORRECTED, "test": None}
        )
    return pl.concat([compared, pl.DataFrame(added, schema=compared.schema)])


def _chosen(
    compared: pl.DataFrame, metrics: Sequence[str], by: By | None, pool: str
) -> pl.DataFrame:
    """The rows of a table, by later run and metric; ``pool``: the group of what is over all."""
    known_metrics(compared, metrics)
    subset, group = pl.col("subset"), pl.col("group")
    is_of_facts = "MACRO" in compared["group"]
    languages = [kind for kind in compared["subset"].unique() if is_language_kind(kind)]
    is_whole, is_mean = subset == "all", (group == pool) if is_of_facts else pl.lit(True)
    match by:
        case None:
            factors = several_factors(compared["subset"].unique()) if pool == "MICRO" else []
            is_form = subset.is_in(list(FORM_ROWS)) & ~pl.lit(is_of_facts)
            keep = is_mean & (is_whole | is_form | subset.is_in(factors))
            keep &= is_whole | (pl.col("metric") == "consistency")
            is_violation = pl.col("metric") == VIOLATIONS
            keep = pl.when(is_violation).then(is_mean & ~is_whole).otherwise(keep)
        case "metric":
            keep = is_whole & (group.is_in(list(OVER)) if is_of_facts else pl.lit(True))
        case "group":
            keep = is_whole
        case "edit":
            keep = is_mean & subset.is_in(list(SUBSETS))
        case "factor":
            keep = is_mean & subset.is_in([*FACTORS, *languages])
        case "form":
            keep = is_mean & ~subset.is_in([*SUBSETS, *FACTORS, *languages])
            keep &= pl.lit(compared.filter(keep & ~is_whole).height > 0)
        case _:
            keep = pl.lit(False)
    rank = {name: at for at, name in enumerate(metrics)}
    order = pl.col("metric").replace_strict(rank, default=None, return_dtype=pl.Int64)
    rows = compared.filter(keep & pl.col("metric").is_in(list(metrics)))
    runs, groups = (
        pl.col(name).replace_strict(
            {value: at for at, value in enumerate(compared[name].unique(maintain_order=True))},
            return_dtype=pl.Int64,
        )
        for name in ("second", "group")
    )
    of_group = pl.when(group.is_in(list(OVER))).then(len(compared) + groups).otherwise(groups)
    is_factor = subset.is_in(list(FACTORS))
    by_metric = (order, of_group) if by == "group" else (groups, is_factor, order)
    return rows.sort(runs, *by_metric, maintain_order=True)


def _first_heading(suite: Suite, by: By | None) -> str:
    if by is None:
        return "metric"
    return suite.words.group


def _name(row: dict[str, Any], by: By | None, labels: dict[str, str]) -> str:
    """The first cell of a row."""
    metric, subset = row["metric"], row["subset"]
    match by:
        case "group":
            return labels.get(row["group"], str(row["group"]))
        case "edit":
            return SUBSETS[str(subset)]
        case "factor":
            return language_label(str(subset))
        case "form":
            is_original = subset == "all" and metric in ("accuracy", "f1")
            return "original" if is_original else str(subset)
        case _:
            label = LABELS.get(metric, label_of(metric))
            if metric == VIOLATIONS and subset != "all":
                return f"{label}, {subset}"
            form = f", {subset}" if subset in FACTORS else f" {FORM_ROWS.get(subset, ('',))[0]}"
            return label if subset == "all" else f"Consistency{form}"


def _block(row: dict[str, Any], by: By | None, labels: dict[str, str], runs: int) -> str:
    """The heading above a row: the runs, the task or what the row is over, and the metric."""
    parts = [f"{row['first']} -> {row['second']}"] if runs > 1 else []
    group = row["group"]
    if by != "group" and (group not in OVER or by == "metric"):
        parts.append(labels.get(group, group))
    if by in ("group", "form"):
        parts.append(LABELS.get(row["metric"], label_of(row["metric"])))
    return ", ".join(parts)


def _notes(
    rows: pl.DataFrame,
    compared: pl.DataFrame,
    labels: dict[str, str],
    by: By | None,
    suite: Suite,
    *,
    has_holm: bool,
) -> Iterator[str]:
    yield from compared_on(compared, suite)
    if by is None:
        yield from _most_different(compared, labels, suite.words.group)
    yield from (f"{note}." for note in few_relations(rows, suite))
    yield from contradictions(rows, suite.words)
    undefined = rows.filter((pl.col("metric") == CORRECTED) & pl.col("difference").is_nan())
    if by is None and undefined.height:
        yield CONSTANT
    names = rows["test"].drop_nulls().unique(maintain_order=True)
    tests = ", ".join(test_in_words(name, suite.words) for name in names)
    family = f"{suite.words.group}s" if "MACRO" in compared["group"] else "forms"
    adjusted = f"Intervals and p are not adjusted, p (Holm) is adjusted over {family}." * has_holm
    yield f"p: {tests}. {adjusted or 'Intervals and p are not adjusted.'}"
    yield "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001"


def compared_on(compared: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """How many relations and items a comparison is over; without relations if not all items."""
    whole = compared.filter(pl.col("subset") == "all")
    accuracy = whole.filter(pl.col("metric") == "accuracy")
    means = whole.filter(pl.col("group") == "MACRO", pl.col("difference").is_not_nan())
    is_of_facts = suite.words.has_means
    if is_of_facts:
        accuracy = accuracy.filter(pl.col("group") == "MICRO")
    several = accuracy.height > 1
    for row in accuracy.iter_rows(named=True):
        if not (is_of_facts or row["n_excluded"]):
            continue
        relations = ""
        if is_of_facts:
            relations = _relations_of(means.filter(second=row["second"]).to_dicts())
        name = row["second"] if is_of_facts else f"{row['second']}, {row['group']}"
        both = ": those that both runs answered" * (row["n_excluded"] > 0)
        yield (
            f"{f'{name}: compared' if several else 'Compared'} on {relations}"
            f"{_of_all(row, suite.words.item)}{both}."
        )


def _relations_of(means: Sequence[Mapping[str, Any]]) -> str:
    """How many relations a mean is over, and other means that are over others."""
    counts = {row["metric"]: row for row in means}
    if "accuracy" not in counts:
        return ""
    accuracy = counts["accuracy"]
    others = [
        f"{LABELS[name].lower()}: {row['n']:,}"
        for name, row in counts.items()
        if name in LABELS and row["n"] != accuracy["n"]
    ]
    apart = f" ({', '.join(others)})" if others else ""
    return f"{_of_all(accuracy, 'relation')}{apart} and "


def _of_all(row: Mapping[str, Any], noun: str) -> str:
    """How many things a number is over, and of how many."""
    if not row["n_excluded"]:
        return counted(row["n"], noun)
    return f"{row['n']:,} of {counted(row['n'] + row['n_excluded'], noun)}"


def _most_different(compared: pl.DataFrame, labels: dict[str, str], group: str) -> Iterator[str]:
    """The relations whose consistency differs most, for each later run."""
    of_relations = compared.filter(
        (pl.col("metric") == "consistency")
        & (pl.col("subset") == "all")
        & ~pl.col("group").is_in(list(OVER))
        & pl.col("difference").is_not_nan()
    )
    several = compared["second"].n_unique() > 1
    for (second,), rows in of_relations.group_by("second", maintain_order=True):
        if rows.height < 2:
            continue
        largest = rows.sort(pl.col("difference").abs(), descending=True).head(NAMED)
        named = ", ".join(
            f"{labels.get(row['group'], row['group'])} {row['difference'] * 100:+.0f}"
            for row in largest.iter_rows(named=True)
        )
        clear = rows.filter(pl.col("p_holm") < 0.05).height
        of_run = f" of {second}" * several
        yield (
            f"Largest differences in consistency{of_run}: {named}. "
            f"Their p (Holm) is < 0.05 in {clear} of {counted(rows.height, group)}."
        )
