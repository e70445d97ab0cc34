"""Writes files: the whole content or nothing, and never over a device."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from consilience.core.errors import OTHER_OUT, ConsilienceError
from consilience.core.text import names_a_file

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""What ``fsync`` answers where a file system has no such call."""

FORMULA = r"'*[=+\-@\t\r\n](?s:.)"
"""How a text begins that spreadsheets may run as a formula (OWASP), or that ``csv_cell`` marked."""

NUMBER = r"[+-]\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
LOCK = ".lock"

PART = re.compile(r"\..+\.(\d+)\.part", re.DOTALL)
"""The name of a file that is being written, with the id of the process that writes it."""


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
    """Raise where there is a file, or a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "a folder that is not empty" if folder.is_dir() else "a file"
        where = str(folder)
        todo = f"{OTHER_OUT}."
        raise ConsilienceError(found, expected=expected, where=where, todo=todo, kind="occupied")


Content = bytes | Callable[[], Iterable[bytes]]
"""What is written: bytes, or a function that makes their parts, for what is too large at once."""


def write_whole(path: Path, content: Content) -> None:
    """Write ``content`` to ``path``: the whole of it or nothing.

    A new or a regular file is put in place by a rename when its content is on the disk; a replaced
    file keeps its mode, and its owner where the system permits. A symbolic link is kept and its
    target written. A device or a pipe, such as ``/dev/stdout``, is written in place.
    """
    try:
        try:
            existing = path.stat()
        except FileNotFoundError:
            existing = None
        stream = _standard_stream(existing)
        if stream is not None or (existing and not stat.S_ISREG(existing.st_mode)):
            with (
                suppress(BrokenPipeError),  # its reader has read enough
                path.open("wb") if stream is None else os.fdopen(stream, "wb") as file,
            ):
                file.writelines(_parts(content))
        else:
            _replace(Path(os.path.realpath(path)), content, existing)
    except OSError as error:
        raise cannot_write(path, error) from error


def json_lines(rows: Iterable[Mapping[str, object]], old: Path | None = None) -> bytes:
    """JSONL with a row a line, after the lines of an ``old`` file, which may not be there."""
    before = old.read_bytes() if old is not None and old.is_file() else b""
    before += b"" if before.endswith(b"\n") or not before else b"\n"
    return before + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def csv_cell(text: str) -> str:
    """A text as a cell that no spreadsheet runs: ``FORMULA`` gets an apostrophe, ``NUMBER`` not."""
    is_formula = re.match(FORMULA, text) and not re.fullmatch(NUMBER, text)
    return f"'{text}" if is_formula else text


def text_of_cell(cell: str) -> str:
    """The text that ``csv_cell`` made a cell of."""
    return re.sub(f"^'({FORMULA})", r"\1", cell)


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
    """A table as CSV, its texts as ``csv_cell`` has them; numbers are as they are."""
    texts = pl.col(pl.String)
    column = texts.str.replace(f"^({FORMULA})", "'${1}").str.replace(f"^'({NUMBER})$", "${1}")
    return table.with_columns(column).write_csv().encode()


def texts_of(table: pl.DataFrame) -> pl.DataFrame:
    """A table that ``csv_of`` wrote and somebody read, with the texts that it had before."""
    return table.with_columns(pl.col(pl.String).str.replace(f"^'({FORMULA})", "${1}"))


def path_in(folder: Path, id_: str, suffix: str) -> Path:
    """``folder/ID.SUFFIX``; an id that would lead out of the folder raises."""
    if not names_a_file(id_):
        found = f"the group id '{id_[:100]}'"
        expected = "a short id that can name a file: no separator, no leading dot"
        todo = "Rename the group in its suite."
        raise ConsilienceError(found, expected=expected, where=str(folder), todo=todo)
    return folder / f"{id_}{suffix}"


def remove_stale_parts(folder: Path) -> None:
    """Remove what killed processes began to write in ``folder``; those that run keep theirs."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            match = PART.fullmatch(path.name)
            if match and not _is_running(int(match[1])):
                with suppress(OSError):
                    path.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here for ``folder``; no wait where locks are missing.

    A network file system locks only what is open for writing: there a file in the folder.
    """
    descriptor = _lock(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))  # no wait at a pipe
    if descriptor is None:
        descriptor = _lock(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(path: Path, mode: int) -> int | None:
    """The open descriptor of a path that is locked now; None where it cannot be."""
    try:
        import fcntl

        descriptor = os.open(path, mode)
    except (OSError, ImportError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for want of room; some libraries say so in the text alone."""
    return getattr(error, "errno", None) in NO_ROOM or "No space left" in str(error)


def cannot_write(path: Path, error: OSError) -> ConsilienceError:
    """The message of a write that failed."""
    if is_disk_full(error):
        todo = "What was written before is whole; make room and give the same command again."
        return ConsilienceError("the disk is full", where=str(path), todo=todo)
    reason = f"cannot be written: {error.strerror or error}"
    return ConsilienceError(reason, where=str(path), todo=f"{OTHER_OUT}.")


def _standard_stream(existing: os.stat_result | None) -> int | None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or not a file
            if existing and os.path.samestat(existing, os.fstat(stream.fileno())):
                stream.flush()
                return os.dup(stream.fileno())
    return None


def _replace(path: Path, content: Content, existing: os.stat_result | None) -> None:
    if existing and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    name = os.fsdecode(os.fsencode(path.name)[:200])  # with its ending no longer than names may be
    part = path.parent / f".{name}.{os.getpid()}.part"
    try:
        for last in (False, True):
            with suppress(FileNotFoundError):
                part.unlink()
            _write_part(part, content, existing)
            try:
                part.replace(path)
                break
            except FileNotFoundError:  # removed as stale where this process is not seen to run
                if last:
                    raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # the rename is on the disk
        finally:
            os.close(descriptor)


def _parts(content: Content) -> Iterable[bytes]:
    return (content,) if isinstance(content, bytes) else content()


def _write_part(part: Path, content: Content, existing: os.stat_result | None) -> None:
    with part.open("xb") as file:
        file.writelines(_parts(content))
        file.flush()
        if existing:
            if hasattr(os, "chown"):
                with suppress(OSError):
                    os.chown(part, existing.st_uid, existing.st_gid)
            part.chmod(stat.S_IMODE(existing.st_mode))
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # there is no harmless way to ask
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return process != os.getpid()
