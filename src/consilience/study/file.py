"""A study: its file, and how far its runs are."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, Literal

import polars as pl

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.text import counted, listed, names_a_file
from consilience.files.read import POLARS_FAULTS, parse_json, read_document
from consilience.files.write import path_of
from consilience.options import OutputOptions, checked, parameters, refuse_unknown
from consilience.options.probe import ProbeOptions
from consilience.options.runs import StudyStatusOptions
from consilience.report.export import Shown
from consilience.report.export import record_of as record_of_settings
from consilience.report.table import Column, Table, Value
from consilience.runs.folder import record_of
from consilience.runs.run import model_name, options_record

SEED = "{seed}"
FAILURES, LOGS = "failures", "logs"  # Folders of a study beside those of its models
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
    options: ProbeOptions

    @property
    def folder(self) -> Path:
        assert self.options.out is not None
        return Path(self.options.out)

    @property
    def cell(self) -> str:
        """The suite and the factors in words; models are compared within a cell, seed by seed."""
        return ", ".join([self.suite, *(f"{name}={value}" for name, value in self.factors)])


@dataclass(frozen=True, slots=True)
class Study:
    """A study file."""

    file: Path
    name: str
    folder: Path
    reference: str
    pairs: Literal["reference", "all"]  # Compare each model with the reference, or every two
    runs: Sequence[StudyRun]  # The runs, by model, suite, factors and seed in the order of the file

    def record(self) -> dict[str, Any]:
        return record_of_settings(study=str(self.file), folder=str(self.folder))


def read_study(path: str | Path) -> Study:
    """A study in TOML, with paths relative to the working folder; a wrong one raises."""
    file = path_of(path, "the study file")
    if file.suffix != ".toml":
        raise ConsilienceError(str(file), expected="a TOML file, .toml")
    document = read_document(file)
    try:
        return _study(file, document)
    except ConsilienceError as error:
        raise error.replaced(where=str(file)) from error


def _study(file: Path, document: TomlTable) -> Study:
    _check(document)
    models, suites = (_named(document[f"{spec}s"], spec) for spec in ("model", "suite"))
    with _at("[options]"):
        shared = _options(document.get("options", {}))
    factors = _factors(document.get("factors", {}))
    name = document.get("name", file.stem).strip()
    with _at("name"):
        default = str(Path("runs", _slug(name)))
    folder = Path(document.get("folder", default).strip())
    every = (_runs(*pair, shared, factors, folder) for pair in product(models, suites))
    runs = _without_skipped([*chain(*every)], document.get("skip", []), factors)
    names = [model.name for model in models]
    reference = document.get("reference", names[0]).strip()
    if reference not in names:
        todo = did_you_mean(reference, names)
        raise ConsilienceError(f"reference: no model '{reference}'", todo=todo)
    return Study(file, name, folder, reference, document.get("pairs", "reference"), runs)


def _check(document: TomlTable) -> None:
    from jsonschema import Draft4Validator

    for key in document:
        if key not in KEYS:
            is_option = key.replace("-", "_") in FIELDS
            todo = "Options of all runs belong to the table [options]."
            found = f"the study: no key '{key}'"
            raise ConsilienceError(found, todo=todo if is_option else did_you_mean(key, list(KEYS)))
    for error in Draft4Validator(SCHEMA).iter_errors(document):
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
    try:
        yield
    except ConsilienceError as error:
        raise error.replaced(found=f"{where}: {error.found}", where="") from error


@dataclass(frozen=True, slots=True)
class _Choice:
    """A model, a suite or a value of a factor, with options of ``probe`` by field."""

    name: str
    part: str  # Its part of the folder of a run
    where: str
    options: Mapping[str, Any]
    table: TomlTable = field(default_factory=dict)


def _named(tables: Sequence[TomlTable], spec: str) -> list[_Choice]:
    """The ``[[models]]`` or ``[[suites]]`` tables, each with a name of its own."""
    named, keys = dict[str, _Choice](), KEYS[f"{spec}s"]["items"]["properties"]
    for at, table in enumerate(tables, start=1):
        where, value = f"[[{spec}s]] {at}", table[spec].strip()
        with _at(where):
            is_several = SEED in value and spec == "model"
            if ("seeds" in table) != is_several or (is_several and "name" not in table):
                expected = f"seeds = [0, 1] and a name if {SEED} is in the model, and only then"
                raise ConsilienceError(f"{spec} '{value}'", expected=expected)
            name = table.get("name", model_name(value) or value).strip()
            with _at("name"):
                slug = _slug(name)
            if slug.casefold() in named:
                todo = f"Give each of [[{spec}s]] a `name` of its own."
                raise ConsilienceError(f"duplicate name '{name}'", todo=todo)
        where = f"{where} ({name})"
        with _at(where):
            options = _options({key: one for key, one in table.items() if key not in keys})
        named[slug.casefold()] = _Choice(name, slug, where, options, {**table, spec: value})
    return list(named.values())


def _slug(name: str) -> str:
    slug = re.sub(r"[^\w.-]+", "-", name).strip(".-")
    if not names_a_file(slug) or slug.casefold() in (FAILURES, LOGS):
        expected = f"a short name, other than {FAILURES} and {LOGS}"
        raise ConsilienceError(f"'{name}'", expected=expected)
    return slug


def _options(table: TomlTable) -> dict[str, Any]:
    keywords = {key.replace("-", "_"): value for key, value in table.items()}
    for key in keywords.keys() & {"model", "suite", "out", "folder"}:
        todo = "Models and suites have tables; a study makes a folder for each run in its `folder`."
        raise ConsilienceError(f"'{key}' as an option", todo=todo)
    refuse_unknown(FIELDS, keywords)
    return checked(ProbeOptions, keywords)


Factors = Mapping[str, Sequence[_Choice]]


def _factors(table: TomlTable) -> Factors:
    factors = {}
    for key, values in table.items():
        choices: dict[str, _Choice] = {}
        with _at(f"[factors] {key}"):
            for value, text in zip(values, map(_text_of, values), strict=True):
                ((name, checked),) = _options({key: value}).items()
                slug = re.sub(r"[^\w.-]+", "-", text)[:40]
                if slug != text:  # it cannot be part of a folder
                    slug += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
                choices[text] = _Choice(text, f"{name}={slug}", "[factors]", {name: checked})
            if len(choices) < len(values):
                raise ConsilienceError(f"{values!r}", expected="every value once")
        factors[name] = list(choices.values())
    return factors


def _runs(
    model: _Choice, suite: _Choice, shared: TomlTable, factors: Factors, folder: Path
) -> Iterator[StudyRun]:
    table = model.table
    for values in product(*factors.values()):
        options = dict(shared)
        for one, other in combinations([model, suite, *values], 2):
            for name in sorted(one.options.keys() & other.options.keys()):
                found = f"{one.where} and {other.where}: both set {name}"
                todo = "A default of all runs belongs to [options]."
                raise ConsilienceError(found, expected="an option in one of the two", todo=todo)
        for choice in (model, suite, *values):
            options |= choice.options
        chosen = tuple((name, value.name) for name, value in zip(factors, values, strict=True))
        for seed in table.get("seeds", [None]):
            places = [model.part, suite.part, ",".join(value.part for value in values)]
            places += [] if seed is None else [f"seed-{seed}"]
            name, spec = "/".join(filter(None, places)), table["model"].replace(SEED, str(seed))
            options |= {"model": spec, "suite": suite.table["suite"], "out": folder / name}
            named = model.name, suite.name, chosen, seed, name
            yield StudyRun(*named, ProbeOptions(**options))


def _without_skipped(
    runs: list[StudyRun], skips: Sequence[TomlTable], factors: Iterable[str]
) -> list[StudyRun]:
    """The runs that no ``[[skip]]`` table matches; one that matches none raises."""
    keys, left = ["model", "suite", "seed", *factors], runs
    for at, skip in enumerate(skips, start=1):
        with _at(f"[[skip]] {at}"):
            wanted = {key.replace("-", "_"): value for key, value in skip.items()}
            for key in wanted:
                if key not in keys:
                    raise ConsilienceError(f"no key '{key}'", todo=did_you_mean(key, keys))
            matched = [run for run in runs if _matches(run, wanted)]
            if not matched:
                expected = "names of models and suites of this study, and values of its factors"
                raise ConsilienceError("matches no run", expected=expected)
        left = [run for run in left if run not in matched]
    if not left:
        raise ConsilienceError("[[skip]]: every run is skipped", todo="Skip fewer runs.")
    return left


def _matches(run: StudyRun, wanted: TomlTable) -> bool:
    known = {"model": run.model, "suite": run.suite, "seed": str(run.seed), **dict(run.factors)}
    return all(
        known[key] in map(_text_of, value if isinstance(value, list) else [value])
        for key, value in wanted.items()
    )


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


NOT_COMPARED = (
    "out", "device", "base_url", "api_key_env", "max_requests",
    "concurrency",
)  # fmt: skip
"""Options that say where and how fast a run is asked, not what."""

Progress = Literal["complete", "part", "waiting", "failed"]
"""complete: finished. part: some groups have answers. waiting: none has. failed: with a message."""


def failure_file(study: Study, run: StudyRun) -> Path:
    """The file that says why a run failed, until the run is asked again."""
    return study.folder / FAILURES / f"{run.name}.json"


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run of a study is."""

    run: StudyRun
    state: Progress
    done: int = 0
    groups: int | None = None  # All groups; None where the record does not tell
    answers: int = 0
    started: str | None = None
    finished: str | None = None
    message: str = ""
    queries: int | None = None  # All queries; None where they were not counted

    def to_dict(self) -> dict[str, Any]:
        run = {
            "run": self.run.name, "model": self.run.model, "suite": self.run.suite,
            "factors": dict(self.run.factors), "seed": self.run.seed,
            "folder": str(self.run.folder),
        }  # fmt: skip
        others = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "run"}
        return run | others


@dataclass(frozen=True, slots=True, repr=False)
class StudyState(Shown):
    """How far the runs of a study are."""

    study: Study
    runs: Sequence[RunState]
    was_run: bool = False  # Whether it was just asked, so that a failure is one of the command

    @property
    def unfinished(self) -> list[RunState]:
        return [state for state in self.runs if state.state != "complete"]

    @property
    def failed(self) -> list[RunState]:
        return [state for state in self.runs if state.state == "failed"]

    def table(self) -> Table:
        """One row for each run; failures are below the rows."""
        is_plan = any(state.queries is not None for state in self.runs)
        last = [Column("answers", "count"), Column("started"), Column("finished")]
        if is_plan:
            last = [Column("queries", "count")]
        columns = [Column("run"), Column("state"), Column("groups"), *last]
        rows: list[list[Value]] = []
        for state in self.runs:
            of_all = "" if state.groups in (None, state.done) else f" of {state.groups}"
            is_known = state.done or state.groups is not None
            row: list[Value] = [state.run.name, state.state]
            row.append(f"{state.done}{of_all}" if is_known else "")
            if is_plan:
                row.append(state.queries)
            else:
                times = (state.started, state.finished)
                row += [state.answers, *((time or "")[:16].replace("T", " ") for time in times)]
            rows.append([*row, *[""] * (len(columns) - len(row))])
        title = f"{self.study.name}: {self.in_words()}, in {self.study.folder}"
        return Table(title, columns, rows, self.failures())

    def failures(self) -> list[str]:
        by_message: dict[str, list[str]] = {}
        for state in self.failed:
            by_message.setdefault(state.message, []).append(state.run.name)
        return [f"Failed: {listed(names)}: {text}" for text, names in by_message.items()]

    def in_words(self) -> str:
        states = [state.state for state in self.runs]
        counts = {name: states.count(name) for name in ("complete", "part", "waiting", "failed")}
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        answers = counted(sum(state.answers for state in self.runs), "answer")
        return f"{counted(len(states), 'run')}: {', '.join(parts)}; {answers}"

    def printed(self, output: OutputOptions) -> Iterator[Table | str]:
        yield self.table()

    def document(self) -> dict[str, Any]:
        runs = [one.to_dict() for one in self.runs]
        return {"run": self.study.record(), "runs": runs, "warnings": self.failures()}

    def remarks(self, output: OutputOptions) -> list[str]:
        is_plan = any(one.queries for one in self.runs)
        again = "rerun `consilience study run` to try what failed again"
        return [again] if self.failed and not is_plan else []

    def exit_status(self) -> int:
        return 2 if self.was_run and self.failed else 0

    def __repr__(self) -> str:
        return f"StudyState({self.study.name!r}: {self.in_words()})"


def study_status(options: StudyStatusOptions) -> StudyState:
    """How far the runs of a study are."""
    return state_of(read_study(options.file))


def state_of(study: Study) -> StudyState:
    """How far the runs of a study are."""
    return StudyState(study, [_state(study, run) for run in study.runs])


def _state(study: Study, run: StudyRun) -> RunState:
    try:
        record, files = kept(run)
    except ConsilienceError as error:
        return RunState(run, "failed", message=str(error))
    groups = len(record["settings"].get("groups", ())) if record else None
    finished = str(record.get("finished") or "")
    is_complete = bool(files and finished and len(files) == groups)
    if is_complete and (change := changed_option(run, record)):
        return RunState(run, "failed", message=str(change))
    answers, message = 0, ""
    with suppress(*POLARS_FAULTS):  # a damaged file has no rows
        footers = [pl.scan_parquet(file, glob=False).select(pl.len()) for file in files.values()]
        answers = sum(int(count.item()) for count in pl.collect_all(footers))
    if not is_complete:
        with suppress(OSError, ValueError, TypeError, KeyError):
            message = str(parse_json(failure_file(study, run).read_bytes())["message"])
    state: Progress = "part" if files else "waiting"
    return RunState(
        run, "complete" if is_complete else "failed" if message else state, len(files), groups,
        answers, record.get("started"), finished if is_complete else None, message,
    )  # fmt: skip


def changed_option(run: StudyRun, record: Mapping[str, Any]) -> ConsilienceError | None:
    """The first option that the study file has changed since ``record``, that of the run."""
    before, now = record.get("options", {}), options_record(run.options, {})
    for name, option in FIELDS.items():
        values = [options.get(name, option.default) for options in (before, now)]
        if name not in NOT_COMPARED and values[0] != values[1]:
            first, second = (json.dumps(value, ensure_ascii=False) for value in values)
            return ConsilienceError(
                f"{name} was {first} when this run was asked, and is {second} in the study file",
                where=str(run.folder),
                todo="Restore it, or set another `folder` in the study file, or remove this folder "
                "to ask again.",
            )
    return None


def kept(run: StudyRun) -> tuple[dict[str, Any], dict[str, Path]]:
    """The record of a run, empty where there is none, and the file of each group with answers."""
    record = record_of(run.folder)
    groups = record["settings"].get("groups", ()) if record else ()
    files = {name: run.folder / "answers" / f"{at}.parquet" for at, name in enumerate(groups)}
    known = record.get("answers", {})
    return record, {name: of for name, of in files.items() if name in known and of.is_file()}
