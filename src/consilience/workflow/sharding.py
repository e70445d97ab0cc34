"""Shards: fixed parts of the groups of a run, for several processes with one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from consilience.core.errors import ConsilienceError


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts."""

    number: int
    """Which part, from 1."""
    count: int
    """How many parts there are."""

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard of a text such as ``2/8``; any other text raises."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        shard = cls(*map(int, match.groups())) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.count:
            raise ConsilienceError(
                f"--shard {text}", expected="I/N with I from 1 to N, such as 1/8 for the first of 8"
            )
        return shard

    def part(self, sizes: Sequence[int]) -> range:
        """The positions of the part in a sequence of things of these sizes.

        Parts are contiguous, disjoint and cover all things. A thing belongs to the part in whose
        share of the total size its middle is, so that parts have about the same size. Some are
        empty where there are fewer things than parts, or where one thing is large.
        """
        total, before, positions = max(1, 2 * sum(sizes)), 0, []
        for at, size in enumerate(sizes):
            middle = 2 * before + size
            if min(middle * self.count // total, self.count - 1) == self.number - 1:
                positions.append(at)
            before += size
        return range(positions[0], positions[-1] + 1) if positions else range(0)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a shard did, where the run is not complete."""

    shard: str
    """Which part, such as ``2/8``."""
    groups: Sequence[str]
    """The groups of the part; of several seeds with the seed before the group."""
    queries: int
    """The number of their queries."""
    total_groups: int
    """The number of groups of the run."""
    total_queries: int
    """The number of queries of the run."""
    left: Sequence[str] = ()
    """The groups of other shards that are not known to be complete."""
    folder: str = ""
    """The folder of the run; empty where nothing was asked."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for a JSON document."""
        return asdict(self)
