"""Reproducing tables: claims in words, the recipes, and our numbers beside the paper's."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from consilience.analysis.task_types import t_test
from consilience.core.errors import SILENT, ConsilienceError, Progress, did_you_mean
from consilience.metrics.statistics import NAN, TIE, holm
from consilience.options.commands import ReproduceOptions
from consilience.probing import CountedRun
from consilience.report.table import Cell, Column, Output, Table, Value, record_of, text_of
from consilience.reproduce import (
    Key,
    Measured,
    Numbers,
    Recipe,
    Work,
    calum,
    paper_numbers,
    pararel,
)


def claims(recipe: Recipe, work: Work) -> Numbers:
    """Claims of a paper in words, in its own numbers; p (t) is adjusted over all claims (Holm).

    ``recipes.toml`` says what a claim is.
    """
    numbers, sets = Numbers(), recipe.details["sets"]
    for claim in recipe.details["claims"]:
        for column, number in counted(comparisons(claim, sets)).items():
            numbers[claim["section"], claim["claim"], column] = number
    tested = {key: number.value for key, number in numbers.items() if key[2] == "p (t)"}
    for key, p in zip(tested, holm(list(tested.values())), strict=True):
        numbers[key[0], key[1], "p (Holm)"] = Measured(p, unit="p")
    return {key: number for key, number in numbers.items() if not math.isnan(number.value)}


def comparisons(claim: Mapping[str, Any], sets: Mapping[str, list[str]]) -> dict[str, list[float]]:
    """How much higher the first numbers are than the second ones, by what is averaged first."""

    def members(name: str, otherwise: Any = None) -> list[Any]:
        """What a claim names: one or a list, of which the names of sets are replaced."""
        value = claim.get(name, otherwise)
        listed = value if isinstance(value, list) else [value]
        return [member for one in listed for member in sets.get(str(one), [one])]

    known: dict[tuple[str, str, str], float] = {}
    for table in reversed(members("table")):
        for of in paper_numbers(table).iter_rows(named=True):
            block = of["group"] if "tasks" in claim else ""  # other blocks are no tasks
            known[block, of["row"], of["column"]] = of["value"]
    higher, lower = members("higher"), members("lower", claim["higher"])
    pairs = zip(higher, lower, strict=True) if len(higher) == len(lower) else product(higher, lower)
    tasks, columns = (
        [[name, name] if isinstance(name, str) else name for name in members(of, "")]
        for of in ("tasks", "columns")
    )
    found: dict[str, list[float]] = {}
    for (first, second), (task, other), (column, against) in product(pairs, tasks, columns):
        high = known.get((task, first, column))
        low = known.get((other, second, against)) if isinstance(second, str) else second
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
    }


ROW = {field.name for field in fields(Recipe)} - {"name", "models", "details"}
"""The keys of a recipe in ``recipes.toml`` beside ``models`` and those of its function."""


def _load_recipes() -> tuple[dict[str, Recipe], dict[str, dict[str, Any]]]:
    """All recipes, and sets of those of one paper that share their runs: title, needs, names."""
    text = (files("consilience.reproduce") / "recipes.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    groups = document["models"]
    every_model = {name: spec for group in groups.values() for name, spec in group.items()}
    makers = {**vars(pararel), **vars(calum), "claims": claims}
    recipes = {}
    for name, row in document["recipes"].items():
        models: dict[str, str] = {}
        for model in row.pop("models", ()):
            models |= groups.get(model) or {model: every_model[model]}
        given = {key: row.pop(key) for key in ROW & row.keys()}
        given["make"] = makers[given["make"]]
        details = {"columns": document["columns"][name.partition("-")[0]], **row}
        recipes[name] = Recipe(name, models=models, details=details, **{"table": name} | given)
    return recipes, document["sets"]


RECIPES, SETS = _load_recipes()


BESIDE_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("table", "section", "group", "row", "column", "unit"), pl.String),
    "digits": pl.Int64,
    **dict.fromkeys(("paper", "paper_std", "ours", "std", "low", "high"), pl.Float64),
    "difference": pl.Float64,
    "verdict": pl.String,
}
"""A row for each number of the paper, and for each of ours that the paper does not have.

* ``group``, ``row``, ``column``: where the paper prints the number.
* ``digits``: digits after the decimal point, as the paper prints it.
* ``paper``, ``paper_std``: the paper's number.
* ``ours``, ``std``, ``low``, ``high``: ours with its interval.
* ``difference``: ours minus the paper's.
* ``verdict``: ``same`` at these digits, else ``differs``; ``ours only`` if the paper has no such
  number; or the reason why there is no number of ours.
"""

DIGITS = {"count": 0, "mean": 2, "p": 3, "p<": 3}
"""Digits of ours after the decimal point, by unit; one of all others."""

NUMBER = Column("", "number")  # in the unit that the paper prints


def beside(
    table: str, ours: Mapping[Key, Measured], absent: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """The paper's numbers with ours (``BESIDE_SCHEMA``), and ours that the paper does not have.

    Rows are in the order of the paper. ``absent``: why a row has no number of ours; the reason of
    ``""`` applies to all other rows.
    """
    absent, rows = absent or {}, list[dict[str, Any]]()
    paper = {(of["group"], of["row"], of["column"]): of for of in paper_numbers(table).to_dicts()}
    for key in dict.fromkeys([*paper, *ours]):
        number = ours.get(key, Measured(NAN))
        place = dict(zip(("group", "row", "column"), key, strict=True))
        other = {"unit": number.unit, "digits": DIGITS.get(number.unit, 1), "section": ""}
        row: dict[str, Any] = paper.get(key, {**place, **other, "value": NAN, "std": NAN})
        verdict = absent.get(key[1], absent.get("", "not measured"))
        if key in ours and not (math.isnan(number.value) and key[1] in absent):
            verdict = _verdict(row["value"], row["digits"], row["unit"], number.value)
        rows.append({
            **row, "table": table, "paper": row["value"], "paper_std": row["std"],
            "ours": number.value, "std": number.std, "low": number.low, "high": number.high,
            "difference": number.value - row["value"], "verdict": verdict,
        })  # fmt: skip
    blocks, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("group", "row"))
    rows.sort(key=lambda row: (blocks.index(row["group"]), names.index(row["row"])))
    return pl.DataFrame(rows, schema=BESIDE_SCHEMA)


def _verdict(paper: float, digits: int, unit: str, ours: float) -> str:
    if math.isnan(ours):
        return "no data"
    if math.isnan(paper):
        return "ours only"
    is_same = ours < paper if unit == "p<" else round(ours, digits) == paper
    return "same" if is_same else "differs"


def _cells(row: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """The paper's number as it prints it, and ours; as text if it has a symbol, such as < or K."""
    digits = DIGITS.get(row["unit"], max(1, row["digits"]))
    paper = Cell(row["paper"], row["paper_std"], digits=row["digits"])
    ours = Cell(row["ours"], row["std"], digits=digits)
    match row["unit"]:
        case "thousand":
            known = not math.isnan(row["ours"])
            return Cell(f"{text_of(paper, NUMBER)}K"), Cell(text_of(ours, NUMBER) + "K" * known)
        case "p" | "p<" as unit:
            below = "< " if unit == "p<" else ""
            is_small = row["ours"] < 0.0005
            return Cell(below + text_of(paper, NUMBER)), Cell(
                "<.001" if is_small else text_of(ours, NUMBER)
            )
        case _:
            return paper, ours


def beside_table(numbers: pl.DataFrame, title: str) -> Table:
    """In the paper's layout: its columns, and in each row ours below the paper's."""
    headings = numbers["column"].unique(maintain_order=True).to_list()
    rows: list[list[Value]] = []
    blocks: list[str] = []
    for (group, name), chosen in numbers.group_by(["group", "row"], maintain_order=True):
        cells = {row["column"]: _cells(row) for row in chosen.iter_rows(named=True)}
        for at, whose in enumerate(("paper", "ours")):
            shown = [cells[heading][at] if heading in cells else Cell() for heading in headings]
            if any(text_of(cell, NUMBER) != "-" for cell in shown):
                rows.append([f"{name} ({whose})", *shown])
                blocks.append(str(group))
    columns = [Column(""), *(Column(heading, "number") for heading in headings)]
    return Table(title, columns, rows, blocks=blocks)


def make(recipe: Recipe, work: Work) -> tuple[Table, pl.DataFrame]:
    """A table of a paper with our numbers, and these (``BESIDE_SCHEMA``); none of texts.

    ``work`` says which rows, and collects notes.
    """
    if recipe.added_rows:
        recipe = replace(recipe, models={**recipe.models, **work.added})
    paper = paper_numbers(recipe.table)
    only = [*(work.options.only or ()), *recipe.rows_of(work.added)]
    work.rows = only or None
    work.note("", recipe.notes)
    made = work.attempt("", lambda: recipe.make(recipe, work))
    if isinstance(made, Table):
        return made, pl.DataFrame(schema=BESIDE_SCHEMA)
    rows, columns = recipe.rows_of(work.added), paper["column"].unique(maintain_order=True)
    none = {(recipe.block_of(row), row, of): Measured(NAN) for row, of in product(rows, columns)}
    ours = {key: of for key, of in none.items() if key[1] in work.missing}
    ours |= {key: of for key, of in (made or {}).items() if work.is_selected(key[1])}
    others = dict.fromkeys(paper["row"].filter(~paper["row"].is_in(only)), "not measured")
    numbers = beside(recipe.table, ours, work.missing | (others if only else {}))
    return beside_table(numbers, recipe.title), numbers


def reproduce(options: ReproduceOptions, progress: Progress = SILENT) -> Output:
    """Make the tables of a recipe or of a set of them, with the runs that they need."""
    name, work = str(options.name), Work(options, progress)
    if name not in RECIPES and name not in SETS:
        raise ConsilienceError(f"no table '{name}'", todo=did_you_mean(name, [*SETS, *RECIPES]))
    recipes = [RECIPES[one] for one in SETS.get(name, {"names": [name]})["names"]]
    _refuse(options, recipes, work.added)
    needs = SETS[name]["needs"] if name in SETS else recipes[0].needs
    made = [make(recipe, work) for recipe in recipes]
    numbers = pl.concat(of for _, of in made)
    shown: list[Table | str] = [table for table, _ in made]
    shown[-1] = replace(made[-1][0], notes=work.notes)
    warnings = [f"{row or 'all'}: {why}" for row, why in work.missing.items()]
    has_run = any(isinstance(of, CountedRun) for of in work.known.values())
    is_measured = has_run or numbers["ours"].is_not_nan().any()
    data = options.data and str(options.data)
    record = record_of(name=name, added=work.added, only=options.only, data=data)
    return Output(
        {"numbers": numbers},
        [f"Needs {needs}.", *work.commands] if options.dry_run else shown,
        cautions=warnings,
        facts={"run": {**record, "commands": work.commands}, "notes": work.notes},
        status=0 if is_measured or options.dry_run or not warnings else 3,
    )


def _refuse(options: ReproduceOptions, recipes: list[Recipe], added: Mapping[str, str]) -> None:
    """Raise for what cannot be made, before any work."""
    takers = [one.name for one in recipes if one.added_rows]
    if added and not takers:
        known = ", ".join(one.name for one in RECIPES.values() if one.added_rows)
        found = f"{options.name} takes no further model"
        raise ConsilienceError(found, expected=f"one of {known}")
    rows = [row for one in recipes for row in (*one.models, *paper_numbers(one.table)["row"])]
    for name in (name for name in added if name in rows):
        found = f"--add {name}: the paper's table has that name"
        raise ConsilienceError(found, expected="a new name")
    rows = [*dict.fromkeys([*rows, *(row for one in recipes for row in one.rows_of(added))])]
    for row in options.only or ():
        if row not in rows:
            expected = ", ".join(rows) or "none"
            raise ConsilienceError(f"{options.name} has no row '{row}'", expected=expected)
    if options.data and not options.data.is_dir():
        raise ConsilienceError("no such folder", where=str(options.data), todo="Check the path.")


def recipes() -> Output:
    """All tables and figures (``recipes``), and the sets of them that share their runs."""
    recipes = sorted(RECIPES.items())
    rows = [{"name": name, "title": one.title, "needs": one.needs} for name, one in recipes]
    columns = [Column("name"), Column("content and requirements")]
    sets = [[name, f"{one['title']}.\nNeeds {one['needs']}."] for name, one in SETS.items()]
    tables = [[name, one.title] for name, one in recipes]
    shown = [
        Table("consilience reproduce NAME", columns, sets),
        Table("One table", [Column("name"), Column("content")], tables),
    ]
    return Output({"recipes": pl.DataFrame(rows)}, shown, facts={"sets": SETS})
