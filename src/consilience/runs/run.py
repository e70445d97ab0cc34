"""A run that is opened again: its answers, the texts of its questions, its options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import polars as pl

from consilience.core.errors import ConsilienceError, Protocol, reason_of
from consilience.core.expectations import Expectation
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.files.read import parquet_metadata, read_parquet
from consilience.files.tables import LOG_NAMES, read_answer_file
from consilience.files.write import path_of
from consilience.options import option_fields
from consilience.options.probe import ProbeOptions
from consilience.runs.folder import PROMPTS, digest_of, record_of

SENTENCE_PAIRS, QUESTIONS = "perturb", "questions"
"""The ``kind`` of a run of sentence pairs, and of one of questions, in its settings."""

EXPECTATIONS, TEXTS = "expectations", "texts"
"""In the record of a run of questions: what should hold between its answers, and a digest of the
text of each question by item."""


def read_answers(path: str | Path) -> pl.DataFrame:
    """The answers table in a file of somebody (``read_answer_file``), or in the folder of a run."""
    path = path_of(path, "the answers table")
    if path.is_dir():
        files = sorted((path / "answers").glob("*.parquet"))
        record = record_of(path)  # what is written meanwhile is in it
        _refuse_missing(path, record)
        if not files:
            levels = ("*", "*/*", "*/*/*")  # as improve and the user have them
            inside = [found.parent for level in levels for found in path.glob(f"{level}/answers")]
            names = ", ".join(sorted(str(folder.relative_to(path)) for folder in inside))
            todo = f"Name one of the runs in it: {names}." if inside else ""
            if logs := [log for name in LOG_NAMES for log in sorted(path.glob(name))]:
                todo = todo or f"Name a file of answers in it, such as {logs[0]}."
            raise ConsilienceError(
                "no answers/*.parquet", expected="the folder of a run", where=str(path), todo=todo
            )
        marks = {parquet_metadata(file).get("consilience") for file in files}
        if len(marks) > 1:
            raise ConsilienceError(
                "the answers of different runs",
                expected="those of one run",
                where=str(path / "answers"),
                todo="Remove what was copied there, or probe again.",
            )
        _check_digests(record, files)
        try:
            # Groups of written answers have further columns.
            return pl.concat(list(map(recorded_answers, files)), how="diagonal")
        except pl.exceptions.PolarsError as error:
            raise ConsilienceError(
                f"its tables do not fit together: {reason_of(error)}", where=str(path)
            ) from error
    return read_answer_file(path)


ALWAYS = ("group", "item", "variant", "gold", "answer")
"""Columns that the answers of every run have."""


def recorded_answers(file: Path) -> pl.DataFrame:
    """The answers of a group in the folder of a run; columns as in ``ANSWERS_SCHEMA``, or raises.

    A digest in ``run.json`` vouches for a file, and not for what it holds.
    """
    table = read_parquet(file)
    for name, declared in ANSWERS_SCHEMA.items():
        dtype = table.schema.get(name, None if name in ALWAYS else pl.Null())
        texts = (pl.String, pl.Categorical, pl.Enum)
        fits = dtype in texts if declared == pl.String else dtype and dtype.is_numeric()
        if dtype != pl.Null and not fits:
            found = f"no column '{name}'" if dtype is None else f"a column '{name}' of type {dtype}"
            expected = "the answers of a run"
            todo = "The file is damaged. Restore it, or probe again."
            raise ConsilienceError(found, expected=expected, where=str(file), todo=todo)
    return table


def _refuse_missing(run: Path, record: Mapping[str, Any]) -> None:
    """Raise where a finished run has fewer answers files than it recorded; others are resumed."""
    recorded = record["answers"] if record.get("finished") else {}
    missing = [name for name in recorded if not (run / "answers" / f"{name}.parquet").is_file()]
    if missing:
        files = "answers file" + "s" * (len(missing) > 1)
        found = f"{len(missing)} {files} of a finished run missing: {', '.join(missing)}"
        expected = f"the {len(recorded)} that are in run.json"
        todo = "Restore them, or give the command of the run again, which asks what is missing."
        raise ConsilienceError(found, expected=expected, where=str(run / "answers"), todo=todo)


def _check_digests(record: Mapping[str, Any], files: Sequence[Path]) -> None:
    """Raise where an answers file is not the one that the run recorded, if it has a record."""
    for file in files if record else ():
        if record["answers"].get(file.stem) != digest_of(file):
            raise ConsilienceError(
                "these answers were changed after the run wrote them",
                expected="the SHA-256 that is in run.json",
                where=str(file),
                todo="Give the command of the run again, which asks this group again. To count "
                "changed answers, copy the folder without run.json.",
            )


@dataclass(frozen=True)
class Run:
    """Answers of one model, read once: the folder of a run, or a table that was made elsewhere.

    A folder with several seeds is one run, whose ``seeds`` are runs of their own.
    """

    path: Path  # The folder or the table
    label: str  # What tables and reports call it
    record: Mapping[str, Any] = field(repr=False)
    """``run.json``, of several seeds that of the first; empty for a table made elsewhere."""
    parts: tuple[Run, ...] = field(default=(), repr=False)
    """The runs of several seeds; empty for a single run."""

    def __fspath__(self) -> str:
        """The path, so that a run can be passed where a path is expected."""
        return str(self.path)

    @classmethod
    def open(cls, path: str | Path, label: str = "") -> Run:
        """Read the record of a run; a path that does not exist raises."""
        path = path_of(path, "the run")
        if not path.exists():
            raise ConsilienceError(
                "no such file or folder", where=str(path), todo="Check the path."
            )
        folders = [folder for folder in seed_folders(path) if (folder / "run.json").is_file()]
        parts = tuple(cls.open(folder, folder.name) for folder in folders)
        if parts and not {*parts[0].record.get("seeds", ())} <= {part.label for part in parts}:
            parts = tuple(replace(part, record={**part.record, "finished": None}) for part in parts)
        record = parts[0].record if parts else record_of(path)
        return cls(path, label or path.resolve().name, record, parts)

    @property
    def seeds(self) -> tuple[Run, ...]:
        """The run of each seed; itself where it has one."""
        return self.parts or (self,)

    @property
    def tables(self) -> list[pl.DataFrame]:
        return [seed.answers for seed in self.seeds]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decided the answers; empty for a table made elsewhere."""
        return self.record.get("settings", {})  # type: ignore[no-any-return]

    @property
    def model_name(self) -> str:
        """The last part of the model's Hub id or path; empty where the model is not known."""
        model = str(self.settings.get("model", {}).get("model", ""))
        return model_name(model, self.settings.get("task", {}).get("name", ""))

    def named_by_model(self) -> Run:
        """The run with the name of its model as its label, where that is known."""
        return replace(self, label=self.model_name or self.label)

    @property
    def protocol(self) -> Protocol | None:
        """The protocol that decided the answers; None where there is none."""
        name = self.settings.get("protocol")
        return next((protocol for protocol in get_args(Protocol) if protocol == name), None)

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        """What should hold between the answers of a run of questions."""
        return tuple(map(Expectation.of_record, self.record.get(EXPECTATIONS, ())))

    @property
    def texts(self) -> Mapping[str, str]:
        """A digest of the text of each question by item; empty where it is not known."""
        return self.record.get(TEXTS, {})  # type: ignore[no-any-return]

    @cached_property
    def answers(self) -> pl.DataFrame:
        return read_answers(self.path)

    @property
    def prompts(self) -> pl.DataFrame:
        """What was sent, of the first seed: ``group, item, variant, prompt``.

        Runs of questions and sentence pairs keep it; of others the table is empty.
        """
        names = ("group", "item", "variant", "prompt")
        tables = [
            read_parquet(file).select(pl.lit(file.stem).alias("group"), *names[1:])
            for file in sorted((self.seeds[0].path / PROMPTS).glob("*.parquet"))
        ]
        return pl.concat(tables) if tables else pl.DataFrame(schema=dict.fromkeys(names, pl.String))


TRAINED = re.compile(r"(?<=[^/])/seed-\d+/[^/]+/lambda-[^/]+/model/?$")
"""Where ``improve`` puts a model in its folder."""


def model_name(model: str, task: str = "") -> str:
    """The last part of a model's Hub id or path, without ``seed-N`` and ``task``.

    What ``improve`` wrote is called by the folder of the training.
    """
    parts = [part for part in TRAINED.sub("", model).split("/") if part]
    if parts and parts[-1] == task:
        parts = [part for part in parts[:-1] if not part.startswith("seed-")]
    return parts[-1].removesuffix(".gguf") if parts else ""


def seed_folders(path: Path) -> list[Path]:
    """The folders of the seeds in a folder, seed-2 before seed-10."""
    folders = [folder for folder in path.glob("seed-*") if folder.is_dir()]
    return sorted(folders, key=lambda folder: (len(folder.name), folder.name))


def open_runs(specs: Sequence[str]) -> list[Run]:
    """Runs by ``PATH`` or ``LABEL=PATH``, each with a label of its own.

    Without a label a run is called by its model, with its folder in brackets where another run has
    that name; by its folder alone where the model is not known. A folder has more of its path
    where two are the same.
    """
    labelled = [split_label(spec) for spec in specs]
    runs = [Run.open(Path(path), label) for label, path in labelled]
    labels = [label for label, _ in labelled]
    unnamed = [at for at, label in enumerate(labels) if not label]
    taken = [*(runs[at].model_name for at in unnamed), *labels]
    folders = short_names([runs[at].path for at in unnamed])
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
    return (label, path) if equals and not Path(spec).exists() else ("", spec)


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
    for option in option_fields(ProbeOptions):
        value = getattr(options, option.name)
        if values.get(option.name) is not None:
            record[option.name] = None
        elif value != option.default:
            is_plain = value is None or isinstance(value, str | int | float)
            path = str(value) if isinstance(value, Path) else None
            record[option.name] = value if is_plain else path or list(value)
    return record
