"""Worker processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from consilience.engine.units import Event, Factory, Needs, Unit, UnitFailure, attempted, made
from consilience.errors import ConsilienceError

INTERVAL = 0.2
"""Seconds between two messages on progress."""

PATIENCE = 5.0
"""Seconds that a process has to end before it is killed."""


@dataclass(slots=True)
class _Process:
    """A worker process."""

    process: BaseProcess
    connection: Connection
    """This end of its pipe."""
    log: Path | None
    """The file of what it prints."""


class LocalWorkers:
    """Processes on this machine, started afresh and not forked.

    ``logs``: the folder for what they print; None to print on this process's streams.
    """

    def __init__(self, count: int = 1, logs: Path | None = None) -> None:
        self.count = count
        self._logs = logs
        self._processes: dict[int, _Process] = {}
        self._started = 0
        self._scratch = TemporaryDirectory(prefix="consilience-")

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> int:
        self._started += 1
        log = self._logs / f"worker-{self._started}.txt" if self._logs else None
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = there, factory, key, log, self._scratch.name
        process = context.Process(target=_serve, args=arguments, daemon=True)
        with _without_interrupts():
            process.start()
        there.close()  # so that the pipe ends when the process does
        self._processes[self._started] = _Process(process, here, log)
        return self._started

    def give(self, worker: int, unit: Unit) -> None:
        """Send a unit; a process that has just died is reported by ``events``."""
        with suppress(OSError):
            self._processes[worker].connection.send(unit.payload)

    def events(self, timeout: float | None = None) -> list[Event]:
        """What has come through the pipes; nothing after so many seconds without."""
        numbers = {one.connection: number for number, one in self._processes.items()}
        arrived = wait(list(numbers), timeout)
        return [self._event(numbers[pipe]) for pipe in arrived if pipe in numbers]

    def _event(self, worker: int) -> Event:
        one = self._processes[worker]
        try:
            kind, value = one.connection.recv()
        except (EOFError, OSError):
            one.process.join(PATIENCE)
            return Event(worker, "died", _why_ended(one.process.exitcode, one.log))
        return Event(worker, kind, value)

    def stop(self, worker: int) -> None:
        """End a process, and wait until its memory is free."""
        _end([self._processes.pop(worker)])

    def close(self) -> None:
        """End all processes, and remove the temporary files that they left."""
        _end([self._processes.pop(number) for number in list(self._processes)])
        self._scratch.cleanup()


def _end(processes: list[_Process]) -> None:
    for one in processes:
        one.process.terminate()
    until = time.monotonic() + PATIENCE
    for one in processes:
        one.process.join(max(0.0, until - time.monotonic()))
        if one.process.is_alive():
            one.process.kill()
            one.process.join()
        one.connection.close()
        one.process.close()


def _serve(
    connection: Connection, factory: Factory, key: Hashable, log: Path | None, scratch: str
) -> None:
    """What a process does: make its work, then do each unit that comes.

    Its temporary files are in ``scratch``, which the process that started it removes.
    """
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the process that started it ends it
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if log is not None:
        _print_to(log)
    work = made(factory, key)
    if isinstance(work, UnitFailure):
        connection.send(("failed", work))
        return
    connection.send(("ready", f"{socket.gethostname()}, process {os.getpid()}"))
    with suppress(EOFError):  # the process that started it is gone
        while True:
            result = attempted(work, connection.recv(), _SentSteps(connection))
            is_failure = isinstance(result, UnitFailure)
            connection.send(("failed" if is_failure else "done", result))
    with suppress(OSError):  # until the last process has ended it is not empty
        Path(scratch).rmdir()


class _SentSteps:
    """Counts the steps of a unit, and sends their number now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count, self._last = connection, 0, time.monotonic()

    def __call__(self, steps: int) -> None:
        self._count += steps
        if time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            self._connection.send(("advanced", self._count))


def _print_to(log: Path) -> None:
    """Have what this process prints in a file, so that progress is in one place."""
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process that Ctrl-C does not reach: this one ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _why_ended(status: int | None, log: Path | None) -> str:
    """Why a worker ended without an answer."""
    output = f"Its output is in {log}." if log and log.is_file() and log.stat().st_size else ""
    if status is not None and status < 0:
        memory = ", perhaps out of memory" if -status == 9 else ""
        reason = f"its process was killed by signal {-status} ({_signal_name(-status)}){memory}"
    else:
        reason = f"its process ended with status {status}"
    return str(ConsilienceError(reason, todo=output))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
