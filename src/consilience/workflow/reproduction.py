"""Make a table or figure of the papers again, and compare our numbers with the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from consilience.errors import ConsilienceError
from consilience.files import csv_of, write_whole
from consilience.provenance import git_revision, versions
from consilience.report.export import TABLE_FORMATS, as_markdown
from consilience.report.papers import beside_layout
from consilience.reproduce import RECIPES, Recipe, Request, Work, carry_out, find_recipe
from consilience.reproduce.work import NOT_HERE
from consilience.suites.pairs import HUB
from consilience.workflow.options import DataDir, Option
from consilience.workflow.watch import SILENT, Watch

WITH = "'finetune=--seeds 0'"
"""An example of ``--with``."""


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """What is made again, and with what instead of the paper's models and data."""

    name: Annotated[
        str | None, Option("A table or figure; without one all are listed.", is_argument=True)
    ] = None
    folder: Annotated[
        Path, Option("Gets the numbers and the runs that they take.", flag="--out")
    ] = Path("runs/reproduce")
    models: Annotated[
        list[str] | None,
        Option("Use another model in the place of the paper's.", metavar="ROW=M", flag="--model"),
    ] = None
    only: Annotated[
        Sequence[str] | None,
        Option("Only these rows, blocks or columns of the table.", metavar="ROW,ROW"),
    ] = None
    data: Annotated[
        list[str] | None,
        Option("Use a file as a data set: rte:train=FILE.", metavar="TASK:SPLIT=FILE"),
    ] = None
    more: Annotated[
        list[str] | None,
        Option(
            f"Give a command more arguments: {WITH}. Such runs have a folder of their own.",
            metavar="C=ARGS",
            flag="--with",
        ),
    ] = None
    data_dir: DataDir = None
    device: Annotated[
        str, Option("auto, cpu, cuda, cuda:1 or mps; trainings run on cpu if named, else on auto.")
    ] = "auto"
    dry_run: Annotated[bool, Option("Only print the commands.")] = False


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Our numbers beside the paper's."""

    recipe: Recipe
    """What was made again."""
    numbers: pl.DataFrame
    """Both papers' and our numbers (``BESIDE_SCHEMA``)."""
    notes: Sequence[str]
    """What a reader of the numbers should know."""
    warnings: Sequence[str]
    """What is not as in the paper, and why rows have no number of ours."""
    commands: Sequence[str]
    """The commands that were run, or that a dry run would run."""
    files: Sequence[Path]
    """The files that were written; none in a dry run."""
    record: Mapping[str, Any]
    """Settings, versions and the like, for a JSON document."""


def reproduce(options: ReproduceOptions, watch: Watch = SILENT) -> Reproduction:
    """Run the commands that a recipe takes, read their numbers, and write them in its layout."""
    recipe = find_recipe(str(options.name), RECIPES)
    request = Request(
        options.folder,
        models=_named(options.models, "--model", "ROW=M, such as BERT-base=bert-base-cased"),
        only=options.only or (),
        data=_files(options.data),
        options=_arguments(options.more),
        data_dir=options.data_dir,
        device=options.device,
        dry=options.dry_run,
    )
    if options.device not in ("auto", "cpu"):
        from consilience.models.loading import find_device

        find_device(options.device)
    work = Work(request, watch.command)
    result, numbers = carry_out(recipe, work)
    warnings = _warnings(recipe, work)
    files: list[Path] = []
    if not request.dry:
        notes = [*result.notes, *warnings, *_rows_without_numbers(numbers)]
        files = [*result.files, *_write(recipe, numbers, notes, request)]
    settings = {
        "recipe": recipe.name,
        "models": dict(request.models),
        "only": list(request.only),
        "data": dict(request.data),
        "with": dict(request.options),
    }
    record = {"asked": settings, "versions": versions(), "git": git_revision()}
    return Reproduction(recipe, numbers, result.notes, warnings, work.commands, files, record)


def _named(given: Sequence[str] | None, option: str, expected: str) -> dict[str, str]:
    """The values of ``NAME=VALUE`` by name."""
    values: dict[str, str] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConsilienceError(f"{option} {text}", expected=expected)
        if name in values:
            raise ConsilienceError(f"{option} {name} twice", expected="each once")
        values[name] = value
    return values


def _arguments(given: Sequence[str] | None) -> dict[str, list[str]]:
    """More arguments by the name of their command."""
    arguments = {}
    for command, text in _named(given, "--with", WITH).items():
        try:
            arguments[command] = shlex.split(text)
        except ValueError as error:
            raise ConsilienceError(f"--with {command}={text}: {error}") from error
    return arguments


def _files(given: Sequence[str] | None) -> dict[str, str]:
    """Files by task and split."""
    files = _named(given, "--data", "TASK:SPLIT=FILE, such as rte:train=train.tsv")
    for file in files.values():
        if not Path(file).exists() and not file.startswith(f"{HUB}:"):
            raise ConsilienceError("no such file", where=file, todo="Check the path.")
    return files


def _warnings(recipe: Recipe, work: Work) -> list[str]:
    """What is in the place of the paper's models, and why rows have no number of ours."""
    absent, request = work.absent, work.request
    models = [
        f"{row}: {spec} stands in its place; the paper's numbers are not of that model"
        for row, spec in request.models.items()
        if row not in absent
    ]
    arguments = [
        f"{command} was run with {shlex.join(words)} too, which the paper did not"
        for command, words in request.options.items()
    ]
    missing = [
        f"{row or recipe.name}: {reason}"
        for row, reason in absent.items()
        if reason.startswith(NOT_HERE)
    ]
    return models + arguments + missing


def _rows_without_numbers(numbers: pl.DataFrame) -> list[str]:
    """The rows that have no number of ours where no warning says why."""
    is_warned = pl.col("verdict").str.starts_with(NOT_HERE)
    without = numbers.filter(pl.col("ours").is_nan() & ~is_warned)
    return [
        f"{verdict}: {', '.join(rows['row'].unique(maintain_order=True))}"
        for (verdict,), rows in without.group_by(["verdict"], maintain_order=True)
    ]


def _write(
    recipe: Recipe, numbers: pl.DataFrame, notes: Sequence[str], request: Request
) -> list[Path]:
    """Write the paper's layout with notes, and a CSV with every column and what was asked.

    A recipe without numbers has its notes as Markdown.
    """
    layout = beside_layout(numbers, f"{recipe.name}: {recipe.title}", notes)
    if numbers.height:
        texts = {suffix: make(layout) for suffix, make in TABLE_FORMATS.items()}
        texts[".csv"] = csv_of(numbers.with_columns(asked=pl.lit(str(request)))).decode()
    else:
        texts = {".md": as_markdown(layout)}
    request.runs.mkdir(parents=True, exist_ok=True)
    for suffix in TABLE_FORMATS:
        file = request.runs / f"{recipe.name}{suffix}"
        if suffix in texts:
            write_whole(file, texts[suffix].encode())
        else:  # of an earlier call
            file.unlink(missing_ok=True)
    return [request.runs / f"{recipe.name}{suffix}" for suffix in TABLE_FORMATS if suffix in texts]
