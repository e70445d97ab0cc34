"""The client of a server: many requests in flight, with retries, limits and a journal."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import httpx2

from consilience.core.errors import Connection
from consilience.endpoints.allowance import is_free
from consilience.endpoints.journal import Journal
from consilience.endpoints.pace import CLOCK, Clock
from consilience.endpoints.planning import PlannedUsage
from consilience.endpoints.replies import Refused
from consilience.endpoints.sending import Sender, Sent
from consilience.endpoints.usage import Usage

AHEAD = 2
"""Requests that are prepared, for each one that may be in flight."""

FIRST_REFUSED = 8
"""Requests of a batch that are all refused for one reason, before any was answered: the reason is
not what they ask."""

LAST_REPLIES = 30.0
"""Seconds in which replies to requests in flight are awaited when nothing more is sent."""


class Client:
    """Sends requests to one server and yields its replies.

    What is sent goes to the server of the connection only: redirects are not followed, cookies are
    not kept. Nothing that is yielded, raised or kept has the key in it.

    ``journal`` keeps replies, and gives those that an interrupted run kept; it may be set later.
    ``transport``: how the server is reached in place of TCP, such as
    ``httpx2.AsyncHTTPTransport(uds=PATH)`` for a Unix socket.
    ``plan``: where it is not None, requests are counted there and not sent; each is ``Refused``.
    """

    is_free = False
    """Whether requests cost nothing, because the server is in this process."""

    def __init__(
        self,
        connection: Connection,
        *,
        journal: Journal | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        if transport is not None and not isinstance(transport, httpx2.AsyncBaseTransport):
            raise TypeError("transport: expected one of httpx2's asynchronous transports")
        self.connection = connection
        self.journal = journal
        self.plan: PlannedUsage | None = None
        self._sender = Sender(connection, transport, clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._order: random.Random | None = None
        self._is_answered = False

    @property
    def usage(self) -> Usage:
        """What was sent so far, and what the server counted."""
        return self._sender.usage

    @property
    def models(self) -> Sequence[str]:
        """The names that replies give the model, in alphabetical order."""
        return sorted(self._sender.models)

    def get(self, path: str) -> Any:
        """The JSON value of a route, or ``Refused``.

        ``path``: a route after the base URL (``models``), or with a slash at its start one beside
        its ``/v1`` (``/props``).
        """
        [(_, reply)] = self._replies(path, [None])
        return reply

    def post(self, path: str, body: Any) -> Any:
        """The JSON value of the reply to one request, or ``Refused``."""
        [(_, reply)] = self._replies(path, [body])
        return reply

    def post_all(self, path: str, bodies: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The position of each request and its reply, or ``Refused``, in the order of arrival.

        ``bodies`` is read a little ahead of the requests in flight. If it raises, or if the caller
        stops, requests that are not sent are dropped; replies to those that are in flight are
        awaited and go to the journal.
        """
        return self._replies(path, bodies)

    @contextmanager
    def in_flight(self, most: int | None = None) -> Iterator[None]:
        """Send at most so many requests at once, until the end of the block; None changes nothing.

        More than the connection allows are never in flight.
        """
        if most is None:
            yield
            return
        with self._sender.pace.held(min(most, self.connection.concurrency or most)):
            yield

    @contextmanager
    def reordered(self, seed: int) -> Iterator[None]:
        """Send the requests of each ``post_all`` in a drawn order, until the end of the block."""
        self._order = random.Random(seed)
        try:
            yield
        finally:
            self._order = None

    def set_most_in_flight(self, most: int) -> None:
        """Have so many requests in flight and never more: a server queues more out of order.

        A number that the user chose stays.
        """
        self._sender.pace.take_at_most(most)

    def close(self) -> None:
        """Close the connections. The client may be used again."""
        loop, self._loop = self._loop, None
        if loop is not None and not sys.is_finalizing():
            asyncio.run_coroutine_threadsafe(self._sender.close(), loop).result(LAST_REPLIES)
            loop.call_soon_threadsafe(loop.stop)

    def _replies(self, path: str, bodies: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        batch = _Batch(path)
        source: Iterator[tuple[int, Any]] = enumerate(bodies)
        if self._order is not None:
            drawn = list(source)
            self._order.shuffle(drawn)
            source = iter(drawn)
        waiting, is_read = 0, False
        refusals: list[Refused] = []
        try:
            while True:
                while not is_read and waiting < AHEAD * self._sender.pace.limit:
                    index, body = next(source, (-1, None))
                    if is_read := index < 0:
                        break
                    self._submit(batch, index, body)
                    waiting += 1
                if not waiting:
                    return
                index, reply = batch.arrived.get()
                waiting -= 1
                if isinstance(reply, BaseException):
                    raise reply
                if not isinstance(reply, Refused):
                    self._is_answered |= not is_free(path)
                elif not self._is_answered and self.plan is None and not is_free(path):
                    refusals.append(reply)
                    if len(refusals) == FIRST_REFUSED and len({*refusals}) == 1:
                        raise self._sender.refuses_all(path, reply)
                yield index, reply
        finally:
            self._end(batch)

    def _submit(self, batch: _Batch, index: int, body: Any) -> None:
        """Send a request in the event loop, or take its reply from the journal."""
        is_paid, key = not is_free(batch.path), None
        if self.plan is not None and is_paid:
            self.plan.add(body)
            batch.arrived.put((index, Refused(0, "not sent, because this is a dry run")))
            return
        request = Sent.of(batch.path, body)
        if self.journal is not None and is_paid:
            key = self.journal.key(batch.path, body)
            if key in self.journal:
                batch.arrived.put((index, self.journal.reply(key)))
                return
        task = asyncio.run_coroutine_threadsafe(self._reply(request, key), self._running())
        batch.tasks[task] = request

        def done(ended: Future[Any]) -> None:
            batch.tasks.pop(ended, None)
            if not ended.cancelled():
                batch.arrived.put((index, ended.exception() or ended.result()))

        task.add_done_callback(done)

    async def _reply(self, request: Sent, key: str | None) -> Any:
        """The reply to a request, kept under the key before anybody sees it."""
        note = self.journal.note_sent if key is not None and self.journal is not None else None
        reply = await self._sender.reply(request, note)
        if key is not None and self.journal is not None and not isinstance(reply, Refused):
            self.journal.keep(key, reply, request.tries)
        return reply

    def _end(self, batch: _Batch) -> None:
        """Drop what is not sent; await and keep replies to the rest."""
        if not batch.tasks or self._loop is None or sys.is_finalizing():
            return
        try:
            self._loop.call_soon_threadsafe(batch.drop_unsent)
            wait(list(batch.tasks), min(LAST_REPLIES, self.connection.timeout))
        finally:  # no reply in time, or interrupted again
            for task in list(batch.tasks):
                task.cancel()

    def _running(self) -> asyncio.AbstractEventLoop:
        """The event loop, which runs in a thread of its own."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True).start()
        return self._loop


@dataclass(slots=True)
class _Batch:
    """Requests whose replies are yielded together."""

    path: str
    """Their route."""
    arrived: SimpleQueue[tuple[int, Any]] = field(default_factory=SimpleQueue)
    """Replies that nobody has seen yet, with the position of their request; or what was raised."""
    tasks: dict[Future[Any], Sent] = field(default_factory=dict)
    """Requests without a reply, by their task."""

    def drop_unsent(self) -> None:
        """Send nothing more; in the event loop, in which no request is sent at the same time."""
        for task, request in list(self.tasks.items()):
            request.is_last_try = True
            request.is_dropped = not request.in_flight
            if request.is_dropped:
                task.cancel()
