"""Suites of questions as tasks of inspect_ai: ``inspect eval consilience/suite -T suite=S``.

The entry point ``inspect_ai`` of the package names this module; nothing of ours imports it. A
sample is a question in one variant. The metrics see all samples, and are those of
``consilience score``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import polars as pl
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
)
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState, generate

from consilience.errors import ConsilienceError
from consilience.free_text import rule_of
from consilience.suites.question_collection import Questions
from consilience.suites.question_suites import is_questions, load_questions
from consilience.workflow.calls import export_prompts
from consilience.workflow.evaluation import score
from consilience.workflow.question_answers import answers_to_questions

REPORTED = ("accuracy", "consistency", "corrected_consistency", "consistent_accuracy")
"""The numbers of a task (``metrics.agreement``), each with the bounds of its 95 % interval."""

MESSAGES = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}
"""The messages of a chat by their role."""


@task
def suite(
    suite: str = "mini-questions",
    groups: str | list[str] | None = None,
    limit: int | None = None,
    vary: str | list[str] | None = None,
    design: str = "full",
    template: str = "chat",
    seed: int = 0,
    match: str | None = None,
) -> Task:
    """A suite of questions in all its variants; the options are those of ``suite export``.

    ``match``: the rule that finds the option in an answer (``score --match``). ``limit`` takes
    whole questions of each group; ``--limit`` of inspect_ai cuts through their variants.
    """
    if not is_questions(suite):
        raise ConsilienceError(
            f"the suite '{suite}', which is not one of questions",
            expected="questions, such as mini-questions, or a file of them",
            todo="Facts and sentence pairs are asked with `consilience probe`.",
        )
    rows = export_prompts(
        suite,
        groups=groups,
        limit=limit,
        vary=[vary] if isinstance(vary, str) else vary,
        design=design,
        template=template,
        seed=seed,
    )
    samples = [_sample(row, suite, match) for row in rows]
    return Task(
        dataset=MemoryDataset(samples, name=samples[0].metadata["suite"] if samples else suite),
        solver=generate(),
        scorer=option(),
        config=GenerateConfig(temperature=0.0),
        version=1,
    )


def _sample(row: dict[str, Any], suite: str, rule: str | None) -> Sample:
    """A prompt; its metadata names the item, the variant, and the options as they are shown."""
    messages: list[ChatMessage] = [
        MESSAGES[message["role"]](content=message["content"]) for message in row["messages"] or ()
    ]
    names = ("suite", "group", "item", "variant", "variant_index", "options", "gold")
    return Sample(
        id=f"{row['item']} {row['variant']}",
        input=messages or row["prompt"],
        target=row["gold"],
        metadata={name: row[name] for name in names} | {"source": suite, "match": rule},
    )


@metric
def agreement() -> Metric:
    """Accuracy and consistency over the variants, as ``consilience score`` counts them.

    ``NAME_low`` and ``NAME_high`` are the bounds of the 95 % interval over questions.
    """

    def numbers(scores: list[SampleScore]) -> dict[str, float]:
        if not scores:
            return dict.fromkeys(REPORTED, float("nan"))
        rows = [_row(sample.sample_metadata or {}, sample.score) for sample in scores]
        first = scores[0].sample_metadata or {}
        metrics = score(pl.DataFrame(rows), first["source"], match=first["match"]).metrics
        whole = metrics.filter(group="MICRO", subset="all")
        return {
            name + suffix: whole.filter(metric=name)[column].item()
            for name in REPORTED
            for suffix, column in (("", "value"), ("_low", "low"), ("_high", "high"))
        }

    return numbers


def _row(metadata: dict[str, Any], written: Score) -> dict[str, Any]:
    """A row of a table of answers; the text that was written is the explanation of the score."""
    names = ("item", "variant", "variant_index", "options")
    return {name: metadata[name] for name in names} | {"answer": written.explanation}


@scorer(metrics=[agreement()])
def option() -> Scorer:
    """Which option, or which text of an open question, the model wrote: right or wrong."""

    async def mark(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        rule = state.metadata["match"]
        row = _row(state.metadata, Score(value=INCORRECT, explanation=text))
        questions = _questions(state.metadata["source"])
        _, answers = answers_to_questions(
            pl.DataFrame([row]), questions, rule_of(rule) if rule else None
        )
        answer, gold = answers.select("answer", "gold").row(0)
        value = CORRECT if answer == gold else INCORRECT
        return Score(value=value, answer=answer, explanation=text)

    return mark


@lru_cache(maxsize=4)
def _questions(source: str) -> Questions:
    return load_questions(source)
