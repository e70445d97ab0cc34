"""Answers to SQuAD's questions in the original words and in paraphrases (ParaRel, Section 8.3).

Exact match and F1 as the official evaluation of SQuAD v1.1 has them (Rajpurkar et al. 2016); the
paraphrases are those of Gan and Ng (2019).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics.statistics import (
    REPLICATES,
    Floats,
    bootstrap_interval,
    mcnemar,
    paired_permutation,
    resamples,
    smallest_difference,
)
from consilience.read import parse_json


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a context, and the answers that people marked: texts and where they start."""

    id: str
    question: str
    context: str
    texts: tuple[str, ...]
    starts: tuple[int, ...]
    title: str = ""


def read_squad(path: Path) -> list[Question]:
    """The questions of a SQuAD v1.1 file, in its order."""
    try:
        data = parse_json(path.read_text(encoding="utf-8"))["data"]
    except FileNotFoundError as error:
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConsilienceError(
            "cannot be read", expected='the JSON of SQuAD v1.1, {"data": [...]}', where=str(path)
        ) from error
    found: list[Question] = []
    where = str(path)
    try:
        for a, article in enumerate(data):
            for p, paragraph in enumerate(article["paragraphs"]):
                for q, row in enumerate(paragraph["qas"]):
                    where = f"{path}: data[{a}].paragraphs[{p}].qas[{q}]"
                    title = str(article.get("title", ""))
                    found.append(_question(row, paragraph["context"], title, where))
    except (KeyError, TypeError, AttributeError) as error:
        raise ConsilienceError(
            f"not a question as in SQuAD v1.1 ({type(error).__name__}: {error})", where=where
        ) from error
    if not found:
        raise ConsilienceError("no question", where=str(path))
    twice = [name for name, count in Counter(each.id for each in found).items() if count > 1]
    if twice:
        raise ConsilienceError(f"the id '{twice[0]}' stands twice", where=str(path))
    return found


def _question(row: Mapping[str, Any], context: str, title: str, where: str) -> Question:
    texts = tuple(str(each["text"]) for each in row["answers"])
    if not texts:
        raise ConsilienceError(
            "no answer", expected="at least one", where=where, todo="SQuAD v2 is not supported."
        )
    for name, value in (("question", row["question"]), ("context", context)):
        if not isinstance(value, str):
            raise ConsilienceError(f"'{name}' is no text", where=where)
    starts = []
    for text, answer in zip(texts, row["answers"], strict=True):
        start = answer["answer_start"]
        if not isinstance(start, int):
            raise ConsilienceError(
                f"'answer_start' is {start!r}", expected="a whole number", where=where
            )
        if not context.startswith(text, start):  # off by a character or two
            start = context.find(text, max(0, start - 2), start + len(text) + 2)
        if start < 0 or not text.strip():
            raise ConsilienceError(
                f"the answer '{text}' does not stand at answer_start", where=where
            )
        starts.append(start)
    return Question(str(row["id"]), str(row["question"]), context, texts, tuple(starts), title)


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, a, an, the, and superfluous blanks (official evaluation)."""
    kept = "".join(each for each in text.lower() if each not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact_match(answer: str, truths: Sequence[str]) -> bool:
    """Whether the normalised answer is that of any of the true ones."""
    return any(normalize_answer(answer) == normalize_answer(truth) for truth in truths)


def f1_score(answer: str, truths: Sequence[str]) -> float:
    """F1 of the normalised words that answer and truth share, of the best of the true ones.

    0 where they share none.
    """
    words = normalize_answer(answer).split()

    def against(truth: str) -> float:
        true = normalize_answer(truth).split()
        shared = sum((Counter(words) & Counter(true)).values())
        return 2 * shared / (len(words) + len(true)) if shared else 0.0

    return max(against(truth) for truth in truths)


MEASURES = (
    *(("exact_match", each) for each in ("original", "paraphrased", "difference")),
    *(("f1", each) for each in ("original", "paraphrased", "difference")),
    ("consistency", "pair"),
    ("overlap", "pair"),
    ("consistent_accuracy", "pair"),
)
"""Metrics and what they are of."""

COLUMNS = [f"{metric}_{of}" for metric, of in MEASURES]
"""The columns of ``outcomes`` that hold them."""


def check_pairs(original: Sequence[Question], paraphrased: Sequence[Question]) -> None:
    """Raise unless the n-th questions have the same context and answers, for every n.

    Order is what links the files of Gan and Ng. Their ids do not: a paraphrase has the id of its
    original minus 1, which is another original's.
    """
    if len(original) != len(paraphrased):
        raise ConsilienceError(
            f"{len(original)} original and {len(paraphrased)} paraphrased questions",
            expected="as many of each, in the same order",
        )
    for place, (first, second) in enumerate(zip(original, paraphrased, strict=True)):
        if (first.context, first.texts) != (second.context, second.texts):
            raise ConsilienceError(
                f"question {place + 1} ('{first.id}' and '{second.id}') has another context or "
                "other answers in the paraphrased file",
                expected="the paraphrases in the order of their originals",
            )


def outcomes(
    original: Sequence[Question],
    paraphrased: Sequence[Question],
    answers: tuple[Sequence[str], Sequence[str]],
) -> pl.DataFrame:
    """A row for each pair: the two answers, right or wrong, the same or not.

    ``difference`` is paraphrased minus original; ``consistency``: the normalised answers are the
    same; ``overlap``: F1 of one answer against the other; ``consistent_accuracy``: both match a
    true one exactly. ``cluster`` is the context, or the title where all have one and titles are
    fewer.
    """
    check_pairs(original, paraphrased)
    titles, contexts = {each.title for each in original}, {each.context for each in original}
    by = "title" if "" not in titles and len(titles) < len(contexts) else "context"
    names = {getattr(each, by): place for place, each in enumerate(original)}
    rows = []
    for first, second, one, two in zip(original, paraphrased, *answers, strict=True):
        same = exact_match(one, [two])
        overlap = max(float(same), f1_score(one, [two]))  # two empty ones agree
        scores = {"consistency_pair": float(same), "overlap_pair": overlap}
        for name, measure in (("exact_match", exact_match), ("f1", f1_score)):
            found = float(measure(one, first.texts)), float(measure(two, second.texts))
            scores |= dict(zip((f"{name}_original", f"{name}_paraphrased"), found, strict=True))
            scores[f"{name}_difference"] = found[1] - found[0]
        right = scores["exact_match_original"] and scores["exact_match_paraphrased"]
        scores["consistent_accuracy_pair"] = float(right)
        about = {"id": first.id, "paraphrase_id": second.id, "cluster": names[getattr(first, by)]}
        about |= {"question": first.question, "paraphrase": second.question}
        rows.append({**about, "answer": one, "paraphrase_answer": two, **scores})
    return pl.DataFrame(rows)


def evaluate(found: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Means over pairs with 95 % intervals over clusters: a row for each of ``MEASURES``."""
    sums, sizes = _clustered(found)
    replicates = _means(sums, sizes, seed)
    rows = []
    for at, (metric, of) in enumerate(MEASURES):
        value = float(sums[:, at].sum() / sizes.sum())
        bounds = (-1.0, 1.0) if of == "difference" else (0.0, 1.0)
        low, high = bootstrap_interval(
            value, replicates[:, at], len(sizes), bounds, proportion=of != "difference"
        )
        row = {"metric": metric, "subset": of, "value": value, "low": low, "high": high}
        rows.append(row | {"n": found.height, "clusters": len(sizes)})
    return pl.DataFrame(rows)


def compare(before: pl.DataFrame, after: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """After minus before on the same pairs, with 95 % intervals over clusters, and p.

    Yes or no of each pair: exact McNemar over pairs, which takes them for independent; all others
    (F1, overlap, differences): paired permutation of clusters.
    """
    keys = ["id", "paraphrase_id", "cluster"]
    if not before.select(keys).equals(after.select(keys)):
        raise ConsilienceError("the two models were asked different questions")
    was, now = evaluate(before, seed), evaluate(after, seed)
    moved = after.select(*keys, *(pl.col(name) - before[name] for name in COLUMNS))
    sums, sizes = _clustered(moved)
    replicates = _means(sums, sizes, seed)
    rows = []
    for at, (metric, of) in enumerate(MEASURES):
        value = float(sums[:, at].sum() / sizes.sum())
        bounds = (-2.0, 2.0) if of == "difference" else (-1.0, 1.0)
        low, high = bootstrap_interval(value, replicates[:, at], len(sizes), bounds)
        if metric not in ("f1", "overlap") and of != "difference":
            test, change = "mcnemar", moved[COLUMNS[at]]
            p = mcnemar(int((change < 0).sum()), int((change > 0).sum()))
        else:
            test, p = "permutation", paired_permutation(sums[:, at].tolist(), seed)
        row = {"metric": metric, "subset": of, "difference": value, "low": low, "high": high}
        row |= {"before": was["value"][at], "after": now["value"][at], "p": p, "test": test}
        rows.append(row | {"smallest": smallest_difference(replicates[:, at]), "n": moved.height})
    return pl.DataFrame(rows)


def _clustered(found: pl.DataFrame) -> tuple[Floats, Floats]:
    """Sums (cluster, measure) and how many pairs (cluster,)."""
    groups = found.group_by("cluster", maintain_order=True)
    table = groups.agg(pl.len().alias("size"), pl.col(COLUMNS).sum())
    return table.select(COLUMNS).to_numpy(), table["size"].to_numpy().astype(np.float64)


def _means(sums: Floats, sizes: Floats, seed: int) -> Floats:
    """Bootstrap means, (replicate, measure)."""
    drawn = resamples(len(sizes), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
    means: Floats = (drawn @ sums) / (drawn @ sizes)[:, None]
    return means
