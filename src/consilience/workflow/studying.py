"""Ask the runs of a study: each model in a process of its own, so that no failure ends the others.

``asked_in_processes`` is the one place where runs are handed to workers.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from consilience import suites
from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.suites.question_suites import is_questions
from consilience.suites.tasks import is_task, load_task
from consilience.text import counted
from consilience.watch import SILENT, Watch
from consilience.workflow.probe_options import ProbeOptions, refuse_options
from consilience.workflow.study_file import LOGS, Study, StudyRun, by_model, read_study
from consilience.workflow.study_options import StudyRunOptions
from consilience.workflow.study_status import Failure, StudyState, state_of
from consilience.workflow.study_worker import ask_runs

Work = Callable[[Sequence[StudyRun], Path, Connection], None]
"""What a worker does with the runs of one model, the file of its output and its connection."""


def run_study(options: StudyRunOptions, watch: Watch = SILENT, work: Work = ask_runs) -> StudyState:
    """Ask all runs that are not complete; how far the study is then.

    Failures are kept in the folder of the study, and tried again by the next call.
    """
    state = check_study(options)
    study, left = state.study, [one.run for one in state.unfinished]
    for at, runs in enumerate(models := by_model(left), start=1):
        name = runs[0].model + ("" if runs[0].seed is None else f", seed {runs[0].seed}")
        watch.inform(f"model {at} of {len(models)}: {name}, {counted(len(runs), 'run')}")
        for run, failure in asked_in_processes(runs, study.folder, watch, work):
            _keep(study, run, failure)
            if failure:
                watch.inform(f"{run.name} failed: {failure.message}")
    return state_of(study)


def check_study(options: StudyRunOptions) -> StudyState:
    """How far a study is before ``run_study``; nothing is written, and no model is loaded.

    A suite that does not exist raises, and so does an option that its kind does not have.
    """
    study = read_study(options.file)
    for run in study.runs:
        try:
            kind = _kind_of(run.options)
            refuse_options(run.options, kind, f"the suite '{run.options.suite}'")
        except ConsilienceError as error:
            raise ConsilienceError(
                error.found, expected=error.expected, where=f"{study.file}: {run.name}",
                todo=error.todo,
            ) from error  # fmt: skip
    return state_of(study)


def _kind_of(options: ProbeOptions) -> str:
    """Whether facts, sentence pairs or questions are asked; an unknown suite raises."""
    if options.as_questions is not None or is_questions(options.suite):
        return "questions"
    if is_task(options.suite):
        load_task(options.suite)
        return "pairs"
    suites.suite_folder(options.suite, suites.data_dir(options.data_dir))
    return "facts"


def asked_in_processes(
    runs: Sequence[StudyRun], folder: Path, watch: Watch, work: Work
) -> Iterator[tuple[StudyRun, Failure | None]]:
    """Ask the runs of one model in a process; a run with its failure, or None, as it ends.

    When the process dies, the run that it was asking has failed, and another process asks the rest.
    """
    left = list(runs)
    log = folder / LOGS / f"{runs[0].name.replace('/', '__')}.txt"
    while left:
        size = len(left)
        with worker(work, left, log) as (process, connection):
            for message in _messages(connection, watch):
                run = left.pop(0)
                failure = Failure(run.name, *message) if message[0] else None
                yield run, failure
            process.join()
            if left and (process.exitcode or len(left) == size):
                run = left.pop(0)
                yield run, Failure(run.name, _why_ended(process.exitcode, log))


@contextmanager
def worker(
    work: Work, runs: Sequence[StudyRun], log: Path
) -> Iterator[tuple[BaseProcess, Connection]]:
    """A new process and the end of a pipe that its messages come from; it ends with the context."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(runs, log, sender), daemon=True)
    with _without_interrupts():
        process.start()
    sender.close()  # so that the pipe ends when the process does
    try:
        yield process, receiver
    finally:
        process.terminate()
        process.join()
        receiver.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process that Ctrl-C does not reach: this one ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _messages(connection: Connection, watch: Watch) -> Iterator[tuple[str, str]]:
    """The message and the traceback of each run that ends, empty for success; progress is shown."""
    advance: Callable[[int], None] = print
    name = ""
    with ExitStack() as bars, suppress(EOFError):
        while True:
            kind, *values = connection.recv()
            match kind:
                case "begin":
                    (name,) = values
                case "steps":
                    text, total, unit = values
                    bar = watch.steps(f"{name}: {text}", total, unit)
                    advance = bars.enter_context(bar)
                case "advance":
                    advance(values[0])
                case "stop":
                    bars.close()
                case "end":
                    bars.close()
                    yield values[0], values[1]
                case "say":
                    watch.say(f"{name}: {values[0]}")
                case "inform":
                    watch.inform(values[0])


def _why_ended(status: int | None, log: Path) -> str:
    """Why a worker ended without an answer."""
    output = f"Its output is in {log}." if log.is_file() and log.stat().st_size else ""
    if status is not None and status < 0:
        memory = ", perhaps out of memory" if -status == 9 else ""
        reason = f"killed by signal {-status} ({_signal_name(-status)}){memory}"
    else:
        reason = f"its process ended with status {status}"
    return str(ConsilienceError(reason, todo=output))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _keep(study: Study, run: StudyRun, failure: Failure | None) -> None:
    """Keep the failure of a run, or remove an earlier one."""
    file = Failure.file_of(study, run)
    if failure is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(asdict(failure), indent=2) + "\n").encode())
