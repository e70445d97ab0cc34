"""From answers to the table of metrics, with notes on what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, get_args

import numpy as np
import polars as pl

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.schemas import METRICS_SCHEMA, PRECISION_SCHEMA
from consilience.core.text import counted, listed
from consilience.metrics.counts import (
    Answers,
    Counts,
    is_averaged,
    name_of,
    prepared,
    prepared_seeds,
)
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Share
from consilience.metrics.resampling import Key, Number, two_way
from consilience.metrics.statistics import (
    FEW,
    NAN,
    bootstrap_error,
    intervals_of,
    logit_interval,
    skewness,
    smallest_p,
    within_error,
)
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
            rows += _of_kind([run.counts(kind, rules, seed) for run in seeds], suite)
    schema = METRICS_SCHEMA | (PRECISION_SCHEMA if precision else {})
    return pl.DataFrame(_in_order(rows, suite), schema=schema)


def _of_kind(runs: Sequence[Counts], suite: Suite) -> Iterator[dict[str, object]]:
    """Rows of all groups of a kind, and over them."""
    relations = {relation.id: relation for relation in suite.relations}
    first = runs[0]
    averaged: dict[Key, list[str]] = {}
    for group, shares in first.shares.items():
        for key in shares:
            if not all(key in run.shares[group] for run in runs):
                continue  # such as no_label, which a seed without such an answer does not have
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
        values = [_mean([run.shares[group][key].value for run in runs]) for group in groups]
        known = [value for value in values if not math.isnan(value)]
        std = stdev(known) if len(known) > 1 else NAN
        yield macro | {"std": std, "skewness": skewness(known)}
        yield _row(key, "MICRO", [spread[1] for spread in over], is_proportion=is_proportion)


def pooled_row(runs: Sequence[Counts], groups: Sequence[str], key: Key) -> dict[str, object]:
    """The row of the value of the counts of several groups together."""
    numbers = [_over_groups(run, groups, key)[1] for run in runs]
    return _row(key, "MICRO", numbers, is_proportion=key in runs[0].proportions)


def _mean(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def _of_group(run: Counts, group: str, key: Key) -> tuple[Share, Number]:
    within = run.draws[group][key].within
    return run.shares[group][key], Number(within.values, within.clusters, within.clusters)


def _over_groups(
    run: Counts, groups: Sequence[str], key: Key
) -> tuple[tuple[Share, Number], tuple[Share, Number]]:
    """The mean over the groups, and the value of all their counts together."""
    shares = {group: run.shares[group][key] for group in groups}
    draws = {group: run.draws[group][key] for group in groups}
    spread, pooled = run.resampling.over((shares, draws))
    known = [share.value for share in shares.values() if not math.isnan(share.value)]
    mean = Share(_mean(known), 1, len(known), len(shares) - len(known))
    return (mean, spread), (sum(shares.values(), Share(0, 0, 0, 0)), pooled)


def precision_of(
    value: float,
    numbers: Sequence[Number],
    bounds: tuple[float, float],
    *,
    is_proportion: bool = False,
) -> dict[str, Any]:
    """The interval of ``value``, a mean over seeds, and what it is made of."""
    ways = [np.mean(of_seeds, axis=0) for of_seeds in zip(*(n.ways for n in numbers), strict=True)]
    replicates = two_way(ways) if ways else np.mean([n.replicates for n in numbers], axis=0)
    clusters, units = (min(getattr(n, name) for n in numbers) for name in ("clusters", "units"))
    error = bootstrap_error(replicates, clusters)
    values, errors = np.array([value]), np.array([error])
    ends = intervals_of(values, errors, clusters, bounds, proportion=is_proportion)
    ((low, high),) = ends.tolist()
    return {
        "low": low, "high": high, "error": error,
        "within_error": within_error(ways[1], clusters, units) if ways else NAN,
        "skewness": 0.0, "clusters": clusters, "units": units,
    }  # fmt: skip


def _row(
    key: Key, group: str, seeds: Sequence[tuple[Share, Number]], *, is_proportion: bool
) -> dict[str, object]:
    """The mean of a number over seeds, with its intervals over items and over seeds."""
    values = [share.value for share, _ in seeds if not math.isnan(share.value)]
    mean, bounds = _mean(values), DESCRIPTIONS[key[0]].bounds
    std, seed_low, seed_high = NAN, NAN, NAN
    if len(values) > 1:
        std = stdev(values)
        seed_low, seed_high = logit_interval(mean, std / len(values) ** 0.5, len(values), bounds)
    return {
        "metric": key[0], "subset": key[1], "group": group, "value": mean, "std": std,
        "n": min(share.n for share, _ in seeds),
        "n_excluded": max(share.left_out for share, _ in seeds),
        "seeds": len(seeds), "seed_low": seed_low, "seed_high": seed_high,
        **precision_of(mean, [of for _, of in seeds], bounds, is_proportion=is_proportion),
    }  # fmt: skip


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


NEARLY_CONSTANT = 0.9  # Share of the most frequent answer above which consistency is uninformative

FEWEST_QUESTIONS = 20
"""Questions of a group from which the interval of corrected consistency is right: it contains the
true value in 92 to 97 % of simulated data sets (``docs/statistics.md``, ``docs/factors.md``)."""


def facts_left_out(metrics: pl.DataFrame, suite: Suite) -> str:
    """How many facts the accuracy covers, as a sentence; empty if it covers all facts.

    The counts are ``n`` and ``n_excluded`` of the accuracy of all N-1 relations together.
    """
    whole = metrics.filter(metric="accuracy", group="MICRO", subset="all")
    ((n, excluded),) = whole.select("n", "n_excluded").rows() or [(0, 0)]
    if not excluded:
        return ""
    have = "has" if excluded == 1 else "have"
    return (
        f"Accuracy is over {n:,} of {n + excluded:,} {suite.words.item}s: {excluded:,} {have} no "
        "answer (see the notes)."
    )


def notes_on(answers: Answers, metrics: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on the answers of one run and their metrics table."""
    ready = prepared(answers, suite)
    known = {group.id for group in ready.relations}
    absent = [group.id for group in suite.relations if group.id not in known]
    several = "s" * (len(absent) > 1)
    what = f"no answers for {len(absent)} {suite.words.group}{several}: {listed(absent)}"
    notes = [*[what] * bool(absent), *without_answer(ready.coded)]
    notes += constant_answers(metrics, suite)
    return [*notes, *of_few_questions(metrics, suite)]


def without_answer(answers: pl.DataFrame) -> Iterator[str]:
    """How many queries have no answer, in which groups, and the first reason."""
    without = answers.filter(pl.col("answer").is_null())
    if without.is_empty():
        return
    without = without.sort("group", "item", "variant_index")
    sizes = without["group"].value_counts().sort("count", "group", descending=[True, False]).rows()
    groups = listed([f"{group} {size:,}" for group, size in sizes])
    example = "; such as {group} {item}: {excluded}".format
    why = "".join(example(**row) for row in without.drop_nulls("excluded")[:1].to_dicts())
    yield f"{without.height:,} of {answers.height:,} queries have no answer ({groups}){why}"


def constant_answers(metrics: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """A sentence on the groups where most answers are identical."""
    values = _values(metrics)
    constant = {
        group.id: values[group.id, "top_answer"]
        for group in suite.relations
        if values.get((group.id, "top_answer"), 0) > NEARLY_CONSTANT
        and (group.id, "chance_consistency") in values
    }
    if not constant:
        return
    by_option = all(suite[group].design.by_option for group in constant)
    same = "option in one place of the file" if by_option else f"same {suite.words.answer}"
    yield (
        f"In {len(constant)} of {counted(len(suite.relations), suite.words.group)} over "
        f"{NEARLY_CONSTANT * 100:.0f} % of the answers are the {same}: "
        "consistency is uninformative there, see chance-corrected consistency"
    )


def _values(metrics: pl.DataFrame) -> dict[tuple[str, str], float]:
    """The values of whole groups that have data, by group and metric."""
    rows = metrics.filter(pl.col("n") > 0, subset="all").select("group", "metric", "value")
    return {(group, metric): value for group, metric, value in rows.iter_rows()}


def of_few_questions(metrics: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """A note on groups whose corrected consistency is biased: its chance is that of the group."""
    if not suite.words.is_pooled:
        return
    whole = metrics.filter(~pl.col("group").is_in(["MACRO", "MICRO"]), subset="all")
    corrected = whole.filter(pl.col("value").is_not_nan(), metric="corrected_consistency")
    asked = pl.col("n") + pl.col("n_excluded")  # those without a gold are compared, too
    small = whole.filter(asked < FEWEST_QUESTIONS, metric="accuracy")
    if few := small.join(corrected, on="group", how="semi").height:
        have = "group has" if few == 1 else "groups have"
        yield (
            f"{few} {have} fewer than {FEWEST_QUESTIONS} questions: corrected consistency tends to "
            "be too low there, its interval too narrow"
        )


def few_relations(compared: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on means over so few relations that p cannot be below 0.05; none on questions."""
    few = compared.filter(pl.col("n").is_between(2, FEW - 1), group="MACRO", subset="all")
    by_size = few.group_by("n", maintain_order=True).agg(
        pl.col("metric").unique(maintain_order=True)
    )
    return [
        f"{listed(metrics, 1)}: a mean over {n} relations has a p of at least {smallest_p(n):.3g}, "
        "whatever the difference; see the single relations"
        for n, metrics in by_size.iter_rows()
        if not suite.words.is_pooled
    ]


def other_candidates(runs: Mapping[str, pl.DataFrame]) -> list[str]:
    """A note on the relations where two runs chose among different numbers of candidates.

    ``runs``: the answers of both by name. Groups without ``n_candidates`` in both are left out.
    """
    if not all("n_candidates" in answers.columns for answers in runs.values()):
        return []
    first, second = (
        answers.drop_nulls(["answer", "n_candidates"])
        .group_by("group", maintain_order=True)
        .agg(pl.col("n_candidates").max())
        for answers in runs.values()
    )
    both = first.join(second, on="group", maintain_order="left")
    differ = both.filter(pl.col("n_candidates") != pl.col("n_candidates_right"))
    if differ.is_empty():
        return []
    gap = (pl.col("n_candidates").log() - pl.col("n_candidates_right").log()).abs()
    group, *sizes = differ.sort(gap, descending=True, maintain_order=True).row(0)
    return [
        f"{' and '.join(runs)} chose among different candidates in {differ.height} of "
        f"{counted(both.height, 'relation')} (such as {group}: {sizes[0]:,} and {sizes[1]:,}), "
        "which alone changes their numbers. Probe masked models with --multi-token left-to-right, "
        "or all models with --single-token MODEL,MODEL"
    ]
