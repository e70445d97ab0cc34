"""Bootstrap samples of clusters: how often each was drawn, all at once or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

REPLICATES = 2000
"""The number of bootstrap samples."""

CELLS = 4_000_000
"""About how many numbers are in memory at the same time."""

KEPT = 2**28
"""At most this many bytes of resampled clusters are shared between tables."""

CACHED = 2**19
"""About how many numbers are computed at once, so that they fit the processor's cache."""


def resamples(
    clusters: int, replicates: int, generator: np.random.Generator
) -> npt.NDArray[np.float32]:
    """How often each cluster was drawn (replicate, cluster); a replicate draws as many as exist."""
    parts = resamples_in_parts(clusters, replicates, generator)
    return np.concatenate([np.ascontiguousarray(part.T) for part in parts])


def resamples_in_parts(
    clusters: int, replicates: int, generator: np.random.Generator, width: int = 0
) -> Iterator[npt.NDArray[np.float32]]:
    """The same (cluster, replicate) in parts, so that not all replicates must fit into memory.

    ``width``: the number of values computed from a replicate, if larger than that of clusters.
    """
    for size in parts_of(replicates, max(clusters, width), CELLS):
        part = np.empty((clusters, size), dtype=np.float32)
        _draw(part, generator)
        yield part


def draw_counts(clusters: int, generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The same for all ``REPLICATES`` as bytes (cluster, replicate).

    A byte is enough: the probability that a cluster is drawn 256 times is below 1 / 256!.
    """
    counts = np.empty((clusters, REPLICATES), dtype=np.uint8)
    _draw(counts, generator)
    return counts


def in_parts(counts: npt.NDArray[np.uint8], width: int = 0) -> Iterator[npt.NDArray[np.float32]]:
    """``counts`` (cluster, replicate) in the parts of ``resamples_in_parts``."""
    start = 0
    for size in parts_of(counts.shape[1], max(len(counts), width), CELLS):
        yield counts[:, start : start + size].astype(np.float32)
        start += size


def _draw(counts: npt.NDArray[Any], generator: np.random.Generator) -> None:
    """Fill ``counts`` (cluster, replicate) with how often each cluster was drawn."""
    clusters, replicates = counts.shape
    start = 0
    for size in parts_of(replicates, clusters):
        places = generator.integers(0, clusters, (size, clusters))
        places *= size
        places += np.arange(size)[:, None]
        drawn = np.bincount(places.ravel(), minlength=size * clusters)
        counts[:, start : start + size] = drawn.reshape(clusters, size)
        start += size


def parts_of(rows: int, width: int, cells: int = CACHED) -> Iterator[int]:
    """Sizes of the parts in which ``rows`` of ``width`` numbers are computed: multiples of 16.

    ``cells``: about how many numbers a part has.
    """
    most = max(16, cells // max(1, width) // 16 * 16)
    for start in range(0, rows, most):
        yield min(most, rows - start)
