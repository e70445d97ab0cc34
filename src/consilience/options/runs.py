"""The options of commands on runs, of analyses, of studies and of ``reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Literal

from consilience.core.errors import SMALL_TASKS, PublishFormat
from consilience.options import (
    FilePath,
    Option,
    OptionalPath,
    Options,
    Paths,
    Watched,
    shared,
)

# fmt: off


@dataclass(frozen=True, kw_only=True)
class Counted(Options):
    """How answers that exist are counted."""

    protocol: shared.RunProtocol = None


@dataclass(frozen=True)
class ScoreOptions(Options):
    answers: Annotated[FilePath, Option(
        "The folder of a run, a table, or a log of another harness.", metavar="ANSWERS")]
    _: KW_ONLY
    factor: Annotated[Sequence[str], Option(
        "A factor and its field, such as template=doc.style.", metavar="NAME=FIELD",
        is_repeated=True)] = ()
    suite: Annotated[str | None, Option(
        "What was asked: a file of `suite export`, or a suite of facts.", metavar="S",
        short="-s")] = None
    model: Annotated[str | None, Option(
        "Of a file with several models: count this one.", metavar="M")] = None
    match: Annotated[str | None, Option(
        "How an answer is found in a text, such as contains. Or exact, number, last-number, "
        "regex:PATTERN [default: what the log says, else contains for open questions and exact "
        "for others].", metavar="RULE")] = None
    protocol: shared.RunProtocol = None
    out: Annotated[OptionalPath, Option(
        "Also keep a run in this folder.", metavar="DIR", short="-o")] = None
    by: shared.TableBy = None


@dataclass(frozen=True)
class CompareOptions(Counted):
    runs: shared.RunSpecs
    _: KW_ONLY
    flips: Annotated[bool, Option(
        "Show which answers changed, from right to wrong or back.")] = False
    by: shared.TableBy = None


@dataclass(frozen=True)
class GateOptions(Options):
    run: shared.RunPath
    _: KW_ONLY
    rule: Annotated[Sequence[str], Option(
        'A rule: "consistency >= 0.8". Or "consistency in capital >= 70 %", "accuracy no worse '
        'than baseline by 3 points".', metavar="RULE", is_repeated=True)] = ()
    baseline: Annotated[str | None, Option(
        "The run that rules compare with, on the items of both.", metavar="RUN")] = None
    prove: Annotated[bool, Option(
        "Pass only what is shown: the whole 90 % interval is inside.")] = False
    protocol: shared.RunProtocol = None
    junit: Annotated[OptionalPath, Option(
        "Also write the checks to this file, as JUnit XML.", metavar="FILE")] = None


@dataclass(frozen=True)
class ReportOptions(Counted, Watched):
    runs: shared.RunSpecs
    _: KW_ONLY
    out: shared.Page = None
    figures: Annotated[OptionalPath, Option(
        "Write the figures to this folder, as SVG.", metavar="DIR")] = None
    tables: shared.Tables = None


@dataclass(frozen=True)
class PublishOptions(Watched):
    run: Annotated[FilePath, Option("The folder of a run.", metavar="RUN")]
    _: KW_ONLY
    format: Annotated[PublishFormat, Option(
        "A record of Every Eval Ever (eee), or a model card.")]
    out: Annotated[OptionalPath, Option(
        "Write to this folder [default: published/FORMAT in that of the run].", metavar="DIR",
        short="-o")] = None
    model_id: Annotated[str | None, Option(
        "The id of the model [default: its id on the Hub].", metavar="ORG/NAME")] = None
    licence: Annotated[str | None, Option(
        "Include the texts of the suite, under this licence.", metavar="SPDX-ID")] = None
    organization: Annotated[str, Option("Who publishes, for eee.", metavar="NAME")] = ""


@dataclass(frozen=True)
class StudyRunOptions(Watched):
    file: shared.StudyFile
    _: KW_ONLY
    engine: Annotated[Literal["local", "ray"], Option(
        "Processes on this machine, or a Ray cluster.")] = "local"
    workers: Annotated[int | None, Option(
        "Workers at once [default: 1; of ray one for each CPU].", min=1, metavar="N")] = None
    ray_address: Annotated[str | None, Option(
        "The Ray cluster: HOST:PORT or auto [default: $RAY_ADDRESS, else this machine].",
        metavar="A")] = None
    dry_run: Annotated[bool, Option("Print the runs; write nothing.")] = False


@dataclass(frozen=True)
class StudyStatusOptions(Options):
    file: shared.StudyFile


@dataclass(frozen=True)
class StudyReportOptions(Watched):
    file: shared.StudyFile
    _: KW_ONLY
    out: shared.Page = None
    tables: shared.Tables = None


@dataclass(frozen=True)
class ReproduceOptions(Watched):
    name: Annotated[str | None, Option("The table or figure. Leave it out to list all.")] = None
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Write the table and its runs to this folder.", metavar="DIR",
        short="-o")] = Path("runs/reproduce")
    add: Annotated[Sequence[str] | None, Option(
        "Add a row for your own model; others only if --only names them.", metavar="NAME=M",
        is_repeated=True)] = None
    only: Annotated[Sequence[str] | None, Option("Make only these rows.", metavar="ROW,ROW")] = None
    tolerance: Annotated[float | None, Option(
        "Points from the paper's number that are `within`.", metavar="POINTS", min=0)] = None
    data: Annotated[Sequence[str] | None, Option(
        "Read a data set from a file: rte:train=FILE.", metavar="TASK:SPLIT=FILE",
        is_repeated=True)] = None
    device: Annotated[str, Option(
        "auto, cpu, cuda, cuda:1 or mps; trainings: cpu, else auto.", metavar="DEVICE")] = "auto"
    dry_run: Annotated[bool, Option("Print the commands, and run nothing.")] = False


@dataclass(frozen=True)
class PatternsOptions(Counted):
    run: shared.RunPath
    _: KW_ONLY
    groups: shared.Groups = None


@dataclass(frozen=True)
class EditsOptions(Counted):
    run: shared.RunPath
    _: KW_ONLY
    derive: Annotated[bool, Option("Derive edits with a dependency parser (spaCy).")] = False


@dataclass(frozen=True)
class ExamplesOptions(Options):
    run: shared.RunPath
    _: KW_ONLY
    examples: Annotated[int, Option("Examples of each kind.", min=1)] = 5


@dataclass(frozen=True)
class KnowledgeOptions(Counted):
    runs: Annotated[Paths, Option("Runs or files of answers; LABEL=RUN names one.", metavar="RUN")]
    _: KW_ONLY
    sizes: Annotated[Sequence[str] | None, Option(
        "Sizes of the training data, one for each run: 1M,10M,1B.", metavar="N,N")] = None


@dataclass(frozen=True)
class FactorsOptions(Options):
    runs: Annotated[Paths, Option("Runs of questions; LABEL=RUN names one.", metavar="RUN")]
    _: KW_ONLY
    groups: shared.Groups = None


@dataclass(frozen=True)
class SyntaxOptions(Options):
    suite: shared.SuiteArgument


@dataclass(frozen=True)
class TaskEffectsOptions(Options):
    runs: Annotated[Paths, Option(
        "Runs of sentence pairs; MODEL=RUN names the model.", metavar="RUN")]
    _: KW_ONLY
    small: Annotated[Sequence[str], Option(
        "Tasks with few training examples.", metavar="T,T")] = SMALL_TASKS
    leave_out: Annotated[Sequence[str] | None, Option(
        "Leave these models out of the tests.", metavar="M,M")] = None


@dataclass(frozen=True, kw_only=True)
class VectorOptions(Watched):
    model: Annotated[str, Option(
        "The model, as for `probe`.", metavar="M", short="-m")] = "packaged:smollm2"
    suite: shared.FactSuiteName = "mini"
    groups: shared.Groups = None
    limit: Annotated[int, Option("Facts of each relation, at most.", min=1, short="-n")] = 100
    layers: Annotated[Sequence[int], Option(
        "Layers: 0 is the embeddings, -1 the last one.", metavar="N,N")] = (-1,)
    out: shared.Folder = None
    device: shared.Device = "auto"
