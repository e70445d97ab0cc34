"""Sign-offs: who judged which pattern of a suite, when, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Literal, cast, get_args

from consilience.errors import ConsilienceError, did_you_mean
from consilience.files import write_whole
from consilience.read import read_text
from consilience.suites.rows import Problems, Row, find_table, raise_first, suite_rows
from consilience.types import Suite

Verdict = Literal["accept", "reject", "unsure"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TABLE = "signoff"
"""The name of the table in a suite folder."""


@dataclass(frozen=True, slots=True)
class SignOff:
    """A person's verdict on a pattern."""

    relation: str
    """The id of its relation."""
    pattern: str
    """The pattern."""
    who: str
    """The person."""
    when: str
    """The day, as an ISO date."""
    verdict: Verdict
    """Whether the pattern may be used."""
    reason: str = ""
    """Why; may be empty."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a person has one last verdict on."""
        return self.relation, self.pattern, self.who


def read_signoffs(folder: Path, suite: Suite, problems: Problems) -> list[SignOff]:
    """The valid rows of a suite's table of sign-offs; what is wrong goes to ``problems``."""
    path = find_table(folder, TABLE)
    patterns = {group.id: [pattern.text for pattern in group.patterns] for group in suite}
    rows = suite_rows(path, problems) if path else ()
    return [one for row in rows if (one := _signoff(row, patterns)) is not None]


def signoffs_of(folder: Path, suite: Suite) -> list[SignOff]:
    """The sign-offs of a suite; none without the table. Faults raise."""
    problems: Problems = []
    signoffs = read_signoffs(folder, suite, problems)
    raise_first(problems)
    return signoffs


def _signoff(row: Row, patterns: dict[str, list[str]]) -> SignOff | None:
    before = len(row.problems)
    relation, pattern, who = row.text("relation"), row.text("pattern"), row.text("who")
    when, verdict = row.text("when"), row.text("verdict")
    if relation and pattern and pattern not in patterns.get(relation, ()):
        known = patterns.get(relation)
        problem = f"'{pattern}' is no pattern of '{relation}'"
        row.report(problem, todo=did_you_mean(pattern, known) if known else "")
    if verdict and verdict not in VERDICTS:
        row.report(f"the verdict '{verdict}'", expected=", ".join(VERDICTS))
    if when and not _is_date(when):
        row.report(f"'when' is '{when}'", expected="an ISO date such as 2026-11-23")
    if len(row.problems) > before:
        return None
    reason = row.optional_text("reason")
    return SignOff(relation, pattern, who, when, cast(Verdict, verdict), reason)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def add_signoffs(folder: Path, suite: Suite, signoffs: Iterable[SignOff]) -> list[SignOff]:
    """Append sign-offs to ``signoff.jsonl`` of a suite folder, and return those that are new.

    A verdict that is the person's last one on the pattern already is not written again.
    """
    last = last_verdicts(signoffs_of(folder, suite))
    new = []
    for one in signoffs:
        if one.key not in last or last[one.key].verdict != one.verdict:
            last[one.key] = one
            new.append(one)
    path = find_table(folder, TABLE) or folder / f"{TABLE}.jsonl"
    if path.suffix != ".jsonl":
        raise ConsilienceError(
            f"sign-offs in {path.name}", expected=f"{TABLE}.jsonl", where=str(folder),
            todo="Save the table as JSONL: one object a line.",
        )  # fmt: skip
    if new:
        before = read_text(path) if path.is_file() else ""
        before += "" if before.endswith("\n") or not before else "\n"
        lines = (json.dumps(_row(one), ensure_ascii=False) + "\n" for one in new)
        write_whole(path, (before + "".join(lines)).encode())
    return new


def _row(signoff: SignOff) -> dict[str, str]:
    return {name: value for name, value in asdict(signoff).items() if value}


def last_verdicts(signoffs: Iterable[SignOff]) -> dict[tuple[str, str, str], SignOff]:
    """The last verdict of each person on each pattern, in the order of the table."""
    return {one.key: one for one in signoffs}
