"""What a run sends to a server: counted, and kept."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from consilience.core.errors import ConsilienceError
from consilience.core.text import counted
from consilience.files.read import parse_json

FREE = ("/tokenize", "/props")
"""Routes that compute nothing: they are not counted, limited or kept."""

NO_REPLY = "no reply from the server"  # Why a query is asked again by the same command

TOKENS_READ = ("prompt_tokens", "input_tokens", "tokens_evaluated")
TOKENS_WRITTEN = ("completion_tokens", "output_tokens", "tokens_predicted")


@dataclass(slots=True)
class Usage:
    """What was sent to a server and what it counted, for all requests of a client.

    ``requests``: with the ``retries``, without routes that cost nothing. ``refused``: those without
    an answer.
    """

    requests: int = 0
    retries: int = 0
    refused: int = 0
    tokens_read: int = 0
    tokens_written: int = 0

    def add_tokens(self, reply: Any) -> None:
        tokens_read, tokens_written = tokens_of(reply) or (0, 0)
        self.tokens_read += tokens_read
        self.tokens_written += tokens_written


def cost_record(usage: Usage, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a run cost so far: the usage of this command, and the record of those before it."""
    return {name: value + before.get(name, 0) for name, value in asdict(usage).items()}


def cost_in_words(record: Mapping[str, float]) -> str:
    """The record of a cost in words."""
    counts: Counter[str] = Counter({name: int(value) for name, value in record.items()})
    parts = {
        "requests": counted(counts["requests"], "request"),
        "retries": f" ({counts['retries']:,} sent again; tokens of failed tries are not counted)",
        "tokens_read": f", {counts['tokens_read']:,} tokens read",
        "tokens_written": f" and {counts['tokens_written']:,} written",
        "refused": f", {counted(counts['refused'], 'request')} without an answer",
    }
    always = ("requests", "tokens_read", "tokens_written")
    return "".join(part for name, part in parts.items() if counts[name] or name in always)


def tokens_of(reply: Any) -> tuple[int, int] | None:
    """Tokens that a server read and wrote for one reply or several; None if unsaid."""
    if isinstance(reply, list):
        parts = [counts for counts in map(tokens_of, reply) if counts is not None]
        if not parts or len(parts) < len(reply):
            return None
        read, written = (sum(column) for column in zip(*parts, strict=True))
        return read, written
    if not isinstance(reply, dict):
        return None
    counts = reply["usage"] if isinstance(reply.get("usage"), dict) else reply

    def first(of: dict[str, Any], names: tuple[str, ...]) -> int | None:
        values = (of.get(name) for name in names)
        return next((value for value in values if type(value) is int and value >= 0), None)

    if (tokens_read := first(counts, TOKENS_READ)) is None:
        return None
    total = first(counts, ("total_tokens",)) or 0  # some count what a model thought only there
    return tokens_read, max(first(counts, TOKENS_WRITTEN) or 0, total - tokens_read)


REPLIES = "replies.sqlite"  # The file in the folder of a run; it is there until the run is complete
BEGIN = """
PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL);
BEGIN IMMEDIATE; COMMIT;
"""
"""A transaction is whole or absent when the process is killed. The last line takes the lock."""

_OPENED: WeakValueDictionary[tuple[Path, int], Journal] = WeakValueDictionary()
"""The journals that are open, by their file and the thread that opened them."""


class Journal:
    """Replies by their requests, in a table of SQLite.

    A reply belongs to the n-th request of the same route and body in a section, such as a group.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which no other process may have open; one of this thread is closed."""
        thread = path.absolute(), threading.get_ident()
        if (earlier := _OPENED.get(thread)) is not None:
            earlier.close()
        self.path = path
        self._section, self._times, self._lock = "", Counter[str](), threading.Lock()
        table = None
        try:
            table = self._table = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            self._table.executescript(BEGIN)
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
        rows = self._rows("SELECT reply FROM replies WHERE key = ?", key)
        return [parse_json(reply) for (reply,) in rows]

    def keep(self, key: str, reply: Any) -> None:
        self._rows("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, json.dumps(reply))

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

    def _error(self, error: sqlite3.Error) -> ConsilienceError:
        if "locked" in str(error):
            found = "another process asks a model in this folder"
            todo = "Wait until it has ended, or choose another folder."
            return ConsilienceError(found, where=str(self.path.parent), todo=todo)
        found = f"the replies of an interrupted run cannot be used: {error}"
        todo = "Remove the file. Groups that are complete stay; the others are asked again."
        return ConsilienceError(found, where=str(self.path), todo=todo)
