"""How often intervals of the total variation and of its chance level contain the true value.

`python bench/variation_simulations.py [SIMULATIONS]` prints the table of docs/statistics.md. Data
sets are distributions over the options of a simulated model, counted and resampled as those of a
run. Everything is seeded by the name of its row.

The scores of an option are normal: what the item says, what the variant adds for all items, and
what the variant adds in this item. A group has its own strength of the first.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.special import softmax
from violation_simulations import interval

from consilience.metrics.definitions import chance_total_variation, total_variation
from consilience.metrics.registry import Grid, Tally, ratio

LARGE = 20_000
"""Items of the data set whose value is the true one."""


@dataclass(frozen=True)
class Model:
    """A simulated model and the questions that it is asked."""

    sizes: Sequence[int]
    """The number of items of each group."""
    variants: int
    """The number of variants."""
    by_item: float
    """The standard deviation of what an item says for an option, in nats."""
    by_variant: float
    """That of what a variant adds for an option of all items."""
    by_both: float
    """That of what a variant adds for an option of one item."""
    options: int = 4
    """The number of options of a question."""

    def grids(self, generator: np.random.Generator) -> Iterator[Grid]:
        """The answers of each group of a data set; variants are those of its name."""
        effects = np.random.default_rng(0).normal(0, self.by_variant, (self.variants, self.options))
        for number, size in enumerate(self.sizes):
            shape = size, self.variants, self.options
            items = generator.normal(0, self.by_item * (1 + number % 2), (size, 1, self.options))
            both = generator.normal(0, self.by_both, shape)
            shares = softmax(items + effects + both, axis=2)
            pairs = np.array(list(combinations(range(self.variants), 2)))
            names = np.array([f"{number} {at}" for at in range(size)], dtype=object)
            answers = shares.argmax(axis=2)
            words = np.arange(self.options)
            yield Grid(answers, answers, pairs, names, words, distributions=shares)

    @property
    def large(self) -> Model:
        """The same model with many more items, in the same proportions."""
        return replace(self, sizes=[size * LARGE // sum(self.sizes) for size in self.sizes])


ROWS = {
    "1 group of 200": Model((200,), 4, 1.5, 0.5, 0.5),
    "1 group of 30": Model((30,), 4, 1.5, 0.5, 0.5),
    "1 group of 10": Model((10,), 4, 1.5, 0.5, 0.5),
    "1 group of 10, 2 variants": Model((10,), 2, 1.5, 0.5, 0.5),
    "4 groups of 5": Model((5,) * 4, 4, 1.5, 0.5, 0.5),
    "groups of 2, 3, 5, 10 and 40": Model((2, 3, 5, 10, 40), 4, 1.5, 0.5, 0.5),
    "groups of 3, 4 and 60": Model((3, 4, 60), 6, 1.5, 0.5, 0.5),
    "30, steady": Model((30,), 4, 1.5, 0.02, 0.02),
    "30, the variant decides": Model((30,), 4, 0.5, 3.0, 0.2),
    "30, sure of itself": Model((30,), 4, 6.0, 0.5, 0.5),
}
"""The data of each row."""


def pooled(grids: Sequence[Grid], count: Callable[[Grid], Tally | None]) -> Tally:
    """A metric of all groups together, as ``MICRO`` has it."""
    tallies = [tally for grid in grids if (tally := count(grid)) is not None]
    names = np.concatenate([tally.clusters for tally in tallies if tally.clusters is not None])
    counts = np.concatenate([tally.counts for tally in tallies])
    return Tally(counts, names, sum(tally.n for tally in tallies), finish=ratio)


def coverage(count: int) -> Iterator[tuple[str, list[str]]]:
    """The true values, and how often 95 % intervals hold them, in percent."""
    metrics = total_variation, chance_total_variation
    for name, model in ROWS.items():
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        large = list(model.large.grids(generator))
        cells: list[str] = []
        truth = [pooled(large, metric).share().value for metric in metrics]
        hits: list[list[bool]] = [[], []]
        for _ in range(count):
            grids = list(model.grids(generator))
            for metric, true, of in zip(metrics, truth, hits, strict=True):
                low, high = interval(pooled(grids, metric), generator)
                of.append(low <= true <= high)
        for true, of in zip(truth, hits, strict=True):
            cells += [f"{100 * true:.1f}", f"{100 * np.mean(of):.1f}"]
        yield name, cells


def main() -> None:
    """The table, of so many data sets a row."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    print("| data | total variation | covered | expected by chance | covered |")
    print("|---|---|---|---|---|", flush=True)
    for name, cells in coverage(count):
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
