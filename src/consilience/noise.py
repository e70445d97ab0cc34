"""The noise floor: how often an answer changes when nothing about the question does.

The same queries are asked again in other batches, another order, with another number of threads,
one at a time, and in half precision. A consistency is to be seen against the share of answers that
flip then (``flips`` in the metrics table, one row a variation).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import polars as pl

from consilience.models import LanguageModel
from consilience.probe import Progress, judge
from consilience.types import METRICS_SCHEMA, Candidates, Query, Suite

QUERIES = 256
"""Queries of a sample: with no flip among them the rate is below 1.2 % (95 %, rule of three)."""

LARGER = 8
"""How many times as many tokens a large batch holds."""

Answers = list[str | None]


def noise_floor(
    suite: Suite,
    model: LanguageModel,
    *,
    whole_vocabulary: bool = False,
    in_half_precision: Callable[[], LanguageModel] | None = None,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of flipped answers of a sample.

    ``in_half_precision`` loads the same model in bfloat16. ``n`` counts the queries that were
    answered both times; ``n_excluded`` the others. The sample is drawn by ``seed``.
    """
    sample = [
        (asked, None if whole_vocabulary else candidates)
        for asked, candidates in _sample(suite, queries, random.Random(seed))
    ]
    first = _ask_all(model, sample, _plainly)
    asked_again: dict[str, Answers] = {}
    for name, variation in VARIATIONS.items():
        asked_again[name] = _ask_all(model, sample, variation)
        progress(len(first))
    if in_half_precision is not None:
        asked_again["bfloat16"] = _ask_all(in_half_precision(), sample, _plainly)
        progress(len(first))
    rows = []
    for name, again in asked_again.items():
        pairs = [(a, b) for a, b in zip(first, again, strict=True) if None not in (a, b)]
        flips = sum(a != b for a, b in pairs)
        nan = float("nan")
        rows.append(
            {
                "metric": "flips",
                "suite": suite.name,
                "group": "MICRO",
                "subset": name,
                "value": flips / len(pairs) if pairs else nan,
                "std": nan,
                "low": nan,
                "high": nan,
                "n": len(pairs),
                "n_excluded": len(first) - len(pairs),
            }
        )
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def _sample(
    suite: Suite, size: int, rng: random.Random
) -> Iterator[tuple[list[Query], Candidates]]:
    """About as many queries of each relation, any fact in any wording."""
    relations = [relation for relation in suite.relations if relation.facts]
    share = -(-size // max(1, len(relations)))
    for relation in relations:
        width = len(relation.patterns)
        every = range(len(relation.facts) * width)
        chosen = rng.sample(every, min(share, len(every)))
        facts = [relation.facts[place // width] for place in chosen]
        patterns = [relation.patterns[place % width] for place in chosen]
        queries = [
            Query(pattern, fact.subject, fact.object)
            for pattern, fact in zip(patterns, facts, strict=True)
        ]
        yield queries, relation.candidates


Variation = Callable[[LanguageModel, Sequence[Query], Candidates | None], Answers]


def _ask_all(
    model: LanguageModel, sample: list[tuple[list[Query], Candidates | None]], variation: Variation
) -> Answers:
    return [
        answer for queries, candidates in sample for answer in variation(model, queries, candidates)
    ]


def _plainly(
    model: LanguageModel, queries: Sequence[Query], candidates: Candidates | None
) -> Answers:
    answers: Answers = [None] * len(queries)
    for scores in model.score(queries, candidates, every=False):
        found = judge(scores, [queries[row].gold for row in scores.rows])["answer"]
        for row, answer in zip(scores.rows, found, strict=True):
            answers[row] = answer
    return answers


def _one_by_one(
    model: LanguageModel, queries: Sequence[Query], candidates: Candidates | None
) -> Answers:
    return [answer for query in queries for answer in _plainly(model, [query], candidates)]


def _reordered(
    model: LanguageModel, queries: Sequence[Query], candidates: Candidates | None
) -> Answers:
    order = list(range(len(queries)))
    random.Random(len(queries)).shuffle(order)
    found = _plainly(model, [queries[place] for place in order], candidates)
    answer = dict(zip(order, found, strict=True))
    return [answer[place] for place in range(len(queries))]


def _large_batches(
    model: LanguageModel, queries: Sequence[Query], candidates: Candidates | None
) -> Answers:
    budget = getattr(model, "budget", None)
    if budget is None:
        return _plainly(model, queries, candidates)
    before, budget.tokens = budget.tokens, budget.tokens * LARGER
    try:
        return _plainly(model, queries, candidates)
    finally:
        budget.tokens = before


def _other_threads(
    model: LanguageModel, queries: Sequence[Query], candidates: Candidates | None
) -> Answers:
    with _threads():
        return _plainly(model, queries, candidates)


@contextmanager
def _threads() -> Iterator[None]:
    """One thread instead of several, two instead of one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


VARIATIONS: Mapping[str, Variation] = {
    "repeated": _plainly,
    "reordered": _reordered,
    "one_by_one": _one_by_one,
    "large_batches": _large_batches,
    "other_threads": _other_threads,
}
"""What changes nothing about a question, and must not change its answer."""
