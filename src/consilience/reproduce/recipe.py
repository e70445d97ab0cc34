"""Recipes of tables and figures, and the work they need."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.report.papers import Key, Measured, beside, paper_numbers
from consilience.runs.folder import fingerprint
from consilience.suites.pairs import CALUM

T = TypeVar("T")

TAKE_DATA_DIR = {
    "probe", "improve", "stats", "examples", "knowledge", "representations", "syntax",
}  # fmt: skip
"""Commands that take ``--data-dir``."""

UNAVAILABLE, NOT_SELECTED, NOT_RUN = "unavailable", "not selected", "not run"
"""Beginnings of the reason for a missing number: no model or data, left out, or a dry run."""

BY_HAND = "counted by hand"
"""The reason for a number of ours that only people can find."""


class MissingError(Exception):
    """The reason for a missing number."""


@dataclass(frozen=True, slots=True)
class Request:
    """A user's settings for a recipe."""

    folder: Path
    """The folder of runs and tables, for all recipes. Existing runs are reused."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Models that replace the paper's, by the paper's names."""
    added: Mapping[str, str] = field(default_factory=dict)
    """A user's models as further rows, by name."""
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    """Files of data sets, by task and split, such as ``rte:train``."""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More arguments, by the name of the command."""
    data_dir: Path | None = None
    device: str = "auto"
    """The device of models that are probed; trainings run on cpu or auto."""
    tolerance: float | None = None
    """Points within which a percentage counts as equal to the paper's; None for no judgement."""
    dry: bool = False

    @property
    def runs(self) -> Path:
        """The folder of runs and tables; calls with ``options`` have a folder of their own."""
        if not self.options:
            return self.folder
        return self.folder / f"with-{fingerprint({'options': dict(self.options)})[:8]}"

    @property
    def training_device(self) -> str:
        return "cpu" if self.device == "cpu" else "auto"

    def folder_of(self, row: str, part: str = "pararel") -> Path:
        """The folder of a row's run; a model that is not the paper's has its own."""
        other = self.models.get(row) or self.added.get(row)
        if other is None:
            return self.runs / part / row
        words = re.findall(r"[\w.-]+", Path(other).name)
        return self.runs / part / "-".join((row, *words, fingerprint({"model": other})[:8]))

    def __str__(self) -> str:
        """The options of ``reproduce`` that differ from the paper; empty without any."""
        options = [("--replace", f"{row}={model}") for row, model in self.models.items()]
        options += [("--add", f"{name}={model}") for name, model in self.added.items()]
        options += [("--data", f"{name}={file}") for name, file in self.data.items()]
        options += [("--with", f"{name}={shlex.join(more)}") for name, more in self.options.items()]
        options += [("--only", ",".join(self.only))] if self.only else []
        options += [] if self.tolerance is None else [("--tolerance", f"{self.tolerance:g}")]
        return " ".join(shlex.join(option) for option in options)


class Work:
    """Runs the commands of one recipe, and collects notes for its reader."""

    def __init__(self, request: Request, say: Callable[[str], None] = lambda command: None) -> None:
        self.request, self.say = request, say
        self.rows: Collection[str] | None = request.only or None  # all where None
        self.commands: list[str] = []
        self.options_of: dict[str, set[str]] = {}
        """The options that the recipe gives each command."""
        self.reasons: dict[tuple[str, str], str] = {}
        """Why a part of a row has no numbers; the row "" is for all rows without a reason."""
        self.faults: dict[str, str] = {}
        """Why a data set or a model cannot be read, so that each is tried once."""
        self._remarks: dict[tuple[str, str], list[str]] = {}
        """Rows by part and remark."""

    def attempt(
        self, row: str, make: Callable[[], T], part: str = "", parts: Collection[str] = ()
    ) -> T | None:
        """The result of ``make`` for a part of a row; None if it fails or is not selected.

        ``parts``: all parts of a row, of which ``only`` may name some.
        """
        if not self.is_selected(row, part, parts):
            return None
        try:
            return make()
        except MissingError as reason:
            self.reasons[row, part] = str(reason)
            return None

    def is_selected(self, row: str, part: str = "", parts: Collection[str] = ()) -> bool:
        """Whether a part of a row is selected; if not, that is its reason."""
        named = {*parts} & {*self.request.only}
        is_row = not row or self.rows is None or row in self.rows
        if is_row and (not named or part in named):
            return True
        self.reasons[row, part] = NOT_SELECTED
        return False

    def run(self, row: str, *arguments: str | Path, part: str = "") -> dict[str, Any]:
        """The JSON document that ``consilience`` prints with these arguments; empty in a dry run.

        A command reads its run if it exists. A missing model or data set raises ``MissingError``; a
        wrong argument and a bug of ours raise other errors.
        """
        words = list(map(str, arguments))
        name = command_of(words)
        command = ["consilience", *words, *self.request.options.get(name, ())]
        if self.request.data_dir is not None and TAKE_DATA_DIR & set(command[1:3]):
            command += ["--data-dir", str(self.request.data_dir)]
        return self._execute(row, part, name, command, ["-m", *command])

    def read(self, row: str, *arguments: str | Path) -> dict[str, Any]:
        """``run`` of a command whose document is read: a dry run has none."""
        document = self.run(row, *arguments)
        self.stop_if_dry()
        return document

    def run_script(self, row: str, script: Path, *arguments: str | Path) -> dict[str, Any]:
        words = [str(script), *map(str, arguments), *self.request.options.get(script.stem, ())]
        return self._execute(row, "", script.stem, ["python", *words], words)

    def _execute(
        self, row: str, part: str, name: str, command: list[str], call: list[str]
    ) -> dict[str, Any]:
        """``command``: as a person types it. ``call``: what the interpreter runs."""
        self.commands.append(typed := shlex.join(command))
        options = {word for word in command if word.startswith("--")} | {"--help", "--json"}
        self.options_of.setdefault(name, set()).update(options)
        if self.request.dry:
            return {}
        self.say(typed)
        status, stdout, stderr = _call([sys.executable, *call, "--json"])
        document: dict[str, Any] = json.loads(stdout) if status in (0, 2) and stdout else {}
        if status == 0:
            if row != "majority":  # a baseline that is constant on purpose
                self.note(row, part, document.get("warnings", ()))
            return document
        if "error" in document:
            message, kind = document["error"]["message"], document["error"]["kind"]
            # with arguments of the user, what is not about the model is about them
            is_of_model = kind == "model" or not self.request.options.get(name)
            if kind in ("usage", "occupied") or not is_of_model:
                raise ConsilienceError(message.rstrip("."), where=typed)
            raise MissingError(f"{UNAVAILABLE}: {message}")
        if status < 0:
            raise MissingError(f"{UNAVAILABLE}: stopped by signal {-status}; too little memory?")
        raise RuntimeError(f"{typed} failed:\n{stderr[-2000:]}")

    def stop_if_dry(self) -> None:
        """Raise in a dry run, which has no numbers to read."""
        if self.request.dry:
            raise MissingError(NOT_RUN)

    def probe(self, row: str, spec: str, *more: str, part: str = "pararel") -> Path:
        """The run of ``probe`` on ParaRel of a model of the paper."""
        folder, spec = self.request.folder_of(row, part), self.request.models.get(row, spec)
        device = () if spec.startswith("baseline:") else ("--device", self.request.device)
        self.run(
            row, "probe", "--model", spec, "--suite", "pararel", "--out", folder, *device, *more
        )
        return folder

    def note(self, row: str, part: str, texts: Iterable[str]) -> None:
        for text in texts:
            rows = self._remarks.setdefault((part, text), [])
            if row not in rows:
                rows.append(row)

    @property
    def notes(self) -> list[str]:
        notes = []
        for (part, text), rows in self._remarks.items():
            subject = ", ".join(name for name in (part, *rows) if name)
            notes.append(f"{subject}: {text}" if subject else text)
        return notes

    @property
    def absent(self) -> dict[str, str]:
        """Why a row has no numbers; several reasons are listed with their parts."""
        by_row: dict[str, dict[str, list[str]]] = {}
        for (row, part), reason in self.reasons.items():
            by_row.setdefault(row, {}).setdefault(reason, []).append(part)
        absent = {}
        for row, reasons in by_row.items():
            shown = [reason for reason in reasons if reason != NOT_SELECTED]
            texts = [
                f"{', '.join(reasons[reason])}: {reason.removeprefix(f'{UNAVAILABLE}: ')}"
                for reason in shown
            ]
            several = f"{UNAVAILABLE}: {'; '.join(texts)}"
            absent[row] = several if len(shown) > 1 else next(iter(shown or reasons))
        return absent


def command_of(arguments: Sequence[str]) -> str:
    """The name of a command: its first word, or with its sub-commands."""
    words = 3 if "annotate" in arguments[:2] else 2 if arguments[0] in ("analyze", "suite") else 1
    return " ".join(arguments[:words])


def _call(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, standard output, and standard error; a terminal sees the last one instead."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "CONSILIENCE_CONFIG": ""},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr or ""


ADDED = "added"

KOREAN = ("kornli", "klue-nli", "klue-sts")

SPLITS = ("train", "validation", "test")
PAIR_FILES = [f"{task}:{one}" for task in (*CALUM, *KOREAN) for one in (*SPLITS, "answers")]
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
    files: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table or figure of a paper is reproduced."""

    name: str
    title: str
    needs: str
    make: Callable[[Recipe, Work], RecipeResult]
    table: str
    models: Mapping[str, str] = field(default_factory=dict)
    """The paper's models, by the paper's names."""
    added_rows: Sequence[str] = ()
    """What follows the name of a user's model in each of its rows; empty if it can have none."""
    user_rows: Sequence[str] = ()
    files: Sequence[str] = ()
    notes: Sequence[str] = ()
    is_wide: bool = False
    """Whether a screen shows the layout of the paper instead of a line for each number."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """The rows of the paper's table, and the models where rows are models."""
        rows = list(dict.fromkeys(paper_numbers(self.table)["row"]))
        by_model = not rows or not {*rows}.isdisjoint(self.models)
        return list(dict.fromkeys([*(self.models if by_model else ()), *rows, *self.user_rows]))

    def rows_of(self, names: Collection[str]) -> list[str]:
        return [name + end for name in names for end in self.added_rows]

    @property
    def columns(self) -> Mapping[str, tuple[str, str]]:
        keys = {name: text.partition("/") for name, text in self.details["columns"].items()}
        return {name: (metric, subset or "all") for name, (metric, _, subset) in keys.items()}

    def blocks(self) -> dict[str, str]:
        return dict(paper_numbers(self.table).select("row", "group").iter_rows())


ROW = {field.name for field in fields(Recipe)} - {"name", "models", "details"}
"""The keys of a recipe in ``recipes.toml`` beside ``models`` and those of its function."""


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
        given = {key: row.pop(key) for key in ROW & row.keys()}
        given["make"] = makers[given["make"]]
        if given.get("files") == ["pairs"]:
            given["files"] = PAIR_FILES
        recipes[name] = Recipe(name, models=models, details=row, **{"table": name} | given)
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
    made = work.attempt("", lambda: recipe.make(recipe, work))
    result = made or RecipeResult({})
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
    rows = recipe.rows_of(added)
    paper = paper_numbers(recipe.table)
    taken = {*recipe.models, *paper["row"], *paper["group"], *paper["column"]}
    for name in [name for name in (*added, *rows) if name in taken]:
        todo = f"--replace {name}=M replaces the paper's model." if name in recipe.models else ""
        raise ConsilienceError(
            f"--add {name}: the paper's table has that name", expected="a new name", todo=todo
        )
    return replace(recipe, models={**recipe.models, **added}, user_rows=rows)


def _check_options(recipe: Recipe, request: Request) -> None:
    """Refuse more arguments of a command that is not run, or of what the recipe decides itself."""
    plan = Work(replace(request, options={}, only=(), dry=True))
    plan.attempt("", lambda: recipe.make(recipe, plan))
    commands = plan.options_of
    _refuse({*request.options} - {*commands}, f"{recipe.name} has no command", commands)
    for name, more in request.options.items():
        fixed = commands[name] & {word.partition("=")[0] for word in more}
        _refuse(fixed, f"--with {name}: the recipe itself says", ["other options"])


def _refuse(unknown: Collection[str], message: str, known: Collection[str]) -> None:
    if unknown:
        expected = ", ".join(known) or "none"
        raise ConsilienceError(f"{message} '{min(unknown)}'", expected=expected)
