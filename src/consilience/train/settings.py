"""What every training on transformers' Trainer has in common: arguments, progress, memory."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from consilience.models.batches import give_memory_back

TRIMMED = 8
"""Updates after which freed memory is returned."""


def training_arguments(
    place: Path, device: str, *, chosen_by: str, greater: bool = True, **more: Any
) -> TrainingArguments:
    """Arguments of a training of whole batches in their own order, whose best checkpoint is kept.

    ``chosen_by``: the validation metric that tells which is best. One process uses one accelerator:
    torch's DataParallel cannot share out a batch that is one example of its data set.
    """
    arguments = TrainingArguments(
        output_dir=str(place),
        per_device_train_batch_size=1,
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        save_strategy="steps",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{chosen_by}",
        greater_is_better=greater,
        remove_unused_columns=False,
        use_cpu=device == "cpu" or not torch.accelerator.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        **more,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def watch(trainer: Trainer) -> None:
    """Remove the Trainer's own output, and return freed memory while it trains."""
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(Trim)


@contextmanager
def progress_shown(trainer: Trainer) -> Iterator[None]:
    """Show the progress of a training on standard error (``_Shown``)."""
    shown = _Shown()
    trainer.add_callback(shown)
    try:
        yield
    finally:
        shown.bar.stop()
        trainer.remove_callback(shown)


class _Shown(TrainerCallback):
    """A line for each loss and each validation, and a bar of updates on a terminal.

    The line begins with the folder of the training. Of several processes that train together only
    the first writes. Trainings side by side write lines and no bars.
    """

    def __init__(self) -> None:
        console = Console(stderr=True, markup=False, highlight=False)
        alone = multiprocessing.parent_process() is None
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
            disable=not (alone and console.is_terminal),
        )
        self.began, self.first = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar, with the updates of an interrupted training that is resumed."""
        self.began, self.first = time.monotonic(), state.global_step
        if state.is_world_process_zero:
            name = Path(args.output_dir).name
            self.task = self.bar.add_task(name, total=state.max_steps, completed=state.global_step)
            self.bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance the bar."""
        if state.is_world_process_zero:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses and validation; the Trainer's summary of its speed is left out.

        That summary counts batches of one example, which is not what is trained here.
        """
        numbers = _numbers(logs or {})
        if state.is_world_process_zero and numbers:
            seconds = time.monotonic() - self.began
            done = state.global_step - self.first
            left = seconds / done * (state.max_steps - state.global_step) if done else 0
            self.bar.console.print(
                f"{Path(args.output_dir).name}: update {state.global_step} of {state.max_steps} "
                f"({_minutes(seconds)}, {_minutes(left)} left): {numbers}",
                soft_wrap=True,
            )


def _numbers(logs: Mapping[str, Any]) -> str:
    """The losses of training, or what validation found."""
    if "loss" in logs:
        shown = {name: value for name, value in logs.items() if name.endswith("loss")}
        return ", ".join(f"{name} {float(value):.4g}" for name, value in shown.items())
    held = {name.removeprefix("eval_"): value for name, value in logs.items() if "eval_" in name}
    found = ", ".join(f"{name} {float(value):.4g}" for name, value in held.items())
    return f"validation {found}" if found else ""


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Trim(TrainerCallback):
    """Returns freed memory; batches of many lengths leave it in pieces (docs/log.md)."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After every ``TRIMMED`` updates."""
        if state.global_step % TRIMMED == 0:
            give_memory_back()
