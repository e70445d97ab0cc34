"""How many pairs of answers agree if each variant gives its own answers to random items.

``sum_{k<l} n_kl sum_a p_k(a) p_l(a)``: ``p_k(a)`` is the share of the answer a among those of
variant k, ``n_kl`` the number of items answered in both.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Chance(Protocol):
    """The number of pairs that agree by chance, a function of sums of counts over items.

    The columns of the sums are: same pairs, all pairs, ``width`` columns of this class, then each
    answer in each variant (variant and word).
    """

    def __call__(self, sums: Floats) -> Floats:
        """(...) of sums (..., column). The last result is kept: two metrics need the same."""

    def slopes(self, sums: Floats) -> Floats:
        """Its derivatives (column,) at sums (column,)."""


class ChanceOfPairs:
    """``Chance`` of given pairs; its columns are the items with both answers of each pair."""

    def __init__(self, pairs: npt.NDArray[np.int64], variants: int, words: int) -> None:
        self._first, self._second = pairs.T
        self._shape = variants, words
        self._last: tuple[Floats, Floats] | None = None

    def __call__(self, sums: Floats) -> Floats:
        """(...) of sums (..., column)."""
        if self._last is None or self._last[0] is not sums:
            self._last = sums, self._agree(sums)
        return self._last[1]

    def _agree(self, sums: Floats) -> Floats:
        both, answer_counts = np.split(sums[..., 2:], [len(self._first)], axis=-1)
        by_variant = answer_counts.reshape(*sums.shape[:-1], *self._shape)
        totals = by_variant.sum(axis=-1, keepdims=True)
        shares = by_variant / np.where(totals > 0, totals, 1)
        expected = shares @ np.swapaxes(shares, -1, -2)
        agree: Floats = (expected[..., self._first, self._second] * both).sum(axis=-1)
        return agree

    def slopes(self, sums: Floats) -> Floats:
        """The derivatives (column,) at sums (column,).

        By ``n_kl``: ``sum_a p_k(a) p_l(a)``; by the count of the answer a in variant k, of N_k:
        ``(w_k(a) - sum_b w_k(b) p_k(b)) / N_k`` with ``w_k(a) = sum_l n_kl p_l(a)``.
        """
        pairs, (variants, words) = len(self._first), self._shape
        both, answer_counts = np.split(sums[2:], [pairs])
        by_variant = answer_counts.reshape(variants, words)
        totals = np.maximum(by_variant.sum(axis=1, keepdims=True), 1)
        shares = by_variant / totals
        compared = np.zeros((variants, variants))
        np.add.at(compared, (self._first, self._second), both)
        np.add.at(compared, (self._second, self._first), both)
        weights = compared @ shares
        slopes = np.zeros(len(sums))
        slopes[2 : 2 + pairs] = (shares[self._first] * shares[self._second]).sum(axis=1)
        slopes[2 + pairs :] = _of_counts(weights, shares, totals)
        return slopes


class ChanceOfAll:
    """``Chance`` of every two of many variants, without an array of pairs.

    Items that lack the same answers are a class c of N_c items; t_ck is 1 if it has answers in
    variant k, and ``u_c(a) = sum_k t_ck p_k(a)``. The sum over pairs is then
    ``sum_c N_c sum_a (u_c(a)^2 - sum_k t_ck p_k(a)^2) / 2``. Its columns are the classes.
    """

    def __init__(self, classes: npt.NDArray[np.bool_], words: int) -> None:
        """``classes``: t (class, variant)."""
        self._classes = classes.astype(np.float64)
        self._shape = classes.shape[1], words
        self._last: tuple[Floats, Floats] | None = None

    def __call__(self, sums: Floats) -> Floats:
        """(...) of sums (..., column)."""
        if self._last is None or self._last[0] is not sums:
            counts, shares, _ = self._parts(sums)
            self._last = sums, (counts * self._of_classes(shares)).sum(axis=-1)
        return self._last[1]

    def _parts(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """N (..., class), p (..., variant, word) and the answers of each variant (..., v, 1)."""
        counts, answer_counts = np.split(sums[..., 2:], [len(self._classes)], axis=-1)
        by_variant = answer_counts.reshape(*sums.shape[:-1], *self._shape)
        totals = np.maximum(by_variant.sum(axis=-1, keepdims=True), 1)
        return counts, by_variant / totals, totals

    def _of_classes(self, shares: Floats) -> Floats:
        """The pairs of one item of each class that agree by chance (..., class)."""
        squares = np.einsum("...va,...va->...v", shares, shares) @ self._classes.T
        together = self._classes @ shares
        agree: Floats = (np.einsum("...ca,...ca->...c", together, together) - squares) / 2
        return agree

    def slopes(self, sums: Floats) -> Floats:
        """The derivatives (column,) at sums (column,).

        By N_c: what ``_of_classes`` gives; by the count of an answer: as of ``ChanceOfPairs`` with
        ``w_k(a) = sum_c N_c t_ck (u_c(a) - p_k(a))``.
        """
        counts, shares, totals = self._parts(sums)
        weighted = counts[:, None] * self._classes
        weights = weighted.T @ (self._classes @ shares) - weighted.sum(axis=0)[:, None] * shares
        by_count = _of_counts(weights, shares, totals)
        return np.concatenate([np.zeros(2), self._of_classes(shares), by_count])


def _of_counts(weights: Floats, shares: Floats, totals: Floats) -> Floats:
    """Derivatives by the counts of answers (variant and word), from w, p and N."""
    mean_weights = (weights * shares).sum(axis=1, keepdims=True)
    slopes: Floats = ((weights - mean_weights) / totals).ravel()
    return slopes
