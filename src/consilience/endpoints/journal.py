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

from consilience.core.errors import ConsilienceError
from consilience.endpoints.usage import Usage
from consilience.files.read import parse_json
from consilience.files.write import cannot_write, lock_file

REPLIES = "replies.jsonl"
"""The file in the folder of a run; it is there until the run is complete."""

_OPENED: WeakValueDictionary[tuple[Path, int], Journal] = WeakValueDictionary()
"""The journals that are open, by their file and the thread that opened them."""


class Journal:
    """Replies by their requests. Each is a line of a file, which is only appended to.

    Each try of a request is a line before it is sent. So what a command paid for is known even if
    it is killed: ``unrecorded`` is the usage that no cost in the record of the run has yet.

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
        self.unrecorded = Usage()
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

    def reply(self, key: str) -> Any:
        """The reply that was kept under a key."""
        start, size = self._places[key]
        self._lines.seek(start)
        return parse_json(self._lines.read(size), last_wins=True)["reply"]

    def keep(self, key: str, reply: Any, tries: int = 1) -> None:
        """Append a reply; ``tries``: how often its request was sent."""
        start = self._end
        self._append({"key": key, "tries": tries, "reply": reply})
        self._places[key] = (start, self._end - start)

    def note_sent(self) -> None:
        """Append that a request is about to be sent."""
        self._append({"sent": 1})

    def note_recorded(self) -> None:
        """Append that the record of the run has the cost of all that was sent so far."""
        self._append({"recorded": True})

    def _append(self, record: dict[str, Any]) -> None:
        """Append a whole line, or nothing that is read again."""
        line = json.dumps(record).encode() + b"\n"
        try:
            written = 0
            while written < len(line):  # a full disk takes a part, and then raises
                written += self._appended.write(line[written:])
        except OSError as error:
            with suppress(OSError):
                self._appended.truncate(self._end)
            raise cannot_write(self.path, error) from error
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
        """Find the complete lines, and what was paid for; where the last of them ends."""
        end = 0
        for line in self._lines:
            if not line.endswith(b"\n"):
                break
            record = _record_of(line)
            key = record.get("key")
            if "sent" in record:
                self.unrecorded.requests += 1
            elif "recorded" in record:
                self.unrecorded = Usage()
            elif "reply" in record and isinstance(key, str):
                self._places[key] = (end, len(line))
                tries = record.get("tries")
                self.unrecorded.retries += tries - 1 if isinstance(tries, int) else 0
                self.unrecorded.add_tokens(record["reply"])
            end += len(line)
        return end


def _record_of(line: bytes) -> dict[str, Any]:
    """The object of a line; empty for one that is damaged."""
    try:
        record = parse_json(line, last_wins=True)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return record if isinstance(record, dict) else {}
