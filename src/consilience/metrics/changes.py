"""Change of accuracy between two variants of the same items: paired, with interval and test."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from consilience.choices import Protocol
from consilience.metrics.bootstrap import REPLICATES, resamples
from consilience.metrics.counts import Answers, prepared_seeds
from consilience.metrics.grid import Grid
from consilience.metrics.intervals import NAN, bootstrap_intervals
from consilience.metrics.paired import MCNEMAR, SUBJECTS
from consilience.metrics.resampling import ClusterSampler
from consilience.metrics.significance import Signs, holm, mcnemars, permutation_p
from consilience.metrics.tally import quotient
from consilience.types import Suite

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

FORM_CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    "first": pl.String,
    "second": pl.String,
    **CHANGE_SCHEMA,
    "seeds": pl.Int64,
    "n": pl.Int64,
}
"""One row for every two forms of a group: the change of accuracy, mean over seeds."""


def form_changes(
    answers: Answers | Sequence[Answers], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """Accuracy in each form minus that in each earlier one (``FORM_CHANGE_SCHEMA``), paired.

    A form's accuracy is that of its first variant. Groups with one form have no rows.
    """
    seeds = prepared_seeds(answers, suite)
    tables = []
    for relation, _ in seeds[0].relations:
        forms = relation.design.forms
        if len(forms) < 2:
            continue
        grids = [
            run.views(relation, run.rows_of(relation), protocol)["tuples"].only_variants(
                [variants[0] for variants in forms.values()]
            )
            for run in seeds
        ]
        subjects, places = np.unique(grids[0].subjects.astype(str), return_inverse=True)
        generator = np.random.default_rng([seed, zlib.crc32(relation.id.encode())])
        weights = resamples(len(subjects), REPLICATES, generator)
        resampled = ClusterSampler(partial(iter, (np.ascontiguousarray(weights.T),)), places)
        first, second = ([list(forms)[at] for at in side] for side in grids[0].pairs.T)
        columns = {
            "group": [relation.id] * len(first),
            "first": first,
            "second": second,
            **accuracy_changes(grids, resampled, seed),
            "seeds": [len(seeds)] * len(first),
            "n": np.min([grid.both.sum(axis=0) for grid in grids], axis=0),
        }
        tables.append(pl.DataFrame(columns, schema=FORM_CHANGE_SCHEMA))
    return pl.concat(tables) if tables else pl.DataFrame(schema=FORM_CHANGE_SCHEMA)


def accuracy_changes(
    grids: Sequence[Grid], resampled: ClusterSampler, seed: int
) -> dict[str, Sequence[object]]:
    """Columns (``CHANGE_SCHEMA``) with one value for each pair that the grids compare.

    ``grids``: one for each run of the same items; values are means over runs. ``resampled``: their
    subjects. The test of one run is McNemar's over items. The test of several runs flips the sign
    of each subject's contribution to the mean change.
    """
    first, second = grids[0].pairs.T
    subjects, places = np.unique(grids[0].subjects.astype(str), return_inverse=True)
    values = np.zeros((2, len(first)))
    replicates = np.zeros((len(first), REPLICATES))
    parts = np.zeros((len(subjects), len(first)))
    for grid in grids:
        one, two = (grid.right[:, side] & grid.both for side in (first, second))
        moved = two.astype(np.float32) - one
        total = grid.both.sum(axis=0)
        values += np.stack([quotient(side.sum(axis=0), total) for side in (one, two)]) / len(grids)
        replicates += quotient(resampled.sums(moved), resampled.sums(grid.both)) / len(grids)
        if len(grids) > 1:
            np.add.at(parts, places, quotient(moved.astype(np.float64), total) / len(grids))
    change = values[1] - values[0]
    if len(grids) == 1:
        tested = mcnemars((moved < 0).sum(axis=0), (moved > 0).sum(axis=0))
        tested[total == 0] = NAN
    else:
        flipped = Signs(subjects.tolist(), seed).sums(np.nan_to_num(parts))
        tested = np.array(
            [permutation_p(float(value), row) for value, row in zip(change, flipped.T, strict=True)]
        )
    with_base = (first == 0) | (second == 0)
    adjusted = np.full(len(tested), NAN)
    for family in (with_base, ~with_base):
        adjusted[family] = holm(tested[family].tolist())
    ends = bootstrap_intervals(change, replicates, len(subjects), (-1.0, 1.0))
    names = [MCNEMAR if len(grids) == 1 else SUBJECTS] * len(tested)
    columns = (*values, change, *ends.T, names, tested, adjusted)
    return dict(zip(CHANGE_SCHEMA, columns, strict=True))
