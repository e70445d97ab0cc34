"""Differences between the languages of a run, with the intervals and tests of ``differences``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import get_args

import numpy as np
import polars as pl

from consilience.choices import Protocol
from consilience.design import BETWEEN, OF_LANGUAGE, WITHIN, Design
from consilience.metrics.counts import Prepared, name_of, prepared_seeds
from consilience.metrics.differences import CountBoth, PairedComparison, Seeds
from consilience.metrics.grid import Bools, Grid
from consilience.metrics.registry import METRICS, Metric
from consilience.metrics.significance import benjamini_hochberg, holm
from consilience.metrics.tally import Tally
from consilience.metrics.weighing import Key
from consilience.schemas import COMPARISON_SCHEMA
from consilience.types import Cardinality, Relation, Suite


def compare_languages(
    answers: Seeds, suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """Compare every two languages of a run on the same facts (``COMPARISON_SCHEMA``).

    ``first`` and ``second`` are languages; of the last comparison, the pairs of patterns within
    languages and between them. A metric of one pattern, such as accuracy, is that of the first
    pattern in each language. A fact counts where both languages have the number, so facts without
    an answer in one of them are excluded from both. ``p_holm`` and ``q_value`` adjust over the
    pairs of languages of one metric and group.
    """
    seeds = prepared_seeds(answers, suite)
    languages = list(dict.fromkeys(name for group in suite for name in group.design.languages))
    rows: list[dict[str, object]] = []
    for first, second in [*combinations(languages, 2), (WITHIN, BETWEEN)]:
        pair = {"suite": suite.name, "first": first, "second": second}
        for kind in get_args(Cardinality):
            if seeds[0].of_kind(kind):
                runs = [(run, run) for run in seeds]
                compared = PairedComparison(runs, kind, protocol, seed, _counter(first, second))
                rows += [{**pair, **row} for row in compared.rows()]
    return _adjusted(pl.DataFrame(rows, schema=COMPARISON_SCHEMA))


def _counter(first: str, second: str) -> CountBoth:
    """What counts the metrics of two languages, or of the pairs within and between languages."""

    def count_both(
        run: Prepared, _: Prepared, relation: Relation, protocol: Protocol
    ) -> tuple[Mapping[Key, Tally], Mapping[Key, Tally], bool]:
        views = run.views(relation, run.rows_of(relation), protocol)
        tallies: tuple[dict[Key, Tally], dict[Key, Tally]] = {}, {}
        for metric_name, metric in METRICS.items():
            grids = [
                _only(views[metric.view], relation.design, metric, side) for side in (first, second)
            ]
            both = [metric.count(grid) for grid in _on_same_items(metric, grids)]
            for side, tally in zip(tallies, both, strict=False):
                if tally is not None:
                    side[name_of(metric_name, relation.cardinality), "all"] = tally
        return *tallies, False

    return count_both


def _only(grid: Grid, design: Design, metric: Metric, side: str) -> Grid | None:
    """The part of a group that a metric counts of a language; None where there is none."""
    if metric.one_form:
        return grid.only_variants(design.languages[side]) if side in design.languages else None
    kind = side if side in (WITHIN, BETWEEN) else OF_LANGUAGE + side
    if metric.by_form and kind in design.kinds:
        return grid.only_pairs(design.kinds[kind])
    return None


def _on_same_items(metric: Metric, grids: Sequence[Grid | None]) -> list[Grid]:
    """Both grids with the answers to items that have a number in both; [] if one is missing."""

    def counts(grid: Grid) -> Bools:
        return grid.taken[:, 0] if metric.one_form else grid.n_both > 0

    known = [grid for grid in grids if grid is not None]
    if len(known) < 2:
        return []
    has_number = (counts(known[0]) & counts(known[1]))[:, None]
    return [replace(grid, answers=np.where(has_number, grid.answers, -1)) for grid in known]


def _adjusted(table: pl.DataFrame) -> pl.DataFrame:
    """The table with p adjusted over the pairs of languages, of each metric and group."""
    family = ["metric", "group", pl.col("first") == WITHIN]

    def over_family(adjust: Callable[[Sequence[float]], list[float]]) -> pl.Expr:
        values = pl.col("p").map_batches(lambda p: pl.Series(adjust(p.to_list())), pl.Float64)
        return values.over(family)

    return table.with_columns(p_holm=over_family(holm), q_value=over_family(benjamini_hochberg))
