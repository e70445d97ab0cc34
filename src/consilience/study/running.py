"""How far the runs of a study are, and asking those that are not complete.

A run is asked as ``probe`` asks it, in a process of its own, which takes nothing but its run when
it dies. On a Ray cluster a run is a task, in a temporary folder of its node, and comes back whole.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import traceback
from collections import Counter
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from consilience.core.errors import (
    SILENT,
    ConsilienceError,
    Progress,
    needs_extra,
    reason_of,
    shortened,
)
from consilience.core.provenance import build, cores
from consilience.core.text import counted
from consilience.files.write import write_whole
from consilience.options.commands import ProbeOptions
from consilience.report.table import Column, Columns, Output, frame_table
from consilience.report.table import record_of as record_of_settings
from consilience.runs.folder import complete_groups, record_of
from consilience.runs.run import NOT_COMPARED, options_record
from consilience.study import LOG, Study, StudyRun, read_study

RUNS: Mapping[str, Any] = {
    **dict.fromkeys(("run", "model", "cell", "folder", "state", "message"), pl.String),
    **dict.fromkeys(("done", "groups"), pl.Int64),
}
"""One row a run. ``done``: how many of its groups have answers.

``state``: ``complete``; ``waiting``, not yet asked in full with the options of the file;
``failed``, with a message, where it was just asked.
"""

COLUMNS: Columns = {
    "run": Column("run"), "state": Column("state"), "done": Column("groups done", "count"),
    "groups": Column("groups", "count"),
}  # fmt: skip


def state_of(study: Study, failures: Mapping[str, str] | None = None) -> pl.DataFrame:
    """How far the runs of a study are (``RUNS``). ``failures``: why runs failed, by run."""
    rows = list[dict[str, Any]]()
    for run in study.runs:
        row = {"run": run.name, "model": run.model, "cell": run.cell, "folder": str(run.folder)}
        row |= {"message": "", **_state(run)}
        if message := (failures or {}).get(run.name):
            row |= {"state": "failed", "message": message}
        rows.append(row)
    return pl.DataFrame(rows, schema=RUNS)


def _state(run: StudyRun) -> dict[str, Any]:
    """How far a run is, by its record."""
    if not (record := record_of(run.folder)):
        return {"state": "waiting", "done": 0}
    groups, done = len(record["settings"].get("groups", ())), len(complete_groups(run.folder))
    before, now = (
        {name: value for name, value in options.items() if name not in NOT_COMPARED}
        for options in (record.get("options", {}), options_record(run.options, {}))
    )
    is_complete = record.get("finished") and done == groups and before == now
    return {"state": "complete" if is_complete else "waiting", "done": done, "groups": groups}


def study_state(study: Study, runs: pl.DataFrame) -> Output:
    """How far the runs of a study are (``RUNS``): a row each, and below them what failed."""
    states = Counter(runs["state"])
    title = f"{study.file.stem}: {counted(runs.height, 'run')}: " + ", ".join(
        f"{count} {state}" for state, count in states.items()
    )
    failed = runs.filter(state="failed").select("run", "message").iter_rows()
    notes = [f"{name} failed: {message}" for name, message in failed]
    table = frame_table(runs, f"{title}, in {study.folder}", COLUMNS, notes)
    record = record_of_settings(study=str(study.file), folder=str(study.folder))
    return Output({"runs": runs}, [table], facts={"run": record}, status=3 * bool(notes))


def run_study(
    file: Path,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Progress = SILENT,
) -> Output:
    """Ask all runs that are not complete; how far the study is then.

    ``workers``: runs at once, by default 1, or all that a cluster has room for. Models behind a URL
    are always asked from this machine.
    """
    from consilience.plans import refuse_other_options

    study = read_study(file)
    for run in study.runs:
        refuse_other_options(run.options)
    left = state_of(study).filter(pl.col("state") != "complete")["run"]
    runs, failures = [run for run in study.runs if run.name in left], dict[str, str]()
    study.folder.mkdir(parents=True, exist_ok=True)
    threads = cores() // workers if workers and workers > 1 else 0
    cluster = Cluster(ray_address) if ray_address and runs else None

    def message_of(run: StudyRun) -> str:
        """Why a run is not complete after it was asked; empty where it is."""
        try:
            if cluster and not run.options.connection:
                return cluster.ask(run)
            return ask_here(run, study.folder / LOG, threads)
        except (ConsilienceError, OSError) as error:
            return str(error)

    executor = futures.ThreadPoolExecutor(workers or (len(runs) if cluster else 1))
    try:
        waiting = {executor.submit(message_of, run): run for run in runs}
        with progress.steps(f"asking {counted(len(runs), 'run')}", len(runs), "runs") as advance:
            for done in futures.as_completed(waiting):
                run, message = waiting[done], done.result()
                failures[run.name] = message
                progress.inform(f"{run.name}{f' failed: {message}' if message else ': complete'}")
                advance(1)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        if cluster:
            cluster.close()
    return study_state(study, state_of(study, failures))


def ask(options: ProbeOptions, recorded: ProbeOptions | None = None) -> str:
    """Ask one run: why it is not complete, empty where it is.

    ``recorded``: the options that its record has, by default ``options``.
    """
    from consilience.probing import probe

    try:
        known = probe(options, recorded=recorded)
    except ConsilienceError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {reason_of(error)}."
    todo = "Run the same command again; a run resumes."
    is_complete = known.record["finished"] is not None
    return "" if is_complete else f"the server did not reply to some queries. {todo}"


def ask_here(run: StudyRun, log: Path, threads: int) -> str:
    """``ask`` in a process of this machine, which is started afresh and not forked.

    ``log``: where its output goes. ``threads``: of torch; 0 for its default.
    """
    with futures.ProcessPoolExecutor(1, get_context("spawn"), _begin, (log, threads)) as pool:
        try:
            return pool.submit(ask, run.options).result()
        except BrokenProcessPool:
            return f"its process died, perhaps out of memory. Its output is in {log}."


def _begin(log: Path, threads: int) -> None:
    """Begin a process: its output goes to a file, and it ends with the one that started it."""

    def end_with_parent() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    if threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    threading.Thread(target=end_with_parent, daemon=True).start()


class Cluster:
    """Tasks on a Ray cluster."""

    def __init__(self, address: str) -> None:
        with needs_extra("ray"):
            import ray
        self._ray = ray
        try:
            host, _, port = address.rpartition(":")
            if "/" not in address and host and port.isdecimal():  # else Ray waits there for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            found, where = f"no cluster: {reason_of(error)}", f"--ray-address {address}"
            expected = "auto on a node of a running cluster, or HOST:PORT of its head"
            raise ConsilienceError(found, where=where, expected=expected) from error

    def ask(self, run: StudyRun) -> str:
        """``ask`` on a node; the run comes back whole."""
        task = self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_ask_away)
        try:
            given = run.options, _files(run.folder), str(Path.cwd()), build()
            message, files = self._ray.get(task.remote(*given))
        except self._ray.exceptions.RayError as error:
            return f"a task of Ray: {shortened(' '.join(str(error).split()), 400)}"
        _write(files, run.folder)
        return str(message)

    def close(self) -> None:
        self._ray.shutdown()


Files = Mapping[str, bytes]  # Files of a run by their paths in its folder, the record last


def _ask_away(options: ProbeOptions, files: Files, home: str, version: str) -> tuple[str, Files]:
    """``ask`` in a temporary folder of another machine, which begins with the files of the run.

    ``home``: the folder where the study was started; relative paths begin there.
    """
    if build() != version:
        where = f"consilience {build()} on {socket.gethostname()}; expected {version}, as where"
        return f"{where} the command was started. Install the same version on all nodes.", {}
    if Path(home).is_dir():
        os.chdir(home)
    with TemporaryDirectory(prefix="consilience-") as parent:
        folder = Path(parent, "run")
        _write(files, folder)
        message = ask(replace(options, out=folder), options)
        return message.replace(str(folder), str(options.out)), _files(folder)


def _files(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".part")
    }


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content)
