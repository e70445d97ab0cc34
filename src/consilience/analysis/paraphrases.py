"""The paraphrase types of pairs of patterns (ParaRel, Appendix B, Table 8).

The paper's authors judged 100 pairs by hand. Here every type that shows in words, tags and trees
has a rule; a pair may have several types, or none. Two types are not derived: external knowledge
(``music label [Y]`` for ``[Y]``) is not in the pattern, and noun/adjective conversion changes the
class of the filler and no word of the pattern. The patterns of a relation are assumed to mean the
same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import polars as pl

from consilience.analysis.patterns import changes
from consilience.analysis.syntax import Pair, Parsed, edge_between, parsed_pairs, path
from consilience.types import Relation, Suite

if TYPE_CHECKING:
    from spacy.language import Language

Rule = Callable[[Parsed, Parsed], bool]

PARAPHRASE_TYPES: dict[str, Rule] = {}

OPEN_CLASSES = frozenset({"ADJ", "ADV", "NOUN", "NUM", "PROPN", "VERB"})
TENSES = frozenset({"past", "present", "future"})
FINITE = {"MD": "present", "VBD": "past", "VBP": "present", "VBZ": "present"}
"""Tags of finite verbs -> tense; ``will`` makes the future."""

NOUN_ENDINGS = frozenset(
    {"", "al", "ance", "ation", "e", "ee", "er", "ing", "ion", "ment", "or", "s", "t"}
)
"""What follows a verb's stem (its lemma without a final ``e``) in a derived noun."""

TOPIC_CLASSES = frozenset({"ADP", "ADV", "SCONJ"})
TOPIC_TAGS = frozenset({"VBG", "VBN"})


def paraphrase_types(relation: Relation, parser: Language) -> dict[Pair, frozenset[str]]:
    """The paraphrase types of every two patterns of a relation."""
    return {pair: types_between(a, b) for pair, (a, b) in parsed_pairs(relation, parser).items()}


def base_types(suite: Suite, parser: Language) -> pl.DataFrame:
    """How many pairs with a base pattern have each type: ``type, pairs, share``."""
    types = [
        names
        for relation in suite.relations
        for pair, names in paraphrase_types(relation, parser).items()
        if pair[0] == 0
    ]
    counts = [sum(name in names for names in types) for name in PARAPHRASE_TYPES]
    table = pl.DataFrame({"type": list(PARAPHRASE_TYPES), "pairs": counts})
    return table.with_columns(share=pl.col("pairs") / max(1, len(types)))


def derived_kinds(suite: Suite, parser: Language) -> dict[str, dict[Pair, frozenset[str]]]:
    """How patterns differ by a parser: paraphrase types, and changes of derived edges.

    The changes are ``syntax``, ``lexis`` and ``determiner``.
    """
    return {
        relation.id: {
            pair: types_between(a, b) | changes(edge_between(a, b))
            for pair, (a, b) in parsed_pairs(relation, parser).items()
        }
        for relation in suite.relations
    }


def types_between(a: Parsed, b: Parsed) -> frozenset[str]:
    """The names of all types whose rule holds between two patterns, in either order."""
    return frozenset(name for name, holds in PARAPHRASE_TYPES.items() if holds(a, b))


def paraphrase_type(rule: Rule) -> Rule:
    """Register a function of two patterns as the type of its name; a duplicate name raises."""
    if rule.__name__ in PARAPHRASE_TYPES:
        raise ValueError(f"there is already a paraphrase type '{rule.__name__}'")
    PARAPHRASE_TYPES[rule.__name__] = rule
    return rule


@paraphrase_type
def synonym_substitution(a: Parsed, b: Parsed) -> bool:
    """Each has an open-class lemma that the other lacks, even as a noun or verb of its stem."""
    return _has_further_lemma(a, b) and _has_further_lemma(b, a)


@paraphrase_type
def function_word_variation(a: Parsed, b: Parsed) -> bool:
    """The open-class lemmas are the same and the lemmas of the other words are not."""
    ours, theirs = (Counter(word.lemma for word in parsed.pattern_words) for parsed in (a, b))
    return Counter(_lemmas(a)) == Counter(_lemmas(b)) and ours != theirs


@paraphrase_type
def converse_substitution(a: Parsed, b: Parsed) -> bool:
    """The dependency path of one is that of the other with subject and object exchanged."""
    return path(a) == path(b)[::-1] != path(b)


@paraphrase_type
def change_of_tense(a: Parsed, b: Parsed) -> bool:
    """The tenses differ, where both have one: annotated, else that of the first finite verb."""
    first, second = tense_of(a), tense_of(b)
    return bool(first and second) and first != second


@paraphrase_type
def change_of_voice(a: Parsed, b: Parsed) -> bool:
    """A verb is passive in one, a past participle without ``have``, and active in the other."""
    return _verbs_differ(a, b, _is_passive)


@paraphrase_type
def change_of_aspect(a: Parsed, b: Parsed) -> bool:
    """A verb is progressive (an ``-ing`` form) or perfect (with ``have``) in one of them only."""
    return _verbs_differ(a, b, _aspect)


@paraphrase_type
def verb_noun_conversion(a: Parsed, b: Parsed) -> bool:
    """One has a verb where the other has the same word as a noun, or a noun of the same stem."""
    return _is_nominalised(a, b) or _is_nominalised(b, a)


@paraphrase_type
def irrelevant_addition(a: Parsed, b: Parsed) -> bool:
    """The open-class lemmas of one are a proper part of those of the other, and not empty."""
    small, large = sorted((Counter(_lemmas(a)), Counter(_lemmas(b))), key=Counter.total)
    return small.total() > 0 and small < large


@paraphrase_type
def topicalization(a: Parsed, b: Parsed) -> bool:
    """Only one begins with a preposition, an adverb, an adverbial noun or a participle."""
    return _has_topic(a) != _has_topic(b)


@paraphrase_type
def apposition(a: Parsed, b: Parsed) -> bool:
    """Only one has a noun phrase in apposition."""
    return _has_apposition(a) != _has_apposition(b)


@paraphrase_type
def other_syntactic_movement(a: Parsed, b: Parsed) -> bool:
    """The dependency paths differ, and none of the types that would explain it holds."""
    return path(a) != path(b) and not any(rule(a, b) for rule in EXPLAIN_A_PATH)


EXPLAIN_A_PATH = (
    apposition,
    change_of_voice,
    converse_substitution,
    synonym_substitution,
    topicalization,
    verb_noun_conversion,
)


@paraphrase_type
def change_of_slot_order(a: Parsed, b: Parsed) -> bool:
    """The object precedes the subject in only one; our type, not among the paper's."""
    return a.pattern.object_first != b.pattern.object_first


def _lemmas(parsed: Parsed, classes: frozenset[str] = OPEN_CLASSES) -> list[str]:
    return [word.lemma for word in parsed.pattern_words if word.pos in classes]


def is_made_of(noun: str, verb: str) -> bool:
    """Whether a noun is the verb itself or its stem with one of ``NOUN_ENDINGS``."""
    stem = verb.removesuffix("e")
    return noun.startswith(stem) and noun.removeprefix(stem) in NOUN_ENDINGS


def _has_further_lemma(a: Parsed, b: Parsed) -> bool:
    theirs = _lemmas(b)
    return any(
        not any(is_made_of(lemma, other) or is_made_of(other, lemma) for other in theirs)
        for lemma in Counter(_lemmas(a)) - Counter(theirs)
    )


def _is_nominalised(a: Parsed, b: Parsed) -> bool:
    verbs, nouns = (
        set(_lemmas(one, classes)) - set(_lemmas(other, classes))
        for one, other, classes in ((a, b, frozenset({"VERB"})), (b, a, frozenset({"NOUN"})))
    )
    return any(is_made_of(noun, verb) for noun in nouns for verb in verbs)


def tense_of(parsed: Parsed) -> str | None:
    """The annotated tense of a pattern, else that of its first finite verb; None without one."""
    if parsed.pattern.tense in TENSES:
        return parsed.pattern.tense
    finite = (
        "future" if word.lemma == "will" else FINITE[word.tag]
        for word in parsed.pattern_words
        if word.tag in FINITE
    )
    return next(finite, None)


Feature = Callable[[Parsed, int], Hashable]


def _verbs_differ(a: Parsed, b: Parsed, feature: Feature) -> bool:
    """Whether a verb of both has different features in them."""
    first, second = _verbs(a, feature), _verbs(b, feature)
    return any(first[lemma] != second[lemma] for lemma in first.keys() & second.keys())


def _verbs(parsed: Parsed, feature: Feature) -> dict[str, set[Hashable]]:
    features: dict[str, set[Hashable]] = {}
    for index, word in enumerate(parsed.words):
        if word.pos == "VERB":
            features.setdefault(word.lemma, set()).add(feature(parsed, index))
    return features


def _is_perfect(parsed: Parsed, at: int) -> bool:
    return any(
        word.head == at and word.label == "aux" and word.lemma == "have" for word in parsed.words
    )


def _is_passive(parsed: Parsed, at: int) -> bool:
    return parsed.words[at].tag == "VBN" and not _is_perfect(parsed, at)


def _aspect(parsed: Parsed, at: int) -> tuple[bool, bool]:
    return parsed.words[at].tag == "VBG", _is_perfect(parsed, at)


def _has_topic(parsed: Parsed) -> bool:
    first = parsed.words[0]
    return 0 not in (parsed.subject, parsed.object) and (
        first.pos in TOPIC_CLASSES or first.tag in TOPIC_TAGS or first.label == "npadvmod"
    )


def _has_apposition(parsed: Parsed) -> bool:
    return any(word.label == "appos" for word in parsed.words)
