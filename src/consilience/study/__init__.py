"""Studies of many models on many suites: a grid with factors in a TOML file, a run each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.options import checked, parameters, refuse_unknown
from consilience.options.commands import ProbeOptions
from consilience.runs.run import model_name

LOG = "log.txt"  # In the folder of a study: what the libraries of local workers print
KINDS: Mapping[object, str] = {list: "a list", dict: "a table", str: "a text"}
KEYS = {"models": list, "suites": list, "folder": str, "options": dict, "factors": dict}
"""The keys of a study file, and what each holds."""

TomlTable = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: a model, a suite and a combination of factors."""

    model: str
    cell: str  # The suite and the factors; models are compared within a cell
    name: str  # The folder of the run inside that of the study
    folder: Path
    options: ProbeOptions


@dataclass(frozen=True, slots=True)
class Study:
    """A study file."""

    file: Path
    folder: Path
    runs: Sequence[StudyRun]  # By model, suite and factors in the order of the file


@dataclass(frozen=True, slots=True)
class _Level:
    """A model, a suite or a value of a factor, with options of ``probe``."""

    name: str
    folder: str  # Its part of the name of a folder
    options: Mapping[str, Any]


def read_study(path: str | Path) -> Study:
    """A study in TOML, with paths relative to the working folder; a wrong one raises."""
    file = Path(path)
    study = read_document(file)
    with _at(str(file)):
        refuse_unknown(KEYS, study, what="key")
        for key, kind in KEYS.items():
            _refuse_other(key, study.get(key, kind()), kind)
    levels: list[list[_Level]] = [[], []]
    for of, known in zip(("model", "suite"), levels, strict=True):
        for at, table in enumerate(study.get(f"{of}s", []), start=1):
            with _at(f"{file}: [[{of}s]] {at}"):
                known.append(_level(table, of))
    with _at(f"{file}: [options]"):
        shared = _options(study.get("options", {}))
    with _at(f"{file}: [factors]"):
        for name, values in study.get("factors", {}).items():
            _refuse_other(name, values, list)
            texts = map(_text_of, values)
            levels.append([
                _Level(f"{name}={text}", f"{name}={_folder(text)}", _options({name: value}))
                for text, value in zip(texts, values, strict=True)
            ])  # fmt: skip
    folder = Path(study.get("folder", f"runs/{file.stem}"))
    runs = [_run(of, shared, folder) for of in product(*levels)]
    if not runs:
        raise ConsilienceError("no runs", where=str(file), expected="[[models]] and [[suites]]")
    names = [run.name.casefold() for run in runs]
    for double in (name for name in names if names.count(name) > 1):
        todo = "Give each model and suite a `name` of its own, and each value once."
        raise ConsilienceError(f"{double} twice", where=str(file), todo=todo)
    return Study(file, folder, runs)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(where=where) from error


def _refuse_other(key: str, value: object, kind: type[Any]) -> None:
    """Raise for a value that is of another kind."""
    if not isinstance(value, kind):
        raise ConsilienceError(f"{key}: {value!r}", expected=KINDS[kind])


def _level(table: TomlTable, of: str) -> _Level:
    """A table of ``[[models]]`` or ``[[suites]]``, with options of ``probe``."""
    _refuse_other(of, table, dict)
    if not (value := str(table.get(of, ""))):
        raise ConsilienceError(f"no '{of}'", expected="a text")
    name = str(table.get("name") or model_name(value) or value)
    options = _options({key: one for key, one in table.items() if key not in (of, "name")})
    return _Level(name, _folder(name), {**options, of: value})


def _folder(name: str) -> str:
    """A name as part of the path of a folder."""
    folder = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not names_a_file(folder):
        raise ConsilienceError(f"name: '{name}'", expected="a short name")
    return folder


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(table: TomlTable) -> dict[str, Any]:
    """Options of ``probe`` by their names in Python, but for those that are of a run."""
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    of_a_run = ("model", "suite", "out")
    refuse_unknown([name for name in parameters(ProbeOptions) if name not in of_a_run], keywords)
    return checked(ProbeOptions, keywords)


def _run(levels: Sequence[_Level], shared: TomlTable, folder: Path) -> StudyRun:
    """The run of one combination.

    Options of the model, the suite and the factors override those of all runs, in this order.
    """
    model, suite, *values = levels
    of_values = ",".join(value.folder for value in values)
    name = "/".join(filter(None, [model.folder, suite.folder, of_values]))
    options = {**shared, "out": folder / name}
    for level in levels:
        options |= level.options
    cell = ", ".join(level.name for level in (suite, *values))
    return StudyRun(model.name, cell, name, folder / name, ProbeOptions(**options))
