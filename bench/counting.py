"""How long counting takes, and how much memory: answers are made up, each case has its process.

``python bench/counting.py facts|questions score|compare [TIMES]`` prints the processor seconds and
the peak memory of one case, of ``TIMES`` as many questions or facts.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import polars as pl

from consilience import Pattern
from consilience.core.factors import Design, Factor, FactorialDesign
from consilience.core.items import Ints
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, measure
from consilience.types import QUESTION_WORDS, Candidates, Fact, Relation, Suite

CASES = {"facts": "223,170 answers of 38 relations in 2 to 20 patterns, as in ParaRel",
         "questions": "10,000,008 answers to 416,667 questions in 24 orders"}  # fmt: skip


def texts(names: list[str], places: Ints) -> pl.Series:
    """Names as categories."""
    return pl.Series(names).cast(pl.Categorical).gather(places)


def answered(suite: Suite, seed: int) -> pl.DataFrame:
    """Answers: 60 % are right, those of two runs alike in 90 %."""
    parts: list[pl.DataFrame] = []
    for group in suite.relations:
        words, size = list(group.candidates.words), len(group.design.variants)
        generator = np.random.default_rng(len(parts))
        items = np.repeat(np.arange(len(group.facts)), size)
        golds = np.array([words.index(fact.object) for fact in group.facts])[items]
        other = generator.integers(0, len(words), len(items))
        said = np.where(generator.random(len(items)) < 0.6, golds, other)
        anew = np.random.default_rng([seed, len(parts)])
        said = np.where(anew.random(len(items)) < 0.1 * (seed > 0), other, said)
        variants = np.tile(np.arange(size), len(group.facts))
        columns = {
            "group": texts([group.id], np.zeros(len(items), dtype=np.int64)),
            "item": texts([fact.item for fact in group.facts], items),
            "subject": texts([fact.subject for fact in group.facts], items),
            "variant": texts(list(group.design.variants), variants),
            "gold": texts(words, golds), "answer": texts(words, said),
        }  # fmt: skip
        if suite.words is QUESTION_WORDS:
            columns |= {"option": texts(words, said), "gold_option": texts(words, golds),
                        "shown": texts(list(group.design.levels["order"]), variants)}  # fmt: skip
            columns["n_candidates"] = pl.Series([4.0]).gather(np.zeros_like(items))
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)


def facts(times: float) -> Suite:
    """Relations with 533 or 534 facts, 60 objects, and two with each number of patterns."""
    relations = []
    for at, patterns in enumerate([*range(2, 21)] * 2):
        size = round(times * (533 if patterns == 20 or at == 0 else 534))
        of = tuple(Fact(f"{at}-{n}", f"s{at}-{n}", f"o{n % 60}") for n in range(size))
        ways = tuple(Pattern(f"[X] is {n} of [Y].") for n in range(patterns))
        relations.append(Relation(f"P{at}", f"P{at}", "N-1", ways, of, {}, Candidates.of(of)))
    return Suite("facts", tuple(relations), "strict")


def questions(times: float) -> Suite:
    """One group of questions with four options in all 24 orders."""
    orders = ["".join(order) for order in permutations("ABCD")]
    design = FactorialDesign.full([Factor("order", tuple(orders))])
    of = tuple(Fact(f"q{n}", f"q{n}", str(n % 4)) for n in range(round(416_667 * times)))
    options = Candidates(("0", "1", "2", "3"), (1, 1, 1, 1))
    group = Relation.of_design("all", of, options, Design.of_cells(design, 4))
    return Suite("questions", (group,), words=QUESTION_WORDS)


def count(kind: str, command: str, times: str = "1") -> str:
    """The processor seconds and the peak memory of a case in this process."""
    suite = {"facts": facts, "questions": questions}[kind](float(times))
    runs = [answered(suite, seed) for seed in range(1 + (command == "compare"))]
    start = time.process_time()
    ready = [CheckedAnswers(run, suite) for run in runs]
    if command == "compare":
        compare({"one": ready[0], "two": ready[1]}, suite, suite.protocol)
    else:
        measure(ready[0], suite)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{command} {seconds:.1f} s, {peak:,.0f} MiB"


def table() -> Iterator[str]:
    """A line of each case."""
    yield "Counting: processor seconds, and the peak memory of the process with its answers"
    for kind, name in CASES.items():
        calls = [[sys.executable, __file__, kind, command] for command in ("score", "compare")]
        said = [subprocess.check_output(call, text=True).strip() for call in calls]
        yield f"  {name}: {'; '.join(said)}"


if __name__ == "__main__":
    print(count(*sys.argv[1:]))
