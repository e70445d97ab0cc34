"""The gate: its runs, decisions, tables, and how much data it needs."""

from __future__ import annotations

import math
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, Undecided, unknown_name
from consilience.core.text import AGGREGATES, counted, listed, visible
from consilience.gating.rules import (
    GateRule,
    Precise,
    Threshold,
    Verdict,
    clusters_for_power,
    fewest,
    parse_rules,
)
from consilience.kinds import protocol_notes, suite_notes, suite_of
from consilience.metrics.components import position_notes
from consilience.metrics.counts import Prepared, is_averaged, refuse_other_questions
from consilience.metrics.differences import compare
from consilience.metrics.measure import (
    NEARLY_CONSTANT,
    constant_answers,
    facts_left_out,
    measure,
    of_few_questions,
    without_answer,
)
from consilience.metrics.registry import DESCRIPTIONS, label_of
from consilience.metrics.resampling import largest_cluster
from consilience.metrics.statistics import FEW, NAN, POWER, difference_bounds, wilson_interval
from consilience.options import Output
from consilience.options.runs import GateOptions
from consilience.report.columns import Columns, frame_table
from consilience.report.export import Shown, record_of
from consilience.report.table import Column, Table, number_text
from consilience.results import comparing
from consilience.runs.run import Run, open_runs, split_label
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
    needed: int | None = None  # How many items or groups would decide, if known
    unit: str = ""
    runs: tuple[GateCheck, ...] = ()  # The checks of single runs, where each was judged alone

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


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The power of a rule in one design."""

    rule: str
    of: str
    design: str  # What is other than in the runs that the plan is made from
    value: float
    groups: int | None  # None where the number is not a mean over groups, or none are enough
    items: int | None  # How many items, of each group if there are groups; None if none are enough
    repeats: int | None  # How many runs are averaged; None if none are enough
    power: float  # Of a pass if the assumed value is true; NaN if it is never 80 %


def as_junit(suite: str, checks: Sequence[GateCheck], *, undecided_fails: bool) -> bytes:
    """A ``testsuite`` with a ``testcase`` for each check; ``suite`` names the runs.

    A check that fails has a ``failure``. One that is undecided has a ``failure`` of the type
    ``undecided``, or is ``skipped`` where it does not fail the gate.
    """
    failing = ("fail", "undecided") if undecided_fails else ("fail",)
    failures = sum(check.verdict in failing for check in checks)
    skipped = sum(check.verdict == "undecided" for check in checks) * (not undecided_fails)
    counts = {"tests": str(len(checks)), "failures": str(failures), "errors": "0"}
    root = ET.Element("testsuites", {"name": "consilience gate", **counts})
    of_suite = {**counts, "name": _text(suite), "skipped": str(skipped)}
    test_suite = ET.SubElement(root, "testsuite", of_suite)
    for check in checks:
        named = {"classname": _text(suite), "name": _text(check.name), "time": "0"}
        case, message = ET.SubElement(test_suite, "testcase", named), _text(check.reason)
        if check.verdict in failing:
            failure = ET.SubElement(case, "failure", {"type": check.verdict, "message": message})
            failure.text = f"{_text(check.rule)}: {check.verdict}. {message}."
        elif check.verdict == "undecided":
            ET.SubElement(case, "skipped").text = f"undecided: {message}"
        else:
            ET.SubElement(case, "system-out").text = message
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

    def numbers(self, labels: Sequence[str], some: slice = slice(None)) -> pl.DataFrame:
        """The numbers of runs, of all their seeds or some (``METRICS_SCHEMA``...)."""
        tables = [table for label in labels for table in self.whole[label]][some]
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

    def differences(self, labels: Sequence[str], some: slice = slice(None)) -> pl.DataFrame:
        """Runs minus the baseline (``COMPARISON_SCHEMA`` and ``PRECISION_SCHEMA``)."""
        assert self.baseline is not None
        first = self.common[self.baseline.label]
        second = [table for label in labels for table in self.common[label]]
        size = max(len(first), len(second))
        if size % len(first) or size % len(second):
            found = f"{len(second)} runs or seeds against {len(first)} of the baseline"
            raise ConsilienceError(found, expected="one run of the baseline, or as many")
        both = [[*islice(cycle(tables), size)][some] for tables in (first, second)]
        models = {self.baseline.label: both[0], " + ".join(labels): both[1]}
        return compare(models, self.suite, self.protocol, self.seed, precision=True)


def is_its_own_baseline(options: GateOptions) -> bool:
    """Whether one of the runs is the baseline, as when rules are first tried on the baseline."""
    specs = (*options.runs, options.baseline or "")
    *runs, baseline = [Path(split_label(spec)[1]).resolve() for spec in specs]
    return bool(options.baseline) and baseline in runs


def open_gate_runs(options: GateOptions) -> GateRuns:
    """Open the runs and the baseline, unless it is one of them; other models or questions raise."""
    given = [] if is_its_own_baseline(options) or not options.baseline else [options.baseline]
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
    suite, protocol = suite_of(runs[0], options.suite, options.protocol, options.data_dir)
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
        notes += comparing.check_texts(runs, tables)
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


MOST = 2 / 3  # The share of a fall that a note on few groups is about


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Shown):
    """The checks of a run, or of several of the same model."""

    of: GateRuns
    checks: Sequence[GateCheck]  # A check of each rule, by group where a rule is about several
    undecided: Undecided
    notes: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """Fail if a rule fails, else undecided if one is, else pass."""
        verdicts = {check.verdict for check in self.checks}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

    @property
    def is_open(self) -> bool:
        """Whether the run may pass: no rule fails, nor is one undecided unless that may pass."""
        return self.verdict == "pass" or (self.verdict, self.undecided) == ("undecided", "pass")

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
            f"{check.name}: {check.reason}."
            for check in self.checks
            if check.verdict != "pass" or check.runs
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
        if output.format == "table" and self.verdict == "undecided":
            fate = "do not fail" if self.is_open else "fail"
            yield f"Undecided rules {fate} the gate (--undecided)."
        if output.format == "table" and self.verdict == "fail":
            yield f"Answers: consilience view {shlex.quote(str(self.of.runs[0].path))}"

    def document(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        verdict = {"verdict": self.verdict, "passes": self.is_open}
        return {"run": self.of.record(), **verdict, "checks": checks, "warnings": [*self.notes]}

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        if output.junit:
            is_strict = self.undecided == "fail"
            yield output.junit, as_junit(self.of.name, self.checks, undecided_fails=is_strict)

    def exit_status(self) -> int:
        return 0 if self.is_open else 3


def gate(options: GateOptions) -> Gate:
    """Check the rules on the numbers of a run, or of several of the same model."""
    rules, many = parse_rules(options.rule), len(options.runs)
    relative = [rule for rule in rules if rule.is_relative]
    if relative and not options.baseline:
        found = f"the rule '{relative[0].text}' without a baseline"
        raise ConsilienceError(found, todo="Name it: --baseline RUN.", option="baseline")
    if relative and is_its_own_baseline(options):
        found = f"{options.baseline} is the run and the baseline"
        expected = "another run, which is compared with the baseline"
        todo = "Name a later run; --plan takes the baseline, and says how much data is needed."
        raise ConsilienceError(found, expected=expected, todo=todo, option="baseline")
    if options.passes is not None and options.passes > many:
        found = f"--passes {options.passes} of {counted(many, 'run')}"
        raise ConsilienceError(found, expected=f"at most {many}")
    of = open_gate_runs(options)
    together = [of.labels] if options.passes is None else [[label] for label in of.labels]
    numbers = [of.numbers(labels) for labels in together]
    differences = [of.differences(labels) for labels in together] if relative else []
    checks = []
    for rule in rules:
        source = differences if rule.is_relative else numbers
        tables = [rows_of(rule, *one, of) for one in zip(source, together, strict=True)]
        for group in tables[0]:
            alone = [_check(rule, rows[group], of.suite) for rows in tables if group in rows]
            checks.append(_combined(alone, options.passes) if options.passes else alone[0])
    notes = [*of.notes, *_cautions(rules, numbers[0], of)]
    failed = [check.rule for check in checks if check.verdict == "fail"]
    for rule in (rule for rule in rules if rule.text in failed and not rule.group):
        table = (differences if rule.is_relative else numbers)[0]
        notes += worst_notes(rule, table, of.suite)
    if of.baseline is not None and relative and options.passes is None:
        table = differences[0].with_columns(second=pl.lit(of.labels[0]))
        notes += comparing.noise_notes([of.baseline, of.runs[0]], table)
        notes += few_groups_notes(rules, table, of.suite)
    return Gate(of, checks, options.undecided, list(dict.fromkeys(notes)))


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
    """Notes on items without an answer, and where bounds are wide or not right (docs/gate.md)."""
    suite, first = of.suite, of.whole[of.labels[0]][0]
    answers = first.answers
    yield from position_notes(answers)
    named = {rule.group or "MACRO" for rule in rules if rule.metric == "consistency"}
    if named:
        is_of_rule = pl.col("group").is_in([*named]) if suite.words.pool else pl.lit(True)
        top = numbers.filter(is_of_rule, metric="top_answer", subset="all")["value"]
        is_constant = (top > NEARLY_CONSTANT).any()
        yield from constant_answers(numbers, suite, details=True) if is_constant else ()
    for label in of.labels:
        for run in of.whole[label]:
            more = f"{label}: " * (len(of.labels) > 1)
            yield from (more + note for note in without_answer(run.table))
    if left_out := facts_left_out(answers, numbers, suite):
        yield left_out
    if any(rule.metric == "corrected_consistency" for rule in rules):
        yield from of_few_questions(numbers, suite)
    means = numbers.filter(group="MACRO", subset="all") if suite.words.has_means else numbers[:0]
    few = means.filter(pl.col("metric").is_in([rule.metric for rule in rules if not rule.group]))
    fewest = few.filter(pl.col("n") > 1)["n"].min()
    if isinstance(fewest, int) and fewest < FEW:
        yield (
            f"a mean over {fewest} relations is about relations like these, of which so few say "
            "little; 'METRIC in MICRO' is about these relations"
        )


def few_groups_notes(rules: Sequence[GateRule], table: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """Notes where at most a fifth of the groups have ``MOST`` of all that groups got worse."""
    for rule in rules:
        pool = rule.group or suite.words.pool
        if not rule.is_relative or pool not in ("MACRO", "MICRO") or pool not in table["group"]:
            continue
        sign = -1 if rule.threshold.at_least else 1
        weight = pl.col("n") if pool == "MICRO" else 1
        key = rule.metric, rule.subset
        averaged = [group.id for group in suite.relations if is_averaged(key, group)]
        rows = table.filter(pl.col("group").is_in(averaged), metric=rule.metric, subset=rule.subset)
        rows = rows.filter(pl.col("difference").is_not_nan())
        worse = rows.with_columns(worse=sign * weight * pl.col("difference"))
        worse = worse.sort("worse", descending=True, maintain_order=True)
        total = float(worse["worse"].clip(0).sum())
        few = worse.head(int((worse["worse"].clip(0).cum_sum() < MOST * total).sum()) + 1)
        if few.height * 5 > worse.height or float(worse["worse"].sum()) <= 0:
            continue
        share, groups = float(few["worse"].sum()) / total, counted(worse.height, suite.words.group)
        named = few.select("group", "difference").iter_rows()
        yield (
            f"{100 * share:.0f} % of the {'fall' if sign < 0 else 'rise'} of {rule.metric} is "
            f"in {few.height} of {groups}: "
            + ", ".join(f"{group} ({number_text(off, 'points')} points)" for group, off in named)
        )


def rows_of(
    rule: GateRule, table: pl.DataFrame, labels: Sequence[str], of: GateRuns
) -> dict[str, dict[str, Any]]:
    """The rows of a table of runs that a rule is about, by group; a rule without a row raises.

    Without a group these are the headline numbers (``SuiteWords.pool``).
    """
    constant, compared = _constant(rule, table, labels, of), " of both runs" * rule.is_relative
    for column, name, missing in (
        ("metric", rule.metric, f"'{rule.metric}'{compared}"),
        ("subset", rule.subset, f"{rule.metric} of '{rule.subset}'"),
        ("group", rule.group, f"group '{rule.group}' with {rule.metric}"),
    ):
        known = table[column].unique(maintain_order=True).to_list()
        if name and name not in known:
            fault = f"no {missing}, which the rule '{rule.text}' is about"
            swapped = re.sub("=(.+)/(.+)", r"=\2/\1", name)
            raise unknown_name(fault, swapped if swapped in known else name, known)
        pool = name or of.suite.words.pool
        table = table.filter(pl.col(column) == pool) if pool in known else table
    return {
        row["group"]: row | {"largest": of.largest(row), "constant": constant}
        for row in table.iter_rows(named=True)
    }


def _constant(
    rule: GateRule, table: pl.DataFrame, labels: Sequence[str], of: GateRuns
) -> list[str]:
    """The groups with one answer that a pooled corrected consistency leaves out, and should not.

    Those of several subjects whose answer is not always right in a run or seed; a baseline has
    several answers.
    """
    suite, many = of.suite, sum(len(of.whole[label]) for label in labels)
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
    for one in [table] if many == 1 else (source(labels, part) for part in parts):
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
        number.needed(rule.threshold) if verdict == "undecided" and not constant else None,
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
    if check.verdict != "undecided":
        return text
    if constant:
        return f"{text}, without {listed(constant)}, where all answers are the same"
    if check.needed is None:
        return f"{text}; the value is on the limit, so no number of {check.unit} decides"
    size = number.units if number.is_constant else number.clusters
    return (
        f"{text}; {check.needed:,} {check.unit} would decide if value and variation stay the same "
        f"(asked: {size:,})"
    )


def of_in_words(row: Mapping[str, Any], suite: Suite) -> str:
    """What a number is over, in words."""
    if row["group"] == "MICRO":
        return f"all {suite.words.item}s"
    size = counted(row["n"], suite.words.group)
    return f"mean of {size}" if row["group"] == "MACRO" else str(row["group"])


def _combined(alone: Sequence[GateCheck], passes: int) -> GateCheck:
    """A check of several runs, each judged alone: it passes if so many pass."""
    verdicts = [check.verdict for check in alone]
    many, passed = len(alone), verdicts.count("pass")
    possible = passed + verdicts.count("undecided")
    low, high = wilson_interval(passed / many, many)
    return replace(
        alone[0],
        value=fmean(check.value for check in alone),
        baseline=fmean(check.baseline for check in alone),
        low=NAN, high=NAN,
        verdict="pass" if passed >= passes else "fail" if possible < passes else "undecided",
        reason=f"{passed} of {many} runs pass, {passes} have to ({', '.join(verdicts)}); "
        f"probability of a pass {low * 100:.0f} to {high * 100:.0f} % (95 % CI)",
        needed=None, unit="", runs=tuple(alone),
    )  # fmt: skip


MOST_ITEMS, MOST_REPEATS = 1_000_000, 1_000

ONE_RUN = (
    "the error of a difference is that of two independent runs, the most that it can be; with "
    "--baseline it is that of the two runs, whose answers to an item are alike, so fewer are needed"
)

NO_REPEATS = "give several runs of the same model to plan repeats"


@dataclass(frozen=True, slots=True, repr=False)
class GatePlan(Shown):
    """How much data each rule needs."""

    of: GateRuns
    rows: Sequence[PlanRow]
    notes: Sequence[str]

    def table(self) -> Table:
        words = self.of.suite.words
        group, item = words.group, words.clusters.removesuffix("s")
        has_groups = any(row.groups is not None for row in self.rows)
        columns: Columns = {
            "rule": Column("rule"), "of": Column("of", is_extra=True), "design": Column("design"),
            **({"groups": Column(f"{group}s", "count")} if has_groups else {}),
            "items": Column(f"{item}s", "count"), "repeats": Column("repeats", "count"),
            "power": Column("power", "share"),
        }  # fmt: skip
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            for noun, name in (("groups", group), ("items", item)):
                row["design"] = row["design"].replace(noun, f"{name}s")
            if row["groups"] is None and not math.isnan(row["power"]):
                row["groups"] = ""
        notes = [
            "Power: the probability that the rule passes if the true value is that of the run or, "
            "with a baseline, the true difference is 0. Rows with another number show the least "
            "for 80 %."
        ]
        if has_groups:
            notes += [f"{item}s: in each {group}; without a number of {group}s, in all together."]
        if any(math.isnan(row.power) for row in self.rows):
            notes += ["A dash means that no number is enough, or that the variation is not known."]
        title = f"Plan from {self.of.name}, in percent"
        return frame_table(rows, title, columns, notes, sortable=False)

    def printed(self, output: Output) -> Iterator[Table | str]:
        yield self.table()

    def document(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rows]
        return {"run": self.of.record(), "plan": rows, "warnings": [*self.notes]}

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        if output.junit:
            todo = "A plan has no checks to write."
            raise ConsilienceError("--junit with --plan", expected="one of them", todo=todo)
        return iter(())


def plan_gate(options: GateOptions) -> GatePlan:
    """The power of each rule at the size of the run, and the sizes at which it is 80 %.

    True values: for a limit the value of the run, for a margin no difference from the baseline.
    """
    if options.passes is not None:
        expected = "runs that are averaged"
        raise ConsilienceError("--passes with a plan", expected=expected, todo="Leave it out.")
    rules, of = parse_rules(options.rule), open_gate_runs(options)
    is_paired = of.baseline is not None
    alone = [[label] for label in of.labels] if len(of.labels) > 1 else []

    @cache
    def tables(is_relative: bool) -> list[pl.DataFrame]:
        source = of.differences if is_relative and is_paired else of.numbers
        return [source(labels) for labels in (of.labels, *alone)]

    rows: list[PlanRow] = []
    for rule in rules:
        of_runs = zip(tables(rule.is_relative), (of.labels, *alone), strict=True)
        first, *others = (rows_of(rule, *one, of) for one in of_runs)
        for group, row in first.items():
            same = [row, *(one[group] for one in others if group in one)]
            planned = [_of_rule(rule, one, is_paired=is_paired) for one in same]
            planned = [replace(one, value=NAN) for one in planned] if row["constant"] else planned
            rows += _designs(rule.text, of_in_words(row, of.suite), rule.threshold, planned)
    notes = list(of.notes)
    notes += [ONE_RUN] if not is_paired and any(rule.is_relative for rule in rules) else []
    notes += [NO_REPEATS] if len(of.labels) == 1 else []
    return GatePlan(of, rows, notes)


def _of_rule(rule: GateRule, row: dict[str, Any], *, is_paired: bool) -> Precise:
    if not rule.is_relative:
        return precise(row, is_relative=False)
    if is_paired:
        return replace(precise(row, is_relative=True), value=0.0)
    number, twice = precise(row, is_relative=False), math.sqrt(2)
    return replace(
        number, value=0.0, bounds=difference_bounds(number.bounds), error=number.error * twice,
        within_error=number.within_error * twice, is_difference=True, skewness=0.0,
    )  # fmt: skip


def _designs(rule: str, of: str, limit: Threshold, numbers: Sequence[Precise]) -> Iterator[PlanRow]:
    """The designs of one rule; ``numbers``: of all runs averaged, then of each alone."""
    number, *alone = numbers
    repeats = max(1, len(alone))
    items = round(number.units / number.clusters) if number.is_over_groups else 0
    now = PlanRow(
        rule, of, "this run" if repeats == 1 else "these runs", number.value,
        number.clusters if items else None, items or number.clusters, repeats,
        number.power(limit),
    )  # fmt: skip
    yield now

    def other(what: str, resized: Callable[[int], Precise], size: int | None) -> PlanRow:
        power = resized(size).power(limit) if size else NAN
        sizes: dict[str, Any] = {what: size}
        return replace(now, design=f"other number of {what}", power=power, **sizes)

    def enough(resized: Callable[[int], Precise], least: int, most: int) -> int | None:
        return fewest(lambda size: resized(size).power(limit) >= POWER, least, least, most)

    clusters = clusters_for_power(number, limit)
    more_items = lambda size: number.with_within(items / size)  # noqa: E731
    if items and number.is_constant and clusters:  # these are items of all groups together
        clusters = max(2, math.ceil(clusters * number.clusters / number.units))
        more_items = lambda size: replace(number, units=round(number.units * size / items))  # noqa: E731
    yield other("groups" if items else "items", number.resized, clusters)
    if items:
        yield other("items", more_items, enough(more_items, 2, MOST_ITEMS))
    if alone:
        repeated = _repeated(number, alone)
        yield other("repeats", repeated, enough(repeated, 1, MOST_REPEATS))


def _repeated(number: Precise, alone: Sequence[Precise]) -> Callable[[int], Precise]:
    """The number of R repeats: the variance of their average is ``item + noise / R``."""

    def within(number: Precise) -> float:
        return (number.within_error if number.is_over_groups else number.error) ** 2

    many = len(alone)
    averaged, single = within(number), fmean(map(within, alone))
    noise = min(single, max(0.0, (single - averaged) / (1 - 1 / many)))

    def of(repeats: int) -> Precise:
        return number.with_within((single - noise * (1 - 1 / repeats)) / averaged)

    return of if averaged > 0 else lambda repeats: number
