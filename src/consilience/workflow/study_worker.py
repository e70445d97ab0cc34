"""What a worker of a study does with a unit: it asks a group of a run, or counts a whole run.

It works in a folder of its own, and returns what it wrote there; the process that started the
study keeps that. So it may run on another machine, and does what ``probe`` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consilience.choices import Loading
from consilience.engine import Needs
from consilience.errors import ConsilienceError
from consilience.run_folder import record_of
from consilience.watch import Advance, Silent
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.run_settings import options_record
from consilience.workflow.setup import Loaded, Setup


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """What a worker is for. Its units have the same model, which it loads once, or one server."""

    model: str
    """The model, as ``probe`` takes it, or the URL of the server of its models."""
    loading: Loading
    """How the model is loaded."""
    needs: Needs
    """What the worker occupies."""
    home: str
    """The folder where the study was started; relative paths begin there."""
    threads: int
    """Threads of torch; 0 for as many as it has by default."""


@dataclass(frozen=True, slots=True)
class StudyTask:
    """What a worker gets."""

    run: str
    """The name of the run."""
    options: ProbeOptions
    """Its options."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """The group to ask, and its queries; empty to count the run."""
    seed: str = ""
    """The seed of a classifier that is asked; empty for a single model."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files of the run that is counted, by their paths in its folder."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a worker returns: what it wrote into the folder of the run."""

    records: Mapping[str, Mapping[str, Any]]
    """The records (``run.json``), by the path of their folder in that of the run."""
    files: Mapping[str, bytes]
    """All other files that are new or changed, by their paths in the folder of the run."""


def study_worker(key: WorkerKey) -> StudyWorker:
    """The work of a worker; the model is loaded when the first unit needs it."""
    if Path(key.home).is_dir():
        os.chdir(key.home)
    if not key.needs.is_network and not key.model.startswith("baseline:"):
        import torch

        from consilience.models.loading import keep_weights

        keep_weights(key.loading)
        if key.threads:
            torch.set_num_threads(key.threads)
    return StudyWorker()


class StudyWorker:
    """Asks groups of runs of one model, and counts these runs."""

    def __init__(self) -> None:
        self._run: tuple[str, str] | None = None
        self._loaded: tuple[Setup, Loaded] | None = None

    def __call__(self, task: StudyTask, shared: object, advance: Advance) -> Written | None:
        """Do a unit. A run of a model behind a URL is asked as a whole, in its own folder."""
        from consilience.workflow.probing import probe

        if task.options.connection is not None:
            probe(task.options, _Relay(advance))
            return None
        with TemporaryDirectory(prefix="consilience-") as parent:
            folder = Path(parent) / "run"
            try:
                return (
                    self._ask(task, folder, advance) if task.groups else self._count(task, folder)
                )
            except ConsilienceError as error:
                where = error.where.replace(str(folder), str(task.options.out))
                raise ConsilienceError(
                    error.found, expected=error.expected, where=where, todo=error.todo
                ) from error

    def _ask(self, task: StudyTask, folder: Path, advance: Advance) -> Written:
        """Ask one group; the model of the last run is kept until there is another run."""
        from consilience.workflow.probing import ask_in_folder, open_folder

        if self._loaded is None or self._run != (task.run, task.seed):
            setups = self._setups(task, folder)
            (setup,) = (setup for setup in setups if setup.seed == task.seed)
            self._loaded, self._run = (setup, setup.load()), (task.run, task.seed)
        setup, loaded = self._loaded
        opened = open_folder(folder / task.seed, loaded, options_record(task.options, {}))
        ask_in_folder(setup, loaded, opened, task.groups, _Relay(advance))
        return _written(folder, {})

    def _count(self, task: StudyTask, folder: Path) -> Written:
        """Count a run whose groups are complete, and finish it."""
        from consilience.workflow.probing import probe_setups

        setups = self._setups(task, folder)
        for name, content in task.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        probe_setups(setups, options_record(task.options, {}))
        return _written(folder, task.files)

    def _setups(self, task: StudyTask, folder: Path) -> list[Setup]:
        """The setups of a run, in a folder of its own. The model of the last run is released."""
        from consilience.workflow.probing import setups_of

        self._run = self._loaded = None
        return setups_of(replace(task.options, out=folder))


def _written(folder: Path, before: Mapping[str, bytes]) -> Written:
    """The records in a folder, and the files that are not as before."""
    files, records = {}, {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "run.json":
            records[path.parent.relative_to(folder).as_posix()] = record_of(path.parent)
        elif path.is_file() and before.get(name) != (content := path.read_bytes()):
            files[name] = content
    return Written(records, files)


class _Relay(Silent):
    """Shows nothing but steps, which go to the process that started the study."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """Steps of queries."""
        is_asking = text.startswith("asking")
        return nullcontext(self._advance) if is_asking else super().steps(text, total, unit)
