"""The sizes of a suite of questions and of its groups, and what to mind in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consilience.questions import Question
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import normal
from consilience.text import counted

FEW_TO_BALANCE = 5
"""The fewest questions whose golds are expected at several positions."""


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Counts of one group of questions."""

    group: str
    """Its name."""
    questions: int
    """Number of questions."""
    min_phrasings: int
    """Fewest phrasings of a question."""
    max_phrasings: int
    """Most phrasings of a question."""
    min_options: int
    """Fewest options of a question; 0 for open questions."""
    max_options: int
    """Most options of a question."""
    majority: float
    """Share of the questions whose gold is at the most frequent position; NaN without options."""


@dataclass(frozen=True, slots=True)
class QuestionStatistics:
    """Counts of a suite of questions."""

    groups: int
    """Number of groups."""
    questions: int
    """Number of questions."""
    phrasings: int
    """Number of phrasings of all questions."""
    languages: int
    """Number of languages."""
    expectations: int
    """Number of expectations between answers."""
    by_group: tuple[GroupStatistics, ...] = field(repr=False)
    """The counts of each group."""


def question_statistics(questions: Questions) -> QuestionStatistics:
    """Count a whole suite of questions."""
    rows = tuple(_of_group(name, items) for name, items in questions.groups.items())
    return QuestionStatistics(
        groups=len(rows),
        questions=len(questions),
        phrasings=sum(sum(map(len, item.paraphrases.values())) for item in questions.items),
        languages=len(questions.languages),
        expectations=len(questions.expectations),
        by_group=rows,
    )


def _of_group(name: str, items: Sequence[Question]) -> GroupStatistics:
    phrasings = [item.phrasings for item in items]
    options = [len(item.options) for item in items]
    positions = Counter(item.gold_position for item in items if item.options)
    share = max(positions.values()) / sum(positions.values()) if positions else float("nan")
    return GroupStatistics(
        name, len(items), min(phrasings), max(phrasings), min(options), max(options), share
    )


def question_cautions(questions: Questions) -> list[str]:
    """Properties of questions that are no errors but decide what its numbers mean.

    Questions with one phrasing, which have no consistency of phrasings; groups whose options differ
    in number; golds that are always at one position; questions that are there more than once.
    """
    groups = questions.groups.items()
    return [f"{name}: {note}" for name, items in groups for note in _notes(items)]


def _notes(items: Sequence[Question]) -> Iterator[str]:
    single = [item.item for item in items if item.phrasings == 1]
    if single:
        has = "has" if len(single) == 1 else "have"
        yield f"{counted(len(single), 'question')} {has} one phrasing, such as {single[0]}"
    sizes = sorted({len(item.options) for item in items})
    if len(sizes) > 1:
        yield f"questions have {sizes[0]} to {sizes[-1]} options, which are chosen at other rates"
    positions = {item.gold_position for item in items if item.options}
    if len(positions) == 1 and len(items) >= FEW_TO_BALANCE:
        yield (
            f"the right answer is option {positions.pop() + 1} of every question; a model that "
            "always chooses it is right"
        )
    repeated = list(_repeated(items))
    if repeated:
        first, second = repeated[0]
        yield (
            f"{counted(len(repeated), 'duplicate question')}, such as "
            f"'{next(iter(first.paraphrases.values()))[0]}' (items {first.item}, {second.item})"
        )


def _repeated(items: Sequence[Question]) -> Iterator[tuple[Question, Question]]:
    """Questions that ask what an earlier one asks, if its answer may be given to them too."""
    earlier: dict[tuple[str, str], list[Question]] = {}
    for question in items:
        phrasings = {normal(text) for texts in question.paraphrases.values() for text in texts}
        keys = [(text, normal(question.context)) for text in phrasings]
        same = [other for key in keys for other in earlier.get(key, ())]
        allowed = {option.text for option in question.options}
        again = next((other for other in same if not allowed or other.gold.text in allowed), None)
        if again is not None:
            yield again, question
        for key in keys:
            earlier.setdefault(key, []).append(question)
