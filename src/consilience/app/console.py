"""What a command prints: its result, progress, notes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich import progress as rich_progress
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from consilience.app import collect_garbage, json_text, print_errors
from consilience.core.errors import Advance, Progress, shortened
from consilience.core.text import CONTROLS, counted, duration, visible
from consilience.files.write import csv_of
from consilience.options import OutputOptions
from consilience.report.table import (
    Displayed,
    Table,
    as_csv,
    as_latex,
    as_markdown,
    fitted_text,
    without_nan,
)


class Terminal(Console):
    """A console that shows tables, and U+FFFD for what would control the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.width:
            self.width = 80  # some set COLUMNS=0, where nothing would be printed

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a table fits the screen, and is as wide as it is in a pipe."""
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        width = width or (self.width if self.is_terminal else 10**6)
        shown = [fitted_text(of, width) if isinstance(of, Table) else of for of in objects]
        is_text = all(isinstance(of, str | Text) for of in shown)
        super().print(*shown, **{"soft_wrap": is_text, **options})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the process ends without an error

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_text = not segment.control and CONTROLS.search(segment.text)
            yield Segment(visible(segment.text), segment.style) if is_text else segment


INTERVAL = 60  # Seconds between two lines on progress
MEMORY = 3600  # Seconds of which the pace is remembered; work may take minutes a step
out = Terminal(markup=False, highlight=False)
err = Terminal(stderr=True, markup=False, highlight=False)


class ConsoleProgress(Progress):
    """Shows the progress of a command on standard error."""

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """A line on what takes seconds; the model libraries print no bars and no advice."""
        if model.startswith("baseline:"):  # which reads nothing
            yield
            return
        if model:
            self.say(f"loading {model}")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        with suppress(ImportError):
            from transformers.utils import logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
        yield

    @contextmanager
    def steps(self, text: str, total: int | None, unit: str) -> Iterator[Advance]:
        """A bar in a terminal, lines in a file or a pipe."""
        collect_garbage()
        last, is_bar = time.monotonic(), err.is_terminal
        singular = "query" if unit == "queries" else unit.removesuffix("s")
        columns = (
            rich_progress.TextColumn("{task.description}"), rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(), rich_progress.TextColumn(unit),
            rich_progress.TimeElapsedColumn(), rich_progress.TimeRemainingColumn(),
        )  # fmt: skip

        def advance(steps: int, learned: int | None = None) -> None:
            nonlocal last
            bars.update(task.id, total=learned, advance=steps)
            if not is_bar and not task.finished and time.monotonic() - last >= INTERVAL:
                last, of = time.monotonic(), f" of {task.total:,.0f}" if task.total else ""
                left = task.time_remaining
                rest = "" if left is None else f", {duration(left)} left"
                err.print(f"{text}: {task.completed:,.0f}{of} {unit}{rest}")

        if not is_bar:
            err.print(text if total is None else f"{text}: {counted(total, singular, unit)}")
        with rich_progress.Progress(
            *columns, console=err, disable=err.quiet or not is_bar, speed_estimate_period=MEMORY
        ) as bars:
            bars.add_task(text, total=total)
            task = bars.tasks[0]
            yield advance
        if not is_bar:
            done, seconds = int(task.completed), task.elapsed or 0
            pace = f", {done / seconds:,.1f}/s" if done > seconds > 0 else ""
            err.print(f"{text}: {counted(done, singular, unit)} in {duration(seconds)}{pace}")

    def say(self, step: str) -> None:
        err.print(f"{step} ...")

    def inform(self, line: str) -> None:
        err.print(line)


def present(result: Displayed, options: OutputOptions) -> int:
    """Print a result; the exit status.

    As text the verdict, what people read, and notes; in other formats the tables alone. JSON, and
    Markdown, which is for people, too, have the verdict and the notes in them.
    """
    output, form = result.output(), "json" if options.json else options.format
    tables = [item for item in output.shown if isinstance(item, Table)]
    rows = output.csv if output.csv is not None else next(iter(output.tables.values()), None)
    has_notes = form == "json" or (form == "md" and bool(tables))
    if form == "json":
        print(json_text(without_nan(output.document())))
    elif has_notes:
        out.print("\n".join(map(as_markdown, output.tables_shown())), end="")
    elif form == "csv" and rows is not None:
        out.print(as_csv(rows) if isinstance(rows, Table) else csv_of(rows).decode(), end="")
    elif form == "table" or not tables:
        verdict = [Table("", [], [], output.verdict)] * bool(output.verdict)
        for item in (*verdict, *output.shown):
            out.print(item)
    else:
        write = as_csv if form == "csv" else as_latex
        out.print("\n".join(map(write, tables)), end="")
    for note in () if has_notes else output.notes():
        err.print(f"note: {shortened(note)}")
    print_errors(output.faults)
    return output.status
