"""Sheets for annotators of sentence pairs and of patterns, and the numbers of their answers."""

from __future__ import annotations

import codecs
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl

from consilience import suites
from consilience.authoring.checks import sentence
from consilience.core.errors import ConsilienceError
from consilience.core.factors import ORIGINAL, WHOLE, Part
from consilience.core.items import Ints, Task
from consilience.core.schemas import METRICS_SCHEMA
from consilience.core.text import counted
from consilience.files.read import Problems, parse_json, read_rows
from consilience.files.rows import Column, as_written, line, raise_all, read_table
from consilience.files.write import csv_of, refuse_occupied, table_of, write_whole
from consilience.metrics.registry import Clusters, Tally, quotient
from consilience.metrics.statistics import NAN
from consilience.metrics.uncertainty import Index, of_group
from consilience.report import table as report
from consilience.report.layouts import metrics_table
from consilience.report.table import Columns, Output, Table, frame_table, record_of
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
from consilience.types import Suite

Rows = list[dict[str, Any]]

SAME, DIFFERENT = "same", "different"
COLUMNS = (
    Column("question", line), Column("text_1", as_written, ""), Column("text_2", as_written, ""),
    Column("answer", line, ""),
)  # fmt: skip
ROW = ("question", "item", "variant", "text_1", "text_2")
"""What each question of a key has beside ``gold``; of facts also ``relation`` and ``pattern``."""

KEY = "key.json"
SHEET = re.compile(r"annotator-[1-9]\d*")  # The name of a sheet, without .csv


@dataclass(frozen=True, slots=True)
class Key:
    """What is asked; only the person who scores may see it."""

    name: str  # Of the task or the suite
    question: str
    labels: tuple[str, ...]
    seed: int
    digest: str
    rows: Rows = field(repr=False)
    """Each question (``ROW``)."""


def draw_pairs(
    pairs: Pairs,
    task: Task,
    perturbations: Mapping[str, Perturbation],
    *,
    items: int = 30,
    seed: int = 0,
) -> Key:
    """Pairs that are sampled with ``seed``, each in every variant (CALUM, Section 4.4)."""
    sample, rows = sample_pairs(pairs, items, seed), Rows()
    for pair in sample.items:
        forms = forms_of(pair, original(pair, task.indicators), perturbations)
        for variant, (first, second) in forms.items():
            rows.append({"item": pair.item, "variant": variant, "gold": pair.label,
                         "text_1": first.text, "text_2": second.text})  # fmt: skip
    question = QUESTIONS.get(task.name, QUESTIONS[task.kind]).format(*task.indicators)
    return Key(task.name, question, task.labels, seed, sample.digest, rows)


def draw_patterns(suite: Suite, *, patterns: int = 5, seed: int = 0) -> tuple[Key, int]:
    """Up to ``patterns`` of each relation beside its base pattern, in each language; how many not.

    Both are filled with a random fact of the relation (ParaRel, Section 4).
    """
    generator = random.Random(f"{seed}, {suite.digest}")
    rows, left_out = Rows(), 0
    for relation in suite:
        for language in dict.fromkeys(pattern.language for pattern in relation.patterns):
            base, *others = (one for one in relation.patterns if one.language == language)
            drawn = sorted(generator.sample(range(len(others)), min(patterns, len(others))))
            left_out += len(others) - len(drawn)
            for at in drawn:
                fact, pattern = generator.choice(relation.facts), others[at]
                first, second = (sentence(relation, one, fact) for one in (base, pattern))
                rows.append({"item": f"{relation.id}: {pattern.text}", "variant": ORIGINAL,
                             "gold": SAME, "text_1": first, "text_2": second,
                             "relation": relation.id, "pattern": pattern.text})  # fmt: skip
    if not rows:
        found = f"the suite '{suite.name}' has no relation with two patterns"
        expected = "patterns to compare with a base pattern"
        raise ConsilienceError(found, expected=expected, todo="Add patterns.")
    question, labels = "Do these two sentences say the same?", (SAME, DIFFERENT)
    return Key(suite.name, question, labels, seed, suite.digest, rows), left_out


def write_sheets(key: Key, annotators: int, folder: Path) -> Output:
    """Write the key, and a table for each annotator in an own order, into a new or empty folder.

    The tables do not tell gold, item or variant: the numbers of the questions are shuffled.
    """
    refuse_occupied(folder)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(f"{key.seed}, numbers").sample(range(len(key.rows)), len(key.rows))
    rows = [{"question": at + 1, **row} for at, row in zip(numbers, key.rows, strict=True)]
    content = {name: getattr(replace(key, rows=rows), name) for name in Key.__slots__}
    write_whole(folder / KEY, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
    names = [f"annotator-{number}.csv" for number in range(1, annotators + 1)]
    for number, name in enumerate(names, start=1):
        order = random.Random(f"{key.seed}, annotator {number}").sample(rows, len(rows))
        sheet = [
            {**{column.name: row[column.name] for column in COLUMNS[:-1]}, "answer": ""}
            for row in order
        ]
        table = codecs.BOM_UTF8 + csv_of(table_of(sheet))  # the mark tells spreadsheets: UTF-8
        write_whole(folder / name, table)
    size = counted(len(key.rows), "question")
    shown = [
        f"{counted(annotators, 'sheet')} of {size}: {folder}/{names[0]}{', ...' * bool(names[1:])}",
        f"Ask: {key.question} ({', '.join(key.labels)})",
        f"Keep {KEY} to yourself. Then: consilience suite annotate score {folder}",
    ]
    record = record_of(name=key.name, question=key.question, digest=key.digest, seed=key.seed)
    facts = {"run": record, "folder": str(folder), "sheets": annotators, "questions": len(key.rows)}
    return Output(shown=shown, facts=facts)


def read_key(folder: Path) -> Key:
    """The key that ``write_sheets`` wrote."""
    path = folder / KEY
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        labels = tuple(content["labels"])
        for row in content["rows"]:
            _ = [row[name] for name in ROW], labels.index(row["gold"])
        return Key(**content | {"labels": labels})
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = "no key of sheets" if path.is_file() else "no such file"
        todo = "Name the folder that `consilience suite annotate sheet` or `patterns` wrote."
        raise ConsilienceError(
            found, expected="the key of the sheets", where=str(path), todo=todo
        ) from error


def read_sheet(path: Path, key: Key) -> dict[int, int]:
    """The answers of an annotator: the places of question and label, without those left empty.

    Rows and columns may have any order, and there may be other columns. Labels may have any case.
    Texts may differ in spaces only.
    """
    labels = {label.casefold(): at for at, label in enumerate(key.labels)}
    seen: dict[str, str] = {}
    places = {str(row["question"]): at for at, row in enumerate(key.rows)}
    problems: Problems = []
    answers: dict[int, int] = {}
    for row in read_table(read_rows(path, problems), COLUMNS, problems, str(path)):
        number, answer = row["question"], row["answer"].casefold()
        if number not in places:
            row.report(f"the question '{number}'", expected=f"1 to {len(key.rows)}")
            continue
        row.is_new(number, seen, f"question {number}")
        at = places[number]
        for name in ("text_1", "text_2"):
            if row[name].split() != key.rows[at][name].split():
                found = f"the {name} of question {number} is '{row[name][:60]}'"
                expected = f"'{key.rows[at][name][:60]}', as it was asked"
                row.report(found, expected=expected, todo="Is it a sheet of another draw?")
        if answer and answer not in labels:
            row.report(f"the answer '{row['answer']}'", expected=", ".join(key.labels))
        elif answer:
            answers[at] = labels[answer]
    raise_all(problems)
    return answers


SHOWN = 20  # patterns
REJECTED: Columns = {
    "relation": report.Column("relation"), "pattern": report.Column("pattern"),
    "who": report.Column("by"),
}  # fmt: skip


def score_sheets(folder: Path) -> Output:
    """The numbers over annotators and of each, and the patterns that one judged different.

    Empty sheets are left out; another table in the folder raises. ``verdicts``: every answer about
    a pattern, ``relation, pattern, who, verdict``.
    """
    key, answers = read_key(folder), dict[str, dict[int, int]]()
    warnings = []
    for path in sorted(folder.glob("*.csv")):
        if not SHEET.fullmatch(path.stem):
            expected = "annotator-1.csv, annotator-2.csv and so on: a sheet for each person"
            todo = "Rename it, or move it out of the folder."
            raise ConsilienceError("a table", expected=expected, where=str(path), todo=todo)
        given = read_sheet(path, key)
        if given:
            answers[path.stem] = given
        if not given:
            warnings.append(f"{path.name} has no answers; left out")
        elif without := len(key.rows) - len(given):
            warnings.append(f"{path.name}: {without} of {len(key.rows)} without an answer")
    if not answers:
        where, expected = str(folder), "annotator-1.csv and others"
        raise ConsilienceError("no sheet with answers", expected=expected, where=where)
    people, items = tuple(answers), len({row["item"] for row in key.rows})
    size = f"{counted(len(people), 'person', 'people')}, {counted(items, 'item')}"
    metrics = pl.DataFrame(list(_metrics(key, answers)), schema=METRICS_SCHEMA)
    tables = {"metrics": metrics}
    shown: list[Table | str] = [
        metrics_table(
            metrics.sort("group", maintain_order=True), f"{key.name}: {size}, in percent", "items"
        )
    ]
    if "pattern" in key.rows[0]:
        verdicts = [
            (row["relation"], row["pattern"], name, key.labels[given[at]])
            for at, row in enumerate(key.rows)
            for name, given in answers.items()
            if at in given
        ]
        columns = ["relation", "pattern", "who", "verdict"]
        tables["verdicts"] = pl.DataFrame(verdicts, columns, orient="row")
        rejected = tables["verdicts"].filter(verdict=DIFFERENT)
        rejected = rejected.group_by("relation", "pattern", maintain_order=True).agg("who")
        rejected = rejected.sort(pl.col("who").list.len(), descending=True, maintain_order=True)
        found = f"{rejected.height} of {items} patterns were judged different"
        more = [f"and {rejected.height - SHOWN} more: --json"] * (rejected.height > SHOWN)
        rows = rejected.head(SHOWN).with_columns(pl.col("who").list.join(", "))
        shown.append(found if rows.is_empty() else frame_table(rows, found, REJECTED, more))
    record = record_of(
        name=key.name, question=key.question, digest=key.digest, seed=key.seed, annotators=people
    )
    return Output(tables, shown, cautions=warnings, facts={"run": record})


def _metrics(key: Key, answers: Mapping[str, Mapping[int, int]]) -> Iterator[dict[str, object]]:
    """The metrics over annotators and of each, of the original form and of every other one.

    Agreement is the share of answers *same* to patterns (ParaRel, Section 4). Accuracy is that of
    answers that are the gold, and consistency that of answers to a perturbed form that are those of
    the same person to the original (CALUM, Section 4.4). Krippendorff's alpha compares the people.
    The number of all annotators is the mean of theirs, without those that have no data. Intervals
    are about other items and the same annotators.
    """
    places: dict[str, dict[str, int]] = {}  # Variant -> item -> the place of the question
    for at, row in enumerate(key.rows):
        places.setdefault(row["variant"], {})[row["item"]] = at
    names = list(places[ORIGINAL])
    items = Clusters.of(names)
    golds = [key.rows[places[ORIGINAL][name]]["gold"] for name in names]
    gold = np.array([[key.labels.index(label)] for label in golds])
    given = {}  # Variant -> answers (item, annotator)
    for variant in places:
        of_people = [
            [of.get(places[variant][name], -1) for name in names] for of in answers.values()
        ]
        given[variant] = np.array(of_people).T
    first = "agreement" if "pattern" in key.rows[0] else "accuracy"
    for variant in places:
        part: Part = WHOLE if variant == ORIGINAL else ("form", variant)
        for metric, other in ((first, gold), ("consistency", given[ORIGINAL])):
            if metric == "consistency" and variant == ORIGINAL:
                continue
            is_counted = (given[variant] >= 0) & (other >= 0)
            hits = ((given[variant] == other) & is_counted).T
            tallies = [Tally.of_hits(items, *one) for one in zip(hits, is_counted.T, strict=True)]
            yield _row(metric, part, tallies)
            for name, tally in zip(answers, tallies, strict=True):
                yield _row(metric, part, [tally], name)
        counts = (given[variant][:, :, None] == np.arange(len(key.labels))).sum(axis=1)
        yield _row(ALPHA, part, [krippendorff_alpha(counts, items)])


ALPHA = "krippendorff_alpha"


def _row(
    metric: str, part: Part, tallies: Sequence[Tally], annotator: str = ""
) -> dict[str, object]:
    """The mean of the values of annotators; NaN is no data and no part of it."""
    known = [tally for tally in tallies if tally.total > 0]
    values = [tally.value for tally in known]
    number = of_group([(1 / len(known), tally) for tally in known] or [(1.0, tallies[0])], Index())
    if known:
        number = replace(number, value=fmean(values))
    low, high = number.interval((-1.0 if metric == ALPHA else 0.0, 1.0))
    kind, level = part
    return {
        "metric": metric, "over": "group" if annotator else "all", "group": annotator,
        "kind": kind, "level": level, "value": number.value, "low": low, "high": high,
        "n": sum(tally.n for tally in tallies),
        "n_excluded": sum(tally.left_out for tally in tallies),
        "std": stdev(values) if len(values) > 1 else NAN,
    }  # fmt: skip


def krippendorff_alpha(counts: Ints, items: Clusters) -> Tally:
    """Krippendorff's alpha for nominal answers: agreement of annotators beyond chance.

    ``counts`` (item, label): n_ic annotators gave item i the label c, n_i any. Items with fewer
    than two answers are left out. With ``n = sum_i n_i`` and ``n_c = sum_i n_ic``,
    ``alpha = 1 - D_o / D_e``: the observed disagreement ``D_o = sum_i (n_i - sum_c n_ic (n_ic - 1)
    / (n_i - 1)) / n`` and the disagreement by chance ``D_e = sum_c n_c (n - n_c) / (n (n - 1))``.
    At most 1, 0 for chance; NaN where all answers are the same. Krippendorff 2011, "Computing
    Krippendorff's alpha-reliability".
    """
    counts = np.where(counts.sum(axis=1, keepdims=True) >= 2, counts, 0)
    answers = counts.sum(axis=1)
    agreement = quotient((counts * (counts - 1)).sum(axis=1), answers * (answers - 1))
    by_item = Tally.of_values(items, agreement)
    if (counts.sum(axis=0) > 0).sum() < 2:
        return replace(by_item, scores=np.zeros_like(by_item.scores))

    def finish(sums: Any) -> tuple[Any, Any]:
        """``D_e - D_o`` and ``D_e``, times the answers."""
        every, by_label = sums[..., 0], sums[..., 2:]
        by_chance = (by_label * (every[..., None] - by_label)).sum(axis=-1) / (every - 1)
        return by_chance - sums[..., 1], by_chance

    columns = np.column_stack([answers, answers * (1 - np.nan_to_num(agreement)), counts])
    return Tally.of_sums(columns, finish, items, by_item.n, by_item.left_out)


# The commands.


def make_sheets(
    task_name: str,
    data: str,
    out: Path,
    items: int,
    annotators: int,
    perturbations: Sequence[str] | None,
    seed: int,
) -> Output:
    """Sample pairs, and write a table for each annotator."""
    task = load_task(task_name)
    pairs = read_pairs(data, task)
    forms = chosen(perturbations or PAPERS)
    key = draw_pairs(pairs, task, forms, items=items, seed=seed)
    notes = list(pairs.notes)
    if (size := len({row["item"] for row in key.rows})) < items:
        notes.append(f"{data} has {size} pairs, not {items}")
    return replace(write_sheets(key, annotators, out), cautions=notes)


def make_pattern_sheets(
    spec: str, out: Path, patterns: int, annotators: int, groups: Sequence[str] | None, seed: int
) -> Output:
    """Compare patterns with the base pattern of their relation, in a table for each annotator."""
    suite = suites.load_suite(spec)
    if groups is not None:
        suite = select_relations(suite, groups)
    key, left_out = draw_patterns(suite, patterns=patterns, seed=seed)
    every = counted(left_out + len(key.rows), "pattern")
    note = f"{left_out} of {every} left out: --patterns {patterns} of each relation"
    written = write_sheets(key, annotators, out)
    return replace(written, cautions=[note] * bool(left_out))
