"""Units of work, and the workers that do them: processes here, or actors of a Ray cluster.

Nothing here knows suites or models.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from consilience.core.errors import Advance, ConsilienceError, needs_extra, shortened
from consilience.core.provenance import build

Factory = Callable[[Any], Callable[[Any, Advance], Any]]
"""Makes the work of a worker from the key of its units; the work gets the payload of a unit, and
shows progress. An importable function."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work. Units are independent: they may run anywhere and in any order."""

    id: str
    key: Any  # The state of its worker, such as a loaded model: workers serve the units of one key
    payload: Any  # What the worker gets; it can be pickled
    size: int = 1
    is_network: bool = False  # Of these each key has one worker, which does not count


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """Why a unit has no value."""

    message: str
    traceback: str = ""  # Where it was raised; empty for wrong input and for a worker that died
    is_expected: bool = False  # Whether it was raised as wrong input
    is_death: bool = False  # Whether the worker is gone


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What became of a unit: a value, or a failure."""

    unit: Unit
    value: Any
    failure: UnitFailure | None


def attempted(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or why it failed (``UnitFailure``)."""
    try:
        return call(*arguments)
    except Exception as error:
        return described(error)


def described(error: Exception) -> UnitFailure:
    """An error as a failure: its message, and where it was raised if no input should cause it."""
    if isinstance(error, ConsilienceError):
        return UnitFailure(str(error), is_expected=True)
    text = "".join(traceback.format_exception(error))
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        first = (str(error).splitlines() or [""])[0]
        message = str(ConsilienceError(f"out of memory: {first}" if first else "out of memory"))
        return UnitFailure(message, text)
    if isinstance(error, OSError):
        where = str(error.filename or "input")
        message = str(ConsilienceError(error.strerror or str(error), where=where))
        return UnitFailure(message, is_expected=True)
    return UnitFailure(f"a bug: {type(error).__name__}: {error}".splitlines()[0], text)


PROGRESS_INTERVAL = 0.2
PATIENCE = 5.0  # Seconds that a process has to end before it is killed


class LocalWorkers:
    """Processes on this machine, started afresh and not forked.

    ``count``: at once, but for those that wait on the network. ``logs``: a folder for output.
    """

    def __init__(self, count: int = 1, logs: Path | None = None) -> None:
        self.count = count
        self._logs = logs
        self._started: list[LocalWorker] = []
        self._scratch = TemporaryDirectory(prefix="consilience-")

    def start(self, factory: Factory, key: Hashable) -> LocalWorker:
        log = self._logs / f"worker-{len(self._started) + 1}.txt" if self._logs else None
        self._started.append(LocalWorker(factory, key, log, self._scratch.name))
        return self._started[-1]

    def close(self) -> None:
        for worker in self._started:
            worker.process.terminate()
        for worker in self._started:
            worker.stop()
        self._scratch.cleanup()


class Doer:
    """Does units one after another; its work is made at the first."""

    def __init__(self, factory: Factory, key: Hashable) -> None:
        self._factory, self._key = factory, key
        self._work: Any = None

    def do(self, payload: Any, show: Advance) -> Any:
        work = self._work = self._work or attempted(self._factory, self._key)
        return work if isinstance(work, UnitFailure) else attempted(work, payload, show)


class LocalWorker:
    """A process with a ``Doer``, and this end of its pipe."""

    def __init__(self, factory: Factory, key: Hashable, log: Path | None, scratch: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._log = log
        arguments = there, factory, key, log, scratch
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _without_interrupts():
            self.process.start()
        there.close()  # so that the pipe ends when the process does

    def do(self, payload: Any, show: Advance) -> Any:
        with suppress(OSError):  # it has just died
            self._pipe.send(payload)
        try:
            while True:
                is_last, value = self._pipe.recv()
                if is_last:
                    return value
                show(value)
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            return UnitFailure(_why_ended(self.process.exitcode, self._log), is_death=True)

    def stop(self) -> None:
        for _ in range(10):  # a signal just before a process begins to wait does not end the wait
            self.process.terminate()
            self.process.join(PATIENCE / 10)
        self.process.kill()
        self.process.join()


def _serve(
    pipe: Connection, factory: Factory, key: Hashable, log: Path | None, scratch: str
) -> None:
    """What a process does. Its temporary files are in ``scratch``, which the starter removes."""
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    if log is not None:  # so that progress is in one place
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(descriptor, stream)
            os.close(descriptor)
    doer, count, last = Doer(factory, key), 0, time.monotonic()

    def show(steps: int) -> None:
        nonlocal count, last
        count += steps
        if time.monotonic() - last >= PROGRESS_INTERVAL:
            last = time.monotonic()
            pipe.send((False, count))

    with suppress(EOFError):  # the process that started it is gone
        while True:
            payload, count, last = pipe.recv(), 0, time.monotonic()
            pipe.send((True, doer.do(payload, show)))
    with suppress(OSError):  # until the last process has ended it is not empty
        Path(scratch).rmdir()


def _end(number: int, frame: object) -> None:
    """End this process; that the signal comes again does not interrupt what it does at its end."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


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
    output = f"Its output is in {log}." if log and log.is_file() and log.stat().st_size else ""
    if status is not None and status < 0:
        name = next((one.name for one in signal.Signals if one == -status), "unknown")
        memory = ", perhaps out of memory" if -status == 9 else ""
        reason = f"its process was killed by signal {-status} ({name}){memory}"
    else:
        reason = f"its process ended with status {status}"
    return str(ConsilienceError(reason, todo=output))


class RayWorkers:
    """Actors on the cluster at ``address``, or on one that is started on this machine."""

    def __init__(
        self,
        address: str | None = None,
        count: int | None = None,  # None for as many at once as the cluster has processors
    ) -> None:
        with needs_extra("ray"):
            import ray
        self._ray = ray
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "local", count)
        self.count = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._started: list[RayWorker] = []

    def start(self, factory: Factory, key: Hashable) -> RayWorker:
        actor_class = self._ray.remote(RayActor).options(
            max_restarts=0, num_cpus=1, scheduling_strategy="SPREAD"
        )
        self._started.append(RayWorker(self._ray, actor_class.remote(factory, key)))
        return self._started[-1]

    def close(self) -> None:
        for worker in self._started:
            worker.stop()
        self._ray.shutdown()


class RayWorker:
    """An actor, with the methods of ``LocalWorker``."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def do(self, payload: Any, show: Advance) -> Any:
        try:
            return self._ray.get(self._actor.do_as.remote(build(), payload))
        except self._ray.exceptions.RayTaskError as error:  # what it returned cannot be pickled
            return UnitFailure(_in_words(error), str(error))
        except self._ray.exceptions.RayError as error:
            return UnitFailure(f"a worker of Ray: {_in_words(error)}", is_death=True)

    def stop(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)


class RayActor(Doer):
    """A ``Doer`` on a node, which has to have the same version of consilience."""

    def do_as(self, expected: str, payload: Any) -> Any:
        if (version := build()) != expected:
            error = ConsilienceError(
                f"consilience {version}", expected=f"{expected}, as where the command was started",
                where=socket.gethostname(), todo="Install the same version on all nodes.",
            )  # fmt: skip
            return UnitFailure(str(error), is_expected=True)
        return self.do(payload, lambda steps: None)


def _connect(ray: Any, address: str, count: int | None) -> None:
    """Join a cluster, or start one here. Ray prints errors only."""
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": count}
    usual = signal.getsignal(signal.SIGTERM)
    try:
        host, _, port = address.rpartition(":")
        if "/" not in address and host and port.isdecimal():  # else Ray waits there for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConsilienceError(
            f"no cluster: {_in_words(error)}",
            where=f"--ray-address {address}",
            expected="auto on a node of a running cluster, or HOST:PORT of its head",
            todo="Start one with `ray start --head`, or leave --ray-address out. A cluster with "
            "token authentication needs RAY_AUTH_MODE=token here, too.",
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, usual)  # Ray has replaced it


def _in_words(error: Exception) -> str:
    """The message of an error of Ray, in one line: why a process ended, where it says that."""
    text = " ".join(str(error).split())
    detail = re.search(r"Worker exit detail: (.+?\.)(?: Some common causes|$)", text)
    if detail:
        return f"its process died, perhaps out of memory ({detail[1]})"
    return shortened(text, 400)


Workers = LocalWorkers | RayWorkers


class Backlog:
    """Units that wait, by key. While others are done, more may be added, and some dropped."""

    def __init__(self, units: Iterable[Unit] = ()) -> None:
        self.waiting: dict[Hashable, deque[Unit]] = {}
        for unit in units:
            self.add(unit)

    def add(self, unit: Unit, *, is_next: bool = False) -> None:
        units = self.waiting.setdefault(unit.key, deque())
        units.appendleft(unit) if is_next else units.append(unit)

    def take(self, key: Hashable) -> Unit:
        unit = self.waiting[key].popleft()
        if not self.waiting[key]:
            del self.waiting[key]
        return unit

    def drop(self, is_dropped: Callable[[Unit], bool]) -> list[Unit]:
        units = [unit for of_key in self.waiting.values() for unit in of_key]
        self.waiting.clear()
        for unit in units:
            if not is_dropped(unit):
                self.add(unit)
        return [unit for unit in units if is_dropped(unit)]

    @property
    def total(self) -> int:
        return sum(map(self.size, self.waiting))

    def size(self, key: Hashable) -> int:
        return sum(unit.size for unit in self.waiting[key])


TRIES = 3  # How often a unit is tried whose worker dies


def run_units(
    units: Iterable[Unit] | Backlog,
    factory: Factory,
    workers: Workers,
    network: Workers | None = None,
    advance: Advance = lambda steps: None,
    inform: Callable[[str], None] = lambda line: None,
) -> Generator[UnitOutcome, None, None]:
    """What becomes of each unit, in the order in which they end; the workers are closed at the end.

    A worker has one unit at a time, and waits until its value is taken. A unit whose worker dies is
    tried again by another one, three times in all. After an error that no input should cause the
    worker is replaced, because an accelerator may be unusable then.
    ``network``: where workers are that wait on the network, if not with the others.
    """
    backlog = units if isinstance(units, Backlog) else Backlog(units)
    dispatcher = _Dispatcher(backlog, factory, workers, network or workers, advance, inform)
    try:
        yield from dispatcher.outcomes()
    finally:
        workers.close()
        if network is not None:
            network.close()


@dataclass(slots=True, eq=False)
class _Hired:
    worker: LocalWorker | RayWorker
    key: Hashable
    is_network: bool
    unit: Unit | None = None


@dataclass(slots=True)
class _Dispatcher:
    backlog: Backlog
    factory: Factory
    site: Workers
    network: Workers
    advance: Advance
    inform: Callable[[str], None]
    workers: list[_Hired] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    events: SimpleQueue[tuple[_Hired, int | None, Any]] = field(default_factory=SimpleQueue)
    """Workers, and their steps so far, or the value or failure of their unit."""

    def outcomes(self) -> Iterator[UnitOutcome]:
        while self.backlog.waiting or any(worker.unit for worker in self.workers):
            for worker in [worker for worker in self.workers if worker.unit is None]:
                if worker.key in self.backlog.waiting:
                    self._occupy(worker)
                else:
                    self._dismiss(worker)
            self._hire()
            try:  # a signal just before a wait is seen after it, so no wait is long
                worker, steps, value = self.events.get(timeout=PROGRESS_INTERVAL)
            except Empty:
                continue
            if worker in self.workers:
                yield from self._handle(worker, steps, value)

    def _hire(self) -> None:
        """Start workers: each for the key with the most waiting steps for each of its workers."""
        while True:
            present = Counter(worker.key for worker in self.workers)
            has_room = sum(not worker.is_network for worker in self.workers) < self.site.count
            keys = [
                key
                for key, units in self.backlog.waiting.items()
                if (not present[key] if units[0].is_network else has_room)
            ]
            if not keys:
                return
            key = max(keys, key=lambda key: self.backlog.size(key) / (present[key] + 1))
            is_network = self.backlog.waiting[key][0].is_network
            site = self.network if is_network else self.site
            worker = _Hired(site.start(self.factory, key), key, is_network)
            self.workers.append(worker)
            self._occupy(worker)

    def _occupy(self, worker: _Hired) -> None:
        unit = worker.unit = self.backlog.take(worker.key)

        def call() -> None:
            show = lambda steps: self.events.put((worker, steps, None))  # noqa: E731
            self.events.put((worker, None, attempted(worker.worker.do, unit.payload, show)))

        Thread(target=call, daemon=True).start()

    def _handle(self, worker: _Hired, steps: int | None, value: Any) -> Iterator[UnitOutcome]:
        """Count steps, keep what is done, and try a unit again until its third worker has died."""
        unit = worker.unit
        assert unit is not None
        if steps is not None:
            self._progress(unit, steps)
            return
        worker.unit, failure = None, value if isinstance(value, UnitFailure) else None
        if failure and not failure.is_expected:
            self._dismiss(worker)
        if failure and failure.is_death:
            self.deaths[unit.id] += 1
            if self.deaths[unit.id] < TRIES:
                self.inform(f"{unit.id}: {failure.message} It is tried again.")
                self.backlog.add(unit, is_next=True)
                return
        self._progress(unit, unit.size)
        yield UnitOutcome(unit, None if failure else value, failure)

    def _dismiss(self, worker: _Hired) -> None:
        worker.worker.stop()
        self.workers.remove(worker)

    def _progress(self, unit: Unit, steps: int) -> None:
        """Show all steps of a unit so far; those of an earlier try are not shown again."""
        if (new := steps - self.steps[unit.id]) > 0:
            self.steps[unit.id] = steps
            self.advance(new)
