"""The metrics table of answers: every metric of every group, and over the groups.

``MACRO`` is the mean and the sample standard deviation over groups, ``MICRO`` the value of all
counts together. Over groups, numbers are over N-1 relations; ``determinism`` is over N-M relations
(ParaRel, Section 3.1). Values of several seeds are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import get_args

import numpy as np
import polars as pl

from consilience.choices import Protocol
from consilience.errors import ConsilienceError
from consilience.metrics.counts import (
    NAN,
    Answers,
    Counts,
    bounds_of,
    is_averaged,
    name_of,
    prepared_seeds,
)
from consilience.metrics.grid import Floats
from consilience.metrics.intervals import (
    bootstrap_error,
    bootstrap_interval,
    logit_interval,
    skewness,
    within_error,
)
from consilience.metrics.registry import METRICS
from consilience.metrics.resampling import TwoWayReplicates
from consilience.metrics.tally import Share
from consilience.metrics.weighing import Key
from consilience.schemas import METRICS_SCHEMA, PRECISION_SCHEMA
from consilience.types import Cardinality, Suite


def measure(
    answers: Answers | Sequence[Answers],
    suite: Suite,
    protocol: Protocol | None = None,
    seed: int = 0,
    *,
    precision: bool = False,
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table, or of one for each seed.

    ``answers``, of polars or pandas, needs the columns ``group, item, subject, variant, gold,
    answer`` (``docs/suites.md``). ``protocol`` is that of the suite unless given. A column that is
    missing, a group or variant that the suite does not have, a repeated row and seeds with other
    questions raise. ``low`` and ``high`` are the bounds of a 95 % interval
    (``docs/statistics.md``); ``seed`` is that of its bootstrap. ``precision``: with the columns of
    ``PRECISION_SCHEMA``.
    """
    if not isinstance(suite, Suite):
        raise ConsilienceError(
            f"a suite of type {type(suite).__name__}",
            expected="a Suite",
            todo="Load it: load_suite(name).",
        )
    seeds, rules = prepared_seeds(answers, suite), protocol or suite.protocol
    rows: list[dict[str, object]] = []
    for kind in get_args(Cardinality):
        if seeds[0].of_kind(kind):
            rows += _of_kind([run.counts(kind, rules, seed) for run in seeds], kind, suite)
    schema = METRICS_SCHEMA | (PRECISION_SCHEMA if precision else {})
    return pl.DataFrame(_in_order(rows, suite), schema=schema)


@dataclass(frozen=True, slots=True)
class _Number:
    """A value of one seed, with its replicates."""

    value: float
    """The value; NaN where there is no data."""
    replicates: Floats
    """Its values when subjects or groups are resampled (replicate,)."""
    clusters: int
    """How many of these there are."""
    n: int
    """How many things were counted."""
    n_excluded: int
    """How many have no answer."""
    units: int
    """How many subjects were counted, in all groups."""
    within: Floats | None = None
    """Of a mean over groups: its values when the subjects of the same groups are resampled."""


def _of_kind(
    runs: Sequence[Counts], kind: Cardinality, suite: Suite
) -> Iterator[dict[str, object]]:
    """Rows of all groups of a kind, and over them."""
    relations = {relation.id: relation for relation in suite.relations}
    first = runs[0]
    averaged: dict[Key, list[str]] = {}
    for group, shares in first.shares.items():
        for key in shares:
            numbers = [_of_group(run, group, key) for run in runs]
            yield _row(key, group, numbers, is_proportion=key in first.proportions)
            if is_averaged(key, relations[group]):
                averaged.setdefault(key, []).append(group)
    for key, groups in averaged.items():
        over = [_over_groups(run, groups, key) for run in runs]
        is_proportion, is_single = key in first.proportions, len(first.shares) == 1
        macro = _row(
            key, "MACRO", [spread[0] for spread in over], is_proportion=is_proportion and is_single
        )
        values = [_mean_of_seeds(runs, group, key) for group in groups]
        known = [value for value in values if not math.isnan(value)]
        std = stdev(known) if len(known) > 1 else NAN
        yield macro | {"std": std, "skewness": skewness(known)}
        yield _row(key, "MICRO", [spread[1] for spread in over], is_proportion=is_proportion)


def _mean_of_seeds(runs: Sequence[Counts], group: str, key: Key) -> float:
    return _mean([run.shares[group][key].value for run in runs])


def _mean(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def _of_group(run: Counts, group: str, key: Key) -> _Number:
    share, within = run.shares[group][key], run.draws[group][key].within
    return _Number(
        share.value, within.values, within.clusters, share.n, share.left_out, within.clusters
    )


def _over_groups(run: Counts, groups: Sequence[str], key: Key) -> tuple[_Number, _Number]:
    """The mean over the groups, and the value of all their counts together."""
    shares: Mapping[str, Share] = {group: run.shares[group][key] for group in groups}
    draws: Mapping[str, TwoWayReplicates] = {group: run.draws[group][key] for group in groups}
    spread, pooled = run.resampling.over(shares, draws)
    known = [share.value for share in shares.values() if not math.isnan(share.value)]
    mean = fmean(known) if known else NAN
    total, size = sum(shares.values(), Share(0, 0, 0, 0)), pooled.clusters
    return (
        _Number(
            mean,
            spread.replicates,
            spread.clusters,
            len(known),
            len(shares) - len(known),
            size,
            spread.within,
        ),
        _Number(total.value, pooled.values, size, total.n, total.left_out, size),
    )


def _row(
    key: Key, group: str, numbers: Sequence[_Number], *, is_proportion: bool
) -> dict[str, object]:
    """The mean of a number over seeds, with its intervals over items and over seeds."""
    values = [number.value for number in numbers if not math.isnan(number.value)]
    mean, bounds = _mean(values), bounds_of(key)
    replicates = np.mean([number.replicates for number in numbers], axis=0)
    clusters, units = (min(getattr(n, name) for n in numbers) for name in ("clusters", "units"))
    low, high = bootstrap_interval(mean, replicates, clusters, bounds, proportion=is_proportion)
    within = [number.within for number in numbers if number.within is not None]
    std, seed_low, seed_high = NAN, NAN, NAN
    if len(values) > 1:
        std = stdev(values)
        seed_low, seed_high = logit_interval(mean, std / len(values) ** 0.5, len(values), bounds)
    return {
        "metric": key[0],
        "subset": key[1],
        "group": group,
        "value": mean,
        "std": std,
        "low": low,
        "high": high,
        "n": min(number.n for number in numbers),
        "n_excluded": max(number.n_excluded for number in numbers),
        "seeds": len(numbers),
        "seed_low": seed_low,
        "seed_high": seed_high,
        "error": bootstrap_error(replicates, clusters),
        "within_error": within_error(np.mean(within, axis=0), clusters, units) if within else NAN,
        "skewness": 0.0,
        "clusters": clusters,
        "units": units,
    }


def _in_order(rows: Sequence[dict[str, object]], suite: Suite) -> list[dict[str, object]]:
    """Rows by metric, then by subset (forms as they were asked), then by group."""
    names = [name_of(metric, kind) for metric in METRICS for kind in get_args(Cardinality)]
    metrics = {name: at for at, name in enumerate(dict.fromkeys(names))}
    ids = [*(relation.id for relation in suite.relations), "MACRO", "MICRO"]
    groups = {name: at for at, name in enumerate(ids)}
    forms = {form: at for group in suite.relations for at, form in enumerate(group.design.forms)}

    def rank(row: Mapping[str, object]) -> tuple[int, bool, int, str, int]:
        subset = str(row["subset"])
        of_metric, of_group = metrics[str(row["metric"])], groups[str(row["group"])]
        return of_metric, subset != "all", forms.get(subset, 0), subset, of_group

    return [{"suite": suite.name, **row} for row in sorted(rows, key=rank)]
