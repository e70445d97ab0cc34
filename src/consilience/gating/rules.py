"""Rules of a gate, and the margins that decide them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from consilience.core.errors import ConsilienceError, unknown_name
from consilience.metrics import statistics
from consilience.metrics.registry import DESCRIPTIONS, METRICS
from consilience.metrics.statistics import NAN, TIE

Verdict = Literal["pass", "fail", "undecided"]

ERROR_RATE = 0.05  # Of each one-sided bound


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit of a number, and on which side of it the number has to be."""

    value: float
    at_least: bool

    def distance(self, value: float) -> float:
        return value - self.value if self.at_least else self.value - value


@dataclass(frozen=True, slots=True)
class Precise:
    """A number, or a difference of two, with what its interval is made of."""

    value: float
    bounds: tuple[float, float]  # The least and the greatest value that it can have
    reach: float  # The most that the answers to an item can change a mean of such items
    error: float  # The standard error; 0 where nothing varies, NaN where it is not known
    clusters: int  # How many groups the value is the mean over; else how many subjects were counted
    units: int  # How many subjects were counted, in all groups
    within_error: float = NAN  # Over the items of the same groups; NaN but for a mean
    is_difference: bool = False
    skewness: float = 0.0  # Of a mean over groups: the skewness of their values
    largest: float = 1.0  # How many times as much as the mean subject the largest one counts

    @property
    def is_over_groups(self) -> bool:
        return not math.isnan(self.within_error) and self.clusters < self.units

    @property
    def is_constant(self) -> bool:
        """Whether no item differs from the others, so that nothing shows how much it varies."""
        varies = self.is_over_groups and self.within_error > TIE
        return self.error <= TIE and not varies and self.units > 1

    def farthest(self, bound: float) -> float:
        """How far the answers to an item can move a number that does not vary to a bound."""
        return max(self.reach, abs(bound - self.value))

    def interval(self) -> tuple[float, float]:
        """The two one-sided bounds; NaN where they are not known.

        Those of ``logit_interval`` at 90 %, each bound with one more item (``with_one_more``); of a
        mean over groups, on the side where few groups are far away, Hall's bound for skewed values
        if it is farther (``skewed_reach``). Where nothing varies, as many items as 0 of n are
        compatible with (Clopper-Pearson) may be other than those asked.
        """
        level = 1 - 2 * ERROR_RATE
        if self.is_constant and not math.isnan(self.value):
            share = statistics.unseen_share(self.units / self.largest, level)
            down, up = (share * self.farthest(bound) for bound in self.bounds)
            return max(self.bounds[0], self.value - down), min(self.bounds[1], self.value + up)
        low, high = (
            statistics.logit_interval(
                number.value, number.error, number.clusters, self.bounds, level
            )[at]
            for at, number in enumerate((self.with_one_more(-1), self.with_one_more(1)))
        )
        if self.is_over_groups and self.skewness:
            reach = self.error * statistics.skewed_reach(self.clusters, -abs(self.skewness), level)
            if self.skewness < 0:
                low = min(low, max(self.bounds[0], self.value - reach))
            else:
                high = max(high, min(self.bounds[1], self.value + reach))
        return low, high

    def with_one_more(self, sign: int) -> Precise:
        """The number with one more item, which moves it as far down (-1) or up as an item can.

        Where few items differ between two runs, their variance is too small to be trusted: of 100
        items 2 that differ are compatible with 6 %. One more item has nearly the bounds of
        Clopper and Pearson. Of subjects of unequal size it is as large as the largest, because few
        large ones may not have been seen to differ. For a value the logit scale does this if all
        are equal: the item counts as much less. The t distribution does it for few groups.
        """
        weight = self.largest if self.is_difference else self.largest - 1
        if not weight or self.is_over_groups or self.clusters < 2:
            return self
        size, moved, more = self.clusters, self.bounds[sign > 0], min(1.0, weight)
        squares = self.error**2 * size * (size - 1)
        squares += weight**2 * size / (size + 1) * (self.value - moved) ** 2
        return replace(
            self, value=(size * self.value + weight * moved) / (size + weight),
            error=math.sqrt(squares / ((size + more) * (size + more - 1))),
            clusters=size + int(more), units=size + int(more),
        )  # fmt: skip

    def verdict(self, threshold: Threshold) -> Verdict:
        """Pass or fail if both bounds are on that side of the threshold, else undecided."""
        off = [threshold.distance(bound) for bound in self.interval()]
        if min(off) >= 0:
            return "pass"
        return "fail" if max(off) < 0 else "undecided"


FORMS = (
    "'METRIC >= 0.8', 'METRIC <= 20 %' or 'METRIC no worse than baseline by 3 points', each also "
    "with 'of SUBSET' or 'in GROUP' after the metric"
)

NUMBER = r"(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+))"
ABSOLUTE = re.compile(rf"(?P<name>[^<>≥≤]+?)\s*(?P<way>>=|<=|≥|≤)\s*{NUMBER}\s*(?P<percent>%?)")
RELATIVE = re.compile(rf"(?P<name>.+?)\s+no (?P<way>\w+) than baseline by {NUMBER} (?:points?|%)")
NAME = re.compile(r"(.+?)(?: of (.+?))?(?: in (.+?))?")


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a number of a run has to be."""

    text: str
    metric: str
    subset: str  # The form, factor, edit or kind of expectations; ``all`` for all together
    group: str  # The group; empty for the groups that the headline numbers are about
    threshold: Threshold  # The limit; for a comparison that of the difference, run minus baseline
    is_relative: bool


def parse_rules(texts: Iterable[str]) -> list[GateRule]:
    """The rules of their texts, each once; none raises."""
    rules = [_parsed(" ".join(text.split())) for text in dict.fromkeys(texts)]
    if not rules:
        raise ConsilienceError(
            "no rule",
            expected=FORMS,
            todo="Write --rule \"consistency >= 0.8\", or rule = ['...'] in the table [gate] of "
            "consilience.toml.",
        )
    return rules


def _parsed(text: str) -> GateRule:
    absolute = ABSOLUTE.fullmatch(text)
    if not (match := absolute or RELATIVE.fullmatch(text)):
        raise ConsilienceError(
            f"the rule '{text}'", expected=FORMS, todo="Give each rule its --rule."
        )
    written, part, group = NAME.fullmatch(match["name"]).groups()  # type: ignore[union-attr]
    metric, subset, way = _metric(written, text), part or "all", match["way"]
    number, (least, greatest) = float(match["number"]), DESCRIPTIONS[metric].bounds
    if absolute:
        limit = Threshold(number / (100 if match["percent"] else 1), way in (">=", "≥"))
        if not least < limit.value < greatest:
            found = f"the rule '{text}' with the limit {limit.value:g}"
            expected = f"a limit above {least:g} and below {greatest:g}, such as 0.95 or 95 %"
            raise ConsilienceError(found, expected=expected)
    else:
        better, margin = DESCRIPTIONS[metric].better, number / 100
        ways = {"lower": False, "higher": True} | ({"worse": better == "lower"} if better else {})
        if way not in ways or not 0 < margin < greatest - least:
            known = [f"'no {name} than baseline'" for name in sorted(ways, reverse=True)]
            raise ConsilienceError(
                f"the rule '{text}'",
                expected=f"{' or '.join(known)} by a margin above 0 and below "
                f"{100 * (greatest - least):g} points",
            )
        limit = Threshold(margin, False) if ways[way] else Threshold(-margin, True)
    return GateRule(text, metric, subset, group or "", limit, not absolute)


def _metric(written: str, text: str) -> str:
    key = re.sub(r"\W+", "_", written.lower()).strip("_")
    labels = {re.sub(r"\W+", "_", one.label.lower()): name for name, one in DESCRIPTIONS.items()}
    if key in METRICS or key == "determinism":
        return key
    if key not in labels:
        raise unknown_name(f"no metric '{written}' in the rule '{text}'", key, METRICS)
    return labels[key]
