"""Sheets for annotators, and the numbers of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from consilience.authoring.annotation import SheetKey, draw_sheets, write_sheets
from consilience.authoring.annotation_scores import ScoredSheets, score_sheets
from consilience.provenance import git_revision, versions
from consilience.suites.pairs import read_pairs
from consilience.suites.perturbations import PAPERS, chosen
from consilience.suites.tasks import load_task
from consilience.workflow.options import Option


@dataclass(frozen=True, slots=True)
class SheetOptions:
    """What annotators are asked."""

    task: Annotated[str, Option("A task's name, or a TOML file of one.", metavar="T")]
    data: Annotated[str, Option("Labelled pairs: a file, or hub:SPLIT.")]
    folder: Annotated[Path, Option("A new folder for the sheets.", flag="--out")]
    items: Annotated[int, Option("Number of pairs.", min=1)] = 30
    annotators: Annotated[int, Option("Number of sheets.", min=1)] = 5
    perturbations: Annotated[
        Sequence[str], Option("Forms to ask beside the original; all for every one.")
    ] = PAPERS
    indicators: Annotated[
        Sequence[str] | None,
        Option("What stands before each sentence: Premise,Hypothesis.", metavar="A,B"),
    ] = None
    question: Annotated[str, Option("The question, in your own words.")] = ""
    seed: Annotated[int, Option("Seed of the pairs and their orders.")] = 0


@dataclass(frozen=True, slots=True)
class ScoreSheetsOptions:
    """Which answers are counted."""

    folder: Annotated[
        Path, Option("The sheets with their answers, and key.json.", is_argument=True)
    ]
    seed: Annotated[int, Option("Seed of the bootstrap.")] = 0


@dataclass(frozen=True, slots=True)
class Sheets:
    """Sheets that were written."""

    key: SheetKey
    """What was drawn."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, Any]
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
        chosen(options.perturbations),
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
    return {"asked": settings, "versions": versions(), "git": git_revision()}
