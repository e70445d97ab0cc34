"""How questions are asked: in which variants, as which prompts, and who judges what is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from math import factorial
from string import ascii_uppercase
from typing import cast

import polars as pl

from consilience.asking import questions as asking
from consilience.asking.asker import Progress
from consilience.core import presentation
from consilience.core.errors import Combinations, ConsilienceError, unknown_name
from consilience.core.expectations import Expectation
from consilience.core.factors import (
    FACTORS,
    MOST_CELLS,
    OF_OPTIONS,
    Design,
    Factor,
    FactorialDesign,
)
from consilience.core.free_text import Rule, rule_of
from consilience.core.items import Question
from consilience.models import WritingModel
from consilience.options.probe import ProbeOptions
from consilience.suites.question_suites import refuse_mixed
from consilience.suites.questions import Questions
from consilience.types import QUESTION_WORDS, Candidates, Fact, Relation, Suite


@dataclass(frozen=True, slots=True)
class GroupOfQuestions:
    """What is counted of a group of questions."""

    id: str
    facts: tuple[Fact, ...]
    golds: tuple[int, ...]
    """The position of the gold of each question among its options; empty without options."""
    options: int
    writes_freely: bool  # Whether its answers are written

    def design(self, whole: FactorialDesign) -> FactorialDesign:
        """The design of the group: open questions do not vary in options."""
        return whole if self.options else whole.without(OF_OPTIONS)


def groups_of_questions(
    questions: Questions, *, writes_freely: bool = False
) -> list[GroupOfQuestions]:
    """What is counted of each group; one with options and open questions raises."""
    refuse_mixed(questions)
    groups = []
    for name, items in questions.groups.items():
        most = max(len(item.options) for item in items)
        facts = tuple(Fact(item.item, item.item, item.gold.text) for item in items)
        golds = tuple(item.gold_position for item in items if item.options)
        groups.append(GroupOfQuestions(name, facts, golds, most, writes_freely or not most))
    return groups


def suite_of_questions(
    name: str,
    groups: Sequence[GroupOfQuestions],
    design: FactorialDesign,
    expectations: Sequence[Expectation] = (),
    seed: int = 0,
) -> Suite:
    """The suite of groups of questions; with options, answers are their positions in the file.

    ``seed``: that of shuffled orders.
    """
    relations = []
    for group in groups:
        counts, words = Counter(group.golds), tuple(map(str, range(group.options)))
        candidates = Candidates(words, tuple(counts[at] for at in range(group.options)))
        if not group.options:
            candidates = Candidates.of(group.facts)
        cells = Design.of_cells(group.design(design), group.options, seed)
        cells = replace(cells, writes_freely=group.writes_freely and group.options > 0)
        relations.append(Relation.of_design(group.id, group.facts, candidates, cells))
    return Suite(name, tuple(relations), expectations=tuple(expectations), words=QUESTION_WORDS)


ALL = "all"
MORE_LEVELS: Mapping[str, str] = {
    "language": "Add phrasings in another language, with a column 'language' in the file",
    "paraphrase": "Add another phrasing, with a column 'question_2' in the file",
}
"""How to get more levels of factors whose levels are in the questions."""

Levels = Callable[[str, Questions], Sequence[str]]
"""The levels of a factor from what was written after ``FACTOR=``."""


def factors_of(
    options: ProbeOptions, questions: Questions, samples: Sequence[Factor] = ()
) -> list[Factor]:
    """The factors that ``--vary`` names, and that of sampled texts, if they are sampled.

    Without it the phrasings and the languages vary, where there are several, and the options are
    rotated.
    """
    vary, templates = options.vary, template_names(options.template)
    if vary is None:
        return [*_usual_factors(questions), *samples]
    chosen: dict[str, Factor] = {}
    for text in vary:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if name not in (known := (*LEVELS, "template")):
            raise unknown_name(f"--vary {text}: no factor '{name}'", name, known)
        if name in chosen:
            todo = "Name all its levels after one --vary."
            raise ConsilienceError(f"--vary {name}=... more than once", todo=todo)
        value = value if equals else ALL
        is_template = name == "template"
        levels = tuple(
            _some_of(name, value, templates) if is_template else LEVELS[name](value, questions)
        )
        if not any(levels) or (len(levels) < 2 and value == ALL):
            shown = f": '{levels[0]}'" if any(levels) else ""
            raise ConsilienceError(
                f"--vary {text}: the factor has one level{shown}",
                expected="two levels or more, because only what varies can be compared",
                todo=f"{MORE_LEVELS.get(name, 'Name more levels')}, or leave --vary {name} out.",
            )
        chosen[name] = Factor(name, levels)
    return [*(chosen[name] for name in FACTORS if name in chosen), *samples]


def design_of(kind: Combinations, factors: Sequence[Factor]) -> FactorialDesign:
    """The design that ``--design`` names."""
    is_full = kind == "full"
    return FactorialDesign.full(factors) if is_full else FactorialDesign.one_factor(factors)


def _usual_factors(questions: Questions) -> list[Factor]:
    size = _most_options(questions)
    orders = _orders(size, "rotations", "order") if size > 1 else ()
    levels = {"language": questions.languages, "paraphrase": _phrasings(questions), "order": orders}
    return [Factor(name, tuple(of)) for name, of in levels.items() if len(of) > 1]


def _most_options(questions: Questions) -> int:
    return max(len(question.options) for question in questions.items)


def _numbers(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, size + 1)))


def _phrasings(questions: Questions) -> tuple[str, ...]:
    return _numbers(max(question.phrasings for question in questions.items))


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _some_of(name: str, value: str, known: Sequence[str]) -> Sequence[str]:
    """All levels of a factor, or some by their names; an unknown one raises."""
    levels = known if value == ALL else _listed(value)
    for level in levels:
        if level not in known:
            raise unknown_name(f"--vary {name}={level}", level, known)
    return levels


def _paraphrases(value: str, questions: Questions) -> Sequence[str]:
    every = _phrasings(questions)
    numbers = every if value == ALL else _listed(value)
    most = len(every)
    if not all(number.isdecimal() and 0 < int(number) <= most for number in numbers) or not numbers:
        expected = f"all, a number up to {most}, or numbers such as 1,2"
        raise ConsilienceError(f"--vary paraphrase={value}", expected=expected)
    return _numbers(int(numbers[0])) if len(numbers) == 1 else numbers


def _languages(value: str, questions: Questions) -> Sequence[str]:
    if not any(questions.languages) and value != ALL:
        todo = f"{MORE_LEVELS['language']}, or leave --vary language out."
        found = f"--vary language={value} of questions that name no language"
        raise ConsilienceError(found, todo=todo)
    return _some_of("language", value, questions.languages)


def _option_orders(value: str, questions: Questions) -> Sequence[str]:
    if (size := _most_options(questions)) < 2:
        todo = "Leave it out, or give the questions options."
        raise ConsilienceError("--vary order of open questions", todo=todo)
    return _orders(size, value, "order")


def _contexts(value: str, questions: Questions) -> Sequence[str]:
    """Orders of the passages, as of options; ``orders``: all of up to three, else rotations."""
    if (size := max(len(question.passages) for question in questions.items)) < 2:
        todo = "Leave it out, or write a list of several in 'context' (docs/own-questions.md)."
        found = "--vary context of questions with one passage or none"
        raise ConsilienceError(found, todo=todo)
    if value == "orders":
        value = ALL if size < 4 else "rotations"
    return _orders(size, value, "context")


def _orders(size: int, value: str, name: str) -> Sequence[str]:
    """Orders: rotations, reversed, shuffles:K, all, or orders such as BACD."""
    kind, _, number = value.partition(":")
    if kind == "rotations":
        return ["given", *(f"rotation {steps}" for steps in range(1, size))]
    if kind == "shuffles" and number.isdecimal():
        _refuse_orders(int(number) + 1, f"{name}={value}")
        return ["given", *(f"shuffle {at}" for at in range(1, int(number) + 1))]
    if value == ALL:
        _refuse_orders(factorial(size), f"{name}={value}")
        return ["given", *map("".join, islice(permutations(ascii_uppercase[:size]), 1, None))]
    levels = _listed(value)
    levels = levels if "given" in levels else ["given", *levels]
    for level in levels:
        if presentation.permutation(level, size) is None:
            known = "rotations, reversed, shuffles:K, all, or orders such as "
            expected = known + ascii_uppercase[:size][::-1]
            raise ConsilienceError(f"--vary {name}={level}", expected=expected)
    return levels


def _refuse_orders(count: int, value: str) -> None:
    if count > MOST_CELLS:
        found = f"--vary {value}: {count:,} orders"
        todo = f"Draw some of them: --vary {value.partition('=')[0]}=shuffles:10."
        raise ConsilienceError(found, expected=f"at most {MOST_CELLS:,} variants", todo=todo)


def _examples(value: str, questions: Questions) -> Sequence[str]:
    if not value.isdecimal() or int(value) < 1:
        expected = "a number of draws, such as examples=3"
        raise ConsilienceError(f"--vary examples={value}", expected=expected)
    return _numbers(int(value))


LEVELS: Mapping[str, Levels] = {
    "language": _languages,
    "paraphrase": _paraphrases,
    "order": _option_orders,
    "labels": lambda value, _: _some_of("labels", value, [*presentation.LABEL_STYLES]),
    "context": _contexts,
    "examples": _examples,
}
"""How the levels of each factor are written."""


def template_names(spec: str | None) -> list[str]:
    """The names that ``--vary template=`` may have: those of ``--template``, and the built-in."""
    return list(asking.templates_of([*([spec] if spec else []), *presentation.TEMPLATES]))


def presenter_of(
    options: ProbeOptions, factors: Sequence[Factor], *, is_chat: bool = False
) -> asking.Presenter:
    """The presentation that options ask for; ``is_chat``: of a model with a chat template."""
    named = asking.templates_of([options.template or asking.AUTO], is_chat=is_chat)
    known = {**presentation.TEMPLATES, **named}
    levels = {factor.name: factor.levels for factor in factors}
    used = {name: known[name] for name in levels.get("template") or list(named)[:1]}
    if not options.shots and "examples" in levels:
        todo = "Add --shots 3, or leave it out."
        raise ConsilienceError("--vary examples without solved examples", todo=todo)
    lacking = [one.name for one in used.values() if "context" not in one.slots]
    if lacking and "context" in levels:
        found, expected = f"no {{context}} in the template '{lacking[0]}'", "it, because it varies"
        raise ConsilienceError(found, expected=expected, todo="Write it into the text.")
    base = presentation.Presentation(template=next(iter(used.values())))
    return asking.Presenter(
        asking.NO_FACTORS,
        used,
        base,
        options.shots,
        options.seed,
        rule_name=options.option_score or "",
    )


def sample_factor(samples: int, temperature: float) -> list[Factor]:
    """The factor ``sample``, if several texts of each prompt are sampled."""
    if samples > 1 and not temperature:
        raise ConsilienceError(
            f"--samples {samples} at temperature 0, where all samples are the same",
            todo="Add --temperature 0.7, or leave --samples out.",
        )
    return [Factor("sample", _numbers(samples))] if samples > 1 else []


def as_writer(model: object) -> WritingModel:
    """A model that writes; one that only chooses raises."""
    if not hasattr(model, "write"):
        name = getattr(model, "identity", {}).get("model", "the model")
        expected = "a causal or sequence-to-sequence language model"
        todo = "Name one with --model. Of questions with options, leave --generate out."
        raise ConsilienceError(f"'{name}' does not write answers", expected=expected, todo=todo)
    return cast(WritingModel, model)


@dataclass(slots=True)
class Writer:
    """A model that is asked, and the judge of its answers."""

    model: WritingModel
    match: str | None = None  # Finds the answer in a text (``free_text.RULES``); None: the usual
    judge: asking.Judge | None = None  # Says what means the same; None where only equal answers do

    @property
    def rule(self) -> Rule | None:
        return rule_of(self.match) if self.match else None

    def ask(
        self,
        questions: Sequence[Question],
        presenter: asking.Presenter,
        suite: str,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        """The answers of one group of questions, those that mean the same merged."""
        answers = asking.ask_writing(questions, presenter, self.model, suite, self.rule, progress)
        if self.judge is None:
            return answers
        return asking.merge_answers(answers, questions, self.judge)
