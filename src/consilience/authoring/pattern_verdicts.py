"""What annotators of patterns decided: patterns that were judged different, and sign-offs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.authoring.annotation_scores import ScoredSheets
from consilience.authoring.pattern_sheets import DIFFERENT, SAME
from consilience.errors import ConsilienceError
from consilience.report.table import Column, Table
from consilience.suites.signoff import SignOff, Verdict
from consilience.text import counted
from consilience.types import Suite

SHOWN = 20
"""Patterns that a screen shows."""

ANSWER = ("relation", "pattern", "who", "verdict")
Answer = tuple[str, str, str, Verdict]
"""A relation, a pattern, a person, and whether the person accepted the pattern."""


def verdicts(scored: ScoredSheets) -> Iterator[Answer]:
    """Every answer about a pattern: *same* accepts it, *different* rejects it."""
    same = scored.key.labels.index(SAME)
    for at, item in enumerate(scored.key.items):
        for person, name in enumerate(scored.annotators):
            answer = scored.answers[0, at, person]
            if item in scored.key.patterns and answer >= 0:
                yield *scored.key.patterns[item], name, "accept" if answer == same else "reject"


CONTROLS_TO_SIGN = 0.75
"""The share of controls that a person must answer with *different* to sign.

In the ParaRel paper (Section 4) it is 98.3 % on average; random answers have 50 %.
"""


def not_reading(scored: ScoredSheets) -> dict[str, str]:
    """The people who may not sign, each with the controls that the person answered right.

    Where the sheets have no controls, everybody may sign. A control without an answer is not right.
    """
    if not scored.key.patterns:
        return {}
    different = scored.key.labels.index(DIFFERENT)
    is_control = np.array([item not in scored.key.patterns for item in scored.key.items])
    controls = scored.answers[0, is_control]
    right = (controls == different).sum(axis=0)
    return {
        name: f"{count} of {counted(len(controls), 'control')}"
        for name, count in zip(scored.annotators, right.tolist(), strict=True)
        if count < CONTROLS_TO_SIGN * len(controls)
    }


def rejected_table(scored: ScoredSheets) -> Table:
    """The patterns that a person judged different from the base pattern."""
    by_pattern: dict[tuple[str, str], list[str]] = {}
    for relation, pattern, who, verdict in verdicts(scored):
        if verdict == "reject":
            by_pattern.setdefault((relation, pattern), []).append(who)
    order = sorted(by_pattern.items(), key=lambda item: -len(item[1]))
    rows = [[relation, pattern, ", ".join(who)] for (relation, pattern), who in order[:SHOWN]]
    more = [f"and {len(order) - SHOWN} more: --json"] if len(order) > SHOWN else []
    title = f"{len(order)} of {len(scored.key.patterns)} patterns were judged different"
    return Table(title, [Column("relation"), Column("pattern"), Column("by")], rows, more)


def signoffs(scored: ScoredSheets, suite: Suite, when: str) -> Iterator[SignOff]:
    """The verdicts on each pattern, and on the base patterns that they were compared with.

    Only of the people who read the sentences (``not_reading``). A base pattern is accepted by a
    person who accepted more than half of the patterns that were compared with it; otherwise the
    person is unsure of it.
    """
    of_base: dict[tuple[str, str, str], list[bool]] = {}
    left_out = not_reading(scored)
    for relation, pattern, who, verdict in verdicts(scored):
        if who in left_out:
            continue
        patterns = suite.relation(relation).patterns
        judged = next((one for one in patterns if one.text == pattern), None)
        if judged is None:
            raise ConsilienceError(
                f"'{pattern}' is no pattern of '{relation}'",
                expected="the suite that the sheets were made of",
                where=suite.name,
                todo="Make new sheets of the changed suite.",
            )
        base = next(one for one in patterns if one.language == judged.language)
        of_base.setdefault((relation, base.text, who), []).append(verdict == "accept")
        reason = f"compared with '{base.text}'"
        yield SignOff(relation, pattern, who, when, verdict, reason, scored.key.made)
    for (relation, pattern, who), accepted in of_base.items():
        is_accepted = 2 * sum(accepted) > len(accepted)
        reason = f"base pattern: {sum(accepted)} of {len(accepted)} patterns say the same"
        decision: Verdict = "accept" if is_accepted else "unsure"
        yield SignOff(relation, pattern, who, when, decision, reason, scored.key.made)
