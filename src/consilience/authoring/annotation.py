"""Sheets for annotators: who is asked what, in which order (CALUM, Section 4.4).

``draw_sheets`` draws the questions, ``write_sheets`` writes them, and ``read_sheet`` reads the
answers.
"""

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
from pathlib import Path

import numpy as np
import numpy.typing as npt

from consilience.design import ORIGINAL
from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import csv_cell, write_whole
from consilience.read import parse_json, read_cells, read_text
from consilience.sentence_pairs import Task
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
    """Its label."""
    texts: Mapping[str, tuple[str, str]]
    """The two texts by variant, as annotators read them."""


@dataclass(frozen=True, slots=True)
class SheetKey:
    """What was drawn; only the person who scores may see it."""

    task: str
    """The name of the task."""
    question: str
    """What annotators are asked."""
    labels: tuple[str, ...]
    """What they may answer."""
    seed: int
    """The seed of the items and the orders."""
    digest: str
    """SHA-256 of the drawn pairs."""
    items: Mapping[str, SheetItem] = field(repr=False)
    """The items by their names."""
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
            name: SheetItem(
                item["gold"], {variant: (a, b) for variant, (a, b) in item["texts"].items()}
            )
            for name, item in content.pop("items").items()
        }
        sheets = {
            name: tuple((item, variant) for item, variant in questions)
            for name, questions in content.pop("sheets").items()
        }
        labels = tuple(content.pop("labels"))
        patterns = {
            name: (relation, pattern)
            for name, (relation, pattern) in content.pop("patterns", {}).items()
        }
        if made := content.pop("made", ""):
            made = datetime.fromisoformat(made).astimezone(UTC).isoformat()
        key = SheetKey(
            **content, labels=labels, items=items, sheets=sheets, patterns=patterns, made=made
        )
        expected = sorted((item, variant) for item in items for variant in key.variants)
        is_whole = all(sorted(questions) == expected for questions in sheets.values())
        is_known = all(item.gold in labels for item in items.values())
        texts = [text for item in items.values() for variant in key.variants
                 for text in item.texts[variant]]  # fmt: skip
        is_known &= all(isinstance(text, str) for text in (key.task, *labels, *texts))
        if not (is_whole and is_known and expected and sheets):
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
    texts = key.texts(annotator)
    answers = np.full((len(key.variants), len(key.items)), -1)
    positions = {item: position for position, item in enumerate(key.items)}
    rows: dict[int, int] = {}
    for number, row in _sheet_rows(path):
        where = f"{path}, row {number}"
        question = _question(row["question"].strip(), len(texts), where)
        if question in rows:
            raise ConsilienceError(
                f"duplicate question {question}",
                expected=f"it once, as in row {rows[question]}",
                where=where,
                todo="Remove one of the two.",
            )
        rows[question] = number
        _check_texts(row, texts[question - 1], where)
        item, variant = key.sheets[annotator][question - 1]
        answer = _label_index(row["answer"], key.labels, where)
        answers[key.variants.index(variant), positions[item]] = answer
    if missing := [number for number in range(1, len(texts) + 1) if number not in rows]:
        raise ConsilienceError(
            f"question {missing[0]} is missing ({len(missing)} of {len(texts)} are)",
            expected="all questions, also those without an answer",
            where=f"{path}, row {len(rows) + 2}",
        )
    return answers


def _question(cell: str, size: int, where: str) -> int:
    """The number of a question, from 1."""
    number = int(cell) if cell.isdecimal() and len(cell) < 9 else 0
    if not 1 <= number <= size:
        raise ConsilienceError(f"the question '{cell}'", expected=f"1 to {size}", where=where)
    return number


def _check_texts(row: Mapping[str, str], texts: tuple[str, str], where: str) -> None:
    """Raise where the texts of a row are not those that were asked."""
    for name, text in zip(("text_1", "text_2"), texts, strict=True):
        if row[name].split() not in (text.split(), csv_cell(text).split()):
            raise ConsilienceError(
                f"the {name} of question {row['question'].strip()} is '{row[name][:60]}'",
                expected=f"'{text[:60]}', as it was asked",
                where=where,
                todo="Is it the sheet of another annotator or draw?",
            )


def _label_index(answer: str, labels: Sequence[str], where: str) -> int:
    """The position of an answer among the labels; -1 for an empty one."""
    word = answer.strip().casefold()
    positions = {label.casefold(): position for position, label in enumerate(labels)}
    if word and word not in positions:
        raise ConsilienceError(f"the answer '{answer}'", expected=", ".join(labels), where=where)
    return positions.get(word, -1)


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
            padded = [*cells, *[""] * (len(names) - len(cells))]
            yield number, dict(zip(names, padded, strict=False))
