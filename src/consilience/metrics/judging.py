"""The metrics of a judge: its biases, and its agreement with the labels of people."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.metrics.registry import Grid, Tally, hits_of_total, metric, ratio
from consilience.metrics.statistics import Floats

Sums = tuple[Floats, Floats]  # Hits and total
STEP = 1e-30


def _tally(
    grid: Grid, counts: Floats, n: int, left_out: int, finish: Callable[[Floats], Sums] = ratio
) -> Tally:
    """A tally of the sums of items (item, column); derivatives are by a complex step."""

    def slopes(sums: Floats) -> Sums:
        hits, total = finish(sums + 1j * STEP * np.eye(len(sums)))
        return np.imag(hits) / STEP, np.imag(total) / STEP

    return Tally(counts, grid.subjects, n, left_out, finish, slopes)


def _verdicts(grid: Grid, size: int) -> Floats:
    """1 where an item got an option in a variant (item, variant, option of ``size``)."""
    return np.asarray((grid.answers[..., None] == np.arange(size)).astype(float))


def _of_bias(grid: Grid, factor: str, toward: int, away: int) -> Tally | None:
    """A tally of the pairs of variants that differ in a factor alone and favour two options.

    A pair counts ``toward`` if each variant gets the option that it favours, ``away`` if each gets
    that of the other. Else the verdicts agree, or one is a third option. A judge that only errs at
    random has as many of the one kind as of the other, whatever it prefers.
    """
    if factor not in grid.favoured:
        return None
    pairs, favoured = grid.favoured[factor]
    one, two = grid.answers[:, pairs[:, 0]], grid.answers[:, pairs[:, 1]]
    first, second = favoured[:, pairs[:, 0]], favoured[:, pairs[:, 1]]
    is_pair = (first >= 0) & (second >= 0) & (first != second)
    counted = is_pair & (one >= 0) & (two >= 0)
    if not is_pair.any():
        return None
    hits = toward * ((one == first) & (two == second)) + away * ((one == second) & (two == first))
    counts = np.stack([(hits * counted).sum(axis=1), counted.sum(axis=1)], axis=1)
    finish = hits_of_total if min(toward, away) == 0 else ratio
    n = int(counted.sum())
    return Tally(counts.astype(float), grid.subjects, n, int(is_pair.sum()) - n, finish)


@metric("pairs", "Kappa with labels", "agreement of verdicts and human labels, above chance",
        better="higher", bounds=(-1.0, 1.0), needs="longest", of_gold=True)  # fmt: skip
def label_kappa(grid: Grid) -> Tally | None:
    """Cohen's kappa (1960) of all verdicts and the labels: ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is ``mean_accuracy``, ``p_e = sum_a p(verdict a) p(label a)`` over the options in the
    order of the file, within a group. NaN where ``p_e`` is 1. ``MICRO`` sums numerators and
    denominators of groups.
    """
    size = int(grid.golds.max(initial=0)) + 1
    verdicts = _verdicts(grid, size)
    labels = np.where(grid.taken[..., None], np.eye(size)[grid.golds], 0)
    same = (grid.right & grid.taken).sum(axis=1)[:, None]
    counts = np.concatenate([same, verdicts.sum(axis=1), labels.sum(axis=1)], axis=1)

    def finish(sums: Floats) -> Sums:
        given, right = sums[..., 1 : size + 1], sums[..., size + 1 :]
        total = right.sum(axis=-1)
        by_chance = (given * right).sum(axis=-1) / np.where(total == 0, 1, total)
        return sums[..., 0] - by_chance, total - by_chance

    n = int(grid.taken.sum())
    return _tally(grid, counts, n, grid.taken.size - n, finish)


@metric("pairs", "Toward the first", "both orders of two texts get the one that is shown first",
        level="detail", better="lower", needs="favoured")  # fmt: skip
def toward_first(grid: Grid) -> Tally | None:
    """Share of pairs of orders in which the text that is shown first wins both times.

    *Biased toward first* of Zheng et al. (MT-Bench, NeurIPS 2023, Table 2), whose *consistency* is
    the position consistency of Shi et al. (arXiv 2406.07791) and our ``consistency`` of ``order``;
    with two texts the three sum to 1. Wang et al. (arXiv 2305.17926) call 1 - consistency the
    conflict rate.
    """
    return _of_bias(grid, "order", 1, 0)


@metric("pairs", "Toward the second", "both orders of two texts get the one that is shown second",
        level="detail", better="lower", needs="favoured")  # fmt: skip
def toward_second(grid: Grid) -> Tally | None:
    """Share of pairs of orders in which the text wins that is first in the other order."""
    return _of_bias(grid, "order", 0, 1)


@metric("pairs", "Position bias", "toward the first, less toward the second; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def position_bias(grid: Grid) -> Tally | None:
    """``toward_first - toward_second``: from -1, always the second, to 1, always the first.

    With two texts it is twice the share of verdicts for the first one, less 1, so that its chance
    level is 0. Shi et al. (arXiv 2406.07791) scale such a difference as *preference fairness*.
    """
    return _of_bias(grid, "order", 1, -1)


@metric("pairs", "Label bias", "the label A wins both times, less it loses; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def label_bias(grid: Grid) -> Tally | None:
    """How much the label A attracts verdicts, with the order of the texts unchanged.

    ``position_bias`` for the labels ``A`` and ``BA``, as the *token bias* of Zheng et al. (Large
    Language Models Are Not Robust Multiple Choice Selectors, ICLR 2024) is apart from the position.
    """
    return _of_bias(grid, "labels", 1, -1)


@metric("pairs", "Repetition bias", "a text wins if it is written twice, less it loses; 0 is none",
        bounds=(-1.0, 1.0), needs="favoured")  # fmt: skip
def repetition_bias(grid: Grid) -> Tally | None:
    """How much verdicts follow the text that is written twice, and so is longer and says no more.

    ``position_bias`` for the levels of ``repeated``, after the repetitive list attack of Zheng et
    al. (MT-Bench, NeurIPS 2023, Section 3.3).
    """
    return _of_bias(grid, "repeated", 1, -1)


def _of_lengths(grid: Grid) -> tuple[Floats, Floats, Floats]:
    """Verdicts of items with a longest text, those for it (item,), and whether there is one."""
    assert grid.longest is not None, "needs"
    known = (grid.longest >= 0).astype(float)
    hits = (grid.answers == grid.longest[:, None]).sum(axis=1)
    return grid.taken.sum(axis=1) * known, hits * known, known


@metric("pairs", "Longer text chosen", "share of verdicts for the longest text", level="detail",
        needs="longest")  # fmt: skip
def longer_chosen(grid: Grid) -> Tally | None:
    """Share of verdicts for the longest text, of all of items that have one."""
    given, hits, known = _of_lengths(grid)
    counts, n = np.stack([hits, given], axis=1), int(given.sum())
    every = int(known.sum()) * grid.answers.shape[1]
    return _tally(grid, counts, n, every - n, hits_of_total)


@metric("tuples", "Longer text labelled", "share of human labels for the longest text",
        level="detail", needs="longest", of_gold=True)  # fmt: skip
def longer_labelled(grid: Grid) -> Tally | None:
    """Share of items whose label is the longest text, of those that have one."""
    _, _, known = _of_lengths(grid)
    hits = (grid.golds.max(axis=1) == grid.longest) * known
    return _tally(grid, np.stack([hits, known], axis=1), int(known.sum()), 0, hits_of_total)


@metric("pairs", "Length bias", "accuracy where people prefer the longest text, less elsewhere",
        bounds=(-1.0, 1.0), needs="longest", of_gold=True)  # fmt: skip
def length_bias(grid: Grid) -> Tally | None:
    """Share of right verdicts where the label is the longest text, minus that where it is not.

    From -1 to 1, always the longest; 0 for a judge that errs as often in both cases, however often
    people prefer the longest. The directional verbosity bias of Saito et al. (arXiv 2310.10076).
    Dubois et al. (Length-Controlled AlpacaEval, arXiv 2404.04475) correct a win rate for length
    by a regression instead. Groups without one of the cases are left out of ``MICRO``.
    """
    given, _, known = _of_lengths(grid)
    is_longest = grid.golds.max(axis=1) == grid.longest
    right = grid.right.sum(axis=1) * known
    parts = [of * case for case in (is_longest, ~is_longest) for of in (right, given)]

    def finish(sums: Floats) -> Sums:
        long_right, long, short_right, short = (sums[..., at] for at in range(4))
        both = (np.real(long) > 0) & (np.real(short) > 0)
        total = np.where(both, long + short, 0)
        of_long, of_short = np.where(both, long, 1), np.where(both, short, 1)
        return (long_right / of_long - short_right / of_short) * total, total

    every, n = int(known.sum()) * grid.answers.shape[1], int(given.sum())
    return _tally(grid, np.stack(parts, axis=1).astype(float), n, every - n, finish)


@metric("pairs", "Variance of the judge", "share of the variance of verdicts that no text explains",
        better="lower", needs="longest")  # fmt: skip
def judge_variance(grid: Grid) -> Tally | None:
    """Share of the variance of a verdict that is its variant's and chance's, not the texts'.

    ``W / (W (1 - 1/k) + B)``, at most 1: W is the probability that two of the k verdicts on an item
    differ (1 - consistency), B twice the variance between items of the share of verdicts for an
    option, of two. It is 1 less the intraclass correlation (Shrout and Fleiss 1979, case 1): 0
    where every item gets one verdict, 1 where verdicts depend on the variant or chance alone. NaN
    where all verdicts are for the first options of the file. ``analyze factors`` divides it.
    """
    taken = grid.taken.sum(axis=1)
    known = taken > 1
    size = np.where(known, taken, 2)
    shares = _verdicts(grid, int(grid.answers.max(initial=0)) + 1).sum(axis=1) / size[:, None]
    squares = (shares**2).sum(axis=1)
    of_pairs = (1 - squares) * size / (size - 1)
    parts = [of_pairs, 1 - squares, *shares.T, squares, np.ones(len(known))]
    n = int(known.sum())
    correction = n / max(1, n - 1)

    def finish(sums: Floats) -> Sums:
        items = np.where(sums[..., -1] == 0, 1, sums[..., -1])
        between = sums[..., -2] - (sums[..., 2:-2] ** 2).sum(axis=-1) / items
        total = sums[..., 1] + correction * between
        return np.minimum(sums[..., 0], total), total

    return _tally(grid, np.stack(parts, axis=1) * known[:, None], n, len(known) - n, finish)
