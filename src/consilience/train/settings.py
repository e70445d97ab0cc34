"""What every training on transformers' Trainer has in common: arguments, progress, memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
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
        **more,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def watch(trainer: Trainer) -> None:
    """Progress on standard error, and freed memory given back."""
    for callback in (PrinterCallback, ProgressCallback):  # they print on standard output
        trainer.remove_callback(callback)
    trainer.add_callback(Bar)
    trainer.add_callback(Trim)


class Bar(ProgressCallback):
    """The Trainer's progress bar; what it logs goes to standard error as well, in one line."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses and validation beside the bar."""
        if state.is_world_process_zero and self.training_bar is not None and logs:
            shown = " ".join(
                f"{name.removeprefix('eval_')} {value:.4g}"
                for name, value in logs.items()
                if isinstance(value, float) and name not in ("epoch", "total_flos")
            )
            self.training_bar.write(f"step {state.global_step}: {shown}", file=sys.stderr)


class Trim(TrainerCallback):
    """Returns freed memory; batches of many lengths leave it in pieces (docs/log.md)."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After every ``TRIMMED`` updates."""
        if state.global_step % TRIMMED == 0:
            give_memory_back()
