"""Gives units to workers: those of a key to workers that have its state already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from consilience.engine.backlog import Backlog
from consilience.engine.units import Event, Factory, Unit, UnitFailure, UnitOutcome, Workers
from consilience.watch import Advance

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
