"""Examples of the answers to questions: what was sent, what was written, and how it was matched."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.analysis.examples import Example
from consilience.report.prompt_lines import in_one_line
from consilience.report.table import Column, Table, Value
from consilience.text import truncated

LONGEST_TEXT = 120
"""Characters of a written text that an example shows."""

LONGEST_ANSWER = 30
"""Characters of an answer that an example shows; one that matches nothing is the whole text."""


def question_example_table(examples: Sequence[Example], title: str) -> Table:
    """At most three replies to each question: prompt, variant, text, verdict and answer.

    Prompts of several questions are without the lines that all of them begin with.
    """
    replies = [(example, reply) for example in examples for reply in example.telling]
    is_written = any(reply.text is not None for _, reply in replies)
    several = len({(example.group, example.item) for example in examples}) > 1
    texts = [reply.prompt or example.item for example, reply in replies]
    prompts = in_one_line(texts, shared=several)
    rows: list[list[Value]] = []
    last_rows = []
    for (example, reply), prompt in zip(replies, prompts, strict=True):
        written = [truncated(reply.text or "", LONGEST_TEXT)] if is_written else []
        verdict = "right" if reply.right else reply.unmatched or "wrong"
        answer = f"{verdict}: {truncated(reply.answer, LONGEST_ANSWER)}"
        rows.append([example.group, prompt, reply.variant, *written, answer, example.gold])
        if reply == example.telling[-1]:
            last_rows.append(len(rows) - 1)
    columns = [Column("group", is_extra=True), Column("question"), Column("variant")]
    columns += [Column("text")] * is_written
    columns += [Column("answer"), Column("gold", is_extra=True)]
    return Table(title, columns, rows, rules=last_rows, sortable=False)
