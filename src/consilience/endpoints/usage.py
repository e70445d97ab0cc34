"""What a run sends to a server, and what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

TOKENS_READ = ("prompt_tokens", "input_tokens", "tokens_evaluated")
"""Names of the number of tokens that a server read."""

TOKENS_WRITTEN = ("completion_tokens", "output_tokens", "tokens_predicted")
"""Names of the number of tokens that a server wrote."""

DETAILS = ("prompt_tokens_details", "input_tokens_details")
"""Names of the record that has ``cached_tokens``."""

MILLION = 1_000_000


@dataclass(slots=True)
class Usage:
    """What was sent to a server and what it counted, for all requests of a client."""

    requests: int = 0
    """Requests that were sent, retries included; routes that cost nothing are not counted."""
    retries: int = 0
    """Requests that were sent because an earlier one of the same content failed."""
    from_journal: int = 0
    """Replies that an interrupted run had kept; nothing was sent for them."""
    refused: int = 0
    """Requests that ended without an answer."""
    tokens_read: int = 0
    """Tokens of prompts, as the server counts them, cached ones included."""
    tokens_cached: int = 0
    """Tokens of prompts that the server had in its cache."""
    tokens_written: int = 0
    """Tokens that the server wrote."""
    uncounted: int = 0
    """Replies in which the server counted no tokens."""
    repeated_ids: int = 0
    """Replies with an id that an earlier reply had: a cache may have sent them."""
    seconds: float = 0.0
    """Time in which at least one request was in flight."""

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.tokens_read + self.tokens_written

    def add_tokens(self, reply: Any) -> int:
        """Count the tokens of a reply; returns how many it says it read and wrote."""
        counts = tokens_of(reply)
        if counts is None:
            self.uncounted += 1
            return 0
        read, cached, written = counts
        self.tokens_read += read
        self.tokens_cached += cached
        self.tokens_written += written
        return read + written

    def cost(self, price: tuple[float, float]) -> float:
        """The cost at a price for a million tokens read and a million written."""
        return (self.tokens_read * price[0] + self.tokens_written * price[1]) / MILLION

    def to_dict(self) -> dict[str, Any]:
        """All fields, for a record."""
        return asdict(self)


def tokens_of(reply: Any) -> tuple[int, int, int] | None:
    """Tokens that a server read, had in its cache and wrote; None where a reply does not say."""
    if not isinstance(reply, dict):
        return None
    usage = reply.get("usage")
    counts = usage if isinstance(usage, dict) else reply
    read, written = _first(counts, TOKENS_READ), _first(counts, TOKENS_WRITTEN)
    if read is None:
        return None
    details: dict[str, Any] = next(
        (counts[name] for name in DETAILS if isinstance(counts.get(name), dict)), {}
    )
    cached = _first(details, ("cached_tokens",)) or 0
    return read, min(cached, read), written or 0


def _first(counts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the named numbers that is a count."""
    for name in names:
        value = counts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
