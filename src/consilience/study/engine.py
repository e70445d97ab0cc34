"""Units of work, the backlog, and giving units to workers. Nothing here knows suites or models."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, KeysView
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

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
    """Its id, unlike all others."""
    key: Hashable
    """The state of its worker, such as a loaded model: workers serve the units of one key."""
    payload: Any
    """What the worker gets; it can be pickled."""
    size: int = 1
    """Its size in steps of progress."""
    needs: Needs = field(default_factory=Needs)
    """What its worker occupies; the same for all units of a key."""


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
    """What became of a unit: a value or a failure."""

    unit: Unit
    value: Any
    """What the work returned; None for a failure."""
    failure: UnitFailure | None
    """Why it failed; None for a value."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker reports."""

    worker: int
    kind: Literal["ready", "advanced", "done", "failed", "died"]
    """ready: it can take units. failed: while it was made, or by its unit. died: it is gone."""
    value: Any = None
    """Where it is; all steps of its unit so far; a value; a ``UnitFailure``; why it died."""


class Workers(Protocol):
    """Where workers are. Each has a number, and does one unit at a time."""

    @property
    def count(self) -> int:
        """How many workers there may be at once, without those that wait on the network."""

    def start(self, factory: Factory, key: Hashable, needs: Needs) -> int:
        """Start a worker, and return its number at once."""

    def give(self, worker: int, unit: Unit) -> None:
        """Give a unit to an idle worker."""

    def events(self) -> list[Event]:
        """What workers report, after a wait for the first; empty now and then."""

    def stop(self, worker: int) -> None:
        """End a worker, if it is not gone."""

    def close(self) -> None:
        """End all workers."""


def made(factory: Factory, key: Hashable) -> Work | UnitFailure:
    """The work of a worker, or why it cannot be made; called in the worker."""
    try:
        return factory(key)
    except Exception as error:
        return described(error)


def attempted(work: Work, payload: Any, advance: Advance) -> Any | UnitFailure:
    """The value of a unit, or why it failed; called in the worker."""
    try:
        return work(payload, advance)
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
        self._waiting: dict[Hashable, deque[Unit]] = {}
        self._sizes: Counter[Hashable] = Counter()
        self._needs: dict[Hashable, Needs] = {}
        for unit in units:
            self.add(unit)

    def add(self, unit: Unit, *, is_next: bool = False) -> None:
        """Have a unit wait: after all others of its key, or before them."""
        units = self._waiting.setdefault(unit.key, deque())
        units.appendleft(unit) if is_next else units.append(unit)
        self._sizes[unit.key] += unit.size
        self._needs.setdefault(unit.key, unit.needs)

    def take(self, key: Hashable) -> Unit:
        """The next unit of a key, which does not wait any more."""
        units = self._waiting[key]
        unit = units.popleft()
        self._sizes[key] -= unit.size
        if not units:
            del self._waiting[key]
        return unit

    def drop(self, is_dropped: Callable[[Unit], bool]) -> list[Unit]:
        """Take out the units that nobody needs any more."""
        units = [unit for key in list(self._waiting) for unit in self._taken(key)]
        dropped = [unit for unit in units if is_dropped(unit)]
        for unit in units:
            if not is_dropped(unit):
                self.add(unit)
        return dropped

    def _taken(self, key: Hashable) -> list[Unit]:
        return [self.take(key) for _ in range(len(self._waiting[key]))]

    @property
    def total(self) -> int:
        """The steps of all units that wait."""
        return sum(self._sizes.values())

    @property
    def keys(self) -> KeysView[Hashable]:
        return self._waiting.keys()

    def count(self, key: Hashable) -> int:
        """How many units of a key wait."""
        return len(self._waiting.get(key, ()))

    def size(self, key: Hashable) -> int:
        """The steps of the units of a key that wait."""
        return self._sizes[key]

    def needs(self, key: Hashable) -> Needs:
        """What a worker of a key occupies."""
        return self._needs[key]

    def __bool__(self) -> bool:
        return bool(self._waiting)


TRIES = 3
"""How often a unit is tried whose worker dies."""


def run_units(
    units: Iterable[Unit] | Backlog,
    factory: Factory,
    workers: Workers,
    *,
    advance: Advance = lambda steps: None,
    inform: Callable[[str], None] = lambda line: None,
) -> Generator[UnitOutcome, None, None]:
    """What becomes of each unit, in the order in which they end; the workers are closed at the end.

    A worker has one unit at a time, and a caller that is slow to take outcomes slows the workers,
    so that at most one value for each worker is in memory. A unit whose worker dies is tried
    again by another one, three times in all; a unit that raises is not. After an error that no
    input should cause the worker is replaced, because an accelerator may be unusable then.
    ``units``: as a ``Backlog`` the caller may change them after each outcome.
    """
    backlog = units if isinstance(units, Backlog) else Backlog(units)
    dispatcher = _Dispatcher(backlog, factory, workers, advance, inform)
    try:
        yield from dispatcher.outcomes()
    finally:
        workers.close()


@dataclass(slots=True)
class _Worker:
    """A worker that was started."""

    key: Hashable
    is_ready: bool = False
    unit: Unit | None = None
    """Its unit; None while it has none."""


class _Dispatcher:
    """The units that wait, and the workers that there are."""

    def __init__(
        self,
        backlog: Backlog,
        factory: Factory,
        site: Workers,
        advance: Advance,
        inform: Callable[[str], None],
    ) -> None:
        self._factory, self._site = factory, site
        self._advance, self._inform = advance, inform
        self._backlog = backlog
        self._workers: dict[int, _Worker] = {}
        self._deaths: Counter[Hashable] = Counter()
        self._faults: dict[Hashable, UnitFailure] = {}
        self._steps: Counter[str] = Counter()

    def outcomes(self) -> Iterator[UnitOutcome]:
        while self._backlog or any(worker.unit for worker in self._workers.values()):
            yield from self._give_up()
            self._occupy()
            self._hire()
            if not self._workers:
                continue  # only units of keys that cannot be served were left
            for event in self._site.events():
                if event.worker in self._workers:
                    yield from self._handle(event)

    def _give_up(self) -> Iterator[UnitOutcome]:
        """Failures of units that no worker can serve."""
        served = {worker.key for worker in self._workers.values()}
        for key, fault in self._faults.items():
            if key not in served:
                while self._backlog.count(key):
                    yield self._ended(self._backlog.take(key), fault)

    def _occupy(self) -> None:
        """Give units to idle workers, and stop those for which none is left."""
        for number, worker in list(self._workers.items()):
            if worker.unit is None and not self._backlog.count(worker.key):
                self._dismiss(number)
            elif worker.unit is None and worker.is_ready:
                worker.unit = self._backlog.take(worker.key)
                self._site.give(number, worker.unit)

    def _hire(self) -> None:
        """Start workers: each for the key with the most waiting steps for each of its workers."""
        while True:
            present = Counter(worker.key for worker in self._workers.values())
            starting = Counter(
                worker.key for worker in self._workers.values() if not worker.is_ready
            )
            keys = [
                key
                for key in self._backlog.keys
                if key not in self._faults
                and self._backlog.count(key) > starting[key]
                and self._has_room(key, present)
            ]
            if not keys:
                return
            key = max(keys, key=lambda key: self._backlog.size(key) / (present[key] + 1))
            number = self._site.start(self._factory, key, self._backlog.needs(key))
            self._workers[number] = _Worker(key)

    def _has_room(self, key: Hashable, present: Counter[Hashable]) -> bool:
        """Whether there may be one more worker of a key, beside those that are present."""
        needs = self._backlog.needs
        if needs(key).is_network:
            return not present[key]
        counted = sum(count for one, count in present.items() if not needs(one).is_network)
        return counted < self._site.count

    def _handle(self, event: Event) -> Iterator[UnitOutcome]:
        worker = self._workers[event.worker]
        unit = worker.unit
        if event.kind == "ready":
            worker.is_ready = True
        elif event.kind == "died":
            self._dismiss(event.worker)
            yield from self._after_death(worker, event.value)
        elif unit is None:  # it could not be made
            self._dismiss(event.worker)
            self._fault(worker.key, event.value)
        elif event.kind == "advanced":
            self._progress(unit, event.value)
        else:
            failure = event.value if event.kind == "failed" else None
            worker.unit = None
            if failure and not failure.is_expected:
                self._dismiss(event.worker)
            yield self._ended(unit, failure, None if failure else event.value)

    def _after_death(self, worker: _Worker, reason: str) -> Iterator[UnitOutcome]:
        """Try its unit again; after three deaths it fails, or all units of a key do."""
        unit = worker.unit
        about: Hashable = unit.id if unit else worker.key
        self._deaths[about] += 1
        failure = UnitFailure(reason)
        if unit is None:
            if self._deaths[about] == TRIES:
                self._fault(worker.key, failure)
        elif self._deaths[about] == TRIES:
            yield self._ended(unit, failure)
        else:
            self._inform(f"{unit.id}: {reason} It is tried again.")
            self._backlog.add(unit, is_next=True)

    def _fault(self, key: Hashable, failure: UnitFailure) -> None:
        """Start no more workers for a key; those that work go on."""
        if any(worker.key == key for worker in self._workers.values()):
            self._inform(f"a worker could not be started: {failure.message}")
        self._faults[key] = failure

    def _dismiss(self, number: int) -> None:
        self._site.stop(number)
        del self._workers[number]

    def _ended(self, unit: Unit, failure: UnitFailure | None, value: Any = None) -> UnitOutcome:
        self._progress(unit, unit.size)
        self._steps.pop(unit.id, None)
        return UnitOutcome(unit, value, failure)

    def _progress(self, unit: Unit, steps: int) -> None:
        """Show all steps of a unit so far; those of an earlier try are not shown again."""
        if (new := steps - self._steps[unit.id]) > 0:
            self._steps[unit.id] = steps
            self._advance(new)
