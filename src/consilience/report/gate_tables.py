"""The checks of a gate as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilience.metrics.margins import Verdict
from consilience.report.table import Cell, Column, Table, Value, number_text

INTERVAL = "90 % CI"
"""The heading of an interval whose bounds are one-sided 95 % bounds."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A rule on the numbers of one group, or of all."""

    rule: str
    group: str
    """The group; ``MACRO`` for means over groups, ``MICRO`` for all items together."""
    of: str
    """The same in words."""
    value: float
    """The number; NaN without data."""
    baseline: float
    """That of the baseline; NaN for a rule without one."""
    low: float
    """Lower one-sided 95 % bound of the number, or of its difference; NaN without one."""
    high: float
    limit: float
    """The limit of the number, or of its difference."""
    verdict: Verdict
    """Whether the rule passes."""
    reason: str
    """Why, as a sentence without a full stop."""
    needed: int | None = None
    """How many items or groups would decide an undecided rule; None where that is not known."""
    unit: str = ""
    """What these are called."""
    runs: tuple[GateCheck, ...] = ()
    """The checks of single runs, where each was judged alone."""

    @property
    def is_relative(self) -> bool:
        """Whether the number is compared with a baseline."""
        return not math.isnan(self.baseline)

    @property
    def name(self) -> str:
        """The rule and its group, where the rule has a row for each group."""
        return f"{self.rule} ({self.of})"


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The power of a rule in one design."""

    rule: str
    of: str
    """What its number is over, in words."""
    design: str
    """What is other than in the runs that the plan is made from."""
    value: float
    """The assumed true value, of a comparison the difference."""
    groups: int | None
    """How many groups; None where the number is not a mean over groups, or none are enough."""
    items: int | None
    """How many items, of each group if there are groups; None if none are enough."""
    repeats: int | None
    """How many runs are averaged; None if none are enough."""
    power: float
    """The probability of a pass if the true value is the assumed one; NaN if it is never 80 %."""


def plan_table(title: str, rows: Sequence[PlanRow], group: str, item: str) -> Table:
    """A row for each design; ``group`` and ``item``: what clusters are called."""
    has_groups = any(row.groups is not None for row in rows)
    columns = [Column("rule"), Column("of", is_extra=True), Column("design")]
    columns += [Column(f"{group}s", "count")] * has_groups
    columns += [Column(f"{item}s", "count"), Column("repeats", "count"), Column("power", "share")]
    cells: list[list[Value]] = []
    for row in rows:
        groups = "" if row.groups is None and not math.isnan(row.power) else row.groups
        sizes = [groups, row.items] if has_groups else [row.items]
        design = row.design.replace("groups", f"{group}s").replace("items", f"{item}s")
        cells.append([row.rule, row.of, design, *sizes, row.repeats, row.power])
    notes = [
        "Power: the probability that the rule passes if the true value is that of the run or, with "
        "a baseline, the true difference is 0. Rows with another number show the least for 80 %."
    ]
    if has_groups:
        notes.append(f"{item}s: in each {group}; without a number of {group}s, in all together.")
    if any(math.isnan(row.power) for row in rows):
        notes.append("A dash means that no number is enough, or that the variation is not known.")
    return Table(title, columns, cells, notes, sortable=False)


def gate_table(title: str, checks: Sequence[GateCheck]) -> Table:
    """A row for each check, with the reason of each one that does not pass below."""
    relative = any(check.is_relative for check in checks)
    columns = [Column("rule"), Column("verdict"), Column("of", is_extra=True)]
    columns += [Column("value", "share")]
    columns += [Column("baseline", "share", is_extra=True), Column("diff.", "points")] * relative
    columns += [Column(INTERVAL), Column("limit", is_extra=True)]
    rows: list[list[Value]] = []
    for check in checks:
        row: list[Value] = [check.rule, check.verdict, check.of, check.value]
        if relative:
            difference = check.value - check.baseline
            row += [check.baseline, difference] if check.is_relative else [Cell(""), Cell("")]
        rows.append([*row, _interval(check), _shown(check.limit, check)])
    notes = [
        f"{check.name}: {check.reason}."
        for check in checks
        if check.verdict != "pass" or check.runs
    ]
    notes.append(
        "Pass: the interval is on the right side of the limit; fail: on the wrong side. Each of "
        "its bounds is a one-sided 95 % bound."
    )
    return Table(title, columns, rows, notes, sortable=False)


def in_words(check: GateCheck) -> str:
    """The number of a check with its interval, or the difference from the baseline."""
    if check.is_relative:
        number = f"{_shown(check.value - check.baseline, check)} points against the baseline"
    else:
        number = f"{_shown(check.value, check)} %"
    return f"{number} ({INTERVAL} {_interval(check)})"


def _interval(check: GateCheck) -> str:
    if math.isnan(check.low):
        return "-"
    return f"{_shown(check.low, check)} to {_shown(check.high, check)}"


def _shown(value: float, check: GateCheck) -> str:
    if math.isnan(value):
        return "-"
    return number_text(value, "points" if check.is_relative else "share")
