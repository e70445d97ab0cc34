"""What is asked, whatever a suite holds, and what a model gives back.

An *item* (a fact, a sentence pair, a question) in a *variant* is one *ask*: what the model gets and
what it may answer. One ask is one row of the answers table. Axis names in shapes are those of
``docs/glossary.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Item:
    """What is asked, and its right answer."""

    id: str
    subject: str
    gold: str
    options: tuple[str, ...] = ()
    """What may be answered, in the order of the file; empty where that is every word or text."""
    gold_at: int = -1
    """The position of the gold among the options."""


class Ask(NamedTuple):
    """An item in a variant."""

    item: int
    variant: int
    shown: Any
    """What the model reads: a ``Query``, a ``Form`` of a sentence pair, or a ``Prompt``."""
    answers: tuple[str, ...] = ()
    """What may be answered, as it is written here and in this order; empty for the options of the
    item, in their order."""
    order: tuple[int, ...] = ()
    """The position of each of ``answers`` among the options."""
    why_not: str | None = None
    """Why it is not asked; None where it is."""


@dataclass(frozen=True, slots=True)
class Group:
    """The asks whose answers are a table, and what its rows say besides the answer."""

    suite: str
    id: str
    items: Sequence[Item]
    variants: Sequence[str]
    """The names of the variants."""
    asks: Sequence[Ask]
    schema: Mapping[str, Any]
    """The columns of the table, and their types."""
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Factor -> its level in each variant."""


@dataclass(frozen=True, slots=True, repr=False)
class Scores:
    """The scores of what some asks may be answered with.

    They are NaN for an answer that takes no part, and after the last answer of a row that has
    fewer answers than others.
    """

    rows: Ints
    """Positions among the asks (row,)."""
    words: tuple[str, ...] = ()
    """The candidates, where they are the same in all rows; else the answers are those of each
    ask."""
    logprob: Floats | None = None
    """Natural log-probability, normalised over the candidates that take part (row, candidate). None
    where ``totals`` are all there is."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a candidate was excluded."""
    same: Ints | None = None
    """Position of the candidate whose score is used; differs from its own only where two candidates
    are the same token (candidate,)."""
    tokens: tuple[str | None, ...] | None = None
    """The vocabulary entry of each candidate, where there is one (candidate,)."""
    unasked: str | Sequence[str | None] | None = None
    """Why these asks have no scores: one reason, or one for each row, None where a row has some."""
    totals: Floats | None = None
    """Natural log-probability of the candidate's whole text, of models that give one (row,
    candidate); ``text_logprob`` of the answers table. Of a model without probabilities 0 for the
    answer that it chose, minus infinity for the others."""
    answers_only: bool = False
    """Whether the scores only order the candidates."""
    bounds: Bools | None = None
    """Which totals are only upper bounds, of a server that lists the most probable tokens (row,
    candidate)."""
    is_complete: bool = False
    """Whether every answer has a total. Otherwise totals without ``logprob`` are those of the best
    candidate and of some others, and candidates without one have smaller totals."""
    lengths: Ints | None = None
    """How many tokens were scored of each answer (row, answer); None where that is not known."""
    texts: Sequence[str] = ()
    """For each row what a model without probabilities wrote. Where it is none of the answers, all
    totals are minus infinity."""

    @classmethod
    def of_rows(
        cls,
        rows: Ints,
        totals: Sequence[Floats],
        lengths: Sequence[Ints] | None = None,
        *,
        texts: Sequence[str] = (),
        bounds: Sequence[Bools] = (),
        refused: Sequence[str | None] = (),
    ) -> Self:
        """Those of asks with answers of their own: for each row its totals (answer,).

        Without ``lengths`` the model has no probabilities.
        """
        width = max(map(len, totals), default=0)
        matrix = np.full((len(rows), width), np.nan)
        is_bound = np.zeros(matrix.shape, dtype=bool)
        sizes = np.zeros(matrix.shape, dtype=np.int64)
        for row, of_row in enumerate(totals):
            matrix[row, : len(of_row)] = of_row
            if bounds:
                is_bound[row, : len(of_row)] = bounds[row]
            if lengths is not None:
                sizes[row, : len(of_row)] = lengths[row]
        return cls(
            rows,
            totals=matrix,
            unasked=refused or None,
            answers_only=lengths is None,
            bounds=is_bound if is_bound.any() else None,
            is_complete=lengths is not None,
            lengths=None if lengths is None else sizes,
            texts=texts,
        )

    def __repr__(self) -> str:
        return f"Scores({len(self.rows)} queries, {len(self.words)} candidates)"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """In place of a text that a model wrote: there is none, and the answer is excluded."""

    reason: str


def is_near_tie(scores: Floats, tie: float) -> bool:
    """Whether the best two of the scores (answer,) are closer than ``tie``."""
    if len(scores) < 2:
        return False
    second, best = np.partition(scores, -2)[-2:]
    return bool(best - second < tie)
