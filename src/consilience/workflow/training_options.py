"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.core.errors import Loss, Sampling, StopOn, TrainingText
from consilience.workflow.options import (
    MODEL,
    OUTPUT,
    QUESTIONS,
    TRAINING,
    Bf16,
    DataDir,
    FactSuiteName,
    GradientCheckpointing,
    Indicators,
    InputFormat,
    MaxLength,
    Option,
    ProtocolName,
    ReadAt,
    TrainingDevice,
    TrustRemoteCode,
)


@dataclass(frozen=True, slots=True)
class ImproveOptions:
    """Train a model to give one answer to all patterns of a fact, and measure the gain.

    The loss is `vote` by default; that of the ParaRel paper is --loss pairs. Trains with each
    weight of the consistency loss, keeps the checkpoint with the best consistent accuracy on the
    validation relations, and compares the model before and after on the held-out relations. Rerun
    the same command to resume an interrupted run.
    """

    model: Annotated[
        str,
        Option(
            "Train this masked or causal model: a Hub id or a folder.",
            metavar="M",
            short="-m",
            panel=MODEL,
        ),
    ]
    suite: FactSuiteName
    train: Annotated[
        Sequence[str],
        Option("Train on these relations.", metavar="G,G", flag="--train-groups", panel=QUESTIONS),
    ] = ()
    validation: Annotated[
        Sequence[str],
        Option(
            "Choose by these relations the checkpoint and the lambda. All other N-1 relations are "
            "held out to measure the model.",
            metavar="G,G",
            flag="--validation-groups",
            panel=QUESTIONS,
        ),
    ] = ()
    folder: Annotated[
        Path | None,
        Option(
            "Write checkpoints, runs and the best model to this folder "
            "[default: a new folder in runs/].",
            metavar="DIR",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    dry_run: Annotated[
        bool, Option("Print the work and an estimate of its time, and train nothing.", panel=OUTPUT)
    ] = False
    loss: Annotated[
        Loss,
        Option(
            "Use this consistency loss. vote: agree with the vote of all patterns. pairs: that of "
            "the ParaRel paper. cosine: also of pairs. released: the code of the ParaRel paper.",
            panel=TRAINING,
        ),
    ] = "vote"
    weights: Annotated[
        Sequence[float] | None,
        Option(
            "Try these weights of the consistency loss [default: 1,3,10 for vote, else 0.1,0.5,1].",
            metavar="W,W",
            flag="--lambda",
            panel=TRAINING,
        ),
    ] = None
    vocabulary: Annotated[
        bool,
        Option(
            "Compare distributions over the whole vocabulary instead of the candidates.",
            flag="--whole-vocabulary",
            panel=TRAINING,
        ),
    ] = False
    text: Annotated[
        TrainingText,
        Option(
            "Train language modelling on the filled patterns, on the file of --text, or on "
            "nothing.",
            flag="--mlm",
            panel=TRAINING,
        ),
    ] = "patterns"
    text_file: Annotated[
        Path | None,
        Option(
            "Read text from this file: lines, or JSON lines with 'text'. The first 500 only "
            "measure perplexity.",
            flag="--text",
            metavar="FILE",
            panel=QUESTIONS,
        ),
    ] = None
    facts: Annotated[
        int,
        Option(
            "Train on at most this many facts of each relation.",
            min=1,
            flag="--train-facts",
            panel=TRAINING,
        ),
    ] = 100
    batch: Annotated[
        int, Option("Put this many facts in a step.", min=1, flag="--batch-size", panel=TRAINING)
    ] = 8
    accumulation: Annotated[
        int,
        Option("Make this many steps of each relation before an update.", min=1, panel=TRAINING),
    ] = 1
    epochs: Annotated[int, Option("Read each fact this many times.", min=1, panel=TRAINING)] = 3
    learning_rate: Annotated[
        float, Option("Use this as the highest learning rate.", min=0, panel=TRAINING)
    ] = 6e-5
    validation_facts: Annotated[
        int,
        Option("Ask at most this many facts of each validation relation.", min=1, panel=QUESTIONS),
    ] = 200
    seeds: Annotated[
        Sequence[int],
        Option(
            "Train and measure with each of these seeds of facts, order and masks.",
            metavar="N,N",
            panel=TRAINING,
        ),
    ] = (42,)
    ablations: Annotated[
        bool,
        Option(
            "Also train without the consistency loss, without candidates and without language "
            "modelling (ParaRel, Table 7).",
            panel=TRAINING,
        ),
    ] = False
    limit: Annotated[
        int | None,
        Option(
            "Ask at most this many facts of each held-out relation.",
            min=1,
            short="-n",
            panel=QUESTIONS,
        ),
    ] = None
    lora_rank: Annotated[
        int,
        Option("Train LoRA adapters of this rank; 0 trains all weights.", min=0, panel=TRAINING),
    ] = 0
    bf16: Bf16 = False
    gradient_checkpointing: GradientCheckpointing = False
    report_to: Annotated[
        str, Option("Report progress to none, tensorboard, wandb or trackio.", panel=OUTPUT)
    ] = "none"
    device: TrainingDevice = "auto"
    trust_remote_code: TrustRemoteCode = False
    protocol: ProtocolName = None
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class FinetuneOptions:
    """Fine-tune a classifier on the original form of sentence pairs (CALUM, Sections 4.3, 6.1).

    The best checkpoint of each seed is saved as --out/seed-N/TASK. Rerun the same command to
    resume an interrupted run.
    """

    model: Annotated[
        str,
        Option(
            "Train this encoder, decoder or sequence-to-sequence model: a Hub id, a folder, a GGUF "
            "file, packaged:minilm or packaged:smollm2.",
            metavar="M",
            short="-m",
            panel=MODEL,
        ),
    ]
    task: Annotated[
        str, Option("Train for this task: a name, or a TOML file.", metavar="T", panel=QUESTIONS)
    ]
    train: Annotated[
        str,
        Option(
            "Read training pairs from here: TSV, CSV, JSON, JSONL or Parquet file, or hub:SPLIT.",
            metavar="F",
            panel=QUESTIONS,
        ),
    ]
    validation: Annotated[
        str, Option("Choose the best checkpoint by these pairs.", metavar="F", panel=QUESTIONS)
    ]
    folder: Annotated[
        Path,
        Option(
            "Write the models to this folder, as seed-N/TASK.",
            metavar="DIR",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ]
    dry_run: Annotated[
        bool, Option("Print the work and an estimate of its time, and train nothing.", panel=OUTPUT)
    ] = False
    others: Annotated[
        Sequence[str] | None,
        Option(
            "Train another task too, with its own head: mrpc=TRAIN or mrpc=TRAIN,VALIDATION.",
            metavar="T=F",
            flag="--with-task",
            panel=QUESTIONS,
            is_repeated=True,
        ),
    ] = None
    seeds: Annotated[
        Sequence[int],
        Option(
            "Train with each of these seeds of head, order and dropout.",
            metavar="N,N",
            panel=TRAINING,
        ),
    ] = (0, 1, 2, 3, 4)
    jobs: Annotated[
        int, Option("Run this many trainings at the same time.", min=1, panel=TRAINING)
    ] = 1
    learning_rate: Annotated[
        Sequence[float],
        Option(
            "Use this as the highest learning rate. Of several, the one with the best validation "
            "of the first seed is used.",
            metavar="R,R",
            panel=TRAINING,
        ),
    ] = (1e-5,)
    batch: Annotated[
        Sequence[int],
        Option(
            "Put this many pairs in a batch. Of several, the one with the best validation of the "
            "first seed is used.",
            metavar="N,N",
            flag="--batch-size",
            panel=TRAINING,
        ),
    ] = (64,)
    grid: Annotated[
        bool,
        Option(
            "Try the CALUM paper's grid: batch sizes 32,64,128 and learning rates 5e-4,1e-5,5e-6.",
            panel=TRAINING,
        ),
    ] = False
    epochs: Annotated[int, Option("Read each pair this many times.", min=1, panel=TRAINING)] = 10
    weight_decay: Annotated[
        float, Option("Set the weight decay of AdamW.", min=0, panel=TRAINING)
    ] = 1e-3
    warmup: Annotated[
        float,
        Option(
            "Set the share of the updates in which the learning rate rises.",
            min=0,
            max=1,
            panel=TRAINING,
        ),
    ] = 0.1
    patience: Annotated[
        int,
        Option(
            "Stop after this many epochs without a better validation; 0 never stops.",
            min=0,
            panel=TRAINING,
        ),
    ] = 3
    stop_on: Annotated[
        StopOn, Option("Choose the best checkpoint by this validation metric.", panel=TRAINING)
    ] = "accuracy"
    sampling: Annotated[
        Sampling,
        Option(
            "Choose how many batches of each task an epoch has (docs/calum.md).", panel=TRAINING
        ),
    ] = "proportional"
    joined: InputFormat = None
    pool: ReadAt = None
    longest: MaxLength = None
    indicators: Indicators = None
    limit: Annotated[
        int | None,
        Option(
            "Train on at most this many pairs of each task.", min=1, short="-n", panel=QUESTIONS
        ),
    ] = None
    half: Annotated[
        int | None,
        Option(
            "Use only this half of --validation; the other half is for a test.",
            min=1,
            max=2,
            panel=TRAINING,
        ),
    ] = None
    bf16: Bf16 = False
    gradient_checkpointing: GradientCheckpointing = False
    device: TrainingDevice = "auto"
    trust_remote_code: TrustRemoteCode = False
