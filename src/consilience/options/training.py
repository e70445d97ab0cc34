"""The options of ``improve`` and ``finetune``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from consilience.core.errors import SILENT, Joined, Loss, Pool, Progress, TrainingText
from consilience.options import FACTS, QUESTIONS, FilePath, Option, OptionalPath, Options, shared

# fmt: off


@dataclass(frozen=True, kw_only=True)
class ImproveOptions(Options):
    model: Annotated[str, Option("The masked or causal model: a Hub id or a folder.", "M", "-m")]
    suite: Annotated[str, Option("Train on this suite of facts, or of questions.", "S", "-s")]
    train_groups: Annotated[Sequence[str], Option(
        "Train on these groups [default for questions: 60 % of them].", "G,G")] = ()
    validation_groups: Annotated[Sequence[str], Option(
        "Choose the checkpoint by these groups.", "G,G")] = ()
    vary: Annotated[shared.Vary, {"kinds": QUESTIONS}] = None
    hold_out_factor: Annotated[Sequence[str], Option(
        "Measure these factors, and do not train on them.", "F,F", kinds=QUESTIONS)] = ()
    template: Annotated[str | None, Option(
        "The text around a question, as of probe.", "TEXT", kinds=QUESTIONS, is_rare=True)] = None
    option_score: Annotated[str | None, Option(
        "Score an option by its label, or its text: sum, mean, bytes.", "RULE", kinds=QUESTIONS,
        is_rare=True)] = None
    columns: shared.ColumnNames = None
    as_questions: Annotated[shared.AsQuestions, {"kinds": QUESTIONS}] = None
    out: Annotated[OptionalPath, Option(
        "Write models and runs to this folder [default: a new one in runs/].", "DIR", "-o")] = None
    dry_run: Annotated[bool, Option("Print what is trained and asked, and train nothing.")] = False
    loss: Annotated[Loss, Option(
        "vote: that of all variants; pairs: as ParaRel. Or pairs-vocabulary, of facts.")] = "vote"
    weight: Annotated[float, Option("The weight of the consistency loss.", "W", min=0)] = 1.0
    mlm: Annotated[TrainingText | None, Option(
        "Language modelling on the filled patterns [default], or on nothing.", kinds=FACTS,
        is_rare=True)] = None
    text: Annotated[OptionalPath, Option(
        "Lines of text, for perplexity.", "FILE", is_rare=True)] = None
    train_facts: Annotated[int, Option(
        "Facts or questions of each group to train on, at most.", min=1, is_rare=True)] = 100
    batch_size: Annotated[int, Option("Facts or questions in a step.", min=1, is_rare=True)] = 8
    epochs: Annotated[int, Option("How often each is read.", min=1)] = 3
    learning_rate: Annotated[float | None, Option(
        "The highest learning rate [default: 6e-5 of facts; of questions 3e-4 with LoRA].", "R",
        min=0, is_rare=True)] = None
    validation_facts: Annotated[int, Option(
        "Facts or questions of each validation group, at most.", min=1, is_rare=True)] = 200
    seeds: Annotated[Sequence[int], Option(
        "Train with each of these seeds.", "N,N", min=0, max=2**32 - 1)] = (42,)
    limit: Annotated[int | None, Option(
        "Facts or questions of each held-out group, at most.", min=1, short="-n")] = None
    also: Annotated[Sequence[str], Option(
        "Measure these suites, too: mini, or mini=20 of a group.", "S,S")] = ()
    lora_rank: Annotated[int | None, Option(
        "The rank of LoRA; 0 trains all weights [default: 8 of questions, 0 of facts].", min=0,
        is_rare=True)] = None
    bf16: shared.Bf16 = False
    device: shared.Device = "auto"
    trust_remote_code: shared.TrustRemoteCode = False
    progress: Progress = SILENT


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(Options):
    model: Annotated[str, Option("The model: a Hub id, a folder, a GGUF file.", "M", "-m")]
    task: Annotated[str, Option("The task: a name, or a TOML file.", "T")]
    train: Annotated[str, Option("Training pairs: a file, or hub:SPLIT.", "F")]
    validation: Annotated[str, Option("Pairs that choose the checkpoint; FILE#1 is a half.", "F")]
    out: Annotated[FilePath, Option(
        "Write the models to this folder, as seed-N/TASK.", "DIR", "-o")]
    with_task: Annotated[Sequence[str] | None, Option(
        "Train another task too: mrpc=TRAIN or mrpc=TRAIN,VALIDATION.", "T=F", is_repeated=True,
        is_rare=True, joins=",")] = None
    seeds: Annotated[Sequence[int], Option(
        "Train with each of these seeds.", "N,N", min=0, max=2**32 - 1)] = (0, 1, 2, 3, 4)
    learning_rate: Annotated[float, Option("The highest learning rate.", "R", min=0)] = 1e-05
    batch_size: Annotated[int, Option("Pairs in a batch.", min=1)] = 64
    epochs: Annotated[int, Option("How often each pair is read.", min=1)] = 10
    patience: Annotated[int, Option(
        "Stop after so many epochs without a better validation; 0 never.", min=0, is_rare=True)] = 3
    input: Annotated[Joined | None, Option(
        "Two segments (pair) or one text (string) [default: as the model is used].",
        is_rare=True)] = None
    pool: Annotated[Pool | None, Option(
        "Decoders: read the last token, an end token after it, or the mean.", is_rare=True)] = None
    max_length: Annotated[int | None, Option(
        "Tokens of a pair, at most [default: the model's limit].", min=8, is_rare=True)] = None
    indicators: Annotated[Sequence[str] | None, Option(
        "Words before the two sentences: Premise,Hypothesis.", "A,B", is_rare=True)] = None
    limit: Annotated[int | None, Option(
        "Pairs of each task to train on, at most.", min=1, short="-n")] = None
    bf16: shared.Bf16 = False
    device: shared.Device = "auto"
    trust_remote_code: shared.TrustRemoteCode = False
    progress: Progress = SILENT
