"""Suites as a task of inspect_ai: ``inspect eval consilience/suite -T suite=S``.

The entry point ``inspect_ai`` of the package names this module; nothing of ours imports it. A
sample is an item in one variant. The metrics see all samples of all epochs, and are those of
``consilience score``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import polars as pl
from inspect_ai import Task, model, task
from inspect_ai import scorer as scoring
from inspect_ai._util.error import PrerequisiteError  # the only error without a traceback
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import TaskState, generate
from rich.markup import escape

from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS, ORIGINAL
from consilience.core.free_text import DEFAULT_RULE, match_verdict, rule_of
from consilience.core.items import Choice
from consilience.files.tables import sample_rows
from consilience.kinds import kind_of, to_export
from consilience.kinds.answers import answers_to_questions
from consilience.kinds.base import ExportedRow
from consilience.kinds.questions import OwnQuestions, questions_of
from consilience.options import option_fields, options_of
from consilience.options.probe import ProbeOptions
from consilience.options.suites import ExportOptions
from consilience.results.evaluation import score
from consilience.suites.questions import Questions

REPORTED = ("accuracy", "consistency", "corrected_consistency", "consistent_accuracy")
"""The numbers of a task (``metrics.definitions``), each with the bounds of its 95 % interval."""

MESSAGES = {
    "system": model.ChatMessageSystem,
    "user": model.ChatMessageUser,
    "assistant": model.ChatMessageAssistant,
}

OF_QUESTIONS = ("as_questions", "seed", "columns", "data_dir")
"""The options that decide which questions a suite has."""


@task
def suite(
    suite: str = "mini-questions",
    as_questions: int | None = None,
    template: str | None = None,
    match: str | None = None,
    **options: Any,
) -> Task:
    """A suite in all its variants; ``options`` are those of ``suite export``.

    Facts are asked as questions with ``as_questions`` wrong options (by default 3). ``match``: the
    rule that finds the option or the label in an answer (``score --match``). ``limit`` takes whole
    items of each group; ``--limit`` of inspect_ai cuts through their variants.
    """
    named = {"suite": suite, "as_questions": as_questions, "template": template}
    try:
        chosen, rule = _options(named | options), _text(match)
        rule_of(rule or DEFAULT_RULE)  # an unknown one raises
        rows = _rows(chosen)
        source = {name: chosen[name] for name in OF_QUESTIONS if name in chosen}
        source |= {"source": chosen["suite"], "match": rule}
        samples = [_sample(row, source) for row in rows]
    except ConsilienceError as error:  # without a traceback
        raise PrerequisiteError(f"consilience: {escape(str(error))}") from error
    return Task(
        dataset=MemoryDataset(samples, name=chosen["suite"]),
        solver=generate(),
        scorer=option(),
        config=model.GenerateConfig(temperature=0.0),
        version=1,
    )


def _text(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _options(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the commas of ``vary`` separate factors, and their levels."""
    lists = {field.name for field in option_fields(ExportOptions) if field.is_list}
    options = {
        name: value if name in lists else _text(value)
        for name, value in values.items()
        if value is not None
    }
    if "vary" in options:
        factor = rf",(?=(?:{'|'.join(FACTORS)})(?:=|,|$))"
        options["vary"] = re.split(factor, _text(options["vary"]))
    for name in {"format", "out"} & options.keys():
        raise ConsilienceError(f"-T {name}=...", expected="no file: inspect_ai writes a log")
    return options


def _rows(options: dict[str, Any]) -> Iterator[ExportedRow]:
    """The prompts of a suite. The defaults of questions are added to ``options``."""
    spec = str(options["suite"])
    exported = {name: value for name, value in options.items() if name != "as_questions"}
    chosen = options_of(ExportOptions, {"template": "chat"} | exported)
    kind = kind_of(spec, options.get("as_questions"))
    if kind.as_questions is not None:
        options["as_questions"] = kind.as_questions
    elif kind is not OwnQuestions:
        return to_export(options_of(ExportOptions, exported)).rows()
    return to_export(chosen, _questions_of(spec, options)).rows()


def _sample(row: ExportedRow, source: dict[str, Any]) -> Sample:
    """A prompt; its metadata name the item, the variant, what may be answered, and ``source``."""
    messages: list[model.ChatMessage] = [
        MESSAGES[message["role"]](content=message["content"])
        for message in row.get("messages") or ()
    ]
    shown = {name: value for name, value in row.items() if name not in ("prompt", "messages")}
    return Sample(
        id=f"{row['item']} {row['variant']}",
        input=messages or row["prompt"],
        target=row["gold"],
        metadata=shown | source,
    )


def _questions_of(suite: str, options: Mapping[str, Any]) -> Questions:
    chosen = {name: options[name] for name in OF_QUESTIONS if name in options}
    return _questions(json.dumps({"suite": suite, **chosen}))


@lru_cache(maxsize=4)
def _questions(options: str) -> Questions:
    questions = questions_of(options_of(ProbeOptions, json.loads(options)), None)
    assert questions is not None  # facts have ``as_questions``
    return questions


def _suite_of(metadata: Mapping[str, Any]) -> str | Questions:
    """What the answers to a sample are scored by: questions, or the task of sentence pairs."""
    source = metadata["source"]
    return _questions_of(source, metadata) if "options" in metadata else str(source)


@scoring.metric(scores="unreduced")
def agreement() -> scoring.Metric:
    """Accuracy and consistency over the variants, as ``consilience score`` counts them.

    ``NAME_low`` and ``NAME_high``: the 95 % interval over items. Epochs are levels of ``sample``.
    """

    def numbers(scores: list[scoring.SampleScore]) -> dict[str, float]:
        samples = [
            (one.sample_metadata or {}, (one.score.metadata or {})["epoch"], one.score.explanation)
            for one in scores
        ]
        rows = list(sample_rows(samples))
        if not any("options" in row or row["variant"] == ORIGINAL for row in rows):
            return dict.fromkeys(REPORTED, float("nan"))
        suite, match = _suite_of(samples[0][0]), samples[0][0]["match"]
        metrics = score(pl.DataFrame(rows), suite, match=match).metrics
        group = "MICRO" if isinstance(suite, Questions) else metrics["group"][0]
        whole = metrics.filter(group=group, subset="all")
        return {
            name + suffix: whole.filter(metric=name)[column].item()
            for name in REPORTED
            for suffix, column in (("", "value"), ("_low", "low"), ("_high", "high"))
        }

    return numbers


@scoring.scorer(metrics=[agreement()])
def option() -> scoring.Scorer:
    """Which option, label, or text of an open question the model wrote: right or wrong."""

    async def mark(state: TaskState, target: scoring.Target) -> scoring.Score:
        text, metadata = state.output.completion, state.metadata
        rule = rule_of(metadata["match"]) if metadata["match"] else None
        (row,) = sample_rows([(metadata, 1, text)])
        suite = _suite_of(metadata)
        if isinstance(suite, Questions) and "ask=verify" not in metadata["variant"]:
            answer = answers_to_questions(pl.DataFrame([row]), suite, rule)[1]["answer"].item()
        else:
            labels = metadata["candidates"]
            usual = None if "ask=verify" in metadata["variant"] else rule_of(DEFAULT_RULE)
            at = match_verdict(text, list(map(Choice, labels)), rule or usual)
            answer = text if at is None else labels[at]
        value = scoring.CORRECT if answer == metadata["gold"] else scoring.INCORRECT
        return scoring.Score(
            value=value, answer=answer, explanation=text, metadata={"epoch": state.epoch}
        )

    return mark
