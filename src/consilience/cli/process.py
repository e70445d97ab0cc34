"""The command line as a process: its output streams, its documents and its signals."""

from __future__ import annotations

import atexit
import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from consilience.core import process as early
from consilience.core.errors import ConsilienceError
from consilience.core.text import CONTROLS, visible

if TYPE_CHECKING:
    from typing_extensions import Buffer

STOPPED = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "the terminal was closed",
}
"""The message of a command that a signal ended."""


def print_errors(lines: Iterable[str]) -> None:
    """Print lines on standard error, with ``--quiet`` too; this needs no library."""
    if sys.stderr is not None:  # it may be closed
        for line in lines:
            print(visible(line), file=sys.stderr, flush=True)


def print_error(error: ConsilienceError, *, is_usage: bool = False) -> None:
    """With ``--json`` or ``--format json``, print the document of an error on standard output.

    ``is_usage``: whether the command line could not be parsed.
    """
    arguments = sys.argv[1:]
    if "--json" in arguments or "--format json" in " ".join(arguments).replace("=", " "):
        print(json_text({"error": {**error.to_dict(), "is_usage": is_usage}}))


def json_text(document: object) -> str:
    """A document as JSON on one line; what a terminal or its encoding cannot show is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    is_unicode = encoding.lower().replace("-", "").startswith("utf")
    text = json.dumps(document, ensure_ascii=not is_unicode)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _Stream(io.FileIO):
    """Standard output or error. When its reader has closed it, what is written goes nowhere.

    Other failures are errors of standard output, and are ignored on standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        self.is_output = stream.fileno() == 1
        self.ends = (errno.EPIPE, errno.EIO) if stream.isatty() else (errno.EPIPE,)

    def write(self, content: Buffer) -> int:
        try:
            return super().write(content)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.is_output and error.errno not in self.ends:
                raise OSError(error.errno, error.strerror, "standard output") from error
            return memoryview(content).nbytes


def _forgiving(stream: TextIO | None) -> TextIO | None:
    """The stream, without errors for a closed pipe or for what its encoding lacks."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # closed
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(stream)),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def begin() -> None:
    """Take over the streams and signals of a process that is nothing but this command."""
    sys.stdout, sys.stderr = _forgiving(sys.stdout), _forgiving(sys.stderr)
    for number in early.SIGNALS:
        if signal.getsignal(number) in (*early.USUAL, early.stop):
            signal.signal(number, _stop)


def leave(status: object) -> None:
    """End a process that has loaded torch at once, with an exit status.

    Python would free torch and a model object by object, which takes a second. What was registered
    to run at the end still runs, and all output is written. Otherwise nothing is done.
    """
    if "torch" not in sys.modules or not isinstance(status, int | None):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status or 0)


def end() -> None:
    """What is left is to leave: signals come too late to be of use, and would hide the status."""
    for number in early.SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def why_stopped(status: object) -> str | None:
    """What to say of a command that ended with an exit status; None where no signal ended it."""
    names = {128 + number: number.name for number in early.SIGNALS}
    return STOPPED[names[status]] if status in names else None


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    """End the process without tidying up."""
    os.write(2, b"stopped at once; the same command resumes the work\n")
    os._exit(128 + number)


def _stop(number: int, frame: FrameType | None) -> None:
    """End the command as an error would, so that it tidies up; the same again ends it at once.

    No KeyboardInterrupt: one that passes through an ``exec`` of a library hides the exit status.
    """
    signal.signal(number, _stop_at_once)
    if multiprocessing := sys.modules.get("multiprocessing"):
        for process in multiprocessing.active_children():
            process.terminate()
    raise SystemExit(128 + number)
