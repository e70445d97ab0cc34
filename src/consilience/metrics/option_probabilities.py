"""The probabilities of options, from the scores in an answers table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

OF_OPTIONS = "option_scores"
"""The column with the score of each option, in the order of the file."""

WHOLE = 1e-3
"""How far from 1 a sum of probabilities may be, such as that of rounded ones."""


def option_probabilities(table: pl.DataFrame) -> Floats:
    """The probability of each option (row, option), NaN where unknown, 0 after the last option.

    The scores of a row are normalised over its options (softmax). An option without a score has
    the probability that the others leave: 0 where theirs sum to 1, else the row is unknown.
    """
    if OF_OPTIONS not in table.columns or table.is_empty():
        return np.full((table.height, 0), np.nan)
    column = table[OF_OPTIONS].cast(pl.List(pl.Float64))
    sizes = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(table.height), sizes)
    positions = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    scores = np.full((table.height, int(sizes.max(initial=0))), -np.inf)
    values = column.filter(column.list.len() > 0).explode()
    scores[rows, positions] = values.fill_null(np.nan).to_numpy()
    lacking = np.isnan(scores)
    scores[lacking] = -np.inf
    best = scores.max(axis=1, initial=-np.inf)
    known = np.isfinite(best)
    weights = np.exp(scores - np.where(known, best, 0)[:, None])
    sums = weights.sum(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        is_whole = np.abs(sums * np.exp(best) - 1) < WHOLE
    known &= is_whole | ~lacking.any(axis=1)
    probabilities: Floats = np.where(
        known[:, None], weights / np.where(known, sums, 1)[:, None], np.nan
    )
    return probabilities
