"""Columns of metrics tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.metrics.registry import label_of, short_label_of
from consilience.report.table import CI, Column, Table, Value, bounds_of
from consilience.types import FACT_WORDS, SuiteWords

Row = Mapping[str, Any]

Columns = Mapping[str | tuple[str, str], Column]
"""The columns of a data frame by name, in the order in which they are shown; two names: bounds."""


def metric_column(name: str) -> Column:
    """The column of a metric."""
    return Column(label_of(name), "share", short_label_of(name))


def frame_table(
    frame: pl.DataFrame | Sequence[Row],
    title: str,
    columns: Columns,
    notes: Sequence[str] = (),
    blocks: Sequence[str] = (),
    missing: Value = "",
) -> Table:
    """The rows of a data frame, or of a list, in those of the columns that some row has.

    ``missing``: the cell of a row that lacks a column.
    """
    records = frame.to_dicts() if isinstance(frame, pl.DataFrame) else frame
    names = {name for record in records for name in record}
    known = {
        name: column
        for name, column in columns.items()
        if not records or names >= {*([name] if isinstance(name, str) else name)}
    }
    rows = [
        [
            row.get(name, missing)
            if isinstance(name, str)
            else bounds_of(row, *name) if name[0] in row else missing
            for name in known
        ]
        for row in records
    ]  # fmt: skip
    return Table(title, list(known.values()), rows, notes, blocks)


def difference_columns(
    rows: pl.DataFrame, first: str | Column, second: str | Column
) -> dict[str | tuple[str, str], Column]:
    """The columns of differences after those that name the row; ``rows``: their data frame.

    Adjusted p-values are left out where no row has them.
    """
    has_holm = rows["p_holm"].is_not_nan().any()
    values = (Column(of, "share") if isinstance(of, str) else of for of in (first, second))
    return {
        **dict(zip(("first_value", "second_value"), values, strict=True)),
        **DIFFERENCE,
        "t": Column("t", "number"),
        "p": Column("p", "p", is_extra=True),
        **({"p_holm": P_HOLM} if has_holm else {}),
        "detectable": Column("detectable", "detectable", "detect."),
    }


DETECTABLE = "detectable: the minimum detectable difference (80 % power). * .05 ** .01 *** .001"


def tests_of(rows: pl.DataFrame, words: SuiteWords = FACT_WORDS) -> str:
    """The tests of rows, with what a kind of suite calls what they flip or permute."""
    tests = ", ".join(rows["test"].drop_nulls().unique(maintain_order=True))
    return tests.replace("subjects", words.clusters).replace("relations", f"{words.group}s")


POINTS = Column("difference", "points", "diff.")
P_HOLM = Column("p (Holm)", "p")
DIFFERENCE: Columns = {"difference": POINTS, ("low", "high"): Column(CI, "points")}

GAIN: Columns = {
    "without": Column("consistency without it", "share", "without it"),
    "gain": Column("gain", "points"),
}
PATTERNS: Columns = {
    "number": Column("number", "count"), "variant": Column("pattern"),
    "accuracy": metric_column("accuracy"), "change": POINTS,
    ("change_low", "change_high"): Column(CI, "points", is_extra=True), "p_holm": P_HOLM,
    "agreement": Column("agreement with others", "share", "agrees with others"),
    "top_answer": Column("top answer", "share", is_extra=True), **GAIN,
    "n": Column("facts", "count", is_extra=True),
}  # fmt: skip
"""Patterns (``analysis.patterns``): their accuracy, and how often they agree with others."""

GAIN_NOTE = "gain: consistency without this pattern minus that with all, in points"

PATTERN_NOTE = (
    "difference: accuracy minus that of the first pattern on the same facts, in points; p: exact "
    f"McNemar, adjusted over patterns (Holm), the interval is not; {GAIN_NOTE}"
)

EDITS: Columns = {
    "kind": Column("edit"), "run": Column("run"), "with_it": Column("with it", "share"),
    "without_it": Column("without", "share"), **DIFFERENCE, "p_holm": P_HOLM,
    "relations": Column("relations", "count"), "pairs": Column("pairs", "count"),
}  # fmt: skip
"""Consistency of pairs of patterns with and without an edit."""

MEANS: Columns = {
    "metric": Column("metric"), "edit": Column("edit"), "factor": Column("only this differs"),
    "form": Column("form"), "mean": Column("mean±std", "share"), "value": Column("value", "share"),
    ("low", "high"): Column(CI, "share"), "n": Column("relations", "count"),
    "pooled": Column("pooled", "share"), "counted": Column("counted", "count"),
    "pairs": Column("pairs", "count"), "left_out": Column("left out", "count"),
}  # fmt: skip
"""Means over relations or annotators, or values of a task, and what they count."""

VIOLATION_RATES: Columns = {
    "group": Column("group"), "run": Column("run"), "kind": Column("expectation"),
    "n": Column("applicable", "count"), "value": Column("violated", "share"),
    ("low", "high"): Column(CI, "share"), "chance": Column("expected by chance", "share", "chance"),
}  # fmt: skip
CLUSTERS: Columns = {
    "relation": Column("relation"), "property": Column("by"), "layer": Column("layer", "count"),
    "clusters": Column("clusters", "count"), "v_measure": Column("V-measure", "share"),
    "v_measure_shuffled": Column("labels shuffled", "share"), "ami": Column("AMI", "share"),
}  # fmt: skip
"""How well the clusters of vectors are those of a property."""

CORRELATION: Columns = {
    "value": Column("r", "share"), ("low", "high"): Column(CI, "share"), "p": Column("p", "p"),
    "n": Column("n", "count"),
}  # fmt: skip
CLUSTER_CORRELATIONS: Columns = {
    **CLUSTERS, "value": Column("r with consistency", "share"),
    ("low", "high"): Column(f"{CI} of r", "share"), "p": Column("p", "p"),
    "n": Column("relations", "count"),
}  # fmt: skip
"""Mean clusters, and how they are correlated with consistency over relations."""


def in_words(table: Table, words: SuiteWords) -> Table:
    """The table with the headings that a kind of suite has for its groups, items and variants."""
    forms = ("{}", "{}s", "all {}s agree")
    known = words.instead.items()
    names = {form.format(one): form.format(other) for one, other in known for form in forms}
    names["gold"] = "right answer"
    columns = [replace(one, heading=names.get(one.heading, one.heading)) for one in table.columns]
    return replace(table, columns=columns)
