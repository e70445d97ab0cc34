"""Prompts: a question in one variant becomes the text that a model reads, and its reply is scored.

A model gives the log-probability of each option's label, or of its text, after the prompt. A
scoring rule makes of it the score that the options are ranked by; the highest is the answer, of
equal ones the first in the file's order. Options that speak of others (*All of the above*) stay
last or follow them.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

import numpy as np

from consilience.core.errors import ConsilienceError, shortened, unknown_name
from consilience.core.factors import LETTERS, TURN, Cell, FactorialDesign
from consilience.core.items import DEFAULT_LANGUAGE, Choice, Floats, Ints, Prompt, Question, Role
from consilience.core.text import PASSAGE_END, counted
from consilience.suites.question_suites import words_in

_WORDS = tomllib.loads(Path(__file__).with_name("references.toml").read_text("utf-8"))


def _words(kind: str) -> str:
    """Those of a kind in all languages, as one regular expression."""
    found = []
    for of in _WORDS.values():
        what, true = (f"(?:{'|'.join(of.get(name, ''))})" for name in ("what", "true"))
        found += [
            text.replace("WHAT", what).replace("TRUE", f"{true}?") for text in of.get(kind, [])
        ]
    return "|".join(found)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{text})\s*[.。]?\s*", re.IGNORECASE)


_LABEL = r"(?<![A-Za-z0-9])\(?(?:[A-Za-z]|\d{1,2})\)?(?![A-Za-z0-9])"
_LIST = rf"(?P<list>{_LABEL}(?:[,;] ?{_LABEL})*(?:(?:{_words('and')}){_LABEL})+)(?![-'\u2019])"
_BEFORE, _AFTER = f"{_words('both')}|{_words('before')}", _words("after")
ABOVE, THESE = _pattern(_words("above")), _pattern(_words("these"))
NAMES = (
    _pattern(rf"(?P<before>(?:(?:{_BEFORE}) )*){_LIST}(?P<after>(?: ?(?:{_AFTER}))*)"),
    _pattern(rf"(?P<before>(?:{_words('both')}) ){_LIST}(?P<after>(?:(?!\b(?-i:[B-Z])\b).)*)"),
)
"""What names options by letters or numbers: ``A and C only``, ``Neither A nor B is ...``."""

ALONE = _pattern(rf"(?:(?:{_BEFORE}|statement) )?(?P<label>{_LABEL})(?: ?(?:{_AFTER}))?")
"""What names one, which speaks of something in the question: ``A only``, ``A``."""


@dataclass(frozen=True, slots=True)
class References:
    """What the options of a question say of others."""

    pinned: tuple[int, ...] = ()  # The options that stay at their place, all in a fixed order
    named: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """An option that names others by their letters -> these."""
    speaking: frozenset[int] = frozenset()  # All that speak of others


@lru_cache(maxsize=4096)
def references_of(question: Question) -> References:
    """The options of a question that speak of others; its ``pin`` says which stay.

    The last options stay, from the first on that speaks of all others. If another one speaks of
    those above it, all stay. Letters name options where no other reading is at hand: the named
    options are others, they name none themselves, and neither they nor the question have the same
    letters as words, as in *vitamins A and D*.
    """
    texts = [option.text for option in question.options]
    size, pin = len(texts), question.pin.strip()
    if pin == "none":
        return References()
    above = {at for at, text in enumerate(texts) if ABOVE.fullmatch(text)}
    whole = above | {at for at, text in enumerate(texts) if THESE.fullmatch(text)}
    named = _named(texts, whole, question)
    first = size
    while first and first - 1 in {*whole, *named}:
        first -= 1
    kept = [*range(min((at for at in whole if at >= first), default=size), size)]
    if not above <= {*kept}:
        kept = [*range(size)]
    if pin:
        letters = LETTERS[size - 1 : size] if pin == "last" else pin
        if not letters or not {*letters} <= {*LETTERS[:size]}:
            found = f"the pin '{pin}' of a question with {size} options"
            expected, where = "last, none, or letters such as CD", question.where or question.item
            raise ConsilienceError(found, expected=expected, where=where)
        kept = sorted({*map(LETTERS.index, letters)})
    return References(tuple(kept), named, frozenset({*whole, *named}))


def _named(texts: Sequence[str], whole: Set[int], question: Question) -> dict[int, tuple[int, ...]]:
    """The options that each names by letters or numbers; none if one is no such name."""
    spans = {at: of for at, text in enumerate(texts) if (of := _spans(text))}
    others = {*range(len(texts))} - {*spans}
    asked = [text for of in question.paraphrases.values() for text in of]
    known = [question.context, *asked, *(texts[at] for at in others)]
    words = {*re.findall(r"\b[A-Za-z0-9]\b", "\n".join(known))}
    alone = {one["label"].strip("()") for at in others if (one := ALONE.fullmatch(texts[at]))}
    for at, of in spans.items():
        names, targets = {texts[at][start:end] for start, end, _ in of}, {to for *_, to in of}
        is_alike = any(
            one.isdecimal() == min(names).isdecimal() and _position(one) < len(texts)
            for one in alone
        )
        if names <= words or not targets <= others - whole or is_alike:
            return {}
    return {at: tuple(to for *_, to in of) for at, of in spans.items()}


def _position(name: str) -> int:
    return int(name) - 1 if name.isdecimal() else LETTERS.index(name.upper())


def _spans(text: str) -> list[tuple[int, int, int]]:
    """The letters or numbers that name options: begin and end, and the position of the option."""
    match = next((match for of in NAMES if (match := of.fullmatch(text))), None)
    if match is None:
        return []
    found = [of for of in re.finditer(_LABEL, match["list"]) if of[0] not in ("e", "o", "u", "y")]
    names = [of[0].strip("()") for of in found]
    is_bare = not match["before"] and not match["after"] and "(" not in match["list"]
    styles = (str.isupper,) if is_bare else (str.isupper, str.islower, str.isdecimal)
    if not any(all(map(is_style, names)) for is_style in styles):
        return []
    starts = [match.start("list") + of.start() + of[0].startswith("(") for of in found]
    spans = zip(starts, names, strict=True)
    return [(start, start + len(name), _position(name)) for start, name in spans]


def with_labels(
    options: Sequence[Choice], references: References, order: Sequence[int], labels: Sequence[str]
) -> tuple[Choice, ...]:
    """The options in the file's order, of which those that name others name them as they are shown.

    ``order``: the positions of the options as they are shown; ``labels``: with which labels.
    """
    label_at = dict(zip(order, labels, strict=True))

    def rewritten(text: str) -> str:
        spans = _spans(text)
        shown = sorted((to for *_, to in spans), key=list(order).index)
        for (start, end, _), to in reversed([*zip(spans, shown, strict=True)]):
            text = text[:start] + label_at[to] + text[end:]
        return text

    return tuple(
        Choice(rewritten(of.text), tuple(map(rewritten, of.aliases)))
        if at in references.named
        else of
        for at, of in enumerate(options)
    )


SLOTS = ("question", "options", "context", "instruction", "group", "right", "wrong")
"""What a template may have in braces, beside ``option_1``, ... and other columns of the file."""

LABEL_STYLES = {"A": ascii_uppercase, "a": ascii_lowercase, "1": "", "none": ""}
"""The styles of option labels, and their letters; numbers have no end."""

Reply = Literal["label", "text"]
"""What a model is to answer with: the label of an option, or its text."""


SLOT = r"\{(\w(?:[\w .-]*\w)?)\}"
"""A slot: one or several words in braces, so that JSON is none."""


@dataclass(frozen=True)
class Template:
    """The text around a question."""

    name: str
    text: str  # A text with ``{question}`` and other slots
    is_chat: bool = False
    """Whether it is the user's turn of a chat, in the form that the model was trained on."""
    system: str = ""

    def __post_init__(self) -> None:
        if "question" not in self.slots:
            found = f"no {{question}} in the template '{shortened(self.text, 80)}'"
            raise ConsilienceError(found, expected="it, where the question goes")
        if self.system and not self.is_chat:
            found = f"a system prompt in the template '{self.name}', which is no chat"
            todo = "Add `chat = true`, or write the text into the template."
            raise ConsilienceError(found, todo=todo)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The names in braces: of one or several words, so that JSON stays as it is."""
        return tuple(dict.fromkeys(re.findall(SLOT, self.text)))

    @property
    def shows_options(self) -> bool:
        """Whether it has all options, ``{options}``, or each one, from ``{option_1}`` on."""
        return not {"options", "option_1"}.isdisjoint(self.slots)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with its slots filled; a line that has nothing but empty slots is left out."""
        lines = [
            (line, re.sub(SLOT, lambda at: values[at[1]], line)) for line in self.text.split("\n")
        ]
        return "\n".join(filled for line, filled in lines if filled or not re.search(SLOT, line))


TEMPLATES: Mapping[str, Template] = {
    template.name: template
    for template in (
        Template("plain", "{context}\nQuestion: {question}\n{options}\nAnswer: "),
        Template("chat", "{context}\n{question}\n{options}\n{instruction}", is_chat=True),
    )
}


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


def rule_for(name: str, labels: str, template: Template) -> ScoringRule:
    """The rule of that name for a variant; without one ``label``, or ``sum`` if no label is shown.

    ``label`` where no label is shown raises.
    """
    is_shown = labels != "none" and template.shows_options
    if name and name not in RULES:
        raise unknown_name(f"no scoring rule '{name}'", name, RULES)
    if name == "label" and not is_shown:
        of_texts = ", ".join(name for name, rule in RULES.items() if rule.reply == "text")
        lacking = "labels" if labels == "none" else f"{{options}} in the template '{template.name}'"
        found = f"no {lacking}, and options scored by their labels"
        raise ConsilienceError(found, expected=f"it, or a rule for texts: {of_texts}")
    return RULES[name or ("label" if is_shown else "sum")]


@dataclass(frozen=True, slots=True)
class Presentation:
    """How questions are presented in one variant."""

    language: str | None = None  # None where it does not vary: the first of each question
    paraphrase: int = 0
    order: tuple[str, ...] = ("",)
    """The orders of the options up to that of the variant. A question that is shown in the same way
    in an earlier one lacks the variant. ``context`` has those of the passages."""
    context: tuple[str, ...] = ("",)
    labels: str = "A"
    template: Template = TEMPLATES["plain"]
    shots: int = 0
    draw: int = 1
    rule_name: str = ""  # Empty for the usual rule of the variant
    then: str = ""  # What the user says after the first reply; empty where that is the answer

    @property
    def rule(self) -> ScoringRule:
        return rule_for(self.rule_name, self.labels, self.template)


@lru_cache(maxsize=4096)
def orders_of(
    levels: tuple[str, ...], size: int, pinned: tuple[int, ...] = ()
) -> tuple[tuple[int, ...] | None, ...]:
    """The positions of ``size`` options in each order; None where an earlier one is the same.

    An order has the letters of the file's order. Those of further options are left out: BDCA is
    BCA of three options. Letters that it lacks are at its end. ``pinned``: options that stay at
    their place; the others follow the order.
    """
    orders: list[tuple[int, ...]] = []
    for level in levels:
        every = dict.fromkeys((*map(LETTERS.index, level), *range(size)))
        moved = iter([at for at in every if at < size and at not in pinned])
        orders.append(tuple(at if at in pinned else next(moved) for at in range(size)))
    return tuple(None if of in orders[:at] else of for at, of in enumerate(orders))


Shown = tuple[str, tuple[int, ...], tuple[int, ...]]
"""How a question is shown: its language, the order of its options, that of its passages."""


def shown_in(question: Question, presentation: Presentation) -> Shown | None:
    """How a question is shown; None if it has no such phrasing, language or order.

    It has no variant without labels either, if an option names others by their labels.
    """
    texts, references = question.paraphrases, references_of(question)
    language = presentation.language
    if language is None:
        language = DEFAULT_LANGUAGE if DEFAULT_LANGUAGE in texts else next(iter(texts))
    order = orders_of(presentation.order, len(question.options), references.pinned)[-1]
    context = orders_of(presentation.context, len(question.passages))[-1]
    is_named = presentation.labels != "none" and presentation.template.shows_options
    has_phrasing = presentation.paraphrase < len(texts.get(language, ()))
    if order is None or context is None or not has_phrasing or (references.named and not is_named):
        return None
    return language, order, context


def present(
    question: Question, presentation: Presentation, examples: Sequence[Question] = ()
) -> Prompt | None:
    """The prompt of a question; None where ``shown_in`` is.

    ``examples``: solved questions that are shown before it, in the same presentation but with their
    options in the order of the file, so that the order of the question's options is all that an
    order changes.
    """
    if (known := shown_in(question, presentation)) is None:
        return None
    language, order, context = known
    turns: list[tuple[Role, str]] = []
    for solved in examples:
        spoken = language if language in solved.paraphrases else next(iter(solved.paraphrases))
        given = tuple(range(len(solved.options))), tuple(range(len(solved.passages)))
        shown = _alone(solved, presentation, spoken, 0, *given)
        turns += [*shown.turns, ("assistant", shown.answers[shown.gold])]
    shown = _alone(question, presentation, language, presentation.paraphrase, order, context)
    turns += shown.turns
    if presentation.then:
        turns += [("assistant", FIRST_REPLY), ("user", presentation.then)]
    return replace(shown, turns=tuple(turns))


def _alone(
    question: Question,
    presentation: Presentation,
    language: str,
    paraphrase: int,
    order: tuple[int, ...],
    context: tuple[int, ...],
) -> Prompt:
    """The prompt of a question without examples."""
    style, template = presentation.labels, presentation.template
    is_label = bool(order) and presentation.rule.reply == "label"
    labels = labels_of(style, len(order)) if order and style != "none" else ()
    references, written = references_of(question), question.in_phrasing(language, paraphrase)
    options, gold = written.options, question.gold_position if order else -1
    if labels:
        options = with_labels(options, references, order, labels)
    choices = tuple(options[at] for at in order)
    texts = tuple(choice.text for choice in choices)
    marks = [f"{label}." for label in labels] or ["-"] * len(order)
    asked = (
        "open" if not order else "text" if not is_label else "number" if style == "1" else "letter"
    )
    values = {
        **question.more,
        **{f"option_{at}": text for at, text in enumerate(texts, 1)},
        "question": question.paraphrases[language][paraphrase],
        "options": "\n".join(map(" ".join, zip(marks, texts, strict=True))),
        "context": PASSAGE_END.join(question.passages[at] for at in context),
        "instruction": words_in(language)[asked],
        "group": question.group,
        "right": options[gold].text if order else written.gold.text,
    }
    if "wrong" in template.slots:
        wrong = [at for at in range(len(options)) if at != gold]
        plain = [at for at in wrong if at not in references.speaking]
        values["wrong"] = options[random.Random(question.item).choice(plain or wrong)].text
    return Prompt(
        (("user", template.fill(values)),),
        labels if is_label else texts or (written.gold.text,),
        order,
        choices,
        order.index(gold) if order else 0,
        is_label,
        template.is_chat,
        template.system,
        question.group,
        labels=labels,
        is_open=not order,
    )


def labels_of(style: str, count: int) -> tuple[str, ...]:
    """The labels of ``count`` options in that style; more than there are letters raises."""
    labels = LABEL_STYLES[style] or [str(number) for number in range(1, count + 1)]
    if count > len(labels):
        found, expected = f"{count} options with letters as labels", f"at most {len(labels)}"
        raise ConsilienceError(found, expected=expected, todo="Ask with numbers: --vary labels=1.")
    return tuple(labels[:count])


@dataclass(frozen=True)
class PromptBuilder:
    """How the questions of a suite become prompts."""

    design: FactorialDesign  # The variants
    templates: Mapping[str, Template]  # By name
    base: Presentation  # How questions are presented where a factor does not vary
    seed: int = 0  # Decides which examples are drawn
    pool: Mapping[str, Sequence[Question]] = field(default_factory=dict, repr=False)
    """Group -> the questions that examples are drawn from."""
    drawn: Mapping[str, frozenset[int]] = field(default_factory=dict, repr=False)
    """Item -> the variants that it is asked in, of those that it has; empty for all."""

    @property
    def record(self) -> dict[str, object]:
        """What a run keeps of it."""
        return {
            "templates": {
                name: {"text": template.text, "chat": template.is_chat, "system": template.system}
                for name, template in self.templates.items()
            },
            "option_score": self.base.rule_name,
            "shots": self.base.shots,
        }

    @cached_property
    def presentations(self) -> tuple[Presentation, ...]:
        """That of each variant."""
        return tuple(map(self._presentation, self.design.cells))

    def _presentation(self, cell: Cell) -> Presentation:
        changes: dict[str, Any] = {}
        for factor, at in zip(self.design.factors, cell, strict=True):
            name, level = factor.name, factor.levels[at]
            if name in ("language", "labels"):
                changes[name] = level
            elif name in ("order", "context"):
                changes[name] = factor.levels[: at + 1]
            elif name == "paraphrase":
                changes[name] = int(level) - 1
            elif name == "template":
                changes[name] = self.templates[level]
            elif name == "shots":
                shots, _, draw = level.partition(DRAW)
                changes |= {"shots": int(shots), "draw": int(draw or 1)}
            elif name == TURN:
                changes["then"] = level if at else ""
            else:
                assert name == "sample", name  # of what is written, not of what is shown
        return replace(self.base, **changes)

    def has(self, question: Question, variant: int) -> bool:
        """Whether a question is asked in a variant."""
        shown = shown_in(question, self.presentations[variant])
        return shown is not None and self._is_drawn(question, variant)

    def _is_drawn(self, question: Question, variant: int) -> bool:
        return not self.drawn or variant in self.drawn[question.item]

    def prompt(self, question: Question, variant: int) -> Prompt | None:
        """The prompt of a question in a variant; None if it is not asked in it."""
        if not self._is_drawn(question, variant):
            return None
        presentation = self.presentations[variant]
        return present(question, presentation, self.drawn_examples(question, presentation))

    def drawn_examples(self, question: Question, presentation: Presentation) -> Sequence[Question]:
        """The solved questions before a question: of its group, never itself.

        All questions of a group have the same ones, so that nothing else differs between their
        prompts; a question that is drawn, or that has a phrasing in common with one that is, has
        the next one in its place. None has options that name others by their labels.
        """
        drawn: list[Question] = []
        if presentation.shots == 0:
            return drawn
        group = self.pool.get(question.group, ())
        phrasings = _texts(question)
        for at in _shuffled(len(group), f"{self.seed} {presentation.draw - 1} {question.group}"):
            known, is_plain = group[at], not references_of(group[at]).named
            if is_plain and known.item != question.item and not _texts(known) & phrasings:
                drawn.append(known)
            if len(drawn) == presentation.shots:
                return drawn
        raise ConsilienceError(
            f"{counted(len(drawn), 'other question')} in the group '{question.group}'",
            expected=f"{presentation.shots} or more, to draw examples from",
            todo="Ask with fewer examples, or add questions.",
        )


FIRST_REPLY = "{first reply}"  # In a second turn, in place of a reply that is not yet known
DRAW = " draw "  # In a level of ``shots``: ``2 draw 3`` has the third draw of two examples


def _texts(question: Question) -> set[str]:
    return {text for texts in question.paraphrases.values() for text in texts}


@lru_cache(maxsize=64)
def _shuffled(size: int, seed: str) -> tuple[int, ...]:
    return tuple(random.Random(seed).sample(range(size), size))
