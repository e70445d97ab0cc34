"""Prompts: a question in one variant becomes the text that a model reads, and its reply is scored.

A model gives the log-probability of each option's label, or of its text, after the prompt. A
scoring rule makes of it the score that the options are ranked by; the highest is the answer, of
equal ones the first in the file's order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import factorial
from string import ascii_lowercase, ascii_uppercase
from typing import Literal

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean, shortened, unknown_name
from consilience.core.items import Choice, Floats, Ints, Question
from consilience.core.text import PASSAGE_END

SLOTS = ("context", "question", "options", "instruction")
"""What a template may have in braces."""

LABEL_STYLES = {"A": ascii_uppercase, "a": ascii_lowercase, "1": "", "none": ""}
"""The styles of option labels, and their letters; numbers have no end."""

INSTRUCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("A", "a"), "Answer with the letter of the right option and nothing else."),
    "1": "Answer with the number of the right option and nothing else.",
    "none": "Answer with the text of the right option and nothing else.",
    "open": "Answer with the name or the word alone.",
}
"""What ``{instruction}`` becomes, by the style of the labels; ``open`` without options."""

Role = Literal["user", "assistant"]

Reply = Literal["label", "text"]
"""What a model is to answer with: the label of an option, or its text."""


@dataclass(frozen=True, slots=True)
class Template:
    """The text around a question."""

    name: str
    text: str  # A text with ``{question}`` and other ``SLOTS``
    is_chat: bool = False
    """Whether it is the user's turn of a chat, in the form that the model was trained on."""
    system: str = ""
    parts: tuple[tuple[str, str], ...] = field(init=False, repr=False)
    """The literal text before each slot, and the slot; the last slot is empty."""

    def __post_init__(self) -> None:
        pieces = re.split(r"\{(\w+)\}", self.text)
        slots = pieces[1::2]
        shown = f"the template '{shortened(self.text, 80)}'"
        for slot in slots:
            if slot not in SLOTS:
                expected = ", ".join(f"{{{known}}}" for known in SLOTS)
                raise ConsilienceError(
                    f"the slot {{{slot}}} in {shown}",
                    expected=expected,
                    todo=did_you_mean(slot, [*SLOTS]),
                )
        if slots.count("question") != 1:
            found = f"{slots.count('question')} times {{question}} in {shown}"
            expected = "exactly one {question}, where the question goes"
            raise ConsilienceError(found, expected=expected, todo="Correct it.")
        if self.system and not self.is_chat:
            found = f"a system prompt in the template '{self.name}', which is no chat"
            todo = "Add `chat = true`, or write the text into the template."
            raise ConsilienceError(found, todo=todo)
        object.__setattr__(self, "parts", tuple(zip(pieces[::2], [*slots, ""], strict=True)))

    @property
    def slots(self) -> frozenset[str]:
        return frozenset(slot for _, slot in self.parts if slot)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with its slots filled; a line that has nothing but empty slots is left out."""
        marked = "".join(literal + (f"\0{slot}\0" if slot else "") for literal, slot in self.parts)
        lines = []
        for line in marked.split("\n"):
            filled = re.sub(r"\0(\w+)\0", lambda match: values[match[1]], line)
            if filled or not re.search(r"\0", line):
                lines.append(filled)
        return "\n".join(lines)


TEMPLATES: Mapping[str, Template] = {
    template.name: template
    for template in (
        Template("plain", "{context}\nQuestion: {question}\n{options}\nAnswer: "),
        Template("chat", "{context}\n{question}\n{options}\n{instruction}", is_chat=True),
    )
}


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a question is presented in one variant: a level of each factor."""

    language: str = ""
    paraphrase: int = 0
    order: str = "given"
    labels: str = "A"
    template: Template = TEMPLATES["plain"]
    draw: int = 0
    context: str = "given"
    reply: Reply = "label"
    """What the model is to answer with; the text where the options have no labels."""

    @property
    def asks_for_labels(self) -> bool:
        return self.reply == "label" and self.labels != "none"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is sent for a question in one variant, and what it may answer."""

    turns: tuple[tuple[Role, str], ...]
    """The examples with their answers and, at the end, the question."""
    answers: tuple[str, ...]
    """What the model may answer, in the order in which the options are shown."""
    options: tuple[int, ...]  # The position of each answer among the options of the question
    choices: tuple[Choice, ...] = ()
    gold: int = -1
    """The position of the gold among the answers; no model but a baseline may read it."""
    are_labels: bool = True
    """Whether the answers are labels of options; False where they are their texts."""
    is_chat: bool = False
    system: str = ""
    group: str = ""  # The group of the question; no model but a baseline may read it
    labels: tuple[str, ...] = ()  # What the options were shown with, whether or not a reply is one
    is_open: bool = False  # Whether the answer is written without options to choose from

    @property
    def text(self) -> str:
        """The prompt as one text: each example is followed by its answer and an empty line."""
        texts = [
            text + {"user": "" if text.endswith((" ", "\n")) else " ", "assistant": "\n\n"}[role]
            for role, text in self.turns
        ]
        return "".join(texts).rstrip(" ")


def present(
    question: Question,
    presentation: Presentation,
    examples: Sequence[Question] = (),
    *,
    seed: int = 0,
) -> Prompt | None:
    """The prompt of a question; None if it has no such phrasing, language or order.

    ``examples``: solved questions that are shown before it, in the same presentation but with their
    options in the given order, so that the order of the question's options is all that an order
    changes. ``seed`` decides the shuffled orders.
    """
    if not presentation.language and "" not in question.paraphrases:  # languages do not vary
        presentation = replace(presentation, language=next(iter(question.paraphrases)))
    texts = question.paraphrases.get(presentation.language, ())
    if presentation.paraphrase >= len(texts):
        return None
    order = permutation(presentation.order, len(question.options), seed)
    passages = permutation(presentation.context, len(question.passages), seed)
    if order is None or passages is None:
        return None
    context = PASSAGE_END.join(question.passages[at] for at in passages)
    question = replace(question, context=context)
    question = question.in_phrasing(presentation.language, presentation.paraphrase)
    turns: list[tuple[Role, str]] = []
    for solved in examples:
        example = solved.in_phrasing(presentation.language, 0)
        given = tuple(range(len(example.options)))
        turns.append(("user", _filled(example, presentation, 0, given)))
        answers = _answers(example, presentation, given)
        turns.append(("assistant", answers[_gold_at(example, given)]))
    style = presentation.labels if order else "none"
    return Prompt(
        (*turns, ("user", _filled(question, presentation, presentation.paraphrase, order))),
        _answers(question, presentation, order),
        order,
        tuple(question.options[at] for at in order),
        _gold_at(question, order),
        bool(question.options) and presentation.asks_for_labels,
        presentation.template.is_chat,
        presentation.template.system,
        question.group,
        labels=() if style == "none" else labels_of(style, len(order)),
        is_open=not order,
    )


def _gold_at(example: Question, order: Sequence[int]) -> int:
    return order.index(example.gold_position) if example.options else 0


def _answers(
    question: Question, presentation: Presentation, order: Sequence[int]
) -> tuple[str, ...]:
    if not question.options:
        return (question.gold.text,)
    if not presentation.asks_for_labels:
        return tuple(question.options[at].text for at in order)
    return labels_of(presentation.labels, len(order))


def _filled(
    question: Question, presentation: Presentation, paraphrase: int, order: Sequence[int]
) -> str:
    """The user's turn."""
    labels = presentation.labels
    style = labels if presentation.asks_for_labels else "none"
    language = presentation.language
    if language not in question.paraphrases:
        language = next(iter(question.paraphrases))
    marks = ["-"] * len(order)
    if labels != "none":
        marks = [f"{label}." for label in labels_of(labels, len(order))]
    texts = [question.options[at].text for at in order]
    values = {
        "context": question.context,
        "question": question.paraphrases[language][paraphrase],
        "options": "\n".join(map(" ".join, zip(marks, texts, strict=True))),
        "instruction": INSTRUCTIONS[style if question.options else "open"],
    }
    return presentation.template.fill(values)


def labels_of(style: str, count: int) -> tuple[str, ...]:
    """The labels of ``count`` options in that style; more than there are letters raises."""
    if style not in LABEL_STYLES or style == "none":
        raise ConsilienceError(f"no labels '{style}'", expected=", ".join(LABEL_STYLES))
    if style == "1":
        return tuple(str(number) for number in range(1, count + 1))
    letters = LABEL_STYLES[style]
    if count > len(letters):
        found, expected = f"{count} options with letters as labels", f"at most {len(letters)}"
        numbers = "Ask with numbers: --vary labels=1,none; a language model then needs"
        raise ConsilienceError(found, expected=expected, todo=f"{numbers} --option-score sum.")
    return tuple(letters[:count])


def permutation(order: str, size: int, seed: int = 0) -> tuple[int, ...] | None:
    """The positions of ``size`` options in an order; None if so few options have no such order.

    ``given`` is the order of the file, ``reversed`` the opposite, ``rotation 1`` begins with the
    second option, ``shuffle 1`` is drawn by ``seed`` (other shuffles are other orders), and
    ``BACD`` names the order by the letters of the given one; of two options it is BA.
    """
    positions = tuple(range(size))
    kind, _, number = order.partition(" ")
    if kind == "given" or size == 0:
        return positions if kind == "given" else None
    if kind == "reversed":
        return positions[::-1] if size > 1 else None
    if number.isdecimal() and kind == "rotation":
        steps = int(number)
        return positions[steps:] + positions[:steps] if steps < size else None
    if number.isdecimal() and kind == "shuffle":
        return _shuffles(size, int(number), seed)
    letters = tuple(ascii_uppercase.find(letter) for letter in order)
    first, rest = letters[:size], letters[size:]
    has_order = sorted(first) == [*positions] and rest == tuple(range(size, len(letters)))
    return first if has_order else None


def _shuffles(size: int, number: int, seed: int) -> tuple[int, ...] | None:
    """The ``number``-th of the different drawn orders, none of them the given one."""
    if number >= factorial(size):
        return None
    drawn: dict[tuple[int, ...], None] = {tuple(range(size)): None}
    generator = random.Random(f"{seed} {size}")
    while len(drawn) <= number:
        drawn[tuple(generator.sample(range(size), size))] = None
    return list(drawn)[number]


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """How options are scored."""

    name: str
    reply: Reply
    per: Literal["", "token", "byte"] = ""
    """What the log-probability is divided by the number of, if anything."""

    def scores(self, totals: Floats, tokens: Ints, texts: Sequence[str]) -> Floats:
        """The scores (answer,), in nats, of nats a token, or of nats a byte.

        ``totals`` (answer,): the log-probabilities of the answers ``texts``; ``tokens`` (answer,):
        the tokens that were scored of each.
        """
        sizes = np.ones(len(totals))
        if self.per == "token":
            sizes = tokens.astype(np.float64)
        elif self.per == "byte":
            sizes = np.array([float(len(text.encode())) for text in texts])
        scores: Floats = totals / sizes
        return scores


RULES: Mapping[str, ScoringRule] = {
    rule.name: rule
    for rule in (
        ScoringRule("label", "label"),
        ScoringRule("sum", "text"),
        ScoringRule("mean", "text", "token"),
        ScoringRule("bytes", "text", "byte"),
    )
}
"""The scoring rules of language models by name."""


def rule_for(name: str, labels: Sequence[str]) -> ScoringRule:
    """The rule of that name, for options with labels in these styles.

    Without a name it is ``label`` if all options have labels, and otherwise ``sum``. ``label`` for
    options without labels raises.
    """
    has_labels = "none" not in labels
    if not name:
        return RULES["label" if has_labels else "sum"]
    if name not in RULES:
        raise unknown_name(f"no scoring rule '{name}'", name, RULES)
    if name == "label" and not has_labels:
        texts = [name for name, rule in RULES.items() if rule.reply == "text"]
        found = "options without labels, scored by their labels"
        expected = f"labels, or a rule for texts: {', '.join(texts)}"
        todo = "Leave the level none of labels out, or take another rule."
        raise ConsilienceError(found, expected=expected, todo=todo)
    return RULES[name]
