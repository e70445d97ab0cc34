"""Sheets for annotators, and the numbers of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.authoring.annotation import SheetKey, draw_sheets, write_sheets
from consilience.authoring.annotation_scores import ScoredSheets, score_sheets
from consilience.authoring.pattern_sheets import draw_pattern_sheets, patterns_to_compare
from consilience.authoring.pattern_verdicts import (
    ANSWER,
    CONTROLS_TO_SIGN,
    not_reading,
    rejected_table,
    signoffs,
    verdicts,
)
from consilience.errors import ConsilienceError
from consilience.options import Output
from consilience.report.metric_tables import annotator_tables
from consilience.report.shown import Shown, record_of, rows_of
from consilience.report.table import Table
from consilience.suites.layouts import load_folder
from consilience.suites.pairs import read_pairs
from consilience.suites.perturbations import PAPERS, chosen
from consilience.suites.selection import select_relations
from consilience.suites.signoff import SignOff, add_signoffs
from consilience.suites.tasks import load_task
from consilience.text import counted
from consilience.workflow.auditing import writable_folder
from consilience.workflow.suite_options import PatternSheetOptions, ScoreSheetsOptions, SheetOptions


@dataclass(frozen=True, slots=True)
class Sheets(Shown):
    """Sheets that were written."""

    key: SheetKey
    """What was drawn."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, Any] = field(repr=False)
    """Settings and versions, for a JSON document."""
    folder: Path
    """The folder of the sheets."""

    @property
    def questions(self) -> int:
        """The number of questions in each sheet."""
        return len(self.key.items) * len(self.key.variants)

    def printed(self, output: Output) -> Iterator[str]:
        """Where the sheets are."""
        key, controls = self.key, len(self.key.items) - len(self.key.patterns)
        size = counted(self.questions, "question")
        if key.patterns:
            patterns = counted(len(key.patterns), "paraphrase")
            size = f"{patterns} and {counted(controls, 'control')}"
        first, *others = key.sheets
        page = f"{self.folder}/{first}.html (or .csv){', ...' if others else ''}"
        yield f"{counted(len(key.sheets), 'sheet')} of {size}: {page}"
        yield f"Keep key.json to yourself. Then: consilience suite annotate score {self.folder}"

    def document(self) -> dict[str, Any]:
        """Where the sheets are."""
        key = self.key
        document = {"run": self.record, "folder": str(self.folder), "sheets": len(key.sheets)}
        if key.patterns:
            controls = len(key.items) - len(key.patterns)
            document |= {"paraphrases": len(key.patterns), "controls": controls}
        else:
            document["questions"] = self.questions
        return document | {"warnings": self.notes}


class ScoredByPeople(Shown):
    """The numbers of annotators, and the suite whose sign-off they were recorded in."""

    def __init__(
        self, scored: ScoredSheets, record: Mapping[str, Any], signed: Path | None
    ) -> None:
        self.scored, self.record, self.signed = scored, record, signed

    def printed(self, output: Output) -> Iterator[Table | str]:
        """The numbers, and the patterns that were rejected."""
        scored = self.scored
        people, items = scored.annotators, len(scored.key.items)
        size = f"{counted(len(people), 'person', 'people')}, {counted(items, 'item')}"
        title = f"{scored.key.task}: {size}, in percent"
        yield from annotator_tables(scored.metrics, people, title)
        if scored.key.patterns:
            rejected = rejected_table(scored)
            yield rejected if rejected.rows else rejected.title
        if self.signed is not None:
            verdicts = counted(len(self.record["signed"]), "new verdict")
            yield f"{self.signed}/signoff.jsonl: {verdicts}"

    def document(self) -> dict[str, Any]:
        """The numbers as rows."""
        metrics, warnings = rows_of(self.scored.metrics), self.scored.warnings
        document = {"run": self.record, "metrics": metrics, "warnings": warnings}
        if self.scored.key.patterns:
            rows = [dict(zip(ANSWER, one, strict=True)) for one in verdicts(self.scored)]
            document["verdicts"] = rows
        return document

    def frame(self) -> pl.DataFrame:
        """The numbers."""
        return self.scored.metrics

    def remarks(self, output: Output) -> Sequence[str]:
        """The warnings."""
        return self.scored.warnings


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
    write_sheets(key, options.out)
    notes = list(pairs.notes)
    if len(key.items) < options.items:
        notes.append(f"{options.data} has {len(key.items)} pairs, not {options.items}")
    settings = {
        "task": key.task,
        "data": options.data,
        "question": key.question,
        "seed": options.seed,
    }
    return Sheets(key, notes, record_of(**settings), options.out)


def make_pattern_sheets(options: PatternSheetOptions) -> Sheets:
    """Compare patterns with the base pattern of their relation, on a page for each annotator."""
    suite = suites.load_suite(options.suite, options.data_dir)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    key = draw_pattern_sheets(
        suite, patterns=options.patterns, annotators=options.people, seed=options.seed
    )
    write_sheets(key, options.out)
    sizes = patterns_to_compare(suite)
    notes = []
    if left_out := sum(sizes) - len(key.patterns):
        notes.append(
            f"{left_out} of {counted(sum(sizes), 'pattern')} left out, because a relation has at "
            f"most {options.patterns} in a language; --patterns {max(sizes)} compares all"
        )
    if len(key.items) == len(key.patterns):
        notes.append(
            "there are no controls, because no pattern of another relation takes the same names"
        )
    settings = {"suite": suite.name, "suite_digest": suite.digest, "seed": options.seed}
    return Sheets(key, notes, record_of(**settings), options.out)


def _sign(options: ScoreSheetsOptions, scored: ScoredSheets) -> tuple[list[SignOff], list[SignOff]]:
    """Record the verdicts in the folder of the suite that ``sign`` names.

    Returns the new ones, and those that are not written because of a newer sheet.
    """
    if options.sign is None:
        return [], []
    if not scored.key.patterns:
        raise ConsilienceError(
            "--sign with sheets of sentence pairs",
            expected="sheets of `consilience suite annotate patterns`",
            where=str(options.folder),
        )
    if not scored.key.made:
        raise ConsilienceError(
            "no 'made' in key.json, so it is unknown which sheets are newer",
            expected="the time at which the sheets were made",
            where=str(options.folder),
            todo='Add it, such as "made": "2026-11-23T10:00:00+00:00".',
        )
    unread = not_reading(scored)
    if len(unread) == len(scored.annotators):
        name, right = next(iter(unread.items()))
        raise ConsilienceError(
            f"nobody may sign: {name} answered {right} right",
            expected=f"at least {CONTROLS_TO_SIGN:.0%}",
            where=str(options.folder),
            todo="Ask people to read the sentences again.",
        )
    folder = writable_folder(str(options.sign), None)
    suite = load_folder(folder)
    today = datetime.now(UTC).date().isoformat()
    return add_signoffs(folder, suite, signoffs(scored, suite, today))


def count_sheets(options: ScoreSheetsOptions) -> tuple[ScoredSheets, Mapping[str, Any]]:
    """The numbers of the answers in a folder, and their record for a JSON document.

    ``signed`` in the record: the verdicts that are new in the folder of the suite.
    """
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
    notes = [
        f"{name} answered {right} right, fewer than {CONTROLS_TO_SIGN:.0%}: --sign leaves the "
        "verdicts of this person out"
        for name, right in not_reading(scored).items()
    ]
    signed, old = _sign(options, scored)
    if old:
        verdicts = counted(len(old), "verdict")
        notes.append(
            f"{verdicts} not recorded, because a newer sheet of the person has the pattern"
        )
    scored = replace(scored, warnings=(*scored.warnings, *notes))
    return scored, {**record_of(**settings), "signed": [asdict(one) for one in signed]}
