"""What is done of a study, here and on other machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from consilience.core.errors import ConsilienceError
from consilience.core.text import counted, listed
from consilience.files.read import POLARS_FAULTS, parse_json
from consilience.files.write import write_whole
from consilience.options import Output, option_fields
from consilience.options.probe import ProbeOptions
from consilience.options.runs import StudyStatusOptions
from consilience.report.export import Shown
from consilience.report.table import Column, Table, Value
from consilience.runs.folder import record_of
from consilience.runs.run import options_record, seed_folders
from consilience.study.file import FAILURES, Study, StudyRun, read_study

if TYPE_CHECKING:
    from consilience.kinds.probing import ProbePlan


RECORD = "run.json"


def fetch_runs(study: Study) -> None:
    """Fetch the runs that are finished at the address of the study, and not here.

    A study without an address has nothing to fetch.
    """
    if not study.address:
        return
    with _store(study) as (files, root):
        for run in study.runs:
            folder = f"{root}/{run.name}"
            if not _is_finished(_local_records(run)) and _is_finished(_records(files, folder)):
                for path in _in_order(files.find(folder)):
                    name = PurePosixPath(path).relative_to(PurePosixPath(folder))
                    if ".." in name.parts:
                        raise ValueError(f"a file '{path}', which would leave the folder")
                    (run.folder / name).parent.mkdir(parents=True, exist_ok=True)
                    write_whole(run.folder / name, files.cat_file(path))


def store_run(study: Study, run: StudyRun) -> None:
    """Copy a finished run to the address of the study, if it is not there; its record last."""
    if not study.address or not _is_finished(_local_records(run)):
        return
    with _store(study) as (files, root):
        folder = f"{root}/{run.name}"
        if sorted(_local_records(run)) == sorted(_records(files, folder)):
            return
        paths = (path.as_posix() for path in run.folder.rglob("*") if path.is_file())
        for path in map(Path, _in_order(paths)):
            target = f"{folder}/{path.relative_to(run.folder).as_posix()}"
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            files.pipe_file(target, path.read_bytes())


def _in_order(paths: Iterable[str]) -> list[str]:
    """Paths with the records last: where a record is, the run is whole."""
    return sorted(paths, key=lambda path: (path.endswith(f"/{RECORD}"), path))


def _local_records(run: StudyRun) -> list[bytes]:
    """The records of a run here: one, or that of each seed of a classifier."""
    return [path.read_bytes() for path in run.folder.glob(f"**/{RECORD}")]


def _records(files: Any, folder: str) -> list[bytes]:
    names = files.find(folder) if files.exists(folder) else []
    return [files.cat_file(path) for path in names if path.endswith(f"/{RECORD}")]


def _is_finished(records: list[bytes]) -> bool:
    """Whether there are records, and all say that their run is finished."""
    with suppress(ValueError):
        documents = [parse_json(record) for record in records]
        return bool(documents) and all(
            isinstance(one, dict) and one.get("finished") for one in documents
        )
    return False


@contextmanager
def _store(study: Study) -> Iterator[tuple[Any, str]]:
    """The file system of the address, and the folder in it; whatever fails there raises."""
    from fsspec.core import url_to_fs

    try:
        files, root = url_to_fs(study.address)
        yield files, root.rstrip("/")
    except ConsilienceError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise ConsilienceError(
            f"{type(error).__name__}: {error}".splitlines()[0],
            where=f"{study.file}: folder = '{study.address}'",
            expected="an address of fsspec that this machine may read and write",
            todo="Install its package (s3:// s3fs, gs:// gcsfs, abfs:// adlfs) and set its "
            "credentials, then rerun the same command.",
        ) from error


NOT_COMPARED = (
    "out", "device", "data_dir", "base_url", "api_key_env", "max_requests", "max_tokens",
    "price", "concurrency", "timeout",
)  # fmt: skip
"""Options that say where and how fast a run is asked, not what."""

PLANNED = ("requests", "cost", "tokens read", "tokens written")
"""What a model behind a URL would be sent at most: columns of a plan."""

Progress = Literal["complete", "part", "waiting", "failed"]
"""complete: finished. part: some groups have answers. waiting: none has. failed: with a message."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, as ``failures/NAME.json`` keeps it until the run is asked again."""

    run: str
    message: str
    traceback: str = ""
    """Where a bug is; empty for wrong input and for a process that was killed."""

    @staticmethod
    def file_of(study: Study, run: StudyRun) -> Path:
        return study.folder / FAILURES / f"{run.name.replace('/', '__')}.json"

    @classmethod
    def message_of(cls, study: Study, run: StudyRun) -> str:
        try:
            document = parse_json(cls.file_of(study, run).read_bytes())
        except (OSError, ValueError):
            return ""
        message = document.get("message") if isinstance(document, dict) else None
        return message if isinstance(message, str) else ""


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run of a study is."""

    run: StudyRun
    state: Progress
    done: int = 0
    groups: int | None = None
    """All groups; None where the record does not tell."""
    answers: int = 0
    started: str | None = None
    finished: str | None = None
    message: str = ""
    queries: int | None = None
    """All queries; None where they were not counted."""
    plan: ProbePlan | None = None
    """What a model behind a URL would be sent; None where that was not planned."""

    def to_dict(self) -> dict[str, Any]:
        run = {
            "run": self.run.name, "model": self.run.model, "suite": self.run.suite,
            "factors": dict(self.run.factors), "seed": self.run.seed,
            "folder": str(self.run.folder),
        }  # fmt: skip
        names = [field.name for field in dataclasses.fields(self) if field.name != "run"]
        fields = {name: getattr(self, name) for name in names}
        return run | fields | {"plan": self.plan and self.plan.to_dict()}


@dataclass(frozen=True, slots=True, repr=False)
class StudyState(Shown):
    """How far the runs of a study are."""

    study: Study
    runs: Sequence[RunState]
    was_run: bool = False
    """Whether the study was just asked, so that a failure is one of the command."""

    @property
    def unfinished(self) -> list[RunState]:
        return [state for state in self.runs if state.state != "complete"]

    @property
    def failed(self) -> list[RunState]:
        return [state for state in self.runs if state.state == "failed"]

    def table(self) -> Table:
        """One row for each run; failures are below the rows."""
        columns = [Column("run"), Column("state"), Column("groups")]
        rows: list[list[Value]] = [
            [state.run.name, state.state, _groups(state)] for state in self.runs
        ]
        if any(state.queries is not None for state in self.runs):
            has_requests = any(state.plan for state in self.runs)
            names = ["queries", *(PLANNED if has_requests else [])]
            columns += [Column(name, "count") for name in names]
            for row, state in zip(rows, self.runs, strict=True):
                row += [state.queries, *(_planned(state.plan) if has_requests else [])]
        else:
            columns += [Column("answers", "count"), Column("started"), Column("finished")]
            for row, state in zip(rows, self.runs, strict=True):
                times = [
                    (time or "")[:16].replace("T", " ") for time in (state.started, state.finished)
                ]
                row += [state.answers, *times]
        title = f"{self.study.name}: {self.in_words()}, in {self.study.folder}"
        return Table(title, columns, rows, self.failures())

    def requests_in_words(self) -> dict[str, str]:
        """Requests, tokens and cost of all models behind a URL; empty where they are not planned.

        The cost is that of the models with a price.
        """
        from consilience.kinds.probing import together

        plans = [state.plan for state in self.runs if state.plan]
        if not plans:
            return {}
        rows = together(plans).requests_in_words("the servers")
        unpriced = [one.run.model for one in self.runs if one.plan and one.plan.cost is None]
        if unpriced and "Cost" in rows:
            rows["Cost"] += f", without {listed(list(dict.fromkeys(unpriced)))}: no price"
        return rows

    def failures(self) -> list[str]:
        by_message: dict[str, list[str]] = {}
        for state in self.failed:
            by_message.setdefault(state.message, []).append(state.run.name)
        return [f"Failed: {listed(names)}: {text}" for text, names in by_message.items()]

    def in_words(self) -> str:
        """How many runs are in which state, and the number of answers."""
        states = [state.state for state in self.runs]
        counts = {name: states.count(name) for name in ("complete", "part", "waiting", "failed")}
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        answers = counted(sum(state.answers for state in self.runs), "answer")
        return f"{counted(len(states), 'run')}: {', '.join(parts)}; {answers}"

    def printed(self, output: Output) -> Iterator[Table | str]:
        yield self.table()
        for name, text in self.requests_in_words().items():
            yield f"{name:9} {text}"

    def document(self) -> dict[str, Any]:
        runs = [one.to_dict() for one in self.runs]
        return {"run": self.study.record(), "runs": runs, "warnings": self.failures()}

    def remarks(self, output: Output) -> list[str]:
        is_plan = any(one.queries for one in self.runs)
        again = "rerun `consilience study run` to try what failed again"
        return [again] if self.failed and not is_plan else []

    def exit_status(self) -> int:
        return 2 if self.was_run and self.failed else 0

    def __repr__(self) -> str:
        return f"StudyState({self.study.name!r}: {self.in_words()})"


def study_status(options: StudyStatusOptions) -> StudyState:
    """How far the runs of a study are; those at its address are fetched."""
    study = read_study(options.file)
    fetch_runs(study)
    return state_of(study)


def state_of(study: Study) -> StudyState:
    """How far the runs of a study are."""
    return StudyState(study, [_state(study, run) for run in study.runs])


def _state(study: Study, run: StudyRun) -> RunState:
    try:
        parts = [(folder, record_of(folder)) for folder in _folders(run)]
    except ConsilienceError as error:
        return RunState(run, "failed", message=str(error))
    records = [record for _, record in parts if record]
    files = [file for folder, record in parts for file in _kept(folder, record)]
    sizes = [len(groups) for one in records if (groups := one["settings"].get("groups"))]
    groups = sum(sizes) if len(sizes) == len(parts) else None
    is_whole = groups is None or len(files) >= groups
    finished = [str(record.get("finished") or "") for record in records]
    is_complete = bool(files) and len(records) == len(parts) and all(finished) and is_whole
    if is_complete and (change := changed_option(run, records[0])):
        return RunState(run, "failed", message=str(change))
    message = "" if is_complete else Failure.message_of(study, run)
    state: Progress = "part" if files else "waiting"
    return RunState(
        run, "complete" if is_complete else "failed" if message else state, len(files), groups,
        _rows(files), min((record["started"] for record in records), default=None),
        max(finished) if is_complete else None, message,
    )  # fmt: skip


def refuse_changes(study: Study) -> None:
    """Raise where the study file has changed an option of a run that is finished."""
    for run in study.runs:
        change = None
        with suppress(ConsilienceError):  # a damaged record is the state of its run
            record = record_of(_folders(run)[0])
            change = changed_option(run, record) if record.get("finished") else None
        if change:
            raise change


def changed_option(run: StudyRun, record: Mapping[str, Any]) -> ConsilienceError | None:
    """The first option of a run that the study file has changed since it was asked; None without.

    ``record``: that of the run. Options of ``NOT_COMPARED`` do not count.
    """
    before, now = record.get("options", {}), options_record(run.options, {})
    for field in option_fields(ProbeOptions):
        values = [options.get(field.name, field.default) for options in (before, now)]
        if field.name not in NOT_COMPARED and values[0] != values[1]:
            first, second = (json.dumps(value, ensure_ascii=False) for value in values)
            return ConsilienceError(
                f"{field.name} was {first} when this run was asked, and is {second} in the "
                "study file",
                where=str(run.folder),
                todo="Restore it, or set another `folder` in the study file, or remove this folder "
                "to ask again.",
            )
    return None


def _folders(run: StudyRun) -> list[Path]:
    """The folder of the run, or that of each seed of a classifier that ``finetune`` trained."""
    if (run.folder / "run.json").exists():
        return [run.folder]
    seeds = seed_folders(Path(run.options.model))
    return [run.folder / seed.name for seed in seeds] or [run.folder]


def _kept(folder: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    known = record.get("answers", {})
    return (file for file in (folder / "answers").glob("*.parquet") if file.stem in known)


def _rows(files: Sequence[Path]) -> int:
    """The rows of Parquet files, from their footers; a damaged one has none."""
    try:
        counts = pl.collect_all(
            [pl.scan_parquet(file, glob=False).select(pl.len()) for file in files]
        )
    except POLARS_FAULTS:
        return 0
    return sum(int(count.item()) for count in counts)


def _groups(state: RunState) -> str:
    if state.groups is None:
        return str(state.done or "")
    return str(state.done) if state.done == state.groups else f"{state.done} of {state.groups}"


def _planned(plan: ProbePlan | None) -> list[Value]:
    if plan is None or plan.usage is None:
        return [""] * len(PLANNED)
    most, cost = plan.usage.most, "" if plan.cost is None else f"{plan.cost:.4g}"
    return [most.requests, cost, round(most.tokens_read), most.tokens_written]
