"""Cloze sentences as questions: each pattern of a relation becomes a phrasing with a blank."""

from __future__ import annotations

import random
from collections.abc import Iterator

from consilience.errors import ConsilienceError
from consilience.questions import DEFAULT_LANGUAGE, Choice, Question
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import normal
from consilience.text import counted
from consilience.types import Fact, Relation, Suite

QUESTION = "Fill in the blank: {sentence}"
"""The question; ``{sentence}`` is the pattern with its subject and ``BLANK`` for the object."""

BLANK = "____"
"""Replaces the object."""


def questions_of_suite(suite: Suite, distractors: int | None = None, seed: int = 0) -> Questions:
    """All relations of a suite as questions, a group each (``questions_of_relation``)."""
    parts = [questions_of_relation(relation, distractors, seed) for relation in suite.relations]
    items = tuple(question for part in parts for question in part.items)
    notes = tuple(note for part in parts for note in part.notes)
    if not items:
        raise ConsilienceError(
            f"no question can be made of '{suite.name}'",
            expected="subjects with one right object",
            todo="Ask with options.",
        )
    return Questions(suite.name, items, (*suite.notes, *notes))


def questions_of_relation(
    relation: Relation, distractors: int | None = None, seed: int = 0
) -> Questions:
    """The facts of a relation as questions, with a phrasing for each pattern.

    ``distractors``: how many wrong options each question has, drawn by ``seed`` from the candidates
    of the relation without replacement, gold and distractors in an order drawn by it, too. None has
    all candidates, in their order. 0 makes open questions.

    In a relation with several right objects for a subject (N-M), the other right objects are no
    options, so exactly one option is right. A subject with several right objects is no open
    question and is left out, with a note. Of such a relation all facts are needed: a sample of them
    raises, because another right object could be unknown.
    """
    if relation.names:
        raise ConsilienceError(
            f"the relation '{relation.id}', whose names are written in several languages or forms",
            expected="one, because the options of a question are the same in all its phrasings",
            todo="Ask its facts without --as-questions.",
        )
    _refuse_sample(relation)
    golds: dict[str, dict[str, None]] = {}
    for fact in relation.facts:
        golds.setdefault(fact.subject, {})[normal(fact.object)] = None
    if distractors == 0:
        several = [fact for fact in relation.facts if len(golds[fact.subject]) > 1]
        items = [_question(relation, fact, ()) for fact in relation.facts if fact not in several]
        notes = []
        if several:
            left_out = counted(len({fact.subject for fact in several}), "subject")
            notes.append(
                f"{relation.id}: {left_out} with several right objects "
                "cannot be an open question with one answer and were left out"
            )
        return Questions(relation.id, tuple(items), tuple(notes))
    items = [
        _question(relation, fact, _options(relation, fact, golds[fact.subject], distractors, seed))
        for fact in relation.facts
    ]
    return Questions(relation.id, tuple(items))


def _refuse_sample(relation: Relation) -> None:
    total = sum(relation.candidates.counts)
    if relation.cardinality == "N-M" and len(relation.facts) < total:
        raise ConsilienceError(
            f"{len(relation.facts)} of {total} facts of the relation '{relation.id}' (N-M)",
            expected="all its facts, to know every right object of a subject",
            todo="Make the questions of the whole suite, and take a sample of the questions.",
        )


def _question(relation: Relation, fact: Fact, options: tuple[str, ...]) -> Question:
    return Question(
        fact.item,
        relation.id,
        {DEFAULT_LANGUAGE: tuple(_phrasings(relation, fact))},
        Choice(fact.object),
        tuple(map(Choice, options)),
    )


def _phrasings(relation: Relation, fact: Fact) -> Iterator[str]:
    for pattern in relation.patterns:
        yield QUESTION.replace("{sentence}", pattern.fill_blank(fact.subject, BLANK))


def _options(
    relation: Relation, fact: Fact, golds: dict[str, None], distractors: int | None, seed: int
) -> tuple[str, ...]:
    """The texts of the options of a fact; ``golds``: the right objects of its subject."""
    words: dict[str, str] = {}
    for word in relation.candidates.words:
        words.setdefault(normal(word), word)
    wrong = {key: word for key, word in words.items() if key not in golds}
    if distractors is None:
        gold = normal(fact.object)
        shown = wrong | {gold: fact.object}
        return tuple(shown[key] for key in words if key in shown)
    if distractors > len(wrong):
        raise ConsilienceError(
            f"{counted(len(wrong), 'wrong candidate')} for '{fact.subject}'",
            expected=f"{distractors} or more, to draw distractors from",
            where=f"the relation '{relation.id}'",
            todo="Ask with fewer distractors.",
        )
    generator = random.Random(f"{seed}\t{relation.id}\t{fact.item}")
    drawn = [fact.object, *generator.sample(list(wrong.values()), distractors)]
    return tuple(generator.sample(drawn, len(drawn)))
