"""Training: the trainer of all trainings, with whole batches in order, progress, and resuming."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.environment import get_int_from_env
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from consilience.core.errors import ConsilienceError, Progress
from consilience.core.provenance import versions
from consilience.files.read import parse_json, read_document
from consilience.files.write import (
    cannot_write,
    is_disk_full,
    locked,
    make_folder,
    refuse_occupied,
    write_whole,
)
from consilience.models.batches import give_memory_back
from consilience.models.loading import find_device
from consilience.options.commands import FinetuneOptions, ImproveOptions
from consilience.runs.folder import refuse_other_run

FILE = "training.json"
"""The record of a training: settings, versions, whether it is finished, history, result."""


@dataclass(frozen=True, slots=True)
class TrainingFolder:
    """A folder with one training, whole or to be resumed; ``settings`` decide its weights."""

    path: Path
    settings: Mapping[str, Any]

    def record(self, *free: str) -> dict[str, Any]:
        """The training that was begun here: ``settings``, whether it is ``finished``, the result.

        Empty without a checkpoint. A training with other settings but ``free`` ones, and other
        content, raises.
        """
        path = self.path / FILE
        if not path.exists():
            refuse_occupied(self.path, "a new folder, or that of a training")
            return {}
        record: dict[str, Any] = read_document(path)
        settings = record["settings"]
        if not record["finished"] and not any(self.path.glob("checkpoint*")):
            return {}
        same = {name: settings.get(name) for name in free}
        refuse_other_run(settings, json.loads(json.dumps(self.settings)) | same, self.path)
        return record

    def last_checkpoint(self) -> tuple[int, Path] | None:
        """The updates and the folder of the last checkpoint that was written to its end."""
        complete = dict[int, Path]()
        for path in self.path.glob("checkpoint-*/trainer_state.json"):  # written last
            with suppress(OSError, ValueError, KeyError, TypeError):
                step = int(parse_json(path.read_bytes())["global_step"])
                complete[step] = path.parent
        return max(complete.items(), default=None)

    def write(self, *, finished: bool, **result: Any) -> None:
        """Write the record."""
        record = {"settings": self.settings, "versions": versions(), "finished": finished, **result}
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        write_whole(self.path / FILE, text.encode())


@dataclass
class TrainingProgress(TrainerCallback):
    """Counts the updates, and writes a line for each loss and each validation."""

    progress: Progress
    advance: Callable[[int], None]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The best checkpoint of an interrupted training is here, also where it was moved."""
        if state.best_global_step:
            path = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(path)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count an update; return the memory that batches of many lengths split (docs/log.md)."""
        self.advance(1)
        if state.global_step % 8 == 0:
            give_memory_back()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses or validation, but not the Trainer's speed, which counts batches."""
        is_loss = "loss" in logs
        numbers = [
            f"{name.removeprefix('eval_')} {float(value):.4g}"
            for name, value in logs.items()
            if (name.endswith("loss") if is_loss else "eval_" in name)
        ]
        if numbers:
            self.progress.inform(
                f"{Path(args.output_dir).name}: update {state.global_step} of {state.max_steps}: "
                f"{'' if is_loss else 'validation '}{', '.join(numbers)}"
            )


class BatchTrainer(Trainer):
    """A Trainer whose data set has whole batches as items, and which validates by ``validate``."""

    def __init__(
        self,
        model: Any,
        batches: Dataset[dict[str, Any]],
        options: ImproveOptions | FinetuneOptions,
        folder: Path,
        *,
        interval: int,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **arguments: Any,
    ) -> None:
        """``interval``: updates between two validations.

        One accelerator is used: torch's DataParallel cannot split a batch that is one item of its
        data set.
        """
        is_on_cpu = options.device.startswith("cpu") or not torch.accelerator.is_available()
        args = TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=1, num_train_epochs=1,
            learning_rate=options.learning_rate or 0.0, seed=options.seed, bf16=options.bf16,
            train_sampling_strategy="sequential", lr_scheduler_type="linear", max_grad_norm=1.0,
            optim="adamw_torch_fused", eval_strategy="steps", save_strategy="steps",
            eval_steps=interval, save_steps=interval, logging_steps=interval, save_total_limit=2,
            load_best_model_at_end=True, remove_unused_columns=False,
            use_cpu=is_on_cpu, dataloader_pin_memory=torch.cuda.is_available(),
            disable_tqdm=True, report_to="none", **arguments,
        )  # fmt: skip
        args._n_gpu = min(1, args.n_gpu)
        if options.device != "auto":  # the Trainer takes the first accelerator
            chosen = torch.device(options.device)
            if chosen.type == "cuda":
                torch.cuda.set_device(chosen)
            args._setup_devices = args.distributed_state.device = chosen
        super().__init__(
            model=model,
            args=args,
            train_dataset=batches,
            eval_dataset=batches,  # required by Trainer; ``validate`` does not use it
            data_collator=lambda items: items[0],
            processing_class=tokenizer,
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)

    def loss_of(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The loss of a batch."""
        raise NotImplementedError

    def validate(self) -> Mapping[str, float]:
        """The validation metrics of the model as it is now."""
        raise NotImplementedError

    def save(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """Save the best checkpoint as a model; what is recorded of it. ``best``: its validation."""
        raise NotImplementedError

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The metrics of ``validate``, under the names by which Trainer logs and compares them."""
        metrics = {f"eval_{name}": value for name, value in self.validate().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    @property
    def validations(self) -> list[dict[str, Any]]:
        """The metrics of each validation, with its ``step``."""
        logs = [log for log in self.state.log_history if "eval_accuracy" in log]
        return [{name.removeprefix("eval_"): x for name, x in log.items()} for log in logs]

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], **_: Any
    ) -> torch.Tensor:
        """The loss of a batch (``loss_of``); one that is no finite number stops the training."""
        loss = self.loss_of(model, inputs)
        if not torch.isfinite(loss):
            raise ConsilienceError(
                f"the loss is {loss.item()} at step {self.state.global_step}",
                where=str(self.args.output_dir),
                todo="Earlier checkpoints are complete. Lower --learning-rate or leave --bf16 out.",
            )
        return loss


def trained(
    folder: TrainingFolder, trainer: Callable[[], BatchTrainer], progress: Progress
) -> dict[str, Any]:
    """Train, resume from the last complete checkpoint, or take a result: the record.

    Another process that trains in this folder is waited for.
    """
    make_folder(folder.path)
    with locked(folder.path):
        record = folder.record()
        if record.get("finished"):
            progress.inform(f"{folder.path.name}: finished already")
        else:
            if not record:
                folder.write(finished=False)
            try:
                _train(folder, trainer(), progress)
            except Exception as error:  # of whichever library was writing
                if not is_disk_full(error):
                    raise
                raise cannot_write(folder.path, OSError(errno.ENOSPC, str(error))) from error
        for path in folder.path.glob("checkpoint-*"):  # each three times the size of the model
            shutil.rmtree(path, ignore_errors=True)
        return folder.record()


def _train(folder: TrainingFolder, trainer: BatchTrainer, progress: Progress) -> None:
    """Train from the last complete checkpoint on, and write the result."""
    name, (done, checkpoint) = folder.path.name, folder.last_checkpoint() or (0, "")
    steps = len(trainer.get_train_dataloader()) / trainer.args.gradient_accumulation_steps
    begin = f"resumes after update {done}" if checkpoint else "begins at update 0"
    progress.inform(f"{name}: {begin}; a checkpoint every {trainer.args.save_steps:.0f}")
    with progress.steps(f"training {name}", round(steps) - done, "updates") as advance:
        trainer.add_callback(TrainingProgress(progress, advance))
        trainer.train(resume_from_checkpoint=str(checkpoint) or None)
    best_step = trainer.state.best_global_step
    result = trainer.save(*[one for one in trainer.validations if one["step"] == best_step])
    for path in folder.path.rglob("*.safetensors"):
        path.chmod(0o644)  # safetensors makes them for their owner alone
    folder.write(finished=True, **result, history=trainer.state.log_history)


def refuse_device(options: ImproveOptions | FinetuneOptions) -> None:
    """Refuse a missing device, several processes, and ``--bf16`` that no instruction multiplies.

    A training has one device. A torch that does not tell instructions passes.
    """
    device = find_device(options.device)
    known: Any = getattr(torch.cpu, "get_capabilities", lambda: {"bf16": True})()
    if options.bf16 and device.type == "cpu" and not any(known[of] for of in known if "bf16" in of):
        found = "--bf16 on a processor without instructions for it"
        raise ConsilienceError(found, expected="a GPU", todo="Leave it out.")
    if get_int_from_env(["WORLD_SIZE"], 1) > 1:  # as torchrun and accelerate set it
        todo = "Run the command without `accelerate launch` or `torchrun`."
        raise ConsilienceError("several processes", expected="one", todo=todo)
