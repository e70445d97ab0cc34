"""How often a test between two languages of one run finds a difference where there is none.

`python bench/language_simulations.py [SETS]` prints the table of docs/statistics.md. In truth both
languages have the same accuracy and consistency. They differ in everything else: one has two
patterns and the other six; in one, half of the facts are answered alike less often, in the other a
few facts are almost never; and one lacks the answers to a fifth of the facts. Seeded by the row.
"""

from __future__ import annotations

import sys
import zlib

import numpy as np
import polars as pl

from consilience.core.patterns import Pattern
from consilience.metrics.differences import compare_languages
from consilience.types import Candidates, Fact, Relation, Suite

OBJECTS = [f"o{number}" for number in range(5)]
PATTERNS = {"aa": 2, "bb": 6}
"""How many patterns each language has."""

FOLLOWS = {"aa": ((0.45, 0.5), (0.95, 0.5)), "bb": ((0.805, 0.85), (0.105, 0.15))}
"""How often a pattern has its fact's own answer and else any object, and in what share of facts.

The mean (0.7) and the mean of the square (0.55) are the same in both languages."""

RIGHT = 0.6
"""How often a fact's own answer is its gold, and else any object, in relations on average."""

MISSING = 0.2
"""The share of facts without answers in the second language."""

SHOWN = ("accuracy", "consistency", "corrected_consistency")


def suite_of(relations: int, facts: int) -> Suite:
    """Relations with this many facts, in two languages."""
    patterns = tuple(
        Pattern(f"[X] {language}{number} [Y].", language=language)
        for language, count in PATTERNS.items()
        for number in range(count)
    )
    groups = []
    for at in range(relations):
        of_group = [Fact(f"{at}-{n}", f"s{at}-{n}", OBJECTS[n % 5]) for n in range(facts)]
        name = f"r{at}"
        groups.append(Relation(name, name, "N-1", patterns, of_group, {}, Candidates.of(of_group)))
    return Suite("simulated", tuple(groups))


def answers_of(suite: Suite, generator: np.random.Generator) -> pl.DataFrame:
    """Answers whose accuracy and consistency are the same in both languages, in truth."""
    parts = []
    for group in suite:
        facts, width = len(group.facts), len(group.patterns)
        gold = np.array([OBJECTS.index(fact.object) for fact in group.facts])
        right = RIGHT + generator.uniform(-0.3, 0.3)
        answers = np.empty((facts, width), dtype=np.int64)
        taken = np.ones((facts, width), dtype=bool)
        start = 0
        for language, count in PATTERNS.items():
            own = np.where(generator.random(facts) < right, gold, generator.integers(0, 5, facts))
            (usual, _), (other, share) = FOLLOWS[language]
            follows = np.where(generator.random(facts) < share, other, usual)
            if language == "bb":
                taken[generator.random(facts) < MISSING, start:] = False
            keep = generator.random((facts, count)) < follows[:, None]
            drawn = generator.integers(0, 5, (facts, count))
            answers[:, start : start + count] = np.where(keep, own[:, None], drawn)
            start += count
        parts.append(
            pl.DataFrame(
                {
                    "group": group.id,
                    "item": np.repeat([fact.item for fact in group.facts], width),
                    "subject": np.repeat([fact.subject for fact in group.facts], width),
                    "variant": [pattern.name for pattern in group.patterns] * facts,
                    "gold": np.repeat([fact.object for fact in group.facts], width),
                    "answer": np.where(taken, np.array(OBJECTS)[answers], "").ravel(),
                }
            ).with_columns(answer=pl.col("answer").replace("", None))
        )
    return pl.concat(parts)


def rates(relations: int, facts: int, sets: int) -> list[str]:
    """Percent of sets with p < 0.05, of the mean of relations and of pooled counts."""
    generator = np.random.default_rng(zlib.crc32(f"{relations} {facts}".encode()))
    suite = suite_of(relations, facts)
    found: dict[tuple[str, str], list[bool]] = {}
    for _ in range(sets):
        table = compare_languages(answers_of(suite, generator), suite, "strict")
        for row in table.filter(pl.col("first") == "aa").to_dicts():
            if row["metric"] in SHOWN and row["group"] in ("MACRO", "MICRO"):
                found.setdefault((row["metric"], row["group"]), []).append(row["p"] < 0.05)
    return [
        " / ".join(f"{100 * np.mean(found[name, group]):.1f}" for group in ("MACRO", "MICRO"))
        for name in SHOWN
    ]


def main() -> None:
    """The table, of so many data sets a row."""
    sets = int(sys.argv[1]) if sys.argv[1:] else 1000
    print("| relations | facts each | " + " | ".join(SHOWN) + " |")
    print("|---|---|" + "---|" * len(SHOWN), flush=True)
    for relations, facts in ((1, 10), (1, 40), (7, 10), (12, 30)):
        cells = " | ".join(rates(relations, facts, sets))
        print(f"| {relations} | {facts} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
