"""Questions: how they are asked, and answers that mean the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from typing import Protocol as Interface

import numpy as np
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress
from consilience.core.factors import FACTORS
from consilience.core.free_text import DEFAULT_RULE, NO_CHOICE, OPEN_RULE, RULES, Rule, match
from consilience.core.items import Ask, Group, Item, Question, Scores, margins
from consilience.core.presentation import Presenter, Prompt
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted, truncated
from consilience.models import Model

QUESTION_COLUMNS: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "option": pl.Int32,
    "gold_option": pl.Int32,
    "shown": pl.String,
    "label": pl.String,
    "option_scores": pl.List(pl.Float64),
    "option_tokens": pl.List(pl.Int32),
    **dict.fromkeys(FACTORS, pl.String),
}
"""Columns of answers to questions after those of ``ANSWERS_SCHEMA``.

``option`` and ``gold_option`` are positions of the answer and of the gold among the options in
their given order, from 0, whatever order was shown. ``shown`` is that order, in letters (``BCA``),
null without options. ``label`` is what the model chose to say.
``option_scores`` has the score of every option by the scoring rule, in their given order, not
normalised over the options; ``option_tokens`` the tokens that were scored of each. Both are null
of a model that chooses an answer without scores. ``option`` is null where it wrote none of the
answers. The others are the levels of the factors.
"""

SCHEMA = ANSWERS_SCHEMA | dict(QUESTION_COLUMNS)  # The columns of answers to questions
PROMPTS_AT_ONCE = 4096  # Prompts that a model is given at once


def prompts_of(
    questions: Sequence[Question], presenter: Presenter
) -> list[tuple[int, int, Prompt]]:
    """The prompts of questions: position of the question, position of the variant, prompt."""
    return [
        (at, variant, prompt)
        for at, question in enumerate(questions)
        for variant in range(len(presenter.design.cells))
        if (prompt := presenter.prompt(question, variant)) is not None
    ]


def item_of(question: Question) -> Item:
    """A question as it is counted."""
    options = tuple(option.text for option in question.options)
    gold_at = question.gold_position if options else -1
    gold = question.gold.text
    return Item(question.item, question.item, gold, options, gold_at)


def ask_asks(
    presenter: Presenter, group: Group, model: Model, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """The answers to asks of questions with options."""
    group = asker.askable(group, model)

    def rescale(scores: Scores, asks: Sequence[Ask]) -> Scores:
        if scores.totals is None or scores.lengths is None:
            return scores
        totals = np.full_like(scores.totals, np.nan)
        for row, one in enumerate(asks):
            if scores.errors and scores.errors[row]:
                continue
            rule, size = presenter.presentations[one.variant].rule, len(one.answers)
            tokens = scores.lengths[row, :size]
            values = rule.scores(scores.totals[row, :size], tokens, one.answers)
            if margins(values[None])[0] < model.tie:
                alone = cast(Any, model).score_alone(one.shown)
                values = rule.scores(alone, tokens, one.answers)
            totals[row, :size] = values
        return replace(scores, totals=totals)

    return asker.ask(group, model.score, rescale=rescale, progress=progress)


WRITTEN_COLUMNS: Mapping[str, type[pl.DataType]] = {"text": pl.String, "unmatched": pl.String}
"""Columns of written answers after those of ``QUESTION_COLUMNS``.

``text`` is what the model wrote. ``unmatched`` says why it is none of the options, or of an open
question not the gold; it is null where it is one. ``answer`` is then the normalized text, with
which the answers of other variants are compared, and ``option`` is null.
"""

SHOWN, LONGEST_SHOWN = 3, 60  # Unmatched answers that a note quotes, and characters of each


def answered(
    text: str, prompt: Prompt, question: Question, rule: Rule | None = None
) -> dict[str, object]:
    """The answer columns of a written text that is not blank."""
    rule = rule or RULES[OPEN_RULE if prompt.is_open else DEFAULT_RULE]
    if not question.options:
        matched = match(text, [question.gold], rule)
        answer = question.gold.text if matched.position == 0 else matched.answer
        reason = "not the gold" if matched.reason == NO_CHOICE else matched.reason
        return {"answer": answer, "text": text, "unmatched": reason or None}
    matched = match(text, prompt.choices, rule, prompt.reply_labels)
    record: dict[str, object] = {
        "answer": matched.answer,
        "text": text,
        "unmatched": matched.reason or None,
        "n_candidates": len(prompt.choices),
    }
    if matched.position is not None:
        record["option"] = option = prompt.options[matched.position]
        record["answer"] = question.options[option].text
        record["label"] = prompt.answers[matched.position]
    return record


def notes_on_writing(answers: pl.DataFrame) -> list[str]:
    """Notes on the written answers that match nothing, of those with options and of open ones."""
    notes = []
    for is_open, kind in ((False, "no option"), (True, "not the gold answer")):
        written = answers.select("text", "answer", "unmatched", "gold_option").filter(
            pl.col("text").is_not_null() & (pl.col("gold_option").is_null() == is_open)
        )
        unmatched = written.filter(pl.col("unmatched").is_not_null())
        if unmatched.height:
            written_as = {text.strip().casefold(): text.strip() for text in unmatched["text"]}
            counts = Counter(written_as.get(one, one) for one in unmatched["answer"])
            shown = [(truncated(one, LONGEST_SHOWN), n) for one, n in counts.most_common(SHOWN)]
            quoted = ", ".join(f"'{text}' ({times:,})" for text, times in shown)
            share = unmatched.height / written.height
            notes.append(
                f"{unmatched.height:,} of {counted(written.height, 'written answer')} "
                f"({100 * share:.1f} %) are {kind}; most often: {quoted}"
            )
    return notes


AnswerPair = tuple[str, str, str]  # A question and two answers to it


class Judge(Interface):
    """Says whether two answers mean the same."""

    identity: dict[str, object]  # Which judge this is

    def same(self, pairs: Sequence[AnswerPair]) -> list[bool]:
        """Whether the answers of each pair mean the same; symmetric in the two answers."""


def clusters(texts: Mapping[str, int], question: str, judge: Judge) -> list[list[str]]:
    """Answers to a question that mean the same, from how often each occurs.

    The most frequent answer, of equally frequent ones the first in alphabetical order, begins a
    cluster, and every other one that the judge calls the same joins it; so on with the others. No
    chain of small differences joins different answers.
    """
    rest = sorted(texts, key=lambda text: (-texts[text], text))
    groups = []
    while rest:
        first, *others = rest
        judged = judge.same([(question, first, other) for other in others])
        pairs = list(zip(others, judged, strict=True))
        groups.append([first, *(text for text, is_same in pairs if is_same)])
        rest = [text for text, is_same in pairs if not is_same]
    return groups


def merge_answers(
    answers: pl.DataFrame, questions: Sequence[Question], judge: Judge
) -> pl.DataFrame:
    """The table with one answer, the most frequent one, for each cluster of unmatched answers.

    Answers are merged within an item, whose first phrasing the judge reads. ``text`` and
    ``unmatched`` remain. No answer becomes an option or the gold.
    """
    unmatched = pl.col("unmatched").is_not_null()
    phrasings = {one.item: next(iter(one.paraphrases.values()))[0] for one in questions}
    merged: dict[tuple[str, str], str] = {}
    for (item,), of in answers.filter(unmatched).group_by("item", maintain_order=True):
        counts = Counter(of["answer"].to_list())
        for cluster in clusters(counts, phrasings[str(item)], judge):
            merged |= {(str(item), text): cluster[0] for text in cluster}
    rows_of = answers.select("item", "answer", unmatched).iter_rows()
    texts = [merged.get((item, text), text) if is_open else text for item, text, is_open in rows_of]
    return answers.with_columns(answer=pl.Series(texts, dtype=pl.String))
