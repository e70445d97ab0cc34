"""Sheets on patterns: do they mean the same as the base pattern? (ParaRel, Section 4)."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from consilience.authoring.annotation import SheetItem, SheetKey
from consilience.authoring.near_duplicates import normal_form
from consilience.cloze import Pattern
from consilience.design import ORIGINAL
from consilience.errors import ConsilienceError
from consilience.text import names_a_file
from consilience.types import Fact, Relation, Suite

SAME, DIFFERENT = "same", "different"
"""What annotators may answer."""

QUESTION = "Do these two sentences say the same?"

PARAPHRASES_OF_A_TASK = 5
CONTROLS_OF_A_TASK = 2
"""A task has seven pairs of sentences, as in the paper."""

Items = dict[str, SheetItem]


@dataclass(frozen=True, slots=True)
class JudgedPattern:
    """A pattern that annotators compare with the base pattern of its relation and language."""

    relation: Relation
    base: Pattern
    pattern: Pattern
    fact: Fact

    @property
    def item(self) -> str:
        """Names it in the key."""
        return f"{self.relation.id}: {self.pattern.text}"

    def texts(self, other: Pattern) -> tuple[str, str]:
        """The base pattern and another pattern, filled with the fact."""
        queries = (self.relation.query(pattern, self.fact) for pattern in (self.base, other))
        first, second = (query.pattern.fill(query.subject, query.gold) for query in queries)
        return first, second

    def is_known_in(self, other: Pattern, language: str) -> bool:
        """Whether the fact's names are known in the forms that another pattern needs.

        ``language``: of the facts, whose names are their own base forms. A name in another form or
        language would give a control away.
        """
        writings = (
            (self.fact.subject, (other.language, other.subject_form)),
            (self.fact.object, (other.language, other.object_form)),
        )
        return all(
            writing == (language, "") or name in self.relation.names.get(writing, ())
            for name, writing in writings
        )


def draw_pattern_sheets(
    suite: Suite, *, patterns: int = 5, annotators: Sequence[str], seed: int = 0
) -> SheetKey:
    """Compare up to ``patterns`` of each relation with its base pattern, beside controls.

    Paraphrases are filled with a random fact of their relation. Five of them and two controls make
    a task. A control is one of the task's sentences and a pattern of another relation, filled with
    the same subject and object, in their language and form. The order of the tasks, and of the
    pairs in each, is the annotator's own. There may be fewer controls, or none: in a suite with one
    relation, and where no pattern of another relation needs a form that the names are known in.
    """
    _check_names(annotators)
    generator = random.Random(f"{seed}, {suite.digest}")
    judged = list(_judged(suite, patterns, generator))
    if not judged:
        raise ConsilienceError(
            f"the suite '{suite.name}' has no relation with two patterns",
            expected="patterns to compare with a base pattern",
            todo="Add patterns.",
        )
    generator.shuffle(judged)
    items: Items = {}
    tasks: list[list[str]] = []
    for start in range(0, len(judged), PARAPHRASES_OF_A_TASK):
        task = judged[start : start + PARAPHRASES_OF_A_TASK]
        of_task = {one.item: SheetItem(SAME, {ORIGINAL: one.texts(one.pattern)}) for one in task}
        size = max(1, round(CONTROLS_OF_A_TASK * len(task) / PARAPHRASES_OF_A_TASK))
        of_task |= _controls(suite, task, size, generator)
        items |= of_task
        tasks.append(list(of_task))
    content = json.dumps([[name, item.texts[ORIGINAL]] for name, item in items.items()])
    return SheetKey(
        suite.name, QUESTION, (SAME, DIFFERENT), seed, hashlib.sha256(content.encode()).hexdigest(),
        items, {name: _order(tasks, name, seed) for name in annotators},
        {one.item: (one.relation.id, one.pattern.text) for one in judged},
    )  # fmt: skip


def _check_names(annotators: Sequence[str]) -> None:
    """Raise for names that cannot name a file, or that name the same one on some systems."""
    known: dict[str, str] = {}
    for name in annotators:
        if not names_a_file(name) or name.casefold() == "key":
            raise ConsilienceError(
                f"the annotator '{name}'", expected="a short name that can name a file"
            )
        if other := known.get(name.casefold()):
            raise ConsilienceError(
                f"the annotators '{other}' and '{name}'",
                expected="names that differ by more than case, because they name files",
                todo="Give each person another name.",
            )
        known[name.casefold()] = name


def patterns_to_compare(suite: Suite) -> list[int]:
    """For each relation and language, the number of patterns besides the base pattern."""
    sizes = Counter((one.id, pattern.language) for one in suite for pattern in one.patterns)
    return [size - 1 for size in sizes.values()]


def _judged(suite: Suite, most: int, generator: random.Random) -> Iterator[JudgedPattern]:
    """At most ``most`` patterns of each relation and language, in its order."""
    for relation in suite:
        for language in dict.fromkeys(pattern.language for pattern in relation.patterns):
            base, *others = (one for one in relation.patterns if one.language == language)
            drawn = sorted(generator.sample(range(len(others)), min(most, len(others))))
            for at in drawn:
                yield JudgedPattern(relation, base, others[at], generator.choice(relation.facts))


def _controls(
    suite: Suite, task: Sequence[JudgedPattern], size: int, generator: random.Random
) -> Items:
    """At most ``size`` pairs that do not mean the same, with subjects and objects of the task."""
    controls: Items = {}
    drawn = generator.sample(task, min(size, len(task)))
    for judged in (*drawn, *(one for one in task if one not in drawn)):
        if len(controls) == size:
            break
        texts = {normal_form(pattern.text) for pattern in judged.relation.patterns}
        others = [
            (relation.id, pattern)
            for relation in suite
            if relation is not judged.relation
            for pattern in relation.patterns
            if pattern.language == judged.base.language
            and normal_form(pattern.text) not in texts
            and judged.is_known_in(pattern, suite.language)
        ]
        if others:
            name, pattern = generator.choice(others)
            pair = judged.texts(pattern)
            controls[f"{judged.item} / {name}: {pattern.text}"] = SheetItem(
                DIFFERENT, {ORIGINAL: pair}
            )
    return controls


def _order(
    tasks: Sequence[Sequence[str]], annotator: str, seed: int
) -> tuple[tuple[str, str], ...]:
    """Every item once: tasks and the pairs in them in the annotator's own order."""
    generator = random.Random(f"{seed}, annotator {annotator}")
    shuffled = generator.sample(tasks, len(tasks))
    return tuple(
        (item, ORIGINAL) for task in shuffled for item in generator.sample(task, len(task))
    )
