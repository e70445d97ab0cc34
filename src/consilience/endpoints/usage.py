"""What a run sends to a server, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from consilience.core.text import counted

TOKENS_READ = ("prompt_tokens", "input_tokens", "tokens_evaluated")
"""Names of the number of tokens that a server read."""

TOKENS_WRITTEN = ("completion_tokens", "output_tokens", "tokens_predicted")
"""Names of the number of tokens that a server wrote."""

DETAILS = ("prompt_tokens_details", "input_tokens_details", "timings")
"""Names of the record that has the number of cached tokens."""

TOKENS_CACHED = ("cached_tokens", "cache_n")
"""Names of the number of tokens that a server had in its cache."""

MILLION = 1_000_000


@dataclass(slots=True)
class Usage:
    """What was sent to a server and what it counted, for all requests of a client."""

    requests: int = 0
    """Requests that were sent, retries included; routes that cost nothing are not counted."""
    retries: int = 0
    """Requests that were sent because an earlier one of the same content failed."""
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


def cost_record(
    usage: Usage, price: tuple[float, float] | None, before: Mapping[str, Any]
) -> dict[str, Any]:
    """What a run cost so far: the usage of this command, and the record of those before it."""
    sums = {name: value + before.get(name, 0) for name, value in asdict(usage).items()}
    record: dict[str, Any] = {**sums, "seconds": round(sums["seconds"], 3)}
    if price is not None:
        record |= {"price_read": price[0], "price_written": price[1]}
        record["cost"] = Usage(**sums).cost(price)
    return record


def cost_in_words(record: Mapping[str, float]) -> str:
    """The record of a cost in words."""
    counts: Counter[str] = Counter({name: int(value) for name, value in record.items()})
    text = counted(counts["requests"], "request")
    if counts["retries"]:
        text += f" ({counts['retries']:,} sent again; tokens of failed tries are not counted)"
    text += f", {counts['tokens_read']:,} tokens read"
    if counts["tokens_cached"]:
        text += f" ({counts['tokens_cached']:,} cached)"
    text += f" and {counts['tokens_written']:,} written"
    if counts["uncounted"]:
        text += f", not counted in {counted(counts['uncounted'], 'reply', 'replies')}"
    if counts["refused"]:
        text += f", {counted(counts['refused'], 'request')} refused"
    if counts["repeated_ids"]:
        text += f", {counted(counts['repeated_ids'], 'reply', 'replies')} with the id of an earlier"
        text += " one (a cache may have sent them)"
    if {"cost", "price_read", "price_written"} <= record.keys():
        read, written = record["price_read"], record["price_written"]
        text += f"; cost {record['cost']:.4g} at {read:g} and {written:g} for a million tokens"
    return text


def tokens_of(reply: Any) -> tuple[int, int, int] | None:
    """Tokens that a server read, had in its cache and wrote; None where a reply does not say.

    A list has the replies to several prompts of one request.
    """
    if isinstance(reply, list):
        parts = [part for part in map(tokens_of, reply) if part is not None]
        if not parts or len(parts) < len(reply):
            return None
        columns = tuple(zip(*parts, strict=True))
        return sum(columns[0]), sum(columns[1]), sum(columns[2])
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
    return read, min(_first(details, TOKENS_CACHED) or 0, read), written or 0


def _first(counts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the named numbers that is a count."""
    for name in names:
        value = counts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
