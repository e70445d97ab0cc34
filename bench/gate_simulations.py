"""How often a gate passes, fails or leaves undecided a run whose true value is known.

`python bench/gate_simulations.py [SIMULATIONS] [TABLE,TABLE]` prints the tables of
docs/statistics.md: baseline, absolute. Each row is seeded by its name. Errors and
clusters are made from the answers as `measure` and `compare` make them, with 500 bootstrap samples,
which are the same for all data sets of a row.

An item is steady with a probability that is its group's. A steady item gets its usual answer in all
of four variants; others get answers drawn by the shares of the candidates, as usual answers are.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from consilience.core.items import Floats
from consilience.gating.rules import Precise, Threshold
from consilience.metrics import resampling, statistics
from consilience.metrics.registry import METRICS, Grid, Tally
from consilience.metrics.resampling import ClusterCounts, Resampling
from consilience.metrics.statistics import (
    NAN,
    bootstrap_error,
    difference_bounds,
    skewness,
    within_error,
)

for module in (statistics, resampling):
    vars(module)["REPLICATES"] = 500

VARIANTS = 4
PAIRS = np.array(list(combinations(range(VARIANTS), 2)))
EVEN, UNEVEN = (0.2,) * 5, (0.7, 0.15, 0.1, 0.05)
Random = np.random.Generator
Codes = list[np.ndarray]
"""Answers of each group (item, variant)."""


@dataclass(frozen=True)
class World:
    """How items, groups and models vary."""

    groups: int = 1
    """How many groups; of one group the items are clusters, of several the groups."""
    items: int = 100
    """Items of each group."""
    per_subject: int = 1
    """Items of a subject, which are steady together."""
    spread: float = 0.1
    """Standard deviation over groups of how often items are steady."""
    moves: float = 0.05
    """Standard deviation over groups of the true difference between the models."""
    falls: str = "alike"
    """How the true difference varies over groups: ``alike`` (uniform, ``moves``), ``skewed``
    (exponential, a few groups fall most), or ``rare`` (few fall by 50 points, the others not)."""
    shares: tuple[float, ...] = EVEN
    """How often candidates are drawn."""
    changed: float = 0.3
    """Share of items that the second model treats independently of the first."""
    metric: str = "consistency"
    """The number that is decided."""
    value: float = 0.8
    """Its true value for the baseline."""

    @property
    def chance(self) -> float:
        """How often two drawn answers agree."""
        return float(np.square(self.shares).sum())

    def steady(self, value: float) -> float:
        """The share of steady items that gives the metric this value."""
        if self.metric == "corrected_consistency":
            return value
        return (value - self.chance) / (1 - self.chance)

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """The subjects of each group."""
        many = self.items // self.per_subject
        return {str(at): [f"{at} {n}" for n in range(many)] for at in range(self.groups)}

    @cached_property
    def resampling(self) -> Resampling:
        """The bootstrap samples."""
        return Resampling(self.names, 0, keep=True)


def rates(world: World, value: float, generator: Random) -> np.ndarray:
    """How often items of each group are steady: a beta distribution."""
    mean, spread = world.steady(value), world.spread
    spread = min(spread, 0.5 * (mean * (1 - mean)) ** 0.5)
    if world.groups == 1 or mean in (0, 1):
        return np.full(world.groups, mean)
    size = mean * (1 - mean) / spread**2 - 1
    return generator.beta(mean * size, (1 - mean) * size, world.groups)


def moved(world: World, base: np.ndarray, value: float, generator: Random) -> np.ndarray:
    """The same of a second model, whose true value is ``value``."""
    if world.falls == "rare":
        is_worse = generator.random(world.groups) < (world.value - value) / 0.5
        return np.where(is_worse, world.steady(world.value - 0.5), base)
    later = np.full(world.groups, world.steady(value) - world.steady(world.value))
    if world.falls == "skewed":
        later -= (generator.exponential(1, world.groups) - 1) * world.moves
    elif world.groups > 1:
        later += generator.uniform(-1, 1, world.groups) * world.moves * 3**0.5
    return np.asarray(np.clip(base + later, 0, 1))


def draws(world: World, generator: Random) -> np.ndarray:
    """A uniform number of each item (group, item), the same for the items of a subject."""
    many = world.items // world.per_subject
    return np.repeat(generator.random((world.groups, many)), world.per_subject, axis=1)


def answered(world: World, steady: np.ndarray, usual: np.ndarray, generator: Random) -> Codes:
    """The answers of one model; ``steady`` and ``usual``: (group, item)."""
    drawn = generator.choice(len(world.shares), (*steady.shape, VARIANTS), p=world.shares)
    return list(np.where(steady[..., None], usual[..., None], drawn))


def models(world: World, value: float, generator: Random) -> list[Codes]:
    """The answers of the baseline, and of a model with another true value."""
    base = rates(world, world.value, generator)
    later, first = moved(world, base, value, generator), draws(world, generator)
    usual = generator.choice(len(world.shares), first.shape, p=world.shares)
    redrawn = draws(world, generator) < world.changed
    second = np.where(redrawn, draws(world, generator), first)
    baseline = answered(world, first < base[:, None], usual, generator)
    draws(world, generator), draws(world, generator)  # as the tables were made
    return [baseline, answered(world, second < later[:, None], usual, generator)]


def tally(world: World, codes: np.ndarray, names: Sequence[str]) -> Tally:
    """The metric of a group; ``codes``: its answers (item, variant)."""
    subjects = np.repeat(np.array(names, dtype=object), world.per_subject)
    grid = Grid(codes, np.zeros_like(codes), PAIRS, subjects, np.arange(len(world.shares)))
    counted = METRICS[world.metric].count(grid)
    assert counted is not None
    return counted


@dataclass(frozen=True)
class Numbers:
    """What the interval of a mean over groups is made of."""

    values: Floats  # Of each group
    replicates: Floats
    within: Floats  # Replicates of the same groups
    clusters: int
    units: int


def numbers(world: World, runs: Sequence[Codes]) -> list[Numbers]:
    """The numbers of each run."""
    key = world.metric, "all"
    tallies = [
        {
            group: tally(world, codes, names)
            for (group, names), codes in zip(world.names.items(), run, strict=True)
        }
        for run in runs
    ]
    counted = {
        group: [ClusterCounts({key: run[group]}, names) for run in tallies]
        for group, names in world.names.items()
    }
    drawn = world.resampling.draw(counted)
    made = []
    for at, run in enumerate(tallies):
        shares = {group: tally.share() for group, tally in run.items()}
        of = {group: drawn[group][at][key] for group in shares}
        spread, pooled = world.resampling.over((shares, of))
        values = np.array([share.value for share in shares.values()])
        within = spread.ways[1] if spread.ways else np.full_like(spread.replicates, NAN)
        made.append(Numbers(values, spread.replicates, within, spread.clusters, pooled.clusters))
    return made


def absolute(world: World, runs: Sequence[Codes]) -> Precise:
    """The number of the first run, as ``gate`` decides it."""
    return _precise(world, numbers(world, runs[:1])[0], METRICS[world.metric].bounds)


def against_first(world: World, runs: Sequence[Codes]) -> Precise:
    """The difference of the second run from the first."""
    first, other = numbers(world, runs)
    # No subject is in two groups, so the replicates of a run are not rescaled before subtracting.
    change = Numbers(
        other.values - first.values, other.replicates - first.replicates,
        other.within - first.within, first.clusters, first.units,
    )  # fmt: skip
    return _precise(world, change, difference_bounds(METRICS[world.metric].bounds))


def _precise(world: World, of: Numbers, bounds: tuple[float, float]) -> Precise:
    least, greatest = METRICS[world.metric].bounds
    within = NAN if world.groups == 1 else within_error(of.within, world.groups, of.units)
    return Precise(
        float(np.mean(of.values)), bounds, greatest - least,
        bootstrap_error(of.replicates, of.clusters), of.clusters, of.units, within,
        bounds[0] == least - greatest, skewness([*of.values]),
    )  # fmt: skip


WORLDS = {
    "30 questions": World(items=30),
    "100 questions": World(items=100),
    "400 questions": World(items=400),
    "400 questions, value near 1": World(items=400, value=0.97),
    "100 questions, value near 1": World(items=100, value=0.97),
    "400 questions, 5 of each subject": World(items=400, per_subject=5),
    "30 questions, 5 of each subject": World(items=30, per_subject=5),
    "2 relations of 40": World(2, 40),
    "5 relations of 40": World(5, 40),
    "13 relations of 40": World(13, 40),
    "38 relations of 40": World(38, 40),
    "38 relations of 40, value near 1": World(38, 40, value=0.97, spread=0.03, moves=0.01),
    "5 relations of 40, skewed": World(5, 40, moves=0.1, falls="skewed"),
    "13 relations of 40, skewed": World(13, 40, moves=0.1, falls="skewed"),
    "38 relations of 40, skewed": World(38, 40, moves=0.1, falls="skewed"),
    "5 relations of 40, few much worse": World(5, 40, falls="rare"),
    "13 relations of 40, few much worse": World(13, 40, falls="rare"),
    "38 relations of 40, few much worse": World(38, 40, falls="rare"),
    "400 questions, corrected, equal margins": World(items=400, metric="corrected_consistency"),
    "400 questions, corrected, unequal margins": World(
        items=400, metric="corrected_consistency", shares=UNEVEN
    ),
    "100 questions, corrected, unequal margins": World(
        items=100, metric="corrected_consistency", shares=UNEVEN
    ),
    "400 questions, corrected, value near 0": World(
        items=400, metric="corrected_consistency", value=0.05
    ),
}
"""The rows of the first table."""

VALUES = {name: world for name, world in WORLDS.items() if world.falls == "alike"} | {
    f"{many} relations of 40, few much lower": World(many, 40, value=0.95, spread=0.1)
    for many in (5, 13, 38)
}
"""The rows of the second."""


def shown(verdicts: Sequence[str]) -> str:
    """Percent of pass, undecided and fail."""
    kinds = ("pass", "undecided", "fail")
    return " / ".join(f"{100 * np.mean([v == kind for v in verdicts]):.1f}" for kind in kinds)


def baseline_table(count: int) -> Iterator[str]:
    """Rules against a baseline, for three true differences."""
    margin = 0.05
    yield f"| data | as good | at the margin of {100 * margin:.0f} points | twice the margin |"
    for name, world in WORLDS.items():
        cells = []
        for times in (0, 1, 2):
            generator = np.random.default_rng(zlib.crc32(f"{name} {times}".encode()))
            value = world.value - times * margin
            if world.steady(value) < 0:
                cells.append("-")
                continue
            limit = Threshold(-margin, True)
            cells.append(
                shown(
                    [
                        against_first(world, models(world, value, generator)).verdict(limit)
                        for _ in range(count)
                    ]
                )
            )
        yield f"| {name} | " + " | ".join(cells) + " |"


def absolute_table(count: int) -> Iterator[str]:
    """Rules on the value itself: 5 points above the limit, on it, and 5 points below."""
    yield "| data | 5 points above | on the limit | 5 points below |"
    for name, world in VALUES.items():
        cells = []
        for off in (0.05, 0, -0.05):
            generator = np.random.default_rng(zlib.crc32(f"{name} {off}".encode()))
            limit = Threshold(world.value - off, True)
            if not METRICS[world.metric].bounds[0] < limit.value < 1:
                cells.append("-")
                continue
            verdicts = [
                absolute(world, models(world, world.value, generator)).verdict(limit)
                for _ in range(count)
            ]
            cells.append(shown(verdicts))
        yield f"| {name} | " + " | ".join(cells) + " |"


TABLES = {
    "baseline": baseline_table,
    "absolute": absolute_table,
}


def main() -> None:
    """The tables, of so many data sets a cell."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    names = sys.argv[2].split(",") if sys.argv[2:] else list(TABLES)
    for name in names:
        for at, line in enumerate(TABLES[name](count)):
            print(line, flush=True)
            if not at:
                print("|---" * (line.count("|") - 1) + "|", flush=True)


if __name__ == "__main__":
    main()
