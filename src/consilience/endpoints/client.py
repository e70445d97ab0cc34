"""Requests to a server: its address, how many at once, and sending until there is a reply."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from consilience.core.errors import Connection, ConsilienceError, UnansweredError
from consilience.core.text import counted, duration, truncated
from consilience.endpoints.usage import FREE, NO_REPLY, Journal, Usage
from consilience.files.read import parse_json

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"  # The environment variable of the key, where none is named
EXAMPLE = "http://127.0.0.1:8000/v1"
ROUTES = ("/chat/completions", "/completions", "/completion", "/models")
SHORTEST_SECRET = 8  # Characters of a key; a shorter one, such as ``none``, is no secret


def base_url_of(connection: Connection) -> str:
    """The base URL of a connection, without a final slash; a wrong one raises."""
    text = connection.base_url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        is_right = is_right and "@" not in parts.netloc and not re.search(r"[\s?#]", text)
        httpx2.URL(text)
    except (ValueError, httpx2.InvalidURL):
        is_right = False
    route = next(filter(text.endswith, ROUTES), None)
    if is_right and not route:
        return text
    shown, todo = text.rpartition("@")[2], f"Write it as {EXAMPLE}; name a key with --api-key-env."
    if is_right and route:
        todo = f"Write {text.removesuffix(route)}; the route is added to it."
    found = (f"'{shown}'" if shown else "empty") + ", after a user or a password" * ("@" in text)
    expected = f"a URL such as {EXAMPLE}, without a user, a password, a query and a route"
    raise ConsilienceError(found, expected=expected, where="--base-url", todo=todo)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that no text shows."""

    _text: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._text}"} if self._text else {}

    def removed_from(self, text: str) -> str:
        """The text without the key, also where its characters are escapes of JSON or of a URL."""
        if len(self._text) < SHORTEST_SECRET:
            return text
        if "\\" in text:
            escaped = (rf"(?:\\?{re.escape(one)}|\\u(?i:{ord(one):04x}))" for one in self._text)
            text = re.sub("".join(escaped), "[key]", text)
        for written in (self._text, quote(self._text, safe="")):
            text = text.replace(written, "[key]")
        return text


def key_of(connection: Connection) -> Key:
    """The key that a server gets: that of the environment variable that the connection names.

    Without a name that of ``OPENAI_API_KEY``, which is sent over https or to this machine only.
    """
    name = connection.key_variable
    key = os.environ.get(name or DEFAULT_KEY_VARIABLE, "").strip()
    url = base_url_of(connection)
    if name is None and urlsplit(url).scheme.lower() != "https" and not is_here(url):
        return Key("")
    if name is not None and not key:
        found, where = f"the environment variable '{name}' is not set or empty", "--api-key-env"
        expected = "the key of the server in it"
        todo = f"Set it, as in `export {name}=...`, or leave {where} out if the server wants none."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    if not (key.isascii() and key.isprintable()):
        name = name or DEFAULT_KEY_VARIABLE
        found = f"the key in '{name}' has a character that no header can have"
        todo = "Check how the variable was set."
        raise ConsilienceError(found, expected="printable ASCII characters", todo=todo)
    return Key(key)


def is_here(url: str) -> bool:
    """Whether the host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(base: str, path: str) -> str:
    """The URL of a route: one with a slash at its start is beside ``/v1``, others are below it."""
    return base.removesuffix("/v1") + path if path.startswith("/") else f"{base}/{path}"


REFUSALS, UNSUPPORTED = (400, 413, 422), 501
"""Statuses of a server that refuses a request for its content, and that lacks a route or what the
route needs."""

TRANSIENT = (408, 425, 429)  # Others a moment later, as 500 and more may be
NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")  # Codes of a 429 that no wait ends
ACCEPTED = "Name the variable of a key that the server accepts: --api-key-env."
TODO = {
    401: ACCEPTED,
    403: ACCEPTED,
    404: "Check --base-url (it usually ends in /v1) and the name of the model.",
    UNSUPPORTED: "Check that the server can do this with the model (docs/endpoints.md).",
}
LONGEST_MESSAGE = 200  # Characters of what a server says that a message quotes


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was refused for its content; ``status`` 0 where it was not sent."""

    status: int
    message: str
    reply: Any = field(default=None, compare=False)  # Of one that was filtered: its tokens count
    what = "the server refused the request"

    @property
    def reason(self) -> str:
        return f"{self.what}{f' ({self.status})' if self.status else ''}: {self.message}"


class Failed(Refused):
    """A request whose tries were used up while others were answered; it is sent again later."""

    what = NO_REPLY


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure that may pass.

    ``status``: 0 where there was no reply. ``wait``: seconds that the server asks to wait, if any.
    ``is_unreached``: the request was not sent.
    """

    status: int
    message: str
    wait: float | None = None
    is_unreached: bool = False


def meaning_of(status: int, headers: Mapping[str, str], body: str, *, where: str) -> Any:
    """What a reply without a key means: a JSON value, ``Refused`` or ``Trouble``; others raise."""
    if 200 <= status < 300:
        try:
            value = parse_json(body)
        except json.JSONDecodeError as reason:
            is_page = body.lstrip()[:1] == "<"
            found = "an HTML page" if is_page else f"no JSON: {reason}"
            found += f": {truncated(' '.join(body.split()), LONGEST_MESSAGE) or 'an empty reply'}"
            if is_page:
                expected = "JSON from an API, whose address usually ends in /v1"
                raise ConsilienceError(found, expected=expected, where=where) from reason
            return Trouble(200, found)  # it may have been truncated
        choices = value.get("choices") if isinstance(value, dict) else None
        every = choices if isinstance(choices, list) else []
        ends = [one.get("finish_reason") for one in every if isinstance(one, dict)]
        if "error" in ends or (isinstance(value, dict) and value.get("error") and not choices):
            return Trouble(status, message_of(body))  # as gateways send it
        is_cut = "content_filter" in ends
        return Refused(status, "'finish_reason' is 'content_filter'", value) if is_cut else value
    found, todo = message_of(body) or "no message", TODO.get(status, "")
    if status in REFUSALS:
        return Refused(status, found)
    if status in TRANSIENT or (status >= 500 and status != UNSUPPORTED):
        if not any(code in body for code in NO_CREDIT):
            return Trouble(status, found, wait_of(headers))
        todo = "Pay for more, and run the same command again to resume."
    elif 300 <= status < 400:
        found = "a redirect"
        todo = "Give the address that answers as --base-url: the key goes to one server only."
    raise ConsilienceError(f"status {status}: {found}", where=where, todo=todo)


def message_of(body: str) -> str:
    """What a server says in the body of an error: its message, or the beginning of the text."""
    try:
        value = parse_json(body)
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


AHEAD, FIRST_REFUSED = 2, 8
"""Requests that are prepared, for each one that may be in flight; and those of a batch that are all
refused for one reason, before any was answered: the reason is not what they ask."""

LAST_REPLIES = 30.0  # Seconds in which replies are awaited when nothing more is sent
AT_ONCE, TIMEOUT = 8, 60  # Requests in flight where no number is given; seconds of a try
WAITS = (1, 2, 4, 8, 16, 32)  # Seconds before a request is sent again
CONNECT, LONGEST_WAIT = 15, 600  # Seconds to connect, and the most that a server may ask to wait
RESUME = "Run the same command again; a run resumes."


Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Request:
    """What is sent, with its key in the journal if the reply is kept; a GET has no ``body``."""

    path: str
    body: Any
    content: bytes
    key: str | None
    in_flight: bool = False
    is_last_try: bool = False
    tries: int = 0


@dataclass(slots=True)
class _Batch:
    """Requests (``tasks``) whose replies, or what they raised, are yielded as they ``arrived``."""

    path: str
    arrived: SimpleQueue[tuple[int, Any]] = field(default_factory=SimpleQueue)
    tasks: dict[asyncio.Task[Any], _Request] = field(default_factory=dict)

    async def end(self, seconds: float) -> None:
        try:
            for task, request in self.tasks.items():
                request.is_last_try = True
                if not request.in_flight:
                    task.cancel()
            if self.tasks:
                await asyncio.wait(list(self.tasks), timeout=seconds)
        finally:  # no reply in time, or interrupted again
            for task in self.tasks:
                task.cancel()


class Client:
    """Sends requests to one server and yields its replies.

    What is sent goes to this server only, and nothing that is yielded, raised or kept has the key.
    ``journal`` keeps replies, and gives those that an interrupted run kept.
    """

    _http: httpx2.AsyncClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    journal: Journal | None = None

    def __init__(self, connection: Connection, sleep: Sleep = asyncio.sleep) -> None:
        self.connection, self.usage = connection, Usage()
        self.at_once = connection.concurrency or AT_ONCE
        self._slots = asyncio.Semaphore(self.at_once)
        self._base, self._key = base_url_of(connection), key_of(connection)
        self._sleep = sleep
        self._successes, self._is_answered = 0, False
        self.models: set[str] = set()  # The names of the model in replies

    def post(self, path: str, body: Any) -> Any:
        """The JSON value of the reply to one request, or ``Refused``; a GET without a body."""
        answered = self._is_answered
        [(_, reply)] = self.post_all(path, [body])
        self._is_answered = answered  # one reply does not tell what others ask
        return reply

    def post_all(self, path: str, bodies: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The position of each request and its reply, or ``Refused``, in the order of arrival.

        ``bodies`` is read a little ahead of the requests in flight. If it raises, or if the caller
        stops, requests that are not sent are dropped; replies to those that are in flight are
        awaited and go to the journal.
        """
        batch, source = _Batch(path), enumerate(bodies)
        waiting, is_read, is_paid = 0, False, path not in FREE
        refusals: list[Refused] = []
        try:
            while True:
                while not is_read and waiting < AHEAD * self.at_once:
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
                if not isinstance(reply, Refused) or reply.reply is not None:
                    self._is_answered |= is_paid
                elif not self._is_answered and is_paid:
                    refusals.append(reply)
                    if len(refusals) == FIRST_REFUSED and len({*refusals}) == 1:
                        found = f"status {reply.status}: {reply.message} (so far for every request)"
                        todo = "Check the name of the model, --base-url and what the server can do."
                        where = url_of(self._base, path)
                        raise UnansweredError(found, expected="an answer", where=where, todo=todo)
                yield index, reply
        finally:
            if waiting and self._loop is not None and not sys.is_finalizing():
                ended = asyncio.run_coroutine_threadsafe(batch.end(LAST_REPLIES), self._loop)
                try:
                    ended.result()
                finally:
                    ended.cancel()

    def close(self) -> None:
        """End the connections and the thread, without waiting for them."""
        loop, self._loop = self._loop, None
        http, self._http = self._http, None
        if loop is not None and not sys.is_finalizing():
            last = http.aclose() if http else asyncio.sleep(0)
            ended = asyncio.run_coroutine_threadsafe(last, loop)
            ended.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))

    __del__ = close  # also when nothing uses it any more

    def _submit(self, batch: _Batch, index: int, body: Any) -> None:
        key = None
        if batch.path not in FREE and self.journal is not None:
            key = self.journal.key(batch.path, body)
            for reply in self.journal.kept(key):
                batch.arrived.put((index, reply))
                return
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        request = _Request(batch.path, body, content, key)

        def start() -> None:
            task = asyncio.get_running_loop().create_task(self._kept_reply(request))
            batch.tasks[task] = request
            task.add_done_callback(done)

        def done(ended: asyncio.Task[Any]) -> None:
            del batch.tasks[ended]
            if not ended.cancelled():
                batch.arrived.put((index, ended.exception() or ended.result()))

        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            run = lambda: (loop.run_forever(), loop.close())  # noqa: E731
            threading.Thread(target=run, name="endpoint", daemon=True).start()
        self._loop.call_soon_threadsafe(start)

    async def _kept_reply(self, request: _Request) -> Any:
        journal, reply = self.journal, await self._reply(request)
        if isinstance(reply, Refused):
            self.usage.refused += 1
        elif request.key is not None and journal is not None:
            journal.keep(request.key, reply)
        return reply

    async def _reply(self, request: _Request) -> Any:
        """The JSON value of the reply, or ``Refused``; sent again while that may help."""
        before = self._successes
        for wait in (*WAITS, None):
            async with self._slots:
                outcome = await self._try(request)
            if not isinstance(outcome, Trouble):
                self._successes += 1
                return outcome
            if wait is None or request.is_last_try:
                break
            if (outcome.wait or 0) > LONGEST_WAIT:
                found = f"{outcome.message}; the server asks to wait {duration(outcome.wait or 0)}"
                raise self._error(request, found, todo=f"Wait. {RESUME}")
            await self._sleep(wait if outcome.wait is None else outcome.wait)
            self.usage.retries += 1
        tried = f"{outcome.message} ({counted(request.tries, 'try', 'tries')})"
        if outcome.is_unreached:
            todo = f"Start the server. {RESUME}"
            raise self._error(request, tried, f"a server at {self._base}", todo)
        if self._successes == before:
            raise self._error(request, tried, todo=RESUME)
        return Failed(outcome.status, tried)

    async def _try(self, request: _Request) -> Any:
        is_paid = request.path not in FREE
        if is_paid:
            self._refuse_more()
            self.usage.requests += 1
        request.in_flight = True
        request.tries += 1
        try:
            outcome = await self._send(request)
            reply = getattr(outcome, "reply", outcome)
            if is_paid and not isinstance(outcome, Trouble) and reply is not None:
                self.usage.add_tokens(reply)
                self._note_name(reply)
            return outcome
        finally:
            request.in_flight = False

    async def _send(self, request: _Request) -> Any:
        """Send a request; what the whole reply means, without the key."""
        http = self._http = self._http or self._new_http()
        method, url = "GET" if request.body is None else "POST", url_of(self._base, request.path)
        try:
            async with asyncio.timeout(TIMEOUT):
                response = await http.request(method, url, content=request.content or None)
        except TimeoutError:
            return Trouble(0, f"no complete reply in {TIMEOUT} s")
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            found = f"cannot connect: {self._shown(error)}"
            if self._successes:
                return Trouble(0, found, is_unreached=True)
            todo = "Check --base-url, and that the server runs."
            raise self._error(request, found, f"a server at {self._base}", todo) from None
        except httpx2.RequestError as error:
            return Trouble(0, f"the connection broke: {self._shown(error)}")
        body = self._key.removed_from(response.content.decode(errors="replace"))
        return meaning_of(response.status_code, response.headers, body, where=url)

    def _shown(self, error: Exception) -> str:
        return self._key.removed_from(str(error)) or type(error).__name__

    def _new_http(self) -> httpx2.AsyncClient:
        headers = {"user-agent": "consilience", "accept": "application/json"}
        headers |= {"content-type": "application/json", **self._key.headers}
        host = urlsplit(self._base).hostname or ""
        host = f"[{host}]" if ":" in host else host  # IPv6
        try:
            return httpx2.AsyncClient(
                headers=headers, timeout=httpx2.Timeout(None, connect=CONNECT),
                limits=httpx2.Limits(),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none is kept
                mounts={f"all://{host}": None} if is_here(self._base) else None,  # no proxy
            )  # fmt: skip
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            found = f"the proxy or the certificates of the environment cannot be used: {error}"
            todo = "Check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, or add the host to NO_PROXY."
            raise ConsilienceError(found, todo=todo) from error

    def _error(
        self, request: _Request, found: str, expected: str = "", todo: str = ""
    ) -> ConsilienceError:
        where = url_of(self._base, request.path)
        return ConsilienceError(found, expected=expected, where=where, todo=todo)

    def _refuse_more(self) -> None:
        """Raise where the limit of requests is reached."""
        most, sent = self.connection.max_requests, self.usage.requests
        if most is not None and sent >= most:
            todo = "Run the same command again; a run resumes with the same limit for what is left."
            found = f"--max-requests {most:,} is reached: {counted(sent, 'request')} sent"
            raise ConsilienceError(found, todo=f"{todo} Or give a larger --max-requests.")

    def _note_name(self, reply: Any) -> None:
        """Keep the name of the model, of a file without folders."""
        names = reply if isinstance(reply, dict) else {}
        if (model := names.get("model")) and isinstance(model, str):
            is_path = model.lower().endswith(".gguf") or model[:1] in "/.~" or "\\" in model
            name = re.split(r"[/\\]", model.rstrip("/\\"))[-1] if is_path else model
            self.models.add(truncated(name, LONGEST_MESSAGE))
