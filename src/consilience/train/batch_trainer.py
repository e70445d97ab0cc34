"""The trainer: batches, progress and resuming."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
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
from transformers.utils import logging

from consilience.core.errors import OTHER_OUT, ConsilienceError, Watch, reason_of
from consilience.core.provenance import versions
from consilience.files.read import parse_json
from consilience.files.write import is_disk_full, write_whole
from consilience.models.batches import give_memory_back
from consilience.models.loading import find_device
from consilience.train.plan import TrainingPlan


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


class TrainingProgress(TrainerCallback):
    """Counts the updates, and writes a line for each loss and each validation.

    A line begins with the folder's name. Of several processes that train one model only the first
    writes.
    """

    def __init__(self, watch: Watch, stack: ExitStack) -> None:
        """``stack``: ends the display of steps when the training ends."""
        self.watch, self.stack = watch, stack
        self.shown_step = 0
        self.advance: Callable[[int], None] = lambda steps: None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to count, after the updates that an interrupted training has already done.

        Its best checkpoint is here, also where the folder was moved.
        """
        if state.best_global_step:
            path = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(path)
        self.shown_step = state.global_step
        if state.is_world_process_zero:
            left = state.max_steps - state.global_step
            steps = self.watch.steps(Path(args.output_dir).name, left, "updates")
            self.advance = self.stack.enter_context(steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count an update; return the memory that batches of many lengths split (docs/log.md)."""
        if state.global_step > self.shown_step:
            self.advance(state.global_step - self.shown_step)
            self.shown_step = state.global_step
        if state.global_step % 8 == 0:
            give_memory_back()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write losses or validation, but not the Trainer's speed, which counts batches."""
        logs, is_loss = logs or {}, "loss" in (logs or {})
        numbers = {
            name.removeprefix("eval_"): value
            for name, value in logs.items()
            if (name.endswith("loss") if is_loss else "eval_" in name)
        }
        if state.is_world_process_zero and numbers:
            text = ", ".join(f"{name} {float(value):.4g}" for name, value in numbers.items())
            self.watch.inform(
                f"{Path(args.output_dir).name}: update {state.global_step} of {state.max_steps}: "
                f"{'' if is_loss else 'validation '}{text}"
            )


FILE = "training.json"
"""The record of a training: settings, versions, whether it is finished, history, result."""

WRITE_FAULTS = ("Error while serializing", "inline_container", "PytorchStreamWriter")
"""In the message of a failed write of safetensors or torch, which has no errno."""


@dataclass(frozen=True, slots=True)
class TrainingFolder:
    """A folder with one training, whole or to be resumed; ``settings`` decide it."""

    path: Path
    settings: Mapping[str, Any]

    def is_finished(self) -> bool:
        """Whether the result is here. Takes a new folder; a folder with other content raises.

        A folder with other settings but without a checkpoint was taken by mistake, and is reused.
        """
        record: Mapping[str, Any] = {"finished": False}
        if (self.path / FILE).exists():
            record = self._read()
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ConsilienceError(
                "not empty, and not the folder of a training",
                where=str(self.path),
                todo=f"{OTHER_OUT}.",
            )
        if not record["finished"] and not any(self.path.glob("checkpoint*")):
            self._write(finished=False)
            return False
        for name, value in json.loads(json.dumps(self.settings)).items():
            if record["settings"].get(name) != value:
                raise ConsilienceError(
                    f"this folder holds another training: its {name} is "
                    f"{record['settings'].get(name)}, this command's is {value}",
                    where=str(self.path),
                    todo=f"{OTHER_OUT}, or remove the folder.",
                )
        if record["finished"]:
            self._remove_checkpoints()  # of a process that was killed at its very end
        return bool(record["finished"])

    def result(self, needed: Sequence[str], validation: Sequence[str]) -> dict[str, Any]:
        """The record of a finished training; raises without a ``needed`` field or validation."""
        record = self._read()
        lacking = {"validation", *needed} - record.keys() or {*validation} - record[
            "validation"
        ].keys()
        self._refuse(f"no '{min(lacking)}'" if lacking else "")
        return record

    def finish(self, **result: Any) -> None:
        """Record the result of the training, and remove what only a resumed training needs."""
        self._write(finished=True, **result)
        self._remove_checkpoints()

    def last_checkpoint(self) -> str | None:
        """The last complete checkpoint; one whose writing was interrupted does not count."""
        complete: dict[int, Path] = {}
        for path in self.path.glob("checkpoint-*/trainer_state.json"):  # written last
            with suppress(OSError, ValueError, KeyError, TypeError):
                step = int(parse_json(path.read_text(encoding="utf-8"))["global_step"])
                complete[step] = path.parent
        return str(complete[max(complete)]) if complete else None

    def _remove_checkpoints(self) -> None:
        """Each has the optimizer's state, and so three times the size of the model."""
        for path in self.path.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _read(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = parse_json((self.path / FILE).read_bytes())
            is_whole = isinstance(record, dict) and {"settings", "finished"} <= record.keys()
            problem = "" if is_whole else "no 'settings' and 'finished'"
        except OSError as error:
            problem = error.strerror or str(error)
        except ValueError as error:
            problem = str(error)
        self._refuse(problem)
        return record

    def _refuse(self, problem: str) -> None:
        if problem:
            raise ConsilienceError(
                f"not the record of a training: {problem}",
                where=str(self.path / FILE),
                todo=f"Restore it. {OTHER_OUT}, or remove the folder, to train again.",
            )

    def _write(self, *, finished: bool, **result: Any) -> None:
        record = {"settings": self.settings, "versions": versions(), "finished": finished, **result}
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / FILE, text.encode())


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write in ``folder`` into one message, whichever library was writing."""
    try:
        yield
    except Exception as error:
        is_full = is_disk_full(error) or shutil.disk_usage(folder).free < 4096
        if not is_full and not any(text in str(error) for text in WRITE_FAULTS):
            raise
        raise ConsilienceError(
            "the disk is full" if is_full else f"cannot be written: {reason_of(error)}",
            where=str(folder),
            todo="Earlier checkpoints are complete. Free some space and rerun the command.",
        ) from error


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
    plan: TrainingPlan, folder: Path, device: str, *, best_metric: str, **more: Any
) -> TrainingArguments:
    """Arguments of a training on whole batches in their given order.

    The checkpoint with the best ``best_metric`` is kept; of a loss, the least is best. One process
    uses one accelerator: torch's DataParallel cannot split a batch that is one item of its data
    set.
    """
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=1, num_train_epochs=1,
        learning_rate=plan.learning_rate, seed=plan.seed, bf16=plan.bf16,
        train_sampling_strategy="sequential", lr_scheduler_type="linear", max_grad_norm=1.0,
        optim="adamw_torch_fused", eval_strategy="steps", save_strategy="steps",
        save_total_limit=2, load_best_model_at_end=True,
        metric_for_best_model=f"eval_{best_metric}", remove_unused_columns=False,
        use_cpu=uses_cpu(device), dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True, report_to="none", **more,
    )  # fmt: skip
    arguments._n_gpu = min(1, arguments.n_gpu)
    if device != "auto":  # the Trainer takes the first accelerator
        chosen = torch.device(device)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        arguments._setup_devices = arguments.distributed_state.device = chosen
    return arguments


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

    def save(self) -> dict[str, Any]:
        """Save the best checkpoint as a model; what is recorded of it."""
        raise NotImplementedError

    def train_in(self, folder: TrainingFolder, watch: Watch) -> None:
        """Train to the end, from the last complete checkpoint if there is one.

        Then the first process saves the model, and records what ``save`` returns and the history.
        """
        with disk_errors(folder.path), ExitStack() as stack:
            self.add_callback(TrainingProgress(watch, stack))
            self.train(resume_from_checkpoint=folder.last_checkpoint())
            PartialState().wait_for_everyone()  # all have read the best checkpoint
            if self.is_world_process_zero():
                folder.finish(**self.save(), history=self.state.log_history)
            PartialState().wait_for_everyone()


def trained(
    folder: TrainingFolder,
    trainer: Callable[[], BatchTrainer],
    needed: Sequence[str],
    validation: Sequence[str],
    watch: Watch,
) -> dict[str, Any]:
    """Train, resume a training, or take its result: its record (``TrainingFolder.result``)."""
    with PartialState().main_process_first():
        is_finished = folder.is_finished()
    if not is_finished:
        trainer().train_in(folder, watch)
    return folder.result(needed, validation)
