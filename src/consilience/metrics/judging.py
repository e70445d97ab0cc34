"""Metrics of answers to questions with options: agreement with labels, preference for a place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.metrics.registry import Grid, Tally, metric


@metric("pairs", "Kappa with labels", "answers and right answers agree above chance",
        level="detail", better="higher", bounds=(-1.0, 1.0), needs="places")  # fmt: skip
def label_kappa(grid: Grid) -> Tally:
    """Cohen's kappa (1960) of all answers and the labels: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is ``mean_accuracy``, ``p_e = sum_p p(answer at p) p(label at p)`` over the *shown
    positions* p, so that the order of the options in the file plays no part. NaN where ``p_e`` is
    1. Over groups numerators and denominators are summed.
    """
    assert grid.places is not None, "needs"
    size = int(grid.places.sizes.max(initial=0))
    counts = [
        (np.where(grid.asked, grid.places.of(of), -1)[..., None] == np.arange(size)).sum(axis=1)
        for of in (grid.answers, grid.golds)
    ]
    asked = grid.asked.sum(axis=1, dtype=np.float64)
    columns = np.column_stack([grid.right.sum(axis=1), asked, *counts])

    def finish(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        given, labels = np.split(sums[..., 2:], 2, axis=-1)
        total = sums[..., 1]
        by_chance = (given * labels).sum(axis=-1) / np.where(total == 0, 1, total)
        return sums[..., 0] - by_chance, total - by_chance

    n = int(grid.asked.sum())
    tally = Tally.of_sums(columns, finish, grid.subjects, n, grid.left_out)
    return replace(tally, sizes=asked)


@metric("pairs", "Position preference", "toward the option that is shown first; 0 is none",
        level="detail", bounds=(-1.0, 1.0), needs="orders")  # fmt: skip
def position_preference(grid: Grid) -> Tally | None:
    """How much more often the option shown first wins in both of two orders than loses in both.

    Over pairs of variants that differ in the order alone: 1 if each gets the option that it shows
    first (*biased toward first* of Zheng et al., MT-Bench, NeurIPS 2023), -1 if each gets that of
    the other, else 0, because the answers agree or one is a third option. The mean over items of
    the mean over pairs. It is 0 on average where errors do not depend on the order. Shi et al.
    (arXiv 2406.07791) scale such a difference as *preference fairness*.
    """
    assert grid.orders is not None, "needs"
    assert grid.places is not None, "needs"
    first = grid.places.options_at(0)
    hits, sizes, every = np.zeros((3, len(first)))
    for pair in grid.orders:  # arrays (item, pair) would fill the memory
        (one, two), (of_one, of_two) = grid.answers[:, pair].T, first[:, pair].T
        is_pair = (of_one >= 0) & (of_two >= 0) & (of_one != of_two)
        counted = is_pair & grid.asked[:, pair].all(axis=1)
        wins, loses = (one == of_one) & (two == of_two), (one == of_two) & (two == of_one)
        hits += (wins * 1.0 - loses) * counted
        sizes += counted
        every += is_pair
    hits /= np.maximum(sizes, 1)
    n, scores = int(sizes.sum()), np.stack([hits, sizes > 0], axis=1)
    tally = Tally(scores, grid.subjects, n, int(every.sum()) - n, is_proportion=False)
    return tally if every.any() else None
