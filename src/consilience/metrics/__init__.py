"""Answers become numbers. This room needs no model, and only counts.

``measure`` gives the metrics table of an answers table: every metric of every group, and over the
groups ``MACRO`` (mean and sample standard deviation) and ``MICRO`` (all counts together). Numbers
over groups are over N-1 relations; ``determinism`` is over N-M relations (paper, Section 3.1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.agreement import METRICS, Share
from consilience.metrics.grid import grids
from consilience.types import METRICS_SCHEMA, Cardinality, Protocol, Relation, Suite

NAN = float("nan")
NEEDED = ("group", "item", "subject", "variant", "gold", "answer")

EMPTY_AS_ZERO = {"published": ("known_consistency", "unknown_consistency"), "strict": ()}
"""Where the released code logs 0 for no data, and its numbers therefore hold that 0."""

Counts = dict[tuple[str, str], dict[str, Share]]
"""(metric, subset) -> group -> counts."""


def measure(answers: pl.DataFrame, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers`` needs the columns ``group, item, subject, variant, gold, answer``; rows in their
    order of appearance. A column that is missing, a group or variant that the suite does not have,
    and a row that stands twice raise.
    """
    answers = prepare(answers, suite)
    counts: Counts = {}
    cardinality = {relation.id: relation.cardinality for relation in suite.relations}
    groups = answers.partition_by("group", as_dict=True)
    for relation in suite.relations:
        if (relation.id,) in groups:
            for key, share in _count_group(groups[relation.id,], relation, protocol):
                counts.setdefault(key, {})[relation.id] = share
    order = [_name(metric, kind) for metric in METRICS for kind in ("N-1", "N-M")]
    keys = sorted(counts, key=lambda key: (order.index(key[0]), key[1] != "all", key[1]))
    table = [
        row
        for name, subset in keys
        for row in _rows(name, subset, counts[name, subset], cardinality, protocol)
    ]
    return pl.DataFrame(
        [{"suite": suite.name, "low": NAN, "high": NAN, **row} for row in table],
        schema=METRICS_SCHEMA,
    )


def prepare(answers: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Check an answers table against its suite, and give each row its ``variant_index``."""
    for name in NEEDED:
        if name not in answers.columns:
            raise ConsilienceError(
                f"no column '{name}' among {', '.join(answers.columns)}",
                expected=", ".join(NEEDED),
                where="the answers table",
                todo=did_you_mean(name, answers.columns),
            )
    if answers.is_empty():
        raise ConsilienceError("no rows", where="the answers table")
    optional = [name for name in ("gold_token",) if name in answers.columns]
    for name in NEEDED:
        if not _stands_for_text(answers[name].dtype):
            raise ConsilienceError(
                f"the column '{name}' is of type {answers[name].dtype}",
                expected="text or whole numbers",
                where="the answers table",
                todo="Save it as text; whole numbers with a gap become fractions in some tools.",
            )
    table = answers.select(*(pl.col(name).cast(pl.String) for name in (*NEEDED, *optional)))
    blank = pl.col("answer").str.strip_chars() == ""
    table = table.with_columns(answer=pl.when(blank).then(None).otherwise("answer"))
    if not optional:
        table = table.with_columns(gold_token=pl.lit(None, dtype=pl.String))
    for name in NEEDED[:-1]:
        if table[name].null_count():
            at = table[name].is_null().arg_max() or 0
            raise ConsilienceError(
                f"no '{name}'", where=f"the answers table, row {at + 1}", todo="Fill it in."
            )
    table = table.with_columns(variant_index=_variant_index(table, suite))
    facts = table.select("group", "item", "subject", "gold").unique(maintain_order=True)
    differ = facts.select("group", "item").is_duplicated()
    if differ.any():
        row = facts.row(differ.arg_max() or 0, named=True)
        raise ConsilienceError(
            f"the item '{row['item']}' of {row['group']} has several subjects or golds",
            where="the answers table",
            todo="Give each fact an item id of its own.",
        )
    twice = table.select("group", "item", "variant").is_duplicated()
    if twice.any():
        at = twice.arg_max() or 0
        row = table.row(at, named=True)
        raise ConsilienceError(
            f"the item '{row['item']}' of {row['group']} stands twice in the variant "
            f"'{row['variant']}'",
            where=f"the answers table, row {at + 1}",
            todo="Give each fact an item id of its own.",
        )
    return table


def _stands_for_text(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null))


def _variant_index(table: pl.DataFrame, suite: Suite) -> pl.Series:
    pairs = table.select("group", "variant").unique(maintain_order=True)
    index: list[int] = []
    for group, variant in pairs.iter_rows():
        texts = [pattern.text for pattern in suite.relation(group).patterns]
        if variant not in texts:
            row = table.select(
                ((pl.col("group") == group) & (pl.col("variant") == variant)).arg_max()
            ).item()
            raise ConsilienceError(
                f"the suite '{suite.name}' has no variant '{variant}' of {group}",
                where=f"the answers table, row {row + 1}",
                todo=did_you_mean(variant, texts),
            )
        index.append(texts.index(variant))
    known = pairs.with_columns(variant_index=pl.Series(index, dtype=pl.Int32))
    joined = table.join(known, on=["group", "variant"], how="left", maintain_order="left")
    return joined["variant_index"]


def _name(metric: str, cardinality: Cardinality) -> str:
    """What a metric is called on relations of that kind."""
    return "determinism" if metric == "consistency" and cardinality == "N-M" else metric


def _count_group(
    rows: pl.DataFrame, relation: Relation, protocol: Protocol
) -> Iterator[tuple[tuple[str, str], Share]]:
    views = grids(rows, relation, protocol)
    for metric_name, metric in METRICS.items():
        grid = views[metric.view]
        name = _name(metric_name, relation.cardinality)
        yield (name, "all"), metric.count(grid)
        if metric.by_edit:
            kinds: dict[str, list[tuple[int, int]]] = {}
            for pair, edge in sorted(relation.edges.items()):
                kinds.setdefault(edge.kind, []).append(pair)
            for kind, pairs in sorted(kinds.items()):
                yield (name, kind), metric.count(grid.pairs_of(pairs))


def _rows(
    name: str,
    subset: str,
    groups: dict[str, Share],
    cardinality: dict[str, Cardinality],
    protocol: Protocol,
) -> Iterator[dict[str, object]]:
    def value(share: Share) -> float:
        empty_is_zero = name in EMPTY_AS_ZERO[protocol] and not share.total
        return 0.0 if empty_is_zero else share.value

    key = {"metric": name, "subset": subset}
    for group, share in groups.items():
        n = {"n": share.total, "n_excluded": share.left_out}
        yield {**key, "group": group, "value": value(share), "std": NAN, **n}
    kind = "N-M" if name == "determinism" else "N-1"
    chosen = [share for group, share in groups.items() if cardinality[group] == kind]
    if not chosen:
        return
    values = [each for each in map(value, chosen) if not math.isnan(each)]
    yield {
        **key,
        "group": "MACRO",
        "value": statistics.fmean(values) if values else NAN,
        "std": statistics.stdev(values) if len(values) > 1 else NAN,
        "n": len(values),
        "n_excluded": len(chosen) - len(values),
    }
    total = sum(chosen, Share(0, 0))
    n = {"n": total.total, "n_excluded": total.left_out}
    yield {**key, "group": "MICRO", "value": total.value, "std": NAN, **n}


def remarks(
    answers: pl.DataFrame, metrics: pl.DataFrame, suite: Suite, protocol: Protocol
) -> list[str]:
    """What a reader of these numbers should know: what was left out, and what has no data."""
    found: list[str] = []
    absent = [each.id for each in suite.relations if each.id not in set(answers["group"])]
    if absent:
        found.append(f"no answers for {len(absent)} relations: {', '.join(absent)}")
    blank = pl.col("answer").cast(pl.String).fill_null("").str.strip_chars() == ""
    for (group,), rows in answers.filter(blank).group_by("group", maintain_order=True):
        asked = answers.filter(pl.col("group") == group).height
        why = ""
        if "excluded" in rows.columns and rows["excluded"].drop_nulls().len():
            first = rows.drop_nulls("excluded").row(0, named=True)
            why = f", such as: {first['gold']}: {first['excluded']}"
        found.append(f"{group}: {rows.height} of {asked} queries without an answer{why}")
    for name in EMPTY_AS_ZERO[protocol]:
        empty = metrics.filter(
            (pl.col("metric") == name) & (pl.col("n") == 0) & (pl.col("group") != "MICRO")
        )
        groups = [group for group in empty["group"] if group != "MACRO"]
        if groups:
            found.append(
                f"{name}: no data in {', '.join(groups)}; counted as 0, as the released code does"
            )
    return found
