"""Sheets for annotators of sentence pairs and of patterns, their answers, the commands."""

from __future__ import annotations

import codecs
import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience import suites
from consilience.authoring.checks import normal_form, sentence
from consilience.core.errors import ConsilienceError
from consilience.core.factors import ORIGINAL
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Floats, Question, Task
from consilience.core.patterns import ENGLISH, Pattern
from consilience.core.schemas import METRICS_SCHEMA
from consilience.core.text import counted, names_a_file
from consilience.files.read import FirstFault, parse_json, read_cells
from consilience.files.write import csv_cell, csv_of, refuse_occupied, table_of, write_whole
from consilience.metrics.registry import quotient
from consilience.metrics.statistics import NAN, REPLICATES, bootstrap_interval, resamples
from consilience.options import Output
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
from consilience.suites.proposals import (
    OF_QUESTIONS,
    proposes_phrasings,
    read_proposals,
)
from consilience.suites.question_suites import (
    WORDS,
    read_words,
    suite_of_phrasings,
    words_in,
    words_note,
)
from consilience.suites.questions import Questions
from consilience.types import Fact, Relation, Suite

LabelIndices = npt.NDArray[np.int64]  # Answers as positions among the labels; -1 for none

Asked = tuple[str, str]  # An item and the variant in which it is asked

COLUMNS = ("question", "text_1", "text_2", "answer")

PAGE = Path(__file__).with_name("annotation.html")  # ``@SHEET@`` is replaced by its data


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
    made: str = field(default="", compare=False)  # When they were written, in UTC; empty before

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
    question: str = "",
) -> SheetKey:
    """Sample items with ``seed``; every annotator gets each of them in every variant."""
    sample = sample_pairs(pairs, items, seed)
    chosen = {}
    for pair in sample.items:
        forms = forms_of(pair, original(pair, task.indicators), perturbations)
        texts = {name: (first.text, second.text) for name, (first, second) in forms.items()}
        chosen[pair.item] = SheetItem(pair.label, texts)
    names = [ORIGINAL, *perturbations]
    sheets = {
        f"annotator-{number}": _order(list(chosen), names, number, seed)
        for number in range(1, annotators + 1)
    }
    if not question:
        question = QUESTIONS.get(task.name, QUESTIONS[task.kind]).format(*task.indicators)
    return SheetKey(task.name, question, task.labels, seed, sample.digest, chosen, sheets)


def _order(
    items: Sequence[str], names: Sequence[str], annotator: int, seed: int
) -> tuple[Asked, ...]:
    """Every question, in blocks that have each item once and each variant equally often.

    The variant of an item in a block depends on the annotator (a Latin square). An item stays in
    the same half of every block, at a random position: at least ``len(items) // 2`` other questions
    are between two variants of it.
    """
    generator = random.Random(f"{seed}, annotator {annotator}")
    turn = {item: position + annotator for position, item in enumerate(items)}
    shuffled = generator.sample(items, len(items))
    middle = len(items) // 2
    questions: list[Asked] = []
    for block in range(len(names)):
        for half in (shuffled[:middle], shuffled[middle:]):
            order = generator.sample(half, len(half))
            questions += [(item, names[(turn[item] + block) % len(names)]) for item in order]
    return tuple(questions)


def write_sheets(key: SheetKey, folder: Path, words: Mapping[str, str] = WORDS[ENGLISH]) -> None:
    """Write ``key.json``, and for each annotator a table (CSV) and a page (HTML).

    Table and page have the same questions; neither tells gold, item or variant. A folder that
    already holds these sheets gets the missing ones. A folder that holds anything else raises: it
    may hold answers. The same sheets in another folder are others, because a person may judge
    again: a browser keeps their answers apart.
    """
    key_file = folder / "key.json"
    old = None
    with suppress(ConsilienceError):  # there is no key, or that of something else
        old = read_key(key_file)
    if old != key:
        refuse_occupied(folder)
    folder.mkdir(parents=True, exist_ok=True)
    key = replace(key, made=old.made if old else datetime.now(UTC).isoformat())
    if old is None:
        content = json.dumps(asdict(key), ensure_ascii=False, indent=1) + "\n"
        write_whole(key_file, content.encode())
    for name in key.sheets:
        rows = [
            dict(zip(COLUMNS, (number, *texts, ""), strict=True))
            for number, texts in enumerate(key.texts(name), 1)
        ]
        table = codecs.BOM_UTF8 + csv_of(table_of(rows))  # the mark tells spreadsheets: UTF-8
        for suffix, sheet in ((".csv", table), (".html", page(key, name, words).encode())):
            if not (folder / f"{name}{suffix}").exists():
                write_whole(folder / f"{name}{suffix}", sheet)


def page(key: SheetKey, annotator: str, words: Mapping[str, str] = WORDS[ENGLISH]) -> str:
    """The page of an annotator: one file that loads nothing, its texts as data, not as HTML."""
    sheet: dict[str, object] = {"name": annotator, "question": key.question, "labels": key.labels}
    sheet |= {"columns": COLUMNS, "rows": key.texts(annotator)}
    # In a browser, the answers are kept under this name.
    sheet["id"] = hashlib.sha256(json.dumps([key.made, sheet]).encode()).hexdigest()
    sheet["words"] = words
    data = json.dumps(sheet)  # all but ASCII escaped, U+2028 and U+2029 too
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return PAGE.read_text(encoding="utf-8").replace("@SHEET@", data)


def read_key(path: Path) -> SheetKey:
    """The key that ``write_sheets`` wrote."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if missing := {*SheetKey.__slots__} - {"patterns", *content}:
            raise KeyError(min(missing))
        items = {
            name: SheetItem(item["gold"], {form: (a, b) for form, (a, b) in item["texts"].items()})
            for name, item in content["items"].items()
        }
        sheets = {name: tuple((a, b) for a, b in of) for name, of in content["sheets"].items()}
        patterns = {name: (a, b) for name, (a, b) in content.get("patterns", {}).items()}
        made = datetime.fromisoformat(content["made"]).astimezone(UTC).isoformat()
        read = {"items": items, "sheets": sheets, "patterns": patterns, "made": made}
        key = SheetKey(**content | read | {"labels": tuple(content["labels"])})
        every = sorted((item, variant) for item in items for variant in key.variants)
        texts = [text for item in items.values() for form in key.variants
                 for text in item.texts[form]]  # fmt: skip
        if not (
            every
            and sheets
            and all(sorted(questions) == every for questions in sheets.values())
            and all(item.gold in key.labels for item in items.values())
            and all(isinstance(text, str) for text in (key.task, *key.labels, *texts))
        ):
            raise ValueError("incomplete")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        reason = f": no {error}" if isinstance(error, KeyError) else ""
        found = f"no key of sheets{reason}" if path.is_file() else "no such file"
        expected = "the key of the sheets"
        todo = "Name the folder that `consilience suite annotate sheet` or `patterns` wrote."
        raise ConsilienceError(found, expected=expected, where=str(path), todo=todo) from error
    return key


def read_sheet(path: Path, key: SheetKey, annotator: str) -> LabelIndices:
    """An annotator's answers (variant, item).

    Rows and columns may have any order, and there may be other columns. Separators are commas,
    semicolons or tabs, as spreadsheets save them. Labels may have any case. Texts may differ in
    spaces only.
    """
    texts, variants, items = key.texts(annotator), key.variants, list(key.items)
    labels = {"": -1} | {label.casefold(): at for at, label in enumerate(key.labels)}
    answers = np.full((len(variants), len(items)), -1)

    def refuse(found: str, expected: str, row: int, todo: str = "") -> NoReturn:
        raise ConsilienceError(found, expected=expected, where=f"{path}, row {row}", todo=todo)

    sheet = [cells for _, cells in read_cells(path, quoted=True, notes=[])]
    names = [name.strip().casefold() for name in (sheet or [[]])[0]]
    if missing := [name for name in COLUMNS if name not in names]:
        refuse(f"no column '{missing[0]}'", ", ".join(COLUMNS), 1)
    rows: dict[int, int] = {}
    for number, cells in enumerate(sheet[1:], 2):
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip_longest(names, cells[: len(names)], fillvalue=""))
        cell, answer = row["question"].strip(), row["answer"].strip().casefold()
        question = int(cell) if cell.isdecimal() and len(cell) < 9 else 0
        if not 1 <= question <= len(texts):
            refuse(f"the question '{cell}'", f"1 to {len(texts)}", number)
        if question in rows:
            once = f"it once, as in row {rows[question]}"
            refuse(f"duplicate question {question}", once, number, "Remove one of the two.")
        rows[question] = number
        for name, text in zip(("text_1", "text_2"), texts[question - 1], strict=True):
            if row[name].split() not in (text.split(), csv_cell(text).split()):
                found = f"the {name} of question {cell} is '{row[name][:60]}'"
                todo = "Is it the sheet of another annotator or draw?"
                refuse(found, f"'{text[:60]}', as it was asked", number, todo)
        if answer not in labels:
            refuse(f"the answer '{row['answer']}'", ", ".join(key.labels), number)
        item, variant = key.sheets[annotator][question - 1]
        answers[variants.index(variant), items.index(item)] = labels[answer]
    if absent := [number for number in range(1, len(texts) + 1) if number not in rows]:
        found = f"question {absent[0]} is missing ({len(absent)} of {len(texts)} are)"
        refuse(found, "all questions, also those without an answer", len(rows) + 2)
    return answers


@dataclass(frozen=True, slots=True)
class ScoredSheets:
    """The answers of annotators, counted."""

    key: SheetKey
    annotators: tuple[str, ...]
    metrics: pl.DataFrame
    warnings: tuple[str, ...]
    answers: LabelIndices  # Positions among the labels (variant, item, annotator); -1 for none


def score_sheets(folder: Path, seed: int = 0) -> ScoredSheets:
    """Count the answers in a folder; ``seed``: of the bootstrap. Empty sheets are left out."""
    key = read_key(folder / "key.json")
    for path in sorted(folder.glob("annotator*.csv")):
        if path.stem not in key.sheets:
            found = "no such annotator in key.json"
            expected = ", ".join(f"{name}.csv" for name in key.sheets)
            todo = "Rename the sheet to its annotator, or remove it."
            raise ConsilienceError(found, expected=expected, where=str(path), todo=todo)
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
    metrics = pl.DataFrame(list(_rows(key, stacked, list(answers), seed)), schema=METRICS_SCHEMA)
    return ScoredSheets(key, tuple(answers), metrics, tuple(warnings), stacked)


def _parts(
    key: SheetKey, answers: LabelIndices
) -> Iterator[tuple[str, str, LabelIndices, LabelIndices | None]]:
    """Each metric and subset, its answers (item, annotator), and the answers that they should be.

    None in place of the last: the annotators are compared with each other. ``answers``: (variant,
    item, annotator). The subset ``all`` is the original form. Consistency compares a perturbed form
    with the same annotator's answer to the original. Agreement with a suite is the share of answers
    *same* to paraphrases, and of *different* to controls (ParaRel, Section 4).
    """
    gold = np.array([[key.labels.index(item.gold)] for item in key.items.values()])
    if key.patterns:
        for label, subset in enumerate(("paraphrases", "controls")):
            is_part = gold[:, 0] == label
            if is_part.any():
                yield "agreement", subset, answers[0][is_part], gold[is_part]
        yield "", "all", answers[0], None
        return
    for variant, given in zip(key.variants, answers, strict=True):
        subset = "all" if variant == ORIGINAL else variant
        yield "accuracy", subset, given, gold
        if variant != ORIGINAL:
            yield "consistency", subset, given, answers[0]
        yield "", subset, given, None


def _rows(
    key: SheetKey, answers: LabelIndices, annotators: Sequence[str], seed: int
) -> Iterator[dict[str, object]]:
    """The metrics of ``answers`` (variant, item, annotator), over annotators and of each.

    Intervals are about other items and the same annotators.
    """
    for metric, subset, given, other in _parts(key, answers):
        weights = resamples(len(given), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
        if other is None:
            counts = (given[:, :, None] == np.arange(len(key.labels))).sum(axis=1)
            counted = counts.sum(axis=1, keepdims=True) >= 2
            resampled = agreements(counts, weights)
            for name, values in agreements(counts, np.ones((1, len(counts)))).items():
                yield _row((name, key.task, subset), values, resampled[name][:, None], counted)
            continue
        counted = (given >= 0) & (other >= 0)
        same = (given == other) & counted
        values = quotient(same.sum(axis=0), counted.sum(axis=0))
        replicates = quotient(weights @ same, weights @ counted)
        yield _row((metric, key.task, subset), values, replicates, counted)
        for at, name in enumerate(annotators):
            one = values[[at]], replicates[:, [at]], counted[:, [at]]
            yield _row((metric, name, subset), *one)


def _row(
    names: tuple[str, str, str], values: Floats, replicates: Floats, counted: npt.NDArray[np.bool_]
) -> dict[str, object]:
    """The mean of ``values`` (annotator,), and its interval from ``replicates``.

    ``names``: the metric, the group and the subset. ``replicates``: (replicate, annotator).
    ``counted`` (item, annotator): the answers that count. For agreement all annotators are one. No
    data is NaN, and no part of a mean.
    """
    metric, *group_and_subset = names
    mean, means = (
        quotient(np.nansum(table, axis=-1), (~np.isnan(table)).sum(axis=-1))
        for table in (values, replicates)
    )
    known, clusters, n = values[~np.isnan(values)], counted.any(axis=1).sum(), int(counted.sum())
    least = -1.0 if metric in ("fleiss_kappa", "krippendorff_alpha") else 0.0
    low, high = bootstrap_interval(
        float(mean), means, int(clusters), (least, 1.0), proportion=least == 0
    )
    std = float(known.std(ddof=1)) if len(known) > 1 else NAN
    cells = (float(mean), std, low, high, n, counted.size - n, 1, NAN, NAN)
    return dict(zip(METRICS_SCHEMA, (metric, "human", *group_and_subset, *cells), strict=True))


def agreements(counts: LabelIndices, weights: Floats) -> dict[str, Floats]:
    """Agreement between annotators: three measures, (replicate,) each.

    ``counts`` (item, label): n_ij annotators gave item i the label j, n_i any. ``weights``
    (replicate, item): how often an item counts. Items with fewer than two answers are left out.

    ``P_i = sum_j n_ij (n_ij - 1) / (n_i (n_i - 1))``, the share of pairs of annotators that agree
    on item i; the mean over items ``P`` is the pairwise agreement, from 0 to 1.
    ``p_j = sum_i n_ij / sum_i n_i``; ``P_e = sum_j p_j ** 2`` is the agreement by chance. Fleiss'
    ``kappa = (P - P_e) / (1 - P_e)``, at most 1, 0 for chance; NaN where all answers are the same
    (``P_e`` is 1). Fleiss 1971, Psychological Bulletin 76, where every n_i is the same; with
    missing answers they differ.

    Krippendorff's alpha for nominal answers: with ``n = sum_i n_i`` and ``n_c = sum_i n_ic``,
    ``alpha = 1 - D_o / D_e``, the observed disagreement
    ``D_o = sum_i sum_c n_ic (n_i - n_ic) / (n_i - 1) / n`` and the disagreement by chance
    ``D_e = sum_c n_c (n - n_c) / (n (n - 1))``. At most 1, 0 for chance; NaN where all answers are
    the same. Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
    """
    rated = counts.sum(axis=1) >= 2
    counts, weights = counts[rated], weights[:, rated]
    answers = counts.sum(axis=1)
    total, by_label = weights @ answers, weights @ counts
    agreement = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    pairwise = quotient(weights @ agreement, weights.sum(axis=1))
    chance = (quotient(by_label, total[:, None]) ** 2).sum(axis=1)
    kappa = quotient(pairwise - chance, 1 - chance)
    disagreement = (counts * (answers[:, None] - counts)).sum(axis=1) / (answers - 1)
    observed = quotient(weights @ disagreement, total)
    expected = (by_label * (total[:, None] - by_label)).sum(axis=1)
    alpha = 1 - quotient(observed, quotient(expected, total * (total - 1)))
    return {"pairwise_agreement": pairwise, "fleiss_kappa": kappa, "krippendorff_alpha": alpha}


SAME, DIFFERENT = "same", "different"
PARAPHRASES_OF_A_TASK = 5
CONTROLS_OF_A_TASK = 2


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
    folded = [name.casefold() for name in annotators]
    if {"key"} & {*folded} or len({*folded}) < len(folded) or not all(map(names_a_file, folded)):
        found = f"the annotators {', '.join(annotators)}"
        expected = "short names that can name files, and differ by more than case"
        raise ConsilienceError(found, expected=expected, todo="Give each person another name.")
    generator = random.Random(f"{seed}, {suite.digest}")
    judged: list[JudgedPattern] = []
    for relation, (base, *others) in _by_language(suite):
        for at in sorted(generator.sample(range(len(others)), min(patterns, len(others)))):
            fact = generator.choice(relation.facts)
            judged.append(JudgedPattern(relation, base, others[at], fact))
    if not judged:
        found = f"the suite '{suite.name}' has no relation with two patterns"
        expected = "patterns to compare with a base pattern"
        raise ConsilienceError(found, expected=expected, todo="Add patterns.")
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
    question = WORDS[ENGLISH][f"judge_{suite.words.variant}"]
    return SheetKey(suite.name, question, (SAME, DIFFERENT), seed, digest, items, sheets, about)


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

Answer = tuple[str, str, str, str]  # Relation, pattern, person, and what the person says of it


def verdicts(scored: ScoredSheets) -> Iterator[Answer]:
    """Every answer about a pattern: *same* accepts it, *different* rejects it."""
    same = scored.key.labels.index(SAME)
    for at, item in enumerate(scored.key.items):
        for person, name in enumerate(scored.annotators):
            answer = scored.answers[0, at, person]
            if item in scored.key.patterns and answer >= 0:
                yield *scored.key.patterns[item], name, "accept" if answer == same else "reject"


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
    file = Path(options.suite)
    is_proposed = proposes_phrasings(file)
    suite = _proposed(file) if is_proposed else suites.load_suite(file, options.data_dir)
    if options.groups is not None:
        suite = select_relations(suite, options.groups)
    sizes = [len(patterns) - 1 for _, patterns in _by_language(suite)]
    most = max(sizes) if is_proposed else options.patterns
    languages = {pattern.language for relation in suite for pattern in relation.patterns}
    language = languages.pop() if len(languages) == 1 else ENGLISH
    known = read_words(options.words)
    notes, words = words_note([language], known), words_in(language, known)
    key = draw_pattern_sheets(suite, patterns=most, annotators=options.people, seed=options.seed)
    key = replace(key, question=words[f"judge_{suite.words.variant}"])
    write_sheets(key, options.out, words)
    if left_out := sum(sizes) - len(key.patterns):
        notes.append(
            f"{left_out} of {counted(sum(sizes), 'pattern')} left out, because a relation has at "
            f"most {most} in a language; --patterns {max(sizes)} compares all"
        )
    if len(key.items) == len(key.patterns):
        notes.append(
            "there are no controls, because no pattern of another relation takes the same names"
        )
    record = record_of(suite=suite.name, suite_digest=suite.digest, seed=options.seed)
    return Sheets(key, notes, record, options.out)


def _proposed(file: Path) -> Suite:
    """The phrasings in a file of proposals as a suite, with their parents as base patterns."""
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for one in read_proposals(file, FirstFault(), OF_QUESTIONS, []):
        if not one.parent:
            found, expected = f"no parent of '{one.pattern}'", "the question that it says again"
            raise ConsilienceError(found, expected=expected, where=one.where)
        texts[one.relation] |= {one.parent: None, one.pattern: None}
    questions = (
        Question(item, item, {DEFAULT_LANGUAGE: tuple(of_item)}, Choice(""))
        for item, of_item in texts.items()
    )
    return suite_of_phrasings(Questions(file.stem, tuple(questions)))


class ScoredByPeople(Shown):
    """The numbers of annotators."""

    def __init__(self, scored: ScoredSheets, record: Mapping[str, Any]) -> None:
        self.scored, self.record, self.notes = scored, record, scored.warnings

    def printed(self, output: Output) -> Iterator[Table | str]:
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
    return scored, record
