"""Fine-tune classifiers of sentence pairs, of one task or of several at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from consilience.choices import Sampling, StopOn
from consilience.errors import ConsilienceError, needs_extra
from consilience.sentence_pairs import Task
from consilience.suites.pairs import Pairs, half_of, read_pairs, sample_pairs
from consilience.suites.tasks import load_task
from consilience.watch import SILENT, Watch
from consilience.workflow.options import (
    Bf16,
    GradientCheckpointing,
    Indicators,
    InputFormat,
    MaxLength,
    Option,
    ReadAt,
    TrainingDevice,
    TrustRemoteCode,
)

if TYPE_CHECKING:
    from consilience.train.classifiers import TaskPairs
    from consilience.train.seeds import SeedTrainings

GRID_BATCHES, GRID_RATES = (32, 64, 128), (5e-4, 1e-5, 5e-6)
"""The batch sizes and learning rates of the paper's grid (CALUM, Appendix A.1)."""

SEED = 0
"""Seed of halves and samples: always the same ones."""


@dataclass(frozen=True, slots=True)
class FinetuneOptions:
    """What is fine-tuned on which pairs, and how; the defaults are CALUM's (Section 4.3)."""

    model: Annotated[
        str,
        Option(
            "An encoder, decoder or sequence-to-sequence model: Hub id, folder, GGUF file, "
            "packaged:minilm, packaged:smollm2.",
            metavar="M",
        ),
    ]
    task: Annotated[str, Option("A task's name, or a TOML file of one.", metavar="T")]
    train: Annotated[str, Option("TSV, CSV, JSON, JSONL or Parquet, or hub:SPLIT.", metavar="F")]
    validation: Annotated[str, Option("Pairs that choose the best checkpoint.", metavar="F")]
    folder: Annotated[Path, Option("Gets the models, as seed-N/TASK.", flag="--out")]
    others: Annotated[
        list[str] | None,
        Option(
            "Train another task too, with its own head: mrpc=TRAIN or mrpc=TRAIN,VALIDATION. "
            "Repeat for more.",
            metavar="T=F",
            flag="--with",
        ),
    ] = None
    seeds: Annotated[
        Sequence[int],
        Option("Seeds of head, order and dropout; train with each.", metavar="N,N"),
    ] = (0, 1, 2, 3, 4)
    jobs: Annotated[int, Option("Number of trainings that run side by side.", min=1)] = 1
    lr: Annotated[
        Sequence[float],
        Option("Highest learning rate; of several the first seed's best is taken.", metavar="R,R"),
    ] = (1e-5,)
    batch: Annotated[
        Sequence[int],
        Option("Pairs in a batch; of several the first seed's best is taken.", metavar="N,N"),
    ] = (64,)
    grid: Annotated[
        bool, Option("Try the paper's grid: batch 32,64,128 and lr 5e-4,1e-5,5e-6.")
    ] = False
    epochs: Annotated[int, Option("Times that each pair is read.", min=1)] = 10
    weight_decay: Annotated[float, Option("Weight decay of AdamW.", min=0)] = 1e-3
    warmup: Annotated[
        float, Option("Share of the updates in which the learning rate rises.", min=0, max=1)
    ] = 0.1
    patience: Annotated[
        int, Option("Epochs without a better validation before stopping; 0: none.", min=0)
    ] = 3
    stop_on: Annotated[StopOn, Option("What chooses the best checkpoint.")] = "accuracy"
    sampling: Annotated[Sampling, Option("Batches of each task in an epoch (docs/calum.md).")] = (
        "proportional"
    )
    joined: InputFormat = None
    pool: ReadAt = None
    longest: MaxLength = None
    indicators: Indicators = None
    limit: Annotated[int | None, Option("At most this many training pairs of a task.", min=1)] = (
        None
    )
    half: Annotated[
        int | None,
        Option("Only this half of --validation; the other is for a test.", min=1, max=2),
    ] = None
    bf16: Bf16 = False
    gradient_checkpointing: GradientCheckpointing = False
    device: TrainingDevice = "auto"
    trust_remote_code: TrustRemoteCode = False


@dataclass(frozen=True, slots=True)
class Finetuning:
    """The classifiers of one model."""

    task: str
    """The main task."""
    trainings: SeedTrainings
    """The training with each seed, and what was tried to choose the plan."""
    notes: Sequence[str]
    """What a reader should know of the pairs."""


def finetune(options: FinetuneOptions, watch: Watch = SILENT) -> Finetuning | None:
    """Train with each seed; None in every process but the first (``accelerate launch``)."""
    with needs_extra("train"):
        from consilience.train.classifiers import Backbone, ClassifierPlan, TaskPairs
        from consilience.train.seeds import grid_of, reading_of, train_seeds
    task = load_task(options.task, options.indicators)
    validation = read_pairs(options.validation, task)
    if options.half is not None:
        validation = half_of(validation, options.half, SEED)
    train = _read_sample(options.train, task, options.limit)
    others = [_source_of(spec, options.limit) for spec in options.others or ()]
    sources = [TaskPairs(task, train, validation), *others]
    rates = GRID_RATES if options.grid else options.lr
    batches = GRID_BATCHES if options.grid else options.batch
    values: dict[str, Any] = {
        "learning_rate": rates[0],
        "batch": batches[0],
        "seed": options.seeds[0],
    }
    values |= {
        field.name: getattr(options, field.name)
        for field in fields(ClassifierPlan)
        if field.name not in values
    }
    plan = ClassifierPlan(**values)
    is_first = not int(os.environ.get("RANK", "0"))
    with watch.loading(options.model):
        reading = reading_of(
            options.model,
            options.joined,
            options.pool,
            options.longest or 0,
            options.trust_remote_code,
        )
        trainings = train_seeds(
            Backbone(options.model, reading, options.device, options.trust_remote_code),
            sources,
            grid_of(plan, batches, rates),
            options.folder,
            options.seeds,
            options.jobs,
            watch if is_first else SILENT,
        )
    return Finetuning(task.name, trainings, _notes(trainings, sources)) if is_first else None


def _read_sample(file: str, task: Task, limit: int | None) -> Pairs:
    pairs = read_pairs(file, task)
    return pairs if limit is None else sample_pairs(pairs, limit, SEED)


def _source_of(spec: str, limit: int | None) -> TaskPairs:
    """Another task and its pairs, from ``TASK=TRAIN`` or ``TASK=TRAIN,VALIDATION``."""
    from consilience.train.classifiers import TaskPairs

    name, equals, files = spec.partition("=")
    train, comma, validation = files.partition(",")
    if not equals or not train or (comma and not validation):
        raise ConsilienceError(f"--with {spec}", expected="mrpc=TRAIN or mrpc=TRAIN,VALIDATION")
    task = load_task(name)
    held_out = read_pairs(validation, task) if validation else None
    return TaskPairs(task, _read_sample(train, task, limit), held_out)


def _notes(trainings: SeedTrainings, sources: Sequence[TaskPairs]) -> list[str]:
    """The notes of the pairs, and how many of them were truncated."""
    notes = [
        note
        for source in sources
        for pairs in (source.train, source.validation)
        if pairs
        for note in pairs.notes
    ]
    first = next(iter(trainings.seeds.values()))
    for name, truncated in (
        ("training", first.truncated),
        ("validation", first.truncated_validation),
    ):
        for source in sources:
            pairs = source.train if name == "training" else source.validation
            if pairs and (count := truncated.get(source.task.name)):
                notes.append(
                    f"{count} of {len(pairs.items)} {name} pairs of {source.task.name} were too "
                    "long and were truncated"
                )
    return notes
