"""Reproducing tables: the recipes, and our numbers beside the paper's, in one folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Watch, did_you_mean
from consilience.files.write import csv_of, make_folder, write_whole
from consilience.options.others import ReproduceOptions
from consilience.report.export import Output, record_of, save_table
from consilience.report.papers import paper_numbers
from consilience.report.table import Column, Table
from consilience.reproduce import calum, claims, pararel
from consilience.reproduce.beside import (
    BESIDE_SCHEMA,
    Key,
    Measured,
    beside,
    beside_layout,
    beside_table,
)
from consilience.reproduce.recipe import ADDED, NOT_RUN, NOT_SELECTED, UNAVAILABLE, Recipe, Work

ROW = {field.name for field in fields(Recipe)} - {"name", "models", "details"}
"""The keys of a recipe in ``recipes.toml`` beside ``models`` and those of its function."""


class RecipeSet(NamedTuple):
    """Tables of one paper that are made from the same runs."""

    title: str
    needs: str
    names: list[str]


def _load_recipes() -> tuple[dict[str, Recipe], dict[str, RecipeSet]]:
    text = (files("consilience.reproduce") / "recipes.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    groups = document["models"]
    every_model = {name: spec for group in groups.values() for name, spec in group.items()}
    makers = {**vars(pararel), **vars(calum), **vars(claims)}
    recipes = {}
    for name, row in document["recipes"].items():
        models: dict[str, str] = {}
        for model in row.pop("models", ()):
            models |= groups.get(model) or {model: every_model[model]}
        given = {key: row.pop(key) for key in ROW & row.keys()}
        given["make"] = makers[given["make"]]
        recipes[name] = Recipe(name, models=models, details=row, **{"table": name} | given)
    return recipes, {name: RecipeSet(**row) for name, row in document["sets"].items()}


RECIPES, SETS = _load_recipes()


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
    work.told += recipe.notes
    made = work.attempt("", lambda: recipe.make(recipe, work))
    if isinstance(made, Table):
        made = replace(made, title=title_of(recipe), notes=[*work.notes, *warnings_of(work)])
        return Made(recipe, made, pl.DataFrame(schema=BESIDE_SCHEMA), work)
    absent = {row: f"{UNAVAILABLE}: {'; '.join(why)}" for row, why in work.reasons.items()}
    absent |= {
        row: absent[name] for name in absent.keys() & added for row in recipe.rows_of([name])
    }
    absent |= {"": NOT_RUN} if options.dry_run else {}
    ours: dict[Key, Measured | None] = {**(made or {})}
    columns = paper["column"].unique(maintain_order=True)
    for row in {*rows} - {row for _, row, _ in ours}:
        ours |= {(ADDED, row, column): None for column in columns}
    ours = {key: of for key, of in ours.items() if work.is_selected(key[1])}
    numbers = beside(recipe.table, ours, absent, options.tolerance)
    if only:
        chosen = pl.when(pl.col("row").is_in(only)).then("verdict")
        numbers = numbers.with_columns(verdict=chosen.otherwise(pl.lit(NOT_SELECTED)))
    table = beside_layout(numbers, title_of(recipe), [*work.notes, *warnings_of(work)])
    return Made(recipe, table, numbers, work)


def title_of(recipe: Recipe) -> str:
    """The title with the table of the paper, where it is of one."""
    paper, _, number = recipe.name.partition("-table-")
    return f"{recipe.title} ({NAMES[paper]}'s Table {number})" if number else recipe.title


NAMES = {"pararel": "ParaRel", "calum": "CALUM"}


def warnings_of(work: Work) -> list[str]:
    """Why numbers are missing."""
    return [f"{row or 'all'}: {UNAVAILABLE}: {'; '.join(why)}" for row, why in work.reasons.items()]


def reproduce(options: ReproduceOptions, watch: Watch = SILENT) -> Output:
    """Make the tables of a recipe or of a set of them, and write them to the folder."""
    name, known = str(options.name), dict[str, object]()
    if name not in RECIPES and name not in SETS:
        raise ConsilienceError(f"no table '{name}'", todo=did_you_mean(name, [*SETS, *RECIPES]))
    recipes = [RECIPES[one] for one in (SETS[name].names if name in SETS else [name])]
    work = [Work(options, watch, known) for _ in recipes]
    _refuse(options, recipes, work[0].added)
    if not options.dry_run:
        make_folder(options.out)
    made = [make(recipe, of) for recipe, of in zip(recipes, work, strict=True)]
    numbers = pl.concat(one.numbers for one in made)
    warnings = [*dict.fromkeys(text for one in made for text in warnings_of(one.work))]
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
        shown = [table for one in made for table in _shown(one)]
        shown += [*(f"* {note}" for note in notes), written]
    record = record_of(
        name=name, added=work[0].added, tolerance=options.tolerance, only=options.only,
        data=options.data and str(options.data),
    )  # fmt: skip
    facts = {
        "run": {**record, "commands": commands, "files": [*map(str, paths)]}, "notes": notes,
    }  # fmt: skip
    return Output({"numbers": numbers}, shown, cautions=warnings, facts=facts)


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


def _shown(made: Made) -> list[Table]:
    """The tables that a screen shows: the paper's numbers with ours, then all rows."""
    added, layout = made.recipe.rows_of(made.work.added), replace(made.table, notes=())
    paper = made.numbers.filter(pl.col("verdict") != NOT_SELECTED, ~pl.col("row").is_in(added))
    if made.recipe.is_wide or made.numbers.is_empty():
        return [layout]
    tables = [beside_table(paper, title_of(made.recipe))] if paper.height else []
    return [*tables, layout] if added else tables


def recipes() -> Output:
    """All tables and figures."""
    rows = [
        {
            "name": name, "title": recipe.title, "needs": recipe.needs, "rows": recipe.rows,
            "models": dict(recipe.models), "can_add": bool(recipe.added_rows),
        }
        for name, recipe in sorted(RECIPES.items())
    ]  # fmt: skip
    columns = [Column("name"), Column("content and requirements")]
    sets = [[name, f"{one.title}.\nNeeds {one.needs}."] for name, one in SETS.items()]
    tables = [[name, recipe.title] for name, recipe in sorted(RECIPES.items())]
    shown = [
        Table("consilience reproduce NAME", columns, sets),
        Table("One table", [Column("name"), Column("content")], tables),
    ]
    several = {name: one._asdict() for name, one in SETS.items()}
    return Output(shown=shown, facts={"recipes": rows, "sets": several})


def list_tables() -> dict[str, str]:
    """The papers' tables and figures that ``reproduce_table`` makes, and what they show."""
    sets = {name: of.title for name, of in SETS.items()}
    return sets | {name: of.title for name, of in sorted(RECIPES.items())}
