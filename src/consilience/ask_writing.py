"""Ask a model questions that it answers in its own words; what it writes becomes an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol as Interface

import polars as pl

from consilience.ask_questions import SCHEMA, Presenter, askable, questions_of, slices_of
from consilience.asking.asker import Progress, ask_texts
from consilience.core.asks import Ask, Ints, NoAnswer
from consilience.core.free_text import NO_CHOICE, Rule, match, usual_rule
from consilience.core.text import counted, truncated
from consilience.presentation import Prompt, labels_of
from consilience.questions import Question

WRITTEN_COLUMNS: Mapping[str, type[pl.DataType]] = {"text": pl.String, "unmatched": pl.String}
"""Columns of written answers after those of ``ask_questions.QUESTION_COLUMNS``.

``text`` is what the model wrote. ``unmatched`` says why it is none of the options, or of an open
question not the gold; it is null where it is one. ``answer`` is then the normalized text, with
which the answers of other variants are compared, and ``option`` is null.
"""

EMPTY = "(no text)"
"""The answer of a model that wrote nothing but spaces; no normalized text has parentheses."""

SHOWN = 3
"""Unmatched answers that a note quotes."""

LONGEST_SHOWN = 60
"""Characters of an answer that a note quotes."""


class WritingModel(Interface):
    """A model that answers prompts in its own words."""

    identity: dict[str, object]
    """Which model this is."""
    notes: list[str]
    """What a reader of the answers should know."""

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""

    def text(self, prompt: Prompt) -> str:
        """What the model reads."""

    def write(
        self, prompts: Sequence[Prompt], samples: Sequence[int]
    ) -> Iterator[tuple[Ints, Sequence[str | NoAnswer]]]:
        """Positions of prompts, and the texts after them; ``samples``: which sample of each."""


def ask_writing(
    questions: Sequence[Question],
    presenter: Presenter,
    model: WritingModel,
    suite: str,
    rule: Rule | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The written answers of one group of questions, a row for each prompt and sample.

    Samples are the levels of the factor ``sample``: pairs that differ in it alone measure the noise
    of sampling. ``rule``: how the answer is found in a text; None for that of its kind of question
    (``free_text.DEFAULT_RULES``).
    """
    columns = SCHEMA | dict(WRITTEN_COLUMNS)
    factors = [factor.name for factor in presenter.design.factors]
    samples = presenter.design.levels("sample") if "sample" in factors else ()

    def ask_some(some: Sequence[Question]) -> pl.DataFrame:
        def read(text: str, one: Ask) -> dict[str, object]:
            style = presenter.presentation(presenter.design.cells[one.variant]).labels
            return answered(text, one.shown, some[one.item], style, rule)

        group = askable(questions_of(some, presenter, suite, columns), model)
        return ask_texts(group, model.write, read, list(map(int, samples)), progress)

    return pl.concat([ask_some(some) for some in slices_of(questions, presenter)])


def answered(
    text: str, prompt: Prompt, question: Question, style: str, rule: Rule | None = None
) -> dict[str, object]:
    """The answer columns of a written text.

    ``style``: of the labels that the options were shown with (``presentation.LABEL_STYLES``).
    ``rule``: None for that of the kind of question.
    """
    rule = rule or usual_rule(is_open=not question.options)
    if not question.options:
        matched = match(text, [question.gold], rule)
        answer = matched.answer or EMPTY
        answer = answer if matched.position is None else question.gold.text
        reason = "not the gold" if matched.reason == NO_CHOICE else matched.reason
        return {"answer": answer, "text": text, "unmatched": reason or None}
    choices = prompt.choices
    labels = () if style == "none" else labels_of(style, len(choices))
    matched = match(text, choices, rule, labels)
    record: dict[str, object] = {
        "answer": matched.answer or EMPTY,
        "text": text,
        "unmatched": matched.reason or None,
        "n_candidates": len(choices),
    }
    if matched.position is not None:
        record["option"] = option = prompt.options[matched.position]
        record["answer"] = question.options[option].text
        record["label"] = prompt.answers[matched.position]
    return record


def notes_on_writing(answers: pl.DataFrame) -> list[str]:
    """Notes on the written answers that match nothing, of those with options and of open ones.

    With options they are wrong, and agree with no other answer. Without options they are not the
    gold, and two are the same answer if their normalized texts are equal.
    """
    notes = []
    for is_open, kind in ((False, "no option"), (True, "not the gold answer")):
        written = answers.filter(
            pl.col("text").is_not_null() & (pl.col("gold_option").is_null() == is_open)
        )
        unmatched = written.filter(pl.col("unmatched").is_not_null())
        if unmatched.height:
            common = Counter(unmatched["answer"].to_list()).most_common(SHOWN)
            quoted = ", ".join(
                f"'{truncated(answer, LONGEST_SHOWN)}' ({times:,})" for answer, times in common
            )
            share = unmatched.height / written.height
            notes.append(
                f"{unmatched.height:,} of {counted(written.height, 'written answer')} "
                f"({share:.1%}) are {kind}; most often: {quoted}"
            )
    return notes
