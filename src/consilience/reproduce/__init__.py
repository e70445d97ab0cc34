"""Every table and figure of both papers as a recipe, and the work that it takes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Progress
from consilience.core.factors import WHOLE, Part
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics.statistics import NAN
from consilience.options import DeclaredOption, Options, parameters
from consilience.options.commands import ProbeOptions, ReproduceOptions
from consilience.probing import probe
from consilience.report.table import Table
from consilience.runs.folder import fingerprint

T = TypeVar("T")
AnyOptions = TypeVar("AnyOptions", bound=Options)


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of ours, in the unit that the paper prints."""

    value: float  # The number; NaN for no data
    std: float = NAN
    low: float = NAN
    """Lower bound of its 95 % interval; NaN for a number that has none, such as a count."""
    high: float = NAN
    unit: str = ""  # The unit of a number that the paper does not have


Key = tuple[str, str, str]  # Block, row and column, as the paper prints them
Numbers = dict[Key, Measured]

NAMES = {"pararel": "ParaRel", "calum": "CALUM"}
ADDED = "added"  # The block of a user's models
UNAVAILABLE, NOT_SELECTED, NOT_RUN = "unavailable", "not selected", "not run"
"""Beginnings of the reason for a missing number: no model or data, left out, or a dry run."""


class MissingError(Exception):
    """The reason for a missing number: a model or data set that is not here."""


def paper_numbers(table: str) -> pl.DataFrame:
    """The numbers that a paper prints in a table, or in the text of a section, in its order.

    Columns: ``table, section, group, row, column, value, std, unit, digits``.
    """
    text = (files("consilience.reproduce") / "papers.csv").read_bytes()
    rows = pl.read_csv(text, infer_schema=False).filter(pl.col("table") == table)
    decimals = pl.col("value").str.split(".").list.get(1, null_on_oob=True).str.len_chars()
    return rows.fill_null("").with_columns(
        digits=decimals.fill_null(0),
        value=pl.col("value").cast(pl.Float64),
        std=pl.col("std").replace("", None).cast(pl.Float64).fill_null(NAN),
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table or figure of a paper is made: a row of ``recipes.toml``."""

    name: str
    title: str
    needs: str
    make: Callable[[Recipe, Work], Numbers | Table]
    """Makes our numbers, which are put beside the paper's, or a whole table of texts."""
    table: str  # The name of the paper's table
    models: Mapping[str, str] = field(default_factory=dict)
    """The paper's models, by the paper's names, and those of a user."""
    added_rows: Sequence[str] = ()  # What follows the name of a user's model; or empty
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title with the table of the paper, where it is of one."""
        paper, _, number = self.name.partition("-table-")
        return f"{self.title} ({NAMES[paper]}'s Table {number})" if number else self.title

    @property
    def rows(self) -> list[str]:
        """The rows of the paper's table, and the models where rows are models."""
        rows = list(dict.fromkeys(paper_numbers(self.table)["row"]))
        by_model = not rows or not {*rows}.isdisjoint(self.models)
        return list(dict.fromkeys([*(self.models if by_model else ()), *rows]))

    def rows_of(self, names: Collection[str]) -> list[str]:
        """The rows of a user's models of these names."""
        return [name + end for name in names for end in self.added_rows]

    @property
    def columns(self) -> Mapping[str, tuple[str, Part]]:
        """The metric and the part of each column of the paper, written ``METRIC/KIND/LEVEL``."""
        columns = self.details["columns"].items()
        keys = {name: [*text.split("/"), *WHOLE] for name, text in columns}
        return {name: (metric, (kind, level)) for name, (metric, kind, level, *_) in keys.items()}

    def block_of(self, row: str) -> str:
        """The block of a row of the paper's table, or that of a user's models."""
        blocks: dict[str, str] = dict(paper_numbers(self.table).select("row", "group").iter_rows())
        return blocks.get(row, ADDED)


class Probed(NamedTuple):
    """A run of a recipe; in a dry run without numbers."""

    path: Path
    metrics: pl.DataFrame = pl.DataFrame(schema=METRICS_SCHEMA)
    notes: Sequence[str] = ()


class Work:
    """The calls that a recipe makes, their notes, and why numbers are missing.

    ``known``: what was called before, for other tables of the same folder.
    """

    def __init__(
        self,
        options: ReproduceOptions,
        progress: Progress = SILENT,
        known: dict[str, object] | None = None,
    ) -> None:
        self.options, self.progress = options, progress
        self.folder: Path = options.out
        self.added = added_models(options.add or ())
        self.rows: Collection[str] | None = None  # The selected rows; all where None
        self.commands: list[str] = []
        self.reasons: dict[str, list[str]] = {}  # See ``missing``
        self.files: list[Path] = []  # What calls drew
        self._known = {} if known is None else known
        self._remarks: dict[tuple[str, str], list[str]] = {}  # Rows by part and remark

    @property
    def training_device(self) -> str:
        return "cpu" if self.options.device == "cpu" else "auto"

    def folder_of(self, row: str, part: str = "pararel") -> Path:
        """The folder of a row's run; each model of a user has its own."""
        other = self.added.get(row)
        return self.folder / part / (f"{row}-{fingerprint({'model': other})[:8]}" if other else row)

    def is_selected(self, row: str) -> bool:
        return not row or self.rows is None or row in self.rows

    def attempt(self, row: str, make: Callable[[], T], part: str = "") -> T | None:
        """The result of ``make`` for one of the parts of a row; None if it has none."""
        if not self.is_selected(row):
            return None
        try:
            return make()
        except MissingError as reason:
            self.reasons.setdefault(row, []).append(f"{part}: {reason}" if part else str(reason))
            return None

    def once(self, key: str, make: Callable[[], T]) -> T:
        """The result of ``make``, which is called once for all tables.

        A model or data set that is missing raises ``MissingError``; wrong options raise as usual.
        """
        if key not in self._known:
            try:
                self._known[key] = make()
            except ConsilienceError as error:
                if error.kind in ("usage", "occupied"):
                    raise
                self._known[key] = MissingError(error)
        known: Any = self._known[key]
        if isinstance(known, MissingError):
            raise known
        return known  # type: ignore[no-any-return]

    def call(
        self, command: str, function: Callable[[AnyOptions, Progress], T], options: AnyOptions
    ) -> T | None:
        """What the function of a command gives; None in a dry run."""
        words = ["consilience", *command.split()]
        for name, option in parameters(cast(Any, type(options))).items():
            value = getattr(options, name)
            if value != option.default:
                is_named = isinstance(option, DeclaredOption)
                words += option.arguments(value) if is_named else [str(value)]
        self.commands.append(line := shlex.join(words))
        if self.options.dry_run:
            return None

        def make() -> T:
            self.progress.say(line)
            return function(options, self.progress)

        return self.once(line, make)

    def probe(self, row: str, spec: str, part: str = "", **more: Any) -> Probed:
        """A run of a model: on ParaRel in the folder of its row, or on another suite or folder."""
        options: dict[str, Any] = {"suite": "pararel", "out": self.folder_of(row)}
        options |= {} if spec.startswith("baseline:") else {"device": self.options.device}
        chosen = ProbeOptions(model=spec, **options | more)
        made = self.call("probe", _probed, chosen)
        if made and row != "majority":  # a baseline that is constant on purpose
            self.note(row, made.notes, part)
        return made or Probed(Path(str(chosen.out)))

    def note(self, row: str, texts: Iterable[str], part: str = "") -> None:
        """Keep notes on a row; the same note on several rows is one."""
        for text in texts:
            rows = self._remarks.setdefault((part, text), [])
            rows += [row] * (row not in rows)

    @property
    def notes(self) -> list[str]:
        """What a reader should know, with the part and the rows that it is about."""
        notes = list[str]()
        for (part, text), rows in self._remarks.items():
            subject = ", ".join(name for name in (part, *rows) if name)
            notes.append(f"{subject}: {text}" if subject else text)
        return notes

    @property
    def missing(self) -> dict[str, str]:
        """Why rows have no numbers; "": all rows."""
        return {row: f"{UNAVAILABLE}: {'; '.join(why)}" for row, why in self.reasons.items()}

    @property
    def warnings(self) -> list[str]:
        return [f"{row or 'all'}: {why}" for row, why in self.missing.items()]


def _probed(options: ProbeOptions, progress: Progress) -> Probed:
    counted = probe(options, progress)
    return Probed(Path(counted.record["path"]), counted.metrics, counted.notes)


def added_models(texts: Sequence[str]) -> dict[str, str]:
    """A user's models, by the names of their rows."""
    models: dict[str, str] = {}
    for text in texts:
        name, equals, model = (part.strip() for part in text.partition("="))
        if not (name and equals and model):
            raise ConsilienceError(f"--add {text}", expected="NAME=M, such as mine=my-folder")
        if name in models:
            raise ConsilienceError(f"--add {name} twice", expected="every name once")
        models[name] = model
    return models


def in_percent(row: Mapping[str, Any], unit: str = "") -> Measured:
    """``value, std, low, high`` of a row, as far as it has them: fractions times 100."""
    names = ("value", "std", "low", "high")
    value, std, low, high = (100 * row.get(name, NAN) for name in names)
    return Measured(value, std, low, high, unit)


def selected(
    metrics: pl.DataFrame, recipe: Recipe, row: str, block: str | None = None, **where: str
) -> Numbers:
    """The numbers of a metrics table in the paper's columns, as far as the table has them.

    ``row, block``: where the paper has them; the block of the row unless given.
    """
    block = recipe.block_of(row) if block is None else block
    rows = metrics.filter(**where).fill_null(NAN).iter_rows(named=True)
    numbers = {(of["metric"], (of["kind"], of["level"])): in_percent(of) for of in rows}
    return {
        (block, row, column): numbers[key]
        for column, key in recipe.columns.items()
        if key in numbers
    }
