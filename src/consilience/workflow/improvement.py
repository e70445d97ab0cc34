"""Train a model to answer consistently, and measure it before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from consilience import suites
from consilience.choices import Loss, Protocol, TrainingText
from consilience.errors import ConsilienceError, needs_extra
from consilience.read import read_rows, read_text
from consilience.types import Suite
from consilience.watch import SILENT, Watch
from consilience.workflow.options import (
    Bf16,
    DataDir,
    GradientCheckpointing,
    Option,
    ProtocolName,
    SuiteName,
    TrainingDevice,
    TrustRemoteCode,
)

if TYPE_CHECKING:
    from consilience.train.experiment import Improved


@dataclass(frozen=True, slots=True)
class ImproveOptions:
    """What is trained on what, and how; the defaults are the paper's (ParaRel, Section 8.2)."""

    model: Annotated[str, Option("A masked or causal model: Hub id or folder.", metavar="M")]
    suite: SuiteName
    train: Annotated[
        Sequence[str], Option("Relations to train on.", metavar="G,G", flag="--train-groups")
    ]
    validation: Annotated[
        Sequence[str],
        Option(
            "Relations that choose the checkpoint and the lambda.",
            metavar="G,G",
            flag="--validation-groups",
        ),
    ]
    folder: Annotated[Path, Option("Checkpoints, runs and the best model.", flag="--out")]
    weights: Annotated[
        Sequence[float] | None,
        Option(
            "Consistency-loss weights to try [default: 0.1,0.5,1; with --loss vote: 1,3,10].",
            metavar="W,W",
            flag="--lambda",
        ),
    ] = None
    loss: Annotated[
        Loss,
        Option(
            "strict: the paper's; cosine; published: as released; vote: first the words, then "
            "the vote of all patterns."
        ),
    ] = "strict"
    vocabulary: Annotated[bool, Option("Compare whole vocabularies, not candidates.")] = False
    text: Annotated[
        TrainingText,
        Option(
            "Language modelling: of the filled patterns, of --text (file), or none.", flag="--mlm"
        ),
    ] = "patterns"
    text_file: Annotated[
        Path | None,
        Option(
            "Lines of text, or JSON lines with 'text'. The first 500 measure perplexity only.",
            flag="--text",
        ),
    ] = None
    facts: Annotated[int, Option("Facts of each training relation.", min=1)] = 100
    batch: Annotated[int, Option("Facts in a step.", min=1, flag="--batch-facts")] = 8
    accumulation: Annotated[int, Option("Steps of each relation in an update.", min=1)] = 1
    epochs: Annotated[int, Option("Times that each fact is read.", min=1)] = 3
    learning_rate: Annotated[float, Option("The highest learning rate.", min=0)] = 6e-5
    validation_facts: Annotated[
        int, Option("At most this many facts of each validation relation.", min=1)
    ] = 200
    seeds: Annotated[
        Sequence[int],
        Option("Seeds of facts, order and masks; train and measure with each.", metavar="N,N"),
    ] = (42,)
    ablations: Annotated[
        bool,
        Option("Also train without the consistency loss, without candidates and without MLM."),
    ] = False
    limit: Annotated[
        int | None, Option("At most this many facts of each test relation.", min=1)
    ] = None
    lora_rank: Annotated[
        int, Option("Train adapters of this rank; 0 trains all weights.", min=0)
    ] = 0
    bf16: Bf16 = False
    gradient_checkpointing: GradientCheckpointing = False
    report_to: Annotated[str, Option("none, tensorboard, wandb or trackio.")] = "none"
    device: TrainingDevice = "auto"
    trust_remote_code: TrustRemoteCode = False
    protocol: ProtocolName = None
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class Improvement:
    """A model before and after training."""

    suite: Suite
    """The suite that it was trained and tested on."""
    protocol: Protocol
    """How answers were measured."""
    result: Improved
    """Trainings, metrics and comparisons."""


def improve(options: ImproveOptions, watch: Watch = SILENT) -> Improvement | None:
    """Train, choose and measure; None in every process but the first (``accelerate launch``)."""
    with needs_extra("train"):
        from consilience.train.experiment import improve as train_and_measure
        from consilience.train.plan import DEFAULT_WEIGHTS, Plan, Subject
    suite = suites.load_suite(options.suite, options.data_dir)
    protocol: Protocol = options.protocol or suite.protocol
    values = {
        field.name: getattr(options, field.name)
        for field in fields(Plan)
        if field.name not in ("weights", "seed")
    }
    weights = options.weights or DEFAULT_WEIGHTS[options.loss]
    plan = Plan(weights=tuple(weights), seed=options.seeds[0], **values)
    subject = Subject(
        options.model,
        suite,
        protocol,
        lines=read_lines(options.text_file) if options.text_file else (),
        test_facts=options.limit,
        device=options.device,
        trust_remote_code=options.trust_remote_code,
    )
    with watch.loading(options.model):
        result = train_and_measure(
            subject,
            plan,
            options.folder,
            seeds=options.seeds,
            ablations=options.ablations,
            watch=watch,
        )
    return Improvement(suite, protocol, result) if result else None


def read_lines(path: Path) -> list[str]:
    """The lines of a text, or the ``text`` of JSON lines, without empty ones."""
    if not path.is_file():
        raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
    if path.suffix != ".jsonl":
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]
    lines = []
    for where, row in read_rows(path):
        if "text" not in row:
            raise ConsilienceError("no 'text'", expected="a text in 'text'", where=where)
        lines.append(str(row["text"]))
    return [line for line in lines if line.strip()]
