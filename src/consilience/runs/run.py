"""A run that is opened again: what was asked, what was answered, its options."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import Expectation
from consilience.files.read import parquet_metadata, read_parquet
from consilience.files.write import path_of
from consilience.options import parameters
from consilience.options.commands import ProbeOptions
from consilience.runs.folder import QUERIES, digest_of, fingerprint, record_of
from consilience.types import WORDS, Fact, Relation, Suite


def read_answers(path: str | Path) -> pl.DataFrame:
    """The answers table in the folder of a run: what the run wrote, or raises."""
    path = path_of(path, "the run")
    record = record_of(path)  # what is written meanwhile is in it
    if not record:
        raise no_run(path, "run.json")
    groups = record["settings"].get("groups", ())
    files = {group: path / "answers" / f"{at}.parquet" for at, group in enumerate(groups)}
    recorded = record["answers"] if record.get("finished") else {}  # others are resumed
    missing = [group for group in recorded if not files[group].is_file()]
    if missing:
        found = f"{len(missing)} answers file{'s' * (len(missing) > 1)} of a finished run missing"
        expected = f"the {len(recorded)} that are in run.json"
        todo = "Restore them, or give the command of the run again, which asks what is missing."
        found, where = f"{found}: {', '.join(missing)}", str(path / "answers")
        raise ConsilienceError(found, expected=expected, where=where, todo=todo)
    there = {group: file for group, file in files.items() if file.is_file()}
    if not there:
        todo = "Give the command of the run again, which asks the rest."
        raise ConsilienceError("no group is complete", where=str(path), todo=todo)
    for group, file in there.items():
        if record["answers"].get(group) != digest_of(file):
            raise ConsilienceError(
                "these answers were changed after the run wrote them",
                expected="the SHA-256 that is in run.json",
                where=str(file),
                todo="Give the command of the run again, which asks this group again.",
            )
    # Groups of written answers have further columns.
    return pl.concat(map(read_parquet, there.values()), how="diagonal")


def no_run(path: Path, lacking: str) -> ConsilienceError:
    """The error for a folder that is no run, with the runs in it."""
    levels = ("*", "*/*", "*/*/*")  # as improve and the user have them
    inside = [found.parent for level in levels for found in path.glob(f"{level}/answers")]
    names = ", ".join(sorted(str(folder.relative_to(path)) for folder in inside))
    todo = f"Name one of the runs in it: {names}." if inside else ""
    return ConsilienceError(
        f"no {lacking}", expected="the folder of a run", where=str(path), todo=todo
    )


@dataclass(frozen=True)
class Run:
    """Answers of one model, and all that was asked: the folder of a run, read once."""

    path: Path  # The folder
    label: str  # What tables and reports call it
    record: Mapping[str, Any] = field(repr=False)  # ``run.json``
    source: Path | None = None  # The file of answers that it is made of, if it is kept nowhere
    keeper: object = field(default=None, repr=False, compare=False)
    """What removes such a run when it is no longer used."""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variants that its tables call otherwise, as another run does."""

    def __fspath__(self) -> str:
        """The path, so that a run can be passed where a path is expected."""
        return str(self.path)

    @classmethod
    def open(cls, path: str | Path, label: str = "") -> Run:
        """Read the record of a run; a path that is no run raises."""
        path = path_of(path, "the run")
        if not path.exists():
            raise ConsilienceError(
                "no such file or folder", where=str(path), todo="Check the path."
            )
        return cls(path, label or path.resolve().name, record_of(path))

    @property
    def where(self) -> str:
        """The folder, or the file of answers, that a user named."""
        return str(self.source or self.path)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decided the answers."""
        return self.record.get("settings", {})  # type: ignore[no-any-return]

    @property
    def is_finished(self) -> bool:
        return bool(self.record.get("finished"))

    @property
    def model_name(self) -> str:
        """The last part of the model's Hub id or path; empty where the model is not known."""
        return model_of(self.settings)

    def named_by_model(self) -> Run:
        """The run with the name of its model as its label, where that is known."""
        return replace(self, label=self.model_name or self.label)

    @property
    def protocol(self) -> Protocol:
        """The protocol that decided the answers."""
        return self.suite.protocol

    @cached_property
    def suite(self) -> Suite:
        """What was asked, as it is counted: groups with their items and variants."""
        file, settings = self._queries_file, self.settings
        known = parquet_metadata(file)
        if known.get("consilience") != fingerprint(settings):
            found, todo = "other settings than those of the run", "Restore run.json."
            raise ConsilienceError(found, where=str(self.path / "run.json"), todo=todo)
        groups = json.loads(known["groups"])
        columns = ["group", "item", "subject", "gold"]
        items = read_parquet(file, columns).unique(columns[:2], maintain_order=True)
        facts: dict[str, list[Fact]] = {}
        for group, *of_item in items.iter_rows():
            facts.setdefault(group, []).append(Fact(*of_item))
        relations = [Relation.of_record(one, tuple(facts.get(one["group"], ()))) for one in groups]
        return Suite(
            settings["suite"], tuple(relations), settings["protocol"],
            expectations=tuple(map(Expectation.of_record, self.record.get("expectations", ()))),
            words=WORDS[settings["kind"]],
        )  # fmt: skip

    @property
    def _queries_file(self) -> Path:
        """The file of the queries; one that this run did not write raises."""
        file = self.path / QUERIES
        if "queries" not in self.record:
            raise no_run(self.path, QUERIES)
        if not file.is_file() or digest_of(file) != self.record.get("queries"):
            found = "other queries than those of the run" if file.is_file() else "no queries"
            todo = "Restore the file, or give the command of the run again, which writes it."
            raise ConsilienceError(found, where=str(file), todo=todo)
        return file

    @cached_property
    def queries(self) -> pl.DataFrame:
        """What was asked (``QUERIES_SCHEMA``)."""
        return self._named(read_parquet(self._queries_file))

    @cached_property
    def answers(self) -> pl.DataFrame:
        return self._named(read_answers(self.path))

    def _named(self, table: pl.DataFrame) -> pl.DataFrame:
        return table.with_columns(pl.col("variant").replace(self.names)) if self.names else table

    def texts(self, items: pl.DataFrame | None = None) -> dict[tuple[str, str, str], str]:
        """(group, item, variant) -> what was asked; ``items``: of these ``group, item`` only."""
        rows = self.queries
        if items is not None:
            rows = rows.join(items, on=["group", "item"], how="semi", maintain_order="left")
        text = pl.col("input").list.join("\n").str.strip_prefix(USER)
        columns = rows.select("group", "item", "variant", text)
        return {row[:3]: row[3] for row in columns.iter_rows()}


USER = "user: "  # Before the text of a chat at a server, in ``input``

NOT_COMPARED = ("out", "device", "base_url", "api_key_env", "max_requests", "concurrency")
"""Options that say where and how fast a run is asked, not what."""

TRAINED = re.compile(r"(?<=[^/])/seed-\d+/(model|adapter)/?$")
"""Where ``improve`` puts a model and its adapter in its folder."""


def model_of(settings: Mapping[str, Any]) -> str:
    """What the settings of a run call its model; empty where they name none."""
    model = str(settings.get("model", {}).get("model", ""))
    return model_name(model, settings.get("task", {}).get("name", ""))


def model_name(model: str, task: str = "") -> str:
    """The last part of a Hub id or path, without ``seed-N`` and ``task``, and that of an adapter.

    What ``improve`` wrote is called by the folder of the training.
    """
    base, plus, adapter = model.partition(" + ")
    if plus:
        return f"{model_name(base)} + {model_name(adapter)}"
    parts = [part for part in TRAINED.sub("", model).split("/") if part]
    if parts and parts[-1] == task:
        parts = [part for part in parts[:-1] if not part.startswith("seed-")]
    return parts[-1].removesuffix(".gguf") if parts else ""


def open_runs(specs: Sequence[str], opener: Callable[[Path, str], Run] = Run.open) -> list[Run]:
    """Runs by ``PATH`` or ``LABEL=PATH``, each with a label of its own.

    Without a label a run is called by its model, with its folder in brackets where another run has
    that name; by its folder alone where the model is not known. A folder has more of its path
    where two are the same.
    """
    labelled = [split_label(spec) for spec in specs]
    runs = [opener(Path(path), label) for label, path in labelled]
    labels = [label for label, _ in labelled]
    unnamed = [at for at, label in enumerate(labels) if not label]
    taken = [*(runs[at].model_name for at in unnamed), *labels]
    folders = short_names([Path(labelled[at][1]) for at in unnamed])
    for at, folder in zip(unnamed, folders, strict=True):
        model = runs[at].model_name
        labels[at] = f"{model} ({folder})" if model else folder
        if model and taken.count(model) == 1:
            labels[at] = model
    for label in labels:
        if labels.count(label) > 1:
            found = f"two runs are called '{label}'"
            raise ConsilienceError(found, expected="a label for each", todo="Write LABEL=RUN.")
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def split_label(spec: str) -> tuple[str, str]:
    """The label, empty where there is none, and the path of ``LABEL=PATH`` or ``PATH``."""
    label, equals, path = spec.partition("=")
    return (label, path) if label and equals and not Path(spec).exists() else ("", spec)


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them from each other."""
    parts = [path.resolve().parts for path in paths]
    for size in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-size:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    if paths:
        raise ConsilienceError(
            "duplicate runs", expected="different runs", where=", ".join(map(str, paths))
        )
    return []


def options_record(options: ProbeOptions, values: Mapping[str, object]) -> dict[str, Any]:
    """The options that differ from their defaults, as values of JSON, for the record of a run.

    ``values``: the suite and the model, None where an option names it. One that is a Python value
    is recorded as None, because no option names it.
    """
    record: dict[str, Any] = {}
    for name, parameter in parameters(ProbeOptions).items():
        value = getattr(options, name)
        if values.get(name) is not None:
            record[name] = None
        elif value != parameter.default:
            is_plain = value is None or isinstance(value, str | int | float)
            path = str(value) if isinstance(value, Path) else None
            record[name] = value if is_plain else path or list(value)
    return record
