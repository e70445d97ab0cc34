"""Ask a model questions: every question in every variant becomes a row of the answers table."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.ask import Progress
from consilience.core.errors import ConsilienceError
from consilience.core.factors import FACTORS, Cell, FactorialDesign
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.scoring_rules import ScoringRule, rule_for
from consilience.core.text import counted
from consilience.option_answers import chosen, written
from consilience.presentation import (
    Presentation,
    Prompt,
    PromptScores,
    Template,
    premise_of,
    present,
)
from consilience.questions import Question

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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

SCHEMA = ANSWERS_SCHEMA | dict(QUESTION_COLUMNS)
"""The columns of answers to questions."""

PROMPTS_AT_ONCE = 4096
"""Prompts whose texts and token ids are in memory at once; one question may have more."""

NO_PREMISE = "the score of an option without the question is not known"
"""Why an option has no score by a rule that subtracts it."""

PROMPT_SCHEMA: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "item": pl.String,
    "variant": pl.String,
    "variant_index": pl.Int32,
    "prompt": pl.String,
    "candidates": pl.List(pl.String),
    "options": pl.List(pl.Int32),
}
"""One row a prompt, in the order of the answers table.

``prompt`` is the text that the model reads, after its chat template. ``candidates`` are the answers
that it may choose, in the order in which they are shown, and ``options`` their positions among the
options in their given order, from 0.
"""


class PromptModel(Interface):
    """A model that scores what a prompt may be answered with."""

    identity: dict[str, object]
    """Which model this is."""
    notes: list[str]
    """What a reader of the answers should know."""
    tie: float
    """If the best two scores are closer, ``score_alone`` decides; 0 of an exact model."""

    def why_not(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Why each prompt cannot be asked; None where it can."""

    def text(self, prompt: Prompt) -> str:
        """What the model reads."""

    def score(self, prompts: Sequence[Prompt]) -> Iterator[PromptScores]:
        """The scores of the answers of prompts, each prompt in exactly one of the values."""

    def score_alone(self, prompt: Prompt) -> Floats:
        """Log-probabilities (answer,) in nats, whatever other prompts there are."""


@dataclass(frozen=True, slots=True)
class Presenter:
    """How the questions of a suite are presented."""

    design: FactorialDesign
    """The variants."""
    templates: Mapping[str, Template]
    """The templates by name."""
    base: Presentation
    """The presentation where a factor does not vary."""
    examples: int = 0
    """How many solved questions precede each question."""
    seed: int = 0
    """Decides shuffled orders and which examples are drawn."""
    pool: Sequence[Question] = field(default=(), repr=False)
    """The questions that examples are drawn from."""
    rule_name: str = ""
    """A scoring rule (``scoring_rules.RULES``); empty for the usual one of the labels."""
    rule: ScoringRule = field(init=False)
    """How options are scored."""
    _groups: Mapping[str, list[Question]] = field(init=False, repr=False)
    """The pool by group."""
    _requests: dict[object, Mapping[str, Prompt]] = field(
        init=False, repr=False, default_factory=dict
    )
    """The prompt of each item in a request with others, by presentation, group and context."""

    def __post_init__(self) -> None:
        labels = {self.presentation(cell).labels for cell in self.design.cells}
        object.__setattr__(self, "rule", rule_for(self.rule_name, sorted(labels)))
        groups: dict[str, list[Question]] = {}
        for question in self.pool:
            groups.setdefault(question.group, []).append(question)
        object.__setattr__(self, "_groups", groups)

    def presentation(self, cell: Cell) -> Presentation:
        """The presentation of a variant."""
        levels = {
            factor.name: factor.levels[level]
            for factor, level in zip(self.design.factors, cell, strict=True)
        }
        base = self.base
        return Presentation(
            language=levels.get("language", base.language),
            paraphrase=int(levels["paraphrase"]) - 1 if "paraphrase" in levels else base.paraphrase,
            order=levels.get("order", base.order),
            labels=levels.get("labels", base.labels),
            template=self.templates[levels["template"]] if "template" in levels else base.template,
            separator=levels.get("separator", base.separator),
            case=levels.get("case", base.case),
            draw=int(levels["examples"]) - 1 if "examples" in levels else base.draw,
            batch=int(levels.get("batch", base.batch)),
        )

    def prompt(self, question: Question, cell: Cell) -> Prompt | None:
        """The prompt of a question in a variant; None if it has no such variant."""
        presentation = replace(self.presentation(cell), reply=self.rule.reply)
        if presentation.batch > 1:
            return self._in_company(question, presentation)
        examples = self.drawn_examples(question, presentation.draw)
        return present(question, presentation, examples, seed=self.seed)

    def _in_company(self, question: Question, presentation: Presentation) -> Prompt | None:
        """The prompt of a question in a request with others of its group and context.

        The questions of a group that have this variant are divided into requests, in an order that
        ``seed`` draws; the last request is filled up with questions of others. None if there are
        too few for one request.
        """
        key = presentation, question.group, question.context
        if key not in self._requests:
            alike = [
                (one.item, prompt)
                for one in self._groups.get(question.group, [])
                if one.context == question.context
                and (prompt := present(one, presentation, seed=self.seed)) is not None
            ]
            size = presentation.batch
            order = _shuffled(len(alike), f"{self.seed} {size} {question.group} {question.context}")
            drawn = [alike[at] for at in order] if len(alike) >= size else []
            requests: dict[str, Prompt] = {}
            for start in range(0, len(drawn), size):
                members = [*drawn, *drawn][start : start + size]
                prompts = [prompt for _, prompt in members]
                for position, (item, prompt) in enumerate(members):
                    others = tuple(prompts[:position] + prompts[position + 1 :])
                    if item not in requests:
                        requests[item] = replace(prompt, others=others, position=position)
            self._requests[key] = requests
        return self._requests[key].get(question.item)

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
    questions: Sequence[Question], presenter: Presenter, model: PromptModel
) -> pl.DataFrame:
    """What a model is sent for questions (``PROMPT_SCHEMA``).

    A prompt that the model cannot be asked is there, too; the answers table says why.
    """
    names, schema = presenter.design.names, pl.Schema(PROMPT_SCHEMA)

    def table(some: Sequence[Question]) -> pl.DataFrame:
        records = [
            {
                "item": some[at].item,
                "variant": names[variant],
                "variant_index": variant,
                "prompt": model.text(prompt),
                "candidates": prompt.answers,
                "options": prompt.options,
            }
            for at, variant, prompt in prompts_of(some, presenter)
        ]
        return pl.DataFrame(records, schema=schema)

    return pl.concat([table(some) for some in slices_of(questions, presenter)])


def ask_options(
    questions: Sequence[Question],
    presenter: Presenter,
    model: PromptModel,
    suite: str,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of one group of questions with options, a row for each prompt.

    Options are scored by the rule of the presenter; a model without probabilities chooses itself.
    """
    slices = slices_of(questions, presenter)
    return pl.concat([_ask_some(some, presenter, model, suite, progress) for some in slices])


def _ask_some(
    questions: Sequence[Question],
    presenter: Presenter,
    model: PromptModel,
    suite: str,
    progress: Progress,
) -> pl.DataFrame:
    """The answers to questions whose prompts are held at once."""
    rows = prompts_of(questions, presenter)
    reasons = model.why_not([prompt for _, _, prompt in rows])
    askable = [at for at, reason in enumerate(reasons) if reason is None]
    premises = [
        premise_of(presenter.presentation(presenter.design.cells[rows[at][1]]), rows[at][2].answers)
        for at in askable
        if presenter.rule.has_premise
    ]
    unconditional = _distinct_scores(premises, model)
    answers: list[dict[str, object]] = [{"excluded": reason} for reason in reasons]
    for scores in model.score([rows[at][2] for at in askable]):
        for position, row in enumerate(scores.rows.tolist()):
            at, _, prompt = rows[askable[row]]
            values = scores.totals[position]
            if scores.refused and scores.refused[position]:
                answers[askable[row]] = {"excluded": scores.refused[position]}
            elif premises and np.isnan(unconditional[row]).any():
                answers[askable[row]] = {"excluded": NO_PREMISE}
            elif scores.tokens is None:
                answers[askable[row]] = written(
                    values, scores.texts[position], prompt, questions[at]
                )
            else:
                tokens = scores.tokens[position]
                without = unconditional[row] if premises else None
                values = presenter.rule.scores(values, tokens, prompt.answers, without)
                if _is_near_tie(values, model.tie):
                    without = model.score_alone(premises[row]) if premises else None
                    alone = model.score_alone(prompt)
                    values = presenter.rule.scores(alone, tokens, prompt.answers, without)
                bounds = scores.bounds[position] if scores.bounds else None
                answers[askable[row]] = chosen(values, tokens, prompt, questions[at], bounds)
        progress(len(scores.rows))
    return answers_of(questions, presenter.design, rows, answers, suite)


def _distinct_scores(prompts: Sequence[Prompt], model: PromptModel) -> list[Floats]:
    """The log-probabilities (answer,) of each prompt; those with the same answers once.

    NaN where the model refuses a prompt, or gives only a bound of an answer.
    """
    totals: dict[Prompt, dict[str, float]] = {_sorted(prompt): {} for prompt in prompts}
    distinct = list(totals)
    if distinct:
        for scores in model.score(distinct):
            for at, (row, values) in enumerate(zip(scores.rows, scores.totals, strict=True)):
                is_unknown = np.full(len(values), bool(scores.refused and scores.refused[at]))
                if scores.bounds:
                    is_unknown |= scores.bounds[at]
                known = np.where(is_unknown, np.nan, values)
                answers = distinct[row].answers
                totals[distinct[row]].update(zip(answers, known.tolist(), strict=True))
    return [
        np.array([totals[_sorted(prompt)][answer] for answer in prompt.answers])
        for prompt in prompts
    ]


def _sorted(prompt: Prompt) -> Prompt:
    return replace(prompt, answers=tuple(sorted(prompt.answers)))


def _is_near_tie(scores: Floats, tie: float) -> bool:
    """Whether the best two of the scores (answer,) are closer than ``tie``."""
    if len(scores) < 2:
        return False
    second, best = np.partition(scores, -2)[-2:]
    return bool(best - second < tie)


def answers_of(
    questions: Sequence[Question],
    design: FactorialDesign,
    rows: Sequence[tuple[int, int, Prompt]],
    answers: Sequence[dict[str, object]],
    suite: str,
    schema: Mapping[str, type[pl.DataType] | pl.DataType] = SCHEMA,
) -> pl.DataFrame:
    """The answers table of prompts and the answer columns of each."""
    names, records = design.names, []
    levels = {factor.name: design.levels(factor.name) for factor in design.factors}
    for (at, variant, _), answer in zip(rows, answers, strict=True):
        question = questions[at]
        record: dict[str, object] = {
            "suite": suite,
            "group": question.group,
            "item": question.item,
            "subject": question.item,
            "variant": names[variant],
            "variant_index": variant,
            "gold": question.gold.text,
            "gold_option": question.gold_position if question.options else None,
        }
        record |= {name: of_cells[variant] for name, of_cells in levels.items()}
        records.append(record | answer)
    return pl.DataFrame(records, schema=pl.Schema(dict(schema)))
