"""What analyses find, on a screen: shares in percent, coefficients times 100."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.report.metric_tables import metric_column
from consilience.report.table import Cell, Column, Table, Value, bounds_of, interval_notes

Columns = Mapping[str | tuple[str, str], Column]
"""The columns of a data frame by name, in the order in which they are shown; two names: bounds."""

R: Columns = {
    "value": Column("r", "share"),
    ("low", "high"): Column("95 %", "share"),
    "p": Column("p", "p"),
    "n": Column("n", "count"),
}
"""A correlation with its interval."""

V_MEASURES: Columns = {
    "v_measure": Column("V", "share"),
    "v_measure_shuffled": Column("shuffled", "share"),
    "ami": Column("AMI", "share"),
}
"""How far clusters are those of a property."""


def frame_table(frame: pl.DataFrame, title: str, columns: Columns) -> Table:
    """The rows of a data frame."""
    rows = [
        [bounds_of(row, *name) if isinstance(name, tuple) else row[name] for name in columns]
        for row in frame.iter_rows(named=True)
    ]
    has_interval = ("low", "high") in columns
    notes = interval_notes(frame) if has_interval else []
    return Table(title, list(columns.values()), rows, notes)


def edits_table(edits: pl.DataFrame, title: str) -> Table:
    """What each kind of edit costs."""
    columns: Columns = {
        "kind": Column("patterns that differ in"),
        "with_it": Column("agree", "share"),
        "without_it": Column("others", "share"),
        "difference": Column("points", "points"),
        ("low", "high"): Column("95 %", "points"),
        "p_holm": Column("p", "p"),
        "relations": Column("relations", "count"),
        "pairs": Column("pairs", "count"),
    }
    return frame_table(edits, title, columns)


def correlations_table(correlations: pl.DataFrame) -> Table:
    """Correlations of metrics over relations."""
    columns: Columns = {
        "run": Column("run"), "x": Column("of"), "y": Column("with"), "method": Column("method"),
    }  # fmt: skip
    return frame_table(correlations, "Over relations, times 100", {**columns, **R})


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
        frame_table(correlations, title, {"metric": Column("metric"), **R}),
    )


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
    by: Columns = {"layer": Column("layer", "count"), "property": Column("by")}
    relation: Columns = {
        "relation": Column("relation"),
        **by,
        "clusters": Column("clusters", "count"),
    }
    title = "Means, and Spearman's correlation of V with consistency over relations"
    return (
        frame_table(clusters, "k-means, V-measure in percent", {**relation, **V_MEASURES}),
        frame_table(correlations, title, {**by, **V_MEASURES, **R}),
    )


def matrix_tables(pairs: pl.DataFrame, patterns: pl.DataFrame) -> Iterator[Table]:
    """For each relation its patterns, and how often each two of them agree, in percent."""
    columns: Columns = {
        "variant_index": Column("", "count"),
        "variant": Column("pattern"),
        "accuracy": Column("right", "share"),
        "change": Column("points", "points"),
        ("change_low", "change_high"): Column("95 %", "points"),
        "p_holm": Column("p", "p"),
        "agreement": Column("agrees", "share"),
        "closest": Column("most with", "count"),
        "highest": Column("how often", "share"),
        "apart": Column("apart"),
    }
    note = (
        "points: accuracy minus that of pattern 0 on the same facts, with a 95 % interval; p: "
        "exact McNemar, adjusted (Holm) over patterns, the interval is not"
    )
    for (group,), rows in patterns.group_by("group", maintain_order=True):
        shown = rows.with_columns(apart=pl.when("apart").then(pl.lit("yes")).otherwise(pl.lit("")))
        table = frame_table(shown, f"{group}: patterns, in percent", columns)
        yield Table(table.title, table.columns, table.rows, [note])
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
        rows.append([f"{first}", *cells])
    columns = [Column("", "count"), *(Column(f"{at}", "share", digits=0) for at in variants)]
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
    headings = ("relation", "subject", "gold", "pattern", "answer")
    return Table(title, [Column(heading) for heading in headings], rows, rules=last_rows)
