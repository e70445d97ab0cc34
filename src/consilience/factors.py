"""Factors: what differs between the variants of a question, and which variants are asked.

A variant is a cell of a factorial design: one level of each factor. The first level of a factor is
its base level, and the cell of all base levels is the base variant.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from consilience.errors import ConsilienceError, did_you_mean

FACTORS: Mapping[str, str] = {
    "language": "the language of the question",
    "paraphrase": "the phrasing of the question",
    "order": "the order of the options",
    "labels": "the labels of the options: A, a, 1 or none",
    "template": "the text around the question",
    "separator": "what follows the words Question and Answer",
    "case": "the case of the words of the template",
    "examples": "the draw of the solved examples before the question",
    "sample": "the sample that is drawn of what the model writes",
}
"""The factors, in the order in which the variants are numbered, and what each changes."""

OF_OPTIONS = ("order", "labels")
"""The factors that open questions do not have."""

MOST_CELLS = 200
"""The most variants of an item: every two of them are compared."""

Cell = tuple[int, ...]
"""A level of each factor, by its position."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Something that differs between variants."""

    name: str
    """One of ``FACTORS``."""
    levels: tuple[str, ...]
    """The names of its levels, the base level first."""

    def __post_init__(self) -> None:
        if self.name not in FACTORS:
            raise ConsilienceError(
                f"no factor '{self.name}'", todo=did_you_mean(self.name, list(FACTORS))
            )
        duplicates = [level for level in self.levels if self.levels.count(level) > 1]
        if duplicates:
            raise ConsilienceError(
                f"the level '{duplicates[0]}' of the factor '{self.name}' more than once",
                todo="Remove one of them.",
            )
        if not self.levels:
            raise ConsilienceError(
                f"the factor '{self.name}' without a level", expected="one level or more"
            )


@dataclass(frozen=True, slots=True)
class FactorialDesign:
    """Which combinations of levels are asked."""

    factors: tuple[Factor, ...]
    """The factors."""
    cells: tuple[Cell, ...]
    """The combinations, the base levels first."""

    @classmethod
    def full(cls, factors: Sequence[Factor]) -> FactorialDesign:
        """Every combination of the levels."""
        size = prod(len(factor.levels) for factor in factors)
        _refuse_too_many(size, factors)
        return cls(
            tuple(factors), tuple(product(*(range(len(factor.levels)) for factor in factors)))
        )

    @classmethod
    def one_factor(cls, factors: Sequence[Factor]) -> FactorialDesign:
        """The base variant, and each other level of one factor with the base levels of the rest."""
        return cls(tuple(factors), tuple(dict.fromkeys(_star((0,) * len(factors), factors))))

    @classmethod
    def radial(cls, factors: Sequence[Factor], points: int, seed: int) -> FactorialDesign:
        """Drawn combinations, each with one more for each factor, of which only this level differs.

        The first is the base variant; the others are drawn by ``seed``, and so is the other level
        of each factor. From such a design the effect of a factor, together with all factors that
        it interacts with, is estimated without bias (Jansen 1999; Campolongo et al. 2011). It
        takes ``points * (1 + factors)`` variants instead of all combinations.
        """
        size = prod(len(factor.levels) for factor in factors)
        if points < 1:
            raise ConsilienceError(f"{points} points of a radial design", expected="1 or more")
        generator = random.Random(seed)
        cells: dict[Cell, None] = {}
        for point in range(points):
            center = tuple(
                0 if point == 0 else generator.randrange(len(factor.levels)) for factor in factors
            )
            cells[center] = None
            for at, factor in enumerate(factors):
                if len(factor.levels) > 1:
                    level = generator.randrange(len(factor.levels) - 1)
                    cells[_replaced(center, at, level + (level >= center[at]))] = None
        _refuse_too_many(min(len(cells), size), factors)
        return cls(tuple(factors), tuple(cells))

    def without(self, names: Collection[str]) -> FactorialDesign:
        """The design without some factors; of cells that become the same, the first."""
        positions = [at for at, factor in enumerate(self.factors) if factor.name not in names]
        cells = dict.fromkeys(tuple(cell[at] for at in positions) for cell in self.cells)
        return FactorialDesign(tuple(self.factors[at] for at in positions), tuple(cells))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each cell, such as ``order=rotation 1, labels=A``; ``base`` without any."""
        return tuple(
            ", ".join(
                f"{factor.name}={factor.levels[at]}"
                for factor, at in zip(self.factors, cell, strict=True)
            )
            or "base"
            for cell in self.cells
        )

    @property
    def is_full(self) -> bool:
        """Whether it has every combination of the levels."""
        return len(self.cells) == prod(len(factor.levels) for factor in self.factors)

    def levels(self, name: str) -> tuple[str, ...]:
        """The level of a factor in each cell."""
        at = [factor.name for factor in self.factors].index(name)
        return tuple(self.factors[at].levels[cell[at]] for cell in self.cells)

    def pairs_by_factor(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The pairs of cells that differ in one factor only, by its name."""
        pairs: dict[str, list[tuple[int, int]]] = {
            factor.name: [] for factor in self.factors if len(factor.levels) > 1
        }
        for at, factor in enumerate(self.factors):
            if factor.name not in pairs:
                continue
            others: dict[Cell, list[int]] = {}
            for position, cell in enumerate(self.cells):
                others.setdefault(cell[:at] + cell[at + 1 :], []).append(position)
            for positions in others.values():
                pairs[factor.name].extend(combinations(positions, 2))
        return {name: tuple(sorted(of_factor)) for name, of_factor in pairs.items()}


def several_factors(kinds: Iterable[str]) -> list[str]:
    """The factors among kinds of pairs, which have numbers of their own; none of a single one."""
    known = set(kinds)
    factors = [name for name in FACTORS if name in known]
    return factors if len(factors) > 1 else []


def levels_of(variant: str) -> dict[str, str]:
    """Factor -> level, of a variant by its name (``FactorialDesign.names``); {} for ``base``."""
    parts = re.split(rf"(?:^|, )({'|'.join(FACTORS)})=", variant)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _star(center: Cell, factors: Sequence[Factor]) -> Iterator[Cell]:
    """A cell, and the cells that differ from it in one factor."""
    yield center
    for at, factor in enumerate(factors):
        for level in range(len(factor.levels)):
            if level != center[at]:
                yield _replaced(center, at, level)


def _replaced(cell: Cell, at: int, level: int) -> Cell:
    return (*cell[:at], level, *cell[at + 1 :])


def _refuse_too_many(size: int, factors: Sequence[Factor]) -> None:
    if size > MOST_CELLS:
        levels = " x ".join(f"{len(factor.levels)} ({factor.name})" for factor in factors)
        raise ConsilienceError(
            f"{size:,} variants of each question: {levels}",
            expected=f"at most {MOST_CELLS:,}",
            todo="Take fewer levels, such as --vary order=shuffles:8, or another design: "
            "--design one-factor or --design radial:8.",
        )
