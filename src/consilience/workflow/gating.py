"""gate: whether a run keeps rules on its numbers, decided by their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from consilience.choices import Undecided
from consilience.errors import ConsilienceError, unknown_name
from consilience.metrics.counts import is_averaged
from consilience.metrics.intervals import NAN, wilson_interval
from consilience.metrics.margins import Precise, Verdict
from consilience.metrics.notes import (
    NEARLY_CONSTANT,
    constant_answers,
    facts_left_out,
    of_few_questions,
)
from consilience.metrics.registry import label_of
from consilience.metrics.shown_positions import position_notes
from consilience.metrics.significance import FEW
from consilience.options import Output
from consilience.report.gate_tables import GateCheck, gate_table, in_words
from consilience.report.junit import as_junit
from consilience.report.shown import Shown
from consilience.report.table import Table, number_text
from consilience.text import counted
from consilience.types import FACT_WORDS, QUESTION_WORDS, Suite
from consilience.workflow.comparing import noise_notes
from consilience.workflow.gate_rules import GateRule, parse_rules
from consilience.workflow.gate_runs import (
    GateRuns,
    is_its_own_baseline,
    open_gate_runs,
    precise,
)
from consilience.workflow.run_options import GateOptions

MOST = 2 / 3
"""The share of a fall that a note on few groups is about."""


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Shown):
    """The checks of a run, or of several of the same model."""

    of: GateRuns
    """The runs and their answers."""
    checks: Sequence[GateCheck]
    """A check of each rule, by group where a rule is about several."""
    undecided: Undecided
    """What an undecided rule does to the exit status."""
    notes: Sequence[str]
    """What a reader should know."""

    @property
    def verdict(self) -> Verdict:
        """Fail if a rule fails, else undecided if one is, else pass."""
        verdicts = {check.verdict for check in self.checks}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

    @property
    def is_open(self) -> bool:
        """Whether the run may pass: no rule fails, nor is one undecided unless that may pass."""
        return self.verdict == "pass" or (self.verdict, self.undecided) == ("undecided", "pass")

    @property
    def title(self) -> str:
        """The verdict and what it is about."""
        against = f" against {self.of.baseline.label}" if self.of.baseline else ""
        counts = [
            f"{size} {verdict}"
            for verdict in ("fail", "undecided", "pass")
            if (size := sum(check.verdict == verdict for check in self.checks))
        ]
        name = f"{', '.join(self.of.labels)}{against} on {self.of.suite.name}"
        return f"Gate: {self.verdict.upper()} ({', '.join(counts)}). {name}, in percent"

    def table(self) -> Table:
        """A row for each check."""
        return gate_table(self.title, self.checks)

    def printed(self, output: Output) -> Iterator[Table | str]:
        """Each rule with its verdict."""
        table = self.table()
        if output.format == "md":
            table = replace(table, notes=[*table.notes, *self.notes])
        yield table
        if output.format == "table" and self.verdict == "undecided":
            fate = "do not fail" if self.is_open else "fail"
            yield f"Undecided rules {fate} the gate (--undecided)."

    def document(self) -> dict[str, Any]:
        """The checks as rows."""
        checks = [asdict(check) for check in self.checks]
        verdict = {"verdict": self.verdict, "passes": self.is_open}
        return {"run": self.of.record(), **verdict, "checks": checks, "warnings": [*self.notes]}

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        """The checks as JUnit XML."""
        if output.junit:
            name = f"{', '.join(self.of.labels)} on {self.of.suite.name}"
            is_strict = self.undecided == "fail"
            yield output.junit, as_junit(name, self.checks, undecided_fails=is_strict)

    def exit_status(self) -> int:
        """3 if the run may not pass."""
        return 0 if self.is_open else 3


def gate(options: GateOptions) -> Gate:
    """Check the rules on the numbers of a run, or of several of the same model.

    The numbers, their standard errors and their clusters are those of ``score`` and ``compare``.
    """
    rules, many = parse_rules(options.rule), len(options.runs)
    is_relative = any(rule.is_relative for rule in rules)
    if is_relative and options.baseline is None:
        text = next(rule.text for rule in rules if rule.is_relative)
        raise ConsilienceError(
            f"the rule '{text}' without a baseline",
            expected="a run to compare with",
            todo="Name it: --baseline RUN.",
        )
    if is_its_own_baseline(options):
        if is_relative:
            raise ConsilienceError(
                f"{options.baseline} is the run and the baseline",
                expected="another run, which is compared with the baseline",
                todo="Name a later run; --plan takes the baseline, and says how much data the "
                "rules need.",
            )
        options = replace(options, baseline=None)
    if options.passes is not None and options.passes > many:
        raise ConsilienceError(
            f"--passes {options.passes} of {counted(many, 'run')}", expected=f"at most {many}"
        )
    of = open_gate_runs(options)
    together = [of.labels] if options.passes is None else [[label] for label in of.labels]
    numbers = [of.numbers(labels) for labels in together]
    differences = [of.differences(labels) for labels in together] if is_relative else []
    checks = []
    for rule in rules:
        tables = [rows_of(rule, one, of) for one in (differences if rule.is_relative else numbers)]
        for group in tables[0]:
            single = [_check(rule, rows[group], of.suite) for rows in tables if group in rows]
            checks.append(_combined(single, options.passes) if options.passes else single[0])
    notes = [*of.notes, *_cautions(rules, numbers[0], of)]
    if of.baseline is not None and is_relative and options.passes is None:
        table = differences[0].with_columns(second=pl.lit(of.labels[0]))
        notes += noise_notes([of.baseline, of.runs[0]], table)
        notes += few_groups_notes(rules, table, of.suite)
    return Gate(of, checks, options.undecided, list(dict.fromkeys(notes)))


def _cautions(rules: Sequence[GateRule], numbers: pl.DataFrame, of: GateRuns) -> Iterator[str]:
    """Notes on items without an answer, and where bounds are wide or not right (docs/gate.md).

    Also where answers that hardly depend on the question make the model consistent.
    """
    suite, answers = of.suite, of.whole[of.labels[0]][0].answers
    yield from position_notes(answers)
    if any(rule.metric == "consistency" for rule in rules):
        top = numbers.filter(metric="top_answer", group="MACRO")["value"]
        yield from constant_answers(numbers, suite) if (top > NEARLY_CONSTANT).any() else ()
    if left_out := facts_left_out(answers, numbers, suite, of.protocol):
        yield left_out
    if any(rule.metric == "corrected_consistency" for rule in rules):
        yield from of_few_questions(numbers, suite)
    means = (
        numbers.filter(group="MACRO", subset="all") if suite.words is FACT_WORDS else numbers[:0]
    )
    few = means.filter(pl.col("metric").is_in([rule.metric for rule in rules if not rule.group]))
    fewest = few.filter(pl.col("n") > 1)["n"].min()
    if isinstance(fewest, int) and fewest < FEW:
        yield (
            f"a mean over {fewest} relations is about relations like these, of which so few say "
            "little; 'METRIC in MICRO' is about these relations"
        )


def few_groups_notes(rules: Sequence[GateRule], table: pl.DataFrame, suite: Suite) -> Iterator[str]:
    """Notes on rules over all groups whose number got worse in few groups (docs/gate.md).

    At most a fifth of the groups have ``MOST`` of all that groups got worse. ``table``:
    ``COMPARISON_SCHEMA``.
    """
    for rule in rules:
        pool = _pool(rule, suite)
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


def rows_of(rule: GateRule, table: pl.DataFrame, of: GateRuns) -> dict[str, dict[str, Any]]:
    """The rows of a table that a rule is about, by group.

    Without a group these are the headline numbers: the mean over relations, all questions together,
    or each task of sentence pairs. A rule without a row raises.
    """
    compared = " of both runs" if rule.is_relative else ""
    names = table["metric"].unique(maintain_order=True)
    _check_name(rule, f"'{rule.metric}'{compared}", rule.metric, names)
    rows = table.filter(metric=rule.metric)
    _check_name(rule, f"{rule.metric} of '{rule.subset}'", rule.subset, rows["subset"])
    rows = rows.filter(subset=rule.subset)
    if rule.group:
        _check_name(rule, f"group '{rule.group}' with {rule.metric}", rule.group, rows["group"])
    pool = _pool(rule, of.suite)
    rows = rows.filter(group=pool) if pool in rows["group"] else rows
    return {row["group"]: row for row in rows.iter_rows(named=True)}


def _pool(rule: GateRule, suite: Suite) -> str:
    """The group that a rule names, or that of the headline numbers."""
    return rule.group or ("MICRO" if suite.words is QUESTION_WORDS else "MACRO")


def _check_name(rule: GateRule, missing: str, name: str, known: Iterable[str]) -> None:
    """Raise for a name in a rule that the numbers do not have."""
    names = list(dict.fromkeys(known))
    if name not in names:
        raise unknown_name(f"no {missing}, which the rule '{rule.text}' is about", name, names)


def _check(rule: GateRule, row: Mapping[str, Any], suite: Suite) -> GateCheck:
    """One rule on one number."""
    number = precise(row, is_relative=rule.is_relative)
    low, high = number.interval()
    verdict, unit = number.verdict(rule.threshold), _unit(number, suite)
    needed = number.needed(rule.threshold) if verdict == "undecided" else None
    check = GateCheck(
        rule=rule.text,
        group=row["group"],
        of=of_in_words(row, suite),
        value=row["second_value" if rule.is_relative else "value"],
        baseline=row["first_value"] if rule.is_relative else NAN,
        low=low,
        high=high,
        limit=rule.threshold.value,
        verdict=verdict,
        reason="",
        needed=needed,
        unit=unit,
    )
    return replace(check, reason=_reason(check, number, label_of(rule.metric)))


def _reason(check: GateCheck, number: Precise, label: str) -> str:
    """Why a check has its verdict."""
    if math.isnan(number.value):
        return f"{label} is undefined, as of a model that always gives the same answer"
    if math.isnan(check.low):
        return f"{label} has no interval here, so no rule on it is decided (docs/statistics.md)"
    text = f"{label} {in_words(check)}"
    if number.is_constant:
        text += f", the same in all {number.units} {check.unit}"
    if check.verdict != "undecided":
        return text
    if check.needed is None:
        return f"{text}; the value is on the limit, so no number of {check.unit} decides"
    size = number.units if number.is_constant else number.clusters
    return (
        f"{text}; {check.needed:,} {check.unit} would decide if value and variation stay the same "
        f"(asked: {size:,})"
    )


def _unit(number: Precise, suite: Suite) -> str:
    """What the clusters of a number are called."""
    if number.is_over_groups and not number.is_constant:
        return f"{suite.words.group}s"
    return "subjects" if suite.words is FACT_WORDS else f"{suite.words.item}s"


def of_in_words(row: Mapping[str, Any], suite: Suite) -> str:
    """What a number is over, in words."""
    if row["group"] == "MICRO":
        return f"all {suite.words.item}s"
    size = counted(row["n"], suite.words.group)
    return f"mean of {size}" if row["group"] == "MACRO" else str(row["group"])


def _combined(single: Sequence[GateCheck], passes: int) -> GateCheck:
    """A check of several runs, each judged alone: it passes if so many pass."""
    many = len(single)
    passed = sum(check.verdict == "pass" for check in single)
    possible = passed + sum(check.verdict == "undecided" for check in single)
    verdict: Verdict = "undecided"
    if passed >= passes:
        verdict = "pass"
    elif possible < passes:
        verdict = "fail"
    low, high = wilson_interval(passed / many, many)
    verdicts = ", ".join(check.verdict for check in single)
    return GateCheck(
        rule=single[0].rule,
        group=single[0].group,
        of=single[0].of,
        value=fmean(check.value for check in single),
        baseline=fmean(check.baseline for check in single),
        low=NAN,
        high=NAN,
        limit=single[0].limit,
        verdict=verdict,
        reason=f"{passed} of {many} runs pass, {passes} have to ({verdicts}); probability of a "
        f"pass {low * 100:.0f} to {high * 100:.0f} % (95 % CI)",
        runs=tuple(single),
    )
