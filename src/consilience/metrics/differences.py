"""Paired differences between runs and between answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import polars as pl
from scipy.special import stdtr

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Floats
from consilience.core.schemas import COMPARISON_SCHEMA, OVER_PHRASINGS
from consilience.metrics import uncertainty
from consilience.metrics.measure import (
    Answers,
    CheckedAnswers,
    Key,
    asked_of_all,
    checked_answers,
    count,
    empty_value,
    is_averaged,
)
from consilience.metrics.registry import DESCRIPTIONS, Grid, Tally, View
from consilience.metrics.statistics import (
    LEVEL,
    NAN,
    benjamini_hochberg,
    detectable_difference,
    difference_bounds,
    holm,
    mcnemar,
    paired_permutation,
    sign_flips,
    smallest_p,
)
from consilience.metrics.uncertainty import Estimate, Index, Influences, group_contributions
from consilience.types import Cardinality, Relation, Suite

Both = tuple[Tally, Tally]  # What a metric counts in the first and in the second run
Views = Mapping[View, Grid]


@dataclass(frozen=True, slots=True)
class Sums:
    """Hits and totals of a metric in both runs, of some groups together."""

    hits: tuple[float, float]
    totals: tuple[float, float]

    @classmethod
    def of(cls, pairs: Sequence[Both]) -> Sums:
        one, two = zip(*pairs, strict=True)
        hits, totals = (
            tuple(math.fsum(getattr(tally, name) for tally in side) for side in (one, two))
            for name in ("hits", "total")
        )
        return cls(hits, totals)  # type: ignore[arg-type]

    @property
    def difference(self) -> float:
        """Second minus first; NaN where a total is 0."""
        if min(self.totals) <= 0:
            return NAN
        return self.hits[1] / self.totals[1] - self.hits[0] / self.totals[0]


def subject_contributions(pairs: Sequence[Both], index: Index) -> Floats:
    """What each subject contributes to the difference (subject,), if the true values are equal.

    ``pairs``: of one group, or of several together. With the common value theta = all hits / all
    totals, a run with the total T is off by ``sum_i (h_i - theta t_i) / T``; the difference is that
    of the second run minus that of the first. Nothing where a total is 0.
    """
    of, influences = Sums.of(pairs), Influences(index)
    if min(of.totals) > 0:
        common = sum(of.hits) / sum(of.totals)
        for both in pairs:
            for tally, weight, total in zip(both, (-1, 1), of.totals, strict=True):
                influences.add(0, weight, tally, (1 / total, -common / total, 0.0), total)
    return influences.sums()[1]


MCNEMAR, SUBJECTS = "exact McNemar", "sign flips of subjects"
RELATIONS = "paired permutation of relations"
SHARED = "t over relations that share subjects"


@dataclass(frozen=True, slots=True)
class Test:
    """Which test of a difference, and its two-sided p; NaN without data."""

    name: str | None = None
    p: float = NAN
    p_mid: float = NAN  # Of McNemar's test


def mcnemar_test(pairs: Sequence[Both]) -> Test:
    """McNemar's test of the units that only one run has right; NaN without a difference."""
    if math.isnan(Sums.of(pairs).difference):
        return Test(MCNEMAR)
    moved = [two.scores[:, 0] - one.scores[:, 0] for one, two in pairs]
    first, second = (sum(int((sign * of > 0).sum()) for of in moved) for sign in (-1, 1))
    return Test(MCNEMAR, mcnemar(first, second), mcnemar(first, second, mid=True))


CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("first_accuracy", "second_accuracy"), pl.Float64),
    **dict.fromkeys(("change", "change_low", "change_high", "p", "p_holm"), pl.Float64),
    "n": pl.Int64,
}
"""Accuracy in two variants, over the ``n`` items that were asked in both.

``change`` is the second minus the first, with the bounds of its 95 % interval over subjects. ``p``
is that of McNemar's exact test, two-sided. ``p_holm`` is adjusted over the pairs with the base
variant, and over all other pairs.
"""


def accuracy_changes(grid: Grid) -> pl.DataFrame:
    """A row (``CHANGE_SCHEMA``) for each pair that the grid compares."""
    rows, index = list[tuple[float, ...]](), Index()
    for at, pair in enumerate(grid.pairs):
        one, two = (
            Tally.of_hits(grid.subjects, grid.right[:, of], grid.both[:, at]) for of in pair
        )
        number = uncertainty.of_group([(-1, one), (1, two)], index)
        ends, p = number.interval((-1.0, 1.0)), mcnemar_test([(one, two)]).p
        rows.append((one.value, two.value, number.value, *ends, p, NAN, number.n))
    table = pl.DataFrame(rows, CHANGE_SCHEMA, orient="row")
    with_base = pl.lit(pl.Series((grid.pairs == 0).any(axis=1)))
    return table.with_columns(p_holm=adjusted(holm).over(with_base))


def adjusted(adjust: Callable[[Sequence[float]], list[float]], p: pl.Expr | None = None) -> pl.Expr:
    """The column ``p``, or other p, adjusted together."""
    p = pl.col("p") if p is None else p
    return p.map_batches(lambda of: pl.Series(adjust(of.to_list())), pl.Float64)


def compare(
    models: Mapping[str, Answers], suite: Suite, protocol: Protocol, level: float = LEVEL
) -> pl.DataFrame:
    """Compare runs with the first, on the queries that all were asked (``COMPARISON_SCHEMA``).

    ``models``: the answers of each by its name. ``p_holm`` and ``q_value`` adjust over the groups
    of one metric and part of one comparison, or over the forms of one metric and group. ``level``:
    of the intervals.
    """
    names = list(models)
    if len(names) < 2:
        expected = "two runs or more; the first is the reference"
        raise ConsilienceError(f"{len(names)} run to compare", expected=expected)
    runs = asked_of_all({name: checked_answers(of, suite) for name, of in models.items()})
    (first, *others), tables = runs.values(), []
    for name, other in zip(names[1:], others, strict=True):
        rows = list[dict[str, object]]()
        for kind in get_args(Cardinality):
            rows += _paired_rows(first, other, kind, protocol, level)
        pair = {"first": names[0], "second": name}
        table = pl.DataFrame([{**pair, **row} for row in rows], schema=COMPARISON_SCHEMA)
        tables.append(_adjusted_over_groups(table, suite))
    return pl.concat(tables)


def _paired_rows(
    first: CheckedAnswers,
    second: CheckedAnswers,
    kind: Cardinality,
    protocol: Protocol,
    level: float,
) -> Iterator[dict[str, object]]:
    """A row for each metric of each group of a kind, then for each metric over the groups.

    A group in which nothing is counted has no rows.
    """
    known = {relation.id for relation in second.of_kind(kind)}
    counted: dict[Key, dict[str, Both]] = {}
    averaged: dict[Key, dict[str, Both]] = {}
    for relation in (group for group in first.of_kind(kind) if group.id in known):
        views, others = (run.views(relation, protocol) for run in (first, second))
        one = _tallies(first, relation, protocol, views, others)
        two = _tallies(second, relation, protocol, others, views)
        for key in (key for key in one if key in two):
            counted.setdefault(key, {})[relation.id] = one[key], two[key]
            if is_averaged(key, relation):
                averaged.setdefault(key, {})[relation.id] = one[key], two[key]
    index, tests = Index(), _tests(counted, averaged)
    for key, by_group in counted.items():
        empty = empty_value(key, protocol)
        for group, both in by_group.items():
            number = uncertainty.of_group([*zip((-1, 1), both, strict=True)], index)
            values = [tally.value_or(empty) for tally in both]
            yield _row(key, "group", number, values, tests.get((key, group)), level, group)
        if key in averaged:
            yield from _rows_over(key, averaged[key], tests, index, empty, level)


Tests = Mapping[tuple[Key, str], Test]  # By metric and group; the group "" for all of them


def _tests(
    counted: Mapping[Key, Mapping[str, Both]], averaged: Mapping[Key, Mapping[str, Both]]
) -> Tests:
    """The test of each metric in each group, and of the groups that are averaged together.

    McNemar's of a binary metric, else sign flips of subjects.
    """
    tests: dict[tuple[Key, str], Test] = {}
    by_group: dict[str, dict[Key, list[Both]]] = {}  # Those that are tested by sign flips
    for key, of_groups in counted.items():
        together = [*averaged.get(key, {}).values()]
        every = (tally.scores[:, 0] for both in of_groups.values() for tally in both)
        if DESCRIPTIONS[key[0]].binary and not any((hits % 1).any() for hits in every):
            tests |= {(key, group): mcnemar_test([both]) for group, both in of_groups.items()}
            tests |= {(key, ""): mcnemar_test(together)} if together else {}
        elif all(tally.clusters for both in of_groups.values() for tally in both):
            for group, both in of_groups.items():
                by_group.setdefault(group, {})[key] = [both]
            if together:
                by_group.setdefault("", {})[key] = together
    index = Index()
    for group, pairs in by_group.items():
        every_p = sign_flips([subject_contributions(of, index) for of in pairs.values()])
        for (key, of), p in zip(pairs.items(), every_p, strict=True):
            tests[key, group] = _flip_test(of, p)
    return tests


def _flip_test(pairs: Sequence[Both], p: float) -> Test:
    """The test of a difference from the ``p`` of its sign flips.

    With m subjects that changed p is at least 2^(1-m): all other subjects contribute by the totals
    or the chance level of others alone, which is no evidence of its own.
    """
    changed = set[str]().union(*(uncertainty.changed(*both) for both in pairs))
    known = not math.isnan(Sums.of(pairs).difference)
    return Test(SUBJECTS, max(p, smallest_p(len(changed))) if known else NAN)


def _rows_over(
    key: Key, by_group: Mapping[str, Both], tests: Tests, index: Index, empty: float, level: float
) -> Iterator[dict[str, object]]:
    """The mean over the groups where both runs have data, and all items together.

    Where no group has data of both, the values are means over those of each, without a difference.
    """
    sides = [{group: both[side] for group, both in by_group.items()} for side in (0, 1)]
    terms = [*zip((-1, 1), sides, strict=True)]
    number = uncertainty.mean(terms, index, empty)
    groups, test = [*number.by_group], None
    if len(groups) == 1:
        test = tests.get((key, groups[0]))
    elif groups:
        test = Test(RELATIONS, paired_permutation(group_contributions(terms, groups, empty)))
        if number.error and number.shares_subjects:  # not independent, as the flips have them
            p = 2 * float(stdtr(number.n_clusters - 1, -abs(number.value) / number.error))
            test = Test(SHARED, p) if p > test.p else test
    values = [uncertainty.mean_value(of, groups, empty) for of in sides]
    yield _row(key, "mean", number, values, test, level)
    values = [uncertainty.pooled_value(of) for of in sides]
    yield _row(key, "all", uncertainty.pooled(terms, index), values, tests.get((key, "")), level)


def _tallies(
    run: CheckedAnswers, relation: Relation, protocol: Protocol, views: Views, others: Views
) -> Mapping[Key, Tally]:
    """Every metric of a run, with option probabilities where the other run has some, too.

    ``views``, ``others``: of both runs. What was counted of the run alone is reused.
    """
    both = {view: grid.with_distributions_of(others[view]) for view, grid in views.items()}
    is_whole = all(both[view] is grid for view, grid in views.items())
    return run.tallies(relation, protocol, views) if is_whole else count(both, relation)


def _row(
    key: Key, over: str, number: Estimate, values: Sequence[float], test: Test | None, level: float,
    group: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A row of the table; ``values``: of the first and the second run."""
    (metric, (kind, part)), bounds = key, difference_bounds(DESCRIPTIONS[key[0]].bounds)
    (first, second), (low, high) = values, number.interval(bounds, level)
    phrasings, p, test = number.interval_over_phrasings(bounds, level), NAN, test or Test()
    if number.phrasings is not None:
        p = float(np.fmax(test.p, number.p_over_phrasings() if number.phrasings.variance else NAN))
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "first_value": first, "second_value": second, "difference": second - first,
        "low": low, "high": high, "test": test.name, "p": test.p, "p_mid": test.p_mid,
        "detectable": detectable_difference(number.error, number.n_clusters, level),
        "n": number.n, "n_excluded": number.left_out,
        **dict(zip(OVER_PHRASINGS, phrasings, strict=True)), "p_phrasings": p,
    }  # fmt: skip


def _adjusted_over_groups(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The table with p adjusted over groups of one metric and part, or over forms of a group."""
    is_of_group, is_whole = pl.col("over") == "group", pl.col("kind") == "whole"
    averaged = [group.id for group in suite.relations if group.design.is_averaged]
    of_groups = ~is_of_group | pl.col("group").is_in(averaged)
    is_tested = (of_groups & is_of_group) | (~of_groups & ~is_whole)
    within = pl.when(of_groups).then(pl.concat_str("kind", "level")).otherwise("group")
    family: list[str | pl.Expr] = ["metric", of_groups.alias("of_groups"), within.alias("within")]
    p = pl.when(is_tested).then("p").otherwise(NAN)
    p_holm, q_value = (adjusted(by, p).over(family) for by in (holm, benjamini_hochberg))
    table = table.with_columns(p_holm=p_holm, q_value=q_value)
    parts = [rows for _, rows in table.group_by(family, maintain_order=True)]
    return pl.concat(parts) if parts else table
