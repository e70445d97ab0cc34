"""Reproducing tables: claims in words, the recipes, and our numbers beside the paper's."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from consilience.analysis.task_types import t_test
from consilience.core.errors import SILENT, ConsilienceError, Progress, did_you_mean
from consilience.files.write import csv_of, make_folder, write_whole
from consilience.metrics.statistics import NAN, TIE, holm, paired_permutation
from consilience.options.commands import ReproduceOptions
from consilience.report.export import Output, record_of, save_table
from consilience.report.table import Cell, Column, Table, Value, text_of
from consilience.reproduce import (
    ADDED,
    NOT_RUN,
    NOT_SELECTED,
    Key,
    Measured,
    Numbers,
    Probed,
    Recipe,
    Work,
    calum,
    paper_numbers,
    pararel,
)

Place = tuple[str, str, str, str]  # Table, task, row and column of a number


def claims(recipe: Recipe, work: Work) -> Numbers:
    """Claims of a paper in words, in its own numbers; p (t) is adjusted over all claims (Holm).

    A claim says that some numbers of a table are higher than others. It is a row of
    ``recipes.toml``:

    - ``section``, ``claim``: the block and the row of its numbers.
    - ``table``: one or several tables of the paper.
    - ``higher``, ``lower``: rows, or names of ``sets``. Two lists of the same length are compared
      in pairs, other lists each with each. ``lower`` may be a number; without it, rows are compared
      with themselves.
    - ``columns``, ``tasks``: the columns, and the tasks of CALUM; ``[A, B]`` compares A with B.
    - ``over``: what is averaged first, and is then tested as independent: ``higher`` (the rows,
      unless given), ``lower`` or ``tasks``.
    """
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
    table: str,
    ours: Mapping[Key, Measured | None],
    absent: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """The paper's numbers with ours (``BESIDE_SCHEMA``), and ours that the paper does not have.

    Rows are in the order of the paper. ``ours``: None for a missing number. ``absent``: why a row
    has no number of ours; the reason of ``""`` applies to all other rows.
    """
    absent, rows = absent or {}, list[dict[str, object]]()
    printed: list[dict[str, Any]] = paper_numbers(table).to_dicts()
    known = {(row["group"], row["row"], row["column"]) for row in printed}
    for key, number in ours.items():
        if key not in known:
            unit = number.unit if number else ""
            place = dict(zip(("group", "row", "column"), key, strict=True))
            other = {"unit": unit, "digits": DIGITS.get(unit, 1), "value": NAN, "std": NAN}
            printed.append({"table": table, "section": "", **place, **other})
    for row in printed:
        number = ours.get((row["group"], row["row"], row["column"]))
        verdict = absent.get(row["row"], absent.get("", "not measured"))
        if number is not None:
            verdict = _verdict(row["value"], row["digits"], row["unit"], number.value)
        measured = number or Measured(NAN)
        rows.append(
            {
                **row, "paper": row["value"], "paper_std": row["std"], "ours": measured.value,
                "std": measured.std, "low": measured.low, "high": measured.high,
                "difference": measured.value - row["value"], "verdict": verdict,
            }
        )  # fmt: skip
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
            return Cell(f"{_text(paper)}K"), Cell(_text(ours) + "K" * known)
        case "p" | "p<" as unit:
            below = "< " if unit == "p<" else ""
            is_small = row["ours"] < 0.0005
            return Cell(below + _text(paper)), Cell("<.001" if is_small else _text(ours))
        case _:
            return paper, ours


def _text(cell: Cell) -> str:
    return text_of(cell, NUMBER)


def beside_table(numbers: pl.DataFrame, title: str, notes: Sequence[str] = ()) -> Table:
    """In the paper's layout: its columns, and in each row ours below the paper's."""
    headings = numbers["column"].unique(maintain_order=True).to_list()
    rows: list[list[Value]] = []
    blocks: list[str] = []
    for (group, name), chosen in numbers.group_by(["group", "row"], maintain_order=True):
        cells = {row["column"]: _cells(row) for row in chosen.iter_rows(named=True)}
        is_empty = chosen["paper"].is_nan().all() and chosen["ours"].is_nan().all()
        ours = chosen["verdict"][0].split(":")[0] if is_empty else "ours"
        for at, whose in enumerate(("paper", ours)):
            shown = [cells[heading][at] if heading in cells else Cell() for heading in headings]
            if any(_text(cell) != "-" for cell in shown) or (is_empty and at):
                rows.append([f"{name} ({whose})", *shown])
                blocks.append(str(group))
    columns = [Column(""), *(Column(heading, "number") for heading in headings)]
    return Table(title, columns, rows, notes, blocks)


@dataclass(frozen=True, slots=True)
class Made:
    """A table that was made."""

    recipe: Recipe
    table: Table  # In the layout of the paper
    numbers: pl.DataFrame  # ``BESIDE_SCHEMA``; empty for a table of texts
    work: Work


def make(recipe: Recipe, work: Work) -> Made:
    """A table of a paper with our numbers; ``work`` says which rows, and collects notes."""
    options, added = work.options, work.added if recipe.added_rows else {}
    rows = recipe.rows_of(added)
    paper = paper_numbers(recipe.table)
    taken = {*recipe.models, *paper["row"], *paper["group"], *paper["column"]}
    for name in (name for name in (*added, *rows) if name in taken):
        found = f"--add {name}: the paper's table has that name"
        raise ConsilienceError(found, expected="a new name")
    recipe = replace(recipe, models={**recipe.models, **added})
    only = [*dict.fromkeys([*(options.only or ()), *rows])]
    work.rows = {*only} if only else None
    work.note("", recipe.notes)
    made = work.attempt("", lambda: recipe.make(recipe, work))
    if isinstance(made, Table):
        made = replace(made, title=recipe.heading, notes=[*work.notes, *work.warnings])
        return Made(recipe, made, pl.DataFrame(schema=BESIDE_SCHEMA), work)
    absent = work.missing | ({"": NOT_RUN} if options.dry_run else {})
    for name in absent.keys() & added:
        absent |= dict.fromkeys(recipe.rows_of([name]), absent[name])
    ours: dict[Key, Measured | None] = {**(made or {})}
    columns = paper["column"].unique(maintain_order=True)
    measured = {row for _, row, _ in ours}
    for row in (row for row in rows if row not in measured):
        ours |= {(ADDED, row, column): None for column in columns}
    ours = {key: of for key, of in ours.items() if work.is_selected(key[1])}
    numbers = beside(recipe.table, ours, absent)
    if only:
        chosen = pl.when(pl.col("row").is_in(only)).then("verdict")
        numbers = numbers.with_columns(verdict=chosen.otherwise(pl.lit(NOT_SELECTED)))
    table = beside_table(numbers, recipe.heading, [*work.notes, *work.warnings])
    return Made(recipe, table, numbers, work)


def reproduce(options: ReproduceOptions, progress: Progress = SILENT) -> Output:
    """Make the tables of a recipe or of a set of them, and write them to the folder."""
    name, known = str(options.name), dict[str, object]()
    if name not in RECIPES and name not in SETS:
        raise ConsilienceError(f"no table '{name}'", todo=did_you_mean(name, [*SETS, *RECIPES]))
    recipes = [RECIPES[one] for one in (SETS[name]["names"] if name in SETS else [name])]
    work = [Work(options, progress, known) for _ in recipes]
    _refuse(options, recipes, work[0].added)
    if not options.dry_run:
        make_folder(options.out)
    made = [make(recipe, of) for recipe, of in zip(recipes, work, strict=True)]
    numbers = pl.concat(one.numbers for one in made)
    warnings = [*dict.fromkeys(text for one in made for text in one.work.warnings)]
    notes = [*dict.fromkeys(note for one in work for note in one.notes)]
    commands = [*dict.fromkeys(command for one in work for command in one.commands)]
    paths: list[Path] = []
    shown: list[Table | str] = [*commands]
    if not options.dry_run:
        for one in made:
            paths += [*one.work.files, *save_table(one.table, options.out, one.recipe.name)]
        paths.append(options.out / "numbers.csv")
        write_whole(paths[-1], csv_of(numbers))
        names = ", ".join(one.recipe.name for one in made)
        written = f"Written to {options.out}: numbers.csv; as .csv, .md and .tex {names}"
        shown = [replace(one.table, notes=()) for one in made]
        shown += [*(f"* {note}" for note in notes), written]
    record = record_of(
        name=name, added=work[0].added, only=options.only,
        data=options.data and str(options.data),
    )  # fmt: skip
    facts = {
        "run": {**record, "commands": commands, "files": [*map(str, paths)]}, "notes": notes,
    }  # fmt: skip
    has_run = any(isinstance(of, Probed) for of in known.values())
    is_measured = has_run or numbers["ours"].is_not_nan().any()
    status = 0 if is_measured or options.dry_run or not warnings else 3
    return Output({"numbers": numbers}, shown, cautions=warnings, facts=facts, status=status)


def _refuse(options: ReproduceOptions, recipes: list[Recipe], added: Mapping[str, str]) -> None:
    """Raise for what cannot be made, before any work."""
    takers = [one.name for one in recipes if one.added_rows]
    if added and not takers:
        known = ", ".join(one.name for one in RECIPES.values() if one.added_rows)
        found = f"{options.name} takes no further model"
        raise ConsilienceError(found, expected=f"one of {known}")
    rows = dict.fromkeys(row for one in recipes for row in (*one.rows, *one.rows_of(added)))
    for row in options.only or ():
        if row not in rows:
            expected = ", ".join(rows) or "none"
            raise ConsilienceError(f"{options.name} has no row '{row}'", expected=expected)
    if options.data and not options.data.is_dir():
        raise ConsilienceError("no such folder", where=str(options.data), todo="Check the path.")


def recipes() -> Output:
    """All tables and figures (``recipes``), and the sets of them that share their runs."""
    rows = [
        {
            "name": name, "title": recipe.title, "needs": recipe.needs,
            "models": ", ".join(f"{of}={spec}" for of, spec in recipe.models.items()),
            "can_add": bool(recipe.added_rows),
        }
        for name, recipe in sorted(RECIPES.items())
    ]  # fmt: skip
    columns = [Column("name"), Column("content and requirements")]
    sets = [[name, f"{one['title']}.\nNeeds {one['needs']}."] for name, one in SETS.items()]
    tables = [[name, recipe.title] for name, recipe in sorted(RECIPES.items())]
    shown = [
        Table("consilience reproduce NAME", columns, sets),
        Table("One table", [Column("name"), Column("content")], tables),
    ]
    return Output({"recipes": pl.DataFrame(rows)}, shown, facts={"sets": SETS})
