"""The plan of a run: what would be asked, where it would be kept, and how long it would take.

Shards are fixed parts of the groups of a run, for several processes with one folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.asking.noise import sample_size, variations
from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.text import counted, duration, evenly
from consilience.endpoints.usage import BYTES_A_TOKEN, PlannedUsage
from consilience.options import Output
from consilience.report.export import Shown
from consilience.runs.folder import FORMAT, record_of, refuse_other_run

if TYPE_CHECKING:
    from consilience.endpoints.client import Client
    from consilience.kinds.base import Inquiry


SAMPLED = 6
"""How many groups are asked to measure the rate."""

MARGIN = 1.5
"""By how much more than a sample gives the usage of all queries is bounded."""

SAMPLED_SECONDS = 20
"""Seconds after which no further sample is asked."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts, numbered from 1."""

    number: int
    count: int

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
    total_groups: int
    """The number of groups of the run."""
    total_queries: int
    left: Sequence[str] = ()
    """The groups of other shards that are not known to be complete."""
    folder: str = ""
    """The folder of the run; empty where nothing was asked."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for a JSON document."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class ProbePlan(Shown):
    """What a run would ask."""

    model: str
    suite: str
    """The suite or the task."""
    protocol: Protocol
    groups: int
    items: int
    variants: str
    """Number of variants of each item."""
    candidates: str
    """Number of candidates of each query."""
    queries: int
    """Number of queries of the whole run."""
    complete: int
    """Number of queries that the folder already has answers to."""
    folder: str
    is_new: bool
    """Whether the folder has no run yet."""
    loading: float
    """Seconds that loading the model took."""
    sampled: int
    """Number of queries that were asked to measure the rate."""
    rate: float
    """Queries in a second, in the sample; 0 where it was not measured."""
    usage: PlannedUsage | None = None
    """Of a model behind a URL: the requests and tokens of what is not yet complete, of the noise
    floor and of the proof, at most."""
    repeated: int = 0
    """Of a model behind a URL: the prompts that are sent again, for the noise floor."""
    sent: int = 0
    """Of a model behind a URL: the requests that were sent, to find out how it is asked."""
    cost: float | None = None
    """What these requests and tokens would cost, at most; None where no price was given."""

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def printed(self, output: Output) -> list[str]:
        """The plan in words."""
        return self.lines()

    def document(self) -> dict[str, Any]:
        """All fields and the estimate."""
        return {"plan": self.to_dict()}

    def lines(self) -> list[str]:
        """The plan in words, as ``--dry-run`` prints it."""
        left = self.queries - self.complete
        resumes = f"resumes: {self.complete:,} of {self.queries:,} complete"
        rows = {
            "Groups": f"{self.groups:,}",
            "Items": f"{self.items:,}, each in {self.variants}",
            "Queries": f"{self.queries:,}, each with {self.candidates} candidates",
            "Folder": f"{self.folder} ({'new' if self.is_new else resumes})",
        }
        rows |= self.requests_in_words() or {
            "Time": f"about {duration(self.seconds)} to ask {left:,} queries; loading took "
            f"{duration(self.loading)}",
            "Measured": f"{self.rate:,.1f} queries/s in a sample of {self.sampled:,}",
        }
        return [
            f"Plan: {self.model} on {self.suite} ({self.protocol}). Nothing is written.",
            *(f"{name:9} {text}" for name, text in rows.items()),
        ]

    @property
    def seconds(self) -> float:
        """Estimated seconds to ask what is not yet complete."""
        return (self.queries - self.complete) / self.rate if self.rate else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All fields and the estimate, for a JSON document."""
        return {**asdict(self), "seconds": self.seconds}

    def requests_in_words(self, server: str = "the server") -> dict[str, str]:
        """Requests, tokens and cost of a model behind a URL, by what they are; empty for others."""
        if self.usage is None:
            return {}
        most = self.usage.most
        estimate = f"estimated at {BYTES_A_TOKEN} bytes a token" if most.is_estimated else "counted"
        left = self.queries - self.complete
        sampled = "" if self.sampled >= left else f", from a sample of {self.sampled:,}"
        rows = {
            "Requests": f"at most {most.requests:,} for {left:,} queries{sampled}, "
            f"{self.repeated:,} repeats for the noise floor and {self.sent:,} that test {server}",
            "Tokens": f"at most {round(most.tokens_read):,} read ({estimate}) and "
            f"{most.tokens_written:,} written",
            "Sent": f"{counted(self.sent, 'request')} now, which tested {server}",
        }
        return rows | ({} if self.cost is None else {"Cost": f"at most {self.cost:.4g}"})


def together(plans: Sequence[ProbePlan]) -> ProbePlan:
    """The requests, tokens and cost of several plans together; the rest is that of the first."""
    costs = [plan.cost for plan in plans if plan.cost is not None]
    names = ("queries", "complete", "sampled", "repeated", "sent")
    return replace(
        plans[0],
        usage=sum((plan.usage for plan in plans if plan.usage), PlannedUsage()),
        cost=sum(costs) if costs else None,
        **{name: sum(getattr(plan, name) for plan in plans) for name in names},
    )


def measured_rate(samples: Sequence[Callable[[], int]]) -> tuple[int, float]:
    """Ask samples for about ``SAMPLED_SECONDS``; queries, and queries a second.

    A sample asks its queries and returns their number. The first is asked once more before the
    clock starts, unless it takes that long.
    """
    begin = time.monotonic()
    sampled = samples[0]()
    seconds = time.monotonic() - begin
    if seconds < SAMPLED_SECONDS:
        sampled, start = 0, time.monotonic()
        for ask in samples:
            sampled += ask()
            if time.monotonic() - begin >= SAMPLED_SECONDS:
                break
        seconds = time.monotonic() - start
    return sampled, sampled / max(seconds, 1e-9)


def sampled_plan(inquiry: Inquiry, left: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a plan that a sample gives: its size, and the rate or the usage.

    A model behind a URL is asked nothing: requests are made, and not sent, for the time of a
    sample. ``usage`` is an upper bound: it has the requests of all queries, or half more than those
    of some queries give; the repeats of the noise floor, each as large as those of the largest
    group; and the proof. ``left``: the number of queries of each group that are not yet complete.
    """
    samples = inquiry.samples

    def ask(group: str, *, whole: bool = False) -> int:
        return inquiry.ask(group, None if whole else samples[group]).height

    client: Client | None = getattr(inquiry.model, "client", None)
    if client is None or client.is_free:
        sampled, rate = measured_rate([partial(ask, group) for group in evenly([*left], SAMPLED)])
        return {"sampled": sampled, "rate": rate}
    begin, plans = time.monotonic(), list[tuple[PlannedUsage, int, int]]()

    def planned(ask: Callable[[], int]) -> tuple[PlannedUsage, int]:
        plan = client.plan = PlannedUsage()
        return plan, max(1, ask())

    try:
        for group, size in left.items():
            if size:
                start = time.monotonic()
                plan, sampled = planned(partial(ask, group))
                now = time.monotonic()
                whole = now + (now - start) * size / sampled
                if sampled < size and whole < begin + SAMPLED_SECONDS:
                    plan, sampled = planned(partial(ask, group, whole=True))
                plans.append((plan, sampled, size))
    finally:
        client.plan = None
    ways = len(variations(client))
    queries = sum(inquiry.groups.values())
    repeated = ways * sample_size(queries, ways, inquiry.options.noise_floor) if plans else 0
    sent = client.usage
    usage = PlannedUsage(sent.requests, sent.tokens_read, sent.tokens_written)
    for plan, sampled, size in plans:
        usage += plan if sampled == size else plan.times(MARGIN * size / sampled)
    # One request may be for several queries, and a repeat for one of them.
    shares = [(plan, max(1, min(plan.most.requests, sampled))) for plan, sampled, _ in plans]
    if repeated:
        plan, sampled = max(shares, key=lambda one: one[0].most.tokens_read / one[1])
        usage += plan.times(MARGIN * repeated / sampled)
    price = client.connection.price
    return {
        "sampled": sum(sampled for _, sampled, _ in plans),
        "rate": 0.0,
        "usage": usage,
        "repeated": repeated,
        "sent": client.usage.requests,
        "cost": None if price is None else usage.most.cost(price),
    }


def complete_groups(
    folder: Path, settings: Mapping[str, object] | None = None
) -> tuple[bool, set[str]]:
    """Whether a folder has no run, and its complete groups; one of other ``settings`` raises."""
    record = record_of(folder)
    if not record:
        return True, set()
    if settings is not None:
        now = json.loads(json.dumps({"format": FORMAT, **settings}))
        refuse_other_run(record["settings"], now, folder)
    files = {path.stem for path in (folder / "answers").glob("*.parquet")}
    return False, files & set(record["answers"])
