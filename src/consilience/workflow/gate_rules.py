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

COMPARISON = re.compile(r"(.*?)\s*([<>=≥≤]+|\bat least\b|\bat most\b|\bis\b)\s*(.*)")

MEANT = {
    **dict.fromkeys((">", "=>", "at least"), ">="),
    **dict.fromkeys(("<", "=<", "at most"), "<="),
}
"""What was meant by a comparison that rules do not have."""


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
    raise _fault(text)


def _fault(text: str) -> ConsilienceError:
    """Why a rule of an unknown form cannot be read."""
    rule = f"the rule '{text}'"
    if not text:
        return ConsilienceError("an empty rule", expected=FORMS)
    if re.search(r"\b(?:and|or)\b|[;&|]", text):
        todo = "Give each condition its own --rule."
        return ConsilienceError(f"{rule} with several conditions", expected="one", todo=todo)
    if match := re.fullmatch(r"(.+ no \w+ than baseline by) (.+)", text):
        expected = f"points, such as '{match[1]} 3 points'"
        return ConsilienceError(f"{rule} with the margin '{match[2]}'", expected=expected)
    if "baseline" in text or re.search(r"\b(?:no|not) \w+ (?:than|by)\b", text):
        expected = (
            "'METRIC no worse than baseline by 3 points', or 'METRIC >= 0.8' without baseline"
        )
        return ConsilienceError(rule, expected=expected)
    return _fault_of_limit(text)


def _fault_of_limit(text: str) -> ConsilienceError:
    """The same of a rule without a baseline."""
    rule, match = f"the rule '{text}'", COMPARISON.fullmatch(text)
    name, sign, limit = match.groups() if match else (text, ">=", "")
    if sign not in (">=", "<=", "≥", "≤"):
        meant = [MEANT[sign]] if sign in MEANT else [">=", "<="]
        rules = [f"'{name} {comparison} {limit}'" for comparison in meant]
        todo = f"Write {' or '.join(rules)}."
        return ConsilienceError(f"{rule} with '{sign}'", expected=">= or <=", todo=todo)
    if not limit:
        return ConsilienceError(f"{rule} without a limit", todo=f"Write '{name} {sign} 0.8'.")
    if not name or re.fullmatch(rf"{NUMBER} ?%?", name):
        expected = f"the metric first, such as '{limit} >= 0.8'"
        return ConsilienceError(f"{rule} without a metric before '{sign}'", expected=expected)
    expected = "a number with a decimal point, such as 0.8, or a percentage, such as 80 %"
    return ConsilienceError(f"{rule} with the limit '{limit}'", expected=expected)


def _named(name: str, text: str) -> tuple[str, str, str]:
    """The metric, subset and group that the first part of a rule names."""
    if empty := re.fullmatch(r".+ (of|in)", name):
        todo = f"Name it, or leave out '{empty[1]}'."
        raise ConsilienceError(f"nothing after '{empty[1]}' in the rule '{text}'", todo=todo)
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
    ways = ["no lower than baseline", "no higher than baseline"]
    if way == "worse":
        reason = f"the rule '{text}', but {metric} is neither good nor bad"
    else:
        reason, ways = f"'no {way} than' in the rule '{text}'", ["no worse than baseline", *ways]
    raise ConsilienceError(reason, expected=" or ".join(f"'{one}'" for one in ways))
