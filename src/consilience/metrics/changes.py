"""What accuracy loses or gains between two variants of the same items: paired, with a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from consilience.metrics.agreement import quotient
from consilience.metrics.grid import Grid
from consilience.metrics.resampling import Weights
from consilience.metrics.statistics import (
    NAN,
    Signs,
    bootstrap_interval,
    holm,
    mcnemar,
    permutation_p,
)

MCNEMAR = "exact McNemar"
FLIPS = "sign flips of subjects"

CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    "first_accuracy": pl.Float64,
    "second_accuracy": pl.Float64,
    "change": pl.Float64,
    "change_low": pl.Float64,
    "change_high": pl.Float64,
    "test": pl.String,
    "p": pl.Float64,
    "p_holm": pl.Float64,
}
"""Accuracy in two variants, over the items that were answered in both.

``change`` is the second minus the first, with the bounds of its 95 % interval over subjects. ``p``
of ``test`` is two-sided. ``p_holm`` is adjusted over the pairs with the base variant, and over all
other pairs.
"""


def accuracy_changes(
    grids: Sequence[Grid], weights: Weights, seed: int
) -> Iterator[dict[str, object]]:
    """A row (``CHANGE_SCHEMA``) for each of the pairs that the grids compare.

    ``grids``: one a run of the same items; values are means over runs. ``weights`` (replicate,
    item): how often each item was drawn. The test is McNemar's over the items of one run, and of
    several runs sign flips of what each subject adds to the mean change.
    """
    first, second = grids[0].pairs.T
    subjects, places = np.unique(grids[0].subjects.astype(str), return_inverse=True)
    values = np.zeros((2, len(first)))
    replicates = np.zeros((len(weights), len(first)))
    parts = np.zeros((len(subjects), len(first)))
    for grid in grids:
        one, two = (grid.right[:, each] & grid.both for each in (first, second))
        moved = two.astype(np.float32) - one
        total = grid.both.sum(axis=0)
        values += np.stack([quotient(each.sum(axis=0), total) for each in (one, two)]) / len(grids)
        drawn = (weights @ each for each in (moved, grid.both.astype(np.float32)))
        replicates += quotient(*(each.astype(np.float64) for each in drawn)) / len(grids)
        np.add.at(parts, places, quotient(moved.astype(np.float64), total) / len(grids))
    if len(grids) == 1:
        tested = [
            mcnemar(int((each < 0).sum()), int((each > 0).sum())) if known else NAN
            for each, known in zip(moved.T, total, strict=True)
        ]
    else:
        flipped = Signs(subjects.tolist(), seed).sums(np.nan_to_num(parts))
        tested = [
            permutation_p(float(change), each)
            for change, each in zip(values[1] - values[0], flipped.T, strict=True)
        ]
    with_base = (first == 0) | (second == 0)
    adjusted = np.full(len(tested), NAN)
    for family in (with_base, ~with_base):
        adjusted[family] = holm(np.array(tested)[family].tolist())
    for at, p in enumerate(tested):
        change = float(values[1, at] - values[0, at])
        low, high = bootstrap_interval(change, replicates[:, at], len(subjects), (-1.0, 1.0))
        row = (values[0, at], values[1, at], change, low, high)
        names = (MCNEMAR if len(grids) == 1 else FLIPS, p, adjusted[at])
        yield dict(zip(CHANGE_SCHEMA, (*row, *names), strict=True))
