"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.core.errors import Loss, Sampling, StopOn, TrainingText
from consilience.options import FilePath, OptionalPath, Watched, opt, shared

# fmt: off


class ImproveOptions(Watched):
    model: str = opt(
        "Train this masked or causal model: a Hub id or a folder.", metavar="M", short="-m",
        panel="Model")
    suite: shared.FactSuiteName
    train_groups: Sequence[str] = opt(
        "Train on these relations.", default=(), metavar="G,G", panel="Questions")
    validation_groups: Sequence[str] = opt(
        "Choose by these relations the checkpoint and the lambda. All other N-1 relations are "
        "held out to measure the model.", default=(), metavar="G,G", panel="Questions")
    out: OptionalPath = opt(
        "Write checkpoints, runs and the best model to this folder [default: a new folder in "
        "runs/].", default=None, metavar="DIR", short="-o", panel="Output")
    dry_run: bool = opt(
        "Print the work and an estimate of its time, and train nothing.", default=False,
        panel="Output")
    loss: Loss = opt(
        "Use this consistency loss. vote: agree with the vote of all patterns. pairs: that of the "
        "ParaRel paper. cosine: also of pairs. released: the code of the ParaRel paper.",
        default="vote", panel="Training")
    weights: Sequence[float] | None = opt(
        "Try these weights of the consistency loss [default: 1,3,10 for vote, else 0.1,0.5,1].",
        default=None, min=0, metavar="W,W", flag="lambda", panel="Training")
    whole_vocabulary: bool = opt(
        "Compare distributions over the whole vocabulary instead of the candidates.", default=False,
        panel="Training", is_rare=True)
    mlm: TrainingText = opt(
        "Train language modelling on the filled patterns, on the file of --text, or on nothing.",
        default="patterns", panel="Training", is_rare=True)
    text: OptionalPath = opt(
        "Read text from this file: lines, or JSON lines with 'text'. The first 500 only measure "
        "perplexity.", default=None, metavar="FILE", panel="Questions")
    train_facts: int = opt(
        "Train on at most this many facts of each relation.", default=100, min=1,
        panel="Training", is_rare=True)
    batch_size: int = opt(
        "Put this many facts in a step.", default=8, min=1, panel="Training", is_rare=True)
    accumulation: int = opt(
        "Make this many steps of each relation before an update.", default=1, min=1,
        panel="Training", is_rare=True)
    epochs: int = opt("Read each fact this many times.", default=3, min=1, panel="Training")
    learning_rate: float = opt(
        "Use this as the highest learning rate.", default=6e-05, min=0, panel="Training")
    validation_facts: int = opt(
        "Ask at most this many facts of each validation relation.", default=200, min=1,
        panel="Questions", is_rare=True)
    seeds: Sequence[int] = opt(
        "Train and measure with each of these seeds of facts, order and masks.", default=(42,),
        min=0, max=2**32 - 1, metavar="N,N", panel="Training")
    ablations: bool = opt(
        "Also train without the consistency loss, without candidates and without language "
        "modelling (ParaRel, Table 7).", default=False, panel="Training")
    limit: int | None = opt(
        "Ask at most this many facts of each held-out relation.", default=None, min=1, short="-n",
        panel="Questions")
    lora_rank: int = opt(
        "Train LoRA adapters of this rank; 0 trains all weights.", default=0, min=0,
        panel="Training")
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    gradient_checkpointing: shared.GradientCheckpointing = opt(default=False, is_rare=True)
    report_to: str = opt(
        "Report progress to none, tensorboard, wandb or trackio.", default="none",
        panel="Output", is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
    protocol: shared.ProtocolName = opt(default=None, is_rare=True)
    data_dir: shared.DataDir = opt(default=None, is_rare=True)


class FinetuneOptions(Watched):
    model: str = opt(
        "Train this encoder, decoder or sequence-to-sequence model: a Hub id, a folder, a GGUF "
        "file, packaged:minilm or packaged:smollm2.", metavar="M", short="-m", panel="Model")
    task: str = opt("Train for this task: a name, or a TOML file.", metavar="T", panel="Questions")
    train: str = opt(
        "Read training pairs from here: TSV, CSV, JSON, JSONL or Parquet file, or hub:SPLIT.",
        metavar="F", panel="Questions")
    validation: str = opt(
        "Choose the best checkpoint by these pairs.", metavar="F", panel="Questions")
    out: FilePath = opt(
        "Write the models to this folder, as seed-N/TASK.", metavar="DIR", short="-o",
        panel="Output")
    dry_run: bool = opt(
        "Print the work and an estimate of its time, and train nothing.", default=False,
        panel="Output")
    with_task: Sequence[str] | None = opt(
        "Train another task too, with its own head: mrpc=TRAIN or mrpc=TRAIN,VALIDATION.",
        default=None, metavar="T=F", panel="Questions", is_repeated=True, is_rare=True)
    seeds: Sequence[int] = opt(
        "Train with each of these seeds of head, order and dropout.", default=(0, 1, 2, 3, 4),
        min=0, max=2**32 - 1, metavar="N,N", panel="Training")
    jobs: int = opt(
        "Run this many trainings at the same time.", default=1, min=1, panel="Training",
        is_rare=True)
    learning_rate: Sequence[float] = opt(
        "Use this as the highest learning rate. Of several, the one with the best validation of "
        "the first seed is used.", default=(1e-05,), min=0, metavar="R,R", panel="Training")
    batch_size: Sequence[int] = opt(
        "Put this many pairs in a batch. Of several, the one with the best validation of the "
        "first seed is used.", default=(64,), min=1, metavar="N,N", panel="Training")
    grid: bool = opt(
        "Try the CALUM paper's grid: batch sizes 32,64,128 and learning rates 5e-4,1e-5,5e-6.",
        default=False, panel="Training", is_rare=True)
    epochs: int = opt("Read each pair this many times.", default=10, min=1, panel="Training")
    weight_decay: float = opt(
        "Set the weight decay of AdamW.", default=0.001, min=0, panel="Training", is_rare=True)
    warmup: float = opt(
        "Set the share of the updates in which the learning rate rises.", default=0.1, min=0, max=1,
        panel="Training", is_rare=True)
    patience: int = opt(
        "Stop after this many epochs without a better validation; 0 never stops.", default=3, min=0,
        panel="Training", is_rare=True)
    stop_on: StopOn = opt(
        "Choose the best checkpoint by this validation metric.", default="accuracy",
        panel="Training", is_rare=True)
    sampling: Sampling = opt(
        "Choose how many batches of each task an epoch has (docs/calum.md).",
        default="proportional", panel="Training", is_rare=True)
    input: shared.InputFormat = None
    pool: shared.ReadAt = opt(default=None, is_rare=True)
    max_length: shared.MaxLength = None
    indicators: shared.Indicators = opt(default=None, is_rare=True)
    limit: int | None = opt(
        "Train on at most this many pairs of each task.", default=None, min=1, short="-n",
        panel="Questions")
    half: int | None = opt(
        "Use only this half of --validation; the other half is for a test.", default=None, min=1,
        max=2, panel="Training", is_rare=True)
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    gradient_checkpointing: shared.GradientCheckpointing = opt(default=False, is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
