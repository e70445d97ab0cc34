"""Numbers of candidates become ``Scores`` of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from consilience.models.candidates import CandidateTokens
from consilience.types import Scores

Key = TypeVar("Key")
Floats = npt.NDArray[np.float64]


def group_rows(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The positions of every distinct key, in order of first appearance."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


def excluded(rows: Sequence[int], words: tuple[str, ...], reason: str) -> Scores:
    """The scores of queries that the model cannot be asked: all NaN, with the reason."""
    nothing = np.full((len(rows), len(words)), np.nan)
    return Scores(np.asarray(rows, dtype=np.int64), words, nothing, unasked=reason)


def scores_of(
    rows: Sequence[Sequence[int]],
    values: Floats,
    sheet: CandidateTokens,
    *,
    are_totals: bool = False,
    every: bool = True,
) -> Scores:
    """Scores from logits or log-probabilities (input, candidate), normalised over the candidates.

    ``rows``: the queries of each input. ``are_totals``: the values are log-probabilities of whole
    texts, which are part of the scores. ``every`` False: only some candidates have a value.
    """
    values = np.repeat(values, [len(queries) for queries in rows], axis=0)
    return Scores(
        np.concatenate(rows),
        sheet.words,
        log_softmax(values) if every else None,
        sheet.reasons,
        sheet.same,
        sheet.entries,
        totals=values if are_totals else None,
    )


def log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Normalise ``logits`` (row, candidate) over the candidates; NaN stays NaN."""
    known = np.where(np.isnan(logits), -np.inf, logits)
    top = known.max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = top + np.log(np.exp(known - top).sum(axis=1, keepdims=True))
    normalised: npt.NDArray[np.float64] = logits - total
    return normalised
