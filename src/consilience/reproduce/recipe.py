"""Recipes: how tables and figures of the papers are made again, as rows of ``recipes.toml``."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from consilience.errors import ConsilienceError, did_you_mean
from consilience.report.measured import Measured
from consilience.report.papers import Key, beside, paper_numbers
from consilience.reproduce.work import NOT_SELECTED, Request, Work
from consilience.suites.tasks import CALUM

ADDED = "added"
"""The block of a user's models in a table."""

KOREAN = ("kornli", "klue-nli", "klue-sts")
"""The Korean tasks of CALUM."""

PAIR_FILES = [
    f"{task}:{split}"
    for task in (*CALUM, *KOREAN)
    for split in ("train", "validation", "test", "answers")
]
"""Sets of sentence pairs that may be given as files, and what people answered."""


NOT_COMPARABLE = "not comparable"
"""The verdict on a number of fewer questions than the paper's."""

FEWER = ("--limit", "-n", "--groups", "--facts-from", "--single-token")
"""How the options begin that choose some questions only."""


@dataclass(frozen=True, slots=True)
class RecipeResult:
    """The result of a recipe."""

    numbers: Mapping[Key, Measured]
    """Our numbers, by block, row and column of the paper's table."""
    notes: Sequence[str] = ()
    """What a reader should know, and examples, which have no numbers."""
    files: Sequence[Path] = ()
    """Files that the recipe made, such as a figure."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table or figure of a paper is reproduced."""

    name: str
    """Its name on the command line."""
    title: str
    """What the table or figure shows."""
    needs: str
    """The models, data and time that it needs."""
    make: Callable[[Recipe, Work], RecipeResult]
    table: str
    """Where the paper's numbers are in papers.csv."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The paper's models, by the paper's names."""
    added_rows: Sequence[str] = ()
    """What follows the name of a user's model in each of its rows; empty if it can have none."""
    user_rows: Sequence[str] = ()
    """The rows of a user's models."""
    files: Sequence[str] = ()
    """Data sets that may be read from files, as ``task:split``."""
    notes: Sequence[str] = ()
    """Notes on the numbers that hold whatever the result."""
    is_wide: bool = False
    """Whether a screen shows the layout of the paper instead of a line for each number."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Settings that only the function ``make`` reads, such as columns."""

    @property
    def rows(self) -> list[str]:
        """The rows of the paper's table, and the models where rows are models."""
        rows = list(dict.fromkeys(paper_numbers(self.table)["row"]))
        by_model = not rows or not {*rows}.isdisjoint(self.models)
        return list(dict.fromkeys([*(self.models if by_model else ()), *rows, *self.user_rows]))

    def rows_of(self, names: Collection[str]) -> list[str]:
        """The rows of a user's models with these names."""
        return [name + end for name in names for end in self.added_rows]

    @property
    def columns(self) -> Mapping[str, tuple[str, str]]:
        """The paper's columns as metric and subset."""
        keys = {name: text.partition("/") for name, text in self.details["columns"].items()}
        return {name: (metric, subset or "all") for name, (metric, _, subset) in keys.items()}

    def blocks(self) -> dict[str, str]:
        """The block of the paper's table that each row is in."""
        return dict(paper_numbers(self.table).select("row", "group").iter_rows())


def load_recipes(*modules: ModuleType) -> dict[str, Recipe]:
    """The recipes of ``recipes.toml``; ``modules`` have the functions that it names."""
    text = (files("consilience.reproduce") / "recipes.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    groups = document["models"]
    every_model = {name: spec for group in groups.values() for name, spec in group.items()}
    makers = {name: value for module in modules for name, value in vars(module).items()}
    recipes = {}
    for name, row in document["recipes"].items():
        models: dict[str, str] = {}
        for model in row.pop("models", ()):
            models |= groups.get(model) or {model: every_model[model]}
        file_names = row.pop("files", [])
        recipes[name] = Recipe(
            name,
            title=row.pop("title"),
            needs=row.pop("needs"),
            make=makers[row.pop("make")],
            table=row.pop("table", name),
            models=models,
            added_rows=row.pop("added_rows", ()),
            files=PAIR_FILES if file_names == ["pairs"] else file_names,
            notes=row.pop("notes", ()),
            is_wide=row.pop("is_wide", False),
            details=row,
        )
    return recipes


def carry_out(recipe: Recipe, work: Work) -> tuple[RecipeResult, pl.DataFrame]:
    """The result of a recipe, and its numbers next to the paper's (``BESIDE_SCHEMA``).

    Where ``only`` names blocks, rows or columns, only numbers in one of each are made. A model, a
    file or an option that the recipe does not use raises an error.
    """
    request = work.request
    recipe = _with_added_models(recipe, request.added)
    paper = paper_numbers(recipe.table)
    parts = (paper["group"], recipe.rows, paper["column"])
    named = [{*part} & {*request.only} for part in parts]
    known = list(dict.fromkeys(name for part in parts for name in part if name))
    _refuse({*request.only}.difference(*named), f"{recipe.name} has no row", known)
    _refuse({*request.models} - {*recipe.models}, f"{recipe.name} has no model", recipe.models)
    _refuse({*request.data} - {*recipe.files}, f"{recipe.name} takes no file", recipe.files)
    if request.options:
        _check_options(recipe, request)

    def is_selected(key: Key) -> bool:
        return all(part in names for part, names in zip(key, named, strict=True) if names)

    keys = paper.select("group", "row", "column").iter_rows()
    others = [row for row in recipe.rows if row not in paper["row"]]
    work.rows = {key[1] for key in keys if is_selected(key)}
    work.rows |= {row for row in others if row in (named[1] or others)}
    if request.only and not work.rows:
        raise ConsilienceError(
            f"{recipe.name} has no number in {' and '.join(request.only)} at once",
            expected="rows, and blocks or columns that they are in",
        )
    result = recipe.make(recipe, work)
    result = replace(result, notes=[*recipe.notes, *result.notes, *work.notes])
    ours: dict[Key, Measured | None] = {
        key: number for key, number in result.numbers.items() if is_selected(key)
    }
    absent = work.absent
    for name in set(request.added).intersection(absent):
        absent = dict.fromkeys(recipe.rows_of([name]), absent[name]) | absent
    missing = _missing_keys(recipe, work, {row for _, row, _ in ours})
    ours |= dict.fromkeys(filter(is_selected, missing))
    settings = "; ".join(f"{name} {shlex.join(more)}" for name, more in request.options.items())
    numbers = beside(recipe.table, ours, absent, request.tolerance, settings)
    keys = numbers.select("group", "row", "column").iter_rows()
    selected = pl.Series([is_selected(key) for key in keys], dtype=pl.Boolean)
    if any(map(asks_fewer, request.options.values())):
        in_both = pl.col("ours").is_not_nan() & pl.col("paper").is_not_nan()
        verdict = pl.when(in_both).then(pl.lit(NOT_COMPARABLE)).otherwise("verdict")
        numbers = numbers.with_columns(verdict=verdict)
    verdict = pl.when(selected).then("verdict").otherwise(pl.lit(NOT_SELECTED))
    return result, numbers.with_columns(verdict=verdict)


def asks_fewer(arguments: Sequence[str]) -> bool:
    """Whether arguments of a command choose some of its questions only."""
    return any(word.startswith(FEWER) for word in arguments)


def _missing_keys(recipe: Recipe, work: Work, measured: Collection[str]) -> list[Key]:
    """The numbers of a user's models that could not be made, in the columns of the paper's models.

    ``measured``: the rows that have numbers.
    """
    paper = paper_numbers(recipe.table)
    of_models = paper.filter(pl.col("row").is_in(list(recipe.models)))
    columns = (paper if of_models.is_empty() else of_models)["column"].unique(maintain_order=True)
    keys: list[Key] = []
    for name in work.request.added:
        for row in recipe.rows_of([name]):
            parts = [
                part
                for (reason_row, part), reason in work.reasons.items()
                if reason_row in (name, row) and reason != NOT_SELECTED
            ]
            if not parts and row not in measured and ("", "") in work.reasons:
                parts = [""]
            keys += [(part or ADDED, row, column) for part in parts for column in columns]
    return keys


def _with_added_models(recipe: Recipe, added: Mapping[str, str]) -> Recipe:
    """The recipe with a user's models as further rows."""
    rows = recipe.rows_of(added)
    paper = paper_numbers(recipe.table)
    taken = {*recipe.models, *paper["row"], *paper["group"], *paper["column"]}
    for name in (*added, *rows):
        if name in taken:
            raise ConsilienceError(
                f"--add {name}: the paper's table has that name",
                expected="a new name",
                todo=f"--replace {name}=M replaces the paper's model."
                if name in recipe.models
                else "",
            )
    return replace(recipe, models={**recipe.models, **added}, user_rows=rows)


def _check_options(recipe: Recipe, request: Request) -> None:
    """Refuse more arguments of a command that is not run, or of what the recipe decides itself."""
    plan = Work(replace(request, options={}, only=(), dry=True))
    recipe.make(recipe, plan)
    commands = plan.options_of
    _refuse({*request.options} - {*commands}, f"{recipe.name} has no command", commands)
    for name, more in request.options.items():
        fixed = commands[name] & {word.partition("=")[0] for word in more}
        _refuse(fixed, f"--with {name}: the recipe itself says", ["other options"])


def _refuse(unknown: Collection[str], message: str, known: Collection[str]) -> None:
    """Raise an error if any name is unknown."""
    if unknown:
        expected = ", ".join(known) or "none"
        raise ConsilienceError(f"{message} '{min(unknown)}'", expected=expected)


def find_recipe(name: str, recipes: Mapping[str, Recipe]) -> Recipe:
    """The recipe of that name; an unknown one raises with the closest."""
    if name not in recipes:
        raise ConsilienceError(f"no recipe '{name}'", todo=did_you_mean(name, list(recipes)))
    return recipes[name]
