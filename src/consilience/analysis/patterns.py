"""Consistency by pattern, and whether known facts are answered more consistently."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from statistics import fmean
from typing import Literal, get_args

import numpy as np
import polars as pl

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import Edge
from consilience.core.items import Bools, Floats
from consilience.metrics.counts import Answers, Prepared, prepared_seeds
from consilience.metrics.differences import CHANGE_SCHEMA, accuracy_changes
from consilience.metrics.registry import Grid, headline_metrics, quotient
from consilience.metrics.resampling import ClusterSampler, in_threads
from consilience.metrics.statistics import (
    NAN,
    REPLICATES,
    bootstrap_interval,
    bootstrap_intervals,
    correlation,
    holm,
    paired_permutation,
    resamples,
)
from consilience.types import Relation, Suite

Kinds = Mapping[str, Mapping[tuple[int, int], Collection[str]]]
"""relation -> pair of patterns -> the names of the ways in which they differ."""


PAIRS_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    **dict.fromkeys(("first", "second"), pl.Int64),
    "edit": pl.String,
    **dict.fromkeys(("agreement", "low", "high"), pl.Float64),
    "n": pl.Int64,
    **CHANGE_SCHEMA,
}

ROUNDING = 1e-12
"""A pattern is an outlier only if its agreement is lower than the others' by more than this."""

Seeds = Answers | Sequence[Answers]
"""The answers of one run, or those of each seed, whose numbers are averaged (``over_seeds``)."""


def pair_table(answers: Seeds, suite: Suite, protocol: Protocol, seed: int = 0) -> pl.DataFrame:
    """How often each two patterns of a relation give the same answer, and how accuracy changes.

    One row a pair: ``group, first, second`` (positions of the patterns), ``edit`` (kind of the
    released edge, null without one), ``agreement`` with a 95 % interval ``low, high``, ``n`` items,
    and ``CHANGE_SCHEMA``: the accuracy of both and its paired change. Intervals resample subjects.
    Of relations with more than ``MANY_VARIANTS`` patterns, only pairs with the base pattern.
    """
    tables = [_pair_table(table, protocol, seed) for table in prepared_seeds(answers, suite)]
    return over_seeds(tables, ["group", "first", "second"])


def _pair_table(ready: Prepared, protocol: Protocol, seed: int) -> pl.DataFrame:
    def of(group: tuple[Relation, Grid]) -> pl.DataFrame:
        relation, grid = group
        if grid.has_many_pairs:
            grid = grid.only_pairs([(0, at) for at in range(1, grid.answers.shape[1])])
        subjects, subject_indices = np.unique(grid.subjects.astype(str), return_inverse=True)
        resampled = ClusterSampler(ready.cache.draws(len(subjects), seed), subject_indices)
        replicates = quotient(resampled.sums(grid.same), resampled.sums(grid.both))
        agreement = quotient(grid.same.sum(axis=0), grid.both.sum(axis=0))
        sizes = resampled.clusters(grid.both)
        bounds = bootstrap_intervals(agreement, replicates, sizes, (0.0, 1.0), proportion=True)
        edges = [relation.edges.get((a, b)) for a, b in grid.pairs.tolist()]
        columns = {
            "group": [relation.id] * len(edges),
            "first": grid.pairs[:, 0],
            "second": grid.pairs[:, 1],
            "edit": [edge.kind if edge else None for edge in edges],
            "agreement": agreement,
            "low": bounds[:, 0],
            "high": bounds[:, 1],
            "n": grid.both.sum(axis=0),
        }
        changes = accuracy_changes([grid], resampled, seed)
        return pl.DataFrame({**columns, **changes}, schema=PAIRS_SCHEMA)

    return pl.concat(in_threads(of, _grids(ready, protocol)))


def with_changes(patterns: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """``pattern_table`` with the change of accuracy from the base pattern, of ``pair_table``.

    ``change, change_low, change_high, p_holm``; NaN for the base pattern itself.
    """
    columns, key = ("change", "change_low", "change_high", "p_holm"), ["group", "variant_index"]
    of_base = pairs.filter(first=0).rename({"second": "variant_index"}).select(*key, *columns)
    joined = patterns.join(of_base, on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.col(columns).fill_null(NAN))


def pattern_table(answers: Seeds, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """The accuracy of each pattern of a relation, and its agreement with the others.

    One row a pattern: ``group, variant_index, variant, accuracy`` (share of right answers),
    ``agreement`` (mean over the other patterns), ``closest`` (the position of the pattern with the
    highest agreement), ``highest`` (that agreement), ``apart`` (whether it is below the mean
    agreement among the others, ``among``), ``n`` items. NaN without data.
    """
    tables = [_pattern_table(table, protocol) for table in prepared_seeds(answers, suite)]
    return over_seeds(tables, ["group", "variant_index", "variant"])


def _pattern_table(ready: Prepared, protocol: Protocol) -> pl.DataFrame:
    rows: list[tuple[object, ...]] = []
    for relation, grid in _grids(ready, protocol):
        agreement = agreement_matrix(grid)
        right = quotient(grid.right.sum(axis=0), grid.taken.sum(axis=0)).tolist()
        known = ~np.isnan(agreement)
        values = np.where(known, agreement, 0)
        sums, counts = (of.sum() - 2 * of.sum(axis=0) for of in (values, known.astype(np.int64)))
        among, sizes = quotient(sums, counts), grid.taken.sum(axis=0).tolist()
        names = [pattern.text for pattern in relation.patterns] or relation.design.variants
        for at, name in enumerate(names):
            others = np.delete(agreement[at], at)
            mean, closest, highest = NAN, None, NAN
            if has_others := not np.isnan(others).all():
                closest = int(np.nanargmax(agreement[at]))
                mean, highest = float(np.nanmean(others)), float(np.nanmax(others))
            is_apart = bool(has_others and highest < among[at] - ROUNDING)
            agreements = mean, closest, highest, float(among[at]), is_apart
            rows.append((relation.id, at, name, right[at], *agreements, sizes[at]))
    columns = [
        "group", "variant_index", "variant", "accuracy", "agreement", "closest", "highest", "among",
        "apart", "n",
    ]  # fmt: skip
    table = pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)
    return table.cast({"closest": pl.Int64})  # where it is nowhere known, too


def agreement_matrix(grid: Grid) -> Floats:
    """Share of items with the same answer (variant, variant); NaN on the diagonal."""
    size = len(grid.answered)
    matrix = np.full((size, size), np.nan)
    if not grid.has_many_pairs:
        first, second = grid.pairs.T
        matrix[first, second] = quotient(grid.same.sum(axis=0), grid.both.sum(axis=0))
        matrix[second, first] = matrix[first, second]
        return matrix
    answers, taken = grid.answers.T.astype(np.int32), grid.taken.astype(np.float32)
    both = (taken.T @ taken).astype(np.float64)
    for at in range(size - 1):
        same = ((answers[at + 1 :] == answers[at]) & grid.taken[:, at]).sum(axis=1)
        matrix[at, at + 1 :] = matrix[at + 1 :, at] = quotient(same, both[at, at + 1 :])
    return matrix


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


def edit_table(
    answers: Seeds, suite: Suite, protocol: Protocol, kinds: Kinds, seed: int = 0
) -> pl.DataFrame:
    """Consistency of the pairs that differ in a way, against the other pairs of the same relation.

    One row a kind, over the N-1 relations that have both: ``kind, with_it, without_it`` (means over
    relations), ``difference`` with its 95 % interval over relations, ``p`` of a paired permutation
    of relations, ``p_holm`` over kinds, ``relations``, ``pairs`` (of all N-1 relations that have
    the kind).
    """
    seeds = prepared_seeds(answers, suite)
    return over_seeds([_edit_table(table, protocol, kinds, seed) for table in seeds], ["kind"])


def _edit_table(ready: Prepared, protocol: Protocol, kinds: Kinds, seed: int) -> pl.DataFrame:
    shares: dict[str, list[tuple[float, float]]] = {}
    pairs: dict[str, int] = {}
    for relation, grid in _grids(ready, protocol):
        of_pair = kinds.get(relation.id)
        if relation.cardinality != "N-1" or not of_pair:
            continue
        names = [of_pair.get((a, b)) for a, b in grid.pairs.tolist()]
        known = np.array([of is not None for of in names], dtype=np.bool_)
        for kind in sorted({name for of in of_pair.values() for name in of}):
            differ = np.array([kind in (of or ()) for of in names], dtype=np.bool_)
            pairs[kind] = pairs.get(kind, 0) + int(differ.sum())
            with_it, without = (_share(grid, which & known) for which in (differ, ~differ))
            if not math.isnan(with_it) and not math.isnan(without):
                shares.setdefault(kind, []).append((with_it, without))
    rows = []
    for kind, of_kind in shares.items():
        differences = np.array([a - b for a, b in of_kind])
        size = len(differences)
        replicates = resamples(size, REPLICATES, np.random.default_rng(seed)) @ differences / size
        mean = float(differences.mean())
        low, high = bootstrap_interval(mean, replicates, size, (-1.0, 1.0))
        means = map(fmean, zip(*of_kind, strict=True))
        p = paired_permutation(differences.tolist(), seed)
        rows.append((kind, *means, mean, low, high, p, size, pairs[kind]))
    if not rows:
        return pl.DataFrame()
    columns = [
        "kind", "with_it", "without_it", "difference", "low", "high", "p", "relations", "pairs",
    ]  # fmt: skip
    table = pl.DataFrame(rows, columns, orient="row")
    return table.with_columns(p_holm=pl.Series(holm(table["p"].to_list()))).sort("difference")


def over_seeds(tables: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """The means of the tables of several seeds, without intervals and p.

    ``n`` is the least of all seeds. A condition is true, and any other value known, where it is
    that of all seeds.
    """
    first = tables[0]
    if len(tables) == 1 or first.is_empty():
        return first
    rows = pl.concat(tables)
    merged = [_merged(name, dtype) for name, dtype in rows.schema.items() if name not in keys]
    return rows.group_by(keys, maintain_order=True).agg(*merged).select(first.columns)


def _merged(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if name in ("low", "high", "p") or name.startswith("p_") or name.endswith(("_low", "_high")):
        return pl.lit(NAN).alias(name)
    if dtype.is_float():
        return column.fill_nan(None).mean().fill_null(NAN)
    if dtype == pl.Boolean:
        return column.all()
    return column.min() if name == "n" else pl.when(column.n_unique() == 1).then(column.first())


def _share(grid: Grid, pairs: Bools) -> float:
    same, both = int(grid.same[:, pairs].sum()), int(grid.both[:, pairs].sum())
    return same / both if both else NAN


def _grids(answers: Prepared, protocol: Protocol) -> Iterator[tuple[Relation, Grid]]:
    for relation in answers.relations:
        yield relation, answers.views(relation, protocol)["pairs"]


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
    rows = [
        {"run": run, "size": float(size), **_means(table)}
        for (run, table), size in zip(metrics.items(), sizes, strict=True)
    ]
    return pl.DataFrame(rows).sort("size")


def size_correlations(by_size: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of size and each metric over runs: ``metric, value, low, high, p, n``.

    With few runs this can only be coarse: with four, p is at least 1/12.
    """
    sizes = by_size["size"].to_list()
    rows = [
        {"metric": name} | asdict(correlation(sizes, by_size[name].to_list(), method="spearman"))
        for name in headline_metrics()
    ]
    return pl.DataFrame(rows)


def _means(metrics: pl.DataFrame) -> dict[str, float]:
    """The mean over relations of each headline metric, with ``_std``, ``_low`` and ``_high``."""
    overall = metrics.filter(group="MACRO", subset="all")
    means: dict[str, float] = {}
    for name in headline_metrics():
        (mean,) = overall.filter(metric=name).to_dicts() or ({},)
        means[name] = mean.get("value", NAN)
        means |= {f"{name}_{part}": mean.get(part, NAN) for part in ("std", "low", "high")}
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
    averaged = {*metrics.filter(metric="consistency")["group"]} - {"MACRO", "MICRO"}
    is_averaged = pl.col("group").is_in(list(averaged))
    return metrics.filter(is_averaged, metric=name, subset="all").select("group", "value")
