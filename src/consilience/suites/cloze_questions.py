"""Cloze sentences as questions: each pattern of a relation becomes a phrasing with a blank."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from consilience.errors import ConsilienceError
from consilience.questions import DEFAULT_LANGUAGE, Choice, Question
from consilience.suites.question_collection import Questions
from consilience.suites.question_rows import normal
from consilience.text import counted, listed
from consilience.types import Fact, Relation, Suite

QUESTIONS = {
    "en": "Fill in the blank: {sentence}",
    "de": "Fülle die Lücke aus: {sentence}",
    "es": "Completa el espacio en blanco: {sentence}",
    "ja": "次の空欄を埋めてください。{sentence}",
}
"""The question by language; ``{sentence}`` is the pattern with its subject and ``BLANK`` for the
object. In other languages it is the sentence alone."""

BLANK = "____"
"""Replaces the object."""


def questions_of_suite(suite: Suite, distractors: int | None = None, seed: int = 0) -> Questions:
    """All relations of a suite as questions, a group each (``questions_of_relation``)."""
    languages = list(
        dict.fromkeys(pattern.language for group in suite for pattern in group.patterns)
    )
    several = len(languages) > 1
    parts = [
        questions_of_relation(relation, distractors, seed, several) for relation in suite.relations
    ]
    items = tuple(question for part in parts for question in part.items)
    notes = [note for part in parts for note in part.notes]
    if not items:
        raise ConsilienceError(
            f"no question can be made of '{suite.name}'",
            expected="subjects with one right object",
            todo="Ask with options.",
        )
    alone = [language for language in languages if _primary(language) not in QUESTIONS]
    if alone:
        notes.append(
            f"questions in {listed(alone, len(alone))} are the sentence with its blank, without "
            "words such as 'Fill in the blank'"
        )
    return Questions(suite.name, items, (*suite.notes, *notes))


def questions_of_relation(
    relation: Relation,
    distractors: int | None = None,
    seed: int = 0,
    several: bool | None = None,
) -> Questions:
    """The facts of a relation as questions, with a phrasing for each pattern.

    ``distractors``: how many wrong options each question has, drawn by ``seed`` from the candidates
    of the relation without replacement, gold and distractors in an order drawn by it, too. None has
    all candidates, in their order. 0 makes open questions.

    Patterns in several languages are phrasings in these languages. Where names are written in
    several languages or forms, the options of a phrasing are written as its pattern needs them, and
    all ways to write an option are its aliases.

    In a relation with several right objects for a subject (N-M), the other right objects are no
    options, so exactly one option is right. A subject with several right objects is no open
    question and is left out, with a note. Of such a relation all facts are needed: a sample of them
    raises, because another right object could be unknown.

    ``several``: whether phrasings name their language; None where the patterns have several.
    """
    several = bool(relation.design.languages) if several is None else several
    _refuse_sample(relation)
    golds: dict[str, dict[str, None]] = {}
    for fact in relation.facts:
        golds.setdefault(fact.subject, {})[normal(fact.object)] = None
    facts, notes = list(relation.facts), []
    if distractors == 0:
        facts = [fact for fact in relation.facts if len(golds[fact.subject]) == 1]
        left_out = {fact.subject for fact in relation.facts if len(golds[fact.subject]) > 1}
        if left_out:
            notes.append(
                f"{relation.id}: {counted(len(left_out), 'subject')} with several right objects "
                "cannot be an open question with one answer and were left out"
            )
    choices = _choices(relation)
    items = []
    for fact in facts:
        words: tuple[str, ...] = ()
        if distractors != 0:
            words = _options(relation, fact, golds[fact.subject], distractors, seed)
        items.append(_question(relation, fact, words, choices, several))
    return Questions(relation.id, tuple(items), tuple(notes))


def _choices(relation: Relation) -> dict[str, Choice]:
    """The candidates with all ways to write them, without a text that another one has, too."""
    texts = {
        word: list(
            dict.fromkeys([word, *(relation.written(word, *writing) for writing in relation.names)])
        )
        for word in relation.candidates.words
    }
    counts = Counter(normal(text) for of_word in texts.values() for text in set(of_word))
    return {
        word: Choice(word, tuple(text for text in of_word[1:] if counts[normal(text)] == 1))
        for word, of_word in texts.items()
    }


def _refuse_sample(relation: Relation) -> None:
    total = sum(relation.candidates.counts)
    if relation.cardinality == "N-M" and len(relation.facts) < total:
        raise ConsilienceError(
            f"{len(relation.facts)} of {total} facts of the relation '{relation.id}' (N-M)",
            expected="all its facts, to know every right object of a subject",
            todo="Make the questions of the whole suite, and take a sample of the questions.",
        )


def _question(
    relation: Relation,
    fact: Fact,
    options: tuple[str, ...],
    choices: Mapping[str, Choice],
    several: bool,
) -> Question:
    phrasings: dict[str, list[str]] = {}
    written = {}
    for pattern in relation.patterns:
        language = pattern.language if several else DEFAULT_LANGUAGE
        subject = relation.query(pattern, fact).subject
        of_language = phrasings.setdefault(language, [])
        if relation.names:
            written[language, len(of_language)] = tuple(
                relation.written(word, pattern.language, pattern.object_form)
                for word in options or (fact.object,)
            )
        words = QUESTIONS.get(_primary(pattern.language), "{sentence}")
        of_language.append(words.replace("{sentence}", pattern.fill_blank(subject, BLANK)))
    return Question(
        fact.item,
        relation.id,
        {language: tuple(texts) for language, texts in phrasings.items()},
        choices[fact.object],
        tuple(choices[word] for word in options),
        written=written,
    )


def _primary(language: str) -> str:
    """``pt`` of ``pt-BR``."""
    return language.partition("-")[0]


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
