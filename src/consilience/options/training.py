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
    suite: str = opt(
        "Train on this suite: mini, pararel, a folder of facts, or questions such as "
        "mini-questions or questions.csv.", metavar="S", short="-s", panel="Questions")
    train_groups: Sequence[str] = opt(
        "Train on these relations or groups [default for questions: 60 % of them, at most "
        "--train-facts, and 20 % each to choose and to measure].", default=(), metavar="G,G",
        panel="Questions")
    validation_groups: Sequence[str] = opt(
        "Choose by these groups the checkpoint, the lambda and the learning rate. All other groups "
        "(N-1 relations) are held out to measure the model.", default=(), metavar="G,G",
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
    use_gold: bool = opt(
        "Learn the right answers in place of the model's own.", default=False,
        panel="Questions only", is_rare=True)
    variants: int = opt(
        "Read at most this many variants of a question in a step.", default=8, min=2,
        panel="Questions only", is_rare=True)
    columns: shared.ColumnNames = opt(default=None, is_rare=True)
    as_questions: shared.AsQuestions = opt(default=None, panel="Questions only", is_rare=True)
    out: OptionalPath = opt(
        "Write checkpoints, runs and the best model to this folder [default: a new folder in "
        "runs/].", default=None, metavar="DIR", short="-o", panel="Output")
    dry_run: bool = opt(
        "Print the work and an estimate of its time, and train nothing.", default=False,
        panel="Output")
    loss: Loss = opt(
        "Use this consistency loss. vote: agree with the vote of all variants. vote-hard: give the "
        "answer of most variants. bct: give the answer to the base variant. pairs: that of the "
        "ParaRel paper. released: the code of the ParaRel paper.",
        default="vote", panel="Training")
    weights: Sequence[float] | None = opt(
        "Try these weights of the consistency loss [default: 1 for questions; for facts 0.1,0.5,1 "
        "with pairs or released, else 1,3,10].",
        default=None, min=0, metavar="W,W", flag="lambda", panel="Training")
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
    accumulation: int = opt(
        "Make this many steps, of facts of each relation, before an update.", default=1, min=1,
        panel="Training", is_rare=True)
    epochs: int = opt(
        "Read each fact or question this many times, in whole batches.", default=3, min=1,
        panel="Training")
    learning_rate: Sequence[float] | None = opt(
        "Use this as the highest learning rate. Of several, the one with the best validation is "
        "used [default: 6e-5 for facts; 3e-4 for questions with LoRA, else 1e-5].", default=None,
        min=0, metavar="R,R", panel="Training", is_rare=True)
    validation_facts: int = opt(
        "Ask at most this many facts or questions of each validation group.", default=200, min=1,
        panel="Questions", is_rare=True)
    seeds: Sequence[int] = opt(
        "Train and measure with each of these seeds of facts, order and masks.", default=(42,),
        min=0, max=2**32 - 1, metavar="N,N", panel="Training")
    ablations: bool = opt(
        "Also train without the consistency loss, without candidates and without language "
        "modelling (ParaRel, Table 7).", default=False, panel="Facts only", is_rare=True)
    limit: int | None = opt(
        "Ask at most this many facts or questions of each held-out group.", default=None, min=1,
        short="-n", panel="Questions")
    margin: float = opt(
        "Call a harm ruled out where the 95 % interval of a loss ends within this many points.",
        default=2.0, min=0, panel="Counting", is_rare=True)
    harm_tasks: Sequence[str] = opt(
        "Also measure these tasks of lm-evaluation-harness, such as mmlu or the YAML file of one; "
        "--limit takes the first documents of each.", default=(), metavar="T,T",
        panel="Counting", is_rare=True, needs_trust=bool)
    lora_rank: int | None = opt(
        "Train LoRA adapters of this rank; 0 trains all weights [default: 8 for questions, 0 for "
        "facts].", default=None, min=0, panel="Training")
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    gradient_checkpointing: shared.GradientCheckpointing = opt(default=False, is_rare=True)
    report_to: str = opt(
        "Report progress to none, tensorboard, wandb or trackio.", default="none",
        panel="Output", is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
    protocol: shared.ProtocolName = opt(default=None, panel="Facts only", is_rare=True)
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
