"""The metrics: agreement and its chance level, distributions, violated expectations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from consilience.core.factors import Instance, linked_questions
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Clusters, Grid, Tally, metric
from consilience.metrics.statistics import TIE

DENSE = 2**20  # Numbers of a matrix up to which zeros are kept


def chance_by_answer(grid: Grid) -> Floats:
    """Chance of answers that mean the same in all items: objects, labels, texts.

    For variants k and l it is the share of pairs of two different items, one answered in k and one
    in l, whose answers are the same: ``c_kl = (N_k N_l sum_a p_k(a) p_l(a) - S_kl) / (N_k N_l -
    N_kl)``, with ``p_k(a)`` the share of the answer a among the ``N_k`` items asked in k, ``N_kl``
    the items asked in both and ``S_kl`` those with the same answer in both. Without ``S_kl`` and
    ``N_kl`` it is the chance level of Cohen's kappa (Cohen 1960), with the item itself. Where the
    variants of each item are drawn (``random:K``), the pairs of all two variants are counted
    together.
    """
    asked, counts, pairs = grid.asked.astype(np.float64), _counts(grid), _pairs_of_others(grid)
    weights = _means(grid, _weights(grid) / 2, pairs)
    same, moved = np.zeros_like(pairs), np.zeros(len(asked))
    by_variant = np.ascontiguousarray(grid.answers.T)
    for at, answers in enumerate(by_variant):
        equal = (by_variant == answers) & (answers >= 0)
        same[at] = np.count_nonzero(equal, axis=1)
        slopes = np.asarray(weights[at] @ counts)  # by the number of each answer in this variant
        moved += 2 * (np.where(answers >= 0, slopes[answers], 0) - weights[at] @ equal)
    both = counts @ counts.T
    both = both if isinstance(both, np.ndarray) else both.toarray()
    chance = _means(grid, both - same, pairs)
    return np.asarray(grid.shares_of(chance) + moved - _moved(asked, weights * chance))


def chance_by_place(grid: Grid) -> Floats:
    """Chance of a model that chooses by the shown position alone.

    ``c_ikl = sum over the options o of Q_kl(position of o in k, position of o in l)``: ``Q_kl(p,
    q)`` is the share of pairs of answers to two different questions with as many options, one in k
    and one in l, of which the one chose the option shown at p and the other that at q. Where all
    questions show their options in the same order, it is ``chance_by_answer``. The order of the
    options in the file plays no part. A question without another of its size has no chance level.
    """
    assert grid.places is not None, "needs"
    shown = grid.places.of(grid.answers)

    def sums(rows: Ints, size: int, weights: Floats) -> tuple[Floats, Floats]:
        items, variants = (shown[rows] >= 0).nonzero()
        cells = items, variants * size + shown[rows][items, variants]
        chosen = csr_array((np.ones(len(items)), cells), shape=(len(rows), len(weights)))
        total = chosen.sum(axis=0)
        both = np.outer(total, total) - (chosen.T @ chosen).toarray()
        return both, _moved(chosen, weights)

    return _over_places(grid, sums)


def chance_distance(grid: Grid, shares: Floats) -> Floats:
    """Total variation of a model whose probabilities belong to the shown positions alone.

    ``c_ikl = sum over the options o of A_kl(position of o in k, position of o in l) / 2``:
    ``A_kl(p, q)`` is the mean of ``|x - y|`` over pairs of two different questions with as many
    options, x the probability of the option shown at p to the one in k, and y of that shown at q to
    the other in l. ``shares`` (item, variant, option): the probabilities, in the order of the file;
    those of ``grid.asked`` are known.
    """

    def sums(rows: Ints, size: int, weights: Floats) -> tuple[Floats, Floats]:
        assert grid.places is not None, "needs"
        known, some = grid.asked[rows], shares[rows][..., :size]
        shown = grid.places.positions[grid.places.orders[rows], : some.shape[2]]
        values = np.zeros((*known.shape, size))
        np.put_along_axis(values, np.clip(shown, 0, size - 1), some, axis=2)
        values = np.where(known[..., None], values, np.nan).reshape(len(rows), -1)
        both, moved = np.zeros_like(weights), np.zeros(len(rows))
        for at in np.flatnonzero(weights.any(axis=0)):
            others = np.flatnonzero(weights[:, at])
            distances = _distances(values[:, others], values[:, at])
            both[others, at] = distances.sum(axis=0)
            moved += 2 * distances @ weights[others, at]
        return both, moved

    return _over_places(grid, sums) / 2


def _over_places(grid: Grid, sums: Callable[[Ints, int, Floats], tuple[Floats, Floats]]) -> Floats:
    """What items contribute to a level of chance that depends on two shown positions.

    Cells are the places of all variants: ``k size + p``. ``sums(rows, size, weights)`` is of the
    items at ``rows``, which have ``size`` options: the sum over pairs of answers to two of them in
    two cells (cell, cell), and by how much an item moves the sum over cells of these by ``weights``
    (cell, cell) (item,).
    """
    assert grid.places is not None, "needs"
    chance, of_items = np.zeros(len(grid.answers)), grid.places
    for rows in _alike(grid):
        size, n_variants = int(of_items.sizes[rows[0]]), grid.answers.shape[1]
        orders = of_items.orders[rows]  # a variant that an item lacks counts as others have it
        orders = np.where(orders < 0, orders.max(axis=0), orders)
        different, at = np.unique(orders, axis=0, return_inverse=True)
        alike = [rows[at.reshape(-1) == number] for number in range(len(different))]
        tables = np.where(different[..., None] < 0, -1, of_items.positions[different, :size])
        votes = np.zeros((n_variants * size,) * 2)
        for some, table in zip(alike, tables, strict=True):
            of_some = _weights(grid, some) / 2
            for has, cells in _cells(table):
                votes[np.ix_(cells, cells)] += of_some[np.ix_(has, has)]
        pairs = _pairs_of_others(grid, rows)
        weights = _means(grid, votes, pairs)
        both, moved = sums(rows, size, weights)
        level = _means(grid, both, pairs)
        asked = grid.asked[rows].astype(np.float64)
        by_pair = (weights * level).reshape(n_variants, size, n_variants, size).sum(axis=(1, 3))
        chance[rows] = moved - _moved(asked, by_pair)
        for some, table in zip(alike, tables, strict=True):
            agree = np.zeros((n_variants, n_variants))
            for has, cells in _cells(table):
                agree[np.ix_(has, has)] += level[np.ix_(cells, cells)]
            chance[some] += grid.shares_of(agree, some)
    return chance


def _cells(table: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The variants that show an option, and its cells, for each option of (variant, option)."""
    for shown in table.T:
        has = np.flatnonzero(shown >= 0)
        yield has, has * table.shape[1] + shown[has]


def _means(grid: Grid, sums: npt.NDArray[np.floating], pairs: Floats) -> Floats:
    """Sums over pairs of answers to two items (cell, cell) by their number (variant, variant).

    Of each two variants that are compared; where variants are drawn, of all of them together.
    """
    shape = (len(pairs), len(sums) // max(len(pairs), 1)) * 2
    is_compared, pairs = grid.is_compared[:, None, :, None], pairs[:, None, :, None]
    of_all = is_compared * sums.reshape(shape)
    if not grid.has_base:
        of_all = of_all.sum(axis=(0, 2), keepdims=True)
        pairs = (is_compared * pairs).sum(axis=(0, 2), keepdims=True)
    means = np.divide(of_all, pairs, out=np.zeros_like(of_all), where=pairs > 0) * is_compared
    return np.asarray(means.reshape(sums.shape))


def _moved(of_items: Floats | csr_array, weights: Floats) -> Floats:
    """By how much an item moves ``sum_kl w_kl sum_{i != j} x_ik x_jl`` (item,).

    ``of_items``: x (item, cell). ``weights``: w, symmetric (cell, cell).
    """
    by_others = of_items.sum(axis=0) @ weights - of_items @ weights
    return np.asarray(2 * (of_items * by_others).sum(axis=1))


def _distances(one: Floats, other: Floats) -> Floats:
    """``sum |x - y|`` over the y of all other items (item, cell), 0 without x.

    ``one``: x (item, cell); ``other``: y (item,); NaN for none. From cumulative sums over the
    sorted y, less that of the item itself.
    """
    values = np.sort(other[~np.isnan(other)])
    below = np.concatenate([[0.0], np.cumsum(values)])
    at = np.searchsorted(values, one)
    sums = one * (2 * at - len(values)) + below[-1] - 2 * below[at]
    own = np.nan_to_num(np.abs(one - other[:, None]))
    return np.asarray(np.nan_to_num(sums) - own)


def _alike(grid: Grid) -> list[Ints]:
    """The items of which one may get the answer of another: of questions as many options."""
    if grid.places is None:
        return [np.arange(len(grid.answers))]
    return [np.flatnonzero(grid.places.sizes == size) for size in np.unique(grid.places.sizes)]


def has_chance_level(grid: Grid) -> Bools:
    """Whether other items that were asked say what chance is (item,)."""
    there = np.zeros(len(grid.answers), dtype=np.bool_)
    for rows in _alike(grid):
        pairs = _pairs_of_others(grid, rows)
        is_lacking = _means(grid, pairs, pairs) == 0
        there[rows] = grid.shares_of(is_lacking.astype(np.float64), rows) == 0
    return there


def _pairs_of_others(grid: Grid, rows: Ints | slice = slice(None)) -> Floats:
    """How many pairs of two different items were asked, one in each variant (variant, variant)."""
    asked = grid.asked[rows].astype(np.float64)
    return np.outer(asked.sum(axis=0), asked.sum(axis=0)) - asked.T @ asked


def _counts(grid: Grid) -> csr_array | Floats:
    """How many items got each answer in a variant (variant, answer); sparse if that is large."""
    items, variants = (grid.answers >= 0).nonzero()
    shape = grid.answers.shape[1], int(grid.answers.max(initial=0)) + 1
    if math.prod(shape) <= DENSE:
        cells = variants * shape[1] + grid.answers[items, variants]
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.float64)
    return csr_array((np.ones(len(items)), (variants, grid.answers[items, variants])), shape=shape)


def _weights(grid: Grid, rows: Ints | slice = slice(None)) -> Floats:
    """The votes of the items in each pair of variants (variant, variant)."""
    asked = grid.asked[rows].astype(np.float64)
    return np.asarray((asked.T @ (asked * grid.votes[rows, None])) * grid.is_compared)


@metric("tuples", "Accuracy", "share of items with the right answer in the base variant",
        level="headline", binary=True, one_form=True, better="higher")  # fmt: skip
def accuracy(grid: Grid) -> Tally:
    """Share of items with the right answer in the base variant: [a_i0 = g_i] (Section 5.2).

    Where the variants of each item are drawn (``random:K``) that in a random variant: the mean over
    items of the share of its answers that are right.
    """
    if not grid.has_base:
        sizes = grid.asked.sum(axis=1)
        shares = np.where(sizes > 0, grid.right.sum(axis=1) / np.maximum(sizes, 1), np.nan)
        return Tally.of_values(grid.subjects, shares)
    return Tally.of_hits(grid.subjects, grid.right[:, 0], grid.asked[:, 0])


@metric("pairs", "Consistency",
        "share of pairs of variants that get the same answer, right or wrong", level="headline",
        by_edit=True, by_form=True, better="higher", over_phrasings=True,
        among=Grid.votes_among)  # fmt: skip
def consistency(grid: Grid) -> Tally:
    """Mean over items of the share of pairs of variants that get the same answer (Section 5.2).

    ``sum_i s_i / P_i / number of items``, with ``s_i = sum_{k<l} [a_ik = a_il]`` of the ``P_i``
    pairs of variants that item i was asked in: an item counts once, however many variants it has.
    Under ``published`` ``sum_i s_i / sum_i P_i``, as in the released code. Range 0 to 1; NaN
    without an item in two variants. Of sentence pairs, only the pairs of the original form (k = 0)
    with another form are compared. In N-M relations the same number is called ``determinism``
    (Section 3.1).
    """
    return _of_pairs(grid)


DESCRIPTIONS["determinism"] = replace(
    METRICS["consistency"],
    label="Determinism",
    meaning="consistency of relations with several right answers",
    alias_of="consistency",
)


@metric("tuples", "Consistent accuracy", "share of items with the right answer in every variant",
        level="headline", binary=True, by_form=True, better="higher")  # fmt: skip
def consistent_accuracy(grid: Grid) -> Tally:
    """Share of items with the right answer in every variant: product over k of [a_ik = g_i].

    An item is left out if it was not asked in a variant (Section 5.2, Consistent-Acc), so there is
    no such number where a variant was not asked at all. A question counts by the variants that it
    has.
    """
    return Tally.of_hits(grid.subjects, grid.always_right, grid.complete)


@metric("tuples", "Consistently wrong",
        "share of items with the same wrong answer in every variant",
        binary=True, better="lower")  # fmt: skip
def consistent_wrong(grid: Grid) -> Tally:
    """Share of items with the same wrong answer in every variant, as in the released code."""
    first = np.take_along_axis(grid.answers, grid.asked.argmax(axis=1)[:, None], axis=1)
    is_alike = ((grid.answers == first) & (first >= 0)) | grid.lacking
    alike = np.all(is_alike, axis=1)
    return Tally.of_hits(grid.subjects, alike & ~np.any(grid.right, axis=1), grid.complete)


@metric("pairs", "Successful variants", "share of variants that get at least one item right",
        better="higher")  # fmt: skip
def successful_patterns(grid: Grid) -> Tally:
    """Share of patterns that get at least one item right (Section 6.1, Succ-Patt).

    A maximum over items, which has no derivative: a group has no interval.
    """
    return Tally.of_hits(None, np.any(grid.right, axis=0), grid.used)


@metric("pairs", "Successful items", "share of items that at least one variant gets right",
        binary=True, better="higher")  # fmt: skip
def successful_objects(grid: Grid) -> Tally:
    """Share of items that at least one pattern gets right (Section 6.1, Succ-Objs)."""
    return Tally.of_hits(grid.subjects, np.any(grid.right, axis=1), np.any(grid.asked, axis=1))


@metric("pairs", "Known consistency",
        "consistency of the items that at least one variant gets right",
        better="higher")  # fmt: skip
def known_consistency(grid: Grid) -> Tally:
    """Consistency of the items that at least one pattern gets right (Section 6.1, Know-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    return _of_pairs(grid, np.any(grid.right, axis=1))


@metric("pairs", "Unknown consistency", "consistency of the items that no variant gets right",
        better="higher")  # fmt: skip
def unknown_consistency(grid: Grid) -> Tally:
    """Consistency of the items that no pattern gets right (Section 6.1, Unk-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    is_unknown = ~np.any(grid.right, axis=1) & np.any(grid.asked, axis=1)
    return _of_pairs(grid, is_unknown)


@metric("pairs", "Chance-corrected consistency",
        "consistency above chance: 0 % is chance, 100 % is full agreement",
        short="Corrected consistency", level="headline", bounds=(-1.0, 1.0), by_form=True,
        better="higher", over_phrasings=True)  # fmt: skip
def corrected_consistency(grid: Grid) -> Tally:
    """Chance-corrected consistency: ``sum_i (a_i - c_i) / sum_i (1 - c_i)``.

    ``a_i`` is the share of the pairs of item i that agree (``consistency``), ``c_i`` the share that
    agrees by chance (``chance_consistency``). 1 is full agreement, 0 is chance, -1 (of few items a
    little less) full disagreement of two answers. NaN where chance is 1, as of one answer to
    everything. Over groups numerators and denominators are
    summed, each group with the same weight in a mean: a mean of ratios would be too low where items
    are few, the more so the more unequal the answers are.
    """
    same, votes, expected = _beside_chance(grid)
    scores = np.stack([same - expected, votes - expected], axis=1)
    return replace(_pairs_tally(grid, scores, votes), sizes=votes)


@metric("pairs", "Expected by chance",
        "consistency if the answers did not depend on the item", level="detail",
        by_form=True)  # fmt: skip
def chance_consistency(grid: Grid) -> Tally:
    """Consistency if the answers did not depend on the item.

    Of facts, sentence pairs and open questions how often the answers to two different items agree
    in two variants: Cohen's chance (1960) without the item itself (``chance_by_answer``). Of
    questions with options how often a model agrees with itself that chooses by the *shown position*
    alone, as often as this one chooses each (``chance_by_place``): the order of the options in the
    file plays no part. Range 0 to 1; NaN of a single item.
    """
    _, votes, expected = _beside_chance(grid)
    return _pairs_tally(grid, np.stack([expected, votes], axis=1), votes)


@metric("tuples", "F1", "F1 score of the last label of the task", better="higher", one_form=True)
def f1(grid: Grid) -> Tally | None:
    """F1 of one label in the base variant: 2 TP / (2 TP + FP + FN). None where no label has F1."""
    if grid.positive < 0:
        return None
    asked = grid.asked[:, 0]
    predicted = (grid.answers[:, 0] == grid.positive) & asked
    gold = (grid.golds[:, 0] == grid.positive) & asked
    scores = np.stack([2.0 * (predicted & gold), predicted + 1.0 * gold], axis=1)
    n = int(asked.sum())
    return Tally(scores, grid.subjects, n, len(asked) - n, is_proportion=False)


@metric("pairs", "Top answer", "share of the most frequent answer among all answers", one_form=True)
def top_answer(grid: Grid) -> Tally:
    """Share of the most frequent answer among all answers in all variants.

    Of questions with options that of the most frequent *shown position*. What has no answer counts
    in the total. A maximum, which has no derivative: a group and all of them have no interval.
    """
    answers = grid.answers if grid.places is None else grid.places.of(grid.answers)
    given = answers[grid.asked & (answers >= 0)]
    most, n = int(np.bincount(given).max(initial=0)), int(grid.asked.sum())
    scores = np.array([[most, n]], dtype=np.float64)
    return Tally(scores, None, n, grid.left_out, is_proportion=False)


@metric("tuples", "No option", "share of answers that are none of the options", one_form=True,
        better="lower")  # fmt: skip
def no_option(grid: Grid) -> Tally | None:
    """Share of answers that are none of the options or labels, or missing, in all variants.

    Of sentence pairs in the original form. None where a model chooses among the options.
    """
    if not grid.may_have_none:
        return None
    tally = Tally.of_hits(grid.subjects, grid.answers < 0, grid.asked)
    return replace(tally, left_out=grid.left_out)


@metric(
    "tuples", "Mean accuracy", "share of right answers among the answers in all variants",
    level="detail", better="higher", over_phrasings=True,
    among=lambda grid, kept: (kept @ grid.right.T, kept @ grid.asked.T),
)  # fmt: skip
def mean_accuracy(grid: Grid) -> Tally:
    """Share of right answers among all answers, in all variants.

    The mean over variants, where each item was asked in each, as SCORE reports it (Nalbandyan et
    al., arXiv 2503.00137, 2025).
    """
    tally = Tally.of_hits(grid.subjects, grid.right, grid.asked)
    return replace(tally, left_out=grid.left_out)


@metric("tuples", "Worst accuracy", "accuracy of the variant that gets the fewest items right",
        level="detail", better="higher")  # fmt: skip
def worst_accuracy(grid: Grid) -> Tally | None:
    """The lowest accuracy of a variant, over the items that were asked in all of them.

    ``min_k sum_i [a_ik = g_i] / number of items``: the lower end of the range of Sclar et al. (ICLR
    2024). It falls with the number of variants and with the noise of few items. A minimum, which
    has no derivative: a group and all of them have no interval. Of several groups the worst variant
    of each. None with a single variant.
    """
    items = np.asarray(grid.asked[:, grid.used].all(axis=1))
    if int(grid.used.sum()) < 2:
        return None
    n = int(items.sum())
    worst = float(grid.right[items][:, grid.used].sum(axis=0).min()) if n else 0.0
    scores = np.array([[worst, n]])
    return Tally(scores, None, n, len(items) - n, is_proportion=False)


@metric("tuples", "Right in at least k of n", "share of items right in at least k variants",
        level="detail", binary=True, better="higher", by_count=True)  # fmt: skip
def right_in(grid: Grid) -> Tally:
    """Share of items that are right in at least k of their n variants.

    A row for each k, whose level is ``k of n``: with k = 1 ``successful_objects``, with k = n
    ``consistent_accuracy``. All items of the group have the same n, or there is no such number: of
    items with other n, other items would count for each k.
    """
    is_counted = np.asarray(grid.asked.any(axis=1))
    return Tally.of_hits(grid.subjects, grid.right.sum(axis=1) >= grid.least, is_counted)


@metric("tuples", "Vote accuracy", "share of items with the right answer in most variants",
        level="detail", binary=True, better="higher")  # fmt: skip
def vote_accuracy(grid: Grid) -> Tally:
    """Share of items of which the answer that most variants give is right.

    Of answers with equally many votes that with the highest sum of their log-probabilities wins;
    where these are equal, or not all known, that of the first variant. A text that is none of the
    options has no vote. Without a vote it is wrong.
    """
    voting = grid.asked & (grid.answers >= 0)
    logprob = np.full(voting.shape, np.nan) if grid.logprob is None else grid.logprob
    known = (np.isfinite(logprob) | ~voting).all(axis=1, keepdims=True)
    weights = np.where(known & voting, logprob, 0)
    votes, sums = np.zeros((2, *voting.shape))
    for at, answers in enumerate(grid.answers.T):
        same = (grid.answers == answers[:, None]) & voting
        votes[:, at], sums[:, at] = same.sum(axis=1), (same * weights).sum(axis=1)
    leads = voting & (votes == np.where(voting, votes, 0).max(axis=1, keepdims=True))
    sums = np.where(leads, sums, -np.inf)
    wins = leads & (sums >= sums.max(axis=1, keepdims=True) - TIE)
    right = np.take_along_axis(grid.right, wins.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Tally.of_hits(grid.subjects, right & wins.any(axis=1), grid.complete)


def _of_pairs(grid: Grid, items: Bools | None = None) -> Tally:
    """The votes of the pairs that agree among those of all pairs; ``items``: those counted."""
    items = np.ones(len(grid.answers), dtype=np.bool_) if items is None else items
    scores = np.stack([grid.n_same * grid.votes, grid.n_both * grid.votes], axis=1)
    n = int(grid.n_both[items].sum())
    left_out = int(grid.n_pairs[items].sum()) - n
    return Tally(scores * items[:, None], grid.subjects, n, left_out)


@lru_cache(maxsize=1)  # two metrics need the same
def _beside_chance(grid: Grid) -> tuple[Floats, Floats, Floats]:
    """The votes (item,) of the same pairs, of all pairs and of those that agree by chance.

    0 of items without a chance level.
    """
    there = has_chance_level(grid) * 1.0
    expected = chance_by_answer(grid) if grid.places is None else chance_by_place(grid)
    same, votes = grid.n_same * grid.votes, grid.n_both * grid.votes
    return same * there, votes * there, expected * there


def _pairs_tally(grid: Grid, scores: Floats, votes: Floats) -> Tally:
    n = int(grid.n_both[votes > 0].sum())
    return Tally(scores, grid.subjects, n, int(grid.n_pairs.sum()) - n, is_proportion=False)


@metric("pairs", "Total variation", "distance between the option probabilities in two variants",
        short="Total var.", by_edit=True, better="lower", needs="distributions")  # fmt: skip
def total_variation(grid: Grid) -> Tally | None:
    """Mean distance of two variants: the mean over items of ``sum_{k<l} d(P_ik, P_il) / P_i``.

    ``d(P, Q) = sum_a |P(a) - Q(a)| / 2``, over the ``P_i`` pairs of an item that have both
    distributions.
    """
    shares, grid = _distributions(grid)
    distance = np.zeros(len(shares))
    asked = grid.asked.astype(np.float64)
    for first, second in grid.pairs[(asked.T @ asked)[tuple(grid.pairs.T)] > 0]:
        both = grid.asked[:, first] & grid.asked[:, second]
        distance[both] += np.abs(shares[both, first] - shares[both, second]).sum(axis=1) / 2
    return _distance_tally(grid, distance * grid.votes, grid.n_both * grid.votes)


@metric("pairs", "Total variation expected by chance",
        "total variation if the probabilities belonged to the shown positions",
        short="Chance var.", by_edit=True, needs="distributions")  # fmt: skip
def chance_total_variation(grid: Grid) -> Tally | None:
    """Total variation if probabilities belonged to the shown positions alone, as of other items.

    ``chance_distance``. Range 0 to 1; of a single item there is none.
    """
    shares, grid = _distributions(grid)
    votes = has_chance_level(grid) * grid.votes * grid.n_both
    return _distance_tally(grid, chance_distance(grid, shares), votes)


def _distributions(grid: Grid) -> tuple[Floats, Grid]:
    """The probability of each option (item, variant, option), and the grid of what has any."""
    assert grid.distributions is not None, "needs"
    known = grid.asked & np.isfinite(grid.distributions).any(axis=2)
    return grid.distributions, replace(grid, asked=known)


def _distance_tally(grid: Grid, distance: Floats, votes: Floats) -> Tally | None:
    """The tally of the sums (item,) of distances and of votes; None without a pair."""
    tally = _pairs_tally(grid, np.stack([distance, votes], axis=1), votes)
    return tally if tally.n else None


def stated(grid: Grid) -> tuple[Floats, Bools, Bools]:
    """The probability of the answer in the base variant, whether it is right, whether it is known.

    Each (item,). ``grid``: one with scores of options.
    """
    shares, there = _distributions(grid)
    answers, golds, width = grid.answers[:, 0], grid.golds[:, 0], shares.shape[2]
    known = there.asked[:, 0] & (answers >= 0) & (golds >= 0) & (golds < width)
    confidence = shares[np.arange(len(shares)), 0, np.where(known, answers, 0)]
    return confidence, answers == golds, known


@metric("tuples", "Brier score",
        "squared distance of the option probabilities from the right answer", short="Brier",
        level="detail", bounds=(0.0, 2.0), one_form=True, better="lower",
        needs="distributions")  # fmt: skip
def brier_score(grid: Grid) -> Tally | None:
    """Mean over items of ``sum_a (P_i0(a) - [a = g_i])^2``, in the base variant (Brier 1950).

    From 0, sure and right, to 2, sure and wrong; uniform over m options: ``1 - 1/m``.
    """
    known, shares = stated(grid)[2], _distributions(grid)[0][:, 0]
    is_gold = np.arange(shares.shape[1]) == grid.golds[:, :1]
    squares = np.where(known, ((shares - is_gold) ** 2).sum(axis=1), np.nan)
    has_any = grid.has_base and known.any()
    return Tally.of_values(grid.subjects, squares, is_proportion=False) if has_any else None


MOST_BINS, FEWEST_IN_BIN = 15, 20
SAME_CONFIDENCE = 9  # Decimals to which probabilities of one bin are equal


def bins_of(confidence: Floats) -> list[Ints]:
    """The positions in bins of equal size, by ``confidence`` (item,).

    ``MOST_BINS``, or fewer so that each has ``FEWEST_IN_BIN`` items. Equal ones are in one bin.
    """
    confidence = confidence.round(SAME_CONFIDENCE)
    count = min(MOST_BINS, max(1, len(confidence) // FEWEST_IN_BIN))
    order = np.argsort(confidence, kind="stable")
    values, parts = confidence[order], np.array_split(order, count)
    cuts = np.searchsorted(values, [confidence[part[0]] for part in parts[1:]])
    return np.split(order, np.unique(cuts[cuts > 0]))


@metric("tuples", "Calibration error", "distance of the probability of answers from their accuracy",
        level="detail", one_form=True, better="lower", needs="distributions")  # fmt: skip
def calibration_error(grid: Grid) -> Tally | None:
    """Expected calibration error of the answers in the base variant, in bins of equal size.

    ``sum_b |sum_i in b (p_i - [a_i = g_i])| / n``, with ``p_i`` the probability of the answer: the
    adaptive bins (``bins_of``) of Nguyen and O'Connor (EMNLP 2015) and Nixon et al. (Measuring
    Calibration in Deep Learning, CVPR Workshops 2019). Few answers alone make it larger. Of several
    groups: bins within each.
    """
    confidence, right, known = stated(grid)
    items, gaps = np.flatnonzero(known), np.full(len(known), np.nan)
    for places in bins_of(confidence[items]):
        gap = (confidence - right)[items[places]]
        gaps[items[places]] = np.sign(gap.sum()) * gap
    has_any = grid.has_base and known.any()
    return Tally.of_values(grid.subjects, gaps, is_proportion=False) if has_any else None


@metric("pairs", "Violations", "share of applicable expectations that the answers violate",
        by_expectation=True, better="lower", needs="instances")  # fmt: skip
def violation_rate(grid: Grid) -> Tally:
    """Share of applicable instances of expectations whose conclusion gets no permitted answer."""
    verdicts = [[one.is_permitted for one in unit if one.is_asked] for unit in grid.instances]
    counts = [(of.count(False), len(of) - of.count(None)) for of in verdicts]
    scores = np.array(counts, dtype=np.float64)
    n = int(scores[:, 1].sum())
    return Tally(scores, _clusters(grid.instances), n, _missing(grid.instances))


@metric("pairs", "Violations expected by chance",
        "violation rate if the last answer were that of another expectation",
        short="Chance viol.", by_expectation=True, needs="instances")  # fmt: skip
def chance_violation_rate(grid: Grid) -> Tally:
    """``violation_rate`` if the conclusion got an answer to that of another expectation.

    The mean over the answers to other expectations of the same kind in the same variant: by their
    text if all conclusions have the same options or none; else by the position at which the option
    was shown, of conclusions with as many options. An instance without another is left out.
    """
    units = grid.instances
    asked = [(at, one) for at, unit in enumerate(units) for one in unit if one.is_asked]
    kinds: dict[str, set[frozenset[str]]] = {}
    for _, one in asked:
        of_kind = kinds.setdefault(one.expectation.kind, set())
        of_kind.add(frozenset(one.expectation.conclusion.options))
    strata: dict[tuple[str, str, int], list[tuple[int, Instance]]] = {}
    for at, one in asked:
        kind, size = one.expectation.kind, len(one.expectation.conclusion.options)
        stratum = kind, one.variant, size if len(kinds[kind]) > 1 else 0
        strata.setdefault(stratum, []).append((at, one))
    scores = np.zeros((len(units), 2))
    for (*_, size), members in strata.items():
        scores += _violations_by_chance(members, len(units), by_place=size > 0)
    n = int(scores[:, 1].sum())
    applicable = sum(one.is_permitted is not None for _, one in asked)
    return Tally(scores, _clusters(units), n, _missing(units) + applicable - n)


def _violations_by_chance(
    members: Sequence[tuple[int, Instance]], size: int, *, by_place: bool
) -> Floats:
    """What each of ``size`` expectations contributes to violations by chance, and to all (unit, 2).

    With the answers g_j of expectation j, and R_i(b) instances of i that do not permit the answer
    b: ``E_i = sum_b R_i(b) sum_{j != i} g_j(b) / sum_{j != i} |g_j|``, and by how much j moves
    others.
    """
    codes: dict[str | int, int] = {}
    for _, one in members:
        codes.setdefault(one.code(by_place=by_place), len(codes))
    refused, given = np.zeros((2, size, len(codes)))
    applicable = np.zeros(size)
    for at, one in members:
        given[at, codes[one.code(by_place=by_place)]] += 1
        if one.is_permitted is not None:
            applicable[at] += 1
            for code, column in codes.items():
                refused[at, column] += not one.permits(one.text(code))
    sizes = given.sum(axis=1)
    others = sizes.sum() - sizes
    scale = np.where(others > 0, 1 / np.maximum(others, 1), 0)
    expected = (refused * (given.sum(axis=0) - given)).sum(axis=1) * scale
    slopes = refused * scale[:, None]
    moved = (given * (slopes.sum(axis=0) - slopes)).sum(axis=1)
    moved -= sizes * ((expected * scale).sum() - expected * scale)
    return np.stack([expected + moved, applicable * (others > 0)], axis=1)


Units = Sequence[Sequence[Instance]]  # The instances of each expectation


def _clusters(units: Units) -> Clusters:
    """The cluster of each expectation: the first premise of its first expectation."""
    premises = [unit[0].expectation.items[0] for unit in units]
    components = linked_questions(unit[0].expectation.items for unit in units)
    firsts: dict[str, str] = {}
    return Clusters.of(firsts.setdefault(components[premise], premise) for premise in premises)


def _missing(units: Units) -> int:
    return sum(not one.is_asked for unit in units for one in unit)


@metric("pairs", "Kappa with labels", "answers and right answers agree above chance",
        level="detail", better="higher", bounds=(-1.0, 1.0), needs="places",
        over_phrasings=True)  # fmt: skip
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
        level="detail", bounds=(-1.0, 1.0), needs="orders", over_phrasings=True)  # fmt: skip
def position_preference(grid: Grid) -> Tally | None:
    """How much more often the option shown first wins in both of two orders than loses in both.

    Over pairs of variants that differ in the order alone: 1 if each gets the option that it shows
    first (*biased toward first* of Zheng et al., MT-Bench, NeurIPS 2023), -1 if each gets that of
    the other, else 0, because the answers agree or one is a third option; pairs without any answer
    are left out. The mean over items of the mean over pairs. It is 0 on average where errors do not
    depend on the order. Shi et al. (arXiv 2406.07791) scale such a difference as *preference
    fairness*.
    """
    assert grid.orders is not None, "needs"
    assert grid.places is not None, "needs"
    first = grid.places.options_at(0)
    hits, sizes, every = np.zeros((3, len(first)))
    for pair in grid.orders:  # arrays (item, pair) would fill the memory
        (one, two), (of_one, of_two) = grid.answers[:, pair].T, first[:, pair].T
        is_pair = (of_one >= 0) & (of_two >= 0) & (of_one != of_two)
        counted = is_pair & grid.asked[:, pair].all(axis=1) & ((one >= 0) | (two >= 0))
        wins, loses = (one == of_one) & (two == of_two), (one == of_two) & (two == of_one)
        hits += (wins * 1.0 - loses) * counted
        sizes += counted
        every += is_pair
    hits /= np.maximum(sizes, 1)
    n, scores = int(sizes.sum()), np.stack([hits, sizes > 0], axis=1)
    tally = Tally(scores, grid.subjects, n, int(every.sum()) - n)
    return tally if every.any() else None
