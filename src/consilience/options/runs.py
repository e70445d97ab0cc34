"""The options of commands on runs, of analyses, of studies and of ``reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Literal

from consilience.core.errors import SMALL_TASKS, PublishFormat
from consilience.options import FilePath, OptionalPath, Options, Paths, Watched, arg, opt, shared

# fmt: off


class Counted(Options):
    """How answers that exist are counted."""

    _: KW_ONLY
    protocol: shared.RunProtocol = None


class ScoreOptions(Options):
    answers: FilePath = arg(
        "The folder of a run, a table, or a log of another harness.", metavar="ANSWERS")
    factor: Sequence[str] = opt(
        "A factor and its field, such as template=doc.style.", default=(),
        metavar="NAME=FIELD", is_repeated=True, panel="Questions")
    suite: str | None = opt(
        "What was asked: a file of `suite export`, or a suite of facts.", default=None,
        metavar="S", short="-s", panel="Questions")
    model: str | None = opt(
        "Of a file with several models: count this one.", default=None, metavar="M",
        panel="Questions")
    match: str | None = opt(
        "How an answer is found in a text, such as contains. Or exact, number, last-number, "
        "regex:PATTERN [default: what the log says, else contains for open questions and exact for "
        "others].",
        default=None, metavar="RULE", panel="Questions")
    protocol: shared.RunProtocol = None
    out: OptionalPath = opt(
        "Also keep a run in this folder.", default=None, metavar="DIR", short="-o", panel="Output")
    by: shared.TableBy = None


class CompareOptions(Counted):
    runs: shared.RunSpecs
    flips: bool = opt(
        "Show which answers changed, from right to wrong or back.", default=False)
    by: shared.TableBy = None


class GateOptions(Options):
    run: shared.RunPath
    rule: Sequence[str] = opt(
        'A rule: "consistency >= 0.8". Or "consistency in capital >= 70 %", "accuracy no worse '
        'than baseline by 3 points".', default=(), metavar="RULE", is_repeated=True)
    baseline: str | None = opt(
        "The run that rules compare with, on the items of both.", default=None, metavar="RUN")
    prove: bool = opt(
        "Pass only what is shown: the whole 90 % interval is inside.", default=False)
    protocol: shared.RunProtocol = None
    junit: OptionalPath = opt(
        "Also write the checks to this file, as JUnit XML.", default=None, metavar="FILE",
        panel="Output")


class ReportOptions(Counted, Watched):
    runs: shared.RunSpecs
    _: KW_ONLY
    out: shared.Page = opt(default=None)
    figures: OptionalPath = opt(
        "Write the figures to this folder, as SVG.", default=None, metavar="DIR", panel="Output")
    tables: shared.Tables = opt(default=None)


class PublishOptions(Watched):
    run: FilePath = arg("The folder of a run.", metavar="RUN")
    format: PublishFormat = opt(
        "A record of Every Eval Ever (eee), or a README.md (model-card).", panel="Output")
    out: OptionalPath = opt(
        "Write to this folder [default: published/FORMAT in that of the run].", default=None,
        metavar="DIR", short="-o", panel="Output")
    model_id: str | None = opt(
        "The id of the model [default: its id on the Hub].", default=None, metavar="ORG/NAME",
        panel="Output")
    licence: str | None = opt(
        "Include the texts of the suite, under this licence.", default=None, metavar="SPDX-ID",
        panel="Output")
    organization: str = opt("Who publishes, for eee.", default="", metavar="NAME", panel="Output")


class StudyRunOptions(Watched):
    file: shared.StudyFile
    engine: Literal["local", "ray"] = opt(
        "Processes on this machine, or a Ray cluster.", default="local")
    workers: int | None = opt(
        "Workers at once [default: 1; of ray one for each CPU].", default=None, min=1, metavar="N")
    ray_address: str | None = opt(
        "The Ray cluster: HOST:PORT or auto [default: $RAY_ADDRESS, else this machine].",
        default=None, metavar="A")
    dry_run: bool = opt("Print the runs; write nothing.", default=False, panel="Output")


class StudyStatusOptions(Options):
    file: shared.StudyFile


class StudyReportOptions(Watched):
    file: shared.StudyFile
    out: shared.Page = opt(default=None)
    tables: shared.Tables = opt(default=None)


class ReproduceOptions(Watched):
    name: str | None = arg("The table or figure. Leave it out to list all.", default=None)
    out: FilePath = opt(
        "Write the table and its runs to this folder.", default=Path("runs/reproduce"),
        metavar="DIR", short="-o")
    add: Sequence[str] | None = opt(
        "Add a row for your own model; others only if --only names them.", default=None,
        metavar="NAME=M", is_repeated=True)
    only: Sequence[str] | None = opt(
        "Make only these rows.", default=None, metavar="ROW,ROW")
    tolerance: float | None = opt(
        "Points from the paper's number that are `within`.", default=None, metavar="POINTS", min=0)
    data: Sequence[str] | None = opt(
        "Read a data set from a file: rte:train=FILE.", default=None, metavar="TASK:SPLIT=FILE",
        is_repeated=True)
    device: str = opt(
        "auto, cpu, cuda, cuda:1 or mps; trainings: cpu, else auto.", default="auto",
        metavar="DEVICE")
    dry_run: bool = opt("Print the commands, and run nothing.", default=False)


class PatternsOptions(Counted):
    run: shared.RunPath
    groups: shared.Groups = None


class EditsOptions(Counted):
    run: shared.RunPath
    derive: bool = opt(
        "Derive edits with a dependency parser (spaCy).", default=False, panel="Questions")


class ExamplesOptions(Options):
    run: shared.RunPath
    examples: int = opt("Examples of each kind.", default=5, min=1, panel="Output")


class KnowledgeOptions(Counted):
    runs: Paths = arg("Runs or files of answers; LABEL=RUN names one.", metavar="RUN")
    sizes: Sequence[str] | None = opt(
        "Sizes of the training data, one for each run: 1M,10M,1B.", default=None, metavar="N,N",
        panel="Questions")


class FactorsOptions(Options):
    runs: Paths = arg("Runs of questions; LABEL=RUN names one.", metavar="RUN")
    groups: shared.Groups = None


class SyntaxOptions(Options):
    suite: shared.SuiteArgument


class TaskEffectsOptions(Options):
    runs: Paths = arg("Runs of sentence pairs; MODEL=RUN names the model.", metavar="RUN")
    small: Sequence[str] = opt(
        "Tasks with few training examples.", default=SMALL_TASKS, metavar="T,T",
        panel="Questions")
    leave_out: Sequence[str] | None = opt(
        "Leave these models out of the tests.", default=None, metavar="M,M", panel="Questions")


class VectorOptions(Watched):
    model: str = opt(
        "The model, as for `probe`.", default="packaged:smollm2", metavar="M", short="-m",
        panel="Model")
    suite: shared.FactSuiteName = "mini"
    groups: shared.Groups = None
    limit: int = opt(
        "Facts of each relation, at most.", default=100, min=1, short="-n", panel="Questions")
    layers: Sequence[int] = opt(
        "Layers: 0 is the embeddings, -1 the last one.", default=(-1,), metavar="N,N",
        panel="Model")
    out: shared.Folder = opt(default=None)
    device: shared.Device = "auto"
