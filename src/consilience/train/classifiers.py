"""Fine-tuning on sentence pairs, one task or several at once (CALUM, Sections 4.3 and 6.1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments, set_seed

from consilience.choices import Loading, Sampling, StopOn
from consilience.errors import ConsilienceError
from consilience.models.batches import Budget
from consilience.models.classifier import collate, predict
from consilience.models.pair_input import PairFormat, PairInput
from consilience.models.sources import locate
from consilience.sentence_pairs import Task
from consilience.suites.pairs import Pairs, refuse_one_class
from consilience.suites.perturbations import original
from consilience.train.batch_trainer import (
    BatchTrainer,
    check_device,
    set_interval,
    training_arguments,
)
from consilience.train.heads import Heads, load_heads
from consilience.train.pair_batches import EncodedPairs, PairBatches
from consilience.train.plan import TrainingPlan, check_values
from consilience.train.progress import quiet_transformers
from consilience.train.resume import TrainingFolder
from consilience.watch import SILENT, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierPlan(TrainingPlan):
    """How to fine-tune. CALUM leaves warm-up, patience, stopping and sampling open."""

    weight_decay: float
    warmup: float
    """Share of the updates in which the learning rate rises."""
    patience: int
    """Epochs without a better validation before training stops; 0 trains to the end."""
    stop_on: StopOn
    """The validation metric that chooses the best checkpoint."""
    sampling: Sampling
    """How many batches each task has in an epoch."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """The pretrained model that is fine-tuned."""

    model: str
    """Hub id, folder, GGUF file or packaged model."""
    reading: PairFormat | None = None
    """How it reads a pair; None for the usual way of its family."""
    device: str = "auto"
    """auto or cpu."""
    trust_remote_code: bool = False
    """Whether the Python code that comes with the model is run."""

    @property
    def loading(self) -> Loading:
        """How the model is loaded, before it moves to the device of the training."""
        return Loading("cpu", trust_remote_code=self.trust_remote_code)


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """The pairs of one task."""

    task: Task
    train: Pairs
    validation: Pairs | None
    """Pairs that choose the best checkpoint; the main task must have some."""


@dataclass(frozen=True, slots=True)
class Finetuned:
    """A finished fine-tuning."""

    folder: Path
    """Its folder; ``folder/TASK`` is the model with the head of a task."""
    validation: Mapping[str, float]
    """Accuracy of each task that has validation pairs, at the best checkpoint."""
    epochs: int
    seconds: float
    truncated: Mapping[str, int]
    """How many training pairs of each task were too long."""
    truncated_validation: Mapping[str, int]
    """How many validation pairs of each task were too long."""


@quiet_transformers()
def train_classifier(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    plan: ClassifierPlan,
    path: Path,
    watch: Watch = SILENT,
) -> Finetuned:
    """Fine-tune on the original form of all sources, resume that, or take its result.

    The first source is the main task. ``path`` gets checkpoints until the training is finished,
    then ``path/TASK`` with the best weights.
    """
    check_sources(sources, plan)
    check_device(backbone.device)
    folder = TrainingFolder(path, _settings(backbone, sources, plan))
    arguments = _arguments(backbone, plan, path)
    with arguments.main_process_first(local=False):
        is_finished = folder.is_finished()
    if not is_finished:
        trainer, save = _make_trainer(backbone, sources, plan, folder, arguments)
        trainer.train_in(folder, save, watch)
    tasks = [source.task.name for source in sources if source.validation]
    record = folder.result(("epochs", "seconds"), tasks)
    names = ("validation", "epochs", "seconds", "truncated", "truncated_validation")
    return Finetuned(path, *(record.get(name, {}) for name in names))


def pair_trainer(
    backbone: Backbone, sources: Sequence[TaskPairs], plan: ClassifierPlan, path: Path
) -> PairTrainer:
    """A trainer before its first step."""
    check_sources(sources, plan)
    check_device(backbone.device)
    arguments = _arguments(backbone, plan, path)
    return _make_trainer(backbone, sources, plan, TrainingFolder(path, {}), arguments)[0]


def check_sources(sources: Sequence[TaskPairs], plan: ClassifierPlan) -> None:
    """Refuse what cannot be trained, or whose result would mean nothing."""
    names = [source.task.name for source in sources]
    if len(set(names)) != len(names):
        raise ConsilienceError(f"duplicate task among {', '.join(names)}")
    if sources[0].validation is None:
        raise ConsilienceError(
            f"no validation pairs of {names[0]}",
            expected="some, which choose the best checkpoint",
            todo="Give them with --validation.",
        )
    for source in sources:
        refuse_one_class(source.train, f"the training pairs of {source.task.name}")
    check_values(plan)


def _settings(
    backbone: Backbone, sources: Sequence[TaskPairs], plan: ClassifierPlan
) -> dict[str, Any]:
    """Everything that decides the weights."""
    digest = locate(backbone.model, backbone.loading).digest
    tasks = [
        [source.task.name, source.task.labels, source.task.indicators, source.train.digest]
        for source in sources
    ]
    held_out = [source.validation.digest if source.validation else None for source in sources]
    return {
        "model": backbone.model,
        "weights": digest,
        "tasks": tasks,
        "validation": held_out,
        "plan": asdict(plan),
        "reading": asdict(backbone.reading) if backbone.reading else None,
    } | ({"trust_remote_code": True} if backbone.trust_remote_code else {})


def _arguments(backbone: Backbone, plan: ClassifierPlan, path: Path) -> TrainingArguments:
    return training_arguments(
        plan,
        path,
        backbone.device,
        best_metric=plan.stop_on,
        greater_is_better=plan.stop_on == "accuracy",
        weight_decay=plan.weight_decay,
        report_to="none",
        ddp_find_unused_parameters=True,
    )


def _make_trainer(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    plan: ClassifierPlan,
    folder: TrainingFolder,
    arguments: TrainingArguments,
) -> tuple[PairTrainer, Callable[[], dict[str, Any]]]:
    """The trainer, and a function that saves its models and returns what is recorded of them."""
    set_seed(plan.seed)
    tasks = {source.task.name: source.task for source in sources}
    labels = {name: task.labels for name, task in tasks.items()}
    heads, tokenizer = load_heads(backbone.model, labels, backbone.reading, backbone.loading)
    if plan.gradient_checkpointing:
        heads.body.activation_checkpointing_enable()
    reader = PairInput(next(iter(heads.models.values())), tokenizer, heads.reading)
    training = {source.task.name: encode(source.task, source.train, reader) for source in sources}
    validation = {
        source.task.name: encode(source.task, source.validation, reader)
        for source in sources
        if source.validation
    }
    batches = PairBatches(
        training,
        size=plan.batch,
        epochs=plan.epochs,
        seed=plan.seed,
        sampling=plan.sampling,
        processes=arguments.world_size,
    )
    set_interval(arguments, batches.per_epoch)
    arguments.warmup_steps = round(plan.warmup * batches.per_epoch * plan.epochs)
    products = {}
    if arguments.device.type == "cpu" and not plan.bf16:
        products = folder.speed_up(heads.models)
    history = History(plan)
    pad = int(tokenizer.pad_token_id or 0)
    trainer = PairTrainer(heads, arguments, batches, validation, pad, history)

    def save() -> dict[str, Any]:
        indicators = {name: task.indicators for name, task in tasks.items()}
        heads.save(folder.path, tokenizer, indicators)
        best = best_of(trainer.state.log_history, plan.stop_on)
        return {
            "validation": {name: float(best[f"eval_{name}_accuracy"]) for name in validation},
            "epochs": trainer.state.global_step // batches.per_epoch,
            "seconds": history.seconds,
            "truncated": {name: pairs.truncated for name, pairs in training.items()},
            "truncated_validation": {name: pairs.truncated for name, pairs in validation.items()},
            "products": products,
        }

    return trainer, save


def encode(task: Task, pairs: Pairs, reader: PairInput) -> EncodedPairs:
    """The original forms of pairs as tokens, truncated where they are too long."""
    forms = [original(pair, task.indicators) for pair in pairs.items]
    encoded = reader.encode(forms)
    long = [at for at, form in enumerate(encoded) if len(form["input_ids"]) > reader.longest]
    for at in long:
        (encoded[at],) = reader.encode(reader.fit([forms[at]]))
    return EncodedPairs(encoded, [task.labels.index(p.label) for p in pairs.items], len(long))


class PairTrainer(BatchTrainer):
    """Trains with the cross-entropy of one task's batch after the other."""

    def __init__(
        self,
        heads: Heads,
        arguments: TrainingArguments,
        batches: PairBatches,
        validation: Mapping[str, EncodedPairs],
        pad: int,
        history: History,
    ) -> None:
        """``validation``: the pairs of each task that has some, the main task first."""

        def tensors(item: dict[str, Any]) -> dict[str, Any]:
            labels = torch.tensor(item["labels"])
            inputs = collate(item["forms"], pad)
            return {"task": item["task"], "labels": labels, "weight": item["weight"], **inputs}

        super().__init__(heads, arguments, batches, tensors, [history])
        self.heads, self.validation = heads, validation

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Mean cross-entropy of a batch, or of the part of it that this process reads."""
        inputs = dict(inputs)
        labels, weight = inputs.pop("labels"), inputs.pop("weight")
        logits = model(**inputs)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels) * weight
        self.check_finite(
            loss, f"the loss of {inputs['task']}", "Lower --learning-rate, or use float32."
        )
        return (loss, logits) if return_outputs else loss

    def validate(self) -> dict[str, float]:
        """Accuracy of every task; of the main task also as ``accuracy``, with its ``loss``."""
        self.heads.eval()
        metrics: dict[str, float] = {}
        for task, pairs in self.validation.items():
            accuracy, loss = self.judge(task, pairs)
            if not metrics:
                metrics |= {"accuracy": accuracy, "loss": loss}
            metrics[f"{task}_accuracy"] = accuracy
        self.heads.train()
        return metrics

    def judge(self, task: str, pairs: EncodedPairs) -> tuple[float, float]:
        """Accuracy and mean cross-entropy, in batches of pairs of one length."""
        model, reading = self.heads.models[task], self.heads.reading
        labels = torch.tensor(pairs.labels)
        right, loss = 0, 0.0
        with torch.inference_mode():
            for rows, logits in predict(model, reading, pairs.forms, Budget.of(model)):
                gold, scores = labels[rows], torch.from_numpy(logits)
                right += int((scores.argmax(dim=1) == gold).sum())
                loss += float(torch.nn.functional.cross_entropy(scores, gold, reduction="sum"))
        return right / len(labels), loss / len(labels)


class History(TrainerCallback):
    """Knows the best checkpoint and when to stop, from the history that checkpoints keep.

    A resumed training therefore stops where an uninterrupted one does, also in a moved folder.
    """

    def __init__(self, plan: ClassifierPlan) -> None:
        self.plan = plan
        self.start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since the start, with that of an interrupted training that is resumed."""
        return round(time.monotonic() - self.start, 1)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Locate the best checkpoint, and stop if it was time to stop already."""
        if state.best_global_step:
            path = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(path)
        if validations := _validations(state.log_history):
            self.start = time.monotonic() - validations[-1]["seconds"]
            self._stop(validations, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop after ``patience`` epochs without a better validation."""
        validations = _validations(state.log_history)
        validations[-1]["seconds"] = self.seconds
        self._stop(validations, control)

    def _stop(self, validations: Sequence[dict[str, Any]], control: Any) -> None:
        if self.plan.patience:
            best = validations.index(best_of(validations, self.plan.stop_on))
            control.should_training_stop = len(validations) - best - 1 >= self.plan.patience


def _validations(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [log for log in history if "eval_accuracy" in log]


def best_of(history: Sequence[dict[str, Any]], stop_on: StopOn) -> dict[str, Any]:
    """The best validation in a history; of equal ones the first."""
    validations = _validations(history)
    if stop_on == "loss":
        return min(validations, key=lambda log: float(log["eval_loss"]))
    return max(validations, key=lambda log: float(log["eval_accuracy"]))
