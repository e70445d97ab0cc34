"""The items that tell most about a run (paper, Table 6; CALUM, Tables 3 and 7 to 9)."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.metrics.table import prepare
from consilience.types import Suite


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered in one variant, and by how much it was better (nats; None if unknown)."""

    variant: str
    answer: str
    right: bool
    margin: float | None


OF_ANOTHER = "right elsewhere"
"""Of an answer that is the gold of another fact of the same subject."""


@dataclass(frozen=True, slots=True)
class Example:
    """One item with all its replies, in the order of variants."""

    kind: str
    group: str
    item: str
    subject: str
    gold: str
    other_golds: frozenset[str]
    replies: tuple[Reply, ...]

    @property
    def telling(self) -> tuple[Reply, ...]:
        """At most three replies: of each answer the surest, then any.

        Right ones first, then what is right of the same subject elsewhere.
        """
        surest = sorted(self.replies, key=lambda reply: -(reply.margin or 0.0))
        firsts = list({reply.answer: reply for reply in reversed(surest)}.values())[::-1]
        order = ("right", OF_ANOTHER, "wrong")
        chosen = sorted(
            firsts, key=lambda reply: (order.index(self.verdict(reply)), -(reply.margin or 0.0))
        )[:3]
        chosen += [reply for reply in surest if reply not in chosen][: 3 - len(chosen)]
        return tuple(chosen)

    def verdict(self, reply: Reply) -> str:
        """``right``, ``wrong``, or that the answer is right in another fact of the subject."""
        if reply.right:
            return "right"
        return OF_ANOTHER if reply.answer in self.other_golds else "wrong"


REPLY_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.String,
    "group": pl.String,
    "item": pl.String,
    "subject": pl.String,
    "gold": pl.String,
    "variant": pl.String,
    "answer": pl.String,
    "right": pl.Boolean,
    "margin": pl.Float64,
}
"""One row a reply of an example; ``margin`` in nats, null if unknown."""


def reply_table(examples: Mapping[str, Sequence[Example]]) -> pl.DataFrame:
    """Every reply of every example (``REPLY_SCHEMA``), in the order of kinds and variants."""
    rows = [
        {
            "kind": each.kind,
            "group": each.group,
            "item": each.item,
            "subject": each.subject,
            "gold": each.gold,
            "variant": reply.variant,
            "answer": reply.answer,
            "right": reply.right,
            "margin": reply.margin,
        }
        for found in examples.values()
        for each in found
        for reply in each.replies
    ]
    return pl.DataFrame(rows, schema=REPLY_SCHEMA)


def _margins(example: Example, right: bool) -> list[float]:
    return [each.margin or 0.0 for each in example.replies if each.right is right]


def _right_and_wrong(example: Example) -> float | None:
    """Right in one wording and wrong in another (examples 1 and 2); surest in both first."""
    right, wrong = _margins(example, True), _margins(example, False)
    return min(max(right), max(wrong)) if right and wrong else None


def _always_right(example: Example) -> float | None:
    """Right in all wordings (example 6); the least sure wording decides."""
    return min(_margins(example, True), default=0.0) if _all(example, True) else None


def _same_wrong(example: Example) -> float | None:
    """Wrong in all wordings, and the same way (example 5); the least sure wording decides."""
    answers = {each.answer for each in example.replies}
    if (
        len(answers) > 1
        or not _all(example, False)
        or example.replies[0].answer in example.other_golds
    ):
        return None
    return min(_margins(example, False))


def _scattered(example: Example) -> float | None:
    """Wrong in all wordings, with the most different answers (example 4)."""
    answers = {each.answer for each in example.replies}
    return float(len(answers)) if len(answers) > 1 and _all(example, False) else None


def _other_gold(example: Example) -> float | None:
    """Says another right object of the subject, not the gold (example 3); most replies first."""
    others = [each for each in example.replies if each.answer in example.other_golds]
    return float(len(others)) if others else None


def _gold_in_subject(example: Example) -> float | None:
    """Wrong although the subject names the gold (example 5: Yahoo in Yahoo! Messenger)."""
    wrong = _margins(example, False)
    words = rf"(?<!\w){re.escape(example.gold)}(?!\w)"
    named = re.search(words, example.subject, re.IGNORECASE)
    return float(len(wrong)) + max(wrong) / 1e3 if wrong and named else None


def _all(example: Example, right: bool) -> bool:
    return all(each.right is right for each in example.replies)


KINDS: dict[str, Callable[[Example], float | None]] = {
    "right_and_wrong": _right_and_wrong,
    "same_wrong": _same_wrong,
    "scattered": _scattered,
    "other_gold": _other_gold,
    "gold_in_subject": _gold_in_subject,
    "always_right": _always_right,
}
"""How telling an item is of each kind; None where it is not of that kind."""


def about(kind: str) -> str:
    """What a kind of examples is."""
    return str(KINDS[kind].__doc__).split(";")[0].rstrip(".")


def examples(
    answers: pl.DataFrame, suite: Suite, kinds: Sequence[str], limit: int
) -> dict[str, list[Example]]:
    """The ``limit`` most telling items of each kind, at most one a relation until all had one.

    Items without any answer, or answered in one variant only, are left out. Equally telling ones
    stay in the order of the table.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ConsilienceError(
                f"no kind of examples '{kind}'", todo=did_you_mean(kind, list(KINDS))
            )
    by_group: dict[str, defaultdict[str, list[tuple[float, Example]]]]
    by_group = {kind: defaultdict(list) for kind in kinds}
    for example in _items(answers, suite):
        for kind in kinds:
            score = KINDS[kind](example)
            if score is not None:
                by_group[kind][example.group].append((score, example))
    return {kind: _best(found.values(), kind, limit) for kind, found in by_group.items()}


def _best(groups: Iterable[list[tuple[float, Example]]], kind: str, limit: int) -> list[Example]:
    ranked = []
    for found in groups:
        found.sort(key=lambda scored: -scored[0])
        ranked += [(rank, -score, example) for rank, (score, example) in enumerate(found)]
    ranked.sort(key=lambda each: each[:2])
    return [replace(example, kind=kind) for _, _, example in ranked[:limit]]


def _items(answers: pl.DataFrame, suite: Suite) -> Iterator[Example]:
    """Every item that was answered in two variants or more; of no kind as yet."""
    table = prepare(answers, suite)
    margin: pl.Expr | pl.Series = pl.lit(None, dtype=pl.Float64)
    if "margin" in answers.columns:  # of a CSV file it is text
        margin = answers["margin"].cast(pl.Float64, strict=False)
    table = table.with_columns(margin=margin).drop_nulls("answer")
    golds: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for relation in suite.relations:
        for fact in relation.facts:
            golds[relation.id, fact.subject].add(fact.object)
    for group, subject, gold in table.select("group", "subject", "gold").unique().iter_rows():
        golds[group, subject].add(gold)
    key = ["group", "item"]
    placed = table.with_row_index("place").with_columns(pl.col("place").min().over(key))
    asked = placed.sort("place", "variant_index", maintain_order=True)
    columns = (*key, "subject", "gold", "variant", "answer", "margin")
    by_item = itertools.groupby(asked.select(columns).iter_rows(), lambda row: row[:2])
    for (group, item), rows in by_item:
        found = list(rows)
        if len(found) < 2:
            continue
        subject, gold = found[0][2:4]
        replies = tuple(
            Reply(variant, answer, answer == own, margin)
            for _, _, _, own, variant, answer, margin in found
        )
        others = frozenset(golds[group, subject] - {gold})
        yield Example("", group, item, subject, gold, others, replies)
