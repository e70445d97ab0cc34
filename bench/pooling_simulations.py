"""How often intervals over all questions contain the true value, where groups are of unequal size.

`python bench/pooling_simulations.py [SIMULATIONS]` prints the table of docs/statistics.md. The
groups of a data set are fixed, and their questions are drawn. The true value is that of infinitely
many questions in the same groups and proportions. Everything is seeded by the name of its row.

A question has four options. In each of four variants its answer is its own, or one drawn by the
shares of the group's options; a group's share of own answers decides its corrected consistency.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from consilience.metrics.registry import METRICS, Grid, Tally
from consilience.metrics.resampling import ClusterCounts, Resampling
from consilience.metrics.statistics import bootstrap_interval

VARIANTS, OPTIONS = 4, 4
PAIRS = np.array(list(combinations(range(VARIANTS), 2)))
OWN_IS_GOLD = 0.6
"""How often the own answer of a question is its gold; otherwise any option is."""

SHOWN = ("accuracy", "consistency", "corrected_consistency")
"""The numbers of the table."""

LAYOUTS = {
    "12 groups of 3": (3,) * 12,
    "4 groups of 10": (10,) * 4,
    "groups of 40 and 10": (40, 10),
    "one group of 12": (12,),
    "one group of 40": (40,),
}
"""How many questions each group has."""


@dataclass(frozen=True)
class Population:
    """What the questions of a group are drawn from."""

    kappas: tuple[float, float]
    """Consistency above chance of the first and of the last group; others are between these."""
    shares: tuple[float, ...]
    """How often the options are drawn; those of the next group are moved by one option."""

    def of_group(self, at: int, groups: int) -> tuple[float, np.ndarray]:
        """The consistency above chance of a group, and its shares."""
        first, last = self.kappas
        middle = (first + last) / 2
        kappa = middle if groups == 1 else first + (last - first) * at / (groups - 1)
        return kappa, np.roll(self.shares, at)

    def truth(self, sizes: Sequence[int]) -> dict[str, float]:
        """The value of each number."""
        right = same = above = most = 0.0
        for at, size in enumerate(sizes):
            kappa, shares = self.of_group(at, len(sizes))
            chance = float((shares**2).sum())
            agree = kappa + (1 - kappa) * chance
            own = kappa**0.5 + (1 - kappa**0.5) * chance
            right += size * (OWN_IS_GOLD * own + (1 - OWN_IS_GOLD) / OPTIONS)
            same, above = same + size * agree, above + size * (agree - chance)
            most += size * (1 - chance)
        total = sum(sizes)
        return dict(zip(SHOWN, (right / total, same / total, above / most), strict=True))

    def grids(self, sizes: Sequence[int], generator: np.random.Generator) -> dict[str, Grid]:
        """A data set: the answers of each group."""
        grids = {}
        for at, size in enumerate(sizes):
            kappa, shares = self.of_group(at, len(sizes))
            own, *drawn = generator.choice(OPTIONS, (1 + VARIANTS, size), p=shares)
            keep = generator.random((size, VARIANTS)) < kappa**0.5
            answers = np.where(keep, own[:, None], np.transpose(drawn))
            is_own = generator.random(size) < OWN_IS_GOLD
            golds = np.where(is_own, own, generator.integers(0, OPTIONS, size))
            names = np.array([f"{at} {number}" for number in range(size)], dtype=object)
            grids[str(at)] = Grid(
                answers, np.tile(golds[:, None], VARIANTS), PAIRS, names, np.arange(OPTIONS)
            )
        return grids


EVEN, UNEVEN = (0.25,) * OPTIONS, (0.6, 0.2, 0.15, 0.05)
POPULATIONS = {
    "answers at random": Population((0, 0), EVEN),
    "answers at random, one option preferred": Population((0, 0), UNEVEN),
    "equal margins": Population((0.3, 0.7), EVEN),
    "unequal margins": Population((0.3, 0.7), UNEVEN),
}
"""The data of the rows."""


def intervals(grids: dict[str, Grid], seed: int) -> dict[str, tuple[float, float]]:
    """The interval of each number over all groups, as that of ``MICRO`` is made."""
    keys = [(name, "all") for name in SHOWN]
    tallies: dict[str, dict[tuple[str, str], Tally]] = {group: {} for group in grids}
    for (group, grid), key in product(grids.items(), keys):
        if tally := METRICS[key[0]].count(grid):
            tallies[group][key] = tally
    subjects = {group: grid.subjects.tolist() for group, grid in grids.items()}
    counted = {group: [ClusterCounts(tallies[group], subjects[group])] for group in grids}
    resampling = Resampling(subjects, seed)
    drawn = resampling.draw(counted)
    found = {}
    for key in keys:
        shares = {group: of[key].share() for group, of in tallies.items()}
        _, pooled = resampling.over((shares, {group: drawn[group][0][key] for group in grids}))
        value = sum(share.hits for share in shares.values()) / sum(
            share.total for share in shares.values()
        )
        found[key[0]] = bootstrap_interval(
            value, pooled.replicates, pooled.clusters, METRICS[key[0]].bounds,
            proportion=tallies["0"][key].is_proportion,
        )  # fmt: skip
    return found


def coverage(sizes: Sequence[int], population: Population, name: str, count: int) -> list[str]:
    """True value and percent of intervals that contain it."""
    truth = population.truth(sizes)
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    hits: dict[str, list[bool]] = {metric: [] for metric in SHOWN}
    for seed in range(count):
        for metric, (low, high) in intervals(population.grids(sizes, generator), seed).items():
            if not np.isnan(low):
                hits[metric].append(low <= truth[metric] <= high)
    shares = ((truth[metric], np.mean(covered)) for metric, covered in hits.items())
    return [f"{100 * share:.1f}" for both in shares for share in both]


def rows(count: int) -> Iterator[tuple[str, list[str]]]:
    """A row for each population and layout."""
    for population_name, population in POPULATIONS.items():
        for layout, sizes in LAYOUTS.items():
            name = f"{population_name}, {layout}"
            yield name, coverage(sizes, population, name, count)


def main() -> None:
    """The table, of so many data sets a row."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    heads = [f"{name.replace('_', ' ')} | covered" for name in SHOWN]
    print("| data | " + " | ".join(heads) + " |")
    print("|---|" + "---|" * 2 * len(SHOWN), flush=True)
    for name, cells in rows(count):
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
