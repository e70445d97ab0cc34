"""What a run sends to a server and what it costs: counted, limited, planned, and kept."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from consilience.core.errors import Connection, ConsilienceError
from consilience.core.text import counted
from consilience.files.read import parse_json
from consilience.files.write import cannot_write

FREE = ("/tokenize", "/detokenize", "/apply-template", "/props", "/health", "models")
"""Routes that compute nothing: they are not counted, limited or kept."""

NO_REPLY = "no reply from the server"  # Why a query is asked again by the same command

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
TOKENS_READ = ("prompt_tokens", "input_tokens", "tokens_evaluated")
TOKENS_WRITTEN = ("completion_tokens", "output_tokens", "tokens_predicted")
TOKENS_CACHED = ("cached_tokens", "cache_n")  # Numbers of tokens in a reply

DETAILS = ("prompt_tokens_details", "input_tokens_details", "timings")  # With cached tokens
MILLION = 1_000_000

BYTES_A_TOKEN = 2  # Where nothing says how many there are; most texts have fewer tokens

ROUNDING = 1e-9  # What is not rounded up


@dataclass(slots=True)
class Usage:
    """What was sent to a server and what it counted, for all requests of a client.

    ``requests``: with the ``retries``, without routes that cost nothing. ``refused``: those without
    an answer. ``tokens_read``: with cached ones. ``uncounted``: replies without numbers of tokens.
    ``repeated_ids``: replies with the id of an earlier one. ``seconds``: with a request in flight.
    """

    requests: int = 0
    retries: int = 0
    refused: int = 0
    tokens_read: int = 0
    tokens_cached: int = 0
    tokens_written: int = 0
    uncounted: int = 0
    repeated_ids: int = 0
    seconds: float = 0.0

    def add_tokens(self, reply: Any) -> None:
        if (counts := tokens_of(reply)) is None:
            self.uncounted += 1
            return
        self.tokens_read += counts[0]
        self.tokens_cached += counts[1]
        self.tokens_written += counts[2]

    def cost(self, price: tuple[float, float]) -> float:
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
    repeated = counted(counts["repeated_ids"], "reply", "replies")
    parts = {
        "requests": counted(counts["requests"], "request"),
        "retries": f" ({counts['retries']:,} sent again; tokens of failed tries are not counted)",
        "tokens_read": f", {counts['tokens_read']:,} tokens read",
        "tokens_cached": f" ({counts['tokens_cached']:,} cached)",
        "tokens_written": f" and {counts['tokens_written']:,} written",
        "uncounted": f", not counted in {counted(counts['uncounted'], 'reply', 'replies')}",
        "refused": f", {counted(counts['refused'], 'request')} without an answer",
        "repeated_ids": f", {repeated} with the id of an earlier one (a cache may have sent them)",
    }
    always = ("requests", "tokens_read", "tokens_written")
    text = "".join(part for name, part in parts.items() if counts[name] or name in always)
    if {"cost", "price_read", "price_written"} <= record.keys():
        read, written = record["price_read"], record["price_written"]
        text += f"; cost {record['cost']:.4g} at {read:g} and {written:g} for a million tokens"
    return text


def tokens_of(reply: Any) -> tuple[int, int, int] | None:
    """Tokens that a server read, had cached and wrote for one reply or several; None if unsaid."""
    if isinstance(reply, list):
        parts = [counts for counts in map(tokens_of, reply) if counts is not None]
        if not parts or len(parts) < len(reply):
            return None
        read, cached, written = (sum(column) for column in zip(*parts, strict=True))
        return read, cached, written
    if not isinstance(reply, dict):
        return None
    counts = reply["usage"] if isinstance(reply.get("usage"), dict) else reply
    several = (counts[name] for name in DETAILS if isinstance(counts.get(name), dict))

    def first(of: dict[str, Any], names: tuple[str, ...]) -> int | None:
        values = (of.get(name) for name in names)
        return next((value for value in values if type(value) is int and value >= 0), None)

    if (tokens_read := first(counts, TOKENS_READ)) is None:
        return None
    cached = min(first(next(several, {}), TOKENS_CACHED) or 0, tokens_read)
    total = first(counts, ("total_tokens",)) or 0  # some count what a model thought only there
    return tokens_read, cached, max(first(counts, TOKENS_WRITTEN) or 0, total - tokens_read)


class Allowance:
    """What may still be sent.

    The tokens of a request are known after its reply. Until then they are estimated from its bytes,
    by the most tokens a byte so far (at first one), and the tokens that it may write; so they are
    of a server that counts none. ``spent``: tokens of replies; ``reserved``: estimated ones.
    """

    def __init__(self, connection: Connection, usage: Usage) -> None:
        self.usage, self._connection = usage, connection
        self.spent = self.reserved = 0
        self._tokens_per_byte: float | None = None

    def estimate(self, content: bytes, body: Any) -> int:
        ratio = 1.0 if self._tokens_per_byte is None else self._tokens_per_byte
        return int(len(content) * ratio) + 1 + most_written(body)

    def admits(self, tokens: int) -> bool:
        """Whether a request may be sent now, and not after others; what never may raises."""
        most_requests, most_tokens = self._connection.max_requests, self._connection.max_tokens
        if most_requests is not None and self.usage.requests >= most_requests:
            raise self._over("--max-requests", most_requests)
        if most_tokens is None or self.spent + self.reserved + tokens <= most_tokens:
            return True
        if not self.reserved:
            next_one = f", and the next request may use {tokens:,}"
            raise self._over("--max-tokens", most_tokens, next_one)
        return False

    def settle(self, tokens: int, content: bytes, reply: Any) -> None:
        """Count a reply to a request for which ``tokens`` were estimated."""
        self.usage.add_tokens(reply)
        if (counts := tokens_of(reply)) is None:
            self.spent += tokens
            return
        self.spent += counts[0] + counts[2]
        ratio = counts[0] / max(1, len(content))
        self._tokens_per_byte = max(self._tokens_per_byte or 0.0, ratio)

    def _over(self, option: str, limit: int, more: str = "") -> ConsilienceError:
        sent = f"{counted(self.usage.requests, 'request')} sent, {self.spent:,} tokens used{more}"
        todo = "Run the same command again; a run resumes with the same limit for what is left."
        todo += f" Or give a larger {option}."
        return ConsilienceError(f"{option} {limit:,} is reached: {sent}", todo=todo)


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
    """Requests that were not sent, and the tokens that they would use.

    ``tokens_read``: counted where a prompt is token ids, else estimated from the bytes of its text
    (``is_estimated``). ``tokens_written``: as many as the server may write. ``more``: those of
    requests that are sent or not, depending on replies; None if there are none.
    """

    requests: int = 0
    tokens_read: float = 0.0
    tokens_written: int = 0
    is_estimated: bool = False
    more: PlannedUsage | None = None

    def add(self, body: Any) -> None:
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
        more = self.more + other.more if self.more and other.more else self.more or other.more
        return PlannedUsage(
            self.requests + other.requests, self.tokens_read + other.tokens_read,
            self.tokens_written + other.tokens_written, self.is_estimated or other.is_estimated,
            more,
        )  # fmt: skip

    def times(self, factor: float) -> PlannedUsage:
        more = self.more.times(factor) if self.more else None
        return PlannedUsage(
            math.ceil(self.requests * factor - ROUNDING), self.tokens_read * factor,
            math.ceil(self.tokens_written * factor - ROUNDING), self.is_estimated, more,
        )  # fmt: skip

    @property
    def most(self) -> PlannedUsage:
        """With all requests that depend on replies."""
        return replace(self, more=None) + (self.more.most if self.more else PlannedUsage())

    def depending(self) -> PlannedUsage:
        """That of requests that depend on replies, to which more are added."""
        self.more = self.more or PlannedUsage()
        return self.more

    def cost(self, price: tuple[float, float]) -> float:
        return (round(self.tokens_read) * price[0] + self.tokens_written * price[1]) / MILLION


REPLIES = "replies.sqlite"  # The file in the folder of a run; it is there until the run is complete
BEGIN = """
PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, sent INTEGER NOT NULL, retries INTEGER NOT NULL DEFAULT 0,
    unrecorded INTEGER NOT NULL DEFAULT 1, reply TEXT
);
BEGIN IMMEDIATE; COMMIT;
"""
"""One row a request: how often it was sent and sent again since its cost was recorded, and its
reply. A transaction is whole or absent when the process is killed. The last line takes the lock."""

_OPENED: WeakValueDictionary[tuple[Path, int], Journal] = WeakValueDictionary()
"""The journals that are open, by their file and the thread that opened them."""


class Journal:
    """Replies by their requests, in a table of SQLite.

    A request is noted before it is sent, so what a killed command paid for is known:
    ``unrecorded`` is the usage that no record has yet. A reply belongs to the n-th request of the
    same route and body in a section, such as a group.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which no other process may have open; one of this thread is closed."""
        thread = path.absolute(), threading.get_ident()
        if (earlier := _OPENED.get(thread)) is not None:
            earlier.close()
        self.path, self.unrecorded = path, Usage()
        self._section, self._times, self._lock = "", Counter[str](), threading.Lock()
        table = None
        try:
            table = self._table = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            self._table.executescript(BEGIN)
            (fault,) = self._table.execute("PRAGMA quick_check(1)").fetchone()
            if fault != "ok":
                raise sqlite3.DatabaseError(fault)
            for sent, retries, reply in self._rows(
                "SELECT sent, retries, reply FROM replies WHERE unrecorded"
            ):
                self.unrecorded.requests += sent
                self.unrecorded.retries += retries
                if reply is not None:
                    self.unrecorded.add_tokens(self._value(reply))
        except sqlite3.Error as error:
            if table is not None:
                table.close()
            raise self._error(error) from error
        finalize(self, self._table.close)  # a connection refers to itself
        _OPENED[thread] = self

    def begin(self, section: str) -> None:
        self._section = section
        self._times.clear()

    def key(self, path: str, body: Any) -> str:
        content = json.dumps([self._section, path, body])  # the order of options is in its keys
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._times[digest] += 1
        return f"{digest}.{self._times[digest]}"

    def kept(self, key: str) -> list[Any]:
        """The reply to a request, if it is kept."""
        rows = self._rows("SELECT reply FROM replies WHERE key = ? AND reply NOTNULL", key)
        return [self._value(reply) for (reply,) in rows]

    def note_sent(self, key: str, times: int = 1) -> None:
        """``times``: -1 for a request that did not reach the server after all."""
        self._rows(
            "INSERT INTO replies (key, sent) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET sent = sent + excluded.sent, unrecorded = 1",
            key, times,
        )  # fmt: skip

    def keep(self, key: str, reply: Any, tries: int = 1) -> None:
        self._rows(
            "INSERT INTO replies (key, sent, retries, reply) VALUES (?, 0, ?, ?) ON CONFLICT (key) "
            "DO UPDATE SET retries = excluded.retries, reply = excluded.reply, unrecorded = 1",
            key, tries - 1, json.dumps(reply),
        )  # fmt: skip

    def note_recorded(self) -> None:
        self._rows("UPDATE replies SET sent = 0, retries = 0, unrecorded = 0 WHERE unrecorded")

    def close(self) -> None:
        self._table.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        try:
            with self._lock:
                return self._table.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _value(self, reply: str) -> Any:
        with suppress(ValueError, TypeError):
            return parse_json(reply)
        raise self._error(sqlite3.DatabaseError("a reply that is no JSON"))

    def _error(self, error: sqlite3.Error) -> ConsilienceError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            found = "another process asks a model in this folder"
            todo = "Wait until it has ended, or choose another folder."
            return ConsilienceError(found, where=str(self.path.parent), todo=todo)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            found = f"the replies of an interrupted run are damaged: {error}"
            todo = "Remove the file. Groups that are complete stay; the others are asked again."
            return ConsilienceError(found, where=str(self.path), todo=todo)
        number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
        return cannot_write(self.path, OSError(number, str(error)))
