"""What a metric reads, a grid of answers; what it counts, a tally; and the registry of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_array, hstack

from consilience.core.errors import Protocol
from consilience.core.expectations import Counted, with_answers_of
from consilience.core.factors import Design, VariantPair, levels_of
from consilience.core.items import Bools, Floats, Ints
from consilience.core.presentation import permutation
from consilience.metrics.statistics import Chance, ChanceOfAll, ChanceOfPairs
from consilience.types import Relation


def article_fits(relation: Relation) -> pl.Expr:
    """Whether the word before ``[Y]``, if ``a`` or ``an``, fits the gold.

    The released code looks at the first letter of the gold in its vocabulary form: with
    the leading-space mark that RoBERTa's and ALBERT's tokens begin with, no gold starts with a
    vowel (``docs/suites.md``). ``gold_token`` holds that form; without it the gold itself counts.
    """
    wrong = {"a": True, "an": False}
    articles = [pattern.article for pattern in relation.patterns]
    form = pl.coalesce(pl.col("gold_token", "gold").cast(pl.String)).str.to_lowercase()
    vowel = form.str.contains("^[aeiou]")
    unfit = [
        (pl.col("variant_index") == index) & (vowel == wrong[article])
        for index, article in enumerate(articles)
        if article is not None
    ]
    return ~pl.any_horizontal(*unfit) if unfit else pl.lit(True)


OF_OPTIONS = "option_scores"  # The column with the score of each option, in the order of the file

WHOLE = 1e-3  # How far from 1 a sum of probabilities may be, such as that of rounded ones


def rows_of_lists(column: pl.Series, fill: float = np.nan) -> Floats:
    """The lists of numbers in a column (row, position); NaN for null, ``fill`` after the last."""
    lists = column.cast(pl.List(pl.Float64))
    sizes = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    positions = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = np.full((len(lists), int(sizes.max(initial=0))), fill)
    values = lists.filter(lists.list.len() > 0).explode()
    rows[np.repeat(np.arange(len(lists)), sizes), positions] = values.fill_null(np.nan).to_numpy()
    return rows


def option_probabilities(table: pl.DataFrame) -> Floats:
    """The probability of each option (row, option), NaN where unknown, 0 after the last option.

    The scores of a row are normalised over its options (softmax). An option without a score has
    the probability that the others leave: 0 where theirs sum to 1, else the row is unknown.
    """
    scores = rows_of_lists(table[OF_OPTIONS], -np.inf)
    lacking = np.isnan(scores)
    scores[lacking] = -np.inf
    best = scores.max(axis=1, initial=-np.inf)
    known = np.isfinite(best)
    weights = np.exp(scores - np.where(known, best, 0)[:, None])
    sums = weights.sum(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        is_whole = np.abs(sums * np.exp(best) - 1) < WHOLE
    known &= is_whole | ~lacking.any(axis=1)
    probabilities: Floats = np.where(
        known[:, None], weights / np.where(known, sums, 1)[:, None], np.nan
    )
    return probabilities


View = Literal["tuples", "pairs"]  # Accuracy is counted on ``tuples``, agreement on ``pairs``

SCORES = ("logprob", "gold_logprob", "gold_rank", "margin")
"""Columns of the answers table that a metric may read."""

INVALID = "no label in "
"""The beginning of the word that replaces an answer that is no label. The word differs between
variants, so that two such answers never agree."""

MANY_VARIANTS = 100
"""With more variants, every two of which are compared, no array has a place for each pair."""

ITEMS = 256  # Items whose answers in all pairs of variants are in memory at once


@dataclass(frozen=True)
class Grid:
    """Answers and golds of a group as codes, with the scores of its run where there are any."""

    answers: Ints  # The answer (item, variant); -1 for none
    golds: Ints  # The gold (item, variant); -1 where the item was not asked in the variant
    compared: Ints | None  # The variants that are compared (pair, 2); None if every two are
    subjects: npt.NDArray[np.object_]
    """The subject of each item (item,); items of one subject are not independent."""
    words: Ints  # The codes of the answers that occur (answer,)
    invalid: tuple[int, ...] = ()  # The codes of answers that are none of the group's labels
    positive: int = -1  # The code of the label whose F1 is counted; -1 for none
    instances: Counted = ()  # The instances of each expectation of the group
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """Each of ``SCORES`` that a metric reads (item, variant); NaN where a query has none."""
    is_ragged: bool = False  # Whether an item may lack variants (``Design.is_ragged``)
    shown_first: tuple[Ints, Ints] | None = None
    """Of a whole group of questions with options: the variants that differ in the order alone
    (pair, 2), and the option that is shown first (item, variant), -1 where that is not known."""
    distributions: Floats | None = None
    """The probability of each option (item, variant, option); None of a run without scores of
    options, NaN where an answer has none, and 0 after the last option of an item."""

    @cached_property
    def taken(self) -> Bools:
        """Whether there is an answer (item, variant)."""
        return self.answers >= 0

    @cached_property
    def right(self) -> Bools:
        """Whether the answer is the gold (item, variant)."""
        return np.asarray(self.taken & (self.answers == self.golds))

    @cached_property
    def answered(self) -> Bools:
        """Whether any item was answered in the variant (variant,)."""
        return np.asarray(np.any(self.taken, axis=0))

    @cached_property
    def lacking(self) -> Bools:
        """Whether the item has no such variant, in a suite where items may lack some (item, v)."""
        return np.asarray((self.golds < 0) & self.is_ragged)

    @cached_property
    def n_asked(self) -> Ints:
        """How many compared pairs of variants an item has, answered or not (item,)."""
        if not self.is_ragged:
            return np.full(len(self.answers), self.n_pairs)
        there = self.taken | ~self.lacking
        if self.compared is None:
            return np.asarray(there.sum(axis=1) * (there.sum(axis=1) - 1) // 2)
        return np.asarray((there[:, self.compared[:, 0]] & there[:, self.compared[:, 1]]).sum(1))

    @property
    def complete(self) -> Bools:
        """Whether the item was answered in every variant that was asked at all (item,)."""
        variants = self.answered
        there = (self.taken | self.lacking)[:, variants]
        return np.asarray(np.all(there, axis=1) & np.any(self.taken, axis=1) & variants.any())

    @property
    def always_right(self) -> Bools:
        """Whether the item is right in every variant that was asked at all (item,)."""
        return np.asarray(np.all((self.right | self.lacking)[:, self.answered], axis=1))

    @cached_property
    def pairs(self) -> Ints:
        """The variants that are compared (pair, 2)."""
        if self.compared is not None:
            return self.compared
        return np.stack(np.triu_indices(self.answers.shape[1], 1), axis=1)

    @property
    def n_pairs(self) -> int:
        """How many pairs of variants are compared."""
        width = self.answers.shape[1]
        return width * (width - 1) // 2 if self.compared is None else len(self.compared)

    @property
    def has_many_pairs(self) -> bool:
        """Whether arrays (item, pair) would fill the memory."""
        return self.compared is None and self.answers.shape[1] > MANY_VARIANTS

    @cached_property
    def both(self) -> Bools:
        """Whether both answers of a pair are there (item, pair)."""
        first, second = self.pairs.T
        return self.taken[:, first] & self.taken[:, second]

    @cached_property
    def same(self) -> Bools:
        """Whether both answers of a pair are there and the same (item, pair)."""
        (first, second), same = self.pairs.T, self.both.copy()
        for start in range(0, len(same), ITEMS):
            answers = self.answers[start : start + ITEMS]
            same[start : start + ITEMS] &= answers[:, first] == answers[:, second]
        return same

    @cached_property
    def codes(self) -> Ints:
        """The position of each answer among ``words``, -1 for none (item, variant)."""
        places = np.searchsorted(self.words, self.answers)
        return np.where(self.taken, places, -1)

    @cached_property
    def n_both(self) -> Ints:
        """How many pairs of an item have both answers (item,)."""
        size = self.taken.sum(axis=1)
        n_both: Ints = size * (size - 1) // 2
        return n_both if self.compared is None else np.asarray(self.both.sum(axis=1))

    @cached_property
    def n_same(self) -> Ints:
        """How many pairs of an item have the same answer twice (item,)."""
        same = self._later if self.compared is None else self.same
        return np.asarray(same.sum(axis=1))

    @cached_property
    def _later(self) -> Ints:
        """How many later variants have the same answer to the item (item, variant)."""
        items, variants = self.taken.nonzero()
        keys = items * (self.answers.max(initial=0) + 1) + self.answers[items, variants]
        order = np.argsort(keys, kind="stable")
        ends = np.searchsorted(keys[order], keys[order], side="right")
        later = np.zeros(self.answers.shape, dtype=np.int64)
        later[items[order], variants[order]] = ends - 1 - np.arange(len(order))
        return later

    @cached_property
    def _classes(self) -> tuple[Bools, Ints]:
        """The ways to lack answers (class, variant), and that of each item (item,)."""
        classes, places = np.unique(self.taken, axis=0, return_inverse=True)
        return classes, places.reshape(-1)

    @cached_property
    def pair_counts(self) -> npt.NDArray[np.floating]:
        """(item, column): same pairs, all pairs, then each pair; without these where many are."""
        sums = np.stack([self.n_same, self.n_both], axis=1)
        if self.has_many_pairs:
            return sums.astype(np.float64)
        return np.concatenate([sums, self.both], axis=1, dtype=np.float32)

    @cached_property
    def class_and_answer_counts(self) -> csr_array:
        """``answer_counts``; where many pairs are, after the class of each item (item, class)."""
        if not self.has_many_pairs:
            return self.answer_counts
        classes, places = self._classes
        ones, starts = np.ones(len(places), dtype=np.float32), np.arange(len(places) + 1)
        of_class = csr_array((ones, places, starts), shape=(len(places), len(classes)))
        return csr_array(hstack([of_class, self.answer_counts], format="csr"))

    @cached_property
    def answer_counts(self) -> csr_array:
        """1 if the item got that answer in that variant (item, variant and word).

        Only the ones are held, so that this grows with the answers and not with the words.
        """
        items, width = self.answers.shape
        columns = (self.codes + np.arange(width) * len(self.words))[self.taken]
        starts = np.concatenate([[0], np.cumsum(self.taken.sum(axis=1))])
        ones = np.ones(len(columns), dtype=np.float32)
        return csr_array((ones, columns, starts), shape=(items, width * len(self.words)))

    @cached_property
    def chance(self) -> Chance:
        """Pairs expected to agree by chance, from sums of ``pair_counts`` and what follows them."""
        if self.has_many_pairs:
            return ChanceOfAll(self._classes[0], len(self.words))
        return ChanceOfPairs(self.pairs, self.answers.shape[1], len(self.words))

    def only_variants(self, variants: Sequence[int]) -> Grid:
        """Only these variants, and every pair of them."""
        chosen = list(variants)
        return replace(
            self,
            answers=self.answers[:, chosen],
            golds=self.golds[:, chosen],
            compared=None,
            shown_first=None,
            scores={name: values[:, chosen] for name, values in self.scores.items()},
            distributions=None if self.distributions is None else self.distributions[:, chosen],
        )

    def only_pairs(self, pairs: Sequence[VariantPair]) -> Grid:
        """Only these pairs and the variants in them."""
        variants, places = np.unique(np.array(pairs, dtype=np.int64), return_inverse=True)
        every = self.only_variants(variants.tolist())
        is_every = every.has_many_pairs and every.n_pairs == len(pairs)
        return every if is_every else replace(every, compared=places.reshape(-1, 2))

    def only_expectations(self, kind: str) -> Grid:
        """Only the instances of expectations of that kind."""
        instances = tuple(of for of in self.instances if of[0].expectation.kind == kind)
        return replace(self, instances=instances)

    def with_(self, other: Grid) -> Grid:
        """Only the answers and probabilities that ``other`` has, of the same items."""
        instances = with_answers_of(self.instances, other.instances)
        distributions = _shared(self.distributions, other.distributions)
        is_same = (other.taken | ~self.taken).all() and instances == self.instances
        if is_same and distributions is self.distributions:
            return self
        return replace(
            self, answers=np.where(other.taken, self.answers, -1), instances=instances,
            distributions=distributions,
        )  # fmt: skip


def _shared(mine: Floats | None, theirs: Floats | None) -> Floats | None:
    """Numbers (item, variant, option) where the other run has some, too; the same if all are."""
    if mine is None or theirs is None:
        return mine
    lost = np.isnan(theirs).all(axis=2, keepdims=True) & np.isfinite(mine)
    return np.where(lost, np.nan, mine) if lost.any() else mine


def grids(
    answers: pl.DataFrame, relation: Relation, protocol: Protocol, scores: Sequence[str] = ()
) -> dict[View, Grid]:
    """The two views of one group's answers, rows in their order of appearance.

    ``scores``: those that are read.

    ``strict``: every tuple (subject, gold) once, of a task every item, for both views.

    ``published``, as the released evaluation has it: accuracy over all rows; agreement over
    subjects, of which the last row wins, without the variants whose article before the object does
    not fit the gold.
    """
    design = relation.design
    column = pl.concat([answers["answer"].unique(), answers["gold"].unique().alias("answer")])
    words = column.drop_nulls().unique().sort().to_list()  # the position of a word is its code
    if design.unit == "item":
        if design.labels:
            grid = _grid_of_labels(by_option(answers, design), design, scores)
        else:
            grid = grid_of(answers, pl.col("item"), design, words, scores)
        return {"tuples": grid, "pairs": grid}
    if protocol == "strict":
        once = answers.unique(["subject", "gold", "variant_index"], keep="first")
        tuples = pl.concat_str("subject", "gold", separator="\t")
        grid = grid_of(once, tuples, design, words, scores)
        return {"tuples": grid, "pairs": grid}
    fitting = answers.with_columns(
        answer=pl.when(article_fits(relation)).then("answer").otherwise(None)
    )
    return {
        "tuples": grid_of(answers, pl.col("item"), design, words, scores),
        "pairs": grid_of(fitting, pl.col("subject"), design, words, scores),
    }


def by_option(answers: pl.DataFrame, design: Design) -> pl.DataFrame:
    """The answers and golds as positions of options, which are the labels of such a design.

    An answer without a position is none of the options; it stays.
    """
    if not design.by_option:
        return answers

    def position(text: pl.Series) -> pl.Series:
        number = text.cast(pl.Float64, strict=False).cast(pl.Int64)
        return number.cast(pl.String)

    option, gold = (for_each_text(answers[name], position) for name in ("option", "gold_option"))
    written = for_each_text(answers["answer"], lambda text: INVALID + text)
    return answers.with_columns(answer=pl.coalesce(option, written), gold=gold)


def for_each_text(column: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """A function of the texts of a column, which is called with each different one once."""
    texts = column.drop_nulls().unique()
    changed = change(texts.cast(pl.String)).cast(column.dtype)
    return column.replace_strict(texts, changed, default=None, return_dtype=column.dtype)


def _grid_of_labels(answers: pl.DataFrame, design: Design, scores: Sequence[str]) -> Grid:
    """The answers of a group whose only valid answers are labels, by item."""
    is_label = pl.col("answer").is_in(list(design.labels)) | pl.col("answer").is_null()
    no_label = for_each_text(answers["variant"], lambda text: INVALID + text)
    known = answers.with_columns(answer=pl.when(is_label).then("answer").otherwise(no_label))
    has_invalid = design.writes_freely or not known["answer"].equals(answers["answer"])
    invalid = [INVALID + name for name in sorted(design.variants)] if has_invalid else []
    words = [*design.labels, *invalid]
    grid = grid_of(known, pl.col("item"), design, words, scores)
    positive = design.labels.index(design.positive) if design.positive else -1
    codes = np.arange(len(words))
    grid = replace(
        grid, words=codes, invalid=tuple(codes[len(design.labels) :].tolist()), positive=positive
    )
    if design.by_option:
        grid = replace(grid, shown_first=_shown_first(known, design))
    return grid


def _shown_first(answers: pl.DataFrame, design: Design) -> tuple[Ints, Ints]:
    """``Grid.shown_first`` of the answers to questions with options; a shuffle is not known."""
    number = pl.col("n_candidates").fill_null(0).cast(pl.Int64)
    of_items = answers.select("item", number).group_by("item").max().sort("item")
    sizes, places = np.unique(of_items["n_candidates"].to_numpy(), return_inverse=True)
    orders = [levels_of(variant).get("order", "given") for variant in design.variants]
    first = [[_first(order, size) for order in orders] for size in sizes.tolist()]
    pairs = np.array(design.kinds.get("order", ()), dtype=np.int64).reshape(-1, 2)
    return pairs, np.array(first, dtype=np.int64)[places]


def _first(order: str, size: int) -> int:
    places = not order.startswith("shuffle") and permutation(order, size)
    return places[0] if places else -1


def grid_of(
    answers: pl.DataFrame,
    key: pl.Expr,
    design: Design,
    words: Sequence[str],
    scores: Sequence[str] = (),
) -> Grid:
    """Answers of the design's variants; ``key`` identifies the items, which are in its order."""
    items = (answers.select(key).to_series().rank("dense").cast(pl.Int64) - 1).to_numpy()
    variants = answers["variant_index"].to_numpy()
    shape = (int(items.max(initial=-1)) + 1, len(design.variants))
    filled = {name: np.full(shape, -1, dtype=np.int64) for name in ("answer", "gold")}
    for name, of_name in filled.items():
        # Of rows with the same item and variant the last one stays.
        codes = answers[name].cast(pl.Enum(words)).to_physical().cast(pl.Int64).fill_null(-1)
        of_name[items, variants] = codes.to_numpy()
    read: dict[str, Floats] = {name: np.broadcast_to(np.nan, shape) for name in scores}
    for name in read.keys() & set(answers.columns):
        read[name] = np.full(shape, np.nan)
        read[name][items, variants] = answers[name].cast(pl.Float64).to_numpy()
    subjects = np.full(shape[0], None, dtype=np.object_)
    last = np.empty(shape[0], dtype=np.int64)
    last[items] = np.arange(len(items))
    subjects[:] = answers["subject"][last].to_list()
    distributions: Floats | None = None
    if OF_OPTIONS in answers.columns and (of_rows := option_probabilities(answers)).size:
        distributions = np.full((*shape, of_rows.shape[1]), np.nan)
        distributions[items, variants] = of_rows
    compared = design.compared
    return Grid(
        filled["answer"],
        filled["gold"],
        None if compared is None else np.array(compared, dtype=np.int64).reshape(-1, 2),
        subjects,
        np.unique(filled["answer"][filled["answer"] >= 0]),
        scores=read,
        is_ragged=design.is_ragged,
        distributions=distributions,
    )


@dataclass(frozen=True, slots=True)
class Share:
    """A number of hits and a total."""

    hits: float
    total: float
    n: int  # How many things were counted
    left_out: int  # How many things were left out, because an answer is missing
    empty: float = float("nan")  # The value if the total is 0

    @property
    def value(self) -> float:
        """hits/total."""
        return self.hits / self.total if self.total > 0 else self.empty

    def __add__(self, other: Share) -> Share:
        return Share(
            self.hits + other.hits,
            self.total + other.total,
            self.n + other.n,
            self.left_out + other.left_out,
            other.empty,
        )


def hits_of_total(sums: Floats) -> tuple[Floats, Floats]:
    """The two columns of ``sums`` (..., 2)."""
    return sums[..., 0], sums[..., 1]


def ratio(sums: Floats) -> tuple[Floats, Floats]:
    """``hits_of_total`` for values whose hits are no part of the total, such as F1."""
    return hits_of_total(sums)


def columns_of_total(sums: Floats) -> tuple[Floats, Floats]:
    """The derivatives (column,) of ``hits_of_total``: 1 in its own column, 0 in the other."""
    return np.array([1.0, 0.0]), np.array([0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Tally:
    """What a metric counts."""

    counts: npt.NDArray[np.floating]  # What is counted (unit, column)
    clusters: npt.NDArray[np.object_] | None
    """The subject of each unit (unit,); units of one cluster are not independent.

    None where resampling the clusters does not show how precise the value is.
    """
    n: int  # How many things were counted
    left_out: int = 0  # How many things were left out, because an answer is missing
    finish: Callable[[Floats], tuple[Floats, Floats]] = hits_of_total
    """Hits (...) and total (...) from sums over units (..., column).

    Both are homogeneous of degree 1: they double where all sums double. The value is hits/total,
    NaN where the total is 0.
    """
    slopes: Callable[[Floats], tuple[Floats, Floats]] = columns_of_total
    """The derivatives (column,) of hits and total at sums (column,)."""
    sparse: csr_array | None = None
    """Further columns (unit, column) that are mostly 0; their sums follow the others."""

    @classmethod
    def of_hits(
        cls, clusters: npt.NDArray[np.object_] | None, hits: Bools, counted: Bools
    ) -> Tally:
        """That of ``hits`` among ``counted``, both (unit,) or (unit, thing)."""
        hits, counted = (one[:, None] if one.ndim == 1 else one for one in (hits, counted))
        sums = [(hits & counted).sum(axis=1), counted.sum(axis=1)]
        n = int(counted.sum())
        return cls(np.stack(sums, axis=1).astype(np.float32), clusters, n, counted.size - n)

    @property
    def is_proportion(self) -> bool:
        """Whether hits are counted among the total, so that 0 of n has an exact interval."""
        return self.finish is hits_of_total

    def scores(self) -> Floats:
        """What each unit contributes to hits and total (unit, 2), to first order.

        The columns sum to the hits and the total of all units (Euler's theorem).
        """
        slopes = np.stack(self.slopes(self.sums()), axis=1)
        width = self.counts.shape[1]
        scores: Floats = self.counts.astype(np.float64) @ slopes[:width]
        if self.sparse is not None:
            scores += self.sparse @ slopes[width:]
        return scores

    def sums(self) -> Floats:
        """Each column (column,) over all units."""
        sums: Floats = self.counts.sum(axis=0, dtype=np.float64)
        if self.sparse is None:
            return sums
        more: Floats = self.sparse.sum(axis=0, dtype=np.float64)
        return np.concatenate([sums, more])

    def share(self, empty: float = float("nan")) -> Share:
        """Hits and total over all units; ``empty`` is the value without data."""
        hits, total = self.finish(self.sums())
        return Share(float(hits), float(total), self.n, self.left_out, empty)


def quotient(hits: Floats, total: Floats) -> Floats:
    """hits/total; NaN where the total is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, hits / total, np.nan)


Level = Literal["headline", "main", "detail"]
"""Where a metric is shown.

headline: in every table and figure. main: in tables of one run. detail: in the summary of a run.
``metrics.csv`` has every metric.
"""

Better = Literal["higher", "lower"]

Count = Callable[[Grid], Tally | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How a metric is counted and shown."""

    count: Count  # What is counted in a grid that has what it needs
    view: View  # The grid that it reads
    label: str  # The heading of its column
    meaning: str  # What the value means, in a few words
    short: str = ""  # The heading on a narrow screen; empty for the label
    level: Level = "main"
    better: Better | None = None  # Which values are better; None where it cannot be said
    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest value that it can have; its intervals stay between them."""
    binary: bool = False  # Whether an item counts once, as a hit or not
    one_form: bool = False  # Whether it is of each form alone, instead of two forms together
    by_form: bool = False
    """Whether it is also counted of each perturbed form together with the original."""
    by_edit: bool = False  # Whether it is also counted by kinds of edits
    by_expectation: bool = False  # Whether it is also counted by kinds of expectations
    scores: tuple[str, ...] = ()
    """The columns of the answers table that it reads as ``Grid.scores``."""
    alias_of: str = ""
    """The metric that has this name on N-M relations; empty for a metric of its own."""
    needs: Literal["", "instances", "distributions", "shown_first"] = ""
    """The field of ``Grid`` without which there is nothing to count."""

    def tally(self, grid: Grid) -> Tally | None:
        """What is counted in a grid; None where the metric does not apply."""
        needed = getattr(grid, self.needs) if self.needs else None
        is_there = not self.needs or (needed is not None and len(needed) > 0)
        return self.count(grid) if is_there else None


METRICS: dict[str, Metric] = {}  # The metrics that are counted

DESCRIPTIONS: dict[str, Metric] = {}
"""These and their other names, in the order in which tables show them."""


def metric(view: View, label: str, meaning: str, **options: Any) -> Callable[[Count], Count]:
    """Register a function as the metric of its name, with the other fields of ``Metric``.

    It appears in the tables, the report and the docs. A name that is taken raises.
    """

    def register(count: Count) -> Count:
        name = count.__name__
        if name in DESCRIPTIONS:
            raise ValueError(f"there is a metric '{name}' already")
        made = Metric(count=count, view=view, label=label, meaning=meaning, **options)
        DESCRIPTIONS[name] = METRICS[name] = made
        return count

    return register


def label_of(name: str) -> str:
    """The label of a metric; without a description, its name in words."""
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name].label
    return name.replace("_", " ").capitalize()


def short_label_of(name: str) -> str:
    """The label of a metric on a narrow screen."""
    return (name in DESCRIPTIONS and DESCRIPTIONS[name].short) or label_of(name)


def headline_metrics(*, aliases: bool = False) -> list[str]:
    """The metrics of every table and figure; ``aliases``: with their names on N-M relations."""
    headline = [name for name, metric in DESCRIPTIONS.items() if metric.level == "headline"]
    return [name for name in headline if aliases or not DESCRIPTIONS[name].alias_of]


def main_metrics() -> list[str]:
    """The metrics of tables of one run."""
    return [name for name, description in DESCRIPTIONS.items() if description.level != "detail"]
