"""Expectations: the file beside that of questions, and what is read from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.expectations import KINDS, Expectation, ExpectationKind, Reference, Texts
from consilience.core.items import Question
from consilience.files.read import Problems, read_rows
from consilience.files.rows import Column, find_table, one_of, read_table, text
from consilience.suites.questions import SEPARATOR, Questions, as_is, position, separated

COLUMNS = (
    Column("kind", one_of(*KINDS)), Column("item", separated),
    Column("other_item", separated, [], is_needed=False),
    Column("map", as_is, "", is_needed=False),
)  # fmt: skip

FILE_STEM = "expectations"
"""What the file of expectations in a folder of questions is called."""

ARROW, AND, OR = "->", "&", "|"  # In a map: ``yes & yes -> yes | maybe``


def with_expectations(questions: Questions, path: Path, problems: Problems) -> Questions:
    """The questions of a folder with their expectations; errors go to ``problems``."""
    file = find_table(path, FILE_STEM)
    if file is None:
        return questions
    rows = read_rows(file, problems)
    expectations = expectations_of_rows(rows, questions, problems, str(file))
    return replace(questions, expectations=expectations)


def expectations_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    questions: Questions,
    problems: Problems,
    where: str = "",
) -> tuple[Expectation, ...]:
    """The expectations of rows with their places; the first error of each goes to ``problems``."""
    known = {question.item: question for question in questions.items}
    places: dict[Any, str] = {}
    expectations = []
    for row in read_table(rows, COLUMNS, problems, where):
        try:
            items, others = row["item"], row["other_item"] or row["item"][:1]
            one = _expectation(row["kind"], items, others, row["map"], known)
        except ConsilienceError as error:
            row.add(error)
            continue
        # The order of a pair does not matter.
        key = one if one.kind == "implied" else (one.kind, frozenset(one.items))
        if row.is_new(key, places, "expectation"):
            expectations.append(one)
    return tuple(expectations)


def _expectation(
    kind: str, items: list[str], others: list[str], map_: Any, known: Mapping[str, Question]
) -> Expectation:
    if len(others) > 1:
        raise ConsilienceError(f"{len(others)} questions in 'other_item'", expected="one")
    every = [*items, *others]
    for at, item in enumerate(every):
        if item not in known:
            raise ConsilienceError(f"no question '{item}'", todo=did_you_mean(item, list(known)))
        if item in every[:at]:
            found = f"'{item}' is compared with itself"
            todo = "Name the other question in 'other_item'."
            raise ConsilienceError(found, expected="two questions", todo=todo)
    if len(items) > 1 and kind != "implied":
        raise ConsilienceError(f"{len(items)} questions in 'item' of '{kind}'", expected="one")
    questions = [known[item] for item in every]
    *premises, conclusion = (
        Reference(one.item, tuple(option.text for option in one.options)) for one in questions
    )
    if (kind == "implied") != bool(map_):
        found = "no 'map' of 'implied'" if not map_ else f"a 'map' of '{kind}'"
        expected = "a map such as yes -> no" if not map_ else "'map' only of implied"
        raise ConsilienceError(found, expected=expected)
    if kind != "implied" and {*premises[0].options} != {*conclusion.options}:
        shown = [", ".join(one.options) or "none" for one in (*premises, conclusion)]
        found = f"the options are {shown[0]} and {shown[1]}"
        raise ConsilienceError(found, expected="the same options of both")
    rules = _rules(map_, questions) if map_ else {}
    return Expectation(cast(ExpectationKind, kind), tuple(premises), conclusion, rules)


def _rules(map_: Any, questions: list[Question]) -> dict[Texts, Texts]:
    if isinstance(map_, Mapping):
        entries = list(map_.items())
    else:
        parts = [part.partition(ARROW) for part in str(map_).split(SEPARATOR) if part.strip()]
        entries = [(left.strip(), right.strip()) for left, _, right in parts]
        if not all(left and right for left, right in entries):
            expected = "answers -> answers, such as yes -> no; no -> yes"
            raise ConsilienceError(f"'map' is {map_}", expected=expected)
    rules: dict[Texts, Texts] = {}
    for left, right in entries:
        texts = str(left).split(AND)
        if len(texts) != len(questions) - 1:
            found = f"{len(texts)} answers before the arrow in 'map': {left}"
            expected = f"{len(questions) - 1} with '{AND}' between them, one for each premise"
            raise ConsilienceError(found, expected=expected)
        key = tuple(_answer_of(*one) for one in zip(texts, questions[:-1], strict=True))
        if key in rules:
            todo = f"Join what it implies with '{OR}'."
            raise ConsilienceError(f"'{left}' more than once in 'map'", todo=todo)
        conclusions = right if isinstance(right, list | tuple) else str(right).split(OR)
        answers = (_answer_of(str(one), questions[-1]) for one in conclusions)
        rules[key] = tuple(dict.fromkeys(answers))
    return rules


def _answer_of(name: str, question: Question) -> str:
    """The option that a text names, or the text for an open question; an unknown one raises."""
    name = text(name) or ""
    if not question.options:
        return name
    texts = [option.text for option in question.options]
    at = position(name, texts)
    if at is None:
        aliases = {one: at for at, option in enumerate(question.options) for one in option.texts}
        at = aliases.get(name)
    if at is None:
        expected = f"one of the options of '{question.item}': {', '.join(texts)}"
        raise ConsilienceError(f"the answer '{name}'", expected=expected)
    return texts[at]
