"""Training classifiers of sentence pairs, with several seeds: the command ``finetune``."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.state import PartialState
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, set_seed

from consilience.core.errors import (
    SILENT,
    ConsilienceError,
    Joined,
    Loading,
    Pool,
    Watch,
)
from consilience.core.items import Floats, Ints, Task
from consilience.models.batches import Budget, score_batches
from consilience.models.classifier import (
    Encoded,
    PairFormat,
    PairInput,
    collate,
    logits_of,
    read,
)
from consilience.models.loading import kind_of, load_classifier
from consilience.models.sources import locate
from consilience.options import shared_fields
from consilience.options.training import FinetuneOptions
from consilience.suites.pairs import (
    Pairs,
    load_task,
    original,
    read_pairs,
    refuse_one_class,
    sample_pairs,
)
from consilience.train.batch_trainer import (
    BatchTrainer,
    TrainingFolder,
    check_device,
    quiet_transformers,
    trained,
    training_arguments,
    uses_cpu,
)
from consilience.train.improvement import (
    Finetuned,
    Finetuning,
)
from consilience.train.plan import ClassifierPlan

WEIGHT_DECAY, WARMUP = 0.001, 0.1
"""That of AdamW, and the share of the updates in which the learning rate rises."""

SORTED_TOGETHER = 50
"""Batches whose pairs are sorted by length together, so that they need little padding."""


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """The original forms of pairs as tokens, and positions of labels; so many were too long."""

    forms: Sequence[Encoded]
    labels: Sequence[int]
    truncated: int = 0


class PairBatches(Dataset[dict[str, Any]]):
    """Every batch of a training in order, each of one task; the seed decides the order.

    ``processes`` share each batch: item i is the part i % processes of batch i // processes, and
    ``weight`` makes the mean over the parts' losses that of the batch.
    """

    def __init__(
        self,
        pairs: Mapping[str, EncodedPairs],
        *,
        size: int,
        epochs: int,
        seed: int,
        processes: int = 1,
    ) -> None:
        """``pairs``: those of each task; the first is the main task, which is read as a whole."""
        self.pairs, self.processes, self.per_epoch = pairs, processes, 0
        generator = random.Random(seed)
        self.order: list[tuple[str, list[int]]] = []
        unread: dict[str, list[list[int]]] = {task: [] for task in pairs}
        for _ in range(epochs):
            epoch: list[tuple[str, list[int]]] = []
            for task, encoded in pairs.items():
                count = math.ceil(len(encoded.forms) / size)
                while len(unread[task]) < count:
                    lengths = [len(form["input_ids"]) for form in encoded.forms]
                    unread[task] += batches_of(lengths, size, generator)
                epoch += [(task, rows) for rows in unread[task][:count]]
                del unread[task][:count]
            generator.shuffle(epoch)
            self.per_epoch = len(epoch)
            self.order += epoch

    def __len__(self) -> int:
        return len(self.order) * self.processes

    def __getitem__(self, at: int) -> dict[str, Any]:
        task, rows = self.order[at // self.processes]
        part = rows[at % self.processes :: self.processes]
        read = part or rows[:1]  # an empty part reads one pair, without weight
        return {
            "task": task,
            "forms": [self.pairs[task].forms[row] for row in read],
            "labels": [self.pairs[task].labels[row] for row in read],
            "weight": len(part) * self.processes / len(rows),
        }


def batches_of(lengths: Sequence[int], size: int, generator: random.Random) -> list[list[int]]:
    """All rows in batches of similar lengths, in random order and with random members."""
    rows = generator.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(rows), SORTED_TOGETHER * size):
        part = sorted(rows[start : start + SORTED_TOGETHER * size], key=lambda row: lengths[row])
        batches += [part[at : at + size] for at in range(0, len(part), size)]
    generator.shuffle(batches)
    return batches


class Heads(torch.nn.Module):
    """Models of one family that share their body, ``base_model``; the rest of each is its head."""

    def __init__(self, models: Mapping[str, PreTrainedModel], reading: PairFormat) -> None:
        """``models``: a complete model for each task; all get the body of the first."""
        super().__init__()
        first = next(iter(models.values()))
        prefix = first.base_model_prefix
        for model in models.values():
            setattr(model, prefix, first.base_model)
        self.body = first.base_model
        self.heads = torch.nn.ModuleList(  # a task may have a name that a module cannot have
            torch.nn.ModuleDict(
                {name: part for name, part in model.named_children() if name != prefix}
            )
            for model in models.values()
        )
        self.models = dict(models)  # a plain dict: what is in it is registered above
        self.reading = reading
        names: dict[int, str] = {}  # weights may have several; checkpoints hold them once
        self.aliases = {
            name
            for name, weight in super().state_dict(keep_vars=True).items()
            if names.setdefault(id(weight), name) != name
        }

    def forward(self, task: str, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (form, label) of the task."""
        return logits_of(self.models[task], self.reading.pool, inputs)

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Every weight once."""
        weights: dict[str, Any] = super().state_dict(*arguments, **options)
        return {name: weight for name, weight in weights.items() if name not in self.aliases}

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        known = set(self.state_dict())
        if known != set(state_dict):
            raise RuntimeError(f"weights of another model: {sorted(known ^ set(state_dict))[:3]}")
        result = super().load_state_dict(state_dict, strict=False)
        result.missing_keys.clear()  # they are loaded under another name
        return result

    def save(
        self,
        folder: Path,
        tokenizer: PreTrainedTokenizerBase,
        indicators: Mapping[str, tuple[str, str]],
    ) -> None:
        """Save ``folder/TASK`` for each task, with its indicators."""
        for task, model in self.models.items():
            model.save_pretrained(folder / task)
            tokenizer.save_pretrained(folder / task)
            replace(self.reading, indicators=indicators[task]).save(folder / task)


def load_heads(
    spec: str,
    labels: Mapping[str, Sequence[str]],
    reading: PairFormat | None,
    loading: Loading | None = None,
) -> Any:
    """The model with a new head for each task, by its labels, and its tokenizer.

    A tokenizer without padding pads with its end token, which the attention mask tells from text.
    """
    models: dict[str, PreTrainedModel] = {}
    for task, names in labels.items():
        loaded = load_classifier(spec, loading or Loading("cpu"), new_head=names)
        model, tokenizer = loaded.model, loaded.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        if models:  # frees the memory of this body before the next one is loaded
            setattr(model, model.base_model_prefix, next(iter(models.values())).base_model)
        models[task] = model
    return Heads(models, reading or PairFormat.of(loaded.kind)), tokenizer


@dataclass(frozen=True, slots=True)
class Backbone:
    """The pretrained model that is fine-tuned: hub id, folder, GGUF file or packaged model.

    ``reading``: how it reads a pair; None for the usual way of its family.
    """

    model: str
    reading: PairFormat | None = None
    device: str = "auto"
    trust_remote_code: bool = False

    @property
    def loading(self) -> Loading:
        """How the model is loaded, before it moves to the device of the training."""
        return Loading("cpu", trust_remote_code=self.trust_remote_code)


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """The pairs of one task; those of validation choose the best checkpoint."""

    task: Task
    train: Pairs
    validation: Pairs | None


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
    check_sources(sources)
    check_device(backbone.device)
    tasks = [
        [source.task.name, source.task.labels, source.task.indicators, source.train.digest]
        for source in sources
    ]
    settings = {
        "model": backbone.model,
        "weights": locate(backbone.model, backbone.loading).digest,
        "tasks": tasks,
        "validation": [one.validation.digest if one.validation else None for one in sources],
        "plan": asdict(plan),
        "reading": asdict(backbone.reading) if backbone.reading else None,
    } | ({"trust_remote_code": True} if backbone.trust_remote_code else {})
    PartialState(cpu=uses_cpu(backbone.device))
    folder = TrainingFolder(path, settings)
    validated = [source.task.name for source in sources if source.validation]
    make = partial(PairTrainer, backbone, sources, plan, folder)
    record = trained(folder, make, ("epochs", "seconds"), validated, watch)
    names = ("validation", "epochs", "seconds", "truncated", "truncated_validation")
    return Finetuned(path, *(record.get(name, {}) for name in names))


def check_sources(sources: Sequence[TaskPairs]) -> None:
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
        backbone: Backbone,
        sources: Sequence[TaskPairs],
        plan: ClassifierPlan,
        folder: TrainingFolder,
    ) -> None:
        arguments = training_arguments(
            plan, folder.path, backbone.device, best_metric="accuracy",
            weight_decay=WEIGHT_DECAY, ddp_find_unused_parameters=True,
        )  # fmt: skip
        set_seed(plan.seed)
        self.folder, self.plan = folder, plan
        self.tasks = {source.task.name: source.task for source in sources}
        labels = {name: task.labels for name, task in self.tasks.items()}
        heads, self.tokenizer = load_heads(
            backbone.model, labels, backbone.reading, backbone.loading
        )
        reader = PairInput(next(iter(heads.models.values())), self.tokenizer, heads.reading)
        self.training = {one.task.name: encode(one.task, one.train, reader) for one in sources}
        self.validation = {
            one.task.name: encode(one.task, one.validation, reader)
            for one in sources
            if one.validation
        }
        """The pairs of each task that has some, the main task first."""
        self.batches = PairBatches(
            self.training, size=plan.batch, epochs=plan.epochs, seed=plan.seed,
            processes=arguments.world_size,
        )  # fmt: skip
        interval = self.batches.per_epoch
        arguments.eval_steps = arguments.save_steps = arguments.logging_steps = interval
        arguments.warmup_steps = round(WARMUP * interval * plan.epochs)
        self.heads, self.history = heads, History(plan)
        pad = int(self.tokenizer.pad_token_id or 0)

        def tensors(item: dict[str, Any]) -> dict[str, Any]:
            labels = torch.tensor(item["labels"])
            inputs = collate(item["forms"], pad)
            return {"task": item["task"], "labels": labels, "weight": item["weight"], **inputs}

        super().__init__(heads, arguments, self.batches, tensors, [self.history])

    def save(self) -> dict[str, Any]:
        indicators = {name: task.indicators for name, task in self.tasks.items()}
        self.heads.save(self.folder.path, self.tokenizer, indicators)
        best = best_of(self.state.log_history)
        return {
            "validation": {name: float(best[f"eval_{name}_accuracy"]) for name in self.validation},
            "epochs": self.state.global_step // self.batches.per_epoch,
            "seconds": self.history.seconds,
            "truncated": {name: pairs.truncated for name, pairs in self.training.items()},
            "truncated_validation": {
                name: pairs.truncated for name, pairs in self.validation.items()
            },
        }

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: dict[str, Any], **_: Any
    ) -> Any:
        """Mean cross-entropy of a batch, or of the part of it that this process reads."""
        inputs = dict(inputs)
        labels, weight = inputs.pop("labels"), inputs.pop("weight")
        logits = model(**inputs)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels) * weight
        self.check_finite(
            loss, f"the loss of {inputs['task']}", "Lower --learning-rate, or use float32."
        )
        return loss

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
        labels, lengths = torch.tensor(pairs.labels), [len(one["input_ids"]) for one in pairs.forms]
        right, loss = 0, 0.0

        def score_batch(rows: Ints) -> Floats:
            logits = read([pairs.forms[row] for row in rows], model, reading)
            return np.asarray(logits.double().cpu().numpy())

        for rows, logits in score_batches(score_batch, lengths, Budget.of(model), model.device):
            gold, scores = labels[rows], torch.from_numpy(logits)
            right += int((scores.argmax(dim=1) == gold).sum())
            loss += float(torch.nn.functional.cross_entropy(scores, gold, reduction="sum"))
        return right / len(labels), loss / len(labels)


class History(TrainerCallback):
    """Knows from the history when to stop; a resumed training does so at the same time.

    ``seconds``: time since the start, with that of an interrupted training that is resumed.
    """

    def __init__(self, plan: ClassifierPlan) -> None:
        self.plan = plan
        self.start = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.start, 1)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop if it was time to stop already."""
        if history := _validations(state.log_history):
            self.start = time.monotonic() - history[-1]["seconds"]
            self._stop(history, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        history = _validations(state.log_history)
        history[-1]["seconds"] = self.seconds
        self._stop(history, control)

    def _stop(self, history: Sequence[dict[str, Any]], control: Any) -> None:
        if self.plan.patience:
            best = history.index(best_of(history))
            control.should_training_stop = len(history) - best - 1 >= self.plan.patience


def _validations(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [log for log in history if "eval_accuracy" in log]


def best_of(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The best validation in a history; of equal ones the first."""
    return max(_validations(history), key=lambda log: float(log["eval_accuracy"]))


def reading_of(
    model: str, loading: Loading, joined: Joined | None, pool: Pool | None, longest: int
) -> PairFormat | None:
    """How a model reads pairs; what is None or 0 is as usual in its family, None if all is."""
    if not (joined or pool or longest):
        return None
    usual = PairFormat.of(kind_of(model, loading))
    return PairFormat(joined or usual.joined, pool or usual.pool, longest)


def train_seeds(
    backbone: Backbone,
    sources: Sequence[TaskPairs],
    plan: ClassifierPlan,
    folder: Path,
    seeds: Sequence[int],
    watch: Watch = SILENT,
) -> dict[int, Finetuned]:
    """The training with each seed."""
    done = {}
    for seed in seeds:
        path = folder / f"seed-{seed}"
        watch.say(f"training {sources[0].task.name}, {path.name}")
        done[seed] = train_classifier(backbone, sources, replace(plan, seed=seed), path, watch)
    return done


SEED = 0  # Seed of samples, the same for every training, the same for every training


def finetune(options: FinetuneOptions, watch: Watch = SILENT) -> Finetuning | None:
    """Train with each seed; None in every process but the first (``accelerate launch``)."""
    locate(options.model)  # an impossible name raises
    sources = _sources(options)
    settings, seeds = shared_fields(options, ClassifierPlan), tuple(dict.fromkeys(options.seeds))
    plan = ClassifierPlan(**{**settings, "batch": options.batch_size, "seed": seeds[0]})
    task = sources[0].task
    is_first = not int(os.environ.get("RANK", "0"))
    if not is_first:
        watch = SILENT
    with watch.loading(options.model):
        loading = Loading(trust_remote_code=options.trust_remote_code)
        longest = options.max_length or 0
        reading = reading_of(options.model, loading, options.input, options.pool, longest)
        backbone = Backbone(options.model, reading, options.device, options.trust_remote_code)
        trainings = train_seeds(backbone, sources, plan, options.out, seeds, watch)
    notes = _notes(trainings, sources)
    return Finetuning(task.name, trainings, notes, options) if is_first else None


def _sources(options: FinetuneOptions) -> list[TaskPairs]:
    def read(file: str, task: Task) -> Pairs:
        pairs = read_pairs(file, task)
        return pairs if options.limit is None else sample_pairs(pairs, options.limit, SEED)

    task = load_task(options.task, options.indicators)
    validation = read_pairs(options.validation, task)
    sources = [TaskPairs(task, read(options.train, task), validation)]
    for spec in options.with_task or ():
        name, equals, files = spec.partition("=")
        train, comma, held_out = files.partition(",")
        if not equals or not train or (comma and not held_out):
            raise ConsilienceError(
                f"--with-task {spec}", expected="mrpc=TRAIN or mrpc=TRAIN,VALIDATION"
            )
        task = load_task(name)
        others = read_pairs(held_out, task) if held_out else None
        sources.append(TaskPairs(task, read(train, task), others))
    return sources


def _notes(trainings: Mapping[int, Finetuned], sources: Sequence[TaskPairs]) -> list[str]:
    first = next(iter(trainings.values()))
    notes = [
        note
        for source in sources
        for pairs in (source.train, source.validation)
        if pairs
        for note in pairs.notes
    ]
    for kind, counts in (("training", first.truncated), ("validation", first.truncated_validation)):
        for source in sources:
            pairs = source.train if kind == "training" else source.validation
            if pairs and (count := counts.get(source.task.name)):
                notes.append(
                    f"{count} of {len(pairs.items)} {kind} pairs of {source.task.name} were too "
                    "long and were truncated"
                )
    return notes
