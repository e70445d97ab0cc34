"""The file of a study: a grid of models, suites and factors in TOML, a run each."""

from __future__ import annotations

import hashlib
import json
import re
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
        models, suites = (_named(document[f"{spec}s"], spec) for spec in ("model", "suite"))
        with _at("[options]"):
            shared = _options(document.get("options", {}))
        factors = _factors(document.get("factors", {}))
        folder = Path(document.get("folder", f"runs/{file.stem}").strip())
        levels = product(models, suites, *factors.values())
        runs = [run for each in levels for run in _runs(each, [*factors], shared, folder)]
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
    """A model, a suite or a value of a factor."""

    name: str
    part: str  # Its part of the folder of a run
    options: Mapping[str, Any]  # Of ``probe``
    seeds: Sequence[int | None] = (None,)


def _named(tables: Sequence[TomlTable], spec: str) -> list[_Level]:
    """The ``[[models]]`` or ``[[suites]]`` tables, each with a name of its own."""
    named, keys = dict[str, _Level](), KEYS[f"{spec}s"]["items"]["properties"]
    for at, table in enumerate(tables, start=1):
        with _at(f"[[{spec}s]] {at}"):
            value, is_several = table[spec].strip(), SEED in table[spec] and spec == "model"
            if ("seeds" in table) != is_several or (is_several and "name" not in table):
                expected = f"seeds = [0, 1] and a name if {SEED} is in the model, and only then"
                raise ConsilienceError(f"{spec} '{value}'", expected=expected)
            name = table.get("name", model_name(value) or value).strip()
            with _at("name"):
                slug = _slug(name)
            if slug.casefold() in named:
                todo = f"Give each of [[{spec}s]] a `name` of its own."
                raise ConsilienceError(f"duplicate name '{name}'", todo=todo)
        with _at(f"[[{spec}s]] {at} ({name})"):
            options = _options({key: one for key, one in table.items() if key not in keys})
        options, seeds = {**options, spec: value}, table.get("seeds", [None])
        named[slug.casefold()] = _Level(name, slug, options, seeds)
    return list(named.values())


def _slug(name: str) -> str:
    slug = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not names_a_file(slug):
        raise ConsilienceError(f"'{name}'", expected="a short name")
    return slug


def _options(table: TomlTable) -> dict[str, Any]:
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    for key in keywords.keys() & {"model", "suite", "out", "folder"}:
        todo = "Models and suites have tables; a study makes a folder for each run in its `folder`."
        raise ConsilienceError(f"'{key}' as an option", todo=todo)
    refuse_unknown(FIELDS, keywords)
    return checked(ProbeOptions, keywords)


def _factors(table: TomlTable) -> dict[str, list[_Level]]:
    factors = {}
    for key, values in table.items():
        levels: dict[str, _Level] = {}
        with _at("[factors]"):
            for value, text in zip(values, map(_text_of, values), strict=True):
                ((name, checked),) = _options({key: value}).items()
                slug = re.sub(r"[^\w.-]+", "-", text)[:40]
                if slug != text:  # it cannot be part of a folder
                    slug += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
                levels[text] = _Level(text, f"{name}={slug}", {name: checked})
            if len(levels) < len(values):
                raise ConsilienceError(f"{key} = {values!r}", expected="every value once")
        factors[name] = list(levels.values())
    return factors


def _runs(
    levels: tuple[_Level, ...], factors: Sequence[str], shared: TomlTable, folder: Path
) -> Iterator[StudyRun]:
    """The runs of one combination, one for each seed.

    Options of the model, the suite and the factors override those of all runs, in this order.
    """
    model, suite, *values = levels
    chosen = tuple((name, value.name) for name, value in zip(factors, values, strict=True))
    for seed in model.seeds:
        parts = [model.part, suite.part, ",".join(value.part for value in values)]
        parts += [] if seed is None else [f"seed-{seed}"]
        name, options = "/".join(filter(None, parts)), {**shared, "out": folder / Path(*parts)}
        for level in levels:
            options |= level.options
        options["model"] = options["model"].replace(SEED, str(seed))
        of_run = model.name, suite.name, chosen, seed, name, options["out"]
        yield StudyRun(*of_run, ProbeOptions(**options))


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
