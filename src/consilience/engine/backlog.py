"""Units that wait for a worker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, KeysView

from consilience.engine.units import Needs, Unit


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
