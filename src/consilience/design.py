"""Designs: which variants of the items of a group are compared, and what is counted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from consilience.cloze import Pattern
from consilience.factors import FactorialDesign

VariantPair = tuple[int, int]
"""Positions of two variants of a group."""

ORIGINAL = "original"
"""The base form: items as the suite has them. Perturbations make the other forms."""


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


WITHIN, BETWEEN = "within languages", "between languages"
"""The kinds of pairs of patterns in one language, and in two."""

OF_LANGUAGE = "language="
"""What the kinds of one language (``language=de``) or two (``language=de/ja``) begin with."""


def is_language_kind(kind: str) -> bool:
    """Whether a kind of pairs is about the languages of its patterns."""
    return kind in (WITHIN, BETWEEN) or kind.startswith(OF_LANGUAGE)


def _language_kinds(patterns: Sequence[Pattern]) -> dict[str, list[VariantPair]]:
    """The pairs of patterns by their languages; {} where all have the same."""
    languages = list(dict.fromkeys(pattern.language for pattern in patterns))
    if len(languages) < 2:
        return {}
    order = [*zip(languages, languages, strict=True), *combinations(languages, 2)]
    kinds: dict[str, list[VariantPair]] = {WITHIN: [], BETWEEN: []}
    kinds |= {_language_kind(*pair): [] for pair in order}
    for first, second in combinations(range(len(patterns)), 2):
        pair = sorted((patterns[at].language for at in (first, second)), key=languages.index)
        kinds[_language_kind(*pair)].append((first, second))
        kinds[WITHIN if pair[0] == pair[1] else BETWEEN].append((first, second))
    return {kind: pairs for kind, pairs in kinds.items() if pairs}


def _variants_by_language(patterns: Sequence[Pattern]) -> dict[str, tuple[int, ...]]:
    """The positions of the patterns of each language; {} where all have the same."""
    languages: dict[str, list[int]] = {}
    for at, pattern in enumerate(patterns):
        languages.setdefault(pattern.language, []).append(at)
    several = len(languages) > 1
    return {name: tuple(variants) for name, variants in languages.items() if several}


def _language_kind(first: str, second: str) -> str:
    return OF_LANGUAGE + (first if first == second else f"{first}/{second}")


@dataclass(frozen=True, slots=True)
class Design:
    """Which variants of a group are compared, and what is counted of them.

    The answers to two compared variants are expected to be the same. Facts and sentence pairs
    differ in nothing else when their answers are counted.
    """

    variants: tuple[str, ...]
    """The names of the variants, the base variant first."""
    forms: Mapping[str, tuple[int, ...]] = field(repr=False)
    """The variants of each form, the base form first. Each form has numbers of its own."""
    compared: tuple[VariantPair, ...] | None = field(repr=False)
    """The pairs of variants that are compared; None for every two."""
    kinds: Mapping[str, tuple[VariantPair, ...]] = field(repr=False)
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
    by_option: bool = False
    """Whether answers are compared by the option that they choose: its position in the suite."""
    is_ragged: bool = False
    """Whether an item may lack variants, which then do not count against it."""
    languages: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """The variants in each language, where there are several."""

    @classmethod
    def of_patterns(cls, patterns: Sequence[Pattern], edges: Mapping[VariantPair, Edge]) -> Design:
        """Every two patterns are compared; perturbed ones with the pattern that they were made of.

        The kinds are the edit kinds of ``edges`` and the languages of the patterns, or the
        perturbations.
        """
        forms: dict[str, list[int]] = {}
        for at, pattern in enumerate(patterns):
            forms.setdefault(pattern.form or ORIGINAL, []).append(at)
        kinds: dict[str, list[VariantPair]] = {}
        compared: tuple[VariantPair, ...] | None = None
        if len(forms) == 1:
            for pair, edge in sorted(edges.items()):
                kinds.setdefault(edge.kind, []).append(pair)
            kinds |= _language_kinds(patterns)
        else:
            base = forms[ORIGINAL]
            kinds = {
                form: list(zip(base, variants, strict=True))
                for form, variants in forms.items()
                if form != ORIGINAL
            }
            compared = tuple(pair for pairs in kinds.values() for pair in pairs)
        return cls(
            variants=tuple(pattern.name for pattern in patterns),
            forms={form: tuple(variants) for form, variants in forms.items()},
            compared=compared,
            kinds={kind: tuple(pairs) for kind, pairs in kinds.items()},
            unit="tuple",
            is_averaged=True,
            languages=_variants_by_language(patterns) if len(forms) == 1 else {},
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

    @classmethod
    def of_cells(
        cls, design: FactorialDesign, options: int, *, writes_freely: bool = False
    ) -> Design:
        """Questions in the cells of a design of factors: every two cells are compared.

        The kinds are the factors: pairs of cells that differ in this factor only. ``options``: the
        greatest number of options of a question, 0 for open questions.
        """
        size = len(design.cells)
        return cls(
            variants=design.names,
            forms={ORIGINAL: tuple(range(size))},
            compared=None,
            kinds={name: pairs for name, pairs in design.pairs_by_factor().items() if pairs},
            unit="item",
            is_averaged=True,
            labels=tuple(map(str, range(options))),
            writes_freely=writes_freely,
            by_option=options > 0,
            is_ragged=True,
        )
