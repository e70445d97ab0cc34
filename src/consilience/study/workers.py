"""Workers: processes on this machine, or a Ray cluster."""

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
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consilience.core.errors import ConsilienceError, needs_extra, shortened
from consilience.core.provenance import build
from consilience.study.engine import (
    Event,
    Factory,
    Needs,
    Unit,
    UnitFailure,
    Workers,
    attempted,
    made,
)

PROGRESS_INTERVAL = 0.2
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
        if time.monotonic() - self._last >= PROGRESS_INTERVAL:
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


class MixedWorkers:
    """Workers of ``cluster``; those that wait on the network are processes here (``is_network``).

    ``logs``: the folder for what these processes print. Their numbers are negative.
    """

    def __init__(self, cluster: Workers, logs: Path | None = None) -> None:
        self.count = cluster.count
        self._cluster, self._here = cluster, LocalWorkers(0, logs)
        self._started: set[int] = set()

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> int:
        """Start a worker on the cluster, or a process here."""
        if needs.is_network:
            number = -self._here.start(factory, key, needs)
        else:
            number = self._cluster.start(factory, key, needs)
        self._started.add(number)
        return number

    def give(self, worker: int, unit: Unit) -> None:
        self._here.give(-worker, unit) if worker < 0 else self._cluster.give(worker, unit)

    def events(self) -> list[Event]:
        """What both report. A cluster with workers waits, and processes here are looked at."""
        has_cluster, has_here = max(self._started) >= 0, min(self._started) < 0
        reported = self._here.events(0 if has_cluster else None) if has_here else []
        events = [Event(-one.worker, one.kind, one.value) for one in reported]
        return [*events, *(self._cluster.events() if has_cluster else [])]

    def stop(self, worker: int) -> None:
        self._started.discard(worker)
        self._here.stop(-worker) if worker < 0 else self._cluster.stop(worker)

    def close(self) -> None:
        self._here.close()
        self._cluster.close()


EVENT_INTERVAL = 1.0
"""Seconds that ``events`` waits at most, so that signals are seen."""


class RayWorkers:
    """Actors on the cluster at ``address``, or on one that is started on this machine.

    ``count``: how many at once; None for as many as the cluster has processors. A worker whose
    needs no node can meet waits until there is one.
    """

    def __init__(
        self,
        address: str | None = None,
        count: int | None = None,
        inform: Callable[[str], None] = lambda line: None,
    ) -> None:
        with needs_extra("ray"):
            import ray
        self._ray, self._inform = ray, inform
        _connect(ray, address or os.environ.get("RAY_ADDRESS") or "local", count)
        self.count = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actors: dict[int, Any] = {}
        self._running: dict[Any, int] = {}
        self._where: dict[int, str] = {}
        self._started = 0
        self._waiting = ThreadPoolExecutor(1)

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> int:
        """Ask for an actor where its needs are met; they are spread over the nodes."""
        self._started += 1
        number = self._started
        self._note_unmet(needs)
        actor_class = self._ray.remote(RayWorker).options(
            max_restarts=0, num_cpus=needs.cpus, num_gpus=needs.gpus,
            resources=dict(needs.resources), scheduling_strategy="SPREAD",
        )  # fmt: skip
        actor = actor_class.remote()
        self._actors[number] = actor
        self._running[actor.make.remote(factory, key, build())] = number
        return number

    def give(self, worker: int, unit: Unit) -> None:
        self._running[self._actors[worker].do.remote(unit.payload)] = worker

    def events(self) -> list[Event]:
        """What actors have returned, and which have died."""
        # In the main thread Ray would turn the exit status of a signal's handler into 1.
        wait = partial(self._ray.wait, list(self._running), num_returns=1, timeout=EVENT_INTERVAL)
        ended, _ = self._waiting.submit(wait).result()
        return [self._event(reference, self._running.pop(reference)) for reference in ended]

    def _event(self, reference: Any, worker: int) -> Event:
        try:
            kind, value = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # what it returned cannot be pickled
            return Event(worker, "failed", UnitFailure(_in_words(error), str(error)))
        except self._ray.exceptions.RayError as error:
            where = self._where.get(worker, "a worker that was starting")
            return Event(worker, "died", f"{where}: {_in_words(error)}")
        if kind == "ready":
            self._where[worker] = value
        return Event(worker, kind, value)

    def stop(self, worker: int) -> None:
        """End an actor."""
        actor = self._actors.pop(worker)
        self._running = {one: number for one, number in self._running.items() if number != worker}
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)

    def close(self) -> None:
        """End all actors, and leave the cluster; one that was started here ends."""
        for worker in list(self._actors):
            self.stop(worker)
        self._waiting.shutdown()
        self._ray.shutdown()

    def _note_unmet(self, needs: Needs) -> None:
        """Say that a worker has to wait for a node that there is not."""
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, **dict(needs.resources)}
        for node in self._ray.nodes():
            has = node["Resources"]
            fits = all(has.get(name, 0) >= amount for name, amount in wanted.items() if amount)
            if node["Alive"] and fits:
                return
        text = ", ".join(f"{name}={amount}" for name, amount in wanted.items() if amount)
        self._inform(f"no node of the cluster has {text}: waiting for one (Ctrl-C ends)")


class RayWorker:
    """The actor: it makes its work once, and does one unit at a time."""

    def make(self, factory: Factory, key: Hashable, expected: str) -> tuple[str, Any]:
        """Make the work; another version of consilience than the driver's is refused."""
        where = f"{socket.gethostname()}, process {os.getpid()}"
        if (version := build()) != expected:
            error = ConsilienceError(
                f"consilience {version}", expected=f"{expected}, as where the command was started",
                where=where, todo="Install the same version on all nodes.",
            )  # fmt: skip
            return "failed", UnitFailure(str(error), is_expected=True)
        work = made(factory, key)
        if isinstance(work, UnitFailure):
            return "failed", work
        self._work = work
        return "ready", where

    def do(self, payload: Any) -> tuple[str, Any]:
        """The value of a unit, or why it failed."""
        result = attempted(self._work, payload, lambda steps: None)
        return "failed" if isinstance(result, UnitFailure) else "done", result


def _connect(ray: Any, address: str, count: int | None) -> None:
    """Join a cluster, or start one here. Ray prints errors only, and nothing on standard output."""
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": count}
    # Ray prints that a worker died on standard output, which may be a JSON document of ours.
    ray._private.worker.print_to_stdstream = lambda *arguments, **options: None
    usual = signal.getsignal(signal.SIGTERM)
    try:
        _check_port(address)
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


def _check_port(address: str) -> None:
    """Raise where nothing listens at HOST:PORT; Ray itself would wait there for minutes."""
    host, _, port = address.rpartition(":")
    if "/" not in address and host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _in_words(error: Exception) -> str:
    """The message of an error of Ray, in one line: why a process ended, where it says that."""
    text = " ".join(str(error).split())
    detail = re.search(r"Worker exit detail: (.+?\.)(?: Some common causes|$)", text)
    if detail:
        return f"its process died, perhaps out of memory ({detail[1]})"
    return shortened(text, 400)
