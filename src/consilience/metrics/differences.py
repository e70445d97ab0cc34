"""Paired differences between runs and between answers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any, get_args

import numpy as np
import polars as pl
from scipy.special import stdtr

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.items import Floats
from consilience.core.schemas import COMPARISON_SCHEMA
from consilience.core.text import counted
from consilience.metrics import errors
from consilience.metrics.counts import (
    Answers,
    Key,
    Prepared,
    count,
    empty_value,
    is_averaged,
    prepared_seeds,
    refuse_other_questions,
)
from consilience.metrics.errors import Index, Influences, Number
from consilience.metrics.registry import DESCRIPTIONS, Grid, Tally, quotient
from consilience.metrics.statistics import (
    FEW,
    LEVEL,
    NAN,
    TIE,
    Signs,
    benjamini_hochberg,
    difference_bounds,
    difference_intervals,
    holm,
    mcnemar,
    mcnemars,
    paired_permutation,
    permutation_p,
    smallest_p,
)
from consilience.types import Cardinality, Relation, Suite

Both = tuple[Tally, Tally]  # What a metric counts in the first and in the second run


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


def contributions(seeds: Sequence[Both], sums: Sequence[Sums], index: Index) -> Influences:
    """What each subject contributes to the mean difference, if the true values are equal.

    With the common value theta = all hits / all totals, a run with the total T is off by
    ``sum_i (h_i - theta t_i) / T``; the difference is that of the second run minus that of the
    first. ``sums``: of each seed, those of the group or of all groups together. Nothing where a
    total is 0.
    """
    influences = Influences(index)
    for both, of in zip(seeds, sums, strict=True):
        if min(of.totals) <= 0:
            return Influences(index)
        common = sum(of.hits) / sum(of.totals)
        for tally, weight, total in zip(both, (-1, 1), of.totals, strict=True):
            slopes = (1 / total, -common / total, 0.0)
            influences.add(0, weight / len(seeds), tally, slopes, total)
    return influences


def flipped(influences: Sequence[Influences], index: Index) -> Floats:
    """Sums (permutation, number) of the contributions of subjects with random signs."""
    parts = [one.sums() for one in influences]
    places = np.unique(np.concatenate([of for of, _ in parts]))
    columns = np.zeros((len(parts), len(places)))
    for at, (of, moves) in enumerate(parts):
        columns[at, np.searchsorted(places, of)] = moves
    distinct, same = np.unique(columns, axis=0, return_inverse=True)
    return Signs(index.names(places)).sums(np.ascontiguousarray(distinct.T))[:, same.reshape(-1)]


MCNEMAR = "exact McNemar"

SUBJECTS = "sign flips of subjects"

RELATIONS = "paired permutation of relations"

SHARED = "t over relations that share subjects"


@dataclass(frozen=True, slots=True)
class Test:
    """Which test of a difference, and its two-sided p; NaN without data."""

    name: str | None = None
    p: float = NAN
    p_mid: float = NAN  # Of McNemar's test


NO_TEST = Test()


def mcnemar_test(pairs: Sequence[Both]) -> Test:
    """McNemar's test of the units that only one run has right; NaN without a difference."""
    if math.isnan(Sums.of(pairs).difference):
        return Test(MCNEMAR)
    moved = [two.scores[:, 0] - one.scores[:, 0] for one, two in pairs]
    first, second = (sum(int((sign * of > 0).sum()) for of in moved) for sign in (-1, 1))
    return Test(MCNEMAR, mcnemar(first, second), mcnemar(first, second, mid=True))


CHANGES = ("first_accuracy", "second_accuracy", "change", "change_low", "change_high")

CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(CHANGES, pl.Float64),
    "test": pl.String,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
}
"""Accuracy in two variants, over the items that were answered in both.

``change`` is the second minus the first, with the bounds of its 95 % interval over subjects. ``p``
of ``test`` is two-sided. ``p_holm`` is adjusted over the pairs with the base variant, and over all
other pairs.
"""

FORM_CHANGE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("group", "first", "second"), pl.String),
    **CHANGE_SCHEMA,
    **dict.fromkeys(("seeds", "n"), pl.Int64),
}
"""One row for every two forms of a group: the change of accuracy, mean over seeds."""


def form_changes(
    answers: Answers | Sequence[Answers], suite: Suite, protocol: Protocol
) -> pl.DataFrame:
    """Accuracy in each form minus that in each earlier one (``FORM_CHANGE_SCHEMA``), paired.

    A form's accuracy is that of its first variant. Groups with one form have no rows.
    """
    seeds = prepared_seeds(answers, suite)
    tables = []
    for relation in seeds[0].relations:
        forms = relation.design.forms
        if len(forms) < 2:
            continue
        firsts = [variants[0] for variants in forms.values()]
        tuples = [run.views(relation, protocol)["tuples"] for run in seeds]
        grids = [grid.only_variants(firsts) for grid in tuples]
        first, second = ([list(forms)[at] for at in side] for side in grids[0].pairs.T)
        columns = {
            "group": [relation.id] * len(first),
            "first": first,
            "second": second,
            **accuracy_changes(grids),
            "seeds": [len(seeds)] * len(first),
            "n": np.min([grid.both.sum(axis=0) for grid in grids], axis=0),
        }
        tables.append(pl.DataFrame(columns, schema=FORM_CHANGE_SCHEMA))
    return pl.concat(tables) if tables else pl.DataFrame(schema=FORM_CHANGE_SCHEMA)


def accuracy_changes(grids: Sequence[Grid]) -> dict[str, Sequence[object]]:
    """Columns (``CHANGE_SCHEMA``) with one value for each pair that the grids compare.

    ``grids``: one for each run of the same items; values are means over runs. The test of one run
    is McNemar's over items. The test of several runs flips the sign of each subject's contribution
    to the mean change.
    """
    (first, second), clusters = grids[0].pairs.T, grids[0].subjects
    values = np.zeros((2, len(first)))
    parts, falls = np.zeros((2, len(clusters.names), len(first)))
    for grid in grids:
        one, two = (grid.right[:, side] & grid.both for side in (first, second))
        moved, total = two * 1.0 - one, grid.both.sum(axis=0)
        both = np.stack([quotient(side.sum(axis=0), total) for side in (one, two)])
        values += both / len(grids)
        part, size = (clusters.sums(quotient(of, total * 1.0)) for of in (moved, grid.both * 1.0))
        parts += part / len(grids)
        falls += quotient(part - (both[1] - both[0]) * size, 1 - size) / len(grids)
    change = values[1] - values[0]
    if len(grids) == 1:
        p = mcnemars((moved < 0).sum(axis=0), (moved > 0).sum(axis=0))
        p[total == 0] = NAN
    else:
        flipped = Signs(clusters.names.tolist()).sums(np.nan_to_num(parts))
        p = np.array(
            [permutation_p(float(value), row) for value, row in zip(change, flipped.T, strict=True)]
        )
    with_base = (first == 0) | (second == 0)
    adjusted = np.full(len(p), NAN)
    for family in (with_base, ~with_base):
        adjusted[family] = holm(p[family].tolist())
    is_there = clusters.sums(np.any([grid.both for grid in grids], axis=0)) > 0
    sizes = is_there.sum(axis=0)
    spread = np.sqrt((falls**2).sum(axis=0) * quotient(sizes - 1.0, sizes * 1.0))
    moves = change + falls * (sizes - 1)
    moves[~is_there] = 0
    size = np.nansum(np.abs(moves), axis=0)
    reach = np.where(size > TIE, quotient(np.nansum(moves**2, axis=0), size), 1.0)
    ends = difference_intervals(change, spread, sizes, (-1.0, 1.0), reach=reach)
    names = [MCNEMAR if len(grids) == 1 else SUBJECTS] * len(p)
    columns = (*values, change, *ends.T, names, p, adjusted)
    return dict(zip(CHANGE_SCHEMA, columns, strict=True))


def compare(
    models: Mapping[str, Answers | Sequence[Answers]],
    suite: Suite,
    protocol: Protocol,
    level: float = LEVEL,
) -> pl.DataFrame:
    """Compare models with the first, on the queries that both were asked (``COMPARISON_SCHEMA``).

    ``models``: the answers of each by its name, of as many seeds; values of several seeds are
    averaged. Runs of other items or variants raise. ``p_holm`` and ``q_value`` adjust over the
    groups of one metric and part of one comparison, or over the forms of one metric and group.
    ``level``: of the intervals.
    """
    names = list(models)
    if len(names) < 2:
        raise ConsilienceError(
            f"{len(names)} run to compare",
            expected="two runs or more; the first is the reference",
            todo="Name a second run of the same questions.",
        )
    first, *others = names
    reference = prepared_seeds(models[first], suite)
    tables = []
    for second in others:
        seeds = prepared_seeds(models[second], suite)
        if len(seeds) != len(reference):
            raise ConsilienceError(
                f"{counted(len(reference), 'seed')} of {first}, {len(seeds)} of {second}",
                expected="as many seeds of both",
            )
        refuse_other_questions((first, reference[0]), (second, seeds[0]))
        rows: list[dict[str, object]] = []
        for kind in get_args(Cardinality):
            if reference[0].of_kind(kind) and seeds[0].of_kind(kind):
                runs = list(zip(reference, seeds, strict=True))
                rows += _paired_rows(runs, kind, protocol, level)
        pair = {"first": first, "second": second}
        table = pl.DataFrame([{**pair, **row} for row in rows], schema=COMPARISON_SCHEMA)
        tables.append(_adjusted_over_groups(table, suite))
    return pl.concat(tables)


Counted = Mapping[str, Sequence[Both]]
"""What a metric counts in each group of two models, for each seed."""


def _paired_rows(
    runs: Sequence[tuple[Prepared, Prepared]], kind: Cardinality, protocol: Protocol, level: float
) -> Iterator[dict[str, object]]:
    """A row for each metric of each group of a kind, then for each metric over the groups.

    ``runs``: those of two models for each seed. A group in which nothing is counted has no rows.
    """
    known = {relation.id for relation in runs[0][1].of_kind(kind)}
    relations = [group for group in runs[0][0].of_kind(kind) if group.id in known]
    counted: dict[Key, dict[str, list[Both]]] = {}
    averaged: dict[Key, dict[str, list[Both]]] = {}
    for relation in relations:
        for key, seeds in _of_group(runs, relation, protocol).items():
            counted.setdefault(key, {})[relation.id] = seeds
            if is_averaged(key, relation):
                averaged.setdefault(key, {})[relation.id] = seeds
    index, tests = Index(), _tests(counted, averaged)
    for key, by_group in counted.items():
        empty = empty_value(key, protocol)
        for group, seeds in by_group.items():
            terms = [*zip(_weights(len(seeds)), chain(*seeds), strict=True)]
            values = [tuple(_value(tally, empty) for tally in both) for both in seeds]
            number, test = errors.of_group(terms, index), tests.get((key, group), NO_TEST)
            yield _row(key, "group", number, values, test, level, group)
        if key in averaged:
            yield from _rows_over(key, averaged[key], tests, index, empty, level)


def _weights(seeds: int) -> list[float]:
    """Of the terms of a mean difference over seeds: first and second run of each."""
    return [-1 / seeds, 1 / seeds] * seeds


def _value(tally: Tally, empty: float) -> float:
    return tally.value if tally.total > 0 else empty


def _of_group(
    runs: Sequence[tuple[Prepared, Prepared]], relation: Relation, protocol: Protocol
) -> dict[Key, list[Both]]:
    """What each metric counts in both runs of every seed, of metrics that all have."""
    seeds = [_count_both(*both, relation, protocol) for both in runs]
    every = [tallies for both in seeds for tallies in both]
    keys = [key for key in every[0] if all(key in tallies for tallies in every)]
    return {key: [(one[key], two[key]) for one, two in seeds] for key in keys}


Tests = Mapping[tuple[Key, str], Test]  # By metric and group; the group "" for all of them


def _tests(counted: Mapping[Key, Counted], averaged: Mapping[Key, Counted]) -> Tests:
    """The test of each metric in each group, and of the groups that are averaged together.

    McNemar's of a binary metric and one seed, else sign flips of subjects.
    """
    tests: dict[tuple[Key, str], Test] = {}
    whole: dict[Key, list[Sums]] = {}  # Of each seed of the metrics that are tested by sign flips
    by_group: dict[str, list[Key]] = {}
    for key, of_groups in counted.items():
        together = [*zip(*averaged.get(key, {}).values(), strict=True)]
        if DESCRIPTIONS[key[0]].binary and len(next(iter(of_groups.values()))) == 1:
            for group, (both,) in of_groups.items():
                tests[key, group] = mcnemar_test([both])
            if together:
                tests[key, ""] = mcnemar_test(together[0])
        elif all(tally.clusters for of in of_groups.values() for both in of for tally in both):
            whole[key] = [Sums.of(pairs) for pairs in together]
            for group in of_groups:
                by_group.setdefault(group, []).append(key)
    index, summed, changed = Index(), dict[Key, Floats](), dict[tuple[Key, str], set[str] | None]()
    for group, keys in by_group.items():
        numbers = []
        own = {key: [Sums.of([both]) for both in counted[key][group]] for key in keys}
        for sums in (own, whole):
            numbers += [
                contributions(counted[key][group], sums[key], index)
                if sums[key]
                else Influences(index)
                for key in keys
            ]
        permuted = flipped(numbers, index)
        for at, key in enumerate(keys):
            changed[key, group] = _changed(counted[key][group])
            tests[key, group] = _flip_test(own[key], permuted[:, at], changed[key, group])
            if group in averaged.get(key, {}):
                summed[key] = summed.get(key, 0.0) + permuted[:, len(keys) + at]
    for key, permuted in summed.items():
        counts = [changed[key, group] for group in averaged[key]]
        of_all = None if None in counts else set[str]().union(*(of or () for of in counts))
        tests[key, ""] = _flip_test(whole[key], permuted, of_all)
    return tests


def _flip_test(seeds: Sequence[Sums], permuted: Floats, changed: set[str] | None) -> Test:
    """The test of a mean difference over seeds from its ``flipped`` values.

    ``changed``: of a number above chance, the subjects that agree otherwise in both runs. With m of
    them p is at least 2^(1-m): all other subjects contribute by the chance level of others alone,
    which is no evidence of its own.
    """
    difference = fmean(of.difference for of in seeds)
    p = permutation_p(difference, permuted)
    return Test(SUBJECTS, p if changed is None else max(p, smallest_p(len(changed))))


def _changed(seeds: Sequence[Both]) -> set[str] | None:
    """The subjects that agree otherwise in both runs, of a number above chance; else None."""
    moved, clusters = np.zeros(1), seeds[0][0].clusters
    for one, two in seeds:
        if one.sizes is None or two.sizes is None or one.clusters is None:
            return None
        first, second = one.scores[:, 0] - one.scores[:, 1], two.scores[:, 0] - two.scores[:, 1]
        moved = moved + np.abs(one.clusters.sums(second + two.sizes - first - one.sizes))
    return set(clusters.names[moved > TIE]) if clusters else None


def _rows_over(
    key: Key, by_group: Counted, tests: Tests, index: Index, empty: float, level: float
) -> Iterator[dict[str, object]]:
    """The mean over the groups where both models have data, and all items together.

    Where no group has data of both, the values are means over those of each, without a difference.
    """
    seeds = len(next(iter(by_group.values())))
    sides = [
        {group: of[at][side] for group, of in by_group.items()}
        for at in range(seeds)
        for side in (0, 1)
    ]
    terms = [*zip(_weights(seeds), sides, strict=True)]
    number = errors.mean(terms, index, empty)
    groups = [*number.by_group]
    test = NO_TEST
    if len(groups) == 1:
        test = tests.get((key, groups[0]), NO_TEST)
    elif groups:
        test = Test(RELATIONS, paired_permutation(errors.contributions(terms, groups, empty)))
        if number.error and number.shares_subjects:  # not independent, as the flips have them
            p = 2 * float(stdtr(number.clusters - 1, -abs(number.value) / number.error))
            test = Test(SHARED, p) if p > test.p else test
    values = [errors.mean_value(of, groups, empty) for of in sides]
    row = _row(key, "mean", number, _by_seed(values), test, level)
    yield row | ({"detectable": NAN} if 1 < len(groups) < FEW else {})
    number = errors.pooled(terms, index)
    values = [errors.pooled_value(of) for of in sides]
    yield _row(key, "all", number, _by_seed(values), tests.get((key, ""), NO_TEST), level)


def _by_seed(values: Sequence[float]) -> list[tuple[float, ...]]:
    """Values of the first and the second run of each seed in turn, by seed."""
    return list(zip(values[::2], values[1::2], strict=True))


def _count_both(
    first: Prepared, second: Prepared, relation: Relation, protocol: Protocol
) -> tuple[Mapping[Key, Tally], Mapping[Key, Tally]]:
    """Every metric of both runs, of the queries that both were asked.

    Counts over all queries are reused if both runs were asked the same.
    """
    one, two = first.views(relation, protocol), second.views(relation, protocol)
    both = (
        {view: grid.with_(two[view]) for view, grid in one.items()},
        {view: grid.with_(one[view]) for view, grid in two.items()},
    )
    is_whole = all(
        restricted[view] is grid
        for restricted, run in zip(both, (one, two), strict=True)
        for view, grid in run.items()
    )
    if is_whole:
        return first.tallies(relation, protocol, one), second.tallies(relation, protocol, two)
    return count(both[0], relation), count(both[1], relation)


def _row(
    key: Key,
    over: str,
    number: Number,
    values: Sequence[tuple[float, ...]],
    test: Test,
    level: float,
    group: str = "",
) -> dict[str, Any]:
    """A row of the table; ``values``: of the first and the second run, for each seed."""
    (metric, (kind, part)), bounds = key, difference_bounds(DESCRIPTIONS[key[0]].bounds)
    first, second = (fmean(of) for of in zip(*values, strict=True))
    low, high = number.interval(bounds, level)
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "first_value": first, "second_value": second, "difference": second - first,
        "low": low, "high": high, "test": test.name, "p": test.p, "p_mid": test.p_mid,
        "detectable": number.detectable(level), "n": number.n, "n_excluded": number.left_out,
        "seeds": len(values), "p_seeds": p_of_seeds(values),
    }  # fmt: skip


def p_of_seeds(values: Sequence[tuple[float, ...]]) -> float:
    """P of Welch's t test over seeds; NaN where they do not vary."""
    first, second = ([of[side] for of in values] for side in (0, 1))
    varies = len(values) > 1 and any(np.ptp(of) > 0 for of in (first, second))
    if not varies:
        return NAN
    from scipy import stats

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a run that does not vary
        return float(stats.ttest_ind(second, first, equal_var=False).pvalue)


def _adjusted_over_groups(table: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """The table with p adjusted over groups of one metric and part, or over forms of a group."""
    is_of_group, is_whole = pl.col("over") == "group", pl.col("kind") == "whole"
    averaged = [group.id for group in suite.relations if group.design.is_averaged]
    of_groups = ~is_of_group | pl.col("group").is_in(averaged)
    is_tested = (of_groups & is_of_group) | (~of_groups & ~is_whole)
    within = pl.when(of_groups).then(pl.concat_str("kind", "level")).otherwise("group")
    family: list[str | pl.Expr] = ["metric", of_groups.alias("of_groups"), within.alias("within")]
    adjusted = _adjusted(table, family, pl.when(is_tested).then("p").otherwise(NAN))
    parts = [rows for _, rows in adjusted.group_by(family, maintain_order=True)]
    return pl.concat(parts) if parts else table


def _adjusted(table: pl.DataFrame, family: Sequence[str | pl.Expr], p: pl.Expr) -> pl.DataFrame:
    """The table with ``p`` adjusted over the rows of each family."""

    def over_family(adjust: Callable[[Sequence[float]], list[float]]) -> pl.Expr:
        values = p.map_batches(lambda of: pl.Series(adjust(of.to_list())), pl.Float64)
        return values.over(family)

    return table.with_columns(p_holm=over_family(holm), q_value=over_family(benjamini_hochberg))
