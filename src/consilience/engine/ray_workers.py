"""Workers on a Ray cluster: one actor each (the extra ``ray``).

Ray does not restart an actor: ``run_units`` replaces one that died, and counts the tries of a unit.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from consilience.engine.units import Event, Factory, Needs, Unit, UnitFailure, attempted, made
from consilience.errors import ConsilienceError, needs_extra, shortened
from consilience.provenance import build

INTERVAL = 1.0
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
        wait = partial(self._ray.wait, list(self._running), num_returns=1, timeout=INTERVAL)
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
