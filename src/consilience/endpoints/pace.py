"""How many requests are in flight: a semaphore whose size follows the server.

It begins small and grows by one with each reply. A server that refuses a request as one too many,
or gives none in time, halves it, and all wait for a moment; then it grows to one less than was too
many, and from there by one in ``STEADY`` rounds. A server that says how many it takes gets that
many, and a number that the user chose stays.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START, MOST, STEADY = 8, 32, 16

FIRST_PAUSE, LONGEST_PAUSE = 0.125, 5.0
"""Seconds in which no request starts after one was too many, and at most; they double with each
until there is a reply."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and how it passes."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


CLOCK = Clock()


class Pace:
    """A semaphore in one event loop. ``seconds``: the time in which a request was in flight."""

    def __init__(self, fixed: int | None, clock: Clock = CLOCK, slow: float = math.inf) -> None:
        """``fixed``: a number that stays.

        ``slow``: replies that take so many seconds or more, as they do in a long queue, are no
        reason to send more at once.
        """
        self.most, self._size, self._is_fixed = fixed or MOST, float(fixed or START), bool(fixed)
        self.in_flight, self.seconds = 0, 0.0
        self._clock, self._slow = clock, slow
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._unadmitted: list[asyncio.Future[None]] = []
        self._paused_until = self._busy_since = 0.0
        self._halved, self._too_many, self._ceiling = -math.inf, 0, math.inf

    @property
    def limit(self) -> int:
        """Requests that may be in flight."""
        return int(self._size)

    def take_at_most(self, most: int) -> None:
        """Have as many requests in flight as the server says that it takes; never more."""
        self.most = most
        if not self._is_fixed:
            self._size = float(most)

    @contextmanager
    def held(self, limit: int) -> Iterator[None]:
        """Always this many in flight at most; nothing is in flight at the begin and the end."""
        before = self._size, self._is_fixed
        self._size, self._is_fixed = float(min(limit, self.most)), True
        try:
            yield
        finally:
            self._size, self._is_fixed = before

    async def enter(self, admits: Callable[[], bool] = lambda: True) -> float:
        """Wait until a request may start and is admitted, first come first served; when it starts.

        What is not admitted is looked at again whenever a request has ended.
        """
        while True:
            if (pause := self._paused_until - self._clock.now()) > 0:
                await self._clock.sleep(pause)
            elif (has_room := self.in_flight < self.limit) and admits():
                break
            else:
                turn = asyncio.get_running_loop().create_future()
                (self._unadmitted if has_room else self._waiting).append(turn)
                try:
                    await turn
                except asyncio.CancelledError:
                    self._wake()
                    raise
        now = self._clock.now()
        if not self.in_flight:
            self._busy_since = now
        self.in_flight += 1
        return now

    def leave(self) -> None:
        """A request has ended, whatever its end was."""
        self.in_flight -= 1
        if not self.in_flight:
            self.seconds += self._clock.now() - self._busy_since
        self._wake()

    def replied(self, started: float) -> None:
        """A reply has arrived to a request in flight; ``started``: what ``enter`` returned."""
        self._too_many = 0
        is_slow = self._clock.now() - started >= self._slow
        is_enough = self.in_flight < self.limit and not self._waiting
        if self._is_fixed or is_slow or is_enough:
            return
        step = 1.0 if self._size < self._ceiling else 1 / (STEADY * self._size)
        self._size = min(self._size + step, self.most)

    def overloaded(self, started: float, wait: float | None = None) -> None:
        """The server has too many requests. ``wait``: seconds in which no request starts.

        Requests that were sent before the size was halved do not halve it again.
        """
        now = self._clock.now()
        if started >= self._halved:
            self._halved, self._too_many = now, self._too_many + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._too_many)
            self._paused_until = max(self._paused_until, now + pause)
            if not self._is_fixed:
                self._ceiling = max(1, self.limit - 1)
                self._size = float(max(1, self.limit // 2))
        if wait:
            self._paused_until = max(self._paused_until, now + wait)

    def _wake(self) -> None:
        """Let those look again that were not admitted, and as many others as may start."""
        for turn in self._unadmitted:
            if not turn.done():
                turn.set_result(None)
        self._unadmitted.clear()
        for _ in range(max(0, self.limit - self.in_flight)):
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break
