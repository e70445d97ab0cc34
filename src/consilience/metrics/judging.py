"""Metrics of answers to questions with options: agreement with labels, preference for a place."""

from __future__ import annotations

import numpy as np

from consilience.core.items import Floats
from consilience.metrics.registry import Grid, Tally, metric, ratio

STEP = 1e-30


@metric("pairs", "Kappa with labels", "answers and right answers agree above chance",
        level="detail", better="higher", bounds=(-1.0, 1.0), needs="shown_first")  # fmt: skip
def label_kappa(grid: Grid) -> Tally:
    """Cohen's kappa (1960) of all answers and the labels: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is ``mean_accuracy``, ``p_e = sum_a p(answer a) p(label a)`` over the options in the
    order of the file, within a group. NaN where ``p_e`` is 1. ``MICRO`` sums numerators and
    denominators of groups.
    """
    size = int(grid.golds.max(initial=0)) + 1
    labels = np.where(grid.taken[..., None], np.eye(size)[grid.golds], 0).sum(axis=1)
    answers = (grid.answers[..., None] == np.arange(size)).sum(axis=1, dtype=float)
    counts = np.column_stack([grid.right.sum(axis=1), answers, labels])

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        given, right = sums[..., 1 : size + 1], sums[..., size + 1 :]
        total = right.sum(axis=-1)
        by_chance = (given * right).sum(axis=-1) / np.where(total == 0, 1, total)
        return sums[..., 0] - by_chance, total - by_chance

    def slopes(sums: Floats) -> tuple[Floats, Floats]:  # by a complex step
        hits, total = finish(sums + 1j * STEP * np.eye(len(sums)))
        return np.imag(hits) / STEP, np.imag(total) / STEP

    n = int(grid.taken.sum())
    return Tally(counts, grid.subjects, n, grid.taken.size - n, finish, slopes)


@metric("pairs", "Position preference", "toward the option that is shown first; 0 is none",
        level="detail", bounds=(-1.0, 1.0), needs="shown_first")  # fmt: skip
def position_preference(grid: Grid) -> Tally | None:
    """How much more often the option shown first wins in both of two orders than loses in both.

    Over pairs of variants that differ in the order alone: 1 if each gets the option that it shows
    first (*biased toward first* of Zheng et al., MT-Bench, NeurIPS 2023), -1 if each gets that of
    the other, else 0, because the answers agree or one is a third option. It is 0 on average where
    errors do not depend on the order. Shi et al. (arXiv 2406.07791) scale such a difference as
    *preference fairness*.
    """
    assert grid.shown_first is not None, "needs"
    pairs, options = grid.shown_first
    one, two = np.moveaxis(grid.answers[:, pairs], 2, 0)
    first, second = np.moveaxis(options[:, pairs], 2, 0)
    is_pair = (first >= 0) & (second >= 0) & (first != second)
    counted = is_pair & (one >= 0) & (two >= 0)
    hits = 1 * ((one == first) & (two == second)) - ((one == second) & (two == first))
    counts = np.stack([(hits * counted).sum(axis=1), counted.sum(axis=1)], axis=1, dtype=float)
    n = int(counted.sum())
    tally = Tally(counts, grid.subjects, n, int(is_pair.sum()) - n, ratio)
    return tally if is_pair.any() else None
