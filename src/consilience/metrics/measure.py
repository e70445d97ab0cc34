"""From answers to the table of metrics, with notes on what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import stdev
from typing import get_args

import numpy as np
import polars as pl
from scipy.special import stdtrit

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import Kind
from consilience.core.schemas import METRICS_SCHEMA
from consilience.core.text import counted, listed
from consilience.metrics import errors
from consilience.metrics.counts import (
    Answers,
    Key,
    Prepared,
    empty_value,
    is_averaged,
    name_of,
    prepared,
)
from consilience.metrics.errors import Index, Number
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Tally
from consilience.metrics.statistics import FEW, LEVEL, NAN, smallest_p
from consilience.types import Cardinality, Relation, Suite

Row = dict[str, object]


def measure(
    answers: Answers, suite: Suite, protocol: Protocol | None = None, level: float = LEVEL
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table.

    ``answers``, of polars or pandas, needs the columns ``group, item, subject, variant, gold,
    answer`` (``docs/suites.md``). ``protocol`` is that of the suite unless given. A column that is
    missing, a group or variant that the suite does not have and a repeated row raise. ``low`` and
    ``high`` are the bounds of an interval of ``level`` (``docs/statistics.md``).
    """
    if not isinstance(suite, Suite):
        raise ConsilienceError(
            f"a suite of type {type(suite).__name__}",
            expected="a Suite",
            todo="Load it: load_suite(name).",
        )
    run, rules = prepared(answers, suite), protocol or suite.protocol
    rows = [row for kind in get_args(Cardinality) for row in _of_kind(run, kind, rules, level)]
    return pl.DataFrame(_in_order(rows, suite), schema=METRICS_SCHEMA)


def _of_kind(run: Prepared, kind: Cardinality, protocol: Protocol, level: float) -> Iterator[Row]:
    """Rows of all groups of a kind, and over them."""
    index, of_metrics = Index(), dict[Key, list[tuple[Relation, Tally]]]()
    for relation in run.of_kind(kind):
        for key, tally in run.tallies(relation, protocol).items():
            of_metrics.setdefault(key, []).append((relation, tally))
    for key, of_groups in of_metrics.items():
        empty = empty_value(key, protocol)
        for relation, tally in of_groups:
            number = errors.of_group([(1, tally)], index)
            yield _row(key, "group", number, tally.value_or(empty), level, group=relation.id)
        averaged = {of.id: tally for of, tally in of_groups if is_averaged(key, of)}
        if averaged:
            terms = [(1, averaged)]
            number = errors.mean(terms, index, empty)
            value = errors.mean_value(averaged, [*number.by_group], empty)
            values = [tally.value_or(empty) for tally in averaged.values()]
            known = [value for value in values if not math.isnan(value)]
            std = stdev(known) if len(known) > 1 else NAN
            yield _row(key, "mean", number, value, level, std=std)
            number = errors.pooled(terms, index)
            yield _row(key, "all", number, number.value, level)


def _row(
    key: Key,
    over: str,
    number: Number,
    value: float,
    level: float,
    group: str = "",
    std: float = NAN,
) -> Row:
    """A number with its interval over items."""
    (metric, (kind, part)), bounds = key, DESCRIPTIONS[key[0]].bounds
    low, high = number.interval(bounds, level)
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "value": value, "low": low, "high": high, "n": number.n, "n_excluded": number.left_out,
        "std": std,
    }  # fmt: skip


def mean_over_runs(tables: Iterable[pl.DataFrame], of: str = "value") -> pl.DataFrame:
    """Means over runs, such as the seeds of a training: a row a number, by metric to level.

    ``tables``: the metrics table of each run, or with ``of="difference"`` a comparison of each.
    Of the R runs that have a number x: ``value`` is its mean ``m = sum_r x_r / R``, ``std`` its
    sample standard deviation ``s``, with ``s^2 = sum_r (x_r - m)^2 / (R - 1)``, ``low`` and
    ``high`` the bounds ``m -+ t[R - 1] s / sqrt(R)`` of a 95 % t interval, which tells how runs
    vary, and ``runs`` is R. NaN: ``value`` of no run, ``std`` and bounds of fewer than two.
    """
    number, x = ["metric", "over", "group", "kind", "level"], pl.col(of).fill_nan(None)
    rows = pl.concat(table.select(*number, x=x) for table in tables)
    x = pl.col("x")
    means = rows.group_by(number, maintain_order=True).agg(
        value=x.mean(), std=x.std(), runs=x.count().cast(pl.Int64)
    )
    runs = means["runs"].to_numpy()
    reach = pl.col("std") * pl.Series(stdtrit(runs - 1, (1 + LEVEL) / 2) / np.sqrt(runs))
    ends = {"low": pl.col("value") - reach, "high": pl.col("value") + reach}
    return means.with_columns(**ends).with_columns(pl.col(pl.Float64).fill_null(NAN))


def _in_order(rows: Sequence[Row], suite: Suite) -> list[Row]:
    """Rows by metric, then by part (forms as they were asked), then by group."""
    names = [name_of(metric, kind) for metric in METRICS for kind in get_args(Cardinality)]
    metrics = {name: at for at, name in enumerate(dict.fromkeys(names))}
    groups = {relation.id: at for at, relation in enumerate(suite.relations)}
    forms = {form: at for group in suite.relations for at, form in enumerate(group.design.forms)}
    overs = {over: len(groups) + at for at, over in enumerate(("mean", "all"))}
    kinds = {kind: at for at, kind in enumerate(get_args(Kind))}

    def rank(row: Mapping[str, object]) -> tuple[int, int, int, str, int]:
        kind, part, over = str(row["kind"]), str(row["level"]), str(row["over"])
        of_group = overs.get(over, groups.get(str(row["group"]), 0))
        return metrics[str(row["metric"])], kinds[kind], forms.get(part, 0), part, of_group

    return sorted(rows, key=rank)


NEARLY_CONSTANT = 0.9  # Share of the most frequent answer above which consistency is uninformative


def facts_left_out(metrics: pl.DataFrame, suite: Suite) -> str:
    """How many facts the accuracy covers, as a sentence; empty if it covers all facts.

    The counts are ``n`` and ``n_excluded`` of the accuracy of all N-1 relations together.
    """
    whole = metrics.filter(metric="accuracy", over="all", kind="whole")
    ((n, excluded),) = whole.select("n", "n_excluded").rows() or [(0, 0)]
    if not excluded:
        return ""
    have = "has" if excluded == 1 else "have"
    return (
        f"Accuracy is over {n:,} of {n + excluded:,} {suite.words.item}s: {excluded:,} {have} not "
        "been asked (see the notes)."
    )


def notes_on(answers: Answers, metrics: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on the answers of one run and their metrics table."""
    ready = prepared(answers, suite)
    known = {group.id for group in ready.relations}
    absent = [group.id for group in suite.relations if group.id not in known]
    several = "s" * (len(absent) > 1)
    what = f"no answers for {len(absent)} {suite.words.group}{several}: {listed(absent)}"
    notes = [*[what] * bool(absent), *without_answer(ready.coded)]
    constant = [*constant_answers(metrics, suite)]
    return [*notes, *(constant or few_disagreements(metrics, suite))]


def without_answer(answers: pl.DataFrame) -> Iterator[str]:
    """How many queries were not asked and how many have no answer, in which groups, and why."""
    without = answers.filter(pl.col("answer").is_null()).sort("group", "item", "variant_index")
    is_left_out = pl.col("excluded").is_not_null()
    for what, rows, reason in (
        ("were not asked", without.filter(is_left_out), "excluded"),
        ("have no answer, which counts as wrong", without.filter(~is_left_out), "error"),
    ):
        if rows.is_empty():
            continue
        sizes = rows["group"].value_counts().sort("count", "group", descending=[True, False]).rows()
        groups = listed([f"{group} {size:,}" for group, size in sizes])
        known = rows.drop_nulls(reason)[:1] if reason in rows.columns else rows[:0]
        why = "".join(
            f"; such as {of['group']} {of['item']}: {of[reason]}" for of in known.to_dicts()
        )
        yield f"{rows.height:,} of {answers.height:,} queries {what} ({groups}){why}"


def constant_answers(metrics: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """A sentence on the groups where most answers are identical."""
    of_groups = metrics.filter(pl.col("n") > 0, over="group", kind="whole")
    compared = of_groups.filter(metric="chance_consistency")["group"]
    top = of_groups.filter(
        pl.col("value") > NEARLY_CONSTANT, pl.col("group").is_in(compared.implode()),
        metric="top_answer",
    )["group"]  # fmt: skip
    if top.is_empty():
        return
    by_option = all(suite[group].design.by_option for group in top)
    same = "option at one shown position" if by_option else f"same {suite.words.answer}"
    yield (
        f"In {len(top)} of {counted(len(suite.relations), suite.words.group)} over "
        f"{NEARLY_CONSTANT * 100:.0f} % of the answers are the {same}: "
        "consistency is uninformative there, see chance-corrected consistency"
    )


FEWEST_DISAGREEMENTS = 20
"""Disagreements expected by chance, items times 1 - chance, from which corrected consistency is
unbiased within 1 point and its interval right (``docs/statistics.md``)."""


def few_disagreements(metrics: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """A sentence where chance expects so few disagreements that a number above it is low."""
    of_groups = metrics.filter(over="group", kind="whole")
    items = of_groups.filter(metric="accuracy").select("group", "n")
    chance = of_groups.filter(pl.col("value").is_not_nan(), metric="chance_consistency")
    both = chance.join(items, on="group", suffix="_items")
    expected = float((both["n_items"] * (1 - both["value"])).sum())
    if both.height and expected < FEWEST_DISAGREEMENTS:
        yield (
            f"Few {suite.words.item}s: {int(expected)} would have other answers at chance level; "
            f"with fewer than {FEWEST_DISAGREEMENTS} chance-corrected consistency is often too low"
        )


def few_relations(compared: pl.DataFrame, suite: Suite) -> list[str]:
    """Notes on means over so few relations that p cannot be below 0.05; none on questions."""
    few = compared.filter(pl.col("n").is_between(2, FEW - 1), over="mean", kind="whole")
    by_size = few.group_by("n", maintain_order=True).agg(
        pl.col("metric").unique(maintain_order=True)
    )
    return [
        f"{listed(metrics, 1)}: a mean over {n} relations has a p of at least {smallest_p(n):.3g}, "
        "whatever the difference; see the single relations"
        for n, metrics in by_size.iter_rows()
        if suite.words.over == "mean"
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
        "which alone changes their numbers. Probe masked models with --candidates pieces"
    ]
