"""Workers of a cluster, with processes on this machine for what waits on the network."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from consilience.engine.local_workers import LocalWorkers
from consilience.engine.units import Event, Factory, Needs, Unit, Workers


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
