"""Requests to a server: its address and key, and sending until there is a reply that is understood.

A failure that may pass is sent again. A refusal is returned: a prompt has no answer, or a server
lacks a field. What concerns every request (the key, credit, the name of the model) ends the run.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from consilience.core.errors import Connection, ConsilienceError
from consilience.core.text import counted, duration, truncated
from consilience.endpoints import NO_REPLY, Journal, Usage
from consilience.files.read import parse_json

Read = Callable[[Any], Any]  # What is made of something, such as a reply
Wait = Callable[[threading.Event, float], bool]  # For an event or so many seconds

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
    route = next(filter(text.endswith, ROUTES), "")
    if is_right and not route:
        return text
    todo = f"Write it as {EXAMPLE}; name a key with --api-key-env."
    todo = f"Write {text.removesuffix(route)}; the route is added to it." if is_right else todo
    found = f"'{text.rpartition('@')[2]}'" if text else "empty"  # without a user and a password
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
        """The text without the key; JSON is written anew, so that no escape hides a character."""
        if len(self._text) < SHORTEST_SECRET:
            return text
        with suppress(json.JSONDecodeError):
            text = json.dumps(parse_json(text), ensure_ascii=False)
        for written in (self._text, json.dumps(self._text)[1:-1], quote(self._text, safe="")):
            text = text.replace(written, "[key]")
        return text


def key_of(connection: Connection) -> Key:
    """The key that a server gets: that of the environment variable that the connection names.

    Without a name that of ``OPENAI_API_KEY``, which is sent over https or to this machine only.
    """
    name, url = connection.key_variable, base_url_of(connection)
    key = os.environ.get(name or DEFAULT_KEY_VARIABLE, "").strip()
    if name is None and urlsplit(url).scheme.lower() != "https" and not is_here(url):
        return Key("")
    if (name is not None and not key) or not (key.isascii() and key.isprintable()):
        fault = "has a character that no header can have" if key else "is not set or empty"
        name = name or DEFAULT_KEY_VARIABLE
        todo = f"Set it, as in `export {name}=...`, or leave --api-key-env out."
        found = f"the environment variable '{name}' {fault}"
        expected = "the key of the server in it"
        raise ConsilienceError(found, expected=expected, where="--api-key-env", todo=todo)
    return Key(key)


def is_here(url: str) -> bool:
    """Whether the host is this machine."""
    return bool(re.fullmatch(r"localhost|127(\.\d+){3}|::1", urlsplit(url).hostname or ""))


REFUSED, UNREAD = "the server refused the request", "the reply was not understood"


class RefusedError(Exception):
    """A request without an answer: refused for what it asks, or for a field of it.

    ``what``: also that no reply was understood, or that none came (``NO_REPLY``): then the request
    is sent again by the same command. ``reply``: of one that was filtered, whose tokens count.
    """

    def __init__(self, status: int, message: str, what: str = REFUSED, reply: Any = None) -> None:
        super().__init__(f"{what} ({status}): {message}")
        self.status, self.message, self.reply = status, message, reply


class UnreadError(Exception):
    """A reply that lacks what a field of the request asks for."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"'{field}': {problem}")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure that may pass. ``wait``: seconds that the server asks to wait, if any."""

    status: int  # 0 where there was no reply
    message: str
    wait: float | None = None
    is_unreached: bool = False  # Whether the request was not sent
    is_unread: bool = False  # Whether its reply was not understood


TRANSIENT = (408, 409, 425, 429)  # Others a moment later, as 500 and more may be
FOR_ITS_CONTENT = (400, 404, 405, 413, 422, 501)
"""Statuses of a request that the server refuses for what is in it, or whose route it lacks."""

OF_FIELDS = re.compile(r"(?i)log_?prob|log prob|\becho\b|logit_bias|n_probs|grammar")
OF_CREDIT = re.compile(r"(?i)insufficient_quota|billing_hard_limit|insufficient (balance|credit)")
OF_KEY = re.compile(r"(?i)\bapi[ _-]?key\b|unauthori[sz]ed|authentication error|no connected db")
OF_MODEL = re.compile(
    r"(?i)\b(models?|deployment)\b.{0,100}?(does not exist|not found)|^model: "
    r"|(invalid|unknown|no such|not a valid) model\b"
)
"""What a message names that speaks of a field, of credit, of the key, of the name of the model."""

CREDIT = "Pay for more, and run the same command again to resume."
KEY = "Name the variable of a key that the server accepts: --api-key-env."
NAME = "Check --base-url (it usually ends in /v1) and the name of the model."
LONGEST_MESSAGE = 200  # Characters of what a server says that a message quotes


def meaning_of(
    status: int, headers: Mapping[str, str], body: str, *, where: str, is_answered: bool
) -> Any:
    """What a reply without a key means: a value, ``RefusedError`` or ``Trouble``; others raise.

    ``is_answered``: whether the server has answered a request, so that a refusal is of this one.
    """
    if 200 <= status < 300:
        return _value_of(status, body, where)
    found, todo = message_of(body) or "no message", NAME
    if status == 402 or (status >= 400 and OF_CREDIT.search(body)):
        todo = CREDIT
    elif status == 401:
        todo = KEY
    elif OF_FIELDS.search(found):
        return RefusedError(status, found)
    elif status in TRANSIENT or (status >= 500 and status not in FOR_ITS_CONTENT):
        after = headers.get("retry-after", "")
        return Trouble(status, found, float(after) if after.isdecimal() else None)
    elif 300 <= status < 400:
        found = "a redirect"
        todo = "Give the address that answers as --base-url: the key goes to one server only."
    elif status == 403 or OF_KEY.search(found):
        todo = KEY
    elif status in FOR_ITS_CONTENT and not OF_MODEL.search(found):
        return RefusedError(status, found)
    if is_answered and todo in (KEY, NAME) and status != 401:
        return RefusedError(status, found)
    raise ConsilienceError(f"status {status}: {found}", where=where, todo=todo)


def _value_of(status: int, body: str, where: str) -> Any:
    try:
        value = parse_json(body)
    except json.JSONDecodeError as reason:
        is_page = body.lstrip()[:1] == "<"
        found = "an HTML page" if is_page else f"no JSON: {reason}"
        found += f": {truncated(' '.join(body.split()), LONGEST_MESSAGE) or 'an empty reply'}"
        if is_page:
            expected = "JSON from an API, whose address usually ends in /v1"
            raise ConsilienceError(found, expected=expected, where=where) from reason
        return Trouble(status, found)  # it may have been truncated
    fields = value if isinstance(value, dict) else {}
    choices = fields.get("choices")
    every = choices if isinstance(choices, list) else []
    ends = [one.get("finish_reason") for one in every if isinstance(one, dict)]
    if "error" in ends or (fields.get("error") and not choices):
        return Trouble(status, message_of(body))  # as gateways send it
    if "content_filter" in ends:
        return RefusedError(status, "'finish_reason' is 'content_filter'", reply=value)
    if not choices and "choices" in fields:
        return Trouble(status, f"'choices' is {choices}", is_unread=True)
    return value


def message_of(body: str) -> str:
    """What a server says in the body of an error: its message, or the beginning of the text."""
    try:
        value = parse_json(body)
    except json.JSONDecodeError:
        value = body
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return truncated(" ".join(text.split()).rstrip("."), LONGEST_MESSAGE)


AT_ONCE, TIMEOUT = 8, 300  # Requests in flight where no number is given; seconds of a try
WAITING = 2  # Requests, for each that may be in flight, that are sent or wait to be sent again
WAITS = (1, 2, 4, 8, 16, 32)  # Seconds before a request is sent again
FEW = 3  # Waits after a reply that was not understood, and in a proof after status 500
CONNECT, LONGEST_WAIT = 15, 600  # Seconds to connect, and the most that a server may ask to wait
LAST_REPLIES = 30  # Seconds in which replies are awaited when nothing more is sent
RESUME = "Run the same command again; a run resumes."


class Client:
    """Sends requests to one server, from several threads.

    What is sent goes to this server only, and nothing that is returned, raised or kept has the key.
    ``journal`` keeps replies that were understood, and gives those of an interrupted run.
    """

    journal: Journal | None = None
    _http: httpx2.Client | None = None

    def __init__(self, connection: Connection, wait: Wait = threading.Event.wait) -> None:
        self.connection, self.usage = connection, Usage()
        self.at_once = connection.concurrency or AT_ONCE
        self._slots = threading.Semaphore(self.at_once)
        self.models: set[str] = set()  # The names of the model in replies
        self._base, self._key, self._wait = base_url_of(connection), key_of(connection), wait
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._answered = 0

    def each(self, function: Read, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The position of each item and what a function that posts makes of it, as they arrive.

        If the caller stops, no item is begun; replies to requests in flight are awaited and kept.
        """
        source, running = enumerate(items), dict[futures.Future[Any], int]()
        pool = futures.ThreadPoolExecutor(WAITING * self.at_once)
        try:
            while True:
                for at, item in islice(source, WAITING * self.at_once - len(running)):
                    running[pool.submit(function, item)] = at
                if not running:
                    break
                ended = futures.wait(running, None, futures.FIRST_COMPLETED).done
                for done in sorted(ended, key=lambda one: one.exception() is not None):
                    yield running.pop(done), done.result()
        finally:
            self._stop.set()
            pool.shutdown(wait=False)  # none waits: each has a thread
            if not futures.wait(running, LAST_REPLIES).not_done:  # else these send nothing again
                self._stop.clear()

    def get(self, path: str) -> Any:
        """The reply of a route that costs nothing and that a server may not have; else None."""
        try:
            reply = self._send(path, None)
        except ConsilienceError:
            return None  # what is wrong with all routes is said where one is needed
        return None if isinstance(reply, RefusedError | Trouble) else reply

    def post(
        self, path: str, body: Any, read: Read | None = None, *, is_known: bool = False
    ) -> Any:
        """What is read of the reply, sent again while that may help; ``RefusedError`` is raised.

        ``read`` raises ``UnreadError`` for a reply that it does not understand. ``is_known``: of
        a request that tests the server; then this error is raised, and what fails is refused.
        """
        key = self.journal.key(path, body) if self.journal is not None else ""
        for reply in self.journal.kept(key) if self.journal is not None else ():
            with suppress(UnreadError):
                return read(reply) if read else reply
        before = self._answered
        for tries, wait in enumerate((*WAITS, None), 1):
            with self._slots:
                outcome = self._try(path, body)
            if not isinstance(outcome, Trouble):
                try:
                    value = read(outcome) if read else outcome
                except UnreadError as error:
                    if is_known:
                        raise
                    outcome = Trouble(200, str(error), is_unread=True)
                else:
                    if self.journal is not None:
                        self.journal.keep(key, outcome)
                    self._count(answered=1)
                    return value
            is_told = is_known and outcome.status == 500
            if wait is None or (tries > FEW and (outcome.is_unread or is_told)):
                break
            if (outcome.wait or 0) > LONGEST_WAIT:
                found = f"{outcome.message}; the server asks to wait {duration(outcome.wait or 0)}"
                raise ConsilienceError(found, where=self.url(path), todo=f"Wait. {RESUME}")
            if self._wait(self._stop, wait if outcome.wait is None else outcome.wait):
                break
            self._count(retries=1)
        self._count(refused=int(not self._stop.is_set()))
        tried = f"{outcome.message} ({counted(tries, 'try', 'tries')})"
        if outcome.is_unread or is_told or (self._answered > before and not outcome.is_unreached):
            what = UNREAD if outcome.is_unread else NO_REPLY
            raise RefusedError(outcome.status, tried, what)
        start = "Start the server. " if outcome.is_unreached else ""
        raise ConsilienceError(tried, where=self.url(path), todo=f"{start}{RESUME}")

    def url(self, path: str) -> str:
        """The URL of a route: one with a slash at its start is beside ``/v1``, others below it."""
        return (self._base.removesuffix("/v1") if path[0] == "/" else f"{self._base}/") + path

    def _count(self, *, answered: int = 0, refused: int = 0, retries: int = 0) -> None:
        with self._lock:
            self._answered += answered
            self.usage.refused += refused
            self.usage.retries += retries

    def _try(self, path: str, body: Any) -> Any:
        most = self.connection.max_requests
        if self._stop.is_set():  # while this request waited
            raise RefusedError(0, "not sent", NO_REPLY)
        with self._lock:
            sent = self.usage.requests
            if most is not None and sent >= most:
                found = f"--max-requests {most:,} is reached: {counted(sent, 'request')} sent"
                todo = "Run the same command again; it resumes with the same limit for what is"
                raise ConsilienceError(found, todo=f"{todo} left. Or give a larger --max-requests.")
            self.usage.requests += 1
        outcome = self._send(path, body)
        reply = outcome.reply if isinstance(outcome, RefusedError) else outcome
        with self._lock:
            self.usage.add_tokens(reply)
            model = reply.get("model") if isinstance(reply, dict) else None
            if model and isinstance(model, str):  # of a file without folders
                is_path = model.lower().endswith(".gguf") or model[0] in "/.~" or "\\" in model
                name = re.split(r"[/\\]", model.rstrip("/\\"))[-1] if is_path else model
                self.models.add(truncated(name, LONGEST_MESSAGE))
        if isinstance(outcome, RefusedError):
            self._count(refused=1, answered=reply is not None)
            raise outcome
        return outcome

    def _send(self, path: str, body: Any) -> Any:
        """Send a request, once; what the whole reply means, without the key."""
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        url = self.url(path)
        with self._lock:
            http = self._http = self._http or self._new_http()
        try:
            response = http.request("GET" if body is None else "POST", url, content=content)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            found = f"cannot connect: {self._shown(error)}"
            if self._answered:
                return Trouble(0, found, is_unreached=True)
            expected, todo = f"a server at {self._base}", "Check --base-url, and that it runs."
            raise ConsilienceError(found, expected=expected, where=url, todo=todo) from None
        except httpx2.RequestError as error:
            return Trouble(0, f"the connection broke: {self._shown(error)}")
        text = self._key.removed_from(response.content.decode(errors="replace"))
        status, headers, is_answered = response.status_code, response.headers, self._answered > 0
        return meaning_of(status, headers, text, where=url, is_answered=is_answered)

    def _shown(self, error: Exception) -> str:
        return self._key.removed_from(str(error)) or type(error).__name__

    def _new_http(self) -> httpx2.Client:
        headers = {"user-agent": "consilience", "accept": "application/json"}
        headers |= {"content-type": "application/json", **self._key.headers}
        timeout = httpx2.Timeout(TIMEOUT, connect=CONNECT)
        try:  # the proxies of the environment are not for this machine
            return httpx2.Client(
                headers=headers, timeout=timeout, limits=httpx2.Limits(),
                trust_env=not is_here(self._base),
            )  # fmt: skip
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            found = f"the proxy or the certificates of the environment cannot be used: {error}"
            todo = "Check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, or add the host to NO_PROXY."
            raise ConsilienceError(found, todo=todo) from error
