"""Answers of one group as a grid (item, variant), the way each protocol counts them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.types import Protocol, Relation

Bools = npt.NDArray[np.bool_]

View = Literal["tuples", "pairs"]
"""``tuples`` is what accuracy is counted on, ``pairs`` what agreement is counted on."""

VOWELS = ("a", "e", "i", "o", "u")


@dataclass(frozen=True, slots=True)
class Grid:
    """Answers and golds as codes (item, variant); ``answers`` is -1 where there is none.

    ``pairs`` (pair, 2): the variants that are compared.
    """

    answers: npt.NDArray[np.int64]
    golds: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]

    @property
    def taken(self) -> Bools:
        """Whether there is an answer (item, variant)."""
        taken: Bools = self.answers >= 0
        return taken

    @property
    def right(self) -> Bools:
        """Whether the answer is the gold (item, variant)."""
        right: Bools = self.taken & (self.answers == self.golds)
        return right

    @property
    def asked(self) -> Bools:
        """Whether any item was answered in the variant (variant,)."""
        return any_of(self.taken, axis=0)

    @property
    def complete(self) -> Bools:
        """Whether the item was answered in every variant that was asked at all (item,)."""
        asked = self.asked
        return all_of(self.taken[:, asked], axis=1) & asked.any()

    def pairs_of(self, kinds: list[tuple[int, int]]) -> Grid:
        """The same answers with other pairs to compare."""
        return Grid(self.answers, self.golds, np.array(kinds, dtype=np.int64).reshape(-1, 2))


def any_of(values: Bools, axis: int) -> Bools:
    """Whether any value along ``axis`` is true."""
    found: Bools = np.logical_or.reduce(values, axis=axis)
    return found


def all_of(values: Bools, axis: int) -> Bools:
    """Whether all values along ``axis`` are true."""
    found: Bools = np.logical_and.reduce(values, axis=axis)
    return found


def grids(answers: pl.DataFrame, relation: Relation, protocol: Protocol) -> dict[View, Grid]:
    """The two views of one group's answers, rows in their order of appearance.

    ``strict``: every tuple (subject, gold) once, for both views.

    ``published``, as the released evaluation has it: accuracy over all rows; agreement over
    subjects, of which the last row wins, without the variants whose article before the object does
    not fit the gold.
    """
    if protocol == "strict":
        once = answers.unique(["subject", "gold", "variant_index"], keep="first")
        grid = _grid(once, pl.concat_str("subject", "gold", separator="\t"), relation)
        return {"tuples": grid, "pairs": grid}
    fitting = answers.with_columns(
        answer=pl.when(_article_fits(relation)).then("answer").otherwise(None)
    )
    return {
        "tuples": _grid(answers, pl.col("item"), relation),
        "pairs": _grid(fitting, pl.col("subject"), relation),
    }


def _grid(answers: pl.DataFrame, key: pl.Expr, relation: Relation) -> Grid:
    items = _codes(answers.select(key).to_series())
    both = _codes(pl.concat([answers["answer"], answers["gold"].alias("answer")]))
    variants = answers["variant_index"].to_numpy()
    shape = (int(items.max(initial=-1)) + 1, len(relation.patterns))
    codes = {"answers": both[: answers.height], "golds": both[answers.height :]}
    filled: dict[str, npt.NDArray[np.int64]] = {}
    for name, values in codes.items():
        # Of rows with the same item and variant the last one stays.
        filled[name] = np.full(shape, -1, dtype=np.int64)
        filled[name][items, variants] = values
    pairs = list(combinations(range(shape[1]), 2))
    return Grid(filled["answers"], filled["golds"], np.array(pairs, dtype=np.int64).reshape(-1, 2))


def _codes(values: pl.Series) -> npt.NDArray[np.int64]:
    """A number for each distinct text, -1 for null."""
    codes = values.rank("dense").cast(pl.Int64) - 1
    return codes.fill_null(-1).to_numpy()


def _article_fits(relation: Relation) -> pl.Expr:
    """Whether the word before ``[Y]``, if ``a`` or ``an``, fits the gold.

    The released code looks at the first letter of the gold as it stands in the vocabulary: with
    the mark of a leading blank that RoBERTa's and ALBERT's tokens begin with, no gold starts with a
    vowel (``docs/footguns.md``). ``gold_token`` holds that form; without it the gold itself counts.
    """
    wrong = {"a": True, "an": False}
    articles = [pattern.article for pattern in relation.patterns]
    form = pl.coalesce("gold_token", "gold").str.to_lowercase()
    vowel = pl.any_horizontal(*(form.str.starts_with(each) for each in VOWELS))
    unfit = [
        (pl.col("variant_index") == index) & (vowel == wrong[article])
        for index, article in enumerate(articles)
        if article is not None
    ]
    return ~pl.any_horizontal(*unfit) if unfit else pl.lit(True)
