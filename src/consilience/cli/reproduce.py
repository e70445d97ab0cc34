"""reproduce: every table and figure of both papers, ours beside theirs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from consilience.cli.shared import AsJson, DataDir, err, names_in, out, print_json, rows_of, warn
from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.provenance import git_revision, versions
from consilience.report.export import TABLE_FORMATS, as_markdown
from consilience.report.papers import beside_layout, beside_table
from consilience.report.table import Column, Table
from consilience.reproduce import RECIPES, Found, Recipe, Work, carry_out, find_recipe
from consilience.reproduce.recipe import NOT_HERE
from consilience.suites.pairs import HUB

WITH = "'finetune=--seeds 0'"
"""An example of ``--with``, for its help and its errors."""


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure; without one all are listed.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Its numbers, and the runs that it takes.")
    ] = Path("runs/reproduce"),
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="Another model in the place of the paper's.", metavar="ROW=M"),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only these rows of the table.", metavar="ROW,ROW")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="A file of a task: rte:train=FILE.", metavar="TASK:SPLIT=FILE"),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help=f"More arguments of a command that it runs: {WITH}. Has runs of its own.",
            metavar="C=ARGS",
        ),
    ] = None,
    data_dir: DataDir = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1, mps; trainings take cpu, else auto.")
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a table or figure of the papers again, and hold ours against theirs.

    Runs the commands that it takes and goes on with what is there. A row whose model cannot be
    had here is marked. within: the paper's number lies in the 95 % interval of ours.
    """
    if name is None:
        _list(as_json)
        return
    recipe = find_recipe(name)
    work = Work(
        folder,
        models=_pairs(models, "--model", "ROW=M, such as BERT-base=bert-base-cased"),
        only=names_in(only) if only is not None else (),
        data=_files(data),
        options=_options(more),
        data_dir=data_dir,
        device=device,
        dry=dry_run,
        say=lambda text: err.print(text, soft_wrap=True, highlight=False),
    )
    if device not in ("auto", "cpu"):
        from consilience.models.loading import find_device

        find_device(device)
    found, numbers = carry_out(recipe, work)
    warnings = _warnings(recipe, work)
    said = [*found.notes, *warnings, *_left_out(numbers)]
    files = [] if dry_run else [*found.files, *_write(recipe, said, numbers, work)]
    if as_json:
        record = {
            "asked": {
                "recipe": name,
                "models": dict(work.models),
                "only": list(work.only),
                "data": dict(work.data),
                "with": dict(work.options),
            },
            "commands": work.commands,
            "files": [str(file) for file in files],
            "versions": versions(),
            "git": git_revision(),
        }
        document = {"run": record, "numbers": rows_of(numbers), "notes": list(found.notes)}
        print_json({**document, "warnings": warnings})
    elif dry_run:
        for command in work.commands:
            out.print(command, soft_wrap=True, highlight=False)
        warn(warnings)
    else:
        _show(recipe, found, numbers, files)
        warn(warnings)


def _list(as_json: bool) -> None:
    recipes = [RECIPES[name] for name in sorted(RECIPES)]
    if as_json:
        rows = [
            {
                "name": each.name,
                "title": each.title,
                "needs": each.needs,
                "rows": each.rows,
                "models": dict(each.models),
                "files": list(each.files),
            }
            for each in recipes
        ]
        print_json({"recipes": rows})
        return
    recipe_rows = [[recipe.name, f"{recipe.title}.\n{recipe.needs}"] for recipe in recipes]
    columns = [Column("name"), Column("what, and what it takes")]
    rules = range(len(recipe_rows))
    out.print(Table("consilience reproduce NAME", columns, recipe_rows, rules=rules))


def _pairs(given: list[str] | None, option: str, expected: str) -> dict[str, str]:
    """``NAME=VALUE`` each."""
    found = {}
    for each in given or ():
        name, is_given, value = (part.strip() for part in each.partition("="))
        if not (name and is_given and value):
            raise ConsilienceError(f"{option} {each}", expected=expected)
        if name in found:
            raise ConsilienceError(f"{option} {name} twice", expected="each once")
        found[name] = value
    return found


def _options(given: list[str] | None) -> dict[str, list[str]]:
    found = {}
    for command, arguments in _pairs(given, "--with", WITH).items():
        try:
            found[command] = shlex.split(arguments)
        except ValueError as error:
            raise ConsilienceError(f"--with {command}={arguments}: {error}") from error
    return found


def _files(given: list[str] | None) -> dict[str, str]:
    expected = "TASK:SPLIT=FILE, such as rte:train=train.tsv"
    found = _pairs(given, "--data", expected)
    for file in found.values():
        if not Path(file).exists() and not file.startswith(f"{HUB}:"):
            raise ConsilienceError("no such file", where=file, todo="Check the path.")
    return found


def _warnings(recipe: Recipe, work: Work) -> list[str]:
    """What stands for a model of the paper, and why rows have no number of ours."""
    others = [
        f"{row}: {spec} stands in its place; the paper's numbers are not of that model"
        for row, spec in work.models.items()
        if row not in work.absent
    ]
    others += [
        f"{command} was run with {shlex.join(arguments)} too, which the paper did not"
        for command, arguments in work.options.items()
    ]
    return others + [
        f"{row or recipe.name}: {why}"
        for row, why in work.absent.items()
        if why.startswith(NOT_HERE)
    ]


def _write(recipe: Recipe, said: Sequence[str], numbers: pl.DataFrame, work: Work) -> list[Path]:
    """In the paper's layout with what is to be said; the CSV has every column and what was asked.

    A recipe without numbers has its notes as Markdown.
    """
    sheet = beside_layout(numbers, f"{recipe.name}: {recipe.title}", said)
    if not numbers.height:
        texts = {".md": as_markdown(sheet)}
    else:
        texts = {suffix: make(sheet) for suffix, make in TABLE_FORMATS.items()}
        texts[".csv"] = csv_of(numbers.with_columns(asked=pl.lit(work.asked))).decode()
    work.own.mkdir(parents=True, exist_ok=True)
    files = {suffix: work.own / f"{recipe.name}{suffix}" for suffix in TABLE_FORMATS}
    for suffix, file in files.items():
        if suffix in texts:
            write_whole(file, texts[suffix].encode())
        else:  # of an earlier call
            file.unlink(missing_ok=True)
    return [files[suffix] for suffix in texts]


def _left_out(numbers: pl.DataFrame) -> list[str]:
    """Of which rows there is no number of ours where no warning says why."""
    is_said = pl.col("verdict").str.starts_with(NOT_HERE)
    without = numbers.filter(pl.col("ours").is_nan() & ~is_said)
    return [
        f"{verdict}: {', '.join(rows['row'].unique(maintain_order=True))}"
        for (verdict,), rows in without.group_by(["verdict"], maintain_order=True)
    ]


def _show(recipe: Recipe, found: Found, numbers: pl.DataFrame, files: list[Path]) -> None:
    asked = numbers.filter(pl.col("verdict") != "not asked")
    if asked.height:
        out.print(beside_table(asked, f"{recipe.name}: {recipe.title}"))
    for note in found.notes:
        out.print(f"* {note}", highlight=False)
    out.print(f"Written: {', '.join(map(str, files))}", soft_wrap=True, highlight=False)
