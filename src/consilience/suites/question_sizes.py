"""The sizes of a suite of questions and of its groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from consilience.questions import Question
from consilience.suites.question_collection import Questions


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Counts of one group of questions."""

    group: str
    questions: int
    min_phrasings: int
    max_phrasings: int
    min_options: int
    """Fewest options of a question; 0 for open questions."""
    max_options: int
    majority: float
    """Share of the questions whose gold is at the most frequent position; NaN without options."""


@dataclass(frozen=True, slots=True)
class QuestionStatistics:
    """Counts of a suite of questions."""

    groups: int
    questions: int
    phrasings: int
    languages: int
    expectations: int
    """Number of expectations between answers."""
    by_group: tuple[GroupStatistics, ...] = field(repr=False)


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
