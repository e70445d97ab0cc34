"""Consistency by pattern, and whether known facts are answered more consistently."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from itertools import product
from statistics import fmean, stdev
from typing import Literal, get_args

import numpy as np
import polars as pl

from consilience.analysis.correlations import correlation
from consilience.core.errors import Protocol
from consilience.core.factors import Edge
from consilience.core.items import Bools, Floats
from consilience.metrics.counts import Answers, prepared
from consilience.metrics.differences import CHANGE_SCHEMA, accuracy_changes
from consilience.metrics.registry import METRICS, Grid, quotient
from consilience.metrics.statistics import (
    NAN,
    holm,
    intervals_of,
    logit_interval,
    paired_permutation,
)
from consilience.types import Suite

Kinds = Mapping[str, Mapping[tuple[int, int], Collection[str]]]
"""relation -> pair of patterns -> the names of the ways in which they differ."""


MANY_VARIANTS = 100
"""With more patterns arrays (item, pair) would fill the memory: only pairs with the base pattern
are in the table."""

PAIRS_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    **dict.fromkeys(("first", "second"), pl.Int64),
    "edit": pl.String,
    **dict.fromkeys(("agreement", "low", "high"), pl.Float64),
    **CHANGE_SCHEMA,
}


def pair_table(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """How often each two patterns of a relation give the same answer, and how accuracy changes.

    One row a pair: ``group, first, second`` (positions of the patterns), ``edit`` (kind of the
    released edge, null without one), ``agreement`` with the bounds ``low, high`` of its 95 %
    interval over subjects, and ``CHANGE_SCHEMA``: the accuracy of both and its paired change. Of
    relations with over ``MANY_VARIANTS`` patterns, only pairs with the base pattern.
    """
    run, tables = prepared(answers, suite), []
    for relation in run.relations:
        every = run.views(relation, protocol)["pairs"]
        others = range(1, every.answers.shape[1])
        is_large = every.compared is None and len(others) >= MANY_VARIANTS
        grid = every.only_pairs([(0, at) for at in others]) if is_large else every
        agreement, bounds = _agreement(grid)
        edges = [relation.edges.get((a, b)) for a, b in grid.pairs.tolist()]
        columns = {
            "group": [relation.id] * len(edges),
            "first": grid.pairs[:, 0],
            "second": grid.pairs[:, 1],
            "edit": [edge.kind if edge else None for edge in edges],
            "agreement": agreement,
            "low": bounds[:, 0],
            "high": bounds[:, 1],
        }
        tables.append(pl.DataFrame({**columns, **accuracy_changes(grid)}, schema=PAIRS_SCHEMA))
    return pl.concat(tables)


def _agreement(grid: Grid) -> tuple[Floats, Floats]:
    """Agreement (pair,), and the bounds of its interval (pair, 2) by ``metrics.errors``."""
    hits, sizes = map(grid.subjects.sums, (grid.same, grid.both))
    total, clusters = sizes.sum(axis=0), (sizes > 0).sum(axis=0)
    agreement = quotient(hits.sum(axis=0), total)
    falls = quotient(hits - np.nan_to_num(agreement) * sizes, total - sizes)
    errors = np.sqrt(quotient(clusters - 1.0, clusters * 1.0) * (falls**2).sum(axis=0))
    return agreement, intervals_of(agreement, errors, clusters, (0.0, 1.0), proportion=True)


def with_changes(patterns: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """``pattern_table`` with the change of accuracy from the base pattern, of ``pair_table``.

    ``change, change_low, change_high, p_holm``; NaN for the base pattern itself.
    """
    columns, key = ("change", "change_low", "change_high", "p_holm"), ["group", "variant_index"]
    of_base = pairs.filter(first=0).rename({"second": "variant_index"}).select(*key, *columns)
    joined = patterns.join(of_base, on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col(columns).fill_null(NAN))


def pattern_table(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """What each pattern of a relation gives, and what consistency gains without it.

    One row a pattern: ``group, variant_index, variant``, ``n`` items, and

    - ``accuracy``: share of right answers. ``agreement``: mean over the other patterns.
    - ``top_answer``: share of its most frequent answer.
    - ``consistency``: that of the relation. ``without``: that of its other patterns. ``gain``: the
      second minus the first; below 0 where this pattern agrees more often than others do.

    NaN without data.
    """
    run, tables = prepared(answers, suite), []
    for relation in run.relations:
        grid = run.views(relation, protocol)["pairs"]
        size, agreement, without = grid.answers.shape[1], *_without(grid)
        value = _value("consistency", grid)
        columns = {
            "group": [relation.id] * size,
            "variant_index": range(size),
            "variant": [of.text for of in relation.patterns] or relation.design.variants,
            "accuracy": quotient(grid.right.sum(axis=0), grid.asked.sum(axis=0)),
            "agreement": agreement,
            "top_answer": [_value("top_answer", grid.only_variants([at])) for at in range(size)],
            "consistency": [value] * size,
            "without": without,
            "gain": np.round(without - value, 12),  # equal gains do not differ by rounding
            "n": grid.asked.sum(axis=0),
        }
        tables.append(pl.DataFrame(columns))
    return pl.concat(tables)


def _value(metric: str, grid: Grid) -> float:
    tally = METRICS[metric].count(grid)
    return tally.value if tally else NAN


def _without(grid: Grid) -> tuple[Floats, Floats]:
    """The mean agreement of each pattern with others (variant,), and consistency without it.

    The second is NaN where no pair is left.
    """

    def pairs_with(at: int) -> Bools:
        """Of one and each other variant: the same answer, and asked in both (2, item, variant)."""
        both = grid.asked & grid.asked[:, [at]] & (grid.is_compared[at] > 0)
        same = both & (grid.answers == grid.answers[:, [at]]) & (grid.answers >= 0)
        return np.array([same, both])

    variants = range(grid.answers.shape[1])
    shares = np.array([quotient(*pairs_with(at).sum(axis=1)) for at in variants])
    agreement = quotient(np.nansum(shares, axis=1), (~np.isnan(shares)).sum(axis=1))
    without = np.zeros(len(shares))
    for at in variants:
        hits, total = np.array([grid.n_same, grid.n_both]) - pairs_with(at).sum(axis=2)
        if not grid.by_pair:
            hits, total = np.nan_to_num(quotient(hits, total)), total > 0
        without[at] = quotient(hits.sum(), total.sum())
    return agreement, without


def changes(edge: Edge) -> set[str]:
    """The kinds of differences that an edge has: ``syntax``, ``lexis``, ``determiner``."""
    flags = {"syntax": edge.syntactic, "lexis": edge.lexical, "determiner": edge.determiner}
    return {name for name, differs in flags.items() if differs}


def annotated_kinds(suite: Suite) -> dict[str, dict[tuple[int, int], set[str]]]:
    """How patterns differ by the suite's own annotation.

    ``syntax``, ``lexis`` and ``determiner`` of its edges, ``tense`` where both patterns have one,
    and ``order``: whether subject or object comes first.
    """
    kinds: dict[str, dict[tuple[int, int], set[str]]] = {}
    for relation in suite.relations:
        kinds[relation.id] = {}
        for pair, edge in relation.edges.items():
            first, second = (relation.patterns[at] for at in pair)
            tenses = {first.tense, second.tense}
            names = changes(edge)
            if len(tenses) == 2 and tenses <= {"present", "past", "future"}:
                names.add("tense")
            if first.object_first != second.object_first:
                names.add("order")
            kinds[relation.id][pair] = names
    return kinds


def edit_table(answers: Answers, suite: Suite, protocol: Protocol, kinds: Kinds) -> pl.DataFrame:
    """Consistency of the pairs that differ in a way, against the other pairs of the same relation.

    One row a kind, over the N-1 relations that have both: ``kind, with_it, without_it`` (means over
    relations), ``difference`` with its 95 % interval over relations, ``p`` of a paired permutation
    of relations, ``p_holm`` over kinds, ``relations``, ``pairs`` (of all N-1 relations that have
    the kind).
    """
    run, pairs = prepared(answers, suite), dict[str, int]()
    shares: dict[str, list[tuple[float, float]]] = {}
    for relation in run.of_kind("N-1"):
        grid, of_pair = run.views(relation, protocol)["pairs"], kinds.get(relation.id, {})
        for kind in sorted({name for of in of_pair.values() for name in of}):
            differ = [pair for pair, of in of_pair.items() if kind in of]
            pairs[kind] = pairs.get(kind, 0) + len(differ)
            others = [pair for pair, of in of_pair.items() if kind not in of]
            if differ and others:
                one, other = (_value("consistency", grid.only_pairs(of)) for of in (differ, others))
                if not math.isnan(one + other):
                    shares.setdefault(kind, []).append((one, other))
    rows = []
    for kind, of_kind in shares.items():
        differences, size = [a - b for a, b in of_kind], len(of_kind)
        mean = fmean(differences)
        error = stdev(differences) / math.sqrt(size) if size > 1 else NAN
        bounds = logit_interval(mean, error, size, (-1.0, 1.0))
        means, p = map(fmean, zip(*of_kind, strict=True)), paired_permutation(differences)
        rows.append((kind, *means, mean, *bounds, p, size, pairs[kind]))
    if not rows:
        return pl.DataFrame()
    columns = [
        "kind", "with_it", "without_it", "difference", "low", "high", "p", "relations", "pairs",
    ]  # fmt: skip
    table = pl.DataFrame(rows, columns, orient="row")
    return table.with_columns(p_holm=pl.Series(holm(table["p"].to_list()))).sort("difference")


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


def _of_relations(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """A metric's value in each relation that the mean over relations includes."""
    of_groups = metrics.filter(over="group", kind="whole")
    averaged = of_groups.filter(metric="consistency")["group"]
    is_averaged = pl.col("group").is_in(averaged.implode())
    return of_groups.filter(is_averaged, metric=name).select("group", "value")
