"""Studies of many models on many suites: a grid with factors in a TOML file, a run each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.files.write import path_of
from consilience.options import checked, parameters, refuse_unknown
from consilience.options.commands import ProbeOptions
from consilience.runs.run import model_name

SEED = "{seed}"
FAILURES = "failures.json"  # In the folder of a study: why runs failed, by run
LOG = "log.txt"  # There, too: what the libraries of local workers print
SIGNS = re.compile(r"[^\w.-]+")  # In a name, not in that of a folder
LONGEST = 40  # Characters of a value of a factor in the name of a folder

TEXT, TABLE, LIST = (str, "a text"), (dict, "a table"), (list, "a list that is not empty")

Kinds = Mapping[str, tuple[type, str]]  # What the values of keys are, as a type and in words

STUDY: Kinds = {
    "models": LIST, "suites": LIST, "folder": TEXT, "reference": TEXT, "options": TABLE,
    "factors": TABLE,
}  # fmt: skip
"""The keys of a study file."""

LEVELS: Mapping[str, Kinds] = {
    "model": {"model": TEXT, "name": TEXT, "seeds": LIST}, "suite": {"suite": TEXT, "name": TEXT},
}  # fmt: skip
"""Those of the tables of models and of suites, which have options of ``probe`` beside them."""

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


@dataclass(frozen=True, slots=True)
class _Level:
    """A model, a suite or a value of a factor, with options of ``probe``."""

    name: str
    folder: str  # Its part of the name of a folder
    options: Mapping[str, Any]
    seeds: Sequence[int | None] = (None,)


def read_study(path: str | Path) -> Study:
    """A study in TOML, with paths relative to the working folder; a wrong one raises."""
    file = path_of(path, "the study file")
    if file.suffix != ".toml":
        raise ConsilienceError(str(file), expected="a TOML file, .toml")
    study = read_document(file)
    with _at(str(file)):
        refuse_unknown(STUDY, study, what="key")
        _refuse_kinds(study, STUDY, "models", "suites")
        folder = Path(study.get("folder", f"runs/{file.stem}"))
    models, suites = ([*_named(study[f"{of}s"], of, str(file))] for of in LEVELS)
    with _at(f"{file}: [options]"):
        shared = _options(study.get("options", {}))
    factors: dict[str, list[_Level]] = {}
    with _at(f"{file}: [factors]"):
        _refuse_kinds(table := study.get("factors", {}), dict.fromkeys(table, LIST))
        for key, values in table.items():
            options = [_options({key: value}) for value in values]
            name, texts = next(iter(options[0])), map(_text_of, values)
            factors[name] = [
                _Level(text, f"{name}={_slug(text)}", of)
                for text, of in zip(texts, options, strict=True)
            ]
    with _at(str(file)):
        levels = [models, suites, *factors.values()]
        folders = [[level.folder.casefold() for level in of] for of in levels]
        folders += [[f"seed {seed}" for seed in model.seeds] for model in models]
        for double in (name for of in folders for name in of if of.count(name) > 1):
            todo = "Give each model and suite a `name` of its own, and each value and seed once."
            raise ConsilienceError(f"{double} twice", todo=todo)
        runs = [run for of in product(*levels) for run in _runs(of, [*factors], shared, folder)]
        names = [model.name for model in models]
        if (reference := study.get("reference", names[0])) not in names:
            todo = did_you_mean(reference, names)
            raise ConsilienceError(f"reference: no model '{reference}'", todo=todo)
    return Study(file, folder, reference, runs)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(where=where) from error


def _refuse_kinds(table: TomlTable, kinds: Kinds, *needed: str) -> None:
    """Raise for a key that is missing, and for a value of another kind."""
    for key in [*needed, *(key for key in kinds if key in table)]:
        value, (kind, expected) = table.get(key), kinds[key]
        if not isinstance(value, kind) or value == []:
            found = f"{key}: {value!r}" if key in table else f"no '{key}'"
            raise ConsilienceError(found, expected=expected)


def _named(tables: Sequence[Any], of: str, file: str) -> Iterator[_Level]:
    """The ``[[models]]`` or ``[[suites]]`` tables."""
    for at, table in enumerate(tables, start=1):
        with _at(f"{file}: [[{of}s]] {at}"):
            _refuse_kinds({of: table}, {of: TABLE})
            _refuse_kinds(table, LEVELS[of], of)
            value, seeds, fits = table[of], table.get("seeds", [None]), "seeds" not in table
            if of == "model" and SEED in value:
                fits = "name" in table and all(type(one) is int and one >= 0 for one in seeds)
            if not fits:
                expected = f"seeds = [0, 1] and a name if {SEED} is in the model, and only then"
                raise ConsilienceError(f"{of} '{value}'", expected=expected)
            options = _options({key: one for key, one in table.items() if key not in LEVELS[of]})
            name = table.get("name") or model_name(value) or value
            folder = SIGNS.sub("-", name).strip(".-")
            if not names_a_file(folder) or folder.casefold() in (FAILURES, LOG):
                raise ConsilienceError(f"name: '{name}'", expected="a short name")
        yield _Level(name, folder, {**options, of: value}, seeds)


def _options(table: TomlTable) -> dict[str, Any]:
    """Options of ``probe`` by their names in Python, but for those that are of a run."""
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    of_a_run = ("model", "suite", "out")
    refuse_unknown([name for name in parameters(ProbeOptions) if name not in of_a_run], keywords)
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
