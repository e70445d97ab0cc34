"""What the commands print on: two consoles, notes, and the progress of a workflow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
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
from rich.segment import Segment
from rich.text import Text

from consilience.text import CONTROLS, visible
from consilience.watch import Advance


class Terminal(Console):
    """A console that shows tables, and U+FFFD for what would control the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables fit the screen, and are as wide as they are in a pipe."""
        from consilience.report.table import Table
        from consilience.report.terminal import UNLIMITED, fitted_text

        columns = os.environ.get("COLUMNS", "")
        width = self.width if self.is_terminal else UNLIMITED
        width = int(columns) if columns.isdigit() else width
        rule = "─" if self.encoding.startswith("utf") else "-"
        for item in objects:
            if isinstance(item, Table):
                super().print(fitted_text(item, width, rule), soft_wrap=True)
        others = [item for item in objects if not isinstance(item, Table)]
        if others or not objects:
            super().print(*others, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of something to print, cleaned."""
        for segment in super().render(renderable, options):
            if not segment.control and CONTROLS.search(segment.text):
                yield Segment(visible(segment.text), segment.style)
            else:
                yield segment


out = Terminal(markup=False)
err = Terminal(stderr=True, markup=False)


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
