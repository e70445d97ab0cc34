"""From answers to the table of metrics, with notes on what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import get_args

import polars as pl

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
    prepared_seeds,
)
from consilience.metrics.errors import Index, Number
from consilience.metrics.registry import DESCRIPTIONS, METRICS, Tally
from consilience.metrics.statistics import FEW, LEVEL, NAN, logit_interval, smallest_p
from consilience.types import Cardinality, Relation, Suite

Row = dict[str, object]


def measure(
    answers: Answers | Sequence[Answers],
    suite: Suite,
    protocol: Protocol | None = None,
    level: float = LEVEL,
) -> pl.DataFrame:
    """The metrics table (``METRICS_SCHEMA``) of an answers table, or of one for each seed.

    ``answers``, of polars or pandas, needs the columns ``group, item, subject, variant, gold,
    answer`` (``docs/suites.md``). ``protocol`` is that of the suite unless given. A column that is
    missing, a group or variant that the suite does not have, a repeated row and seeds with other
    questions raise. ``low`` and ``high`` are the bounds of an interval of ``level``
    (``docs/statistics.md``).
    """
    if not isinstance(suite, Suite):
        raise ConsilienceError(
            f"a suite of type {type(suite).__name__}",
            expected="a Suite",
            todo="Load it: load_suite(name).",
        )
    seeds, rules = prepared_seeds(answers, suite), protocol or suite.protocol
    rows: list[Row] = []
    for kind in get_args(Cardinality):
        if relations := seeds[0].of_kind(kind):
            rows += _of_kind(seeds, relations, rules, level)
    return pl.DataFrame(_in_order(rows, suite), schema=METRICS_SCHEMA)


def tallies_of(
    runs: Sequence[Prepared], relations: Sequence[Relation], protocol: Protocol
) -> dict[Key, dict[str, list[Tally]]]:
    """What each metric counts in each group of every run: of metrics that all runs have."""
    found: dict[Key, dict[str, list[Tally]]] = {}
    for relation in relations:
        of_runs = [run.tallies(relation, protocol) for run in runs]
        for key in of_runs[0]:
            if all(key in of for of in of_runs):
                found.setdefault(key, {})[relation.id] = [of[key] for of in of_runs]
    return found


def _of_kind(
    runs: Sequence[Prepared], relations: Sequence[Relation], protocol: Protocol, level: float
) -> Iterator[Row]:
    """Rows of all groups of a kind, and over them."""
    index = Index()
    for key, of_groups in tallies_of(runs, relations, protocol).items():
        averaged: dict[str, list[Tally]] = {}
        empty = empty_value(key, protocol)
        for relation in relations:
            if tallies := of_groups.get(relation.id):
                weight = 1 / len(runs)
                number = errors.of_group([(weight, tally) for tally in tallies], index)
                values = [tally.value if tally.total > 0 else empty for tally in tallies]
                yield _row(key, "group", number, values, level, relation.id)
                if is_averaged(key, relation):
                    averaged[relation.id] = tallies
        if not averaged:
            continue
        seeds = [{group: of[at] for group, of in averaged.items()} for at in range(len(runs))]
        terms = errors.seeds_of(seeds)
        number = errors.mean(terms, index, empty)
        values = [errors.mean_value(of, [*number.by_group], empty) for of in seeds]
        known = [_mean([of.value if of.total > 0 else empty for of in tallies])
                 for tallies in averaged.values()]  # fmt: skip
        known = [value for value in known if not math.isnan(value)]
        std = stdev(known) if len(known) > 1 else NAN
        yield _row(key, "mean", number, values, level) | {"std": std}
        number = errors.pooled(terms, index)
        values = [errors.pooled_value(of) for of in seeds]
        yield _row(key, "all", number, values, level)


def _mean(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN


def _row(
    key: Key, over: str, number: Number, values: Sequence[float], level: float, group: str = ""
) -> Row:
    """A number with its interval over items; ``values``: of each seed."""
    (metric, (kind, part)), bounds = key, DESCRIPTIONS[key[0]].bounds
    known = [value for value in values if not math.isnan(value)]
    mean, std, seed_low, seed_high = _mean(values), NAN, NAN, NAN
    if len(known) > 1:
        std = stdev(known)
        seed_low, seed_high = logit_interval(
            mean, std / len(known) ** 0.5, len(known), bounds, level
        )
    low, high = number.interval(bounds, level)
    return {
        "metric": metric, "over": over, "group": group, "kind": kind, "level": part,
        "value": mean, "low": low, "high": high, "n": number.n, "n_excluded": number.left_out,
        "std": NAN, "seeds": len(values), "seed_std": std, "seed_low": seed_low,
        "seed_high": seed_high,
    }  # fmt: skip


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
            f"Chance alone expects {counted(round(expected), suite.words.item)} with other "
            f"answers: below {FEWEST_DISAGREEMENTS} corrected consistency tends to be too low"
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
        "which alone changes their numbers. Probe masked models with --multi-token left-to-right, "
        "or all models with --single-token MODEL,MODEL"
    ]
