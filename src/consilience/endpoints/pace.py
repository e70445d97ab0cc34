"""How many requests are in flight: as many as the server answers best.

A server that says how many it takes gets that many. For others the number doubles while that makes
replies arrive faster, and then stays at the fastest; now and then a larger one is tried. A server
with too many requests halves it, and all wait for a moment. Then it grows to one less than was
refused, and after that by one at a time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START = 2
"""Requests in flight at first: the server has the next one when it has answered one."""

MOST = 256
"""Requests in flight, at most."""

GAIN = 0.1
"""The share of the growth by which replies must arrive faster for a larger number to be kept."""

ROUNDS = 3
"""Replies of a measurement, for each request in flight."""

FEWEST = 8
"""Replies of a measurement, at least."""

STEADY = 16
"""Measurements at the fastest number before a larger one is tried; twice as many each time that it
is refused again."""

MUCH_LESS = 0.7
"""A trial of a larger number ends after a round at less than this share of the best rate."""

FIRST_PAUSE, LONGEST_PAUSE = 0.125, 5.0
"""Seconds in which no request starts after a server refused one, and at most; they double with each
refusal until there is a reply."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and how it passes."""

    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds."""


CLOCK = Clock()
"""The clock of the machine."""


class Pace:
    """Lets requests start. Everything runs in one event loop.

    ``fixed``: always this many in flight at most; None for as many as are answered best.
    """

    def __init__(self, fixed: int | None, clock: Clock = CLOCK) -> None:
        self.limit = fixed or START
        """Requests that may be in flight."""
        self.in_flight = 0
        """Requests that are in flight."""
        self.seconds = 0.0
        """Time in which at least one request was in flight."""
        self._fixed, self._clock = fixed is not None, clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused_until = self._busy_since = 0.0
        self._best = (math.inf, self.limit)  # the rate of replies at the best limit so far
        self._steady = 0  # measurements at the best limit
        self._is_enough = False  # whether a larger limit was no better
        self.most = MOST
        """Requests that a server can have in flight."""
        self._ceiling = MOST  # one less than the limit that was refused
        self._refused_before = 0  # the ceiling after the last refusal
        self._patience = STEADY
        self._storms, self._halved = 0, -math.inf
        self._restart()

    def take_at_most(self, most: int) -> None:
        """Begin with as many requests in flight as the server says that it takes; never more."""
        self.most = most
        if not self._fixed:
            self.limit = most
            self._best = (math.inf, most)
            self._restart()

    @contextmanager
    def held(self, limit: int) -> Iterator[None]:
        """Always this many in flight at most; nothing is in flight at the begin and the end."""
        before = self.limit, self._fixed
        self.limit, self._fixed = min(limit, self.most), True
        try:
            yield
        finally:
            self.limit, self._fixed = before
            self._restart()

    async def enter(self) -> float:
        """Wait until a request may start, in the order of the calls; when it starts."""
        while True:
            if (pause := self._paused_until - self._clock.now()) > 0:
                await self._clock.sleep(pause)
            elif self.in_flight < self.limit:
                break
            else:
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:
                    self._wake()
                    raise
        if not self.in_flight:
            self._busy_since = self._clock.now()
        self.in_flight += 1
        self._was_full |= self.in_flight == self.limit
        return self._clock.now()

    def leave(self) -> None:
        """A request has ended, whatever its end was."""
        self.in_flight -= 1
        if not self.in_flight:
            self.seconds += self._clock.now() - self._busy_since
        self._wake()

    def replied(self) -> None:
        """A reply has arrived."""
        self._storms = 0
        if self._fixed:
            return
        self._replies += 1
        rate = self._replies / max(self._busy() - self._since, 1e-9)
        best_rate, best = self._best
        is_worse = self.limit != best and rate < MUCH_LESS * best_rate
        if self._replies >= max(FEWEST, self.limit * (1 if is_worse else ROUNDS)):
            if self._was_full:
                self._adapt(rate)
            self._restart()
            self._wake()

    def overloaded(self, started: float, wait: float | None) -> None:
        """The server has refused a request as one too many.

        ``started``: what ``enter`` returned. Requests that were sent before the number was halved
        do not halve it again. ``wait``: seconds in which no request starts.
        """
        now = self._clock.now()
        if started >= self._halved:
            self._halved, self._storms = now, self._storms + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._storms)
            self._paused_until = max(self._paused_until, now + pause)
            if not self._fixed:
                ceiling = max(1, self.limit - 1)
                self._patience *= 2 if ceiling == self._refused_before else 1
                self._ceiling = self._refused_before = ceiling
                self.limit = max(1, self.limit // 2)
                self._best = (math.inf, self.limit)
                self._restart()
        if wait:
            self._paused_until = max(self._paused_until, now + wait)

    def _adapt(self, rate: float) -> None:
        """A new limit from the rate of replies at the present one."""
        best_rate, best = self._best
        if self.limit == best:
            self._best, self._steady = (rate, best), self._steady + 1
        elif rate > best_rate * (1 + GAIN * (self.limit / best - 1)):
            self._best, self._steady, self._is_enough = (rate, self.limit), 1, False
        else:
            self.limit, self._steady, self._is_enough = best, 0, True
        is_settled = self._is_enough or self.limit >= self._ceiling
        if self._steady >= (self._patience if is_settled else 1):
            self._steady = 0
            if self.limit >= self._ceiling:
                self._ceiling = self.limit + 1
            self.limit = min(self._ceiling, 2 * self.limit, self.most)

    def _restart(self) -> None:
        """Begin a measurement."""
        self._replies, self._since, self._was_full = 0, self._busy(), False

    def _busy(self) -> float:
        """Time up to now in which at least one request was in flight."""
        return self.seconds + (self._clock.now() - self._busy_since if self.in_flight else 0.0)

    def _wake(self) -> None:
        """Let those that wait look again, as many as may start."""
        for _ in range(max(0, self.limit - self.in_flight)):
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break
