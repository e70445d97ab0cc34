"""The values that all packages share: what is asked, and what may be answered.

All values are frozen. Axis names in shapes are those of ``docs/glossary.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from consilience.errors import ConsilienceError, did_you_mean
from consilience.text import closes_sentence

SUBJECT_SLOT = "[X]"

OBJECT_SLOT = "[Y]"

Protocol = Literal["published", "strict"]

Cardinality = Literal["N-1", "N-M"]

MultiToken = Literal["exclude", "left-to-right"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A cloze pattern, parsed once: one ``[X]`` (subject) and one ``[Y]`` (object)."""

    text: str
    """The pattern with its two slots."""
    parts: tuple[str, str, str]
    """The literal text before, between and after the two slots."""
    object_first: bool
    """Whether the object's slot precedes the subject's."""
    lemma: str = ""
    """The lemma of the predicate, as ParaRel annotates it."""
    extended_lemma: str = ""
    """The lemma with its particles and prepositions."""
    tense: str = ""
    """The tense of the predicate."""
    form: str = ""
    """The perturbation that made the pattern of another one; empty for a pattern of the suite."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        lemma: str = "",
        extended_lemma: str = "",
        tense: str = "",
        where: str = "",
    ) -> Pattern:
        """Parse ``"[X] was born in [Y]."``; a missing or duplicate slot raises."""
        for slot, role in ((SUBJECT_SLOT, "subject"), (OBJECT_SLOT, "object")):
            count = text.count(slot)
            if count != 1:
                raise ConsilienceError(
                    f"the pattern '{text}' has {count} {slot}",
                    expected=f"exactly one {slot} for the {role}",
                    where=where,
                    todo="Correct the pattern.",
                )
        subject_at, object_at = text.index(SUBJECT_SLOT), text.index(OBJECT_SLOT)
        first, second = sorted((subject_at, object_at))
        parts = (text[:first], text[first + 3 : second], text[second + 3 :])
        return cls(text, parts, object_at < subject_at, lemma, extended_lemma, tense)

    @property
    def name(self) -> str:
        """What the answers table calls the variant: the text, after the perturbation if any."""
        return f"{self.form}: {self.text}" if self.form else self.text

    def fill(self, subject: str, object_: str) -> str:
        """The sentence with both slots filled."""
        left, right = self.around_object(subject)
        return left + object_ + right

    def around_object(self, subject: str) -> tuple[str, str]:
        """The text on the left and on the right of the object slot, with the subject filled in."""
        start, middle, end = self.parts
        if self.object_first:
            return start, middle + subject + end
        return start + subject + middle, end

    @property
    def object_last(self) -> bool:
        """Whether nothing but spaces and closing punctuation follows the object.

        Then a causal model has read all that the sentence says when it is asked for the object.
        Closing punctuation of any script ends a sentence (``ENDINGS``), or closes a quotation or
        a bracket that was opened before the object: brackets of category Pe, and all quotation
        marks, since one that nothing follows cannot open a quotation, whichever way it faces
        (German closes with U+201C). A comma, a colon, a per cent sign or a dash is none.
        """
        return not self.object_first and all(map(closes_sentence, self.parts[2]))

    @property
    def article(self) -> str | None:
        """``a`` or ``an`` where exactly that word stands before the one that holds ``[Y]``.

        The test of ParaRel's released evaluation, which splits at single spaces.
        """
        words = self.text.split(" ")
        at = next(index for index, word in enumerate(words) if OBJECT_SLOT in word)
        before = words[at - 1] if at else ""
        return before if before in ("a", "an") else None


@dataclass(frozen=True, slots=True)
class Fact:
    """An item of a relation."""

    item: str
    """Names the fact."""
    subject: str
    """Its subject."""
    object: str
    """Its gold object."""


@dataclass(frozen=True, slots=True)
class Edge:
    """How two patterns of a relation differ (ParaRel, Section 6.3)."""

    syntactic: bool
    """Whether the syntax differs."""
    lexical: bool
    """Whether the words differ."""
    determiner: bool
    """Whether the determiner differs."""

    @property
    def kind(self) -> str:
        """The name of the edit kind; every edge with another determiner is ``diff_determiner``."""
        if self.determiner:
            return "diff_determiner"
        return EDIT_KINDS[self.syntactic, self.lexical]


EDIT_KINDS: Mapping[tuple[bool, bool], str] = {
    (True, False): "diff_syntax",
    (False, True): "diff_lexical",
    (True, True): "diff_both",
    (False, False): "no_change",
}
"""(syntactic change, lexical change) of an edge whose determiners are the same -> its name."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The possible answers, in order of first appearance among the facts, which breaks ties."""

    words: tuple[str, ...]
    """The candidates."""
    counts: tuple[int, ...]
    """How many facts have each as gold."""

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Candidates:
        """The gold objects of ``facts``."""
        counter = Counter(fact.object for fact in facts)
        return cls(tuple(counter), tuple(counter.values()))


VariantPair = tuple[int, int]
"""Positions of two variants of a group."""

ORIGINAL = "original"
"""The base form: items as the suite has them. Perturbations make the other forms."""


@dataclass(frozen=True, slots=True)
class Design:
    """Which variants of a group are compared, and what is counted of them.

    The answers to two compared variants are expected to be the same. Facts and sentence pairs
    differ in nothing else when their answers are counted.
    """

    variants: tuple[str, ...]
    """The names of the variants, the base variant first."""
    forms: Mapping[str, tuple[int, ...]]
    """The variants of each form, the base form first. Each form has numbers of its own."""
    compared: tuple[VariantPair, ...]
    """The pairs of variants that are compared."""
    kinds: Mapping[str, tuple[VariantPair, ...]]
    """The compared pairs by how the two variants differ; a kind is a ``subset`` in the tables."""
    unit: Literal["tuple", "item"]
    """What counts once: a subject with its gold, as in ParaRel, or an item."""
    is_averaged: bool
    """Whether numbers are also averaged over the groups of the suite."""
    labels: tuple[str, ...] = ()
    """The only valid answers; empty where every text is one."""
    writes_freely: bool = False
    """Whether an answer may be none of ``labels``, because the model writes it."""
    positive: str = ""
    """The label whose F1 is counted; empty for none."""

    @classmethod
    def of_patterns(cls, patterns: Sequence[Pattern], edges: Mapping[VariantPair, Edge]) -> Design:
        """Every two patterns are compared; perturbed ones with the pattern that they were made of.

        The kinds are the edit kinds of ``edges``, or the perturbations.
        """
        forms: dict[str, list[int]] = {}
        for at, pattern in enumerate(patterns):
            forms.setdefault(pattern.form or ORIGINAL, []).append(at)
        kinds: dict[str, list[VariantPair]] = {}
        if len(forms) == 1:
            compared = list(combinations(range(len(patterns)), 2))
            for pair, edge in sorted(edges.items()):
                kinds.setdefault(edge.kind, []).append(pair)
        else:
            base = forms[ORIGINAL]
            kinds = {
                form: list(zip(base, variants, strict=True))
                for form, variants in forms.items()
                if form != ORIGINAL
            }
            compared = [pair for pairs in kinds.values() for pair in pairs]
        return cls(
            variants=tuple(pattern.name for pattern in patterns),
            forms={form: tuple(variants) for form, variants in forms.items()},
            compared=tuple(compared),
            kinds={kind: tuple(pairs) for kind, pairs in kinds.items()},
            unit="tuple",
            is_averaged=True,
        )

    @classmethod
    def of_forms(
        cls,
        forms: Sequence[str],
        labels: Sequence[str],
        *,
        writes_freely: bool = False,
        positive: str = "",
    ) -> Design:
        """Sentence pairs in several forms, the original first: each is compared with it (CALUM)."""
        kinds = {form: ((0, at),) for at, form in enumerate(forms) if at}
        return cls(
            variants=tuple(forms),
            forms={form: (at,) for at, form in enumerate(forms)},
            compared=tuple(pair for pairs in kinds.values() for pair in pairs),
            kinds=kinds,
            unit="item",
            is_averaged=False,
            labels=tuple(labels),
            writes_freely=writes_freely,
            positive=positive,
        )


@dataclass(frozen=True, slots=True)
class Relation:
    """A group of a suite: a relation with its facts and patterns, or a task of sentence pairs."""

    id: str
    """Names the group in tables and files."""
    label: str
    """What a reader calls it."""
    cardinality: Cardinality
    """How many right objects a subject may have."""
    patterns: tuple[Pattern, ...]
    """The patterns, the base pattern first; none of a task."""
    facts: tuple[Fact, ...]
    """What is asked; empty for a task, whose sentence pairs are in ``Pairs``."""
    edges: Mapping[VariantPair, Edge]
    """How two patterns ``(i, j)``, ``i < j``, differ, where that is known."""
    candidates: Candidates
    """The objects of all facts of the relation, also where ``facts`` is a sample."""
    given_design: Design | None = None
    """The design of a task; None for that of the patterns."""

    @property
    def design(self) -> Design:
        """Which variants are compared, and what is counted of them."""
        return self.given_design or Design.of_patterns(self.patterns, self.edges)


@dataclass(frozen=True, slots=True)
class Suite:
    """Groups that are asked together."""

    name: str
    """Names the suite."""
    relations: tuple[Relation, ...]
    """The groups."""
    protocol: Protocol
    """How answers are judged by default."""
    notes: tuple[str, ...] = ()
    """What was left out when the files were read."""
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Relation -> objects that the authors leave out, also of other facts (ParaRel, note 11)."""

    @property
    def digest(self) -> str:
        """SHA-256 of all that is asked: patterns, facts, candidates and edges, in their order."""
        digest = hashlib.sha256()
        for relation in self.relations:
            content = [
                relation.id,
                relation.cardinality,
                [pattern.name for pattern in relation.patterns],
                [[fact.item, fact.subject, fact.object] for fact in relation.facts],
                [relation.candidates.words, relation.candidates.counts],
                [[*pair, edge.kind] for pair, edge in sorted(relation.edges.items())],
            ]
            digest.update(json.dumps(content, ensure_ascii=False).encode())
        return digest.hexdigest()

    def relation(self, id_: str) -> Relation:
        """The relation of that id; an unknown one raises with the closest name."""
        for relation in self.relations:
            if relation.id == id_:
                return relation
        raise ConsilienceError(
            f"the suite '{self.name}' has no relation '{id_}'",
            todo=did_you_mean(id_, [relation.id for relation in self.relations]),
        )


@dataclass(frozen=True, slots=True)
class Query:
    """One item asked in one variant."""

    pattern: Pattern
    """The variant."""
    subject: str
    """The subject of the item."""
    gold: str
    """The gold; a language model only looks it up in its whole vocabulary."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of some of the queries that a model was asked."""

    rows: npt.NDArray[np.int64]
    """Positions among the queries (row,)."""
    words: tuple[str, ...]
    """The candidates."""
    logprob: npt.NDArray[np.float64] | None
    """Natural log-probability, normalised over the candidates that take part; NaN for others (row,
    candidate). None where only the best candidate was finished: it has a total, and every other
    one a smaller total."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a candidate was excluded."""
    same: npt.NDArray[np.int64] | None = None
    """Position of the candidate whose score is used; differs from its own only where two candidates
    are the same token (candidate,)."""
    tokens: tuple[str | None, ...] | None = None
    """The vocabulary entry of each candidate, where there is one (candidate,)."""
    unasked: str | None = None
    """Why these queries could not be asked; ``logprob`` is then all NaN."""
    totals: npt.NDArray[np.float64] | None = None
    """Natural log-probability of the candidate's whole text, of models that give one (row,
    candidate); ``text_logprob`` of the answers table."""
    answers_only: bool = False
    """Whether the scores only order the candidates."""
