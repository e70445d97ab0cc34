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

    ``confidence``: the mean probability of the answers in the base variant, of all groups and seeds
    together. ``low, high``: Wilson's 95 % interval of their ``accuracy``.
    """
    grids = [run.views(group, protocol)["tuples"] for run in seeds for group in run.relations]
    found = [stated(grid) for grid in grids if grid.distributions is not None]
    if not any(of[2].any() for of in found):
        return pl.DataFrame()
    confidence, right = (
        np.concatenate([of[at][of[2]].astype(float) for of in found]) for at in (0, 1)
    )
    rows = []
    for places in bins_of(confidence):
        share = float(right[places].mean())
        low, high = wilson_interval(share, len(places))
        of_bin = float(confidence[places].mean())
        rows.append((of_bin, share, low, high, len(places)))
    return pl.DataFrame(rows, ["confidence", "accuracy", "low", "high", "n"], orient="row")
