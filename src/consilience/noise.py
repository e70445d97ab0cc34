"""The noise floor: how often an answer changes when nothing about the question does.

A sample of queries is answered again in other batches, in another order, with another number of
threads, one at a time, and in half precision. The share of answers that differ is the metric
``flips``, one row a variation: a difference in consistency that is no larger means nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from consilience.ask import facts_of, scores_of_facts
from consilience.ask_pairs import Presented, pairs_of
from consilience.ask_questions import Presenter, ask_asks, group_of
from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.asks import Ask, Group
from consilience.core.schemas import FLIPS, METRICS_SCHEMA
from consilience.metrics.statistics import wilson_interval
from consilience.models import LanguageModel
from consilience.questions import Question
from consilience.types import Relation, Suite

QUERIES = 256
"""Queries of a sample; without a flip the rate is below 1.2 % (95 %, rule of three)."""

LARGER = 8
"""How many times more tokens a large batch holds."""

MOST_SAMPLED_CELLS = 16
"""Variants of a question that are asked again."""

Answers = list[str | None]

Sample = tuple[Callable[[Any, Sequence[Ask]], Answers], Sequence[Ask]]
"""How a model answers some asks, and these asks."""


def noise_floor(
    samples: Sequence[Sample],
    model: Any,
    suite: str,
    *,
    in_half_precision: Callable[[], Any] | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed answers of samples.

    ``in_half_precision`` loads the same model in bfloat16. ``n`` counts the asks that were answered
    both times; ``n_excluded`` the others.
    """
    if forget := getattr(model, "forget", None):
        forget()

    def answers(of: Any, variation: Variation) -> Answers:
        return [one for answer, asks in samples for one in variation(of, partial(answer, of), asks)]

    first = answers(model, _repeated)
    again: dict[str, Answers] = {}
    for name, variation in VARIATIONS.items():
        again[name] = answers(model, variation)
        progress(len(first))
    if in_half_precision is not None:
        again["bfloat16"] = answers(in_half_precision(), _repeated)
        progress(len(first))
    rows = [flips_row(suite, name, first, changed) for name, changed in again.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def fact_samples(
    suite: Suite, size: int, generator: random.Random, *, whole_vocabulary: bool = False
) -> list[Sample]:
    """About equally many queries of each relation, any fact in any pattern."""
    relations = [relation for relation in suite.relations if relation.facts]
    share = -(-size // max(1, len(relations)))
    samples: list[Sample] = []
    for relation in relations:
        group = facts_of(relation, suite.name, whole_vocabulary=whole_vocabulary)
        ask = partial(_ask_facts, None if whole_vocabulary else relation)
        asks = generator.sample(group.asks, min(share, len(group.asks)))
        samples.append((partial(_answers, group, ask), asks))
    return samples


def _ask_facts(relation: Relation | None, group: Group, model: LanguageModel) -> pl.DataFrame:
    return asker.ask(group, partial(scores_of_facts, model, relation, every=False))


def pair_samples(presented: Presented, size: int, generator: random.Random) -> list[Sample]:
    """Any pairs that can be asked, in any forms."""
    group = pairs_of(presented)
    asks = [one for one in group.asks if one.why_not is None]
    asks = generator.sample(asks, min(size, len(asks)))
    return [(partial(_answers, group, lambda some, of: asker.ask(some, of.score)), asks)]


def question_samples(
    groups: Sequence[tuple[Sequence[Question], Presenter]], size: int, generator: random.Random
) -> list[Sample]:
    """Some questions with options of each group, every one in each of some variants.

    ``groups``: the questions of each group, and how they are presented.
    """
    share, samples = -(-size // len(groups)), list[Sample]()
    for questions, presenter in groups:
        design = presenter.design
        cells = generator.sample(design.cells, min(MOST_SAMPLED_CELLS, len(design.cells)))
        count = min(len(questions), -(-share // len(cells)))
        drawn = generator.sample(questions, count)
        asks = []
        for at, question in enumerate(drawn):
            for cell in cells:
                prompt, variant = presenter.prompt(question, cell), design.cells.index(cell)
                if prompt is None:
                    asks.append(Ask(at, variant, None, why_not="no such variant"))
                else:
                    asks.append(Ask(at, variant, prompt, prompt.answers, prompt.options))
        group = group_of(drawn, design, asks, "")
        samples.append((partial(_answers, group, partial(ask_asks, presenter)), asks))
    return samples


def _answers(
    group: Group, ask: Callable[[Group, Any], pl.DataFrame], model: Any, asks: Sequence[Ask]
) -> Answers:
    """The answer to each of some asks of a group; the option where it has one."""
    table = ask(replace(group, asks=asks), model)
    if "option" in table.columns:
        option = pl.col("option").cast(pl.String)
        table = table.with_columns(answer=pl.coalesce(option, "answer"))
    answers: Answers = table["answer"].to_list()
    return answers


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
