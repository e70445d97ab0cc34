"""Flips: which answers differ between two runs of the same items, and in which direction."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from consilience.analysis.examples import golds_of
from consilience.metrics.counts import Prepared
from consilience.metrics.differences import MCNEMAR, SUBJECTS
from consilience.metrics.errors import estimates
from consilience.metrics.registry import Clusters, Tally, as_labels
from consilience.metrics.statistics import holm, mcnemar, paired_permutation

QUERY = ("group", "item", "variant")
LOST, WON, MOVED = KINDS = ("right to wrong", "wrong to right", "wrong to wrong")
SAME = "same"

FLIP_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("first", "second", "over", "level"), pl.String),
    **dict.fromkeys(("changed", "low", "high", *KINDS), pl.Float64),
    "test": pl.String,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    **dict.fromkeys(("n", "items", "items_changed"), pl.Int64),
}
"""One row a part of the answers that two runs share.

- ``over``, ``level``: ``all``; a ``group``; a level of a factor; a ``form`` of sentence pairs.
- ``changed``: share of the ``n`` answers that differ, with the bounds of its 95 % interval over
  subjects; then the share of each kind of flip, which a change between two right answers is
  not. What is no option, or no answer, is wrong, and the same in both runs.
- ``p``: two-sided, of ``test``: are ``right to wrong`` and ``wrong to right`` equally frequent?
  Answers to one subject are not independent, so each subject counts once: the signs of the
  subjects' differences are flipped, all of them where there are few. With one answer a subject
  that is the exact test of McNemar (1947). ``p_holm``: adjusted over the levels of one ``over``.
- ``items``, ``items_changed``: how many, and how many differ in a variant.
"""


def paired_answers(first: Prepared, second: Prepared) -> pl.DataFrame:
    """A row for each query that both were asked: ``QUERY, subject, gold, first, second, flip``."""
    one, two = (_outcomes(run) for run in (first, second))
    both = one.join(two.select(*QUERY, "answer", "code", "right"), on=QUERY, maintain_order="left")
    flip = (
        pl.when(pl.col("code").eq_missing(pl.col("code_right"))).then(pl.lit(SAME))
        .when(pl.col("right") & pl.col("right_right")).then(pl.lit("right to right"))
        .when("right").then(pl.lit(LOST))
        .when("right_right").then(pl.lit(WON))
        .otherwise(pl.lit(MOVED))
    )  # fmt: skip
    named = (pl.col("answer").alias("first"), pl.col("answer_right").alias("second"))
    return both.select(*QUERY, "subject", "gold", *named, flip.alias("flip"))


def _outcomes(run: Prepared) -> pl.DataFrame:
    """The answers of a run, their ``code`` to compare, and if ``right``; in N-M one a subject.

    The code is the text of an option or a label, in whatever order a run has them, or of an open
    answer. It is null of an answer that is none of the options or labels, and without an answer.
    """
    tables, golds = [], golds_of(run)
    is_asked = pl.col("answer").is_not_null() | pl.col("excluded").is_null()
    for group in run.relations:
        rows = run.rows(group.id).filter(is_asked)
        coded = as_labels(rows, group.design)
        right = (coded["answer"] == coded["gold"]).fill_null(value=False)
        code = pl.when(coded["answer"].is_not_null()).then("answer")
        kept = rows.select(*QUERY, "subject", "gold", "answer", code=code, right=right)
        if group.cardinality == "N-M":
            own = golds.filter(group=group.id).group_by("subject").agg(all=pl.col("gold").sort())
            first = pl.col("answer", "code").drop_nulls().first().over("subject", "variant")
            kept = kept.with_columns(pl.col("item").first().over("subject"), first)
            kept = kept.unique(("subject", "variant"), keep="first", maintain_order=True)
            kept = kept.join(own, on="subject", maintain_order="left").with_columns(
                gold=pl.col("all").list.join("|"),
                right=pl.col("answer").is_in("all").fill_null(value=False),
            ).drop("all")  # fmt: skip
        tables.append(kept)
    return pl.concat(tables)


def flip_rows(
    pair: tuple[Prepared, Prepared], first: str, second: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The numbers of two runs (``FLIP_SCHEMA``) on all answers and each part, and the flips."""
    table = paired_answers(*pair)
    rows = [
        {"first": first, "second": second, "over": over, "level": level, **_numbers(part)}
        for over, level, part in _parts(table, pair[0])
    ]
    p_holm = pl.col("p").map_batches(lambda of: pl.Series(holm(of.to_list())), pl.Float64)
    numbers = pl.DataFrame(rows, FLIP_SCHEMA).with_columns(p_holm=p_holm.over("over"))
    names = pl.lit(first).alias("first run"), pl.lit(second).alias("second run")
    return numbers, table.filter(pl.col("flip") != SAME).select(*names, pl.all())


def _parts(table: pl.DataFrame, run: Prepared) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """All answers, each group, and each level of what differs between variants."""
    yield "all", "", table
    names: dict[tuple[str, str], dict[str, str]] = {}
    groups = [relation.id for relation in run.relations]
    for relation in run.relations:
        design = relation.design
        for at, variant in enumerate(design.variants):
            names[relation.id, variant] = {name: of[at] for name, of in design.levels.items()}
    for group in groups if len(groups) > 1 else []:
        if (rows := table.filter(group=group)).height:
            yield "group", group, rows
    keys = table.select("group", "variant").rows()
    for factor in dict.fromkeys(name for levels in names.values() for name in levels):
        levels = pl.Series([names[key].get(factor) for key in keys], dtype=pl.String)
        known = levels.drop_nulls().unique(maintain_order=True)
        for level in known if len(known) > 1 else []:
            yield factor, level, table.filter((levels == level).fill_null(value=False))


def _numbers(table: pl.DataFrame) -> dict[str, object]:
    """The numbers of one row of paired answers."""
    flips, clusters = table["flip"], Clusters.of(table["subject"])
    hits = {"changed": flips != SAME} | {kind: flips == kind for kind in KINDS}
    tallies = {
        kind: Tally.of_values(clusters, of.cast(pl.Float64).to_numpy()) for kind, of in hits.items()
    }
    of = estimates(tallies)
    net = pl.Series(tallies[WON].scores[:, 0] - tallies[LOST].scores[:, 0])
    by_subject = table.select("subject", net=net).group_by("subject").agg(pl.col("net").sum())
    net = by_subject.sort("subject")["net"]
    test, p = SUBJECTS, paired_permutation(net.to_list())
    if len(net) == table.height > 0:
        test, p = MCNEMAR, mcnemar(int((net < 0).sum()), int((net > 0).sum()))
    items = table.group_by("group", "item").agg(moved=(pl.col("flip") != SAME).any())
    return {
        "changed": of["changed"].value, "low": of["changed"].low, "high": of["changed"].high,
        **{kind: of[kind].value for kind in KINDS},
        "test": test, "p": p, "n": of["changed"].n, "items": items.height,
        "items_changed": int(items["moved"].sum()),
    }  # fmt: skip
