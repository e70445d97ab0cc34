"""The values that all packages share: suites, queries and scores.

All values are frozen. Axis names in shapes are those of ``docs/metrics.md``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from consilience.core.errors import By, ConsilienceError, Protocol, did_you_mean
from consilience.core.factors import Design, Edge, Expectation, VariantPair
from consilience.core.items import ENGLISH, Names, Pattern, written_names
from consilience.core.items import Scores as Scores  # noqa: PLC0414
from consilience.core.text import counted
from consilience.files.read import Problems
from consilience.files.rows import (
    THE_FRAME,
    Column,
    Row,
    frame_rows,
    language_tag,
    line,
    names_of,
    raise_all,
    read_table,
)

Cardinality = Literal["N-1", "N-M"]


def sentence(value: Any) -> str | None:
    """A text on one line as it stands, with outer white space: ParaRel has a pattern with it."""
    is_text = isinstance(value, str) and value.strip()
    return line(f"|{value}|")[1:-1] if is_text else line(value)  # type: ignore[index]


PATTERN_COLUMNS = (
    Column("pattern", sentence),
    *(Column(name, line, "", is_needed=False) for name in ("lemma", "extended_lemma", "tense")),
    Column("language", language_tag, "", is_needed=False),
)
FACT_COLUMNS = (
    Column("subject", line), Column("object", line), Column("item", line, "", is_needed=False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """An item of a relation."""

    item: str
    subject: str
    object: str

    @property
    def names(self) -> tuple[str, str]:
        """Its subject and its object."""
        return self.subject, self.object


@dataclass(frozen=True, slots=True, repr=False)
class Candidates:
    """The possible answers, in order of first appearance among the facts, which breaks ties."""

    words: tuple[str, ...]
    counts: tuple[int, ...]  # How many facts have each as gold

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
    base: str  # The variant that others are compared with
    choice: str
    answer: str  # What is the same where two variants agree
    clusters: str  # What varies independently, in the plural
    over: Literal["mean", "all", "group"]
    """The headline numbers: means over groups, all items together, or each group alone."""
    tables: Sequence[By]
    protocols: Sequence[Protocol] = ("strict",)

    @property
    def units(self) -> str:
        """What the intervals of headline numbers are over, in the plural."""
        return f"{self.group}s" if self.has_means else self.clusters

    @property
    def is_pooled(self) -> bool:
        return self.over == "all"

    @property
    def has_means(self) -> bool:
        return self.over == "mean"


FACT_WORDS = SuiteWords(
    "relation", "fact", "pattern", "base pattern", "object", "word", "subjects", "mean",
    ("group", "edit", "factor", "pattern", "metric", "item"), ("strict", "published"),
)  # fmt: skip
PAIR_WORDS = SuiteWords(
    "task", "sentence pair", "form", "original form", "label", "label", "sentence pairs", "group",
    ("group", "form", "metric", "item"),
)  # fmt: skip
QUESTION_WORDS = SuiteWords(
    "group", "question", "variant", "base variant", "option", "answer", "questions", "all",
    ("group", "factor", "variant", "metric", "item"),
)  # fmt: skip
WORDS = {"facts": FACT_WORDS, "pairs": PAIR_WORDS, "questions": QUESTION_WORDS}
"""The words of each kind of suite."""


@dataclass(frozen=True, repr=False)
class Relation:
    """A group of a suite: a relation with facts and patterns, a task, or a group of questions."""

    id: str  # Names the group in tables and files
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
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """How subjects and objects are written in the languages of the patterns. Without an entry they
    are written as in the facts."""

    @classmethod
    def of_design(
        cls, id_: str, facts: tuple[Fact, ...], candidates: Candidates, design: Design
    ) -> Relation:
        return cls(id_, id_, "N-1", (), facts, {}, candidates, design)

    @cached_property
    def design(self) -> Design:
        """Which variants are compared, and what is counted of them."""
        return self.given_design or Design.of_patterns(self.patterns, self.edges)

    @property
    def record(self) -> dict[str, Any]:
        """What a run keeps of the group beside its items, as values of JSON."""
        known = {
            "group": self.id, "label": self.label, "cardinality": self.cardinality,
            "candidates": self.candidates.words, "counts": self.candidates.counts,
        }  # fmt: skip
        if self.given_design is not None:
            return {**known, "design": self.given_design.record}
        edges = [[*pair, *astuple(edge)] for pair, edge in self.edges.items()]
        return {**known, "patterns": [one.record for one in self.patterns], "edges": edges}

    @classmethod
    def of_record(cls, record: Mapping[str, Any], facts: tuple[Fact, ...]) -> Relation:
        """The group of a run, whose items are ``facts``."""
        design = Design.of_record(record["design"]) if "design" in record else None
        return cls(
            record["group"], record["label"], record["cardinality"],
            tuple(Pattern(**one) for one in record.get("patterns", ())), facts,
            {(first, second): Edge(*how) for first, second, *how in record.get("edges", ())},
            Candidates(tuple(record["candidates"]), tuple(record["counts"])), design,
        )  # fmt: skip

    def only(self, variants: Collection[str]) -> Relation:
        """The group in some of its variants, by their names."""
        chosen = [at for at, name in enumerate(self.design.variants) if name in variants]
        if len(chosen) == len(self.design.variants):
            return self
        places = {old: new for new, old in enumerate(chosen)}
        edges = {
            (places[first], places[second]): edge
            for (first, second), edge in self.edges.items()
            if first in places and second in places
        }
        patterns = tuple(self.patterns[at] for at in chosen) if self.patterns else ()
        design = self.given_design and self.given_design.only(chosen)
        return replace(self, patterns=patterns, edges=edges, given_design=design)

    def written(self, name: str, language: str) -> str:
        """A subject or object of the facts, as it is written in a language."""
        return self.names.get(language, {}).get(name, name)

    def query(self, pattern: Pattern, fact: Fact) -> Query:
        """The fact asked in the pattern, in its language."""
        subject, object_ = (self.written(name, pattern.language) for name in fact.names)
        return Query(pattern, subject, object_)

    def by_candidates(self, queries: Sequence[Query]) -> Iterator[tuple[list[int], Candidates]]:
        """The positions of queries whose objects are written alike, with the candidates so written.

        The candidates have the same order in every writing.
        """
        rows: dict[str, list[int]] = {}
        for row, query in enumerate(queries):
            language = query.pattern.language
            rows.setdefault(language if language in self.names else "", []).append(row)
        for language, of_language in rows.items():
            words = tuple(self.written(word, language) for word in self.candidates.words)
            yield of_language, replace(self.candidates, words=words)

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
    protocol: Protocol = "strict"  # How answers are judged by default
    notes: tuple[str, ...] = ()  # What was left out when the files were read
    expectations: tuple[Expectation, ...] = ()
    language: str = ENGLISH  # The language that its facts are written in, as a BCP 47 tag
    words: SuiteWords = FACT_WORDS

    def __post_init__(self) -> None:
        others = [group for group in self.relations if not isinstance(group, Relation)]
        if others:
            raise ConsilienceError(
                f"a group of type {type(others[0]).__name__}",
                expected="values of type Relation",
                where=f"the suite '{self.name}'",
                todo="Make a suite with Suite.from_frame(frame).",
            )
        object.__setattr__(self, "relations", tuple(self.relations))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        patterns: Any = None,
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
        columns ``object_de`` and ``subject_de`` say how a fact is written in German; a name that
        has no text there is the same name.
        """
        problems: Problems = []
        facts_may_be_elsewhere = [replace(one, default="") for one in FACT_COLUMNS]
        apart = replace(PATTERN_COLUMNS[0], default="", is_needed=patterns is None)
        columns = (
            Column("relation", line, name, is_needed=False), *facts_may_be_elsewhere, apart,
            *PATTERN_COLUMNS[1:], *translations(cells := [*frame_rows(frame)]),
        )  # fmt: skip
        builders: dict[str, RelationBuilder] = {}
        written: Names = {}
        for row in read_table(cells, columns, problems, THE_FRAME):
            id_ = row["relation"]
            builder = builders.setdefault(id_, RelationBuilder(id_, id_, names=written))
            if row["pattern"]:
                builder.add_pattern(row, language, again=True)
            if row["subject"] or row["object"] or patterns is not None:
                builder.add_fact(row, again=True)
        if not builders and not problems:
            raise ConsilienceError("no rows", where=THE_FRAME)
        for id_, texts in _by_relation(patterns, builders).items():
            rows = ((f"{id_}, pattern {at}", {"pattern": one}) for at, one in enumerate(texts, 1))
            for row in read_table(rows, PATTERN_COLUMNS, problems, id_):
                builders[id_].add_pattern(row, language, again=True)
        relations = tuple(builder.relation(problems) for builder in builders.values())
        raise_all(problems)
        return cls(name, relations, language=language)

    @property
    def group_names(self) -> dict[str, str]:
        """What people read of each group: its label, with its id where a label is not unique."""
        labels = [group.label for group in self.relations]
        return {
            group.id: f"{group.label} ({group.id})"
            if group.label and labels.count(group.label) > 1
            else group.label or group.id
            for group in self.relations
        }

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
                [pattern.text for pattern in relation.patterns],
                [[fact.item, fact.subject, fact.object] for fact in relation.facts],
                [relation.candidates.words, relation.candidates.counts],
                [[*pair, edge.kind] for pair, edge in sorted(relation.edges.items())],
            ]
            if relation.names:
                content += [
                    [pattern.language for pattern in relation.patterns],
                    [[key, sorted(of.items())] for key, of in sorted(relation.names.items())],
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


def pattern_of(row: Row, language: str = ENGLISH) -> Pattern | None:
    """The pattern of a row with ``PATTERN_COLUMNS``; None, and reported, where it is none."""
    try:
        return Pattern(
            row["pattern"], row["lemma"], row["extended_lemma"], row["tense"],
            row["language"] or language,
        )  # fmt: skip
    except ConsilienceError as error:
        row.add(error)
        return None


TRANSLATION = re.compile(r"(subject|object)_([a-z]{2,3}(?:-[A-Za-z0-9]{1,8})*)")
"""A column that says how a name is written in a language, such as ``object_de``."""


def translations(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Column, ...]:
    """The columns of a table of facts that say how its names are written in a language."""
    names = filter(TRANSLATION.fullmatch, names_of(rows))
    return tuple(Column(name, line, "", is_needed=False) for name in names)


def add_translations(row: Row, names: Names) -> None:
    """Add how the names of a fact are written (``translations``) to the names of a suite."""
    for column, text_in in row.items():
        match = TRANSLATION.fullmatch(column)
        if match and text_in:
            add_name(row, names, row[match[1]], match[2], text_in)


def add_name(row: Row, names: Names, name: str, language: str, text_in: str) -> None:
    """Add how a name is written; another text of it is reported."""
    known = names.setdefault(language, {}).setdefault(name, text_in)
    if known != text_in:
        found = f"'{name}' is '{text_in}' in '{language}'"
        row.report(found, expected=f"'{known}', as in another row", todo="Keep one of the two.")


@dataclass(slots=True)
class RelationBuilder:
    """A relation while its rows are read; ``where``: the place of its own row, for messages."""

    id: str
    label: str
    cardinality: Cardinality | None = None  # None where its facts decide it
    where: str = ""
    patterns: dict[str, Pattern] = field(default_factory=dict)
    """Its patterns by their text."""
    places: dict[Any, str] = field(default_factory=dict)
    """The place of each pattern, fact, item and edge."""
    facts: list[Fact] = field(default_factory=list)
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    """How names are written, of all relations of the suite."""

    def relation(self, problems: Problems, *, needs_patterns: bool = True) -> Relation:
        """The relation; a missing pattern or fact is reported."""
        has_patterns = self.patterns or not needs_patterns
        for values, noun in ((has_patterns, "pattern"), (self.facts, "fact")):
            if not values:
                error = ConsilienceError(
                    f"the relation '{self.id}' has no {noun}",
                    where=self.where,
                    todo=f"Add {noun}s to it or remove it.",
                )
                problems.append(error)
        patterns, facts = tuple(self.patterns.values()), tuple(self.facts)
        places = {pattern: self.places[pattern] for pattern in patterns}
        pairs = [fact.names for fact in facts]
        is_many = len({subject for subject, _ in pairs}) < len({*pairs})
        return Relation(
            self.id, self.label, self.cardinality or ("N-M" if is_many else "N-1"), patterns,
            facts, self.edges, Candidates.of(facts),
            names=written_names(self.names, self.id, pairs, places, problems),
        )  # fmt: skip

    def add_pattern(self, row: Row, language: str = ENGLISH, *, again: bool = False) -> None:
        """Add the pattern of a row (``PATTERN_COLUMNS``), in its language or in ``language``.

        ``again``: a pattern may be there several times, and is one. Otherwise it is reported.
        """
        pattern = pattern_of(row, language)
        if pattern is None or (again and pattern in self.places):
            return
        first = self.patterns.setdefault(pattern.text, pattern)
        todo = f"Remove one of the two; the first is {self.places.get(first)}."
        row.is_new(first, self.places, f"pattern '{pattern.text}' of '{self.id}'", todo)

    def add_fact(self, row: Row, *, again: bool = False) -> None:
        """Add the fact of a row (``FACT_COLUMNS``); another one with its item is reported.

        ``again``: a fact may be there several times, and is one.
        """
        subject, object_, item = key = row["subject"], row["object"], row["item"]
        for name, value in (("subject", subject), ("object", object_)):
            if not value:
                row.report(f"no '{name}'", todo="Fill it in or remove the line.")
                return
        add_translations(row, self.names)
        if again and key in self.places:
            return
        self.places.setdefault(key, row.where)
        item = item or f"{self.id}-{len(self.facts) + 1}"
        row.is_new(item, self.places, f"item '{item}' of '{self.id}'", "Give each fact its own.")
        self.facts.append(Fact(item, subject, object_))


def _by_relation(
    patterns: Any, builders: Mapping[str, RelationBuilder]
) -> Mapping[str, Sequence[Any]]:
    """Lists of patterns by relation: of all relations alike, or of each by its name."""
    by_relation = patterns if isinstance(patterns, Mapping) else dict.fromkeys(builders, patterns)
    for name, texts in {} if patterns is None else by_relation.items():
        if name not in builders:
            raise ConsilienceError(
                f"patterns of the relation '{name}', which has no facts",
                todo=did_you_mean(str(name), list(builders)),
            )
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise ConsilienceError(
                f"patterns of type {type(texts).__name__}",
                expected="a list of texts, or one for each relation: {'capital': ['[X] is [Y].']}",
            )
    return {} if patterns is None else by_relation


def _listed(words: Sequence[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


@dataclass(frozen=True, slots=True)
class Query:
    """One item asked in one variant."""

    pattern: Pattern
    subject: str
    gold: str  # The gold; a language model only looks it up in its whole vocabulary
