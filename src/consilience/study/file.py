"""The file of a study."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal, get_args

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.core.text import names_a_file
from consilience.files.read import read_document
from consilience.files.write import path_of
from consilience.options import option_fields, refuse_unknown
from consilience.options.probe import ProbeOptions
from consilience.report.export import record_of
from consilience.runs.run import model_name
from consilience.study.engine import Needs

NEEDS = ("num_cpus", "num_gpus", "resources")
"""Keys of a model in a study file, by Ray's names."""


def needs_of(table: Mapping[str, Any]) -> tuple[Needs, int]:
    """What each worker of a model occupies, and its threads; 0 where the table does not say.

    A wrong amount raises.
    """
    amounts = {name: table[name] for name in NEEDS[:2] if name in table}
    resources = table.get("resources", {})
    if not isinstance(resources, dict):
        raise ConsilienceError(f"resources: {resources!r}", expected="a table: {name = 1}")
    for name, amount in {**amounts, **resources}.items():
        if type(amount) not in (int, float) or amount < 0:
            raise ConsilienceError(f"{name}: {amount!r}", expected="a number from 0")
    cpus = amounts.get("num_cpus", 1)
    needs = Needs(cpus, amounts.get("num_gpus", 0), tuple(sorted(resources.items())))
    return needs, max(1, int(cpus)) if "num_cpus" in amounts else 0


SEED = "{seed}"
"""What each of ``seeds`` replaces in ``model``."""

FAILURES, LOGS = "failures", "logs"
"""Folders of a study beside those of its models."""

KEYS = (
    "name", "folder", "reference", "pairs", "options", "models", "suites", "factors", "skip",
)  # fmt: skip
"""The keys at the top of a study file."""

ELSEWHERE = {
    "model": "Write it in a [[models]] table.",
    "suite": "Write it in a [[suites]] table.",
    **dict.fromkeys(
        ("out", "folder"),
        "A study makes a folder for each run; its own is `folder` at the top of the file.",
    ),
}
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
    """The names of the factors, and the value of each as text."""
    seed: int | None
    """The seed; None for a model without seeds."""
    name: str
    """The folder of the run inside that of the study."""
    options: ProbeOptions
    """The options of ``probe``."""
    needs: Needs
    """What each of its workers occupies on a cluster."""
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
    """What the study is called."""
    folder: Path
    address: str
    """Where finished runs are copied to, an address of fsspec; empty for nowhere."""
    reference: str
    """The model that the others are compared with."""
    pairs: ComparedPairs
    runs: Sequence[StudyRun]
    """The runs, by model, suite, factors and seed in the order of the file."""

    def record(self) -> dict[str, Any]:
        """The study, for a document."""
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
    reader = _Reader(file)
    reader.refuse_unknown(document, KEYS, "the study")
    models = reader.tables(document, "models", "model", ("name", "model", "seeds", *NEEDS))
    suites = reader.tables(document, "suites", "suite", ("name", "suite"))
    shared = reader.options(document.get("options", {}), "[options]")
    factors = reader.factors(document.get("factors", {}))
    name = reader.text(document, "name", file.stem)
    default = str(Path("runs", reader.slug(name, "name")))
    address = reader.text(document, "folder", default)
    folder = Path(default if "://" in address else address)
    runs = [
        run
        for model, suite in product(models, suites)
        for run in reader.runs_of(model, suite, shared, factors, folder)
    ]
    runs = reader.without_skipped(runs, document.get("skip", []), [*factors])
    names = [model.name for model in models]
    reference = reader.text(document, "reference", names[0])
    if reference not in names:
        todo = did_you_mean(reference, names)
        raise reader.error("reference", f"no model '{reference}'", todo=todo)
    pairs = reader.text(document, "pairs", "reference")
    if pairs not in get_args(ComparedPairs):
        raise reader.error("pairs", f"'{pairs}'", expected="'reference' or 'all'")
    return Study(
        file, name, folder, address if "://" in address else "", reference,
        "all" if pairs == "all" else "reference", runs,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Named:
    """A ``[[models]]`` or ``[[suites]]`` table."""

    name: str
    where: str
    """Its position in the file, for messages."""
    spec: str
    """The model or the suite."""
    options: Mapping[str, Any]
    """Its options of ``probe`` by field."""
    seeds: Sequence[int]
    """The seeds of a model; empty without."""
    needs: Needs
    """What each worker of a model occupies."""
    threads: int
    """Threads of each worker of a model; 0 where the file does not say."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the parts of a study file."""

    file: Path

    def error(
        self, where: str, fault: str, *, expected: str = "", todo: str = ""
    ) -> ConsilienceError:
        return ConsilienceError(f"{where}: {fault}", expected=expected, where=str(self.file),
                                todo=todo)  # fmt: skip

    @contextmanager
    def _at(self, where: str) -> Iterator[None]:
        """Add the position in the file to an error."""
        try:
            yield
        except ConsilienceError as error:
            raise self.error(
                where, error.found, expected=error.expected, todo=error.todo
            ) from error

    def refuse_unknown(self, table: Table, known: Sequence[str], where: str) -> None:
        """Raise for a key that is not known."""
        for key in table:
            if key not in known:
                todo = did_you_mean(key, list(known))
                if key.replace("-", "_") in {field.name for field in FIELDS.values()}:
                    todo = "Options of all runs belong to the table [options]."
                raise self.error(where, f"no key '{key}'", todo=todo)

    def text(self, table: Table, key: str, default: str = "", where: str = "") -> str:
        """A text that is not empty; ``default`` where there is none."""
        value = table.get(key, default)
        if isinstance(value, str) and value.strip():
            return value.strip()
        shown = repr(value) if key in table else "missing"
        raise self.error(f"{where} {key}".strip(), shown, expected=f'a text: {key} = "..."')

    def slug(self, name: str, where: str) -> str:
        """A name as that of a folder."""
        slug = re.sub(r"[^\w.-]+", "-", name).strip(".-")
        if not names_a_file(slug) or slug.casefold() in (FAILURES, LOGS):
            raise self.error(
                where, f"'{name}'", expected=f"a short name, other than {FAILURES} and {LOGS}"
            )
        return slug

    def tables(self, document: Table, key: str, spec: str, keys: Sequence[str]) -> list[_Named]:
        """The ``[[models]]`` or ``[[suites]]`` tables, each with a name of its own."""
        tables = document.get(key)
        if not isinstance(tables, list) or not tables:
            example = f'[[{key}]] with {spec} = "..."'
            shown = "missing" if key not in document else f"{tables!r}"
            raise self.error(key, shown, expected=f"one table or more: {example}")
        named: list[_Named] = []
        for at, table in enumerate(tables, start=1):
            where = f"[[{key}]] {at}"
            if not isinstance(table, dict):
                raise self.error(where, f"{table!r}", expected="a table")
            value = self.text(table, spec, where=where)
            seeds = self._seeds(table, value, where) if spec == "model" else []
            default = model_name(value) or value
            name = self.text(table, "name", default, where)
            slug = self.slug(name, f"{where} name").casefold()
            if slug in [self.slug(other.name, "").casefold() for other in named]:
                todo = f"Give each of [[{key}]] a `name` of its own."
                raise self.error(where, f"duplicate name '{name}'", todo=todo)
            rest = {name: value for name, value in table.items() if name not in keys}
            where = f"{where} ({name})"
            with self._at(where):
                needs, threads = needs_of(table)
            options = self.options(rest, where)
            named.append(_Named(name, where, value, options, seeds, needs, threads))
        return named

    def _seeds(self, table: Table, model: str, where: str) -> list[int]:
        """The seeds of a model; its name has to have the mark of a seed."""
        if "seeds" not in table:
            if SEED in model:
                raise self.error(
                    where, f"'{SEED}' in model, but no seeds", expected="seeds = [0, 1]"
                )
            return []
        seeds = table["seeds"]
        is_list = isinstance(seeds, list) and seeds
        if not is_list or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise self.error(
                f"{where} seeds", f"{seeds!r}", expected="whole numbers from 0: seeds = [0, 1, 2]"
            )
        if len(set(seeds)) < len(seeds):
            raise self.error(f"{where} seeds", f"{seeds!r}", expected="every seed once")
        if SEED not in model:
            raise self.error(
                f"{where} model", f"'{model}', with seeds", expected=f"a model with {SEED} in it"
            )
        if "name" not in table:
            raise self.error(where, "seeds without a name", todo='Name the model: name = "...".')
        return [int(seed) for seed in seeds]

    def options(self, table: object, where: str) -> dict[str, Any]:
        """The values of options of ``probe``, by field."""
        if not isinstance(table, dict):
            raise self.error(where, f"{table!r}", expected="a table of options of `probe`")
        keywords = {str(key).replace("-", "_"): value for key, value in table.items()}
        for key in keywords:
            if key in ELSEWHERE:
                raise self.error(where, f"'{key}' as an option", todo=ELSEWHERE[key])
        with self._at(where):
            refuse_unknown(ProbeOptions, keywords)
            return {name: FIELDS[name].check(value) for name, value in keywords.items()}

    def factors(self, table: object) -> dict[str, list[tuple[str, Any]]]:
        """The values of each factor, by its field, each with its text."""
        if not isinstance(table, dict):
            raise self.error("[factors]", f"{table!r}", expected="a table of lists")
        factors = {}
        for key, values in table.items():
            if not isinstance(values, list) or not values:
                raise self.error(
                    f"[factors] {key}", f"{values!r}", expected="a list of values of this option"
                )
            checked = [self.options({key: value}, f"[factors] {key}") for value in values]
            (field,) = checked[0]
            texts = [_text_of(value) for value in values]
            if len(set(texts)) < len(texts):
                raise self.error(f"[factors] {key}", f"{values!r}", expected="every value once")
            factors[field] = [
                (text, options[field]) for text, options in zip(texts, checked, strict=True)
            ]
        return factors

    def runs_of(
        self,
        model: _Named,
        suite: _Named,
        shared: Mapping[str, Any],
        factors: Mapping[str, Sequence[tuple[str, Any]]],
        folder: Path,
    ) -> Iterator[StudyRun]:
        tables = [
            (model.where, model.options),
            (suite.where, suite.options),
            ("[factors]", factors),
        ]
        for (one, first), (other, second) in combinations(tables, 2):
            for name in sorted(first.keys() & second.keys()):
                raise self.error(
                    f"{one} and {other}",
                    f"both set {FIELDS[name].name}",
                    expected="an option in one of the two",
                    todo="A default of all runs belongs to [options].",
                )
        for combination in product(*factors.values()):
            texts = tuple(
                (FIELDS[field].name, text)
                for field, (text, _) in zip(factors, combination, strict=True)
            )
            values = {field: value for field, (_, value) in zip(factors, combination, strict=True)}
            parts = [_slug_of_value(name, text) for name, text in texts]
            inside = [self.slug(model.name, ""), self.slug(suite.name, "")]
            inside += [",".join(parts)] if parts else []
            for seed in model.seeds or (None,):
                name = "/".join([*inside, *([] if seed is None else [f"seed-{seed}"])])
                options = ProbeOptions(
                    **{
                        **shared, **model.options, **suite.options, **values,
                        "model": model.spec.replace(SEED, str(seed)),
                        "suite": suite.spec, "out": folder / name,
                    }
                )  # fmt: skip
                yield StudyRun(
                    model.name, suite.name, texts, seed, name, options, model.needs, model.threads
                )

    def without_skipped(
        self, runs: list[StudyRun], skips: object, factors: Sequence[str]
    ) -> list[StudyRun]:
        """The runs that no ``[[skip]]`` table matches; one that matches none raises."""
        if not isinstance(skips, list):
            raise self.error("skip", f"{skips!r}", expected="tables: [[skip]]")
        keywords = [FIELDS[field].name for field in factors]
        left = runs
        for at, skip in enumerate(skips, start=1):
            where = f"[[skip]] {at}"
            if not isinstance(skip, dict) or not skip:
                raise self.error(where, f"{skip!r}", expected='a table, such as model = "..."')
            wanted = {str(key).replace("-", "_"): _texts_of(value) for key, value in skip.items()}
            self.refuse_unknown(wanted, ["model", "suite", "seed", *keywords], where)
            matched = [run for run in runs if _matches(run, wanted)]
            if not matched:
                raise self.error(
                    where, "matches no run", expected="names of models and suites of this study, "
                    "and values of its factors",
                )  # fmt: skip
            left = [run for run in left if run not in matched]
        if not left:
            raise self.error("[[skip]]", "every run is skipped", todo="Skip fewer runs.")
        return left


def _matches(run: StudyRun, wanted: Mapping[str, Sequence[str]]) -> bool:
    known = {"model": run.model, "suite": run.suite, "seed": str(run.seed), **dict(run.factors)}
    return all(known[key] in values for key, values in wanted.items())


def _texts_of(value: object) -> list[str]:
    """The values of a ``[[skip]]`` key as texts: one, or any of a list."""
    return [_text_of(one) for one in value] if isinstance(value, list) else [_text_of(value)]


def _text_of(value: object) -> str:
    """A value of a factor as text."""
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _slug_of_value(name: str, text: str) -> str:
    """``NAME=VALUE`` as part of a folder; a value that cannot be one has a digest."""
    slug = re.sub(r"[^\w.-]+", "-", text)[:40]
    if slug != text:
        slug += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name}={slug}"
