"""Units of work, the backlog, and giving units to workers. Nothing here knows suites or models."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from consilience.core.errors import ConsilienceError
from consilience.core.process import Advance

Work = Callable[[Any, Advance], Any]
"""What a worker does with the payload of a unit, and its progress."""

Factory = Callable[[Any], Work]
"""Makes the work of a worker from the key of its units. An importable function."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a worker occupies. The local engine gives each worker a process and ignores this."""

    cpus: float = 1
    gpus: float = 0
    """GPUs; a fraction shares one."""
    resources: tuple[tuple[str, float], ...] = ()
    """Names that the nodes of a cluster were started with, and amounts."""
    is_network: bool = False
    """Whether it waits on the network and not on a processor. Its key has one worker at a time, a
    process of the driver's machine that does not count."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work. Units are independent: they may run anywhere and in any order."""

    id: str
    key: Hashable
    """The state of its worker, such as a loaded model: workers serve the units of one key."""
    payload: Any
    """What the worker gets; it can be pickled."""
    size: int = 1
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """Why a unit has no value."""

    message: str
    traceback: str = ""
    """Where it was raised; empty for wrong input and for a worker that died."""
    is_expected: bool = False
    """Whether it was raised as wrong input (``ConsilienceError``, ``OSError``)."""


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What became of a unit: a value, or a failure."""

    unit: Unit
    value: Any
    failure: UnitFailure | None


class WorkerDiedError(Exception):
    """A worker is gone, and why."""


class Worker(Protocol):
    """A worker, which does one unit at a time. ``make`` and ``do`` block, in a thread of their own.

    They return ``UnitFailure`` for what raises, and raise ``WorkerDiedError``.
    """

    def make(self) -> Any:
        """Make its work, before it gets units."""

    def do(self, payload: Any, show: Advance) -> Any:
        """The value of a unit; ``show`` gets the number of all its steps so far."""

    def stop(self) -> None:
        """End it, if it is not gone."""


class Workers(Protocol):
    """Where workers are."""

    @property
    def count(self) -> int:
        """How many workers there may be at once, without those that wait on the network."""

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> Worker:
        """Start a worker, without waiting until it is made."""

    def close(self) -> None:
        """End all workers."""


def attempted(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or why it failed (``UnitFailure``)."""
    try:
        return call(*arguments)
    except WorkerDiedError:
        raise
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


class Backlog:
    """Units that wait, by key. While others are done, more may be added, and some dropped."""

    def __init__(self, units: Iterable[Unit] = ()) -> None:
        self.waiting: dict[Hashable, deque[Unit]] = {}
        for unit in units:
            self.add(unit)

    def add(self, unit: Unit, *, is_next: bool = False) -> None:
        """Have a unit wait: after all others of its key, or before them."""
        units = self.waiting.setdefault(unit.key, deque())
        units.appendleft(unit) if is_next else units.append(unit)

    def take(self, key: Hashable) -> Unit:
        """The next unit of a key, which does not wait any more."""
        unit = self.waiting[key].popleft()
        if not self.waiting[key]:
            del self.waiting[key]
        return unit

    def drop(self, is_dropped: Callable[[Unit], bool]) -> list[Unit]:
        """Take out the units that nobody needs any more."""
        units = [unit for of_key in self.waiting.values() for unit in of_key]
        self.waiting.clear()
        for unit in units:
            if not is_dropped(unit):
                self.add(unit)
        return [unit for unit in units if is_dropped(unit)]

    @property
    def total(self) -> int:
        return sum(map(self.size, self.waiting))

    def count(self, key: Hashable) -> int:
        return len(self.waiting.get(key, ()))

    def size(self, key: Hashable) -> int:
        return sum(unit.size for unit in self.waiting[key])


TRIES = 3
"""How often a unit is tried whose worker dies."""


def run_units(
    units: Iterable[Unit] | Backlog,
    factory: Factory,
    workers: Workers,
    *,
    network: Workers | None = None,
    advance: Advance = lambda steps: None,
    inform: Callable[[str], None] = lambda line: None,
) -> Generator[UnitOutcome, None, None]:
    """What becomes of each unit, in the order in which they end; the workers are closed at the end.

    A worker has one unit at a time, and a caller that is slow to take outcomes slows the workers,
    so that at most one value for each worker is in memory. A unit whose worker dies is tried
    again by another one, three times in all; a unit that raises is not. After an error that no
    input should cause the worker is replaced, because an accelerator may be unusable then.
    ``units``: as a ``Backlog`` the caller may change them after each outcome. ``network``: where
    workers are that wait on the network, if not with the others.
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
    """A worker that was started, and its unit."""

    worker: Worker
    key: Hashable
    is_network: bool
    is_ready: bool = False
    unit: Unit | None = None


@dataclass(slots=True)
class _Dispatcher:
    """The units that wait, and the workers that there are."""

    backlog: Backlog
    factory: Factory
    site: Workers
    network: Workers
    advance: Advance
    inform: Callable[[str], None]
    workers: list[_Hired] = field(default_factory=list)
    deaths: Counter[Hashable] = field(default_factory=Counter)
    faults: dict[Hashable, UnitFailure] = field(default_factory=dict)
    steps: Counter[str] = field(default_factory=Counter)
    events: SimpleQueue[tuple[_Hired, str, Any]] = field(default_factory=SimpleQueue)
    """Workers, what they report (ready, advanced, done, died), and their steps, value or reason."""

    def outcomes(self) -> Iterator[UnitOutcome]:
        while self.backlog.waiting or any(worker.unit for worker in self.workers):
            served = {worker.key for worker in self.workers}
            for key in [key for key in self.faults if key not in served]:
                while self.backlog.count(key):
                    yield self._ended(self.backlog.take(key), self.faults[key])
            self._occupy()
            self._hire()
            if self.workers:
                worker, kind, value = self.events.get()
                if worker in self.workers:
                    yield from self._handle(worker, kind, value)

    def _occupy(self) -> None:
        """Give units to idle workers, and stop those for which none is left."""
        for worker in list(self.workers):
            if worker.unit is None and not self.backlog.count(worker.key):
                self._dismiss(worker)
            elif worker.unit is None and worker.is_ready:
                worker.unit = self.backlog.take(worker.key)
                show = lambda steps, worker=worker: self.events.put((worker, "advanced", steps))  # noqa: E731
                self._call(worker, "done", worker.worker.do, worker.unit.payload, show)

    def _hire(self) -> None:
        """Start workers: each for the key with the most waiting steps for each of its workers."""
        while True:
            present = Counter(worker.key for worker in self.workers)
            starting = Counter(worker.key for worker in self.workers if not worker.is_ready)
            has_room = sum(not worker.is_network for worker in self.workers) < self.site.count
            keys = [
                key
                for key, units in self.backlog.waiting.items()
                if key not in self.faults
                and len(units) > starting[key]
                and (not present[key] if units[0].needs.is_network else has_room)
            ]
            if not keys:
                return
            key = max(keys, key=lambda key: self.backlog.size(key) / (present[key] + 1))
            needs = self.backlog.waiting[key][0].needs
            site = self.network if needs.is_network else self.site
            worker = site.start(self.factory, key, needs)
            self.workers.append(_Hired(worker, key, needs.is_network))
            self._call(self.workers[-1], "ready", worker.make)

    def _call(self, worker: _Hired, kind: str, method: Callable[..., Any], *arguments: Any) -> None:
        """Have a worker do something; its end is an event."""

        def call() -> None:
            try:
                event = kind, attempted(method, *arguments)
            except WorkerDiedError as death:
                event = "died", str(death)
            self.events.put((worker, *event))

        Thread(target=call, daemon=True).start()

    def _handle(self, worker: _Hired, kind: str, value: Any) -> Iterator[UnitOutcome]:
        unit, failure = worker.unit, value if isinstance(value, UnitFailure) else None
        if kind == "died":
            self._dismiss(worker)
            yield from self._after_death(worker, value)
        elif unit is None:
            worker.is_ready = True
            if failure:
                self._dismiss(worker)
                self._fault(worker.key, failure)
        elif kind == "advanced":
            self._progress(unit, value)
        else:
            worker.unit = None
            if failure and not failure.is_expected:
                self._dismiss(worker)
            yield self._ended(unit, failure, None if failure else value)

    def _after_death(self, worker: _Hired, reason: str) -> Iterator[UnitOutcome]:
        """Try its unit again; after three deaths it fails, or all units of a key do."""
        unit, failure = worker.unit, UnitFailure(reason)
        about: Hashable = unit.id if unit else worker.key
        self.deaths[about] += 1
        if self.deaths[about] < TRIES:
            if unit:
                self.inform(f"{unit.id}: {reason} It is tried again.")
                self.backlog.add(unit, is_next=True)
        elif unit:
            yield self._ended(unit, failure)
        else:
            self._fault(worker.key, failure)

    def _fault(self, key: Hashable, failure: UnitFailure) -> None:
        """Start no more workers for a key; those that work go on."""
        if any(worker.key == key for worker in self.workers):
            self.inform(f"a worker could not be started: {failure.message}")
        self.faults[key] = failure

    def _dismiss(self, worker: _Hired) -> None:
        worker.worker.stop()
        self.workers.remove(worker)

    def _ended(self, unit: Unit, failure: UnitFailure | None, value: Any = None) -> UnitOutcome:
        self._progress(unit, unit.size)
        return UnitOutcome(unit, value, failure)

    def _progress(self, unit: Unit, steps: int) -> None:
        """Show all steps of a unit so far; those of an earlier try are not shown again."""
        if (new := steps - self.steps[unit.id]) > 0:
            self.steps[unit.id] = steps
            self.advance(new)
