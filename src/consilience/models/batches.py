"""Batches of sequences of one length, so that nothing is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

BATCH_TOKENS = 2048
"""Tokens in a batch of short sequences: enough to fill a processor, little enough to fit any."""


def equal_length_batches(
    lengths: Sequence[int], budget: int = BATCH_TOKENS
) -> Iterator[npt.NDArray[np.int64]]:
    """Positions of sequences, in batches of one length and at most ``budget`` tokens.

    Without padding a sequence's result does not depend on the company that it is asked in.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    sorted_lengths = np.asarray(lengths)[order]
    starts = np.flatnonzero(np.diff(sorted_lengths, prepend=-1))
    for group in np.split(order, starts[1:]):
        if not group.size:
            continue
        step = max(1, budget // max(1, int(lengths[group[0]])))
        for start in range(0, len(group), step):
            yield group[start : start + step]


def log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Normalise ``logits`` (row, candidate) over the candidates, leaving NaN where NaN stands."""
    known = np.where(np.isnan(logits), -np.inf, logits)
    top = known.max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = top + np.log(np.exp(known - top).sum(axis=1, keepdims=True))
    normalised: npt.NDArray[np.float64] = logits - total
    return normalised
