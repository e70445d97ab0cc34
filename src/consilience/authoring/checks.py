"""How patterns are compared, and the checks: what may be wrong with a suite."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeVar

from consilience.core.items import Question
from consilience.core.patterns import Pattern
from consilience.core.text import (
    WITHOUT_SPACES,
    counted,
    fold_case,
    listed,
    whole_words,
)
from consilience.plans.references import KINDS, by_kind, references_of
from consilience.suites.question_suites import gold_position_note
from consilience.suites.questions import Questions, normal
from consilience.types import Fact, Relation, Suite

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


def has_words(pattern: str) -> bool:
    """Whether a pattern has a letter besides its slots; one without says nothing."""
    return any(sign.isalpha() for sign in pattern.replace("[X]", "").replace("[Y]", ""))


K = TypeVar("K")
V = TypeVar("V")
Found = tuple[str, int]  # What a check finds in a group, in words, and how many faults it is
Find = Callable[[Any], Iterable[Found]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a suite that a person should look at."""

    check: str
    group: str  # The relation or the group of questions; empty for the whole suite
    evidence: str
    count: int
    todo: str


def several(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Key -> its values, for each key with more than one."""
    values: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        values[key].append(value)
    return {key: of_key for key, of_key in values.items() if len(of_key) > 1}


@dataclass(frozen=True, slots=True)
class Check:
    """A function that looks for one kind of fault in a relation or in a group of questions."""

    find: Find
    todo: str
    of: type[Suite] | type[Questions] = Suite
    is_of_all: bool = False  # Whether it reads the whole suite


CHECKS: dict[str, Check] = {}


def check(todo: str, **more: Any) -> Callable[[Find], Find]:
    """Register a function as a check; ``more``: fields of ``Check``."""

    def register(find: Find) -> Find:
        CHECKS[find.__name__] = Check(find, todo, **more)
        return find

    return register


def findings_of(suite: Suite | Questions) -> Iterator[Finding]:
    """Everything that the checks find in a suite."""
    groups: Mapping[str, Any]
    if isinstance(suite, Suite):
        groups = {relation.id: relation for relation in suite}
    else:
        groups = suite.groups
    for name, one in CHECKS.items():
        if isinstance(suite, one.of):
            for group, content in ({"": suite} if one.is_of_all else groups).items():
                for evidence, count in one.find(content):
                    yield Finding(name, group, evidence, count, one.todo)


def cautions(suite: Suite | Questions) -> list[str]:
    """What is no error but decides what a suite's numbers mean."""
    findings = list(findings_of(suite))
    groups = [one.id for one in suite] if isinstance(suite, Suite) else [*suite.groups]
    positions = {name: at for at, name in enumerate(groups)}
    in_order = sorted(findings, key=lambda finding: positions.get(finding.group, -1))
    return [f"{one.group}: {one.evidence}" if one.group else one.evidence for one in in_order]


# Facts.


@check("Keep one object for each subject, or make the relation N-M.")
def several_golds(relation: Relation) -> Iterator[Found]:
    """Subjects of an N-1 relation with several objects."""
    pairs = dict.fromkeys((fact.subject, fact.object) for fact in relation.facts)
    golds = several(pairs) if relation.cardinality == "N-1" else {}
    for subject, first in [*golds.items()][:1]:
        size = f"{counted(len(golds), 'subject')} of an N-1 relation with several objects"
        yield f"{size}, such as '{subject}': {listed(first)}", len(golds)


@check("Remove all but one of them.")
def duplicate_facts(relation: Relation) -> Iterator[Found]:
    """Facts that are in a relation more than once."""
    items = several(((fact.subject, fact.object), fact.item) for fact in relation.facts)
    surplus = sum(map(len, items.values())) - len(items)
    for (subject, gold), names in [*items.items()][:1]:
        example = f"'{subject}', '{gold}' (items {listed(names)})"
        yield f"{counted(surplus, 'duplicate fact')}, such as {example}", surplus


@check("Write each name in one way.")
def same_spelling(relation: Relation) -> Iterator[Found]:
    """Subjects or candidates that differ only in case, spaces, apostrophes or Unicode form."""
    subjects = dict.fromkeys(fact.subject for fact in relation.facts)
    for names, before in ((dict.fromkeys(relation.candidates.words), ""), (subjects, "subjects: ")):
        for same in several((one_spelling(name), name) for name in names).values():
            quoted = listed([f"'{name}'" for name in sorted(same)], len(same))
            evidence = f"{before}{quoted} differ only in case, spaces, apostrophes or Unicode form"
            yield evidence, len(same)


APOSTROPHES = str.maketrans("\u2018\u2019\u02bc`", "''''")


def one_spelling(name: str) -> str:
    """A name without case and repeated spaces, with straight apostrophes, in Unicode form NFC."""
    folded = fold_case(unicodedata.normalize("NFC", name)).translate(APOSTROPHES)
    return " ".join(folded.split())


@check("Report them apart, or leave them out: the answer can be copied.")
def object_in_subject(relation: Relation) -> Iterator[Found]:
    """Subjects that contain their object."""
    pairs = [(fact.subject, fact.object) for fact in relation.facts]
    inside = [pair for pair in pairs if contains(*pair)]
    for subject, gold in inside[:1]:
        size, share = counted(len(pairs), "fact"), 100 * len(inside) / len(pairs)
        yield f"{len(inside)} of {size} ({share:.0f} %), such as '{subject}', '{gold}'", len(inside)


def contains(text: str, part: str) -> bool:
    """Whether a part is in a text as whole words; case does not matter."""
    text, part = fold_case(text), fold_case(part)
    return part in text and whole_words(part).search(text) is not None


# Patterns.

SPACE_FAULT = re.compile(r"\s{2,}|[^\S ]|^\s|\s$|\s(?=[.,](?:\s|$))")
"""A doubled space, a space that is no plain one, one at an end, and one before a stop or comma."""


@check("Write single spaces.")
def spaces(relation: Relation) -> Iterator[Found]:
    """Doubled spaces, spaces at an end, or a space before a full stop or comma."""
    for pattern in relation.patterns:
        if SPACE_FAULT.search(pattern.text):
            yield f"'{pattern.text}'", 1


@check("Add patterns that end in [Y], or measure causal models on other relations.")
def few_for_causal_models(relation: Relation) -> Iterator[Found]:
    """Fewer than two patterns end right after [Y], so causal models have no consistency."""
    size, last = len(relation.patterns), sum(one.object_last for one in relation.patterns)
    if size > 1 and last < 2:
        yield f"patterns that end after [Y]: {last} of {size}", size - last


@check("Add patterns.", is_of_all=True)
def single_pattern(suite: Suite) -> Iterator[Found]:
    """A relation with one pattern."""
    single = [relation.id for relation in suite if len(relation.patterns) == 1]
    if single:
        yield f"one pattern, so no consistency: {listed(single)}", len(single)


@check("Remove one of the two.")
def duplicate_patterns(relation: Relation) -> Iterator[Found]:
    """Patterns of a relation that differ only in case, spaces or punctuation."""
    first: dict[str, Pattern] = {}
    for pattern in relation.patterns:
        earlier = first.setdefault(normal_form(pattern.text), pattern)
        if earlier is not pattern:
            yield f"'{earlier.text}' and '{pattern.text}'", 2


# Questions.

Asked = Sequence[Question]


def _texts(question: Question) -> list[str]:
    return [text for texts in question.paraphrases.values() for text in texts]


@check("Add phrasings, or vary other factors (docs/factors.md).", of=Questions)
def one_phrasing(items: Asked) -> Iterator[Found]:
    """Questions with one phrasing."""
    single = [item.item for item in items if item.phrasings == 1]
    if single:
        noun = f"{counted(len(single), 'question')} {'has' if len(single) == 1 else 'have'}"
        yield f"{noun} one phrasing, such as {single[0]}", len(single)


@check("Give all questions of a group as many options.", of=Questions)
def options_differ(items: Asked) -> Iterator[Found]:
    """Questions of a group with different numbers of options."""
    sizes = sorted({len(item.options) for item in items})
    if len(sizes) > 1:
        number_of = f"{sizes[0]} to {sizes[-1]} options"
        yield f"questions have {number_of}, which are chosen at other rates", len(items)


@check("Correct it with a column `pin` (docs/factors.md) where that is not meant.", of=Questions)
def speaking_options(items: Asked) -> Iterator[Found]:
    """Options that speak of others, such as *All of the above*: not every order can be asked."""
    for kind, of in by_kind(items).items():
        known = references_of(of[0])
        text = of[0].options[max(known.named if kind == "named" else known.speaking)].text
        what = f"{counted(len(of), 'question')} {KINDS[kind][len(of) > 1]}"
        yield f"options that speak of others: {what}, such as '{text}' ({of[0].item})", len(of)


@check("Use `distractors` in place of `options`: their order is drawn.",
       of=Questions, is_of_all=True)  # fmt: skip
def gold_position(questions: Questions) -> Iterator[Found]:
    """The right answer is at the same position in every question, or every one of a group."""
    is_of_all = bool(gold_position_note(questions.items))
    for name, items in ({"": questions.items} if is_of_all else questions.groups).items():
        if evidence := gold_position_note(items):
            yield f"{name}: {evidence}" if name else evidence, len(items)


@check("Make one question of the two: further rows with the same item are phrasings.", of=Questions)
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
    for one, two in pairs[:1]:
        example = f"'{_texts(one)[0]}' (items {one.item}, {two.item})"
        yield f"{counted(len(pairs), 'duplicate question')}, such as {example}", len(pairs)


@check("Remove one of the two.", of=Questions)
def same_phrasings(items: Asked) -> Iterator[Found]:
    """Phrasings of a question that differ only in spaces or punctuation."""
    for question in items:
        for texts in question.paraphrases.values():
            for one, two in combinations(texts, 2):
                if same_phrasing(one, two):
                    yield f"'{one}' and '{two}' (item {question.item})", 2


@check("Replace one of them.", of=Questions)
def same_options(items: Asked) -> Iterator[Found]:
    """Options of a question that mean the same: aliases, or case."""
    for question in items:
        for one, two in combinations(question.options, 2):
            if {*map(one_spelling, one.texts)} & {*map(one_spelling, two.texts)}:
                yield f"'{one.text}' and '{two.text}' (item {question.item})", 2
