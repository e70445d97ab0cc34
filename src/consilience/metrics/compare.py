"""Two runs on the same items: differences with intervals, tests, and what could have been shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import get_args

import numpy as np
import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics.agreement import METRICS, Share, Tally
from consilience.metrics.counts import (
    Prepared,
    Shared,
    bounds_of,
    count,
    empty_value,
    is_averaged,
    metric_of,
)
from consilience.metrics.resampling import (
    Counted,
    Draws,
    Flipped,
    Key,
    Resampling,
    flip,
    in_threads,
)
from consilience.metrics.statistics import (
    FEW,
    NAN,
    Floats,
    benjamini_hochberg,
    bootstrap_interval,
    difference_bounds,
    holm,
    mcnemar,
    paired_permutation,
    permutation_p,
    smallest_difference,
)
from consilience.types import COMPARISON_SCHEMA, Cardinality, Protocol, Relation, Suite

MCNEMAR = "exact McNemar"
SUBJECTS = "sign flips of subjects"
RELATIONS = "paired permutation of relations"

EVEN_GUESSING = ("uniform_consistency", "all")
"""Says nothing of a run."""


def compare(
    runs: Mapping[str, pl.DataFrame | Prepared], suite: Suite, protocol: Protocol, seed: int = 0
) -> pl.DataFrame:
    """Every run against the first (``COMPARISON_SCHEMA``), on the queries that both answered.

    ``runs``: answers tables by name. Runs of other facts or wordings raise; where one of the two
    has no answer, neither is counted. ``p_holm`` and ``q_value`` adjust over the relations of one
    metric and subset of one comparison.
    """
    names = list(runs)
    if len(names) < 2:
        raise ConsilienceError(
            f"{len(names)} run to compare", expected="two runs or more, the first is the reference"
        )
    shared = Shared() if len(names) > 2 else None
    first, *others = names
    reference = _ready(runs[first], suite, shared)
    rows: list[dict[str, object]] = []
    for second in others:
        other = _ready(runs[second], suite, shared)
        _same_questions(first, reference.table, second, other.table)
        pair = {"suite": suite.name, "first": first, "second": second}
        for kind in get_args(Cardinality):
            found = _of_kind(reference, other, kind, protocol, seed)
            rows += [{**pair, **row} for row in found]
    return _adjusted(pl.DataFrame(rows, schema=COMPARISON_SCHEMA))


def _ready(answers: pl.DataFrame | Prepared, suite: Suite, shared: Shared | None) -> Prepared:
    return answers if isinstance(answers, Prepared) else Prepared(answers, suite, shared)


def _same_questions(first: str, table: pl.DataFrame, second: str, other: pl.DataFrame) -> None:
    question = ["group", "item", "variant", "subject", "gold"]
    for one, another, a, b in ((first, second, table, other), (second, first, other, table)):
        missing = a.select(question).join(b.select(question), on=question, how="anti")
        if missing.height:
            row = missing.row(0, named=True)
            raise ConsilienceError(
                f"{missing.height} of {a.height} queries of {one} are not in {another}, such as "
                f"{row['group']}, item {row['item']}, '{row['variant']}'",
                expected="runs of the same facts in the same wordings",
                todo="Probe both with the same --suite, --groups, --limit and --seed.",
            )


@dataclass(frozen=True, slots=True)
class _Both:
    """One metric in two runs: of one relation, or of several.

    ``draws``: both under the same resampling, empty before it. ``only``: how many items only the
    first, and only the second, has right; None where an item can be more than right or wrong.
    ``flipped``: both when what subjects contribute changes its sign; None where that says nothing.
    """

    shares: tuple[Share, Share]
    draws: tuple[Draws, ...]
    flipped: Flipped | None
    only: tuple[int, int] | None

    @property
    def difference(self) -> float:
        """Second minus first; NaN where one has no data."""
        return self.shares[1].value - self.shares[0].value

    @property
    def test(self) -> tuple[str | None, float]:
        """Which test, and its p."""
        if self.only is not None:
            return MCNEMAR, mcnemar(*self.only)
        if self.flipped is None:
            return None, NAN
        flipped = self.flipped.differences()
        if np.isnan(flipped).all():
            return SUBJECTS, NAN
        return SUBJECTS, permutation_p(self.difference, flipped)

    def plus(self, other: _Both) -> _Both:
        """The counts of two groups together; ``draws`` are those of this one."""
        flipped, only = None, None
        if self.flipped is not None and other.flipped is not None:
            flipped = self.flipped + other.flipped
        if self.only is not None and other.only is not None:
            only = self.only[0] + other.only[0], self.only[1] + other.only[1]
        shares = self.shares[0] + other.shares[0], self.shares[1] + other.shares[1]
        return _Both(shares, self.draws, flipped, only)

    def filled(self, values: Floats) -> Floats:
        """Values with that of a group without data where they are NaN."""
        return np.where(np.isnan(values), self.shares[0].empty, values)


def _of_kind(
    first: Prepared, second: Prepared, kind: Cardinality, protocol: Protocol, seed: int
) -> Iterator[dict[str, object]]:
    others = {relation.id: rows for relation, rows in second.of_kind(kind)}
    if not others:
        return
    subjects = first.subjects(kind)
    counted: dict[str, list[Counted]] = {}
    found: dict[str, dict[Key, _Both]] = {}
    tests: dict[Key, dict[str, tuple[str | None, float]]] = {}
    pooled: dict[Key, _Both] = {}

    def of(each: tuple[Relation, pl.DataFrame]) -> dict[Key, _Both]:
        relation, rows = each
        group, names = relation.id, subjects[relation.id]
        one, two, is_whole = _count_both(first, rows, second, others[group], relation, protocol)
        if not is_whole:
            counted[group] = [Counted(tallies, names) for tallies in (one, two)]
        keys = [key for key in one if key != EVEN_GUESSING]
        tested = {key: one[key] for key in keys if not METRICS[metric_of(key[0])].binary}
        flipped = flip(tested, two, names, first.signs(names, seed))
        empty = {key: empty_value(key, protocol) for key in keys}
        return {
            key: _Both(
                (one[key].share(empty[key]), two[key].share(empty[key])),
                (),
                flipped.get(key),
                _only(one[key], two[key]) if METRICS[metric_of(key[0])].binary else None,
            )
            for key in keys
        }

    for (relation, _), by_key in zip(
        first.of_kind(kind), in_threads(of, first.of_kind(kind)), strict=True
    ):
        found[relation.id] = {}
        for key, both in by_key.items():
            tests.setdefault(key, {})[relation.id] = both.test
            if is_averaged(key, kind):
                pooled[key] = pooled[key].plus(both) if key in pooled else both
            found[relation.id][key] = replace(both, flipped=None)
    resampling = first.resampling(kind, seed)
    draws = resampling.draw(counted)
    if len(counted) < len(found):
        whole = [each.counts(kind, protocol, seed) for each in (first, second)]
        draws |= {
            group: [dict(each.draws[group]) for each in whole]
            for group in found
            if group not in draws
        }
    over: dict[Key, dict[str, _Both]] = {}
    for group, by_key in found.items():
        drawn = draws[group]
        for key, each in by_key.items():
            both = replace(each, draws=(drawn[0][key], drawn[1][key]))
            within = [both.filled(run[key].within.values) for run in drawn]
            clusters = drawn[0][key].within.clusters
            yield _row(key, group, both, within[1] - within[0], clusters, *tests[key][group])
            if is_averaged(key, kind):
                over.setdefault(key, {})[group] = both
    for key, by_group in over.items():
        yield from _over(key, by_group, tests[key], pooled[key], resampling, seed)


def _count_both(
    first: Prepared,
    rows: pl.DataFrame,
    second: Prepared,
    others: pl.DataFrame,
    relation: Relation,
    protocol: Protocol,
) -> tuple[Mapping[Key, Tally], Mapping[Key, Tally], bool]:
    """Every metric of both runs, of the queries that both answered; whether these are all.

    What is counted of all queries is kept where the runs share what they count.
    """
    one, two = first.views(relation, rows, protocol), second.views(relation, others, protocol)
    both = (
        {view: grid.with_(two[view]) for view, grid in one.items()},
        {view: grid.with_(one[view]) for view, grid in two.items()},
    )
    is_whole = all(
        each[view] is grid
        for each, run in zip(both, (one, two), strict=True)
        for view, grid in run.items()
    )
    if is_whole and first.shared and second.shared:
        tallies = (
            first.tallies(relation, rows, protocol),
            second.tallies(relation, others, protocol),
        )
        return *tallies, True
    return count(both[0], relation), count(both[1], relation), False


def few_relations(compared: pl.DataFrame) -> list[str]:
    """Which means of ``compare`` are over too few relations to be told from chance."""
    is_mean = (pl.col("group") == "MACRO") & (pl.col("subset") == "all")
    few = compared.filter(is_mean & pl.col("n").is_between(2, FEW - 1))
    found = []
    for (n,), rows in few.group_by(["n"], maintain_order=True):
        first, *more = rows["metric"].unique(maintain_order=True)
        others = f" and {len(more)} more" if more else ""
        found.append(
            f"{first}{others}: a mean over {n} relations has a p of at least {2 / 2**n:.3g}, "
            "whatever the difference; see the single relations"
        )
    return found


def _only(first: Tally, second: Tally) -> tuple[int, int]:
    """How many items are hits in the first only, and in the second only."""
    moved = second.counts[:, 0] - first.counts[:, 0]
    return int((moved < 0).sum()), int((moved > 0).sum())


def _over(
    key: Key,
    by_group: Mapping[str, _Both],
    tests: Mapping[str, tuple[str | None, float]],
    pooled: _Both,
    resampling: Resampling,
    seed: int,
) -> Iterator[dict[str, object]]:
    """``MACRO`` over the groups where both runs have data, and ``MICRO``.

    ``tests``: that of each group.
    """
    known = {name: each for name, each in by_group.items() if not math.isnan(each.difference)}
    if not known:
        return
    spreads = [
        resampling.over(
            {name: each.shares[run] for name, each in known.items()},
            {name: each.draws[run] for name, each in known.items()},
        )
        for run in (0, 1)
    ]
    macro_spread = spreads[1][0] - spreads[0][0]
    micro = spreads[1][1].values - spreads[0][1].values
    counts = len(known), len(by_group) - len(known)
    means = [fmean(each.shares[run].value for each in known.values()) for run in (0, 1)]
    macro = replace(pooled, shares=(Share(means[0], 1, *counts), Share(means[1], 1, *counts)))
    p = paired_permutation([each.difference for each in known.values()], seed)
    test = (RELATIONS, p) if len(known) > 1 else tests[next(iter(known))]
    spread = macro_spread.replicates, macro_spread.clusters
    row = _row(key, "MACRO", macro, *spread, *test)
    yield row | ({"smallest": NAN} if 1 < len(known) < FEW else {})
    yield _row(key, "MICRO", pooled, micro, spreads[0][1].clusters, *pooled.test)


def _row(
    key: Key,
    group: str,
    both: _Both,
    replicates: Floats,
    clusters: int,
    test: str | None,
    p: float,
) -> dict[str, object]:
    first, second = both.shares
    bounds = difference_bounds(bounds_of(key))
    low, high = bootstrap_interval(both.difference, replicates, clusters, bounds)
    return {
        "metric": key[0],
        "subset": key[1],
        "group": group,
        "first_value": first.value,
        "second_value": second.value,
        "difference": both.difference,
        "low": low,
        "high": high,
        "test": test,
        "p": p,
        "smallest": smallest_difference(replicates) if clusters > 1 else NAN,
        "n": min(first.n, second.n),
        "n_excluded": max(first.left_out, second.left_out),
    }


def _adjusted(table: pl.DataFrame) -> pl.DataFrame:
    """With p adjusted over the relations of one metric and subset of one comparison."""
    family = ["first", "second", "metric", "subset"]
    is_relation = ~pl.col("group").is_in(["MACRO", "MICRO"])
    parts = []
    for _, rows in table.group_by(family, maintain_order=True):
        tested = rows.select(pl.when(is_relation).then("p").otherwise(NAN)).to_series().to_list()
        parts.append(
            rows.with_columns(
                p_holm=pl.Series(holm(tested), dtype=pl.Float64),
                q_value=pl.Series(benjamini_hochberg(tested), dtype=pl.Float64),
            )
        )
    return pl.concat(parts) if parts else table
