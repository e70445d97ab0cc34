"""How far the runs of a study are, and asking those that are not complete.

A run is asked as ``probe`` asks it, in a process of its own, which takes nothing but its run when
it dies. On a Ray cluster a run is a task, in a temporary folder of its node, and comes back whole.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import traceback
from collections import Counter
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

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
from consilience.files.read import parse_json
from consilience.files.write import write_whole
from consilience.options.commands import ProbeOptions
from consilience.report.export import Output
from consilience.report.export import record_of as record_of_settings
from consilience.report.table import Column, Table
from consilience.runs.folder import complete_groups, record_of
from consilience.runs.run import NOT_COMPARED, options_record
from consilience.study import FAILURES, LOG, Study, StudyRun, read_study

RUNS: Mapping[str, Any] = {
    **dict.fromkeys(("run", "model", "suite", "cell"), pl.String), "seed": pl.Int64,
    "folder": pl.String, "state": pl.String, "done": pl.Int64, "groups": pl.Int64,
    **dict.fromkeys(("started", "finished", "message"), pl.String),
}  # fmt: skip
"""One row a run; of a dry run with ``queries``. ``done``: how many of its groups have answers.

``state``: ``complete``; ``waiting``, not yet asked in full with the options of the file;
``failed``, with a message.
"""

COLUMNS = {
    "run": Column("run"), "state": Column("state"), "done": Column("groups done", "count"),
    "groups": Column("groups", "count"), "queries": Column("queries", "count"),
    "started": Column("started"), "finished": Column("finished"),
}  # fmt: skip


def state_of(study: Study) -> pl.DataFrame:
    """How far the runs of a study are (``RUNS``)."""
    file, rows = study.folder / FAILURES, list[dict[str, Any]]()
    failures = parse_json(file.read_bytes()) if file.is_file() else {}
    for run in study.runs:
        row = {name: getattr(run, name) for name in ("model", "suite", "cell", "seed")}
        row |= {"run": run.name, "folder": str(run.folder), "done": 0, **_state(run)}
        if row["state"] != "complete" and run.name in failures:
            row |= {"state": "failed", "message": failures[run.name]}
        rows.append(row)
    return pl.DataFrame(rows, schema=RUNS).with_columns(pl.col(pl.String).fill_null(""))


def _state(run: StudyRun) -> dict[str, Any]:
    """How far a run is, by its record."""
    try:
        record, done = record_of(run.folder), len(complete_groups(run.folder))
    except ConsilienceError as error:
        return {"state": "failed", "message": str(error)}
    if not record:
        return {"state": "waiting"}
    groups, finished = len(record["settings"].get("groups", ())), record.get("finished")
    known = {"done": done, "groups": groups, "started": record["started"][:16], "state": "waiting"}
    before, now = (
        {name: value for name, value in options.items() if name not in NOT_COMPARED}
        for options in (record.get("options", {}), options_record(run.options, {}))
    )
    if not finished or done < groups or before != now:
        return known
    return {**known, "finished": finished[:16], "state": "complete"}


def study_state(study: Study, runs: pl.DataFrame, *, was_run: bool = False) -> Output:
    """How far the runs of a study are: a row each, and below them what failed.

    ``runs``: ``RUNS``. ``was_run``: whether they were just asked, so that all should be complete.
    """
    states = Counter(runs["state"])
    title = f"{study.file.stem}: {counted(runs.height, 'run')}: " + ", ".join(
        f"{count} {state}" for state, count in states.items()
    )
    failed = runs.filter(pl.col("message") != "").select("run", "message").iter_rows()
    notes = [f"{name} failed: {message}" for name, message in failed]
    columns = {name: column for name, column in COLUMNS.items() if name in runs.columns}
    rows = runs.select(*columns).rows()
    table = Table(f"{title}, in {study.folder}", [*columns.values()], rows, notes)
    record = record_of_settings(study=str(study.file), folder=str(study.folder))
    status = 3 if was_run and states.keys() != {"complete"} else 0
    return Output({"runs": runs}, [table], facts={"run": record}, status=status)


def plan_study(file: Path, progress: Progress = SILENT) -> Output:
    """How many queries each run has; no model is loaded, and nothing is written."""
    from consilience.plans import plan_of

    study, rows = read_study(file), list[dict[str, Any]]()
    for run, row in zip(study.runs, state_of(study).to_dicts(), strict=True):
        try:
            sizes = plan_of(run.options, progress=progress).sizes
            rows.append({**row, "groups": len(sizes), "queries": sum(sizes.values())})
        except ConsilienceError as error:
            rows.append({**row, "state": "failed", "message": str(error)})
    return study_state(study, pl.DataFrame(rows, schema={**RUNS, "queries": pl.Int64}))


def run_study(
    file: Path,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Progress = SILENT,
) -> Output:
    """Ask all runs that are not complete; how far the study is then.

    ``workers``: runs at once, by default 1, or all that a cluster has room for. Models behind a URL
    are always asked from this machine.
    """
    from consilience.plans import refuse_other_options

    if ray_address is not None and engine != "ray":
        raise ConsilienceError("--ray-address without --engine ray", todo="Add --engine ray.")
    study = read_study(file)
    for run in study.runs:
        refuse_other_options(run.options)
    left = state_of(study).filter(pl.col("state") != "complete").select("run", "message")
    runs = [run for run in study.runs if run.name in left["run"]]
    failures = dict(left.filter(pl.col("message") != "").iter_rows())
    study.folder.mkdir(parents=True, exist_ok=True)
    here = Processes(study.folder / LOG, cores() // workers if workers and workers > 1 else 0)
    cluster = Cluster(ray_address, workers) if engine == "ray" and runs else None

    def message_of(run: StudyRun) -> str:
        """Why a run is not complete after it was asked; empty where it is."""
        try:
            return (here if run.options.connection or cluster is None else cluster).ask(run)
        except (ConsilienceError, OSError) as error:
            return str(error)

    executor = futures.ThreadPoolExecutor(workers or (len(runs) if cluster else 1))
    try:
        waiting = {executor.submit(message_of, run): run for run in runs}
        with progress.steps(f"asking {counted(len(runs), 'run')}", len(runs), "runs") as advance:
            for done in futures.as_completed(waiting):
                run, message = waiting[done], done.result()
                failures.pop(run.name, None)
                failures |= {run.name: message} if message else {}
                text = json.dumps(failures, indent=2, ensure_ascii=False) + "\n"
                write_whole(study.folder / FAILURES, text.encode())
                progress.inform(f"{run.name}{f' failed: {message}' if message else ': complete'}")
                advance(1)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        here.close()
        if cluster:
            cluster.close()
    return study_state(study, state_of(study), was_run=True)


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


class Processes:
    """Processes of this machine, one for each run, started afresh and not forked."""

    def __init__(self, log: Path, threads: int) -> None:
        """``log``: where their output goes. ``threads``: of torch in each; 0 for its default."""
        there, self._here = get_context("spawn").Pipe(duplex=False)
        self._begin = there, log, threads

    def ask(self, run: StudyRun) -> str:
        """``ask`` in a process."""
        with futures.ProcessPoolExecutor(1, get_context("spawn"), _begin, self._begin) as pool:
            try:
                return pool.submit(ask, run.options).result()
            except BrokenProcessPool:
                log = self._begin[1]
                return f"its process died, perhaps out of memory. Its output is in {log}."

    def close(self) -> None:
        """End the processes."""
        self._here.close()


def _begin(parent: Connection, log: Path, threads: int) -> None:
    """Begin a process: its output goes to a file, and it ends with the one that started it."""

    def end_with_parent() -> None:
        with suppress(EOFError):
            parent.recv()
        os._exit(1)

    if threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    threading.Thread(target=end_with_parent, daemon=True).start()


class Cluster:
    """Tasks on a Ray cluster: one at an address, or one that is started on this machine."""

    def __init__(self, address: str | None, workers: int | None) -> None:
        with needs_extra("ray"):
            import ray
        self._ray, address = ray, address or os.environ.get("RAY_ADDRESS") or "local"
        how: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address == "local":
            how |= {"include_dashboard": False, "num_cpus": workers}
        try:
            host, _, port = address.rpartition(":")
            if "/" not in address and host and port.isdecimal():  # else Ray waits there for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, **how)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            found, where = f"no cluster: {reason_of(error)}", f"--ray-address {address}"
            expected = "auto on a node of a running cluster, or HOST:PORT of its head"
            todo = "A cluster with token authentication needs RAY_AUTH_MODE=token here, too."
            raise ConsilienceError(found, where=where, expected=expected, todo=todo) from error

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
