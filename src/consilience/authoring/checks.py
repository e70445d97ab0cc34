"""How patterns are compared, and the checks of the audit: what may be wrong with a suite."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from consilience.analysis.syntax import DETERMINERS
from consilience.core.factors import Edge, VariantPair
from consilience.core.items import Floats, Question
from consilience.core.patterns import ENGLISH, Pattern
from consilience.core.text import (
    WITHOUT_SPACES,
    closes_sentence,
    counted,
    fold_case,
    listed,
    whole_words,
)
from consilience.metrics.registry import quotient
from consilience.suites.layouts import Places
from consilience.suites.question_suites import gold_position_note
from consilience.suites.questions import Questions, normal
from consilience.types import Fact, Relation, Suite

Likeness = Literal["duplicate", "determiners", "one token"]
"""How a pattern is like another one.

duplicate: the same in ``normal_form``. determiners: the same without English determiners. one
token: one token is added, removed or replaced, in patterns of at least ``LEAST`` tokens besides the
slots.
"""

LEAST = 3

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\s{WITHOUT_SPACES}]+")
"""A slot, a character of a script without spaces, or a word."""

SLOTS = ("[x]", "[y]")


def sentence(relation: Relation, pattern: Pattern, fact: Fact) -> str:
    """The sentence that a fact makes of a pattern."""
    query = relation.query(pattern, fact)
    return pattern.fill(query.subject, query.gold)


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern or a phrasing without what duplicates may differ in: case, spaces, punctuation.

    Unicode is composed (NFC) and case folded. Each run of spaces and punctuation is one space,
    marks of direction go, and slots are words.
    """
    words = []
    for part in re.split(r"(\[[xy]\])", fold_case(unicodedata.normalize("NFC", pattern))):
        kinds = [unicodedata.category(sign) for sign in part]
        signs = zip(part, kinds, strict=True)
        plain = "".join(" " if kind[0] in "PZ" else sign for sign, kind in signs if kind != "Cf")
        words.append(part if part in SLOTS else plain)
    return " ".join(" ".join(words).split())


def same_phrasing(one: str, two: str) -> bool:
    """Whether two phrasings of a question differ only in spaces or punctuation.

    Case alone makes another phrasing: people write in lower case, and models read other tokens.
    """
    is_only_case = one != two and fold_case(one) == fold_case(two)
    return normal_form(one) == normal_form(two) and not is_only_case


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words and slots."""
    return tuple(TOKEN.findall(normal_form(pattern)))


def likeness(a: str, b: str, *, in_english: bool = True) -> Likeness | None:
    """How two patterns are alike; None where they are neither duplicates nor near-duplicates."""
    if normal_form(a) == normal_form(b):
        return "duplicate"
    tokens = tokens_of(a), tokens_of(b)
    bare = [[token for token in of if token not in DETERMINERS] for of in tokens]
    if in_english and bare[0] == bare[1]:
        return "determiners"
    is_long = max(map(len, tokens)) >= LEAST + len(SLOTS)
    return "one token" if is_long and _differ_in_one(*tokens) else None


def _differ_in_one(a: Sequence[str], b: Sequence[str]) -> bool:
    shorter, longer = sorted((a, b), key=len)
    if len(longer) - len(shorter) > 1 or a == b:
        return False
    at = next((at for at, token in enumerate(shorter) if token != longer[at]), len(shorter))
    rest = shorter[at + 1 :] if len(shorter) == len(longer) else shorter[at:]
    return rest == longer[at + 1 :]


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    return any(sign.isalpha() for sign in pattern.replace("[X]", "").replace("[Y]", ""))


Severity = Literal["error", "warning", "note"]
"""error: the suite cannot be used. warning: probably a mistake. note: decides what numbers mean."""

K = TypeVar("K")
V = TypeVar("V")
Pairs = Sequence[tuple[str, str]]  # Subjects and objects
Find = TypeVar("Find", bound=Callable[..., Iterable["Found"]])


@dataclass(frozen=True, slots=True)
class Found:
    """What a check finds in a group, and what it is about, whose places are then looked up."""

    evidence: str
    patterns: Sequence[str] = ()
    facts: Pairs = ()
    objects: Sequence[str] = ()  # Each is at its first fact
    questions: Sequence[Question] = ()
    count: int = 0  # 0: as many as it is about, at least one
    group: str = ""  # Only of checks of a whole suite
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a suite that a person should look at."""

    group: str  # The relation or the group of questions; empty for the whole suite
    evidence: str
    places: tuple[str, ...] = ()  # ``file:line`` in the folder of the suite; empty if not known
    count: int = 1
    check: str = ""
    severity: Severity = "note"
    todo: str = ""


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """What the checks of a suite of facts read; None for what could not be had."""

    kind: ClassVar = "facts"
    suite: Suite
    places: Places = field(default_factory=Places)
    aliases: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    """Relation -> answers that mean the same, by the suite's ``aliases`` table."""
    edges: Mapping[str, Mapping[VariantPair, Edge]] | None = None
    """Relation -> how every two patterns differ by a parser."""
    signatures: Mapping[str, Sequence[object]] | None = None
    """Relation -> the dependency path and the lemmas of each pattern, by a parser."""
    tenses: Mapping[str, Sequence[str]] | None = None
    meaning: Mapping[str, Floats] | None = None
    """Relation -> cosine similarity (pattern, pattern) by an encoder."""
    agreement: Mapping[str, Floats] | None = None
    """Relation -> agreement (pattern, pattern), mean over runs."""

    @property
    def groups(self) -> dict[str, Relation]:
        return {relation.id: relation for relation in self.suite}

    @property
    def english(self) -> dict[str, list[Pattern]] | None:
        """Relation -> the patterns that the rules of English apply to; None without any."""
        english = {one.id: list(filter(is_english, one.patterns)) for one in self.suite}
        return {name: patterns for name, patterns in english.items() if patterns} or None

    def places_of(self, group: str, found: Found) -> Iterator[str]:
        """The places of the patterns and facts that a finding is about."""
        yield from self.places.pattern(group, *found.patterns) if found.patterns else ()
        for fact in found.facts:
            yield from self.places.fact(group, *fact)
        facts = self.suite.relation(group).facts if found.objects else ()
        first = {fact.object: fact.subject for fact in reversed(facts)}
        for word in found.objects:
            yield from self.places.fact(group, first.get(word, ""), word)[:1]


def is_english(pattern: Pattern) -> bool:
    """Whether the rules of English apply to a pattern."""
    return pattern.language.partition("-")[0] == ENGLISH


def several(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Key -> its values, for each key with more than one."""
    values: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        values[key].append(value)
    return {key: of_key for key, of_key in values.items() if len(of_key) > 1}


@dataclass(frozen=True, slots=True)
class Check:
    """A function that looks for one kind of fault in a group, or in all of them.

    A group is a relation or a list of questions. What the check ``needs`` of a group comes second;
    groups without it are left out.
    """

    find: Callable[..., Iterable[Found]]
    severity: Severity
    todo: str
    of: str = FactMaterial.kind  # The kind of suites
    needs: str = ""
    is_quick: bool = False
    is_of_all: bool = False

    def findings(self, material: FactMaterial | Questions) -> Iterator[Finding]:
        """Everything that it finds, with places."""
        groups: Mapping[str, Any] = {"": material} if self.is_of_all else material.groups
        known: Mapping[str, Any] = getattr(material, self.needs) if self.needs else groups
        for name in (name for name in groups if name in known):
            more = [known[name]] if self.needs else []
            for found in self.find(groups[name], *more):
                group = name or found.group
                about = found.patterns, found.facts, found.objects, found.questions
                places = [*found.places, *(one.where for one in found.questions if one.where)]
                if isinstance(material, FactMaterial):
                    places += material.places_of(group, found)
                else:
                    places = [*dict.fromkeys(places)]
                count = found.count or sum(map(len, about)) or 1
                yield Finding(
                    group,
                    found.evidence,
                    tuple(places),
                    count,
                    self.find.__name__,
                    self.severity,
                    self.todo,
                )


CHECKS: dict[str, Check] = {}


def check(severity: Severity, todo: str, **more: Any) -> Callable[[Find], Find]:
    """Register a function as a check; ``more``: fields of ``Check``."""

    def register(find: Find) -> Find:
        CHECKS[find.__name__] = Check(find, severity, todo, **more)
        return find

    return register


# Facts.


@check("warning", "Keep one object for each subject, or make the relation N-M.", is_quick=True)
def several_golds(relation: Relation) -> Iterator[Found]:
    """Subjects of an N-1 relation with several objects."""
    pairs = dict.fromkeys((fact.subject, fact.object) for fact in relation.facts)
    golds = several(pairs) if relation.cardinality == "N-1" else {}
    for subject, first in [*golds.items()][:1]:
        size = f"{counted(len(golds), 'subject')} of an N-1 relation with several objects"
        evidence = f"{size}, such as '{subject}': {listed(first)}"
        facts = [(name, gold) for name, of_name in golds.items() for gold in of_name]
        yield Found(evidence, facts=facts, count=len(golds))


@check("warning", "Remove all but one of them.", is_quick=True)
def duplicate_facts(relation: Relation) -> Iterator[Found]:
    """Facts that are in a relation more than once."""
    items = several(((fact.subject, fact.object), fact.item) for fact in relation.facts)
    surplus = sum(map(len, items.values())) - len(items)
    for (subject, gold), names in [*items.items()][:1]:
        example = f"'{subject}', '{gold}' (items {listed(names)})"
        evidence = f"{counted(surplus, 'duplicate fact')}, such as {example}"
        yield Found(evidence, facts=list(items), count=surplus)


@check("warning", "Write each name in one way.", is_quick=True)
def same_spelling(relation: Relation) -> Iterator[Found]:
    """Subjects or candidates that differ only in case, spaces, apostrophes or Unicode form."""
    words = dict.fromkeys(relation.candidates.words)
    first = {fact.subject: fact.object for fact in reversed(relation.facts)}
    subjects = dict.fromkeys(fact.subject for fact in relation.facts)
    for names, before in ((words, ""), (subjects, "subjects: ")):
        for same in several((one_spelling(name), name) for name in names).values():
            quoted = listed([f"'{name}'" for name in sorted(same)], len(same))
            evidence = f"{before}{quoted} differ only in case, spaces, apostrophes or Unicode form"
            facts = [(name, first[name]) for name in same] if before else []
            yield Found(evidence, facts=facts, objects=() if before else same)


APOSTROPHES = str.maketrans("\u2018\u2019\u02bc`", "''''")


def one_spelling(name: str) -> str:
    """A name without case and repeated spaces, with straight apostrophes, in Unicode form NFC."""
    folded = fold_case(unicodedata.normalize("NFC", name)).translate(APOSTROPHES)
    return " ".join(folded.split())


@check("warning", is_quick=True,
       todo="Write more in the table `names`, so that the question has one answer.")  # fmt: skip
def written_alike(relation: Relation) -> Iterator[Found]:
    """Subjects that are written alike in a language."""
    subjects = dict.fromkeys(fact.subject for fact in relation.facts)
    for (language, form), texts in relation.names.items():
        alike = several((texts.get(subject, subject), subject) for subject in subjects)
        for text, names in [*alike.items()][:1]:
            where = language + (f", {form}" if form else "")
            evidence = f"{where}: {listed(sorted(names))} are all written '{text}'"
            yield Found(evidence, count=sum(map(len, alike.values())))


@check("warning", "Keep one of them as the object.", is_of_all=True)
def same_candidates(material: FactMaterial) -> Iterator[Found]:
    """Candidates that mean the same: aliases, accents, or singular and plural."""
    for relation in material.suite:
        words = dict.fromkeys(relation.candidates.words)
        accented = several((without_accents(word), word) for word in words)
        pairs = [pair for same in accented.values() for pair in combinations(same, 2)]
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
                yield Found(f"'{one}' and '{two}'", objects=(one, two), group=relation.id)


ACCENTS = re.compile("[\u0300-\u036f]")


def without_accents(text: str) -> str:
    """``one_spelling`` of a text, without accents and hyphens.

    Accents are those of Latin, Greek and Cyrillic letters. In other scripts marks are letters or
    vowels of their own, such as those of Thai, Hindi and Japanese.
    """
    base = ACCENTS.sub("", unicodedata.normalize("NFKD", one_spelling(text)))
    plain = unicodedata.normalize("NFC", re.sub(r"[-\u2010\u2013]", " ", base))
    return " ".join(plain.split())


@check("note", "Score whole candidates, not their first token (docs/models.md).")
def same_first_word(relation: Relation) -> Iterator[Found]:
    """Candidates that begin with the same word."""
    candidates = relation.candidates.words
    by_first = several(((word.split() or [word])[0], word) for word in candidates).values()
    if by_first:
        words = [word for same in by_first for word in same]
        size = f"{len(words)} of {counted(len(candidates), 'candidate')}"
        example = listed(max(by_first, key=len), 3)
        yield Found(f"{size} share their first word with another, such as {example}", objects=words)


@check("note", "Report them apart, or leave them out: the answer can be copied.")
def object_in_subject(relation: Relation) -> Iterator[Found]:
    """Subjects that contain their object."""
    pairs = [(fact.subject, fact.object) for fact in relation.facts]
    inside = [pair for pair in pairs if contains(*pair)]
    for subject, gold in inside[:1]:
        size = f"{len(inside)} of {counted(len(pairs), 'fact')} ({len(inside) / len(pairs):.0%})"
        yield Found(f"{size}, such as '{subject}', '{gold}'", facts=inside)


def contains(text: str, part: str) -> bool:
    """Whether a part is in a text as whole words; case does not matter."""
    text, part = fold_case(text), fold_case(part)
    return part in text and whole_words(part).search(text) is not None


LEAST_SHARED = 0.01


@check("note", "Train and test on relations that share none (`improve --train-groups`).",
       is_of_all=True)  # fmt: skip
def shared_facts(material: FactMaterial) -> Iterator[Found]:
    """Facts that two relations share, in either direction: 1 % of the smaller one or more."""
    by_pair: dict[frozenset[str], dict[str, tuple[str, str]]] = defaultdict(dict)
    for relation in material.suite:
        for fact in relation.facts:
            pair = fact.subject, fact.object
            by_pair[frozenset(pair)].setdefault(relation.id, pair)
    shared: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for of_relation in by_pair.values():
        for one, two in combinations(of_relation, 2):
            shared[one, two].append(of_relation[two])
    for (one, two), facts in sorted(shared.items(), key=lambda item: -len(item[1])):
        size = min(len(material.suite[name].facts) for name in (one, two))
        if len(facts) >= LEAST_SHARED * size:
            example = "'{}', '{}'".format(*facts[0])
            evidence = f"{counted(len(facts), 'fact')} also in {one}, such as {example}"
            yield Found(evidence, facts=facts, group=two)


FALSE_ALARMS = 0.05  # Share of relations with equivalent patterns in which one is reported

FEWEST = 5
LEAST_SCALE = 0.01  # Least deviation that counts: similarities within a point are the same

DRAWS = 20_000


@check("warning", "Read it: remove it if it asks something else.", needs="meaning")
def differs_in_meaning(relation: Relation, similarity: Floats) -> Iterator[Found]:
    """A pattern that differs in meaning from the others, by sentence embeddings."""
    return _outliers(relation, similarity, "similarity")


@check("note", needs="agreement",
       todo="Read it: remove it if it asks something else. With one run it may be about the "
            "model.")  # fmt: skip
def differs_in_answers(relation: Relation, agreement: Floats) -> Iterator[Found]:
    """A pattern whose answers differ from those of the others, in the runs given."""
    return _outliers(relation, agreement, "agreement")


def _outliers(relation: Relation, matrix: Floats, word: str) -> Iterator[Found]:
    means = mean_similarity(matrix)
    for at in outliers(means):
        text, others = relation.patterns[at].text, f"of the relation {np.median(means):.2f}"
        evidence = f"'{text}': mean {word} with the others {means[at]:.2f}, median {others}"
        yield Found(evidence, patterns=(text,))


def mean_similarity(matrix: Floats) -> Floats:
    """The mean of each row (pattern,) of similarities (pattern, pattern) without the diagonal."""
    others = ~np.eye(len(matrix), dtype=np.bool_) & ~np.isnan(matrix)
    return quotient(np.where(others, matrix, 0).sum(axis=1), others.sum(axis=1))


def outliers(means: Floats) -> list[int]:
    """The positions of the values that are low by a robust rule; none of fewer than ``FEWEST``.

    A value is low where ``robust_deviations`` is above ``limit(size)``: of relations whose values
    are drawn from one normal distribution, ``FALSE_ALARMS`` have such a value.
    """
    known = np.flatnonzero(~np.isnan(means))
    if len(known) < FEWEST:
        return []
    return [int(at) for at in known[robust_deviations(means[known]) > limit(len(known))]]


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


@check("note", needs="edges",
       todo="Read both patterns: the suite and the parser are right about equally "
            "often.")  # fmt: skip
def edges(relation: Relation, derived: Mapping[VariantPair, Edge]) -> Iterator[Found]:
    """Edges of the suite that differ from what a parser derives."""
    differing = {
        pair: ", ".join(changes)
        for pair, ours in relation.edges.items()
        if pair in derived and (changes := [*_changes(ours, derived[pair])])
    }
    texts = [relation.patterns[at].text for pair in differing for at in pair]
    for first in [*differing.values()][:1]:
        size = f"{len(differing)} of {counted(len(relation.edges), 'pair')}"
        evidence = f"{size}, such as '{texts[0]}' and '{texts[1]}': {first}"
        yield Found(evidence, patterns=texts, count=len(differing))


def _changes(ours: Edge, derived: Edge) -> Iterator[str]:
    """Which changes the suite has and the parser has not, or the reverse."""
    for name in ("syntactic", "lexical", "determiner"):
        if getattr(ours, name) != getattr(derived, name):
            yield f"{name} {'yes' if getattr(ours, name) else 'no'} in the suite"


# Patterns.

SPACE_FAULT = re.compile(r"\s{2,}|[^\S ]|^\s|\s$|\s(?=[.,](?:\s|$))")
"""A doubled space, a space that is no plain one, one at an end, and one before a stop or comma."""

NUMBER_WORDS = {"is": "singular", "are": "plural", "was": "singular", "were": "plural"}
NUMBER = re.compile(r"(?<!and )\[([XY])\] (is|are|was|were)\b")

VOWEL_SOUND = re.compile(r"(?:hour|honest|honou?r|heir)|(?!uni(?!n)|us|eu|one|ut)[aeiou]", re.I)


@check("warning", "Write single spaces.")
def spaces(relation: Relation) -> Iterator[Found]:
    """Doubled spaces, spaces at an end, or a space before a full stop or comma."""
    for pattern in relation.patterns:
        if SPACE_FAULT.search(pattern.text):
            yield Found(f"'{pattern.text}'", patterns=(pattern.text,))


@check("warning", "End it as the others end.", is_of_all=True)
def final_punctuation(material: FactMaterial) -> Iterator[Found]:
    """A pattern that does not end with sentence punctuation.

    Only where another pattern in the language has one: a suite may have fragments only, and some
    scripts, such as Thai, do without.
    """
    patterns = [(relation.id, one) for relation in material.suite for one in relation.patterns]
    ends = {pattern.language for _, pattern in patterns if has_ending(pattern.text)}
    for group, pattern in patterns:
        if pattern.language in ends and not has_ending(pattern.text):
            yield Found(f"'{pattern.text}'", patterns=(pattern.text,), group=group)


def has_ending(text: str) -> bool:
    """Whether a pattern ends with sentence punctuation."""
    last = text.rstrip()[-1:]
    return bool(last) and last != "]" and closes_sentence(last)


@check("note", "Add patterns that end in [Y], or measure causal models on other relations.")
def few_for_causal_models(relation: Relation) -> Iterator[Found]:
    """Fewer than two patterns end right after [Y], so causal models have no consistency."""
    size, last = len(relation.patterns), sum(one.object_last for one in relation.patterns)
    if size > 1 and last < 2:
        yield Found(f"patterns that end after [Y]: {last} of {size}", count=size - last)


@check("note", needs="english",
       todo="Write the pattern without an article, or leave out the candidates that it does not "
            "fit.")  # fmt: skip
def article(relation: Relation, english: Sequence[Pattern]) -> Iterator[Found]:
    """'a' or 'an' before [Y] that fits only some of the candidates."""
    words = relation.candidates.words
    for pattern in english:
        if not (pattern.article and re.search(rf"{pattern.article} \[Y\]", pattern.text)):
            continue
        takes_an = pattern.article == "an"
        unfit = [word for word in words if bool(VOWEL_SOUND.match(word)) != takes_an]
        if unfit:
            size = f"{len(unfit)} of {counted(len(words), 'candidate')}, such as '{unfit[0]}'"
            evidence = f"'{pattern.text}': '{pattern.article}' does not fit {size}"
            yield Found(evidence, patterns=(pattern.text,), count=len(unfit))


@check("warning", "Use one number throughout the relation.", needs="english")
def number(relation: Relation, english: Sequence[Pattern]) -> Iterator[Found]:
    """'is' after a slot where other patterns of the relation have 'are', or the reverse."""
    verbs = [
        (slot, (NUMBER_WORDS[verb], pattern.text))
        for pattern in english
        for slot, verb in NUMBER.findall(pattern.text)
    ]
    for slot, uses in several(verbs).items():
        common, size = Counter(name for name, _ in uses).most_common(1)[0]
        for name, text in uses:
            if name != common and size > 1:
                evidence = f"'{text}': a {name} verb after [{slot}]; {size} are {common}"
                yield Found(evidence, patterns=(text,))


@check("note", needs="tenses",
       todo="Compare tenses on purpose, or use one tense; `analyze edits` shows what tense "
            "changes.")  # fmt: skip
def tense(relation: Relation, tenses: Sequence[str]) -> Iterator[Found]:
    """Patterns of one relation in different tenses."""
    counts = Counter(filter(None, tenses)).most_common()
    if len(counts) > 1:
        named = zip(relation.patterns, tenses, strict=True)
        others = [pattern.text for pattern, name in named if name not in ("", counts[0][0])]
        sizes = ", ".join(f"{size} {name}" for name, size in counts)
        yield Found(f"{sizes}, such as '{others[0]}'", patterns=others)


@check("note", "Add patterns.", is_quick=True, is_of_all=True)
def single_pattern(material: FactMaterial) -> Iterator[Found]:
    """A relation with one pattern."""
    single = [relation for relation in material.suite if len(relation.patterns) == 1]
    if single:
        evidence = f"one pattern, so no consistency: {listed([one.id for one in single])}"
        places = [material.places.pattern(one.id, one.patterns[0].text) for one in single]
        yield Found(evidence, count=len(single), places=sum(places, ()))


@check("warning", "Remove one of the two.")
def duplicate_patterns(relation: Relation) -> Iterator[Found]:
    """Patterns of a relation that differ only in case, spaces or punctuation."""
    first: dict[str, Pattern] = {}
    for pattern in relation.patterns:
        earlier = first.setdefault(normal_form(pattern.text), pattern)
        if earlier is not pattern:
            both = (earlier.text, pattern.text)
            yield Found("'{}' and '{}'".format(*both), patterns=both)


@check("note", is_of_all=True,
       todo="Only the candidates distinguish the two. If models write freely, make it more "
            "specific.")  # fmt: skip
def asks_another_relation(material: FactMaterial) -> Iterator[Found]:
    """A pattern that is also a pattern of another relation.

    It has the words of that pattern, or its path and lemmas where a parser is there. Exchanged
    slots are no match.
    """
    known: dict[object, tuple[str, str]] = {}
    for relation in material.suite:
        parsed = (material.signatures or {}).get(relation.id, [None] * len(relation.patterns))
        for pattern, signature in zip(relation.patterns, parsed, strict=True):
            keys = [key for key in (normal_form(pattern.text), signature) if key]
            other = next((known[key] for key in keys if key in known), None)
            this = relation.id, pattern.text
            if other and other[0] != relation.id:
                evidence = f"'{pattern.text}' asks as {other[0]} does: '{other[1]}'"
                places = (*material.places.pattern(*this), *material.places.pattern(*other))
                yield Found(evidence, group=relation.id, places=places)
            for key in keys:
                known.setdefault(key, this)


# Questions.

Asked = Sequence[Question]


def _pairs_found(
    noun: str, where: str, pairs: Sequence[tuple[Question, Question]], shown: Question
) -> Found:
    """Pairs of questions that ask the same; ``shown`` is the example."""
    example = f"'{_texts(shown)[0]}' (items {pairs[0][0].item}, {pairs[0][1].item})"
    evidence = f"{counted(len(pairs), noun)}{where}, such as {example}"
    return Found(evidence, questions=[one for pair in pairs for one in pair], count=len(pairs))


def _texts(question: Question) -> list[str]:
    return [text for texts in question.paraphrases.values() for text in texts]


@check("note", of=Questions.kind, is_quick=True,
       todo="Add phrasings, or vary other factors (docs/factors.md).")  # fmt: skip
def one_phrasing(items: Asked) -> Iterator[Found]:
    """Questions with one phrasing."""
    single = [item for item in items if item.phrasings == 1]
    if single:
        noun = f"{counted(len(single), 'question')} {'has' if len(single) == 1 else 'have'}"
        yield Found(f"{noun} one phrasing, such as {single[0].item}", questions=single)


@check("note", "Give all questions of a group as many options.", of=Questions.kind, is_quick=True)
def options_differ(items: Asked) -> Iterator[Found]:
    """Questions of a group with different numbers of options."""
    sizes = sorted({len(item.options) for item in items})
    if len(sizes) > 1:
        number_of = f"{sizes[0]} to {sizes[-1]} options"
        evidence = f"questions have {number_of}, which are chosen at other rates"
        yield Found(evidence, count=len(items))


@check("warning", of=Questions.kind, is_quick=True, is_of_all=True,
       todo="Use `distractors` in place of `options`: their order is drawn.")  # fmt: skip
def gold_position(questions: Questions) -> Iterator[Found]:
    """The right answer is at the same position in every question, or every one of a group."""
    is_of_all = bool(gold_position_note(questions.items))
    for name, items in ({"": questions.items} if is_of_all else questions.groups).items():
        if evidence := gold_position_note(items):
            yield Found(evidence, count=len(items), group=name)


@check("warning", of=Questions.kind, is_quick=True,
       todo="Make one question of the two: further rows with the same item are "
            "phrasings.")  # fmt: skip
def duplicate_questions(items: Asked) -> Iterator[Found]:
    """Questions that ask the same."""
    pairs: list[tuple[Question, Question]] = []
    earlier: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for question in items:
        context = normal(question.context)
        keys = [(text, context) for text in dict.fromkeys(map(normal, _texts(question)))]
        same = [other for key in keys for other in earlier.get(key, ())]
        allowed = {option.text for option in question.options}
        fitting = (one for one in same if not allowed or one.gold.text in allowed)
        if again := next(fitting, None):
            pairs.append((again, question))
        for key in keys:
            earlier[key].append(question)
    if pairs:
        yield _pairs_found("duplicate question", "", pairs, pairs[0][0])


@check("warning", of=Questions.kind, is_of_all=True,
       todo="Keep it in one group, so that groups can be divided into training and "
            "test.")  # fmt: skip
def shared_questions(questions: Questions) -> Iterator[Found]:
    """The same question in two groups."""
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
        found = _pairs_found("question", f" also in {one}", pairs, pairs[0][1])
        yield replace(found, group=two)


@check("warning", "Remove one of the two.", of=Questions.kind, is_of_all=True)
def same_phrasings(questions: Questions) -> Iterator[Found]:
    """Phrasings of a question that differ only in spaces or punctuation."""
    for question in questions.items:
        for texts in question.paraphrases.values():
            for one, two in combinations(texts, 2):
                if same_phrasing(one, two):
                    evidence = f"'{one}' and '{two}' (item {question.item})"
                    yield Found(evidence, questions=[question], count=2, group=question.group)


@check("warning", "Correct the file.", of=Questions.kind, is_of_all=True)
def question_spaces(questions: Questions) -> Iterator[Found]:
    """Doubled spaces, spaces at an end, or a space before a full stop or comma."""
    for question in questions.items:
        texts = [*_texts(question), *(text for one in question.options for text in one.texts)]
        for text in filter(SPACE_FAULT.search, texts):
            evidence = f"'{text}' (item {question.item})"
            yield Found(evidence, questions=[question], group=question.group)


@check("note", "Report them apart, or leave them out: the answer can be copied.", of=Questions.kind)
def answer_in_question(items: Asked) -> Iterator[Found]:
    """Questions whose right answer is in the question, and no other option is."""
    inside = []
    for item in items:
        texts, gold = _texts(item), item.gold
        others = [option.text for option in item.options if option != gold]
        if all(contains(text, gold.text) for text in texts) and not any(
            contains(text, other) for text in texts for other in others
        ):
            inside.append(item)
    for first in inside[:1]:
        size = f"{len(inside)} of {counted(len(items), 'question')}"
        example = f"'{_texts(first)[0]}', '{first.gold.text}' (item {first.item})"
        yield Found(f"{size}, such as {example}", questions=inside)


@check("warning", "Replace one of them.", of=Questions.kind, is_of_all=True)
def same_options(questions: Questions) -> Iterator[Found]:
    """Options of a question that mean the same: aliases, accents or case."""
    for question in questions.items:
        for one, two in combinations(question.options, 2):
            if {*map(without_accents, one.texts)} & {*map(without_accents, two.texts)}:
                evidence = f"'{one.text}' and '{two.text}' (item {question.item})"
                yield Found(evidence, questions=[question], count=2, group=question.group)
