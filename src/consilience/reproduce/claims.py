"""Claims that the papers make in words, counted and tested: ``claims`` of ``recipes.toml``.

A claim says that some numbers of a table are higher than others. It is a row of ``recipes.toml``:

- ``section``, ``claim``: the block and the row of its numbers.
- ``table``: one or several tables of the paper.
- ``higher``, ``lower``: rows, or names of ``sets``. Two lists of the same length are compared in
  pairs, other lists each with each. ``lower`` may be a number; without it, rows are compared with
  themselves.
- ``columns``, ``tasks``: the columns, and the tasks of CALUM; ``[A, B]`` compares A with B.
- ``over``: what is averaged first, and is then tested as independent: ``higher`` (the rows, unless
  given), ``lower`` or ``tasks``.
- ``relations``: how many relations a number and its standard deviation are of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.statistics import (
    LEVEL,
    NAN,
    TIE,
    TTest,
    holm,
    paired_permutation,
    paired_t,
)
from consilience.report.papers import PAPER_KEYS, Key, Measured, paper_numbers
from consilience.reproduce.calum import COLUMNS, GROUPS, our_rows
from consilience.reproduce.recipe import Recipe, RecipeResult, Work


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a table, in percent."""

    value: float
    std: float = NAN
    relations: Mapping[str, float] = field(default_factory=dict)
    """The number of each relation; empty where it is not known."""


Place = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two numbers, of which a claim says that the first is higher."""

    unit: str
    higher: Number
    lower: Number

    @property
    def difference(self) -> float:
        return self.higher.value - self.lower.value

    def needed_correlation(self, relations: int) -> float:
        """The correlation over relations above which a paired t-test has p < .05; at least -1.

        The variance of the differences is ``s1**2 + s2**2 - 2 r s1 s2``, and the mean difference
        has to be above ``t[.975, n - 1]`` standard errors. NaN without deviations.
        """
        first, second = self.higher.std, self.lower.std
        if not first * second > 0:
            return NAN
        reach = self.difference / float(stdtrit(relations - 1, (1 + LEVEL) / 2))
        return max(-1.0, (first**2 + second**2 - relations * reach**2) / (2 * first * second))

    def p_over_relations(self) -> float:
        """P of the paired t-test over the relations that both have; NaN without them."""
        pairs = [
            (value, self.lower.relations[name])
            for name, value in sorted(self.higher.relations.items())
            if name in self.lower.relations
        ]
        return _t([first - second for first, second in pairs]).p


def claims(recipe: Recipe, work: Work) -> RecipeResult:
    """Each claim in the paper's own numbers, and in those of our runs that are here."""
    tables = list(dict.fromkeys(name for claim in _rows(recipe) for name in claim["table"]))
    printed = {table: paper_numbers(table) for table in tables}
    numbers: dict[Key, Measured] = {}
    ours = _ours(work, printed)
    for whose, known in (("", _printed(printed)), (", our runs", ours)):
        tested: dict[tuple[str, str], float] = {}
        for claim in _rows(recipe):
            compared = list(comparisons(claim, known))
            if not compared:
                continue
            key = claim["section"], f"{claim['claim']}{whose}"
            counted = _counted(compared, claim.get("relations", 0))
            numbers |= {(*key, column): number for column, number in counted.items()}
            tested[key] = counted["p (t)"].value
        for key, p in zip(tested, holm(list(tested.values())), strict=True):
            numbers[*key, "p (Holm)"] = Measured(p, unit="p")
    numbers = {key: number for key, number in numbers.items() if not math.isnan(number.value)}
    rows = dict.fromkeys(row for _, _, row, _ in ours)
    return RecipeResult(numbers, [f"our runs: {', '.join(rows)}"] if rows else [])


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


def comparisons(claim: Mapping[str, Any], numbers: Mapping[Place, Number]) -> Iterator[Comparison]:
    """The comparisons of a claim both of whose numbers are known."""
    higher, lower = claim["higher"], claim.get("lower", claim["higher"])
    pairs = zip(higher, lower, strict=True) if len(higher) == len(lower) else product(higher, lower)
    tasks, columns = (
        [[name, name] if isinstance(name, str) else name for name in names]  # for both sides
        for names in (claim.get("tasks", [""]), claim["columns"])
    )
    for (first, second), (task, other), (column, against) in product(pairs, tasks, columns):
        high = _number(numbers, claim["table"], task, first, column)
        low = _number(numbers, claim["table"], other, second, against)
        if high and low:
            units = {"higher": first, "lower": str(second), "tasks": task}
            yield Comparison(units[claim.get("over", "higher")], high, low)


def _number(
    numbers: Mapping[Place, Number], tables: Sequence[str], task: str, row: str | float, column: str
) -> Number | None:
    """The number of a row in the first of the tables that has it; a number is itself."""
    if not isinstance(row, str):
        return Number(row)
    keys = [(table, task, row, column) for table in tables]
    return next((numbers[key] for key in keys if key in numbers), None)


def _counted(compared: Sequence[Comparison], relations: int) -> dict[str, Measured]:
    """How often a claim holds, and tests over its units."""
    units: dict[str, list[float]] = {}
    for pair in compared:
        units.setdefault(pair.unit, []).append(pair.difference)
    means = np.array([np.mean(values) for values in units.values()])
    test = _t(means)
    needed = [pair.needed_correlation(relations) for pair in compared if pair.difference > TIE]
    alone = [pair.p_over_relations() for pair in compared]
    counted = {
        "Holds in": Measured(sum(pair.difference > TIE for pair in compared), unit="count"),
        "of": Measured(len(compared), unit="count"),
        "Difference": Measured(float(means.mean()), NAN, test.low, test.high, "points"),
        "Units": Measured(len(means), unit="count"),
        "p (t)": Measured(test.p, unit="p"),
        "p (flips)": Measured(paired_permutation(means.tolist()), unit="p"),
    }
    if relations and needed and not np.isnan(needed).any():
        counted["needed r"] = Measured(max(needed), unit="mean")
    if not np.isnan(alone).all():
        known = np.array(alone) < 1 - LEVEL
        counted["p < .05"] = Measured(float(known.sum()), unit="count")
    return counted


def _t(differences: Sequence[float] | np.ndarray[Any, Any]) -> TTest:
    """The paired t-test of differences; NaN with fewer than two, or without variation."""
    if len(differences) < 2 or np.ptp(differences) < TIE:
        return TTest(*[NAN] * 6)
    return paired_t(list(differences), [0.0] * len(differences))


def _printed(tables: Mapping[str, pl.DataFrame]) -> dict[Place, Number]:
    """The paper's numbers. The blocks of CALUM's tables are tasks, those of ParaRel's are not."""
    return {
        (table, row["group"] if table.startswith("calum") else "", row["row"], row["column"]):
        Number(row["value"], row["std"])
        for table, rows in tables.items()
        for row in rows.iter_rows(named=True)
    }  # fmt: skip


def _ours(work: Work, tables: Mapping[str, pl.DataFrame]) -> dict[Place, Number]:
    """The numbers of our runs of the same rows, as far as they are here."""
    numbers: dict[Place, Number] = {}
    columns = {key: column for column, key in COLUMNS.items()}
    tasks = {group: task for task, group in GROUPS.items()}
    for table, printed in tables.items():
        rows = printed["row"].unique(maintain_order=True).to_list()
        if not table.startswith("calum"):
            for row in rows:
                numbers |= {(table, "", row, name): n for name, n in _of_run(work, row).items()}
            continue
        names = [tasks[group] for group in printed["group"].unique(maintain_order=True)]
        for model, task, *key, value in our_rows(work, rows, names).iter_rows():
            if column := columns.get((key[0], key[1])):
                numbers[table, GROUPS[task], model, column] = Number(100 * value)
    return numbers


def _of_run(work: Work, row: str) -> dict[str, Number]:
    """The means over relations of a run on ParaRel, and each relation; empty without the run."""
    file = work.request.folder_of(row) / "metrics.csv"
    if not file.is_file():
        return {}
    table = pl.read_csv(file, schema_overrides=METRICS_SCHEMA)
    numbers: dict[str, Number] = {}
    for column, (metric, subset) in {**PAPER_KEYS, "Determinism": ("determinism", "all")}.items():
        rows = table.filter(metric=metric, subset=subset).select("group", "value").iter_rows()
        values = {group: 100 * value for group, value in rows if not math.isnan(value)}
        values.pop("MICRO", None)
        if "MACRO" in values:
            numbers[column] = Number(values.pop("MACRO"), relations=values)
    return numbers
