"""The metrics of a run on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import (
    DESCRIPTIONS,
    METRICS,
    label_of,
    main_metrics,
    short_label_of,
)
from consilience.report.run_view import values_of
from consilience.report.summary import FACT_ROWS
from consilience.report.table import CI, Cell, Column, Table, Value, bounds_of, estimate
from consilience.suites.sizes import SuiteStatistics
from consilience.types import Suite

SUBSETS: dict[str, str] = {
    "diff_syntax": "Diff-Syntax",
    "diff_lexical": "Diff-Lexical",
    "diff_both": "Diff-Both",
    "no_change": "No-Change",
    "diff_determiner": "Diff-Determiner",
}
"""Kinds of pairs of patterns and their names in the paper, or ours."""


def metric_column(name: str) -> Column:
    """The column of a metric."""
    return Column(label_of(name), "share", short_label_of(name))


def group_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """One row a group, one column a metric; ``determinism`` in the column of consistency."""
    rows = metrics.filter(pl.col("subset") == "all").select("metric", "group", "value")
    values = {(metric, group): value for metric, group, value in rows.iter_rows()}
    measured = [name for name in main_metrics() if name in metrics["metric"]]
    measured_as = {DESCRIPTIONS[name].alias_of or name for name in measured}
    first = [name for name, *_ in FACT_ROWS]
    names = sorted(
        (name for name in main_metrics() if name in measured_as),
        key=lambda name: first.index(name) if name in first else len(first),
    )
    groups = [group for group in suite.relations if group.id in set(rows["group"])]
    has_labels = any(group.label != group.id for group in groups)
    cells: list[list[Value]] = []
    for group in groups:
        row: list[Value] = [group.label, group.id] if has_labels else [group.id]
        for name in names:
            if name == "consistency" and group.cardinality == "N-M":
                row.append(Cell(values.get(("determinism", group.id)), mark="*"))
            else:
                row.append(values.get((name, group.id)))
        cells.append(row)
    note = "* determinism: a relation with several right answers, not in the means"
    is_marked = any(group.cardinality == "N-M" for group in groups)
    is_task = all(group.design.unit == "item" for group in groups)
    columns = [Column("task" if is_task else "relation"), *([Column("id")] if has_labels else [])]
    return Table(
        f"{suite.name}: each {'task' if is_task else 'relation'}, in percent",
        [*columns, *map(metric_column, names)],
        cells,
        [note] if is_marked else [],
    )


def metric_table(metrics: pl.DataFrame, title: str, note: str = "") -> Table:
    """One row a metric: mean and standard deviation over relations, and all counts together.

    The interval is that of the mean. Indented: consistency over the pairs of patterns that differ
    in that way. Flips: answers of a sample that changed when nothing about the question did. Of
    sentence pairs: one block a task. ``note``: a line below the table.
    """
    names = metrics["group"].unique(maintain_order=True).to_list()
    if "MACRO" not in names:
        return _task_metric_table(metrics, title, note)
    macro, micro = values_of(metrics, "MACRO"), values_of(metrics, "MICRO")
    rows: list[list[Value]] = []
    for (name, subset), row in macro.items():
        if name == "determinism" and subset != "all":
            continue
        pooled = micro[name, subset]
        label = label_of(name) if subset == "all" else f"  {SUBSETS.get(subset, subset)}"
        counts = [pooled["value"], pooled["n"], pooled["n_excluded"]]
        rows.append([label, *estimate(row, std=True), row["n"], *counts])
    for (name, subset), row in micro.items():
        if name == "flips":
            label = f"Flips, {subset.replace('_', ' ')}"
            rows.append([label, None, None, None, row["value"], row["n"], row["n_excluded"]])
    columns = [
        Column("metric"), Column("mean±std", "share"), Column(CI, "share"),
        Column("relations", "count"), Column("pooled", "share"), Column("counted", "count"),
        Column("left out", "count"),
    ]  # fmt: skip
    return Table(title, columns, rows, [note] if note else [])


def _task_metric_table(metrics: pl.DataFrame, title: str, note: str) -> Table:
    """The same of sentence pairs, all forms together."""
    chosen = metrics.filter(pl.col("subset") == "all")
    rows: list[list[Value]] = [
        [label_of(row["metric"]), *estimate(row, std=True), row["n"], row["n_excluded"]]
        for row in chosen.iter_rows(named=True)
    ]
    columns = [
        Column("metric"), Column("value", "share"), Column(CI, "share"),
        Column("counted", "count"), Column("left out", "count"),
    ]  # fmt: skip
    blocks = chosen["group"].to_list() if chosen["group"].n_unique() > 1 else []
    return Table(title, columns, rows, [note] if note else [], blocks)


def edit_table(metrics: pl.DataFrame, suite: Suite) -> Table:
    """Consistency over the pairs of patterns that differ in a way; one row a kind of edit."""
    macro, micro = values_of(metrics, "MACRO"), values_of(metrics, "MICRO")
    rows: list[list[Value]] = []
    for (name, subset), row in macro.items():
        if name == "consistency" and subset in SUBSETS:
            pooled = micro[name, subset]
            counts = [pooled["value"], pooled["n"], pooled["n_excluded"]]
            rows.append([SUBSETS[subset], *estimate(row, std=True), row["n"], *counts])
    columns = [
        Column("edit"), Column("mean±std", "share"), Column(CI, "share"),
        Column("relations", "count"), Column("pooled", "share"), Column("pairs", "count"),
        Column("left out", "count"),
    ]  # fmt: skip
    title = f"{suite.name}: consistency of two patterns by how they differ, in percent"
    return Table(title, columns, rows)


def pattern_table(patterns: pl.DataFrame, suite: Suite) -> Table:
    """One row a pattern, one block a relation (``analysis.patterns.pattern_table``)."""
    labels = {group.id: group.label for group in suite.relations}
    rows: list[list[Value]] = [
        [row["variant"], row["accuracy"], row["agreement"], row["n"]]
        for row in patterns.iter_rows(named=True)
    ]
    columns = [
        Column("pattern"), metric_column("accuracy"),
        Column("Agreement with others", "share", "agrees"), Column("facts", "count"),
    ]  # fmt: skip
    title = f"{suite.name}: each pattern, in percent"
    return Table(title, columns, rows, blocks=[labels[name] for name in patterns["group"]])


def statistics_tables(statistics: SuiteStatistics, name: str) -> tuple[Table, Table]:
    """The paper's Table 1 of a suite, and the counts of each relation."""
    counts: list[list[Value]] = [
        ["relations", f"{statistics.relations}"],
        ["patterns", f"{statistics.patterns}"],
        ["fewest patterns", f"{statistics.min_patterns}"],
        ["most patterns", f"{statistics.max_patterns}"],
        ["mean patterns", statistics.mean_patterns],
        ["mean syntactic variants", statistics.mean_syntactic_variants],
        ["mean lexical variants", statistics.mean_lexical_variants],
        ["facts", f"{statistics.facts:,}"],
        ["queries", f"{statistics.queries:,}"],
    ]
    title = f"{name}, as in the paper's Table 1"
    total = Table(title, [Column(""), Column("", "number", digits=2)], counts)
    headings = ("patterns", "syntax", "lexis", "facts", "subjects", "candidates")
    columns = [
        Column("relation"), Column("kind"), *(Column(heading, "count") for heading in headings),
        Column("majority", "share"),
    ]  # fmt: skip
    rows: list[list[Value]] = [
        [
            row.relation, row.cardinality, row.patterns, row.syntactic_variants,
            row.lexical_variants, row.facts, row.subjects, row.candidates, row.majority,
        ]
        for row in statistics.by_relation
    ]  # fmt: skip
    return total, Table("each relation; majority in percent", columns, rows)


def form_table(metrics: pl.DataFrame, changes: pl.DataFrame, title: str) -> Table:
    """One row a form, one block a task: metrics with intervals, and the change of accuracy.

    ``metrics``: the rows of tasks, or of the means over relations. ``changes``:
    ``FORM_CHANGE_SCHEMA``. With several seeds numbers are mean±std over seeds, and further
    intervals are of that mean.
    """
    seeds = int(metrics["seeds"].max())  # type: ignore[arg-type]
    others = other_form_metrics(metrics)
    names = metrics["group"].unique(maintain_order=True).to_list()
    changes = changes.filter(pl.col("group").is_in(names))
    rows: list[list[Value]] = []
    blocks: list[str] = []
    for name in names:
        of_group = metrics.filter(pl.col("group") == name)
        values = values_of(of_group, name)
        by_form = _changes_by_form(changes.filter(pl.col("group") == name))
        for form in of_group["subset"].unique(maintain_order=True):
            row = form_row(values, form, others, std=seeds > 1 and name != "MACRO")
            row += _change_cells(by_form.get(form)) if changes.height else []
            row += _seed_intervals(values, form) if seeds > 1 else []
            rows.append(row)
            blocks.append(name)
    columns = form_columns() + [metric_column(name) for name in others]
    notes = []
    if changes.height:
        columns += [
            Column("change of Acc", "points"), Column(CI, "points"), Column("p (Holm)", "p"),
        ]  # fmt: skip
        tests = ", ".join(changes["test"].unique(maintain_order=True))
        notes.append(
            "change of Acc: from the original form, over the same items, in points; "
            f"p: {tests}, adjusted over forms (Holm); intervals are not adjusted"
        )
    if seeds > 1:
        columns += [Column(f"{label} {CI} over seeds", "share") for label in ("Acc", "Cons")]
    return Table(title, columns, rows, notes, blocks if len(names) > 1 else [])


def _changes_by_form(changes: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The changes of accuracy from the original form, by the other form."""
    if changes.is_empty():
        return {}
    original = changes.filter(pl.col("first") == changes["first"][0])
    return {row["second"]: row for row in original.iter_rows(named=True)}


def _change_cells(change: Mapping[str, Any] | None) -> list[Value]:
    """A change of accuracy, its interval and its p."""
    if change is None:
        return [None, None, None]
    return [change["change"], bounds_of(change, "change_low", "change_high"), change["p_holm"]]


def _seed_intervals(values: Mapping[tuple[str, str], Mapping[str, Any]], form: str) -> list[Value]:
    """The intervals over seeds of the accuracy and the consistency of a form."""
    rows = (_of_form(values, name, form) for name in ("accuracy", "consistency"))
    return [bounds_of(row, "seed_low", "seed_high") if row else None for row in rows]


def form_columns() -> list[Column]:
    """The columns of a table with a row a form: accuracy and consistency with intervals."""
    interval = Column(CI, "share")
    accuracy, consistency = metric_column("accuracy"), metric_column("consistency")
    return [Column("form"), accuracy, interval, consistency, interval]


def form_metrics(metrics: pl.DataFrame) -> list[str]:
    """The metrics that are shown by form: those of one form, and of two forms all but detail."""
    is_shown = {
        name: metric.one_form or (metric.by_form and DESCRIPTIONS[name].level != "detail")
        for name, metric in METRICS.items()
    }
    present = set(metrics["metric"])
    return [name for name in DESCRIPTIONS if name in present and is_shown.get(name)]


def other_form_metrics(metrics: pl.DataFrame) -> list[str]:
    """The metrics without an interval in a table with a row a form."""
    return [name for name in form_metrics(metrics) if name not in ("accuracy", "consistency")]


def form_row(
    values: Mapping[tuple[str, str], Mapping[str, Any]],
    form: str,
    others: Sequence[str],
    *,
    std: bool = False,
) -> list[Value]:
    """The numbers of a form, ``all`` for the original one; ``std``: with deviations over seeds."""
    row: list[Value] = ["original" if form == "all" else form]
    for name in ("accuracy", "consistency"):
        row += estimate(_of_form(values, name, form), std=std)
    return [*row, *(estimate(_of_form(values, name, form))[0] for name in others)]


def _of_form(
    values: Mapping[tuple[str, str], Mapping[str, Any]], name: str, form: str
) -> Mapping[str, Any] | None:
    """The row of a metric; None of one that compares the original form with itself."""
    known = form != "all" or METRICS[name].one_form
    return values.get((name, form)) if known else None


def changed_answers_table(changed: pl.DataFrame, count: int) -> Table:
    """The most confident answers that changed, one of each form first (Tables 3, 4, 7 to 9)."""
    several = changed["group"].n_unique() > 1
    rows: list[list[Value]] = []
    for row in firsts_first(changed).head(count).iter_rows(named=True):
        before = f"{row['original_1']}\n{row['original_2']}"
        rows.append(["original", before, row["original_answer"]])
        name = row["perturbation"] + (f"\n{row['group']}" if several else "")
        rows.append([name, f"{row['text_1']}\n{row['text_2']}", row["answer"]])
    title = "Answers that changed, the most confident first; all are in inconsistent.csv"
    columns = [Column("form"), Column("text"), Column("answer")]
    return Table(title, columns, rows, rules=range(1, len(rows), 2))


def firsts_first(changed: pl.DataFrame) -> pl.DataFrame:
    """Answers that changed, with the first one of each perturbation before all others."""
    firsts = changed.unique("perturbation", keep="first", maintain_order=True)
    rest = changed.join(
        firsts, on=changed.columns, how="anti", nulls_equal=True, maintain_order="left"
    )
    return pl.concat([firsts, rest])


def annotator_tables(
    metrics: pl.DataFrame, annotators: Sequence[str], title: str
) -> tuple[Table, Table]:
    """The numbers over annotators, and accuracy and consistency of each, in percent."""
    columns = [
        Column("metric"), Column("form"), Column("mean±std", "share"), Column(CI, "share"),
        Column("counted", "count"), Column("left out", "count"),
    ]  # fmt: skip
    rows: list[list[Value]] = []
    by_annotator: dict[str, list[Value]] = {name: [name] for name in annotators}
    annotator_columns = [Column("annotator")]
    for name in ("accuracy", "consistency", "pairwise_agreement", "fleiss_kappa"):
        for row in metrics.filter(pl.col("metric") == name).iter_rows(named=True):
            if row["group"] in by_annotator:
                by_annotator[row["group"]].append(row["value"])
                continue
            form = "original" if row["subset"] == "all" else row["subset"]
            counts = [row["n"], row["n_excluded"]]
            rows.append([label_of(name), form, *estimate(row, std=True), *counts])
            if name in ("accuracy", "consistency"):
                annotator_columns.append(Column(f"{label_of(name)} {form}", "share"))
    by_person = "each annotator: right, and the same as in the original, in percent"
    return (
        Table(title, columns, rows),
        Table(by_person, annotator_columns, list(by_annotator.values())),
    )
