"""The metrics of a judge: its biases, and its agreement with the labels of people."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.core.items import Floats
from consilience.metrics.registry import Grid, Tally, hits_of_total, metric, ratio

Sums = tuple[Floats, Floats]  # Hits and total
STEP = 1e-30


def _tally(
    grid: Grid, counts: Floats, n: int, every: int, finish: Callable[[Floats], Sums]
) -> Tally:
    """A tally of sums of items (item, column), ``n`` of ``every``; slopes are by a complex step."""

    def slopes(sums: Floats) -> Sums:
        hits, total = finish(sums + 1j * STEP * np.eye(len(sums)))
        return np.imag(hits) / STEP, np.imag(total) / STEP

    return Tally(counts, grid.subjects, n, every - n, finish, slopes)


def _verdicts(grid: Grid, size: int) -> Floats:
    """How many verdicts are for an option (item, option of ``size``)."""
    return np.asarray((grid.answers[..., None] == np.arange(size)).sum(axis=1, dtype=float))


def _of_bias(grid: Grid, factor: str, toward: int, away: int) -> Tally | None:
    """A tally of the pairs of variants that differ in a factor alone and favour two options.

    A pair counts ``toward`` if each variant gets the option that it favours, ``away`` if each gets
    that of the other. Else the verdicts agree, or one is a third option. A judge that only errs at
    random has as many of the one kind as of the other, whatever it prefers.
    """
    if factor not in grid.favoured:
        return None
    pairs, favoured = grid.favoured[factor]
    one, two = np.moveaxis(grid.answers[:, pairs], 2, 0)
    first, second = np.moveaxis(favoured[:, pairs], 2, 0)
    is_pair = (first >= 0) & (second >= 0) & (first != second)
    counted = is_pair & (one >= 0) & (two >= 0)
    hits = toward * ((one == first) & (two == second)) + away * ((one == second) & (two == first))
    counts = np.stack([(hits * counted).sum(axis=1), counted.sum(axis=1)], axis=1, dtype=float)
    n, finish = int(counted.sum()), ratio if away < 0 else hits_of_total
    left_out = int(is_pair.sum()) - n
    return Tally(counts, grid.subjects, n, left_out, finish) if is_pair.any() else None


@metric("pairs", "Kappa with labels", "verdicts and human labels agree above chance",
        better="higher", bounds=(-1.0, 1.0), needs="longest", of_gold=True)  # fmt: skip
def label_kappa(grid: Grid) -> Tally | None:
    """Cohen's kappa (1960) of all verdicts and the labels: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is ``mean_accuracy``, ``p_e = sum_a p(verdict a) p(label a)`` over the options in the
    order of the file, within a group. NaN where ``p_e`` is 1. ``MICRO`` sums numerators and
    denominators of groups.
    """
    size = int(grid.golds.max(initial=0)) + 1
    labels = np.where(grid.taken[..., None], np.eye(size)[grid.golds], 0).sum(axis=1)
    counts = np.column_stack([grid.right.sum(axis=1), _verdicts(grid, size), labels])

    def finish(sums: Floats) -> Sums:
        given, right = sums[..., 1 : size + 1], sums[..., size + 1 :]
        total = right.sum(axis=-1)
        by_chance = (given * right).sum(axis=-1) / np.where(total == 0, 1, total)
        return sums[..., 0] - by_chance, total - by_chance

    return _tally(grid, counts, int(grid.taken.sum()), grid.taken.size, finish)


@metric("pairs", "Toward the first", "both orders of two texts get the one that is shown first",
        level="detail", better="lower", needs="favoured")  # fmt: skip
def toward_first(grid: Grid) -> Tally | None:
    """Share of pairs of orders in which the text that is shown first wins both times.

    *Biased toward first* of Zheng et al. (MT-Bench, NeurIPS 2023), whose *consistency* is the
    position consistency of Shi et al. (arXiv 2406.07791) and our ``consistency`` of ``order``; with
    two texts the three sum to 1. 1 - consistency is the conflict rate of Wang et al. (2305.17926).
    """
    return _of_bias(grid, "order", 1, 0)


@metric("pairs", "Toward the second", "both orders of two texts get the one that is shown second",
        level="detail", better="lower", needs="favoured")  # fmt: skip
def toward_second(grid: Grid) -> Tally | None:
    """Share of pairs of orders in which the text wins that is first in the other order."""
    return _of_bias(grid, "order", 0, 1)


@metric("pairs", "Position bias", "toward the first text; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def position_bias(grid: Grid) -> Tally | None:
    """``toward_first - toward_second``: from -1, always the second, to 1, always the first.

    With two texts it is twice the share of verdicts for the first one, less 1, so that its chance
    level is 0. Shi et al. (arXiv 2406.07791) scale such a difference as *preference fairness*.
    """
    return _of_bias(grid, "order", 1, -1)


@metric("pairs", "Label bias", "toward the label A; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def label_bias(grid: Grid) -> Tally | None:
    """``position_bias`` for the labels ``A`` and ``BA``: how much the label A attracts verdicts.

    The *token bias*, apart from the position, of Zheng et al. (Large Language Models Are Not Robust
    Multiple Choice Selectors, ICLR 2024).
    """
    return _of_bias(grid, "labels", 1, -1)


@metric("pairs", "Repetition bias", "toward a repeated text; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def repetition_bias(grid: Grid) -> Tally | None:
    """``position_bias`` for the text that is written twice, and so is longer and says no more.

    After the repetitive list attack of Zheng et al. (MT-Bench, NeurIPS 2023, Section 3.3).
    """
    return _of_bias(grid, "repeated", 1, -1)


@metric("pairs", "Longer text chosen", "share of verdicts for the longest text", level="detail",
        needs="longest")  # fmt: skip
def longer_chosen(grid: Grid) -> Tally | None:
    """Share of verdicts for the longest text; pairs of one length are left out."""
    longest = np.asarray(grid.longest)[:, None]
    return Tally.of_hits(grid.subjects, grid.answers == longest, grid.taken & (longest >= 0))


@metric("tuples", "Longer text labelled", "share of human labels for the longest text",
        level="detail", needs="longest", of_gold=True)  # fmt: skip
def longer_labelled(grid: Grid) -> Tally | None:
    """Share of human labels for the longest text; pairs of one length are left out."""
    longest, golds = np.asarray(grid.longest), grid.golds.max(axis=1)
    return Tally.of_hits(grid.subjects, golds == longest, (longest >= 0) & (golds >= 0))


@metric("pairs", "Length bias", "toward the longest text; 0 is none",
        bounds=(-1.0, 1.0), needs="longest", of_gold=True)  # fmt: skip
def length_bias(grid: Grid) -> Tally | None:
    """Accuracy where the label is the longest text, minus that where it is another.

    From -1 to 1, always the longest; 0 for a judge that errs as often in both cases, however often
    people prefer the longest. The directional verbosity bias of Saito et al. (arXiv 2310.10076).
    Dubois et al. (Length-Controlled AlpacaEval, arXiv 2404.04475) correct a win rate for length
    by a regression instead. Groups without one of the cases are left out of ``MICRO``.
    """
    longest, golds = np.asarray(grid.longest), grid.golds.max(axis=1)
    cases = [(golds == longest) & (longest >= 0), (golds != longest) & (longest >= 0)]
    sums = [grid.right.sum(axis=1), grid.taken.sum(axis=1)]
    counts = np.stack([of * case for case in cases for of in sums], axis=1, dtype=float)

    def finish(sums: Floats) -> Sums:
        right, given = sums[..., ::2], sums[..., 1::2]
        is_known = (np.real(given) > 0).all(axis=-1)
        accuracy = right / np.where(given == 0, 1, given)
        total = np.where(is_known, given.sum(axis=-1), 0)
        return (accuracy[..., 0] - accuracy[..., 1]) * total, total

    return _tally(grid, counts, int(counts[:, 1::2].sum()), grid.taken.size, finish)


@metric("pairs", "Variance of the judge", "share that is not the texts'",
        better="lower", needs="longest")  # fmt: skip
def judge_variance(grid: Grid) -> Tally | None:
    """Share of the variance of a verdict that is its variant's and chance's, not the texts'.

    ``W / (W (1 - 1/k) + B)``, at most 1: W is the probability that two of the k verdicts on an item
    differ (1 - consistency), B twice the variance between items of the share of verdicts for an
    option, of two. It is 1 less the intraclass correlation (Shrout and Fleiss 1979, case 1): 0
    where every item gets one verdict, 1 where verdicts depend on the variant or chance alone. NaN
    where all verdicts are for the first options of the file, and of one text, which has no variance
    between texts. ``analyze factors`` divides it.
    """
    taken = grid.taken.sum(axis=1)
    known, size = taken > 1, np.maximum(taken, 2)
    shares = _verdicts(grid, int(grid.answers.max(initial=0)) + 1) / size[:, None]
    squares, n = (shares**2).sum(axis=1), int(known.sum())
    parts = [(1 - squares) * size / (size - 1), 1 - squares, shares, squares, known]
    correction = n / max(1, n - 1)

    def finish(sums: Floats) -> Sums:
        items = np.where(sums[..., -1] == 0, 1, sums[..., -1])
        between = sums[..., -2] - (sums[..., 2:-2] ** 2).sum(axis=-1) / items
        total = (sums[..., 1] + correction * between) * (n > 1)  # one text: no variance of texts
        return np.minimum(sums[..., 0], total), total

    return _tally(grid, np.column_stack(parts) * known[:, None], n, len(known), finish)
