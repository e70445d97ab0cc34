"""The options of commands that make, export and annotate suites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from consilience.core.errors import ExportFormat
from consilience.options import (
    FilePath,
    Option,
    OptionalPath,
    Options,
    Watched,
    shared,
)
from consilience.options.probe import ProbeOptions

SuiteKind = Literal["questions", "facts", "judge"]

# fmt: off


@dataclass(frozen=True)
class ExportOptions(Options):
    suite: Annotated[str, Option("The suite: a name, a folder or a file of questions.", "SUITE")]
    _: KW_ONLY
    format: Annotated[ExportFormat | None, Option(
        "jsonl, csv, or a task of lm-evaluation-harness [default: by the name of --out].")] = None
    out: Annotated[OptionalPath, Option(
        "Write to this file; lm-eval: into this folder.", "FILE", "-o")] = None
    perturbations: shared.FormNames = None
    limit: shared.Limit = None
    template: Annotated[str | None, Option(
        "The text around what is asked, as of probe.", "TEXT")] = None
    seed: Annotated[int, Option("Seed of --limit.", min=0)] = 0
    groups: shared.Groups = None
    data: shared.PairData = None
    vary: shared.Vary = None
    design: shared.DesignName = "full"
    columns: shared.ColumnNames = None
    shots: shared.Shots = 0


@dataclass(frozen=True)
class MineOptions(Watched):
    corpus: Annotated[FilePath, Option(
        "Texts: a table (column text), or lines or paragraphs.", "CORPUS")]
    _: KW_ONLY
    suite: Annotated[str, Option(
        "These facts: a suite, or a table (relation, subject, object).", "S", "-s")]
    groups: shared.Groups = None
    against: Annotated[Sequence[str] | None, Option(
        "Suites whose facts count as those of other relations.", "S,S")] = None
    top: Annotated[int, Option("Patterns of each relation.", min=1)] = 20
    out: Annotated[OptionalPath, Option(
        "Write the proposals to this new file (.jsonl or .csv).", "FILE", "-o")] = None


@dataclass(frozen=True)
class ImportOptions(Options):
    path: Annotated[FilePath, Option("A table, or a file of proposals.", "FILE")]
    _: KW_ONLY
    into: Annotated[FilePath, Option("Add to this suite folder, which may be new.", "DIR")]
    groups: shared.Groups = None
    dry_run: Annotated[bool, Option("Show what would be imported; write nothing.")] = False


@dataclass(frozen=True)
class RewriteOptions(Watched):
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

    @property
    def asked(self) -> ProbeOptions:
        """The options of ``probe`` for the model that writes."""
        return ProbeOptions(
            model=self.model or "none", device=self.device, base_url=self.base_url,
            api_key_env=self.api_key_env,
        )


@dataclass(frozen=True, kw_only=True)
class SheetOptions(Options):
    task: Annotated[str, Option("The task: a name, or a TOML file.", "T")]
    data: Annotated[str, Option("Labelled pairs: a file, or hub:SPLIT.", "F")]
    out: shared.SheetFolder
    items: Annotated[int, Option("Pairs in a sheet.", min=1)] = 30
    annotators: Annotated[int, Option("How many sheets.", min=1)] = 5
    perturbations: Annotated[Sequence[str] | None, Option(
        "Forms: names, or `all` [default: reverse,signal].", "P,P")] = None
    seed: Annotated[int, Option("Seed of the pairs and of their orders.", min=0)] = 0


@dataclass(frozen=True)
class PatternSheetOptions(Options):
    suite: shared.SuiteArgument
    _: KW_ONLY
    out: shared.SheetFolder
    patterns: Annotated[int, Option("Patterns of each relation, at most.", min=1)] = 5
    annotators: Annotated[int, Option("How many sheets.", min=1)] = 3
    groups: shared.Groups = None
    seed: Annotated[int, Option("Seed of the patterns, facts and orders.", min=0)] = 0


@dataclass(frozen=True)
class ScoreSheetsOptions(Options):
    folder: Annotated[FilePath, Option("The folder with key.json and the answers.", "SHEETS")]
