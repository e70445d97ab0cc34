"""Sheets for annotators of sentence pairs, and their agreement."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import OTHER_OUT, ConsilienceError
from consilience.core.factors import ORIGINAL
from consilience.core.items import Task
from consilience.core.schemas import METRICS_SCHEMA
from consilience.files.read import parse_json, read_cells, read_text
from consilience.files.write import csv_cell, write_whole
from consilience.metrics.registry import quotient
from consilience.metrics.statistics import NAN, REPLICATES, Floats, bootstrap_interval, resamples
from consilience.suites.pairs import Pairs, sample_pairs
from consilience.suites.perturbations import Perturbation, forms_of, original

LabelIndices = npt.NDArray[np.int64]
"""Answers as positions among the labels; -1 for none."""

Question = tuple[str, str]
"""An item and the variant in which it is asked."""

COLUMNS = ("question", "text_1", "text_2", "answer")

PAGE = Path(__file__).with_name("annotation.html")
"""The page that asks; ``@SHEET@`` is replaced by its data."""

_RELATED = (
    "If “{0}” is true, is “{1}” true (entailment), false (contradiction), or either (neutral)?",
    "“{0}”이(가) 참일 때 “{1}”은(는) 참(entailment)입니까, 거짓(contradiction)입니까, "
    "알 수 없습니까(neutral)?",
)
QUESTIONS: Mapping[str, str] = {
    "NLI": "Does “{1}” follow from “{0}” (entailment)?",
    "STS": "Do “{0}” and “{1}” mean the same?",
    "mnli": _RELATED[0],
    "snli": _RELATED[0],
    "qnli": "Does “{1}” contain the answer to “{0}” (entailment)?",
    "kornli": _RELATED[1],
    "klue-nli": _RELATED[1],
    "klue-sts": "“{0}”와(과) “{1}”은(는) 같은 뜻입니까(equivalent)?",
}
"""The question to annotators, by task or else by kind; the slots are the indicators.

The CALUM paper does not say what its annotators were asked."""


@dataclass(frozen=True, slots=True)
class SheetItem:
    """A sentence pair that is asked."""

    gold: str
    texts: Mapping[str, tuple[str, str]]
    """The two texts by variant, as annotators read them."""


@dataclass(frozen=True, slots=True)
class SheetKey:
    """What was drawn; only the person who scores may see it."""

    task: str
    question: str
    labels: tuple[str, ...]
    seed: int
    digest: str
    items: Mapping[str, SheetItem] = field(repr=False)
    sheets: Mapping[str, tuple[Question, ...]] = field(repr=False)
    """The questions of each annotator, in order."""
    patterns: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """Of a suite of facts, the relation and the pattern that an item is about."""
    made: str = field(default="", compare=False)
    """When ``write_sheets`` wrote the sheets, in UTC; empty before, and of older sheets."""

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
) -> tuple[Question, ...]:
    """Every question, in blocks that have each item once and each variant equally often.

    The variant of an item in a block depends on the annotator (a Latin square). An item stays in
    the same half of every block, at a random position: at least ``len(items) // 2`` other questions
    are between two variants of it.
    """
    generator = random.Random(f"{seed}, annotator {annotator}")
    turn = {item: position + annotator for position, item in enumerate(items)}
    shuffled = generator.sample(items, len(items))
    middle = len(items) // 2
    questions: list[Question] = []
    for block in range(len(names)):
        for half in (shuffled[:middle], shuffled[middle:]):
            order = generator.sample(half, len(half))
            questions += [(item, names[(turn[item] + block) % len(names)]) for item in order]
    return tuple(questions)


def write_sheets(key: SheetKey, folder: Path) -> None:
    """Write ``key.json``, and for each annotator a table (CSV) and a page (HTML).

    Table and page have the same questions; neither tells gold, item or variant. A folder that
    already holds these sheets gets the missing ones. A folder that holds anything else raises: it
    may hold answers. The same sheets in another folder are others, because a person may judge
    again: a browser keeps their answers apart.
    """
    fields = {"made": datetime.now(UTC).isoformat()} | {
        name: value
        for name, value in asdict(key).items()
        if name != "made" and (name != "patterns" or value)
    }
    content = (json.dumps(fields, ensure_ascii=False, indent=1) + "\n").encode()
    key_file = folder / "key.json"
    is_same = key_file.is_file() and _undated(key_file.read_bytes()) == _undated(content)
    if not is_same and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConsilienceError(
            "there is something already",
            expected="a new or empty folder",
            where=str(folder),
            todo=f"{OTHER_OUT}.",
            kind="occupied",
        )
    folder.mkdir(parents=True, exist_ok=True)
    if is_same:
        fields["made"] = read_key(key_file).made
    else:
        write_whole(key_file, content)
    key = replace(key, made=str(fields["made"]))
    for name in key.sheets:
        for suffix, sheet in ((".csv", _table(key, name)), (".html", page(key, name))):
            if not (folder / f"{name}{suffix}").exists():
                write_whole(folder / f"{name}{suffix}", sheet.encode())


def _undated(content: bytes) -> bytes:
    """The content of ``key.json`` without the time at which it was written."""
    return re.sub(rb'\n "made": "[^"\n]*",', b"", content, count=1)


def _table(key: SheetKey, annotator: str) -> str:
    """The sheet of an annotator as CSV; its byte order mark tells spreadsheets that it is UTF-8."""
    table = io.StringIO("\ufeff", newline="")
    table.seek(0, io.SEEK_END)
    writer = csv.writer(table)
    writer.writerow(COLUMNS)
    for number, texts in enumerate(key.texts(annotator), 1):
        writer.writerow((number, *map(csv_cell, texts), ""))
    return table.getvalue()


def page(key: SheetKey, annotator: str) -> str:
    """The page of an annotator: one file that loads nothing, its texts as data, not as HTML."""
    sheet: dict[str, object] = {"name": annotator, "question": key.question, "labels": key.labels}
    sheet |= {"columns": COLUMNS, "rows": key.texts(annotator)}
    # In a browser, the answers are kept under this name.
    sheet["id"] = hashlib.sha256(json.dumps([key.made, sheet]).encode()).hexdigest()
    data = json.dumps(sheet)  # all but ASCII escaped, U+2028 and U+2029 too
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return PAGE.read_text(encoding="utf-8").replace("@SHEET@", data)


def read_key(path: Path) -> SheetKey:
    """The key that ``write_sheets`` wrote."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        items = {
            name: SheetItem(item["gold"], {form: (a, b) for form, (a, b) in item["texts"].items()})
            for name, item in content["items"].items()
        }
        sheets = {name: tuple((a, b) for a, b in of) for name, of in content["sheets"].items()}
        patterns = {name: (a, b) for name, (a, b) in content.get("patterns", {}).items()}
        made = content.get("made", "")
        made = made and datetime.fromisoformat(made).astimezone(UTC).isoformat()
        read = {"items": items, "sheets": sheets, "patterns": patterns, "made": made}
        key = SheetKey(**content | read | {"labels": tuple(content["labels"])})
        expected = sorted((item, variant) for item in items for variant in key.variants)
        texts = [text for item in items.values() for form in key.variants
                 for text in item.texts[form]]  # fmt: skip
        if not (
            expected
            and sheets
            and all(sorted(questions) == expected for questions in sheets.values())
            and all(item.gold in key.labels for item in items.values())
            and all(isinstance(text, str) for text in (key.task, *key.labels, *texts))
        ):
            raise ValueError("incomplete")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConsilienceError(
            "no key of sheets" if path.is_file() else "no such file",
            expected="the key of the sheets",
            where=str(path),
            todo="Name the folder that `consilience suite annotate sheet` or `patterns` wrote.",
        ) from error
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
    rows: dict[int, int] = {}
    for number, row in _sheet_rows(path):
        where, cell = f"{path}, row {number}", row["question"].strip()
        question = int(cell) if cell.isdecimal() and len(cell) < 9 else 0
        if not 1 <= question <= len(texts):
            expected = f"1 to {len(texts)}"
            raise ConsilienceError(f"the question '{cell}'", expected=expected, where=where)
        if question in rows:
            raise ConsilienceError(
                f"duplicate question {question}",
                expected=f"it once, as in row {rows[question]}",
                where=where,
                todo="Remove one of the two.",
            )
        rows[question] = number
        for name, text in zip(("text_1", "text_2"), texts[question - 1], strict=True):
            if row[name].split() not in (text.split(), csv_cell(text).split()):
                raise ConsilienceError(
                    f"the {name} of question {cell} is '{row[name][:60]}'",
                    expected=f"'{text[:60]}', as it was asked",
                    where=where,
                    todo="Is it the sheet of another annotator or draw?",
                )
        answer = row["answer"].strip().casefold()
        if answer not in labels:
            expected = ", ".join(key.labels)
            raise ConsilienceError(f"the answer '{row['answer']}'", expected=expected, where=where)
        item, variant = key.sheets[annotator][question - 1]
        answers[variants.index(variant), items.index(item)] = labels[answer]
    if missing := [number for number in range(1, len(texts) + 1) if number not in rows]:
        raise ConsilienceError(
            f"question {missing[0]} is missing ({len(missing)} of {len(texts)} are)",
            expected="all questions, also those without an answer",
            where=f"{path}, row {len(rows) + 2}",
        )
    return answers


def _sheet_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a sheet with their numbers, as a spreadsheet counts them."""
    header = read_text(path).partition("\n")[0]
    rows = read_cells(path, max(",;\t", key=header.count), quoted=True)
    _, first = next(rows, ("", []))
    names = [name.strip().casefold() for name in first]
    if missing := [name for name in COLUMNS if name not in names]:
        raise ConsilienceError(
            f"no column '{missing[0]}'", expected=", ".join(COLUMNS), where=f"{path}, row 1"
        )
    for number, (_, cells) in enumerate(rows, 2):
        if any(cell.strip() for cell in cells):
            yield number, dict(zip_longest(names, cells[: len(names)], fillvalue=""))


@dataclass(frozen=True, slots=True)
class ScoredSheets:
    """The answers of annotators, counted."""

    key: SheetKey
    annotators: tuple[str, ...]
    metrics: pl.DataFrame
    warnings: tuple[str, ...]
    answers: LabelIndices
    """Positions among the labels (variant, item, annotator); -1 for none."""


def score_sheets(folder: Path, seed: int = 0) -> ScoredSheets:
    """Count the answers in a folder of sheets; ``seed`` is that of the bootstrap.

    Missing and empty sheets are left out with a warning; if none is left it raises.
    """
    key = read_key(folder / "key.json")
    for path in sorted(folder.glob("annotator*.csv")):
        if path.stem not in key.sheets:
            raise ConsilienceError(
                "no such annotator in key.json",
                expected=", ".join(f"{name}.csv" for name in key.sheets),
                where=str(path),
                todo="Rename the sheet to its annotator, or remove it.",
            )
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


PATTERN_SUBSETS = ("paraphrases", "controls")
"""The parts of a sheet on patterns: pairs whose gold is the first label, and the other ones."""


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
        for label, subset in enumerate(PATTERN_SUBSETS):
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
                yield _row(name, key.task, subset, values, resampled[name][:, None], counted)
            continue
        counted = (given >= 0) & (other >= 0)
        same = (given == other) & counted
        values = quotient(same.sum(axis=0), counted.sum(axis=0))
        replicates = quotient(weights @ same, weights @ counted)
        yield _row(metric, key.task, subset, values, replicates, counted)
        for at, name in enumerate(annotators):
            one = values[[at]], replicates[:, [at]], counted[:, [at]]
            yield _row(metric, name, subset, *one)


def _row(
    metric: str,
    group: str,
    subset: str,
    values: Floats,
    replicates: Floats,
    counted: npt.NDArray[np.bool_],
) -> dict[str, object]:
    """The mean of ``values`` (annotator,), and its interval from ``replicates``.

    ``replicates``: (replicate, annotator). ``counted`` (item, annotator): the answers that count.
    For agreement all annotators are one. No data is NaN, and no part of a mean.
    """
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
    cells = ("human", group, subset, float(mean), std, low, high, n, counted.size - n, 1, NAN, NAN)
    return dict(zip(METRICS_SCHEMA, (metric, *cells), strict=True))


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
