"""Bootstrap samples of clusters: how often each was drawn, all at once or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

REPLICATES = 2000
"""Bootstrap samples."""

CELLS = 4_000_000
"""Numbers that are held at once, about."""

KEPT = 2**28
"""Bytes of resampled clusters that several countings share, at most."""

CACHED = 2**19
"""Numbers that are worked on at once, about: so few that they stay in the processor's cache."""


def resamples(
    clusters: int, replicates: int, generator: np.random.Generator
) -> npt.NDArray[np.float32]:
    """How often each cluster was drawn, (replicate, cluster): as many draws as clusters."""
    parts = resamples_in_parts(clusters, replicates, generator)
    return np.concatenate([np.ascontiguousarray(part.T) for part in parts])


def resamples_in_parts(
    clusters: int, replicates: int, generator: np.random.Generator, width: int = 0
) -> Iterator[npt.NDArray[np.float32]]:
    """The same in parts of some replicates, (cluster, replicate): all of them need not fit.

    ``width``: how many numbers are made of each replicate, if more than there are clusters.
    """
    for size in parts_of(replicates, max(clusters, width), CELLS):
        part = np.empty((clusters, size), dtype=np.float32)
        _draw(part, generator)
        yield part


def draw_counts(clusters: int, generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The same in bytes (cluster, replicate), all ``REPLICATES``.

    They suffice: that a cluster is drawn 256 times has a chance of less than 1 / 256!.
    """
    counts = np.empty((clusters, REPLICATES), dtype=np.uint8)
    _draw(counts, generator)
    return counts


def in_parts(counts: npt.NDArray[np.uint8], width: int = 0) -> Iterator[npt.NDArray[np.float32]]:
    """What was ``drawn`` (cluster, replicate), as ``resamples_in_parts`` has it."""
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

    ``cells``: how many numbers a part has, about.
    """
    most = max(16, cells // max(1, width) // 16 * 16)
    for start in range(0, rows, most):
        yield min(most, rows - start)
