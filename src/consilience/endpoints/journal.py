"""Keeps the replies of an interrupted run, so that no reply is paid for twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from consilience.files import cannot_write
from consilience.read import parse_json

NAME = "replies.jsonl"
"""The file in the folder of a run; it is there until the run is complete."""


class Journal:
    """Replies by their requests. Each is a line of a file, which is only appended to.

    A reply belongs to the n-th request of the same route and body in a section, such as a group. So
    a request that is repeated within a run is sent again, and one that an interrupted run had sent
    is not. Nothing of the file but the places of its lines is in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._section = ""
        self._times: Counter[str] = Counter()
        self._places: dict[str, tuple[int, int]] = {}
        try:
            self._file = path.open("a+b", buffering=0)
            self._end = self._read()
            self._file.truncate(self._end)  # a line that a killed process did not complete
        except OSError as error:
            raise cannot_write(path, error) from error

    def begin(self, section: str) -> None:
        """Begin a section; requests are counted anew."""
        self._section = section
        self._times.clear()

    def key(self, path: str, body: Any) -> str:
        """The key of the next request of this route and body."""
        content = json.dumps([self._section, path, body], sort_keys=True)
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
        self._file.seek(start)
        return parse_json(self._file.read(size))["reply"]

    def keep(self, key: str, reply: Any) -> None:
        """Append a reply: the whole line, or nothing that is read again."""
        line = json.dumps({"key": key, "reply": reply}, ensure_ascii=True).encode() + b"\n"
        try:
            written = self._file.write(line)
            while written < len(line):  # a full disk takes a part, and then raises
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(self._end)
            raise cannot_write(self.path, error) from error
        self._places[key] = (self._end, len(line))
        self._end += len(line)

    def close(self) -> None:
        """Close the file; the replies are kept."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file, as the run is complete."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _read(self) -> int:
        """Find the complete lines; where the last of them ends."""
        end = 0
        self._file.seek(0)
        with self.path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                if (key := _key_of(line)) is not None:
                    self._places[key] = (end, len(line))
                end += len(line)
        return end


def _key_of(line: bytes) -> str | None:
    """The key of a line; None for one that is damaged."""
    try:
        record = parse_json(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    key = record.get("key") if isinstance(record, dict) and "reply" in record else None
    return key if isinstance(key, str) else None
