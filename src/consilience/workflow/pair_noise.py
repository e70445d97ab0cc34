"""The noise floor of a run of sentence pairs: how often a label changes when no text does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from consilience.ask import Progress, judge
from consilience.ask_pairs import PairModel, Presented
from consilience.core.schemas import METRICS_SCHEMA
from consilience.noise import QUERIES, VARIATIONS, Answers, flips_row
from consilience.sentence_pairs import Form
from consilience.suites.pairs import TASK_SUITE


def pair_noise_floor(
    presented: Presented,
    model: PairModel,
    *,
    in_half_precision: Callable[[], PairModel] | None = None,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed labels of a sample.

    A sample of ``queries`` forms of pairs is asked as ``noise.VARIATIONS`` say, and again by the
    model that ``in_half_precision`` loads. ``seed`` decides the sample.
    """
    forms = [
        form
        for of_pair, reason in zip(presented.forms, presented.reasons, strict=True)
        if reason is None
        for form in of_pair
    ]
    sample = random.Random(seed).sample(forms, min(queries, len(forms)))
    if forget := getattr(model, "forget", None):
        forget()
    first = _answer(model, sample)
    again: dict[str, Answers] = {}
    for name, variation in VARIATIONS.items():
        again[name] = variation(model, partial(_answer, model), sample)
        progress(len(sample))
    if in_half_precision is not None:
        again["bfloat16"] = _answer(in_half_precision(), sample)
        progress(len(sample))
    rows = [flips_row(TASK_SUITE, name, first, answers) for name, answers in again.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def _answer(model: PairModel, forms: Sequence[Form]) -> Answers:
    """The label of each form; None where there is none."""
    answers: Answers = [None] * len(forms)
    for scores in model.score(forms):
        judged = judge(scores, [scores.words[0]] * len(scores.rows))["answer"]
        for row, answer in zip(scores.rows.tolist(), judged, strict=True):
            answers[row] = answer
    return answers
