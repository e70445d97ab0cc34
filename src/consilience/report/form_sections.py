"""The sections of a report on sentence pairs: labels that change, and examples."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from consilience.report.metric_tables import firsts_first
from consilience.report.page import Part, Points, Section, Text
from consilience.report.run_view import RunView, pair_views
from consilience.report.table import Column, Table, Value

MOST_MOVES = 60
"""Rows of a table of labels that changed; a written answer may be any text."""

MOST_EXAMPLES = 12
"""Changed answers on the page; all are in inconsistent.csv."""

NONE_CHANGED = "{}: no label changed."
"""The text for a run without a changed answer."""


def form_sections(runs: Sequence[RunView]) -> list[Section]:
    """Those of runs on sentence pairs; none without."""
    return [_label_changes(runs), *_changed_examples(runs)] if pair_views(runs) else []


def _label_changes(runs: Sequence[RunView]) -> Section:
    """Old and new label, all seeds together; how many right answers were lost and won."""
    parts: list[Part] = []
    columns = [
        Column("form"), Column("task"), Column("original label"), Column("new label"),
        Column("pairs", "count"),
    ]  # fmt: skip
    for run, pairs in pair_views(runs):
        if pairs.changed.is_empty():
            parts.append(Text([NONE_CHANGED.format(run.name)]))
            continue
        by = ["group", "perturbation", "original_answer", "answer"]
        moves = (
            pairs.changed.group_by(by, maintain_order=True)
            .len()
            .sort("len", descending=True, maintain_order=True)
        )
        shown = moves.select("perturbation", "group", "original_answer", "answer", "len")
        seeds = f", {run.seeds} seeds together" if run.seeds > 1 else ""
        rest = (
            f", the {MOST_MOVES} most common of {moves.height}" if moves.height > MOST_MOVES else ""
        )
        title = f"{run.name}{seeds}: labels that changed{rest}"
        parts.append(Table(title, columns, shown.head(MOST_MOVES).rows()))
        counts = pairs.changed.group_by("group", "perturbation", maintain_order=True).agg(
            lost=(pl.col("original_answer") == pl.col("gold")).sum(),
            won=(pl.col("answer") == pl.col("gold")).sum(),
        )
        sentences = [
            f"{run.name}, {row['group']}, {row['perturbation']}: {row['lost']} right labels became "
            f"wrong, {row['won']} wrong labels became right"
            for row in counts.to_dicts()
        ]
        parts.append(Points(sentences))
    return Section("changes", "Label changes", "", parts)


def _changed_examples(runs: Sequence[RunView]) -> list[Section]:
    """Answers that a form changed, one of each form first; nothing where there are none."""
    parts: list[Part] = []
    headings = ("form", "first", "second", "answer", "gold")
    columns = [Column(heading) for heading in headings]
    for run, pairs in pair_views(runs):
        rows: list[list[Value]] = []
        for row in firsts_first(pairs.changed).head(MOST_EXAMPLES).to_dicts():
            originals = row["original_1"], row["original_2"], row["original_answer"]
            rows.append(["original", *originals, row["gold"]])
            texts = row["text_1"], row["text_2"], row["answer"]
            rows.append([row["perturbation"], *texts, row["gold"]])
        if rows:
            title = f"{run.name}: the most confident first"
            parts.append(Table(title, columns, rows, sortable=False))
    intro = "Labels that a form changed. All of them are in inconsistent.csv of the run."
    return [Section("examples", "Examples", intro, parts)] if parts else []
