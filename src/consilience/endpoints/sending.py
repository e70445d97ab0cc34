"""Sends one request until there is a reply, and says what a failure means."""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from consilience.core.errors import Connection, ConsilienceError, UnansweredError
from consilience.core.text import counted, duration, truncated
from consilience.endpoints.address import base_url_of, host_of, is_here, key_of, url_of
from consilience.endpoints.allowance import Allowance, is_free
from consilience.endpoints.pace import CLOCK, Clock, Pace
from consilience.endpoints.replies import Refused, Trouble, meaning_of
from consilience.endpoints.usage import Usage

TRIES, TIMEOUTS = 8, 3
"""How often a request is sent at most, and how often it may end without a reply in time."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the second try, and at most; each wait is about twice as long as the last one."""

LONGEST_REQUESTED_WAIT = 600.0
"""Seconds that a server may ask to wait; a longer wait ends the run, which can be resumed."""

CONNECT = 15.0
"""Seconds in which a connection must be made."""

LARGEST_REPLY = 64 << 20
"""Bytes of a reply, unpacked."""

ENCODINGS = ("", "identity", "gzip")
"""Content encodings of replies that are read."""

LONGEST_NAME = 200
"""Characters of a model's name in a reply that are kept."""

RESUME = "Run the same command again to resume; replies are kept."


@dataclass(slots=True)
class Sent:
    """What is sent, and how far it is."""

    path: str
    """The route."""
    body: Any
    """The value that is sent as JSON; None for a GET."""
    content: bytes
    """The body as it is sent."""
    in_flight: bool = False
    """Whether it is sent and has no reply yet."""
    is_last_try: bool = False
    """Whether it is not sent again."""
    is_dropped: bool = False
    """Whether it is not sent at all."""
    tries: int = 0
    """How often it was sent."""

    @classmethod
    def of(cls, path: str, body: Any) -> Sent:
        """A request that is not sent yet."""
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        return cls(path, body, content)


class Sender:
    """Sends requests to one server. Everything but ``usage`` belongs to one event loop."""

    def __init__(
        self,
        connection: Connection,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.usage = Usage()
        self.models: set[str] = set()
        self.pace = Pace(connection.concurrency, clock)
        self._connection = connection
        self._base = base_url_of(connection)
        self._key = key_of(connection)
        self._allowance = Allowance(connection, self.usage)
        self._transport = transport
        self._http: httpx2.AsyncClient | None = None
        self._random = random.Random(0)
        self._clock = clock
        self._successes = 0
        self._ids: set[int] = set()

    async def reply(self, request: Sent, note_sent: Callable[[], None] | None = None) -> Any:
        """The JSON value of the reply, or ``Refused``; sent again while that may help.

        ``note_sent`` is called before each try.
        """
        tries = timeouts = unreadable = 0
        successes, progress = None, self._successes
        while True:
            outcome = await self._try(request, note_sent)
            if not isinstance(outcome, Trouble):
                self._successes += 1
                self.usage.refused += isinstance(outcome, Refused)
                return outcome
            tries, timeouts = tries + 1, timeouts + outcome.is_timeout
            unreadable += outcome.error is not None
            if outcome.error is not None and unreadable > 1:
                raise outcome.error
            successes = self._successes if successes is None else successes
            if outcome.is_overload and self._successes > progress:
                tries = 1  # of a limit that is not of this request
            progress = self._successes
            if tries >= TRIES or timeouts >= TIMEOUTS or request.is_last_try:
                tried = f"{outcome.message} ({counted(tries, 'try', 'tries')})"
                if self._successes == successes:
                    raise ConsilienceError(tried, where=self._url(request), todo=RESUME)
                self.usage.refused += 1
                return Refused(outcome.status, tried)
            await self._clock.sleep(self._wait(tries, outcome, request))
            self.usage.retries += 1

    def refuses_all(self, path: str, refused: Refused) -> UnansweredError:
        """The error for a server that refuses every request for one reason."""
        return UnansweredError(
            f"status {refused.status}: {refused.message} (so far for every request)",
            expected="an answer",
            where=url_of(self._base, path),
            todo="Check the name of the model, --base-url and what the server can do.",
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _try(self, request: Sent, note_sent: Callable[[], None] | None) -> Any:
        """Send a request once, when its turn has come and the limits admit it."""
        is_paid = not is_free(request.path)
        tokens = self._allowance.estimate(request.content, request.body) if is_paid else 0
        started = await self._enter(request, tokens, is_paid)
        self._allowance.reserved += tokens
        self.usage.requests += is_paid
        request.in_flight = True
        request.tries += 1
        try:
            if note_sent is not None:
                note_sent()
            outcome = await self._send(request)
            self._note(outcome, tokens, request, started)
            return outcome
        finally:
            request.in_flight = False
            self._allowance.reserved -= tokens
            self.pace.leave()
            self.usage.seconds = self.pace.seconds

    def _note(self, outcome: Any, tokens: int, request: Sent, started: float) -> None:
        """Count a reply, and let it decide how many requests are in flight."""
        if isinstance(outcome, Trouble):
            if outcome.is_overload:
                self.pace.overloaded(started, outcome.wait)
        elif not is_free(request.path) and not isinstance(outcome, Refused):
            self.pace.replied()
            self._allowance.settle(tokens, request.content, outcome)
            self._note_names(outcome)

    async def _enter(self, request: Sent, tokens: int, is_paid: bool) -> float:
        """Wait until a request may be sent; when it is."""
        started = await self.pace.enter()
        try:
            while is_paid and not self._allowance.admits(tokens):
                await asyncio.sleep(0.02)  # until a request in flight has used fewer than reserved
            if request.is_dropped:
                raise asyncio.CancelledError
        except BaseException:
            self.pace.leave()
            raise
        return started

    async def _send(self, request: Sent) -> Any:
        """What one exchange with the server means: a value, ``Refused`` or ``Trouble``."""
        limit = self._connection.timeout
        try:
            async with asyncio.timeout(limit):
                status, headers, body = await self._exchange(request)
        except TimeoutError:
            return Trouble(0, f"no complete reply in {limit:g} s", is_timeout=True)
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            return self._unconnected(error, request)
        except httpx2.TransportError as error:
            reason = self._key.removed_from(str(error)) or type(error).__name__
            return Trouble(0, f"the connection broke: {reason}")
        except httpx2.DecodingError as error:
            raise ConsilienceError(
                f"a reply that cannot be unpacked: {error}", where=self._url(request)
            ) from None
        return meaning_of(status, headers, body, where=self._url(request))

    async def _exchange(self, request: Sent) -> tuple[int, dict[str, str], str]:
        """Send a request; the status, headers and whole text of the reply, without the key."""
        http = self._http = self._http or self._new_http()
        method = "GET" if request.body is None else "POST"
        url = url_of(self._base, request.path)
        async with http.stream(method, url, content=request.content or None) as response:
            encoding = response.headers.get("content-encoding", "").strip().lower()
            if encoding not in ENCODINGS:
                raise self._unreadable(request, f"a reply with the encoding '{encoding}'", "gzip")
            parts, size = [], 0
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > LARGEST_REPLY:
                    problem = f"a reply of more than {LARGEST_REPLY >> 20} MiB"
                    raise self._unreadable(request, problem, "a smaller one")
            shown = self._key.removed_from
            texts = {name: shown(value) for name, value in response.headers.items()}
            return response.status_code, texts, shown(b"".join(parts).decode(errors="replace"))

    def _new_http(self) -> httpx2.AsyncClient:
        headers = {"accept-encoding": "gzip", "user-agent": "consilience"}
        headers["content-type"] = headers["accept"] = "application/json"
        direct = {f"all://{host_of(self._base)}": None} if is_here(self._base) else None
        try:
            return httpx2.AsyncClient(
                headers={**headers, **self._key.headers},
                timeout=httpx2.Timeout(None, connect=CONNECT),
                limits=httpx2.Limits(),
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none is kept
                transport=self._transport,
                mounts=direct,  # a server on this machine is not asked through a proxy
            )
        except (ImportError, ValueError, OSError) as error:
            raise ConsilienceError(
                f"the proxy or the certificates of the environment cannot be used: {error}",
                todo="Check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, or add the host to NO_PROXY.",
            ) from error

    def _unconnected(self, error: Exception, request: Sent) -> Trouble:
        """A connection that was not made; what no wait mends raises."""
        cause = error.__cause__ or error.__context__
        causes: list[BaseException] = []
        while cause is not None and len(causes) < 10:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__
        reason = self._key.removed_from(str(error)) or type(error).__name__
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            todo = "Use the host name of the certificate, or set SSL_CERT_FILE to the authority's."
        elif not self._successes:
            todo = "Check --base-url, and that the server runs."
        else:
            return Trouble(0, f"cannot connect: {reason}")
        raise ConsilienceError(
            f"cannot connect: {reason}",
            expected=f"a server at {self._base}",
            where=self._url(request),
            todo=todo,
        ) from None

    def _unreadable(self, request: Sent, problem: str, expected: str) -> ConsilienceError:
        return ConsilienceError(problem, expected=expected, where=self._url(request))

    def _wait(self, tries: int, trouble: Trouble, request: Sent) -> float:
        """Seconds before the next try: twice as long each time, and as long as the server asks."""
        if trouble.wait is not None and trouble.wait > LONGEST_REQUESTED_WAIT:
            raise ConsilienceError(
                f"status {trouble.status}: {trouble.message}; the server asks to wait "
                f"{duration(trouble.wait)}",
                where=self._url(request),
                todo=f"Wait. {RESUME}",
            )
        longest: float = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1))
        return max(trouble.wait or 0.0, longest * (0.5 + self._random.random() / 2))

    def _note_names(self, reply: Any) -> None:
        """Keep the name of the model in a reply, and count an id that an earlier reply had."""
        names = reply if isinstance(reply, dict) else {}
        if (model := names.get("model")) and isinstance(model, str):
            self.models.add(truncated(_without_folder(model), LONGEST_NAME))
        identity = names.get("id")
        if isinstance(identity, str) and identity:
            digest = hash(identity)
            self.usage.repeated_ids += digest in self._ids
            self._ids.add(digest)

    def _url(self, request: Sent) -> str:
        return url_of(self._base, request.path)


def _without_folder(name: str) -> str:
    """The name of a model; of a file or a folder on the server, which it may give, only the name.

    ``owner/name`` of a hub stays.
    """
    is_path = name.lower().endswith(".gguf") or name[:1] in "/.~" or "\\" in name
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1] if is_path else name
