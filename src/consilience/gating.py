"""The gate: rules on the numbers of a run, for CI, and whether they hold."""

from __future__ import annotations

import math
import re
import shlex
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from consilience.analysis.examples import item_agreement
from consilience.core.errors import ConsilienceError, unknown_name
from consilience.core.schemas import WAS_ASKED
from consilience.core.text import counted, listed, visible
from consilience.elsewhere import open_runs
from consilience.files.write import write_whole
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, asked_of_all, measure
from consilience.metrics.registry import DESCRIPTIONS, ENOUGH, label_of
from consilience.metrics.statistics import NAN, TIE, binomial_interval
from consilience.probing import counted_by
from consilience.report.cautions import Known, by_run, cautions
from consilience.report.table import (
    Column,
    Columns,
    Displayed,
    Kind,
    Output,
    frame_table,
    number_text,
    record_of,
)
from consilience.results import comparing
from consilience.types import Suite, SuiteWords

Row = dict[str, Any]
LEVEL, INTERVAL = 0.9, "90 % CI"  # Each bound is a one-sided 95 % bound
FORMS = (
    "'METRIC >= 0.8', 'METRIC <= 20 %' or 'METRIC no worse than baseline by 3 points', each also "
    "with 'of LEVEL', 'in GROUP' or 'over phrasings'; or 'right in 4 of 5', also with 'in GROUP'"
)
NUMBER = r"(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)) ?"
AFTER = "(?P<after>(?: (?:of|in) .+)?)"
LIMIT = re.compile(rf"(?i)(?P<name>[^<>≥≤]+?) ?(?P<way>[<>]=?|[≥≤]) ?{NUMBER}(?P<unit>%?){AFTER}")
WORSE = "no worse(?: than(?: the)? baseline)?"
RELATIVE = re.compile(rf"(?i)(?P<name>.+?) {WORSE} by {NUMBER}(?P<unit>%|points?){AFTER}")
PHRASINGS = re.compile("(?i) over phrasings$")
RIGHT_IN = re.compile(r"(?i)right in (?P<least>\d+) of (?P<size>\d+)(?: in (?P<group>.+))?")
SHOWN = 10  # Items under such a rule that a terminal shows


@dataclass(frozen=True, slots=True)
class Rule:
    """What a number of a run has to be."""

    text: str
    metric: str
    level: str  # The form, edit, factor, language or kind of expectations; empty for the whole
    group: str  # The group, ``mean`` or ``all``; empty for the headline numbers
    limit: float  # Of the number; of a relative rule of the difference, run minus baseline
    at_least: bool  # Whether it must not be below the limit; else not above it
    is_relative: bool
    is_over_phrasings: bool  # Whether its interval is about other phrasings, too
    least: int = 0  # Of ``right in k of n``, which is about each item, the k and the n; 0 of others
    size: int = 0

    @classmethod
    def of(cls, text: str) -> Rule:
        """The rule of a text; none raises."""
        rule = PHRASINGS.sub("", text := " ".join(text.split()))
        if each := RIGHT_IN.fullmatch(text):
            k, n, group = int(each["least"]), int(each["size"]), each["group"] or ""
            if not 0 < k <= n:
                raise ConsilienceError(f"the rule '{text}'", expected="such as 'right in 4 of 5'")
            return cls(text, "right_in", f"{k} of {n}", group, 1.0, True, False, False, k, n)
        absolute = LIMIT.fullmatch(rule)
        if not (match := absolute or RELATIVE.fullmatch(rule)):
            todo = f"Write '{rule} points'." if RELATIVE.fullmatch(f"{rule} points") else ""
            raise ConsilienceError(f"the rule '{text}'", expected=FORMS, todo=todo)
        name = match["name"] + match["after"]
        heads = [name[: at.start()] for at in re.finditer(" (?:of|in) |$", name)]
        head = next((one for one in heads[::-1] if _known(one, DESCRIPTIONS)), heads[0])
        metric = _known(head, DESCRIPTIONS, f"no metric '{head}' in the rule '{text}'")
        place = re.fullmatch("(?: of (.+?))?(?: in (.+?))?", name[len(head) :])
        level, group = place.groups("") if place else ("", "")
        (least, greatest), better = DESCRIPTIONS[metric].bounds, DESCRIPTIONS[metric].better
        number, unit = float(match["number"]), match["unit"]
        if absolute:
            number /= 100 if unit or (greatest == 1 and abs(number) > 1) else 1
            at_least, is_possible = match["way"][0] in ">≥", least <= number <= greatest
            expected = f"a limit from {least:g} to {greatest:g}, such as 0.95 or 95 %"
        else:
            at_least, margin = better == "higher", number / 100
            is_possible = bool(better) and unit != "%" and 0 < margin < greatest - least
            expected = f"more than 0 and less than {100 * (greatest - least):g} points, such as 3"
            expected += "; 3 % may be points or a share of the baseline" * (unit == "%")
            expected = expected if better else "a limit: this number is neither good nor bad"
            number = -margin if at_least else margin
        if not is_possible:
            raise ConsilienceError(f"the rule '{text}'", expected=expected)
        return cls(text, metric, level, group, number, at_least, not absolute, rule != text)

    def rows(self, table: pl.DataFrame, suite: Suite) -> list[Row]:
        """The rows of a table of numbers or differences that the rule is about; none raises.

        Without a group the headline numbers (``SuiteWords.over``), else those of each group.
        """
        where = pl.when(pl.col("over") == "group").then("group").otherwise("over").alias("where")
        table, parts = table.with_columns(where), {"metric": self.metric, "level": self.level}
        for column, written in (parts | ({"where": self.group} if self.group else {})).items():
            names = table[column].unique(maintain_order=True).to_list()
            what = {"where": "group", "level": f"{self.metric} of"}.get(column, column)
            fault = f"no {what} '{written}', which the rule '{self.text}' is about"
            name = _known(written, names, fault)
            table = table.filter(pl.col("over" if name in ("mean", "all") else column) == name)
        headline = table.filter(pl.lit(bool(self.group)) | (pl.col("over") == suite.words.over))
        rows = (table.filter(over="group") if headline.is_empty() else headline).to_dicts()
        return [self._over_phrasings(row) for row in rows] if self.is_over_phrasings else rows

    def _over_phrasings(self, row: Row) -> Row:
        """The row with its interval over phrasings; none raises."""
        is_known = DESCRIPTIONS[self.metric].over_phrasings
        if not is_known or (math.isnan(row["low_phrasings"]) and not math.isnan(row["low"])):
            names = [name for name, of in DESCRIPTIONS.items() if of.over_phrasings]
            expected = f"{ENOUGH[0]} to {ENOUGH[-1]} templates or paraphrases, each in as many "
            expected += f"variants, and one of {listed(names)}"
            raise ConsilienceError(f"no interval for the rule '{self.text}'", expected=expected)
        return row | {"low": row["low_phrasings"], "high": row["high_phrasings"]}

    def items(self, table: pl.DataFrame) -> pl.DataFrame:
        """The items (``AGREEMENT_SCHEMA``) that were asked, the worst first, under ``k of n``.

        ``right`` of their ``answers`` are right; ``low`` and ``high`` are the exact bounds of the
        share. ``verdict``: ``pass`` if it is at least k/n. ``shown``: where the whole interval is,
        ``at or above`` k/n or ``below``; else ``neither``.
        """
        if self.group:
            fault = f"no group '{self.group}', which the rule '{self.text}' is about"
            table = table.filter(group=_known(self.group, table["group"].unique(), fault))
        table = table.filter(pl.col("answers") > 0).with_columns(rule=pl.lit(self.text))
        table = table.with_columns((pl.col("right") * pl.col("answers")).round().cast(pl.Int64))
        counts = table.select("right", "answers").rows()
        bounds = [binomial_interval(right, answers, LEVEL) for right, answers in counts]
        share, kinds = self.least / self.size, {"low": pl.Float64, "high": pl.Float64}
        table = table.hstack(pl.DataFrame(bounds, kinds, orient="row"))
        is_above, is_below = pl.col("low") >= share - TIE, pl.col("high") < share - TIE
        passes = pl.col("right") * self.size >= pl.col("answers") * self.least
        shown = pl.when(is_above).then(pl.lit("at or above")).when(is_below).then(pl.lit("below"))
        verdict = pl.when(passes).then(pl.lit("pass")).otherwise(pl.lit("fail"))
        table = table.with_columns(verdict=verdict, shown=shown.otherwise(pl.lit("neither")))
        names = ("rule", "group", "item", "right", "answers", "low", "high", "verdict", "shown")
        return table.select(names).sort("verdict", "high", "low", maintain_order=True)

    def holds(self, value: float, low: float, high: float, *, prove: bool) -> bool:
        """Whether a number, or a difference, with this interval passes.

        A limit is compared with the number. A difference fails only beyond the margin and with its
        whole interval on that side of 0, so not without an interval. ``prove``: the whole interval
        has to be on the right side of the limit.
        """
        sign = 1 if self.at_least else -1
        low, high = sorted((sign * low, sign * high))
        limit = sign * self.limit - TIE
        is_inside = sign * value >= limit
        if math.isnan(low):
            return (is_inside or self.is_relative) and not prove
        return low >= limit if prove else is_inside or (self.is_relative and high >= 0)


def _known(written: str, names: Iterable[str], fault: str = "") -> str:
    """The name that is written, in any case and with spaces; of a metric also its label.

    None or several raise ``fault``; without one the name is empty.
    """

    def key(name: str) -> str:
        return re.sub(r"\W+", "_", name.casefold()).strip("_")

    same = [one for one in names if key(written) in (key(one), key(label_of(one)))]
    if written in same or len(same) == 1:
        return written if written in same else same[0]
    if fault:
        raise unknown_name(fault, written.lower(), [name for name in names if name])
    return ""


@dataclass(frozen=True, slots=True)
class Check:
    """A rule on the number of one group, or of all."""

    rule: str
    metric: str  # ``metric`` to ``level``: as in ``METRICS_SCHEMA``
    over: str
    group: str
    kind: str
    level: str
    value: float
    baseline: float  # NaN without a baseline, and so is ``difference``
    difference: float
    low: float  # Bounds of the 90 % interval of the number or the difference; NaN without one
    high: float
    limit: float
    verdict: Literal["pass", "fail"]
    note: str  # What the numbers do not show, or empty
    of: str  # What the number is over, in words

    @property
    def is_beyond(self) -> bool:
        """Whether a difference passes beyond its margin, because it may be chance."""
        return self.verdict == "pass" and self.difference * self.limit > self.limit**2 + TIE

    @property
    def reason(self) -> str:
        """The number and the note, without a full stop."""
        is_share = math.isnan(self.difference)
        numbers = (self.value if is_share else self.difference), self.low, self.high
        shown, low, high = (number_text(of, "share" if is_share else "points") for of in numbers)
        reason = f"{label_of(self.metric)} {shown} "
        reason += "%" if is_share else "points against the baseline"
        reason += f" ({INTERVAL} {low} to {high})" * (not math.isnan(self.low))
        return self.note if math.isnan(numbers[0]) else "; ".join(filter(None, [reason, self.note]))


SAME = ("metric", "over", "group", "kind", "level", "low", "high")  # As in the row of a check
COLUMNS: Columns = {
    "rule": Column("rule"), "verdict": Column("verdict"), "of": Column("of", is_extra=True),
    "value": Column("value", "share"), "baseline": Column("baseline", "share"),
    "difference": Column("diff.", "points"), "interval": Column(INTERVAL, is_extra=True),
    "limit": Column("limit"),
}  # fmt: skip


def _check(
    rule: Rule, row: Row, table: pl.DataFrame, suite: Suite, items: pl.DataFrame,
    before: pl.DataFrame, *, prove: bool,
) -> Check:  # fmt: skip
    """The check of a row of a table of numbers or differences.

    ``items``: those that were asked; ``before``: the queries of the baseline, of which the run may
    lack none (group, asked, common). A mean fails if a group has no number any more.
    """
    is_relative = rule.is_relative
    columns = ("second_value", "first_value", "difference") if is_relative else ("value",)
    value, baseline, difference = [*(row[name] for name in columns), NAN, NAN][:3]
    number = row[columns[-1]], row["low"], row["high"]
    is_mean, words = row["over"] == "mean" and row["n"] != 1, suite.words
    lost = list[str]()
    if row["over"] == "mean" and is_relative:
        same = {name: row[name] for name in ("metric", "kind", "level")}
        known = pl.col("first_value").is_not_nan() & pl.col("second_value").is_nan()
        lost = table.filter(known, over="group", **same)["group"].to_list()
    if rule.group and row["group"]:
        before = before.filter(group=row["group"])
    whole = int(before["asked"].sum())
    missing = whole - int(before["common"].sum())
    holds = rule.holds(*number, prove=prove) and not lost and not missing
    items = items.filter(group=row["group"]) if row["group"] else items
    size = counted(row["n"], words.group) if is_mean else counted(items.height, words.item)
    note = ""
    if missing:
        note = f"{missing:,} of {whole:,} queries of the baseline were not asked, "
        note += "or have another right answer"
    elif lost:
        note = f"undefined now in {listed(lost)}"
    elif math.isnan(number[0]):
        both = (("the baseline", baseline), ("the run", value))[not is_relative :]
        where = [run for run, one in both if math.isnan(one)]
        holds = len(where) == 2 and bool(row["group"]) and not prove
        note = f"{label_of(rule.metric)} is undefined in {' and '.join(where)}"
    elif prove and not holds:
        note = f"not proved by {size}"
    elif math.isnan(number[1]):
        note = f"without an interval over {size}"
    elif is_relative and holds and not prove and number[1] <= 0 <= number[2]:
        move = "fall" if rule.at_least else "rise"
        reach = number[2] - number[0] if rule.at_least else number[0] - number[1]
        what = (
            f"a {move} under {number_text(reach, 'share')} points" if reach < 1 else f"any {move}"
        )
        note = f"{size} cannot show {what}"
    return Check(
        rule=rule.text, **{name: row[name] for name in SAME}, value=value, baseline=baseline,
        difference=difference, limit=rule.limit, verdict="pass" if holds else "fail",
        note=note, of=f"mean of {size}" if is_mean else row["group"] or f"all {words.item}s",
    )  # fmt: skip


def _check_items(rule: Rule, items: pl.DataFrame, words: SuiteWords, *, prove: bool) -> Check:
    """The check of a rule about each of the items (``Rule.items``)."""
    passed = items.filter(verdict="pass").height
    below, neither = (items.filter(shown=of).height for of in ("below", "neither"))
    note = f"{passed} of {counted(items.height, words.item)}; {below} clearly below, "
    note += f"{neither} neither" + " (too few answers)" * (neither > 0)
    misses = below + neither if prove else items.height - passed
    holds = items.height > 0 and misses == 0
    return Check(
        rule.text, rule.metric, "group" if rule.group else "all", rule.group, "count", rule.level,
        passed / items.height if items.height else NAN, NAN, NAN, NAN, NAN, rule.limit,
        "pass" if holds else "fail", note, rule.group or f"all {words.item}s",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Displayed):
    """The checks of a run."""

    name: str  # Of the run
    record: Mapping[str, Any]
    checks: Sequence[Check]  # A check of each rule, by group where a rule is about several
    notes: Sequence[str]
    items: pl.DataFrame
    """The items under rules ``right in k of n`` (``Rule.items``) that fail, or pass by chance."""

    @property
    def failed(self) -> Sequence[Check]:
        return [check for check in self.checks if check.verdict == "fail"]

    @property
    def verdict(self) -> Literal["pass", "fail"]:
        return "fail" if self.failed else "pass"

    @property
    def said_of_items(self) -> list[str]:
        """A sentence on each of the items."""
        sentences = list[str]()
        for row in self.items.to_dicts():
            low, high = (number_text(row[of], "share") for of in ("low", "high"))
            said = f"{row['item']} ({row['group']}): right in {row['right']} of {row['answers']}, "
            sentences.append(f"{said}{INTERVAL} {low} to {high}: {row['verdict']}, {row['shown']}.")
        return sentences

    def output(self) -> Output:
        failed = f"{len(self.failed)} of {counted(len(self.checks), 'check')} failed"
        beyond = sum(check.is_beyond for check in self.checks)
        failed += f", {beyond} beyond the margin, but not shown" * (beyond > 0)
        title = f"Gate: {self.verdict.upper()} ({failed}). {self.name}, in percent"
        notes = [f"{one.rule} ({one.of}): {one.note}." for one in self.checks if one.note]
        notes += self.said_of_items[:SHOWN]
        notes += [f"{self.items.height - SHOWN:,} more: --json."] * (self.items.height > SHOWN)
        rows = [asdict(one) | {"is_beyond": one.is_beyond} for one in self.checks]
        checks = pl.DataFrame(rows)
        for row, check in zip(rows, self.checks, strict=True):
            kind: Kind = "share" if math.isnan(check.difference) else "points"
            bounds = number_text(check.low, kind), number_text(check.high, kind)
            row["interval"] = "none" if math.isnan(check.low) else " to ".join(bounds)
            row["limit"] = number_text(check.limit, kind)
            row["verdict"] += ", not shown" * check.is_beyond
            row.update({"baseline": "", "difference": ""} if kind == "share" else {})
        table = frame_table(rows, title, COLUMNS, notes)
        runs = [self.record["settings"][name] for name in ("baseline", "run")]
        both = " ".join(shlex.quote(run) for run in runs if run)
        answers = f"Answers: consilience report {both} --out report.html"
        if runs[0]:
            answers = f"Questions that changed: consilience compare {both} --flips\n{answers}"
        return Output(
            {"checks": checks, "items": self.items},
            [table, answers] if self.failed else [table], cautions=self.notes,
            facts={"run": self.record, "verdict": self.verdict}, status=3 if self.failed else 0,
        )  # fmt: skip


def _asked(answers: pl.DataFrame) -> pl.DataFrame:
    """The queries that were asked (group, item)."""
    return answers.filter(WAS_ASKED).select(pl.col("group", "item").cast(pl.String))


def _asked_again(answers: pl.DataFrame, common: pl.DataFrame) -> pl.DataFrame:
    """How many queries of each group were asked, and how many of them are common to all runs."""
    by_group = _asked(answers).group_by("group").agg(asked=pl.len())
    again = _asked(common).group_by("group").agg(common=pl.len())
    return by_group.join(again, on="group", how="left").fill_null(0)


def _rules(texts: Sequence[str], baseline: str | None) -> list[Rule]:
    """The rules of texts; none raises, and one against a baseline without one."""
    rules = [Rule.of(text) for text in dict.fromkeys(texts)]
    if not rules:
        todo = "Write --rule, or rule = ['consistency >= 0.8'] in [gate] of consilience.toml."
        raise ConsilienceError("no rule", expected=FORMS, todo=todo)
    relative = [rule.text for rule in rules if rule.is_relative]
    if relative and not baseline:
        found, todo = f"the rule '{relative[0]}' without a baseline", "Name it: --baseline RUN."
        raise ConsilienceError(found, todo=todo)
    return rules


def gate(
    path: str | Path,
    texts: Sequence[str],
    baseline: str | None,
    *,
    prove: bool = False,
    junit: Path | None = None,
) -> Gate:
    """Check the rules on the numbers of a run.

    ``junit``: the file gets the checks, or one case with the error that there are none.
    """
    if junit and junit.suffix.lower() not in ("", ".xml"):
        raise ConsilienceError(f"checks in '{junit.suffix}'", expected=".xml", where=str(junit))
    try:
        rules = _rules(texts, baseline)
        run, *base = open_runs([str(path), *filter(None, [baseline])])
        if part := next((one.path for one in (run, *base) if not one.is_finished), None):
            todo = "Rerun the command of the run to resume it."
            raise ConsilienceError("the run is not finished", where=str(part), todo=todo)
        suite = run.suite
        asked = CheckedAnswers(run.answers, suite)
        metrics = measure(asked, suite, suite.protocol, LEVEL)
        items, whole = _asked(asked.coded).unique(), _asked_again(run.answers, run.answers)
        tables = {False: (metrics, items, whole)}
        known = Known(suite=suite, answers=asked, metrics=metrics)
        notes: Sequence[str] = cautions(known)
        if any(rule.is_relative for rule in rules):
            common = comparing.Common.of([*base, run], counted_by(base[0], suite.protocol))
            both = asked_of_all(common.answers)
            differences = compare(both, common.suite, suite.protocol, LEVEL)
            items, first = _asked(both[run.label].coded).unique(), base[0]
            whole = _asked_again(first.answers, both[first.label].coded)
            tables[True] = differences, items, whole
            own = by_run({first.label: [], run.label: notes})
            notes = [*dict.fromkeys([*comparing.cautions_on(common, differences), *own])]
        checks, judged = list[Check](), [pl.DataFrame()]
        for rule in rules:
            if rule.least:
                of_rule = rule.items(item_agreement(asked, suite, suite.protocol))
                checks.append(_check_items(rule, of_rule, suite.words, prove=prove))
                judged.append(of_rule.filter(pl.col("shown") != "at or above"))
                continue
            table, items, whole = tables[rule.is_relative]
            rows = rule.rows(table, suite)
            checks += [_check(rule, row, table, suite, items, whole, prove=prove) for row in rows]
        name = run.label + "".join(f" against {one.label}" for one in base)
        paths = {"run": run.where, "baseline": baseline}
        record = record_of(**paths, suite=suite.name, protocol=suite.protocol, prove=prove)
        made = Gate(
            f"{name} on {suite.name}", record, checks, notes, pl.concat(judged, how="diagonal")
        )
    except ConsilienceError as error:
        if junit and junit.parent.is_dir():
            case = "gate", "error", str(error).rstrip(".")
            write_whole(junit, as_junit(str(path), [case], []))
        raise
    if junit:
        cases = [
            (f"{one.rule} ({one.of})", "not shown" if one.is_beyond else one.verdict, one.reason)
            for one in made.checks
        ]
        write_whole(junit, as_junit(made.name, cases, [*made.notes, *made.said_of_items]))
    return made


OUTCOMES = {"fail": "failure", "error": "error", "not shown": "skipped"}
"""The elements of test cases that do not pass; what is beyond its margin by chance is *skipped*."""


def as_junit(name: str, cases: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> bytes:
    """A ``testsuite`` of the run; of each case its name, outcome (pass or ``OUTCOMES``) and why."""
    found = Counter(outcome for _, outcome, _ in cases)
    counts = {"tests": f"{len(cases)}", "failures": f"{found['fail']}"}
    counts |= {"errors": f"{found['error']}", "skipped": f"{found['not shown']}"}
    root, name = ET.Element("testsuites", counts, name="consilience gate"), _text(name)
    suite = ET.SubElement(root, "testsuite", counts, name=name)
    for written, outcome, why in cases:
        named, reason = _text(written), _text(why)
        case = ET.SubElement(suite, "testcase", classname=name, name=named, time="0")
        if outcome == "pass":
            ET.SubElement(case, "system-out").text = f"{reason}."
        else:  # GitLab reads the content, not the message
            facts = {"type": outcome, "message": f"{outcome}: {reason}"}
            ET.SubElement(case, OUTCOMES[outcome], facts).text = f"{named}: {reason}."
    if notes:
        ET.SubElement(suite, "system-out").text = _text("\n".join(notes))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _text(text: str) -> str:
    return re.sub("[\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", visible(text))
