"""What a run sends to a server and what it costs: counted, limited, and planned."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from consilience.core.errors import Connection, ConsilienceError
from consilience.core.text import counted

FREE = ("/tokenize", "/detokenize", "/apply-template", "/props", "/health", "models")
"""Routes that compute nothing: they are not counted, limited or kept."""

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
"""Fields of a request that say how many tokens may be written."""

TOKENS_READ = ("prompt_tokens", "input_tokens", "tokens_evaluated")
TOKENS_WRITTEN = ("completion_tokens", "output_tokens", "tokens_predicted")
TOKENS_CACHED = ("cached_tokens", "cache_n")
"""What servers call the numbers of tokens that they read, wrote, and had in a cache."""

DETAILS = ("prompt_tokens_details", "input_tokens_details", "timings")
"""Names of the record that has the number of cached tokens."""

MILLION = 1_000_000

BYTES_A_TOKEN = 2
"""Bytes of a text for each of its tokens, where nothing says how many there are. Most texts have
fewer tokens: English has four bytes a token and more."""

ROUNDING = 1e-9
"""What is not rounded up."""


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
    tokens_written: int = 0
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

    def add_tokens(self, reply: Any) -> None:
        """Count the tokens of a reply."""
        if (counts := tokens_of(reply)) is None:
            self.uncounted += 1
            return
        self.tokens_read += counts[0]
        self.tokens_cached += counts[1]
        self.tokens_written += counts[2]

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
        read, cached, written = (sum(column) for column in zip(*parts, strict=True))
        return read, cached, written
    if not isinstance(reply, dict):
        return None
    usage = reply.get("usage")
    counts = usage if isinstance(usage, dict) else reply
    if (tokens_read := _first(counts, TOKENS_READ)) is None:
        return None
    details: dict[str, Any] = next(
        (counts[name] for name in DETAILS if isinstance(counts.get(name), dict)), {}
    )
    tokens_cached = min(_first(details, TOKENS_CACHED) or 0, tokens_read)
    return tokens_read, tokens_cached, _first(counts, TOKENS_WRITTEN) or 0


def _first(counts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the named numbers that is a count."""
    values = (counts.get(name) for name in names)
    return next((value for value in values if type(value) is int and value >= 0), None)


class Allowance:
    """What may still be sent.

    The tokens of a request are known after its reply only. Until then they are estimated from its
    bytes, by the most tokens a byte that a reply of this server showed (one token a byte before the
    first reply), and the tokens that it may write. A server that counts no tokens is believed to
    have used the estimate.
    """

    def __init__(self, connection: Connection, usage: Usage) -> None:
        self.usage, self._connection = usage, connection
        self.spent = self.reserved = 0
        """Tokens of replies, and estimated ones of requests in flight."""
        self._tokens_per_byte: float | None = None

    def estimate(self, content: bytes, body: Any) -> int:
        """Tokens that a request may use."""
        ratio = 1.0 if self._tokens_per_byte is None else self._tokens_per_byte
        return int(len(content) * ratio) + 1 + most_written(body)

    def admits(self, tokens: int) -> bool:
        """Whether a request may be sent now; False where one in flight must end first.

        A request that exceeds a limit, whatever those in flight use, raises.
        """
        most_requests, most_tokens = self._connection.max_requests, self._connection.max_tokens
        if most_requests is not None and self.usage.requests >= most_requests:
            raise self._over("--max-requests", most_requests)
        if most_tokens is None or self.spent + self.reserved + tokens <= most_tokens:
            return True
        if self.reserved:
            return False
        raise self._over("--max-tokens", most_tokens, tokens)

    def settle(self, tokens: int, content: bytes, reply: Any) -> None:
        """Count a reply to a request for which ``tokens`` were estimated."""
        self.usage.add_tokens(reply)
        if (counts := tokens_of(reply)) is None:
            self.spent += tokens
            return
        self.spent += counts[0] + counts[2]
        ratio = counts[0] / max(1, len(content))
        self._tokens_per_byte = max(self._tokens_per_byte or 0.0, ratio)

    def _over(self, option: str, limit: int, tokens: int = 0) -> ConsilienceError:
        sent = counted(self.usage.requests, "request")
        message = f"{option} {limit:,} is reached: {sent} sent, {self.spent:,} tokens used"
        if tokens:
            message += f", and the next request may use {tokens:,}"
        return ConsilienceError(
            message,
            todo="All replies are kept. Run the same command again to resume with the same limit "
            f"for what is left, or with a larger {option}.",
        )


def most_written(body: Any) -> int:
    """How many tokens a request lets the server write; 0 where it does not say."""
    if not isinstance(body, dict):
        return 0
    limits = [body[name] for name in ANSWER_LIMITS if isinstance(body.get(name), int)]
    answers = body.get("n") if isinstance(body.get("n"), int) else 1
    return int(max([0, *limits])) * int(answers or 1) * len(prompts_of(body))


def prompts_of(body: Any) -> list[Any]:
    """The prompts of a request, each a text or a list of token ids; the whole body for another."""
    prompt = body.get("prompt") if isinstance(body, dict) else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return prompt
    return [body if prompt is None else prompt]


@dataclass(slots=True)
class PlannedUsage:
    """Requests that were not sent, and the tokens that they would use."""

    requests: int = 0
    tokens_read: float = 0.0
    """Tokens of their prompts: counted where a prompt is token ids, else estimated."""
    tokens_written: int = 0
    """Tokens that the server may write, at most."""
    is_estimated: bool = False
    """Whether tokens were estimated from the bytes of a text."""
    more: PlannedUsage | None = None
    """Those of requests that are sent or not, depending on replies; None if there are none."""

    def add(self, body: Any) -> None:
        """Count a request."""
        self.requests += 1
        self.tokens_written += most_written(body)
        for prompt in prompts_of(body):
            if isinstance(prompt, list):
                self.tokens_read += len(prompt)
            else:
                text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
                self.tokens_read += len(text.encode()) / BYTES_A_TOKEN
                self.is_estimated = True

    def __add__(self, other: PlannedUsage) -> PlannedUsage:
        return PlannedUsage(
            self.requests + other.requests,
            self.tokens_read + other.tokens_read,
            self.tokens_written + other.tokens_written,
            self.is_estimated or other.is_estimated,
            self.more + other.more if self.more and other.more else self.more or other.more,
        )

    def times(self, factor: float) -> PlannedUsage:
        """That of more requests of the same kind, rounded up."""
        return PlannedUsage(
            math.ceil(self.requests * factor - ROUNDING),
            self.tokens_read * factor,
            math.ceil(self.tokens_written * factor - ROUNDING),
            self.is_estimated,
            self.more.times(factor) if self.more else None,
        )

    @property
    def most(self) -> PlannedUsage:
        """With all requests that depend on replies."""
        return replace(self, more=None) + (self.more.most if self.more else PlannedUsage())

    def depending(self) -> PlannedUsage:
        """That of requests that depend on replies, to which more are added."""
        self.more = self.more or PlannedUsage()
        return self.more

    def cost(self, price: tuple[float, float]) -> float:
        """The cost at a price for a million tokens read and a million written."""
        usage = Usage(tokens_read=round(self.tokens_read), tokens_written=self.tokens_written)
        return usage.cost(price)
