"""What a metric reads, a grid of answers; what it counts, a tally; and the registry of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.core.errors import Protocol
from consilience.core.factors import LETTERS, Counted, Design, VariantPair
from consilience.core.items import Bools, Floats, Ints
from consilience.core.schemas import WAS_ASKED
from consilience.metrics.statistics import NAN, TIE
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


OPTION_SCORES = "option_scores"  # The column with the score of each option, in the file's order

SUM_TOLERANCE = 1e-3  # How far from 1 a sum of probabilities may be, such as that of rounded ones


def option_probabilities(table: pl.DataFrame) -> Floats:
    """The probability of each option (row, option), NaN where unknown, 0 after the last option.

    The scores of a row are normalised over its options (softmax). An option without a score has
    the probability that the others leave: 0 where theirs sum to 1, else the row is unknown.
    """
    lists = table[OPTION_SCORES].cast(pl.List(pl.Float64))
    sizes = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    scores = np.full((len(lists), int(sizes.max(initial=0))), -np.inf)
    values = lists.filter(sizes > 0).explode().fill_null(np.nan).to_numpy()
    scores[np.arange(scores.shape[1]) < sizes[:, None]] = values
    lacking = np.isnan(scores)
    scores[lacking] = -np.inf
    best = scores.max(axis=1, initial=-np.inf)
    known = np.isfinite(best)
    weights = np.exp(scores - np.where(known, best, 0)[:, None])
    sums = weights.sum(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        is_whole = np.abs(sums * np.exp(best) - 1) < SUM_TOLERANCE
    known &= is_whole | ~lacking.any(axis=1)
    probabilities: Floats = np.where(
        known[:, None], weights / np.where(known, sums, 1)[:, None], np.nan
    )
    return probabilities


View = Literal["tuples", "pairs"]  # Accuracy is counted on ``tuples``, agreement on ``pairs``

ENOUGH = range(4, 101)
"""How many phrasings show how much a number would change with others."""

Kept = npt.NDArray[np.float32]  # 1 where a variant is kept, else 0 (level, variant)

MOST_RECOUNTED = 2**22  # Answers of a group up to which it is counted without each phrasing

ITEMS = 256  # Items whose answers in all pairs of variants are in memory at once


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """What is independent: the cluster of each unit. Units of one cluster are not."""

    names: npt.NDArray[np.object_]  # The distinct clusters, sorted (cluster,)
    places: Ints  # The position of each unit's cluster (unit,)

    @classmethod
    def of(cls, names: Iterable[str]) -> Clusters:
        """Those of the name of each unit's cluster."""
        distinct, places = np.unique(np.array([*names], dtype=np.object_), return_inverse=True)
        return cls(distinct, places.reshape(-1))

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """The sums over the units of each cluster (cluster, ...) of ``values`` (unit, ...)."""
        size = len(self.names)
        if values.ndim == 1:
            return np.bincount(self.places, values, minlength=size).astype(np.float64)
        columns = [np.bincount(self.places, of, minlength=size) for of in values.T]
        return np.stack(columns, axis=1) if columns else np.zeros((size, 0))


@dataclass(frozen=True, eq=False)
class Grid:
    """Answers and golds of a group as codes, with the scores of its run where there are any."""

    answers: Ints
    """The answer (item, variant); -1 for none, and for a text that is none of the options."""
    golds: Ints  # The gold (item, variant); -1 where the item does not have the variant
    asked: Bools
    """Whether the item was asked in the variant (item, variant). What was asked and has no answer
    counts as a wrong answer that agrees with nothing."""
    compared: Ints | None  # The variants that are compared (pair, 2); None if every two are
    subjects: Clusters  # The subject of each item
    texts: Sequence[str] = ()  # The text of each code
    positive: int = -1  # The code of the label whose F1 is counted; -1 for none
    may_have_none: bool = False  # Whether an answer may be none of the options
    least: int = 1  # In how many variants an item has to be right, of a metric ``by_count``
    instances: Counted = ()  # The instances of each expectation of the group
    logprob: Floats | None = None  # Of the answer (item, variant); NaN where it is not known
    is_ragged: bool = False  # Whether an item may lack variants (``Design.is_ragged``)
    has_base: bool = True  # Whether there is a base variant (``Design.has_base``)
    by_pair: bool = False
    """Whether every pair of variants counts once, as in the released code; else every item does,
    and a pair as the share that it is of the pairs of its item."""
    phrasings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The phrasing of each variant by the factor, of the factors that are a sample."""
    places: Places | None = None  # Where options are shown; None but of questions with options
    orders: Ints | None = None  # The pairs of variants (pair, 2) that differ in the order alone
    distributions: Floats | None = None
    """The probability of each option (item, variant, option); None of a run without scores of
    options, NaN where an answer has none, and 0 after the last option of an item."""

    @cached_property
    def right(self) -> Bools:
        """Whether the answer is the gold (item, variant)."""
        return np.asarray(self.asked & (self.answers >= 0) & (self.answers == self.golds))

    @cached_property
    def used(self) -> Bools:
        """Whether any item was asked in the variant (variant,)."""
        return np.asarray(np.any(self.asked, axis=0))

    @cached_property
    def lacking(self) -> Bools:
        """Whether the item has no such variant, in a suite where items may lack some (item, v)."""
        return np.asarray((self.golds < 0) & ~self.asked & self.is_ragged)

    @property
    def complete(self) -> Bools:
        """Whether the item was asked in every variant that it has (item,)."""
        there = self.asked | self.lacking
        return np.asarray(np.all(there, axis=1) & np.any(self.asked, axis=1))

    @property
    def always_right(self) -> Bools:
        """Whether the item is right in every variant that it has (item,)."""
        return np.asarray(np.all(self.right | self.lacking, axis=1) & np.any(self.right, axis=1))

    @cached_property
    def pairs(self) -> Ints:
        """The variants that are compared (pair, 2)."""
        if self.compared is not None:
            return self.compared
        return np.stack(np.triu_indices(self.answers.shape[1], 1), axis=1)

    @property
    def left_out(self) -> int:
        """How many queries were not asked, of the variants that items have."""
        return int((~self.asked & ~self.lacking).sum())

    @cached_property
    def is_compared(self) -> Floats:
        """1 for two variants that are compared, else 0 (variant, variant)."""
        size = self.answers.shape[1]
        if self.compared is None:
            return 1 - np.eye(size)
        matrix = np.zeros((size, size))
        first, second = self.compared.T
        matrix[first, second] = matrix[second, first] = 1
        return matrix

    @cached_property
    def both(self) -> Bools:
        """Whether the item was asked in both variants of a pair (item, pair)."""
        first, second = self.pairs.T
        return self.asked[:, first] & self.asked[:, second]

    @cached_property
    def same(self) -> Bools:
        """Whether both answers of a pair are there and the same (item, pair)."""
        (first, second), same = self.pairs.T, self.both.copy()
        for start in range(0, len(same), ITEMS):
            answers = self.answers[start : start + ITEMS]
            equal = (answers[:, first] == answers[:, second]) & (answers[:, first] >= 0)
            same[start : start + ITEMS] &= equal
        return same

    @cached_property
    def n_pairs(self) -> Ints:
        """How many compared pairs of variants an item has, asked or not (item,)."""
        return self._pairs_in(~self.lacking)

    @cached_property
    def n_both(self) -> Ints:
        """How many pairs of an item were asked in both variants (item,)."""
        return self._pairs_in(self.asked)

    def _pairs_in(self, there: Bools) -> Ints:
        if self.compared is None:
            size = there.sum(axis=1)
            return np.asarray(size * (size - 1) // 2)
        first, second = self.compared.T
        return np.asarray((there[:, first] & there[:, second]).sum(axis=1))

    @cached_property
    def n_same(self) -> Ints:
        """How many pairs of an item have the same answer twice (item,)."""
        if self.compared is not None:
            return np.asarray(self.same.sum(axis=1))
        answers = np.sort(np.where(self.asked, self.answers, -1), axis=1)
        place = np.arange(answers.shape[1])
        is_first = np.diff(answers, axis=1, prepend=-2) != 0
        first = np.maximum.accumulate(np.where(is_first, place, 0), axis=1)
        return np.asarray(((place - first) * (answers >= 0)).sum(axis=1))

    @cached_property
    def votes(self) -> Floats:
        """How much each pair of an item counts (item,): 1 by pair, else one over its pairs."""
        if self.by_pair:
            return np.ones(len(self.answers))
        return np.asarray(1 / np.maximum(self.n_both, 1))

    def shares_of(self, agree: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """The sum of ``agree`` over the compared pairs of an item, times its vote (item,).

        ``agree``: how often two variants agree (variant, variant). ``rows``: the items.
        """
        asked = self.asked[rows].astype(np.float64)
        sums = ((asked @ (agree * self.is_compared)) * asked).sum(axis=1) / 2
        return np.asarray(sums * self.votes[rows])

    def only_variants(self, variants: Sequence[int]) -> Grid:
        """Only these variants, and every pair of them."""
        chosen = list(variants)
        return replace(
            self,
            answers=self.answers[:, chosen],
            golds=self.golds[:, chosen],
            asked=self.asked[:, chosen],
            compared=None,
            orders=None,
            phrasings={name: [of[at] for at in chosen] for name, of in self.phrasings.items()},
            places=None if self.places is None else self.places.only_variants(chosen),
            logprob=None if self.logprob is None else self.logprob[:, chosen],
            distributions=None if self.distributions is None else self.distributions[:, chosen],
        )

    def only_pairs(self, pairs: Sequence[VariantPair]) -> Grid:
        """Only these pairs and the variants in them."""
        variants, places = np.unique(np.array(pairs, dtype=np.int64), return_inverse=True)
        every = self.only_variants(variants.tolist())
        is_every = len(pairs) == len(variants) * (len(variants) - 1) // 2
        return every if is_every else replace(every, compared=places.reshape(-1, 2))

    @cached_property
    def masks(self) -> Mapping[tuple[str, str], Bools]:
        """The variants without a phrasing (variant,), by its factor and level.

        Nothing unless each factor that is a sample has ``ENOUGH`` with equally many variants. Those
        that are drawn for each item count whether they were asked or not: other groups have others.
        """
        kept: dict[tuple[str, str], Bools] = {}
        is_counted = self.used | (not self.has_base)
        for name, levels in self.phrasings.items():
            of = np.array(levels)
            different, sizes = np.unique(of[is_counted], return_counts=True)
            is_uneven = self.has_base and len({*sizes.tolist()}) > 1
            if len(different) not in ENOUGH or is_uneven or self.answers.size > MOST_RECOUNTED:
                return {}
            kept |= {(name, level): of != level for level in np.unique(of[self.used]).tolist()}
        return kept

    def only_where(self, kept: Bools) -> Grid:
        """Only the variants that are kept (variant,), and the pairs of two of them."""
        place = np.cumsum(kept) - 1

        def pairs(of: Ints | None) -> Ints | None:
            return None if of is None else np.asarray(place[of[kept[of].all(axis=1)]])

        rest = self.only_variants(np.flatnonzero(kept).tolist())
        return replace(rest, compared=pairs(self.compared), orders=pairs(self.orders))

    def votes_among(self, kept: Kept) -> tuple[Floats, Floats]:
        """The votes of the pairs of variants that agree, and of all (level, item)."""
        first, second = self.pairs.T
        pairs = kept[:, first] * kept[:, second]
        same, both = np.zeros((2, len(kept), len(self.answers)))
        for start in range(0, len(self.answers), ITEMS):
            rows = slice(start, start + ITEMS)
            answers, asked = self.answers[rows].T, self.asked[rows].T
            are_asked = asked[first] & asked[second]
            agree = are_asked & (answers[first] == answers[second]) & (answers[first] >= 0)
            same[:, rows], both[:, rows] = pairs @ agree, pairs @ are_asked
        votes = 1.0 if self.by_pair else 1 / np.maximum(both, 1)
        return same * votes, both * votes

    def only_expectations(self, kind: str) -> Grid:
        """Only the instances of expectations of that kind."""
        instances = tuple(of for of in self.instances if of[0].expectation.kind == kind)
        return replace(self, instances=instances)

    def with_distributions_of(self, other: Grid) -> Grid:
        """Only the distributions (item, variant) of which the other run has some, too."""
        mine, theirs = self.distributions, other.distributions
        if mine is None or theirs is None:
            return self
        lost = np.isnan(theirs).all(axis=2, keepdims=True) & np.isfinite(mine)
        return replace(self, distributions=np.where(lost, np.nan, mine)) if lost.any() else self


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """At which position each option of a question is shown in each variant."""

    sizes: Ints  # How many options a question has (item,)
    orders: Ints  # The number of its order (item, variant); -1 where it has no such variant
    positions: Ints  # Where each option is shown in each order (order, option); -1 for none

    def __len__(self) -> int:
        return len(self.sizes)

    def options_at(self, place: Ints | int) -> Ints:
        """The option shown at a place, which may differ by item (item, 1): (item, variant)."""
        options = np.full_like(self.positions, -1)
        orders, of = np.nonzero(self.positions >= 0)
        options[orders, self.positions[orders, of]] = of
        return np.where(self.orders >= 0, options[self.orders, place], -1)

    def only_variants(self, chosen: Sequence[int]) -> Places:
        return Places(self.sizes, self.orders[:, chosen], self.positions)

    def of(self, options: Ints) -> Ints:
        """Where the options (item, variant) are shown (item, variant); -1 for -1."""
        is_known = (options >= 0) & (self.orders >= 0)
        return np.where(is_known, self.positions[self.orders, np.maximum(options, 0)], -1)


def grids(answers: pl.DataFrame, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
    """The two views of one group's answers, whatever the order of rows: facts as in the suite.

    ``strict``: every tuple (subject, gold) once, of a task every item, for both views.

    ``published``, as the released evaluation has it: accuracy over all rows; agreement over
    subjects, of which the last row wins, without the variants whose article before the object does
    not fit the gold; every pair of variants counts once.
    """
    design, item = relation.design, pl.col("item")
    answers = as_labels(answers, design).with_columns(asked=WAS_ASKED)
    places = {fact.item: at for at, fact in enumerate(relation.facts)}
    place = item.cast(pl.String).replace_strict(places, default=None, return_dtype=pl.Int64)
    answers = answers.sort(place, nulls_last=True, maintain_order=True) if places else answers
    words = design.labels
    if not words:
        column = pl.concat([answers["answer"].unique(), answers["gold"].unique().alias("answer")])
        words = tuple(column.drop_nulls().unique().sort().cast(pl.String))
    if design.unit != "item" and protocol == "published":
        fitting = answers.with_columns(asked=pl.col("asked") & article_fits(relation))
        pairs = grid_of(fitting, pl.col("subject"), design, words)
        tuples = grid_of(answers, item, design, words)
        return {"tuples": tuples, "pairs": replace(pairs, by_pair=True)}
    if design.unit != "item":
        answers = answers.unique(["subject", "gold", "variant_index"], keep="first")
        item = pl.concat_str("subject", "gold", separator="\t")
    grid = grid_of(answers, item, design, words)
    if design.labels:
        positive = words.index(design.positive) if design.positive else -1
        grid = replace(grid, positive=positive)
    if design.by_option:
        orders = np.array(design.parts.get(("factor", "order"), ()), dtype=np.int64).reshape(-1, 2)
        grid = replace(grid, places=_places(answers, design), orders=orders)
    return {"tuples": grid, "pairs": grid}


def as_labels(answers: pl.DataFrame, design: Design) -> pl.DataFrame:
    """The answers and golds of a design with labels: of options their positions in the file.

    An answer that is no label, or has no position, is null.
    """
    if design.by_option:
        number = pl.col("option", "gold_option").cast(pl.String).cast(pl.Float64, strict=False)
        answer, gold = answers.select(number.cast(pl.Int64).cast(pl.String))
        answers = answers.with_columns(answer=answer, gold=gold)
    is_label = pl.col("answer").cast(pl.String).is_in([*design.labels])
    return (
        answers.with_columns(answer=pl.when(is_label).then("answer")) if design.labels else answers
    )


def _places(answers: pl.DataFrame, design: Design) -> Places:
    """Where the options of the items are shown: in the order of ``shown``, else in the file's.

    The number of options is that of any answer of the item.
    """
    items, names = _numbered(answers["item"])
    orders, letters = _numbered(answers["shown"])
    size = np.array([*map(len, letters)])[orders]
    size = np.maximum(size, answers["n_candidates"].fill_null(0).to_numpy().astype(np.int64))
    sizes = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(sizes, items, size)
    known = sizes[sizes > 0] if (sizes > 0).any() else np.array([len(design.labels)])
    sizes[sizes == 0] = np.bincount(known).argmax()  # of an item without any answer
    of_items = np.full((len(sizes), len(design.variants)), -1, dtype=np.int64)
    of_items[items, answers["variant_index"].to_numpy()] = orders
    width = max(len(design.labels), sizes.max(initial=0))
    positions = np.full((len(letters), width), -1, dtype=np.int64)
    for at, name in enumerate(letters):
        shown = [LETTERS.index(letter) for letter in name or LETTERS[:width]]
        positions[at, shown] = np.arange(len(shown))
    return Places(sizes, of_items, positions)


def _numbered(column: pl.Series) -> tuple[Ints, list[str]]:
    """The number of each category among those in the column, in their order; empty for null."""
    known = column.unique()
    names = known.cast(pl.String).fill_null("")
    codes, all_codes = (
        of.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for of in (known, column)
    )
    numbers = np.zeros(codes.max(initial=-1) + 2, dtype=np.int64)
    numbers[codes] = names.rank("dense").to_numpy() - 1
    return numbers[all_codes], names.sort().to_list()


def grid_of(answers: pl.DataFrame, key: pl.Expr, design: Design, words: Sequence[str]) -> Grid:
    """Answers of the design's variants; ``key`` identifies the items, which are in its order.

    The code of an answer is its position among ``words``.
    """
    code = pl.col("answer", "gold").cast(pl.Enum(words)).to_physical().cast(pl.Int64).fill_null(-1)
    columns = answers.select(
        code, "asked", "variant_index", item=key.cast(pl.String).rank("dense").cast(pl.Int64) - 1
    )
    items, variants = (columns[name].to_numpy() for name in ("item", "variant_index"))
    shape = (int(items.max(initial=-1)) + 1, len(design.variants))

    def filled(values: npt.NDArray[Any], fill: Any) -> npt.NDArray[Any]:
        """Values (row, ...) by item and variant; of several rows of one cell the last one stays."""
        cells = np.full((*shape, *values.shape[1:]), fill, dtype=values.dtype)
        cells[items, variants] = values
        return cells

    asked, logprob = filled(columns["asked"].to_numpy(), False), None
    if "logprob" in answers.columns:
        logprob = filled(answers["logprob"].cast(pl.Float64).to_numpy(), np.nan)
    last = np.empty(shape[0], dtype=np.int64)
    last[items] = np.arange(len(items))
    distributions: Floats | None = None
    has_scores = design.by_option and OPTION_SCORES in answers.columns
    if has_scores and (of_rows := option_probabilities(answers)).size:
        distributions = filled(of_rows, np.nan)
    compared = design.compared
    return Grid(
        np.where(asked, filled(columns["answer"].to_numpy(), -1), -1),
        filled(columns["gold"].to_numpy(), -1),
        asked,
        None if compared is None else np.array(compared, dtype=np.int64).reshape(-1, 2),
        Clusters.of(answers["subject"][last].cast(pl.String)),
        words,
        logprob=logprob,
        is_ragged=design.is_ragged,
        has_base=design.has_base,
        phrasings=design.phrasings,
        distributions=distributions,
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """What a metric counts in a group: a value hits/total, and what each unit contributes to it."""

    scores: Floats
    """What each unit contributes to hits and total (unit, 2), to first order. The columns sum to
    the hits and the total; the value is hits/total, NaN where the total is 0."""
    clusters: Clusters | None
    """The cluster of each unit. None where the contributions do not show how precise the value is,
    as of a maximum."""
    n: int  # How many things were counted
    left_out: int = 0  # How many things were left out, because they were not asked
    sizes: Floats | None = None
    """Of a number above chance, ``sum (a - c) / sum (s - c)``: the s (unit,). In a mean over groups
    numerators and denominators are summed, each over the sum of s. None else: the mean is that of
    the values."""
    leave_one_out: Mapping[tuple[str, str], Tally | None] = field(default_factory=dict, repr=False)
    """That of the other phrasings, by the factor and the level that is left out."""
    has_own_phrasings: bool = False  # Whether other groups have other phrasings: of patterns
    is_proportion: bool = True  # Whether hits are a part of the total, so it ends at 0 and 1

    @classmethod
    def of_hits(cls, clusters: Clusters | None, hits: Bools, counted: Bools) -> Tally:
        """That of ``hits`` among ``counted``, both (unit,) or (unit, thing)."""
        hits, counted = (one[:, None] if one.ndim == 1 else one for one in (hits, counted))
        sums = [(hits & counted).sum(axis=1), counted.sum(axis=1)]
        n = int(counted.sum())
        return cls(np.stack(sums, axis=1, dtype=np.float64), clusters, n, counted.size - n)

    @classmethod
    def of_values(cls, clusters: Clusters, values: Floats, **more: Any) -> Tally:
        """That of the mean of ``values`` (unit,), without those that are NaN."""
        known = ~np.isnan(values)
        n, scores = int(known.sum()), np.stack([np.where(known, values, 0), known], axis=1)
        return cls(scores, clusters, n, len(known) - n, **more)

    @classmethod
    def of_sums(
        cls,
        counts: Floats,
        finish: Callable[[Any], tuple[Any, Any]],
        clusters: Clusters,
        n: int,
        left_out: int = 0,
    ) -> Tally:
        """That of hits and total which ``finish`` makes of the sums of ``counts`` (unit, column).

        The contributions are the gradient at the sums, by a complex step (Squire and Trapp 1998),
        shifted so that they sum to hits and total.
        """
        sums = counts.sum(axis=0)
        steps = finish(sums + 1j * STEP * np.eye(len(sums)))
        scores = counts @ np.stack([np.imag(part) / STEP for part in steps], axis=1)
        scores += (np.array(finish(sums), dtype=np.float64) - scores.sum(axis=0)) / len(counts)
        return cls(scores, clusters, n, left_out, is_proportion=False)

    @property
    def hits(self) -> float:
        return float(self.scores[:, 0].sum())

    @property
    def total(self) -> float:
        """0 for what is left of the ``sizes`` by rounding, as where chance is 1."""
        total = float(self.scores[:, 1].sum())
        rounding = 0.0 if self.sizes is None else TIE * float(self.sizes.sum())
        return total if total > rounding else 0.0

    @property
    def value(self) -> float:
        """hits/total; NaN where the total is 0."""
        return share_of(self.hits, self.total)

    def value_or(self, empty: float) -> float:
        """The value; ``empty`` where the total is 0."""
        return self.value if self.total > 0 else empty


STEP = 1e-30  # Of a complex step


def share_of(hits: float, total: float) -> float:
    """hits/total; NaN where the total is 0, and 0 for hits that are 0 but for rounding."""
    if not total > 0:
        return NAN
    return hits / total if abs(hits) > TIE * total else 0.0


def quotient(hits: npt.NDArray[Any], total: npt.NDArray[Any]) -> Floats:
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
    over_phrasings: bool = False  # Whether it has an interval over phrasings
    among: Callable[[Grid, Kept], tuple[Floats, Floats]] | None = None
    """The hits and totals of items (level, item). None where they depend on other items."""
    by_count: bool = False  # Whether it is of each number of variants, not of the whole
    alias_of: str = ""
    """The metric that has this name on N-M relations; empty for a metric of its own."""
    needs: Literal["answers", "instances", "distributions", "places", "orders"] = "answers"
    """The field of ``Grid`` without which there is nothing to count."""

    def tally(self, grid: Grid) -> Tally | None:
        """What is counted in a grid; None where the metric does not apply."""
        needed = getattr(grid, self.needs)
        return self.count(grid) if needed is not None and len(needed) else None

    def recounted(self, tally: Tally, grid: Grid) -> Tally:
        """The tally of a grid with what is counted without each phrasing."""
        if self.among is None or not grid.masks:
            rest = {key: self.tally(grid.only_where(of)) for key, of in grid.masks.items()}
            return replace(tally, leave_one_out=rest)
        sums = self.among(grid, np.array([*grid.masks.values()], dtype=np.float32))
        scores = zip(grid.masks, np.stack(sums, axis=2, dtype=np.float64), strict=True)
        return replace(tally, leave_one_out={key: replace(tally, scores=of) for key, of in scores})


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


def within(label: str) -> str:
    """The label of a metric within a sentence: F1 and Brier's name keep their capitals."""
    return label if label.startswith(("F1", "Brier")) else label.lower()


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
