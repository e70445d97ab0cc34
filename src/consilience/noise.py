"""The noise floor: how often an answer changes when nothing about the question does.

A sample of queries is answered again in other batches, in another order, with another number of
threads, one at a time, and in half precision. The share of answers that differ is the metric
``flips``, one row a variation: a difference in consistency that is no larger means nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import polars as pl

from consilience.ask import Progress, judge
from consilience.core.schemas import FLIPS, METRICS_SCHEMA
from consilience.metrics.statistics import wilson_interval
from consilience.models import LanguageModel
from consilience.types import Candidates, Query, Suite

QUERIES = 256
"""Queries of a sample; without a flip the rate is below 1.2 % (95 %, rule of three)."""

LARGER = 8
"""How many times more tokens a large batch holds."""

Answers = list[str | None]

T = TypeVar("T")


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
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed answers of a sample.

    ``in_half_precision`` loads the same model in bfloat16. ``n`` counts the queries that were
    answered both times; ``n_excluded`` the others. ``seed`` determines the sample.
    """
    sample = [
        (part, None if whole_vocabulary else candidates)
        for part, candidates in _sample(suite, queries, random.Random(seed))
    ]
    first = _answer_all(model, sample, _repeated)
    again: dict[str, Answers] = {}
    for name, variation in VARIATIONS.items():
        again[name] = _answer_all(model, sample, variation)
        progress(len(first))
    if in_half_precision is not None:
        again["bfloat16"] = _answer_all(in_half_precision(), sample, _repeated)
        progress(len(first))
    rows = [flips_row(suite.name, name, first, answers) for name, answers in again.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def flips_row(suite: str, variation: str, first: Answers, again: Answers) -> dict[str, object]:
    """A row of the metrics table: the share of answers that differ, with Wilson's interval."""
    pairs = [(a, b) for a, b in zip(first, again, strict=True) if None not in (a, b)]
    flips = sum(a != b for a, b in pairs)
    share = flips / len(pairs) if pairs else float("nan")
    low, high = wilson_interval(share, len(pairs))
    return {
        "metric": FLIPS,
        "suite": suite,
        "group": "MICRO",
        "subset": variation,
        "value": share,
        "std": float("nan"),
        "low": low,
        "high": high,
        "n": len(pairs),
        "n_excluded": len(first) - len(pairs),
    }


def _sample(
    suite: Suite, size: int, rng: random.Random
) -> Iterator[tuple[list[Query], Candidates]]:
    """About equally many queries of each relation, any fact in any pattern."""
    relations = [relation for relation in suite.relations if relation.facts]
    share = -(-size // max(1, len(relations)))
    for relation in relations:
        width = len(relation.patterns)
        every = range(len(relation.facts) * width)
        queries = []
        for number in rng.sample(every, min(share, len(every))):
            fact, pattern = relation.facts[number // width], relation.patterns[number % width]
            queries.append(relation.query(pattern, fact))
        for rows, candidates in relation.by_candidates(queries):
            yield [queries[row] for row in rows], candidates


Variation = Callable[[Any, Callable[[Sequence[Any]], Answers], Sequence[Any]], Answers]
"""The answers to queries of any kind, from the model and a function that answers them."""


def _answer_all(
    model: LanguageModel, sample: list[tuple[list[Query], Candidates | None]], variation: Variation
) -> Answers:
    """The answers of a model to a sample, given the queries as ``variation`` does."""
    return [
        answer
        for queries, candidates in sample
        for answer in variation(model, partial(_answer, model, candidates), queries)
    ]


def _answer(
    model: LanguageModel, candidates: Candidates | None, queries: Sequence[Query]
) -> Answers:
    answers: Answers = [None] * len(queries)
    for scores in model.score(queries, candidates, every=False):
        columns = judge(scores, [queries[row].gold for row in scores.rows])
        for row, answer in zip(scores.rows, columns["answer"], strict=True):
            answers[row] = answer
    return answers


def _repeated(
    model: object, answer: Callable[[Sequence[T]], Answers], queries: Sequence[T]
) -> Answers:
    return answer(queries)


def _one_by_one(
    model: object, answer: Callable[[Sequence[T]], Answers], queries: Sequence[T]
) -> Answers:
    return [answer([query])[0] for query in queries]


def _reordered(
    model: object, answer: Callable[[Sequence[T]], Answers], queries: Sequence[T]
) -> Answers:
    order = list(range(len(queries)))
    random.Random(len(queries)).shuffle(order)
    answers = answer([queries[row] for row in order])
    by_row = dict(zip(order, answers, strict=True))
    return [by_row[row] for row in range(len(queries))]


def _large_batches(
    model: object, answer: Callable[[Sequence[T]], Answers], queries: Sequence[T]
) -> Answers:
    budget = getattr(model, "budget", None)
    if budget is None:
        return answer(queries)
    before, budget.tokens = budget.tokens, budget.tokens * LARGER
    try:
        return answer(queries)
    finally:
        budget.tokens = before


def _other_threads(
    model: object, answer: Callable[[Sequence[T]], Answers], queries: Sequence[T]
) -> Answers:
    """One thread instead of several, two instead of one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        return answer(queries)
    finally:
        torch.set_num_threads(before)


VARIATIONS: Mapping[str, Variation] = {
    "repeated": _repeated,
    "reordered": _reordered,
    "one_by_one": _one_by_one,
    "large_batches": _large_batches,
    "other_threads": _other_threads,
}
"""What does not change a question and must not change its answer."""
