"""What a recipe is: a function that has commands run and reads the numbers of a paper's table."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from consilience.errors import OTHER_OUT, ConsilienceError, did_you_mean
from consilience.report.papers import Key, Measured, beside, paper_numbers
from consilience.run import fingerprint

READ_SUITES = {"probe", "improve", "stats", "examples", "knowledge", "representations", "syntax"}
"""Commands that take ``--data-dir``."""

NOT_HERE, NOT_ASKED = "not here", "not asked"
"""How the reason begins why a command could not be done, and what of a row that is left out."""


@dataclass(slots=True)
class Work:
    """Where a recipe works, what it may do, and what it could not do.

    ``folder`` is for all recipes; ``place`` says where a command's run is, and what is there is
    gone on with. ``models``: what stands for a model of the paper, by the paper's name. ``only``:
    of which rows alone, or of which blocks or columns of the table; ``rows``: the rows that this
    leaves, all where it is None. ``data``: files of tasks, by the task's name and split, such as
    ``rte:train``. ``options``: more arguments by the command's name. ``dry``: say the commands, run
    none. ``absent``: why a row has no numbers; that of ``""`` is said of all others.
    ``remarks``: what commands note for their reader, and of which rows (``told``).
    """

    folder: Path
    models: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    rows: Collection[str] | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    data_dir: Path | None = None
    device: str = "auto"
    dry: bool = False
    say: Callable[[str], None] = lambda text: None
    absent: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    remarks: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def wanted(self, row: str) -> bool:
        """Whether this row is to be made; if not, that is noted."""
        rows = self.only or None if self.rows is None else self.rows
        if rows is not None and row not in rows:
            self.absent[row] = NOT_ASKED
            return False
        return True

    @property
    def own(self) -> Path:
        """Where runs and tables are; those of other ``options`` do not mix with the paper's."""
        if not self.options:
            return self.folder
        return self.folder / f"with-{fingerprint({'options': dict(self.options)})[:8]}"

    def place(self, row: str, into: str = "pararel") -> Path:
        """The folder of a row's run; another model in the place of the paper's has its own."""
        other = self.models.get(row)
        if other is None:
            return self.own / into / row
        words = re.findall(r"[\w.-]+", Path(other).name)
        return self.own / into / "-".join((row, *words, fingerprint({"model": other})[:8]))

    @property
    def asked(self) -> str:
        """In what this may not be as the paper: options of ``reproduce``; blank without any."""
        given = [("--model", f"{row}={model}") for row, model in self.models.items()]
        given += [("--data", f"{name}={file}") for name, file in self.data.items()]
        given += [("--with", f"{name}={shlex.join(more)}") for name, more in self.options.items()]
        given += [("--only", ",".join(self.only))] if self.only else []
        return " ".join(shlex.join(each) for each in given)

    def run(self, row: str, *arguments: str | Path, part: str = "") -> bool:
        """Run ``consilience`` with these arguments for a row of the table, or a part of it.

        False where that could not be done: ``absent`` then says why. A command that is done already
        reads what is there. What cannot be asked so raises, as does a bug of ours.
        """
        return self._document(row, arguments, part) is not None

    def ask(self, row: str, *arguments: str | Path) -> dict[str, Any] | None:
        """The JSON document that ``consilience`` prints; None where ``run`` would say False."""
        return self._document(row, arguments)

    @property
    def told(self) -> list[str]:
        """The remarks, each once, with the part and the rows that they are about."""
        about = {
            key: ", ".join(each for each in (key[0], *rows) if each)
            for key, rows in self.remarks.items()
        }
        return [f"{who}: {text}" if who else text for (_, text), who in about.items()]

    def note(self, row: str, part: str, texts: Iterable[str]) -> None:
        """Keep what the reader of a row should know."""
        for text in texts:
            rows = self.remarks.setdefault((part, text), [])
            if row not in rows:
                rows.append(row)

    def _document(
        self, row: str, arguments: Sequence[str | Path], part: str = ""
    ) -> dict[str, Any] | None:
        """What a command prints with ``--json``, or None."""
        asked = list(map(str, arguments))
        more = self.options.get(command_of(asked), ())
        command = ["consilience", *asked, *more]
        if self.data_dir is not None and READ_SUITES & set(command[1:3]):
            command += ["--data-dir", str(self.data_dir)]
        self.commands.append(shlex.join(command))
        if self.dry:
            self.absent[row] = "not run"
            return None
        self.say(self.commands[-1])
        status, output, errors = _call([sys.executable, "-m", *command, "--json"])
        document: dict[str, Any] = json.loads(output) if status in (0, 2) and output else {}
        if status == 0:
            if row != "majority":  # that it is constant is what it is for
                self.note(row, part, document.get("warnings", ()))
            return document
        if "error" in document:
            error = document["error"]["message"]
            is_usage = document["error"]["is_usage"]
            if is_usage or _is_of_the_user(error, asked, more):
                raise ConsilienceError(error.rstrip("."), where=self.commands[-1])
            self.absent[row] = f"{NOT_HERE}: {error}"
        elif status < 0:
            self.absent[row] = f"{NOT_HERE}: stopped by signal {-status}; too little memory?"
        else:
            raise RuntimeError(f"{self.commands[-1]} failed:\n{errors[-2000:]}")
        return None

    def probe(self, row: str, spec: str, *more: str, into: str = "pararel") -> Path | None:
        """The run of ``probe`` on ParaRel of a model of the paper; None where it is not here."""
        if not self.wanted(row):
            return None
        place, spec = self.place(row, into), self.models.get(row, spec)
        device = () if spec.startswith("baseline:") else ("--device", self.device)
        done = self.run(
            row, "probe", "--model", spec, "--suite", "pararel", "--out", place, *device, *more
        )
        return place if done else None


def command_of(arguments: Sequence[str]) -> str:
    """The name of a command: its first word, or its first two."""
    return " ".join(arguments[: 2 if arguments[0] in ("analyze", "annotate", "data") else 1])


def _is_of_the_user(error: str, asked: Sequence[str], more: Sequence[str]) -> bool:
    """Whether an error is about another run or about ``more`` arguments, not about the model."""
    models = [value for name, value in itertools.pairwise(asked) if name == "--model"]
    return OTHER_OUT in error or bool(more and not any(model in error for model in models))


def _call(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, standard output, and standard error; a terminal sees the last one instead."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr or ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a recipe found: numbers, what a reader should know, and files that it made."""

    numbers: Mapping[Key, Measured]
    notes: Sequence[str] = ()
    files: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table or figure of a paper is made again.

    ``table``: where the paper's numbers stand in papers.csv. ``needs``: models, data, and the order
    of the time that it takes. ``models``: the paper's models by the paper's names. ``files``: sets
    of pairs that may be given as files, by task and split.
    """

    name: str
    table: str
    title: str
    needs: str
    make: Callable[[Work], Found]
    models: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()

    @property
    def rows(self) -> list[str]:
        """The rows of the paper's table, and the models where rows are models."""
        rows = list(dict.fromkeys(paper_numbers(self.table)["row"]))
        by_model = not rows or not {*rows}.isdisjoint(self.models)
        return list(dict.fromkeys([*(self.models if by_model else ()), *rows]))


RECIPES: dict[str, Recipe] = {}


def recipe(
    name: str,
    title: str,
    needs: str,
    table: str = "",
    models: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
) -> Callable[[Callable[[Work], Found]], Callable[[Work], Found]]:
    """Register a function as the recipe of a table; ``table`` where its numbers go by another."""

    def register(make: Callable[[Work], Found]) -> Callable[[Work], Found]:
        if name in RECIPES:
            raise ValueError(f"two recipes are called '{name}'")
        RECIPES[name] = Recipe(name, table or name, title, needs, make, models or {}, files)
        return make

    return register


def find_recipe(name: str) -> Recipe:
    """The recipe of that name; an unknown one raises with the closest."""
    if name not in RECIPES:
        raise ConsilienceError(f"no recipe '{name}'", todo=did_you_mean(name, list(RECIPES)))
    return RECIPES[name]


def carry_out(recipe: Recipe, work: Work) -> tuple[Found, pl.DataFrame]:
    """What a recipe finds, and its numbers beside the paper's (``BESIDE_SCHEMA``).

    Where ``only`` names blocks, rows or columns, only numbers in one of each are asked. What the
    recipe has no use for raises.
    """
    paper = paper_numbers(recipe.table)
    parts = (paper["group"], recipe.rows, paper["column"])
    named = [{*part} & {*work.only} for part in parts]
    known = list(dict.fromkeys(each for part in parts for each in part if each))
    _refuse({*work.only}.difference(*named), f"{recipe.name} has no row", known)
    _refuse({*work.models} - {*recipe.models}, f"{recipe.name} has no model", recipe.models)
    _refuse({*work.data} - {*recipe.files}, f"{recipe.name} takes no file", recipe.files)
    if work.options:
        _check_options(recipe, work)

    def is_asked(key: Key) -> bool:
        return all(part in found for part, found in zip(key, named, strict=True) if found)

    keys = paper.select("group", "row", "column").iter_rows()
    others = [row for row in recipe.rows if row not in paper["row"]]
    work.rows = {key[1] for key in keys if is_asked(key)}
    work.rows |= {row for row in others if row in (named[1] or others)}
    if work.only and not work.rows:
        raise ConsilienceError(
            f"{recipe.name} has no number in {' and '.join(work.only)} at once",
            expected="rows, and blocks or columns that they are in",
        )
    found = recipe.make(work)
    found = replace(found, notes=[*found.notes, *work.told])
    ours = {key: each for key, each in found.numbers.items() if is_asked(key)}
    numbers = beside(recipe.table, ours, work.absent)
    asked = [is_asked(key) for key in numbers.select("group", "row", "column").iter_rows()]
    verdict = (
        pl.when(pl.Series(asked, dtype=pl.Boolean)).then("verdict").otherwise(pl.lit(NOT_ASKED))
    )
    return found, numbers.with_columns(verdict=verdict)


def _check_options(recipe: Recipe, work: Work) -> None:
    """Refuse more arguments of a command that is not run, or of what the recipe decides itself."""
    plan = replace(
        work, options={}, only=(), rows=None, dry=True, absent={}, commands=[], remarks={}
    )
    recipe.make(plan)
    commands: dict[str, set[str]] = {}
    for command in plan.commands:
        words = shlex.split(command)[1:]
        own = {word for word in words if word.startswith("--")} | {"--help", "--json"}
        commands.setdefault(command_of(words), set()).update(own)
    _refuse({*work.options} - {*commands}, f"{recipe.name} has no command", commands)
    for name, more in work.options.items():
        own = commands[name] & {word.partition("=")[0] for word in more}
        _refuse(own, f"--with {name}: the recipe itself says", ["other options"])


def _refuse(unknown: Collection[str], found: str, known: Collection[str]) -> None:
    """Raise where there is something unknown."""
    if unknown:
        expected = ", ".join(known) or "none"
        raise ConsilienceError(f"{found} '{min(unknown)}'", expected=expected)
