"""How often intervals of violation rates contain the true value.

`python bench/violation_simulations.py [SIMULATIONS]` prints the table of docs/expectations.md. Data
sets are answers of a simulated model to questions with expectations, counted and resampled as those
of a run. Everything is seeded by the name of its row.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.core.expectations import (
    NO_OPTION,
    Expectation,
    ExpectationKind,
    Reference,
    instances,
)
from consilience.metrics.registry import METRICS, Grid, Metric, Tally
from consilience.metrics.resampling import ClusterCounts
from consilience.metrics.statistics import bootstrap_interval, resamples

DRAWN = 999
"""Bootstrap samples of a simulated data set."""

LARGE = 4_000
"""Components of the data set whose value is the true one."""

ANSWERS = ("yes", "no")
RULES: Mapping[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "same": {},
    "implied": {("yes",): ("yes",)},
}


@dataclass(frozen=True)
class Model:
    """A simulated model and the expectations that its answers are checked by."""

    sizes: Sequence[int]
    """How many expectations each component has: pairs with one question in common."""
    a: float
    """Each component violates its expectations with a probability of its own, Beta(a, b)."""
    b: float
    """See ``a``."""
    kind: ExpectationKind = "same"
    """The kind of all expectations."""
    variants: int = 1
    """In how many variants each question is asked."""
    yes: float = 0.7
    """How often the shared question gets the answer yes."""
    unmatched: float = 0
    """How often a text is no option."""

    def grid(self, generator: np.random.Generator) -> Grid:
        """A data set: the instances of all expectations."""
        expectations: list[Expectation] = []
        replies: dict[tuple[str, str], str | None] = {}
        for component, size in enumerate(self.sizes):
            rate = generator.beta(self.a, self.b)
            hub = Reference(f"hub {component}", ANSWERS)
            first = generator.random(self.variants) >= self.yes
            for at, answer in enumerate(first):
                replies[hub.item, str(at)] = ANSWERS[int(answer)]
            for number in range(size):
                other = Reference(f"{component} {number}", ANSWERS)
                differs = generator.random(self.variants) < rate
                for at, answer in enumerate(first ^ differs):
                    replies[other.item, str(at)] = ANSWERS[int(answer)]
                expectations.append(Expectation(self.kind, (hub,), other, RULES[self.kind]))
        if self.unmatched:
            for query in replies:
                if generator.random() < self.unmatched:
                    replies[query] = NO_OPTION
        counted = tuple(
            tuple(instances(one, replies, map(str, range(self.variants)))) for one in expectations
        )
        none = np.zeros((0, 1), dtype=np.int64)
        pairs, subjects = np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.object_)
        return Grid(none, none, pairs, subjects, none[:, 0], instances=counted)

    @property
    def large(self) -> Model:
        """The same model with many more components, in the same proportions."""
        return replace(self, sizes=tuple(self.sizes) * (LARGE // len(self.sizes)))


ROWS = {
    "48 pairs": Model((1,) * 48, 1, 2),
    "24 pairs": Model((1,) * 24, 1, 2),
    "8 pairs": Model((1,) * 8, 1, 2),
    "24 pairs, 8 variants": Model((1,) * 24, 1, 2, variants=8),
    "8 pairs, 8 variants": Model((1,) * 8, 1, 2, variants=8),
    "24 pairs, 4 variants, condition met by half": Model((1,) * 24, 1, 2, "implied", 4, 0.5),
    "24 pairs, condition met by a fifth": Model((1,) * 24, 1, 2, "implied", 1, 0.2),
    "12 components of 4 pairs": Model((4,) * 12, 1, 2),
    "12 components of 1 to 12 pairs": Model(tuple(range(1, 13)), 1, 2),
    "6 components of 1, 1, 2, 4, 8 and 16 pairs": Model((1, 1, 2, 4, 8, 16), 1, 2),
    "3 components of 10 pairs": Model((10,) * 3, 1, 2),
    "24 pairs, 4 variants, a fifth of the texts no option": Model(
        (1,) * 24, 1, 2, variants=4, unmatched=0.2
    ),
    "48 pairs, 3 % violated": Model((1,) * 48, 0.3, 9.7),
    "24 pairs, 8 variants, 3 % violated": Model((1,) * 24, 0.3, 9.7, variants=8),
}
"""The data of each row."""

RATE, CHANCE = METRICS["violation_rate"], METRICS["chance_violation_rate"]


def counted(metric: Metric, grid: Grid) -> Tally:
    """What a metric counts, which is defined for these data."""
    tally = metric.count(grid)
    assert tally is not None
    return tally


def interval(
    tally: Tally, generator: np.random.Generator, *, alone: bool = False
) -> tuple[float, float]:
    """The 95 % interval of a metric; ``alone``: with every expectation as a cluster of its own."""
    if alone:
        names = np.array([str(at) for at in range(len(tally.counts))], dtype=object)
        tally = replace(tally, clusters=names)
    assert tally.clusters is not None
    clusters = sorted(set(tally.clusters.tolist()))
    weights = resamples(len(clusters), DRAWN, generator).T
    replicates = ClusterCounts({("m", "all"): tally}, clusters).weigh([weights])["m", "all"]
    value, is_share = tally.share().value, tally.is_proportion
    bounds = (0.0, 1.0)
    return bootstrap_interval(
        value, replicates.values, replicates.clusters, bounds, proportion=is_share
    )


def coverage(count: int) -> Iterator[tuple[str, list[str]]]:
    """How often 95 % intervals hold the true value, in percent, and how many have one."""
    methods = {"ours": (RATE, False), "alone": (RATE, True), "chance": (CHANCE, False)}
    for name, model in ROWS.items():
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        large = model.large.grid(generator)
        truth = {one.count: counted(one, large).share().value for one in (RATE, CHANCE)}
        hits: dict[str, list[bool]] = {method: [] for method in methods}
        for _ in range(count):
            grid = model.grid(generator)
            for method, (metric, alone) in methods.items():
                low, high = interval(counted(metric, grid), generator, alone=alone)
                if not np.isnan(low):
                    hits[method].append(low <= truth[metric.count] <= high)
        shares = [f"{100 * np.mean(of):.1f}" for of in hits.values()]
        known = 100 * len(hits["ours"]) / count
        yield name, [f"{100 * truth[RATE.count]:.1f}", *shares, f"{known:.0f}"]


def main() -> None:
    """The table, of so many data sets a row."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    print("| data | violated | ours | every expectation alone | chance level | with interval |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, cells in coverage(count):
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
