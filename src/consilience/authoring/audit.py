"""The audit of a suite: all checks are run on it, and what they find is listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import polars as pl

from consilience.authoring import fact_checks, outlier_checks, pattern_checks, question_checks
from consilience.authoring.checks import CHECKS, FactMaterial, Finding, Kind
from consilience.suites.question_collection import Questions
from consilience.types import Suite

CHECK_MODULES = (pattern_checks, fact_checks, outlier_checks, question_checks)
"""The modules whose checks are registered when they are imported."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the checks found in a suite."""

    findings: tuple[Finding, ...]
    """In the order of ``CHECKS`` and of the suite."""
    counts: Mapping[str, int]
    """Number of findings by the name of each check that was run."""
    not_run: Mapping[str, str]
    """Why each of the other checks was not run."""


def run_checks(
    material: FactMaterial | Questions, missing: Mapping[str, str], *, only_quick: bool = False
) -> Audit:
    """Run every check that applies; ``missing``: why a field of the material is not there."""
    kind: Kind = "facts" if isinstance(material, FactMaterial) else "questions"
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    not_run: dict[str, str] = {}
    for name, rule in CHECKS.items():
        if only_quick and not rule.is_quick:
            continue
        if rule.of != kind:
            not_run[name] = f"for suites of {rule.of}"
        elif rule.needs and getattr(material, rule.needs) is None:
            not_run[name] = missing[rule.needs]
        else:
            of_check = [
                replace(finding, check=name, severity=rule.severity, todo=rule.todo)
                for finding in rule.find(material)
            ]
            findings += of_check
            counts[name] = len(of_check)
    return Audit(tuple(findings), counts, not_run)


def cautions(suite: Suite | Questions) -> list[str]:
    """Properties of a suite that are no errors but decide what its numbers mean.

    They are the findings of the checks that are quick.
    """
    material = suite if isinstance(suite, Questions) else FactMaterial(suite)
    findings = run_checks(material, {}, only_quick=True).findings
    order = [group.id for group in suite] if isinstance(suite, Suite) else list(suite.groups)
    positions = {name: at for at, name in enumerate(order)}
    in_order = sorted(findings, key=lambda finding: positions.get(finding.group, -1))
    return [f"{one.group}: {one.evidence}" if one.group else one.evidence for one in in_order]


def findings_table(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding; ``places`` is one text."""
    names = [column.name for column in fields(Finding)]
    rows = [
        {name: getattr(one, name) for name in names} | {"places": "; ".join(one.places)}
        for one in findings
    ]
    schema = {name: pl.Int64 if name == "count" else pl.String for name in ORDER}
    return pl.DataFrame(rows, schema={name: schema[name] for name in names}).select(ORDER)


ORDER = ("check", "severity", "group", "count", "evidence", "places", "todo")
"""The columns of a table of findings."""


def check_rows() -> Iterator[tuple[str, str, str, str, str]]:
    """A row for each check: its name, suites, severity, what it looks for and what it needs."""
    for name, rule in CHECKS.items():
        yield name, rule.of, rule.severity, rule.meaning, NEEDS.get(rule.needs, "")


NEEDS = {
    "english": "English patterns",
    "edges": "a parser (spaCy)",
    "signatures": "a parser (spaCy)",
    "meaning": "an encoder",
    "agreement": "`--runs`",
}
"""What a check needs, in words, by the field of the material that it reads."""
