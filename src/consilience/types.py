"""The values that all packages share: suites, queries and scores.

All values are frozen. Axis names in shapes are those of ``docs/glossary.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from consilience.core.errors import By, ConsilienceError, Protocol, did_you_mean
from consilience.core.expectations import Expectation
from consilience.core.factors import Design, Edge, VariantPair
from consilience.core.items import Scores as Scores  # noqa: PLC0414
from consilience.core.patterns import ENGLISH, NameTable, Pattern, Writing
from consilience.core.text import counted
from consilience.files.tables import RelationTexts, names_of_frame, texts_of_frame, texts_of_lists

Cardinality = Literal["N-1", "N-M"]


@dataclass(frozen=True, slots=True)
class Fact:
    """An item of a relation."""

    item: str
    subject: str
    object: str
    """The gold."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidates:
    """The possible answers, in order of first appearance among the facts, which breaks ties."""

    words: tuple[str, ...]
    counts: tuple[int, ...]
    """How many facts have each as gold."""

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Candidates:
        """The gold objects of ``facts``."""
        counter = Counter(fact.object for fact in facts)
        return cls(tuple(counter), tuple(counter.values()))

    def __repr__(self) -> str:
        return f"Candidates({len(self.words)}: {_listed(self.words)})"


@dataclass(frozen=True, slots=True)
class SuiteWords:
    """How tables and messages speak of a kind of suite: its nouns are in the singular."""

    group: str
    item: str
    variant: str
    base: str
    """The variant that others are compared with."""
    choice: str
    """What may be answered."""
    answer: str
    """What is the same where two variants agree."""
    clusters: str
    """What varies independently, in the plural."""
    pool: Literal["MACRO", "MICRO", ""]
    """The headline numbers: means over groups, all items together, or each group alone."""
    tables: Sequence[By]
    """The tables of details."""
    protocols: Sequence[Protocol] = ("strict",)
    """How answers may be counted."""

    @property
    def instead(self) -> dict[str, str]:
        """The nouns of a group, an item and a variant, by those of facts."""
        return {"relation": self.group, "fact": self.item, "pattern": self.variant}

    @property
    def is_pooled(self) -> bool:
        return self.pool == "MICRO"

    @property
    def has_means(self) -> bool:
        return self.pool == "MACRO"


FACT_WORDS = SuiteWords(
    "relation", "fact", "pattern", "base pattern", "object", "word", "subjects", "MACRO",
    ("group", "edit", "factor", "pattern", "form", "metric"), ("strict", "published"),
)  # fmt: skip
PAIR_WORDS = SuiteWords(
    "task", "sentence pair", "form", "original form", "label", "label", "sentence pairs", "",
    ("group", "form", "metric"),
)  # fmt: skip
QUESTION_WORDS = SuiteWords(
    "group", "question", "variant", "base variant", "option", "answer", "questions", "MICRO",
    ("group", "factor", "variant", "metric"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Relation:
    """A group of a suite: a relation with facts and patterns, a task, or a group of questions."""

    id: str
    """Names the group in tables and files."""
    label: str
    cardinality: Cardinality
    patterns: tuple[Pattern, ...]
    """The patterns, the base pattern first; none of a task or of questions."""
    facts: tuple[Fact, ...]
    """The facts, or the questions by their item; empty for a task, whose pairs are in ``Pairs``."""
    edges: Mapping[VariantPair, Edge]
    """How two patterns ``(i, j)``, ``i < j``, differ, where that is known."""
    candidates: Candidates
    """The objects of all facts of the relation, also where ``facts`` is a sample."""
    given_design: Design | None = None
    """The design of a task or of questions; None for that of the patterns."""
    names: Mapping[Writing, Mapping[str, str]] = field(default_factory=dict)
    """How subjects and objects are written in each language and form that a pattern needs. Without
    an entry they are written as in the facts."""

    @property
    def design(self) -> Design:
        """Which variants are compared, and what is counted of them."""
        return self.given_design or Design.of_patterns(self.patterns, self.edges)

    def written(self, name: str, language: str, form: str) -> str:
        """A subject or object of the facts, as it is written in a language and form."""
        return self.names.get((language, form), {}).get(name, name)

    def query(self, pattern: Pattern, fact: Fact) -> Query:
        """The fact asked in the pattern, in its language and forms."""
        language = pattern.language
        return Query(
            pattern,
            self.written(fact.subject, language, pattern.subject_form),
            self.written(fact.object, language, pattern.object_form),
        )

    def by_candidates(self, queries: Sequence[Query]) -> Iterator[tuple[list[int], Candidates]]:
        """The positions of queries whose objects are written alike, with the candidates so written.

        The candidates have the same order in every writing.
        """
        rows: dict[Writing | None, list[int]] = {}
        for row, query in enumerate(queries):
            writing = query.pattern.language, query.pattern.object_form
            rows.setdefault(writing if writing in self.names else None, []).append(row)
        for known, of_writing in rows.items():
            words = self.candidates.words
            if known is not None:
                words = tuple(self.written(word, *known) for word in words)
            yield of_writing, replace(self.candidates, words=words)

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label != self.id else ""
        sizes = f"{counted(len(self.facts), 'fact')}, {counted(len(self.patterns), 'pattern')}"
        if self.given_design and self.facts:
            variants = counted(len(self.given_design.variants), "variant")
            sizes = f"{counted(len(self.facts), 'question')}, {variants}"
        elif self.given_design:
            sizes = counted(len(self.given_design.forms), "form")
        return f"Relation({self.id!r}{label}, {self.cardinality}, {sizes})"


@dataclass(frozen=True, slots=True, repr=False)
class Suite:
    """Groups that are asked together. ``suite["capital"]`` is a group, by its id or label."""

    name: str
    relations: tuple[Relation, ...]
    protocol: Protocol = "strict"
    """How answers are judged by default."""
    notes: tuple[str, ...] = ()
    """What was left out when the files were read."""
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Relation -> objects that the authors leave out, also of other facts (ParaRel, note 11)."""
    expectations: tuple[Expectation, ...] = ()
    """What should hold between the answers to its questions."""
    language: str = ENGLISH
    """The language that its facts are written in, as a BCP 47 tag."""
    words: SuiteWords = FACT_WORDS

    def __post_init__(self) -> None:
        others = [group for group in self.relations if not isinstance(group, Relation)]
        if others:
            raise ConsilienceError(
                f"a group of type {type(others[0]).__name__}",
                expected="values of type Relation",
                where=f"the suite '{self.name}'",
                todo="Make a suite with Suite.from_frame(frame) or Suite.from_patterns(...).",
            )
        object.__setattr__(self, "relations", tuple(self.relations))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        patterns: Any = None,
        names: Any = None,
        language: str = ENGLISH,
        name: str = "questions",
    ) -> Suite:
        """A suite of facts from a pandas or polars frame.

        Each row has a fact (columns ``subject`` and ``object``), a pattern (column ``pattern``), or
        both. The column ``relation`` divides the rows into relations; ``item`` names the facts.
        Every fact is asked in every pattern of its relation. A fact or pattern may be in several
        rows. Where the frame has no column ``pattern``, ``patterns`` is a list of them, or one list
        for each relation: ``{"capital": ["The capital of [X] is [Y]."]}``.

        ``language``: of the facts, and of patterns that name none in the column ``language``. The
        columns ``form`` and ``subject_form`` name the forms in which a pattern needs its object and
        subject. ``names``: a frame that says how they are written, with the columns ``name``,
        ``language`` and ``text``, and if needed ``form`` and ``relation`` (``docs/suites.md``).
        """
        texts = texts_of_frame(frame, patterns, name, language)
        table = NameTable(language)
        if names is not None:
            table = names_of_frame(names, language, texts)
        return cls._of_texts(texts, name, table)

    @classmethod
    def from_patterns(cls, patterns: Any, facts: Any, *, name: str = "questions") -> Suite:
        """A suite of one relation from a list of patterns, and facts as (subject, object) pairs.

        ``facts`` may also be a dictionary from subjects to objects. For several relations both are
        dictionaries from their names.
        """
        return cls._of_texts(texts_of_lists(patterns, facts, name), name, NameTable(ENGLISH))

    @classmethod
    def _of_texts(cls, texts: Mapping[str, RelationTexts], name: str, names: NameTable) -> Suite:
        groups = tuple(_relation_of(id_, of_group, names) for id_, of_group in texts.items())
        return cls(name, groups, language=names.language)

    def __repr__(self) -> str:
        facts = [fact for group in self for fact in group.facts]
        patterns = [pattern for group in self for pattern in group.patterns]
        sizes = ", ".join(
            counted(len(values), noun)
            for values, noun in (
                (self.relations, self.words.group),
                (facts, self.words.item),
                (patterns, self.words.variant),
            )
            if values
        )
        return f"Suite({self.name!r}: {sizes}; {self.protocol})"

    def __len__(self) -> int:
        return len(self.relations)

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations)

    def __contains__(self, name: object) -> bool:
        return any(name in (group, group.id, group.label) for group in self.relations)

    def __getitem__(self, name: str) -> Relation:
        labelled = [group for group in self.relations if group.label == name]
        is_id = any(group.id == name for group in self.relations)
        return labelled[0] if len(labelled) == 1 and not is_id else self.relation(name)

    @property
    def digest(self) -> str:
        """SHA-256 of all that is asked: patterns, facts, candidates and edges, in their order.

        Languages and names are part of it where names are written in several ways.
        """
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
            if relation.names:
                content += [
                    [[p.language, p.object_form, p.subject_form] for p in relation.patterns],
                    [[*key, sorted(of.items())] for key, of in sorted(relation.names.items())],
                ]
            digest.update(json.dumps(content, ensure_ascii=False).encode())
        return digest.hexdigest()

    def relation(self, id_: str) -> Relation:
        """The relation of that id; an unknown one raises with the closest name."""
        for relation in self.relations:
            if relation.id == id_:
                return relation
        raise ConsilienceError(
            f"the suite '{self.name}' has no {self.words.group} '{id_}'",
            todo=did_you_mean(str(id_), [relation.id for relation in self.relations]),
        )


def _relation_of(id_: str, texts: RelationTexts, names: NameTable) -> Relation:
    """A relation of texts; one without a fact, a pattern or a name raises."""
    for values, noun in ((texts.facts, "fact"), (texts.patterns, "pattern")):
        if not values:
            raise ConsilienceError(
                f"the relation '{id_}' has no {noun}", todo=f"Add {noun}s to it, or remove it."
            )
    facts = tuple(
        Fact(item or f"{id_}-{at}", subject, object_)
        for at, (item, subject, object_) in enumerate(texts.facts, start=1)
    )
    golds = {(fact.subject, fact.object) for fact in facts}
    is_many = len({subject for subject, _ in golds}) < len(golds)
    pairs = [(fact.subject, fact.object) for fact in facts]
    problems: list[ConsilienceError] = []
    written = names.of_relation(id_, pairs, texts.patterns, problems)
    if problems:
        raise problems[0]
    return Relation(
        id_, id_, "N-M" if is_many else "N-1", tuple(texts.patterns), facts, {},
        Candidates.of(facts), names=written,
    )  # fmt: skip


def _listed(words: Sequence[str], most: int = 3) -> str:
    """The first of many words."""
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


@dataclass(frozen=True, slots=True)
class Query:
    """One item asked in one variant."""

    pattern: Pattern
    subject: str
    gold: str
    """The gold; a language model only looks it up in its whole vocabulary."""
