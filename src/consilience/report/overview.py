"""The sections of every report: what was asked, its numbers, and what to know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from consilience.metrics.registry import (
    DESCRIPTIONS,
    label_of,
    main_metrics,
)
from consilience.report.metric_tables import (
    form_columns,
    form_metrics,
    form_row,
    metric_column,
    other_form_metrics,
)
from consilience.report.page import Facts, Folded, Part, Points, Section, Text
from consilience.report.repeat import described
from consilience.report.run_view import (
    RunView,
    fact_views,
    groups_with_forms,
    pair_views,
    values_of,
)
from consilience.report.table import Column, Table, Value, bounds_of, estimate
from consilience.sentence_pairs import Task
from consilience.types import Suite

MOST_REASONS = 50
"""Rows of a table of questions without an answer."""


def asked(runs: Sequence[RunView]) -> Section:
    """The suite or the tasks, and the models."""
    rows = [*_suite_rows(runs)]
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        if run.pairs is not None:
            rows += _task_rows(prefix, run, run.pairs.task)
        model = (described(run.records[0]) if run.records else "") or run.name
        more_seeds = f" and {run.seeds - 1} more seeds" if run.seeds > 1 else ""
        rows.append((f"{prefix}model", model + more_seeds))
    return Section("asked", "What was asked", "", [Facts(rows)])


def _suite_rows(runs: Sequence[RunView]) -> Iterator[tuple[str, str]]:
    """What runs on facts were asked."""
    facts, suite = runs[0].facts, runs[0].suite
    if facts is None:
        return
    patterns = [len(relation.patterns) for relation in suite.relations]
    fewest, most = min(patterns), max(patterns)
    of_each = f"{most}" if fewest == most else f"{fewest} to {most}"
    counts = fact_counts(runs[0].metrics)
    relations = relations_in_words(suite)
    if len(counts) < len(suite.relations):
        relations = f"{len(counts)} of {relations}"
    several = sum(relation.cardinality == "N-M" for relation in suite.relations)
    several_in_words = f", {several} of them with several right answers" if several else ""
    total = sum(counts.values())
    yield "suite", f"{suite.name}: {total:,} facts of {relations}{several_in_words}"
    yield "patterns", f"{sum(patterns):,}, {of_each} a relation"
    yield "protocol", facts.protocol


def _task_rows(prefix: str, run: RunView, task: Task) -> Iterator[tuple[str, str]]:
    """What a run on sentence pairs was asked."""
    first, second = task.indicators
    size = int(run.metrics.filter(pl.col("metric") == "accuracy")["n"].max())  # type: ignore[arg-type]
    labels = ", ".join(task.labels)
    yield f"{prefix}task", f"{task.name} ({task.kind}), {size:,} pairs, labels {labels}"
    yield f"{prefix}original form", f"{first}: ... {second}: ..."


def subtitle_of(runs: Sequence[RunView]) -> str:
    """What was asked, in one line."""
    first = runs[0]
    if first.facts is not None:
        relations = relations_in_words(first.suite)
        return f"{first.suite.name}, {relations}, protocol {first.facts.protocol}"
    tasks = ", ".join(dict.fromkeys(pairs.task.name for _, pairs in pair_views(runs)))
    return f"{tasks}; {', '.join(_forms_of(first))}"


def relations_in_words(suite: Suite) -> str:
    """How many relations a suite has."""
    count = len(suite.relations)
    return f"{count} relation{'s' * (count != 1)}"


def fact_counts(metrics: pl.DataFrame) -> dict[str, int]:
    """How many facts of each relation were asked."""
    rows = metrics.filter((pl.col("metric") == "accuracy") & (pl.col("subset") == "all"))
    counted = rows.select("group", n=pl.col("n") + pl.col("n_excluded")).iter_rows()
    return {group: n for group, n in counted if group not in ("MACRO", "MICRO")}


def numbers(runs: Sequence[RunView]) -> Section:
    """Means over relations, a table a group with a row a form, and what the metrics mean."""
    parts: list[Part] = [*_means(runs), *_forms(runs)]
    sentences = [
        f"{name}: {facts.left_out}" if len(runs) > 1 else facts.left_out
        for name, facts in fact_views(runs)
        if facts.left_out
    ]
    parts += [Text(sentences)] if sentences else []
    parts += [_meanings(runs), *_by_both(runs)]
    intro = " ".join(filter(None, map(_in_words, runs)))
    return Section("numbers", "The numbers", intro, parts)


def _meanings(runs: Sequence[RunView]) -> Folded:
    """What the metrics of the runs mean."""
    shown: set[str] = set()
    for run in runs:
        if "MACRO" in run.metrics["group"]:
            shown.update(set(main_metrics()).intersection(run.metrics["metric"]))
        if groups_with_forms(run):
            shown.update(form_metrics(run.metrics))
    rows = [
        (description.label, description.meaning)
        for name, description in DESCRIPTIONS.items()
        if name in shown
    ]
    return Folded("What the numbers are the percentage of", [Facts(rows)])


def _means(runs: Sequence[RunView]) -> Iterator[Table]:
    """The means over relations; none of runs without any."""
    macro = [values_of(run.metrics, "MACRO") for run in runs]
    if not any(macro):
        return
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
    yield Table(title, columns, rows, sortable=False)


def _relations_of_mean(macro: Mapping[Any, Mapping[str, Any]]) -> int:
    """How many relations most means are over: those with a consistency, if any."""
    names = ("consistency", "accuracy", "determinism")
    counts = [macro.get((name, "all"), {}).get("n", 0) for name in names]
    return int(next((count for count in counts if count), 0))


def _by_both(runs: Sequence[RunView]) -> Iterator[Folded]:
    """The same answers of runs on facts counted by both protocols."""
    for run in runs:
        if run.facts is None:
            continue
        protocol = run.facts.protocol
        other = "strict" if protocol == "published" else "published"
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


def _in_words(run: RunView) -> str:
    """The main numbers of a run as a sentence; empty without data."""
    return _facts_in_words(run) if run.facts is not None else _pairs_in_words(run)


def _facts_in_words(run: RunView) -> str:
    values = values_of(run.metrics, "MACRO")
    numbers = {name: values.get((name, "all"), {}).get("value", math.nan) for name in CLAUSES}
    clauses = [
        CLAUSES[name].format(_whole(value))
        for name, value in numbers.items()
        if not math.isnan(value)
    ]
    if not clauses:
        return ""
    relations = _relations_of_mean(values)
    mean = f"On average over {relations} relations, " if relations > 1 else ""
    *first, last = clauses
    return f"{mean}{run.name} {', '.join(first)}{' and ' * bool(first)}{last}."


def _pairs_in_words(run: RunView) -> str:
    group = run.suite.relations[0].id
    values = values_of(run.metrics, group)
    numbers = {
        form: values.get(("consistency", form), {}).get("value", math.nan)
        for form in _forms_of(run)
    }
    clauses = [
        f"{_whole(value)} of its labels in the form {form}"
        for form, value in numbers.items()
        if not math.isnan(value)
    ]
    if not clauses:
        return ""
    accuracy = _whole(values["accuracy", "all"]["value"])
    return f"{run.name} is right in {accuracy} of the pairs and keeps {' and '.join(clauses[:2])}."


def _whole(value: float) -> str:
    return f"{value * 100:.0f} %"


def _forms(runs: Sequence[RunView]) -> Iterator[Part]:
    """A table with a row a form for each group, or for the means over relations."""
    for run in runs:
        for group in groups_with_forms(run):
            seeds = f", means and std of {run.seeds} seeds" if run.seeds > 1 else ""
            name = "means over relations by form" if group == "MACRO" else group
            metrics = run.metrics.filter(pl.col("group") == group)
            others = other_form_metrics(metrics)
            values = values_of(metrics, group)
            rows = [
                form_row(values, form, others, std=run.seeds > 1)
                for form in metrics["subset"].unique(maintain_order=True)
            ]
            columns = form_columns() + [metric_column(name) for name in others]
            yield Table(f"{run.name}, {name}{seeds}, in percent", columns, rows)
            if run.pairs is not None and run.pairs.changes is not None:
                changes = run.pairs.changes.filter(pl.col("group") == group)
                yield from _accuracy_changes(f"{run.name}, {group}", changes)


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


def _forms_of(run: RunView) -> list[str]:
    """The forms of a run besides the original one."""
    forms = run.metrics["subset"].unique(maintain_order=True).to_list()
    return [form for form in forms if form != "all"]


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
