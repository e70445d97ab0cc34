"""Sheets for annotators of sentence pairs and of patterns, their answers, the commands."""

from __future__ import annotations

import codecs
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience import suites
from consilience.authoring.checks import sentence
from consilience.core.errors import ConsilienceError
from consilience.core.factors import ORIGINAL, WHOLE, Part
from consilience.core.items import Task
from consilience.core.patterns import Pattern
from consilience.core.schemas import METRICS_SCHEMA
from consilience.core.text import counted
from consilience.files.read import parse_json, read_cells
from consilience.files.write import csv_of, refuse_occupied, table_of, write_whole
from consilience.metrics.errors import Index, of_group
from consilience.metrics.registry import Clusters, Tally, quotient
from consilience.metrics.statistics import NAN
from consilience.options import OutputOptions
from consilience.options.suites import PatternSheetOptions, ScoreSheetsOptions, SheetOptions
from consilience.report.export import Shown, record_of
from consilience.report.metric_tables import annotator_tables
from consilience.report.table import Column, Table
from consilience.suites.facts import select_relations
from consilience.suites.pairs import (
    PAPERS,
    QUESTIONS,
    Pairs,
    Perturbation,
    chosen,
    forms_of,
    load_task,
    original,
    read_pairs,
    sample_pairs,
)
from consilience.types import Relation, Suite

LabelIndices = npt.NDArray[np.int64]  # Answers as positions among the labels; -1 for none

Asked = tuple[str, str]  # An item and the variant in which it is asked

COLUMNS = ("question", "text_1", "text_2", "answer")


@dataclass(frozen=True, slots=True)
class SheetItem:
    """A sentence pair that is asked."""

    gold: str
    texts: Mapping[str, tuple[str, str]]  # The two texts by variant, as annotators read them


@dataclass(frozen=True, slots=True)
class SheetKey:
    """What was drawn; only the person who scores may see it."""

    task: str
    question: str
    labels: tuple[str, ...]
    seed: int
    digest: str
    items: Mapping[str, SheetItem] = field(repr=False)
    sheets: Mapping[str, tuple[Asked, ...]] = field(repr=False)
    patterns: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """Of a suite of facts, the relation and the pattern that an item is about."""

    @property
    def variants(self) -> list[str]:
        """The variants of every item; the original is the first."""
        return list(next(iter(self.items.values())).texts)

    def texts(self, annotator: str) -> list[tuple[str, str]]:
        """The two texts of each question of an annotator."""
        return [self.items[item].texts[variant] for item, variant in self.sheets[annotator]]


def draw_sheets(
    pairs: Pairs,
    task: Task,
    perturbations: Mapping[str, Perturbation],
    *,
    items: int = 30,
    annotators: int = 5,
    seed: int = 0,
) -> SheetKey:
    """Sample items with ``seed``; every annotator gets each in every variant, in an own order."""
    sample = sample_pairs(pairs, items, seed)
    chosen = {}
    for pair in sample.items:
        forms = forms_of(pair, original(pair, task.indicators), perturbations)
        texts = {name: (first.text, second.text) for name, (first, second) in forms.items()}
        chosen[pair.item] = SheetItem(pair.label, texts)
    names = [ORIGINAL, *perturbations]
    sheets = _sheets([(item, name) for item in chosen for name in names], annotators, seed)
    question = QUESTIONS.get(task.name, QUESTIONS[task.kind]).format(*task.indicators)
    return SheetKey(task.name, question, task.labels, seed, sample.digest, chosen, sheets)


def _sheets(asked: Sequence[Asked], annotators: int, seed: int) -> dict[str, tuple[Asked, ...]]:
    sheets = {}
    for number in range(1, annotators + 1):
        order = random.Random(f"{seed}, annotator {number}").sample(asked, len(asked))
        sheets[f"annotator-{number}"] = tuple(order)
    return sheets


def write_sheets(key: SheetKey, folder: Path) -> None:
    """Write ``key.json``, and a table for each annotator, into a new or empty folder.

    The tables do not tell gold, item or variant.
    """
    refuse_occupied(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(asdict(key), ensure_ascii=False, indent=1) + "\n"
    write_whole(folder / "key.json", content.encode())
    for name in key.sheets:
        rows = [
            dict(zip(COLUMNS, (number, *texts, ""), strict=True))
            for number, texts in enumerate(key.texts(name), 1)
        ]
        table = codecs.BOM_UTF8 + csv_of(table_of(rows))  # the mark tells spreadsheets: UTF-8
        write_whole(folder / f"{name}.csv", table)


def read_key(path: Path) -> SheetKey:
    """The key that ``write_sheets`` wrote."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        items = {
            name: SheetItem(item["gold"], {form: (a, b) for form, (a, b) in item["texts"].items()})
            for name, item in content["items"].items()
        }
        sheets = {name: tuple((a, b) for a, b in of) for name, of in content["sheets"].items()}
        patterns = {name: (a, b) for name, (a, b) in content["patterns"].items()}
        read = {"items": items, "sheets": sheets, "patterns": patterns}
        return SheetKey(**content | read | {"labels": tuple(content["labels"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = "no key of sheets" if path.is_file() else "no such file"
        expected = "the key of the sheets"
        todo = "Name the folder that `consilience suite annotate sheet` or `patterns` wrote."
        raise ConsilienceError(found, expected=expected, where=str(path), todo=todo) from error


def read_sheet(path: Path, key: SheetKey, annotator: str) -> LabelIndices:
    """An annotator's answers (variant, item); -1 for none.

    Rows and columns may have any order, and there may be other columns. Labels may have any case.
    Texts may differ in spaces only.
    """
    texts, variants, items = key.texts(annotator), key.variants, list(key.items)
    labels = {"": -1} | {label.casefold(): at for at, label in enumerate(key.labels)}
    answers = np.full((len(variants), len(items)), -1)

    def refuse(found: str, expected: str, row: int, todo: str = "") -> NoReturn:
        raise ConsilienceError(found, expected=expected, where=f"{path}, row {row}", todo=todo)

    sheet = [cells for _, cells in read_cells(path)]
    names = [name.strip().casefold() for name in (sheet or [[]])[0]]
    if missing := [name for name in COLUMNS if name not in names]:
        refuse(f"no column '{missing[0]}'", ", ".join(COLUMNS), 1)
    for number, cells in enumerate(sheet[1:], 2):
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip_longest(names, cells[: len(names)], fillvalue=""))
        cell, answer = row["question"].strip(), row["answer"].strip().casefold()
        question = int(cell) if cell.isdecimal() and len(cell) < 9 else 0
        if not 1 <= question <= len(texts):
            refuse(f"the question '{cell}'", f"1 to {len(texts)}", number)
        for name, text in zip(("text_1", "text_2"), texts[question - 1], strict=True):
            if row[name].split() != text.split():
                found = f"the {name} of question {cell} is '{row[name][:60]}'"
                todo = "Is it the sheet of another annotator or draw?"
                refuse(found, f"'{text[:60]}', as it was asked", number, todo)
        if answer not in labels:
            refuse(f"the answer '{row['answer']}'", ", ".join(key.labels), number)
        item, variant = key.sheets[annotator][question - 1]
        answers[variants.index(variant), items.index(item)] = labels[answer]
    return answers


@dataclass(frozen=True, slots=True)
class ScoredSheets:
    """The answers of annotators, counted."""

    key: SheetKey
    annotators: tuple[str, ...]
    metrics: pl.DataFrame
    warnings: tuple[str, ...]
    answers: LabelIndices  # Positions among the labels (variant, item, annotator); -1 for none


def score_sheets(folder: Path) -> ScoredSheets:
    """Count the answers in a folder. Empty sheets are left out."""
    key = read_key(folder / "key.json")
    answers: dict[str, LabelIndices] = {}
    warnings = []
    for name, questions in key.sheets.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            warnings.append(f"{path.name} is not there; left out")
            continue
        sheet = read_sheet(path, key, name)
        unanswered = int((sheet < 0).sum())
        if unanswered == len(questions):
            warnings.append(f"{path.name} has no answers; left out")
            continue
        if unanswered:
            warnings.append(f"{path.name}: {unanswered} of {len(questions)} without an answer")
        answers[name] = sheet
    if not answers:
        raise ConsilienceError(
            "no sheet with answers", expected="annotator-1.csv and others", where=str(folder)
        )
    stacked = np.stack(list(answers.values()), axis=-1)
    metrics = pl.DataFrame(list(_rows(key, stacked, list(answers))), schema=METRICS_SCHEMA)
    return ScoredSheets(key, tuple(answers), metrics, tuple(warnings), stacked)


def _parts(
    key: SheetKey, answers: LabelIndices
) -> Iterator[tuple[str, Part, LabelIndices, LabelIndices | None]]:
    """Each metric and part, its answers (item, annotator), and the answers that they should be.

    None in place of the last: the annotators are compared with each other. ``answers``: (variant,
    item, annotator). The original form is the whole. Consistency compares a perturbed form with the
    same annotator's answer to the original. Agreement with a suite is the share of answers *same*
    (ParaRel, Section 4).
    """
    gold = np.array([[key.labels.index(item.gold)] for item in key.items.values()])
    if key.patterns:
        yield "agreement", WHOLE, answers[0], gold
        yield "", WHOLE, answers[0], None
        return
    for variant, given in zip(key.variants, answers, strict=True):
        part: Part = WHOLE if variant == ORIGINAL else ("form", variant)
        yield "accuracy", part, given, gold
        if variant != ORIGINAL:
            yield "consistency", part, given, answers[0]
        yield "", part, given, None


def _rows(
    key: SheetKey, answers: LabelIndices, annotators: Sequence[str]
) -> Iterator[dict[str, object]]:
    """The metrics of ``answers`` (variant, item, annotator), over annotators and of each.

    The number of all annotators is the mean of theirs, without those that have no data. Intervals
    are about other items and the same annotators.
    """
    items = Clusters.of(key.items)
    for metric, part, given, other in _parts(key, answers):
        if other is None:
            counts = (given[:, :, None] == np.arange(len(key.labels))).sum(axis=1)
            for name, tally in agreements(counts, items).items():
                yield _row(name, part, [tally])
            continue
        counted = (given >= 0) & (other >= 0)
        hits = ((given == other) & counted).T
        tallies = [Tally.of_hits(items, *of_one) for of_one in zip(hits, counted.T, strict=True)]
        yield _row(metric, part, tallies)
        for name, tally in zip(annotators, tallies, strict=True):
            yield _row(metric, part, [tally], name)


def _row(
    metric: str, part: Part, tallies: Sequence[Tally], annotator: str = ""
) -> dict[str, object]:
    """The mean of the values of annotators; NaN is no data and no part of it."""
    known = [tally for tally in tallies if tally.total > 0]
    values = [tally.value for tally in known]
    number = of_group([(1 / len(known), tally) for tally in known] or [(1.0, tallies[0])], Index())
    if known:
        number = replace(number, value=fmean(values))
    low, high = number.interval((-1.0 if metric in CORRECTED else 0.0, 1.0))
    kind, level = part
    return {
        "metric": metric, "over": "group" if annotator else "all", "group": annotator,
        "kind": kind, "level": level, "value": number.value, "low": low, "high": high,
        "n": sum(tally.n for tally in tallies),
        "n_excluded": sum(tally.left_out for tally in tallies),
        "std": stdev(values) if len(values) > 1 else NAN,
    }  # fmt: skip


CORRECTED = ("fleiss_kappa", "krippendorff_alpha")  # Measures of agreement from -1 to 1


def agreements(counts: LabelIndices, items: Clusters) -> dict[str, Tally]:
    """Agreement between annotators: three measures.

    ``counts`` (item, label): n_ij annotators gave item i the label j, n_i any. Items with fewer
    than two answers are left out.

    ``P_i = sum_j n_ij (n_ij - 1) / (n_i (n_i - 1))``, the share of pairs of annotators that agree
    on item i; the mean over items ``P`` is the pairwise agreement, from 0 to 1.
    ``p_j = sum_i n_ij / sum_i n_i``; ``P_e = sum_j p_j ** 2`` is the agreement by chance. Fleiss'
    ``kappa = (P - P_e) / (1 - P_e)``, at most 1, 0 for chance; NaN where all answers are the same
    (``P_e`` is 1). Fleiss 1971, Psychological Bulletin 76, where every n_i is the same; with
    missing answers they differ.

    Krippendorff's alpha for nominal answers: with ``n = sum_i n_i`` and ``n_c = sum_i n_ic``,
    ``alpha = 1 - D_o / D_e``, the observed disagreement ``D_o = sum_i n_i (1 - P_i) / n`` and the
    disagreement by chance ``D_e = sum_c n_c (n - n_c) / (n (n - 1))``. At most 1, 0 for chance; NaN
    where all answers are the same. Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
    """
    counts = np.where(counts.sum(axis=1, keepdims=True) >= 2, counts, 0)
    answers = counts.sum(axis=1)
    agreement = quotient((counts * (counts - 1)).sum(axis=1), answers * (answers - 1))
    pairwise = Tally.of_values(items, agreement)
    none = replace(pairwise, scores=np.zeros_like(pairwise.scores))
    found = {"pairwise_agreement": pairwise, **dict.fromkeys(CORRECTED, none)}
    if (counts.sum(axis=0) > 0).sum() > 1:
        agree = np.nan_to_num(agreement)
        columns = np.column_stack([agree, answers > 0, answers, answers * (1 - agree), counts])
        for name, finish in zip(CORRECTED, (_kappa, _alpha), strict=True):
            found[name] = Tally.of_sums(columns, finish, items, pairwise.n, pairwise.left_out)
    return found


def _kappa(sums: Any) -> tuple[Any, Any]:
    """``P - P_e`` and ``1 - P_e``, times the items."""
    items, answers = sums[..., 1], sums[..., 2]
    by_chance = items * (sums[..., 4:] ** 2).sum(axis=-1) / answers**2
    return sums[..., 0] - by_chance, items - by_chance


def _alpha(sums: Any) -> tuple[Any, Any]:
    """``D_e - D_o`` and ``D_e``, times the answers."""
    answers, by_label = sums[..., 2], sums[..., 4:]
    by_chance = (by_label * (answers[..., None] - by_label)).sum(axis=-1) / (answers - 1)
    return by_chance - sums[..., 3], by_chance


SAME, DIFFERENT = "same", "different"


def draw_pattern_sheets(
    suite: Suite, *, patterns: int = 5, annotators: int = 3, seed: int = 0
) -> SheetKey:
    """Compare up to ``patterns`` of each relation with its base pattern, in each language.

    Both are filled with a random fact of the relation. The order is the annotator's own.
    """
    generator = random.Random(f"{seed}, {suite.digest}")
    items: dict[str, SheetItem] = {}
    about: dict[str, tuple[str, str]] = {}
    for relation, (base, *others) in _by_language(suite):
        for at in sorted(generator.sample(range(len(others)), min(patterns, len(others)))):
            fact, pattern = generator.choice(relation.facts), others[at]
            first, second = (sentence(relation, one, fact) for one in (base, pattern))
            name = f"{relation.id}: {pattern.text}"
            items[name] = SheetItem(SAME, {ORIGINAL: (first, second)})
            about[name] = relation.id, pattern.text
    if not items:
        found = f"the suite '{suite.name}' has no relation with two patterns"
        expected = "patterns to compare with a base pattern"
        raise ConsilienceError(found, expected=expected, todo="Add patterns.")
    sheets = _sheets([(name, ORIGINAL) for name in items], annotators, seed)
    question, labels = "Do these two sentences say the same?", (SAME, DIFFERENT)
    return SheetKey(suite.name, question, labels, seed, suite.digest, items, sheets, about)


def _by_language(suite: Suite) -> Iterator[tuple[Relation, list[Pattern]]]:
    """The patterns of each relation in each of its languages; the first is the base pattern."""
    for relation in suite:
        for language in dict.fromkeys(pattern.language for pattern in relation.patterns):
            yield relation, [one for one in relation.patterns if one.language == language]


SHOWN = 20  # patterns


def verdicts(scored: ScoredSheets) -> Iterator[tuple[str, str, str, str]]:
    """Every answer about a pattern: relation, pattern, person, and *same* or *different*."""
    for at, item in enumerate(scored.key.items):
        for person, name in enumerate(scored.annotators):
            answer = scored.answers[0, at, person]
            if item in scored.key.patterns and answer >= 0:
                yield *scored.key.patterns[item], name, scored.key.labels[answer]


def rejected_table(scored: ScoredSheets) -> Table:
    """The patterns that a person judged different from the base pattern."""
    by_pattern: dict[tuple[str, str], list[str]] = defaultdict(list)
    for *pattern, who, verdict in verdicts(scored):
        if verdict == DIFFERENT:
            by_pattern[pattern[0], pattern[1]].append(who)
    order = sorted(by_pattern.items(), key=lambda item: -len(item[1]))
    rows = [[relation, pattern, ", ".join(who)] for (relation, pattern), who in order[:SHOWN]]
    more = [f"and {len(order) - SHOWN} more: --json"] if len(order) > SHOWN else []
    title = f"{len(order)} of {len(scored.key.patterns)} patterns were judged different"
    return Table(title, [Column("relation"), Column("pattern"), Column("by")], rows, more)


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

    def printed(self, output: OutputOptions) -> Iterator[str]:
        key, size = self.key, counted(self.questions, "question")
        first, *others = key.sheets
        table = f"{self.folder}/{first}.csv{', ...' if others else ''}"
        yield f"{counted(len(key.sheets), 'sheet')} of {size}: {table}"
        yield f"Ask: {key.question} ({', '.join(key.labels)})"
        yield f"Keep key.json to yourself. Then: consilience suite annotate score {self.folder}"

    def document(self) -> dict[str, Any]:
        return {
            "run": self.record, "folder": str(self.folder), "sheets": len(self.key.sheets),
            "questions": self.questions, "warnings": self.notes,
        }  # fmt: skip


def make_sheets(options: SheetOptions) -> Sheets:
    """Sample pairs, and write a table for each annotator."""
    task = load_task(options.task)
    pairs = read_pairs(options.data, task)
    key = draw_sheets(
        pairs,
        task,
        chosen(options.perturbations or PAPERS),
        items=options.items,
        annotators=options.annotators,
        seed=options.seed,
    )
    write_sheets(key, options.out)
    notes = list(pairs.notes)
    if len(key.items) < options.items:
        notes.append(f"{options.data} has {len(key.items)} pairs, not {options.items}")
    record = record_of(task=key.task, data=options.data, question=key.question, seed=options.seed)
    return Sheets(key, notes, record, options.out)


def make_pattern_sheets(options: PatternSheetOptions) -> Sheets:
    """Compare patterns with the base pattern of their relation, in a table for each annotator."""
    suite = suites.load_suite(options.suite)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    most, people = options.patterns, options.annotators
    key = draw_pattern_sheets(suite, patterns=most, annotators=people, seed=options.seed)
    write_sheets(key, options.out)
    sizes = [len(patterns) - 1 for _, patterns in _by_language(suite)]
    notes = []
    if left_out := sum(sizes) - len(key.patterns):
        notes.append(
            f"{left_out} of {counted(sum(sizes), 'pattern')} left out, because a relation has at "
            f"most {most} in a language; --patterns {max(sizes)} compares all"
        )
    record = record_of(suite=suite.name, suite_digest=suite.digest, seed=options.seed)
    return Sheets(key, notes, record, options.out)


class ScoredByPeople(Shown):
    """The numbers of annotators."""

    def __init__(self, scored: ScoredSheets, record: Mapping[str, Any]) -> None:
        self.scored, self.record, self.notes = scored, record, scored.warnings

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        scored = self.scored
        people, items = scored.annotators, len(scored.key.items)
        size = f"{counted(len(people), 'person', 'people')}, {counted(items, 'item')}"
        title = f"{scored.key.task}: {size}, in percent"
        yield from annotator_tables(scored.metrics, people, title)
        if scored.key.patterns:
            rejected = rejected_table(scored)
            yield rejected if rejected.rows else rejected.title

    def document(self) -> dict[str, Any]:
        metrics = self.scored.metrics.to_dicts()
        document = {"run": self.record, "metrics": metrics, "warnings": self.notes}
        if self.scored.key.patterns:
            names = ("relation", "pattern", "who", "verdict")
            rows = [dict(zip(names, one, strict=True)) for one in verdicts(self.scored)]
            document["verdicts"] = rows
        return document

    def frame(self) -> pl.DataFrame:
        return self.scored.metrics


def count_sheets(options: ScoreSheetsOptions) -> tuple[ScoredSheets, Mapping[str, Any]]:
    """The numbers of the answers in a folder, and their record."""
    scored = score_sheets(options.folder)
    key = scored.key
    record = record_of(
        sheets=str(options.folder),
        task=key.task,
        question=key.question,
        digest=key.digest,
        seed=key.seed,
        annotators=scored.annotators,
    )
    return scored, record
