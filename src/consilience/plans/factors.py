"""Factors of questions: what ``--vary`` and ``--template`` name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, permutations
from math import factorial
from pathlib import Path

from consilience.core.errors import ConsilienceError, did_you_mean, unknown_name
from consilience.core.factors import (
    FACTORS,
    FIRST_TURN,
    LETTERS,
    MOST_CELLS,
    OPTION_FACTORS,
    TURN,
    Factor,
    FactorialDesign,
)
from consilience.core.items import Question
from consilience.files.read import read_document
from consilience.files.rows import Column, as_written, flag, line, read_one
from consilience.options import refuse_unknown
from consilience.options.commands import ProbeOptions
from consilience.plans.presentation import (
    DRAW,
    LABEL_STYLES,
    SLOTS,
    TEMPLATES,
    Presentation,
    PromptBuilder,
    Template,
    orders_of,
    references_of,
)
from consilience.suites.questions import Questions

ALL = "all"


def factors_of(
    options: ProbeOptions, questions: Questions, whole: Questions | None = None
) -> list[Factor]:
    """The factors that ``--vary`` names.

    Without it the phrasings and the languages vary, where there are several, and the options are
    rotated where they are shown. ``whole``: the suite that ``questions`` are chosen from. Its
    largest number of options says how many letters an order has, so that a sample has the same
    names.
    """
    known = Levels(options, questions, whole or questions)
    chosen: dict[str, Factor] = {}
    for text in (*(options.vary or ()), *[TURN] * bool(options.then)):
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in FACTORS:
            raise unknown_name(f"--vary {text}: no factor '{name}'", name, [*FACTORS])
        if name in chosen:
            todo = "Name all its levels after one --vary."
            raise ConsilienceError(f"--vary {name}=... more than once", todo=todo)
        if name in OPTION_FACTORS and not any(one.options for one in questions.items):
            found, expected = f"--vary {name} of open questions", "questions with options"
            raise ConsilienceError(found, expected=expected, todo="Leave it out.")
        levels = tuple(getattr(known, name)(value if equals else ""))
        if not any(levels) or (len(levels) < 2 and value in ("", ALL)):
            shown = f": '{levels[0]}'" if any(levels) else ""
            raise ConsilienceError(
                f"--vary {text}: the factor has one level{shown}",
                expected="two levels or more, because only what varies can be compared",
                todo=f"Name more levels, or leave --vary {name} out.",
            )
        chosen[name] = Factor(name, levels)
    if options.vary is None:
        usual = {"language": tuple(questions.languages), "paraphrase": known.phrasings}
        templates = templates_of([options.template or AUTO]).values()
        if known.most("order") > 1 and any(template.shows_options for template in templates):
            usual["order"] = known.order("")
        chosen |= {name: Factor(name, of) for name, of in usual.items() if len(of) > 1}
    return [chosen[name] for name in FACTORS if name in chosen]


SIZES: Mapping[str, Callable[[Question], tuple[int, tuple[int, ...]]]] = {
    "order": lambda one: (len(one.options), references_of(one).pinned),
    "context": lambda one: (len(one.passages), ()),
}
"""How many options or passages a question has, and which of them stay at their place."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a factor by its name, from what is written after ``FACTOR=``, if anything."""

    asked: ProbeOptions
    questions: Questions
    whole: Questions  # The suite that the questions are chosen from

    @property
    def phrasings(self) -> tuple[str, ...]:
        most = max(question.phrasings for question in self.questions.items)
        return tuple(map(str, range(1, most + 1)))

    def language(self, value: str) -> Sequence[str]:
        if not any(self.questions.languages):
            todo = "Add a column 'language', or leave it out."
            raise ConsilienceError("--vary language of questions that name none", todo=todo)
        return _some_of("language", value, self.questions.languages)

    def paraphrase(self, value: str) -> Sequence[str]:
        """All, the first ones, or some by their numbers."""
        levels = self.phrasings
        is_number = value.isdecimal() and 0 < int(value) <= len(levels)
        return levels[: int(value)] if is_number else _some_of("paraphrase", value, levels)

    def sample(self, value: str) -> Sequence[str]:
        """Texts of a prompt, by their numbers."""
        if not value.isdecimal():
            expected = "how many texts to sample of each prompt, such as 3"
            raise ConsilienceError(f"--vary sample={value}", expected=expected)
        return tuple(map(str, range(1, int(value) + 1)))

    def turn(self, value: str) -> Sequence[str]:
        """The first one, and the texts of ``--then``."""
        levels = [FIRST_TURN, *(self.asked.then or ())]
        if len(set(levels)) < len(levels):
            twice = next(level for level in levels if levels.count(level) > 1)
            raise ConsilienceError(f"two turns '{twice}'", todo="Give --then another text.")
        return _some_of(TURN, value, levels)

    def labels(self, value: str) -> Sequence[str]:
        return _some_of("labels", value, [*LABEL_STYLES])

    def template(self, value: str) -> Sequence[str]:
        named = [self.asked.template] if self.asked.template else []
        if value in ("", ALL) and len(own := templates_of(named)) > 1:
            return [*own]  # of a file that has several
        return _some_of("template", value, [*templates_of([*named, *TEMPLATES])])

    def shots(self, value: str) -> Sequence[str]:
        """Numbers of examples, or several draws of as many."""
        kind, _, count = value.partition(":")
        shots, numbers = self.asked.shots, _listed(value)
        if kind == "draws" and count.isdecimal() and shots:
            return [str(shots), *(f"{shots}{DRAW}{at}" for at in range(2, int(count) + 1))]
        if not numbers or not all(map(str.isdecimal, numbers)):
            expected = "numbers of examples, such as 0,2,5, or draws:3 with --shots 2"
            raise ConsilienceError(f"--vary shots={value}", expected=expected)
        return [*dict.fromkeys(str(int(number)) for number in numbers)]

    def most(self, name: str) -> int:
        return max(SIZES[name](question)[0] for question in self.whole.items)

    def context(self, value: str) -> tuple[str, ...]:
        return self.order(value, "context")

    def order(self, value: str, name: str = "order") -> tuple[str, ...]:
        """Letters; the order of the file is the first one.

        An order in which all questions are as in an earlier one is no level.
        """
        size = self.most(name)
        given, orders = LETTERS[:size], list[str]()
        for part in _listed(value) or ["rotations"]:
            kind, _, number = part.partition(":")
            count = factorial(size) if part == ALL else 1
            if kind == "shuffles" and number.isdecimal():
                count = min(int(number) + 1, factorial(size))
            if count > MOST_CELLS:
                found = f"--vary {name}={value}: {count:,} orders"
                expected = f"at most {MOST_CELLS}"
                todo = f"Draw some: --vary {name}=shuffles:10."
                raise ConsilienceError(found, expected=expected, todo=todo)
            if part == "rotations":
                orders += [given[at:] + given[:at] for at in range(size)]
            elif part == "reversed":
                orders.append(given[::-1])
            elif part == ALL:
                orders += map("".join, permutations(given))
            elif count > 1:
                drawn, generator = {given: None}, random.Random(f"{self.asked.seed} {size}")
                while len(drawn) < count:
                    drawn["".join(generator.sample(given, size))] = None
                orders += drawn
            elif sorted(part) == [*given[: len(part)]]:
                orders.append(part + given[len(part) :])
            else:
                expected = f"rotations, reversed, shuffles:K, all, or letters such as {given[::-1]}"
                raise ConsilienceError(f"--vary {name}={value}", expected=expected)
        levels = tuple(dict.fromkeys([given, *orders]))
        shown = [orders_of(levels, *size) for size in {*map(SIZES[name], self.questions.items)}]
        has_level = (
            any(of is not None for of in of_kinds) for of_kinds in zip(*shown, strict=True)
        )
        return tuple(compress(levels, has_level))


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _some_of(name: str, value: str, known: Sequence[str]) -> Sequence[str]:
    """All levels of a factor, or some by their names; an unknown one raises."""
    levels = known if value in ("", ALL) else [*dict.fromkeys(_listed(value))]
    for level in levels:
        if level not in known:
            raise unknown_name(f"--vary {name}={level}", level, known)
    return levels


def prompt_builder_of(
    options: ProbeOptions,
    factors: Sequence[Factor],
    questions: Iterable[Question],
    *,
    is_chat: bool = False,
) -> PromptBuilder:
    """What makes the prompts that options ask for; ``is_chat``: of a model with a chat template.

    A slot of a template that a question has nothing for raises.
    """
    named = templates_of([options.template or AUTO], is_chat=is_chat)
    known, levels = {**TEMPLATES, **named}, {factor.name: factor.levels for factor in factors}
    used = {name: known[name] for name in levels.get("template") or list(named)[:1]}
    for template in used.values():
        if "context" not in template.slots and "context" in levels:
            found, expected = f"no {{context}} in the template '{template.name}'", "it: it varies"
            raise ConsilienceError(found, expected=expected, todo="Write it into the text.")
        others = [slot for slot in template.slots if slot not in SLOTS or slot == "wrong"]
        for question in questions if others else ():
            more = [name for name, text in question.more.items() if text.strip()]
            more += [f"option_{at}" for at, _ in enumerate(question.options, 1)]
            filled = [*(slot for slot in SLOTS if question.options or slot != "wrong"), *more]
            if lacking := [slot for slot in others if slot not in filled]:
                found = f"nothing for {{{lacking[0]}}} of the template '{template.name}'"
                raise unknown_name(found, lacking[0], filled, f"the question '{question.item}'")
            is_same = template.text.count("{option_1}") == len(question.options)  # in all places
            last = f"option_{len(question.options)}"
            if "option_1" in others and last not in others and not is_same:
                raise ConsilienceError(f"no {{{last}}} in the template '{template.name}'")
    if "order" in levels and not any(template.shows_options for template in used.values()):
        found, expected = f"no {{options}} in the template '{next(iter(used))}'", "it: order varies"
        raise ConsilienceError(found, expected=expected, todo="Leave --vary order out.")
    base = Presentation(
        template=next(iter(used.values())),
        shots=options.shots,
        rule_name=options.option_score or "",
    )
    return PromptBuilder(FactorialDesign.full(()), used, base, options.seed)


AUTO = "auto"  # The template ``chat`` for a model with a chat template, and ``plain`` for any other
CHAT = "chat:"  # What a text begins with that is the user's turn of a chat
ENTRY = (
    Column("name", line),
    Column("text", as_written),
    Column("chat", flag, default=False, is_needed=False),
    Column("system", as_written, default="", is_needed=False),
)
"""What a file has of each template."""


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
    if spec == AUTO:
        yield TEMPLATES["chat" if is_chat else "plain"]
    elif spec in TEMPLATES:
        yield TEMPLATES[spec]
    elif spec.endswith(".toml") and "{" not in spec:
        entries = read_document(Path(spec)).get("templates")
        is_list = isinstance(entries, list) and len(entries) > 0
        if not is_list or not all(isinstance(entry, Mapping) for entry in entries):
            expected = "[[templates]] with name and text"
            raise ConsilienceError("no list of templates", expected=expected, where=spec)
        for number, entry in enumerate(entries, start=1):
            where = f"{spec}, template {number}"
            refuse_unknown([one.name for one in ENTRY], entry, where, "key")
            values = read_one(entry, ENTRY, where).values()
            try:
                yield Template(*values)
            except ConsilienceError as error:
                raise error.replaced(where=where) from error
    elif "{" in spec:
        text = spec.removeprefix(CHAT).replace("\\n", "\n")
        name = f"own {known + 1}" if known else "own"
        yield Template(name, text, is_chat=spec.startswith(CHAT))
    else:
        names = [AUTO, *TEMPLATES]
        expected = f"{', '.join(names)}, a text with {{question}}, or a TOML file"
        todo = did_you_mean(spec, names)
        raise ConsilienceError(f"no template '{spec}'", expected=expected, todo=todo)
