"""The metrics. Each is a function from a grid of answers to a tally: hits and totals of each item.

Notation: ``a_ik`` is the answer to item i in variant k, ``g_i`` the gold, and variant 0 the base
variant; ``[...]`` is 1 if the condition holds and else 0. All sums skip missing answers.

Unless a docstring says otherwise, a value is hits / total, from 0 to 1. It is NaN
where the total is 0. ``MACRO`` is the unweighted mean over groups; ``MICRO`` divides the sum of all
hits by the sum of all totals. Sections are those of the ParaRel paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from consilience.metrics.grid import Bools, Floats, Grid, all_of, any_of
from consilience.metrics.registry import describe, metric
from consilience.metrics.tally import Tally, ratio


@metric(
    "tuples",
    label="Accuracy",
    meaning="share of items with the right answer in the base variant",
    level="headline",
    binary=True,
    one_form=True,
    better="higher",
)
def accuracy(grid: Grid) -> Tally:
    """Share of items with the right answer in the base variant: [a_i0 = g_i] (Section 5.2)."""
    return _tally(grid.subjects, grid.right[:, 0], grid.taken[:, 0])


@metric(
    "pairs",
    label="Consistency",
    meaning="share of pairs of variants that get the same answer, right or wrong",
    level="headline",
    by_edit=True,
    by_form=True,
    better="higher",
)
def consistency(grid: Grid) -> Tally:
    """Share of pairs of variants of an item that get the same answer (Section 5.2).

    ``sum_i sum_{k<l} [a_ik = a_il] / sum_i n_i (n_i - 1) / 2`` for ``n_i`` answers to item i. Of
    sentence pairs, only the pairs of the original form (k = 0) with another form are compared. In
    N-M relations the same number is called ``determinism`` (Section 3.1).
    """
    return _of_pairs(grid, grid.n_same)


describe(
    "determinism",
    label="Determinism",
    meaning="consistency of relations with several right answers",
    level="headline",
    better="higher",
    alias_of="consistency",
)


@metric(
    "tuples",
    label="Consistent accuracy",
    meaning="share of items with the right answer in every variant",
    level="headline",
    binary=True,
    by_form=True,
    better="higher",
)
def consistent_accuracy(grid: Grid) -> Tally:
    """Share of items with the right answer in every variant: product over k of [a_ik = g_i].

    An item is left out if it lacks an answer in a variant in which others have one. (Section 5.2,
    Consistent-Acc) A question counts by the variants that it has.
    """
    return _tally(grid.subjects, grid.always_right, grid.complete)


@metric(
    "tuples",
    label="Consistently wrong",
    meaning="share of items with the same wrong answer in every variant",
    binary=True,
    better="lower",
)
def consistent_wrong(grid: Grid) -> Tally:
    """Share of items with the same wrong answer in every variant, as in the released code."""
    first = np.take_along_axis(grid.answers, grid.taken.argmax(axis=1)[:, None], axis=1)
    alike = all_of(((grid.answers == first) | grid.lacking)[:, grid.answered], axis=1)
    return _tally(grid.subjects, alike & ~any_of(grid.right, axis=1), grid.complete)


@metric(
    "pairs",
    label="Successful variants",
    meaning="share of variants that get at least one item right",
    better="higher",
)
def successful_patterns(grid: Grid) -> Tally:
    """Share of patterns that get at least one item right (Section 6.1, Succ-Patt).

    A maximum over items, so resampling items is not valid: a group has no interval.
    """
    return _tally(None, any_of(grid.right, axis=0), grid.answered)


@metric(
    "pairs",
    label="Successful items",
    meaning="share of items that at least one variant gets right",
    binary=True,
    better="higher",
)
def successful_objects(grid: Grid) -> Tally:
    """Share of items that at least one pattern gets right (Section 6.1, Succ-Objs)."""
    return _tally(grid.subjects, any_of(grid.right, axis=1), any_of(grid.taken, axis=1))


@metric(
    "pairs",
    label="Known consistency",
    meaning="consistency of the items that at least one variant gets right",
    better="higher",
)
def known_consistency(grid: Grid) -> Tally:
    """Consistency of the items that at least one pattern gets right (Section 6.1, Know-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    return _agreement(grid, any_of(grid.right, axis=1))


@metric(
    "pairs",
    label="Unknown consistency",
    meaning="consistency of the items that no variant gets right",
    better="higher",
)
def unknown_consistency(grid: Grid) -> Tally:
    """Consistency of the items that no pattern gets right (Section 6.1, Unk-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    return _agreement(grid, ~any_of(grid.right, axis=1) & any_of(grid.taken, axis=1))


@metric(
    "pairs",
    label="Chance-corrected consistency",
    meaning="consistency above chance: 0 % is chance, 100 % is full agreement",
    short="Corrected consistency",
    level="headline",
    bounds=(-1.0, 1.0),
    by_form=True,
    better="higher",
)
def corrected_consistency(grid: Grid) -> Tally:
    """Chance-corrected consistency: (consistency - chance) / (1 - chance).

    Cohen's kappa of two variants, numerators and denominators summed over the pairs of variants;
    chance is ``chance_consistency``. Range -1 to 1: 1 is full agreement, 0 is chance. NaN where
    chance is 1 (one answer to everything). ``MICRO`` sums numerators and denominators of groups.
    """
    expected = grid.chance

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        chance = expected(sums)
        return sums[..., 0] - chance, sums[..., 1] - chance

    def slopes(sums: Floats) -> tuple[Floats, Floats]:
        same, total, chance = _pair_slopes(grid, sums)
        return same - chance, total - chance

    return _pair_tally(grid, finish, slopes)


@metric(
    "pairs",
    label="Expected by chance",
    meaning="consistency if each variant gave its own answers to random items",
    level="detail",
    by_form=True,
)
def chance_consistency(grid: Grid) -> Tally:
    """Consistency if each variant gave its own answers, equally often, to random items.

    ``sum_{k<l} n_kl sum_a p_k(a) p_l(a) / sum_{k<l} n_kl``: ``p_k(a)`` is the share of the answer a
    among the answers in variant k, ``n_kl`` the number of items answered in both variants.
    """
    expected = grid.chance

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        return expected(sums), sums[..., 1]

    def slopes(sums: Floats) -> tuple[Floats, Floats]:
        _, total, chance = _pair_slopes(grid, sums)
        return chance, total

    return _pair_tally(grid, finish, slopes)


@metric(
    "pairs",
    label="Uniform baseline",
    meaning="consistency of answers drawn uniformly from the candidates",
    level="detail",
)
def uniform_consistency(grid: Grid) -> Tally:
    """Consistency of answers drawn uniformly: 1 / number of candidates. It has no interval."""
    size = grid.n_candidates
    return replace(
        _of_pairs(grid, grid.n_same),
        clusters=None,
        finish=lambda sums: (sums[..., 1] / size, sums[..., 1]),
    )


@metric(
    "pairs",
    label="Agree, right",
    meaning="share of pairs of variants that both get the right answer",
    level="detail",
    by_form=True,
    better="higher",
)
def agree_right(grid: Grid) -> Tally:
    """Share of pairs of variants that both get the right answer."""
    return _of_pairs(grid, grid.n_same_right)


@metric(
    "pairs",
    label="Agree, wrong",
    meaning="share of pairs of variants that get the same wrong answer",
    level="detail",
    by_form=True,
    better="lower",
)
def agree_wrong(grid: Grid) -> Tally:
    """Share of pairs of variants that get the same wrong answer."""
    return _of_pairs(grid, grid.n_same - grid.n_same_right)


@metric(
    "pairs",
    label="Disagree",
    meaning="share of pairs of variants that get different answers",
    level="detail",
    better="lower",
)
def disagree(grid: Grid) -> Tally:
    """Share of pairs of variants that get different answers: 1 - ``consistency``."""
    return _of_pairs(grid, grid.n_both - grid.n_same)


@metric(
    "tuples",
    label="F1",
    meaning="F1 score of the last label of the task",
    better="higher",
    one_form=True,
)
def f1(grid: Grid) -> Tally | None:
    """F1 of one label in the base variant: 2 TP / (2 TP + FP + FN). None where no label has F1."""
    if grid.positive < 0:
        return None
    answered = grid.taken[:, 0]
    predicted = (grid.answers[:, 0] == grid.positive) & answered
    gold = (grid.golds[:, 0] == grid.positive) & answered
    counts = np.stack([2 * (predicted & gold), predicted.astype(np.int64) + gold], axis=1)
    tally = _tally(grid.subjects, grid.right[:, 0], answered)
    return replace(tally, counts=counts.astype(np.float32), finish=ratio)


@metric(
    "pairs",
    label="Top answer",
    meaning="share of the most frequent answer among all answers",
    one_form=True,
)
def top_answer(grid: Grid) -> Tally:
    """Share of the most frequent answer among all answers in all variants.

    Answers that are no label count in the total, but never as the most frequent answer. A maximum,
    so resampling items is not valid: a group and ``MICRO`` have no interval.
    """

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        return sums[..., valid].max(axis=-1, initial=0), sums.sum(axis=-1)

    words = len(grid.words)
    valid = ~np.isin(grid.words, grid.invalid)
    counts = np.stack([np.bincount(codes + 1, minlength=words + 1)[1:] for codes in grid.codes.T])
    taken = grid.taken[:, grid.answered]
    return Tally(counts.astype(np.float32), None, int(taken.sum()), int((~taken).sum()), finish)


@metric(
    "tuples",
    label="Top label",
    meaning="share of the most frequent gold among the items asked",
    level="detail",
    one_form=True,
)
def top_label(grid: Grid) -> Tally:
    """Share of items with the most frequent gold, among those answered in the base variant."""
    answered = grid.taken[:, 0]
    golds = grid.golds[answered, 0]
    counts = np.unique(golds, return_counts=True)[1][None].astype(np.float32)
    return Tally(
        counts,
        None,
        len(golds),
        int((~answered).sum()),
        lambda sums: (sums.max(axis=-1, initial=0), sums.sum(axis=-1)),
    )


@metric(
    "tuples",
    label="No label",
    meaning="share of answers that are none of the labels",
    binary=True,
    one_form=True,
    better="lower",
)
def no_label(grid: Grid) -> Tally | None:
    """Share of answers in the base variant that are no label; None for models that choose one."""
    if not grid.invalid:
        return None
    return _tally(grid.subjects, np.isin(grid.answers[:, 0], grid.invalid), grid.taken[:, 0])


def _tally(clusters: npt.NDArray[np.object_] | None, hits: Bools, counted: Bools) -> Tally:
    """A tally of ``hits`` among ``counted``, both (unit,) or (unit, thing)."""
    hits, counted = (column[:, None] if column.ndim == 1 else column for column in (hits, counted))
    sums = [(hits & counted).sum(axis=1), counted.sum(axis=1)]
    n = int(counted.sum())
    return Tally(np.stack(sums, axis=1).astype(np.float32), clusters, n, counted.size - n)


def _of_pairs(grid: Grid, hits: npt.NDArray[np.int64], items: Bools | None = None) -> Tally:
    """A tally of ``hits`` (item,) among the pairs of answers; ``items``: those counted (item,)."""
    items = np.ones(len(hits), dtype=np.bool_) if items is None else items
    counts = np.stack([hits, grid.n_both], axis=1) * items[:, None]
    n = int(counts[:, 1].sum())
    dtype = np.float64 if grid.has_many_pairs else np.float32
    left_out = int(items.sum()) * grid.n_pairs - n
    return Tally(counts.astype(dtype), grid.subjects, n, left_out)


def _agreement(grid: Grid, items: Bools) -> Tally:
    """The consistency of some ``items`` (item,)."""
    return _of_pairs(grid, grid.n_same, items)


def _pair_tally(
    grid: Grid,
    finish: Callable[[Floats], tuple[Floats, Floats]],
    slopes: Callable[[Floats], tuple[Floats, Floats]],
) -> Tally:
    n = int(grid.n_both.sum())
    left_out = len(grid.n_both) * grid.n_pairs - n
    further = grid.class_and_answer_counts
    return Tally(grid.pair_counts, grid.subjects, n, left_out, finish, slopes, further)


def _pair_slopes(grid: Grid, sums: Floats) -> tuple[Floats, Floats, Floats]:
    """Derivatives (column,) of the same pairs, of all pairs and of ``grid.chance`` at ``sums``."""
    same, total = np.zeros((2, len(sums)))
    same[0] = total[1] = 1
    return same, total, grid.chance.slopes(sums)
