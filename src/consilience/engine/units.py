"""Units of work, what becomes of them, and what workers report."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from consilience.errors import ConsilienceError
from consilience.watch import Advance

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
