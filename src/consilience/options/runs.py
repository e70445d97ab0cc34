"""The options of commands on runs, of analyses, of studies and of ``reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Literal

from consilience.core.errors import (
    SMALL_TASKS,
    PublishFormat,
)
from consilience.options import FilePath, OptionalPath, Options, Paths, Watched, arg, opt, shared

# fmt: off


class Counted(Options):
    """How answers that exist are counted."""

    _: KW_ONLY
    protocol: shared.RunProtocol = None


class ScoreOptions(Options):
    answers: FilePath = arg(
        "The folder of a run, a table (.jsonl, .csv, .tsv, .parquet, .xlsx), or logs of "
        "lm-evaluation-harness, inspect_ai, promptfoo or Every Eval Ever.", metavar="ANSWERS")
    factor: Sequence[str] = opt(
        "Take the levels of this factor from this field; dots lead into objects: "
        "template=doc.style.", default=(), metavar="NAME=FIELD", is_repeated=True,
        panel="Questions")
    suite: str | None = opt(
        "The answers are to this: a file that `consilience suite export` wrote, or a suite of "
        "facts.", default=None, metavar="S", short="-s", panel="Questions", is_of_run=True)
    model: str | None = opt(
        "Measure the answers of this model or provider, where a file has those of several.",
        default=None, metavar="M", panel="Counting", is_of_run=True)
    match: str | None = opt(
        "Read the answers by this rule, whatever a log says of them: exact, contains, number, "
        "last-number or regex:PATTERN [default: what the log says, else contains for open "
        "questions and exact for others].", default=None, metavar="RULE", panel="Counting")
    protocol: shared.RunProtocol = None
    out: OptionalPath = opt(
        "Also keep a run in this folder.", default=None, metavar="DIR", short="-o", panel="Output")


class CompareOptions(Counted):
    runs: shared.RunSpecs
    flips: bool = opt(
        "Show which answers changed, and from right to wrong or back, instead of differences.",
        default=False)


class GateOptions(Options):
    run: shared.RunPath
    rule: Sequence[str] = opt(
        'A rule, such as "consistency >= 0.8", "consistency in capital >= 70 %" or "accuracy no '
        'worse than baseline by 3 points".', default=(), metavar="RULE", is_repeated=True)
    baseline: str | None = opt(
        "The run that rules compare with; only items that both runs have are compared.",
        default=None, metavar="RUN")
    prove: bool = opt(
        "Pass a rule only where the data show that it holds: the whole 90 % interval is on the "
        "right side of the limit.", default=False)
    protocol: shared.RunProtocol = None


class ReportOptions(Counted, Watched):
    runs: shared.RunSpecs
    _: KW_ONLY
    out: OptionalPath = opt(
        "Write the page to this file [default: report.html in the folder of the run].",
        default=None, metavar="FILE", short="-o", panel="Output")
    figures: OptionalPath = opt(
        "Write every figure to this folder, as SVG.", default=None, metavar="DIR", panel="Output")
    tables: OptionalPath = opt(
        "Write the papers' tables of these runs to this folder, as CSV, Markdown and LaTeX.",
        default=None, metavar="DIR", panel="Output")


class ViewOptions(Options):
    runs: shared.RunSpecs
    _: KW_ONLY
    out: OptionalPath = opt(
        "Write the page to this file [default: answers.html in the folder of the first run].",
        default=None, metavar="FILE", short="-o", panel="Output")


class PublishOptions(Watched):
    run: FilePath = arg("The folder of a run.", metavar="RUN")
    format: PublishFormat = opt(
        "Write a record of Every Eval Ever (eee), or a README.md with a model-index (model-card).",
        panel="Output")
    out: OptionalPath = opt(
        "Write the files to this folder [default: published/FORMAT in that of the run].",
        default=None, metavar="DIR", short="-o", panel="Output")
    model_id: str | None = opt(
        "Publish the results under this id of the model [default: its id on the Hub].",
        default=None, metavar="ORG/NAME", panel="Output")
    licence: str | None = opt(
        "You may share the texts of the suite under this licence [default: they are left out].",
        default=None, metavar="SPDX-ID", panel="Output")
    organization: str = opt(
        "Who publishes: an organization, for eee.", default="", metavar="NAME", panel="Output")


class StudyRunOptions(Watched):
    file: shared.StudyFile
    engine: Literal['local', 'ray'] = opt(
        "Work in processes on this machine, or on a Ray cluster.", default="local")
    workers: int | None = opt(
        "Use this many workers at once [default: 1; with --engine ray one for each CPU of the "
        "cluster].", default=None, min=1, metavar="N")
    ray_address: str | None = opt(
        "With --engine ray: join the cluster at this address, HOST:PORT or auto [default: "
        "$RAY_ADDRESS, else a cluster of this machine alone].", default=None, metavar="A")
    dry_run: bool = opt(
        "Print the runs and their numbers of queries; write nothing.", default=False,
        panel="Output")


class StudyStatusOptions(Options):
    file: shared.StudyFile


class StudyReportOptions(Watched):
    file: shared.StudyFile
    out: OptionalPath = opt(
        "Write the page to this file [default: report.html in the folder of the study].",
        default=None, metavar="FILE", short="-o", panel="Output")
    tables: OptionalPath = opt(
        "Write the tables to this folder, as CSV, Markdown and LaTeX.", default=None, metavar="DIR",
        panel="Output")


class ReproduceOptions(Watched):
    name: str | None = arg(
        "The table or figure to reproduce. Leave it out to list all.", default=None)
    out: FilePath = opt(
        "Write the table and the runs that it needs to this folder.",
        default=Path('runs/reproduce'), metavar="DIR", short="-o")
    add: Sequence[str] | None = opt(
        "Add a row for your own model. The paper's models are then run only if --only names them.",
        default=None, metavar="NAME=M", is_repeated=True)
    only: Sequence[str] | None = opt(
        "Make only these rows of the table.", default=None, metavar="ROW,ROW")
    tolerance: float | None = opt(
        "Call a percentage `within` if it differs from the paper's by at most this many points, "
        "else `outside`.", default=None, metavar="POINTS", min=0)
    data: Sequence[str] | None = opt(
        "Read a data set from a file: rte:train=FILE.", default=None, metavar="TASK:SPLIT=FILE",
        is_repeated=True)
    device: str = opt(
        "Run models on auto, cpu, cuda, cuda:1 or mps. Trainings run on cpu if it is named, else "
        "on auto.", default="auto", metavar="DEVICE")
    dry_run: bool = opt(
        "Print the commands, and run nothing.", default=False)


class PatternsOptions(Counted):
    run: shared.RunPath
    groups: shared.Groups = None


class EditsOptions(Counted):
    run: shared.RunPath
    derive: bool = opt(
        "Derive edits with a dependency parser (spaCy).", default=False, panel="Questions")


class ExamplesOptions(Options):
    run: shared.RunPath
    examples: int = opt("Print this many examples of each kind.", default=5, min=1, panel="Output")


class KnowledgeOptions(Counted):
    runs: Paths = arg("Folders of runs, or tables of answers; LABEL=RUN names one.", metavar="RUN")
    sizes: Sequence[str] | None = opt(
        "Also correlate with these sizes of training data, one for each run: 1M,10M,1B.",
        default=None, metavar="N,N", panel="Questions")


class FactorsOptions(Options):
    runs: Paths = arg("Folders of runs of questions; LABEL=RUN names one.", metavar="RUN")
    groups: shared.Groups = None


class SyntaxOptions(Options):
    suite: shared.SuiteArgument


class TaskEffectsOptions(Options):
    runs: Paths = arg(
        "Folders of runs of sentence pairs, or tables as CSV; MODEL=RUN names the model.",
        metavar="RUN")
    small: Sequence[str] = opt(
        "Treat these tasks as those with few training examples.", default=SMALL_TASKS,
        metavar="T,T", panel="Questions")
    leave_out: Sequence[str] | None = opt(
        "Leave these models out of the tests.", default=None, metavar="M,M", panel="Questions")


class VectorOptions(Watched):
    model: str = opt(
        "Use this model, as for `probe`.", default="packaged:smollm2", metavar="M", short="-m",
        panel="Model")
    suite: shared.FactSuiteName = "mini"
    groups: shared.Groups = None
    limit: int = opt(
        "Use at most this many facts of each relation.", default=100, min=1, short="-n",
        panel="Questions")
    layers: Sequence[int] = opt(
        "Use these layers: 0 is the embeddings, -1 the last layer.", default=(-1,), metavar="N,N",
        panel="Model")
    out: shared.Folder = opt(default=None)
    device: shared.Device = "auto"
