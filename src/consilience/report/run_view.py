"""What a report knows of a run, with its tables of factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from consilience.analysis.examples import EXAMPLES
from consilience.analysis.factor_effects import FactorTables
from consilience.core.errors import Protocol
from consilience.core.factors import FACTORS
from consilience.core.schemas import METRICS_SCHEMA
from consilience.core.text import counted
from consilience.report.columns import Columns, frame_table
from consilience.report.summary import Summary
from consilience.report.table import CI, Column, Table
from consilience.types import Suite

NOISE = "noise"  # the rows of pairs that differ in nothing about the question

EXACT: Columns = {
    "answer_main": Column("answer: main effect", "share", "answer: main"),
    "answer_total": Column("answer: total effect", "share", "answer: total"),
    ("answer_low", "answer_high"): Column(CI, "share", is_extra=True),
    "correctness_main": Column("correctness: main effect", "share", "correct: main", is_extra=True),
    "correctness_total": Column("correctness: total effect", "share", "correct: total"),
    ("correctness_low", "correctness_high"): Column(CI, "share", is_extra=True),
}
"""Shares of the variation, of a design whose variance components are known."""

CONSISTENCY: Columns = {
    "factor": Column("factor"),
    "levels": Column("levels", "count", is_extra=True),
    "n": Column("pairs", "count", is_extra=True),
    "value": Column("consistency", "share"),
    ("low", "high"): Column(CI, "share"),
    "chance": Column("expected by chance", "share", "expected"),
    "corrected": Column("corrected", "share"),
    ("corrected_low", "corrected_high"): Column(CI, "share", is_extra=True),
}
"""Agreement of the pairs that differ in one factor only."""

OF_CONSISTENCY = (
    "consistency: agreement of variants that differ in this factor only; expected by chance: of "
    "answers that follow the shown position, or of open questions those to other questions"
)
OF_SHARES = (
    "main effect: share of the variation of answers over variants that the factor makes alone; "
    "total effect: with every interaction that it is part of; main effects and interactions of the "
    "answer sum to 100"
)

OUTCOMES = ("answer", "correctness")


@dataclass(frozen=True, slots=True)
class FactorView:
    """What is shown of the factors of one run."""

    name: str
    tables: FactorTables
    noise: pl.DataFrame
    """The noise floor that the run measured (``METRICS_SCHEMA``); empty for none."""

    @property
    def is_exact(self) -> bool:
        """Whether main effects and interactions are known."""
        return "main" in self.tables.components["effect"]


def factor_table(views: Sequence[FactorView], title: str) -> Table:
    """A row a factor of each run, then interactions, the difference of items and noise."""
    is_exact = all(view.is_exact for view in views)
    columns = {**CONSISTENCY, **(EXACT if is_exact else {})}

    def records_of(view: FactorView) -> Iterator[dict[str, Any]]:
        yield from factor_records(view)
        for count, value in view.noise.select("n", "value").iter_rows():
            yield {"factor": NOISE, "n": count, "value": 1 - value}

    notes = [OF_CONSISTENCY, *([OF_SHARES] if is_exact else [])]
    notes += _by_view(views, _variation_note) + _by_view(views, _range_note)
    return _table(views, title, columns, records_of, notes)


def _table(
    views: Sequence[FactorView],
    title: str,
    columns: Columns,
    records_of: Callable[[FactorView], Iterable[Mapping[str, Any]]],
    notes: Sequence[str] = (),
    *,
    sortable: bool = False,
) -> Table:
    """The rows of each run, in blocks where there are several."""
    rows = [(view.name, row) for view in views for row in records_of(view)]
    blocks = [name for name, _ in rows] if len(views) > 1 else []
    return frame_table([row for _, row in rows], title, columns, notes, blocks, sortable=sortable)


def _by_view(
    views: Sequence[FactorView], notes_on: Callable[[FactorView], Iterable[str]]
) -> list[str]:
    """Notes on each run, with its name where there are several."""
    return [
        f"{view.name}: {note}" if len(views) > 1 else note
        for view in views
        for note in notes_on(view)
    ]


def factor_verdict(views: Sequence[FactorView]) -> list[str]:
    """Which factor changes the answers most, in sentences; one sentence a run of several."""
    return _by_view(views, lambda view: [*_most_changed(view)][: 1 if len(views) > 1 else None])


def view_notes(views: Sequence[FactorView]) -> list[str]:
    """What a reader of the tables of factors should know."""
    return _by_view(views, lambda view: view.tables.notes)


def factor_records(view: FactorView) -> Iterator[dict[str, Any]]:
    """The rows of a run by the names of the columns."""
    parts = parts_of(view.tables)
    for row in view.tables.consistency.to_dicts():
        for outcome in OUTCOMES if view.is_exact else ():
            total = parts[outcome, "total", row["factor"]]
            row[f"{outcome}_total"] = total["share"]
            row[f"{outcome}_low"], row[f"{outcome}_high"] = total["share_low"], total["share_high"]
            row[f"{outcome}_main"] = parts[outcome, "main", row["factor"]]["share"]
        yield row
    known = [outcome for outcome in OUTCOMES if (outcome, "interactions", "") in parts]
    if known:
        mains = {f"{of}_main": parts[of, "interactions", ""]["share"] for of in known}
        yield {"factor": "interactions", **mains}


def parts_of(tables: FactorTables) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The rows of the components by outcome, effect and factors."""
    rows = tables.components.iter_rows(named=True)
    return {(row["outcome"], row["effect"], row["factors"]): row for row in rows}


def _variation_note(view: FactorView) -> Iterator[str]:
    if not view.is_exact:
        return
    parts = parts_of(view.tables)
    shares = []
    for outcome in OUTCOMES:
        row = parts[outcome, "within questions", ""]
        known = f" (95 % CI {100 * row['low']:.1f} to {100 * row['high']:.1f})"
        shares.append(f"{100 * row['value']:.1f} %" + known * (not math.isnan(row["low"])))
    yield (
        f"two variants of a question, chosen at random, have different answers in {shares[0]} of "
        f"the draws, and only one of the two is right in {shares[1]}"
    )


def _range_note(view: FactorView) -> Iterator[str]:
    for row in view.tables.indices.filter(pl.col("lowest") != pl.col("highest")).to_dicts():
        ends = []
        for end in ("lowest", "highest"):
            others = row[f"n_{end}"] - 1
            ties = f" and {counted(others, 'other')}" if others > 0 else ""
            ends.append(f"{end} in {row[f'{end}_variant']}{ties} ({100 * row[end]:.1f})")
        yield (
            f"of the {counted(row['n'], 'question')} asked in all variants, accuracy is "
            f"{' and '.join(ends)}"
        )


def _most_changed(view: FactorView) -> Iterator[str]:
    """The factors by the agreement of variants that differ in one alone, the lowest first."""
    rows = view.tables.consistency.drop_nans("value").sort("value", maintain_order=True).to_dicts()
    if not rows:
        return
    first, *others = rows
    name = first["factor"]
    change, agreement = FACTORS[name].partition(":")[0], f"{100 * first['value']:.1f} %"
    if first["value"] == 1:
        yield "No factor changes an answer: variants that differ in one factor always agree."
        return
    what = f"{change[0].upper()}{change[1:]} ({name})"
    is_alone = any(other["value"] > first["value"] for other in others[:1])
    yield (
        f"{what} changes answers{' most' * is_alone}: variants that differ in nothing else "
        f"agree in {agreement} of pairs."
    )
    if others:
        named = [f"{100 * row['value']:.1f} % for {row['factor']}" for row in others]
        overlaps = others[0]["low"] <= first["high"]
        unsure = f"; the 95 % intervals of {name} and {others[0]['factor']} overlap" * overlaps
        yield f"The agreement is {', '.join(named)}{unsure}."
    for flips in view.noise["value"].drop_nans():
        if inside := [row["factor"] for row in rows if row["value"] >= 1 - flips]:
            yield (
                f"The effect of {' and '.join(inside)} is inside the noise floor: "
                f"{100 * flips:.1f} % of answers change when nothing in the prompt does."
            )


@dataclass(frozen=True, slots=True)
class RunView:
    """What is shown of one run."""

    name: str  # Its label: the model, or what the user calls the run
    record: Mapping[str, Any]  # ``run.json``; empty for a table of answers
    suite: Suite
    metrics: pl.DataFrame  # The metrics table (``METRICS_SCHEMA``)
    summary: Summary
    baseline: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=METRICS_SCHEMA))
    """The metrics table of the majority baseline."""
    warnings: Sequence[str] = ()
    unanswered: pl.DataFrame = field(default_factory=pl.DataFrame)
    """How many queries have no answer, by relation and reason: ``group, reason, len``."""
    patterns: pl.DataFrame = field(default_factory=pl.DataFrame)  # Patterns of each group

    # Of facts and questions:
    protocol: Protocol = "strict"
    edits: pl.DataFrame = field(default_factory=pl.DataFrame)  # What each kind of edit costs
    examples: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The most informative facts, by the description of their kind."""
    prompts: Mapping[tuple[str, str, str], str] = field(default_factory=dict, repr=False)
    """What was sent, by group, item and variant; of facts the pattern of each example, filled in as
    it was asked."""
    violations: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=EXAMPLES))
    factors: Sequence[FactorView] = ()  # What each factor changes, a view for each design

    # Of sentence pairs:
    changed: pl.DataFrame = field(default_factory=pl.DataFrame)  # ``CHANGED_ANSWERS_SCHEMA``

    def prompt(self, example: Any, reply: Any) -> str:
        """The prompt that was sent, or the variant where it is not kept."""
        variant: str = reply.variant
        return self.prompts.get((example.group, example.item, variant)) or variant


def together(runs: Sequence[RunView], name: str) -> pl.DataFrame:
    """A table of all runs, with ``run``; empty where no run has rows."""
    tables = {run.name: getattr(run, name) for run in runs}
    named = [table.with_columns(run=pl.lit(of)) for of, table in tables.items() if table.height]
    return pl.concat(named, how="diagonal_relaxed") if named else pl.DataFrame()


def group_names(suite: Suite) -> dict[str, str]:
    """How the page names each group: its label, with its id where a label is not unique."""
    labels = [group.label for group in suite.relations]
    names = {group.id: group.label or group.id for group in suite.relations}
    several = (group for group in suite.relations if labels.count(group.label) > 1 and group.label)
    return names | {group.id: f"{group.label} ({group.id})" for group in several}


def name_and_id(names: Mapping[str, str], group: str) -> str:
    """The name of a group with its id below it, where the name does not say it."""
    name = names.get(group, group)
    return name if group in (name, name.partition("(")[2][:-1]) else f"{name}\n{group}"


def values_of(
    metrics: pl.DataFrame, over: str, group: str = ""
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The rows of a group, or over all groups, by metric, kind and level."""
    rows = metrics.filter(over=over, group=group).iter_rows(named=True)
    return {(row["metric"], row["kind"], row["level"]): row for row in rows}
