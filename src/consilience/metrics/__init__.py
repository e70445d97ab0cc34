"""Answers become numbers. This room needs no model, and only counts.

``measure`` gives the metrics table of an answers table: every metric of every group, and over the
groups ``MACRO`` (mean and sample standard deviation) and ``MICRO`` (all counts together). Numbers
over groups are over N-1 relations; ``determinism`` is over N-M relations (paper, Section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import get_args

import polars as pl

from consilience.metrics.agreement import METRICS, Share
from consilience.metrics.counts import (
    EMPTY_AS_ZERO,
    NAN,
    Prepared,
    bounds_of,
    is_averaged,
    name_of,
    prepared,
)
from consilience.metrics.resampling import Draws, Key
from consilience.metrics.statistics import bootstrap_interval
from consilience.metrics.table import in_texts, is_blank, order_remark
from consilience.types import (
    METRICS_SCHEMA,
    SEVERAL_TOKENS,
    SEVERAL_TOKENS_BEFORE,
    Cardinality,
    Protocol,
    Suite,
)

ALL_BUT_CONSTANT = 0.9
"""Share of the most common answer above which a group's consistency is called into question."""


def measure(
    answers: pl.DataFrame | Prepared, suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers`` needs the columns ``group, item, subject, variant, gold, answer``
    (``docs/suites.md``). A column that is missing, a group or variant that the suite does not have,
    and a repeated row raise. ``low`` and ``high`` are the ends of a 95 % interval
    (``docs/statistics.md``); ``seed`` is that of its bootstrap.
    """
    ready = prepared(answers, suite)
    rows: list[dict[str, object]] = []
    for kind in get_args(Cardinality):
        rows += _of_kind(ready, kind, protocol, seed)
    names = [name_of(metric, kind) for metric in METRICS for kind in get_args(Cardinality)]
    order = {name: at for at, name in enumerate(dict.fromkeys(names))}
    groups = [*(each.id for each in suite.relations), "MACRO", "MICRO"]
    place = {name: at for at, name in enumerate(groups)}
    rows.sort(
        key=lambda row: (
            order[str(row["metric"])],
            row["subset"] != "all",
            row["subset"],
            place[str(row["group"])],
        )
    )
    return pl.DataFrame([{"suite": suite.name, **row} for row in rows], schema=METRICS_SCHEMA)


def _of_kind(
    answers: Prepared, kind: Cardinality, protocol: Protocol, seed: int
) -> Iterator[dict[str, object]]:
    """Rows of all groups of a kind, and over them."""
    if not answers.of_kind(kind):
        return
    counts = answers.counts(kind, protocol, seed)
    shares: dict[Key, dict[str, Share]] = {}
    draws: dict[Key, dict[str, Draws]] = {}
    for group, by_key in counts.shares.items():
        for key, share in by_key.items():
            within = counts.draws[group][key].within
            ends = bootstrap_interval(
                share.value,
                within.values,
                within.clusters,
                bounds_of(key),
                proportion=key in counts.proportions,
            )
            yield _row(key, group, share.value, ends, n=share.n, n_excluded=share.left_out)
            if is_averaged(key, kind):
                shares.setdefault(key, {})[group] = share
                draws.setdefault(key, {})[group] = counts.draws[group][key]
    for key, by_group in shares.items():
        macro, micro = counts.resampling.over(by_group, draws[key])
        values = [each.value for each in by_group.values() if not math.isnan(each.value)]
        mean = fmean(values) if values else NAN
        proportion = key in counts.proportions
        ends = bootstrap_interval(
            mean,
            macro.replicates,
            macro.clusters,
            bounds_of(key),
            proportion=proportion and len(counts.shares) == 1,
        )
        numbers = {"n": len(values), "n_excluded": len(by_group) - len(values)}
        std = stdev(values) if len(values) > 1 else NAN
        yield _row(key, "MACRO", mean, ends, std=std, **numbers)
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
        answers = in_texts(answers, suite)
        bases = {(r.id, r.patterns[0].text) for r in suite.relations if r.cardinality == "N-1"}
        without = answers.filter(
            is_blank()
            & pl.col("excluded")
            .cast(pl.String)
            .str.contains_any([SEVERAL_TOKENS, SEVERAL_TOKENS_BEFORE])
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
    answers = in_texts(answers, suite)
    variants = {
        group: set(texts)
        for group, texts in answers.group_by("group").agg(pl.col("variant").unique()).iter_rows()
    }
    absent = [each.id for each in suite.relations if each.id not in variants]
    if absent:
        several = "s" * (len(absent) > 1)
        found.append(f"no answers for {len(absent)} relation{several}: {', '.join(absent)}")
    for relation in suite.relations:
        known = [each.text for each in relation.patterns]
        lacking = [text for text in known if text not in variants.get(relation.id, known)]
        if lacking:
            base = ", not in the base wording" if known[0] in lacking else ""
            part = f"{len(known) - len(lacking)} of {len(known)} wordings"
            found.append(f"{relation.id}: asked in {part}{base}")
    if protocol == "published":
        found += order_remark(answers, suite)
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
