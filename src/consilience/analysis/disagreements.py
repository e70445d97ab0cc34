"""Items whose variants get different answers, and which two variants those are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from consilience.choices import Protocol
from consilience.metrics.counts import Answers, prepared
from consilience.metrics.grid import Grid
from consilience.types import Relation, Suite

AGREEMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    "item": pl.String,
    "same": pl.Int64,
    "pairs": pl.Int64,
    "first": pl.String,
    "second": pl.String,
}
"""One row an item.

- ``same``: pairs of variants that get the same answer, as the metric ``consistency`` counts them.
- ``pairs``: pairs of variants that are compared and have both answers.
- ``first``, ``second``: the first two variants with different answers; null where all agree.
"""


def item_agreement(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """How many pairs of variants of each item agree (``AGREEMENT_SCHEMA``).

    Items that count once, such as a fact in two rows, share their numbers.
    """
    ready = prepared(answers, suite)
    tables = [pl.DataFrame(schema=AGREEMENT_SCHEMA)]
    for relation, rows in ready.relations:
        grid = ready.views(relation, rows, protocol)["pairs"]
        of_row = rows.select("item", key=_key(relation, protocol)).unique(maintain_order=True)
        counted = _counted(grid, relation, of_row["key"].unique().sort())
        table = of_row.join(counted, on="key", how="left", maintain_order="left")
        tables.append(table.select(pl.lit(relation.id).alias("group"), *list(AGREEMENT_SCHEMA)[1:]))
    return pl.concat(tables)


def _key(relation: Relation, protocol: Protocol) -> pl.Expr:
    """What identifies a row of the grid of pairs (``metrics.grid.grids``)."""
    if relation.design.unit == "item":
        return pl.col("item")
    if protocol == "strict":
        return pl.concat_str("subject", "gold", separator="\t")
    return pl.col("subject")


def _counted(grid: Grid, relation: Relation, keys: pl.Series) -> pl.DataFrame:
    """The numbers of a group's items; ``keys``: those of the rows of the grid, in order."""
    first, second = _first_difference(grid)
    names = pl.Series([*relation.design.variants, None], dtype=pl.String)  # -1 is None
    return pl.DataFrame(
        {
            "key": keys,
            "same": grid.n_same,
            "pairs": grid.n_both,
            "first": names.gather(np.where(first < 0, len(names) - 1, first)),
            "second": names.gather(np.where(second < 0, len(names) - 1, second)),
        },
        schema_overrides={"same": pl.Int64, "pairs": pl.Int64},
    )


def _first_difference(grid: Grid) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first two compared variants with different answers (item,) each; -1 for none.

    Where every two variants are compared, it is the first one with an answer, and the next one
    with another answer.
    """
    items = np.arange(len(grid.answers))
    if grid.compared is None:
        first = grid.taken.argmax(axis=1)
        differs = grid.taken & (grid.answers != grid.answers[items, first][:, None])
        second = differs.argmax(axis=1)
    else:
        differs = grid.both & ~grid.same
        first, second = grid.pairs[differs.argmax(axis=1)].T if len(grid.pairs) else (items, items)
    is_different = differs.any(axis=1)
    return np.where(is_different, first, -1), np.where(is_different, second, -1)


DISAGREEMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    **AGREEMENT_SCHEMA,
    "first_answer": pl.String,
    "second_answer": pl.String,
    "gold": pl.String,
}
"""``AGREEMENT_SCHEMA`` with the answers in the two variants, and the right answer."""


def disagreements(answers: Answers, suite: Suite, protocol: Protocol) -> pl.DataFrame:
    """The items with two different answers (``DISAGREEMENT_SCHEMA``), least consistent first."""
    ready = prepared(answers, suite)
    items = item_agreement(ready, suite, protocol).drop_nulls("first")
    rows = ready.table.select("group", "item", "variant", "answer", "gold")
    for side in ("first", "second"):
        of_side = rows.rename({"variant": side, "answer": f"{side}_answer"})
        keys = ["group", "item", side]
        items = items.join(of_side.select(*keys, f"{side}_answer"), on=keys, how="left")
    golds = rows.select("group", "item", "gold").unique()
    items = items.join(golds, on=["group", "item"], how="left")
    return items.select(*DISAGREEMENT_SCHEMA).sort(
        pl.col("same") / pl.col("pairs"), "group", "item"
    )
