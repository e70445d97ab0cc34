"""What a reply of a server means: a value, a refusal, trouble that may pass, or an error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.core.text import truncated
from consilience.files.read import parse_json

REFUSALS = (400, 413, 422)
"""Statuses of a server that refuses a request for its content."""

OVERLOADS = (429, 503, 529)
"""Statuses of a server that has too many requests."""

TRANSIENT = (408, 425, *OVERLOADS)
"""Statuses that may be others a moment later, apart from those of 500 and more."""

UNSUPPORTED = 501
"""The status of a server that lacks a route or what the route needs."""

NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of a 429 that no wait ends."""

LONGEST_MESSAGE = 300
"""Characters of what a server says that a message quotes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that a server refused for its content, or that failed while others succeeded."""

    status: int
    """The HTTP status; 0 where there was no reply."""
    message: str

    @property
    def reason(self) -> str:
        """Why an answer is excluded, as a table of answers has it."""
        status = f" ({self.status})" if self.status else ""
        return f"the server refused the request{status}: {self.message}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure that may pass."""

    status: int
    """The HTTP status; 0 where there was no reply."""
    message: str
    wait: float | None = None
    """Seconds that the server asks to wait; None where it does not say."""
    is_timeout: bool = False
    error: ConsilienceError | None = None
    """What ends the run if the next reply is of this kind, too."""

    @property
    def is_overload(self) -> bool:
        """Whether the server has too many requests."""
        return self.status in OVERLOADS


def meaning_of(status: int, headers: Mapping[str, str], body: str, *, where: str) -> Any:
    """What a complete reply means: its JSON value, ``Refused`` or ``Trouble``; others raise.

    ``body`` has no key in it. ``where``: the URL, for messages.
    """
    if 200 <= status < 300:
        try:
            return parse_json(body, last_wins=True)
        except json.JSONDecodeError as reason:
            return _unreadable(headers, body, where, reason)
    message = message_of(body) or "no message"
    if status in REFUSALS:
        return Refused(status, message)
    if status in TRANSIENT or (status >= 500 and status != UNSUPPORTED):
        if any(code in body for code in NO_CREDIT):
            raise ConsilienceError(
                f"status {status}: {message}",
                where=where,
                todo="Pay for more, and run the same command again to resume.",
            )
        return Trouble(status, message, wait_of(headers))
    raise _fatal(status, headers, message, where)


def _unreadable(
    headers: Mapping[str, str], body: str, where: str, reason: json.JSONDecodeError
) -> Trouble:
    """A reply that is no JSON and may have been truncated; a page raises."""
    kind = headers.get("content-type", "").partition(";")[0].strip()
    is_page = body.lstrip()[:1] == "<"
    message = "an HTML page" if is_page else f"no JSON: {reason}"
    message += f" of type '{kind}'" if kind else ""
    shown = truncated(" ".join(body.split()), LONGEST_MESSAGE) or "an empty reply"
    error = ConsilienceError(
        f"{message}: {shown}",
        expected="JSON from an API",
        where=where,
        todo="Check --base-url: the address of the API usually ends in /v1." if is_page else "",
    )
    if is_page:
        raise error from reason
    return Trouble(200, error.found, error=error)


def _fatal(status: int, headers: Mapping[str, str], message: str, where: str) -> ConsilienceError:
    """The error for a status that another try would give again."""
    expected, todo = "status 200", ""
    if status in (401, 403):
        expected = "a key that the server accepts"
        todo = "Put the key into an environment variable, and name it with --api-key-env."
    elif status == 404:
        expected = "a route and a model that the server has"
        todo = "Check --base-url (it usually ends in /v1) and the name of the model."
    elif status == UNSUPPORTED:
        todo = "Check that the server can do this with the model (docs/endpoints.md)."
    elif 300 <= status < 400:
        message = f"a redirect to '{headers.get('location', '')}'"
        expected = "an answer; a redirect is not followed, because the key goes to one server only"
        todo = "Give the address that answers as --base-url."
    return ConsilienceError(
        f"status {status}: {message}", expected=expected, where=where, todo=todo
    )


def message_of(body: str) -> str:
    """What a server says in the body of an error: its message, or the beginning of the text."""
    try:
        value = parse_json(body, last_wins=True)
    except json.JSONDecodeError:
        value = body
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return truncated(" ".join(text.split()), LONGEST_MESSAGE)


def wait_of(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that ``Retry-After`` asks to wait: a number or a date; None without a valid one."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
