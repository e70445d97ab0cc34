"""Writes files: the whole content or nothing, and never over a device."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from consilience.core.errors import OTHER_OUT, ConsilienceError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def path_of(value: object, name: str) -> Path:
    """A path that a caller gave as text or as a path; anything else raises."""
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise ConsilienceError(
        f"{name} is of type {type(value).__name__}", expected="a path: text or pathlib.Path"
    )


def make_folder(folder: Path) -> None:
    """Make a folder with the folders above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def refuse_occupied(folder: Path, expected: str = "a new folder, or an empty one") -> None:
    """Raise where there is a file, or a folder that holds more than what a killed write left."""
    is_empty = folder.is_dir() and all(file.name.endswith(".part") for file in folder.iterdir())
    if folder.exists() and not is_empty:
        found = "a folder that is not empty" if folder.is_dir() else "a file"
        parts = {"expected": expected, "where": str(folder), "todo": f"{OTHER_OUT}."}
        raise ConsilienceError(found, **parts, kind="occupied")


Content = bytes | Callable[[], Iterable[bytes]]
"""What is written: bytes, or a function that makes their parts, for what is too large at once."""


def write_whole(path: Path, content: Content) -> None:
    """Write a file: the whole of it or nothing (``write_all``)."""
    write_all({path: content})


def write_all(contents: Mapping[Path, Content]) -> None:
    """Write files: the whole of all of them, or nothing.

    They are put in place by renames when all are on the disk; of a link the target is written. A
    device or a pipe, such as ``/dev/stdout``, is written in place.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            pieces = (content,) if isinstance(content, bytes) else content()
            if path.exists() and (not path.is_file() or path.parts[:2] == ("/", "dev")):
                with path.open("ab") as file:  # standard output may be a file that holds something
                    file.writelines(pieces)
                continue
            target = Path(os.path.realpath(path))
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            parts[part] = target
            with part.open("wb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, part)
        for part, target in parts.items():
            part.replace(target)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def json_lines(rows: Iterable[Mapping[str, object]], old: Path | None = None) -> bytes:
    """JSONL with a row a line, after the lines of an ``old`` file, which may not be there."""
    before = old.read_bytes() if old is not None and old.is_file() else b""
    before += b"" if before.endswith(b"\n") or not before else b"\n"
    return before + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def table_of(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows as a table of texts with the columns that any has; of lists with semicolons."""
    names = dict.fromkeys(name for row in rows for name in row)
    cells = {name: [row.get(name, "") for row in rows] for name in names}
    texts = {
        name: ["; ".join(one) if isinstance(one, list) else str(one) or None for one in of]
        for name, of in cells.items()
    }
    return pl.DataFrame(texts, dict.fromkeys(names, pl.String))


def csv_of(table: pl.DataFrame) -> bytes:
    """A table as CSV."""
    return table.write_csv().encode()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here for ``folder``; no wait where locks are missing."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (OSError, ImportError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for want of room; some libraries say so in the text alone."""
    by_torch = r"inline_container(?![\s\S]*open file failed)"
    is_said = re.search(f"No space left|{by_torch}", str(error))
    return getattr(error, "errno", None) in NO_ROOM or bool(is_said)


def cannot_write(path: Path, error: OSError) -> ConsilienceError:
    """The message of a write that failed."""
    if is_disk_full(error):
        todo = "What was written before is whole; make room and give the same command again."
        return ConsilienceError("the disk is full", where=str(path), todo=todo)
    reason = f"cannot be written: {error.strerror or error}"
    return ConsilienceError(reason, where=str(path), todo=f"{OTHER_OUT}.")


def check_no_file(path: Path | None) -> None:
    """Refuse, before the work, to replace a file, which may hold a person's edits.

    And a file that could not be written or read again: in no folder, or with another suffix.
    """
    if path is not None and path.is_file() and path.stat().st_size:
        raise ConsilienceError(
            "there is a file already, and it may have edits",
            expected="a new file",
            where=str(path),
            todo="Choose another file with --out, or delete this one.",
        )
    is_plain = path is not None and (path.is_file() or not path.exists())
    if path is not None and is_plain and path.suffix not in (".jsonl", ".csv"):
        found, expected = "a file in another format", "a name that ends in .jsonl or .csv"
        raise ConsilienceError(found, expected=expected, where=str(path))
    if path is not None and not path.parent.is_dir():
        raise ConsilienceError("no such folder", where=str(path.parent), todo="Make it first.")
