"""gate --plan: how many items, groups and repeats a rule needs, from the variation of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError
from consilience.metrics.intervals import difference_bounds
from consilience.metrics.margins import Precise, Threshold, clusters_for_power, size_for_power
from consilience.options import Output
from consilience.report.gate_tables import PlanRow, plan_table
from consilience.report.shown import Shown
from consilience.report.table import NAN, Table
from consilience.types import FACT_WORDS
from consilience.workflow.gate_rules import GateRule, parse_rules
from consilience.workflow.gate_runs import (
    GateRuns,
    is_its_own_baseline,
    open_gate_runs,
    precise,
)
from consilience.workflow.gating import of_in_words, rows_of
from consilience.workflow.run_options import GateOptions

MOST_ITEMS, MOST_REPEATS = 1_000_000, 1_000
"""Larger plans than these are not made."""

ONE_RUN = (
    "the error of a difference is that of two independent runs, the most that it can be; with "
    "--baseline it is that of the two runs, whose answers to an item are alike, so fewer are needed"
)

NO_REPEATS = "give several runs of the same model to plan repeats"


@dataclass(frozen=True, slots=True, repr=False)
class GatePlan(Shown):
    """How much data each rule needs."""

    of: GateRuns
    """The runs whose variation the plan is made from."""
    rows: Sequence[PlanRow]
    """The designs of each rule, the first as the run is."""
    notes: Sequence[str]
    """What a reader should know."""

    def table(self) -> Table:
        """A row for each design."""
        words = self.of.suite.words
        title = f"Plan from {', '.join(self.of.labels)} on {self.of.suite.name}, in percent"
        item = "subject" if words is FACT_WORDS else words.item
        return plan_table(title, self.rows, words.group, item)

    def printed(self, output: Output) -> Iterator[Table | str]:
        """How much data each rule needs."""
        yield self.table()

    def document(self) -> dict[str, Any]:
        """The designs as rows."""
        rows = [asdict(row) for row in self.rows]
        return {"run": self.of.record(), "plan": rows, "warnings": [*self.notes]}

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        """None: a plan has no checks to write."""
        if output.junit:
            raise ConsilienceError(
                "--junit with --plan",
                expected="one of them",
                todo="A plan has no checks to write.",
            )
        return iter(())


def plan_gate(options: GateOptions) -> GatePlan:
    """The power of each rule at the size of the run, and the sizes at which it is 80 %.

    True values: for a limit the value of the run, for a margin no difference from the baseline. The
    variances of items, groups and repeats are those of the runs. Nothing is passed or failed.
    """
    if options.passes is not None:
        raise ConsilienceError(
            "--passes with a plan", expected="runs that are averaged", todo="Leave it out."
        )
    if is_its_own_baseline(options):
        options = replace(options, baseline=None)
    rules, of = parse_rules(options.rule), open_gate_runs(options)
    is_paired = of.baseline is not None
    sources = {False: of.numbers}
    sources[True] = of.differences if is_paired else of.numbers
    tables: dict[bool, list[pl.DataFrame]] = {}
    rows: list[PlanRow] = []
    for rule in rules:
        kind = rule.is_relative
        if kind not in tables:
            alone = [[label] for label in of.labels] if len(of.labels) > 1 else []
            tables[kind] = [sources[kind](labels) for labels in (of.labels, *alone)]
        by_table = [rows_of(rule, table, of) for table in tables[kind]]
        for group, row in by_table[0].items():
            same = [one[group] for one in by_table if group in one]
            planned = [_of_rule(rule, one, is_paired=is_paired) for one in same]
            rows += _designs(rule.text, of_in_words(row, of.suite), rule.threshold, planned)
    notes = list(of.notes)
    notes += [ONE_RUN] if not is_paired and any(rule.is_relative for rule in rules) else []
    notes += [NO_REPEATS] if len(of.labels) == 1 else []
    return GatePlan(of, rows, notes)


def _of_rule(rule: GateRule, row: dict[str, Any], *, is_paired: bool) -> Precise:
    """The number of a rule with its assumed true value."""
    if not rule.is_relative:
        return precise(row, is_relative=False)
    if is_paired:
        return replace(precise(row, is_relative=True), value=0.0)
    number, twice = precise(row, is_relative=False), math.sqrt(2)
    return replace(
        number,
        value=0.0,
        bounds=difference_bounds(number.bounds),
        error=number.error * twice,
        within_error=number.within_error * twice,
        is_difference=True,
        skewness=0.0,
    )


def _designs(rule: str, of: str, limit: Threshold, numbers: Sequence[Precise]) -> Iterator[PlanRow]:
    """The designs of one rule; ``numbers``: of all runs averaged, then of each alone."""
    number, alone = numbers[0], numbers[1:]
    repeats = max(1, len(alone))
    items = round(number.units / number.clusters) if number.is_over_groups else 0
    now = PlanRow(
        rule, of, "this run" if repeats == 1 else "these runs", number.value,
        number.clusters if items else None, items or number.clusters, repeats,
        number.power(limit),
    )  # fmt: skip
    yield now
    many = clusters_for_power(number, limit)
    power = number.resized(many).power(limit) if many else NAN
    if not items:
        yield replace(now, design="other number of items", items=many, power=power)
    else:
        yield replace(now, design="other number of groups", groups=many, power=power)

        def more_items(size: int) -> Precise:
            return number.with_within(items / size)

        size = size_for_power(more_items, limit, 2, MOST_ITEMS)
        power = more_items(size).power(limit) if size else NAN
        yield replace(now, design="other number of items", items=size, power=power)
    if alone:
        repeated = _repeated(number, alone)
        again = size_for_power(repeated, limit, 1, MOST_REPEATS)
        power = repeated(again).power(limit) if again else NAN
        yield replace(now, design="other number of repeats", repeats=again, power=power)


def _repeated(number: Precise, alone: Sequence[Precise]) -> Callable[[int], Precise]:
    """The number of so many repeats.

    The variance of R averaged runs is ``item + noise / R``, that of one run ``item + noise``.
    """
    many = len(alone)
    averaged, single = _within(number), fmean(map(_within, alone))
    noise = min(single, max(0.0, (single - averaged) / (1 - 1 / many)))

    def of(repeats: int) -> Precise:
        return number.with_within((single - noise * (1 - 1 / repeats)) / averaged)

    return of if averaged > 0 else lambda repeats: number


def _within(number: Precise) -> float:
    """The variance over the items of the same groups."""
    return (number.within_error if number.is_over_groups else number.error) ** 2
