"""A result as a terminal, a program, a file and a notebook show it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from consilience.core.provenance import git_revision, versions
from consilience.files.tables import as_pandas
from consilience.files.write import csv_of
from consilience.options import Output
from consilience.report.export import table_html, table_text
from consilience.report.table import Table


class Shown:
    """A result; its tables are what people see, its document what programs read.

    ``notes``, if it has them, are what a reader should know.
    """

    def printed(self, output: Output) -> Iterable[Table | str]:
        """The tables and lines that a command prints."""
        raise NotImplementedError

    def document(self) -> Mapping[str, Any]:
        """What ``--json`` prints."""
        raise NotImplementedError

    def frame(self) -> pl.DataFrame:
        """All numbers, as ``--csv`` writes them."""
        raise NotImplementedError

    def written(self, output: Output) -> Iterator[tuple[Path, bytes]]:
        """The files that the options of the output name."""
        if output.csv:
            yield output.csv, csv_of(self.frame())

    def remarks(self, output: Output) -> Sequence[str]:
        """The notes that a command prints below a table."""
        return getattr(self, "notes", ())

    def faults(self) -> Sequence[str]:
        """Errors that it lists, for standard error."""
        return ()

    def exit_status(self) -> int:
        """The exit status of the command."""
        return 0

    def then(self, output: Output) -> Shown | None:
        """What follows once it is printed, such as a question and what is done if it is agreed."""
        return None

    def to_polars(self) -> pl.DataFrame:
        """All numbers."""
        return self.frame()

    def to_pandas(self) -> Any:
        """All numbers as a pandas frame."""
        return as_pandas(self.frame())

    def __repr__(self) -> str:
        return "\n\n".join(map(table_text, self._tables()))

    def _repr_html_(self) -> str:
        return "".join(map(table_html, self._tables()))

    def _tables(self) -> Iterator[Table]:
        return (item for item in self.printed(Output()) if isinstance(item, Table))


class Lines(Shown):
    """A result that is said in a few lines."""

    def __init__(
        self, document: Mapping[str, Any], *printed: Table | str, notes: Sequence[str] = ()
    ) -> None:
        self._document, self._printed, self.notes = document, printed, notes

    def printed(self, output: Output) -> Iterable[Table | str]:
        """The lines."""
        return self._printed

    def document(self) -> Mapping[str, Any]:
        """The document."""
        return self._document


def record_of(**settings: object) -> dict[str, Any]:
    """How a result was made, for a document: settings, versions and revision."""
    return {"settings": settings, "versions": versions(), "git": git_revision()}


def rows_of(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN."""
    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
