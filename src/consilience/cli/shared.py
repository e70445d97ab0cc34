"""What the commands share: options, the two consoles, tables, progress."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import polars as pl
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from consilience.cli.process import Terminal, json_text
from consilience.errors import ConsilienceError
from consilience.types import Protocol
from consilience.watch import Advance

N = TypeVar("N", int, float)

out = Terminal(markup=False)
err = Terminal(stderr=True, markup=False)


SuiteOption = Annotated[
    str, typer.Option("--suite", help="A name (mini, pararel) or a folder.", metavar="S")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where fetched suites lie (also CONSILIENCE_DATA)."),
]
ProtocolOption = Annotated[
    Protocol | None,
    typer.Option(help="published: the papers' rules; strict: the text's definitions."),
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", help="Also write the table to this CSV file.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
AsShipped = Annotated[
    bool, typer.Option("--as-shipped", help="Keep the ParaRel tuples that the paper leaves out.")
]


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    print(json_text(document))


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def rows_of(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has no NaN."""
    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()


def names_in(listed: str) -> list[str]:
    """The names of a list with commas."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ConsilienceError(f"no name in '{listed}'", expected="names with commas between")
    return names


def numbers_in(text: str, kind: type[N], expected: str) -> list[N]:
    """The numbers of a list with commas; ``expected``: what one looks like."""
    found = []
    for each in names_in(text):
        try:
            found.append(kind(each))
        except ValueError:
            raise ConsilienceError(f"no number in '{each}'", expected=expected) from None
    return found


def warn(warnings: Iterable[str]) -> None:
    """Say what a reader should know."""
    for warning in warnings:
        err.print(f"note: {warning}", soft_wrap=True, highlight=False, markup=False)


class _Rate(ProgressColumn):
    """How many steps a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


class _Advance:
    """Advances one progress bar; knows or learns its total."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self.progress = progress
        self.task = progress.add_task(text, total=total)

    def __call__(self, steps: int, total: int | None = None) -> None:
        if total is not None:
            self.progress.update(self.task, total=total)
        self.progress.advance(self.task, steps)


@contextmanager
def progress_bar(text: str, total: int | None, unit: str = "queries") -> Iterator[_Advance]:
    """A bar on standard error; what it gives is called with steps done, and a total if known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        yield _Advance(progress, text, total)


@contextmanager
def quiet_libraries(loads: str = "") -> Iterator[None]:
    """Keep the bars and advice of the model libraries out of the output.

    ``loads``: the model that is loaded first, which takes seconds and is announced in one line.
    """
    if loads and not loads.startswith("baseline:"):
        err.print(f"loading {loads} ...", soft_wrap=True, highlight=False, markup=False)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield


class Screen:
    """Shows the progress of a workflow on standard error (``watch.py``)."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """One line, and silence of the model libraries."""
        return quiet_libraries(model)

    def steps(self, text: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """A bar."""
        return progress_bar(text, total, unit)

    def say(self, step: str) -> None:
        """One line."""
        err.print(f"{step} ...", soft_wrap=True, highlight=False)

    def inform(self, line: str) -> None:
        """The line as it is."""
        err.print(line, soft_wrap=True, highlight=False, markup=False)

    def command(self, command: str) -> None:
        """One line."""
        err.print(command, soft_wrap=True, highlight=False)
