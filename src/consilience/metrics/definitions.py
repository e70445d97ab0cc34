"""The metrics: agreement, distributions over options, violated expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from consilience.core.expectations import NO_OPTION, Expectation, Instance, linked_questions
from consilience.core.items import Bools, Floats, Ints
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Grid, Tally, metric, ratio
from consilience.metrics.statistics import TIE


@metric("tuples", "Accuracy", "share of items with the right answer in the base variant",
        level="headline", binary=True, one_form=True, better="higher")  # fmt: skip
def accuracy(grid: Grid) -> Tally:
    """Share of items with the right answer in the base variant: [a_i0 = g_i] (Section 5.2)."""
    return Tally.of_hits(grid.subjects, grid.right[:, 0], grid.taken[:, 0])


@metric("pairs", "Consistency",
        "share of pairs of variants that get the same answer, right or wrong", level="headline",
        by_edit=True, by_form=True, better="higher")  # fmt: skip
def consistency(grid: Grid) -> Tally:
    """Share of pairs of variants of an item that get the same answer (Section 5.2).

    ``sum_i sum_{k<l} [a_ik = a_il] / sum_i n_i (n_i - 1) / 2`` for ``n_i`` answers to item i. Of
    sentence pairs, only the pairs of the original form (k = 0) with another form are compared. In
    N-M relations the same number is called ``determinism`` (Section 3.1).
    """
    return _of_pairs(grid, grid.n_same)


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

    An item is left out if it lacks an answer in a variant in which others have one. (Section 5.2,
    Consistent-Acc) A question counts by the variants that it has.
    """
    return Tally.of_hits(grid.subjects, grid.always_right, grid.complete)


@metric("tuples", "Consistently wrong",
        "share of items with the same wrong answer in every variant",
        binary=True, better="lower")  # fmt: skip
def consistent_wrong(grid: Grid) -> Tally:
    """Share of items with the same wrong answer in every variant, as in the released code."""
    first = np.take_along_axis(grid.answers, grid.taken.argmax(axis=1)[:, None], axis=1)
    alike = np.all(((grid.answers == first) | grid.lacking)[:, grid.answered], axis=1)
    return Tally.of_hits(grid.subjects, alike & ~np.any(grid.right, axis=1), grid.complete)


@metric("pairs", "Successful variants", "share of variants that get at least one item right",
        better="higher")  # fmt: skip
def successful_patterns(grid: Grid) -> Tally:
    """Share of patterns that get at least one item right (Section 6.1, Succ-Patt).

    A maximum over items, so resampling items is not valid: a group has no interval.
    """
    return Tally.of_hits(None, np.any(grid.right, axis=0), grid.answered)


@metric("pairs", "Successful items", "share of items that at least one variant gets right",
        binary=True, better="higher")  # fmt: skip
def successful_objects(grid: Grid) -> Tally:
    """Share of items that at least one pattern gets right (Section 6.1, Succ-Objs)."""
    return Tally.of_hits(grid.subjects, np.any(grid.right, axis=1), np.any(grid.taken, axis=1))


@metric("pairs", "Known consistency",
        "consistency of the items that at least one variant gets right",
        better="higher")  # fmt: skip
def known_consistency(grid: Grid) -> Tally:
    """Consistency of the items that at least one pattern gets right (Section 6.1, Know-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    return _of_pairs(grid, grid.n_same, np.any(grid.right, axis=1))


@metric("pairs", "Unknown consistency", "consistency of the items that no variant gets right",
        better="higher")  # fmt: skip
def unknown_consistency(grid: Grid) -> Tally:
    """Consistency of the items that no pattern gets right (Section 6.1, Unk-Const).

    Without such items: NaN under ``strict``, 0 under ``published``, as in the released code.
    """
    is_unknown = ~np.any(grid.right, axis=1) & np.any(grid.taken, axis=1)
    return _of_pairs(grid, grid.n_same, is_unknown)


@metric("pairs", "Chance-corrected consistency",
        "consistency above chance: 0 % is chance, 100 % is full agreement",
        short="Corrected consistency", level="headline", bounds=(-1.0, 1.0), by_form=True,
        better="higher")  # fmt: skip
def corrected_consistency(grid: Grid) -> Tally:
    """Chance-corrected consistency: (consistency - chance) / (1 - chance).

    Cohen's kappa of two variants, numerators and denominators summed over the pairs of variants;
    chance is ``chance_consistency``. Range -1 to 1: 1 is full agreement, 0 is chance. NaN where
    chance is 1 (one answer to everything). ``MICRO`` sums numerators and denominators of groups.
    """
    return _beside_chance(grid, lambda same, total, chance: (same - chance, total - chance))


@metric("pairs", "Expected by chance",
        "consistency if each variant gave its own answers to random items", level="detail",
        by_form=True)  # fmt: skip
def chance_consistency(grid: Grid) -> Tally:
    """Consistency if each variant gave its own answers, equally often, to random items.

    ``sum_{k<l} n_kl sum_a p_k(a) p_l(a) / sum_{k<l} n_kl``: ``p_k(a)`` is the share of the answer a
    among the answers in variant k, ``n_kl`` the number of items answered in both variants.
    """
    return _beside_chance(grid, lambda same, total, chance: (chance, total))


@metric("tuples", "F1", "F1 score of the last label of the task", better="higher", one_form=True)
def f1(grid: Grid) -> Tally | None:
    """F1 of one label in the base variant: 2 TP / (2 TP + FP + FN). None where no label has F1."""
    if grid.positive < 0:
        return None
    answered = grid.taken[:, 0]
    predicted = (grid.answers[:, 0] == grid.positive) & answered
    gold = (grid.golds[:, 0] == grid.positive) & answered
    counts = np.stack([2 * (predicted & gold), predicted.astype(np.int64) + gold], axis=1)
    tally = Tally.of_hits(grid.subjects, grid.right[:, 0], answered)
    return replace(tally, counts=counts.astype(np.float32), finish=ratio)


@metric("pairs", "Top answer", "share of the most frequent answer among all answers", one_form=True)
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
    n, lost = int(grid.taken.sum()), (~grid.taken & ~grid.lacking)[:, grid.answered]
    return Tally(counts.astype(np.float32), None, n, int(lost.sum()), finish)


@metric("tuples", "No label", "share of answers that are none of the labels", binary=True,
        one_form=True, better="lower")  # fmt: skip
def no_label(grid: Grid) -> Tally | None:
    """Share of answers in the base variant that are no label; None for models that choose one."""
    if not grid.invalid:
        return None
    return Tally.of_hits(grid.subjects, np.isin(grid.answers[:, 0], grid.invalid), grid.taken[:, 0])


@metric(
    "tuples", "Mean accuracy", "share of right answers among the answers in all variants",
    level="detail", better="higher",
)  # fmt: skip
def mean_accuracy(grid: Grid) -> Tally:
    """Share of right answers among all answers, in all variants.

    The mean over variants, where each item has an answer in each, as SCORE reports it (Nalbandyan
    et al., arXiv 2503.00137, 2025). SCORE's consistency rate is ``consistency`` of ``MICRO``.
    """
    left_out = int((~grid.taken & ~grid.lacking).sum())
    return replace(Tally.of_hits(grid.subjects, grid.right, grid.taken), left_out=left_out)


def voted(grid: Grid) -> Bools:
    """Whether the vote of all variants is right (item,).

    Of answers with equally many votes that with the highest sum of their log-probabilities wins;
    where these are equal, or not all known, that of the first variant. A text that is none of the
    options has no vote. Without a vote it is wrong.
    """
    voting = grid.taken & ~np.isin(grid.answers, grid.invalid)
    logprob = grid.scores["logprob"]
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
    return np.asarray(right & wins.any(axis=1))


@metric("tuples", "Vote accuracy", "share of items with the right answer in most variants",
        level="detail", binary=True, better="higher", scores=("logprob",))  # fmt: skip
def vote_accuracy(grid: Grid) -> Tally:
    """Share of items of which the answer that most variants give is right (``voted``)."""
    return Tally.of_hits(grid.subjects, voted(grid), grid.complete)


def _of_pairs(grid: Grid, hits: Ints, items: Bools | None = None) -> Tally:
    """A tally of ``hits`` (item,) among the pairs of answers; ``items``: those counted (item,)."""
    items = np.ones(len(hits), dtype=np.bool_) if items is None else items
    counts = np.stack([hits, grid.n_both], axis=1) * items[:, None]
    n = int(counts[:, 1].sum())
    dtype = np.float64 if grid.has_many_pairs else np.float32
    left_out = int(grid.n_asked[items].sum()) - n
    return Tally(counts.astype(dtype), grid.subjects, n, left_out)


def _beside_chance(
    grid: Grid, combine: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
) -> Tally:
    """``combine``: hits and total, linear in same pairs, all pairs and pairs expected by chance."""
    chance = grid.chance

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        return combine(sums[..., 0], sums[..., 1], chance(sums))

    def slopes(sums: Floats) -> tuple[Floats, Floats]:
        same, total = np.eye(2, len(sums))
        return combine(same, total, chance.slopes(sums))

    n = int(grid.n_both.sum())
    left_out = int(grid.n_asked.sum()) - n
    further = grid.class_and_answer_counts
    return Tally(grid.pair_counts, grid.subjects, n, left_out, finish, slopes, further)


@metric("pairs", "Total variation", "distance between the option probabilities in two variants",
        short="Total var.", by_edit=True, better="lower", needs="distributions")  # fmt: skip
def total_variation(grid: Grid) -> Tally | None:
    """Mean distance of two variants: ``sum_i sum_{k<l} d(P_ik, P_il)`` over the number of pairs.

    A pair without both distributions is left out.
    """
    shares, known = _distributions(grid)
    counts = np.zeros((len(shares), 2))
    for first, second in grid.pairs:
        both = known[:, first] & known[:, second]
        moved = np.abs(shares[both, first] - shares[both, second])
        counts[both, 0] += moved.sum(axis=1) / 2
        counts[:, 1] += both
    return _distance_tally(grid, counts)


@metric("pairs", "Total variation expected by chance",
        "total variation if each variant had its own distributions for other items",
        short="Chance var.", by_edit=True, needs="distributions")  # fmt: skip
def chance_total_variation(grid: Grid) -> Tally | None:
    """Total variation if each variant had its own distributions, equally often, for other items.

    ``sum_{k<l} n_kl V_kl / sum_{k<l} n_kl``: ``V_kl`` is the mean of ``d(P_ik, P_jl)`` over the
    items i of variant k and the other items j of variant l, ``n_kl`` the number of items that have
    both. A resample changes both items of a distance. What an item counts is therefore the
    derivative of the sum by the weight of the item, so that resamples are exact to first order.
    """
    shares, known = _distributions(grid)
    first, second = grid.pairs.T
    compared = np.zeros((known.shape[1],) * 2, dtype=bool)
    compared[first, second] = compared[second, first] = True
    together = compared * (known.T.astype(float) @ known)
    means, counts = np.zeros(compared.shape), np.zeros((len(known), 2))
    for other in np.flatnonzero(together.any(axis=0)):
        of_other = known[:, [other]]
        to_itself = np.abs(shares - shares[:, [other]]).sum(axis=2) / 2
        sums = _distances(shares, known, int(other)) - np.where(known & of_other, to_itself, 0)
        others = known * (of_other.sum() - of_other.astype(float))
        sizes = np.maximum(others.sum(axis=0), 1)
        means[:, other] = sums.sum(axis=0) / sizes
        together[others.sum(axis=0) == 0, other] = 0
        counts[:, 0] += (sums - means[:, other] * others) @ (together[:, other] / sizes)
    for k, m in grid.pairs[together[first, second] > 0]:
        both = known[:, k] & known[:, m]
        counts[both, 0] += means[k, m]
        counts[:, 1] += both
    return _distance_tally(grid, counts)


def _distributions(grid: Grid) -> tuple[Floats, Bools]:
    """The probability of each option, and whether an answer has any (item, variant)."""
    assert grid.distributions is not None, "needs"
    return grid.distributions, grid.taken & np.isfinite(grid.distributions).any(axis=2)


def _distance_tally(grid: Grid, counts: Floats, each: int | None = None) -> Tally | None:
    """The tally of the sums (item, 2) of distances and of pairs; None without a pair.

    ``each``: how many an item has; None for the pairs that are compared.
    """
    n = int(counts[:, 1].sum())
    if not n:
        return None
    left_out = (int(grid.n_asked.sum()) if each is None else len(counts) * each) - n
    return Tally(counts.astype(np.float32), grid.subjects, n, left_out, finish=ratio)


def _distances(shares: Floats, known: Bools, other: int) -> Floats:
    """``sum_j d(P_ik, P_jl)`` over the items j of the variant l (item, variant); 0 for none.

    ``sum_j |x - y_j|`` of all x at once, from cumulative sums over the sorted values.
    """
    of_other = np.broadcast_to(np.arange(known.shape[1]) == other, known.shape)[known]
    sums = np.zeros(len(of_other))
    for values in shares[known].T:
        order = np.argsort(values, kind="stable")
        ordered, is_other = values[order], of_other[order]
        below, sum_below = np.cumsum(is_other), np.cumsum(ordered * is_other)
        sums[order] += ordered * (2 * below - below[-1]) + sum_below[-1] - 2 * sum_below
    distances = np.zeros(known.shape)
    distances[known] = sums / 2
    return distances


def stated(grid: Grid) -> tuple[Floats, Bools, Bools]:
    """The probability of the answer in the base variant, whether it is right, whether it is known.

    Each (item,). ``grid``: one with scores of options.
    """
    shares, there = _distributions(grid)
    answers, golds, width = grid.answers[:, 0], grid.golds[:, 0], shares.shape[2]
    known = there[:, 0] & (answers < width) & (golds >= 0) & (golds < width)
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
    squares = np.where(known, ((shares - is_gold) ** 2).sum(axis=1), 0)
    return _distance_tally(grid, np.stack([squares, known], axis=1), 1)


MOST_BINS, FEWEST_IN_BIN = 15, 20


def bins_of(confidence: Floats) -> list[Ints]:
    """The positions in bins of equal size, by ``confidence`` (item,).

    ``MOST_BINS``, or fewer so that each has ``FEWEST_IN_BIN`` items. Equal ones are in one bin.
    """
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
    items = np.flatnonzero(known)
    bins = bins_of(confidence[items])
    counts = np.zeros((len(known), len(bins) + 1))
    for at, places in enumerate(bins):
        counts[items[places], at] = (confidence - right)[items[places]]
    counts[items, -1] = 1

    def finish(sums: Floats) -> tuple[Floats, Floats]:
        return np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1]

    def slopes(sums: Floats) -> tuple[Floats, Floats]:
        return np.append(np.sign(sums[:-1]), 0.0), np.append(np.zeros(len(bins)), 1.0)

    n = len(items)
    return Tally(counts, grid.subjects, n, len(known) - n, finish, slopes) if n else None


@metric("pairs", "Violations", "share of applicable expectations that the answers violate",
        by_expectation=True, better="lower", needs="instances")  # fmt: skip
def violation_rate(grid: Grid) -> Tally:
    """Share of applicable instances of expectations whose conclusion gets no permitted answer."""
    counts = np.zeros((len(grid.instances), 2), dtype=np.float32)
    for at, unit in enumerate(grid.instances):
        verdicts = [one.is_permitted for one in unit if one.is_answered]
        counts[at] = verdicts.count(False), len(verdicts) - verdicts.count(None)
    n = int(counts[:, 1].sum())
    return Tally(counts, _cluster_names(grid.instances), n, _missing(grid.instances))


@metric("pairs", "Violations expected by chance",
        "violation rate if the last answer were that of another expectation",
        short="Chance viol.", by_expectation=True, needs="instances")  # fmt: skip
def chance_violation_rate(grid: Grid) -> Tally:
    """``violation_rate`` if the conclusion got the answer of another expectation of its kind.

    The counts are those of ``ExpectedViolations``: there is an answer b for each stratum and code.
    An expectation has one last answer in a stratum, also where several of its instances share it.
    """
    units = grid.instances
    kinds: dict[str, list[Expectation]] = {}
    for expectation in (unit[0].expectation for unit in units):
        kinds.setdefault(expectation.kind, []).append(expectation)
    coded = {kind: _Codes(expectations) for kind, expectations in kinds.items()}
    answered = [[(one, _stratum(one)) for one in unit if one.is_answered] for unit in units]
    sizes = Counter(stratum for unit in answered for stratum in {of for _, of in unit})
    compared = [[(one, of) for one, of in unit if sizes[of] > 1] for unit in answered]
    codes: dict[Stratum, dict[Hashable, None]] = {}
    for one, stratum in (pair for pairs in compared for pair in pairs):
        codes.setdefault(stratum, {})[coded[stratum[0]].code_of(one)] = None
    columns = {key: at for at, key in enumerate((of, b) for of, bs in codes.items() for b in bs)}
    size = len(columns)
    counts = np.zeros((len(units), 1 + 3 * size), dtype=np.float32)
    for at, unit in enumerate(compared):
        for one, stratum in unit:
            scheme = coded[stratum[0]]
            answer_column = columns[stratum, scheme.code_of(one)]
            counts[at, 1 + size + answer_column] = 1
            if one.is_permitted is None:
                continue
            counts[at, 0] += 1
            counts[at, 1 + 2 * size + answer_column] += not one.is_permitted
            for code in codes[stratum]:
                if not one.permits(scheme.text(one.expectation, code)):
                    counts[at, 1 + columns[stratum, code]] += 1
    numbers = {stratum: at for at, stratum in enumerate(codes)}
    expected = ExpectedViolations(
        np.array([numbers[stratum] for stratum, _ in columns], dtype=int),
        np.array([sizes[stratum] for stratum, _ in columns], dtype=float),
    )
    alone = sum(
        one.is_permitted is not None and sizes[of] == 1 for unit in answered for one, of in unit
    )
    n, left_out = int(counts[:, 0].sum()), _missing(units) + alone
    return Tally(counts, _cluster_names(units), n, left_out, expected, expected.slopes)


Units = Sequence[Sequence[Instance]]  # The instances of each expectation


def _cluster_names(units: Units) -> npt.NDArray[np.object_]:
    """The cluster of each expectation (unit,): the first premise of its first expectation."""
    premises = [unit[0].expectation.items[0] for unit in units]
    components = linked_questions(unit[0].expectation.items for unit in units)
    firsts: dict[str, str] = {}
    names = [firsts.setdefault(components[premise], premise) for premise in premises]
    return np.array(names, dtype=np.object_)


def _missing(units: Units) -> int:
    return sum(not one.is_answered for unit in units for one in unit)


Stratum = tuple[str, str]
"""A kind of expectations, and the variant."""


def _stratum(one: Instance) -> Stratum:
    return one.expectation.kind, one.variant


class _Codes:
    """How the answers to the conclusions of a kind are compared."""

    def __init__(self, expectations: Iterable[Expectation]) -> None:
        """By their text if all have the same options; else by the position among their options."""
        self.by_text = len({frozenset(one.conclusion.options) for one in expectations}) == 1

    def code(self, expectation: Expectation, answer: str) -> Hashable:
        """The code of an answer to the conclusion; a text that is no option is its own code."""
        options = expectation.conclusion.options
        return answer if self.by_text or answer not in options else options.index(answer)

    def code_of(self, one: Instance) -> Hashable:
        """The code of the answer that the conclusion got."""
        return self.code(one.expectation, str(one.answers[-1]))

    def text(self, expectation: Expectation, code: Hashable) -> str:
        """The answer of a code; a position that the conclusion does not have is no option."""
        if isinstance(code, int):
            options = expectation.conclusion.options
            return options[code] if code < len(options) else NO_OPTION
        return str(code)


class ExpectedViolations:
    """Hits and total of ``chance_violation_rate`` from sums (..., 1 + 3 answers) of its counts.

    The counts are applicable instances, then for each answer b: instances that do not permit b,
    expectations that got b, and instances that got b and do not permit it. With ``K``
    expectations in a stratum, the mean over the others is ``c`` times that over all, less ``c - 1``
    times the violation itself, where ``c = K / (K - 1)``. Resamples keep this ``c``.
    """

    def __init__(self, strata: Ints, sizes: Floats) -> None:
        """The stratum of each answer (answer,), and its K, at least 2."""
        is_member = strata[:, None] == np.arange(strata.max(initial=-1) + 1)
        self._members = is_member.astype(np.float64)
        self._factors = sizes / (sizes - 1)

    def _parts(self, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """How many do not permit an answer, got it, violate by it, got any of its stratum."""
        counted = np.asarray(sums, dtype=np.float64)[..., 1:]
        refused, got, violated = np.split(counted, 3, axis=-1)
        known = (got @ self._members) @ self._members.T
        return refused, got, violated, np.where(known > 0, known, 1)

    def __call__(self, sums: Floats) -> tuple[Floats, Floats]:
        refused, got, violated, known = self._parts(sums)
        of_all = refused * got / known
        hits: Floats = (self._factors * of_all - (self._factors - 1) * violated).sum(axis=-1)
        return hits, sums[..., 0]

    def slopes(self, sums: Floats) -> tuple[Floats, Floats]:
        """The derivatives (column,) of hits and total at sums (column,)."""
        refused, got, _, known = self._parts(sums)
        both = (refused * got) @ self._members @ self._members.T
        of_got = self._factors * (refused / known - both / known**2)
        hits = np.concatenate([[0.0], self._factors * got / known, of_got, 1 - self._factors])
        total = np.zeros_like(hits)
        total[0] = 1
        return hits, total
