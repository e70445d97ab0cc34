"""Keeps the replies of an interrupted run, so that no reply is paid for twice."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from consilience.errors import ConsilienceError
from consilience.files import cannot_write, lock_file
from consilience.read import parse_json

REPLIES = "replies.jsonl"
"""The file in the folder of a run; it is there until the run is complete."""

_OPENED: WeakValueDictionary[tuple[Path, int], Journal] = WeakValueDictionary()
"""The journals that are open, by their file and the thread that opened them."""


class Journal:
    """Replies by their requests. Each is a line of a file, which is only appended to.

    A reply belongs to the n-th request of the same route and body in a section, such as a group. So
    a request that is repeated within a run is sent again, and one that an interrupted run had sent
    is not. Nothing of the file but the places of its lines is in memory.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, without the end of a line that a killed process did not complete.

        A file that another process has open raises: both would pay for the same replies. One that
        this thread had open is closed: the traceback of an interrupted call can keep it open, as
        in a notebook.
        """
        self.path = path
        thread = path.absolute(), threading.get_ident()
        if (earlier := _OPENED.get(thread)) is not None:
            earlier.close()
        self._section = ""
        self._times: Counter[str] = Counter()
        self._places: dict[str, tuple[int, int]] = {}
        try:
            self._appended = path.open("ab", buffering=0)
            if not lock_file(self._appended):
                raise ConsilienceError(
                    "another process asks a model in this folder",
                    where=str(path.parent),
                    todo="Wait until it has ended, or choose another folder.",
                )
            self._lines = path.open("rb")
            self._end = self._read()
            self._appended.truncate(self._end)
        except OSError as error:
            raise cannot_write(path, error) from error
        _OPENED[thread] = self

    def begin(self, section: str) -> None:
        """Begin a section; requests are counted anew."""
        self._section = section
        self._times.clear()

    def key(self, path: str, body: Any) -> str:
        """The key of the next request of this route and body."""
        content = json.dumps([self._section, path, body])  # the order of options is in its keys
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._times[digest] += 1
        return f"{digest}.{self._times[digest]}"

    def __len__(self) -> int:
        """The number of replies."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def entry(self, key: str) -> tuple[Any, int]:
        """The reply that was kept under a key, and how often its request was sent."""
        start, size = self._places[key]
        self._lines.seek(start)
        record = parse_json(self._lines.read(size), last_wins=True)
        tries = record.get("tries")
        return record["reply"], tries if isinstance(tries, int) else 1

    def keep(self, key: str, reply: Any, tries: int = 1) -> None:
        """Append a reply: the whole line, or nothing that is read again.

        ``tries``: how often its request was sent.
        """
        line = json.dumps({"key": key, "tries": tries, "reply": reply}).encode() + b"\n"
        try:
            written = 0
            while written < len(line):  # a full disk takes a part, and then raises
                written += self._appended.write(line[written:])
        except OSError as error:
            with suppress(OSError):
                self._appended.truncate(self._end)
            raise cannot_write(self.path, error) from error
        self._places[key] = (self._end, len(line))
        self._end += len(line)

    def close(self) -> None:
        """Close the file; the replies are kept."""
        self._appended.close()
        self._lines.close()

    def remove(self) -> None:
        """Remove the file, as the run is complete."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _read(self) -> int:
        """Find the complete lines; where the last of them ends."""
        end = 0
        for line in self._lines:
            if not line.endswith(b"\n"):
                break
            if (key := _key_of(line)) is not None:
                self._places[key] = (end, len(line))
            end += len(line)
        return end


def _key_of(line: bytes) -> str | None:
    """The key of a line; None for one that is damaged."""
    try:
        record = parse_json(line, last_wins=True)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    key = record.get("key") if isinstance(record, dict) and "reply" in record else None
    return key if isinstance(key, str) else None
