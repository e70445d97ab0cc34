"""Files of expectations, and chains between their rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.expectations import KINDS, Expectation, ExpectationKind, Reference, Texts
from consilience.core.items import Choice, Question
from consilience.files.read import read_document
from consilience.files.rows import FirstProblem, Problems, Row, find_table
from consilience.suites.questions import (
    OPTION_SEPARATOR,
    SUFFIXES,
    YES,
    Questions,
    file_rows,
    normal,
)

COLUMNS: Mapping[str, str] = {
    "kind": "one of " + ", ".join(KINDS),
    "item": "the first question; several with ';' are premises",
    "paraphrase": "the phrasing of the first question, from 1",
    "other_item": "the other question; the first one where it is empty",
    "other_paraphrase": "the phrasing of the other question, from 1",
    "map": "answers -> answers, such as yes -> no; no -> yes",
    "condition": "the answers to the first question that the expectation is about",
}
"""The columns of an expectation, and what they hold."""

FILE_STEM = "expectations"
"""What a file of expectations, and the list of them in a file of questions, is called."""

ARROW, AND, OR = "->", "&", "|"
"""In a map: ``yes & yes -> yes | maybe``."""

MOST_RULES = 1_000
"""The most combinations of answers of one expectation."""

BOOLEANS = {"True": "yes", "False": "no"}
"""What YAML makes of yes and no."""


def expectation_file(path: Path) -> Path | None:
    """The file with the expectations of a folder or a file of questions; None without one.

    A folder has them in a file of its own; two such files raise. A JSON, YAML or TOML file has them
    in a list of its own.
    """
    if path.is_dir():
        return find_table(path, FILE_STEM, SUFFIXES)
    is_document = path.suffix in (".json", ".yaml", ".yml", ".toml")
    document = read_document(path) if is_document else None
    return path if isinstance(document, Mapping) and FILE_STEM in document else None


def with_expectations(questions: Questions, path: Path, problems: Problems) -> Questions:
    """The questions of a file or a folder with their expectations; errors go to ``problems``."""
    file = expectation_file(path)
    if file is None:
        return questions
    rows = file_rows(file, problems, FILE_STEM)
    return replace(questions, expectations=expectations_of_rows(rows, questions, problems))


def expectations_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], questions: Questions, problems: Problems
) -> tuple[Expectation, ...]:
    """The expectations of rows with their places; the first error of each goes to ``problems``."""
    known = {question.item: question for question in questions.items}
    places: dict[Expectation, str] = {}
    for where, cells in rows:
        row = Row(where, cells, FirstProblem())
        try:
            expectation = _expectation(row, known)
            if first := places.get(expectation) or places.get(_reversed(expectation)):
                row.report("duplicate expectation", todo=f"Remove it; the first is {first}.")
            places[expectation] = where
        except ConsilienceError as error:
            problems.append(error)
    return tuple(places)


def _reversed(expectation: Expectation) -> Expectation:
    """The same expectation of a pair whose order does not matter; others as they are."""
    if expectation.kind not in ("same", "different") or expectation.condition:
        return expectation
    (premise,) = expectation.premises
    return replace(expectation, premises=(expectation.conclusion,), conclusion=premise)


def _expectation(row: Row, known: Mapping[str, Question]) -> Expectation:
    """The expectation of a row; what is wrong raises."""
    for name in row.cells:
        if name not in COLUMNS:
            todo = did_you_mean(str(name), list(COLUMNS))
            row.report(f"the column '{name}'", expected=", ".join(COLUMNS), todo=todo)
    kind = row.text("kind")
    if kind not in KINDS:
        row.report(f"the kind '{kind}'", todo=did_you_mean(kind, list(KINDS)))
    items = _listed(row, "item") or [row.text("item")]
    others = _listed(row, "other_item") or items[:1]
    if len(others) > 1:
        row.report(f"{len(others)} questions in 'other_item'", expected="one")
    premises = _references(row, items, "paraphrase", known)
    (conclusion,) = _references(row, others, "other_paraphrase", known)
    draft = Expectation(cast(ExpectationKind, kind), premises, conclusion)
    _refuse_itself(row, draft)
    return _with_rules(row, draft, [known[item] for item in (*items, *others)])


def _listed(row: Row, column: str) -> list[str]:
    """The texts of a cell: a list, or one text with ``;`` between them."""
    value = row.cells.get(column)
    if isinstance(value, list | tuple):
        return [str(entry).strip() for entry in value]
    text = row.optional_text(column)
    return [part.strip() for part in text.split(OPTION_SEPARATOR) if part.strip()]


def _references(
    row: Row, items: list[str], column: str, known: Mapping[str, Question]
) -> tuple[Reference, ...]:
    """The questions of a side, with their phrasings."""
    for item in items:
        if item not in known:
            row.report(f"no question '{item}'", todo=did_you_mean(item, list(known)))
    numbers = _listed(row, column) or [""] * len(items)
    if len(numbers) != len(items):
        row.report(f"{len(numbers)} phrasings in '{column}'", expected=f"{len(items)}")
    references = []
    for item, number in zip(items, numbers, strict=True):
        most = known[item].phrasings
        if number and not (number.isdecimal() and 1 <= int(number) <= most):
            expected = f"a phrasing of '{item}', from 1 to {most}"
            row.report(f"'{column}' is {number}", expected=expected)
        phrasing = str(int(number)) if number else ""
        references.append(Reference(item, phrasing, _texts(known[item].options)))
    return tuple(references)


def _texts(options: Iterable[Choice]) -> Texts:
    return tuple(option.text for option in options)


def _refuse_itself(row: Row, draft: Expectation) -> None:
    """Raise for a question that is there twice, and for more than the kind takes."""
    for at, one in enumerate(draft.references):
        if one in draft.references[:at]:
            phrasing = f" in phrasing {one.paraphrase}" if one.paraphrase else ""
            row.report(
                f"'{one.item}{phrasing}' is compared with itself",
                expected="two questions, or two phrasings of one",
                todo="Name the other question in 'other_item', or the phrasings in 'paraphrase' "
                "and 'other_paraphrase'.",
            )
    if len(draft.premises) > 1 and draft.kind not in ("implied", "complementary"):
        row.report(f"{len(draft.premises)} questions in 'item' of '{draft.kind}'", expected="one")


TAKES = {
    "map": ("opposite", "implied", "merges"),
    "condition": ("same", "different", "opposite"),
}
"""The kinds of expectations that have a map, and those that have a condition."""


def _with_rules(row: Row, draft: Expectation, questions: list[Question]) -> Expectation:
    """The expectation with what its answers are expected to be."""
    given = [name for name in TAKES if row.cells.get(name)]
    for name in given:
        if draft.kind not in TAKES[name]:
            row.report(
                f"a '{name}' of '{draft.kind}'",
                expected=f"'{name}' only of {' and '.join(TAKES[name])}",
                todo="Remove it, or name another kind.",
            )
    rules: dict[Texts, Texts] = {}
    if "map" in given:
        rules = _rules(row, questions)
    elif draft.kind in ("implied", "merges"):
        row.report(f"no 'map' of '{draft.kind}'", expected="a map such as yes -> no")
    elif draft.kind == "complementary":
        rules = _exactly_one(row, questions)
    else:
        _refuse_other_options(row, draft)
        if draft.kind == "opposite":
            first, second = draft.conclusion.options
            rules = {(first,): (second,), (second,): (first,)}
    condition: Texts = ()
    if "condition" in given:
        value = row.cells["condition"]
        texts = value if isinstance(value, list | tuple) else str(value).split(OR)
        condition = _answers(row, texts, questions[0])
    expectation = replace(draft, rules=rules, condition=condition)
    if condition and rules and not any(answer in condition for answer, *_ in rules):
        row.report("'condition' can never hold", expected="an answer that is in the map")
    if expectation.kind == "merges" and not expectation.merges_all:
        row.report("a 'map' that merges not all options", expected="one answer after each option")
    return expectation


def _refuse_other_options(row: Row, draft: Expectation) -> None:
    """Raise unless both questions have the same options; of ``opposite`` two."""
    first, second = (set(one.options) for one in draft.references)
    is_opposite = draft.kind == "opposite"
    if first != second or (len(first) != 2 and is_opposite):
        shown = [", ".join(one.options) or "none" for one in draft.references]
        expected = "the same two options, or a 'map'" if is_opposite else "the same options"
        row.report(f"the options are {shown[0]} and {shown[1]}", expected=f"{expected} of both")


def _rules(row: Row, questions: list[Question]) -> dict[Texts, Texts]:
    """The map: answers to the premises -> answers that the last question may get."""
    value = row.cells["map"]
    if isinstance(value, Mapping):
        entries = list(value.items())
    else:
        parts = [part.split(ARROW) for part in str(value).split(OPTION_SEPARATOR) if part.strip()]
        entries = [(part[0].strip(), ARROW.join(part[1:]).strip()) for part in parts]
        if not all(left and right for left, right in entries):
            expected = "answers -> answers, such as yes -> no; no -> yes"
            row.report(f"'map' is {value}", expected=expected)
    rules: dict[Texts, Texts] = {}
    for left, right in entries:
        texts = str(left).split(AND)
        if len(texts) != len(questions) - 1:
            row.report(
                f"{len(texts)} answers before the arrow in 'map': {left}",
                expected=f"{len(questions) - 1} with '{AND}' between them, one for each premise",
            )
        key = tuple(_answer(row, *one) for one in zip(texts, questions[:-1], strict=True))
        if key in rules:
            row.report(f"'{left}' more than once in 'map'", todo="Join what it implies with '|'.")
        conclusions = right if isinstance(right, list | tuple) else str(right).split(OR)
        rules[key] = _answers(row, conclusions, questions[-1])
    return rules


def _answers(row: Row, texts: Iterable[object], question: Question) -> Texts:
    return tuple(dict.fromkeys(_answer(row, str(text), question) for text in texts))


def _answer(row: Row, text: str, question: Question) -> str:
    """The option that a text names, or the text for an open question; an unknown one raises."""
    text = text.strip()
    if not question.options:
        return BOOLEANS.get(text, text)
    for name in (text, BOOLEANS.get(text, text)):
        for option in question.options:
            if normal(name) in map(normal, option.texts):
                return option.text
    shown = ", ".join(_texts(question.options))
    row.report(f"the answer '{text}'", expected=f"one of the options of '{question.item}': {shown}")
    return ""


def _exactly_one(row: Row, questions: list[Question]) -> dict[Texts, Texts]:
    """The rules of ``complementary``: exactly one of the questions gets the answer yes."""
    positive: list[str] = []
    for question in questions:
        matching = [
            option.text
            for option in question.options
            if {normal(text) for text in option.texts} & {*YES.texts}
        ]
        if len(matching) != 1:
            shown = ", ".join(_texts(question.options)) or "none"
            row.report(
                f"the options of '{question.item}' are {shown}",
                expected="one of them yes or true",
                todo="Use 'implied' with a map for other answers.",
            )
        positive += matching
    *premises, last = [_texts(question.options) for question in questions]
    if (size := math.prod(map(len, premises))) > MOST_RULES:
        row.report(f"{size:,} combinations of answers", expected=f"at most {MOST_RULES:,}")
    others = tuple(text for text in last if text != positive[-1])
    rules: dict[Texts, Texts] = {}
    for answers in product(*premises):
        count = sum(answer == yes for answer, yes in zip(answers, positive, strict=False))
        rules[answers] = {0: (positive[-1],), 1: others}.get(count, ())
    return rules
