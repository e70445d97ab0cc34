"""Studies of many models on many suites: a grid with factors in a TOML file, a run each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.files.rows import Column, line, read_one
from consilience.files.write import path_of
from consilience.options import checked, parameters, refuse_unknown
from consilience.options.commands import ProbeOptions
from consilience.runs.run import model_name

SEED = "{seed}"
FAILURES = "failures.json"  # In the folder of a study: why runs failed, by run
LOG = "log.txt"  # There, too: what the libraries of local workers print
SIGNS = re.compile(r"[^\w.-]+")  # In a name, not in that of a folder
LONGEST = 40  # Characters of a value of a factor in the name of a folder


def _is(
    kind: Any, expected: str, fits: Callable[[Any], bool] = lambda value: True
) -> Callable[[Any], Any]:
    """A table, or a list that is not empty, whose values all fit."""

    def parse(value: Any) -> Any:
        if value == [] or not (isinstance(value, kind) and all(fits(one) for one in value)):
            raise ConsilienceError(f"{value!r}", expected=expected)
        return value

    return parse


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


STUDY = (
    Column("models", _is(list, 'one table or more: [[models]] with model = "..."', _is_table)),
    Column("suites", _is(list, 'one table or more: [[suites]] with suite = "..."', _is_table)),
    Column("folder", line, "", is_needed=False),
    Column("reference", line, "", is_needed=False),
    Column("options", _is(dict, "a table of options of `probe`"), {}, is_needed=False),
    Column("factors", _is(dict, "a table of lists"), {}, is_needed=False),
)
"""The keys of a study file."""

NAME = Column("name", line, "", is_needed=False)
SEEDS = _is(list, "whole numbers from 0: seeds = [0, 1, 2]", lambda n: type(n) is int and n >= 0)
LEVELS = {
    "model": (Column("model", line), NAME, Column("seeds", SEEDS, [None], is_needed=False)),
    "suite": (Column("suite", line), NAME),
}
"""The keys of the tables of models and of suites, which have options of ``probe`` beside them."""

TomlTable = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: a model, a suite, a combination of factors and perhaps a seed."""

    model: str
    suite: str
    seed: int | None
    factors: Mapping[str, str]
    name: str  # The folder of the run inside that of the study
    folder: Path
    options: ProbeOptions

    @property
    def cell(self) -> str:
        """The suite and the factors in words; models are compared within a cell, seed by seed."""
        return ", ".join([self.suite, *(f"{name}={value}" for name, value in self.factors.items())])


@dataclass(frozen=True, slots=True)
class Study:
    """A study file."""

    file: Path
    folder: Path
    reference: str  # The model that the others are compared with
    runs: Sequence[StudyRun]  # By model, suite, factors and seed in the order of the file


def read_study(path: str | Path) -> Study:
    """A study in TOML, with paths relative to the working folder; a wrong one raises."""
    file = path_of(path, "the study file")
    if file.suffix != ".toml":
        raise ConsilienceError(str(file), expected="a TOML file, .toml")
    document = read_document(file)
    refuse_unknown([column.name for column in STUDY], document, str(file), "key")
    study = read_one(document, STUDY, str(file))
    models, suites = ([*_named(study[f"{of}s"], of, str(file))] for of in LEVELS)
    with _at(f"{file}: [options]"):
        shared = _options(study["options"])
    factors: dict[str, list[_Level]] = {}
    with _at(f"{file}: [factors]"):
        for name, values in _by_name(study["factors"]).items():
            of_factor = _is(list, f"a list of values of '{name}'")(values)
            factors[name] = [
                _Level(text, f"{name}={_slug(text)}", _options({name: value}))
                for value, text in zip(of_factor, map(_text_of, of_factor), strict=True)
            ]
    with _at(str(file)):
        folder = Path(study["folder"] or f"runs/{file.stem}")
        if "://" in study["folder"]:
            raise ConsilienceError(f"folder: '{folder}'", expected="a local folder")
        levels = [models, suites, *factors.values()]
        folders = [[level.folder.casefold() for level in of] for of in levels]
        folders += [[f"seed {seed}" for seed in model.seeds] for model in models]
        for double in (name for of in folders for name in of if of.count(name) > 1):
            todo = "Give each model and suite a `name` of its own, and each value and seed once."
            raise ConsilienceError(f"{double} twice", todo=todo)
        runs = [run for of in product(*levels) for run in _runs(of, [*factors], shared, folder)]
        names = [model.name for model in models]
        if (reference := study["reference"] or names[0]) not in names:
            todo = did_you_mean(reference, names)
            raise ConsilienceError(f"reference: no model '{reference}'", todo=todo)
    return Study(file, folder, reference, runs)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(where=where) from error


@dataclass(frozen=True, slots=True)
class _Level:
    """A model, a suite or a value of a factor, with options of ``probe``."""

    name: str
    folder: str  # Its part of the name of a folder
    options: Mapping[str, Any]
    seeds: Sequence[int | None] = (None,)


def _named(tables: Sequence[TomlTable], of: str, file: str) -> Iterator[_Level]:
    """The ``[[models]]`` or ``[[suites]]`` tables."""
    for at, table in enumerate(tables, start=1):
        where = f"{file}: [[{of}s]] {at}"
        known = read_one(table, LEVELS[of], where)
        name, value = known["name"], known[of]
        with _at(where):
            is_several = of == "model" and SEED in value
            if ("seeds" in table) != is_several or (is_several and not name):
                expected = f"seeds = [0, 1] and a name if {SEED} is in the model, and only then"
                raise ConsilienceError(f"{of} '{value}'", expected=expected)
            options = _options({key: one for key, one in table.items() if key not in known})
            name = name or model_name(value) or value
            folder = SIGNS.sub("-", name).strip(".-")
            if not names_a_file(folder) or folder.casefold() in (FAILURES, LOG):
                raise ConsilienceError(f"name: '{name}'", expected="a short name")
        yield _Level(name, folder, {**options, of: value}, known.get("seeds", [None]))


def _by_name(table: TomlTable) -> dict[str, Any]:
    """The values of options by their names in Python."""
    values = {key.replace("-", "_"): value for key, value in table.items()}
    if len(values) < len(table):
        raise ConsilienceError("one option twice, with - and with _", todo="Leave one of them out.")
    return values


def _options(table: TomlTable) -> dict[str, Any]:
    keywords = _by_name(table)
    for key in keywords.keys() & {"model", "suite", "out", "folder"}:
        todo = "Models and suites have tables; a study makes a folder for each run in its `folder`."
        raise ConsilienceError(f"'{key}' as an option", todo=todo)
    refuse_unknown(parameters(ProbeOptions), keywords)
    return checked(ProbeOptions, keywords)


def _runs(
    levels: tuple[_Level, ...], factors: Sequence[str], shared: TomlTable, folder: Path
) -> Iterator[StudyRun]:
    """The runs of one combination, one for each seed.

    Options of the model, the suite and the factors override those of all runs, in this order.
    """
    model, suite, *values = levels
    chosen = dict(zip(factors, (value.name for value in values), strict=True))
    for seed in model.seeds:
        of_seed = "" if seed is None else f"seed-{seed}"
        of_values = ",".join(value.folder for value in values)
        name = "/".join(filter(None, [model.folder, suite.folder, of_values, of_seed]))
        options = {**shared, "out": folder / name}
        for level in levels:
            options |= level.options
        options["model"] = options["model"].replace(SEED, str(seed))
        run = model.name, suite.name, seed, chosen, name, options["out"]
        yield StudyRun(*run, ProbeOptions(**options))


def _slug(value: str) -> str:
    """A value in the name of a folder; one that cannot stand there has 8 digits of its SHA-256."""
    slug = SIGNS.sub("-", value)[:LONGEST]
    return slug if slug == value else f"{slug}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
