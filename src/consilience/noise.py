"""The noise floor: how often an answer changes when nothing about the question does.

A sample of queries is answered again in other batches, in another order, with another number of
threads, one at a time, and in half precision. The share of answers that differ is the metric
``flips``, one row a variation: a difference in consistency that is no larger means nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from consilience.ask import OfQueries, facts_of
from consilience.ask_pairs import OfForms, PairModel, Presented, pairs_of
from consilience.ask_questions import Presenter, PromptModel, ask_asks, group_of
from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.asks import Ask, Group
from consilience.metrics.intervals import wilson_interval
from consilience.models import LanguageModel
from consilience.questions import Question
from consilience.schemas import FLIPS, METRICS_SCHEMA
from consilience.types import Suite

QUERIES = 256
"""Queries of a sample; without a flip the rate is below 1.2 % (95 %, rule of three)."""

LARGER = 8
"""How many times more tokens a large batch holds."""

MOST_SAMPLED_CELLS = 16
"""Variants of a question that are asked again."""

Answers = list[str | None]

Sample = tuple[Group, Callable[[Group, Any], pl.DataFrame]]
"""Asks of a group, and how they are asked of a model."""


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
    """That of facts (``flips_in``): about equally many of each relation, in any pattern.

    ``in_half_precision`` loads the same model in bfloat16. ``seed`` determines the sample.
    """
    generator = random.Random(seed)
    relations = [relation for relation in suite.relations if relation.facts]
    share = -(-queries // max(1, len(relations)))

    def sample(at: int) -> Sample:
        relation = None if whole_vocabulary else relations[at]
        group = facts_of(relations[at], suite.name, whole_vocabulary=whole_vocabulary)
        asks = generator.sample(group.asks, min(share, len(group.asks)))
        return replace(group, asks=asks), lambda some, of: asker.ask(some, OfQueries(of, relation))

    samples = [sample(at) for at in range(len(relations))]
    return flips_in(samples, model, suite.name, in_half_precision, progress)


def pair_noise_floor(
    presented: Presented,
    model: PairModel,
    *,
    in_half_precision: Callable[[], PairModel] | None = None,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """That of sentence pairs (``flips_in``): any pairs in any forms."""
    group = pairs_of(presented)
    asks = [one for one in group.asks if one.why_not is None]
    asks = random.Random(seed).sample(asks, min(queries, len(asks)))
    if forget := getattr(model, "forget", None):
        forget()
    sample: Sample = replace(group, asks=asks), lambda some, of: asker.ask(some, OfForms(of))
    return flips_in([sample], model, group.suite, in_half_precision, progress)


def question_noise_floor(
    groups: Sequence[tuple[Sequence[Question], Presenter]],
    model: PromptModel,
    suite: str,
    *,
    in_half_precision: Callable[[], PromptModel] | None = None,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """That of questions with options (``flips_in``): some of each group in some variants.

    ``groups``: the questions of each group, and how they are presented. Every question of the
    sample is in every variant of it.
    """
    generator = random.Random(seed)

    def sample(questions: Sequence[Question], presenter: Presenter, size: int) -> Sample:
        design = presenter.design
        cells = generator.sample(design.cells, min(MOST_SAMPLED_CELLS, len(design.cells)))
        count = min(len(questions), -(-size // len(cells)))
        questions = generator.sample(questions, count)
        asks = []
        for at, question in enumerate(questions):
            for cell in cells:
                prompt, variant = presenter.prompt(question, cell), design.cells.index(cell)
                if prompt is None:
                    asks.append(Ask(at, variant, None, why_not="no such variant"))
                else:
                    asks.append(Ask(at, variant, prompt, prompt.answers, prompt.options))
        group = group_of(questions, design, asks, suite)
        return group, lambda some, of: ask_asks(some, presenter, of)

    samples = [sample(*group, -(-queries // len(groups))) for group in groups]
    return flips_in(samples, model, suite, in_half_precision, progress)


def flips_in(
    samples: Sequence[Sample],
    model: Any,
    suite: str,
    in_half_precision: Callable[[], Any] | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed answers of samples.

    ``n`` counts the asks that were answered both times; ``n_excluded`` the others.
    """
    first = _answers(samples, model, _repeated)
    again: dict[str, Answers] = {}
    for name, variation in VARIATIONS.items():
        again[name] = _answers(samples, model, variation)
        progress(len(first))
    if in_half_precision is not None:
        again["bfloat16"] = _answers(samples, in_half_precision(), _repeated)
        progress(len(first))
    rows = [flips_row(suite, name, first, answers) for name, answers in again.items()]
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


Answer = Callable[[Sequence[Ask]], Answers]
Variation = Callable[[Any, Answer, Sequence[Ask]], Answers]
"""The answers to asks, from the model and a function that answers them."""


def _answers(samples: Sequence[Sample], model: Any, variation: Variation) -> Answers:
    """The answers of a model to samples, asked as ``variation`` does; options where there are."""
    answers: Answers = []
    for group, ask in samples:

        def answer(asks: Sequence[Ask], group: Group = group, ask: Any = ask) -> Answers:
            table = ask(replace(group, asks=asks), model)
            if "option" in table.columns:
                option = pl.col("option").cast(pl.String)
                table = table.with_columns(answer=pl.coalesce(option, "answer"))
            found: Answers = table["answer"].to_list()
            return found

        answers += variation(model, answer, group.asks)
    return answers


def _repeated(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    return answer(asks)


def _one_by_one(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    return [answer([one])[0] for one in asks]


def _reordered(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    order = list(range(len(asks)))
    random.Random(len(asks)).shuffle(order)
    by_row = dict(zip(order, answer([asks[row] for row in order]), strict=True))
    return [by_row[row] for row in range(len(asks))]


def _large_batches(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    budget = getattr(model, "budget", None)
    if budget is None:
        return answer(asks)
    before, budget.tokens = budget.tokens, budget.tokens * LARGER
    try:
        return answer(asks)
    finally:
        budget.tokens = before


def _other_threads(model: object, answer: Answer, asks: Sequence[Ask]) -> Answers:
    """One thread instead of several, two instead of one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        return answer(asks)
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
