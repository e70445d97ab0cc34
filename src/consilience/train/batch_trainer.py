"""One set-up of transformers' Trainer for every training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from consilience.errors import ConsilienceError
from consilience.models.batches import give_memory_back
from consilience.models.loading import find_device
from consilience.train.plan import TrainingPlan
from consilience.train.progress import progress_shown
from consilience.train.resume import TrainingFolder, disk_errors
from consilience.watch import Watch

TRIM_EVERY = 8
"""Updates after which freed memory is returned."""


def check_device(device: str) -> None:
    """Refuse a device that does not exist, or that several processes would share."""
    if find_device(device).type != "cpu" and device != "auto" and "RANK" in os.environ:
        raise ConsilienceError(
            f"the device '{device}' for several processes", expected="auto", todo="Leave it out."
        )


def uses_cpu(device: str) -> bool:
    """Whether a training on this device runs on the processor."""
    return device.startswith("cpu") or not torch.accelerator.is_available()


def training_arguments(
    plan: TrainingPlan,
    folder: Path,
    device: str,
    *,
    best_metric: str,
    greater_is_better: bool = True,
    **more: Any,
) -> TrainingArguments:
    """Arguments of a training on whole batches in their given order.

    The checkpoint with the best ``best_metric`` is kept. One process uses one accelerator: torch's
    DataParallel cannot split a batch that is one item of its data set.
    """
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=1,
        num_train_epochs=1,
        learning_rate=plan.learning_rate,
        seed=plan.seed,
        bf16=plan.bf16,
        train_sampling_strategy="sequential",
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        save_strategy="steps",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{best_metric}",
        greater_is_better=greater_is_better,
        remove_unused_columns=False,
        use_cpu=uses_cpu(device),
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        **more,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)
    if device != "auto":  # the Trainer takes the first accelerator
        chosen = torch.device(device)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        arguments._setup_devices = arguments.distributed_state.device = chosen
    return arguments


def set_interval(arguments: TrainingArguments, updates: int) -> None:
    """Log, validate and save every so many updates."""
    arguments.eval_steps = arguments.save_steps = arguments.logging_steps = updates


class BatchTrainer(Trainer):
    """A Trainer whose data set has whole batches as items, and which validates by ``validate``."""

    def __init__(
        self,
        model: Any,
        arguments: TrainingArguments,
        batches: Dataset[dict[str, Any]],
        collate: Callable[[dict[str, Any]], dict[str, Any]],
        callbacks: Sequence[TrainerCallback] = (),
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=batches,
            eval_dataset=batches,  # required by Trainer; ``validate`` does not use it
            data_collator=lambda items: collate(items[0]),
            callbacks=list(callbacks),
            processing_class=tokenizer,
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        self.add_callback(Trim)

    def validate(self) -> Mapping[str, float]:
        """The validation metrics of the model as it is now."""
        raise NotImplementedError

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The metrics of ``validate``, under the names by which Trainer logs and compares them."""
        metrics = {f"eval_{name}": value for name, value in self.validate().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def check_finite(self, loss: torch.Tensor, name: str, todo: str) -> None:
        """Stop the training where its loss is not a finite number."""
        if not torch.isfinite(loss):
            raise ConsilienceError(
                f"{name} is {loss.item()} at step {self.state.global_step}",
                where=str(self.args.output_dir),
                todo=f"Earlier checkpoints are complete. {todo}",
            )

    def train_in(
        self, folder: TrainingFolder, save: Callable[[], Mapping[str, Any]], watch: Watch
    ) -> None:
        """Train to the end, from the last complete checkpoint if there is one.

        Then the first process saves the model, and records what ``save`` returns and the history.
        """
        with disk_errors(folder.path), progress_shown(self, watch):
            self.train(resume_from_checkpoint=folder.last_checkpoint())
            PartialState().wait_for_everyone()  # all have read the best checkpoint
            if self.is_world_process_zero():
                folder.finish(**save(), history=self.state.log_history)
            PartialState().wait_for_everyone()


class Trim(TrainerCallback):
    """Returns freed memory; batches of many lengths leave it fragmented (docs/log.md)."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After every ``TRIM_EVERY`` updates."""
        if state.global_step % TRIM_EVERY == 0:
            give_memory_back()
