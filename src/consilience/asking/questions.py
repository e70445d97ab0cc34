"""Ask a model questions: every question in every variant is chosen among options, or written."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress, ask_texts
from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS, Cell, FactorialDesign
from consilience.core.free_text import NO_CHOICE, Rule, match, usual_rule
from consilience.core.items import Ask, Floats, Group, Item, Question, Scores, is_near_tie
from consilience.core.presentation import (
    Presentation,
    Prompt,
    ScoringRule,
    Template,
    labels_of,
    premise_of,
    present,
    rule_for,
)
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted, truncated
from consilience.models import Model, Reader, WritingModel

QUESTION_COLUMNS: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "option": pl.Int32,
    "gold_option": pl.Int32,
    "label": pl.String,
    "option_scores": pl.List(pl.Float64),
    "option_tokens": pl.List(pl.Int32),
    **dict.fromkeys(FACTORS, pl.String),
}
"""Columns of answers to questions after those of ``ANSWERS_SCHEMA``.

``option`` and ``gold_option`` are positions of the answer and of the gold among the options in
their given order, from 0, whatever order was shown. ``label`` is what the model chose to say.
``option_scores`` has the score of every option by the scoring rule, in their given order, not
normalised over the options; ``option_tokens`` the tokens that were scored of each. Both are null
of a model that chooses an answer without scores. ``option`` is null where it wrote none of the
answers. The others are the levels of the factors.
"""

SCHEMA = ANSWERS_SCHEMA | dict(QUESTION_COLUMNS)  # The columns of answers to questions

PROMPTS_AT_ONCE = 4096
"""Prompts whose texts and token ids are in memory at once; one question may have more."""

NO_PREMISE = "the score of an option without the question is not known"
"""Why an option has no score by a rule that subtracts it."""


@dataclass(frozen=True, slots=True)
class Presenter:
    """How the questions of a suite are presented."""

    design: FactorialDesign  # The variants
    templates: Mapping[str, Template]  # The templates by name
    base: Presentation  # The presentation where a factor does not vary
    examples: int = 0  # How many solved questions precede each question
    seed: int = 0  # Decides shuffled orders and which examples are drawn
    pool: Sequence[Question] = field(default=(), repr=False)
    """The questions that examples are drawn from."""
    rule_name: str = ""
    """A scoring rule (``presentation.RULES``); empty for the usual one of the labels."""
    rule: ScoringRule = field(init=False)  # How options are scored
    _groups: Mapping[str, list[Question]] = field(init=False, repr=False)  # The pool by group

    def __post_init__(self) -> None:
        labels = {self.presentation(cell).labels for cell in self.design.cells}
        object.__setattr__(self, "rule", rule_for(self.rule_name, sorted(labels)))
        groups: dict[str, list[Question]] = {}
        for question in self.pool:
            groups.setdefault(question.group, []).append(question)
        object.__setattr__(self, "_groups", groups)

    def presentation(self, cell: Cell) -> Presentation:
        """The presentation of a variant."""
        pairs = zip(self.design.factors, cell, strict=True)
        levels = {factor.name: factor.levels[level] for factor, level in pairs}
        changes: dict[str, Any] = {
            name: levels[name]
            for name in ("language", "order", "labels", "separator", "case")
            if name in levels
        }
        for factor, name in (("paraphrase", "paraphrase"), ("examples", "draw")):
            if factor in levels:
                changes[name] = int(levels[factor]) - 1
        if "template" in levels:
            changes["template"] = self.templates[levels["template"]]
        return replace(self.base, reply="label", **changes)

    def prompt(self, question: Question, cell: Cell) -> Prompt | None:
        """The prompt of a question in a variant; None if it has no such variant."""
        presentation = replace(self.presentation(cell), reply=self.rule.reply)
        examples = self.drawn_examples(question, presentation.draw)
        return present(question, presentation, examples, seed=self.seed)

    def drawn_examples(self, question: Question, draw: int) -> Sequence[Question]:
        """The solved questions before a question: of its group, never itself.

        All questions of a group have the same ones, so that nothing else differs between their
        prompts; a question that is drawn, or that has a phrasing in common with one that is, has
        the next one in its place.
        """
        if not self.examples:
            return ()
        group = self._groups.get(question.group, [])
        phrasings = {text for texts in question.paraphrases.values() for text in texts}
        drawn: list[Question] = []
        for at in _shuffled(len(group), f"{self.seed} {draw} {question.group}"):
            texts = {text for of_language in group[at].paraphrases.values() for text in of_language}
            if group[at].item != question.item and not texts & phrasings:
                drawn.append(group[at])
            if len(drawn) == self.examples:
                return drawn
        raise ConsilienceError(
            f"{counted(len(drawn), 'other question')} in the group '{question.group}'",
            expected=f"{self.examples} or more, to draw examples from",
            todo="Ask with fewer examples, or add questions.",
        )


@lru_cache(maxsize=64)
def _shuffled(size: int, seed: str) -> tuple[int, ...]:
    """The positions of ``size`` things in a drawn order."""
    return tuple(random.Random(seed).sample(range(size), size))


def prompts_of(
    questions: Sequence[Question], presenter: Presenter
) -> list[tuple[int, int, Prompt]]:
    """The prompts of questions: position of the question, position of the variant, prompt."""
    return [
        (at, variant, prompt)
        for at, question in enumerate(questions)
        for variant, cell in enumerate(presenter.design.cells)
        if (prompt := presenter.prompt(question, cell)) is not None
    ]


def slices_of(questions: Sequence[Question], presenter: Presenter) -> Iterator[Sequence[Question]]:
    """Questions with at most ``PROMPTS_AT_ONCE`` prompts; of no questions one empty slice."""
    size = max(1, PROMPTS_AT_ONCE // len(presenter.design.cells))
    for start in range(0, max(1, len(questions)), size):
        yield questions[start : start + size]


def prompt_count(questions: Sequence[Question], presenter: Presenter) -> int:
    """The number of prompts of questions."""
    return sum(len(prompts_of(some, presenter)) for some in slices_of(questions, presenter))


def prompt_table(
    questions: Sequence[Question], presenter: Presenter, model: Reader
) -> pl.DataFrame:
    """What a model is sent for questions (``asker.PROMPT_SCHEMA``), and what it cannot be."""
    slices = slices_of(questions, presenter)
    return pl.concat(
        asker.prompt_table(questions_of(some, presenter, ""), model) for some in slices
    )


def questions_of(
    questions: Sequence[Question],
    presenter: Presenter,
    suite: str,
    schema: Mapping[str, Any] = SCHEMA,
) -> Group:
    """Questions of one group in the variants of the presenter."""
    asks = [ask_of(*prompt) for prompt in prompts_of(questions, presenter)]
    return group_of(questions, presenter.design, asks, suite, schema)


def ask_of(at: int, variant: int, prompt: Prompt | None) -> Ask:
    """A question in a variant that it has, or has not."""
    if prompt is None:
        return Ask(at, variant, None, why_not="no such variant")
    return Ask(at, variant, prompt, prompt.answers, prompt.options)


def group_of(
    questions: Sequence[Question],
    design: FactorialDesign,
    asks: Sequence[Ask],
    suite: str,
    schema: Mapping[str, Any] = SCHEMA,
) -> Group:
    """The asks of questions of one group."""
    items = list(map(item_of, questions))
    levels = {factor.name: design.levels(factor.name) for factor in design.factors}
    name = questions[0].group if questions else ""
    return Group(suite, name, items, design.names, asks, schema, levels)


def item_of(question: Question) -> Item:
    """A question as it is counted."""
    options = tuple(option.text for option in question.options)
    gold_at = question.gold_position if options else -1
    return Item(question.item, question.item, question.gold.text, options, gold_at)


def ask_options(
    questions: Sequence[Question],
    presenter: Presenter,
    model: Model,
    suite: str,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of one group of questions with options, a row for each prompt.

    Options are scored by the rule of the presenter; a model without probabilities chooses itself.
    """
    return pl.concat(
        ask_asks(presenter, questions_of(some, presenter, suite), model, progress)
        for some in slices_of(questions, presenter)
    )


def ask_asks(
    presenter: Presenter, group: Group, model: Model, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """The answers to asks of questions with options."""
    rule, group, premises = presenter.rule, asker.askable(group, model), dict[Any, Prompt]()
    if rule.has_premise:
        cells = presenter.design.cells
        premises = {
            one[:2]: premise_of(presenter.presentation(cells[one.variant]), one.answers)
            for one in group.asks
            if one.why_not is None
        }
    without = dict(zip(premises, _distinct_totals([*premises.values()], model), strict=True))

    def rescale(scores: Scores, asks: Sequence[Ask]) -> Scores:
        if scores.totals is None or scores.lengths is None:
            return scores
        totals, reasons = np.full_like(scores.totals, np.nan), list(scores.unasked or ())
        reasons = reasons or [None] * len(asks)
        for row, one in enumerate(asks):
            size, premise = len(one.answers), without.get(one[:2])
            if premise is not None and reasons[row] is None and np.isnan(premise).any():
                reasons[row] = NO_PREMISE
            if reasons[row]:
                continue
            tokens = scores.lengths[row, :size]
            values = rule.scores(scores.totals[row, :size], tokens, one.answers, premise)
            if is_near_tie(values, model.tie):
                alone = model.score_alone  # type: ignore[attr-defined]
                premise = alone(premises[one[:2]]) if premises else None
                values = rule.scores(alone(one.shown), tokens, one.answers, premise)
            totals[row, :size] = values
        return replace(scores, totals=totals, unasked=reasons)

    return asker.ask(group, model.score, rescale=rescale, progress=progress)


def _distinct_totals(prompts: Sequence[Prompt], model: Model) -> list[Floats]:
    """Log-probabilities (answer,) of each prompt, equal ones once; NaN where not known."""
    in_order = [replace(prompt, answers=tuple(sorted(prompt.answers))) for prompt in prompts]
    distinct = list(dict.fromkeys(in_order))
    totals: dict[Prompt, dict[str, float]] = {}
    for scores in model.score(distinct) if distinct else ():
        assert scores.totals is not None
        unknown = np.zeros_like(scores.totals, bool) if scores.bounds is None else scores.bounds
        for at, row in enumerate(scores.rows):
            is_refused = bool(scores.unasked and scores.unasked[at])
            values = np.where(unknown[at] | is_refused, np.nan, scores.totals[at])
            totals[distinct[row]] = dict(zip(distinct[row].answers, values.tolist(), strict=False))
    return [
        np.array([totals[once][answer] for answer in prompt.answers])
        for prompt, once in zip(prompts, in_order, strict=True)
    ]


WRITTEN_COLUMNS: Mapping[str, type[pl.DataType]] = {"text": pl.String, "unmatched": pl.String}
"""Columns of written answers after those of ``QUESTION_COLUMNS``.

``text`` is what the model wrote. ``unmatched`` says why it is none of the options, or of an open
question not the gold; it is null where it is one. ``answer`` is then the normalized text, with
which the answers of other variants are compared, and ``option`` is null.
"""

EMPTY = "(no text)"
"""The answer of a model that wrote nothing but spaces; no normalized text has parentheses."""

SHOWN, LONGEST_SHOWN = 3, 60  # Unmatched answers that a note quotes, and characters of each


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
    columns, design = SCHEMA | dict(WRITTEN_COLUMNS), presenter.design
    factors = [factor.name for factor in design.factors]
    samples = list(map(int, design.levels("sample") if "sample" in factors else ()))
    tables = []
    for some in slices_of(questions, presenter):

        def read(text: str, one: Ask, some: Sequence[Question] = some) -> dict[str, object]:
            style = presenter.presentation(design.cells[one.variant]).labels
            return answered(text, one.shown, some[one.item], style, rule)

        group = asker.askable(questions_of(some, presenter, suite, columns), model)
        tables.append(ask_texts(group, model, read, samples, progress))
    return pl.concat(tables)


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
