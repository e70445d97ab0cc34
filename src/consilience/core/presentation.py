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
from functools import partial
from math import factorial
from string import ascii_lowercase, ascii_uppercase
from typing import Literal

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean, shortened, unknown_name
from consilience.core.items import Choice, Floats, Ints, Question
from consilience.core.text import PASSAGE_END

SLOTS = ("context", "question", "options", "instruction", "sep")
"""What a template may have in braces."""

LABEL_STYLES = {"A": ascii_uppercase, "a": ascii_lowercase, "1": "", "none": ""}
"""The styles of option labels, and their letters; numbers have no end."""

REVERSED = "BA"  # The style with the letters of ``A`` in reverse: the last option is A

CASES = ("given", "upper", "lower")

CUES = ("none", "wrong", "right")
"""The hints at an answer: none, at a wrong option, at the right one."""

ASKS = ("choice", "open", "verify")  # Options are shown, are not, or get yes or no each

CHECKS: Mapping[str, tuple[str, str, str]] = {
    "en": ('Is the answer "{answer}"? Yes or No?', "Yes", "No"),
    "de": ("Ist die Antwort „{answer}“? Ja oder Nein?", "Ja", "Nein"),
    "es": ("¿Es la respuesta «{answer}»? ¿Sí o No?", "Sí", "No"),
    "fr": ("La réponse est-elle « {answer} » ? Oui ou Non ?", "Oui", "Non"),
    "it": ("La risposta è «{answer}»? Sì o No?", "Sì", "No"),
    "pt": ("A resposta é “{answer}”? Sim ou Não?", "Sim", "Não"),
    "nl": ('Is het antwoord "{answer}"? Ja of Nee?', "Ja", "Nee"),
    "sv": ("Är svaret ”{answer}”? Ja eller Nej?", "Ja", "Nej"),
    "pl": ("Czy odpowiedź to „{answer}”? Tak czy Nie?", "Tak", "Nie"),
    "ru": ("Это ответ «{answer}»? Да или Нет?", "Да", "Нет"),
    "ja": ("答えは「{answer}」ですか。はい、または、いいえ。", "はい", "いいえ"),
    "zh": ("答案是“{answer}”吗？是或否？", "是", "否"),  # noqa: RUF001
}
"""Language -> what is asked of an option that is verified, and the words for yes and no."""

INSTRUCTIONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("A", "a", "BA"), "Answer with the letter of the right option and nothing else."
    ),
    "1": "Answer with the number of the right option and nothing else.",
    "none": "Answer with the text of the right option and nothing else.",
    "open": "Answer with the name or the word alone.",
}
"""What ``{instruction}`` becomes, by the style of the labels; ``open`` without options."""

Role = Literal["user", "assistant"]

Reply = Literal["label", "text"]
"""What a model is to answer with: the label of an option, or its text."""

CONTENT = {"context", "question", "options"}  # The slots that differ between questions


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

    def fill(self, values: Mapping[str, str], case: str = "given") -> str:
        """The text with its slots filled; a line that has nothing but empty slots is left out.

        ``case``: one of ``CASES``, for the words of the template itself.
        """
        return _fill(self.parts, values, case)

    def ending(self, values: Mapping[str, str], case: str = "given") -> str:
        """What follows the question, its context and its options; the same for all questions."""
        last = max(at for at, (_, slot) in enumerate(self.parts) if slot in CONTENT)
        return _fill(self.parts[last + 1 :], values, case).lstrip("\n")


def _fill(parts: Sequence[tuple[str, str]], values: Mapping[str, str], case: str) -> str:
    """Literal texts, each with the value of the slot after it."""
    change = {"upper": str.upper, "lower": str.lower}.get(case, str)
    marked = "".join(change(literal) + (f"\0{slot}\0" if slot else "") for literal, slot in parts)
    lines = []
    for line in marked.split("\n"):
        filled = re.sub(r"\0(\w+)\0", lambda match: values[match[1]], line)
        if filled or not re.search(r"\0", line):
            lines.append(filled)
    return "\n".join(lines)


TEMPLATES: Mapping[str, Template] = {
    template.name: template
    for template in (
        Template("plain", "{context}\nQuestion{sep}{question}\n{options}\nAnswer{sep}"),
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
    separator: str = ": "
    case: str = "given"
    draw: int = 0
    repeated: str = "none"  # The letter of an option by its place in the file
    ask: str = "choice"
    context: str = "given"
    distractors: str = "0"
    cue: str = "none"
    cues: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """Language -> sentences with ``{answer}``, after ``{question}`` or before it; "" for any."""
    reply: Reply = "label"
    """What the model is to answer with; the text where the options have no labels."""

    @property
    def asks_for_labels(self) -> bool:
        return self.reply == "label" and self.shown_labels != "none"

    @property
    def shown_labels(self) -> str:
        """The labels that options are shown and named with."""
        return self.labels if self.ask == "choice" else "none"


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
    context: str = ""
    question: str = ""
    checks: tuple[Prompt, ...] = ()  # Those about each of ``answers``, to be said yes or no to
    about: tuple[Prompt, int] | None = None  # Of such a prompt the whole one, and which answer
    labels: tuple[str, ...] = ()  # What the options were shown with, whether or not a reply is one
    is_open: bool = False  # Whether the answer is to be written without options to choose from

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
    """The prompt of a question; None if it has no such phrasing, language or order of options.

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
    if order is None or ascii_uppercase.find(presentation.repeated) >= len(order):
        return None
    question = question.in_phrasing(presentation.language, presentation.paraphrase)
    turns: list[tuple[Role, str]] = []
    for number, solved in enumerate(examples):
        example = solved.in_phrasing(presentation.language, 0)
        given = tuple(range(len(example.options)))
        answer, gold = _answers(example, presentation, given)[_gold_at(example, given)], None
        if presentation.ask == "verify":  # by turns the right option and a wrong one
            wrong = hinted(example.item, example.gold_position, len(given))
            gold = wrong if number % 2 else example.gold_position
            answer = check_in(presentation.language)[1 + number % 2]
        once = replace(presentation, repeated="none")
        turns.append(("user", _filled(example, once, 0, given, checked=gold)))
        turns.append(("assistant", answer))
    hint = None
    if presentation.cue != "none":
        at = (
            question.gold_position
            if presentation.cue == "right"
            else hinted(question.item, question.gold_position, len(order))
        )
        if at is None or at < 0:
            return None
        hint = order.index(at)
    fill = partial(_filled, question, presentation, presentation.paraphrase, order, hint)
    style = presentation.shown_labels if order else "none"
    prompt = Prompt(
        (*turns, ("user", fill(checked=order[0] if presentation.ask == "verify" else None))),
        _answers(question, presentation, order),
        order,
        tuple(question.options[at] for at in order),
        _gold_at(question, order),
        bool(question.options) and presentation.asks_for_labels,
        presentation.template.is_chat,
        presentation.template.system,
        question.group,
        question.context,
        texts[presentation.paraphrase],
        labels=() if style == "none" else labels_of(style, len(order)),
        is_open=presentation.ask == "open" or not order,
    )
    if presentation.ask != "verify":
        return prompt
    _, *words = check_in(presentation.language)
    checks = [
        replace(
            prompt,
            turns=(*turns, ("user", fill(checked=at))),
            answers=tuple(words),
            options=(0, 1),
            choices=tuple(map(Choice, words)),
            gold=int(place != prompt.gold) if prompt.gold >= 0 else -1,
            are_labels=True,
            about=(prompt, place),
        )
        for place, at in enumerate(order)
    ]
    return replace(prompt, checks=tuple(checks))


def in_context(
    question: Question, order: str, others: Sequence[str], seed: int = 0
) -> Question | None:
    """The question with its passages in an order, and ``others`` at places that its id decides.

    None if it has no such order, or no passage that others could be among.
    """
    if order == "given" and not others:
        return question
    own = question.passages
    positions = permutation(order, len(own), seed)
    if positions is None or (others and not own):
        return None
    passages = [own[at] for at in positions]
    generator = random.Random(f"place {question.item}")
    for text in others:
        passages.insert(generator.randint(0, len(passages)), text)
    return replace(question, context=PASSAGE_END.join(passages))


def in_language(
    known: Mapping[str, Sequence[str]], name: str, todo: str, language: str
) -> Sequence[str]:
    """What is known of a language, by its subtag, or of any (""); of an unnamed one in English."""
    of_language = known.get("") or known.get(language.partition("-")[0] or "en")
    if not of_language:
        found, expected = f"no {name} in the language '{language}'", ", ".join(known)
        raise ConsilienceError(found, expected=expected, todo=todo)
    return of_language


check_in = partial(in_language, CHECKS, "yes and no", "Leave verify out: --vary ask=open.")


def hinted(item: str, gold: int, size: int) -> int | None:
    """The option that a wrong hint names, by its position in the file; None without a wrong one.

    It is drawn uniformly from the wrong options by the id of the item, whatever the variant.
    """
    wrong = [at for at in range(size) if at != gold >= 0]
    return random.Random(f"cue {item}").choice(wrong) if wrong else None


def premise_of(presentation: Presentation, texts: Sequence[str]) -> Prompt:
    """A prompt without a question, and texts that may be written after it.

    It is what the template has after the question and the options, such as ``Answer:``; of a
    template that ends with them it is ``Answer:`` and the separator of the presentation. Examples
    are left out, a system prompt remains.
    """
    template = presentation.template
    values = {"instruction": INSTRUCTIONS["none"], "sep": presentation.separator}
    ending = template.ending(values, presentation.case)
    ending = (ending.strip() and ending) or f"Answer{presentation.separator}"
    return Prompt(
        (("user", ending),), tuple(texts), tuple(range(len(texts))), are_labels=False,
        is_chat=template.is_chat, system=template.system,
    )  # fmt: skip


BIASES = ("order", "labels", "repeated")  # The factors whose levels favour an option


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
    question: Question,
    presentation: Presentation,
    paraphrase: int,
    order: Sequence[int],
    hint: int | None = None,
    checked: int | None = None,
) -> str:
    """The user's turn; ``hint``: the place of its option as shown, ``checked``: in the file."""
    labels = presentation.shown_labels
    style = labels if presentation.asks_for_labels else "none"
    style = style if question.options and presentation.ask != "open" else "open"
    language = presentation.language
    if language not in question.paraphrases:
        language = next(iter(question.paraphrases))
    marks = ["-"] * len(order)
    if labels != "none":
        marks = [f"{label}." for label in labels_of(labels, len(order))]
    options = [question.options[at].text for at in order]
    if (at := ascii_uppercase.find(presentation.repeated)) in order:
        options[order.index(at)] += "\n" + options[order.index(at)]
    shown = zip(marks, options, strict=True) if presentation.ask == "choice" else ()
    values = {
        "context": question.context,
        "question": question.paraphrases[language][paraphrase],
        "options": "\n".join(map(" ".join, shown)),
        "instruction": INSTRUCTIONS[style],
        "sep": presentation.separator,
    }
    if hint is not None:
        todo = "Write some, one a line, and name the file: --cues FILE."
        sentences = in_language(presentation.cues, "hints", todo, language)
        answer = options[hint] if labels == "none" else f"({marks[hint][:-1]})"
        sentence = random.Random(f"sentence {question.item}").choice(sentences)
        before, _, after = sentence.partition("{question}")
        values["question"] = before.replace("{answer}", answer) + values["question"]
        slots = presentation.template.slots
        last = "options" if presentation.ask == "choice" and "options" in slots else "question"
        values[last] += ("\n" + after.strip().replace("{answer}", answer)).rstrip()
    if checked is not None:
        sentence, *words = check_in(presentation.language)
        values["question"] += "\n" + sentence.replace("{answer}", question.options[checked].text)
        values["instruction"] = "Answer with {} or {} and nothing else.".format(*words)
    return presentation.template.fill(values, presentation.case)


def labels_of(style: str, count: int) -> tuple[str, ...]:
    """The labels of ``count`` options in that style; more than there are letters raises."""
    if style == REVERSED:
        return labels_of("A", count)[::-1]
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
    if kind == "rotation":
        steps = int(number)
        return positions[steps:] + positions[:steps] if steps < size else None
    if kind == "shuffle":
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
    meaning: str
    source: str
    per: Literal["", "token", "byte"] = ""
    """What the log-probability is divided by the number of, if anything."""
    has_premise: bool = False
    """Whether the log-probability of the text after a prompt without the question is subtracted."""

    def scores(
        self, totals: Floats, tokens: Ints, texts: Sequence[str], premise: Floats | None = None
    ) -> Floats:
        """The scores (answer,), in nats, of nats a token, or of nats a byte.

        ``totals`` (answer,): the log-probabilities of the answers ``texts``; ``tokens`` (answer,):
        the tokens that were scored of each; ``premise`` (answer,): the log-probabilities without
        the question, for a rule that has a premise.
        """
        if self.has_premise:
            assert premise is not None, self.name
            return totals - premise
        sizes = np.ones(len(totals))
        if self.per == "token":
            sizes = tokens.astype(np.float64)
        elif self.per == "byte":
            sizes = np.array([float(len(text.encode())) for text in texts])
        scores: Floats = totals / sizes
        return scores


RULES: Mapping[str, ScoringRule] = {rule.name: rule for rule in (
    ScoringRule(
        "label", "label", "log-probability of the option's label",
        "MMLU (Hendrycks et al., ICLR 2021); Robinson and Wingate, ICLR 2023"),
    ScoringRule(
        "sum", "text", "log-probability of the option's text", "lm-evaluation-harness, acc"),
    ScoringRule(
        "mean", "text", "log-probability of the option's text, divided by its tokens",
        "GPT-3 (Brown et al., NeurIPS 2020), Section 2.4", per="token"),
    ScoringRule(
        "bytes", "text", "log-probability of the option's text, divided by its bytes in UTF-8",
        "lm-evaluation-harness, acc_norm, which divides by characters: the same for ASCII",
        per="byte"),
    ScoringRule(
        "pmi", "text", "log-probability of the option's text, minus that without the question",
        "domain conditional PMI (Holtzman et al., EMNLP 2021, Section 4)", has_premise=True),
)}  # fmt: skip
"""The scoring rules of language models by name."""

DECISION = ScoringRule(
    "decision", "label", "logarithm of the probability that a decision model gives the option",
    "System One API; OpenAI, Decisions API",
)  # fmt: skip
"""The scoring rule of decision models, which give the probability of each option."""


def rule_for(name: str, labels: Sequence[str]) -> ScoringRule:
    """The rule of that name, for options with labels in these styles.

    Without a name it is ``label`` if all options have labels, and otherwise ``sum``. ``label`` for
    options without labels raises.
    """
    has_labels = "none" not in labels
    if name == DECISION.name:
        return DECISION
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
