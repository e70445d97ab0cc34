"""Sheets for annotators of patterns, their verdicts, and both kinds of sheets as commands."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience import suites
from consilience.authoring.annotation import (
    ScoredSheets,
    SheetItem,
    SheetKey,
    draw_sheets,
    score_sheets,
    write_sheets,
)
from consilience.authoring.audit import writable_folder
from consilience.authoring.likeness import normal_form, sentence
from consilience.core.errors import ConsilienceError
from consilience.core.factors import ORIGINAL
from consilience.core.patterns import Pattern
from consilience.core.text import counted, names_a_file
from consilience.options import Output
from consilience.options.suites import PatternSheetOptions, ScoreSheetsOptions, SheetOptions
from consilience.report.export import Shown, record_of, rows_of
from consilience.report.metric_tables import annotator_tables
from consilience.report.table import Column, Table
from consilience.suites.facts import select_relations
from consilience.suites.layouts import load_folder
from consilience.suites.pairs import load_task, read_pairs
from consilience.suites.perturbations import PAPERS, chosen
from consilience.suites.proposals import SignOff, Verdict, add_signoffs
from consilience.types import Fact, Relation, Suite

SAME, DIFFERENT = "same", "different"
"""What annotators may answer."""

QUESTION = "Do these two sentences say the same?"

PARAPHRASES_OF_A_TASK = 5
CONTROLS_OF_A_TASK = 2
"""A task has seven pairs of sentences, as in the paper."""


@dataclass(frozen=True, slots=True)
class JudgedPattern:
    """A pattern that annotators compare with the base pattern of its relation and language."""

    relation: Relation
    base: Pattern
    pattern: Pattern
    fact: Fact

    @property
    def item(self) -> str:
        """Names it in the key."""
        return f"{self.relation.id}: {self.pattern.text}"

    def against(self, other: Pattern, gold: str) -> SheetItem:
        """The base pattern and another pattern, filled with the fact."""
        first, second = (sentence(self.relation, one, self.fact) for one in (self.base, other))
        return SheetItem(gold, {ORIGINAL: (first, second)})

    def is_known_in(self, other: Pattern, language: str) -> bool:
        """Whether the fact's names are known in the forms that another pattern needs.

        ``language``: of the facts, whose names are their own base forms. A name in another form or
        language would give a control away.
        """
        writings = (
            (self.fact.subject, (other.language, other.subject_form)),
            (self.fact.object, (other.language, other.object_form)),
        )
        return all(
            writing == (language, "") or name in self.relation.names.get(writing, ())
            for name, writing in writings
        )


def draw_pattern_sheets(
    suite: Suite, *, patterns: int = 5, annotators: Sequence[str], seed: int = 0
) -> SheetKey:
    """Compare up to ``patterns`` of each relation with its base pattern, beside controls.

    Paraphrases are filled with a random fact of their relation. Five of them and two controls make
    a task. A control is one of the task's sentences and a pattern of another relation, filled with
    the same subject and object, in their language and form. The order of the tasks, and of the
    pairs in each, is the annotator's own. There may be fewer controls, or none: in a suite with one
    relation, and where no pattern of another relation needs a form that the names are known in.
    """
    _check_names(annotators)
    generator = random.Random(f"{seed}, {suite.digest}")
    judged: list[JudgedPattern] = []
    for relation, (base, *others) in _by_language(suite):
        for at in sorted(generator.sample(range(len(others)), min(patterns, len(others)))):
            fact = generator.choice(relation.facts)
            judged.append(JudgedPattern(relation, base, others[at], fact))
    if not judged:
        raise ConsilienceError(
            f"the suite '{suite.name}' has no relation with two patterns",
            expected="patterns to compare with a base pattern",
            todo="Add patterns.",
        )
    generator.shuffle(judged)
    items: dict[str, SheetItem] = {}
    tasks: list[list[str]] = []
    for start in range(0, len(judged), PARAPHRASES_OF_A_TASK):
        task = judged[start : start + PARAPHRASES_OF_A_TASK]
        of_task = {one.item: one.against(one.pattern, SAME) for one in task}
        of_task |= _controls(suite, task, generator)
        items |= of_task
        tasks.append(list(of_task))
    sheets = {}
    for name in annotators:
        own = random.Random(f"{seed}, annotator {name}")
        order = [
            one for task in own.sample(tasks, len(tasks)) for one in own.sample(task, len(task))
        ]
        sheets[name] = tuple((item, ORIGINAL) for item in order)
    content = json.dumps([[name, item.texts[ORIGINAL]] for name, item in items.items()])
    digest = hashlib.sha256(content.encode()).hexdigest()
    about = {one.item: (one.relation.id, one.pattern.text) for one in judged}
    return SheetKey(suite.name, QUESTION, (SAME, DIFFERENT), seed, digest, items, sheets, about)


def _check_names(annotators: Sequence[str]) -> None:
    """Raise for names that cannot name a file, or that name the same one on some systems."""
    known: dict[str, str] = {}
    for name in annotators:
        if not names_a_file(name) or name.casefold() == "key":
            raise ConsilienceError(
                f"the annotator '{name}'", expected="a short name that can name a file"
            )
        if other := known.get(name.casefold()):
            raise ConsilienceError(
                f"the annotators '{other}' and '{name}'",
                expected="names that differ by more than case, because they name files",
                todo="Give each person another name.",
            )
        known[name.casefold()] = name


def _by_language(suite: Suite) -> Iterator[tuple[Relation, list[Pattern]]]:
    """The patterns of each relation in each of its languages; the first is the base pattern."""
    for relation in suite:
        for language in dict.fromkeys(pattern.language for pattern in relation.patterns):
            yield relation, [one for one in relation.patterns if one.language == language]


def _controls(
    suite: Suite, task: Sequence[JudgedPattern], generator: random.Random
) -> dict[str, SheetItem]:
    """Pairs that do not mean the same, with subjects and objects of the task; two of five."""
    controls: dict[str, SheetItem] = {}
    size = max(1, round(CONTROLS_OF_A_TASK * len(task) / PARAPHRASES_OF_A_TASK))
    drawn = generator.sample(task, min(size, len(task)))
    for judged in (*drawn, *(one for one in task if one not in drawn)):
        if len(controls) == size:
            break
        texts = {normal_form(pattern.text) for pattern in judged.relation.patterns}
        others = [
            (relation.id, pattern)
            for relation in suite
            if relation is not judged.relation
            for pattern in relation.patterns
            if pattern.language == judged.base.language
            and normal_form(pattern.text) not in texts
            and judged.is_known_in(pattern, suite.language)
        ]
        if others:
            name, pattern = generator.choice(others)
            control = judged.against(pattern, DIFFERENT)
            controls[f"{judged.item} / {name}: {pattern.text}"] = control
    return controls


# Verdicts.

SHOWN = 20  # patterns

Answer = tuple[str, str, str, Verdict]
"""A relation, a pattern, a person, and whether the person accepted the pattern."""


def verdicts(scored: ScoredSheets) -> Iterator[Answer]:
    """Every answer about a pattern: *same* accepts it, *different* rejects it."""
    same = scored.key.labels.index(SAME)
    for at, item in enumerate(scored.key.items):
        for person, name in enumerate(scored.annotators):
            answer = scored.answers[0, at, person]
            if item in scored.key.patterns and answer >= 0:
                yield *scored.key.patterns[item], name, "accept" if answer == same else "reject"


CONTROLS_TO_SIGN = 0.75
"""The share of controls that a person must answer with *different* to sign.

In the ParaRel paper (Section 4) it is 98.3 % on average; random answers have 50 %.
"""


def not_reading(scored: ScoredSheets) -> dict[str, str]:
    """The people who may not sign, each with the controls that the person answered right.

    Where the sheets have no controls, everybody may sign. A control without an answer is not right.
    """
    if not scored.key.patterns:
        return {}
    different = scored.key.labels.index(DIFFERENT)
    is_control = np.array([item not in scored.key.patterns for item in scored.key.items])
    controls = scored.answers[0, is_control]
    right = (controls == different).sum(axis=0)
    return {
        name: f"{count} of {counted(len(controls), 'control')}"
        for name, count in zip(scored.annotators, right.tolist(), strict=True)
        if count < CONTROLS_TO_SIGN * len(controls)
    }


def rejected_table(scored: ScoredSheets) -> Table:
    """The patterns that a person judged different from the base pattern."""
    by_pattern: dict[tuple[str, str], list[str]] = defaultdict(list)
    for *pattern, who, verdict in verdicts(scored):
        if verdict == "reject":
            by_pattern[pattern[0], pattern[1]].append(who)
    order = sorted(by_pattern.items(), key=lambda item: -len(item[1]))
    rows = [[relation, pattern, ", ".join(who)] for (relation, pattern), who in order[:SHOWN]]
    more = [f"and {len(order) - SHOWN} more: --json"] if len(order) > SHOWN else []
    title = f"{len(order)} of {len(scored.key.patterns)} patterns were judged different"
    return Table(title, [Column("relation"), Column("pattern"), Column("by")], rows, more)


def signoffs(scored: ScoredSheets, suite: Suite, when: str) -> Iterator[SignOff]:
    """The verdicts on each pattern, and on the base patterns that they were compared with.

    Only of the people who read the sentences (``not_reading``). A base pattern is accepted by a
    person who accepted more than half of the patterns that were compared with it; otherwise the
    person is unsure of it.
    """
    of_base: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    left_out = not_reading(scored)
    for relation, pattern, who, verdict in verdicts(scored):
        if who in left_out:
            continue
        patterns = suite.relation(relation).patterns
        judged = next((one for one in patterns if one.text == pattern), None)
        if judged is None:
            raise ConsilienceError(
                f"'{pattern}' is no pattern of '{relation}'",
                expected="the suite that the sheets were made of",
                where=suite.name,
                todo="Make new sheets of the changed suite.",
            )
        base = next(one for one in patterns if one.language == judged.language)
        of_base[relation, base.text, who].append(verdict == "accept")
        reason = f"compared with '{base.text}'"
        yield SignOff(relation, pattern, who, when, verdict, reason, scored.key.made)
    for (relation, pattern, who), accepted in of_base.items():
        is_accepted = 2 * sum(accepted) > len(accepted)
        reason = f"base pattern: {sum(accepted)} of {len(accepted)} patterns say the same"
        decision: Verdict = "accept" if is_accepted else "unsure"
        yield SignOff(relation, pattern, who, when, decision, reason, scored.key.made)


# The commands.


@dataclass(frozen=True, slots=True)
class Sheets(Shown):
    """Sheets that were written."""

    key: SheetKey
    notes: Sequence[str]
    record: Mapping[str, Any] = field(repr=False)
    folder: Path

    @property
    def questions(self) -> int:
        """The number of questions in each sheet."""
        return len(self.key.items) * len(self.key.variants)

    def printed(self, output: Output) -> Iterator[str]:
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
        key, size = self.key, len(self.key.patterns)
        document = {"run": self.record, "folder": str(self.folder), "sheets": len(key.sheets)}
        if size:
            document |= {"paraphrases": size, "controls": len(key.items) - size}
        else:
            document["questions"] = self.questions
        return document | {"warnings": self.notes}


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
    record = record_of(task=key.task, data=options.data, question=key.question, seed=options.seed)
    return Sheets(key, notes, record, options.out)


def make_pattern_sheets(options: PatternSheetOptions) -> Sheets:
    """Compare patterns with the base pattern of their relation, on a page for each annotator."""
    suite = suites.load_suite(options.suite, options.data_dir)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    key = draw_pattern_sheets(
        suite, patterns=options.patterns, annotators=options.people, seed=options.seed
    )
    write_sheets(key, options.out)
    sizes = [len(patterns) - 1 for _, patterns in _by_language(suite)]
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
    record = record_of(suite=suite.name, suite_digest=suite.digest, seed=options.seed)
    return Sheets(key, notes, record, options.out)


class ScoredByPeople(Shown):
    """The numbers of annotators, and the suite whose sign-off they were recorded in."""

    def __init__(
        self, scored: ScoredSheets, record: Mapping[str, Any], signed: Path | None
    ) -> None:
        self.scored, self.record, self.signed, self.notes = scored, record, signed, scored.warnings

    def printed(self, output: Output) -> Iterator[Table | str]:
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
        metrics = rows_of(self.scored.metrics)
        document = {"run": self.record, "metrics": metrics, "warnings": self.notes}
        if self.scored.key.patterns:
            names = ("relation", "pattern", "who", "verdict")
            rows = [dict(zip(names, one, strict=True)) for one in verdicts(self.scored)]
            document["verdicts"] = rows
        return document

    def frame(self) -> pl.DataFrame:
        return self.scored.metrics


def count_sheets(options: ScoreSheetsOptions) -> tuple[ScoredSheets, Mapping[str, Any]]:
    """The numbers of the answers in a folder, and their record for a JSON document.

    ``signed`` in the record: the verdicts that are new in the folder of the suite.
    """
    scored = score_sheets(options.folder, options.seed)
    key = scored.key
    record = record_of(
        sheets=str(options.folder),
        task=key.task,
        question=key.question,
        digest=key.digest,
        seed=key.seed,
        annotators=scored.annotators,
    )
    notes = [
        f"{name} answered {right} right, fewer than {CONTROLS_TO_SIGN:.0%}: --sign leaves the "
        "verdicts of this person out"
        for name, right in not_reading(scored).items()
    ]
    new, old = _sign(options, scored) if options.sign else ([], [])
    if old:
        verdicts = counted(len(old), "verdict")
        notes.append(
            f"{verdicts} not recorded, because a newer sheet of the person has the pattern"
        )
    scored = replace(scored, warnings=(*scored.warnings, *notes))
    return scored, {**record, "signed": [asdict(one) for one in new]}


def _sign(options: ScoreSheetsOptions, scored: ScoredSheets) -> tuple[list[SignOff], list[SignOff]]:
    """Record the verdicts in the folder of the suite that ``sign`` names.

    Returns the new ones, and those that are not written because of a newer sheet.
    """
    where, unread = str(options.folder), not_reading(scored)
    if not scored.key.patterns:
        raise ConsilienceError(
            "--sign with sheets of sentence pairs",
            expected="sheets of `consilience suite annotate patterns`",
            where=where,
        )
    if not scored.key.made:
        raise ConsilienceError(
            "no 'made' in key.json, so it is unknown which sheets are newer",
            expected="the time at which the sheets were made",
            where=where,
            todo='Add it, such as "made": "2026-11-23T10:00:00+00:00".',
        )
    if len(unread) == len(scored.annotators):
        name, right = next(iter(unread.items()))
        raise ConsilienceError(
            f"nobody may sign: {name} answered {right} right",
            expected=f"at least {CONTROLS_TO_SIGN:.0%}",
            where=where,
            todo="Ask people to read the sentences again.",
        )
    folder = writable_folder(str(options.sign), None)
    suite = load_folder(folder)
    today = datetime.now(UTC).date().isoformat()
    return add_signoffs(folder, suite, signoffs(scored, suite, today))
