"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.core.errors import Loss, TrainingText
from consilience.options import FilePath, OptionalPath, Watched, opt, shared

# fmt: off


class ImproveOptions(Watched):
    model: str = opt(
        "Train this masked or causal model: a Hub id or a folder.", metavar="M", short="-m",
        panel="Model")
    suite: str = opt(
        "Train on this suite: mini, pararel, a folder of facts, or questions such as "
        "mini-questions or questions.csv.", metavar="S", short="-s", panel="Questions")
    train_groups: Sequence[str] = opt(
        "Train on these relations or groups [default for questions: 60 % of them, at most "
        "--train-facts, and 20 % each to choose and to measure].", default=(), metavar="G,G",
        panel="Questions")
    validation_groups: Sequence[str] = opt(
        "Choose the checkpoint by these groups. All other groups (N-1 relations) are held out to "
        "measure the model.", default=(), metavar="G,G",
        panel="Questions")
    vary: shared.Vary = opt(default=None, panel="Questions only")
    hold_out_factor: Sequence[str] = opt(
        "Do not vary these factors of --vary in training; only measure them before and after.",
        default=(), metavar="F,F", panel="Questions only")
    template: str | None = opt(
        "Write the prompt like this, as probe does: plain, chat, a text or a file.", default=None,
        metavar="TEXT", panel="Questions only", is_rare=True)
    option_score: str | None = opt(
        "Score an option by its label (label), or by its text: sum, mean or bytes [default: "
        "label; sum where options have no labels].", default=None, metavar="RULE",
        panel="Questions only")
    columns: shared.ColumnNames = opt(default=None, is_rare=True)
    as_questions: shared.AsQuestions = opt(default=None, panel="Questions only", is_rare=True)
    out: OptionalPath = opt(
        "Write checkpoints, runs and the best model to this folder [default: a new folder in "
        "runs/].", default=None, metavar="DIR", short="-o", panel="Output")
    dry_run: bool = opt(
        "Print what is trained and asked, and train nothing.", default=False, panel="Output")
    loss: Loss = opt(
        "Use this consistency loss. vote: agree with the vote of all variants. pairs: that of the "
        "ParaRel paper.",
        default="vote", panel="Training")
    weight: float = opt(
        "Use this weight of the consistency loss.", default=1.0, min=0, metavar="W", flag="lambda",
        panel="Training")
    whole_vocabulary: bool = opt(
        "Compare distributions over the whole vocabulary instead of the candidates.", default=False,
        panel="Facts only", is_rare=True)
    mlm: TrainingText | None = opt(
        "Train language modelling on the filled patterns, on the file of --text, or on nothing "
        "[default: patterns for facts, none for questions].", default=None, panel="Training",
        is_rare=True)
    text: OptionalPath = opt(
        "Read text from this file: lines, or JSON lines with 'text'. The first 500 only measure "
        "perplexity.", default=None, metavar="FILE", panel="Questions", is_rare=True)
    train_facts: int = opt(
        "Train on at most this many facts or questions of each group.", default=100, min=1,
        panel="Training", is_rare=True)
    batch_size: int = opt(
        "Put this many facts or questions in a step.", default=8, min=1, panel="Training",
        is_rare=True)
    epochs: int = opt(
        "Read each fact or question this many times, in whole batches.", default=3, min=1,
        panel="Training")
    learning_rate: float | None = opt(
        "Use this as the highest learning rate [default: 6e-5 for facts; 3e-4 for questions with "
        "LoRA, else 1e-5].", default=None, min=0, metavar="R", panel="Training", is_rare=True)
    validation_facts: int = opt(
        "Ask at most this many facts or questions of each validation group.", default=200, min=1,
        panel="Questions", is_rare=True)
    seeds: Sequence[int] = opt(
        "Train and measure with each of these seeds of facts, order and masks.", default=(42,),
        min=0, max=2**32 - 1, metavar="N,N", panel="Training")
    limit: int | None = opt(
        "Ask at most this many facts or questions of each held-out group.", default=None, min=1,
        short="-n", panel="Questions")
    lora_rank: int | None = opt(
        "Train LoRA adapters of this rank; 0 trains all weights [default: 8 for questions, 0 for "
        "facts].", default=None, min=0, panel="Training")
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)


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
    with_task: Sequence[str] | None = opt(
        "Train another task too, with its own head: mrpc=TRAIN or mrpc=TRAIN,VALIDATION.",
        default=None, metavar="T=F", panel="Questions", is_repeated=True, is_rare=True)
    seeds: Sequence[int] = opt(
        "Train with each of these seeds of head, order and dropout.", default=(0, 1, 2, 3, 4),
        min=0, max=2**32 - 1, metavar="N,N", panel="Training")
    learning_rate: float = opt(
        "Use this as the highest learning rate.", default=1e-05, min=0, metavar="R",
        panel="Training")
    batch_size: int = opt("Put this many pairs in a batch.", default=64, min=1, panel="Training")
    epochs: int = opt("Read each pair this many times.", default=10, min=1, panel="Training")
    patience: int = opt(
        "Stop after this many epochs without a better validation; 0 never stops.", default=3, min=0,
        panel="Training", is_rare=True)
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
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
