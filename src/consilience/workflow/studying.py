"""Ask the runs of a study: their groups are units of work for the workers of an engine.

Workers return what they wrote, and this process keeps it in the folders of the runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from consilience.engine import Backlog, UnitFailure, UnitOutcome, run_units
from consilience.engine.local_workers import LocalWorkers
from consilience.engine.units import Workers, described
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.run_folder import RunFolder
from consilience.text import counted
from consilience.watch import SILENT, Advance, Watch
from consilience.workflow.probe_options import refuse_options
from consilience.workflow.run_options import StudyRunOptions
from consilience.workflow.sharding import Shard
from consilience.workflow.study_file import LOGS, Study, StudyRun, read_study
from consilience.workflow.study_status import (
    Failure,
    RunState,
    StudyState,
    refuse_changes,
    state_of,
)
from consilience.workflow.study_store import fetch_runs, store_run
from consilience.workflow.study_units import (
    GroupOfSeed,
    PlannedRun,
    kind_of,
    parts_of,
    planned,
    threads_each,
)
from consilience.workflow.study_worker import StudyTask, Written, study_worker


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
    state, plans = _planned(_read(options), options, watch)
    states = {one.run.name: replace(one, queries=one.answers) for one in state.runs}
    for plan in plans:
        states[plan.run.name] = _with_plan(states[plan.run.name], plan)
    if options.shard is not None:
        parts = parts_of(plans, Shard.parse(options.shard))
        states = {
            plan.run.name: _with_plan(states[plan.run.name], plan, groups) for plan, groups in parts
        }
    served = [
        name
        for name, one in states.items()
        if one.run.options.connection and one.queries and one.state != "complete"
    ]
    if served:
        with watch.steps("planning requests", len(served), "runs") as advance:
            for name in served:
                states[name] = _with_requests(states[name])
                advance(1)
    return StudyState(state.study, list(states.values()))


def _with_requests(state: RunState) -> RunState:
    """The state of a run with what its server would be sent; an error of the server is kept."""
    from consilience.workflow.probing import plan_probe

    try:
        return replace(state, plan=plan_probe(state.run.options))
    except (ConsilienceError, OSError) as error:
        return replace(state, state="failed", message=described(error).message)


def _with_plan(state: RunState, plan: PlannedRun, part: set[GroupOfSeed] | None = None) -> RunState:
    """The state of a run with its groups and queries, or those of a part."""
    if plan.fault:
        return replace(state, state="failed", queries=None, message=plan.fault)
    groups = plan.groups if part is None else part
    return replace(state, groups=len(groups), queries=sum(plan.groups[one] for one in groups))


def _read(options: StudyRunOptions) -> Study:
    """The study; options that do not fit it raise."""
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
            refuse_options(run.options, kind_of(run.options), f"the suite '{run.options.suite}'")
        except ConsilienceError as error:
            raise ConsilienceError(
                error.found, expected=error.expected, where=f"{study.file}: {run.name}",
                todo=error.todo,
            ) from error  # fmt: skip
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
        is_local = options.engine == "local"
        self._threads = threads_each(options.workers or 1) if is_local else 0
        self._plans: dict[str, PlannedRun] = {}
        self._folders: dict[tuple[str, str], RunFolder] = {}
        self._left: Counter[str] = Counter()
        self._ended: set[str] = set()

    def _workers(self) -> Workers:
        """Those of the engine; a cluster is joined only for models that do not have a server."""
        options, logs = self._options, self._study.folder / LOGS
        if options.shard is not None:
            logs /= f"shard-{options.shard.replace('/', '-of-')}"
        if options.engine == "local" or all(plan.is_served for plan in self._plans.values()):
            return LocalWorkers(options.workers or 1, logs)
        from consilience.engine.mixed_workers import MixedWorkers
        from consilience.engine.ray_workers import RayWorkers

        return MixedWorkers(
            RayWorkers(options.ray_address, options.workers, self._watch.inform), logs
        )

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
        workers = self._workers()
        title = f"asking {counted(len(parts), 'run')}"
        with self._watch.steps(title, self._backlog.total, "queries") as advance:
            self._advance = advance
            running = run_units(
                self._backlog, study_worker, workers, advance=advance,
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
        root = plan.run.folder
        if written is not None:
            answers: dict[str, dict[str, bytes]] = {seed: {} for seed in written.records}
            folders = {
                seed: self._folder(plan, seed, record["settings"])
                for seed, record in written.records.items()
            }
            for name, content in written.files.items():
                path = Path(name)
                if path.parent.name == "answers":
                    answers[path.parent.parent.as_posix()][path.stem] = content
                else:
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    write_whole(root / path, content)
            for seed, record in written.records.items():
                folders[seed].adopt(record, answers[seed])
        if task.groups:
            self._left[task.run] -= 1
            if not self._left[task.run]:
                self._count_if_complete(plan)
        else:
            self._ended.add(task.run)
            Failure.file_of(self._study, plan.run).unlink(missing_ok=True)
            self._watch.inform(f"{task.run}: complete")
            try:
                store_run(self._study, plan.run)
            except ConsilienceError as error:
                self._watch.inform(f"{task.run} is not yet copied: {error}")

    def _folder(self, plan: PlannedRun, seed: str, settings: dict[str, object]) -> RunFolder:
        """The folder of a run, or of one of its seeds; another run there raises."""
        name = (plan.run.name, seed)
        if name not in self._folders:
            self._folders[name] = RunFolder(plan.run.folder / seed, settings)
        return self._folders[name]

    def _count_if_complete(self, plan: PlannedRun) -> None:
        """Have the run counted if all its groups have answers, also those of other shards."""
        if plan.complete() == plan.groups.keys():
            self._backlog.add(plan.counting(self._threads), is_next=True)


def _fail(study: Study, run: StudyRun, failure: UnitFailure, watch: Watch) -> None:
    """Keep why a run failed, until it is asked again."""
    record = asdict(Failure(run.name, failure.message, failure.traceback))
    file = Failure.file_of(study, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(record, indent=2) + "\n").encode())
    watch.inform(f"{run.name} failed: {failure.message}")
