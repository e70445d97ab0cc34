"""What a command prints: its result, progress, notes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from rich import progress
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from consilience.app.process import collect_garbage, json_text, print_errors
from consilience.core.errors import Advance, Watch, shortened
from consilience.core.text import CONTROLS, duration, visible
from consilience.files.write import write_whole
from consilience.options import UNLIMITED, Output
from consilience.report.export import Shown, as_csv, as_latex, as_markdown, without_nan
from consilience.report.table import Table, all_notes, fitted_text


class Terminal(Console):
    """A console that shows tables, and U+FFFD for what would control the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables fit the screen, and are as wide as they are in a pipe."""
        rule = "─" if self.encoding.startswith("utf") else "-"
        for item in objects:
            if isinstance(item, Table):
                super().print(fitted_text(item, self.table_width, rule), soft_wrap=True)
        others = [item for item in objects if not isinstance(item, Table)]
        if others or not objects:
            is_text = all(isinstance(item, str) for item in others)
            super().print(*others, **{"soft_wrap": is_text, **options})

    @property
    def table_width(self) -> int:
        """How wide a table may be: as the screen, or without a limit in a pipe."""
        columns = os.environ.get("COLUMNS", "")
        width = self.width if self.is_terminal else UNLIMITED
        return int(columns) if columns.isdigit() else width

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if not segment.control and CONTROLS.search(segment.text):
                yield Segment(visible(segment.text), segment.style)
            else:
                yield segment


INTERVAL = 60  # Seconds between two lines on progress
out = Terminal(markup=False, highlight=False)
err = Terminal(stderr=True, markup=False, highlight=False)


class _Rate(progress.ProgressColumn):
    def render(self, task: progress.Task) -> Text:
        return Text(_rate(task.speed) if task.speed else "", style="dim")


@contextmanager
def _logged(text: str, total: int | None, unit: str) -> Iterator[Callable[..., None]]:
    """Write lines on progress: one at the start, one a minute, and one at the end."""
    start = last = time.monotonic()
    done = 0
    err.print(f"{text}: {_counted(total, unit)}" if total is not None else text)

    def advance(steps: int, learned: int | None = None) -> None:
        nonlocal total, done, last
        total = total if learned is None else learned
        done += steps
        if (now := time.monotonic()) - last >= INTERVAL and done != total:
            last, rate = now, done / (now - start)
            of, left = "", ""
            if total and rate:
                of, left = f" of {total:,}", f", {duration((total - done) / rate)} left"
            err.print(f"{text}: {done:,}{of} {unit}, {_rate(rate)}{left}")

    yield advance
    seconds = time.monotonic() - start
    rate = f", {_rate(done / seconds)}" if seconds else ""
    err.print(f"{text}: {_counted(done, unit)} in {duration(seconds)}{rate}")


def _counted(number: int, unit: str) -> str:
    singular = "query" if unit == "queries" else unit.removesuffix("s")
    return f"{number:,} {singular if number == 1 else unit}"


def _rate(steps_a_second: float) -> str:
    is_slow = steps_a_second < 1
    return f"{60 * steps_a_second:,.1f}/min" if is_slow else f"{steps_a_second:,.1f}/s"


class Screen(Watch):
    """Shows the progress of a command on standard error."""

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """A line on what takes seconds; the model libraries print no bars and no advice."""
        if model.startswith("baseline:"):  # which reads nothing
            yield
            return
        if model:
            err.print(f"loading {model} ...")
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
        if not err.is_terminal:
            with _logged(text, total, unit) as advance:
                yield advance
            return
        columns = (
            progress.TextColumn("{task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TextColumn(unit), _Rate(),
            progress.TimeElapsedColumn(), progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )  # fmt: skip
        with progress.Progress(*columns, console=err, disable=err.quiet) as bars:
            task = bars.add_task(text, total=total)

            def advance_bar(steps: int, learned: int | None = None) -> None:
                bars.update(task, total=learned, advance=steps)

            yield advance_bar

    def say(self, step: str) -> None:
        err.print(f"{step} ...")

    def inform(self, line: str) -> None:
        err.print(line)


def present(shown: Shown, output: Output) -> int:
    """Write the files that the output names, and print; the exit status."""
    for path, content in shown.written(output):
        write_whole(path, content)
    if not output.is_document:
        write = {"csv": as_csv, "md": as_markdown, "latex": as_latex}.get(output.format)
        for item in shown.printed(output):
            if not isinstance(item, Table) or write is None:
                out.print(item)
            elif output.format == "csv":
                out.print(write(item), end="")
            else:
                out.print(write(replace(item, notes=all_notes(item))), end="")
        for remark in shown.remarks(output):
            err.print(f"note: {shortened(remark)}")
    if after := shown.then(output):
        return present(after, output)
    if output.is_document:
        print(json_text(without_nan(shown.document())))
    print_errors(shown.faults())
    return shown.exit_status()
