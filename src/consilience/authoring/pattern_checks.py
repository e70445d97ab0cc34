"""Checks of patterns and of questions: near duplicates and meaning."""

from __future__ import annotations

import math
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from consilience.analysis.syntax import DETERMINERS
from consilience.authoring.checks import (
    FactMaterial,
    Finding,
    check,
    contains,
    is_english,
    without_accents,
)
from consilience.core.items import Question
from consilience.core.patterns import Pattern
from consilience.core.text import WITHOUT_SPACES, closes_sentence, counted, fold_case, listed
from consilience.suites.questions import Questions, normal
from consilience.types import Fact, Relation, Suite

Likeness = Literal["duplicate", "determiners", "one token"]
"""How a pattern is like another one.

duplicate: the same in ``normal_form``. determiners: the same without English determiners. one
token: one token is added, removed or replaced, in patterns of at least ``LEAST`` tokens besides the
slots.
"""

LEAST = 3
"""Tokens besides the slots of the longer of two patterns that may differ in one token."""

TOKEN = re.compile(rf"\[[xy]\]|[{WITHOUT_SPACES}]|[^\s{WITHOUT_SPACES}]+")
"""A slot, a character of a script without spaces, or a word."""

SLOTS = ("[x]", "[y]")


@lru_cache(maxsize=4096)
def normal_form(pattern: str) -> str:
    """A pattern or a phrasing without what duplicates may differ in: case, spaces, punctuation.

    Unicode is composed (NFC) and case folded. Each run of spaces and punctuation is one space;
    slots are words.
    """
    text = fold_case(unicodedata.normalize("NFC", pattern))
    parts = re.split(r"(\[[xy]\])", text)
    words = [part if part in SLOTS else without_punctuation(part) for part in parts]
    return " ".join(" ".join(words).split())


def without_punctuation(text: str) -> str:
    """A text with a space for each punctuation mark and each space, without marks of direction."""
    signs = ((sign, unicodedata.category(sign)) for sign in text)
    return "".join(" " if kind[0] in "PZ" else sign for sign, kind in signs if kind != "Cf")


def likeness(a: str, b: str, *, in_english: bool = True) -> Likeness | None:
    """How two patterns are alike; None where they are neither duplicates nor near-duplicates."""
    if normal_form(a) == normal_form(b):
        return "duplicate"
    tokens, others = tokens_of(a), tokens_of(b)
    if in_english and without_determiners(tokens) == without_determiners(others):
        return "determiners"
    is_long = max(len(tokens), len(others)) >= LEAST + len(SLOTS)
    return "one token" if is_long and differ_in_one(tokens, others) else None


@lru_cache(maxsize=4096)
def tokens_of(pattern: str) -> tuple[str, ...]:
    """The tokens of a pattern in ``normal_form``: words and slots."""
    return tuple(TOKEN.findall(normal_form(pattern)))


def without_determiners(tokens: Iterable[str]) -> list[str]:
    """The tokens that are no English determiners."""
    return [token for token in tokens if token not in DETERMINERS]


def differ_in_one(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether one token added, removed or replaced turns a list of tokens into another one."""
    shorter, longer = sorted((a, b), key=len)
    if len(longer) - len(shorter) > 1 or a == b:
        return False
    at = next((at for at, token in enumerate(shorter) if token != longer[at]), len(shorter))
    rest = shorter[at + 1 :] if len(shorter) == len(longer) else shorter[at:]
    return rest == longer[at + 1 :]


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    rest = pattern.replace("[X]", "").replace("[Y]", "")
    return any(character.isalpha() for character in rest)


Floats = npt.NDArray[np.float64]

FEWEST_RELATIONS = 5
"""Relations without which no interval is given: the bootstrap resamples them."""

LEAST_AUC = 0.7
"""The lower bound of the AUC from which scores may refuse rewrites: acceptable discrimination
(Hosmer and Lemeshow, Applied Logistic Regression, 2000, Section 5.2)."""

RESAMPLES = 1000
"""Bootstrap samples of an interval."""


class MeaningJudge(Interface):
    """A model that judges sentences."""

    identity: dict[str, object]
    """Which model this is."""

    def log_odds(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Log-odds (pair,) that the two sentences mean the same, asked in this order."""

    def token_logprobs(self, sentences: Sequence[str]) -> Floats:
        """Mean log-probability of a token (sentence,) in nats."""


@dataclass(frozen=True, slots=True)
class PatternPair:
    """Two patterns, and the facts that fill both."""

    relation: Relation
    first: Pattern
    second: Pattern
    facts: Sequence[Fact]


def sentence(relation: Relation, pattern: Pattern, fact: Fact) -> str:
    """The sentence that a fact makes of a pattern."""
    query = relation.query(pattern, fact)
    return pattern.fill(query.subject, query.gold)


def meaning_scores(pairs: Sequence[PatternPair], judge: MeaningJudge) -> Floats:
    """The two-way meaning score (pair,) of pairs of patterns, in nats.

    The mean, over the facts of a pair and over both orders of its sentences, of the judge's
    log-odds that they mean the same (after ParaPLUIE, Lemesle et al., COLING 2025, which asks in
    one order). 0: the judge is undecided. NaN where it could read no sentence.
    """
    sentences: list[tuple[str, str]] = []
    owners: list[int] = []
    for at, pair in enumerate(pairs):
        for fact in pair.facts:
            first = sentence(pair.relation, pair.first, fact)
            second = sentence(pair.relation, pair.second, fact)
            sentences += [(first, second), (second, first)]
            owners += [at, at]
    odds = judge.log_odds(sentences)
    is_known = ~np.isnan(odds)
    rows = np.array(owners, dtype=np.int64)[is_known]
    sums = np.bincount(rows, odds[is_known], len(pairs))
    counts = np.bincount(rows, minlength=len(pairs))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def fluency_scores(pairs: Sequence[PatternPair], judge: MeaningJudge) -> Floats:
    """How much more fluent the second pattern of each pair is (pair,), in nats a token.

    The mean log-probability of a token of its sentence minus that of the first pattern's, averaged
    over the facts. Negative: the first one is more fluent.
    """
    texts = [
        sentence(pair.relation, pattern, fact)
        for pair in pairs
        for fact in pair.facts
        for pattern in (pair.first, pair.second)
    ]
    numbers = judge.token_logprobs(texts).reshape(-1, 2)
    differences = numbers[:, 1] - numbers[:, 0]
    ends = np.cumsum([len(pair.facts) for pair in pairs])
    return np.array([part.mean() for part in np.split(differences, ends)[:-1]])


@dataclass(frozen=True, slots=True)
class Separation:
    """How well meaning scores tell paraphrases from controls."""

    positives: int
    """Pairs of patterns of one relation."""
    controls: int
    """Pairs of patterns of two relations, filled with the same subjects and objects."""
    auc: float
    """The probability that a positive pair scores higher than a control; 0.5 for a coin."""
    low: float
    """Lower bound of its 95 % interval, over relations; NaN with too few of them."""
    high: float
    threshold: float | None
    """The score with the greatest sum of sensitivity and specificity; None where the lower bound
    of the AUC is unknown or below ``LEAST_AUC``."""


def sample_pairs(
    suite: Suite,
    most: int,
    facts: int,
    seed: int = 0,
    others: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[PatternPair], list[PatternPair]]:
    """Positive pairs and controls: at most ``most`` of each a relation.

    A positive pair is the base pattern of a relation with another one of its patterns (ParaRel,
    Section 4). A control is the base pattern with a pattern of another relation, filled with the
    same ``facts`` facts. ``others``: the relations that controls may come from, by relation; all
    without it.
    """
    rng = random.Random(seed)
    positives: list[PatternPair] = []
    controls: list[PatternPair] = []
    for relation in suite:
        allowed = suite_ids(suite, relation.id) if others is None else others.get(relation.id, ())
        base, *rest = relation.patterns
        foreign = [
            pattern
            for id_ in allowed
            for pattern in suite.relation(id_).patterns
            if normal_form(pattern.text) not in {normal_form(p.text) for p in relation.patterns}
        ]
        if not rest or not foreign:
            continue
        chosen = rng.sample(relation.facts, min(facts, len(relation.facts)))
        for pool, pairs in ((rest, positives), (foreign, controls)):
            for pattern in rng.sample(pool, min(most, len(rest), len(pool))):
                pairs.append(PatternPair(relation, base, pattern, chosen))
    return positives, controls


def suite_ids(suite: Suite, without: str) -> list[str]:
    """The ids of the relations of a suite, without one of them."""
    return [relation.id for relation in suite if relation.id != without]


def separation(
    positives: Mapping[str, Sequence[float]], controls: Mapping[str, Sequence[float]], seed: int = 0
) -> Separation:
    """How well the scores of positive pairs and of controls are separated, by relation.

    The interval is that of a bootstrap over relations, which keeps the pairs of a relation together
    (percentiles 2.5 and 97.5 of ``RESAMPLES``).
    """
    relations = sorted(positives)
    of_relations = [
        (np.asarray(positives[id_], float), np.asarray(controls.get(id_, ()), float))
        for id_ in relations
    ]
    value = auc_of(of_relations)
    low = high = float("nan")
    if len(relations) >= FEWEST_RELATIONS:
        rng = np.random.default_rng(seed)
        draws = rng.integers(len(relations), size=(RESAMPLES, len(relations)))
        values = [auc_of([of_relations[at] for at in draw]) for draw in draws]
        low, high = np.nanpercentile(values, [2.5, 97.5]).tolist()
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    threshold = best_threshold(yes, no) if low >= LEAST_AUC else None
    return Separation(len(yes), len(no), value, low, high, threshold)


def auc_of(of_relations: Sequence[tuple[Floats, Floats]]) -> float:
    """The share of (positive, control) pairs whose positive scores higher; ties count half."""
    yes, no = (np.concatenate(parts) for parts in zip(*of_relations, strict=True))
    if not len(yes) or not len(no):
        return float("nan")
    higher = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    return float(higher)


def best_threshold(yes: Floats, no: Floats) -> float:
    """The least score whose sum of sensitivity and specificity is greatest (Youden's index)."""
    scores = np.unique(np.concatenate([yes, no]))
    index = [(yes >= score).mean() - (no >= score).mean() for score in scores]
    return float(scores[int(np.argmax(index))])


def measured_separation(
    suite: Suite, judge: MeaningJudge, *, most: int, facts: int, seed: int = 0
) -> Separation | None:
    """The separation of a judge on the patterns of a suite; None for a suite without controls."""
    positives, controls = sample_pairs(suite, most, facts, seed)
    if not positives:
        return None
    scores = meaning_scores([*positives, *controls], judge)
    yes = by_relation(positives, scores[: len(positives)])
    return separation(yes, by_relation(controls, scores[len(positives) :]), seed)


def by_relation(pairs: Sequence[PatternPair], scores: Floats) -> dict[str, list[float]]:
    """The scores of pairs by their relation; those without a score are left out."""
    by_id: dict[str, list[float]] = {}
    for pair, score in zip(pairs, scores.tolist(), strict=True):
        by_id.setdefault(pair.relation.id, [])
        if not math.isnan(score):
            by_id[pair.relation.id].append(score)
    return by_id


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
