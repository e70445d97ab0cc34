"""Calibration: are answers with a probability of 80 % right in 80 %?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from consilience.core.errors import Protocol
from consilience.metrics.counts import Prepared
from consilience.metrics.definitions import bins_of, stated
from consilience.metrics.statistics import wilson_interval


def reliability(seeds: Sequence[Prepared], protocol: Protocol) -> pl.DataFrame:
    """A row a bin of equal size: ``confidence, accuracy, low, high, n``; empty without scores.

    ``confidence``: the mean probability of the answers in the base variant, of all groups together,
    of each question the mean of its seeds. ``low, high``: Wilson's 95 % interval of their
    ``accuracy``.
    """
    parts = [np.empty((2, 0))]
    for group in seeds[0].relations:
        grids = [run.views(group, protocol)["tuples"] for run in seeds]
        if all(grid.distributions is not None for grid in grids):
            found = np.array([stated(grid) for grid in grids], dtype=float)
            parts.append(found[:, :2, found[:, 2].all(axis=0)].mean(axis=0))
    confidence, right = np.concatenate(parts, axis=1)
    if not len(right):
        return pl.DataFrame()
    rows = []
    for places in bins_of(confidence):
        share = float(right[places].mean())
        low, high = wilson_interval(share, len(places))
        of_bin = float(confidence[places].mean())
        rows.append((of_bin, share, low, high, len(places)))
    return pl.DataFrame(rows, ["confidence", "accuracy", "low", "high", "n"], orient="row")
