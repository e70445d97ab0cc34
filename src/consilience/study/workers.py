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
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consilience.core.errors import ConsilienceError, needs_extra, shortened
from consilience.core.process import Advance
from consilience.core.provenance import build
from consilience.study.engine import Factory, Needs, UnitFailure, Worker, WorkerDiedError, attempted

PROGRESS_INTERVAL = 0.2

PATIENCE = 5.0
"""Seconds that a process has to end before it is killed."""


class LocalWorkers:
    """Processes on this machine, started afresh and not forked.

    ``logs``: the folder for what they print; None to print on this process's streams.
    """

    def __init__(self, count: int = 1, logs: Path | None = None) -> None:
        self.count = count
        self._logs = logs
        self._started: list[_LocalWorker] = []
        self._scratch = TemporaryDirectory(prefix="consilience-")

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> Worker:
        log = self._logs / f"worker-{len(self._started) + 1}.txt" if self._logs else None
        self._started.append(_LocalWorker(factory, key, log, self._scratch.name))
        return self._started[-1]

    def close(self) -> None:
        """End all processes, and remove the temporary files that they left."""
        for worker in self._started:
            worker.process.terminate()
        for worker in self._started:
            worker.stop()
        self._scratch.cleanup()


class _LocalWorker:
    """A process, and this end of its pipe. ``log``: the file of what it prints."""

    def __init__(self, factory: Factory, key: Hashable, log: Path | None, scratch: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._log = log
        arguments = there, factory, key, log, scratch
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _without_interrupts():
            self.process.start()
        there.close()  # so that the pipe ends when the process does

    def make(self) -> Any:
        return self._reply(lambda steps: None)

    def do(self, payload: Any, show: Advance) -> Any:
        with suppress(OSError):  # it has just died
            self._pipe.send(payload)
        return self._reply(show)

    def _reply(self, show: Advance) -> Any:
        """What the process answers, after its progress."""
        try:
            while True:
                is_last, value = self._pipe.recv()
                if is_last:
                    return value
                show(value)
        except (EOFError, OSError) as error:
            self.process.join(PATIENCE)
            raise WorkerDiedError(_why_ended(self.process.exitcode, self._log)) from error

    def stop(self) -> None:
        """End the process, and wait until its memory is free."""
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(
    pipe: Connection, factory: Factory, key: Hashable, log: Path | None, scratch: str
) -> None:
    """What a process does: make its work, then do each unit that comes.

    Its temporary files are in ``scratch``, which the process that started it removes.
    """
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the process that started it ends it
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if log is not None:
        _print_to(log)
    work = attempted(factory, key)
    is_made = not isinstance(work, UnitFailure)
    pipe.send((True, None if is_made else work))
    with suppress(EOFError):  # the process that started it is gone
        while is_made:
            pipe.send((True, attempted(work, pipe.recv(), _Steps(pipe))))
    with suppress(OSError):  # until the last process has ended it is not empty
        Path(scratch).rmdir()


class _Steps:
    """Counts the steps of a unit, and sends their number now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._count, self._last = pipe, 0, time.monotonic()

    def __call__(self, steps: int) -> None:
        self._count += steps
        if time.monotonic() - self._last >= PROGRESS_INTERVAL:
            self._last = time.monotonic()
            self._pipe.send((False, self._count))


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
    output = f"Its output is in {log}." if log and log.is_file() and log.stat().st_size else ""
    if status is not None and status < 0:
        name = next((one.name for one in signal.Signals if one == -status), "unknown")
        memory = ", perhaps out of memory" if -status == 9 else ""
        reason = f"its process was killed by signal {-status} ({name}){memory}"
    else:
        reason = f"its process ended with status {status}"
    return str(ConsilienceError(reason, todo=output))


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
        self._started: list[_RayWorker] = []

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> Worker:
        """Ask for an actor where its needs are met; they are spread over the nodes."""
        self._note_unmet(needs)
        actor_class = self._ray.remote(RayActor).options(
            max_restarts=0, num_cpus=needs.cpus, num_gpus=needs.gpus,
            resources=dict(needs.resources), scheduling_strategy="SPREAD",
        )  # fmt: skip
        self._started.append(_RayWorker(self._ray, actor_class.remote(), factory, key))
        return self._started[-1]

    def close(self) -> None:
        """End all actors, and leave the cluster; one that was started here ends."""
        for worker in self._started:
            worker.stop()
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


class _RayWorker:
    """An actor."""

    def __init__(self, ray: Any, actor: Any, factory: Factory, key: Hashable) -> None:
        self._ray, self._actor = ray, actor
        self._where, self._made = "a worker that was starting", (factory, key)

    def make(self) -> Any:
        made = self._reply(self._actor.make.remote(*self._made, build()))
        if not isinstance(made, UnitFailure):
            self._where = made
        return made

    def do(self, payload: Any, show: Advance) -> Any:
        return self._reply(self._actor.do.remote(payload))

    def _reply(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # what it returned cannot be pickled
            return UnitFailure(_in_words(error), str(error))
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(f"{self._where}: {_in_words(error)}") from error

    def stop(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)


class RayActor:
    """It makes its work once, and does one unit at a time."""

    def make(self, factory: Factory, key: Hashable, expected: str) -> Any:
        """Make the work; another version of consilience than the driver's is refused."""
        where = f"{socket.gethostname()}, process {os.getpid()}"
        if (version := build()) != expected:
            error = ConsilienceError(
                f"consilience {version}", expected=f"{expected}, as where the command was started",
                where=where, todo="Install the same version on all nodes.",
            )  # fmt: skip
            return UnitFailure(str(error), is_expected=True)
        self._work = attempted(factory, key)
        return self._work if isinstance(self._work, UnitFailure) else where

    def do(self, payload: Any) -> Any:
        """The value of a unit, or why it failed."""
        return attempted(self._work, payload, lambda steps: None)


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
