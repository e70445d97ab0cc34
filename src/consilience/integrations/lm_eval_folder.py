"""Write a suite as a task of lm-evaluation-harness: YAML, documents, and functions that count."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise, product
from typing import Any

from consilience.asking.questions import prompts_of
from consilience.core.errors import ConsilienceError
from consilience.core.items import Question
from consilience.core.presentation import Prompt
from consilience.core.text import counted
from consilience.files.write import make_folder, write_whole
from consilience.kinds import kind_of, to_export
from consilience.kinds.base import Inquiry
from consilience.kinds.facts import Facts
from consilience.kinds.questions import OwnQuestions
from consilience.options.suites import ExportOptions
from consilience.report.export import Lines

Document = dict[str, Any]  # What the harness scores of an item in a variant

FUNCTIONS = "consilience_task"

TASK = """\
# Written by `consilience suite export --format lm-eval`. A document is an item in a variant.
task: {name}
custom_dataset: !function {functions}.load
dataset_kwargs: {{file: {name}.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: gold_index
target_delimiter: ""
process_results: !function {functions}.process_results
metric_list:
{metrics}
metadata: {{version: 1.0}}
"""
METRIC = "  - {{metric: {0}, aggregation: !function {1}.{0}, higher_is_better: true}}"
METRICS = ("accuracy", "consistency", "consistent_accuracy", "items")

PREFIX = (
    "lm_eval begins a sentence with the tokenizer's BOS, probe with the start_token in run.json. "
    "Where they differ, add prefix_token_id=ID to --model_args, else the numbers differ"
)


def written_task(options: ExportOptions) -> Lines:
    """Write the suite of the options as a task into ``options.out``; how it is run and read back.

    Sentence pairs, open questions and chats raise: the harness cannot score them as ``probe`` does.
    """
    folder = options.out
    if folder is None:
        raise ConsilienceError("--format lm-eval without a folder", todo="Add --out DIR.")
    kind = kind_of(options.suite)
    if kind not in DOCUMENTS:
        found = f"the sentence pairs of {options.suite} as a task of lm-evaluation-harness"
        todo = "Use `consilience probe`, or --format jsonl."
        raise ConsilienceError(found, expected="facts, or questions with options", todo=todo)
    inquiry = to_export(options)
    documents_of, notes = DOCUMENTS[kind]
    documents = documents_of(inquiry)
    name = "consilience_" + re.sub(r"\W+", "_", inquiry.suite.name)
    make_folder(folder)
    counts: Counter[str] = Counter()

    def lines() -> Iterator[bytes]:
        for document in documents:
            counts[f"{document['group']}\t{document['item']}"] += 1
            yield (json.dumps(document, ensure_ascii=False) + "\n").encode()

    write_whole(folder / f"{name}.jsonl", lines)
    metrics = "\n".join(METRIC.format(metric, FUNCTIONS) for metric in METRICS)
    task = TASK.format(name=name, functions=FUNCTIONS, metrics=metrics)
    write_whole(folder / f"{name}.yaml", task.encode())
    functions = files("consilience.integrations").joinpath("lm_eval_task.py").read_bytes()
    write_whole(folder / f"{FUNCTIONS}.py", functions)
    size = f"{counted(counts.total(), 'document')} of {counted(len(counts), 'item')}"
    return Lines(
        {},
        f"{folder / name}.yaml: {size}",
        "Run:   lm_eval run --model hf --model_args pretrained=MODEL,dtype=float32 --include_path "
        f"{shlex.quote(str(folder))} --tasks {name} --log_samples --output_path LOGS",
        f"Score: consilience score LOGS/MODEL/samples_{name}_DATE.jsonl --suite "
        f"{shlex.quote(options.suite)}",
        notes=notes,
    )


def fact_documents(inquiry: Inquiry) -> Iterator[Document]:
    """Every fact with a known object, in every pattern: whole sentences, one a candidate."""
    suite = inquiry.suite
    has_means = any(relation.cardinality == "N-1" for relation in suite.relations)
    for relation in suite.relations:
        is_averaged = relation.cardinality == "N-1" or not has_means
        size, words = len(relation.patterns), relation.candidates.words
        for fact, (at, pattern) in product(relation.facts, enumerate(relation.patterns)):
            if fact.object in words:
                query = relation.query(pattern, fact)
                language, form = pattern.language, pattern.object_form
                written = (relation.written(word, language, form) for word in words)
                yield {
                    **_identity(suite.name, relation.id, fact.item, pattern.name, at),
                    "subject": fact.subject,
                    "gold": fact.object,
                    "n_variants": size,
                    "compared_with": [*range(at)],
                    "averaged_group": relation.id if is_averaged else None,
                    "unit": f"{fact.subject}\t{fact.object}",
                    "context": "",
                    "choices": [pattern.fill(query.subject, word) for word in written],
                    "gold_index": words.index(fact.object),
                }


def question_documents(inquiry: Inquiry) -> Iterator[Document]:
    """Every question in every variant; open questions and chats raise at once."""
    assert isinstance(inquiry, OwnQuestions)
    questions = inquiry.questions
    presenters = {group: inquiry.presenter(group) for group in inquiry.by_group}
    for group, items in questions.groups.items():
        is_chat = any(template.is_chat for template in presenters[group].templates.values())
        if is_chat or not all(item.options for item in items):
            raise ConsilienceError(
                f"open questions, or a chat, in the group '{group}'",
                expected="questions with options in a text, such as --template plain",
                todo="Choose other groups with --groups, or use --format jsonl.",
            )

    def documents() -> Iterator[Document]:
        for group, of_group in questions.groups.items():
            presenter = presenters[group]
            for question in of_group:
                prompts = prompts_of([question], presenter)
                shown = [variant for _, variant, _ in prompts]
                for _, variant, prompt in prompts:
                    name = presenter.design.names[variant]
                    yield {
                        **_identity(questions.name, group, question.item, name, variant),
                        **_shown(question, prompt),
                        "n_variants": len(prompts),
                        "compared_with": [other for other in shown if other < variant],
                    }

    return documents()


DOCUMENTS = {Facts: (fact_documents, [PREFIX]), OwnQuestions: (question_documents, [])}
"""Kinds of suites that lm-evaluation-harness can score as ``probe`` does, with notes on them."""


def _identity(suite: str, group: str, item: str, variant: str, at: int) -> Document:
    return {"suite": suite, "group": group, "item": item, "variant": variant, "variant_index": at}


def _shown(question: Question, prompt: Prompt) -> Document:
    """What lm-evaluation-harness reads of a question in a variant, and which option each choice is.

    A choice begins with the space that separates it from the prompt, and ends with a line break if
    the text of one begins another's (``1`` and ``10``), as ``probe`` scores it.
    """
    answers = prompt.answers
    begins_another = any(second.startswith(first) for first, second in pairwise(sorted(answers)))
    gap = "" if prompt.text.endswith("\n") else " "
    return {
        "subject": question.item,
        "gold": question.gold.text,
        "averaged_group": "",
        "unit": question.item,
        "context": prompt.text,
        "choices": [gap + answer + "\n" * begins_another for answer in answers],
        "gold_index": prompt.gold,
        "positions": list(prompt.options),
        "options": [question.options[at].text for at in prompt.options],
    }
