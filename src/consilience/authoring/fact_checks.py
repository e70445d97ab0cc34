"""Checks of the facts of a suite and of its candidates."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from consilience.authoring.checks import FactMaterial, Finding, check
from consilience.text import counted, fold_case, listed, whole_words
from consilience.types import Relation


@check(
    "warning",
    meaning="subjects of an N-1 relation with several objects",
    todo="Keep one object for each subject, or make the relation N-M.",
    is_quick=True,
)
def several_golds(material: FactMaterial) -> Iterator[Finding]:
    """An answer that is another right object counts as wrong there."""
    for relation in material.suite:
        if relation.cardinality != "N-1":
            continue
        objects: dict[str, dict[str, None]] = defaultdict(dict)
        for fact in relation.facts:
            objects[fact.subject][fact.object] = None
        several = {subject: list(golds) for subject, golds in objects.items() if len(golds) > 1}
        if several:
            subject, golds = next(iter(several.items()))
            evidence = (
                f"{counted(len(several), 'subject')} of an N-1 relation with several objects, "
                f"such as '{subject}': {listed(golds)}"
            )
            facts = [(name, gold) for name, golds in several.items() for gold in golds]
            yield Finding(relation.id, evidence, _places(material, relation, facts), len(several))


@check(
    "warning",
    meaning="facts that are in a relation more than once",
    todo="Run `suite audit --fix`.",
    is_quick=True,
)
def duplicate_facts(material: FactMaterial) -> Iterator[Finding]:
    """A duplicate fact counts twice in accuracy."""
    for relation in material.suite:
        items: dict[tuple[str, str], list[str]] = defaultdict(list)
        for fact in relation.facts:
            items[fact.subject, fact.object].append(fact.item)
        duplicates = {pair: names for pair, names in items.items() if len(names) > 1}
        if duplicates:
            (subject, gold), names = next(iter(duplicates.items()))
            surplus = sum(map(len, duplicates.values())) - len(duplicates)
            evidence = (
                f"{counted(surplus, 'duplicate fact')}, such as '{subject}', '{gold}' "
                f"(items {listed(names)})"
            )
            places = _places(material, relation, list(duplicates))
            yield Finding(relation.id, evidence, places, surplus)


@check(
    "warning",
    meaning="subjects or candidates that differ only in case, spaces, apostrophes or Unicode form",
    todo="Write each name in one way.",
    is_quick=True,
)
def same_spelling(material: FactMaterial) -> Iterator[Finding]:
    """Two spellings of a subject are two items; of an object, two candidates, one of them right."""
    for relation in material.suite:
        for words in _spellings(relation.candidates.words):
            places = _of_objects(material, relation, words)
            yield Finding(relation.id, _how_they_differ(words), places, len(words))
        for words in _spellings(fact.subject for fact in relation.facts):
            first = {fact.subject: fact.object for fact in reversed(relation.facts)}
            places = _places(material, relation, [(word, first[word]) for word in words])
            yield Finding(relation.id, f"subjects: {_how_they_differ(words)}", places, len(words))


def _spellings(names: Iterable[str]) -> Iterator[list[str]]:
    """Each group of different names with the same ``one_spelling``."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        spellings[one_spelling(name)].append(name)
    return (same for same in spellings.values() if len(same) > 1)


APOSTROPHES = str.maketrans("\u2018\u2019\u02bc`", "''''")
"""Every apostrophe -> the straight one."""


def one_spelling(name: str) -> str:
    """A name without case and repeated spaces, with straight apostrophes, in Unicode form NFC."""
    folded = fold_case(unicodedata.normalize("NFC", name)).translate(APOSTROPHES)
    return " ".join(folded.split())


def _how_they_differ(words: Sequence[str]) -> str:
    quoted = [f"'{word}'" for word in sorted(words)]
    ways = ["case", "spaces"]
    if len({word.translate(APOSTROPHES) for word in words}) < len(words):
        ways.append("apostrophes")
    if len({unicodedata.normalize("NFC", word) for word in words}) < len(words):
        ways.append("Unicode form")
    how = f"{', '.join(ways[:-1])} or {ways[-1]}"
    return f"{', '.join(quoted[:-1])} and {quoted[-1]} differ only in {how}"


@check(
    "warning",
    meaning="subjects that are written alike in a language",
    todo="Write more in the table `names`, so that the question has one answer.",
    is_quick=True,
)
def written_alike(material: FactMaterial) -> Iterator[Finding]:
    """Facts whose questions are the same text in a language of the suite."""
    for relation in material.suite:
        subjects = dict.fromkeys(fact.subject for fact in relation.facts)
        for (language, form), texts in relation.names.items():
            written: dict[str, list[str]] = defaultdict(list)
            for subject in subjects:
                written[texts.get(subject, subject)].append(subject)
            alike = {text: names for text, names in written.items() if len(names) > 1}
            if alike:
                text, names = next(iter(alike.items()))
                where = language + (f", {form}" if form else "")
                evidence = f"{where}: {listed(sorted(names))} are all written '{text}'"
                yield Finding(relation.id, evidence, count=sum(map(len, alike.values())))


@check(
    "warning",
    meaning="candidates that mean the same: aliases, accents, or singular and plural",
    todo="Keep one of them as the object.",
)
def same_candidates(material: FactMaterial) -> Iterator[Finding]:
    """Pairs of candidates that are one answer by the table ``aliases``, or by their letters."""
    for relation in material.suite:
        words = dict.fromkeys(relation.candidates.words)
        keys: dict[str, list[str]] = defaultdict(list)
        for word in words:
            keys[without_accents(word)].append(word)
        pairs = [pair for same in keys.values() for pair in combinations(same, 2)]
        pairs += [
            (word, plural)
            for word in words
            for plural in (f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies")
            if plural in words
        ]
        for answers in material.aliases.get(relation.id, ()):
            pairs += combinations([word for word in words if word in answers], 2)
        for one, two in dict.fromkeys(pairs):
            if one_spelling(one) != one_spelling(two):  # ``same_spelling`` reports these
                places = _of_objects(material, relation, (one, two))
                yield Finding(relation.id, f"'{one}' and '{two}'", places, 2)


ACCENTS = re.compile("[\u0300-\u036f]")
"""The combining marks of Latin, Greek and Cyrillic letters."""


def without_accents(text: str) -> str:
    """``one_spelling`` of a text, without accents and hyphens.

    Accents are those of Latin, Greek and Cyrillic letters. In other scripts marks are letters or
    vowels of their own, such as those of Thai, Hindi and Japanese.
    """
    base = ACCENTS.sub("", unicodedata.normalize("NFKD", one_spelling(text)))
    plain = unicodedata.normalize("NFC", re.sub(r"[-\u2010\u2013]", " ", base))
    return " ".join(plain.split())


@check(
    "note",
    meaning="candidates that begin with the same word",
    todo="Score whole candidates, not their first token (docs/models.md).",
)
def same_first_word(material: FactMaterial) -> Iterator[Finding]:
    """A model that is scored by the first token cannot tell such candidates apart."""
    for relation in material.suite:
        by_first: dict[str, list[str]] = defaultdict(list)
        for word in relation.candidates.words:
            by_first[(word.split() or [word])[0]].append(word)
        several = [words for words in by_first.values() if len(words) > 1]
        if several:
            most = max(several, key=len)
            size = sum(map(len, several))
            total = counted(len(relation.candidates.words), "candidate")
            evidence = (
                f"{size} of {total} share their first word with another, such as {listed(most, 3)}"
            )
            words = [word for same in several for word in same]
            yield Finding(relation.id, evidence, _of_objects(material, relation, words), size)


@check(
    "note",
    meaning="subjects that contain their object",
    todo="Report them apart, or leave them out: the answer can be copied.",
)
def object_in_subject(material: FactMaterial) -> Iterator[Finding]:
    """The object is in the subject as whole words, or as characters in scripts without spaces."""
    for relation in material.suite:
        inside = [
            (fact.subject, fact.object)
            for fact in relation.facts
            if contains(fact.subject, fact.object)
        ]
        if inside:
            share = len(inside) / len(relation.facts)
            evidence = (
                f"{len(inside)} of {counted(len(relation.facts), 'fact')} ({share:.0%}), "
                f"such as '{inside[0][0]}', '{inside[0][1]}'"
            )
            yield Finding(relation.id, evidence, _places(material, relation, inside), len(inside))


def contains(text: str, part: str) -> bool:
    """Whether a part is in a text as whole words; case does not matter."""
    text, part = fold_case(text), fold_case(part)
    return part in text and whole_words(part).search(text) is not None


LEAST_SHARED = 0.01
"""The least share of the facts of a relation that is reported as shared with another."""


@check(
    "note",
    meaning="facts that two relations share, in either direction: 1 % of the smaller one or more",
    todo="Train and test on relations that share none (`improve --train-groups`).",
)
def shared_facts(material: FactMaterial) -> Iterator[Finding]:
    """The same two names in two relations: what is trained in one is tested in the other."""
    by_pair: dict[frozenset[str], dict[str, tuple[str, str]]] = defaultdict(dict)
    for relation in material.suite:
        for fact in relation.facts:
            pair = fact.subject, fact.object
            by_pair[frozenset(pair)].setdefault(relation.id, pair)
    shared: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for of_relation in by_pair.values():
        for one, two in combinations(of_relation, 2):
            shared[one, two].append(of_relation[two])
    sizes = {relation.id: len(relation.facts) for relation in material.suite}
    for (one, two), facts in sorted(shared.items(), key=lambda item: -len(item[1])):
        if len(facts) < LEAST_SHARED * min(sizes[one], sizes[two]):
            continue
        evidence = f"{counted(len(facts), 'fact')} also in {one}, such as '{facts[0][0]}', "
        places = _places(material, material.suite[two], facts)
        yield Finding(two, f"{evidence}'{facts[0][1]}'", places, len(facts))


def _places(
    material: FactMaterial, relation: Relation, facts: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    return tuple(
        location
        for subject, object_ in facts
        for location in material.places.fact(relation.id, subject, object_)
    )


def _of_objects(
    material: FactMaterial, relation: Relation, objects: Sequence[str]
) -> tuple[str, ...]:
    """The place of the first fact with each of some objects."""
    first = {fact.object: fact.subject for fact in reversed(relation.facts)}
    pairs = [(first[word], word) for word in objects if word in first]
    return tuple(
        location for pair in pairs for location in material.places.fact(relation.id, *pair)[:1]
    )
