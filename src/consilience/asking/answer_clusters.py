"""Written answers that mean the same become one answer, and how often that judgement is wrong.

A judge says whether two answers to a question mean the same (``models/judges.py``). Clusters
of answers are those of semantic entropy (Kuhn, Gal and Farquhar 2023, Algorithm 1; Farquhar et al.
2024), in a stated order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol as Interface

import polars as pl

from consilience.asking.questions import EMPTY
from consilience.core.items import Question
from consilience.core.text import counted
from consilience.metrics.statistics import wilson_interval

AnswerPair = tuple[str, str, str]  # A question and two answers to it

LABELLED = Path(__file__).parents[1] / "suites" / "answer_pairs.tsv"
"""Pairs of answers that were labelled by hand: part, question, first, second, label, kind."""


class Judge(Interface):
    """Says whether two answers mean the same."""

    identity: dict[str, object]  # Which judge this is

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        """Whether the answers of each pair mean the same; symmetric in the two answers."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers to a question, and whether they mean the same."""

    part: str  # ``tune``: thresholds may be chosen on it; ``test``: errors are reported on it
    pair: AnswerPair
    is_same: bool  # Whether whoever accepts one of the answers would accept the other
    kind: str  # How the answers differ


@dataclass(frozen=True, slots=True)
class JudgeError:
    """How often a judge is right about labelled pairs."""

    pairs: int
    true_same: int  # Pairs that are the same and judged the same
    false_same: int  # Pairs that are different and judged the same
    false_different: int  # Pairs that are the same and judged different

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """Precision and recall of "the same", and the share of wrong judgements: hits and total."""
        wrong = self.false_same + self.false_different
        return {
            "precision": (self.true_same, self.true_same + self.false_same),
            "recall": (self.true_same, self.true_same + self.false_different),
            "error": (wrong, self.pairs),
        }

    @property
    def note(self) -> str:
        """The shares with Wilson's 95 % intervals, in one sentence."""
        texts = []
        for name, (hits, total) in self.shares.items():
            low, high = wilson_interval(hits / max(1, total), total)
            interval = f"{hits / total:.0%} ({low:.0%} to {high:.0%})" if total else "undefined"
            texts.append(f"{name} {interval}")
        return f"on {counted(self.pairs, 'pair')} labelled by hand: {', '.join(texts)}"


@cache
def labelled_pairs(part: str = "") -> tuple[LabelledPair, ...]:
    """The labelled pairs that come with the package; of one part where it is named."""
    table = pl.read_csv(LABELLED, separator="\t", quote_char=None, infer_schema=False)
    columns = table.select("part", "question", "first", "second", "label", "kind")
    return tuple(
        LabelledPair(of, (question, first, second), label == "same", kind)
        for of, question, first, second, label, kind in columns.iter_rows()
        if part in ("", of)
    )


def error_of(judge: Judge, pairs: Sequence[LabelledPair]) -> JudgeError:
    """How often a judge is right about labelled pairs."""
    judged = judge.same([labelled.pair for labelled in pairs])
    outcomes = Counter(zip((pair.is_same for pair in pairs), judged, strict=True))
    return JudgeError(
        len(pairs), outcomes[True, True], outcomes[False, True], outcomes[True, False]
    )


def clusters(texts: Mapping[str, int], question: str, judge: Judge) -> list[list[str]]:
    """Answers to a question that mean the same, from how often each occurs.

    The most frequent answer, of equally frequent ones the first in alphabetical order, begins a
    cluster, and every other one that the judge calls the same joins it. The next cluster begins in
    the same way with the answers that remain. Answers are compared with the first one of a cluster
    only, so that no chain of small differences joins different answers.
    """
    rest = sorted(texts, key=lambda text: (-texts[text], text))
    groups = []
    while rest:
        first, *others = rest
        judged = judge.same([(question, first, other) for other in others])
        pairs = list(zip(others, judged, strict=True))
        groups.append([first, *(text for text, is_same in pairs if is_same)])
        rest = [text for text, is_same in pairs if not is_same]
    return groups


def merge_answers(
    answers: pl.DataFrame, questions: Sequence[Question], judge: Judge
) -> pl.DataFrame:
    """The table with one answer for each cluster of unmatched answers.

    Answers are merged within an item. Their answer becomes the most frequent one of the cluster;
    ``text`` and ``unmatched`` remain. An answer that matches an option or the gold is not changed,
    and no answer becomes one.
    """
    phrasings = _first_phrasings(questions)
    unmatched = pl.col("unmatched").is_not_null() & (pl.col("answer") != EMPTY)
    merged: dict[tuple[str, str, str], str] = {}
    for (group, item), rows in answers.filter(unmatched).group_by(
        "group", "item", maintain_order=True
    ):
        counts = Counter(rows["answer"].to_list())
        for cluster in clusters(counts, phrasings[str(item)], judge):
            merged |= {(str(group), str(item), text): cluster[0] for text in cluster[1:]}
    rows_of = answers.select("group", "item", "answer", unmatched).iter_rows()
    texts = [merged.get(tuple(key), key[-1]) if is_open else key[-1] for *key, is_open in rows_of]
    return answers.with_columns(answer=pl.Series(texts, dtype=pl.String))


def with_meanings(
    answers: pl.DataFrame, questions: Sequence[Question], judge: Judge, links: Mapping[str, str]
) -> pl.DataFrame:
    """The table with a column ``meaning``: one text for answers that mean the same across items.

    Expectations of open questions compare it. ``links``: item -> what its linked items have in
    common; null for other items. The question that the judge reads is the first of linked ones.
    """
    phrasings = _first_phrasings(questions)
    link = pl.col("item").replace_strict(links, default=None, return_dtype=pl.String)
    rows = answers.with_columns(_link=link)
    meanings: dict[tuple[str, str], str] = {}
    known = rows.filter(pl.col("_link").is_not_null() & (pl.col("answer") != EMPTY))
    for (name,), linked in known.group_by("_link", maintain_order=True):
        counts = Counter(linked["answer"].to_list())
        for cluster in clusters(counts, phrasings[linked["item"][0]], judge):
            meanings |= {(str(name), text): cluster[0] for text in cluster}
    texts = [
        meanings.get(row, None if row[0] is None else row[1])
        for row in rows.select("_link", "answer").iter_rows()
    ]
    return answers.with_columns(meaning=pl.Series(texts, dtype=pl.String))


def _first_phrasings(questions: Sequence[Question]) -> dict[str, str]:
    return {question.item: next(iter(question.paraphrases.values()))[0] for question in questions}
