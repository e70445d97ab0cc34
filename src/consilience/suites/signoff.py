"""Sign-offs: who judged which pattern of a suite, when, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Literal, cast, get_args

from consilience.errors import ConsilienceError
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
    pattern: str
    who: str
    """The person."""
    when: str
    """The day, as an ISO date."""
    verdict: Verdict
    """Whether the pattern may be used."""
    reason: str = ""
    """Why; may be empty."""
    sheet: str = ""
    """When the person's sheet was made, in UTC (ISO 8601); empty without a sheet."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a person has one last verdict on."""
        return self.relation, self.pattern, self.who


def read_signoffs(folder: Path, suite: Suite, problems: Problems) -> list[SignOff]:
    """The valid rows of a suite's table of sign-offs; what is wrong goes to ``problems``.

    Rows on patterns that the suite no longer has are a record, and left out.
    """
    patterns = _patterns(suite)
    signoffs = _all_signoffs(folder, problems)
    return [one for one in signoffs if (one.relation, one.pattern) in patterns]


def signoff_notes(folder: Path, suite: Suite) -> list[str]:
    """A note where there are sign-offs of patterns that the suite does not have."""
    patterns = _patterns(suite)
    gone = [one for one in _all_signoffs(folder, []) if (one.relation, one.pattern) not in patterns]
    if not gone:
        return []
    return [
        f"sign-offs of patterns that the suite does not have: {len(gone)}, such as "
        f"'{gone[0].pattern}' of '{gone[0].relation}'"
    ]


def _patterns(suite: Suite) -> set[tuple[str, str]]:
    return {(group.id, pattern.text) for group in suite for pattern in group.patterns}


def _all_signoffs(folder: Path, problems: Problems) -> list[SignOff]:
    path = find_table(folder, TABLE)
    rows = suite_rows(path, problems) if path else ()
    return [one for row in rows if (one := _signoff(row)) is not None]


def signoffs_of(folder: Path, suite: Suite) -> list[SignOff]:
    """The sign-offs of a suite; none without the table. Faults raise."""
    problems: Problems = []
    signoffs = read_signoffs(folder, suite, problems)
    raise_first(problems)
    return signoffs


def _signoff(row: Row) -> SignOff | None:
    before = len(row.problems)
    relation, pattern, who = row.text("relation"), row.text("pattern"), row.text("who")
    when, verdict = row.text("when"), row.text("verdict")
    if verdict and verdict not in VERDICTS:
        row.report(f"the verdict '{verdict}'", expected=", ".join(VERDICTS))
    if when and not is_date(when):
        row.report(f"'when' is '{when}'", expected="an ISO date such as 2026-11-23")
    reason, sheet = row.optional_text("reason"), row.optional_text("sheet")
    if len(row.problems) > before:
        return None
    return SignOff(relation, pattern, who, when, cast(Verdict, verdict), reason, sheet)


def is_date(text: str) -> bool:
    """Whether a text is a day of the calendar, written as 2026-11-23."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def add_signoffs(
    folder: Path, suite: Suite, signoffs: Iterable[SignOff]
) -> tuple[list[SignOff], list[SignOff]]:
    """Append sign-offs to ``signoff.jsonl`` of a suite folder, and return the new and the old ones.

    Old ones are not written: the person has judged the pattern on a newer sheet. A verdict of the
    same sheet that is in the table already is neither.
    """
    known = signoffs_of(folder, suite)
    newest: dict[tuple[str, str, str], str] = {}
    for one in known:
        newest[one.key] = max(one.sheet, newest.get(one.key, ""))
    of_sheet = {(one.key, one.sheet): one.verdict for one in known}
    new, old = [], []
    for one in signoffs:
        if one.sheet < newest.get(one.key, ""):
            old.append(one)
        elif of_sheet.get((one.key, one.sheet)) != one.verdict:
            of_sheet[one.key, one.sheet] = one.verdict
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
    return new, old


def _row(signoff: SignOff) -> dict[str, str]:
    return {name: value for name, value in asdict(signoff).items() if value}


def last_verdicts(signoffs: Iterable[SignOff]) -> dict[tuple[str, str, str], SignOff]:
    """The last verdict of each person on each pattern, in the order of the table."""
    return {one.key: one for one in signoffs}
