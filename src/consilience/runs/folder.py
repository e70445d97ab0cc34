"""The folder of a run: its record, digests, answers; resuming."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from consilience.core.errors import OTHER_OUT, ConsilienceError, Kind
from consilience.core.provenance import git_revision, versions
from consilience.core.schemas import ANSWERS_SCHEMA, QUERIES_SCHEMA
from consilience.core.text import truncated
from consilience.endpoints import NO_REPLY, REPLIES, Journal, cost_record
from consilience.files import write
from consilience.files.read import POLARS_FAULTS, parse_json

if TYPE_CHECKING:
    from consilience.endpoints.client import Client


ALWAYS = {"settings": dict, "started": str, "versions": dict, "warnings": list, "answers": dict}
"""What the record of a run has, and of which type."""


FORMAT = 5  # Increased when runs of older versions can no longer be resumed
QUERIES = "queries.parquet"  # What was asked (``QUERIES_SCHEMA``); its metadata has the groups

LAST_NAMED = ("groups", "queries")
"""Settings that follow from others, which a message on another run names last."""


class OtherRunError(ConsilienceError):
    """A folder holds a run with other settings."""

    kind = "occupied"


def fingerprint(settings: Mapping[str, object]) -> str:
    """SHA-256 of everything that decides the answers of a run."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def as_recorded(settings: Mapping[str, object]) -> dict[str, Any]:
    """Settings as the record of a run has them: values of JSON."""
    recorded: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **settings}))
    return recorded


def default_folder(model: str, settings: Mapping[str, object], kind: str = "") -> Path:
    """A folder under ``runs``, named by suite, model and all other settings.

    ``kind``: also in the name, for what is no probe.
    """
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings['suite']}-{name}")
    return Path("runs") / f"{words}{kind}-{fingerprint(settings)[:8]}"


class RunFolder:
    """The folder of one run. ``settings`` is everything that decides its answers.

    Opening a folder that holds a run of something else raises and changes nothing.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, object]) -> None:
        self.path = path = write.path_of(path, "the folder of the run")
        self.settings = as_recorded(settings)
        self.groups: Sequence[str] = self.settings.get("groups") or ()
        self.fingerprint = fingerprint(self.settings)
        self._client: Client | None = None
        self._journal: Journal | None = None
        self._cost_before: Mapping[str, Any] = {}
        self._has_failed = False  # whether the server did not reply to some queries
        self.record: dict[str, Any] = {
            "settings": self.settings, "started": _now(), "finished": None,
            "versions": versions(), "git": git_revision(), "warnings": [], "answers": {},
        }  # fmt: skip
        try:
            if not path.exists():
                path.mkdir(parents=True, exist_ok=True)
            with write.locked(path):
                existing = self._existing()
                if existing is not None:  # keep what was recorded, but for the end of the run
                    ended = ("settings", "finished", "stopped")
                    self.record |= {k: v for k, v in existing.items() if k not in ended}
                self._write_record()
            (path / "answers").mkdir(exist_ok=True)
        except OSError as error:
            raise write.cannot_write(path, error) from error

    def _existing(self) -> dict[str, Any] | None:
        """The record of a run that is to be resumed; other answers, and other content, raise."""
        if (self.path / "run.json").exists():
            record = _read_record(self.path / "run.json", f"{OTHER_OUT}.", "occupied")
            if record["answers"] or "stopped" not in record or (self.path / REPLIES).exists():
                refuse_other_run(record["settings"], self.settings, self.path)
            elif record["settings"] != self.settings:
                return None
            return record
        files = list(self.path.iterdir()) if self.path.is_dir() else [self.path]
        files = [file for file in files if not file.name.endswith(".part")]
        if files:
            found, todo = "not empty, and not the folder of a run", f"{OTHER_OUT}."
            raise ConsilienceError(found, where=str(self.path), todo=todo, kind="occupied")
        return None

    def note(self, notes: Iterable[str]) -> None:
        """Keep what a reader of the answers should know, each thing once."""
        new = [note for note in notes if note not in self.record["warnings"]]
        if new:
            with self._changing() as record:
                self._add_notes(record, new)

    def describe(self, name: str, value: object) -> None:
        """Keep something that a reader of the answers needs, under a name of its own."""
        with self._changing() as record:
            record[name] = value

    def pay_for(self, model: object) -> None:
        """Keep the replies of a model behind a URL until the run is complete, and their cost."""
        client: Client | None = getattr(model, "client", None)
        if proof := getattr(model, "proof", None):
            self.describe("scoring", asdict(proof))
        if client is not None:
            self._client = client
            self._journal = client.journal = Journal(self.path / REPLIES)
            self._cost_before = self.record.get("cost", {})
            with self._changing() as record:
                self._count_cost(record)

    def stop(self, *, is_whole: bool = False) -> None:
        """Record what was paid, and let another process ask here; a whole run needs no replies."""
        with self._changing() as record:
            self._count_cost(record)
            record["stopped"] = _now()
        if self._client is not None and self._journal is not None:
            self._client.journal = None
            self._journal.close(is_whole=is_whole)
            self._journal = None

    def begin(self, section: str) -> None:
        """Begin a group or another part of a run; equal requests of two parts are both sent."""
        if self._journal is not None:
            self._journal.begin(section)

    def answers(self, group: str, size: int) -> pl.DataFrame | None:
        """The answers of a group, if they are there, whole, and as this run wrote them."""
        self.begin(f"group {group}")
        path = self._answers_path(group)
        if not path.is_file():
            return None
        with write.locked(self.path):
            self._refresh()
            is_changed = digest_of(path) != self.record["answers"].get(group)
        if is_changed:
            self.note([f"{group}: the answers had been changed, so the group was asked again"])
            return None
        try:
            mark = pl.read_parquet_metadata(path).get("consilience")
            table = pl.read_parquet(path, glob=False)
        except POLARS_FAULTS:
            return None
        fits = all(table.schema.get(name) == dtype for name, dtype in ANSWERS_SCHEMA.items())
        is_whole = table.height == size and fits and mark == self.fingerprint
        return table if is_whole and not _has_failed(table) else None

    def write_answers(self, group: str, answers: pl.DataFrame) -> None:
        """Keep the answers of a group: the whole file or nothing.

        Its digest is recorded first. A process that is killed in between leaves a digest without
        its file, and the group is asked again; never a file that nothing vouches for.
        """
        self._has_failed |= _has_failed(answers)
        path, buffer = self._answers_path(group), io.BytesIO()
        answers.write_parquet(buffer, metadata={"consilience": self.fingerprint})
        content = buffer.getvalue()
        with write.locked(self.path):
            self._refresh()
            self._count_cost(self.record)
            self.record["answers"][group] = hashlib.sha256(content).hexdigest()
            self._write_record()
            write.write_whole(path, content)

    def discard_answers(self) -> None:
        with self._changing() as record:
            record["answers"] = {}
        self.stop(is_whole=True)
        for path in (self.path / "answers").glob("*.parquet"):
            path.unlink()

    def write_queries(self, queries: pl.DataFrame, groups: Sequence[Mapping[str, Any]]) -> None:
        """Keep what is asked (``QUERIES_SCHEMA``), and what is known of each group.

        Texts may be categories, which take less memory.
        """
        buffer = io.BytesIO()
        texts = [pl.col(of).cast(QUERIES_SCHEMA.get(of, pl.String)) for of in queries.columns]
        metadata = {"groups": json.dumps(groups), "consilience": self.fingerprint}
        queries.lazy().select(texts).sink_parquet(buffer, metadata=metadata)
        content, file = buffer.getvalue(), self.path / QUERIES
        digest = hashlib.sha256(content).hexdigest()
        if file.is_file() and digest == self.record.get("queries") == digest_of(file):
            return
        with self._changing() as record:
            record["queries"] = digest
            write.write_whole(file, content)

    @staticmethod
    def _add_notes(record: dict[str, Any], notes: Iterable[str]) -> None:
        record["warnings"] = list(dict.fromkeys([*record["warnings"], *notes]))

    def _count_cost(self, record: dict[str, Any]) -> None:
        """Put into the record what was paid, by this process and by those before."""
        if self._client is not None:
            record["cost"] = cost_record(self._client.usage, self._cost_before)
            record["served_as"] = sorted({*record.get("served_as", ()), *self._client.models})
            if len(names := record["served_as"]) > 1:
                self._add_notes(record, [f"the replies are of several models: {', '.join(names)}"])

    def finish(self, metrics: pl.DataFrame) -> None:
        """Keep the numbers; a run in which the server failed is not finished, and is resumed."""
        write.write_whole(self.path / "metrics.csv", write.csv_of(metrics))
        self.describe("finished", None if self._has_failed else _now())
        self.stop(is_whole=not self._has_failed)

    def _answers_path(self, group: str) -> Path:
        return self.path / "answers" / f"{self.groups.index(group)}.parquet"

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The record, with what other processes in this folder wrote; a change of it is written."""
        with write.locked(self.path):
            self._refresh()
            yield self.record
            self._write_record()

    def _refresh(self) -> None:
        if (self.path / "run.json").exists():
            self.record = _read_record(self.path / "run.json", f"{OTHER_OUT}.", "occupied")
            refuse_other_run(self.record["settings"], self.settings, self.path)

    def _write_record(self) -> None:
        text = json.dumps(self.record, indent=2, ensure_ascii=False) + "\n"
        # what is no Unicode, of names that are not UTF-8, becomes an escape of JSON
        write.write_whole(self.path / "run.json", text.encode(errors="backslashreplace"))


def _has_failed(answers: pl.DataFrame) -> bool:
    return bool(answers["error"].str.contains(NO_REPLY, literal=True).any())


def refuse_other_run(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raise with the first difference if a folder holds a run with other settings."""
    order = [*sorted({*before, *now} - {"suite", *LAST_NAMED}), *LAST_NAMED]
    name = next((name for name in ("suite", *order) if before.get(name) != now.get(name)), None)
    if name is None:
        return
    difference = "its queries are others: the suite, its files or the templates changed"
    if name != "queries":
        difference = _first_difference(name, before.get(name), now.get(name))
    raise OtherRunError(
        f"this folder holds another run: {difference}",
        where=str(folder),
        todo=f"{OTHER_OUT}, or remove the folder.",
    )


def _first_difference(name: str, before: object, now: object) -> str:
    """A setting that is not as in another run, in words; of an object its first such field."""
    if isinstance(before, dict) and isinstance(now, dict):
        fields = [name, *sorted({*before, *now})]  # the model of a model is its name
        field = next(field for field in fields if before.get(field) != now.get(field))
        inner = name if field == name else f"{name} ({field})"
        return _first_difference(inner, before.get(field), now.get(field))
    values = ["not set" if value is None else _show(value) for value in (before, now)]
    return f"its {name} is {values[0]}, now asked is {values[1]}"


def content_digest(queries: pl.DataFrame) -> str:
    """SHA-256 of the texts of a table of queries, whatever file they are in."""
    lists = [name for name, kind in queries.schema.items() if kind == pl.List]
    joined = pl.col(lists).cast(pl.List(pl.String)).list.join("\x1f")
    texts = pl.concat_str(pl.all().cast(pl.String).fill_null("\x1d"), separator="\x1e")
    digest = hashlib.sha256("\x1e".join(queries.columns).encode())
    for part in queries.iter_slices(2**16):
        digest.update("\n".join(part.with_columns(joined).select(texts).to_series()).encode())
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_of(path: Path) -> dict[str, Any]:
    """The record of the run in a folder (``run.json``); empty where there is none.

    A damaged one raises: without it the answers would be counted unchecked, as somebody else's.
    """
    file = path / "run.json"
    if not os.path.lexists(file):
        return {}
    record = _read_record(file, "Restore it, or run it again in another folder.")
    model = record["settings"].get("model", {})
    if isinstance(model, str):  # somebody else's, or a training's
        record["settings"]["model"] = {"model": model}
    return record


def complete_groups(folder: Path) -> set[str]:
    """The groups that a folder has answers of."""
    if not (record := record_of(folder)):
        return set()
    names = record["settings"].get("groups", ())
    files = {file.stem for file in (folder / "answers").glob("*.parquet")}
    return {name for at, name in enumerate(names) if str(at) in files and name in record["answers"]}


def _read_record(file: Path, todo: str, kind: Kind = "") -> dict[str, Any]:
    try:
        if not file.is_file():
            raise ValueError("no file")
        record = parse_json(file.read_bytes())
        of = record if isinstance(record, dict) else {}
        lacking = [name for name, type_ in ALWAYS.items() if not isinstance(of.get(name), type_)]
        fault = f"no '{lacking[0]}'" if lacking else ""
    except OSError as error:
        fault = error.strerror or str(error)
    except ValueError as error:
        fault = str(error)
    if fault:
        message = f"not the record of a run: {fault}"
        raise ConsilienceError(message, where=str(file), todo=todo, kind=kind)
    result: dict[str, Any] = record
    if (format_ := result["settings"].get("format", FORMAT)) != FORMAT:
        raise ConsilienceError(
            f"a run in format {_show(format_)}",
            expected=f"format {FORMAT}, which this version of consilience reads",
            where=str(file),
            todo="Read it with the version that wrote it, or run its command in another folder.",
        )
    return result


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _show(value: object) -> str:
    return truncated(json.dumps(value, ensure_ascii=False), 200)
