"""Count the answers of one run: its metrics, its headline numbers, and the notes on both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, reason_of
from consilience.core.schemas import FLIPS, METRICS_SCHEMA
from consilience.files.read import read_csv
from consilience.files.tables import different
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.counts import (
    Answers,
    Prepared,
    ResampleCache,
    empty_value,
    is_averaged,
    prepared,
    prepared_seeds,
    unchecked_note,
)
from consilience.metrics.differences import form_changes
from consilience.metrics.measure import facts_left_out, measure, notes_on
from consilience.metrics.registry import Share
from consilience.report.summary import NO_OPTION, Key, Summary, SummaryRow, summarize
from consilience.report.table import NAN
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run
from consilience.suites.facts import select_relations
from consilience.types import Relation, Suite


@dataclass(frozen=True)
class CountedRun:
    """Answers and their numbers; those of several seeds are averaged."""

    suite: Suite
    protocol: Protocol
    answers: Sequence[Prepared]
    bootstrap_seed: int  # The seed of intervals and tests
    metrics: pl.DataFrame
    baseline: Mapping[Key, float]
    summary: Summary
    left_out: str  # How many facts the accuracy is over, where it is not over all of them
    notes: Sequence[str]
    record: Mapping[str, Any] = field(default_factory=dict)
    """Settings, versions and the like, for a JSON document."""
    changed_answers: pl.DataFrame | None = None
    """Of sentence pairs: every answer that a perturbation changed."""

    @cached_property
    def changes(self) -> pl.DataFrame:
        """What accuracy loses or gains between forms (``FORM_CHANGE_SCHEMA``)."""
        return form_changes(self.answers, self.suite, self.protocol, self.bootstrap_seed)


def count_run(
    run: Run,
    suite: Suite,
    protocol: Protocol,
    seed: int = 0,
    answers: Sequence[Answers] | None = None,
) -> CountedRun:
    """The numbers of a run with its noise floor; ``answers``: of each seed, if prepared."""
    names = [part.label if run.parts else "" for part in run.seeds]
    tables = answers or run.tables
    by_seed = dict(zip(names, tables, strict=True))
    floor, groups = noise_floor_of(run.path), run.settings.get("groups") or ()
    return count_answers(by_seed, suite, protocol, run.label, seed, floor, groups)


def count_answers(
    answers: Mapping[str, Answers],
    suite: Suite,
    protocol: Protocol,
    model: str,
    seed: int = 0,
    noise_floor: pl.DataFrame | None = None,
    groups: Sequence[str] = (),
) -> CountedRun:
    """The numbers of answers, and notes on them.

    ``answers``: those of each seed by its name, which is "" for a single run. ``model``: what the
    summary calls the model. ``seed``: that of the bootstrap. ``noise_floor``: further rows of the
    metrics table. ``groups``: those that were asked; others are in no note.
    """
    ids = [group.id for group in suite if group.id in groups]
    chosen = select_relations(suite, ids) if ids else suite
    cache = ResampleCache() if len(answers) > 1 else None
    tables = prepared_seeds(list(answers.values()), suite, cache)
    metrics = measure(tables, suite, protocol, seed)
    by_seed = [metrics]
    if len(tables) > 1:
        by_seed = [measure(table, suite, protocol, seed) for table in tables]
    notes = dict[str, list[str]]()
    is_of_items, first = suite.words.is_pooled, tables[0].answers
    for name, table, numbers in zip(answers, tables, by_seed, strict=True):
        notes[name] = notes_on(table, numbers, chosen)
        notes[name] += unchecked_note(suite, table.instances) if suite.expectations else ()
    left_out = facts_left_out(metrics, suite)
    cautions = [left_out] * bool(left_out)
    baseline = majority_baseline(tables[0], suite, protocol)
    if noise_floor is not None:
        metrics = pl.concat([metrics, noise_floor], how="diagonal")
    of_items = first.lazy().group_by("group", "item").len()
    sizes = of_items.collect(engine="streaming")["len"].sort()
    fewest = sizes.head(1).to_list() if is_of_items else ()  # variants of a question
    summary = summarize(metrics, chosen, protocol, model, baseline, by_seed, cautions, fewest)
    if is_of_items:
        rows = [*summary.rows, *_no_option([table.answers for table in tables])]
        summary = replace(summary, rows=rows)
    return CountedRun(
        suite, protocol, tables, seed, metrics, baseline, summary, left_out, seed_notes(notes)
    )


def _no_option(seeds: Sequence[pl.DataFrame]) -> Iterator[SummaryRow]:
    """The share of written answers that are none of the options, where some are."""
    item = ["group", "item"]
    if not {"text", "unmatched", "gold_option"} <= set(seeds[0].columns):
        return
    items = different(seeds[0], *item).sort(item)
    is_written = pl.col("text").is_not_null() & pl.col("gold_option").is_not_null()
    is_unmatched = pl.col("unmatched").is_not_null().cast(pl.Float64)
    counts = [
        answers.lazy()
        .filter(is_written)
        .group_by(item)
        .agg(is_unmatched.sum(), size=pl.len() + 0.0)
        .collect(engine="streaming")
        for answers in seeds
    ]
    numbers = [
        items.join(of_seed, on=item, how="left", maintain_order="left").drop(item).to_numpy()
        for of_seed in counts
    ]
    share = item_estimates(
        [{NO_OPTION: ItemNumbers(columns)} for columns in numbers],
        np.arange(items.height).astype(object),
        0,
    )[NO_OPTION]
    if share.value > 0:
        yield SummaryRow(
            label="No option", metric=NO_OPTION, subset="all", value=share.value, std=NAN,
            low=share.low, high=share.high, baseline=NAN,
            meaning="written answers that are no option",
        )  # fmt: skip


NOT_FINISHED = (
    "not finished: the numbers are of the existing answers; rerun the same command to resume"
)


def save_counted(counted: CountedRun, folder: RunFolder) -> CountedRun:
    """Save the metrics and the notes of a run in its folder; the counted run with its record.

    Notes on the numbers of a run that is not finished are not kept: it gets other numbers.
    """
    folder.finish(counted.metrics)
    if is_finished := folder.record["finished"] is not None:
        folder.note(counted.notes)
    record = {**folder.record, "path": str(folder.path)}
    notes = record["warnings"]
    if not is_finished:
        notes = [NOT_FINISHED, *counted.notes, *notes]
    return replace(counted, notes=notes, record=record)


def noise_floor_of(run: Path) -> pl.DataFrame | None:
    """The noise floor that the run in a folder measured, as rows of the metrics table."""
    file = run / "metrics.csv"
    if not file.is_file():
        return None
    metrics = read_csv(file)
    try:
        rows = metrics.filter(pl.col("metric") == FLIPS)
        return rows.select(pl.col(name).cast(kind) for name, kind in METRICS_SCHEMA.items())
    except pl.exceptions.PolarsError as error:
        found = f"a damaged table of metrics: {reason_of(error)}"
        todo = "Give the command of the run again, which writes it anew."
        raise ConsilienceError(found, where=str(file), todo=todo) from error


def record_notes(run: Run) -> list[str]:
    """The notes in the record of a run, and whether it has not ended."""
    by_seed = {}
    for part in run.seeds:
        notes = list(part.record.get("warnings", []))
        if part.record and not part.record.get("finished"):
            notes.insert(0, NOT_FINISHED)
        by_seed[part.label if run.parts else ""] = notes
    return seed_notes(by_seed)


def seed_notes(by_seed: Mapping[str, Sequence[str]]) -> list[str]:
    """Each note once; a note on some seeds only names them.

    ``by_seed``: the notes of each seed by its name; those of the name "" are about all of them.
    """
    seeds = [name for name in by_seed if name]
    notes = dict.fromkeys(note for noted in by_seed.values() for note in noted)
    having = {note: [name for name in seeds if note in by_seed[name]] for note in notes}
    return [
        note
        if note in by_seed.get("", ()) or len(names) == len(seeds)
        else f"{', '.join(names)}: {note}"
        for note, names in having.items()
    ]


QUERY_COLUMNS = (
    "group", "item", "subject", "variant", "variant_index", "gold", "gold_option", "n_candidates",
)  # fmt: skip
"""Columns of a prepared table that do not depend on the model."""


def majority_baseline(answers: Answers, suite: Suite, protocol: Protocol) -> dict[Key, float]:
    """Every metric of the majority baseline, by group, metric and subset; no model is loaded.

    The baseline answers the queries of ``answers`` that have an answer: of a relation with its most
    frequent object, as ``baseline:majority`` does, of a task with the most frequent label of its
    sentence pairs, and of questions with the option at the most frequent position of the gold in
    the file. The group ``MACRO`` has the means over groups, ``MICRO`` all their items together.
    """
    run, none = prepared(answers, suite), pl.lit(None, pl.Categorical)

    def answered(group: Relation) -> pl.DataFrame:
        rows = run.coded_rows(group.id)
        word = pl.lit(_most_frequent(group, rows)).cast(pl.Categorical)
        answer = pl.when(pl.col("answer").is_not_null()).then(word)
        columns = {"answer": answer, "option": answer, "gold_token": none}
        return rows.select(*QUERY_COLUMNS, **columns)

    whole = None  # Expectations are between groups; else one is in memory at once
    if suite.expectations:
        whole = Prepared(run.answers, suite, coded=pl.concat(map(answered, run.relations)))
    values: dict[Key, float] = {}
    averaged: dict[Key, list[float]] = {}
    pooled: dict[Key, Share] = {}
    for group in run.relations:
        table = whole or Prepared(run.answers, suite, coded=answered(group))
        for (metric, subset), tally in table.tallies(group, protocol).items():
            share = tally.share(empty_value((metric, subset), protocol))
            values[group.id, metric, subset] = share.value
            if not is_averaged((metric, subset), group):
                continue
            key = "MICRO", metric, subset
            pooled[key] = pooled[key] + share if key in pooled else share
            if not math.isnan(share.value):
                averaged.setdefault(("MACRO", metric, subset), []).append(share.value)
    values |= {key: fmean(numbers) for key, numbers in averaged.items()}
    return values | {key: share.value for key, share in pooled.items()}


def _most_frequent(group: Relation, rows: pl.DataFrame) -> str:
    words, counts = group.candidates.words, group.candidates.counts
    if any(counts):
        return words[counts.index(max(counts))]
    items = rows.unique("item", keep="first", maintain_order=True)
    golds = items.group_by("gold", maintain_order=True).len()
    return str(golds["gold"][golds["len"].arg_max() or 0])
