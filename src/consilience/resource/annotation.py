"""How people answer: sheets for annotators, and what their answers say (CALUM, Section 4.4).

``draw`` decides who is asked what in which order, ``write`` makes the sheets, ``score`` counts.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import csv_cell, write_whole
from consilience.metrics.agreement import quotient
from consilience.metrics.statistics import REPLICATES, Floats, bootstrap_interval, resamples
from consilience.read import parse_json, read_text
from consilience.suites.pairs import Pairs, sample_pairs
from consilience.suites.perturbations import ORIGINAL, Perturbation, original, variants
from consilience.types import METRICS_SCHEMA, Task

Places = npt.NDArray[np.int64]

COLUMNS = ("question", "text_1", "text_2", "answer")

PAGE = Path(__file__).with_name("annotation.html")
"""The page that asks; ``@SHEET@`` stands for its data."""

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
    "qnli": "Does “{1}” hold the answer to “{0}” (entailment)?",
    "kornli": _RELATED[1],
    "klue-nli": _RELATED[1],
    "klue-sts": "“{0}”와(과) “{1}”은(는) 같은 뜻입니까(equivalent)?",
}
"""What annotators are asked, by task or else by kind, with the indicators in the slots. The words
are ours; the paper does not tell its own."""


@dataclass(frozen=True, slots=True)
class Item:
    """A drawn pair: its gold and, by variant, the two texts as they are read."""

    gold: str
    texts: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Key:
    """What was drawn; only who scores may see it.

    ``items`` by name. ``sheets``: (item, variant) of each question, by annotator. ``digest`` is
    that of the drawn pairs.
    """

    task: str
    question: str
    labels: tuple[str, ...]
    seed: int
    digest: str
    items: Mapping[str, Item]
    sheets: Mapping[str, tuple[tuple[str, str], ...]]

    @property
    def variants(self) -> list[str]:
        """The forms of every item; the original is the first."""
        return list(next(iter(self.items.values())).texts)

    def texts(self, annotator: str) -> list[tuple[str, str]]:
        """The two texts of each question of an annotator."""
        return [self.items[item].texts[variant] for item, variant in self.sheets[annotator]]


@dataclass(frozen=True, slots=True)
class Scored:
    """The metrics table of the annotators' answers, and what its reader should know."""

    key: Key
    annotators: tuple[str, ...]
    metrics: pl.DataFrame
    warnings: tuple[str, ...]


def draw(
    pairs: Pairs,
    task: Task,
    perturbations: Mapping[str, Perturbation],
    *,
    items: int = 30,
    annotators: int = 5,
    seed: int = 0,
    question: str = "",
) -> Key:
    """Items by ``seed``, each in the original and every perturbed form, the same for all."""
    drawn = sample_pairs(pairs, items, seed)
    chosen = {}
    for pair in drawn.items:
        forms = variants(original(pair, task.indicators), perturbations)
        texts = {name: (first.text, second.text) for name, (first, second) in forms.items()}
        chosen[pair.item] = Item(pair.label, texts)
    names = [ORIGINAL, *perturbations]
    return Key(
        task.name,
        question or QUESTIONS.get(task.name, QUESTIONS[task.kind]).format(*task.indicators),
        task.labels,
        seed,
        drawn.digest,
        chosen,
        {
            f"annotator-{number}": _order(list(chosen), names, number, seed)
            for number in range(1, annotators + 1)
        },
    )


def _order(
    items: Sequence[str], names: Sequence[str], annotator: int, seed: int
) -> tuple[tuple[str, str], ...]:
    """Every (item, variant) in blocks that have each item once, and each variant equally often.

    Which variant an item has in which block turns with the annotator (a Latin square). An item
    stays in the same half of every block, in a random place: between two variants of it lie at
    least ``len(items) // 2`` other questions.
    """
    generator = random.Random(f"{seed}, annotator {annotator}")
    turn = {item: place + annotator for place, item in enumerate(items)}
    halves = generator.sample(items, len(items))
    middle = len(items) // 2
    asked: list[tuple[str, str]] = []
    for block in range(len(names)):
        for half in (halves[:middle], halves[middle:]):
            order = generator.sample(half, len(half))
            asked += [(item, names[(turn[item] + block) % len(names)]) for item in order]
    return tuple(asked)


def write(key: Key, folder: Path) -> None:
    """``key.json``, and of each annotator a table (CSV) and a page (HTML) with the same questions.

    Neither of the two says what is gold, or which item and variant a question is. A folder that
    holds these sheets already gets those that it lacks; one that holds anything else raises: it
    may be answers.
    """
    content = json.dumps(asdict(key), ensure_ascii=False, indent=1) + "\n"
    kept = folder / "key.json"
    is_again = kept.is_file() and kept.read_bytes() == content.encode()
    if not is_again and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConsilienceError(
            "there is something already",
            expected="a new or empty folder",
            where=str(folder),
            todo=f"{OTHER_OUT}.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "key.json", content.encode())
    for name in key.sheets:
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        rows.writerow(COLUMNS)
        for at, texts in enumerate(key.texts(name), 1):
            rows.writerow((at, *map(csv_cell, texts), ""))
        # The byte order mark tells spreadsheets that this is UTF-8.
        sheet = {".csv": table.getvalue().encode("utf-8-sig"), ".html": page(key, name).encode()}
        for suffix, text in sheet.items():
            if not (folder / f"{name}{suffix}").exists():
                write_whole(folder / f"{name}{suffix}", text)


def page(key: Key, annotator: str) -> str:
    """The page of an annotator: one file that loads nothing, its texts as data, not as HTML."""
    sheet: dict[str, object] = {"name": annotator, "question": key.question, "labels": key.labels}
    sheet |= {"columns": COLUMNS, "rows": key.texts(annotator)}
    sheet["id"] = hashlib.sha256(json.dumps(sheet).encode()).hexdigest()  # of its kept answers
    data = json.dumps(sheet)  # all but ASCII escaped, U+2028 and U+2029 too
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return PAGE.read_text(encoding="utf-8").replace("@SHEET@", data)


def score(folder: Path, seed: int = 0) -> Scored:
    """What the annotators of a folder of sheets answered; ``seed`` is that of the bootstrap.

    Sheets that are missing or empty are left out with a warning; where none is left it raises.
    """
    key = read_key(folder / "key.json")
    for path in sorted(folder.glob("*.csv")):
        if path.stem.startswith("annotator") and path.stem not in key.sheets:
            raise ConsilienceError(
                "no such annotator in key.json",
                expected=", ".join(f"{name}.csv" for name in key.sheets),
                where=str(path),
                todo="Give the sheet its annotator's name, or take it away.",
            )
    found: dict[str, Places] = {}
    warnings = []
    for name, questions in key.sheets.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            warnings.append(f"{path.name} is not there; left out")
            continue
        answers = read_sheet(path, key, name)
        unanswered = int((answers < 0).sum())
        if unanswered == len(questions):
            warnings.append(f"{path.name} has no answers; left out")
            continue
        if unanswered:
            warnings.append(f"{path.name}: {unanswered} of {len(questions)} without an answer")
        found[name] = answers
    if not found:
        raise ConsilienceError(
            "no sheet with answers", expected="annotator-1.csv and others", where=str(folder)
        )
    answers = np.stack(list(found.values()), axis=-1)
    metrics = pl.DataFrame(list(_rows(key, answers, list(found), seed)), schema=METRICS_SCHEMA)
    return Scored(key, tuple(found), metrics, tuple(warnings))


def read_key(path: Path) -> Key:
    """The key that ``write`` wrote."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        items = {
            item: Item(each["gold"], {name: (a, b) for name, (a, b) in each["texts"].items()})
            for item, each in content.pop("items").items()
        }
        sheets = {
            name: tuple((item, variant) for item, variant in asked)
            for name, asked in content.pop("sheets").items()
        }
        key = Key(**content | {"labels": tuple(content["labels"])}, items=items, sheets=sheets)
        places = [(item, variant) for item in items for variant in key.variants]
        whole = all(sorted(asked) == sorted(places) for asked in sheets.values())
        known = all(each.gold in key.labels for each in items.values())
        if not (whole and known and places and sheets):
            raise ValueError("incomplete")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConsilienceError(
            "no key of sheets" if path.is_file() else "no such file",
            expected="the key.json that `consilience annotate sheet` wrote",
            where=str(path),
        ) from error
    return key


def read_sheet(path: Path, key: Key, annotator: str) -> Places:
    """An annotator's answers (variant, item): the places of the labels, -1 for no answer.

    Rows and columns in any order, other columns ignored; separated by commas, semicolons or tabs,
    as spreadsheets save them. Labels in any case. Texts may differ in blanks only.
    """
    texts = key.texts(annotator)
    answers = np.full((len(key.variants), len(key.items)), -1)
    places = {item: place for place, item in enumerate(key.items)}
    labels = {label.casefold(): place for place, label in enumerate(key.labels)}
    seen: dict[int, int] = {}
    for number, row in _table(path):
        where = f"{path}, row {number}"
        cell = row["question"].strip()
        at = int(cell) - 1 if cell.isdecimal() and len(cell) < 9 else -1
        if not 0 <= at < len(texts):
            raise ConsilienceError(
                f"the question '{cell}'", expected=f"1 to {len(texts)}", where=where
            )
        if at in seen:
            raise ConsilienceError(
                f"question {cell} stands here again",
                expected=f"it once, as in row {seen[at]}",
                where=where,
                todo="Remove one of the two.",
            )
        seen[at] = number
        for name, text in zip(("text_1", "text_2"), texts[at], strict=True):
            if row[name].split() not in (text.split(), csv_cell(text).split()):
                raise ConsilienceError(
                    f"the {name} of question {cell} is '{row[name][:60]}'",
                    expected=f"'{text[:60]}', as it was asked",
                    where=where,
                    todo="Is it the sheet of another annotator or draw?",
                )
        answer = row["answer"].strip().casefold()
        if answer and answer not in labels:
            raise ConsilienceError(
                f"the answer '{row['answer']}'", expected=", ".join(key.labels), where=where
            )
        item, variant = key.sheets[annotator][at]
        answers[key.variants.index(variant), places[item]] = labels.get(answer, -1)
    if missing := [at for at in range(len(texts)) if at not in seen]:
        raise ConsilienceError(
            f"question {missing[0] + 1} is missing ({len(missing)} of {len(texts)} are)",
            expected="all questions, also those without an answer",
            where=f"{path}, row {len(seen) + 2}",
        )
    return answers


def _table(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a sheet with their numbers, as a spreadsheet counts them."""
    try:
        text = read_text(path)
        header = text.partition("\n")[0]
        separator = max(",;\t", key=header.count)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise ConsilienceError(f"cannot be read as a table: {error}", where=str(path)) from error
    names = [name.strip().casefold() for name in rows[0]] if rows else []
    if missing := [name for name in COLUMNS if name not in names]:
        raise ConsilienceError(
            f"no column '{missing[0]}'", expected=", ".join(COLUMNS), where=f"{path}, row 1"
        )
    for number, cells in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in cells):
            padded = [*cells, *[""] * (len(names) - len(cells))]
            yield number, dict(zip(names, padded, strict=False))


def _rows(
    key: Key, answers: Places, annotators: Sequence[str], seed: int
) -> Iterator[dict[str, object]]:
    """The metrics of ``answers`` (variant, item, annotator), over annotators and of each.

    The subset ``all`` is the original form. Consistency is that of a perturbed form with the same
    annotator's answer to the original. Intervals are about other items, the annotators the same.
    """
    gold = np.array([[key.labels.index(each.gold)] for each in key.items.values()])
    drawn = resamples(len(gold), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
    for variant, chosen in zip(key.variants, answers, strict=True):
        subset = "all" if variant == ORIGINAL else variant
        compared = {"accuracy": gold}
        if variant != ORIGINAL:
            compared["consistency"] = answers[0]
        for metric, other in compared.items():
            counted = (chosen >= 0) & (other >= 0)
            same = (chosen == other) & counted
            values = quotient(same.sum(axis=0), counted.sum(axis=0))
            again = quotient(drawn @ same, drawn @ counted)
            yield _row(metric, key.task, subset, values, again, counted)
            for at, name in enumerate(annotators):
                one = (values[[at]], again[:, [at]], counted[:, [at]])
                yield _row(metric, name, subset, *one)
        counts = (chosen[:, :, None] == np.arange(len(key.labels))).sum(axis=1)
        counted = counts.sum(axis=1, keepdims=True) >= 2
        replicates = fleiss(counts, drawn)
        for metric, value in fleiss(counts, np.ones((1, len(gold)))).items():
            yield _row(metric, key.task, subset, value, replicates[metric][:, None], counted)


def _row(
    metric: str,
    group: str,
    subset: str,
    values: Floats,
    again: Floats,
    counted: npt.NDArray[np.bool_],
) -> dict[str, object]:
    """The mean of ``values`` (annotator,) with its interval, of ``again`` (replicate, annotator).

    ``counted`` (item, annotator): what they were counted from. For agreement all annotators are
    one. What has no data is NaN, and no part of a mean.
    """
    mean, replicates = (
        quotient(np.nansum(each, axis=-1), (~np.isnan(each)).sum(axis=-1))
        for each in (values, again)
    )
    known, clusters, n = values[~np.isnan(values)], counted.any(axis=1).sum(), int(counted.sum())
    least = -1.0 if metric == "fleiss_kappa" else 0.0
    low, high = bootstrap_interval(
        float(mean), replicates, int(clusters), (least, 1.0), proportion=least == 0
    )
    std = float(known.std(ddof=1)) if len(known) > 1 else float("nan")
    cells = ("human", group, subset, float(mean), std, low, high, n, counted.size - n)
    return dict(zip(METRICS_SCHEMA, (metric, *cells), strict=True))


def fleiss(counts: Places, weights: Floats) -> dict[str, Floats]:
    """Agreement between annotators: ``pairwise_agreement`` and ``fleiss_kappa``, (replicate,) each.

    ``counts`` (item, label): n_ij annotators gave item i the label j, n_i any. ``weights``
    (replicate, item): how often an item counts. Items with fewer than two answers are left out.

    ``P_i = sum_j n_ij (n_ij - 1) / (n_i (n_i - 1))``, the share of pairs of annotators that agree
    on item i; the mean over items ``P`` is the pairwise agreement, from 0 to 1.
    ``p_j = sum_i n_ij / sum_i n_i``; ``P_e = sum_j p_j ** 2`` is the agreement by chance.
    ``kappa = (P - P_e) / (1 - P_e)``, at most 1, 0 for chance; NaN where all answers are the same
    (``P_e`` is 1). Fleiss 1971, Psychological Bulletin 76, where every n_i is the same; with
    missing answers they differ.
    """
    kept = counts.sum(axis=1) >= 2
    counts, weights = counts[kept], weights[:, kept]
    answers = counts.sum(axis=1)
    agreement = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    observed = quotient(weights @ agreement, weights.sum(axis=1))
    shares = quotient(weights @ counts, (weights @ answers)[:, None])
    chance = (shares**2).sum(axis=1)
    kappa = quotient(observed - chance, 1 - chance)
    return {"pairwise_agreement": observed, "fleiss_kappa": kappa}
