"""Training classifiers of sentence pairs: the command ``finetune``.

A form of a pair is one or two texts with an indicator before each sentence (CALUM, Section 4.3).
Several tasks share one body, and each has a head (Section 6.1; Liu et al. 2019, MT-DNN).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors.torch
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, TrainerCallback, set_seed

from consilience.core.errors import SILENT, ConsilienceError, Loading, Progress
from consilience.core.items import Floats, Ints, Task
from consilience.core.text import counted
from consilience.models.batches import Budget, score_batches
from consilience.models.classifier import Encoded, PairFormat, PairInput, collate, logits_of, read
from consilience.models.loading import load_classifier, locate
from consilience.options.commands import FinetuneOptions
from consilience.report.table import Output
from consilience.suites.pairs import (
    Pairs,
    load_task,
    original,
    read_pairs,
    refuse_one_class,
    sample_pairs,
)
from consilience.train import (
    BatchTrainer,
    TrainingFolder,
    refuse_device,
    trained,
)

WEIGHT_DECAY, WARMUP = 0.001, 0.1
"""That of AdamW, and the share of the updates in which the learning rate rises."""

SORTED_TOGETHER = 50
"""Batches whose pairs are sorted by length together, so that they need little padding."""

SETTINGS = (
    "model", "learning_rate", "batch_size", "epochs", "patience", "max_length", "bf16",
    "trust_remote_code",
)  # fmt: skip
"""The options that decide the weights of a training, beside its seed and its pairs."""

SEED = 0  # Of samples of pairs: the same ones for every training


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """The pairs of one task; those of the main task's validation choose the best checkpoint."""

    task: Task
    train: Pairs
    validation: Pairs | None = None


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """The original forms of pairs as tokens, and positions of labels; notes on the pairs."""

    forms: Sequence[Encoded]
    labels: Sequence[int]
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, task: Task, pairs: Pairs, reader: PairInput, longest: int) -> EncodedPairs:
        """Pairs whose form has more than ``longest`` tokens are left out; not all may be."""
        encoded = reader.encode([original(pair, task.indicators) for pair in pairs.items])
        labels = [task.labels.index(pair.label) for pair in pairs.items]
        both = zip(encoded, labels, strict=True)
        kept = [(form, label) for form, label in both if len(form["input_ids"]) <= longest]
        if not kept:
            found = f"all {len(encoded)} pairs of {task.name} have more than {longest} tokens"
            raise ConsilienceError(found, todo="Allow more: --max-length.")
        forms, labels = (list(one) for one in zip(*kept, strict=True))
        left_out = len(encoded) - len(kept)
        note = f"{left_out} of {len(encoded)} pairs of {task.name} were too long and were left out"
        return cls(forms, labels, [*pairs.notes, *[note] * (left_out > 0)])

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each form."""
        return [len(form["input_ids"]) for form in self.forms]


class PairBatches(Dataset[dict[str, Any]]):
    """Every batch of a training in order, each of one task; the seed decides the order."""

    def __init__(
        self, pairs: Mapping[str, EncodedPairs], *, size: int, epochs: int, seed: int, pad: int = 0
    ) -> None:
        """``pairs``: those of each task. ``size``: pairs in a batch. ``pad``: a token's id."""
        self.pairs, self.pad, self.per_epoch = pairs, pad, 0
        generator = random.Random(seed)
        self.order: list[tuple[str, list[int]]] = []
        for _ in range(epochs):
            epoch = [
                (task, rows)
                for task, encoded in pairs.items()
                for rows in batches_of(encoded.lengths, size, generator)
            ]
            generator.shuffle(epoch)
            self.per_epoch = len(epoch)
            self.order += epoch

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, at: int) -> dict[str, Any]:
        task, rows = self.order[at]
        pairs = self.pairs[task]
        return {
            "task": task,
            "labels": torch.tensor([pairs.labels[row] for row in rows]),
            **collate([pairs.forms[row] for row in rows], self.pad),
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
    """Models that share their body, ``base_model``; the rest of each is its head."""

    _keys_to_ignore_on_save = None  # Read by the Trainer where a weight has two names

    def __init__(self, models: Mapping[str, PreTrainedModel], reading: PairFormat) -> None:
        """``models``: a complete model for each task; all have one body."""
        super().__init__()
        first = next(iter(models.values()))
        prefix, self.body = first.base_model_prefix, first.base_model
        self.heads = torch.nn.ModuleList(  # a task may have a name that a module cannot have
            torch.nn.ModuleDict(
                {name: part for name, part in model.named_children() if name != prefix}
            )
            for model in models.values()
        )
        self.models = dict(models)  # a plain dict: what is in it is registered above
        self.reading = reading

    def forward(self, task: str, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (form, label) of the task."""
        return logits_of(self.models[task], inputs)


def load_heads(options: FinetuneOptions, labels: Mapping[str, Sequence[str]]) -> tuple[Heads, Any]:
    """The model with a new head for each task, by its labels, and its tokenizer.

    A tokenizer without padding pads with its end token, which the attention mask tells from text.
    """
    models: dict[str, PreTrainedModel] = {}
    loading = Loading("cpu", trust_remote_code=options.trust_remote_code)
    for task, names in labels.items():
        loaded = load_classifier(options.model, loading, new_head=names)
        model, tokenizer = loaded.model, loaded.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        if models:  # frees the memory of this body before the next one is loaded
            setattr(model, model.base_model_prefix, next(iter(models.values())).base_model)
        models[task] = model
    return Heads(models, PairFormat.of(loaded.kind)), tokenizer


class PairTrainer(BatchTrainer):
    """Trains with the cross-entropy of one task's batch after the other."""

    def __init__(
        self, options: FinetuneOptions, sources: Sequence[TaskPairs], folder: Path
    ) -> None:
        seed, main = options.seed, sources[0]
        set_seed(seed)
        self.tasks = {source.task.name: source.task for source in sources}
        labels = {name: task.labels for name, task in self.tasks.items()}
        self.heads, self.tokenizer = load_heads(options, labels)
        first = next(iter(self.heads.models.values()))
        reader = PairInput(first, self.tokenizer, self.heads.reading)
        longest = min(options.max_length or reader.longest, reader.longest)
        training = {
            one.task.name: EncodedPairs.of(one.task, one.train, reader, longest) for one in sources
        }
        validation = main.validation or Pairs(())
        self.validation = EncodedPairs.of(main.task, validation, reader, longest)
        encoded = (*training.values(), self.validation)
        self.notes = [note for pairs in encoded for note in pairs.notes]
        self.batches = PairBatches(
            training, size=options.batch_size, epochs=options.epochs, seed=seed,
            pad=int(self.tokenizer.pad_token_id or 0),
        )  # fmt: skip
        interval = self.batches.per_epoch
        super().__init__(
            self.heads, self.batches, options, folder, interval=interval,
            metric_for_best_model="eval_accuracy", weight_decay=WEIGHT_DECAY,
            warmup_steps=round(WARMUP * interval * options.epochs),
        )  # fmt: skip
        self.add_callback(Patience(options.patience))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """A checkpoint has every weight once: T5's two stacks read with one embedding."""
        if self.args.should_save:
            path = Path(output_dir or str(self.args.output_dir))
            path.mkdir(exist_ok=True)
            safetensors.torch.save_model(self.heads, str(path / "model.safetensors"))

    def save(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """``TASK`` in the folder of the training is the model with the head of a task."""
        for name, model in self.heads.models.items():
            place = Path(str(self.args.output_dir)) / name
            model.save_pretrained(place)
            self.tokenizer.save_pretrained(place)
            replace(self.heads.reading, indicators=self.tasks[name].indicators).save(place)
        return {
            "validation": {next(iter(self.tasks)): float(best["accuracy"])},
            "epochs": self.state.global_step // self.batches.per_epoch,
            "notes": self.notes,
        }

    def loss_of(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        read = {name: of for name, of in inputs.items() if name != "labels"}
        return torch.nn.functional.cross_entropy(model(**read).float(), inputs["labels"])

    def validate(self) -> dict[str, float]:
        """Accuracy and mean cross-entropy of the main task, in batches of pairs of one length."""
        self.heads.eval()  # the Trainer begins each step with train()
        model, pairs = next(iter(self.heads.models.values())), self.validation
        labels, right, loss = torch.tensor(pairs.labels), 0, 0.0

        def score_batch(rows: Ints) -> Floats:
            logits = read([pairs.forms[row] for row in rows], model)
            return np.asarray(logits.double().cpu().numpy())

        for rows, logits in score_batches(
            score_batch, pairs.lengths, Budget.of(model), model.device
        ):
            gold, scores = labels[rows], torch.from_numpy(logits)
            right += int((scores.argmax(dim=1) == gold).sum())
            loss += float(torch.nn.functional.cross_entropy(scores, gold, reduction="sum"))
        return {"accuracy": right / len(labels), "loss": loss / len(labels)}


@dataclass
class Patience(TrainerCallback):
    """Stops after so many epochs without a better validation; a resumed training does so, too."""

    epochs: int

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        known = [log["eval_accuracy"] for log in state.log_history if "eval_accuracy" in log]
        if self.epochs and known:
            control.should_training_stop = len(known) - 1 - known.index(max(known)) >= self.epochs

    on_train_begin = on_evaluate


def train_classifier(
    options: FinetuneOptions,
    sources: Sequence[TaskPairs],
    folder: Path,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fine-tune on the original form of all sources, resume that, or take its result.

    The first source is the main task. ``folder`` gets checkpoints until the training is finished,
    then ``TASK``, the model with the head of a task and the best weights. The record has the
    accuracy of the main task (``validation``), the ``epochs``, and ``notes`` on the pairs.
    """
    refuse_device(options)
    for source in sources:
        refuse_one_class(source.train, f"the training pairs of {source.task.name}")
    loading = Loading(trust_remote_code=options.trust_remote_code)
    settings = {name: getattr(options, name) for name in SETTINGS} | {
        "seed": options.seed,
        "weights": locate(options.model, loading).digest,
        "tasks": [
            [one.task.name, one.task.labels, one.task.indicators, one.train.digest]
            for one in sources
        ],
        "validation": [one.validation and one.validation.digest for one in sources],
    }
    made = partial(PairTrainer, options, sources, folder)
    return trained(TrainingFolder(folder, settings), made, progress)


def finetune(options: FinetuneOptions, progress: Progress = SILENT) -> Output:
    """Train: the accuracy of the best checkpoint, and how the model is used."""
    locate(options.model)  # an impossible name raises
    sources, folder = _sources(options), options.out / f"seed-{options.seed}"
    task = sources[0].task.name
    with progress.loading(options.model):
        progress.say(f"training {task}, {folder.name}")
        made = train_classifier(options, sources, folder, progress)
    accuracy, model = made["validation"][task], folder / task
    row = {"seed": options.seed, "accuracy": accuracy, "epochs": made["epochs"]}
    shown = [
        f"Validation accuracy of the best checkpoint: {100 * accuracy:.1f} %",
        f"Model (seed {options.seed}, {counted(made['epochs'], 'epoch')}): {model}",
        "Load it:",
        "  from transformers import pipeline",
        f'  model = pipeline("text-classification", model="{model}")',
        "Measure its consistency on pairs that it has not seen:",
        f"  consilience probe --model {model} --suite {options.task} --data FILE",
    ]
    facts = {"base": options.model, "task": task, "model": str(model)}
    return Output({"training": pl.DataFrame([row])}, shown, (), made["notes"], facts)


def _sources(options: FinetuneOptions) -> list[TaskPairs]:
    """The pairs of the main task, then of those that ``--with-task`` names."""

    def read(file: str, task: Task) -> Pairs:
        pairs = read_pairs(file, task)
        return pairs if options.limit is None else sample_pairs(pairs, options.limit, SEED)

    task = load_task(options.task)
    validation = read_pairs(options.validation, task)
    sources = [TaskPairs(task, read(options.train, task), validation)]
    for spec in options.with_task or ():
        name, _, file = spec.partition("=")
        task = load_task(name)
        sources.append(TaskPairs(task, read(file, task)))
    names = [source.task.name for source in sources]
    if len(set(names)) != len(names):
        raise ConsilienceError(f"duplicate task among {', '.join(names)}")
    return sources
