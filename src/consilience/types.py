"""The values that every room shares: what is asked, what may be answered, and the two tables.

All values are frozen. Axis names in shapes are those of ``docs/glossary.md``.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.errors import ConsilienceError, did_you_mean

SUBJECT_SLOT = "[X]"
OBJECT_SLOT = "[Y]"

Protocol = Literal["published", "strict"]
Cardinality = Literal["N-1", "N-M"]
MultiToken = Literal["exclude", "left-to-right"]

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"

CONTROLS = re.compile(f"[{_CONTROLS}]")
"""What controls a terminal or the direction of text instead of being text: C0 and C1 controls but
for tab and line feed, DEL, line and paragraph separators, the bidirectional embeddings, overrides
and isolates, and lone surrogates. The directional marks (U+200E, U+200F, U+061C), which Arabic and
Hebrew texts hold, are none of these."""

LINE_CONTROLS = re.compile(f"[\t\n{_CONTROLS}]")
"""What no text on one line may hold: ``CONTROLS``, tab and line feed."""


def visible(text: str) -> str:
    """The text with U+FFFD in the place of each of ``CONTROLS``; tabs and line feeds stay."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


MAX_NAME_BYTES = 100
"""The longest id that can be part of a file name everywhere, in bytes of UTF-8."""


def names_a_file(id_: str) -> bool:
    """Whether a file of this name, with any suffix, stays in its folder on every system.

    False for an empty id, one with a leading dot, a path separator or NUL, one that UTF-8 cannot
    encode, and one of more than ``MAX_NAME_BYTES`` bytes.
    """
    try:
        size = len(id_.encode())
    except UnicodeEncodeError:
        return False
    is_plain = not id_.startswith(".") and not any(character in id_ for character in "/\\\0")
    return is_plain and 0 < size <= MAX_NAME_BYTES


ENDINGS = frozenset(
    ".!?\u2026\u203c\u203d\u2047\u2048\u2049"  # Latin, Greek, Cyrillic, Hebrew: also ... !! ?!
    "\u3002\uff0e\uff61\uff01\uff1f"  # Chinese, Japanese, Korean; full and half width
    "\u061f\u06d4"  # Arabic, Persian, Urdu
    "\u0964\u0965"  # the danda of Hindi, Bengali and other scripts of India
    "\u0589\u1362\u1367\u1368\u104b\u17d4"  # Armenian, Ethiopic, Burmese, Khmer
)
"""Characters that end a sentence: of Unicode's property Sentence_Terminal those in use, and the
ellipsis."""


def _closes(character: str) -> bool:
    """Whether a character after the last word of a sentence says nothing more."""
    is_closer = unicodedata.category(character) in ("Zs", "Cf", "Pe", "Pf", "Pi")
    return is_closer or character in ENDINGS or character in "\"'"


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
        """Parse ``"[X] was born in [Y]."``; raises where a slot is missing or stands twice."""
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
        return not self.object_first and all(map(_closes, self.parts[2]))

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
    """One thing that is asked: an item with its subject and its gold object."""

    item: str
    subject: str
    object: str


@dataclass(frozen=True, slots=True)
class Edge:
    """How two patterns of a relation differ (ParaRel, Section 6.3)."""

    syntactic: bool
    lexical: bool
    determiner: bool

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
    """What may be answered: the words in a fixed order, and how many facts have each as gold.

    The order is that of first appearance among the facts; it breaks ties between equal scores.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]

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
    """Relations that are probed together, and the protocol that they are judged by unless asked.

    ``notes`` say what was left out on the way from the files.
    """

    name: str
    relations: tuple[Relation, ...]
    protocol: Protocol
    notes: tuple[str, ...] = ()
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
    """One item asked in one variant.

    A language model does not look at ``gold``, except to find it in its whole vocabulary.
    """

    pattern: Pattern
    subject: str
    gold: str


TaskKind = Literal["NLI", "STS"]


@dataclass(frozen=True, slots=True)
class Task:
    """A sentence-pair task: what its files hold, and how a pair is written for a model.

    ``kind``: inference or similarity (CALUM, Section 4.1). ``first, second, label``: the names that
    a column goes by, the first one present counts; a dot leads into nested objects.
    ``indicators``: what stands before each sentence. ``labels``: the label words; a file that has
    numbers means their places here. ``t5_fields``: the names in T5's text form, which writes them
    in alphabetical order; empty for a task that T5 was not trained on. ``metrics``: of the original
    inputs; f1 is that of the last label. ``hub``: dataset and configuration. ``splits``: training,
    validation and test, empty where there is none. ``threshold``: labels are grades, and one of at
    least this is the last label.
    """

    name: str
    kind: TaskKind
    first: tuple[str, ...]
    second: tuple[str, ...]
    label: tuple[str, ...]
    indicators: tuple[str, str]
    labels: tuple[str, ...]
    t5_fields: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    hub: tuple[str, ...] = ()
    splits: tuple[str, str, str] = ("train", "validation", "")
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class TextPair:
    """One labelled sentence pair."""

    item: str
    """Names the pair."""
    first: str
    """The first sentence."""
    second: str
    """The second sentence."""
    label: str
    """One of its task's label words."""
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Other sentences of its row, by column; only those that perturbations ask for."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence behind its indicator: ``before + indicator + after + sentence``."""

    indicator: str
    sentence: str
    before: str = ""
    after: str = ": "

    @property
    def mark(self) -> str:
        """All that stands before the sentence."""
        return self.before + self.indicator + self.after

    @property
    def text(self) -> str:
        """What a model reads."""
        return self.mark + self.sentence


Form = tuple[Segment, ...]
"""An item written in one variant: its two sentences, in the order in which they are read."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model says of some of the queries that it was asked.

    ``rows`` (row,): positions among the queries. ``words``: the candidates. ``logprob``
    (row, candidate): natural log-probability, normalised over the candidates that take part; NaN
    for one that does not. ``reasons`` says why it does not, except where another with the same
    token speaks for it: ``same`` (candidate,) is the position of the one that does, usually itself.
    ``tokens`` (candidate,): the vocabulary entry that stood for the candidate, where one did.
    ``unasked`` says why these queries could not be asked at all; ``logprob`` is then all NaN.
    ``totals`` (row, candidate): natural log-probability of the candidate's whole text, for models
    that give one (``text_logprob`` of the answers table). Where ``logprob`` is None only the
    candidates with a total were finished, the best among them; every other is known to have a
    smaller one. ``answers_only``: the scores only order the candidates.
    """

    rows: npt.NDArray[np.int64]
    words: tuple[str, ...]
    logprob: npt.NDArray[np.float64] | None
    reasons: Mapping[str, str] = field(default_factory=dict)
    same: npt.NDArray[np.int64] | None = None
    tokens: tuple[str | None, ...] | None = None
    unasked: str | None = None
    totals: npt.NDArray[np.float64] | None = None
    answers_only: bool = False


ANSWERS_SCHEMA: dict[str, type[pl.DataType]] = {
    "suite": pl.String,
    "group": pl.String,
    "item": pl.String,
    "subject": pl.String,
    "variant": pl.String,
    "variant_index": pl.Int32,
    "gold": pl.String,
    "gold_token": pl.String,
    "answer": pl.String,
    "logprob": pl.Float64,
    "gold_logprob": pl.Float64,
    "gold_rank": pl.Int32,
    "margin": pl.Float64,
    "text_logprob": pl.Float64,
    "gold_text_logprob": pl.Float64,
    "n_candidates": pl.Int32,
    "excluded": pl.String,
}
"""One row a query, in the order of facts and, within a fact, of patterns.

``logprob`` and ``gold_logprob`` are log-probabilities in nats, normalised over the candidates.
``gold_rank`` 1 is best. ``margin`` is best minus second. They are null where not all candidates
were scored in full. ``text_logprob`` and ``gold_text_logprob`` are log-probabilities in nats of the
text that the answer and the gold make, for models that give one: the whole sentence of a causal
model, the object of a sequence-to-sequence model, and the pseudo-log-likelihood of the object of a
masked model that fills in several tokens. ``variant_index`` 0 is the base variant.
``answer`` is null and ``excluded`` says why where a query could not be asked or answered.
``gold_token`` is the vocabulary entry that stood for the gold, null where none did.

``--keep-scores`` adds a column ``scores`` (candidate,): ``logprob`` of every candidate, in the
order of ``words`` in ``run.json``; null for one that took no part.
"""

SEVERAL_TOKENS = "split into"
"""In ``excluded``: the gold is several tokens of the model."""

SEVERAL_TOKENS_BEFORE = "cut into"
"""The same in answers of earlier versions."""

METRICS_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "suite": pl.String,
    "group": pl.String,
    "subset": pl.String,
    "value": pl.Float64,
    "std": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "n_excluded": pl.Int64,
    "seeds": pl.Int64,
    "seed_low": pl.Float64,
    "seed_high": pl.Float64,
}
"""One row a number: a fraction from 0 to 1, NaN where there is no data.

- ``subset``: ``all``, an edit kind, or a form of the items.
- ``std``: sample standard deviation, of ``MACRO`` over the groups, else over the seeds.
- ``low``, ``high``: bounds of the 95 % interval over items, of ``MACRO`` over groups.
- ``n``, ``n_excluded``: how many things were counted, and how many have no answer.
- ``seeds``: how many runs the value is the mean of; ``seed_low`` and ``seed_high`` are the bounds
  of the 95 % interval of that mean over seeds.
"""

COMPARISON_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "suite": pl.String,
    "group": pl.String,
    "subset": pl.String,
    "first": pl.String,
    "second": pl.String,
    "first_value": pl.Float64,
    "second_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "test": pl.String,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "q_value": pl.Float64,
    "smallest": pl.Float64,
    "n": pl.Int64,
    "n_excluded": pl.Int64,
    "seeds": pl.Int64,
    "p_seeds": pl.Float64,
}
"""One row a difference, ``second`` minus ``first``, of means over as many seeds of both.

- ``low``, ``high``: bounds of its 95 % interval.
- ``p``: two-sided p of ``test``.
- ``p_holm``, ``q_value`` (Benjamini-Hochberg): p adjusted over the groups of one metric and subset,
  of sentence pairs over the forms of one metric and group; NaN for what is over all of these.
- ``smallest``: the minimum detectable difference, found with a probability of 80 %.
- ``p_seeds``: p of Welch's t test over seeds; NaN for one seed.
"""
