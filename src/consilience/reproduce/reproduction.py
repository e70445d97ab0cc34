"""Reproducing a table: the recipes, the plan of one, and its numbers beside the paper's."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Watch, did_you_mean
from consilience.files.write import csv_of, write_whole
from consilience.options import OutputOptions
from consilience.options.runs import ReproduceOptions
from consilience.report import papers
from consilience.report.export import Output, Shown, in_formats, record_of
from consilience.report.papers import Key, Measured
from consilience.report.table import Column, Table
from consilience.reproduce import calum, pararel
from consilience.reproduce.recipe import NOT_SELECTED, UNAVAILABLE, Recipe, Request, Work
from consilience.suites.pairs import HUB

PAIR_FILES = [f"{task}:{one}" for task in calum.GROUPS for one in (*calum.SPLITS, "answers")]
"""Sets of sentence pairs that may be given as files, and what people answered."""

ROW = {field.name for field in fields(Recipe)} - {"name", "models", "details"}
"""The keys of a recipe in ``recipes.toml`` beside ``models`` and those of its function."""


def _load_recipes() -> dict[str, Recipe]:
    text = (files("consilience.reproduce") / "recipes.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    groups = document["models"]
    every_model = {name: spec for group in groups.values() for name, spec in group.items()}
    makers = {**vars(pararel), **vars(calum)}
    recipes = {}
    for name, row in document["recipes"].items():
        models: dict[str, str] = {}
        for model in row.pop("models", ()):
            models |= groups.get(model) or {model: every_model[model]}
        given = {key: row.pop(key) for key in ROW & row.keys()}
        given["make"] = makers[given["make"]]
        if given.get("files") == ["pairs"]:
            given["files"] = PAIR_FILES
        recipes[name] = Recipe(name, models=models, details=row, **{"table": name} | given)
    return recipes


RECIPES = _load_recipes()


def carry_out(recipe: Recipe, work: Work) -> pl.DataFrame:
    """Our numbers next to the paper's (``BESIDE_SCHEMA``); ``work`` collects notes."""
    request = work.request
    recipe = _with_added_models(recipe, request.added)
    _refuse({*request.only} - {*recipe.rows}, f"{recipe.name} has no row", recipe.rows)
    _refuse({*request.data} - {*recipe.files}, f"{recipe.name} takes no file", recipe.files)
    work.rows = {*(request.only or recipe.rows)}

    def is_selected(key: Key) -> bool:
        return not request.only or key[1] in request.only

    work.told += recipe.notes
    commands = () if request.dry else _planned(recipe, request, work.rows).commands
    with work.watch.stages([command.split()[1] for command in commands]):
        made = work.attempt("", lambda: recipe.make(recipe, work)) or {}
    ours: dict[Key, Measured | None] = {key: made[key] for key in filter(is_selected, made)}
    absent = work.absent
    for name in set(request.added).intersection(absent):
        absent = dict.fromkeys(recipe.rows_of([name]), absent[name]) | absent
    missing = _missing_keys(recipe, work, {row for _, row, _ in ours})
    ours |= dict.fromkeys(filter(is_selected, missing))
    numbers = papers.beside(recipe.table, ours, absent, request.tolerance)
    keys = numbers.select("group", "row", "column").iter_rows()
    selected = pl.Series([is_selected(key) for key in keys], dtype=pl.Boolean)
    verdict = pl.when(selected).then("verdict").otherwise(pl.lit(NOT_SELECTED))
    return numbers.with_columns(verdict=verdict)


def _missing_keys(recipe: Recipe, work: Work, measured: Collection[str]) -> list[Key]:
    """The numbers of a user's models that could not be made; ``measured``: rows with numbers."""
    paper = papers.paper_numbers(recipe.table)
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
            keys += [(part or pararel.ADDED, row, column) for part in parts for column in columns]
    return keys


def _with_added_models(recipe: Recipe, added: Mapping[str, str]) -> Recipe:
    rows = recipe.rows_of(added)
    paper = papers.paper_numbers(recipe.table)
    taken = {*recipe.models, *paper["row"], *paper["group"], *paper["column"]}
    for name in [name for name in (*added, *rows) if name in taken]:
        found = f"--add {name}: the paper's table has that name"
        raise ConsilienceError(found, expected="a new name")
    return replace(recipe, models={**recipe.models, **added}, user_rows=rows)


def _planned(recipe: Recipe, request: Request, rows: Collection[str] | None = None) -> Work:
    """A dry run of a recipe; ``rows``: all where None."""
    plan = Work(replace(request, dry=True))
    plan.rows = rows
    plan.attempt("", lambda: recipe.make(recipe, plan))
    return plan


def _refuse(unknown: Collection[str], message: str, known: Collection[str]) -> None:
    if unknown:
        expected = ", ".join(known) or "none"
        raise ConsilienceError(f"{message} '{min(unknown)}'", expected=expected)


@dataclass(frozen=True, slots=True, repr=False)
class Reproduction(Shown):
    """Our numbers next to the paper's."""

    recipe: Recipe
    numbers: pl.DataFrame
    notes: Sequence[str]
    warnings: Sequence[str]  # Why numbers are missing
    commands: Sequence[str]
    files: Sequence[Path]
    record: Mapping[str, Any]
    is_dry: bool = False

    def __repr__(self) -> str:
        ours, paper = self.numbers.select(pl.col("ours", "paper").is_not_nan().sum()).row(0)
        return f"Reproduction({self.recipe.name!r}: {ours} numbers of ours, {paper} of the paper)"

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        if self.is_dry:
            yield from self.commands
            return
        title = f"{self.recipe.name}: {self.recipe.title}"
        selected = self.numbers.remove(verdict=NOT_SELECTED)
        if self.recipe.is_wide:
            yield papers.beside_layout(selected, title)
        elif selected.height:
            yield papers.beside_table(selected, title)
        if self.record["settings"]["added"]:
            yield papers.beside_layout(self.numbers, "All rows, in the layout of the paper")
        yield from (f"* {note}" for note in self.notes)
        yield f"Written: {', '.join(map(str, self.files))}"

    def document(self) -> dict[str, Any]:
        files = [str(file) for file in self.files]
        return {
            "run": {**self.record, "commands": [*self.commands], "files": files},
            "numbers": self.numbers.to_dicts(),
            "notes": [*self.notes],
            "warnings": [*self.warnings],
        }

    def remarks(self, output: OutputOptions) -> Sequence[str]:
        return self.warnings


def reproduce(options: ReproduceOptions, watch: Watch = SILENT) -> Reproduction:
    """Run the commands that a recipe takes, read their numbers, and write them in its layout."""
    recipe = RECIPES.get(name := str(options.name))
    if recipe is None:
        raise ConsilienceError(f"no recipe '{name}'", todo=did_you_mean(name, list(RECIPES)))
    added = _named(options.add, "--add", "NAME=M, such as mine=my-folder")
    if added and not recipe.added_rows:
        takers = [name for name, other in RECIPES.items() if other.added_rows]
        raise ConsilienceError(
            f"{recipe.name} takes no further model", expected=f"one of {', '.join(takers)}"
        )
    data = _named(options.data, "--data", "TASK:SPLIT=FILE, such as rte:train=train.tsv")
    for file in data.values():
        if not Path(file).exists() and not file.startswith(f"{HUB}:"):
            raise ConsilienceError("no such file", where=file, todo="Check the path.")
    request = Request(
        options.out,
        added=added,
        only=list(dict.fromkeys([*(options.only or ()), *recipe.rows_of(added)])),
        data=data,
        device=options.device,
        tolerance=options.tolerance,
        dry=options.dry_run,
    )
    if options.device not in ("auto", "cpu"):
        from consilience.models.loading import find_device

        find_device(options.device)
    for spec in added.values() if request.dry else ():
        if not spec.startswith("baseline:"):
            from consilience.models.sources import locate

            locate(spec)  # a file or folder that does not exist raises; the Hub is not asked
    work = Work(request, watch)
    numbers = carry_out(recipe, work)
    warnings = _warnings(recipe, work)
    files: list[Path] = []
    if not request.dry:
        is_warned = pl.col("verdict").str.starts_with(UNAVAILABLE)
        without = numbers.filter(pl.col("ours").is_nan() & ~is_warned)
        by_verdict = without.group_by(["verdict"], maintain_order=True)
        notes = [*work.notes, *warnings]
        notes += [
            f"{verdict}: {', '.join(rows['row'].unique(maintain_order=True))}"
            for (verdict,), rows in by_verdict
        ]
        files = [*work.files, *_write(recipe, numbers, notes, request)]
    record = record_of(
        recipe=recipe.name, added=added, tolerance=request.tolerance, only=request.only, data=data,
    )  # fmt: skip
    return Reproduction(
        recipe, numbers, work.notes, warnings, work.commands, files, record,
        is_dry=request.dry,
    )  # fmt: skip


def recipes() -> Output:
    """All tables and figures."""
    known = [RECIPES[name] for name in sorted(RECIPES)]
    rows = [
        {
            "name": recipe.name, "title": recipe.title, "needs": recipe.needs,
            "rows": recipe.rows, "models": dict(recipe.models),
            "can_add": bool(recipe.added_rows), "files": list(recipe.files),
        }
        for recipe in known
    ]  # fmt: skip
    add = "\nTakes your own model: --add NAME=M."
    texts = [f"{one.title}.\nNeeds {one.needs}.{add * bool(one.added_rows)}" for one in known]
    columns = [Column("name"), Column("content and requirements")]
    cells = [[one.name, text] for one, text in zip(known, texts, strict=True)]
    shown = [Table("consilience reproduce NAME", columns, cells)]
    return Output(shown=shown, facts={"recipes": rows})


def _named(texts: Sequence[str] | None, option: str, expected: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConsilienceError(f"{option} {text}", expected=expected)
        if name in values:
            raise ConsilienceError(f"{option} {name} twice", expected="every name once")
        values[name] = value
    return values


def _warnings(recipe: Recipe, work: Work) -> list[str]:
    return [
        f"{row or recipe.name}: {reason}"
        for row, reason in work.absent.items()
        if reason.startswith(UNAVAILABLE)
    ]


def _write(
    recipe: Recipe, numbers: pl.DataFrame, notes: Sequence[str], request: Request
) -> list[Path]:
    """Write the layout with notes, and a CSV with every column; without numbers only the notes."""
    layout = papers.beside_layout(numbers, f"{recipe.name}: {recipe.title}", notes)
    texts = in_formats(layout, recipe.name)
    if not numbers.height:
        texts |= {".csv": "", ".tex": ""}
    else:
        texts[".csv"] = csv_of(numbers).decode()
    request.folder.mkdir(parents=True, exist_ok=True)
    files = {request.folder / f"{recipe.name}{suffix}": text for suffix, text in texts.items()}
    for file, text in files.items():
        if text:
            write_whole(file, text.encode())
        else:  # of an earlier call
            file.unlink(missing_ok=True)
    return [file for file, text in files.items() if text]
