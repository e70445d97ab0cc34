"""Files of expectations, and chains between their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.expectations import KINDS, Expectation, ExpectationKind, Reference, Texts
from consilience.core.items import Choice, Question
from consilience.files.rows import Problems, Row
from consilience.suites.questions import (
    OPTION_SEPARATOR,
    SUFFIXES,
    YES,
    Questions,
    file_rows,
    has_list,
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
    if not path.is_dir():
        return path if has_list(path, FILE_STEM) else None
    names = [FILE_STEM + suffix for suffix in SUFFIXES]
    paths = [path / name for name in names if (path / name).is_file()]
    if len(paths) > 1:
        raise ConsilienceError(
            f"both {paths[0].name} and {paths[1].name}",
            expected="one of them",
            where=str(path),
            todo="Remove the one that is not meant.",
        )
    return paths[0] if paths else None


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
    """The expectations of rows with their places; their errors go to ``problems``."""
    known = {question.item: question for question in questions.items}
    places: dict[Expectation, str] = {}
    for where, cells in rows:
        row = Row(where, cells, problems)
        expectation = _expectation(row, known)
        if expectation is None:
            continue
        if first := places.get(expectation) or places.get(_reversed(expectation)):
            row.report("duplicate expectation", todo=f"Remove it; the first is {first}.")
            continue
        places[expectation] = where
    return tuple(places)


def _reversed(expectation: Expectation) -> Expectation:
    """The same expectation of a pair whose order does not matter; others as they are."""
    if expectation.kind not in ("same", "different") or expectation.condition:
        return expectation
    (premise,) = expectation.premises
    return replace(expectation, premises=(expectation.conclusion,), conclusion=premise)


def _expectation(row: Row, known: Mapping[str, Question]) -> Expectation | None:
    """The expectation of a row; None with a problem reported."""
    unknown = [name for name in row.cells if name not in COLUMNS]
    if unknown:
        todo = did_you_mean(str(unknown[0]), list(COLUMNS))
        row.report(f"the column '{unknown[0]}'", expected=", ".join(COLUMNS), todo=todo)
        return None
    kind = row.text("kind")
    if kind and kind not in KINDS:
        row.report(f"the kind '{kind}'", todo=did_you_mean(kind, list(KINDS)))
    items = _listed(row, "item")
    others = _listed(row, "other_item") or items[:1]
    if not items and kind:
        row.text("item")
    if kind not in KINDS or not items or not others:
        return None
    if len(others) > 1:
        row.report(f"{len(others)} questions in 'other_item'", expected="one")
        return None
    premises = _references(row, items, "paraphrase", known)
    conclusion = _references(row, others, "other_paraphrase", known)
    if premises is None or conclusion is None:
        return None
    draft = Expectation(cast(ExpectationKind, kind), premises, conclusion[0])
    if not _is_about_several(row, draft):
        return None
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
) -> tuple[Reference, ...] | None:
    """The questions of a side, with their phrasings; None with a problem reported."""
    unknown = [item for item in items if item not in known]
    if unknown:
        row.report(f"no question '{unknown[0]}'", todo=did_you_mean(unknown[0], list(known)))
        return None
    numbers = _listed(row, column) or [""] * len(items)
    if len(numbers) != len(items):
        row.report(f"{len(numbers)} phrasings in '{column}'", expected=f"{len(items)}")
        return None
    for item, number in zip(items, numbers, strict=True):
        most = known[item].phrasings
        if number and not (number.isdecimal() and 1 <= int(number) <= most):
            row.report(
                f"'{column}' is {number}", expected=f"a phrasing of '{item}', from 1 to {most}"
            )
            return None
    return tuple(
        Reference(item, str(int(number)) if number else "", _texts(known[item].options))
        for item, number in zip(items, numbers, strict=True)
    )


def _texts(options: Iterable[Choice]) -> Texts:
    return tuple(option.text for option in options)


def _is_about_several(row: Row, draft: Expectation) -> bool:
    """Whether no question is there twice, and there are as many as its kind takes."""
    shown = [
        one.item + (f" in phrasing {one.paraphrase}" if one.paraphrase else "")
        for one in draft.references
    ]
    for at, one in enumerate(draft.references):
        if one in draft.references[:at]:
            row.report(
                f"'{shown[at]}' is compared with itself",
                expected="two questions, or two phrasings of one",
                todo="Name the other question in 'other_item', or the phrasings in 'paraphrase' "
                "and 'other_paraphrase'.",
            )
            return False
    if len(draft.premises) > 1 and draft.kind not in ("implied", "complementary"):
        row.report(f"{len(draft.premises)} questions in 'item' of '{draft.kind}'", expected="one")
        return False
    return True


def _with_rules(row: Row, draft: Expectation, questions: list[Question]) -> Expectation | None:
    """The expectation with what its answers are expected to be; None with a problem reported."""
    has_map, has_condition = (bool(row.cells.get(name)) for name in ("map", "condition"))
    takes = {
        "map": ("opposite", "implied", "merges"),
        "condition": ("same", "different", "opposite"),
    }
    for name, is_given in (("map", has_map), ("condition", has_condition)):
        if is_given and draft.kind not in takes[name]:
            row.report(
                f"a '{name}' of '{draft.kind}'",
                expected=f"'{name}' only of {' and '.join(takes[name])}",
                todo="Remove it, or name another kind.",
            )
            return None
    rules: dict[Texts, Texts] | None = {}
    if has_map:
        rules = _rules(row, questions)
    elif draft.kind in ("implied", "merges"):
        row.report(f"no 'map' of '{draft.kind}'", expected="a map such as yes -> no")
        return None
    elif draft.kind == "complementary":
        rules = _exactly_one(row, questions)
    elif not _have_same_options(row, draft):
        return None
    elif draft.kind == "opposite":
        first, second = draft.conclusion.options
        rules = {(first,): (second,), (second,): (first,)}
    if rules is None:
        return None
    condition = _condition(row, questions[0]) if has_condition else ()
    if condition is None:
        return None
    return _complete(row, replace(draft, rules=rules, condition=condition))


def _complete(row: Row, expectation: Expectation) -> Expectation | None:
    """The expectation, unless its map does not fit its condition or its kind: it is reported."""
    condition, rules = expectation.condition, expectation.rules
    if condition and rules and not any(answer in condition for answer, *_ in rules):
        row.report("'condition' can never hold", expected="an answer that is in the map")
    elif expectation.kind == "merges" and not expectation.merges_all:
        row.report("a 'map' that merges not all options", expected="one answer after each option")
    else:
        return expectation
    return None


def _have_same_options(row: Row, draft: Expectation) -> bool:
    """Whether both questions have the same options; of ``opposite`` two."""
    first, second = (set(one.options) for one in draft.references)
    is_opposite = draft.kind == "opposite"
    if first == second and (len(first) == 2 or not is_opposite):
        return True
    shown = [", ".join(one.options) or "none" for one in draft.references]
    expected = "the same two options, or a 'map'" if is_opposite else "the same options"
    row.report(f"the options are {shown[0]} and {shown[1]}", expected=f"{expected} of both")
    return False


def _rules(row: Row, questions: list[Question]) -> dict[Texts, Texts] | None:
    """The map: answers to the premises -> answers that the last question may get."""
    value = row.cells["map"]
    entries = list(value.items()) if isinstance(value, Mapping) else _arrows(row, value)
    rules: dict[Texts, Texts] = {}
    for left, right in entries or ():
        answers = [part.strip() for part in str(left).split(AND)]
        expected = right if isinstance(right, list | tuple) else str(right).split(OR)
        if len(answers) != len(questions) - 1:
            row.report(
                f"{len(answers)} answers before the arrow in 'map': {left}",
                expected=f"{len(questions) - 1} with '{AND}' between them, one for each premise",
            )
            return None
        premises = [
            _answer(row, answer, question)
            for answer, question in zip(answers, questions, strict=False)
        ]
        conclusions = [_answer(row, str(answer), questions[-1]) for answer in expected]
        if None in premises or None in conclusions:
            return None
        key = cast(Texts, tuple(premises))
        if key in rules:
            row.report(f"'{left}' more than once in 'map'", todo="Join what it implies with '|'.")
            return None
        rules[key] = cast(Texts, tuple(dict.fromkeys(conclusions)))
    return rules or None


def _arrows(row: Row, value: object) -> list[tuple[str, str]] | None:
    """The parts of a map in one text; None with a problem reported."""
    parts = [part.partition(ARROW) for part in str(value).split(OPTION_SEPARATOR) if part.strip()]
    if all(arrow and left.strip() and right.strip() for left, arrow, right in parts):
        return [(left.strip(), right.strip()) for left, _, right in parts]
    row.report(f"'map' is {value}", expected="answers -> answers, such as yes -> no; no -> yes")
    return None


def _answer(row: Row, text: str, question: Question) -> str | None:
    """The option that a text names, or the text for an open question; None where unknown."""
    text = text.strip()
    if not question.options:
        return BOOLEANS.get(text, text)
    for name in (text, BOOLEANS.get(text, text)):
        for option in question.options:
            if normal(name) in map(normal, option.texts):
                return option.text
    shown = ", ".join(_texts(question.options))
    row.report(f"the answer '{text}'", expected=f"one of the options of '{question.item}': {shown}")
    return None


def _condition(row: Row, question: Question) -> Texts | None:
    """The answers that the expectation is about; None with a problem reported."""
    value = row.cells["condition"]
    texts = value if isinstance(value, list | tuple) else str(value).split(OR)
    answers = [_answer(row, str(text), question) for text in texts]
    return None if None in answers else cast(Texts, tuple(dict.fromkeys(answers)))


def _exactly_one(row: Row, questions: list[Question]) -> dict[Texts, Texts] | None:
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
            return None
        positive += matching
    options = [_texts(question.options) for question in questions]
    size = 1
    for texts in options[:-1]:
        size *= len(texts)
    if size > MOST_RULES:
        row.report(f"{size:,} combinations of answers", expected=f"at most {MOST_RULES:,}")
        return None
    rules: dict[Texts, Texts] = {}
    for answers in product(*options[:-1]):
        count = sum(answer == yes for answer, yes in zip(answers, positive, strict=False))
        others = tuple(text for text in options[-1] if text != positive[-1])
        rules[answers] = {0: (positive[-1],), 1: others}.get(count, ())
    return rules
