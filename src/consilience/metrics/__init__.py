"""Answers become numbers. This room needs no model, and only counts.

``measure`` gives the metrics table of an answers table: every metric of every group, and over the
groups ``MACRO`` (mean and sample standard deviation) and ``MICRO`` (all counts together). Numbers
over groups are over N-1 relations; ``determinism`` is over N-M relations (paper, Section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean, stdev

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.agreement import METRICS, Share, Tally
from consilience.metrics.grid import Grid, View, grids, words_of
from consilience.metrics.resampling import Counted, Draws, Key, Resampling
from consilience.metrics.statistics import bootstrap_interval
from consilience.types import METRICS_SCHEMA, Cardinality, Protocol, Relation, Suite

NAN = float("nan")
NEEDED = ("group", "item", "subject", "variant", "gold", "answer")

EMPTY_AS_ZERO = {"published": ("known_consistency", "unknown_consistency"), "strict": ()}
"""Where the released code logs 0 for no data, and its numbers therefore hold that 0."""

ALL_BUT_CONSTANT = 0.9
"""Share of the most common answer above which a group's consistency is called into question."""


def measure(answers: pl.DataFrame, suite: Suite, protocol: Protocol, seed: int = 0) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers`` needs the columns ``group, item, subject, variant, gold, answer``; rows in their
    order of appearance. A column that is missing, a group or variant that the suite does not have,
    and a row that stands twice raise. ``low`` and ``high`` are the ends of a 95 % interval
    (``docs/statistics.md``); ``seed`` is that of its bootstrap.
    """
    answers = prepare(answers, suite)
    rows: list[dict[str, object]] = []
    for kind in ("N-1", "N-M"):
        rows += _of_kind(answers, suite, kind, protocol, seed)
    order = [name_of(metric, kind) for metric in METRICS for kind in ("N-1", "N-M")]
    groups = [*(each.id for each in suite.relations), "MACRO", "MICRO"]
    rows.sort(
        key=lambda row: (
            order.index(str(row["metric"])),
            row["subset"] != "all",
            row["subset"],
            groups.index(str(row["group"])),
        )
    )
    return pl.DataFrame([{"suite": suite.name, **row} for row in rows], schema=METRICS_SCHEMA)


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
    optional = [name for name in ("gold_token", "n_candidates") if name in answers.columns]
    for name in NEEDED:
        if not _stands_for_text(answers[name].dtype):
            raise ConsilienceError(
                f"the column '{name}' is of type {answers[name].dtype}",
                expected="text or whole numbers",
                where="the answers table",
                todo="Save it as text; whole numbers with a gap become fractions in some tools.",
            )
    for name in optional:
        dtype = answers[name].dtype
        if not _stands_for_text(dtype) and not dtype.is_numeric():
            raise ConsilienceError(
                f"the column '{name}' is of type {dtype}",
                expected="text" if name == "gold_token" else "whole numbers",
                where="the answers table",
                todo="Correct the column, or leave it out.",
            )
    table = answers.select(*(pl.col(name).cast(pl.String) for name in (*NEEDED, *optional)))
    blank = pl.col("answer").str.strip_chars() == ""
    table = table.with_columns(answer=pl.when(blank).then(None).otherwise("answer"))
    absent = {"gold_token", "n_candidates"} - set(optional)
    table = table.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)
    table = table.with_columns(pl.col("n_candidates").cast(pl.Float64, strict=False))
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


def name_of(metric: str, cardinality: Cardinality) -> str:
    """What a metric is called on relations of that kind."""
    return "determinism" if metric == "consistency" and cardinality == "N-M" else metric


def metric_of(name: str) -> str:
    """The metric that goes by that name."""
    return "consistency" if name == "determinism" else name


def bounds_of(key: Key) -> tuple[float, float]:
    """The least and greatest value of a metric."""
    return METRICS[metric_of(key[0])].least, 1.0


def by_relation(answers: pl.DataFrame, suite: Suite) -> Iterator[tuple[Relation, pl.DataFrame]]:
    """Relations that have rows in a prepared answers table, with them."""
    groups = answers.partition_by("group", as_dict=True)
    for relation in suite.relations:
        if (relation.id,) in groups:
            yield relation, groups[relation.id,]


def count(views: Mapping[View, Grid], relation: Relation) -> dict[Key, Tally]:
    """Every metric of the two views of one group."""
    kinds: dict[str, list[tuple[int, int]]] = {}
    for pair, edge in sorted(relation.edges.items()):
        kinds.setdefault(edge.kind, []).append(pair)
    tallies: dict[Key, Tally] = {}
    for metric_name, metric in METRICS.items():
        grid = views[metric.view]
        name = name_of(metric_name, relation.cardinality)
        tallies[name, "all"] = metric.count(grid)
        if metric.by_edit:
            for kind, pairs in kinds.items():
                tallies[name, kind] = metric.count(grid.pairs_of(pairs))
    return tallies


def empty_value(key: Key, protocol: Protocol) -> float:
    """What stands for a group without data."""
    return 0.0 if key[0] in EMPTY_AS_ZERO[protocol] else NAN


def is_averaged(key: Key, kind: Cardinality) -> bool:
    """Whether a metric is told over the relations of a kind: on N-M ones determinism only.

    The answers that are another gold of the same subject count as wrong there.
    """
    return kind == "N-1" or key[0] == "determinism"


def _of_kind(
    answers: pl.DataFrame, suite: Suite, kind: Cardinality, protocol: Protocol, seed: int
) -> Iterator[dict[str, object]]:
    """Rows of all groups of a kind, and over them."""
    chosen = [
        (relation, rows)
        for relation, rows in by_relation(answers, suite)
        if relation.cardinality == kind
    ]
    if not chosen:
        return
    subjects = {each.id: rows["subject"].unique().sort().to_list() for each, rows in chosen}
    resampling = Resampling(subjects, seed)
    counted: dict[str, list[Counted]] = {}
    found: dict[str, dict[Key, Share]] = {}
    proportions: set[Key] = set()
    for relation, rows in chosen:
        tallies = count(grids(rows, relation, protocol, words_of(rows)), relation)
        counted[relation.id] = [Counted(tallies, subjects[relation.id])]
        found[relation.id] = {
            key: tally.share(empty_value(key, protocol)) for key, tally in tallies.items()
        }
        proportions |= {key for key, tally in tallies.items() if tally.is_proportion}
    drawn = resampling.draw(counted)
    shares: dict[Key, dict[str, Share]] = {}
    draws: dict[Key, dict[str, Draws]] = {}
    for group, by_key in found.items():
        for key, share in by_key.items():
            within = drawn[group][0][key].within
            ends = bootstrap_interval(
                share.value,
                within.values,
                within.clusters,
                bounds_of(key),
                proportion=key in proportions,
            )
            yield _row(key, group, share.value, ends, n=share.n, n_excluded=share.left_out)
            if is_averaged(key, kind):
                shares.setdefault(key, {})[group] = share
                draws.setdefault(key, {})[group] = drawn[group][0][key]
    for key, by_group in shares.items():
        macro, micro = resampling.over(by_group, draws[key])
        values = [each.value for each in by_group.values() if not math.isnan(each.value)]
        mean = fmean(values) if values else NAN
        proportion = key in proportions
        ends = bootstrap_interval(
            mean,
            macro.replicates,
            macro.clusters,
            bounds_of(key),
            proportion=proportion and len(chosen) == 1,
        )
        counts = {"n": len(values), "n_excluded": len(by_group) - len(values)}
        std = stdev(values) if len(values) > 1 else NAN
        yield _row(key, "MACRO", mean, ends, std=std, **counts)
        total = sum(by_group.values(), Share(0, 0, 0, 0))
        ends = bootstrap_interval(
            total.value, micro.values, micro.clusters, bounds_of(key), proportion=proportion
        )
        yield _row(key, "MICRO", total.value, ends, n=total.n, n_excluded=total.left_out)


def _row(
    key: Key, group: str, value: float, ends: tuple[float, float], std: float = NAN, **counts: int
) -> dict[str, object]:
    (metric, subset), (low, high) = key, ends
    row = {"metric": metric, "subset": subset, "group": group, "value": value, "std": std}
    return {**row, "low": low, "high": high, **counts}


def is_blank() -> pl.Expr:
    """Whether a row of an answers table has no answer."""
    return pl.col("answer").cast(pl.String).fill_null("").str.strip_chars() == ""


SEVERAL_TOKENS = r"(cut|split) into \d+ "
"""What the reason of an excluded row says where its gold is several tokens of the model."""


def facts_left_out(
    answers: pl.DataFrame, metrics: pl.DataFrame, suite: Suite, protocol: Protocol
) -> str:
    """A sentence on how many facts the accuracy is over; empty where it is over all of them.

    The counts are ``n`` and ``n_excluded`` of the accuracy of all N-1 relations together. Facts
    with an answer of several tokens are counted by the reasons in the column ``excluded``, in the
    base pattern.
    """
    chosen = (pl.col("metric") == "accuracy") & (pl.col("group") == "MICRO")
    rows = metrics.filter(chosen & (pl.col("subset") == "all")).to_dicts()
    if not rows or not rows[0]["n_excluded"]:
        return ""
    asked, excluded = rows[0]["n"], rows[0]["n_excluded"]
    several = 0
    if "excluded" in answers.columns:
        bases = {(r.id, r.patterns[0].text) for r in suite.relations if r.cardinality == "N-1"}
        without = answers.filter(
            is_blank() & pl.col("excluded").cast(pl.String).str.contains(SEVERAL_TOKENS)
        ).select("group", "variant", "subject", "gold")
        facts = [row for row in without.iter_rows() if row[:2] in bases]
        several = min(excluded, len(facts if protocol == "published" else set(facts)))
    because = [f"{several:,} have an answer of several tokens and were not asked"] * (several > 0)
    if others := excluded - several:
        because.append(f"{others:,} {'others ' * (several > 0)}have no answer (see the notes)")
    hint = "; see --multi-token left-to-right" * (several > 0)
    return f"Accuracy is over {asked:,} of {asked + excluded:,} facts: {', '.join(because)}{hint}."


def remarks(
    answers: pl.DataFrame, metrics: pl.DataFrame, suite: Suite, protocol: Protocol
) -> list[str]:
    """What a reader of these numbers should know: what was left out, and what has no data."""
    found: list[str] = []
    absent = [each.id for each in suite.relations if each.id not in set(answers["group"])]
    if absent:
        several = "s" * (len(absent) > 1)
        found.append(f"no answers for {len(absent)} relation{several}: {', '.join(absent)}")
    for relation in suite.relations:
        variants = set(answers.filter(pl.col("group") == relation.id)["variant"])
        known = [each.text for each in relation.patterns]
        lacking = [text for text in known if text not in variants]
        if variants and lacking:
            base = ", not in the base wording" if known[0] in lacking else ""
            part = f"{len(known) - len(lacking)} of {len(known)} wordings"
            found.append(f"{relation.id}: asked in {part}{base}")
    for (group,), rows in answers.filter(is_blank()).group_by("group", maintain_order=True):
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
    compared = metrics.filter((pl.col("metric") == "chance_consistency") & (pl.col("n") > 0))
    top = metrics.filter(
        (pl.col("metric") == "top_answer") & pl.col("group").is_in(compared["group"].to_list())
    ).sort("value", descending=True)
    constant = [
        f"{group} ({value:.0%})"
        for group, value in top.select("group", "value").iter_rows()
        if value > ALL_BUT_CONSTANT and group not in ("MACRO", "MICRO")
    ]
    if constant:
        found.append(
            f"all but constant in {', '.join(constant)}: so many of all answers are one and the "
            "same, and consistency says little there; corrected_consistency takes that into account"
        )
    return found
