"""The progress of a training on standard error."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import Trainer, TrainerCallback


@contextmanager
def progress_shown(trainer: Trainer) -> Iterator[None]:
    """Show the progress of a training on standard error (``ProgressLines``)."""
    lines = ProgressLines()
    trainer.add_callback(lines)
    try:
        yield
    finally:
        lines.bar.stop()
        trainer.remove_callback(lines)


class ProgressLines(TrainerCallback):
    """A line for each loss and each validation, and on a terminal a bar of updates.

    A line begins with the folder's name. Of several processes that train one model only the first
    writes. Trainings that run side by side have no bars.
    """

    def __init__(self) -> None:
        console = Console(stderr=True, markup=False, highlight=False)
        is_alone = multiprocessing.parent_process() is None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("updates"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (is_alone and console.is_terminal),
        )
        self.start, self.first_step = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar, with the updates that an interrupted training has already done."""
        self.start, self.first_step = time.monotonic(), state.global_step
        if state.is_world_process_zero:
            name = Path(args.output_dir).name
            self.task = self.bar.add_task(name, total=state.max_steps, completed=state.global_step)
            self.bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance the bar."""
        if state.is_world_process_zero:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses and validation, but not the Trainer's speed, which counts batches."""
        numbers = _numbers(logs or {})
        if state.is_world_process_zero and numbers:
            seconds = time.monotonic() - self.start
            steps = state.global_step - self.first_step
            left = seconds / steps * (state.max_steps - state.global_step) if steps else 0
            self.bar.console.print(
                f"{Path(args.output_dir).name}: update {state.global_step} of {state.max_steps} "
                f"({_minutes(seconds)}, {_minutes(left)} left): {numbers}",
                soft_wrap=True,
            )


def _numbers(logs: Mapping[str, Any]) -> str:
    """The training losses or the validation metrics in a log, as text; empty without any."""
    losses = {name: value for name, value in logs.items() if name.endswith("loss")}
    if "loss" in logs:
        return _joined(losses)
    metrics = {name.removeprefix("eval_"): value for name, value in logs.items() if "eval_" in name}
    return f"validation {_joined(metrics)}" if metrics else ""


def _joined(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {float(value):.4g}" for name, value in numbers.items())


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
