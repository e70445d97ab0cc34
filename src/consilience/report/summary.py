"""The summary of a run, with the majority baseline beside it."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import polars as pl

from consilience.core.errors import Protocol
from consilience.core.factors import EXPECTATIONS, ORIGINAL, Kind, several_factors
from consilience.core.schemas import OVER_PHRASINGS
from consilience.core.text import counted, spread
from consilience.metrics.measure import legible
from consilience.metrics.registry import label_of
from consilience.report.table import (
    LOW_HIGH,
    NAN,
    Cell,
    Column,
    Table,
    Value,
    number_text,
    table_text,
)
from consilience.types import Relation, Suite, SuiteWords

VIOLATIONS = "violation_rate"  # has a row for each kind of expectations
NO_OPTION = "no_option"
OF_JUDGES = {
    "position_preference": "toward the option shown first; 0 is none",
    "label_kappa": "agreement with the labels above chance",
}
"""Metric and meaning of the rows of questions with two options each, asked in both orders."""

Key = tuple[str, str, str, str, str]
"""``metric, over, group, kind, level`` of a row of the metrics table."""

KEY = ("metric", "over", "group", "kind", "level")

Values = Mapping[Key, Mapping[str, Any]]  # the rows of the metrics table by their keys
Asked = Mapping[str, tuple[int, int]]
"""In how many variants of each group an item was asked: the fewest of a question, and the most."""

HEADLINES = {
    "accuracy": "right in the {base}",
    "consistency": "{variant}s agree",
    "corrected_consistency": "agreement above chance",
    "consistent_accuracy": "right in every {variant}",
}
"""Metric and meaning of the first rows of every suite."""

FORM_ROWS = {"reverse": ("C_R", "label kept in reverse"), "signal": ("C_S", "label kept in signal")}
"""Label and meaning of the consistency of the CALUM paper's forms."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One headline number, a fraction; NaN without data or without an interval."""

    label: str  # What a reader calls the number
    metric: str
    kind: Kind  # What part of the groups it is about
    level: str
    value: float
    low: float  # Lower bound of the 95 % confidence interval
    high: float
    baseline: float  # The value of the majority baseline
    meaning: str  # What the number counts, in about five words
    chance: float = NAN
    """The value that is expected by chance; NaN but for consistency and violations."""
    over: str = "group"
    group: str = ""

    @property
    def names(self) -> list[str]:
        """What names it among those of a run: the metric, ``written``, the level of a part."""
        written = ["written"] * self.label.endswith("(written)")
        return [self.metric, *written, *filter(None, [self.level])]


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """The answer to "how consistent is this model?"."""

    title: str  # The model, the suite and their sizes
    rows: Sequence[SummaryRow]
    over: str = ""  # What the intervals are over, in the plural
    phrasings: str = ""  # Between which bounds other phrasings may be; empty if it is not known

    def __repr__(self) -> str:
        return table_text(self.table())

    @property
    def chance(self) -> float:
        """The consistency expected by chance, of the first group; NaN without data."""
        rows = (row for row in self.rows if row.metric != VIOLATIONS)
        return next((row.chance for row in rows if not math.isnan(row.chance)), NAN)

    def table(self) -> Table:
        """The summary as a table; the groups are below it."""
        columns = [
            Column("metric"), Column("%", "share", bounds=LOW_HIGH), Column("majority", "share"),
            Column("meaning"),
        ]  # fmt: skip
        rows: list[list[Value]] = []
        for row in self.rows:
            has_chance = row.kind in ("whole", "expectation") and not math.isnan(row.chance)
            chance = f" (chance {row.chance * 100:.1f})" * has_chance
            number = Cell(row.value, low=row.low, high=row.high)
            baseline = "" if row.metric in OF_JUDGES else row.baseline
            rows.append([row.label, number, baseline, row.meaning + chance])
        return Table(
            self.title, columns, rows, [self.phrasings][: bool(self.phrasings)], (), self.over
        )


def summarize(
    metrics: pl.DataFrame,
    suite: Suite,
    protocol: Protocol,
    model: str,
    baseline: pl.DataFrame,
    asked: Asked | None = None,
) -> Summary:
    """The headline numbers of a metrics table, with those of the majority baseline.

    ``baseline``: its metrics table. ``asked``: by default every item in every variant.
    """
    key_of = itemgetter(*KEY)
    values: Values = {key_of(row): row for row in legible(metrics).to_dicts()}
    majority: Mapping[Key, float] = {key_of(row): row["value"] for row in baseline.to_dicts()}
    groups = [group for group in suite.relations if _of_group("accuracy", group.id) in values]
    words = suite.words
    some = " where several" * any(low == 1 < high for low, high in (asked or {}).values())
    rows = []
    for key, label, meaning in headlines(replace(suite, relations=tuple(groups)), values):
        row = values[key]
        if key[0] == NO_OPTION and not row["value"]:
            continue
        metric, over, group, kind, level = key
        has_chance = metric in ("consistency", VIOLATIONS)
        chance = values.get((f"chance_{metric}", *key[1:]), {}) if has_chance else {}
        some_of = ""
        if metric == "corrected_consistency" and row["n_excluded"]:
            unit = words.group if over == "mean" else "pair"
            some_of = f" ({row['n']:,} of {counted(row['n'] + row['n_excluded'], unit)})"
        rows.append(
            SummaryRow(
                label=label, metric=metric, kind=kind, level=level, value=row["value"],  # type: ignore[arg-type]
                low=row["low"], high=row["high"],
                # the majority's place says nothing about that of a judge
                baseline=NAN if metric in OF_JUDGES else majority.get(key, NAN),
                meaning=meaning + some * (metric == "consistency" and kind == "whole") + some_of,
                chance=float(chance.get("value", NAN)), over=over, group=group,
            )
        )  # fmt: skip
    name, sizes = suite.name, ""
    if words.over != "group":
        sizes = _mean_sizes(values, groups, words, asked or {})
    else:
        name, row = groups[0].id, values[_of_group("accuracy", groups[0].id)]
        pairs, forms = row["n"] + row["n_excluded"], len(groups[0].design.forms)
        sizes = f"{pairs:,} sentence pairs, {forms} forms"
    rules = f" ({protocol})" if len(words.protocols) > 1 else ""
    title = f"{model} on {name}: {sizes}{rules}"
    return Summary(title, rows, words.units, over_phrasings(legible(metrics), suite))


def over_phrasings(rows: pl.DataFrame, suite: Suite) -> str:
    """The intervals over phrasings of two numbers of questions, or of their differences.

    ``rows``: those of one run, or of two. Empty for facts, where a mean over relations has
    phrasings of each in its own interval.
    """
    if not suite.words.is_pooled:
        return ""
    is_difference = "difference" in rows.columns
    what, unit = ("difference in ", "points") if is_difference else ("", "%")
    shown = rows.filter(pl.col("low_phrasings").is_not_nan(), over=suite.words.over, kind="whole")
    shown = shown.filter(pl.col("metric").is_in(["mean_accuracy", "consistency"]))
    intervals = list[str]()
    for row in shown.sort("metric", descending=True).to_dicts():
        bounds = (row[bound] for bound in OVER_PHRASINGS)
        low, high = (number_text(of, "points" if is_difference else "share") for of in bounds)
        intervals.append(f"{what}{label_of(row['metric']).lower()} {low} to {high} {unit}")
    return f"With other phrasings (95 % CI): {', '.join(intervals)}." if intervals else ""


def _of_group(metric: str, group: str) -> Key:
    return metric, "group", group, "whole", ""


def headlines(suite: Suite, known: Container[Key]) -> list[tuple[Key, str, str]]:
    """Key, label and meaning of the headline numbers that are known.

    Those of labels that were written say so.
    """
    words, over, groups = suite.words, suite.words.over, suite.relations
    rows = list[tuple[Key, str, str]]()
    for group in groups if over == "group" else groups[:1]:
        name, suffix = group.id * (over == "group"), " (written)" * group.design.writes_freely
        has_accuracy = ("accuracy", over, name, "whole", "") in known
        for metric in HEADLINES if has_accuracy else ("determinism",):
            meaning = HEADLINES.get(metric, HEADLINES["consistency"])
            meaning = meaning.format(base=words.base, variant=words.variant)
            if not group.design.has_base:
                meaning = meaning.replace("the base", "a random")
            label = label_of(metric) + suffix * bool(name)
            rows.append(((metric, over, name, "whole", ""), label, meaning))
        for form, (label, meaning) in FORM_ROWS.items() if name and not suffix else ():
            if len(group.design.forms) > 2:
                key: Key = ("consistency", over, name, "form", form)
                rows.append((key, f"Consistency {label}", meaning))
    parts = (part for group in groups for part in group.design.parts)
    for name in several_factors(parts) if words.is_pooled else ():
        key = ("consistency", over, "", "factor", name)
        rows.append((key, f"Consistency, {name}", f"same if only {name} differs"))
    ordered = (group for group in groups if group.design.levels.get("order"))
    is_judge = {len(group.candidates.words) for group in ordered} == {2}  # in both orders
    for metric, meaning in OF_JUDGES.items() if is_judge else ():
        rows.append(((metric, over, "", "whole", ""), label_of(metric), meaning))
    for kind in EXPECTATIONS:
        key = (VIOLATIONS, "all", "", "expectation", kind)
        rows.append((key, f"Violations, {kind}", "violated expectations"))
    none = (NO_OPTION, "all", "", "whole", "")
    rows.append((none, label_of(NO_OPTION), "answers that are no option"))
    return [row for row in rows if row[0] in known]


def _mean_sizes(values: Values, groups: Sequence[Relation], words: SuiteWords, asked: Asked) -> str:
    """How many groups were asked; how many groups, items and variants the means are over.

    These are relations with one right answer, if there are any.
    """
    averaged = [group for group in groups if group.cardinality == "N-1"] or groups
    rows = [values[_of_group("accuracy", group.id)] for group in averaged]
    counted_in, left_out = (sum(row[name] for row in rows) for name in ("n", "n_excluded"))
    whole = {group.id: len(group.design.forms[ORIGINAL]) for group in averaged}
    sizes = [size for of, every in whole.items() for size in asked.get(of, (every,))]
    variants = f"{spread(sizes)} {words.variant}{'s' * (max(sizes) != 1)} each"
    of_all = f"{len(averaged)} of " if len(averaged) < len(groups) else ""
    relations = counted(len(groups), words.group)
    items = f"{counted_in:,} of " * (left_out > 0) + counted(counted_in + left_out, words.item)
    return f"{of_all}{relations}, {items}, {variants}"
