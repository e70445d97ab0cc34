"""Running a study: its units and workers."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consilience.core.errors import (
    DEFAULT_LOADING,
    SILENT,
    Advance,
    ConsilienceError,
    Loading,
    Watch,
)
from consilience.core.provenance import cores
from consilience.core.text import counted
from consilience.endpoints.client import base_url_of
from consilience.files.read import parse_json
from consilience.files.write import write_whole
from consilience.options import parameters
from consilience.options.probe import OF_SERVERS, OF_WEIGHTS, ProbeOptions
from consilience.options.runs import StudyRunOptions
from consilience.plans import Plan, Queries, kind_of, plan_of, refuse_other_options
from consilience.runs.folder import RunFolder
from consilience.runs.run import options_record
from consilience.study import file as studies
from consilience.study import workers as engine
from consilience.study.workers import Backlog, LocalWorkers, RayWorkers, Unit, UnitFailure


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """What a worker is for. Its units have the same model, which it loads once, or one server."""

    model: str
    loading: Loading
    is_network: bool  # Whether it waits on a server
    home: str  # The folder where the study was started; relative paths begin there
    threads: int  # Threads of torch; 0 for as many as it has by default


@dataclass(frozen=True, slots=True)
class StudyTask:
    """What a worker gets: a group to ask, or a run to do as ``probe`` does, in its own folder."""

    run: str
    options: ProbeOptions
    groups: Mapping[str, int] = field(default_factory=dict)  # None where it is counted
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Of a run that is counted on another machine, by their paths in its folder."""

    @property
    def is_whole(self) -> bool:
        """Whether it is a run: one of a server is one unit, and so is counting."""
        return not self.groups or self.options.connection is not None


Written = dict[str, bytes]  # Files of a group by their paths in the folder of the run


class StudyWorker:
    """Asks groups of runs of one model, which it loads at the first, and counts these runs."""

    def __init__(self, key: WorkerKey) -> None:
        if Path(key.home).is_dir():
            os.chdir(key.home)
        if key.threads and not key.is_network and not key.model.startswith("baseline:"):
            import torch

            torch.set_num_threads(key.threads)
        self._run, self._asked = "", list[tuple[Plan, Queries]]()

    def __call__(self, task: StudyTask, advance: Advance) -> Written | None:
        from consilience.probing.probe import probe

        if task.is_whole:
            self._run, self._asked = "", []
        if task.is_whole and not task.files:
            probe(task.options, _Relay(advance))
            return None
        with TemporaryDirectory(prefix="consilience-") as parent:
            folder = Path(parent) / "run"
            try:
                if not task.files:
                    return self._ask(task, folder, advance)
                _write(task.files, folder)
                probe(replace(task.options, out=folder), _Relay(advance), recorded=task.options)
                return _files(folder)
            except ConsilienceError as error:
                where = error.where.replace(str(folder), str(task.options.out))
                raise error.replaced(where=where) from error

    def _ask(self, task: StudyTask, folder: Path, advance: Advance) -> Written:
        """Ask one group; the model of the last run is kept until there is another run."""
        from consilience.probing.probe import ask_in_folder, loaded, open_folder

        if self._run != task.run:
            self._run, self._asked = "", []  # frees the memory first
            plan = plan_of(task.options)
            queries = plan.queries(loaded(plan, task.options, None, SILENT))
            self._run, self._asked = task.run, [(plan, queries)]
        ((plan, queries),) = self._asked
        options = replace(task.options, out=folder)
        opened = open_folder(plan, queries, options, options_record(task.options, {}))
        ask_in_folder(plan, queries, opened, _Relay(advance), [*task.groups])
        return _files(folder)


def _files(folder: Path) -> Written:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".part")
    }


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


class _Relay(Watch):
    """Shows nothing but steps, which go to the process that started the study."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        is_asking = text.startswith("asking")
        return nullcontext(self._advance) if is_asking else super().steps(text, total, unit)


def units_of(run: studies.StudyRun, threads: int = 0, watch: Watch = SILENT) -> list[Unit]:
    """The units of a run, complete or not; no model is loaded."""
    options, home, groups = run.options, str(Path.cwd()), _groups_of(run.options, watch)
    if (connection := options.connection) is not None:
        key = WorkerKey(base_url_of(connection), DEFAULT_LOADING, True, home, 0)
        whole = StudyTask(run.name, options, groups)
        return [Unit(run.name, key, whole, sum(groups.values()), is_network=True)]
    key = WorkerKey(options.model, options.loading, False, home, threads)
    return [
        Unit(f"{run.name}: {group}", key, StudyTask(run.name, options, {group: size}), size)
        for group, size in groups.items()
    ]  # fmt: skip


def answered(run: studies.StudyRun) -> set[str]:
    """The groups that have answers."""
    return {*studies.kept(run)[1]}


def _groups_of(options: ProbeOptions, watch: Watch) -> Mapping[str, int]:
    """The number of queries of each group; no model is loaded."""
    if kind_of(options.suite, options.as_questions) != "facts":
        return plan_of(options, watch=watch).sizes
    options.check_connection()
    usual: dict[str, Any] = {  # the options of models do not decide which facts are asked
        name: parameters(ProbeOptions)[name].default for name in ("model", *OF_WEIGHTS, *OF_SERVERS)
    }
    return _sizes_of_facts(replace(options, out=None, **usual))


@cache
def _sizes_of_facts(options: ProbeOptions) -> Mapping[str, int]:
    return plan_of(options).sizes


def run_study(options: StudyRunOptions, watch: Watch = SILENT) -> studies.StudyState:
    """Ask all runs that are not complete; how far the study is then."""
    planned = _planned(options, watch)
    study = planned.state.study
    left = {one.run.name: one.run for one in planned.state.unfinished}
    for name, text in planned.faults.items():
        if name in left:
            _fail(study, left[name], UnitFailure(text), watch)
    if planned.units:
        _Asking(options, planned, watch).ask()
    return replace(studies.state_of(study), was_run=True)


def plan_study(options: StudyRunOptions, watch: Watch = SILENT) -> studies.StudyState:
    """What ``run_study`` would ask; no model is loaded here, and nothing is written."""
    planned = _planned(options, watch)
    states = {one.run.name: replace(one, queries=one.answers) for one in planned.state.runs}
    for name, text in planned.faults.items():
        states[name] = replace(states[name], state="failed", queries=None, message=text)
    for name, units in planned.units.items():
        groups = sum(len(unit.payload.groups) for unit in units)
        queries = sum(unit.size for unit in units)
        states[name] = replace(states[name], groups=groups, queries=queries)
    return studies.StudyState(planned.state.study, list(states.values()))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How far a study is, the units of its unfinished runs, and why some have none."""

    state: studies.StudyState
    units: Mapping[str, Sequence[Unit]]  # By run
    faults: Mapping[str, str]


def _planned(options: StudyRunOptions, watch: Watch) -> _Plan:
    if options.ray_address is not None and options.engine != "ray":
        raise ConsilienceError("--ray-address without --engine ray", todo="Add --engine ray.")
    study = studies.read_study(options.file)
    for run in study.runs:
        try:
            refuse_other_options(run.options)
        except ConsilienceError as error:
            raise error.replaced(where=f"{study.file}: {run.name}") from error
    state, count = studies.state_of(study), options.workers or 1
    is_shared = options.engine == "local" and count > 1  # each has a share of the processors
    threads = max(1, cores() // count) if is_shared else 0
    units, faults = list[Unit](), dict[str, str]()
    for one in state.unfinished:
        try:
            answered(one.run)  # a damaged record raises
            units += units_of(one.run, threads, watch)
        except (ConsilienceError, OSError) as error:
            faults[one.run.name] = str(error)
    by_run = {name: [*of] for name, of in groupby(units, lambda unit: unit.payload.run)}
    return _Plan(state, by_run, faults)


class _Asking:
    """Gives units to the workers of an engine, and keeps what they return."""

    def __init__(self, options: StudyRunOptions, plan: _Plan, watch: Watch) -> None:
        self._study, self._options, self._watch = plan.state.study, options, watch
        self._plan = plan
        left = {one.run.name: one.run for one in plan.state.unfinished}
        self._runs = {name: left[name] for name in plan.units}
        self._backlog = Backlog()
        self._advance: Advance = lambda steps: None
        self._folders: dict[str, RunFolder] = {}
        self._left: Counter[str] = Counter()
        self._ended: set[str] = set()

    def ask(self) -> None:
        for name, run in self._runs.items():
            done = answered(run)
            studies.failure_file(self._study, run).unlink(missing_ok=True)  # it is asked again
            for unit in self._plan.units[name]:
                if unit.payload.is_whole or not unit.payload.groups.keys() <= done:
                    self._left[name] += 1
                    self._backlog.add(unit)
            if not self._left[name]:
                self._count(run)
        options, inform, logs = self._options, self._watch.inform, self._study.folder / studies.LOGS
        workers: LocalWorkers | RayWorkers = LocalWorkers(options.workers or 1, logs)
        network = None
        # a cluster is joined only for models that do not have a server
        if options.engine == "ray" and not all(
            run.options.connection for run in self._runs.values()
        ):
            workers, network = RayWorkers(options.ray_address, options.workers), workers
        title = f"asking {counted(len(self._runs), 'run')}"
        with self._watch.steps(title, self._backlog.total, "queries") as self._advance:
            show = self._advance
            running = engine.run_units(self._backlog, StudyWorker, workers, network, show, inform)
            with closing(running) as outcomes:
                for outcome in outcomes:
                    self._take(outcome)

    def _take(self, outcome: engine.UnitOutcome) -> None:
        task: StudyTask = outcome.unit.payload
        run, failure = self._runs[task.run], outcome.failure
        if failure is None:
            try:
                self._keep(run, task, outcome.value)
            except (ConsilienceError, OSError) as error:
                failure = engine.described(error)
        if failure is not None and task.run not in self._ended:
            self._ended.add(task.run)
            _fail(self._study, run, failure, self._watch)
            dropped = self._backlog.drop(lambda unit: unit.payload.run == task.run)
            self._advance(sum(unit.size for unit in dropped))

    def _keep(self, run: studies.StudyRun, task: StudyTask, written: Written | None) -> None:
        if written is not None and task.groups:
            record = parse_json(written.pop("run.json"))
            if task.run not in self._folders:  # another run there raises
                self._folders[task.run] = RunFolder(run.folder, record["settings"])
            groups = self._folders[task.run].groups
            names = [name for name in written if name.startswith("answers/")]
            answers = {groups[int(Path(name).stem)]: written.pop(name) for name in names}
            _write(written, run.folder)
            self._folders[task.run].adopt(record, answers)
            self._left[task.run] -= 1
            if not self._left[task.run]:
                self._count(run)
            return
        if written:
            RunFolder(run.folder, studies.kept(run)[0].get("settings", {}))  # a link there raises
        _write(written or {}, run.folder)
        if not studies.kept(run)[0].get("finished"):
            todo = "Run the same command again; a run resumes."
            raise ConsilienceError("the server did not reply to some queries", todo=todo)
        self._ended.add(task.run)
        studies.failure_file(self._study, run).unlink(missing_ok=True)
        self._watch.inform(f"{task.run}: complete")

    def _count(self, run: studies.StudyRun) -> None:
        """Have the run counted, all of whose groups have answers."""
        key = self._plan.units[run.name][0].key
        # The nodes of Ray may not have the folder, and this machine no such accelerator.
        files = _files(run.folder) if self._options.engine == "ray" else {}
        task = StudyTask(run.name, run.options, files=files)
        self._backlog.add(Unit(f"{run.name}: counting", key, task, 0, key.is_network), is_next=True)


def _fail(study: studies.Study, run: studies.StudyRun, failure: UnitFailure, watch: Watch) -> None:
    record = {"run": run.name, "message": failure.message, "traceback": failure.traceback}
    file = studies.failure_file(study, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(record, indent=2) + "\n").encode())
    watch.inform(f"{run.name} failed: {failure.message}")
