"""What analyses find, on a screen: shares in percent, coefficients times 100."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import short_label_of
from consilience.report.columns import (
    CLUSTER_CORRELATIONS,
    CLUSTERS,
    CORRELATION,
    EDITS,
    PATTERN_NOTE,
    PATTERNS,
    Columns,
    frame_table,
    metric_column,
    with_outliers,
)
from consilience.report.table import Cell, Column, Table, Value


def edits_table(edits: pl.DataFrame, title: str) -> Table:
    """What each kind of edit costs."""
    return frame_table(edits, title, EDITS)


def correlations_table(correlations: pl.DataFrame) -> Table:
    """Correlations of metrics over relations."""
    columns: Columns = {
        "run": Column("run"), "x": Column("of"), "y": Column("with"), "method": Column("method"),
    }  # fmt: skip
    shown = correlations.with_columns(pl.col("x", "y").map_elements(short_label_of, pl.String))
    return frame_table(shown, "Over relations, times 100", {**columns, **CORRELATION})


def size_tables(
    by_size: pl.DataFrame, correlations: pl.DataFrame, metrics: Sequence[str]
) -> tuple[Table, Table]:
    """Runs by what their models were trained on, and how far each metric goes along with it."""
    columns: Columns = {
        "run": Column("run"),
        "size": Column("trained on"),
        **{name: metric_column(name) for name in metrics},
    }
    by_size_title = "By size of the training data, in percent"
    title = "Spearman's correlation with the size, times 100"
    return (
        frame_table(by_size, by_size_title, columns),
        frame_table(
            correlations.with_columns(pl.col("metric").map_elements(short_label_of, pl.String)),
            title,
            {"metric": Column("metric"), **CORRELATION},
        ),
    )


def abstaining_table(by_threshold: pl.DataFrame, metrics: Sequence[str]) -> Table:
    """Means of the answers that are at least as probable as a threshold."""
    columns: Columns = {
        "run": Column("run"),
        "threshold": Column("threshold", "number", digits=2),
        "answered": Column("answered", "share"),
        **{name: metric_column(name) for name in metrics},
    }
    return frame_table(by_threshold, "Answers above a probability, in percent", columns)


def syntax_tables(edges: pl.DataFrame, types: pl.DataFrame, name: str, pairs: int) -> list[Table]:
    """Released and derived edges of a suite, and its pairs of patterns by paraphrase type."""
    columns: Columns = {
        "attribute": Column("attribute"),
        "n": Column("directed edges", "count"),
        "same": Column("same", "share"),
        "kappa": Column("kappa", "share"),
        "both": Column("in both", "count"),
        "only_released": Column("released", "count"),
        "only_derived": Column("derived", "count"),
    }
    by_type: Columns = {
        "type": Column("type"), "pairs": Column("pairs", "count"),
        "share": Column("percent", "share"),
    }  # fmt: skip
    title = f"{name}: {pairs} pairs with a base pattern, by paraphrase type"
    return [
        frame_table(edges, f"{name}: released and derived edges", columns),
        frame_table(types, title, by_type),
    ]


def cluster_tables(clusters: pl.DataFrame, correlations: pl.DataFrame) -> tuple[Table, Table]:
    """What the vectors of a run cluster by, and how consistency is correlated with it."""
    title = "Means, and Spearman's correlation of V with consistency over relations"
    return (
        frame_table(clusters, "k-means, V-measure in percent", CLUSTERS),
        frame_table(correlations, title, CLUSTER_CORRELATIONS),
    )


def matrix_tables(pairs: pl.DataFrame, patterns: pl.DataFrame) -> Iterator[Table]:
    """For each relation its patterns, and how often each two of them agree, in percent."""
    for (group,), rows in patterns.group_by("group", maintain_order=True):
        shown = with_outliers(rows).with_columns(
            number=pl.col("variant_index") + 1, closest=pl.col("closest") + 1
        )
        yield frame_table(shown, f"{group}: patterns, in percent", PATTERNS, [PATTERN_NOTE])
        agreement = {
            frozenset((first, second)): value
            for first, second, value in pairs.filter(pl.col("group") == group)
            .select("first", "second", "agreement")
            .iter_rows()
        }
        if agreement:  # of a single pattern there is none
            yield _agreement_table(str(group), rows["variant_index"].to_list(), agreement)


def _agreement_table(
    group: str, variants: Sequence[int], agreement: Mapping[frozenset[int], float]
) -> Table:
    """How often each two patterns agree; blank where they were not asked of the same fact."""
    rows: list[list[Value]] = []
    for first in variants:
        values = [agreement.get(frozenset((first, second)), math.nan) for second in variants]
        cells = ["" if math.isnan(value) else Cell(value) for value in values]
        rows.append([f"{first + 1}", *cells])
    columns = [Column("", "count"), *(Column(f"{at + 1}", "share", digits=0) for at in variants)]
    return Table(f"{group}: agreement of each two patterns, in percent", columns, rows)


def example_table(examples: Sequence[Any], title: str) -> Table:
    """An example a row, with at most three of its replies: the paper's Table 6."""
    rows: list[list[Value]] = []
    last_rows = []
    for example in examples:
        facts = [example.group, example.subject, example.gold]
        for at, reply in enumerate(example.telling):
            verdict = example.verdict(reply)
            answer = reply.answer if verdict == "wrong" else f"{verdict}: {reply.answer}"
            rows.append([*(facts if at == 0 else [""] * len(facts)), reply.variant, answer])
        last_rows.append(len(rows) - 1)
    headings = ("subject", "gold", "pattern", "answer")
    columns = [Column("relation", is_extra=True), *map(Column, headings)]
    return Table(title, columns, rows, rules=last_rows)
