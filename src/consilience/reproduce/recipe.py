"""Recipes of tables and figures, and the work they need."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from consilience.core.errors import SILENT, ConsilienceError, Watch
from consilience.core.factors import WHOLE, Part
from consilience.report.papers import Key, Measured, paper_numbers
from consilience.runs.folder import fingerprint

T = TypeVar("T")

UNAVAILABLE, NOT_SELECTED, NOT_RUN = "unavailable", "not selected", "not run"
"""Beginnings of the reason for a missing number: no model or data, left out, or a dry run."""


class MissingError(Exception):
    """The reason for a missing number."""


@dataclass(frozen=True, slots=True)
class Request:
    """A user's settings for a recipe."""

    folder: Path  # The folder of runs and tables, for all recipes. Existing runs are reused.
    added: Mapping[str, str] = field(default_factory=dict)  # A user's models, by name
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    """Files of data sets, by task and split, such as ``rte:train``."""
    device: str = "auto"  # The device of models that are probed; trainings run on cpu or auto
    tolerance: float | None = None  # Points within which a percentage is equal, if any
    dry: bool = False

    @property
    def training_device(self) -> str:
        return "cpu" if self.device == "cpu" else "auto"

    def folder_of(self, row: str, part: str = "pararel") -> Path:
        """The folder of a row's run; each model of a user has its own."""
        other = self.added.get(row)
        if other is None:
            return self.folder / part / row
        words = re.findall(r"[\w.-]+", Path(other).name)
        return self.folder / part / "-".join((row, *words, fingerprint({"model": other})[:8]))


class Work:
    """Runs the commands of one recipe, and collects notes for its reader."""

    def __init__(self, request: Request, watch: Watch = SILENT) -> None:
        self.request, self.watch = request, watch
        self.rows: Collection[str] | None = request.only or None  # all where None
        self.commands: list[str] = []
        self.reasons: dict[tuple[str, str], str] = {}  # By row and part; "": for all
        self.faults: dict[str, str] = {}  # Data sets and models, tried once
        self.told: list[str] = []  # Notes of the recipe, before those of its commands
        self.files: list[Path] = []  # What commands drew
        self._remarks: dict[tuple[str, str], list[str]] = {}  # Rows by part and remark

    def attempt(self, row: str, make: Callable[[], T], part: str = "") -> T | None:
        """The result of ``make`` for one of the parts of a row; None if it has none."""
        if not self.is_selected(row, part):
            return None
        try:
            return make()
        except MissingError as reason:
            self.reasons[row, part] = str(reason)
            return None

    def is_selected(self, row: str, part: str = "") -> bool:
        """Whether a row is selected; if not, that is the reason of the part."""
        if not row or self.rows is None or row in self.rows:
            return True
        self.reasons[row, part] = NOT_SELECTED
        return False

    def run(self, row: str, *arguments: str | Path, part: str = "") -> dict[str, Any]:
        """The JSON document that ``consilience`` prints; empty in a dry run.

        A missing model or data set raises ``MissingError``.
        """
        words = list(map(str, arguments))
        command = ["consilience", *words]
        self.commands.append(typed := shlex.join(command))
        if self.request.dry:
            return {}
        self.watch.say(typed)
        status, stdout, stderr = _call([sys.executable, "-m", *command, "--json"])
        document: dict[str, Any] = json.loads(stdout) if status in (0, 2) and stdout else {}
        if status == 0:
            if row != "majority":  # a baseline that is constant on purpose
                self.note(row, part, document.get("warnings", ()))
            return document
        if "error" in document:
            message, kind = document["error"]["message"], document["error"]["kind"]
            if kind in ("usage", "occupied"):
                raise ConsilienceError(message.rstrip("."), where=typed)
            raise MissingError(f"{UNAVAILABLE}: {message}")
        if status < 0:
            raise MissingError(f"{UNAVAILABLE}: stopped by signal {-status}; too little memory?")
        raise RuntimeError(f"{typed} failed:\n{stderr[-2000:]}")

    def read(self, row: str, *arguments: str | Path) -> dict[str, Any]:
        """``run`` of a command whose document is read: a dry run has none."""
        document = self.run(row, *arguments)
        self.stop_if_dry()
        return document

    def stop_if_dry(self) -> None:
        """Raise in a dry run, which has no numbers to read."""
        if self.request.dry:
            raise MissingError(NOT_RUN)

    def probe(
        self,
        row: str,
        spec: str,
        *more: str,
        part: str = "pararel",
        suite: str = "pararel",
        is_read: bool = False,
    ) -> Path:
        """The run of ``probe`` of a model on a suite; ``is_read``: its numbers are needed."""
        folder = self.request.folder_of(row, part)
        device = () if spec.startswith("baseline:") else ("--device", self.request.device)
        self.run(row, "probe", "--model", spec, "--suite", suite, "--out", folder, *device, *more)
        if is_read:
            self.stop_if_dry()
        return folder

    def note(self, row: str, part: str, texts: Iterable[str]) -> None:
        for text in texts:
            rows = self._remarks.setdefault((part, text), [])
            if row not in rows:
                rows.append(row)

    @property
    def notes(self) -> list[str]:
        notes = list(self.told)
        for (part, text), rows in self._remarks.items():
            subject = ", ".join(name for name in (part, *rows) if name)
            notes.append(f"{subject}: {text}" if subject else text)
        return notes

    @property
    def absent(self) -> dict[str, str]:
        """Why a row has no numbers; several reasons are listed with their parts."""
        by_row: dict[str, dict[str, list[str]]] = {}
        for (row, part), reason in self.reasons.items():
            by_row.setdefault(row, {}).setdefault(reason, []).append(part)
        absent = {}
        for row, reasons in by_row.items():
            shown = [reason for reason in reasons if reason != NOT_SELECTED]
            texts = [
                f"{', '.join(reasons[reason])}: {reason.removeprefix(f'{UNAVAILABLE}: ')}"
                for reason in shown
            ]
            several = f"{UNAVAILABLE}: {'; '.join(texts)}"
            absent[row] = several if len(shown) > 1 else next(iter(shown or reasons))
        return absent


def _call(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, standard output, and standard error; a terminal sees the last one instead."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "CONSILIENCE_CONFIG": os.devnull},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr or ""


Numbers = dict[Key, Measured]  # Our numbers, by block, row and column of the paper's table


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table or figure of a paper is reproduced."""

    name: str
    title: str
    needs: str
    make: Callable[[Recipe, Work], Numbers]
    table: str
    models: Mapping[str, str] = field(default_factory=dict)
    """The paper's models, by the paper's names."""
    added_rows: Sequence[str] = ()  # What follows the name of a user's model; or empty
    user_rows: Sequence[str] = ()
    files: Sequence[str] = ()
    notes: Sequence[str] = ()
    is_wide: bool = False  # Whether a screen shows the layout of the paper
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """The rows of the paper's table, and the models where rows are models."""
        rows = list(dict.fromkeys(paper_numbers(self.table)["row"]))
        by_model = not rows or not {*rows}.isdisjoint(self.models)
        return list(dict.fromkeys([*(self.models if by_model else ()), *rows, *self.user_rows]))

    def rows_of(self, names: Collection[str]) -> list[str]:
        return [name + end for name in names for end in self.added_rows]

    @property
    def columns(self) -> Mapping[str, tuple[str, Part]]:
        """The metric and the part of each column of the paper; parts are kinds of edits."""
        keys = {name: text.partition("/") for name, text in self.details["columns"].items()}
        return {
            name: (metric, ("edit", edit) if edit else WHOLE)
            for name, (metric, _, edit) in keys.items()
        }

    def blocks(self) -> dict[str, str]:
        return dict(paper_numbers(self.table).select("row", "group").iter_rows())
