"""How often a study of equal models reports any difference, with and without adjustment.

`python bench/study_simulations.py [STUDIES]` prints the table of docs/statistics.md. In truth all
models are equal. A study has four cells, of 3, 6, 12 and 25 relations with 5 to 40 facts each; in
the last cell all facts together are compared, as of questions. Three models are compared with the
reference by four headline numbers, which the same answers decide. Seeded by the number of studies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import polars as pl

from consilience.core.patterns import Pattern
from consilience.metrics.differences import compare
from consilience.study.reporting import adjusted_over_study
from consilience.types import Candidates, Fact, Relation, Suite

OBJECTS = [f"o{number}" for number in range(5)]
PATTERNS = tuple(Pattern(f"[X] p{number} [Y].") for number in range(4))
MODELS = 4
CELLS = ((3, "MACRO"), (6, "MACRO"), (12, "MACRO"), (25, "MICRO"))
"""The relations of a cell, and what is compared: means over relations, or all facts together."""

FACTS = (5, 40)
"""Facts of a relation: at least and at most."""

HEADLINES = ("accuracy", "consistency", "corrected_consistency", "consistent_accuracy")
LEVEL = 0.05


def suite_of(relations: int, generator: np.random.Generator) -> Suite:
    """Relations of unequal size."""
    groups = []
    for at in range(relations):
        size = int(generator.integers(FACTS[0], FACTS[1] + 1))
        facts = [Fact(f"{at}-{n}", f"s{at}-{n}", OBJECTS[n % len(OBJECTS)]) for n in range(size)]
        candidates = Candidates.of(facts)
        groups.append(Relation(f"r{at}", f"r{at}", "N-1", PATTERNS, facts, {}, candidates))
    return Suite("simulated", tuple(groups))


def answers_of(
    suite: Suite, rates: Mapping[str, float], generator: np.random.Generator
) -> pl.DataFrame:
    """The answers of one model. ``rates``: how often it knows a fact of each relation."""
    parts = []
    for group in suite:
        gold = np.array([OBJECTS.index(fact.object) for fact in group.facts])
        shape = len(gold), len(PATTERNS)
        knows = generator.random(len(gold)) < rates[group.id]
        usual = np.where(knows, gold, generator.integers(0, len(OBJECTS), len(gold)))
        keeps = generator.random(shape) < 0.7
        answers = np.where(keeps, usual[:, None], generator.integers(0, len(OBJECTS), shape))
        parts.append(
            pl.DataFrame(
                {
                    "group": group.id,
                    "item": np.repeat([fact.item for fact in group.facts], shape[1]),
                    "subject": np.repeat([fact.subject for fact in group.facts], shape[1]),
                    "variant": [pattern.name for pattern in PATTERNS] * shape[0],
                    "gold": np.repeat([fact.object for fact in group.facts], shape[1]),
                    "answer": np.array(OBJECTS)[answers].ravel(),
                }
            )
        )
    return pl.concat(parts)


def study(generator: np.random.Generator) -> pl.DataFrame:
    """The headline comparisons of a study, adjusted over all of them."""
    tables = []
    for relations, pool in CELLS:
        suite = suite_of(relations, generator)
        rates = {group.id: generator.uniform(0.2, 0.8) for group in suite}
        models = {f"m{at}": answers_of(suite, rates, generator) for at in range(MODELS)}
        rows = compare(models, suite, "strict", seed=int(generator.integers(1 << 30)))
        is_headline = pl.col("metric").is_in(HEADLINES) & (pl.col("subset") == "all")
        tables.append(rows.filter(is_headline & (pl.col("group") == pool)))
    return adjusted_over_study(pl.concat(tables))


def main() -> None:
    """The table, of so many studies."""
    studies = int(sys.argv[1]) if sys.argv[1:] else 1000
    generator = np.random.default_rng(studies)
    found: dict[str, list[bool]] = {name: [] for name in ("p", "p_holm", "q_value")}
    tests = single = 0
    for _ in range(studies):
        table = study(generator)
        tests, single = tests + table.height, single + table.filter(pl.col("p") < LEVEL).height
        for name, rejected in found.items():
            rejected.append(table.filter(pl.col(name) < LEVEL).height > 0)
    print(f"{studies} studies of {tests / studies:.0f} tests; p < {LEVEL} in "
          f"{100 * single / tests:.1f} % of the tests")  # fmt: skip
    print("| adjusted | studies with any difference, percent |\n|---|---|")
    for name, label in (("p", "no"), ("p_holm", "Holm"), ("q_value", "Benjamini-Hochberg")):
        print(f"| {label} | {100 * np.mean(found[name]):.1f} |")


if __name__ == "__main__":
    main()
