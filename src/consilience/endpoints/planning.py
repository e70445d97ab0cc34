"""What requests would cost that are not sent."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from consilience.endpoints.allowance import most_written, prompts_of
from consilience.endpoints.usage import Usage

BYTES_A_TOKEN = 2
"""Bytes of a text for each of its tokens, where nothing says how many there are. Most texts have
fewer tokens: English has four bytes a token and more."""

ROUNDING = 1e-9
"""What is not rounded up."""


@dataclass(slots=True)
class PlannedUsage:
    """Requests that were not sent, and the tokens that they would use."""

    requests: int = 0
    """Requests."""
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
        """Those of both."""
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
