"""Fine-tuning on sentence pairs, one task or several at once (CALUM, Sections 4.3 and 6.1)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from consilience.choices import Sampling, StopOn
from consilience.errors import ConsilienceError
from consilience.models.batches import Budget
from consilience.models.classifier import collate, predict
from consilience.models.loading import digest_of
from consilience.models.pair_input import Encoded, PairInput, Reading
from consilience.record import fault
from consilience.suites.pairs import Pairs, refuse_one_class
from consilience.suites.perturbations import original
from consilience.train.batches import Batches
from consilience.train.checkpoints import disk_errors, last_whole_checkpoint, remove_checkpoints
from consilience.train.heads import Heads, load_heads
from consilience.train.products import train_as_begun
from consilience.train.record import FILE, is_finished, read_record, refuse_fault, write_record
from consilience.train.settings import progress_shown, training_arguments, watch
from consilience.types import Task


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to fine-tune. The defaults are the paper's (Section 4.3) where it says something.

    It leaves open: ``warmup`` (share of the updates), ``patience`` (epochs without a better
    validation; 0 trains to the end), ``stop_on``, ``sampling``, and all of ``Reading``.
    """

    learning_rate: float = 1e-5
    batch: int = 64
    epochs: int = 10
    weight_decay: float = 1e-3
    warmup: float = 0.1
    patience: int = 3
    stop_on: StopOn = "accuracy"
    sampling: Sampling = "proportional"
    seed: int = 0
    bf16: bool = False
    gradient_checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Training pairs of a task, and validation pairs, which the main task must have."""

    task: Task
    train: Pairs
    validation: Pairs | None


@dataclass(frozen=True, slots=True)
class Finetuned:
    """A finished training. ``folder/TASK`` is the model with the head of each task.

    ``validation``: accuracy of each task that has validation pairs, at the best checkpoint.
    ``cut`` and ``cut_validation``: how many pairs of a task were too long and were cut to fit.
    """

    folder: Path
    validation: Mapping[str, float]
    epochs: int
    seconds: float
    cut: Mapping[str, int]
    cut_validation: Mapping[str, int]


class Course(TrainerCallback):
    """Knows the best checkpoint, and when to stop, from the history, which checkpoints keep.

    So a training that goes on stops where it would have, and finds what lies in a folder that was
    moved or is called by another path.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken, with what was done before a stop and is kept."""
        return round(time.monotonic() - self.began, 1)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Where the best checkpoint lies now, and whether it was time to stop already."""
        if state.best_global_step:
            place = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(place)
        if seen := _seen(state.log_history):
            self.began = time.monotonic() - seen[-1]["seconds"]
            self._stop(seen, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop where so many epochs brought nothing better."""
        seen = _seen(state.log_history)
        seen[-1]["seconds"] = self.seconds
        self._stop(seen, control)

    def _stop(self, seen: Sequence[dict[str, Any]], control: Any) -> None:
        if self.recipe.patience:
            since = len(seen) - seen.index(_best(seen, self.recipe.stop_on)) - 1
            control.should_training_stop = since >= self.recipe.patience


class PairTrainer(Trainer):
    """Cross-entropy of one task's batch after the other; validation reads in batches of a length.

    ``validation``: encoded forms and labels of each task that has some, the main task first.
    """

    def __init__(
        self,
        heads: Heads,
        arguments: TrainingArguments,
        batches: Batches,
        validation: Mapping[str, tuple[Sequence[Encoded], Sequence[int]]],
        pad: int,
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        def together(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
            (item,) = items
            inputs = collate(item["forms"], pad)
            labels = torch.tensor(item["labels"])
            return {"task": item["task"], "labels": labels, "weight": item["weight"], **inputs}

        super().__init__(
            model=heads,
            args=arguments,
            train_dataset=batches,
            eval_dataset=batches,  # asked for by Trainer; validation reads its own
            data_collator=together,
            callbacks=list(callbacks),
        )
        self.heads, self.validation = heads, validation
        watch(self)

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Mean cross-entropy of a batch, or of the part of it that this process reads."""
        given = dict(inputs)
        labels, weight = given.pop("labels"), given.pop("weight")
        logits = model(**given)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels) * weight
        if not torch.isfinite(loss):
            raise ConsilienceError(
                f"the loss of {given['task']} is {loss.item()} in step {self.state.global_step}",
                todo="Use a smaller --lr, or float32.",
            )
        return (loss, logits) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Accuracy and loss of every task's validation pairs; the main task's also as eval_*."""
        self.heads.eval()
        found: dict[str, float] = {}
        for task, (encoded, labels) in self.validation.items():
            accuracy, loss = self._measure(task, encoded, labels)
            if not found:
                found |= {"eval_accuracy": accuracy, "eval_loss": loss}
            found[f"eval_{task}_accuracy"] = accuracy
        self.heads.train()
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def _measure(
        self, task: str, encoded: Sequence[Encoded], labels: Sequence[int]
    ) -> tuple[float, float]:
        model = self.heads.models[task]
        gold = torch.tensor(labels)
        right, loss = 0, 0.0
        with torch.inference_mode():
            for places, logits in predict(
                model, self.heads.kind, self.heads.reading, encoded, Budget.of(model)
            ):
                chosen, scores = gold[places], torch.from_numpy(logits)
                right += int((scores.argmax(dim=1) == chosen).sum())
                loss += float(torch.nn.functional.cross_entropy(scores, chosen, reduction="sum"))
        return right / len(labels), loss / len(labels)


def finetune(
    spec: str,
    sources: Sequence[Source],
    recipe: Recipe,
    folder: Path,
    *,
    reading: Reading | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Finetuned:
    """Fine-tune on the original form of all sources, or go on, or take what is done.

    The first source is the main task. ``reading``: None for what the model's family usually has.
    ``folder`` gets checkpoints until it is done, then ``folder/TASK`` with the best weights.
    """
    check(sources, recipe)
    if device not in ("auto", "cpu"):
        raise ConsilienceError(f"the device '{device}'", expected="auto or cpu")
    asked = {
        "model": spec,
        "weights": digest_of(spec, trust_remote_code=trust_remote_code),
        "tasks": [
            [each.task.name, each.task.labels, each.task.indicators, each.train.digest]
            for each in sources
        ],
        "validation": [each.validation.digest if each.validation else None for each in sources],
        "recipe": asdict(recipe),
        "reading": asdict(reading) if reading else None,
    } | ({"trust_remote_code": True} if trust_remote_code else {})
    validated = [each.task.name for each in sources if each.validation]
    arguments = training_arguments(
        folder,
        device,
        chosen_by=recipe.stop_on,
        greater=recipe.stop_on == "accuracy",
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        report_to="none",
        seed=recipe.seed,
        bf16=recipe.bf16,
        ddp_find_unused_parameters=True,
    )
    with arguments.main_process_first(local=False):
        if is_finished(folder, asked):
            remove_checkpoints(folder)  # of a process that was killed at its very end
            return _finished(folder, validated)
    set_seed(recipe.seed)
    labels = {each.task.name: each.task.labels for each in sources}
    heads, tokenizer = load_heads(spec, labels, reading, trust_remote_code=trust_remote_code)
    if recipe.gradient_checkpointing:
        heads.body.activation_checkpointing_enable()
    reader = PairInput(next(iter(heads.models.values())), tokenizer, heads.kind, heads.reading)
    cut: dict[str, int] = {}
    cut_validation: dict[str, int] = {}
    encoded: dict[str, tuple[list[Encoded], list[int]]] = {}
    held: dict[str, tuple[list[Encoded], list[int]]] = {}
    for each in sources:
        encoded[each.task.name], cut[each.task.name] = _encode(each.task, each.train, reader)
        if each.validation:
            name = each.task.name
            held[name], cut_validation[name] = _encode(each.task, each.validation, reader)
    batches = Batches(
        {task: forms for task, (forms, _) in encoded.items()},
        {task: golds for task, (_, golds) in encoded.items()},
        size=recipe.batch,
        epochs=recipe.epochs,
        seed=recipe.seed,
        sampling=recipe.sampling,
        processes=arguments.world_size,
    )
    updates = batches.per_epoch
    arguments.eval_steps = arguments.save_steps = arguments.logging_steps = updates
    arguments.warmup_steps = round(recipe.warmup * updates * recipe.epochs)
    products = {}
    if arguments.device.type == "cpu" and not recipe.bf16:
        products = train_as_begun(heads.models, folder)
    pad = int(tokenizer.pad_token_id or 0)
    course = Course(recipe)
    trainer = PairTrainer(heads, arguments, batches, held, pad, [course])
    with disk_errors(folder), progress_shown(trainer):
        trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
        PartialState().wait_for_everyone()  # all have read the best checkpoint
        history = trainer.state.log_history
        best = _best(history, recipe.stop_on)
        if trainer.is_world_process_zero():
            indicators = {each.task.name: each.task.indicators for each in sources}
            heads.save(folder, tokenizer, indicators)
            write_record(
                folder,
                asked,
                finished=True,
                history=history,
                validation={task: float(best[f"eval_{task}_accuracy"]) for task in held},
                epochs=trainer.state.global_step // updates,
                seconds=course.seconds,
                cut=cut,
                cut_validation=cut_validation,
                products=products,
            )
            remove_checkpoints(folder)
        PartialState().wait_for_everyone()
    return _finished(folder, validated)


def _finished(folder: Path, tasks: Sequence[str]) -> Finetuned:
    """What a training recorded, which has the validation of these tasks."""
    done = read_record(folder)
    problem = fault(done, {}, ("validation", "epochs", "seconds"))
    problem = problem or fault(done["validation"], {}, tasks, "validation.")
    refuse_fault(folder / FILE, problem)
    names = ("validation", "epochs", "seconds", "cut", "cut_validation")
    return Finetuned(folder, *(done.get(name, {}) for name in names))


def check(sources: Sequence[Source], recipe: Recipe) -> None:
    """Refuse what cannot be trained, or whose result would mean nothing."""
    names = [each.task.name for each in sources]
    if len(set(names)) != len(names):
        raise ConsilienceError(f"a task stands twice among {', '.join(names)}")
    if sources[0].validation is None:
        raise ConsilienceError(
            f"no validation pairs of {names[0]}",
            expected="some, which choose the best checkpoint",
            todo="Give them with --validation.",
        )
    for each in sources:
        refuse_one_class(each.train, f"the training pairs of {each.task.name}")
    for name, value, fits, expected in (
        ("a learning rate", recipe.learning_rate, 0 < recipe.learning_rate < math.inf, "above 0"),
        ("a warm-up", recipe.warmup, 0 <= recipe.warmup <= 1, "a share from 0 to 1"),
        ("a weight decay", recipe.weight_decay, 0 <= recipe.weight_decay < math.inf, "from 0 on"),
        ("a batch", recipe.batch, recipe.batch >= 1, "one pair or more"),
        ("epochs", recipe.epochs, recipe.epochs >= 1, "one or more"),
        ("a patience", recipe.patience, recipe.patience >= 0, "epochs, or 0 for none"),
        ("a seed", recipe.seed, 0 <= recipe.seed < 2**32, "from 0 to 4294967295"),
    ):
        if not fits:
            raise ConsilienceError(f"{name} of {value}", expected=expected)


def _encode(
    task: Task, pairs: Pairs, reader: PairInput
) -> tuple[tuple[list[Encoded], list[int]], int]:
    """Encoded original forms and label places; and how many were cut to fit."""
    forms = [original(pair, task.indicators) for pair in pairs.items]
    encoded = reader.encode(forms)
    long = [at for at, each in enumerate(encoded) if len(each["input_ids"]) > reader.longest]
    for at in long:
        (encoded[at],) = reader.encode(reader.fit([forms[at]]))
    return (encoded, [task.labels.index(pair.label) for pair in pairs.items]), len(long)


def _seen(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in history if "eval_accuracy" in each]


def _best(history: Sequence[dict[str, Any]], stop_on: StopOn) -> Mapping[str, Any]:
    seen = _seen(history)
    if stop_on == "loss":
        return min(seen, key=lambda each: float(each["eval_loss"]))
    return max(seen, key=lambda each: float(each["eval_accuracy"]))
