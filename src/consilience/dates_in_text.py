"""Dates in a text: ISO 8601 and the common forms of English."""

from __future__ import annotations

import re
import unicodedata
from datetime import date

from consilience.errors import ConsilienceError
from consilience.text import is_denied

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
"""The names of the months; their first three letters, and sept, count too."""

_NAME = rf"(?P<m>{'|'.join([*MONTHS, 'sept', *(name[:3] for name in MONTHS)])})\.?"
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<y>\d{4})"
_TIME = r"t\d[\d:.,]*(?:z|[-+]\d[\d:]*)?(?!\w)"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"\b(?P<y>\d{{4}})([-/.])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}})(?:{_TIME}|\b)",
        rf"\b{_DAY}(?: of)?[ -]{_NAME},?[ -]{_YEAR}\b",
        rf"\b{_NAME} {_DAY},? {_YEAR}\b",
        r"\b(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})\b",
        r"\b(?P<one>\d{1,2})([-/])(?P<two>\d{1,2})\2(?P<y>\d{4})\b",
        rf"\b{_NAME},? {_YEAR}\b",
        r"\b(?P<y>\d{4})-(?P<m>\d{2})\b",
        rf"\b{_DAY}(?: of)? {_NAME}(?!\w)",
        rf"\b{_NAME} {_DAY}\b",
        r"(?<![\w.,/-])(?P<y>[12]\d{3})(?![\w/-]|[.,]\d| b\.?c)",
    )
)
"""The forms, the most precise first; a text that is part of one is not read as another."""

_RANGE = re.compile(r"\d\w*\W*(?:to|and|or)?\W*\Z")
_WORD_BEFORE = re.compile(r"\b(\w+) \Z")
_BEFORE_YEAR = frozenset(
    (
        "in",
        "year",
        "is",
        "was",
        "be",
        "s",
        "en",
        "em",
        "im",
        "jahr",
        "jahre",
        "ann\u00e9e",
        "a\u00f1o",
        "anno",
        "ano",
        "nel",
    )
)
"""The words that may precede a year or month without being a part of the date."""


def dates_in(text: str) -> list[str]:
    """The dates of a text as ISO 8601: ``2024-03-05``, ``2024-03``, ``2024`` or ``--03-05``.

    Read are ``2024-03-05`` (also with slashes or points), ``5 March 2024``, ``5th of March, 2024``,
    ``March 5, 2024``, ``Mar. 5 2024``, ``5.3.2024`` (day first, as in Europe), ``March 2024``,
    ``2024-03``, ``5 March``, ``March 5`` and a year from 1000 to 2999. ``25/12/2024`` and
    ``12/25/2024`` have one reading. ``05/03/2024`` has two and raises ``ConsilienceError``. A time
    after a date does not count. A day that does not exist, such as 30 February, and a denied date
    (``not 1969``) are none.

    What may be a part of another date raises ``ConsilienceError``: a range of days, a year or month
    after another word than *in*, *year* or *is* (``July of 1969``, ``mars 1990``), and any date but
    a whole one where other digits are left (``20 juillet 1969``).
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    rest = plain
    dates: list[tuple[int, str]] = []
    for form in _FORMS:
        for match in form.finditer(rest):
            if (value := _value(match)) is not None:
                dates.append((match.start(), value))
        rest = form.sub(lambda match: "\0" * len(match[0]), rest)
    dates = [(at, value) for at, value in sorted(dates) if not is_denied(plain, at)]
    has_digits = any(letter.isdigit() for letter in rest)
    for at, value in dates:
        before = rest[max(0, at - 40) : at]
        word = _WORD_BEFORE.search(before)
        if len(value) == len("2024-03-05"):
            is_part = bool(_RANGE.search(before))
        else:
            is_led = value[0] == "-" or not word or word[1] in _BEFORE_YEAR
            is_part = has_digits or not is_led
        if is_part:
            raise ConsilienceError(f"'{value}' may be a part of it", expected="a date that is read")
    return [value for _, value in dates]


def _value(match: re.Match[str]) -> str | None:
    """The date of a form; None for one that does not exist; two readings raise."""
    groups = match.groupdict()
    year, month, day = (groups.get(name) for name in "ymd")
    if "one" in groups:
        one, two = int(groups["one"]), int(groups["two"])
        readings = sorted(filter(None, {_iso(year, two, one), _iso(year, one, two)}))
        if len(readings) > 1:
            raise ConsilienceError(f"'{match[0]}' is {' or '.join(readings)}", expected="one date")
        return readings[0] if readings else None
    if month is None:
        return year
    number = int(month) if month.isdigit() else _number_of(month)
    # Without a day the first day of the month, without a year a leap year.
    whole = _iso(year or "2000", number, int(day or 1))
    if whole is None:
        return None
    return whole[: 10 if day else 7] if year else "-" + whole[4:]


def _iso(year: str | None, month: int, day: int) -> str | None:
    """The date in ISO 8601; None for a day that does not exist."""
    try:
        return date(int(year or 0), month, day).isoformat()
    except ValueError:
        return None


def _number_of(name: str) -> int:
    """The number of a month from its name."""
    return next(at for at, month in enumerate(MONTHS, 1) if month.startswith(name[:3]))
