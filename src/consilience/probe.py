"""Asks a suite of a model: relations become rows of the answers table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from consilience.models import LanguageModel
from consilience.run import RunFolder
from consilience.types import ANSWERS_SCHEMA, Query, Relation, Scores, Suite

Progress = Callable[[int], None]
"""Called with the number of queries that have just been answered."""


def probe(
    suite: Suite,
    model: LanguageModel,
    folder: RunFolder,
    *,
    whole_vocabulary: bool = False,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Ask every relation that the run folder does not hold yet; the answers of all of them."""
    tables: list[pl.DataFrame] = []
    folder.note([*suite.notes, *model.notes])
    for relation in suite.relations:
        size = len(relation.facts) * len(relation.patterns)
        answers = folder.answers(relation.id, size)
        if answers is None:
            answers = ask(relation, model, suite.name, whole_vocabulary, progress)
            folder.write_answers(relation.id, answers)
            folder.note(model.notes)
        else:
            progress(size)
        tables.append(answers)
    return pl.concat(tables)


def ask(
    relation: Relation,
    model: LanguageModel,
    suite_name: str,
    whole_vocabulary: bool = False,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of one relation, one row a query (``ANSWERS_SCHEMA``)."""
    queries = [
        Query(pattern, fact.subject, fact.object)
        for fact in relation.facts
        for pattern in relation.patterns
    ]
    columns: dict[str, list[object]] = {
        name: [None] * len(queries)
        for name in (
            "gold_token",
            "answer",
            "logprob",
            "gold_logprob",
            "gold_rank",
            "margin",
            "n_candidates",
            "excluded",
        )
    }
    for scores in model.score(queries, None if whole_vocabulary else relation.candidates):
        golds = [queries[row].gold for row in scores.rows]
        for name, values in judge(scores, golds).items():
            for row, value in zip(scores.rows, values, strict=True):
                columns[name][row] = value
        progress(len(scores.rows))
    width = len(relation.patterns)
    asked: dict[str, list[object]] = {
        "suite": [suite_name] * len(queries),
        "group": [relation.id] * len(queries),
        "item": [fact.item for fact in relation.facts for _ in range(width)],
        "subject": [query.subject for query in queries],
        "variant": [query.pattern.text for query in queries],
        "variant_index": [index for _ in relation.facts for index in range(width)],
        "gold": [query.gold for query in queries],
    }
    table = asked | columns
    return pl.DataFrame({name: table[name] for name in ANSWERS_SCHEMA}, schema=ANSWERS_SCHEMA)


def judge(scores: Scores, golds: Sequence[str]) -> dict[str, list[object]]:
    """Turn scores (row, candidate) into the answer columns of their rows.

    The answer is the candidate with the highest score, of equal ones the first. Where another
    candidate speaks for the gold (``Scores.same``), its score is the gold's, and its being the best
    makes the gold the answer.
    """
    size = len(golds)
    rows = np.arange(size)
    place = {word: position for position, word in enumerate(scores.words)}
    own = np.array([place.get(gold, -1) for gold in golds])
    same = np.arange(len(scores.words)) if scores.same is None else scores.same
    gold_at = np.where(own >= 0, same[own], 0)
    known = ~np.isnan(scores.logprob)
    logprob = np.where(known, scores.logprob, -np.inf)
    best = logprob.argmax(axis=1)
    top = logprob[rows, best]
    others = logprob.copy()
    others[rows, best] = -np.inf
    with np.errstate(invalid="ignore"):
        margin = top - others.max(axis=1, initial=-np.inf)
    gold_logprob = logprob[rows, gold_at]
    earlier = np.arange(len(scores.words)) < gold_at[:, None]
    ahead = (logprob > gold_logprob[:, None]) | ((logprob == gold_logprob[:, None]) & earlier)
    rank = 1 + (ahead & known).sum(axis=1)
    n_candidates = known.sum(axis=1)
    tokens = scores.tokens
    columns: dict[str, list[object]] = {
        "gold_token": [tokens[at] if tokens and at >= 0 else None for at in own],
        "answer": [
            gold if best[row] == gold_at[row] else scores.words[best[row]]
            for row, gold in enumerate(golds)
        ],
        "logprob": list(top),
        "gold_logprob": list(gold_logprob),
        "gold_rank": list(rank),
        "margin": [
            value if count > 1 else None for value, count in zip(margin, n_candidates, strict=True)
        ],
        "n_candidates": list(n_candidates),
        "excluded": [None] * size,
    }
    for row, gold in enumerate(golds):
        reason = _why_excluded(scores, gold, int(own[row]), bool(known[row].any()))
        if reason:
            for name, values in columns.items():
                values[row] = reason if name == "excluded" else None
    return columns


def _why_excluded(scores: Scores, gold: str, own: int, any_known: bool) -> str | None:
    if scores.unasked:
        return scores.unasked
    if own < 0:
        return "the gold is not among the candidates"
    if gold in scores.reasons:
        return f"the gold is {scores.reasons[gold]}"
    return None if any_known else "no candidate could be asked"
