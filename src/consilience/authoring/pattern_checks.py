"""Checks of the patterns of a suite: their form, and how they differ."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from consilience.authoring.checks import FactMaterial, Finding, check, is_english
from consilience.authoring.near_duplicates import normal_form
from consilience.cloze import Pattern
from consilience.text import closes_sentence, counted, listed

SPACE_FAULT = re.compile(r"\s{2,}|[^\S ]|^\s|\s$|\s(?=[.,](?:\s|$))")
"""A doubled space, a space that is no plain one, one at an end, and one before a stop or comma."""

NUMBER_WORDS = {"is": "singular", "are": "plural", "was": "singular", "were": "plural"}
NUMBER = re.compile(r"(?<!and )\[([XY])\] (is|are|was|were)\b")
"""A verb that agrees in number with the slot before it; not after ``[X] and``."""

VOWEL_SOUND = re.compile(r"(?:hour|honest|honou?r|heir)|(?!uni(?!n)|us|eu|one|ut)[aeiou]", re.I)
"""How an English word begins that takes ``an``."""


@check(
    "warning",
    meaning="doubled spaces, spaces at an end, or a space before a full stop or comma",
    todo="Run `suite audit --fix`.",
)
def spaces(material: FactMaterial) -> Iterator[Finding]:
    """Spaces that a tokenizer may see and a reader does not."""
    for relation, pattern in _patterns(material):
        if SPACE_FAULT.search(pattern.text):
            yield _of_pattern(material, relation, pattern, f"'{pattern.text}'")


@check(
    "warning",
    meaning="a pattern that does not end with sentence punctuation",
    todo="Run `suite audit --fix`; end patterns that stop at a comma by hand.",
)
def final_punctuation(material: FactMaterial) -> Iterator[Finding]:
    """Patterns without an ending, where any other pattern in their language has one.

    A suite may have fragments only, and some scripts, such as Thai, do without.
    """
    patterns = list(_patterns(material))
    ends = {pattern.language for _, pattern in patterns if has_ending(pattern.text)}
    for relation, pattern in patterns:
        if pattern.language in ends and not has_ending(pattern.text):
            yield _of_pattern(material, relation, pattern, f"'{pattern.text}'")


def has_ending(text: str) -> bool:
    """Whether a pattern ends with sentence punctuation."""
    last = text.rstrip()[-1:]
    return bool(last) and last != "]" and closes_sentence(last)


@check(
    "note",
    meaning="fewer than two patterns end right after [Y], so causal models have no consistency",
    todo="Add patterns that end in [Y], or measure causal models on other relations.",
)
def few_for_causal_models(material: FactMaterial) -> Iterator[Finding]:
    """Relations with several patterns that give a causal model less than two to compare."""
    for relation in material.suite:
        last = [pattern for pattern in relation.patterns if pattern.object_last]
        if len(relation.patterns) > 1 and len(last) < 2:
            size = len(relation.patterns)
            evidence = f"patterns that end after [Y]: {len(last)} of {size}"
            yield Finding(relation.id, evidence, count=size - len(last))


@check(
    "note",
    meaning="'a' or 'an' before [Y] that fits only some of the candidates",
    todo="Write the pattern without an article, or leave out the candidates that it does not fit.",
    needs="english",
)
def article(material: FactMaterial) -> Iterator[Finding]:
    """The published protocol skips such a pattern where the article gives the answer away."""
    for relation, pattern in _patterns(material, english_only=True):
        words = material.suite[relation].candidates.words
        if pattern.article and re.search(rf"{pattern.article} \[Y\]", pattern.text):
            unfit = [
                word for word in words if bool(VOWEL_SOUND.match(word)) != (pattern.article == "an")
            ]
            if unfit:
                evidence = (
                    f"'{pattern.text}': '{pattern.article}' does not fit {len(unfit)} of "
                    f"{counted(len(words), 'candidate')}, such as '{unfit[0]}'"
                )
                yield _of_pattern(material, relation, pattern, evidence, len(unfit))


@check(
    "warning",
    meaning="'is' after a slot where other patterns of the relation have 'are', or the reverse",
    todo="Use one number throughout the relation.",
    needs="english",
)
def number(material: FactMaterial) -> Iterator[Finding]:
    """Patterns whose verb has the rarer number after the same slot."""
    for relation in material.suite:
        uses: dict[str, list[tuple[str, Pattern]]] = defaultdict(list)
        for pattern in relation.patterns:
            if is_english(pattern):
                for slot, verb in NUMBER.findall(pattern.text):
                    uses[slot].append((NUMBER_WORDS[verb], pattern))
        for slot, verbs in uses.items():
            common, size = Counter(name for name, _ in verbs).most_common(1)[0]
            for name, pattern in verbs:
                if name != common and size > 1:
                    evidence = (
                        f"'{pattern.text}': a {name} verb after [{slot}]; {size} are {common}"
                    )
                    yield _of_pattern(material, relation.id, pattern, evidence)


@check(
    "note",
    meaning="patterns of one relation in different tenses",
    todo="Compare tenses on purpose, or use one tense; `analyze edits` shows what tense changes.",
    needs="tenses",
)
def tense(material: FactMaterial) -> Iterator[Finding]:
    """Relations with patterns in more than one tense; a pattern without a finite verb has none."""
    for relation in material.suite:
        tenses = (material.tenses or {}).get(relation.id, ())
        counts = Counter(name for name in tenses if name)
        if len(counts) < 2:
            continue
        common = counts.most_common(1)[0][0]
        others = [
            pattern.text
            for pattern, name in zip(relation.patterns, tenses, strict=True)
            if name and name != common
        ]
        sizes = ", ".join(f"{size} {name}" for name, size in counts.most_common())
        places = material.places.pattern(relation.id, *others)
        yield Finding(relation.id, f"{sizes}, such as '{others[0]}'", places, len(others))


@check(
    "note",
    meaning="a relation with one pattern",
    todo="Add patterns.",
    is_quick=True,
)
def single_pattern(material: FactMaterial) -> Iterator[Finding]:
    """Relations with one pattern, which have no consistency."""
    single = [relation for relation in material.suite if len(relation.patterns) == 1]
    if single:
        names = [relation.id for relation in single]
        places = [
            location
            for one in single
            for location in material.places.pattern(one.id, one.patterns[0].text)
        ]
        evidence = f"one pattern, so no consistency: {listed(names)}"
        yield Finding("", evidence, tuple(places), len(names))


@check(
    "warning",
    meaning="patterns of a relation that differ only in case, spaces or punctuation",
    todo="Remove one of the two.",
)
def duplicate_patterns(material: FactMaterial) -> Iterator[Finding]:
    """Pairs of patterns that are the same words in the same order."""
    for relation in material.suite:
        first: dict[str, str] = {}
        for pattern in relation.patterns:
            words = normal_form(pattern.text)
            if words in first:
                evidence = f"'{first[words]}' and '{pattern.text}'"
                places = material.places.pattern(relation.id, first[words], pattern.text)
                yield Finding(relation.id, evidence, places, 2)
            first.setdefault(words, pattern.text)


@check(
    "note",
    meaning="a pattern that is also a pattern of another relation",
    todo="Only the candidates distinguish the two. If models write freely, make it more specific.",
)
def asks_another_relation(material: FactMaterial) -> Iterator[Finding]:
    """Patterns with the words of a pattern of another relation, or with its path and lemmas.

    The path and the lemmas are compared where a parser is there. Exchanged slots are no match.
    """
    known: dict[object, tuple[str, str]] = {}
    for relation in material.suite:
        parsed = (material.signatures or {}).get(relation.id, [None] * len(relation.patterns))
        for pattern, signature in zip(relation.patterns, parsed, strict=True):
            keys = [key for key in (normal_form(pattern.text), signature) if key]
            other = next((known[key] for key in keys if key in known), None)
            if other and other[0] != relation.id:
                evidence = f"'{pattern.text}' asks as {other[0]} does: '{other[1]}'"
                places = (
                    *material.places.pattern(relation.id, pattern.text),
                    *material.places.pattern(*other),
                )
                yield Finding(relation.id, evidence, places)
            for key in keys:
                known.setdefault(key, (relation.id, pattern.text))


def _patterns(
    material: FactMaterial, *, english_only: bool = False
) -> Iterator[tuple[str, Pattern]]:
    for relation in material.suite:
        for pattern in relation.patterns:
            if not english_only or is_english(pattern):
                yield relation.id, pattern


def _of_pattern(
    material: FactMaterial, relation: str, pattern: Pattern, evidence: str, count: int = 1
) -> Finding:
    places = material.places.pattern(relation, pattern.text)
    return Finding(relation, evidence, places, count)
