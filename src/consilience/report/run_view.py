"""What a report shows of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.analysis.expectation_tables import EXAMPLES
from consilience.choices import Protocol
from consilience.report.factor_tables import FactorView
from consilience.report.summary import Key, Summary
from consilience.report.table import Column, Value
from consilience.sentence_pairs import Task
from consilience.types import Suite

if TYPE_CHECKING:
    import altair


BLANK = "___"
"""The object in a prompt."""


@dataclass(frozen=True, slots=True)
class FactView:
    """What is shown only of runs on facts."""

    protocol: Protocol
    """How the answers were counted."""
    by_other: pl.DataFrame
    """The metrics of the same answers by the other protocol."""
    patterns: pl.DataFrame
    """The patterns of each relation (``analysis.patterns``)."""
    pairs: pl.DataFrame
    """The pairs of patterns of each relation."""
    edits: pl.DataFrame
    """What each kind of edit costs."""
    items: pl.DataFrame
    """The agreement among the answers to each fact."""
    examples: Mapping[str, Sequence[Any]]
    """The most informative facts, by the description of their kind."""
    excluded: pl.DataFrame
    """How many questions have no answer, by relation and reason: ``group, excluded, len``."""
    prompts: Mapping[tuple[str, str, str], str] = field(default_factory=dict, repr=False)
    """What was sent, by group, item and variant; of facts the pattern of each example, filled in as
    it was asked."""
    violations: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=EXAMPLES))
    """Examples of violated expectations (``EXAMPLES``)."""
    vectors: pl.DataFrame | None = None
    """Mean V-measures and their correlations with consistency, if the run has vectors."""
    drawing: altair.Chart | None = None
    """The vectors of one relation, drawn."""

    def prompt(self, example: Any, reply: Any) -> str:
        """The prompt that was sent, or the variant where it is not kept."""
        variant: str = reply.variant
        return self.prompts.get((example.group, example.item, variant)) or variant


@dataclass(frozen=True, slots=True)
class PairView:
    """What is shown only of runs on sentence pairs."""

    task: Task
    changed: pl.DataFrame
    """The answers that a form changed (``CHANGED_ANSWERS_SCHEMA``)."""
    changes: pl.DataFrame | None = None
    """What accuracy gains or loses between forms (``FORM_CHANGE_SCHEMA``)."""
    pairs: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The agreement of each two forms (``analysis.patterns.form_tables``)."""
    patterns: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The forms."""


@dataclass(frozen=True, slots=True)
class RunView:
    """What is shown of one run, of one seed or several."""

    name: str
    """Its label: the model, or what the user calls the run."""
    records: Sequence[Mapping[str, Any]]
    """``run.json`` of each seed; empty for a table of answers."""
    suite: Suite
    """The groups and variants of its questions."""
    metrics: pl.DataFrame
    """The metrics table (``METRICS_SCHEMA``)."""
    summary: Summary
    baseline: Mapping[Key, float] = field(default_factory=dict)
    """Every metric of the majority baseline."""
    warnings: Sequence[str] = ()
    """What a reader should know."""
    facts: FactView | None = None
    """More, of a run on facts."""
    pairs: PairView | None = None
    """More, of a run on sentence pairs."""
    factors: Sequence[FactorView] = ()
    """What each factor changes, of a run on questions: a view for each design of factors."""

    @property
    def seeds(self) -> int:
        return len(self.records)


def fact_views(runs: Sequence[RunView]) -> list[tuple[str, FactView]]:
    """Names of the runs on facts, with what is shown only of them."""
    return [(run.name, run.facts) for run in runs if run.facts is not None]


def pair_views(runs: Sequence[RunView]) -> list[tuple[RunView, PairView]]:
    """The runs on sentence pairs, with what is shown only of them."""
    return [(run, run.pairs) for run in runs if run.pairs is not None]


def groups_with_forms(run: RunView) -> list[str]:
    """The groups that have numbers by form; ``MACRO`` for relations asked in forms."""
    designs = [relation.design for relation in run.suite.relations]
    if not all(design.is_averaged for design in designs):
        return run.metrics["group"].unique(maintain_order=True).to_list()
    return ["MACRO"] if any(len(design.forms) > 1 for design in designs) else []


def group_names(suite: Suite) -> dict[str, str]:
    """How the page names each group: its label, with its id where a label is not unique."""
    labels = [group.label for group in suite.relations]
    return {
        group.id: group.id
        if not group.label
        else group.label
        if labels.count(group.label) == 1
        else f"{group.label} ({group.id})"
        for group in suite.relations
    }


def name_and_id(names: Mapping[str, str], group: str) -> str:
    """The name of a group with its id below it, where the name does not say it."""
    name = names.get(group, group)
    return name if group in (name, name.partition("(")[2][:-1]) else f"{name}\n{group}"


def values_of(metrics: pl.DataFrame, group: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a group by metric and subset."""
    rows = metrics.filter(pl.col("group") == group).iter_rows(named=True)
    return {(row["metric"], row["subset"]): row for row in rows}


def relation_values(runs: Sequence[RunView], names: Sequence[str]) -> pl.DataFrame:
    """Rows of single relations of all runs; determinism goes by the name of consistency."""
    parts = [
        run.metrics.filter(~pl.col("group").is_in(["MACRO", "MICRO"]) & (pl.col("subset") == "all"))
        .with_columns(metric=pl.col("metric").replace({"determinism": "consistency"}))
        .filter(pl.col("metric").is_in(names))
        .select(pl.lit(run.name).alias("run"), "metric", "group", "value", "low", "high", "n")
        for run in runs
    ]
    return pl.concat(parts)


def without_run(
    runs: int, rows: list[list[Value]], columns: list[Column]
) -> tuple[list[list[Value]], list[Column]]:
    """Without the second column, which names the run, where there is only one."""
    if runs > 1:
        return rows, columns
    return [[row[0], *row[2:]] for row in rows], [columns[0], *columns[2:]]
