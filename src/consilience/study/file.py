"""The file of a study: a grid of models, suites and factors in TOML, a run each."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, did_you_mean, shortened
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.files.write import path_of
from consilience.options import checked, parameters, refuse_unknown
from consilience.options.probe import ProbeOptions
from consilience.runs.run import model_name

SEED = "{seed}"
FAILURES = "failures.json"  # In the folder of a study: why runs failed, by run
LOG = "log.txt"  # There, too: what the libraries of local workers print
SIGNS = re.compile(r"[^\w.-]+")  # In a name, not in that of a folder
LONGEST = 40  # Characters of a value of a factor in the name of a folder
SCHEMA: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("study.schema.json").read_text(encoding="utf-8")
)
"""The keys of a study file; ``description`` is what is expected. Tables of models and suites have
options of ``probe`` beside their keys."""

KEYS: Mapping[str, Any] = SCHEMA["properties"]
FIELDS = parameters(ProbeOptions)
TomlTable = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: a model, a suite, a combination of factors and perhaps a seed."""

    model: str
    suite: str
    factors: tuple[tuple[str, str], ...]
    seed: int | None
    name: str  # The folder of the run inside that of the study
    folder: Path
    options: ProbeOptions

    @property
    def cell(self) -> str:
        """The suite and the factors in words; models are compared within a cell, seed by seed."""
        return ", ".join([self.suite, *(f"{name}={value}" for name, value in self.factors)])

    def matches(self, skip: TomlTable) -> bool:
        """Whether it has all values of a table of ``[[skip]]``; one may be a list of values."""
        known = {"model": self.model, "suite": self.suite, "seed": _text_of(self.seed)}
        known |= dict(self.factors)
        for key, value in skip.items():
            values = value if isinstance(value, list) else [value]
            if known.get(key.replace("-", "_")) not in [*map(_text_of, values)]:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Study:
    """A study file."""

    file: Path
    folder: Path
    reference: str  # The model that the others are compared with
    runs: Sequence[StudyRun]  # By model, suite, factors and seed in the order of the file


def read_study(path: str | Path) -> Study:
    """A study in TOML, with paths relative to the working folder; a wrong one raises."""
    from jsonschema import Draft4Validator

    file = path_of(path, "the study file")
    if file.suffix != ".toml":
        raise ConsilienceError(str(file), expected="a TOML file, .toml")
    document = read_document(file)
    try:
        for fault in Draft4Validator(SCHEMA).iter_errors(document):
            place, expected = fault.json_path.removeprefix("$"), fault.schema["description"]
            found = f"{place.removeprefix('.') or 'the study'}: {shortened(fault.message)}"
            raise ConsilienceError(found, expected=expected)
        models, suites = ([*_named(document[f"{of}s"], of)] for of in ("model", "suite"))
        with _at("[options]"):
            shared = _options(document.get("options", {}))
        factors: dict[str, list[_Level]] = {}
        with _at("[factors]"):
            for key, values in document.get("factors", {}).items():
                levels = [_Level(_text_of(value), _options({key: value})) for value in values]
                factors[key.replace("-", "_")] = levels
        folder = Path(document.get("folder", f"runs/{file.stem}").strip())
        grid = product(models, suites, *factors.values())
        runs = [run for levels in grid for run in _runs(levels, [*factors], shared, folder)]
        folders = Counter(run.name.casefold() for run in runs)
        if double := [run.name for run in runs if folders[run.name.casefold()] > 1]:
            todo = "Give each model and suite a `name` of its own, and each factor a value once."
            raise ConsilienceError(f"two runs in the folder {double[0]}", todo=todo)
        skips = document.get("skip", [])
        for at, skip in enumerate(skips, start=1):
            if not any(run.matches(skip) for run in runs):
                expected = "some of model, suite, seed and factors, with values of this study"
                raise ConsilienceError(f"[[skip]] {at}: matches no run", expected=expected)
        runs = [run for run in runs if not any(map(run.matches, skips))]
        if not runs:
            raise ConsilienceError("[[skip]]: every run is skipped", todo="Skip fewer runs.")
        names = [model.name for model in models]
        if (reference := document.get("reference", names[0]).strip()) not in names:
            todo = did_you_mean(reference, names)
            raise ConsilienceError(f"reference: no model '{reference}'", todo=todo)
    except ConsilienceError as error:
        raise error.replaced(where=str(file)) from error
    return Study(file, folder, reference, runs)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(found=f"{where}: {error.found}", where="") from error


@dataclass(frozen=True, slots=True)
class _Level:
    """A model, a suite or a value of a factor, with options of ``probe``."""

    name: str
    options: Mapping[str, Any]
    seeds: Sequence[int | None] = (None,)


def _named(tables: Sequence[TomlTable], spec: str) -> Iterator[_Level]:
    """The ``[[models]]`` or ``[[suites]]`` tables."""
    keys = KEYS[f"{spec}s"]["items"]["properties"]
    for at, table in enumerate(tables, start=1):
        value = table[spec].strip()
        with _at(f"[[{spec}s]] {at}"):
            is_several = spec == "model" and SEED in value
            if ("seeds" in table) != is_several or (is_several and "name" not in table):
                expected = f"seeds = [0, 1] and a name if {SEED} is in the model, and only then"
                raise ConsilienceError(f"{spec} '{value}'", expected=expected)
            options = _options({key: one for key, one in table.items() if key not in keys})
        name = table.get("name", model_name(value) or value).strip()
        yield _Level(name, {**options, spec: value}, table.get("seeds", [None]))


def _options(table: TomlTable) -> dict[str, Any]:
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    for key in keywords.keys() & {"model", "suite", "out", "folder"}:
        todo = "Models and suites have tables; a study makes a folder for each run in its `folder`."
        raise ConsilienceError(f"'{key}' as an option", todo=todo)
    refuse_unknown(FIELDS, keywords)
    return checked(ProbeOptions, keywords)


def _runs(
    levels: tuple[_Level, ...], factors: Sequence[str], shared: TomlTable, folder: Path
) -> Iterator[StudyRun]:
    """The runs of one combination, one for each seed.

    Options of the model, the suite and the factors override those of all runs, in this order.
    """
    model, suite, *values = levels
    chosen = tuple(zip(factors, (value.name for value in values), strict=True))
    for seed in model.seeds:
        texts = [f"{name}={_slug(value)}" for name, value in chosen]
        of_seed = "" if seed is None else f"seed-{seed}"
        parts = [_part(model.name), _part(suite.name), ",".join(texts), of_seed]
        name = "/".join(filter(None, parts))
        options = {**shared, "out": folder / name}
        for level in levels:
            options |= level.options
        options["model"] = options["model"].replace(SEED, str(seed))
        of_run = model.name, suite.name, chosen, seed, name, options["out"]
        yield StudyRun(*of_run, ProbeOptions(**options))


def _slug(value: str) -> str:
    """A value in the name of a folder; one that cannot stand there has 8 digits of its SHA-256."""
    slug = SIGNS.sub("-", value)[:LONGEST]
    return slug if slug == value else f"{slug}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"


def _part(name: str) -> str:
    """The part of a model or a suite of the folder of a run."""
    part = SIGNS.sub("-", name).strip(".-")
    if not names_a_file(part) or part.casefold() in (FAILURES, LOG):
        raise ConsilienceError(f"name: '{name}'", expected="a short name")
    return part


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
