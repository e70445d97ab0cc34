"""The progress of a training: updates as steps, and a line for each loss and each validation."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.utils import logging

from consilience.watch import Watch


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the bars and messages of transformers out of the output; also a decorator."""
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


@contextmanager
def progress_shown(trainer: Trainer, watch: Watch) -> Iterator[None]:
    """Show the progress of a training (``TrainingProgress``)."""
    with ExitStack() as stack:
        progress = TrainingProgress(watch, stack)
        trainer.add_callback(progress)
        try:
            yield
        finally:
            trainer.remove_callback(progress)


class TrainingProgress(TrainerCallback):
    """Counts the updates, and writes a line for each loss and each validation.

    A line begins with the folder's name. Of several processes that train one model only the first
    writes. Trainings that run side by side write lines but show no steps.
    """

    def __init__(self, watch: Watch, stack: ExitStack) -> None:
        """``stack``: ends the display of steps when the training ends."""
        self.watch, self.stack = watch, stack
        self.start, self.first_step, self.shown_step = time.monotonic(), 0, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to count, after the updates that an interrupted training has already done."""
        self.start, self.first_step = time.monotonic(), state.global_step
        self.shown_step = 0
        is_alone = multiprocessing.parent_process() is None
        if state.is_world_process_zero and is_alone:
            name = Path(args.output_dir).name
            steps = self.watch.steps(name, state.max_steps, "updates")
            self.advance = self.stack.enter_context(steps)
            self._show(state.global_step)
        else:
            self.advance = lambda steps: None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count an update."""
        self._show(state.global_step)

    def _show(self, step: int) -> None:
        if step > self.shown_step:
            self.advance(step - self.shown_step)
            self.shown_step = step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses and validation, but not the Trainer's speed, which counts batches."""
        numbers = _numbers(logs or {})
        if state.is_world_process_zero and numbers:
            seconds = time.monotonic() - self.start
            steps = state.global_step - self.first_step
            left = seconds / steps * (state.max_steps - state.global_step) if steps else 0
            self.watch.inform(
                f"{Path(args.output_dir).name}: update {state.global_step} of {state.max_steps} "
                f"({_minutes(seconds)}, {_minutes(left)} left): {numbers}"
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
