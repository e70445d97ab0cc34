"""How many 95 % intervals of a run miss the number that its other phrasings have.

``python bench/phrasings.py RUN [DRAWS] [PHRASINGS]`` draws phrasings (5, of facts patterns of each
relation that has 8, at most half of them) and takes the intervals of their numbers: that about
these phrasings, and that about phrasings like these. Each is asked whether it holds the number in
the phrasings that were not drawn, of the same items. A row is a number, in percent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from consilience.core.items import Ints
from consilience.elsewhere import open_run
from consilience.metrics import uncertainty
from consilience.metrics.measure import CheckedAnswers
from consilience.metrics.registry import ENOUGH, METRICS, Grid
from consilience.metrics.uncertainty import Estimate, Index

NUMBERS = ("mean_accuracy", "consistency", "corrected_consistency")
FEWEST = 2 * ENOUGH[0]  # Patterns of a relation of which half can be drawn


def numbers_of(
    metric: str, grids: Mapping[str, Grid], *, are_facts: bool, is_whole: bool = False
) -> dict[str, Estimate]:
    """That of all questions, or of each relation, and of their mean.

    ``is_whole``: without what phrasings add.
    """
    of, tallies = METRICS[metric], {}
    for name, grid in grids.items():
        if (tally := of.count(grid)) is not None:
            tallies[name] = tally if is_whole else of.recounted(tally, grid)
    if not are_facts:
        return {"all questions": uncertainty.pooled([(1, tallies)], Index())}
    found = {name: uncertainty.of_group([(1, one)], Index()) for name, one in tallies.items()}
    return found | {"mean over relations": uncertainty.mean([(1, tallies)], Index())}


def main(path: str, draws: str = "200", phrasings: str = "5") -> None:
    """Print the table as CSV."""
    run, generator = open_run(Path(path)), np.random.default_rng(0)
    suite, answers = run.suite, CheckedAnswers(run.answers, run.suite)
    grids = {of.id: answers.views(of, suite.protocol)["pairs"] for of in answers.relations}
    are_facts = not suite.words.is_pooled
    if are_facts:
        grids = {name: of for name, of in grids.items() if of.answers.shape[1] >= FEWEST}
    rows = []
    for metric in NUMBERS:
        bounds = METRICS[metric].bounds
        for _ in range(int(draws)):
            order = generator.permutation(next(iter(grids.values())).answers.shape[1])
            some: dict[str, Grid] = {}
            rest: dict[str, Grid] = {}
            for name, grid in grids.items():
                own: Ints = generator.permutation(grid.answers.shape[1]) if are_facts else order
                size = min(int(phrasings), len(own) // 2)
                some[name] = grid.only_variants(sorted(own[:size].tolist()))
                rest[name] = grid.only_variants(sorted(own[size:].tolist()))
            others = numbers_of(metric, rest, are_facts=are_facts, is_whole=True)
            for name, number in numbers_of(metric, some, are_facts=are_facts).items():
                known = {"these": number.interval(bounds)}
                if "mean" not in name:
                    known["like these"] = number.interval_over_phrasings(bounds)
                row: dict[str, object] = {"number": metric, "of": name if " " in name else "each"}
                for kind, (low, high) in known.items():
                    if not np.isnan(low):
                        row[f"{kind}: miss"] = not low <= others[name].value <= high
                        row[f"{kind}: width"] = high - low
                rows.append(row)
    table = pl.DataFrame(rows, infer_schema_length=None).with_columns(draws=pl.lit(int(draws)))
    cells = pl.col("^.*: .*$").cast(pl.Float64).mul(100).mean()
    table = table.group_by("number", "of", "draws", maintain_order=True).agg(cells.round(1))
    print(table.write_csv())


if __name__ == "__main__":
    main(*sys.argv[1:])
