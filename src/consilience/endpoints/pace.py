"""How many requests are in flight: as many as the server answers best.

The number doubles while that makes replies arrive faster, and then stays at the fastest. A server
with too many requests halves it; from then on it grows by one at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

START = 2
"""Requests in flight at first: the server has the next one when it has answered one."""

MOST = 256
"""Requests in flight, at most."""

GAIN = 1.1
"""How much faster replies must arrive for a larger number to be kept."""

ROUNDS = 3
"""Replies of a measurement, for each request in flight."""

FEWEST = 8
"""Replies of a measurement, at least."""

STEADY = 16
"""Measurements at the fastest number before a larger one is tried again."""


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
        self._paused_until = 0.0
        self._busy_since = 0.0
        self._ceiling = MOST
        self._best = (0.0, self.limit)
        self._steady = 0
        self._restart()

    async def enter(self) -> None:
        """Wait until a request may start, in the order of the calls."""
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

    def leave(self) -> None:
        """A request has ended, whatever its end was."""
        self.in_flight -= 1
        if not self.in_flight:
            self.seconds += self._clock.now() - self._busy_since
        self._wake()

    def replied(self) -> None:
        """A reply has arrived."""
        if self._fixed:
            return
        self._replies += 1
        if self._replies < max(FEWEST, ROUNDS * self.limit):
            return
        rate = self._replies / max(self._busy() - self._since, 1e-9)
        if self._was_full:
            self._adapt(rate)
        self._restart()
        self._wake()

    def overloaded(self, wait: float | None) -> None:
        """The server has too many requests; ``wait``: seconds in which none starts."""
        if wait:
            self._paused_until = max(self._paused_until, self._clock.now() + wait)
        if not self._fixed and self._clock.now() >= self._halved_until:
            self.limit = self._ceiling = max(1, self.limit // 2)
            self._halved_until = self._clock.now() + 1.0  # one storm of refusals halves once
            self._best = (0.0, self.limit)
            self._restart()

    def _adapt(self, rate: float) -> None:
        """A new limit from the rate of replies at the present one."""
        best_rate, best = self._best
        if rate > best_rate * GAIN or self.limit == best:
            self._best = (rate, self.limit)
            self._steady = 0 if rate > best_rate * GAIN else self._steady + 1
            if self._steady == 0 or self._steady >= STEADY:
                self._steady = 1
                self.limit = self._larger()
        else:
            self.limit, self._steady = best, 1

    def _larger(self) -> int:
        """The next number to try: twice as many, or one more than what a server once refused."""
        if self.limit < self._ceiling:
            return min(self._ceiling, 2 * self.limit)
        self._ceiling = min(MOST, self.limit + 1)
        return self._ceiling

    _halved_until = 0.0

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
