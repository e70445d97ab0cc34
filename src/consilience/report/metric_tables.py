"""The metrics of a run on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import (
    DESCRIPTIONS,
    METRICS,
    label_of,
    main_metrics,
    short_label_of,
)
from consilience.report.table import (
    Cell,
    Column,
    Table,
    Value,
    bounds_of,
    estimate,
    interval_notes,
)
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
    """One row a relation, one column a metric; ``determinism`` in the column of consistency."""
    rows = metrics.filter(pl.col("subset") == "all").select("metric", "group", "value")
    values = {(metric, group): value for metric, group, value in rows.iter_rows()}
    measured = [name for name in main_metrics() if name in metrics["metric"]]
    measured_as = {DESCRIPTIONS[name].alias_of or name for name in measured}
    names = [name for name in main_metrics() if name in measured_as]
    relations = [relation for relation in suite.relations if relation.id in set(rows["group"])]
    cells: list[list[Value]] = []
    for relation in relations:
        row: list[Value] = [relation.id]
        for name in names:
            if name == "consistency" and relation.cardinality == "N-M":
                row.append(Cell(values.get(("determinism", relation.id)), mark="*"))
            else:
                row.append(values.get((name, relation.id)))
        cells.append(row)
    note = "* determinism: a relation with several right answers, not in the means"
    is_marked = any(relation.cardinality == "N-M" for relation in suite.relations)
    return Table(
        f"{suite.name}: each relation, in percent",
        [Column("relation"), *map(metric_column, names)],
        cells,
        [note] if is_marked else [],
    )


def summary_table(metrics: pl.DataFrame, title: str, note: str = "") -> Table:
    """One row a metric: mean and standard deviation over relations, and all counts together.

    The interval is that of the mean. Indented: consistency over the pairs of patterns that differ
    in that way. Flips: answers of a sample that changed when nothing about the question did.
    ``note``: a line below the table.
    """
    macro, micro = (
        {(row["metric"], row["subset"]): row for row in rows.iter_rows(named=True)}
        for rows in (metrics.filter(pl.col("group") == name) for name in ("MACRO", "MICRO"))
    )
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
            rows.append([label, "", "", "", row["value"], row["n"], row["n_excluded"]])
    columns = [
        Column("metric"), Column("mean ± std", "share"), Column("95 %", "share"),
        Column("relations", "count"), Column("pooled", "share"), Column("counted", "count"),
        Column("left out", "count"),
    ]  # fmt: skip
    known = metrics.filter((pl.col("group") == "MACRO") & pl.col("value").is_not_nan())
    notes = [note] if note else []
    return Table(title, columns, rows, notes + interval_notes(known))


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


def form_tables(metrics: pl.DataFrame, title: str) -> Iterator[Table]:
    """One model on one task, a row a form: intervals over items, then those over seeds.

    ``metrics``: the rows of one group.
    """
    values = {(row["metric"], row["subset"]): row for row in metrics.iter_rows(named=True)}
    forms = metrics["subset"].unique(maintain_order=True).to_list()
    others = other_form_metrics(metrics)
    columns = form_columns() + [metric_column(name) for name in others]
    rows = [form_row(values, form, others) for form in forms]
    yield Table(title, columns, rows)
    seeds = max(row["seeds"] for row in values.values())
    if seeds > 1:
        over_seeds = {
            key: row | {"low": row["seed_low"], "high": row["seed_high"]}
            for key, row in values.items()
        }
        rows = [form_row(over_seeds, form, [], std=True) for form in forms]
        title = f"over {seeds} seeds: mean ± std, and the interval of the mean"
        yield Table(title, form_columns(), rows)


def form_columns() -> list[Column]:
    """The columns of a table with a row a form: accuracy and consistency with intervals."""
    interval = Column("95 %", "share")
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

    def of_form(name: str) -> Mapping[str, Any] | None:
        """The row of a metric; None of one that holds the original form against itself."""
        known = form != "all" or METRICS[name].one_form
        return values.get((name, form)) if known else None

    row: list[Value] = ["original" if form == "all" else form]
    for name in ("accuracy", "consistency"):
        row += estimate(of_form(name), std=std)
    return [*row, *(estimate(of_form(name))[0] for name in others)]


def change_table(changes: pl.DataFrame) -> Table:
    """What accuracy gains or loses in each form of one group, against the original form.

    ``changes``: ``FORM_CHANGE_SCHEMA``; the other pairs of forms are not shown.
    """
    rows = changes.filter(pl.col("first") == changes["first"][0]) if changes.height else changes
    columns = [
        Column("form"), Column("original", "share"), Column("form", "share"),
        Column("points", "points"), Column("95 %", "points"), Column("p, Holm", "p"),
    ]  # fmt: skip
    cells: list[list[Value]] = [
        [
            row["second"], row["first_accuracy"], row["second_accuracy"], row["change"],
            bounds_of(row, "change_low", "change_high"), row["p_holm"],
        ]
        for row in rows.iter_rows(named=True)
    ]  # fmt: skip
    tests = ", ".join(rows["test"].unique(maintain_order=True))
    note = f"p: {tests}, adjusted over forms, the interval is not; all pairs are in changes.csv"
    return Table(
        "accuracy in the original form and in another, the same items",
        columns,
        cells,
        [note, *interval_notes(rows, "change_low")],
    )


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
        Column("metric"), Column("form"), Column("mean ± std", "share"), Column("95 %", "share"),
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
