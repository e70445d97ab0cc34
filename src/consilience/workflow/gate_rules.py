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

HIGHER_IS_BETTER = (
    "accuracy", "consistency", "determinism", "consistent_accuracy", "successful_patterns",
    "successful_objects", "known_consistency", "unknown_consistency", "corrected_consistency",
    "agree_right", "f1",
)  # fmt: skip
LOWER_IS_BETTER = (
    "consistent_wrong", "agree_wrong", "disagree", "no_label", "total_variation",
    "violation_rate", "probability_gap",
)  # fmt: skip
"""The metrics of which 'no worse' says which direction is meant."""

NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"

ABSOLUTE = re.compile(rf"(.+?)\s*(>=|<=|≥|≤)\s*(-?){NUMBER}\s*(%?)")

RELATIVE = re.compile(rf"(.+?)\s+no (\w+) than baseline by {NUMBER} (?:points?|%)")

NAME = re.compile(r"(.+?)(?: of (.+?))?(?: in (.+?))?")


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a number of a run has to be."""

    text: str
    """The rule as it was written."""
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
            raise ConsilienceError(
                f"the rule '{text}' with the limit {value:g}",
                expected=f"a limit between {least:g} and {greatest:g}, such as 0.95 or 95 %: no "
                "sample can show that a number has its least or greatest value",
            )
        return GateRule(text, metric, subset, group, Threshold(value, sign in (">=", "≥")), False)
    if relative := RELATIVE.fullmatch(text):
        name, way, digits = relative.groups()
        metric, subset, group = _named(name, text)
        margin, width = float(digits) / 100, bounds_of((metric, subset))
        if not 0 < margin < width[1] - width[0]:
            raise ConsilienceError(
                f"the rule '{text}' with a margin of {float(digits):g} points",
                expected="a margin above 0: no sample can show that two models are equal, or that "
                "one is not the least bit worse",
            )
        rises = _may_rise(metric, way, text)
        limit = Threshold(margin, False) if rises else Threshold(-margin, True)
        return GateRule(text, metric, subset, group, limit, True)
    raise ConsilienceError(f"the rule '{text}'", expected=FORMS)


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
    if way == "worse" and metric in HIGHER_IS_BETTER + LOWER_IS_BETTER:
        return metric in LOWER_IS_BETTER
    if way in ("lower", "higher"):
        return way == "higher"
    reason = f"'{metric}' is neither good nor bad" if way == "worse" else f"'no {way} than'"
    raise ConsilienceError(
        f"the rule '{text}': {reason}",
        expected="'no lower than baseline' or 'no higher than baseline'",
    )
