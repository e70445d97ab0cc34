"""Models behind a URL: what a run sends, counted, and its replies kept; nothing imports torch."""

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

from consilience.core.errors import ConsilienceError
from consilience.core.text import counted
from consilience.files.read import parse_json

NO_REPLY = "no reply from the server"  # Why a query is asked again by the same command


@dataclass(slots=True)
class Usage:
    """What was sent to a server and what it counted, for all requests of a client.

    ``requests``: with the ``retries``. ``refused``: those without an answer.
    """

    requests: int = 0
    retries: int = 0
    refused: int = 0
    tokens_read: int = 0
    tokens_written: int = 0

    def add_tokens(self, reply: Any) -> None:
        """Add the tokens that a server counted for a reply; nothing where it says nothing."""
        whole = reply if isinstance(reply, dict) else {}
        counts = whole["usage"] if isinstance(whole.get("usage"), dict) else whole
        names = (("prompt_tokens", "tokens_evaluated"), ("total_tokens",),
                 ("completion_tokens", "tokens_predicted"))  # fmt: skip
        values = [[counts.get(one) for one in same] for same in names]
        read, total, written = (next((n for n in one if type(n) is int), 0) for one in values)
        if read:
            self.tokens_read += read
            self.tokens_written += max(written, total - read)  # some count thoughts only there


def cost_record(usage: Usage, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a run cost so far: the usage of this command, and the record of those before it."""
    return {name: value + before.get(name, 0) for name, value in asdict(usage).items()}


def cost_in_words(record: Mapping[str, float]) -> str:
    """The record of a cost in words."""
    counts = Counter({name: int(value) for name, value in record.items()})
    text = counted(counts["requests"], "request")
    if counts["retries"]:
        text += f" ({counts['retries']:,} sent again; tokens of failed tries are not counted)"
    text += f", {counts['tokens_read']:,} tokens read and {counts['tokens_written']:,} written"
    if counts["refused"]:
        text += f", {counted(counts['refused'], 'request')} failed"
    return text


REPLIES = "replies.sqlite"  # The file in the folder of a run; it is there until the run is complete
BEGIN = """
PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL);
BEGIN IMMEDIATE; COMMIT;
"""
"""A transaction is whole or absent when the process is killed. The last line takes the lock."""


class Journal:
    """Replies by their requests, in a table of SQLite.

    A reply belongs to the n-th request of the same route and body in a section, such as a group.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which nobody else may have open."""
        self.path = path
        self._section, self._times, self._lock = "", Counter[str](), threading.Lock()
        self._table = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._table.executescript(BEGIN)
        except sqlite3.Error as error:
            self._table.close()
            raise self._error(error) from error

    def begin(self, section: str) -> None:
        self._section = section
        self._times.clear()

    def key(self, path: str, body: Any) -> str:
        content = json.dumps([self._section, path, body])  # the order of options is in its keys
        digest = hashlib.sha256(content.encode()).hexdigest()
        with self._lock:
            self._times[digest] += 1
            return f"{digest}.{self._times[digest]}"

    def kept(self, key: str) -> list[Any]:
        """The reply to a request, if it is kept."""
        rows = self._rows("SELECT reply FROM replies WHERE key = ?", key)
        return [parse_json(reply) for (reply,) in rows]

    def keep(self, key: str, reply: Any) -> None:
        self._rows("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, json.dumps(reply))

    def close(self, *, is_whole: bool = False) -> None:
        """Close the file; that of a whole run, and one without replies, is removed."""
        is_needed = not is_whole and self._rows("SELECT key FROM replies LIMIT 1")
        self._table.close()
        if not is_needed:
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
