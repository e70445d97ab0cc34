"""Count the answers of one run: its metrics, its headline numbers, and cautions on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.analysis.examples import item_agreement
from consilience.core.errors import ConsilienceError, Protocol, reason_of
from consilience.core.schemas import METRICS_SCHEMA, NOISE_FLOOR
from consilience.metrics.counts import Answers, Prepared, prepared
from consilience.metrics.differences import form_changes
from consilience.metrics.measure import measure
from consilience.metrics.registry import Grid, View
from consilience.report.cautions import Known, cautions, ranked
from consilience.report.summary import Summary, summarize
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run
from consilience.types import Relation, Suite


@dataclass(frozen=True, eq=False)
class CountedRun:
    """Answers and their numbers."""

    suite: Suite
    prepared: Prepared  # The answers
    metrics: pl.DataFrame
    baseline: pl.DataFrame  # The metrics table of the majority baseline
    summary: Summary
    notes: Sequence[str]  # Cautions by rank, then what is known of how it was asked
    record: Mapping[str, Any] = field(default_factory=dict)
    """Settings, versions and the like, for a JSON document."""

    @property
    def protocol(self) -> Protocol:
        return self.suite.protocol

    @cached_property
    def changes(self) -> pl.DataFrame:
        """What accuracy loses or gains between forms (``FORM_CHANGE_SCHEMA``)."""
        return form_changes(self.prepared, self.suite, self.protocol)

    @cached_property
    def items(self) -> pl.DataFrame:
        """How many pairs of variants of each item agree (``AGREEMENT_SCHEMA``)."""
        return item_agreement(self.prepared, self.suite, self.protocol)


def counted_by(run: Run, protocol: Protocol | None = None) -> Suite:
    """The suite of a run with the protocol that it is counted by.

    Without a protocol it is that of the run; one that such a suite does not have raises.
    """
    suite, words = run.suite, run.suite.words
    if protocol in (None, suite.protocol):
        return suite
    if protocol not in words.protocols:
        found, expected = f"--protocol {protocol} with a run of {words.item}s", words.protocols[0]
        raise ConsilienceError(found, expected=expected, where=str(run.path))
    return replace(suite, protocol=protocol)


def count_run(run: Run, suite: Suite | None = None, answers: Answers | None = None) -> CountedRun:
    """The numbers of a run with its noise floor, and all notes on it.

    ``suite``: the groups that are counted, by default those of the run. ``answers``: prepared ones.
    """
    chosen, floor = suite or run.suite, noise_floor_of(run.path)
    counted = count_answers(run.answers if answers is None else answers, chosen, run.label, floor)
    return replace(counted, notes=notes_on(run, chosen, counted.prepared, counted.metrics))


def notes_on(run: Run, suite: Suite, answers: Prepared, metrics: pl.DataFrame) -> list[str]:
    """All notes on a run: cautions by rank, then what is known of how it was asked."""
    known = Known(
        suite=suite, is_finished=run.is_finished, asked_by=run.protocol, answers=answers,
        metrics=metrics,
    )  # fmt: skip
    return ranked([*cautions(known), *run.record.get("warnings", [])])


def count_answers(
    answers: Answers, suite: Suite, model: str, noise_floor: pl.DataFrame | None = None
) -> CountedRun:
    """The numbers of answers by the protocol of their suite, and cautions on them.

    ``model``: what the summary calls the model. ``noise_floor``: further rows of the metrics table.
    """
    table, protocol = prepared(answers, suite), suite.protocol
    metrics, baseline = measure(table, suite, protocol), majority_baseline(table, suite, protocol)
    if noise_floor is not None:
        metrics = pl.concat([metrics, noise_floor], how="diagonal")
    summary = summarize(metrics, suite, protocol, model, baseline, asked_variants(table))
    found = cautions(Known(suite=suite, answers=table, metrics=metrics))
    return CountedRun(suite, table, metrics, baseline, summary, found)


def asked_variants(answers: Prepared) -> dict[str, tuple[int, int]]:
    """In how many variants of each group an item was asked: the fewest of a question, and the most.

    An item that was left out in some variant counts with those that others were asked in.
    """
    is_asked = pl.col("answer").is_not_null() | pl.col("excluded").is_null()
    variant, rows = pl.col("variant_index"), answers.coded.lazy()
    most = rows.filter(is_asked).group_by("group").agg(most=variant.n_unique())
    of_items = rows.group_by("group", "item").agg(fewest=pl.len())
    fewest = of_items.group_by("group").agg(pl.col("fewest").min())
    sizes = most.join(fewest, on="group").with_columns(pl.min_horizontal("fewest", "most"))
    if not answers.suite.words.is_pooled:
        sizes = sizes.with_columns(fewest="most")
    table = sizes.select("group", "fewest", "most").collect(engine="streaming")
    return {str(group): (fewest, most) for group, fewest, most in table.iter_rows()}


def save_counted(counted: CountedRun, folder: RunFolder) -> CountedRun:
    """Save the metrics of a run in its folder; the counted run with its record and all notes."""
    folder.finish(counted.metrics)
    record = {**folder.record, "path": str(folder.path)}
    state = Known(suite=counted.suite, is_finished=record["finished"] is not None)
    notes = ranked([*cautions(state), *counted.notes, *record["warnings"]])
    return replace(counted, notes=notes, record=record)


def noise_floor_of(run: Path) -> pl.DataFrame | None:
    """The noise floor that the run in a folder measured, as rows of the metrics table."""
    file = run / "metrics.csv"
    if not file.is_file():
        return None
    try:
        rows = pl.read_csv(file, glob=False).filter(pl.col("metric") == NOISE_FLOOR)
        return rows.select(pl.col(name).cast(kind) for name, kind in METRICS_SCHEMA.items())
    except pl.exceptions.PolarsError as error:
        found = f"a damaged table of metrics: {reason_of(error)}"
        todo = "Give the command of the run again, which writes it anew."
        raise ConsilienceError(found, where=str(file), todo=todo) from error


def majority_baseline(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """The metrics table of the majority baseline; no model is loaded.

    It answers what was asked: of a relation with its most frequent object, as ``baseline:majority``
    does, of a task with the most frequent label of its sentence pairs, and of questions with the
    option at the *shown* position where the right one is most often in the base variant.
    """
    return measure(Majority(prepared(answers, suite)), suite, protocol)


class Majority(Prepared):
    """The answers of the majority baseline to the queries of a table."""

    instances = {}  # noqa: RUF012  (no answer of another group)

    def __init__(self, run: Prepared) -> None:
        super().__init__(run.answers, run.suite, run.coded)
        self._run = run

    def views(self, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
        views = self._run.views(relation, protocol)
        same = views["tuples"] is views["pairs"]
        tuples = _majority(views["tuples"], relation)
        return {"tuples": tuples, "pairs": tuples if same else _majority(views["pairs"], relation)}


def _majority(grid: Grid, relation: Relation) -> Grid:
    golds = np.where(grid.asked, grid.golds, -1)
    answers = np.full(grid.answers.shape, -1)
    if grid.places is not None:
        shown, sizes = grid.places.of(golds), grid.places.sizes
        most = np.zeros((len(sizes), 1), dtype=np.int64)
        for size in np.unique(sizes):
            given = shown[sizes == size, 0]
            most[sizes == size] = np.bincount(given[given >= 0], minlength=1).argmax()
        answers = grid.places.options_at(most)
    else:
        words, counts = relation.candidates.words, relation.candidates.counts
        of_items = golds.max(axis=1)
        code = int(np.bincount(of_items[of_items >= 0], minlength=1).argmax())
        if any(counts):
            word = words[counts.index(max(counts))]
            texts = list(grid.texts)
            code = texts.index(word) if word in texts else len(texts)
        answers[:] = code
    answers = np.where(grid.asked, answers, -1)
    return replace(grid, answers=answers, distributions=None, may_have_none=False)
