"""The sections of every report: what was asked, its numbers, and what to know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.descriptions import (
    DESCRIPTIONS,
    label_of,
    main_metrics,
)
from consilience.report.metric_tables import (
    form_columns,
    form_row,
    metric_column,
    other_form_metrics,
)
from consilience.report.page import Facts, Folded, Part, Points, Section, Text
from consilience.report.repeat import described
from consilience.report.run_view import RunView, fact_views, values_of
from consilience.report.table import Column, Table, Value, bounds_of, estimate
from consilience.types import Protocol, Suite

MOST_REASONS = 50
"""Rows of a table of questions without an answer."""


def facts_asked(suite: Suite, protocol: Protocol, runs: Sequence[RunView]) -> Section:
    """The suite and the models of runs on facts."""
    patterns = [len(relation.patterns) for relation in suite.relations]
    fewest, most = min(patterns), max(patterns)
    of_each = f"{most}" if fewest == most else f"{fewest} to {most}"
    counts = fact_counts(runs[0].metrics)
    relations = relations_in_words(suite)
    if len(counts) < len(suite.relations):
        relations = f"{len(counts)} of {relations}"
    several = sum(relation.cardinality == "N-M" for relation in suite.relations)
    several_in_words = f", {several} of them with several right answers" if several else ""
    rows = [
        ("Suite", f"{suite.name}: {sum(counts.values()):,} facts of {relations}{several_in_words}"),
        ("Patterns", f"{sum(patterns):,}, {of_each} a relation"),
        ("Counted", f"by the protocol {protocol}"),
    ]
    for run in runs:
        name = run.name if len(runs) > 1 else "Model"
        rows.append((name, (described(run.records[0]) if run.records else "") or run.name))
    return Section("asked", "What was asked", "", [Facts(rows)])


def relations_in_words(suite: Suite) -> str:
    """How many relations a suite has."""
    count = len(suite.relations)
    return f"{count} relation{'s' * (count != 1)}"


def fact_counts(metrics: pl.DataFrame) -> dict[str, int]:
    """How many facts of each relation were asked."""
    rows = metrics.filter((pl.col("metric") == "accuracy") & (pl.col("subset") == "all"))
    counted = rows.select("group", n=pl.col("n") + pl.col("n_excluded")).iter_rows()
    return {group: n for group, n in counted if group not in ("MACRO", "MICRO")}


def pairs_asked(runs: Sequence[RunView]) -> Section:
    """The tasks and the models of runs on sentence pairs."""
    rows = []
    for run in runs:
        if run.pairs is None:
            continue
        task = run.pairs.task
        first, second = task.indicators
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        size = int(run.metrics.filter(pl.col("metric") == "accuracy")["n"].max())  # type: ignore[arg-type]
        more_seeds = f" and {run.seeds - 1} more seeds" if run.seeds > 1 else ""
        labels = ", ".join(task.labels)
        rows += [
            (f"{prefix}task", f"{task.name} ({task.kind}), {size:,} pairs, labels {labels}"),
            (f"{prefix}original form", f"{first}: ... {second}: ..."),
            (f"{prefix}model", described(run.records[0]) + more_seeds),
        ]
    return Section("asked", "What was asked", "", [Facts(rows)])


def meanings(runs: Sequence[RunView]) -> Folded:
    """What the metrics of the runs mean."""
    present = set[str]().union(*(run.metrics["metric"].unique() for run in runs))
    rows = [
        (label_of(name), DESCRIPTIONS[name].meaning) for name in main_metrics() if name in present
    ]
    return Folded("What the numbers are the percentage of", [Facts(rows)])


def fact_numbers(runs: Sequence[RunView], protocol: Protocol) -> Section:
    """Means over relations: in words, as a table, and by the other protocol."""
    macro = [values_of(run.metrics, "MACRO") for run in runs]
    names = [name for name in main_metrics() if any((name, "all") in values for values in macro)]
    rows: list[list[Value]] = []
    for name in names:
        row: list[Value] = [label_of(name)]
        for values in macro:
            numbers = values.get((name, "all"))
            row += estimate(numbers, std=len(runs) == 1)
            row.append(numbers["n"] if numbers else None)
        rows.append(row)
    columns = [Column("number")]
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        columns += [Column(f"{prefix}{heading}", "share") for heading in ("mean", "95 %")]
        columns.append(Column(f"{prefix}relations", "count"))
    title = "Means over relations, in percent. The interval is that of relations like these."
    if all(_relations_of_mean(values) == 1 for values in macro):
        title = "One relation, in percent. The interval is that of facts like these."
    sentences = [
        f"{name}: {facts.left_out}" if len(runs) > 1 else facts.left_out
        for name, facts in fact_views(runs)
        if facts.left_out
    ]
    parts: list[Part] = [Table(title, columns, rows, sortable=False)]
    parts += [Text(sentences)] if sentences else []
    parts += [meanings(runs), *_by_both(runs, protocol)]
    return Section("numbers", "The numbers", _facts_in_words(runs, macro), parts)


def _relations_of_mean(macro: Mapping[Any, Mapping[str, Any]]) -> int:
    """How many relations most means are over: those with a consistency, if any."""
    names = ("consistency", "accuracy", "determinism")
    counts = [macro.get((name, "all"), {}).get("n", 0) for name in names]
    return int(next((count for count in counts if count), 0))


def _by_both(runs: Sequence[RunView], protocol: Protocol) -> Iterator[Folded]:
    """The same answers counted by both protocols."""
    other = "strict" if protocol == "published" else "published"
    for run in runs:
        if run.facts is None:
            continue
        both = values_of(run.metrics, "MACRO"), values_of(run.facts.by_other, "MACRO")
        rows: list[list[Value]] = []
        for name in main_metrics():
            first, second = (
                values.get((name, "all"), {}).get("value", math.nan) for values in both
            )
            if not (math.isnan(first) and math.isnan(second)):
                rows.append([label_of(name), first, second, second - first])
        subject = f"{run.name}: the same" if len(runs) > 1 else "The same"
        title = f"{subject} answers counted by the protocol {other}"
        columns = [
            Column("number"), Column(protocol, "share"), Column(other, "share"),
            Column("points", "points"),
        ]  # fmt: skip
        yield Folded(title, [Table(f"{title}, in percent", columns, rows, sortable=False)])


CLAUSES = {
    "consistency": "gives the same answer to {} of the pairs of patterns of a fact",
    "accuracy": "gets {} of the facts right in the base pattern",
    "consistent_accuracy": "gets {} right in every pattern",
}
"""What the means over relations say."""


def _facts_in_words(
    runs: Sequence[RunView], macro: Sequence[Mapping[Any, Mapping[str, Any]]]
) -> str:
    sentences = []
    for run, values in zip(runs, macro, strict=True):
        numbers = {name: values.get((name, "all"), {}).get("value", math.nan) for name in CLAUSES}
        clauses = [
            CLAUSES[name].format(_whole(value))
            for name, value in numbers.items()
            if not math.isnan(value)
        ]
        if clauses:
            relations = _relations_of_mean(values)
            mean = f"On average over {relations} relations, " if relations > 1 else ""
            *first, last = clauses
            sentences.append(f"{mean}{run.name} {', '.join(first)}{' and ' * bool(first)}{last}.")
    return " ".join(sentences)


def _whole(value: float) -> str:
    return f"{value * 100:.0f} %"


def pair_numbers(runs: Sequence[RunView]) -> Section:
    """A table a task with a row a form: in words, and what accuracy gains or loses."""
    parts: list[Part] = []
    for run in runs:
        for group in run.metrics["group"].unique(maintain_order=True):
            seeds = f", means and std of {run.seeds} seeds" if run.seeds > 1 else ""
            title = f"{run.name}, {group}{seeds}, in percent"
            metrics = run.metrics.filter(pl.col("group") == group)
            others = other_form_metrics(metrics)
            columns = form_columns() + [metric_column(name) for name in others]
            values = values_of(metrics, group)
            rows = [
                form_row(values, form, others, std=run.seeds > 1)
                for form in metrics["subset"].unique(maintain_order=True)
            ]
            parts.append(Table(title, columns, rows))
            if run.pairs is not None and run.pairs.changes is not None:
                changes = run.pairs.changes.filter(pl.col("group") == group)
                parts += _accuracy_changes(f"{run.name}, {group}", changes)
    parts.append(meanings(runs))
    return Section("numbers", "The numbers", _pairs_in_words(runs), parts)


def _accuracy_changes(name: str, changes: pl.DataFrame) -> list[Part]:
    """What accuracy gains or loses against the original form, and folded between other forms."""
    columns = [
        Column("from"), Column("to"), Column("Accuracy", "share"),
        Column("Accuracy there", "share"), Column("points", "points"), Column("95 %", "points"),
        Column("test"), Column("p", "p"), Column("p, Holm", "p"),
    ]  # fmt: skip
    parts: list[Part] = []
    if changes.is_empty():
        return parts
    from_original = pl.col("first") == changes["first"][0]
    for chosen, where in (
        (changes.filter(from_original), "against the original form"),
        (changes.filter(~from_original), "between the other forms"),
    ):
        rows: list[list[Value]] = [
            [
                row["first"], row["second"], row["first_accuracy"], row["second_accuracy"],
                row["change"], bounds_of(row, "change_low", "change_high"), row["test"], row["p"],
                row["p_holm"],
            ]
            for row in chosen.to_dicts()
        ]  # fmt: skip
        table = Table(f"{name}: change of accuracy {where}, the same items", columns, rows)
        if rows:
            parts.append(Folded(table.title, [table]) if parts else table)
    return parts


def forms_of(run: RunView) -> list[str]:
    """The forms of a run besides the original one."""
    forms = run.metrics["subset"].unique(maintain_order=True).to_list()
    return [form for form in forms if form != "all"]


def _pairs_in_words(runs: Sequence[RunView]) -> str:
    sentences = []
    for run in runs:
        if run.pairs is None:
            continue
        values = values_of(run.metrics, run.pairs.task.name)
        numbers = {
            form: values.get(("consistency", form), {}).get("value", math.nan)
            for form in forms_of(run)
        }
        clauses = [
            f"{_whole(value)} of its labels in the form {form}"
            for form, value in numbers.items()
            if not math.isnan(value)
        ]
        if clauses:
            accuracy = _whole(values["accuracy", "all"]["value"])
            sentences.append(
                f"{run.name} is right in {accuracy} of the pairs and keeps "
                f"{' and '.join(clauses[:2])}."
            )
    return " ".join(sentences)


def care(runs: Sequence[RunView]) -> Section:
    """What was left out, what a reader should know, and the noise floor of runs on facts."""
    parts: list[Part] = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        if run.warnings:
            parts.append(Points([f"{prefix}{warning}" for warning in run.warnings]))
        if run.facts is not None:
            parts += [_unanswered(prefix, run.facts.excluded), _noise_floor(prefix, run.metrics)]
    if not parts:
        parts.append(Text(["Nothing was left out."]))
    intro = "What was left out or truncated, what a reader should know, and the noise floor."
    return Section("care", "With care", intro, parts)


def _unanswered(prefix: str, excluded: pl.DataFrame) -> Part:
    """The questions without an answer, by reason."""
    total = int(excluded["len"].sum())
    if not total:
        return Text(
            [f"{prefix}{'every' if prefix else 'Every'} question that was asked has an answer."]
        )
    rows = [
        [row["group"], row["excluded"], row["len"]]
        for row in excluded.sort("len", descending=True).head(MOST_REASONS).to_dicts()
    ]
    title = f"{prefix}{total:,} questions without an answer"
    if excluded.height > MOST_REASONS:
        title += f", the {MOST_REASONS} most common reasons"
    columns = [Column("relation"), Column("why"), Column("questions", "count")]
    return Folded(title, [Table(title, columns, rows)])


def _noise_floor(prefix: str, metrics: pl.DataFrame) -> Part:
    """How many answers changed when nothing about the question did."""
    flips = metrics.filter(pl.col("metric") == "flips").to_dicts()
    if not flips:
        the = f"{prefix}the" if prefix else "The"
        return Text([f"{the} noise floor was not measured (probe --noise-floor)."])
    rows = [[row["subset"].replace("_", " "), row["value"], row["n"]] for row in flips]
    title = f"{prefix}noise floor: answers of a sample that changed when only this changed"
    columns = [Column("changed"), Column("flips", "share"), Column("asked twice", "count")]
    return Table(title, columns, rows, sortable=False)
