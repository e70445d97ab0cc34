"""The gate: its runs, decisions and tables."""

from __future__ import annotations

import math
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, unknown_name
from consilience.core.text import AGGREGATES, counted, listed, visible
from consilience.gating.rules import (
    GateRule,
    Precise,
    Verdict,
    parse_rules,
)
from consilience.kinds import protocol_notes, suite_notes, suite_of
from consilience.metrics.counts import Prepared, is_averaged, refuse_other_questions
from consilience.metrics.differences import compare
from consilience.metrics.measure import (
    NEARLY_CONSTANT,
    constant_answers,
    measure,
    without_answer,
)
from consilience.metrics.registry import DESCRIPTIONS, label_of
from consilience.metrics.resampling import largest_cluster
from consilience.metrics.statistics import NAN, difference_bounds
from consilience.options import Output
from consilience.options.runs import GateOptions
from consilience.report.columns import Columns, frame_table
from consilience.report.export import Shown, record_of
from consilience.report.table import Column, Table, number_text
from consilience.results import comparing
from consilience.runs.run import Run, open_runs
from consilience.types import Suite

INTERVAL = "90 % CI"  # The heading of an interval whose bounds are one-sided 95 % bounds


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A rule on the numbers of one group, or of all."""

    rule: str
    group: str  # The group; ``MACRO`` for means over groups, ``MICRO`` for all items together
    of: str
    value: float
    baseline: float
    low: float  # Lower one-sided 95 % bound of the number, or of its difference; NaN without one
    high: float
    limit: float
    verdict: Verdict
    reason: str  # Why, as a sentence without a full stop
    unit: str = ""

    @property
    def is_relative(self) -> bool:
        return not math.isnan(self.baseline)

    @property
    def name(self) -> str:
        return f"{self.rule} ({self.of})"

    @property
    def interval(self) -> str:
        return "-" if math.isnan(self.low) else f"{self.shown(self.low)} to {self.shown(self.high)}"

    def shown(self, value: float) -> str:
        """A share, or a difference in points."""
        if math.isnan(value):
            return "-"
        return number_text(value, "points" if self.is_relative else "share")


def as_junit(suite: str, checks: Sequence[GateCheck]) -> bytes:
    """A ``testsuite`` with a ``testcase`` for each check; ``suite`` names the runs.

    A check that fails or is undecided has a ``failure`` with its verdict as the type.
    """
    failures = sum(check.verdict != "pass" for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(failures), "errors": "0"}
    root = ET.Element("testsuites", {"name": "consilience gate", **counts})
    test_suite = ET.SubElement(root, "testsuite", {**counts, "name": _text(suite), "skipped": "0"})
    for check in checks:
        named = {"classname": _text(suite), "name": _text(check.name), "time": "0"}
        case, message = ET.SubElement(test_suite, "testcase", named), _text(check.reason)
        if check.verdict == "pass":
            ET.SubElement(case, "system-out").text = message
        else:
            failure = ET.SubElement(case, "failure", {"type": check.verdict, "message": message})
            failure.text = f"{_text(check.rule)}: {check.verdict}. {message}."
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _text(text: str) -> str:
    return re.sub("[\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", visible(text))


Tables = Mapping[str, Sequence[Prepared]]  # The answers of runs by label, of each seed


@dataclass(frozen=True, slots=True)
class GateRuns:
    """The runs of a gate with their answers."""

    runs: Sequence[Run]
    baseline: Run | None
    suite: Suite
    protocol: Protocol
    whole: Tables
    common: Tables  # Those to items of the baseline too, with its own; or empty
    seed: int
    notes: Sequence[str]

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.runs]

    @property
    def name(self) -> str:
        return f"{', '.join(self.labels)} on {self.suite.name}"

    def record(self) -> dict[str, Any]:
        return record_of(
            runs=[str(run.path) for run in self.runs],
            baseline=str(self.baseline.path) if self.baseline else None,
            suite=self.suite.name,
            protocol=self.protocol,
        )

    def numbers(self, some: slice = slice(None)) -> pl.DataFrame:
        """The numbers of the runs, of all their seeds or some (``METRICS_SCHEMA``...)."""
        tables = [table for tables in self.whole.values() for table in tables][some]
        return measure(tables, self.suite, self.protocol, self.seed, precision=True)

    def largest(self, row: Mapping[str, Any]) -> float:
        """How many times as much as the mean subject the largest one counts in a number."""
        key, name = (row["metric"], row["subset"]), row["group"]
        first = (self.common or self.whole)[self.labels[0]][0]
        groups = [
            one for one in first.relations
            if name == one.id or (name in AGGREGATES and is_averaged(key, one))
        ]  # fmt: skip
        of_groups = [first.tallies(group, self.protocol) for group in groups]
        tallies = [of_group[key] for of_group in of_groups if key in of_group]
        parts = [[one] for one in tallies] if name == "MACRO" else [tallies]
        return max(map(largest_cluster, parts), default=1.0)

    def differences(self, some: slice = slice(None)) -> pl.DataFrame:
        """The runs minus the baseline (``COMPARISON_SCHEMA`` and ``PRECISION_SCHEMA``)."""
        assert self.baseline is not None
        first = self.common[self.baseline.label]
        second = [table for label in self.labels for table in self.common[label]]
        size = max(len(first), len(second))
        if size % len(first) or size % len(second):
            found = f"{len(second)} runs or seeds against {len(first)} of the baseline"
            raise ConsilienceError(found, expected="one run of the baseline, or as many")
        both = [[*islice(cycle(tables), size)][some] for tables in (first, second)]
        models = {self.baseline.label: both[0], " + ".join(self.labels): both[1]}
        return compare(models, self.suite, self.protocol, self.seed, precision=True)


def open_gate_runs(options: GateOptions) -> GateRuns:
    """Open the runs and the baseline; other models or questions raise."""
    given = [options.baseline] if options.baseline else []
    opened = open_runs([*options.runs, *given])
    runs, baseline = opened[: len(options.runs)], next(iter(opened[len(options.runs) :]), None)
    comparing.refuse_mixed(opened)
    comparing.refuse_other_variants(opened)
    models = {run.label: run.settings.get("model", {}).get("model") for run in runs}
    if len({model for model in models.values() if model}) > 1:
        raise ConsilienceError(
            "runs of different models: "
            + ", ".join(f"{label} of {model}" for label, model in models.items()),
            expected="repeated runs of one model",
            todo="Gate each run alone, or name the earlier one with --baseline RUN.",
        )
    for part in (part for run in opened for part in run.seeds):
        if part.record and not part.record.get("finished"):
            todo = "Rerun the command of the run to resume it."
            raise ConsilienceError("the run is not finished", where=str(part.path), todo=todo)
    suite, protocol = suite_of(runs[0], options.suite, options.protocol)
    notes = [note for run in opened for note in suite_notes(run, suite)]
    whole = {run.label: [Prepared(table, suite) for table in run.tables] for run in runs}
    first, *others = [(label, table) for label, tables in whole.items() for table in tables]
    for other in others:
        refuse_other_questions(first, other)
    tables, changed = comparing.paired_by_text(runs)  # all changed: raises
    if changed:
        found = changed[0].replace(", so not compared", "")
        raise ConsilienceError(found, expected="runs of the same questions")
    if not suite.words.pool:
        comparing.check_texts(runs, tables)
    common: Tables = {}
    if baseline is not None:
        common, more = comparing.comparable([*runs, baseline], suite)
        notes += more
    notes += comparing.settings_notes([*filter(None, [baseline]), *runs])
    notes += [note for run in opened for note in protocol_notes(run, protocol)]
    return GateRuns(runs, baseline, suite, protocol, whole, common, options.seed, notes)


def precise(row: Mapping[str, object], *, is_relative: bool) -> Precise:
    """A row of the numbers or of the differences with what its interval is made of."""
    bounds = DESCRIPTIONS[str(row["metric"])].bounds
    return Precise(
        row["difference" if is_relative else "value"],  # type: ignore[arg-type]
        difference_bounds(bounds) if is_relative else bounds,
        bounds[1] - bounds[0],
        row["error"], row["clusters"], row["units"], row["within_error"],  # type: ignore[arg-type]
        is_relative, row["skewness"], row["largest"],  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Shown):
    """The checks of a run, or of several of the same model."""

    of: GateRuns
    checks: Sequence[GateCheck]  # A check of each rule, by group where a rule is about several
    notes: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """Fail if a rule fails, else undecided if one is, else pass."""
        verdicts = {check.verdict for check in self.checks}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

    @property
    def is_open(self) -> bool:
        """Whether all rules pass."""
        return self.verdict == "pass"

    def table(self) -> Table:
        against = f" against {self.of.baseline.label}" if self.of.baseline else ""
        verdicts = [check.verdict for check in self.checks]
        counts = [
            f"{verdicts.count(verdict)} {verdict}"
            for verdict in ("fail", "undecided", "pass")
            if verdict in verdicts
        ]
        name = f"{', '.join(self.of.labels)}{against} on {self.of.suite.name}"
        title = f"Gate: {self.verdict.upper()} ({', '.join(counts)}). {name}, in percent"
        of_difference: Columns = {
            "baseline": Column("baseline", "share", is_extra=True),
            "difference": Column("diff.", "points"),
        }
        columns: Columns = {
            "rule": Column("rule"), "verdict": Column("verdict"), "of": Column("of", is_extra=True),
            "value": Column("value", "share"),
            **(of_difference if any(check.is_relative for check in self.checks) else {}),
            "interval": Column(INTERVAL), "limit": Column("limit", is_extra=True),
        }  # fmt: skip
        rows = [
            {
                "rule": check.rule, "verdict": check.verdict, "of": check.of, "value": check.value,
                "baseline": check.baseline if check.is_relative else "",
                "difference": check.value - check.baseline if check.is_relative else "",
                "interval": check.interval, "limit": check.shown(check.limit),
            }
            for check in self.checks
        ]  # fmt: skip
        notes = [
            f"{check.name}: {check.reason}." for check in self.checks if check.verdict != "pass"
        ]
        notes.append(
            "Pass: the interval is on the right side of the limit; fail: on the wrong side. Each "
            "of its bounds is a one-sided 95 % bound."
        )
        return frame_table(rows, title, columns, notes, sortable=False)

    def printed(self, output: Output) -> Iterator[Table | str]:
        table = self.table()
        if output.format == "md":
            table = replace(table, notes=[*table.notes, *self.notes])
        yield table
        if output.format == "table" and self.verdict == "fail":
            yield f"Answers: consilience view {shlex.quote(str(self.of.runs[0].path))}"

    def document(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        verdict = {"verdict": self.verdict, "passes": self.is_open}
        return {"run": self.of.record(), **verdict, "checks": checks, "warnings": [*self.notes]}

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        if output.junit:
            yield output.junit, as_junit(self.of.name, self.checks)

    def exit_status(self) -> int:
        return 0 if self.is_open else 3


def gate(options: GateOptions) -> Gate:
    """Check the rules on the numbers of a run, or of several of the same model."""
    rules = parse_rules(options.rule)
    relative = [rule for rule in rules if rule.is_relative]
    if relative and not options.baseline:
        found = f"the rule '{relative[0].text}' without a baseline"
        raise ConsilienceError(found, todo="Name it: --baseline RUN.", option="baseline")
    of = open_gate_runs(options)
    numbers = of.numbers()
    differences = of.differences() if relative else numbers
    checks = [
        _check(rule, row, of.suite)
        for rule in rules
        for row in rows_of(rule, differences if rule.is_relative else numbers, of)
    ]
    notes = [*of.notes, *_cautions(rules, numbers, of)]
    failed = [check.rule for check in checks if check.verdict == "fail"]
    for rule in (rule for rule in rules if rule.text in failed and not rule.group):
        notes += worst_notes(rule, differences if rule.is_relative else numbers, of.suite)
    if of.baseline is not None and relative:
        table = differences.with_columns(second=pl.lit(of.labels[0]))
        notes += comparing.noise_notes([of.baseline, of.runs[0]], table)
    return Gate(of, checks, list(dict.fromkeys(notes)))


def worst_notes(rule: GateRule, table: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """The factor and the group where a rule is violated most, of several that differ."""
    column = "difference" if rule.is_relative else "value"
    rows = table.filter(metric=rule.metric).drop_nans(column)
    rows = rows.sort(column, descending=not rule.threshold.at_least, maintain_order=True)
    factors = rows.filter(pl.col("subset") != "all", group=suite.words.pool)
    key = rule.metric, rule.subset
    ids = [group.id for group in suite.relations if is_averaged(key, group)]
    groups = rows.filter(pl.col("group").is_in(ids), subset=rule.subset)
    for some, where in ((factors, "of {subset}"), (groups, "in {group}")):
        if some[column].n_unique() > 1:
            worst = some.to_dicts()[0]
            shown = number_text(worst[column], "points" if rule.is_relative else "share")
            yield f"worst {rule.metric}: {where.format(**worst)}, {shown}"


def _cautions(rules: Sequence[GateRule], numbers: pl.DataFrame, of: GateRuns) -> Iterator[str]:
    """Notes on items without an answer, and on models that say the same always (docs/gate.md)."""
    suite = of.suite
    named = {rule.group or "MACRO" for rule in rules if rule.metric == "consistency"}
    if named:
        is_of_rule = pl.col("group").is_in([*named]) if suite.words.pool else pl.lit(True)
        top = numbers.filter(is_of_rule, metric="top_answer", subset="all")["value"]
        is_constant = (top > NEARLY_CONSTANT).any()
        yield from constant_answers(numbers, suite) if is_constant else ()
    for label in of.labels:
        for run in of.whole[label]:
            more = f"{label}: " * (len(of.labels) > 1)
            yield from (more + note for note in without_answer(run.table))


def rows_of(rule: GateRule, table: pl.DataFrame, of: GateRuns) -> list[dict[str, Any]]:
    """The rows of a table of runs that a rule is about; a rule without a row raises.

    Without a group these are the headline numbers (``SuiteWords.pool``).
    """
    constant, compared = _constant(rule, table, of), " of both runs" * rule.is_relative
    for column, name, missing in (
        ("metric", rule.metric, f"'{rule.metric}'{compared}"),
        ("subset", rule.subset, f"{rule.metric} of '{rule.subset}'"),
        ("group", rule.group, f"group '{rule.group}' with {rule.metric}"),
    ):
        known = table[column].unique(maintain_order=True).to_list()
        if name and name not in known:
            fault = f"no {missing}, which the rule '{rule.text}' is about"
            raise unknown_name(fault, name, known)
        pool = name or of.suite.words.pool
        table = table.filter(pl.col(column) == pool) if pool in known else table
    return [
        row | {"largest": of.largest(row), "constant": constant}
        for row in table.iter_rows(named=True)
    ]


def _constant(rule: GateRule, table: pl.DataFrame, of: GateRuns) -> list[str]:
    """The groups with one answer that a pooled corrected consistency leaves out, and should not.

    Those of several subjects whose answer is not always right in a run or seed; a baseline has
    several answers.
    """
    suite, many = of.suite, sum(map(len, of.whole.values()))
    if rule.is_relative and of.baseline is not None:
        many = max(many, len(of.common[of.baseline.label]))
    value, before = ("second_value", "first_value") if rule.is_relative else ("value", "n")
    is_pooled = (rule.group or suite.words.pool) in AGGREGATES and value in table.columns
    if rule.metric != "corrected_consistency" or not is_pooled:
        return []
    groups = [one.id for one in suite.relations if is_averaged((rule.metric, rule.subset), one)]
    source = of.differences if rule.is_relative else of.numbers
    parts = [slice(at, at + 1) for at in range(many)]
    found: dict[str, None] = {}
    for one in [table] if many == 1 else map(source, parts):
        rows = one.filter(pl.col("group").is_in(groups), subset=rule.subset)
        several = rows.filter(pl.col(value).is_not_nan(), pl.col("units") > 1, metric="consistency")
        right = rows.filter(pl.col(value) == 1, metric="consistent_accuracy")
        rows = rows.filter(pl.col(value).is_nan(), pl.col(before).is_not_nan(), metric=rule.metric)
        rows = rows.join(several, on="group", how="semi").join(right, on="group", how="anti")
        found |= dict.fromkeys(rows["group"])
    return [*found]


def _check(rule: GateRule, row: Mapping[str, Any], suite: Suite) -> GateCheck:
    number, constant = precise(row, is_relative=rule.is_relative), row["constant"]
    verdict = number.verdict(rule.threshold)
    verdict = "undecided" if constant and verdict == "pass" else verdict
    is_over_groups = number.is_over_groups and not number.is_constant
    check = GateCheck(
        rule.text, row["group"], of_in_words(row, suite),
        row["second_value" if rule.is_relative else "value"],
        row["first_value"] if rule.is_relative else NAN,
        *number.interval(), rule.threshold.value, verdict, "",
        f"{suite.words.group}s" if is_over_groups else suite.words.clusters,
    )  # fmt: skip
    return replace(check, reason=_reason(check, number, label_of(rule.metric), constant))


def _reason(check: GateCheck, number: Precise, label: str, constant: Sequence[str]) -> str:
    if math.isnan(number.value):
        return f"{label} is undefined, as of a model that always gives the same answer"
    if math.isnan(check.low):
        return f"{label} has no interval here, so no rule on it is decided (docs/statistics.md)"
    text = f"{label} {check.shown(check.value)} %"
    if check.is_relative:
        text = f"{label} {check.shown(check.value - check.baseline)} points against the baseline"
    text += f" ({INTERVAL} {check.interval})"
    if number.is_constant:
        text += f", the same in all {check.unit}"
    if constant and check.verdict == "undecided":
        text += f", without {listed(constant)}, where all answers are the same"
    return text


def of_in_words(row: Mapping[str, Any], suite: Suite) -> str:
    """What a number is over, in words."""
    if row["group"] == "MICRO":
        return f"all {suite.words.item}s"
    size = counted(row["n"], suite.words.group)
    return f"mean of {size}" if row["group"] == "MACRO" else str(row["group"])
