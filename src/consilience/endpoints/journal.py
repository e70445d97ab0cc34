"""Keeps the replies of an interrupted run, so that no reply is paid for twice."""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from consilience.core.errors import ConsilienceError
from consilience.endpoints.usage import Usage
from consilience.files.read import parse_json
from consilience.files.write import cannot_write

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

    A request is noted before it is sent. So what a command paid for is known even if it is killed:
    ``unrecorded`` is the usage that no cost in the record of the run has yet. A reply belongs to
    the n-th request of the same route and body in a section, such as a group.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which no other process may have open: both would pay for the same replies.

        One that this thread had open, as an interrupted call in a notebook, is closed.
        """
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
        """The key of the next request of this route and body."""
        content = json.dumps([self._section, path, body])  # the order of options is in its keys
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._times[digest] += 1
        return f"{digest}.{self._times[digest]}"

    def __contains__(self, key: str) -> bool:
        return bool(self._rows("SELECT 1 FROM replies WHERE key = ? AND reply NOTNULL", key))

    def reply(self, key: str) -> Any:
        [(reply,)] = self._rows("SELECT reply FROM replies WHERE key = ?", key)
        return self._value(reply)

    def note_sent(self, key: str) -> None:
        self._rows(
            "INSERT INTO replies (key, sent) VALUES (?, 1) "
            "ON CONFLICT (key) DO UPDATE SET sent = sent + 1, unrecorded = 1",
            key,
        )

    def keep(self, key: str, reply: Any, tries: int = 1) -> None:
        """Keep a reply; ``tries``: how often its request was sent."""
        self._rows(
            "INSERT INTO replies (key, sent, retries, reply) VALUES (?, 0, ?, ?) ON CONFLICT (key) "
            "DO UPDATE SET retries = excluded.retries, reply = excluded.reply, unrecorded = 1",
            key, tries - 1, json.dumps(reply),
        )  # fmt: skip

    def note_recorded(self) -> None:
        """Note that the record of the run has the cost of all that was sent so far."""
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
            return parse_json(reply, last_wins=True)
        raise self._error(sqlite3.DatabaseError("a reply that is no JSON"))

    def _error(self, error: sqlite3.Error) -> ConsilienceError:
        """The message of a table that is locked, cannot be written or is damaged."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return ConsilienceError(
                "another process asks a model in this folder",
                where=str(self.path.parent),
                todo="Wait until it has ended, or choose another folder.",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return ConsilienceError(
                f"the replies of an interrupted run are damaged: {error}",
                where=str(self.path),
                todo="Remove the file. Groups that are complete stay; the others are asked again.",
            )
        number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
        return cannot_write(self.path, OSError(number, str(error)))
