"""Running a study: its units, workers, shards."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from consilience.core.errors import DEFAULT_LOADING, ConsilienceError, Loading
from consilience.core.process import SILENT, Advance, Watch
from consilience.core.provenance import cores
from consilience.core.text import counted
from consilience.endpoints.address import base_url_of
from consilience.files.write import write_whole
from consilience.kinds import kind_of
from consilience.kinds.base import Inquiry
from consilience.kinds.probing import Shard
from consilience.options import option_fields
from consilience.options.probe import ProbeOptions, refuse_options
from consilience.options.runs import StudyRunOptions
from consilience.runs.folder import RunFolder, record_of
from consilience.runs.run import options_record
from consilience.study.engine import (
    Backlog,
    Needs,
    Unit,
    UnitFailure,
    UnitOutcome,
    Workers,
    described,
    run_units,
)
from consilience.study.file import LOGS, Study, StudyRun, read_study
from consilience.study.status import (
    Failure,
    RunState,
    StudyState,
    fetch_runs,
    refuse_changes,
    state_of,
    store_run,
)
from consilience.study.workers import LocalWorkers


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """What a worker is for. Its units have the same model, which it loads once, or one server."""

    model: str
    loading: Loading
    needs: Needs
    home: str
    """The folder where the study was started; relative paths begin there."""
    threads: int
    """Threads of torch; 0 for as many as it has by default."""


@dataclass(frozen=True, slots=True)
class StudyTask:
    """What a worker gets: a group to ask, or a run to do as ``probe`` does, in its own folder."""

    run: str
    options: ProbeOptions
    groups: Mapping[str, int] = field(default_factory=dict)
    """The group to ask, and its queries; empty for a run of a server, or one that is counted."""
    seed: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What a worker wrote that asked a group, where the folder of the run may not be."""

    record: Mapping[str, Any]
    files: Mapping[str, bytes]
    """All other files by their paths in the folder of the run, or in that of its seed."""


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
        self._inquiry: Inquiry | None = None

    def __call__(self, task: StudyTask, advance: Advance) -> Written | None:
        """Do a unit; of a group what was written."""
        from consilience.kinds.probing import probe

        if not task.groups:
            self._run = self._inquiry = None
            probe(task.options, _Relay(advance))
            return None
        with TemporaryDirectory(prefix="consilience-") as parent:
            folder = Path(parent) / "run"
            try:
                return self._ask(task, folder, advance)
            except ConsilienceError as error:
                where = error.where.replace(str(folder), str(task.options.out))
                raise error.replaced(where=where) from error

    def _ask(self, task: StudyTask, folder: Path, advance: Advance) -> Written:
        """Ask one group; the model of the last run is kept until there is another run."""
        from consilience.kinds import inquiries_of
        from consilience.kinds.probing import ask_in_folder, open_folder

        if self._inquiry is None or self._run != (task.run, task.seed):
            self._run = self._inquiry = None  # frees the memory first
            inquiries = inquiries_of(replace(task.options, out=folder))
            (inquiry,) = (one for one in inquiries if one.seed == task.seed)
            inquiry.load()
            self._inquiry, self._run = inquiry, (task.run, task.seed)
        folder /= task.seed
        opened = open_folder(folder, self._inquiry, options_record(task.options, {}))
        ask_in_folder(self._inquiry, opened, task.groups, _Relay(advance))
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "run.json"
        }
        return Written(record_of(folder), files)


class _Relay(Watch):
    """Shows nothing but steps, which go to the process that started the study."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        is_asking = text.startswith("asking")
        return nullcontext(self._advance) if is_asking else super().steps(text, total, unit)


GroupOfSeed = tuple[str, str]
"""A seed of a classifier (empty for a single model) and a group."""

OF_MODELS = tuple(
    field.name
    for field in option_fields(ProbeOptions)
    if field.option.panel in ("Model", "Models behind a URL") and field.name != "trust_remote_code"
)
"""Options that do not decide which facts are asked."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a study and its groups."""

    run: StudyRun
    groups: Mapping[GroupOfSeed, int]
    """The queries of each group; empty where the options of the run are wrong."""
    fault: str = ""
    """Why the run cannot be asked; empty where nothing is wrong."""

    @property
    def is_served(self) -> bool:
        """Whether the model is behind a URL; such a run is one unit."""
        return self.run.options.connection is not None

    def key(self, threads: int) -> WorkerKey:
        """What its workers are for: its model, or the URL of its server."""
        options, home = self.run.options, str(Path.cwd())
        if (connection := options.connection) is not None:
            needs = Needs(is_network=True)
            return WorkerKey(base_url_of(connection), DEFAULT_LOADING, needs, home, 0)
        threads = self.run.threads or threads
        return WorkerKey(options.model, options.loading, self.run.needs, home, threads)

    def complete(self) -> set[GroupOfSeed]:
        """The groups that the record has answers of; their files are there."""
        complete = set()
        for seed in dict.fromkeys(seed for seed, _ in self.groups):
            folder = self.run.folder / seed
            files = {path.stem for path in (folder / "answers").glob("*.parquet")}
            complete |= {(seed, name) for name in files & set(record_of(folder).get("answers", ()))}
        return complete & self.groups.keys()

    def units(self, part: set[GroupOfSeed], threads: int) -> Iterator[Unit]:
        """Units that ask the groups of a part that are not complete; of a served run the run."""
        if self.is_served:
            yield self.whole(threads, sum(self.groups.values()))
            return
        complete = self.complete()
        for (seed, group), size in self.groups.items():
            if (seed, group) in part and (seed, group) not in complete:
                task = StudyTask(self.run.name, self.run.options, {group: size}, seed)
                key, name = self.key(threads), f"{seed}/{group}".strip("/")
                yield Unit(f"{self.run.name}: {name}", key, task, size, key.needs)

    def whole(self, threads: int, size: int = 0, *, is_here: bool = False) -> Unit:
        """The unit that does what is left of the run, on this machine if ``is_here``."""
        key, task = self.key(threads), StudyTask(self.run.name, self.run.options)
        if is_here:
            key = WorkerKey("", DEFAULT_LOADING, Needs(is_network=True), key.home, 0)
        name = self.run.name if self.is_served else f"{self.run.name}: counting"
        return Unit(name, key, task, size, key.needs)


def planned(run: StudyRun, watch: Watch = SILENT) -> PlannedRun:
    """A run with its groups; no model is loaded. Of wrong options it has the message."""
    try:
        plan = PlannedRun(run, _groups_of(run.options, watch))
        plan.complete()  # a damaged record raises
    except (ConsilienceError, OSError) as error:
        return PlannedRun(run, {}, str(error))
    return plan


def _groups_of(options: ProbeOptions, watch: Watch) -> Mapping[GroupOfSeed, int]:
    from consilience.kinds import inquiries_of, kind_of

    if kind_of(options.suite, options.as_questions).is_same_for_models:
        options.check_connection()
        defaults = {field.name: field.default for field in option_fields(ProbeOptions)}
        return _groups_of_all(
            replace(options, out=None, **{name: defaults[name] for name in OF_MODELS})
        )
    inquiries = inquiries_of(options, watch)
    return {(one.seed, group): size for one in inquiries for group, size in one.groups.items()}


@cache
def _groups_of_all(options: ProbeOptions) -> Mapping[GroupOfSeed, int]:
    """The groups of a suite that are the same for every model, read once."""
    from consilience.kinds import inquiries_of

    return {("", group): size for group, size in inquiries_of(options)[0].groups.items()}


def parts_of(
    runs: Sequence[PlannedRun], shard: Shard | None
) -> list[tuple[PlannedRun, set[GroupOfSeed]]]:
    """The groups of each run that a shard asks; without a shard all. Runs without any are left out.

    ``runs``: all runs of the study, complete or not, so that the shards do not depend on what is
    complete. A served run belongs to one shard.
    """
    things = [
        (run, set(groups))
        for run in runs
        for groups in ([run.groups] if run.is_served else [[group] for group in run.groups])
    ]
    sizes = [sum(run.groups[group] for group in groups) for run, groups in things]
    part = range(len(things)) if shard is None else shard.part(sizes)
    chosen: dict[str, tuple[PlannedRun, set[GroupOfSeed]]] = {}
    for at in part:
        run, groups = things[at]
        chosen.setdefault(run.run.name, (run, set()))[1].update(groups)
    return list(chosen.values())


def run_study(options: StudyRunOptions, watch: Watch = SILENT) -> StudyState:
    """Ask all runs that are not complete, or the part of a shard; how far the study is then.

    Failures are kept in the folder of the study, and tried again by the next call.
    """
    study = _read(options)
    fetch_runs(study)
    state, plans = _planned(study, options, watch)
    left = {one.run.name for one in state.unfinished}
    if options.engine == "local" and any(
        plan.run.needs.gpus or plan.run.needs.resources for plan in plans
    ):
        watch.inform("num_gpus and resources are for --engine ray; processes here ignore them")
    for plan in plans:
        if plan.fault and plan.run.name in left:
            _fail(study, plan.run, UnitFailure(plan.fault), watch)
    shard = None if options.shard is None else Shard.parse(options.shard)
    parts = [part for part in parts_of(plans, shard) if part[0].run.name in left]
    if parts:
        _Asking(study, options, watch).ask(parts)
    for run in study.runs:
        store_run(study, run)  # what could not be copied when it was finished
    return replace(state_of(study), was_run=True)


def plan_study(options: StudyRunOptions, watch: Watch = SILENT) -> StudyState:
    """What ``run_study`` would ask; no model is loaded here, and nothing is written.

    With a shard, the runs of which it asks some groups, with the queries of these groups. Servers
    get the requests that test what they can do; all others are counted and not sent.
    """
    from consilience.kinds.probing import plan_probe

    state, plans = _planned(_read(options), options, watch)
    states = {one.run.name: replace(one, queries=one.answers) for one in state.runs}
    states |= {plan.run.name: _with_plan(states[plan.run.name], plan) for plan in plans}
    if options.shard is not None:
        states = {
            plan.run.name: _with_plan(states[plan.run.name], plan, groups)
            for plan, groups in parts_of(plans, Shard.parse(options.shard))
        }
    served = [
        name
        for name, one in states.items()
        if one.run.options.connection and one.queries and one.state != "complete"
    ]
    if served:
        with watch.steps("planning requests", len(served), "runs") as advance:
            for name in served:
                run = states[name].run
                try:
                    states[name] = replace(states[name], plan=plan_probe(run.options))
                except (ConsilienceError, OSError) as error:  # of the server
                    message = described(error).message
                    states[name] = replace(states[name], state="failed", message=message)
                advance(1)
    return StudyState(state.study, list(states.values()))


def _with_plan(state: RunState, plan: PlannedRun, part: set[GroupOfSeed] | None = None) -> RunState:
    if plan.fault:
        return replace(state, state="failed", queries=None, message=plan.fault)
    groups = plan.groups if part is None else part
    return replace(state, groups=len(groups), queries=sum(plan.groups[one] for one in groups))


def _read(options: StudyRunOptions) -> Study:
    if options.ray_address is not None and options.engine != "ray":
        raise ConsilienceError("--ray-address without --engine ray", todo="Add --engine ray.")
    study = read_study(options.file)
    if options.shard is not None and study.address:
        raise ConsilienceError(
            f"--shard with folder = '{study.address}'",
            expected="a folder that all parts share",
            where=str(study.file),
            todo="Use a shared folder, or one process with --engine ray.",
        )
    return study


def _planned(
    study: Study, options: StudyRunOptions, watch: Watch
) -> tuple[StudyState, list[PlannedRun]]:
    """How far the study is, and the groups of the runs that are not complete; with a shard of all.

    A suite that does not exist raises before anything is asked, and so does an option that its
    kind does not have, and one that was changed after its run was finished.
    """
    for run in study.runs:
        try:
            kind = kind_of(run.options.suite, run.options.as_questions)
            refuse_options(run.options, kind.kind, f"the suite '{run.options.suite}'")
            kind.refuse_unknown(run.options)
        except ConsilienceError as error:
            raise error.replaced(where=f"{study.file}: {run.name}") from error
    refuse_changes(study)
    state = state_of(study)
    some = [one.run for one in (state.runs if options.shard else state.unfinished)]
    return state, [planned(run, watch) for run in some]


class _Asking:
    """Gives units to the workers of an engine, and keeps what they return."""

    def __init__(self, study: Study, options: StudyRunOptions, watch: Watch) -> None:
        self._study, self._options, self._watch = study, options, watch
        self._backlog = Backlog()
        self._advance: Advance = lambda steps: None
        workers = options.workers or 1  # each with its share of the processors, on one machine
        is_alone = options.engine != "local" or workers == 1
        self._threads = 0 if is_alone else max(1, cores() // workers)
        self._plans: dict[str, PlannedRun] = {}
        self._folders: dict[tuple[str, str], RunFolder] = {}
        self._left: Counter[str] = Counter()
        self._ended: set[str] = set()

    def _workers(self) -> tuple[Workers, Workers | None]:
        """Workers of the engine, and those that wait on the network if they are elsewhere.

        A cluster is joined only for models that do not have a server.
        """
        options, logs = self._options, self._study.folder / LOGS
        if options.shard is not None:
            logs /= f"shard-{options.shard.replace('/', '-of-')}"
        if options.engine == "local" or all(plan.is_served for plan in self._plans.values()):
            return LocalWorkers(options.workers or 1, logs), None
        from consilience.study.workers import RayWorkers

        cluster = RayWorkers(options.ray_address, options.workers, self._watch.inform)
        return cluster, LocalWorkers(0, logs)

    def ask(self, parts: Sequence[tuple[PlannedRun, set[GroupOfSeed]]]) -> None:
        """Ask parts of runs; each run is counted when all its groups are complete."""
        for plan, part in parts:
            self._plans[plan.run.name] = plan
            units = list(plan.units(part, self._threads))
            for unit in units:
                self._backlog.add(unit)
                self._left[plan.run.name] += 1
            if not units:
                self._count_if_complete(plan)
        workers, network = self._workers()
        title = f"asking {counted(len(parts), 'run')}"
        with self._watch.steps(title, self._backlog.total, "queries") as self._advance:
            running = run_units(
                self._backlog, study_worker, workers, network=network, advance=self._advance,
                inform=self._watch.inform,
            )  # fmt: skip
            with closing(running) as outcomes:
                for outcome in outcomes:
                    self._take(outcome)

    def _take(self, outcome: UnitOutcome) -> None:
        """Keep what became of a unit."""
        task: StudyTask = outcome.unit.payload
        plan, failure = self._plans[task.run], outcome.failure
        if failure is None:
            try:
                self._keep(plan, task, outcome.value)
            except (ConsilienceError, OSError) as error:
                failure = described(error)
        if failure is not None and task.run not in self._ended:
            self._ended.add(task.run)
            _fail(self._study, plan.run, failure, self._watch)
            dropped = self._backlog.drop(lambda unit: unit.payload.run == task.run)
            self._advance(sum(unit.size for unit in dropped))

    def _keep(self, plan: PlannedRun, task: StudyTask, written: Written | None) -> None:
        """Put what a worker wrote into the folder of the run."""
        if written is not None:
            folder = plan.run.folder / task.seed
            if (task.run, task.seed) not in self._folders:  # another run there raises
                opened = RunFolder(folder, dict(written.record["settings"]))
                self._folders[task.run, task.seed] = opened
            answers = {}
            for name, content in written.files.items():
                path = folder / name
                if path.parent.name == "answers":
                    answers[path.stem] = content
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, content)
            self._folders[task.run, task.seed].adopt(written.record, answers)
            self._left[task.run] -= 1
            if not self._left[task.run]:
                self._count_if_complete(plan)
            return
        self._ended.add(task.run)
        Failure.file_of(self._study, plan.run).unlink(missing_ok=True)
        self._watch.inform(f"{task.run}: complete")
        try:
            store_run(self._study, plan.run)
        except ConsilienceError as error:
            self._watch.inform(f"{task.run} is not yet copied: {error}")

    def _count_if_complete(self, plan: PlannedRun) -> None:
        """Have the run counted if all its groups have answers, also those of other shards."""
        if plan.complete() == plan.groups.keys():
            is_here = self._options.engine == "ray"  # whose nodes may not have the folder
            self._backlog.add(plan.whole(self._threads, is_here=is_here), is_next=True)


def _fail(study: Study, run: StudyRun, failure: UnitFailure, watch: Watch) -> None:
    """Keep why a run failed, until it is asked again."""
    record = asdict(Failure(run.name, failure.message, failure.traceback))
    file = Failure.file_of(study, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(record, indent=2) + "\n").encode())
    watch.inform(f"{run.name} failed: {failure.message}")
