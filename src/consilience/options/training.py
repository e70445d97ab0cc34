"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.core.errors import Joined, Loss, Pool, TrainingText
from consilience.options import FilePath, OptionalPath, Watched, opt, shared

# fmt: off


class ImproveOptions(Watched):
    model: str = opt(
        "The masked or causal model: a Hub id or a folder.", metavar="M", short="-m",
        panel="Model")
    suite: str = opt(
        "Train on this suite of facts, or of questions.", metavar="S", short="-s",
        panel="Questions")
    train_groups: Sequence[str] = opt(
        "Train on these groups [default for questions: 60 % of them, at most --train-facts, and "
        "20 % each to choose and to measure].", default=(), metavar="G,G", panel="Questions")
    validation_groups: Sequence[str] = opt(
        "Choose the checkpoint by these groups.", default=(), metavar="G,G",
        panel="Questions")
    vary: shared.Vary = opt(default=None, panel="Questions only")
    hold_out_factor: Sequence[str] = opt(
        "Measure these factors, and do not train on them.", default=(), metavar="F,F",
        panel="Questions only")
    template: str | None = opt(
        "The text around a question, as of probe.", default=None, metavar="TEXT",
        panel="Questions only", is_rare=True)
    option_score: str | None = opt(
        "Score an option by its label, or its text: sum, mean, bytes.", default=None,
        metavar="RULE", panel="Questions only", is_rare=True)
    columns: shared.ColumnNames = opt(default=None, is_rare=True)
    as_questions: shared.AsQuestions = opt(default=None, panel="Questions only", is_rare=True)
    out: OptionalPath = opt(
        "Write models and runs to this folder [default: a new one in runs/].", default=None,
        metavar="DIR", short="-o", panel="Output")
    dry_run: bool = opt(
        "Print what is trained and asked, and train nothing.", default=False, panel="Output")
    loss: Loss = opt(
        "vote: that of all variants; pairs: as ParaRel.", default="vote",
        panel="Training")
    weight: float = opt(
        "The weight of the consistency loss.", default=1.0, min=0, metavar="W", flag="lambda",
        panel="Training")
    whole_vocabulary: bool = opt(
        "Compare whole vocabularies, not the candidates.", default=False, panel="Facts only",
        is_rare=True)
    mlm: TrainingText | None = opt(
        "Language modelling on the filled patterns, on --text, or on nothing [default: patterns "
        "for facts, none for questions].", default=None, panel="Training", is_rare=True)
    text: OptionalPath = opt(
        "Text for --mlm: lines, or JSON lines with 'text'; 500 measure perplexity.", default=None,
        metavar="FILE", panel="Questions", is_rare=True)
    train_facts: int = opt(
        "Facts or questions of each group to train on, at most.", default=100, min=1,
        panel="Training", is_rare=True)
    batch_size: int = opt(
        "Facts or questions in a step.", default=8, min=1, panel="Training", is_rare=True)
    epochs: int = opt("How often each is read.", default=3, min=1, panel="Training")
    learning_rate: float | None = opt(
        "The highest learning rate [default: 6e-5 for facts; 3e-4 for questions with LoRA, else "
        "1e-5].", default=None, min=0, metavar="R", panel="Training", is_rare=True)
    validation_facts: int = opt(
        "Facts or questions of each validation group, at most.", default=200, min=1,
        panel="Questions", is_rare=True)
    seeds: Sequence[int] = opt(
        "Train with each of these seeds.", default=(42,), min=0, max=2**32 - 1, metavar="N,N",
        panel="Training")
    limit: int | None = opt(
        "Facts or questions of each held-out group, at most.", default=None, min=1, short="-n",
        panel="Questions")
    lora_rank: int | None = opt(
        "The rank of LoRA; 0 trains all weights [default: 8 for questions, 0 for facts].",
        default=None, min=0, panel="Training", is_rare=True)
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)


class FinetuneOptions(Watched):
    model: str = opt(
        "The model: a Hub id, a folder, a GGUF file.",
        metavar="M", short="-m", panel="Model")
    task: str = opt("The task: a name, or a TOML file.", metavar="T", panel="Questions")
    train: str = opt("Training pairs: a file, or hub:SPLIT.", metavar="F", panel="Questions")
    validation: str = opt(
        "Pairs that choose the checkpoint; FILE#1 is a half.", metavar="F", panel="Questions")
    out: FilePath = opt(
        "Write the models to this folder, as seed-N/TASK.", metavar="DIR", short="-o",
        panel="Output")
    with_task: Sequence[str] | None = opt(
        "Train another task too: mrpc=TRAIN or mrpc=TRAIN,VALIDATION.", default=None,
        metavar="T=F", panel="Questions", is_repeated=True, is_rare=True)
    seeds: Sequence[int] = opt(
        "Train with each of these seeds.", default=(0, 1, 2, 3, 4), min=0, max=2**32 - 1,
        metavar="N,N", panel="Training")
    learning_rate: float = opt(
        "The highest learning rate.", default=1e-05, min=0, metavar="R", panel="Training")
    batch_size: int = opt("Pairs in a batch.", default=64, min=1, panel="Training")
    epochs: int = opt("How often each pair is read.", default=10, min=1, panel="Training")
    patience: int = opt(
        "Stop after so many epochs without a better validation; 0 never.", default=3, min=0,
        panel="Training", is_rare=True)
    input: Joined | None = opt(
        "Two segments (pair: usual of encoders) or one text (string).", default=None,
        panel="Sentence pairs only", is_rare=True)
    pool: Pool | None = opt(
        "Decoders: read the last token, an end token after it, or the mean.", default=None,
        panel="Sentence pairs only", is_rare=True)
    max_length: int | None = opt(
        "Tokens of a pair, at most [default: the model's limit].", default=None, min=8,
        panel="Sentence pairs only", is_rare=True)
    indicators: Sequence[str] | None = opt(
        "Words before the two sentences: Premise,Hypothesis.", default=None, metavar="A,B",
        panel="Sentence pairs only", is_rare=True)
    limit: int | None = opt(
        "Pairs of each task to train on, at most.", default=None, min=1, short="-n",
        panel="Questions")
    bf16: shared.Bf16 = opt(default=False, is_rare=True)
    device: shared.TrainingDevice = "auto"
    trust_remote_code: shared.TrustRemoteCode = opt(default=False, is_rare=True)
