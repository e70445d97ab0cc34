"""The prompts of a suite as rows, for models that are asked elsewhere."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.ask_questions import Presenter, prompts_of
from consilience.asking.prompting import Prompting, template_names
from consilience.core.errors import ExportFormat
from consilience.core.text import counted
from consilience.files.write import csv_cell, write_whole
from consilience.options import shared_fields
from consilience.presentation import Prompt
from consilience.questions import Question
from consilience.report.shown import Lines
from consilience.sentence_pairs import Task, as_string
from consilience.suites.pairs import TASK_SUITE, Pairs, is_task
from consilience.suites.perturbations import Perturbation, forms_of, original
from consilience.suites.question_suites import (
    BLANK,
    groups_of_questions,
    is_questions,
    load_questions,
    select_questions,
)
from consilience.suites.questions import Questions
from consilience.types import Relation, Suite
from consilience.workflow.fact_setup import fact_setup
from consilience.workflow.pair_setup import ChosenPairs
from consilience.workflow.probe_options import ProbeOptions, refuse_options
from consilience.workflow.question_design import columns_of, design_of, factors_of
from consilience.workflow.suite_options import ExportOptions

ExportedRow = dict[str, Any]
"""A prompt: the columns of ``COLUMNS`` that its kind of suite has."""

COLUMNS: Mapping[str, str] = {
    "suite": "the suite",
    "group": "the relation, the task or the group of questions",
    "item": "the id of the fact, the pair or the question",
    "subject": "facts: the subject, as in the facts; pairs: the first sentence; questions: the "
    "item",
    "variant": "the variant: a pattern, a form or the levels of the factors",
    "variant_index": "its position, from 0",
    "prompt": "the text to send",
    "messages": "the same as the messages of a chat; questions in the template chat only",
    "text_1": "the first text of a sentence pair in this form",
    "text_2": "the second text",
    "candidates": "what may be answered",
    "options": "the options of a question in the order in which they are shown",
    "gold": "the right answer, as in the facts",
}
"""The columns of exported prompts, and what they hold."""


def export_prompts(options: ExportOptions) -> Iterator[ExportedRow]:
    """The prompts of a suite, item by item. An option of another suite raises at once."""
    if is_questions(options.suite):
        return question_prompts(options, None)
    chosen = replace(ProbeOptions(**shared_fields(options, ProbeOptions)), out=None)
    if is_task(options.suite):
        pairs = ChosenPairs.of(replace(chosen, generate=True))
        return pair_rows(pairs.task, pairs.pairs, pairs.perturbations, options.template)
    return fact_rows(fact_setup(chosen).suite)


def question_prompts(options: ExportOptions, whole: Questions | None) -> Iterator[ExportedRow]:
    """The prompts of questions; ``whole``: in place of those that the options name."""
    questions, presenters = questions_to_export(options, whole)
    return (
        row
        for name, items in questions.groups.items()
        for row in question_rows(items, presenters[name], questions.name)
    )


def questions_to_export(
    options: ExportOptions, whole: Questions | None = None
) -> tuple[Questions, dict[str, Presenter]]:
    """The questions that options choose, and how those of each group are presented.

    ``whole``: the suite, in place of the one that the options name.
    """
    chosen = replace(ProbeOptions(**shared_fields(options, ProbeOptions)), out=None)
    refuse_options(chosen, "questions", "a suite of questions")
    whole = whole or load_questions(options.suite, columns_of(options.columns))
    questions = select_questions(whole, options.groups, options.limit, options.seed)
    factors = factors_of(options.vary, questions, template_names(options.template))
    design = design_of(options.design, factors, options.seed)
    prompting = Prompting.of(
        options.template,
        factors,
        shots=options.shots,
        system=options.system or "",
        seed=options.seed,
    )
    return questions, {
        group.id: prompting.presenter(group.design(design), whole.items)
        for group in groups_of_questions(questions)
    }


def exported_lines(options: ExportOptions) -> Iterator[str]:
    """The prompts as the lines of a file."""
    return as_lines(export_prompts(options), export_format(options))


def written_prompts(options: ExportOptions, file: Path) -> Lines:
    """Write the prompts to a file; how many there are."""
    count = itertools.count()
    rows = (row for row, _ in zip(export_prompts(options), count, strict=False))
    lines = as_lines(rows, export_format(options))
    write_whole(file, lambda: (line.encode() for line in lines))
    return Lines({}, f"{file}: {counted(next(count), 'prompt')}")


def export_format(options: ExportOptions) -> ExportFormat:
    """The format that is named, or that of the file."""
    is_csv = options.out is not None and options.out.suffix == ".csv"
    return options.format or ("csv" if is_csv else "jsonl")


def fact_rows(suite: Suite) -> Iterator[ExportedRow]:
    """Every fact in every pattern, with a blank in place of the object."""
    for relation in suite.relations:
        yield from _relation_rows(relation, suite.name)


def _relation_rows(relation: Relation, suite: str) -> Iterator[ExportedRow]:
    candidates = {
        pattern.name: [
            relation.written(word, pattern.language, pattern.object_form)
            for word in relation.candidates.words
        ]
        for pattern in relation.patterns
    }
    for fact in relation.facts:
        for at, pattern in enumerate(relation.patterns):
            query = relation.query(pattern, fact)
            yield {
                "suite": suite,
                "group": relation.id,
                "item": fact.item,
                "subject": fact.subject,
                "variant": pattern.name,
                "variant_index": at,
                "prompt": pattern.fill_blank(query.subject, BLANK),
                "candidates": candidates[pattern.name],
                "gold": fact.object,
            }


def pair_rows(
    task: Task,
    pairs: Pairs,
    perturbations: Mapping[str, Perturbation],
    template: str | None = None,
) -> Iterator[ExportedRow]:
    """Every sentence pair in every form, the original first, as a language model is asked.

    ``template``: a text with ``{text}`` and, if wanted, ``{labels}``; None for that of the task.
    """
    from consilience.models.label_prompts import REPLY, TEMPLATES, filled

    text = filled(template or TEMPLATES[task.kind], task).replace(REPLY, "")
    before, after = text.split("{text}")
    for pair in pairs.items:
        forms = forms_of(pair, original(pair, task.indicators), perturbations)
        for at, (name, form) in enumerate(forms.items()):
            yield {
                "suite": TASK_SUITE,
                "group": task.name,
                "item": pair.item,
                "subject": pair.first,
                "variant": name,
                "variant_index": at,
                "prompt": before + as_string(form) + after,
                "text_1": form[0].text,
                "text_2": form[1].text,
                "candidates": list(task.labels),
                "gold": pair.label,
            }


def question_rows(
    questions: Sequence[Question], presenter: Presenter, suite: str
) -> Iterator[ExportedRow]:
    """The questions of a group in every variant; the options as they are shown."""
    names = presenter.design.names
    for at, variant, prompt in prompts_of(questions, presenter):
        question = questions[at]
        yield {
            "suite": suite,
            "group": question.group,
            "item": question.item,
            "subject": question.item,
            "variant": names[variant],
            "variant_index": variant,
            "prompt": f"{prompt.system}\n\n{prompt.text}" if prompt.system else prompt.text,
            "messages": messages_of(prompt) if prompt.is_chat else None,
            "candidates": list(prompt.answers) if question.options else [],
            "options": [question.options[option].text for option in prompt.options],
            "gold": question.gold.text,
        }


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """The turns of a chat with its system prompt, as most services take them."""
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, *({"role": role, "content": text} for role, text in prompt.turns)]


def as_lines(rows: Iterable[ExportedRow], format_: ExportFormat) -> Iterator[str]:
    """The lines of a file with these rows; in CSV, lists are JSON in one cell."""
    header: list[str] = []
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        if format_ == "jsonl":
            yield json.dumps(row, ensure_ascii=False) + "\n"
            continue
        if not header:
            header = list(row)
            writer.writerow(header)
        writer.writerow([_cell(row[name]) for name in header])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return csv_cell(value) if isinstance(value, str) else value
