"""Checks of suites of questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from consilience.authoring.checks import Finding, check
from consilience.authoring.fact_checks import contains, without_accents
from consilience.authoring.near_duplicates import normal_form
from consilience.authoring.pattern_checks import SPACE_FAULT
from consilience.questions import Question
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import normal
from consilience.text import counted

FEW_TO_BALANCE = 5
"""The fewest questions whose golds are expected at several positions."""


@check(
    "note",
    meaning="questions with one phrasing",
    todo="Add phrasings, or vary other factors (docs/factors.md).",
    of="questions",
    is_quick=True,
)
def one_phrasing(questions: Questions) -> Iterator[Finding]:
    """Such questions have no consistency of phrasings."""
    for name, items in questions.groups.items():
        single = [item for item in items if item.phrasings == 1]
        if single:
            has = "has" if len(single) == 1 else "have"
            noun = counted(len(single), "question")
            evidence = f"{noun} {has} one phrasing, such as {single[0].item}"
            yield Finding(name, evidence, _places(single), len(single))


@check(
    "note",
    meaning="questions of a group with different numbers of options",
    todo="Give all questions of a group as many options.",
    of="questions",
    is_quick=True,
)
def options_differ(questions: Questions) -> Iterator[Finding]:
    """Random answers are right at other rates."""
    for name, items in questions.groups.items():
        sizes = sorted({len(item.options) for item in items})
        if len(sizes) > 1:
            evidence = (
                f"questions have {sizes[0]} to {sizes[-1]} options, which are chosen at other rates"
            )
            yield Finding(name, evidence, (), len(items))


@check(
    "warning",
    meaning="the right answer is at the same position in every question of a group",
    todo="Use `distractors` in place of `options`: their order is drawn.",
    of="questions",
    is_quick=True,
)
def gold_position(questions: Questions) -> Iterator[Finding]:
    """A model that always chooses that position is right."""
    for name, items in questions.groups.items():
        positions = {item.gold_position for item in items if item.options}
        if len(positions) == 1 and len(items) >= FEW_TO_BALANCE:
            evidence = (
                f"the right answer is option {positions.pop() + 1} of every question; a model that "
                "always chooses it is right"
            )
            yield Finding(name, evidence, (), len(items))


@check(
    "warning",
    meaning="questions that ask the same",
    todo="Make one question of the two: further rows with the same item are phrasings.",
    of="questions",
    is_quick=True,
)
def duplicate_questions(questions: Questions) -> Iterator[Finding]:
    """Questions that ask what an earlier one asks, if its answer may be given to them too."""
    for name, items in questions.groups.items():
        repeated = list(_repeated(items))
        if repeated:
            first, second = repeated[0]
            evidence = (
                f"{counted(len(repeated), 'duplicate question')}, such as "
                f"'{next(iter(first.paraphrases.values()))[0]}' "
                f"(items {first.item}, {second.item})"
            )
            places = _places([item for pair in repeated for item in pair])
            yield Finding(name, evidence, places, len(repeated))


@check(
    "warning",
    meaning="the same question in two groups",
    todo="Keep it in one group, so that groups can be divided into training and test.",
    of="questions",
)
def shared_questions(questions: Questions) -> Iterator[Finding]:
    """A phrasing that is in two groups, with the same context."""
    first: dict[tuple[str, str], Question] = {}
    shared: dict[tuple[str, str], list[tuple[Question, Question]]] = defaultdict(list)
    for question in questions.items:
        keys = [(normal(text), normal(question.context)) for text in _texts(question)]
        others = (first[key] for key in keys if key in first)
        other = next((one for one in others if one.group != question.group), None)
        if other:
            shared[other.group, question.group].append((other, question))
        for key in keys:
            first.setdefault(key, question)
    for (one, two), pairs in shared.items():
        evidence = (
            f"{counted(len(pairs), 'question')} also in {one}, such as '{_texts(pairs[0][1])[0]}' "
            f"(items {pairs[0][0].item}, {pairs[0][1].item})"
        )
        yield Finding(two, evidence, _places([item for pair in pairs for item in pair]), len(pairs))


@check(
    "warning",
    meaning="phrasings of a question that differ only in case, spaces or punctuation",
    todo="Remove one of the two.",
    of="questions",
)
def same_phrasings(questions: Questions) -> Iterator[Finding]:
    """Such phrasings measure tokenization, and count as consistent paraphrases."""
    for question in questions.items:
        for texts in question.paraphrases.values():
            for one, two in combinations(texts, 2):
                if normal_form(one) == normal_form(two):
                    evidence = f"'{one}' and '{two}' (item {question.item})"
                    yield Finding(question.group, evidence, _places([question]), 2)


@check(
    "warning",
    meaning="doubled spaces, spaces at an end, or a space before a full stop or comma",
    todo="Correct the file.",
    of="questions",
)
def question_spaces(questions: Questions) -> Iterator[Finding]:
    """Spaces in questions or options that a tokenizer may see and a reader does not."""
    for question in questions.items:
        texts = [*_texts(question), *(text for one in question.options for text in one.texts)]
        for text in texts:
            if SPACE_FAULT.search(text):
                yield Finding(
                    question.group, f"'{text}' (item {question.item})", _places([question])
                )


@check(
    "note",
    meaning="questions whose right answer is in the question, and no other option is",
    todo="Report them apart, or leave them out: the answer can be copied.",
    of="questions",
)
def answer_in_question(questions: Questions) -> Iterator[Finding]:
    """The gold is in every phrasing as whole words; a context does not count."""
    for name, items in questions.groups.items():
        inside = [item for item in items if _tells_its_answer(item)]
        if inside:
            evidence = (
                f"{len(inside)} of {counted(len(items), 'question')}, such as "
                f"'{_texts(inside[0])[0]}', '{inside[0].gold.text}' (item {inside[0].item})"
            )
            yield Finding(name, evidence, _places(inside), len(inside))


@check(
    "warning",
    meaning="options of a question that mean the same: aliases, accents or case",
    todo="Replace one of them.",
    of="questions",
)
def same_options(questions: Questions) -> Iterator[Finding]:
    """Options that share a text or an alias, without case, accents and hyphens."""
    for question in questions.items:
        for one, two in combinations(question.options, 2):
            if {*map(without_accents, one.texts)} & {*map(without_accents, two.texts)}:
                evidence = f"'{one.text}' and '{two.text}' (item {question.item})"
                yield Finding(question.group, evidence, _places([question]), 2)


def _tells_its_answer(question: Question) -> bool:
    texts = _texts(question)
    if not all(contains(text, question.gold.text) for text in texts):
        return False
    others = [option.text for option in question.options if option != question.gold]
    return not any(contains(text, other) for text in texts for other in others)


def _repeated(items: Sequence[Question]) -> Iterator[tuple[Question, Question]]:
    earlier: dict[tuple[str, str], list[Question]] = {}
    for question in items:
        phrasings = {normal(text) for text in _texts(question)}
        keys = [(text, normal(question.context)) for text in phrasings]
        same = [other for key in keys for other in earlier.get(key, ())]
        allowed = {option.text for option in question.options}
        again = next((other for other in same if not allowed or other.gold.text in allowed), None)
        if again is not None:
            yield again, question
        for key in keys:
            earlier.setdefault(key, []).append(question)


def _texts(question: Question) -> list[str]:
    return [text for texts in question.paraphrases.values() for text in texts]


def _places(items: Sequence[Question]) -> tuple[str, ...]:
    """The places of questions that came from a file."""
    return tuple(Counter(item.where for item in items if item.where))
