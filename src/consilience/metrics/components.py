"""Components of variance by factor, sensitivity to a factor, and the positions of answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from string import digits
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.factors import FactorialDesign
from consilience.core.items import Bools, Floats, Ints
from consilience.core.presentation import LABEL_STYLES, permutation
from consilience.metrics.registry import Tally, hits_of_total, quotient, ratio
from consilience.metrics.resampling import ClusterCounts, cluster_matrix
from consilience.metrics.statistics import NAN, Draws, bootstrap_interval

Factors = tuple[str, ...]  # A factor alone, or several in combination


def decompose(values: Floats, factors: Sequence[str]) -> tuple[Floats, dict[Factors, Floats]]:
    """The variation of each item (item,), and what each factor or combination contributes to it.

    ``values`` (item, level, ..., level, component), an axis of levels for each factor. The
    variation of an item is the mean squared distance of its cells from their mean; its parts sum
    to it.
    """
    axes = {name: axis for axis, name in enumerate(factors, start=1)}
    grand = values.mean(axis=tuple(axes.values()), keepdims=True)
    effects: dict[Factors, Floats] = {(): grand}
    for size in range(1, len(factors) + 1):
        for subset in combinations(factors, size):
            others = tuple(axis for name, axis in axes.items() if name not in subset)
            effect = values.mean(axis=others, keepdims=True) if others else values.copy()
            for lower in range(size):
                for contained in combinations(subset, lower):
                    effect = effect - effects[contained]
            effects[subset] = effect
    effects.pop(())
    return _mean_square(values - grand), {of: _mean_square(part) for of, part in effects.items()}


def one_hot(answers: Ints) -> Floats:
    """Answers (item, level, ...) as values for ``decompose``, with one more axis: the answer.

    An answer is numbered within its item, because only answers to one item are compared, so the
    last axis is as long as the greatest number of different answers to an item. The variation of
    an item is then the probability that two of its cells, drawn with replacement, differ.
    """
    flat = answers.reshape(len(answers), -1)
    codes = np.stack([np.unique(row, return_inverse=True)[1] for row in flat])
    values = (codes[..., None] == np.arange(codes.max(initial=-1) + 1)).astype(np.float64)
    return np.asarray(values.reshape(*answers.shape, -1))


def _mean_square(effect: Floats) -> Floats:
    """The mean over cells of the squared length of an effect (item,)."""
    squares = (effect**2).sum(axis=-1)
    return np.asarray(squares.reshape(len(squares), -1).mean(axis=1))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; NaN for no data or without an interval."""

    value: float
    low: float
    high: float
    n: int  # How many things were counted
    n_excluded: int  # How many were left out, because an answer is missing


@dataclass(frozen=True, slots=True)
class ItemNumbers:
    """Numbers of each item, whose sums give a value as those of a ``Tally`` do."""

    columns: Floats  # The numbers (item, column); an item with NaN is left out
    finish: Callable[[Floats], tuple[Floats, Floats]] = hits_of_total
    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest possible value; intervals stay between them."""

    @classmethod
    def mean(cls, values: Floats, greatest: float = 1.0, least: float = 0.0) -> ItemNumbers:
        """The mean of ``values`` (item,), from ``least`` to ``greatest``."""
        columns = np.stack([values, np.where(np.isnan(values), np.nan, 1.0)], axis=1)
        bounds = (least, greatest)
        return cls(columns, hits_of_total if bounds == (0, 1) else ratio, bounds)


Name = TypeVar("Name", bound=Hashable)


def item_estimates(
    runs: Sequence[Mapping[Name, ItemNumbers]],
    subjects: npt.NDArray[np.object_],
    seed: int,
    *,
    are_means: bool = False,
) -> dict[Name, Estimate]:
    """Each number with its interval; of several seeds the means.

    ``runs``: the numbers of each seed by name, of the same items. ``subjects`` (item,): the items
    of one subject are resampled together. Numbers of the same items share their resamples. The
    interval is that of ``bootstrap_interval``; ``are_means``: numbers of groups are no proportions.
    """
    known = {
        name: np.all(np.stack([~np.isnan(run[name].columns).any(axis=1) for run in runs]), axis=0)
        for name in (runs[0] if runs else ())
    }
    by_items: dict[bytes, list[Name]] = {}
    for name, items in known.items():
        by_items.setdefault(items.tobytes(), []).append(name)
    estimates: dict[Name, Estimate] = {}
    for names in by_items.values():
        items = known[names[0]]
        clusters, places = np.unique(subjects[items].astype(str), return_inverse=True)
        matrix, n = cluster_matrix(places, len(clusters)), int(items.sum())
        tallies = {
            (str(of_seed), str(at)): Tally(
                matrix @ run[name].columns[items], clusters, n, finish=run[name].finish
            )
            for of_seed, run in enumerate(runs)
            for at, name in enumerate(names)
        }
        counts = ClusterCounts(tallies, clusters.tolist())
        drawn = counts.weigh(Draws(len(clusters), seed).parts(counts.width)) if n else {}
        for at, name in enumerate(names):
            keys = [(str(of_seed), str(at)) for of_seed in range(len(runs))]
            value, low, high = (NAN,) * 3
            if n:
                value = float(np.mean([tallies[key].share().value for key in keys]))
                low, high = bootstrap_interval(
                    value,
                    np.mean([drawn[key].values for key in keys], axis=0),
                    len(clusters),
                    runs[0][name].bounds,
                    proportion=tallies[keys[0]].is_proportion and not are_means,
                )
            estimates[name] = Estimate(value, low, high, n, len(items) - n)
    return {name: estimates[name] for name in known}


Outcome = Literal["answer", "correctness"]

Effect = Literal[
    "main", "total", "interaction", "interactions", "between questions", "within questions"
]
"""A part of the variation.

- main: one factor alone, averaged over the levels of the others.
- total: every part that involves the factor. The probability that the outcome changes when only
  the level of this factor is resampled.
- interaction: what two or more factors contribute beyond their main effects.
- interactions: all interactions together.
- between questions: how much the items differ in their mean correctness over variants.
- within questions: all parts but that between questions: the variation over variants.
"""

Part = tuple[Outcome, Effect, Factors]  # The outcome, the kind of part, and the factors

Cell = TypeVar("Cell", np.int64, np.bool_)


def exact_parts(
    answers: Ints, right: Bools, design: FactorialDesign
) -> dict[tuple[Part, bool], ItemNumbers]:
    """Every part of the variation of items that were answered in every cell of a full design.

    ``answers`` (item, cell), compared within an item only; ``right`` (item, cell). An item without
    an answer (-1) in some cell has no numbers. The key says which part it is, and whether the
    number is a share of the whole variation instead of a probability.
    """
    names = tuple(factor.name for factor in design.factors if len(factor.levels) > 1)
    complete = (answers >= 0).all(axis=1)
    is_right = _crossed(right[complete], design)
    correctness = np.stack([is_right, ~is_right], axis=-1).astype(np.float64)
    mean, ones = right[complete].mean(axis=1), np.ones(complete.sum())
    outcomes: tuple[tuple[Outcome, Floats, Floats], ...] = (
        ("answer", one_hot(_crossed(answers[complete], design)), np.zeros((len(ones), 1))),
        ("correctness", correctness, np.stack([mean, 1 - mean], axis=1)),
    )
    parts: dict[tuple[Part, bool], ItemNumbers] = {}
    for outcome, values, means in outcomes:
        variation, of_factors = decompose(values, names)
        has_items, squares = outcome == "correctness", (means**2).sum(axis=1)
        for effect, factors, part in _effects(variation, of_factors, names):
            if effect == "between questions" and not has_items:
                continue
            columns = np.full((len(answers), means.shape[1] + 4), np.nan)
            columns[complete] = np.stack([part, variation, *means.T, squares, ones], axis=1)
            is_between = effect == "between questions"
            parts[(outcome, effect, factors), False] = (
                ItemNumbers(columns, _between) if is_between else ItemNumbers(columns[:, [0, -1]])
            )
            share = partial(_share, is_between=is_between, has_items=has_items)
            parts[(outcome, effect, factors), True] = ItemNumbers(columns, share)
    return parts


def _crossed(values: npt.NDArray[Cell], design: FactorialDesign) -> npt.NDArray[Cell]:
    """``values`` (item, cell) with an axis of levels for each factor that varies."""
    varied = [at for at, factor in enumerate(design.factors) if len(factor.levels) > 1]
    shape = [len(design.factors[at].levels) for at in varied]
    cells = np.array(design.cells, dtype=np.int64)[:, varied]
    order = np.argsort(np.ravel_multi_index(tuple(cells.T), shape))
    return values[:, order].reshape(len(values), *shape)


def _effects(
    variation: Floats, parts: Mapping[Factors, Floats], names: Sequence[str]
) -> Iterator[tuple[Effect, Factors, Floats]]:
    """Each part of the variation of each item (item,)."""
    for name in names:
        yield "main", (name,), parts[name,]
        involved = [part for factors, part in parts.items() if name in factors]
        yield "total", (name,), np.sum(involved, axis=0)
    combined = {factors: part for factors, part in parts.items() if len(factors) > 1}
    for factors, part in combined.items():
        yield "interaction", factors, part
    if combined:
        yield "interactions", (), np.sum(list(combined.values()), axis=0)
    yield "between questions", (), np.zeros(len(variation))
    yield "within questions", (), variation


def _between(sums: Floats) -> tuple[Floats, Floats]:
    """The unbiased variance of the items' means, summed over outcomes, as hits and total.

    ``sums`` (..., column): of a part, the variation, the means, the sum of their squares, 1.
    """
    size = sums[..., -1]
    return sums[..., -2] - quotient((sums[..., 2:-2] ** 2).sum(axis=-1), size), size - 1


def _share(sums: Floats, *, is_between: bool, has_items: bool) -> tuple[Floats, Floats]:
    """A part and the variation; ``has_items``: with that between items."""
    between = np.zeros(sums.shape[:-1])
    if has_items:
        between = quotient(*_between(sums)) * sums[..., -1]
    return between if is_between else sums[..., 0], np.maximum(between, 0) + sums[..., 1]


def pair_parts(
    answers: Ints, right: Bools, design: FactorialDesign
) -> dict[tuple[Part, bool], ItemNumbers]:
    """The total effect of each factor from pairs of cells that differ in it alone.

    The pairwise estimator of Jansen (Analysis of variance designs for model output, Computer
    Physics Communications 117, 1999): half the mean squared difference of two answers of which only
    this factor was resampled, which for answers is the share of pairs that differ. A pair has
    different levels, and of the L levels of an item a redrawn one is the same with probability 1 /
    L, so the share is multiplied by ``1 - 1 / L``. Of a full design this is the exact total effect.
    Of a radial design it is unbiased for the whole design, but for its first point, which is not
    drawn. Of a one-factor design it holds at the base levels of the other factors only.

    Items without a pair of answers are left out. Every pair has the same weight.
    """
    parts: dict[tuple[Part, bool], ItemNumbers] = {}
    levels = {factor.name: len(factor.levels) for factor in design.factors}
    taken, cells = answers >= 0, dict(zip(levels, np.array(design.cells).T, strict=True))
    outcomes: tuple[tuple[Outcome, npt.NDArray[np.generic]], ...] = (
        ("answer", answers),
        ("correctness", right),
    )
    for name, pairs in design.pairs_by_factor().items():
        of_level = [cells[name] == level for level in np.unique(cells[name])]
        lacking = np.sum([~taken[:, places].any(axis=1) for places in of_level], axis=0)
        redrawn = 1 - 1 / np.maximum(levels[name] - lacking, 1)
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        both = taken[:, first] & taken[:, second]
        count = both.sum(axis=1).astype(np.float64)
        for outcome, values in outcomes:
            differ = ((values[:, first] != values[:, second]) & both).sum(axis=1)
            columns = np.stack([redrawn * differ, count], axis=1)
            columns[count == 0] = np.nan
            parts[(outcome, "total", (name,)), False] = ItemNumbers(columns)
    return parts


SHUFFLES = 999
"""How often right answers are shuffled to find the range that is expected of equal variants."""


def prompt_sensitivity(right: Bools, taken: Bools) -> Floats:
    """PromptSensiScore of each item (item,): how often its answers differ in correctness.

    ``S_i = sum_{k<l} |Y_ik - Y_il| / (n_i (n_i - 1) / 2)`` with ``Y_ik = [a_ik = g_i]`` and ``n_i``
    answers to item i. The PromptSensiScore (PSS) is the mean of ``S_i`` over items (Zhuo et al.,
    ProSA: Assessing and Understanding the Prompt Sensitivity of LLMs, Findings of EMNLP 2024).
    From 0, never, to ``n / (2 (n - 1))`` for even n; NaN for an item with fewer than
    two answers. ``right`` and ``taken`` (item, variant): whether the answer is right, and whether
    there is one.
    """
    size = taken.sum(axis=1).astype(np.float64)
    hits = (right & taken).sum(axis=1)
    pairs = size * (size - 1) / 2
    sensitivity = np.full(len(size), np.nan)
    np.divide(hits * (size - hits), pairs, out=sensitivity, where=pairs > 0)
    return sensitivity


def accuracy_range(right: Bools) -> tuple[float, float]:
    """The lowest and the highest accuracy of a variant, of ``right`` (item, variant).

    Sclar et al. call it the performance interval, and its width the spread (Quantifying Language
    Models' Sensitivity to Spurious Features in Prompt Design, ICLR 2024). Theirs is over
    formats, sampled by FormatSpread; this one is over all variants that were asked, of the items
    that were answered in all of them. NaN without such items. A maximum over variants grows with
    their number and with the noise of few items, and the bootstrap is not valid for it: compare it
    with ``shuffled_spreads``.
    """
    if not right.size:
        return NAN, NAN
    accuracy = right.mean(axis=0)
    return float(accuracy.min()), float(accuracy.max())


def shuffled_spreads(right: Bools, seed: int, shuffles: int = SHUFFLES) -> Floats:
    """Spreads if the right answers of each item fell on its variants at random (shuffle,).

    This is the distribution of the spread for variants that are equally accurate, given how many
    variants each item is right in. ``right`` (item, variant).
    """
    generator = np.random.default_rng(seed)
    spreads = np.empty(shuffles)
    for at in range(shuffles):
        accuracy = generator.permuted(right, axis=1).mean(axis=0)
        spreads[at] = accuracy.max() - accuracy.min()
    return spreads


def posix(scores: Floats, tokens: Floats, answers: Ints) -> Floats:
    """POSIX of each item (item,), in nats per token: how much the probability of an answer moves.

    ``psi_i = 1 / (N (N - 1)) sum_k sum_l 1 / L_k |log P(y_k | x_l) - log P(y_k | x_k)|``: ``y_k``
    is the answer to the item in variant k, ``x_l`` its prompt in variant l, ``L_k`` the tokens of
    ``y_k``, N the number of variants. The prompt sensitivity index of a data set is the mean of
    ``psi_i`` over items (Chatterjee et al., POSIX: A Prompt Sensitivity Index for Large Language
    Models, Findings of EMNLP 2024). From 0, without an upper bound; NaN for an item with
    fewer than two scored variants.

    Here ``y_k`` is the option that was chosen in variant k, in the words that variant l has for it:
    under another order the label B is another answer. The authors' released code subtracts the
    log-probability of another response to the same prompt; this is the definition of the paper.

    ``scores`` (item, variant, option): log-probability of each option in nats, not normalised over
    the options, NaN where there is none. ``tokens`` (item, variant, option): how many tokens each
    has. ``answers`` (item, variant): the position of the chosen option, -1 for none.
    """
    return np.array([_posix_of_item(*item) for item in zip(scores, tokens, answers, strict=True)])


def _posix_of_item(scores: Floats, tokens: Floats, answers: Ints) -> float:
    """POSIX of ``scores`` and ``tokens`` (variant, option) and ``answers`` (variant,)."""
    answered = np.flatnonzero(answers >= 0)
    chosen = answers[answered]
    known = np.isfinite(scores[np.ix_(answered, chosen)]).all(axis=1)
    answered, chosen = answered[known], chosen[known]
    size = len(answered)
    if size < 2:
        return NAN
    # (variant l, answer k): the log-probability of the answer k in the prompt of the variant l.
    probability = scores[np.ix_(answered, chosen)]
    moved = np.abs(probability - probability.diagonal()) / tokens[answered, chosen]
    return float(moved.sum() / (size * (size - 1)))


CONCENTRATED = 1.5
"""A position is reported if the lower bound of the 95 % interval of its share of the answers is
above this many times the share that is expected: the larger one of that in a uniform choice and
that of the right answers."""

COLUMNS = ("group", "item", "order", "label", "option", "gold_option", "n_candidates")


def position_notes(answers: pl.DataFrame) -> Iterator[str]:
    """A note if answers to questions with options are concentrated on one position.

    ``answers``: an answers table with ``questions.QUESTION_COLUMNS``; any other has no note.
    """
    if not set(COLUMNS) <= set(answers.columns):
        return
    shown = _shown(answers)
    if shown.is_empty():
        return
    position = int(shown["position"].mode().min())  # type: ignore[arg-type]
    of_items = shown.group_by("question", maintain_order=True).agg(
        hits=(pl.col("position") == position).sum(), size=pl.len()
    )
    columns = of_items.select("hits", "size").to_numpy().astype(np.float64)
    subjects = of_items["question"].to_numpy().astype(object)
    share = item_estimates([{"share": ItemNumbers(columns)}], subjects, 0)["share"]
    uniform = pl.when(pl.col("size") > position).then(1 / pl.col("size")).otherwise(0.0)
    # Right answers whose position is not known have the uniform share.
    of_gold = pl.coalesce((pl.col("gold") == position).cast(pl.Float64), uniform)
    ((expected, right),) = shown.select(a=uniform.mean(), b=of_gold.mean()).iter_rows()
    if not share.low > CONCENTRATED * max(expected, right):
        return
    yield (
        f"{share.value:.1%} of {shown.height:,} answers (95 % CI {100 * share.low:.1f} to "
        f"{100 * share.high:.1f}) are the option in position {position + 1}, against "
        f"{expected:.1%} in a uniform choice and {right:.1%} of the right answers"
    )


def _shown(answers: pl.DataFrame) -> pl.DataFrame:
    """``question, size, position, gold``: a row an answer with a known shown position.

    ``gold`` is null where its position is not known.
    """
    number = pl.col("option", "gold_option", "n_candidates")
    rows = answers.select(COLUMNS).with_columns(number.cast(pl.Float64, strict=False))
    rows = rows.drop_nulls(["option", "n_candidates"]).with_columns(number.cast(pl.Int64))
    key = ["order", "label", "option", "gold_option", "n_candidates"]
    kinds = rows.select(key).unique(maintain_order=True)
    places = [_places(*row) for row in kinds.iter_rows()]
    known = kinds.hstack(
        pl.DataFrame(places, {"position": pl.Int64, "gold": pl.Int64}, orient="row")
    )
    joined = rows.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
    question = pl.format("{}: {}", "group", "item")
    shown = joined.select("position", "gold", question=question, size="n_candidates")
    return shown.drop_nulls("position")


def _places(
    order: str | None, label: str | None, option: int, gold: int | None, size: int
) -> tuple[int | None, int | None]:
    """The shown positions of the answer and of the gold.

    The seed of a shuffle is not known here: its positions follow from the labels, as do those of an
    option that the order does not have.
    """
    is_shuffled = (order or "").startswith("shuffle")
    places = (not is_shuffled and permutation(order or "given", size)) or ()
    if option in places:
        return places.index(option), places.index(gold) if gold in places else None
    at = -1
    if label and set(label) <= set(digits):
        at = int(label) - 1
    elif label and len(label) == 1:
        at = max(letters.find(label) for letters in LABEL_STYLES.values())
    return at if 0 <= at < size else None, None
