"""What the vectors of a run cluster by, and a drawing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl


def correlations_of(metrics: pl.DataFrame, clusters: pl.DataFrame) -> pl.DataFrame:
    """Spearman's correlation of consistency with V-measure over relations, as in Section 7.2."""
    from consilience.analysis.representations import spearman_with

    named = (pl.col("metric") == "consistency") & (pl.col("subset") == "all")
    consistency = dict(metrics.filter(named).select("group", "value").iter_rows())
    rows = []
    for (layer, name), found in clusters.group_by(["layer", "property"], maintain_order=True):
        measured = dict(found.select("relation", "v_measure").iter_rows())
        r = spearman_with(consistency, measured)
        ends = {"value": r.value, "low": r.low, "high": r.high, "p": r.p, "n": r.n}
        mean = found.select(pl.col("v_measure", "v_measure_shuffled", "ami").fill_nan(None).mean())
        rows.append({"layer": layer, "property": name, **mean.row(0, named=True), **ends})
    return pl.DataFrame(rows)


def drawing_of(folder: Path, relation: str, facts: int, colour: Any, title: str, seed: int) -> Any:
    """The t-SNE of the last layer that a run has of a relation's first facts."""
    from consilience.analysis.representations import read_vectors, tsne
    from consilience.report.figures import tsne_figure

    vectors = read_vectors(folder / "vectors", relation).first(facts)
    last = vectors.array[:, -1]
    readable = ~np.isnan(last).any(axis=1)
    x, y = tsne(last[readable], seed).T
    table = vectors.index.filter(pl.Series(readable)).with_columns(x=pl.Series(x), y=pl.Series(y))
    return tsne_figure(table, colour, title)
