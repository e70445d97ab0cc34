"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.choices import (
    Loss,
    Sampling,
    StopOn,
    TrainingText,
)
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
    """Settings of a consistency training; the defaults gained most (docs/results/improve.md)."""

    model: Annotated[
        str,
        Option("Masked or causal model: Hub id or folder.", metavar="M", short="-m", panel=MODEL),
    ]
    suite: FactSuiteName
    train: Annotated[
        Sequence[str],
        Option("Relations to train on.", metavar="G,G", flag="--train-groups", panel=QUESTIONS),
    ]
    validation: Annotated[
        Sequence[str],
        Option(
            "Relations that choose the checkpoint and the lambda. All other N-1 relations are "
            "held out to measure the model.",
            metavar="G,G",
            flag="--validation-groups",
            panel=QUESTIONS,
        ),
    ]
    folder: Annotated[
        Path | None,
        Option(
            "Write checkpoints, runs and the best model here [default: a new folder in runs/].",
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
            "Consistency loss. vote: agree with the vote of all patterns. pairs: that of the "
            "ParaRel paper. cosine: of pairs too. released: the ParaRel paper's code.",
            panel=TRAINING,
        ),
    ] = "vote"
    weights: Annotated[
        Sequence[float] | None,
        Option(
            "Weights of the consistency loss to try [default: 1,3,10 for vote, else 0.1,0.5,1].",
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
            "Text of language modelling: the filled patterns, the file of --text, or none.",
            flag="--mlm",
            panel=TRAINING,
        ),
    ] = "patterns"
    text_file: Annotated[
        Path | None,
        Option(
            "Lines of text, or JSON lines with 'text'. The first 500 only measure perplexity.",
            flag="--text",
            panel=QUESTIONS,
        ),
    ] = None
    facts: Annotated[
        int,
        Option(
            "Facts of each training relation, at most.",
            min=1,
            flag="--train-facts",
            panel=TRAINING,
        ),
    ] = 100
    batch: Annotated[
        int, Option("Facts in a step.", min=1, flag="--batch-size", panel=TRAINING)
    ] = 8
    accumulation: Annotated[
        int, Option("Steps of each relation in an update.", min=1, panel=TRAINING)
    ] = 1
    epochs: Annotated[int, Option("Number of times to read each fact.", min=1, panel=TRAINING)] = 3
    learning_rate: Annotated[float, Option("Highest learning rate.", min=0, panel=TRAINING)] = 6e-5
    validation_facts: Annotated[
        int, Option("Facts of each validation relation, at most.", min=1, panel=QUESTIONS)
    ] = 200
    seeds: Annotated[
        Sequence[int],
        Option(
            "Seeds of facts, order and masks. Train and measure with each of them.",
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
        Option("Facts of each held-out relation, at most.", min=1, short="-n", panel=QUESTIONS),
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
    """Settings of a fine-tuning; the defaults are those of the CALUM paper (Section 4.3)."""

    model: Annotated[
        str,
        Option(
            "Encoder, decoder or sequence-to-sequence model: Hub id, folder, GGUF file, "
            "packaged:minilm or packaged:smollm2.",
            metavar="M",
            short="-m",
            panel=MODEL,
        ),
    ]
    task: Annotated[
        str, Option("Name of a task, or a TOML file of one.", metavar="T", panel=QUESTIONS)
    ]
    train: Annotated[
        str,
        Option(
            "Training pairs: TSV, CSV, JSON, JSONL or Parquet file, or hub:SPLIT.",
            metavar="F",
            panel=QUESTIONS,
        ),
    ]
    validation: Annotated[
        str, Option("Pairs that choose the best checkpoint.", metavar="F", panel=QUESTIONS)
    ]
    folder: Annotated[
        Path,
        Option("Write the models here, as seed-N/TASK.", flag="--out", short="-o", panel=OUTPUT),
    ]
    dry_run: Annotated[
        bool, Option("Print the work and an estimate of its time, and train nothing.", panel=OUTPUT)
    ] = False
    others: Annotated[
        Sequence[str] | None,
        Option(
            "Train another task too, with its own head: mrpc=TRAIN or mrpc=TRAIN,VALIDATION. "
            "Repeat for more.",
            metavar="T=F",
            flag="--with-task",
            panel=QUESTIONS,
            is_repeated=True,
        ),
    ] = None
    seeds: Annotated[
        Sequence[int],
        Option(
            "Seeds of head, order and dropout. Train with each of them.",
            metavar="N,N",
            panel=TRAINING,
        ),
    ] = (0, 1, 2, 3, 4)
    jobs: Annotated[int, Option("Trainings to run at the same time.", min=1, panel=TRAINING)] = 1
    learning_rate: Annotated[
        Sequence[float],
        Option(
            "Highest learning rate. Of several, the one with the best validation of the first "
            "seed is used.",
            metavar="R,R",
            panel=TRAINING,
        ),
    ] = (1e-5,)
    batch: Annotated[
        Sequence[int],
        Option(
            "Pairs in a batch. Of several, the one with the best validation of the first seed is "
            "used.",
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
    epochs: Annotated[int, Option("Number of times to read each pair.", min=1, panel=TRAINING)] = 10
    weight_decay: Annotated[float, Option("Weight decay of AdamW.", min=0, panel=TRAINING)] = 1e-3
    warmup: Annotated[
        float,
        Option(
            "Share of the updates in which the learning rate rises.", min=0, max=1, panel=TRAINING
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
        StopOn, Option("Validation metric that chooses the best checkpoint.", panel=TRAINING)
    ] = "accuracy"
    sampling: Annotated[
        Sampling,
        Option("Number of batches of each task in an epoch (docs/calum.md).", panel=TRAINING),
    ] = "proportional"
    joined: InputFormat = None
    pool: ReadAt = None
    longest: MaxLength = None
    indicators: Indicators = None
    limit: Annotated[
        int | None,
        Option("Training pairs of each task, at most.", min=1, short="-n", panel=QUESTIONS),
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
