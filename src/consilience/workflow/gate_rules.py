"""The rules of a gate: ``consistency >= 0.8``, ``accuracy no worse than baseline by 3 points``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from consilience.errors import ConsilienceError, unknown_name
from consilience.metrics.counts import bounds_of
from consilience.metrics.margins import Threshold
from consilience.metrics.registry import DESCRIPTIONS, METRICS

FORMS = (
    "'METRIC >= 0.8', 'METRIC <= 20 %' or 'METRIC no worse than baseline by 3 points', each also "
    "with 'of SUBSET' or 'in GROUP' after the metric"
)
"""What a rule looks like."""

NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"

ABSOLUTE = re.compile(rf"([^<>=≥≤]+?)\s*(>=|<=|≥|≤)\s*(-?){NUMBER}\s*(%?)")

RELATIVE = re.compile(rf"(.+?)\s+no (\w+) than baseline by {NUMBER} (?:points?|%)")

NAME = re.compile(r"(.+?)(?: of (.+?))?(?: in (.+?))?")


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a number of a run has to be."""

    text: str
    metric: str
    """The name of the metric in the metrics table."""
    subset: str
    """The form, factor, edit or kind of expectations; ``all`` for all together."""
    group: str
    """The group; empty for the groups that the headline numbers are about."""
    threshold: Threshold
    """The limit; for a comparison that of the difference, run minus baseline."""
    is_relative: bool
    """Whether the run is compared with a baseline."""


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
    if absolute := ABSOLUTE.fullmatch(text):
        name, sign, minus, digits, percent = absolute.groups()
        metric, subset, group = _named(name, text)
        value = float(f"{minus}{digits}") / (100 if percent else 1)
        least, greatest = bounds_of((metric, subset))
        if not least < value < greatest:
            is_percent = greatest < value < 100 and not percent
            raise ConsilienceError(
                f"the rule '{text}' with the limit {value:g}",
                expected=f"a limit above {least:g} and below {greatest:g}, such as 0.95 or 95 %",
                todo=f"Write '{name} {sign} {digits} %'."
                if is_percent
                else "No sample can show that a number has its least or greatest value.",
            )
        return GateRule(text, metric, subset, group, Threshold(value, sign in (">=", "≥")), False)
    if relative := RELATIVE.fullmatch(text):
        name, way, digits = relative.groups()
        metric, subset, group = _named(name, text)
        margin, width = float(digits) / 100, bounds_of((metric, subset))
        if not 0 < margin < width[1] - width[0]:
            raise ConsilienceError(
                f"the rule '{text}' with a margin of {float(digits):g} points",
                expected=f"a margin above 0 and below {100 * (width[1] - width[0]):g} points",
                todo="" if margin else "No sample can show that two models are equal.",
            )
        rises = _may_rise(metric, way, text)
        limit = Threshold(margin, False) if rises else Threshold(-margin, True)
        return GateRule(text, metric, subset, group, limit, True)
    raise ConsilienceError(f"the rule '{text}'", expected=FORMS, todo="Give each rule its --rule.")


def _named(name: str, text: str) -> tuple[str, str, str]:
    """The metric, subset and group that the first part of a rule names."""
    match = NAME.fullmatch(name)
    written, subset, group = match.groups() if match else (name, None, None)
    key = re.sub(r"\W+", "_", written.lower()).strip("_")
    labels = {
        re.sub(r"\W+", "_", description.label.lower()): metric
        for metric, description in DESCRIPTIONS.items()
    }
    metric = key if key in METRICS or key == "determinism" else labels.get(key, "")
    if not metric:
        raise unknown_name(f"no metric '{written}' in the rule '{text}'", key, METRICS)
    return metric, subset or "all", group or ""


def _may_rise(metric: str, way: str, text: str) -> bool:
    """Whether a rule limits the rise of a metric, not its fall."""
    better = DESCRIPTIONS[metric].better
    if way == "worse" and better:
        return better == "lower"
    if way in ("lower", "higher"):
        return way == "higher"
    ways = "'no lower than baseline' or 'no higher than baseline'"
    raise ConsilienceError(
        f"'no {way} than' in the rule '{text}'",
        expected=f"'no worse than baseline', {ways}" if better else ways,
    )
