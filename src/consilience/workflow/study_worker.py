"""A worker of a study: a process that loads one model and asks it every suite.

It sends tuples to the process that started it: what it shows, by the name of a method of
``Watch``, and ``("begin", run)`` and ``("end", message, traceback)`` of each run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.watch import Advance
from consilience.workflow.study_file import StudyRun

INTERVAL = 0.2
"""Seconds between two messages on progress."""


def ask_runs(runs: Sequence[StudyRun], log: Path, connection: Connection) -> None:
    """Ask the runs of one model; after a failure that is no wrong input the process ends.

    ``log``: what libraries print.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the process that started it ends it
    _print_to(log)
    from consilience.workflow.probing import probe  # loads what a model needs: not for the driver

    watch = _Sender(connection)
    for run in runs:
        connection.send(("begin", run.name))
        try:
            probe(run.options, watch)
        except ConsilienceError as error:
            connection.send(("end", str(error), ""))
        except OSError as error:
            where = error.filename or "input"
            connection.send(
                ("end", str(ConsilienceError(error.strerror or str(error), where=where)), "")
            )
        except Exception as error:
            connection.send(("end", *_described(error)))
            return  # an accelerator may be unusable now
        else:
            connection.send(("end", "", ""))


def _described(error: Exception) -> tuple[str, str]:
    """The message of an error that no input should cause, and its traceback."""
    import traceback

    text = "".join(traceback.format_exception(error))
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        first = (str(error).splitlines() or [""])[0]
        return str(ConsilienceError(f"out of memory: {first}" if first else "out of memory")), text
    return f"a bug: {type(error).__name__}: {error}".splitlines()[0], text


def _print_to(log: Path) -> None:
    """Have what this process prints in a file, so that progress is in one place."""
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)


class _Sender:
    """Sends what a workflow shows to the process that started this one (``watch.Watch``)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def loading(self, model: str) -> AbstractContextManager[None]:
        """One line."""
        if model and not model.startswith("baseline:"):
            self.inform(f"loading {model} ...")
        return nullcontext()

    @contextmanager
    def steps(self, text: str, total: int | None, unit: str) -> Iterator[Advance]:
        """Progress, five times a second at most."""
        self._connection.send(("steps", text, total, unit))
        steps = _Steps(self._connection.send)
        yield steps
        steps.send()
        self._connection.send(("stop",))

    def say(self, step: str) -> None:
        """One line."""
        self._connection.send(("say", step))

    def inform(self, line: str) -> None:
        """The line as it is."""
        self._connection.send(("inform", line))


class _Steps:
    """Counts steps, and sends their number now and then."""

    def __init__(self, send: Callable[[tuple[object, ...]], None]) -> None:
        self._send, self._count, self._last = send, 0, time.monotonic()

    def __call__(self, steps: int) -> None:
        self._count += steps
        if time.monotonic() - self._last >= INTERVAL:
            self.send()

    def send(self) -> None:
        """Send the steps since the last message."""
        self._send(("advance", self._count))
        self._count, self._last = 0, time.monotonic()
