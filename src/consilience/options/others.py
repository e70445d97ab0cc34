"""The options of score, reproduce, suite export and suite rewrite, which functions pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from consilience.core.errors import SILENT, ExportFormat, Progress
from consilience.options import FilePath, Option, OptionalPath, Options, shared
from consilience.options.probe import AskedOptions, ProbeOptions

# fmt: off


@dataclass(frozen=True)
class ScoreOptions(Options):
    answers: Annotated[FilePath, Option(
        "The folder of a run, a table, or a log of another harness.", "ANSWERS")]
    _: KW_ONLY
    columns: Annotated[shared.ColumnNames, {"kinds": (), "pattern": ".+=.*", "help":
        "Columns, also of factors: item=Id,gold=Right,template=Style."}] = None
    suite: Annotated[str | None, Option(
        "What was asked: a file of `suite export`, or a suite of facts.", "S", "-s")] = None
    model: Annotated[str | None, Option(
        "Of a file with several models: count this one.", "M")] = None
    match: Annotated[str | None, Option(
        "How an answer is found in a text: a rule of probe [default: what the log says, else as "
        "probe].", "RULE")] = None
    protocol: shared.RunProtocol = None
    out: Annotated[OptionalPath, Option("Also keep a run in this folder.", "DIR", "-o")] = None
    by: shared.TableBy = None


@dataclass(frozen=True)
class ReproduceOptions(Options):
    name: Annotated[str | None, Option(
        "pararel, calum, or one table or figure. Leave it out to list all.")] = None
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Write the tables and their runs to this folder.", "DIR", "-o")] = Path("runs/reproduce")
    add: Annotated[Sequence[str] | None, Option(
        "Add a row for your own model; others only if --only names them.", "NAME=M",
        is_repeated=True, joins=",")] = None
    only: Annotated[Sequence[str] | None, Option("Make only these rows.", "ROW,ROW")] = None
    tolerance: Annotated[float | None, Option(
        "Points from the paper's number that are `within`.", "POINTS", min=0)] = None
    data: Annotated[OptionalPath, Option(
        "Read tasks from the files TASK/SPLIT.* of this folder [default: from the Hub].",
        "DIR")] = None
    device: Annotated[str, Option(
        "auto, cpu, cuda, cuda:1 or mps; trainings: cpu, else auto.", "DEVICE")] = "auto"
    dry_run: Annotated[bool, Option("Print the commands, and run nothing.")] = False
    progress: Progress = SILENT


@dataclass(frozen=True)
class ExportOptions(AskedOptions):
    suite: Annotated[str, Option(
        "The suite: a name, a folder or a file of questions.", "SUITE")] = "mini"
    _: KW_ONLY
    format: Annotated[ExportFormat | None, Option(
        "jsonl, csv, or a task of lm-evaluation-harness [default: by the name of --out].")] = None
    out: Annotated[OptionalPath, Option(
        "Write to this file; lm-eval: into this folder.", "FILE", "-o")] = None


@dataclass(frozen=True)
class RewriteOptions(Options):
    suite: Annotated[str, Option("The suite: a name, a folder, or a file of questions.", "SUITE")]
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Write the proposals to this new file (.jsonl or .csv).", "FILE", "-o")]
    model: Annotated[str | None, Option(
        "The model that writes [default: none; rules rewrite questions].", "M", "-m")] = None
    columns: shared.ColumnNames = None
    groups: shared.Groups = None
    samples: Annotated[int, Option("Texts for each base pattern or question.", min=1)] = 8
    temperature: Annotated[float, Option("Sample tokens at this temperature.", min=0)] = 0.7
    seed: Annotated[int, Option("Seed of what is drawn.", min=0)] = 0
    device: shared.Device = "auto"
    base_url: shared.BaseUrl = None
    api_key_env: shared.ApiKeyEnv = None
    progress: Progress = SILENT

    @property
    def asked(self) -> ProbeOptions:
        """The options of ``probe`` for the model that writes."""
        return ProbeOptions(
            model=self.model or "none", device=self.device, base_url=self.base_url,
            api_key_env=self.api_key_env,
        )
