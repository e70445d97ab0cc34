"""Questions: their templates and prompts, how they are asked, and answers that mean the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from typing import Protocol as Interface

import numpy as np
import polars as pl

from consilience.asking import asker
from consilience.asking.asker import Progress, ask_texts
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.factors import FACTORS, Cell, FactorialDesign
from consilience.core.free_text import NO_CHOICE, Rule, match, usual_rule
from consilience.core.items import Ask, Group, Item, Question, Scores, margins
from consilience.core.presentation import (
    TEMPLATES,
    Presentation,
    Prompt,
    ScoringRule,
    Template,
    present,
    rule_for,
)
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.core.text import counted, truncated
from consilience.files.read import read_document
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
PROMPTS_AT_ONCE = 4096  # Prompts in memory at once; one question may have more
NO_VARIANT = "no such variant"  # Why a question is not asked that lacks the phrasing or option
OTHERS = ("paraphrase", "template", "examples", "sample")  # Their levels are no texts as they are
NO_FACTORS = FactorialDesign((), ((),))  # One variant


@dataclass(frozen=True, slots=True)
class Presenter:
    """How the questions of a suite are presented."""

    design: FactorialDesign  # The variants
    templates: Mapping[str, Template]  # The templates by name
    base: Presentation  # The presentation where a factor does not vary
    examples: int = 0  # How many solved questions precede each question
    seed: int = 0  # Decides shuffled orders and which examples are drawn
    pool: Sequence[Question] = field(default=(), repr=False)  # Examples are drawn from these
    rule_name: str = ""  # Of ``presentation.RULES``; empty for the usual one of the labels
    rule: ScoringRule = field(init=False)  # How options are scored
    _groups: Mapping[str, list[Question]] = field(init=False, repr=False)  # The pool by group

    def __post_init__(self) -> None:
        labels = {self.presentation(cell).labels for cell in self.design.cells}
        object.__setattr__(self, "rule", rule_for(self.rule_name, sorted(labels)))
        groups: dict[str, list[Question]] = {}
        for question in self.pool:
            groups.setdefault(question.group, []).append(question)
        object.__setattr__(self, "_groups", groups)

    def of_group(self, design: FactorialDesign, pool: Sequence[Question]) -> Presenter:
        """The same for a group; ``pool``: the questions that examples are drawn from."""
        return replace(self, design=design, pool=pool)

    def refuse_hidden_options(self) -> None:
        """Raise for a template that does not show the options whose labels are scored."""
        for name, template in self.templates.items():
            if "{options}" not in template.text:
                raise ConsilienceError(
                    f"no {{options}} in the template '{name}'",
                    expected="{question} and {options}, because the model answers with a label",
                    todo="Add {options}, or score the texts of the options: --option-score sum.",
                )

    @property
    def record(self) -> dict[str, object]:
        """What a run keeps of it."""
        return {
            "templates": {
                name: {"text": template.text, "chat": template.is_chat, "system": template.system}
                for name, template in self.templates.items()
            },
            "option_score": self.rule.name,
            "shots": self.examples,
        }

    def presentation(self, cell: Cell) -> Presentation:
        pairs = zip(self.design.factors, cell, strict=True)
        levels = {factor.name: factor.levels[level] for factor, level in pairs}
        changes: dict[str, Any] = {
            name: level for name, level in levels.items() if name not in OTHERS
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
        varies = any(factor.name == "language" for factor in self.design.factors)
        if varies and presentation.language not in question.paraphrases:
            return None
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


def slices_of(
    questions: Sequence[Question],
    presenter: Presenter,
    suite: str = "",
    schema: Mapping[str, Any] = SCHEMA,
) -> Iterator[tuple[Sequence[Question], Group]]:
    """Questions with at most ``PROMPTS_AT_ONCE`` asks, and these; of no questions one slice."""
    size = max(1, PROMPTS_AT_ONCE // len(presenter.design.cells))
    for start in range(0, max(1, len(questions)), size):
        some = questions[start : start + size]
        asks = [ask_of(*prompt) for prompt in prompts_of(some, presenter)]
        yield some, group_of(some, presenter.design, asks, suite, schema)


def prompt_table(
    questions: Sequence[Question], presenter: Presenter, model: Reader
) -> pl.DataFrame:
    """What a model is sent for questions (``asker.PROMPT_SCHEMA``), and what it cannot be."""
    slices = slices_of(questions, presenter)
    return pl.concat(asker.prompt_table(group, model) for _, group in slices)


def ask_of(at: int, variant: int, prompt: Prompt | None) -> Ask:
    """A question in a variant that it has, or has not."""
    if prompt is None:
        return Ask(at, variant, None, why_not=NO_VARIANT)
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
    gold = question.gold.text
    return Item(question.item, question.item, gold, options, gold_at)


def ask_options(
    questions: Sequence[Question],
    presenter: Presenter,
    model: Model,
    suite: str,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The answers of one group of questions with options, a row for each prompt."""
    return pl.concat(
        ask_asks(presenter, group, model, progress)
        for _, group in slices_of(questions, presenter, suite)
    )


def ask_asks(
    presenter: Presenter, group: Group, model: Model, progress: Progress = lambda done: None
) -> pl.DataFrame:
    """The answers to asks of questions with options."""
    rule, group = presenter.rule, asker.askable(group, model)

    def rescale(scores: Scores, asks: Sequence[Ask]) -> Scores:
        if scores.totals is None or scores.lengths is None:
            return scores
        totals = np.full_like(scores.totals, np.nan)
        for row, one in enumerate(asks):
            if scores.errors and scores.errors[row]:
                continue
            size = len(one.answers)
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


def ask_writing(
    questions: Sequence[Question],
    presenter: Presenter,
    model: WritingModel,
    suite: str,
    rule: Rule | None = None,
    progress: Progress = lambda done: None,
) -> pl.DataFrame:
    """The written answers of one group of questions, a row for each prompt and sample.

    Samples are the levels of the factor ``sample``. ``rule``: how the answer is found in a text;
    None for that of its kind of question (``free_text.DEFAULT_RULES``).
    """
    columns, design = SCHEMA | dict(WRITTEN_COLUMNS), presenter.design
    factors = [factor.name for factor in design.factors]
    samples = list(map(int, design.levels("sample") if "sample" in factors else ()))
    tables = []
    for some, group in slices_of(questions, presenter, suite, columns):

        def read(text: str, one: Ask, some: Sequence[Question] = some) -> dict[str, object]:
            return answered(text, one.shown, some[one.item], rule)

        tables.append(ask_texts(asker.askable(group, model), model, read, samples, progress))
    return pl.concat(tables)


def answered(
    text: str, prompt: Prompt, question: Question, rule: Rule | None = None
) -> dict[str, object]:
    """The answer columns of a written text that is not blank."""
    rule = rule or usual_rule(is_open=prompt.is_open)
    if not question.options:
        matched = match(text, [question.gold], rule)
        answer = question.gold.text if matched.position == 0 else matched.answer
        reason = "not the gold" if matched.reason == NO_CHOICE else matched.reason
        return {"answer": answer, "text": text, "unmatched": reason or None}
    matched = match(text, prompt.choices, rule, prompt.labels)
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


AUTO = "auto"  # The template ``chat`` for a model with a chat template, and ``plain`` for any other
CHAT = "chat:"  # What a text begins with that is the user's turn of a chat
FIELDS: Mapping[str, type] = {"name": str, "text": str, "chat": bool, "system": str}
HEAD = ("name", "text")  # What each template in a file needs
HAS = "name and text, and if wanted chat (true or false) and system"  # What a file has of each


def templates_of(specs: Sequence[str], *, is_chat: bool = False) -> dict[str, Template]:
    r"""Templates by name, in the order of ``specs``.

    A spec is the name of a built-in template (``plain``, ``chat``, ``auto``), a text with
    ``{question}``, or a TOML file with a list ``templates`` of name, text, chat and system.
    In a text ``\n`` is a line break; it is a chat if it begins with ``chat:``. Texts are
    named ``own``, ``own 2`` and so on. ``is_chat``: whether the model has a chat template.
    """
    templates: dict[str, Template] = {}
    for spec in specs:
        for template in _templates(spec, len(templates), is_chat=is_chat):
            known = templates.setdefault(template.name, template)
            if known != template:
                raise ConsilienceError(
                    f"two templates with the name '{template.name}'", todo="Rename one of them."
                )
    return templates


def _templates(spec: str, known: int, *, is_chat: bool) -> Iterator[Template]:
    """The templates of a spec; ``known``: how many there are already."""
    path = Path(spec) if spec.endswith(".toml") and "{" not in spec else None
    if spec == AUTO:
        yield TEMPLATES["chat" if is_chat else "plain"]
    elif spec in TEMPLATES:
        yield TEMPLATES[spec]
    elif path is not None:
        yield from templates_of_document(read_document(path), str(path))
    elif "{" in spec:
        text = spec.removeprefix(CHAT).replace("\\n", "\n")
        name = f"own {known + 1}" if known else "own"
        yield Template(name, text, is_chat=spec.startswith(CHAT))
    else:
        names = [AUTO, *TEMPLATES]
        raise ConsilienceError(
            f"no template '{spec}'",
            expected=f"{', '.join(names)}, a text with {{question}}, or a TOML file",
            todo=did_you_mean(spec, names),
        )


def templates_of_document(document: Mapping[str, Any], where: str) -> Iterator[Template]:
    """The templates of a document, in its list ``templates``."""
    entries = document.get("templates")
    if not isinstance(entries, list) or not entries:
        raise ConsilienceError(
            "no list of templates", expected=f"[[templates]]: {HAS}", where=where
        )
    for number, entry in enumerate(entries, start=1):
        place, fields = f"{where}, template {number}", entry if isinstance(entry, Mapping) else {}
        for name in (*HEAD, *fields):
            kind, value = FIELDS.get(name), fields.get(name)
            if kind is None or not isinstance(value, kind) or (name in HEAD and not value):
                raise ConsilienceError(
                    f"'{name}' is {value!r}" if name in fields else f"no '{name}'",
                    expected=HAS,
                    where=place,
                    todo=did_you_mean(str(name), list(FIELDS)) if kind is None else "",
                )
        try:
            more = fields.get("chat", False), fields.get("system", "")
            yield Template(fields["name"], fields["text"], *more)
        except ConsilienceError as error:
            raise error.replaced(where=place) from error


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
