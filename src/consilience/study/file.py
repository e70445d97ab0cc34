"""The file of a study."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.files.write import path_of
from consilience.options import option_fields, refuse_unknown
from consilience.options.probe import ProbeOptions
from consilience.report.export import record_of
from consilience.runs.run import model_name
from consilience.study.engine import Needs

SEED = "{seed}"

FAILURES, LOGS = "failures", "logs"
"""Folders of a study beside those of its models."""

TEXT = {"type": "string", "pattern": r"\S", "description": "a text"}
AMOUNT = {"type": "number", "minimum": 0, "description": "a number from 0"}
SEEDS = "whole numbers from 0, every one once: seeds = [0, 1, 2]"

# fmt: off
MODEL = {
    "name": TEXT, "model": TEXT, "num_cpus": AMOUNT, "num_gpus": AMOUNT,
    "resources": {"type": "object", "additionalProperties": AMOUNT,
                  "description": "a table: {name = 1}"},
    "seeds": {"type": "array", "minItems": 1, "uniqueItems": True, "description": SEEDS,
              "items": {"type": "integer", "minimum": 0, "description": SEEDS}},
}
"""The keys of ``[[models]]`` beside options of ``probe``; amounts of a worker by Ray's names."""

SUITE = {"name": TEXT, "suite": TEXT}


def _tables(key: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of tables with a model or a suite, and options of ``probe``."""
    table = {"type": "object", "properties": keys, "required": [key], "description": "a table"}
    return {"type": "array", "minItems": 1, "items": table,
            "description": f'one table or more: [[{key}s]] with {key} = "..."'}


KEYS: Mapping[str, Any] = {
    "name": TEXT, "folder": TEXT, "reference": TEXT,
    "pairs": {"enum": ["reference", "all"], "description": "'reference' or 'all'"},
    "models": _tables("model", MODEL), "suites": _tables("suite", SUITE),
    "options": {"type": "object", "description": "a table of options of `probe`"},
    "factors": {
        "type": "object", "description": "a table of lists", "additionalProperties": {
            "type": "array", "minItems": 1, "description": "a list of values of this option"}},
    "skip": {
        "type": "array", "description": "tables: [[skip]]", "items": {
            "type": "object", "minProperties": 1,
            "description": 'a table, such as model = "..."'}},
}
"""The keys of a study file, as schemas; ``description`` is what is expected."""
# fmt: on

OWN_FOLDER = "A study makes a folder for each run; its own is `folder` at the top of the file."
ELSEWHERE = {
    "model": "Write it in a [[models]] table.", "suite": "Write it in a [[suites]] table.",
    "out": OWN_FOLDER, "folder": OWN_FOLDER,
}  # fmt: skip
"""Options of ``probe`` that have a table of their own in a study file."""

ComparedPairs = Literal["reference", "all"]
"""Which models are compared: each with the reference, or every two."""

FIELDS = {field.name: field for field in option_fields(ProbeOptions)}

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study: a model, a suite, a combination of factors and perhaps a seed."""

    model: str
    suite: str
    factors: tuple[tuple[str, str], ...]
    seed: int | None
    name: str
    """The folder of the run inside that of the study."""
    options: ProbeOptions
    needs: Needs
    threads: int
    """Threads of each of its workers; 0 where the file does not say."""

    @property
    def folder(self) -> Path:
        assert self.options.out is not None
        return self.options.out

    @property
    def cell(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The suite and the factors; models are compared within a cell."""
        return self.suite, self.factors


@dataclass(frozen=True, slots=True)
class Study:
    """A study file."""

    file: Path
    name: str
    folder: Path
    address: str
    """Where finished runs are copied to, an address of fsspec; empty for nowhere."""
    reference: str
    pairs: ComparedPairs
    runs: Sequence[StudyRun]
    """The runs, by model, suite, factors and seed in the order of the file."""

    def record(self) -> dict[str, Any]:
        return record_of(study=str(self.file), folder=str(self.folder))


def read_study(path: str | Path) -> Study:
    """The study in a TOML file; whatever is wrong with it raises, with its position.

    Paths in the file are relative to the working folder, as on the command line.
    """
    file = path_of(path, "the study file")
    if file.suffix != ".toml":
        raise ConsilienceError(
            f"a study in a file '{file.suffix}'", expected="a TOML file, .toml", where=str(file)
        )
    document = read_document(file)
    try:
        return _study(file, document)
    except ConsilienceError as error:
        raise error.replaced(where=str(file)) from error


def _study(file: Path, document: Table) -> Study:
    _check(document)
    models = _named(document["models"], "model", MODEL)
    suites = _named(document["suites"], "suite", SUITE)
    with _at("[options]"):
        shared = _options(document.get("options", {}))
    factors = _factors(document.get("factors", {}))
    name = document.get("name", file.stem).strip()
    with _at("name"):
        default = str(Path("runs", _slug(name)))
    address = document.get("folder", default).strip()
    folder = Path(default if "://" in address else address)
    runs = [
        run
        for model, suite in product(models, suites)
        for run in _runs(model, suite, shared, factors, folder)
    ]
    runs = _without_skipped(runs, document.get("skip", []), factors)
    names = [model.name for model in models]
    reference = document.get("reference", names[0]).strip()
    if reference not in names:
        todo = did_you_mean(reference, names)
        raise ConsilienceError(f"reference: no model '{reference}'", todo=todo)
    return Study(
        file, name, folder, address if "://" in address else "", reference,
        document.get("pairs", "reference"), runs,
    )  # fmt: skip


def _check(document: Table) -> None:
    from jsonschema import Draft4Validator

    for key in document:
        if key not in KEYS:
            is_option = key.replace("-", "_") in {field.name for field in FIELDS.values()}
            todo = "Options of all runs belong to the table [options]."
            raise ConsilienceError(
                f"the study: no key '{key}'",
                todo=todo if is_option else did_you_mean(key, list(KEYS)),
            )
    schema = {"properties": KEYS, "required": ["models", "suites"]}
    for error in Draft4Validator(schema).iter_errors(document):
        place, schema, found = [*error.absolute_path], error.schema, repr(error.instance)
        if error.validator == "required":
            missing = next(name for name in error.validator_value if name not in error.instance)
            place, found = [*place, missing], "missing"
            schema = schema["properties"][missing]
        table, *rest = place
        if rest:
            is_list = isinstance(rest[0], int)
            table = f"[[{table}]] {rest.pop(0) + 1}" if is_list else f"[{table}]"
        where = " ".join(map(str, [table, *rest]))
        raise ConsilienceError(f"{where}: {found}", expected=schema["description"])


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Add the position in the file to an error."""
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(found=f"{where}: {error.found}", where="") from error


@dataclass(frozen=True, slots=True)
class _Named:
    """A ``[[models]]`` or ``[[suites]]`` table."""

    name: str
    where: str
    table: Table
    options: Mapping[str, Any]
    """Its options of ``probe`` by field."""


def _named(tables: Sequence[Table], spec: str, keys: Mapping[str, Any]) -> list[_Named]:
    """The ``[[models]]`` or ``[[suites]]`` tables, each with a name of its own."""
    named: dict[str, _Named] = {}
    for at, table in enumerate(tables, start=1):
        where, value = f"[[{spec}s]] {at}", table[spec].strip()
        with _at(where):
            if ("seeds" in table) != (SEED in value and spec == "model"):
                raise ConsilienceError(
                    f"model '{value}' {'with' if 'seeds' in table else 'without'} seeds",
                    expected=f"seeds = [0, 1], and {SEED} in the model",
                )
            if "seeds" in table and "name" not in table:
                raise ConsilienceError("seeds without a name", todo='Name the model: name = "...".')
            name = table.get("name", model_name(value) or value).strip()
            with _at("name"):
                slug = _slug(name).casefold()
            if slug in named:
                todo = f"Give each of [[{spec}s]] a `name` of its own."
                raise ConsilienceError(f"duplicate name '{name}'", todo=todo)
        where = f"{where} ({name})"
        with _at(where):
            options = _options({key: one for key, one in table.items() if key not in keys})
        named[slug] = _Named(name, where, {**table, spec: value}, options)
    return list(named.values())


def _slug(name: str) -> str:
    """A name as that of a folder."""
    slug = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not names_a_file(slug) or slug.casefold() in (FAILURES, LOGS):
        expected = f"a short name, other than {FAILURES} and {LOGS}"
        raise ConsilienceError(f"'{name}'", expected=expected)
    return slug


def _options(table: Table) -> dict[str, Any]:
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    for key in keywords.keys() & ELSEWHERE.keys():
        raise ConsilienceError(f"'{key}' as an option", todo=ELSEWHERE[key])
    refuse_unknown(ProbeOptions, keywords)
    return {name: FIELDS[name].check(value) for name, value in keywords.items()}


def _factors(table: Table) -> dict[str, list[tuple[str, Any]]]:
    """The values of each factor, by its field, each with its text."""
    factors = {}
    for key, values in table.items():
        with _at(f"[factors] {key}"):
            checked = [_options({key: value}) for value in values]
            texts = [_text_of(value) for value in values]
            if len(set(texts)) < len(texts):
                raise ConsilienceError(f"{values!r}", expected="every value once")
        (field,) = checked[0]
        given = [options[field] for options in checked]
        factors[field] = list(zip(texts, given, strict=True))
    return factors


def _runs(
    model: _Named,
    suite: _Named,
    shared: Mapping[str, Any],
    factors: Mapping[str, Sequence[tuple[str, Any]]],
    folder: Path,
) -> Iterator[StudyRun]:
    tables: list[tuple[str, Mapping[str, Any]]]
    tables = [(model.where, model.options), (suite.where, suite.options), ("[factors]", factors)]
    for (one, first), (other, second) in combinations(tables, 2):
        for name in sorted(first.keys() & second.keys()):
            raise ConsilienceError(
                f"{one} and {other}: both set {FIELDS[name].name}",
                expected="an option in one of the two",
                todo="A default of all runs belongs to [options].",
            )
    table = model.table
    cpus, resources = table.get("num_cpus"), tuple(sorted(table.get("resources", {}).items()))
    needs = Needs(1 if cpus is None else cpus, table.get("num_gpus", 0), resources)
    threads = 0 if cpus is None else max(1, int(cpus))
    for combination in product(*factors.values()):
        chosen = list(zip(factors, combination, strict=True))
        texts = tuple((FIELDS[field].name, text) for field, (text, _) in chosen)
        parts = ",".join(_slug_of_value(name, text) for name, text in texts)
        for seed in table.get("seeds", [None]):
            places = [_slug(model.name), _slug(suite.name), parts]
            places += [] if seed is None else [f"seed-{seed}"]
            name = "/".join(filter(None, places))
            options = {**shared, **model.options, **suite.options}
            options |= {field: value for field, (_, value) in chosen}
            options |= {
                "model": table["model"].replace(SEED, str(seed)), "suite": suite.table["suite"],
                "out": folder / name,
            }  # fmt: skip
            yield StudyRun(
                model.name, suite.name, texts, seed, name, ProbeOptions(**options), needs, threads
            )


def _without_skipped(
    runs: list[StudyRun], skips: Sequence[Table], factors: Mapping[str, Any]
) -> list[StudyRun]:
    """The runs that no ``[[skip]]`` table matches; one that matches none raises."""
    keys = ["model", "suite", "seed", *(FIELDS[field].name for field in factors)]
    left = runs
    for at, skip in enumerate(skips, start=1):
        with _at(f"[[skip]] {at}"):
            wanted = {key.replace("-", "_"): value for key, value in skip.items()}
            for key in wanted:
                if key not in keys:
                    raise ConsilienceError(f"no key '{key}'", todo=did_you_mean(key, keys))
            matched = [run for run in runs if _matches(run, wanted)]
            if not matched:
                raise ConsilienceError(
                    "matches no run",
                    expected="names of models and suites of this study, and values of its factors",
                )
        left = [run for run in left if run not in matched]
    if not left:
        raise ConsilienceError("[[skip]]: every run is skipped", todo="Skip fewer runs.")
    return left


def _matches(run: StudyRun, wanted: Table) -> bool:
    known = {"model": run.model, "suite": run.suite, "seed": str(run.seed), **dict(run.factors)}
    return all(
        known[key] in map(_text_of, value if isinstance(value, list) else [value])
        for key, value in wanted.items()
    )


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _slug_of_value(name: str, text: str) -> str:
    """``NAME=VALUE`` as part of a folder; a value that cannot be one has a digest."""
    slug = re.sub(r"[^\w.-]+", "-", text)[:40]
    if slug != text:
        slug += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name}={slug}"
