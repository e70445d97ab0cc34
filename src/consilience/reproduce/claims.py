"""Claims that the papers make in words, counted and tested in the papers' own numbers.

A claim says that some numbers of a table are higher than others. It is a row of ``recipes.toml``:

- ``section``, ``claim``: the block and the row of its numbers.
- ``table``: one or several tables of the paper.
- ``higher``, ``lower``: rows, or names of ``sets``. Two lists of the same length are compared in
  pairs, other lists each with each. ``lower`` may be a number; without it, rows are compared with
  themselves.
- ``columns``, ``tasks``: the columns, and the tasks of CALUM; ``[A, B]`` compares A with B.
- ``over``: what is averaged first, and is then tested as independent: ``higher`` (the rows, unless
  given), ``lower`` or ``tasks``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from consilience.analysis.task_types import t_test
from consilience.metrics.statistics import NAN, TIE, holm, paired_permutation
from consilience.reproduce.recipe import Measured, Numbers, Recipe, Work, paper_numbers

Place = tuple[str, str, str, str]  # Table, task, row and column of a number


def claims(recipe: Recipe, work: Work) -> Numbers:
    """Each claim in the paper's own numbers; p (t) is adjusted over all claims (Holm)."""
    rows, numbers, tested = [*_rows(recipe)], Numbers(), dict[tuple[str, str], float]()
    known: dict[Place, float] = {}
    for table in dict.fromkeys(name for claim in rows for name in claim["table"]):
        for of in paper_numbers(table).iter_rows(named=True):
            task = of["group"] if table.startswith("calum") else ""  # other blocks are no tasks
            known[table, task, of["row"], of["column"]] = of["value"]
    for claim in rows:
        key, counts = (claim["section"], claim["claim"]), counted(comparisons(claim, known))
        numbers |= {(*key, column): number for column, number in counts.items()}
        tested[key] = counts["p (t)"].value
    for key, p in zip(tested, holm(list(tested.values())), strict=True):
        numbers[*key, "p (Holm)"] = Measured(p, unit="p")
    return {key: number for key, number in numbers.items() if not math.isnan(number.value)}


def _rows(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """The claims; names of sets are replaced by their members, and ``table`` is a list."""
    sets: Mapping[str, list[str]] = recipe.details["sets"]
    for claim in recipe.details["claims"]:
        lists = {
            name: [
                member
                for text in (value if isinstance(value, list) else [value])
                for member in sets.get(str(text), [text])
            ]
            for name, value in claim.items()
            if name in ("higher", "lower", "table", "tasks")
        }
        yield claim | lists


def comparisons(claim: Mapping[str, Any], numbers: Mapping[Place, float]) -> dict[str, list[float]]:
    """How much higher the first numbers are than the second ones, by what is averaged first."""
    higher, lower = claim["higher"], claim.get("lower", claim["higher"])
    pairs = zip(higher, lower, strict=True) if len(higher) == len(lower) else product(higher, lower)
    tasks, columns = (
        [[name, name] if isinstance(name, str) else name for name in names]  # for both sides
        for names in (claim.get("tasks", [""]), claim["columns"])
    )

    def number(task: str, row: str | float, column: str) -> float | None:
        """The number of a row in the first of the tables that has it; a number is itself."""
        if not isinstance(row, str):
            return row
        places = ((table, task, row, column) for table in claim["table"])
        return next((numbers[place] for place in places if place in numbers), None)

    found: dict[str, list[float]] = {}
    for (first, second), (task, other), (column, against) in product(pairs, tasks, columns):
        high, low = number(task, first, column), number(other, second, against)
        if high is not None and low is not None:
            units = {"higher": first, "lower": str(second), "tasks": task}
            found.setdefault(units[claim.get("over", "higher")], []).append(high - low)
    return found


def counted(units: Mapping[str, Sequence[float]]) -> dict[str, Measured]:
    """In how many comparisons a claim holds, and its tests over the means of the units."""
    differences = [one for of in units.values() for one in of]
    means = [float(np.mean(of)) for of in units.values()]
    test = t_test(means, [0.0] * len(means), "paired")
    return {
        "Holds in": Measured(float(sum(one > TIE for one in differences)), unit="count"),
        "of": Measured(len(differences), unit="count"),
        "Difference": Measured(float(np.mean(means)), NAN, test.low, test.high, "points"),
        "Units": Measured(len(means), unit="count"),
        "p (t)": Measured(test.p, unit="p"),
        "p (flips)": Measured(paired_permutation(means), unit="p"),
    }
