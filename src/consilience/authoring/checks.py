"""Checks of a suite: what a finding is; facts; outliers."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any, Literal

import numpy as np

from consilience.core.factors import Edge, VariantPair
from consilience.core.patterns import ENGLISH, Pattern
from consilience.core.text import counted, fold_case, listed, whole_words
from consilience.metrics.statistics import Floats
from consilience.suites.layouts import Places
from consilience.types import Relation, Suite

Severity = Literal["error", "warning", "note"]
"""error: the suite cannot be used. warning: probably a mistake. note: decides what numbers mean."""

Kind = Literal["facts", "questions"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a suite that a person should look at."""

    group: str
    """The relation or the group of questions; empty for the whole suite."""
    evidence: str
    """What was found, with an example."""
    places: tuple[str, ...] = ()
    """Where: ``file:line`` below the folder of the suite; empty where that is not known."""
    count: int = 1
    """How many patterns, facts, candidates or questions it is about."""
    check: str = ""
    severity: Severity = "note"
    todo: str = ""
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Check:
    """A function that looks for one kind of fault."""

    find: Callable[[Any], Iterable[Finding]]
    """What it finds in the material."""
    severity: Severity
    """How bad a finding is."""
    meaning: str
    """What it looks for, in a few words."""
    todo: str
    """What to do about a finding."""
    of: Kind
    """The kind of suites that it applies to."""
    needs: str
    """The field of the material that has to be there; empty if it always is."""
    is_quick: bool
    """Whether ``suite check`` also reports it."""


CHECKS: dict[str, Check] = {}
"""The checks by name, in the order of the table."""

Function = Callable[[Any], Iterable[Finding]]


def check(
    severity: Severity,
    *,
    meaning: str,
    todo: str,
    of: Kind = "facts",
    needs: str = "",
    is_quick: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the check of its name; a name that is taken raises."""

    def register(find: Function) -> Function:
        name = find.__name__
        if name in CHECKS:
            raise ValueError(f"there is already a check '{name}'")
        CHECKS[name] = Check(find, severity, meaning, todo, of, needs, is_quick)
        return find

    return register


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """What the checks of a suite of facts read."""

    suite: Suite
    places: Places = field(default_factory=Places)
    """Where its patterns and facts are."""
    aliases: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    """Relation -> answers that mean the same, by the suite's ``aliases`` table."""
    edges: Mapping[str, Mapping[VariantPair, Edge]] | None = None
    """Relation -> how every two patterns differ by a parser; None without a parser."""
    signatures: Mapping[str, Sequence[object]] | None = None
    """Relation -> the dependency path and the lemmas of each pattern; None without a parser."""
    tenses: Mapping[str, Sequence[str]] | None = None
    """Relation -> the tense of each pattern, empty where it has none."""
    meaning: Mapping[str, Floats] | None = None
    """Relation -> cosine similarity (pattern, pattern); None without an encoder."""
    agreement: Mapping[str, Floats] | None = None
    """Relation -> agreement (pattern, pattern), mean over runs; None without runs."""

    @property
    def english(self) -> list[Pattern] | None:
        """The patterns that the rules of English apply to; None without any."""
        patterns = (pattern for relation in self.suite for pattern in relation.patterns)
        return list(filter(is_english, patterns)) or None


def is_english(pattern: Pattern) -> bool:
    """Whether the rules of English apply to a pattern."""
    return pattern.language.partition("-")[0] == ENGLISH


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


FALSE_ALARMS = 0.05
"""The share of relations with equivalent patterns in which a pattern is reported."""

FEWEST = 5
"""Patterns of a relation that the rule needs."""

LEAST_SCALE = 0.01
"""The least deviation that counts as one: similarities within a point are the same."""

DRAWS = 20_000
"""Simulated relations from which the limits come."""


@check(
    "warning",
    meaning="a pattern that differs in meaning from the others, by sentence embeddings",
    todo="Read it: remove it if it asks something else.",
    needs="meaning",
)
def differs_in_meaning(material: FactMaterial) -> Iterator[Finding]:
    """Outliers in the mean cosine similarity of a pattern with the others, filled with facts."""
    return _outliers(material, material.meaning or {}, "similarity")


@check(
    "note",
    meaning="a pattern whose answers differ from those of the others, in the runs given",
    todo="Read it: remove it if it asks something else. With one run it may be about the model.",
    needs="agreement",
)
def differs_in_answers(material: FactMaterial) -> Iterator[Finding]:
    """Outliers in the mean agreement of a pattern with the others, over items and runs."""
    return _outliers(material, material.agreement or {}, "agreement")


@check(
    "note",
    meaning="edges of the suite that differ from what a parser derives",
    todo="Read both patterns: the suite and the parser are right about equally often.",
    needs="edges",
)
def edges(material: FactMaterial) -> Iterator[Finding]:
    """Pairs of patterns with other changes of syntax, lexis or determiners than by the parser."""
    for relation in material.suite:
        derived = (material.edges or {}).get(relation.id, {})
        texts = [pattern.text for pattern in relation.patterns]
        differing = [
            (texts[pair[0]], texts[pair[1]], _difference(ours, derived[pair]))
            for pair, ours in relation.edges.items()
            if pair in derived and _difference(ours, derived[pair])
        ]
        if differing:
            one, two, difference = differing[0]
            evidence = (
                f"{len(differing)} of {counted(len(relation.edges), 'pair')}, such as "
                f"'{one}' and '{two}': {difference}"
            )
            names = [text for *pair, _ in differing for text in pair]
            places = material.places.pattern(relation.id, *names)
            yield Finding(relation.id, evidence, places, len(differing))


def _difference(ours: Edge, derived: Edge) -> str:
    """Which changes the suite has and the parser has not, or the reverse; empty for none."""
    return ", ".join(
        f"{name} {'yes' if getattr(ours, name) else 'no'} in the suite"
        for name in ("syntactic", "lexical", "determiner")
        if getattr(ours, name) != getattr(derived, name)
    )


def _outliers(
    material: FactMaterial, similarity: Mapping[str, Floats], word: str
) -> Iterator[Finding]:
    for relation in material.suite:
        if relation.id not in similarity:
            continue
        means = mean_similarity(similarity[relation.id])
        for at in outliers(means):
            text = relation.patterns[at].text
            evidence = (
                f"'{text}': mean {word} with the others {means[at]:.2f}, "
                f"median of the relation {np.median(means):.2f}"
            )
            yield Finding(relation.id, evidence, material.places.pattern(relation.id, text))


def mean_similarity(matrix: Floats) -> Floats:
    """The mean of each row (pattern,) of similarities (pattern, pattern) without the diagonal."""
    others = ~np.eye(len(matrix), dtype=np.bool_) & ~np.isnan(matrix)
    total = np.where(others, matrix, 0).sum(axis=1)
    size = others.sum(axis=1)
    means: Floats = np.divide(total, size, out=np.full(len(matrix), np.nan), where=size > 0)
    return means


def outliers(means: Floats) -> list[int]:
    """The positions of the values that are low by a robust rule; none of fewer than ``FEWEST``.

    A value is low where ``robust_deviations`` is above ``limit(size)``: of relations whose values
    are drawn from one normal distribution, ``FALSE_ALARMS`` have such a value.
    """
    known = np.flatnonzero(~np.isnan(means))
    if len(known) < FEWEST:
        return []
    deviations = robust_deviations(means[known])
    return [int(at) for at in known[deviations > limit(len(known))]]


def robust_deviations(values: Floats) -> Floats:
    """How far each value is below the median of its row, in robust standard deviations.

    ``(median - value) / max(1.4826 MAD, LEAST_SCALE)``; MAD: the median distance from the median.
    """
    distances = np.median(values, axis=-1, keepdims=True) - values
    spread = 1.4826 * np.median(np.abs(distances), axis=-1, keepdims=True)
    deviations: Floats = distances / np.maximum(spread, LEAST_SCALE)
    return deviations


@cache
def limit(size: int) -> float:
    """The deviation that one of ``size`` normal values exceeds in ``FALSE_ALARMS`` of relations."""
    values = np.random.default_rng(size).normal(size=(DRAWS, size))
    return float(np.quantile(robust_deviations(values).max(axis=1), 1 - FALSE_ALARMS))
