"""Every table and figure of both papers as a recipe, and the work that it takes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl

from consilience.core.errors import SILENT, ConsilienceError, Progress
from consilience.core.factors import WHOLE, Part
from consilience.metrics.statistics import NAN
from consilience.options import Options, parameters
from consilience.options.commands import ProbeOptions, ReproduceOptions
from consilience.probing import CountedRun, count_run, probe
from consilience.report.table import Table
from consilience.runs.folder import fingerprint
from consilience.runs.run import Run

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

ADDED = "added"  # The block of a user's models


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

    def rows_of(self, names: Iterable[str]) -> list[str]:
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


class Work:
    """The calls that recipes make, their notes, and why numbers are missing."""

    def __init__(self, options: ReproduceOptions, progress: Progress = SILENT) -> None:
        self.options, self.progress = options, progress
        self.added = dict(text.split("=", 1) for text in options.add or ())
        """A user's models, or runs of them, by the names of their rows."""
        self.rows: Collection[str] | None = None  # The selected rows; all where None
        self.commands: list[str] = []
        self.reasons: dict[str, list[str]] = {}  # Why rows have no numbers; "": all rows
        self.known: dict[str, object] = {}  # What was called, for all tables
        self._remarks: dict[str, list[str]] = {}  # Notes, with what each is about

    def folder_of(self, row: str, part: str = "pararel") -> Path:
        """The folder of a row's run; each model of a user has its own."""
        other, folder = self.added.get(row), Path(self.options.out, part)
        return folder / (f"{row}-{fingerprint({'model': other})[:8]}" if other else row)

    def is_selected(self, row: str) -> bool:
        return not row or self.rows is None or row in self.rows

    def attempt(self, row: str, make: Callable[[], T], part: str = "") -> T | None:
        """The result of ``make`` for one of the parts of a row.

        None if the row is not selected, or a model or data set is missing. Wrong options raise.
        """
        if not self.is_selected(row):
            return None
        try:
            return make()
        except ConsilienceError as error:
            if error.kind in ("usage", "occupied"):
                raise
            reason = f"{part}: {error}" if part else str(error)
            reasons = self.reasons.setdefault(row, [])
            reasons += [reason] * (reason not in reasons)
            return None

    def once(self, key: str, make: Callable[[], T]) -> T:
        """The result of ``make``, which is called once for all tables, also if it raises."""
        if key not in self.known:
            try:
                self.known[key] = make()
            except ConsilienceError as error:
                self.known[key] = error
        known: Any = self.known[key]
        if isinstance(known, ConsilienceError):
            raise known
        return known  # type: ignore[no-any-return]

    def call(
        self, command: str, function: Callable[[AnyOptions, Progress], T], options: AnyOptions
    ) -> T | None:
        """What the function of a command gives; None in a dry run."""
        words = ["consilience", *command.split()]
        for name, option in parameters(cast(Any, type(options))).items():
            if (value := getattr(options, name)) != option.default or name == "model":
                words += option.arguments(value)
        line = shlex.join(words)
        self.commands += [line] * (line not in self.commands)
        if self.options.dry_run:
            return None

        def make() -> T:
            self.progress.say(line)
            return function(options, self.progress)

        return self.once(line, make)

    def probe(self, row: str, spec: str, out: Path, **more: Any) -> CountedRun | None:
        """A run of a model, by default on ParaRel, or one that a user has; None in a dry run."""
        options = ProbeOptions(
            model=spec, out=out, device=self.options.device, **{"suite": "pararel", **more}
        )
        if (Path(spec) / "run.json").is_file():
            if (suite := (run := Run.open(spec)).suite.name) != options.suite:
                todo = f"Ask the model again: --suite {options.suite}."
                found = f"a run of {suite}"
                raise ConsilienceError(
                    found, expected=options.suite, where=spec, todo=todo, kind="usage"
                )
            made: CountedRun | None = self.once(spec, lambda: count_run(run))
        else:
            made = self.call("probe", probe, options)
        if made and row != "majority":  # a baseline that is constant on purpose
            self.note(row, made.notes)
        return made

    def note(self, subject: str, texts: Iterable[str]) -> None:
        """Keep notes on a row or on all; the same note on several rows is one."""
        for text in texts:
            subjects = self._remarks.setdefault(text, [])
            subjects += [subject] * bool(subject and subject not in subjects)

    @property
    def notes(self) -> list[str]:
        """What a reader should know, with the rows that it is about."""
        return [f"{', '.join(of)}: {text}" if of else text for text, of in self._remarks.items()]

    @property
    def missing(self) -> dict[str, str]:
        return {row: f"unavailable: {'; '.join(why)}" for row, why in self.reasons.items()}


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
