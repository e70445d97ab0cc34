"""The functions of a task of lm-evaluation-harness whose documents are items in variants.

``consilience suite export SUITE --format lm-eval --out DIR`` copies this file into DIR, beside the
YAML and the documents of the task. It needs neither consilience nor torch.

A document is an item in one variant. lm-evaluation-harness gives an aggregation the rows of all
documents, so a number can compare the documents of an item. Only items with all their documents
are counted: ``--limit`` may have cut through the last one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import Any

Row = Sequence[Any]
"""What is counted of a document: the group whose numbers are averaged, the item, the position of
the variant, how many variants the item has, the variants that this one is compared with, the
answer, and whether it is right."""

Item = dict[int, Row]  # The rows of an item by the position of the variant

NAN = float("nan")


def load(file: str, **_: object) -> dict[str, Any]:
    """The documents of the task, which are in ``file`` beside this module."""
    from datasets import Dataset

    with (Path(__file__).parent / file).open(encoding="utf-8") as lines:
        return {"test": Dataset.from_list([json.loads(line) for line in lines])}


def process_results(doc: dict[str, Any], results: Sequence[tuple[float, bool]]) -> dict[str, Row]:
    """The row of a document, once for each metric.

    ``results``: the log-probability of each choice, and whether it is the most probable text. The
    answer is the choice with the highest, of equal ones the first among the candidates. Of choices
    with the same text as the gold, the answer is the gold. If a log-probability is NaN, it is NaN,
    which is wrong and equals nothing.
    """
    totals = [float(total) for total, _ in results]
    positions = doc.get("positions") or range(len(totals))
    best = max(range(len(totals)), key=lambda at: (totals[at], -positions[at]))
    is_right = doc["choices"][best] == doc["choices"][doc["gold_index"]]
    has_answer = not any(map(isnan, totals))
    row = (
        doc["averaged_group"],
        doc["unit"],
        doc["variant_index"],
        doc["n_variants"],
        list(doc["compared_with"]),
        positions[doc["gold_index"] if is_right else best] if has_answer else NAN,
        is_right and has_answer,
    )
    return dict.fromkeys(("accuracy", "consistency", "consistent_accuracy", "items"), row)


def accuracy(rows: Iterable[Row]) -> float:
    """Share of items with the right answer in the base variant."""
    return _averaged(rows, lambda item: [item[0][6]] if 0 in item else [])


def consistency(rows: Iterable[Row]) -> float:
    """Mean over items of the share of pairs of variants that get the same answer."""

    def share(item: Item) -> list[float]:
        same = [row[5] == item[other][5] for row in item.values() for other in row[4]]
        return [sum(same) / len(same)] if same else []

    return _averaged(rows, share)


def consistent_accuracy(rows: Iterable[Row]) -> float:
    """Share of items with the right answer in every variant."""
    return _averaged(rows, lambda item: [all(row[6] for row in item.values())])


def items(rows: Iterable[Row]) -> int:
    """How many items are counted: those with all their variants."""
    return sum(map(len, _complete_items(rows).values()))


def _complete_items(rows: Iterable[Row]) -> dict[str, list[Item]]:
    """The items with all their variants, by the group whose numbers are averaged."""
    items_of_rows: dict[tuple[str, str], Item] = defaultdict(dict)
    for row in (row for row in rows if row[0] is not None):
        items_of_rows[row[0], row[1]].setdefault(row[2], row)
    groups: dict[str, list[Item]] = defaultdict(list)
    for (group, _), item in items_of_rows.items():
        if len(item) == next(iter(item.values()))[3]:
            groups[group].append(item)
    return groups


def _averaged(rows: Iterable[Row], hits_of: Callable[[Item], Sequence[float]]) -> float:
    """The share of hits in each group, averaged over the groups; NaN without any."""
    shares = []
    for of_group in _complete_items(rows).values():
        hits = [hit for item in of_group for hit in hits_of(item)]
        shares += [sum(hits) / len(hits)] if hits else []
    return sum(shares) / len(shares) if shares else NAN
