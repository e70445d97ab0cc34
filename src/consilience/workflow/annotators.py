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
from consilience.workflow.options import COUNTING, OUTPUT, QUESTIONS, Option


@dataclass(frozen=True, slots=True)
class SheetOptions:
    """The pairs and the questions of annotation sheets."""

    task: Annotated[
        str,
        Option("Ask about this task: a name, or a TOML file.", metavar="T", panel=QUESTIONS),
    ]
    data: Annotated[
        str,
        Option(
            "Read labelled pairs from this file or from hub:SPLIT.", metavar="F", panel=QUESTIONS
        ),
    ]
    folder: Annotated[
        Path,
        Option(
            "Write the sheets to this new folder.",
            metavar="DIR",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ]
    items: Annotated[int, Option("Sample this many pairs.", min=1, panel=QUESTIONS)] = 30
    annotators: Annotated[int, Option("Write this many sheets.", min=1, panel=OUTPUT)] = 5
    perturbations: Annotated[
        Sequence[str],
        Option("Also ask in these forms: names, or `all`.", metavar="P,P", panel=QUESTIONS),
    ] = PAPERS
    indicators: Annotated[
        Sequence[str] | None,
        Option(
            "Write these words before the two sentences: Premise,Hypothesis.",
            metavar="A,B",
            panel=QUESTIONS,
        ),
    ] = None
    question: Annotated[
        str, Option("Ask this question [default: that of the task].", panel=QUESTIONS)
    ] = ""
    seed: Annotated[int, Option("Seed of the pairs and of their orders.", panel=QUESTIONS)] = 0


@dataclass(frozen=True, slots=True)
class ScoreSheetsOptions:
    """The sheets that are scored."""

    folder: Annotated[
        Path,
        Option("The folder with key.json and the answers.", metavar="SHEETS", is_argument=True),
    ]
    seed: Annotated[int, Option("Seed of the bootstrap.", panel=COUNTING)] = 0


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
    return {"settings": settings, "versions": versions(), "git": git_revision()}
