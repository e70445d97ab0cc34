"""What annotators of patterns decided: patterns that were judged different, and sign-offs."""

from __future__ import annotations

from collections.abc import Iterator

from consilience.authoring.annotation_scores import ScoredSheets
from consilience.authoring.pattern_sheets import SAME
from consilience.errors import ConsilienceError
from consilience.report.table import Column, Table
from consilience.suites.signoff import SignOff, Verdict
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

    A base pattern is accepted by a person who accepted more than half of the patterns that were
    compared with it; otherwise the person is unsure of it.
    """
    of_base: dict[tuple[str, str, str], list[bool]] = {}
    for relation, pattern, who, verdict in verdicts(scored):
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
        yield SignOff(relation, pattern, who, when, verdict, f"compared with '{base.text}'")
    for (relation, pattern, who), accepted in of_base.items():
        is_accepted = 2 * sum(accepted) > len(accepted)
        reason = f"base pattern: {sum(accepted)} of {len(accepted)} patterns say the same"
        decision: Verdict = "accept" if is_accepted else "unsure"
        yield SignOff(relation, pattern, who, when, decision, reason)
