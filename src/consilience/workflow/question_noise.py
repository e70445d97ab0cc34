"""The noise floor of a run of questions: how often an answer changes when no prompt does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from consilience.ask import Progress
from consilience.ask_questions import Presenter, PromptModel, ask_options
from consilience.core.factors import Cell, FactorialDesign
from consilience.core.schemas import METRICS_SCHEMA
from consilience.noise import QUERIES, VARIATIONS, Answers, flips_row
from consilience.questions import Question

MOST_SAMPLED_CELLS = 16
"""Variants of a question that are asked again."""

Asked = tuple[Question, Cell]
"""A question in a variant."""

GroupSample = tuple[list[Asked], Presenter]
"""Questions of a group in some of their variants, and how they are presented."""


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
    """Rows of the metrics table (``METRICS_SCHEMA``): the share of changed answers of a sample.

    ``groups``: the questions with options of each group, and how they are presented. A sample of
    about ``queries`` prompts is asked as ``noise.VARIATIONS`` say, and again by the model that
    ``in_half_precision`` loads. ``seed`` decides the sample.
    """
    generator = random.Random(seed)
    samples = [
        _sample(questions, presenter, -(-queries // len(groups)), generator)
        for questions, presenter in groups
    ]
    first = _answer_all(samples, model, suite, "repeated")
    again: dict[str, Answers] = {}
    for name in VARIATIONS:
        again[name] = _answer_all(samples, model, suite, name)
        progress(len(first))
    if in_half_precision is not None:
        again["bfloat16"] = _answer_all(samples, in_half_precision(), suite, "repeated")
        progress(len(first))
    rows = [flips_row(suite, name, first, answers) for name, answers in again.items()]
    return pl.DataFrame(rows, schema=METRICS_SCHEMA)


def _sample(
    questions: Sequence[Question], presenter: Presenter, size: int, generator: random.Random
) -> GroupSample:
    """Some questions in some variants, every one of these questions in every one of these."""
    cells = presenter.design.cells
    chosen = generator.sample(cells, min(MOST_SAMPLED_CELLS, len(cells)))
    count = min(len(questions), -(-size // len(chosen)))
    return (
        [(question, cell) for question in generator.sample(questions, count) for cell in chosen],
        presenter,
    )


def _answer_all(
    samples: Sequence[GroupSample], model: PromptModel, suite: str, variation: str
) -> Answers:
    """The answers of a model to the samples of all groups, given the prompts as it says."""
    return [
        answer
        for prompts, presenter in samples
        for answer in VARIATIONS[variation](
            model, partial(_answer, model, presenter, suite), prompts
        )
    ]


def _answer(
    model: PromptModel, presenter: Presenter, suite: str, prompts: Sequence[Asked]
) -> Answers:
    """What a model answers to questions in variants, in their order; None for no answer."""
    questions = list({question.item: question for question, _ in prompts}.values())
    cells = tuple(dict.fromkeys(cell for _, cell in prompts))
    design = FactorialDesign(presenter.design.factors, cells)
    some = replace(presenter, design=design, rule_name=presenter.rule.name)
    table = ask_options(questions, some, model, suite)
    answers = {
        (item, variant): answer if option is None else str(option)
        for item, variant, option, answer in table.select(
            "item", "variant_index", "option", "answer"
        ).iter_rows()
    }
    position = {cell: at for at, cell in enumerate(cells)}
    return [answers.get((question.item, position[cell])) for question, cell in prompts]
