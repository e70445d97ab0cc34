"""How often the intervals of `analyze factors` contain the true value.

`python bench/factor_simulations.py [SIMULATIONS] [POPULATION,POPULATION]` prints the table of
docs/factors.md: a row for each population and number of questions, the share of data sets whose
95 % interval contains the true value, in percent. 1,000 data sets a row take some 20 minutes on
one core of an AMD EPYC. Everything is seeded by the name of its row.

A question has four options. In each variant the model chooses the option with the highest utility:
a bias towards the option, what the question says for it, and what the level of each factor and
their combination add in this question. All but the bias are normal with mean 0. In the population
``few`` an answer follows one factor, both, or none, so that its components are known exactly.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from consilience.analysis.factor_effects import (
    CellAnswers,
    consistency_by_factor,
    variance_components,
)
from consilience.core.factors import Factor, FactorialDesign
from consilience.metrics.components import exact_parts
from consilience.metrics.registry import METRICS, Grid, quotient

Random = np.random.Generator
Ints = np.ndarray
Population = Callable[[Random, int], Ints]

DESIGN = FactorialDesign.full(
    [
        Factor("paraphrase", ("1", "2", "3")),
        Factor("order", ("given", "rotation 1", "rotation 2", "rotation 3")),
        Factor("labels", ("A", "1")),
    ]
)
CELLS = np.array(DESIGN.cells)
OPTIONS = 4
SIZES = (12, 30, 100, 300)
"""Questions of a data set."""

LARGE = 100_000
"""Questions from which a true value is computed."""

NUMBERS = {
    "consistency, order": ("value", "order"),
    "consistency, labels": ("value", "labels"),
    "corrected, order": ("corrected", "order"),
    "answer: main effect, order": ("answer", "main", "order", "share"),
    "answer: total effect, labels": ("answer", "total", "labels", "share"),
    "answer: interactions": ("answer", "interactions", "", "share"),
    "correctness: main effect, order": ("correctness", "main", "order", "share"),
}
"""The numbers of the table, and where the analysis has them."""


def utilities(question: float, effects: Mapping[str, float], bias: tuple[float, ...]) -> Population:
    """Answers (question, cell) by utilities with these standard deviations."""

    def draw(generator: Random, size: int) -> Ints:
        total = np.array(bias) + generator.normal(0, question, (size, 1, OPTIONS))
        for at, factor in enumerate(DESIGN.factors):
            deviation = effects[factor.name]
            levels = generator.normal(0, deviation, (size, len(factor.levels), OPTIONS))
            total = total + levels[:, CELLS[:, at]]
        total = total + generator.normal(0, effects["together"], (size, len(CELLS), OPTIONS))
        return np.asarray(total.argmax(axis=-1))

    return draw


def few(order: float, labels: float, both: float) -> Population:
    """Answers that follow the order, the labels or both in these shares of questions."""
    by_order, by_labels = CELLS[:, 1], CELLS[:, 2]
    patterns = np.stack([by_order, by_labels, (by_order + by_labels) % 2, 0 * by_order])

    def draw(generator: Random, size: int) -> Ints:
        kinds = generator.choice(4, size, p=[order, labels, both, 1 - order - labels - both])
        return (patterns[kinds] + generator.integers(0, OPTIONS, (size, 1))) % OPTIONS

    return draw


EFFECTS = {"paraphrase": 0.3, "order": 0.7, "labels": 0.4, "together": 0.3}
POPULATIONS: dict[str, Population] = {
    "equal margins": utilities(1, EFFECTS, (0, 0, 0, 0)),
    "unequal margins": utilities(1, EFFECTS, (1.5, 0, 0, -1)),
    "rare changes": utilities(6, EFFECTS, (0, 0, 0, 0)),
    "few": few(0.08, 0.04, 0.02),
}
"""What the questions of a data set are drawn from."""


def random_for(name: str) -> Random:
    """A generator that the name of a row seeds."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def grid_of(answers: Ints, right: Ints) -> CellAnswers:
    """Answers (question, cell) as the analysis reads them."""
    pairs = np.zeros((0, 2), dtype=np.int64)
    subjects = np.arange(len(answers)).astype(str).astype(object)
    golds = np.where(right, answers, (answers + 1) % OPTIONS)
    grid = Grid(answers, golds, pairs, subjects, np.arange(OPTIONS))
    return CellAnswers({"all": grid})


def drawn(population: Population, generator: Random, size: int) -> CellAnswers:
    """A data set; 60 % of golds are what the model tends to say."""
    answers = population(generator, size)
    gold = np.where(
        generator.random(size) < 0.6, answers[:, 0], generator.integers(0, OPTIONS, size)
    )
    return grid_of(answers, answers == gold[:, None])


Row = dict[tuple[str, ...], tuple[float, float, float]]


def numbers_of(data: CellAnswers) -> Row:
    """Value, lower and upper bound of every number."""
    found: Row = {}
    for row in consistency_by_factor([data], DESIGN, 0).iter_rows(named=True):
        found["value", row["factor"]] = row["value"], row["low"], row["high"]
        found["corrected", row["factor"]] = (
            row["corrected"],
            row["corrected_low"],
            row["corrected_high"],
        )
    parts, _ = variance_components([data], DESIGN, 0)
    for row in parts.iter_rows(named=True):
        key = row["outcome"], row["effect"], row["factors"], "share"
        found[key] = row["share"], row["share_low"], row["share_high"]
    return found


def truth_of(name: str) -> dict[tuple[str, ...], float]:
    """The value of every number in a very large data set."""
    data = drawn(POPULATIONS[name], random_for(name), LARGE)
    (grid,) = data.grids.values()
    truth: dict[tuple[str, ...], float] = {}
    for factor, pairs in DESIGN.pairs_by_factor().items():
        for key, metric in (("value", "consistency"), ("corrected", "corrected_consistency")):
            tally = METRICS[metric].count(grid.only_pairs(pairs))
            truth[key, factor] = tally.share().value  # type: ignore[union-attr]
    for (part, is_share), numbers in exact_parts(data.answers, data.right, DESIGN).items():
        if is_share:
            value = float(quotient(*numbers.finish(numbers.columns.sum(axis=0))))
            truth[part[0], part[1], " x ".join(part[2]), "share"] = value
    return truth


def coverage(name: str, size: int, count: int, truth: dict[tuple[str, ...], float]) -> list[str]:
    """The share of data sets whose interval has the true value; `-` if most have no interval."""
    generator = random_for(f"{name} {size}")
    hits: dict[str, list[bool]] = {number: [] for number in NUMBERS}
    for _ in range(count):
        found = numbers_of(drawn(POPULATIONS[name], generator, size))
        for number, key in NUMBERS.items():
            _, low, high = found[key]
            if not np.isnan(low):
                hits[number].append(low <= truth[key] <= high)
    return [f"{100 * np.mean(of):.1f}" if len(of) > count / 2 else "-" for of in hits.values()]


def rows(count: int, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A row of true values of each population, then one for each number of questions."""
    for name in names:
        truth = truth_of(name)
        yield f"**{name}**: true value", [f"{100 * truth[key]:.1f}" for key in NUMBERS.values()]
        for size in SIZES:
            yield f"{size} questions", coverage(name, size, count, truth)


def main() -> None:
    """The table, of all or of some populations."""
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    names = sys.argv[2].split(",") if sys.argv[2:] else list(POPULATIONS)
    print("| questions | " + " | ".join(NUMBERS) + " |")
    print("|---|" + "---|" * len(NUMBERS))
    for name, cells in rows(count, names):
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
