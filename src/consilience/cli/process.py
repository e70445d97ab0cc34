"""The command line as a process: its output streams, its consoles and its signals."""

from __future__ import annotations

import atexit
import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer.core import TyperGroup

from consilience import early
from consilience.errors import ConsilienceError, shortened
from consilience.report.table import Table
from consilience.report.terminal import UNLIMITED, fitted_text
from consilience.text import CONTROLS, visible

if TYPE_CHECKING:
    from typing_extensions import Buffer

STOPPED = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "the terminal was closed",
}
"""What is said of a command that a signal ended."""


class Terminal(Console):
    """A console that shows tables, and U+FFFD for what would control the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables fit the screen, and are as wide as they are in a pipe."""
        columns = os.environ.get("COLUMNS", "")
        width = self.width if self.is_terminal else UNLIMITED
        width = int(columns) if columns.isdigit() else width
        rule = "─" if self.encoding.startswith("utf") else "-"
        for item in objects:
            if isinstance(item, Table):
                super().print(fitted_text(item, width, rule), soft_wrap=True)
        others = [item for item in objects if not isinstance(item, Table)]
        if others or not objects:
            super().print(*others, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of something to print, cleaned."""
        for segment in super().render(renderable, options):
            if not segment.control and CONTROLS.search(segment.text):
                yield Segment(visible(segment.text), segment.style)
            else:
                yield segment


class Commands(TyperGroup):
    """A group of commands whose usage errors a terminal may show, and are JSON with ``--json``."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """As in typer; an argument that is no option of the group raises."""
        with _usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """As in typer; an argument that a command does not know raises."""
        with _usage_errors():
            return super().invoke(ctx)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Shorten the message of a usage error, and clean it as ``Terminal`` does.

    With ``--json`` its document goes to standard output.
    """
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if hasattr(error, "exit_code") and isinstance(message, str):
            error.message = shortened(visible(message))  # type: ignore[attr-defined]
            told = error.format_message() if hasattr(error, "format_message") else message
            print_error(ConsilienceError(told.rstrip(".")), is_usage=True)
        raise


def print_error(error: ConsilienceError, *, is_usage: bool = False) -> None:
    """With ``--json``, print the document of an error on standard output.

    ``is_usage``: whether the command line could not be parsed.
    """
    if "--json" in sys.argv[1:]:
        print(json_text({"error": {**error.to_dict(), "is_usage": is_usage}}))


def json_text(document: object) -> str:
    """A document as JSON on one line; what a terminal or its encoding cannot show is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    is_unicode = encoding.lower().replace("-", "").startswith("utf")
    text = json.dumps(document, ensure_ascii=not is_unicode)
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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


def _stop(number: int, frame: FrameType | None) -> None:
    """End the command as an error would, so that it tidies up; another signal ends it at once.

    No KeyboardInterrupt: one that passes through an ``exec`` of a library hides the exit status.
    """
    signal.signal(number, signal.SIG_DFL)
    if multiprocessing := sys.modules.get("multiprocessing"):
        for process in multiprocessing.active_children():
            process.terminate()
    raise SystemExit(128 + number)
