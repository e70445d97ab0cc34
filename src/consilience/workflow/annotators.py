"""Sheets for annotators, and the numbers of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.authoring.annotation import SheetKey, draw_sheets, write_sheets
from consilience.authoring.annotation_scores import ScoredSheets, score_sheets
from consilience.provenance import git_revision, versions
from consilience.suites.pairs import read_pairs
from consilience.suites.perturbations import PAPERS, chosen
from consilience.suites.tasks import load_task
from consilience.workflow.suite_options import ScoreSheetsOptions, SheetOptions


@dataclass(frozen=True, slots=True)
class Sheets:
    """Sheets that were written."""

    key: SheetKey
    """What was drawn."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, Any] = field(repr=False)
    """Settings and versions, for a JSON document."""

    @property
    def questions(self) -> int:
        """The number of questions in each sheet."""
        return len(self.key.items) * len(self.key.variants)


def make_sheets(options: SheetOptions) -> Sheets:
    """Sample pairs, and write a table and a page for each annotator."""
    task = load_task(options.task, options.indicators)
    pairs = read_pairs(options.data, task)
    key = draw_sheets(
        pairs,
        task,
        chosen(options.perturbations or PAPERS),
        items=options.items,
        annotators=options.annotators,
        seed=options.seed,
        question=options.question,
    )
    write_sheets(key, options.folder)
    notes = list(pairs.notes)
    if len(key.items) < options.items:
        notes.append(f"{options.data} has {len(key.items)} pairs, not {options.items}")
    settings = {
        "task": key.task,
        "data": options.data,
        "question": key.question,
        "seed": options.seed,
    }
    return Sheets(key, notes, _record(settings))


def count_sheets(options: ScoreSheetsOptions) -> tuple[ScoredSheets, Mapping[str, Any]]:
    """The numbers of the answers in a folder, and their record for a JSON document."""
    scored = score_sheets(options.folder, options.seed)
    key = scored.key
    settings = {
        "sheets": str(options.folder),
        "task": key.task,
        "question": key.question,
        "digest": key.digest,
        "seed": key.seed,
        "annotators": scored.annotators,
    }
    return scored, _record(settings)


def _record(settings: Mapping[str, object]) -> Mapping[str, Any]:
    return {"settings": settings, "versions": versions(), "git": git_revision()}
