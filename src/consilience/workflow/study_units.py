"""Units of work of a study: the groups of its runs, known before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from consilience import suites
from consilience.choices import DEFAULT_LOADING
from consilience.endpoints.address import base_url_of
from consilience.engine import Needs, Unit
from consilience.errors import ConsilienceError
from consilience.options import ENDPOINTS, MODEL, option_fields
from consilience.provenance import cores
from consilience.run_folder import record_of
from consilience.suites.question_suites import is_questions
from consilience.suites.tasks import is_task, load_task
from consilience.watch import SILENT, Watch
from consilience.workflow.probe_options import ProbeOptions
from consilience.workflow.sharding import Shard
from consilience.workflow.study_file import StudyRun
from consilience.workflow.study_worker import StudyTask, WorkerKey

GroupOfSeed = tuple[str, str]
"""A seed of a classifier (empty for a single model) and a group."""

OF_MODELS = tuple(
    field.name
    for field in option_fields(ProbeOptions)
    if field.option.panel in (MODEL, ENDPOINTS) and field.name != "trust_remote_code"
)
"""Options that do not decide which facts are asked."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a study and its groups."""

    run: StudyRun
    """The run."""
    groups: Mapping[GroupOfSeed, int]
    """The queries of each group; empty where the options of the run are wrong."""
    fault: str = ""
    """Why the run cannot be asked; empty where nothing is wrong."""

    @property
    def queries(self) -> int:
        """All queries of the run."""
        return sum(self.groups.values())

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
            yield self._unit(StudyTask(self.run.name, self.run.options), self.queries, threads)
            return
        complete = self.complete()
        for (seed, group), size in self.groups.items():
            if (seed, group) in part and (seed, group) not in complete:
                task = StudyTask(self.run.name, self.run.options, {group: size}, seed)
                yield self._unit(task, size, threads, f"{seed}/{group}".strip("/"))

    def counting(self, threads: int) -> Unit:
        """The unit that counts the run, whose groups are all complete."""
        files = {}
        for seed, group in self.groups:
            for name in ("run.json", f"answers/{group}.parquet"):
                path = self.run.folder / seed / name
                files[path.relative_to(self.run.folder).as_posix()] = path.read_bytes()
        task = StudyTask(self.run.name, self.run.options, files=files)
        return self._unit(task, 0, threads, "counting")

    def _unit(self, task: StudyTask, size: int, threads: int, name: str = "") -> Unit:
        key = self.key(threads)
        title = f"{self.run.name}: {name}" if name else self.run.name
        return Unit(title, key, task, size, key.needs)


def kind_of(options: ProbeOptions) -> str:
    """Whether facts, sentence pairs or questions are asked; an unknown suite raises."""
    if options.as_questions is not None or is_questions(options.suite):
        return "questions"
    if is_task(options.suite):
        load_task(options.suite)
        return "pairs"
    suites.suite_folder(options.suite, suites.data_dir(options.data_dir))
    return "facts"


def planned(run: StudyRun, watch: Watch = SILENT) -> PlannedRun:
    """A run with its groups; no model is loaded. Of wrong options it has the message."""
    try:
        plan = PlannedRun(run, _groups_of(run.options, watch))
        plan.complete()  # a damaged record raises
    except (ConsilienceError, OSError) as error:
        return PlannedRun(run, {}, str(error))
    return plan


def _groups_of(options: ProbeOptions, watch: Watch) -> Mapping[GroupOfSeed, int]:
    from consilience.workflow.probing import setups_of

    if kind_of(options) == "facts":
        options.check_connection()
        defaults = {field.name: field.default for field in option_fields(ProbeOptions)}
        return _facts(replace(options, out=None, **{name: defaults[name] for name in OF_MODELS}))
    setups = setups_of(options, watch)
    return {(one.seed, group): size for one in setups for group, size in one.groups.items()}


@cache
def _facts(options: ProbeOptions) -> Mapping[GroupOfSeed, int]:
    """The groups of facts, which are the same for every model and are read once."""
    from consilience.workflow.fact_setup import fact_setup

    return {("", group): size for group, size in fact_setup(options).groups.items()}


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


def threads_each(workers: int) -> int:
    """Threads of torch in each of several processes on this machine; 0 for its default."""
    return 0 if workers == 1 else max(1, cores() // workers)
