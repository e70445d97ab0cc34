"""Reproducing a table: the plan, then the runs."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.process import SILENT, Watch
from consilience.files.write import csv_of, write_whole
from consilience.options import Output
from consilience.options.runs import ReproduceOptions
from consilience.report.export import TABLE_FORMATS, Lines, Shown, as_markdown, record_of, rows_of
from consilience.report.papers import beside_layout, beside_table
from consilience.report.table import Column, Table
from consilience.reproduce import RECIPES, Recipe, Work, carry_out
from consilience.reproduce.recipe import (
    BY_HAND,
    NOT_RUN,
    NOT_SELECTED,
    UNAVAILABLE,
    Request,
    asks_fewer,
)
from consilience.suites.facts import select_relations
from consilience.suites.pairs import HUB
from consilience.types import Suite

PARAREL = "pararel"

ESTIMATED = ("probe", "improve", "finetune")
"""Commands whose ``--dry-run`` estimates their time."""

UNCOUNTED = ("--facts-from", "--single-token", "--perturbations", "--as-shipped")
"""Options of ``probe`` that change the number of queries in a way that is not counted here."""


def plan_lines(commands: Sequence[str], request: Request) -> list[str]:
    """Lines on the data, the number of queries and how to estimate the time."""
    typed = [shlex.split(command) for command in commands]
    lines = list(_on_data(typed, request))
    if names := [name for name in ESTIMATED if any(name == words[1] for words in typed)]:
        lines.append(f"Time: add --dry-run to a command ({', '.join(names)}) to estimate it.")
    return lines


def _on_data(typed: Sequence[Sequence[str]], request: Request) -> Iterator[str]:
    if any("--data" in words or "--train" in words for words in typed):
        yield "Data: not checked; sentence pairs are read from the Hub or from --data."
    if not any(PARAREL in words for words in typed):
        return
    try:
        suite = suites.load_suite(PARAREL, request.data_dir)
    except ConsilienceError as error:
        yield f"Data: missing: {error}"
        return
    yield f"Data: {suites.suite_folder(PARAREL, suites.data_dir(request.data_dir))}"
    probes = [words for words in typed if words[1] == "probe" and PARAREL in words]
    if not probes:
        return
    flags = {word.partition("=")[0] for words in probes for word in words}
    if uncounted := [flag for flag in UNCOUNTED if flag in flags]:
        yield f"Queries: not counted with {', '.join(uncounted)}."
        return
    counts = [_queries(words, suite) for words in probes]
    several = f" in {len(counts)} runs" if len(counts) > 1 else ""
    yield f"Queries: {sum(counts):,}{several}. Answers of existing runs are reused."


def _queries(words: Sequence[str], suite: Suite) -> int:
    """Number of queries of a command ``probe`` with a suite of facts."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--limit", "-n", default="")
    parser.add_argument("--groups", default="")
    options, _ = parser.parse_known_args(words)
    if options.limit and not options.limit.isdigit():
        raise ConsilienceError(f"--limit {options.limit}", expected="a whole number, such as 5")
    names = [name.strip() for name in options.groups.split(",") if name.strip()]
    relations = select_relations(suite, names).relations if names else suite.relations
    return sum(
        min(len(relation.facts), int(options.limit or len(relation.facts))) * len(relation.patterns)
        for relation in relations
    )


PASSING = ("same", "within", "ours only", BY_HAND, NOT_SELECTED, NOT_RUN)


@dataclass(frozen=True, slots=True, repr=False)
class Reproduction(Shown):
    """Our numbers next to the paper's."""

    recipe: Recipe
    numbers: pl.DataFrame
    notes: Sequence[str]
    warnings: Sequence[str]
    """Differences from the paper's settings, and reasons for missing numbers."""
    commands: Sequence[str]
    files: Sequence[Path]
    record: Mapping[str, Any]
    plan: Sequence[str] = ()
    is_absent: bool = False
    """Whether a row or the whole table could not be made."""
    is_strict: bool = False
    is_dry: bool = False

    def __repr__(self) -> str:
        ours, paper = self.numbers.select(pl.col("ours", "paper").is_not_nan().sum()).row(0)
        return f"Reproduction({self.recipe.name!r}: {ours} numbers of ours, {paper} of the paper)"

    def printed(self, output: Output) -> Iterator[Table | str]:
        if self.is_dry:
            yield from (*self.commands, *(f"# {line}" for line in self.plan))
            return
        title = f"{self.recipe.name}: {self.recipe.title}"
        selected = self.numbers.remove(verdict=NOT_SELECTED)
        if self.recipe.is_wide:
            yield beside_layout(selected, title)
        elif selected.height:
            yield beside_table(selected, title)
        if self.record["settings"]["added"]:
            yield beside_layout(self.numbers, "All rows, in the layout of the paper")
        yield from (f"* {note}" for note in self.notes)
        yield f"Written: {', '.join(map(str, self.files))}"

    def document(self) -> dict[str, Any]:
        files = [str(file) for file in self.files]
        return {
            "run": {**self.record, "commands": [*self.commands], "files": files},
            "numbers": rows_of(self.numbers),
            "notes": [*self.notes],
            "warnings": [*self.warnings],
            **({"plan": [*self.plan]} if self.plan else {}),
        }

    def remarks(self, output: Output) -> Sequence[str]:
        return self.warnings

    def exit_status(self) -> int:
        return 3 if self.is_strict and not self.is_dry and self.has_failed else 0

    @property
    def has_failed(self) -> bool:
        """Whether a selected number is missing, or differs from the paper's."""
        failed = self.numbers.remove(pl.col("verdict").is_in(PASSING))
        return failed.height > 0 or (self.numbers.is_empty() and self.is_absent)


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
    request = Request(
        options.out,
        models=_named(options.replace, "--replace", "ROW=M, such as BERT-base=bert-base-cased"),
        added=added,
        only=list(dict.fromkeys([*(options.only or ()), *recipe.rows_of(added)])),
        data=_files(options.data),
        options=_arguments(options.more),
        data_dir=options.data_dir,
        device=options.device,
        tolerance=options.tolerance,
        dry=options.dry_run,
    )
    if options.device not in ("auto", "cpu"):
        from consilience.models.loading import find_device

        find_device(options.device)
    models = [*request.models.values(), *request.added.values()]
    if local := [spec for spec in models if request.dry and not spec.startswith("baseline:")]:
        from consilience.models.sources import locate

        for spec in local:  # a file or folder that does not exist raises; the Hub is not asked
            locate(spec)
    work = Work(request, watch.inform)
    result, numbers = carry_out(recipe, work)
    warnings = _warnings(recipe, work)
    files: list[Path] = []
    if not request.dry:
        is_warned = pl.col("verdict").str.starts_with(UNAVAILABLE)
        without = numbers.filter(pl.col("ours").is_nan() & ~is_warned)
        by_verdict = without.group_by(["verdict"], maintain_order=True)
        notes = [*result.notes, *warnings]
        notes += [
            f"{verdict}: {', '.join(rows['row'].unique(maintain_order=True))}"
            for (verdict,), rows in by_verdict
        ]
        files = [*result.files, *_write(recipe, numbers, notes, request)]
    settings: dict[str, object] = {"recipe": recipe.name, "models": dict(request.models)}
    settings |= {"added": dict(request.added), "tolerance": request.tolerance}
    settings |= {"only": list(request.only), "data": dict(request.data)}
    record = record_of(**settings, **{"with": dict(request.options)})
    plan = plan_lines(work.commands, request) if request.dry else ()
    return Reproduction(
        recipe, numbers, result.notes, warnings, work.commands, files, record, plan,
        bool({*work.absent.values()} - {NOT_RUN, NOT_SELECTED, BY_HAND}),
        is_strict=options.strict, is_dry=request.dry,
    )  # fmt: skip


def recipes() -> Lines:
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
    return Lines({"recipes": rows}, Table("consilience reproduce NAME", columns, cells))


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


def _arguments(texts: Sequence[str] | None) -> dict[str, list[str]]:
    arguments = {}
    for command, text in _named(texts, "--with", "'probe=--limit 5'").items():
        try:
            arguments[command] = shlex.split(text)
        except ValueError as error:
            raise ConsilienceError(f"--with {command}={text}: {error}") from error
    return arguments


def _files(texts: Sequence[str] | None) -> dict[str, str]:
    files = _named(texts, "--data", "TASK:SPLIT=FILE, such as rte:train=train.tsv")
    for file in files.values():
        if not Path(file).exists() and not file.startswith(f"{HUB}:"):
            raise ConsilienceError("no such file", where=file, todo="Check the path.")
    return files


def _warnings(recipe: Recipe, work: Work) -> list[str]:
    """Differences from the paper's models and commands, and reasons for missing numbers."""
    absent, request = work.absent, work.request
    models = [
        f"{row}: replaced by {spec}; the paper's numbers are of another model"
        for row, spec in request.models.items()
        if row not in absent
    ]
    fewer = "; of fewer questions, so numbers are not comparable with the paper's"
    arguments = [
        f"{command} was run with {shlex.join(words)}, which the paper did not use"
        f"{fewer if asks_fewer(words) else ''}"
        for command, words in request.options.items()
    ]
    missing = [
        f"{row or recipe.name}: {reason}"
        for row, reason in absent.items()
        if reason.startswith(UNAVAILABLE)
    ]
    return models + arguments + missing


def _write(
    recipe: Recipe, numbers: pl.DataFrame, notes: Sequence[str], request: Request
) -> list[Path]:
    """Write the paper's layout with notes, and a CSV with every column and the options.

    A recipe without numbers writes its notes as Markdown.
    """
    layout = beside_layout(numbers, f"{recipe.name}: {recipe.title}", notes)
    texts = {".md": as_markdown(layout)}
    if numbers.height:
        texts = {suffix: make(layout) for suffix, make in TABLE_FORMATS.items()}
        texts[".csv"] = csv_of(numbers.with_columns(options=pl.lit(str(request)))).decode()
    request.runs.mkdir(parents=True, exist_ok=True)
    files = {suffix: request.runs / f"{recipe.name}{suffix}" for suffix in TABLE_FORMATS}
    for suffix, file in files.items():
        if suffix in texts:
            write_whole(file, texts[suffix].encode())
        else:  # of an earlier call
            file.unlink(missing_ok=True)
    return [file for suffix, file in files.items() if suffix in texts]
