"""Finished runs of a study at an address of fsspec, such as a bucket of S3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from consilience.errors import ConsilienceError
from consilience.files import write_whole
from consilience.read import parse_json
from consilience.workflow.study_file import Study, StudyRun

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
    """The records of a run at an address; empty where it is not."""
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
