"""The command line as a process: its streams, its signals, its errors and its exit status."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

from consilience.app import json_text, print_errors
from consilience.core.errors import ConsilienceError, missing

if TYPE_CHECKING:
    from consilience.app.command import Group

STOPPED = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}
SIGNALS = {getattr(signal, name): text for name, text in STOPPED.items() if hasattr(signal, name)}
"""What ends a command, and is said in one line."""

USUAL = (signal.SIG_DFL, signal.default_int_handler)
"""How Python begins; anything else is somebody's wish, such as that of nohup."""


def run_process() -> None:
    """Run a process that is nothing but the command ``consilience``.

    No garbage is collected among imports, which make much and drop nothing: it takes a seventh of
    the start of a run. The process ends at once: Python would free torch object by object, and wait
    for the threads of requests.
    """
    gc.disable()
    status: object = 0
    try:
        for number in SIGNALS:
            if signal.getsignal(number) in USUAL:
                signal.signal(number, _stop)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # it may be closed
                stream.reconfigure(errors="replace")
        run()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if isinstance(status, int | None):
        atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(status or 0)
    raise SystemExit(status)


def run() -> None:
    """Run the command line: 0 done, 1 a bug of ours, 2 or 3 with one message (``status``).

    A command that a signal ends exits with 128 and the number of the signal.
    """
    try:
        try:
            from consilience.app.command import run_program

            run_program(program())
        finally:
            if sys.stdout is not None:  # it may be closed
                sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (ConsilienceError, ImportError, OSError) as error:
        failure = _failure_of(error)
        print_errors([f"error: {failure}"])
        if "--json" in sys.argv:
            with suppress(BrokenPipeError):
                print(json_text({"error": failure.to_dict()}))
        sys.exit(failure.status)
    except SystemExit as stop:
        for number, text in SIGNALS.items():
            if stop.code == 128 + number:
                rest = "every file that was written is complete, and the same command does the rest"
                print_errors([f"{text}; {rest}"])
        raise


@cache
def program() -> Group:
    """The command with all its commands."""
    from consilience.app import commands  # noqa: F401 - it declares the commands
    from consilience.app.command import program as whole

    return whole


def _failure_of(error: ConsilienceError | ImportError | OSError) -> ConsilienceError:
    if not isinstance(error, OSError):
        return missing(error) if isinstance(error, ImportError) else error
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    found = "a file, where a folder is needed" if is_file else error.strerror or str(error)
    return ConsilienceError(found, where=error.filename or "input")


def _stop(number: int, frame: FrameType | None) -> None:
    """End the command as an error would, so that it tidies up.

    No KeyboardInterrupt: one that passes through an ``exec`` of a library hides the exit status.
    """
    if multiprocessing := sys.modules.get("multiprocessing"):
        for process in multiprocessing.active_children():
            process.terminate()
    raise SystemExit(128 + number)
