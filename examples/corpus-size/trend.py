"""Does a number of a family of models rise with the amount of text that they were trained on?

    python examples/corpus-size/trend.py 10000=runs/small 1000000=runs/large ...

Each run is a folder with a run for each seed; all have the same questions and seeds. Prints each
number at each size and its trend: the slope over log10 of the size, which is the change when the
text grows tenfold. Both are means over relations and seeds, which are samples of relations like
these and trainings like these.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from scipy.stats import t

from consilience import ConsilienceError
from consilience.analysis.patterns import number_of, short_number
from consilience.files.write import csv_of, write_whole
from consilience.kinds import facts_of
from consilience.metrics.counts import Counts, ResampleCache, prepared_seeds
from consilience.metrics.statistics import LEVEL, NAN, Floats, logit_interval
from consilience.runs.run import Run, split_label

NUMBERS: Mapping[str, Mapping[str, float]] = {
    name: {name: 1.0}
    for name in (
        "accuracy", "consistency", "chance_consistency", "corrected_consistency",
        "consistent_accuracy", "top_answer",
    )
} | {"consistency_above_chance": {"consistency": 1.0, "chance_consistency": -1.0}}  # fmt: skip
"""What is tested: sums of metrics with weights. The last one is defined for constant answers, for
which chance-corrected consistency is 0/0."""

SIGNED = ("corrected_consistency", "consistency_above_chance")
"""The numbers that may be negative."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number at one size, or its slope over log10 of the size."""

    value: float
    """Mean over relations and seeds."""
    low: float
    """Lower bound of its 95 % interval."""
    high: float
    """Upper bound of its interval."""
    p: float
    """Two-sided p of the value 0."""
    lowest: float
    """The lowest value of a seed."""
    highest: float
    """The highest value of a seed."""
    relations: int
    """How many relations have the number in every run."""
    seeds: int
    """How many seeds there are. The interval of one seed is about relations only."""


def contrast(sizes: Sequence[float]) -> Floats:
    """Weights (size,) whose sum with values is their least-squares slope over log10(size)."""
    x = np.log10(np.asarray(sizes, dtype=np.float64))
    x -= x.mean()
    weights: Floats = x / (x**2).sum()
    return weights


def estimate(
    values: Floats,
    weights: Floats,
    replicates: Floats,
    relations: int,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """The weighted sum of ``values`` (size, seed): its mean over seeds.

    ``replicates`` (replicate,): this mean when relations are resampled. Relations and seeds are
    crossed samples, so their variances add up: V(relations) n/(n-1) + V(seeds)/S. The interaction
    is in both, so the sum is at least the variance of the mean. The t distribution has
    Satterthwaite's degrees of freedom; with ``bounds`` the interval is that of the logit.
    """
    sums = weights @ values
    seeds = len(sums)
    parts = [(float(np.nanvar(replicates)) * relations / (relations - 1), relations)]
    if seeds > 1:
        parts.append((float(sums.var(ddof=1)) / seeds, seeds))
    value, variance = float(sums.mean()), sum(part for part, _ in parts)
    low, high, p = NAN, NAN, NAN
    if variance > 0:
        freedom = variance**2 / sum(part**2 / (count - 1) for part, count in parts)
        error = math.sqrt(variance)
        reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
        low, high = value - reach, value + reach
        p = 2 * float(t.sf(abs(value) / error, freedom))
        if bounds:
            (low, high), p = logit_interval(value, error, freedom + 1, bounds), NAN
    return Estimate(value, low, high, p, float(sums.min()), float(sums.max()), relations, seeds)


class Family:
    """The counts of all runs, (size, seed), under the same resamples."""

    def __init__(self, runs: Sequence[Run], sizes: Sequence[float], data_dir: Path | None) -> None:
        suite, protocol = facts_of(runs[0], None, None, data_dir)
        seeds = {len(run.seeds) for run in runs}
        if len(seeds) > 1:
            raise ConsilienceError(
                f"runs of {' and '.join(map(str, sorted(seeds)))} seeds",
                expected="as many seeds of each size: folders with seed-0, seed-1, ...",
            )
        self.sizes = sizes
        tables = [table for run in runs for table in run.tables]
        counts: list[Counts] = []
        for prepared in prepared_seeds(tables, suite, ResampleCache()):
            counts.append(prepared.counts("N-1", protocol, 0))
            prepared.forget(protocol)
        count = seeds.pop()
        self.counts = [counts[at : at + count] for at in range(0, len(counts), count)]

    def number(self, metrics: Mapping[str, float]) -> tuple[Floats, list[str]]:
        """Means over relations (size, seed), and these relations."""
        keys = [(name, "all") for name in metrics]
        every = [counts for seeds in self.counts for counts in seeds]
        groups = [
            group
            for group in every[0].shares
            if all(
                key in counts.shares[group] and not math.isnan(counts.shares[group][key].value)
                for counts in every
                for key in keys
            )
        ]

        def mean(counts: Counts) -> float:
            shares = [[counts.shares[group][key].value for group in groups] for key in keys]
            return float(np.dot(list(metrics.values()), np.mean(shares, axis=1)))

        runs = self.counts if len(groups) > 1 else []
        return np.array([[mean(counts) for counts in seeds] for seeds in runs]), groups

    def replicates(
        self, metrics: Mapping[str, float], groups: Sequence[str], of_sizes: Sequence[float]
    ) -> Floats:
        """The weighted sum of the sizes, each the mean over its seeds, under the same resamples.

        A size of weight 0 is no part of it, also where it is NaN.
        """
        sides, weights = [], []
        for seeds, of_size in zip(self.counts, of_sizes, strict=True):
            for counts in seeds if of_size else ():
                for name, of_metric in metrics.items():
                    shares = {group: counts.shares[group][name, "all"] for group in groups}
                    draws = {group: counts.draws[group][name, "all"] for group in groups}
                    sides.append((shares, draws))
                    weights.append(of_size * of_metric / len(seeds))
        return self.counts[0][0].resampling.over(*sides, weights=weights)[0].replicates


def estimates(family: Family) -> pl.DataFrame:
    """Each number at each size, and its slope (``tenfold``)."""
    rows = []
    for name, metrics in NUMBERS.items():
        values, groups = family.number(metrics)
        if len(groups) < 2:
            continue
        bounds = (-1.0, 1.0) if name in SIGNED else (0.0, 1.0)
        sizes = zip(map(short_number, family.sizes), np.eye(len(family.sizes)), strict=True)
        for of, weights in (*sizes, ("tenfold", contrast(family.sizes))):
            drawn = family.replicates(metrics, groups, weights.tolist())
            found = estimate(
                values, weights, drawn, len(groups), bounds if of != "tenfold" else None
            )
            rows.append({"number": name, "of": of} | asdict(found))
    return pl.DataFrame(rows)


def in_percent(table: pl.DataFrame) -> pl.DataFrame:
    """A row for each number: its value and interval at each size, the slope, and its p."""
    rows = []
    for (name,), of_number in table.group_by(["number"], maintain_order=True):
        cells = {}
        for row in of_number.to_dicts():
            value, low, high = (100 * row[part] for part in ("value", "low", "high"))
            cells[row["of"]] = f"{value:z.1f} ({low:z.1f} to {high:z.1f})"
        last = of_number.row(-1, named=True)
        p = f"{last['p']:.3f}" if last["p"] >= 0.001 or math.isnan(last["p"]) else "<0.001"
        rows.append({"number": name, **cells, "p": p, "n": last["relations"]})
    return pl.DataFrame(rows)


def false_findings(seeds: int, sizes: int, relations: int, data_sets: int = 2000) -> pl.DataFrame:
    """How often p < .05 where nothing depends on the size: simulated values, slope 0.

    A value is normal: an effect of the relation at each size, one of the training (seed and size),
    and noise. Rows: the standard deviations of the first two; that of the noise is 1.
    """
    weights, generator = contrast(10.0 ** np.arange(sizes)), np.random.default_rng(0)
    rows = []
    for of_relations, of_trainings in ((0, 0), (3, 0), (1, 0.3), (1, 1), (0, 1)):
        below = 0
        for _ in range(data_sets):
            cells = generator.normal(0, 1, (relations, sizes, seeds))
            cells += generator.normal(0, of_relations, (relations, sizes, 1))
            cells += generator.normal(0, of_trainings, (1, sizes, seeds))
            drawn = generator.integers(0, relations, (400, relations))
            replicates = (cells.mean(axis=2) @ weights)[drawn].mean(axis=1)
            below += estimate(cells.mean(axis=0), weights, replicates, relations).p < 0.05
        rows.append((of_relations, of_trainings, below / data_sets))
    names = ("sd of relations", "sd of trainings", "share with p < .05")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Float64), orient="row")


def main(
    runs: Annotated[list[str] | None, typer.Argument(help="SIZE=RUN for each size.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the suite's data.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Simulate the null instead.")] = False,
) -> None:
    """Print each number at each size and its slope over log10 of the size, in percent.

    The file of --csv has fractions, and the lowest and highest seed. n: relations.
    """
    if check:
        shown = table = false_findings(seeds=3, sizes=5, relations=31)
    else:
        specs = [split_label(spec) for spec in runs or ()]
        if len(specs) < 3 or not all(label for label, _ in specs):
            raise ConsilienceError(
                f"{len(specs)} runs with a size", expected="three or more: 10K=RUN 100K=RUN 1M=RUN"
            )
        ordered = sorted((number_of(label), Path(path)) for label, path in specs)
        opened = [Run.open(path) for _, path in ordered]
        table = estimates(Family(opened, [size for size, _ in ordered], data_dir))
        shown = in_percent(table)
    if csv:
        write_whole(csv, csv_of(table))
    with pl.Config(
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=300,
        fmt_str_lengths=40,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_formatting="ASCII_MARKDOWN",
    ):
        typer.echo(shown)


if __name__ == "__main__":
    try:
        typer.run(main)
    except ConsilienceError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
