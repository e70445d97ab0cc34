"""Factors and expectations: what differs between variants, and what should hold between answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from math import prod
from typing import Any, Literal, cast

from consilience.core.errors import ConsilienceError
from consilience.core.items import Pattern, group_rows

LETTERS = "".join(filter(str.isalpha, map(chr, range(0x3000))))
"""The names of options by their position in the file, A to Z and a to z first: an order of four is
``BCDA``."""


def letters_of(order: Iterable[int]) -> str | None:
    """The name of an order; None without options."""
    return "".join(LETTERS[at] for at in order) or None


FACTORS: Mapping[str, str] = {
    "language": "the language of the question",
    "paraphrase": "the phrasing of the question",
    "order": "the order of the options",
    "labels": "the labels of the options: A, a, 1 or none",
    "context": "the order of the passages of the context",
    "template": "the text around the question",
    "shots": "the solved examples before the question",
    "sample": "the sample that is drawn of what the model writes",
    "turn": "the turn of the user that the answer follows",
}
"""The factors, in the order in which the variants are numbered, and what each changes."""

RANDOM_FACTORS = ("paraphrase", "template")
"""The factors whose levels are a sample of the phrasings that could have been asked."""

PATTERN = "pattern"
"""The same of facts. Each relation has patterns of its own."""

TURN, FIRST_TURN = "turn", "first"  # The factor, and its level before any reply
OPTION_FACTORS = ("order", "labels")  # Open questions do not have these
MOST_CELLS = 200  # The most variants of an item: every two of them are compared
MOST_CROSSED = 500  # The most variants to draw from: counting has numbers of every two of them
BASE = "base"  # The name of the only variant where nothing varies
Cell = tuple[int, ...]  # A level of each factor, by its position


@dataclass(frozen=True, slots=True)
class Factor:
    """Something that differs between variants, and its levels, the base level first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactorialDesign:
    """Which combinations of levels are asked."""

    factors: tuple[Factor, ...]
    cells: tuple[Cell, ...]  # The combinations, the base levels first
    drawn: int = 0
    """In how many of them each item is asked, drawn at random; 0 for all that it has."""

    @classmethod
    def full(cls, factors: Sequence[Factor], drawn: int = 0) -> FactorialDesign:
        """Every combination, or so many of them for each item."""
        most = MOST_CROSSED if drawn else MOST_CELLS
        if (size := _size(factors)) > most:
            levels = " x ".join(f"{len(factor.levels)} ({factor.name})" for factor in factors)
            raise ConsilienceError(
                f"{size:,} variants of each question: {levels}",
                expected=f"at most {most:,}",
                todo="Take fewer levels, such as --vary order=shuffles:8, or --design random:5.",
            )
        cells = product(*(range(len(factor.levels)) for factor in factors))
        return cls(tuple(factors), tuple(cells), drawn if drawn < size else 0)

    @classmethod
    def one_factor(cls, factors: Sequence[Factor]) -> FactorialDesign:
        """The base variant, and each other level of one factor with the base levels of the rest."""
        base = (0,) * len(factors)
        others = [
            (*base[:at], level, *base[at + 1 :])
            for at, factor in enumerate(factors)
            for level in range(1, len(factor.levels))
        ]
        return cls(tuple(factors), (base, *others))

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> FactorialDesign:
        """``factors``: the levels of each by its name; ``cells``: their positions."""
        factors = [Factor(name, tuple(levels)) for name, levels in record["factors"].items()]
        return cls(tuple(factors), tuple(map(tuple, record["cells"])), record.get("drawn", 0))

    def without(self, names: Collection[str]) -> FactorialDesign:
        """The design without some factors; of cells that become the same, the first."""
        positions = [at for at, factor in enumerate(self.factors) if factor.name not in names]
        cells = dict.fromkeys(tuple(cell[at] for at in positions) for cell in self.cells)
        factors = tuple(self.factors[at] for at in positions)
        return FactorialDesign(factors, tuple(cells), self.drawn)

    def at_base(self, name: str) -> tuple[int, ...]:
        """For each cell the position of the one that differs in the base level of a factor only."""
        places = [at for at, factor in enumerate(self.factors) if factor.name == name]
        bases = [
            tuple(0 if at in places else of for at, of in enumerate(cell)) for cell in self.cells
        ]
        return tuple(map(self.cells.index, bases))

    def only(self, cells: Sequence[int]) -> FactorialDesign:
        """The design of some cells, by their positions, with the levels that these have."""
        chosen = [self.cells[at] for at in cells]
        known = [sorted(set(column)) for column in zip(*chosen, strict=True)]
        factors = [
            Factor(factor.name, tuple(factor.levels[at] for at in of))
            for factor, of in zip(self.factors, known, strict=True)
        ]
        places = (tuple(map(list.index, known, cell)) for cell in chosen)
        return FactorialDesign(tuple(factors), tuple(places), self.drawn)

    def with_letters(self, letters: Mapping[str, int]) -> tuple[FactorialDesign, dict[str, str]]:
        """The design with so many letters in the levels of each order, and old names -> new ones.

        Letters of further options are left out: BCDEA has the four letters BCDA. Of cells that
        become the same, the first stays. A level that is no order of letters stays as it is.
        """
        factors, columns = list[Factor](), list[list[int]]()
        for factor, column in zip(self.factors, zip(*self.cells, strict=True), strict=True):
            known = LETTERS[: letters.get(factor.name, 0)]
            short = [
                "".join(filter(known.__contains__, level))
                if known and sorted(level) == [*LETTERS[: len(level)]]
                else level
                for level in factor.levels
            ]
            levels = [*dict.fromkeys(short)]
            factors.append(Factor(factor.name, tuple(levels)))
            columns.append([levels.index(short[at]) for at in column])
        first: dict[Cell, str] = {}
        for at, name in enumerate(self.names):
            first.setdefault(tuple(column[at] for column in columns), name)
        design = FactorialDesign(tuple(factors), tuple(first), self.drawn)
        return design, dict(zip(first.values(), design.names, strict=True))

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """Factor -> its level in each cell."""
        columns = zip(*self.cells, strict=True)
        return {
            factor.name: tuple(factor.levels[at] for at in column)
            for factor, column in zip(self.factors, columns, strict=True)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each cell, such as ``order=BCDA, labels=A``; ``base`` without factors."""
        parts = [[f"{name}={level}" for level in of] for name, of in self.levels.items()]
        return tuple(map(", ".join, zip(*parts, strict=True))) or (BASE,)

    @property
    def is_full(self) -> bool:
        return not self.drawn and len(self.cells) == _size(self.factors)

    def pairs_by_factor(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The pairs of cells that differ in one factor only, by its name."""
        pairs: dict[str, tuple[tuple[int, int], ...]] = {}
        for at, factor in enumerate(self.factors):
            if len(factor.levels) < 2:
                continue
            others = group_rows(cell[:at] + cell[at + 1 :] for cell in self.cells)
            of_factor = (combinations(positions, 2) for positions in others.values())
            pairs[factor.name] = tuple(sorted(chain(*of_factor)))
        return pairs


def several_factors(parts: Iterable[Part]) -> list[str]:
    """The factors among parts of a group, in their order; none of a single one."""
    known = {level for kind, level in parts if kind == "factor"}
    factors = [name for name in FACTORS if name in known]
    return factors if len(factors) > 1 else []


def _size(factors: Sequence[Factor]) -> int:
    return prod(len(factor.levels) for factor in factors)


VariantPair = tuple[int, int]

Kind = Literal["whole", "form", "edit", "factor", "language", "expectation", "count"]
Part = tuple[Kind, str]
"""What a number of a group is about: the whole group, one form of its items, pairs of variants that
differ in an edit or a factor, the patterns of a language (``de``) or of two (``de/ja``), a kind of
expectations, a number of variants (``3 of 4``). The second is its ``level`` in the tables, empty
for the whole."""

WHOLE: Part = ("whole", "")

ORIGINAL = "original"
"""The base form: items as the suite has them. Perturbations make the other forms of pairs."""


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
        kinds = ("no_change", "diff_lexical", "diff_syntax", "diff_both")
        return kinds[2 * self.syntactic + self.lexical]


def _languages(patterns: Sequence[Pattern]) -> dict[Part, list[VariantPair]]:
    """The pairs of patterns by their languages."""
    languages = list(dict.fromkeys(pattern.language for pattern in patterns))
    order = [*zip(languages, languages, strict=True), *combinations(languages, 2)]
    parts: dict[Part, list[VariantPair]] = {_language(pair): [] for pair in order}
    for first, second in combinations(range(len(patterns)), 2):
        pair = sorted((patterns[at].language for at in (first, second)), key=languages.index)
        parts[_language(pair)].append((first, second))
    return {part: pairs for part, pairs in parts.items() if pairs}


def _language(pair: Iterable[str]) -> Part:
    return "language", "/".join(dict.fromkeys(pair))


@dataclass(frozen=True, slots=True)
class Design:
    """Which variants of a group are compared, and what is counted of them."""

    variants: tuple[str, ...]
    forms: Mapping[str, tuple[int, ...]] = field(repr=False)
    """The variants of each form, the base form first. Each form has numbers of its own."""
    compared: tuple[VariantPair, ...] | None = field(repr=False)
    """The pairs of variants that are compared; None for every two."""
    parts: Mapping[Part, tuple[VariantPair, ...]] = field(repr=False)
    """The compared pairs by how the two variants differ."""
    unit: Literal["tuple", "item"]
    """What counts once: a subject with its gold, as in ParaRel, or an item."""
    is_averaged: bool  # Whether numbers are also averaged over the groups of the suite
    labels: tuple[str, ...] = ()  # The only valid answers; empty where every text is one
    writes_freely: bool = False
    """Whether an answer may be none of ``labels``, because the model writes it."""
    positive: str = ""  # The label whose F1 is counted; empty for none
    by_option: bool = False
    """Whether answers are compared by the option that they choose: its position in the suite."""
    is_ragged: bool = False  # Whether an item may lack variants, which then do not count against it
    languages: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Factor -> its level in each variant; of sentence pairs the form, of patterns in several
    languages the language."""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What ``of_record`` makes it of; empty for the design of patterns."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Design:
        """The design that a run keeps."""
        if "forms" in record:
            return cls.of_forms(**record)
        of = {name: record[name] for name in ("options", "writes_freely")}
        return cls.of_cells(FactorialDesign.of_record(record), **of)

    @property
    def factorial(self) -> FactorialDesign:
        """The factors of questions and their levels in each variant."""
        return FactorialDesign.of_record(self.record)

    @property
    def has_base(self) -> bool:
        """Whether there is a base variant; none where the variants of each item are drawn."""
        return not self.record.get("drawn")

    @property
    def phrasings(self) -> Mapping[str, tuple[str, ...]]:
        """The phrasing of each variant by the factor, of the factors that are a sample."""
        if not self.record:
            return {PATTERN: self.variants}
        return {name: of for name, of in self.levels.items() if name in RANDOM_FACTORS}

    @classmethod
    def of_patterns(cls, patterns: Sequence[Pattern], edges: Mapping[VariantPair, Edge]) -> Design:
        """Every two patterns are compared."""
        by_language = group_rows(pattern.language for pattern in patterns)
        languages = {language: tuple(at) for language, at in by_language.items()}
        levels = {"language": tuple(pattern.language for pattern in patterns)}
        parts: dict[Part, list[VariantPair]] = {}
        for pair, edge in sorted(edges.items()):
            parts.setdefault(("edit", edge.kind), []).append(pair)
        if len(languages) > 1:
            parts |= _languages(patterns)
        return cls(
            variants=tuple(pattern.text for pattern in patterns),
            forms={ORIGINAL: tuple(range(len(patterns)))},
            compared=None,
            parts={part: tuple(pairs) for part, pairs in parts.items()},
            unit="tuple",
            is_averaged=True,
            languages=languages if len(languages) > 1 else {},
            levels=levels if len(languages) > 1 else {},
        )

    @classmethod
    def of_forms(
        cls,
        forms: Sequence[str],
        labels: Sequence[str],
        positive: str = "",
        *,
        writes_freely: bool = False,
    ) -> Design:
        """Sentence pairs in several forms, the original first: each is compared with it (CALUM)."""
        parts: dict[Part, tuple[VariantPair, ...]] = {
            ("form", form): ((0, at),) for at, form in enumerate(forms) if at
        }
        return cls(
            variants=tuple(forms),
            forms={form: (at,) for at, form in enumerate(forms)},
            compared=tuple(chain(*parts.values())),
            parts=parts,
            unit="item",
            is_averaged=False,
            labels=tuple(labels),
            writes_freely=writes_freely,
            positive=positive,
            levels={"form": tuple(forms)},
            record={
                "forms": [*forms], "labels": [*labels], "positive": positive,
                "writes_freely": writes_freely,
            },
        )  # fmt: skip

    @classmethod
    def of_cells(
        cls, design: FactorialDesign, options: int, *, writes_freely: bool = False
    ) -> Design:
        """Questions in the cells of a design of factors: every two cells are compared.

        The parts are the factors: pairs of cells that differ in this factor only. ``options``: the
        greatest number of a question, 0 for open questions.
        """
        return cls(
            variants=design.names,
            forms={ORIGINAL: tuple(range(len(design.cells)))},
            compared=None,
            parts={("factor", name): of for name, of in design.pairs_by_factor().items() if of},
            unit="item",
            is_averaged=True,
            labels=tuple(map(str, range(options))),
            writes_freely=writes_freely,
            by_option=options > 0,
            is_ragged=True,
            levels=design.levels,
            record={
                "factors": {factor.name: [*factor.levels] for factor in design.factors},
                "cells": [[*cell] for cell in design.cells],
                "options": options, "writes_freely": writes_freely,
                **({"drawn": design.drawn} if design.drawn else {}),
            },
        )  # fmt: skip

    def only(self, variants: Sequence[int]) -> Design:
        """The design of some variants of a task or of questions, by their positions."""
        if "forms" in self.record:
            forms = [self.record["forms"][at] for at in variants]
            return Design.of_record({**self.record, "forms": forms})
        return self.of_factorial(self.factorial.only(variants))

    def of_factorial(self, design: FactorialDesign) -> Design:
        """The design of the same questions in other cells."""
        of = {name: self.record[name] for name in ("options", "writes_freely")}
        return Design.of_cells(design, **of)


ExpectationKind = Literal["same", "different", "implied"]

EXPECTATIONS: Mapping[str, str] = {
    "same": "both questions get the same answer",
    "different": "the two questions get different answers",
    "implied": "the second answer is the one that the first answers imply",
}
"""The kinds of expectations, and what each says. A kind is counted together."""

NO_OPTION = ""
"""The answer of a text that is none of the options. It agrees with nothing, not with itself."""

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A question that an expectation is about."""

    item: str
    options: Texts = ()  # The options in the order of the file; empty for an open question


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should hold between the answers to some questions and another one, in each variant.

    The answers to the premises say which answers the conclusion may get. It is violated where the
    conclusion gets another one, and says nothing after answers that its rules do not have.
    """

    kind: ExpectationKind
    premises: tuple[Reference, ...]
    """The questions whose answers decide what is expected; one for ``same`` and ``different``."""
    conclusion: Reference
    rules: Mapping[Texts, Texts] = field(default_factory=dict, hash=False)
    """Answers to the premises -> answers that the conclusion may get; empty for ``same`` and
    ``different``."""

    @property
    def references(self) -> tuple[Reference, ...]:
        return *self.premises, self.conclusion

    @property
    def items(self) -> Texts:
        return tuple(reference.item for reference in self.references)

    def permits(self, premises: Texts, conclusion: str) -> bool | None:
        """Whether the conclusion may get that answer; None where nothing is expected."""
        if self.kind in ("same", "different"):
            is_same = conclusion == premises[0] != NO_OPTION
            return is_same == (self.kind == "same")
        return conclusion in self.rules[premises] if premises in self.rules else None

    def to_record(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "questions": [[one.item, list(one.options)] for one in self.references],
            "rules": [[list(answers), list(expected)] for answers, expected in self.rules.items()],
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Expectation:
        *premises, conclusion = (
            Reference(item, tuple(options)) for item, options in record["questions"]
        )
        rules = {tuple(answers): tuple(expected) for answers, expected in record["rules"]}
        return cls(cast(ExpectationKind, record["kind"]), tuple(premises), conclusion, rules)


Replies = Mapping[tuple[str, str], str | None]
"""(item, variant) -> answer, ``NO_OPTION`` for none; None for what was left out before asking."""


def linked_questions(links: Iterable[Sequence[str]]) -> dict[str, str]:
    """The connected component of each question of ``links``: the name of one of its questions."""
    names: dict[str, str] = {}

    def component(item: str) -> str:
        while names.setdefault(item, item) != item:
            names[item] = item = names[names[item]]
        return item

    for linked in links:
        for item in linked:
            names[component(item)] = component(linked[0])
    return {item: component(item) for item in list(names)}


@dataclass(frozen=True, slots=True)
class Instance:
    """An expectation in one variant: its questions with their answers."""

    expectation: Expectation
    variant: str
    answers: tuple[str | None, ...]
    order: tuple[int, ...] = ()
    """The options of the conclusion as they are shown, by their position in the file; empty for
    that order."""

    def code(self, *, by_place: bool) -> str | int:
        """The answer to the conclusion: its text, or ``by_place`` where it is shown."""
        answer, options = self.answers[-1] or NO_OPTION, self.expectation.conclusion.options
        if not by_place or answer not in options:
            return answer
        at = options.index(answer)
        return self.order.index(at) if self.order else at

    def text(self, code: str | int) -> str:
        """The answer of a code of another instance, whose conclusion has as many options."""
        if isinstance(code, str):
            return code
        return self.expectation.conclusion.options[self.order[code] if self.order else code]

    @property
    def is_asked(self) -> bool:
        """Whether all its questions were asked."""
        return None not in self.answers

    @property
    def is_permitted(self) -> bool | None:
        return self.permits(self.answers[-1])

    def permits(self, conclusion: str | None) -> bool | None:
        """Whether the conclusion may get that answer, after these answers to the premises."""
        premises = tuple(answer or NO_OPTION for answer in self.answers[:-1])
        return self.expectation.permits(premises, conclusion or NO_OPTION)


def instances(
    expectation: Expectation,
    replies: Replies,
    variants: Iterable[str],
    shown: Mapping[tuple[str, str], tuple[int, ...]],
) -> Iterator[Instance]:
    """The instances of an expectation: each variant in which all its questions were asked.

    ``shown``: (item, variant) -> the positions of its options in the order shown.
    """
    for variant in variants:
        queries = [(item, variant) for item in expectation.items]
        if all(query in replies for query in queries):
            answers = tuple(replies[query] for query in queries)
            yield Instance(expectation, variant, answers, shown.get(queries[-1], ()))


Counted = tuple[tuple[Instance, ...], ...]
