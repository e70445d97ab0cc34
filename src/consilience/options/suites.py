"""The options of commands that make, export and annotate suites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from consilience.core.errors import Connection, ConsilienceError, ExportFormat
from consilience.options import FilePath, OptionalPath, Options, Watched, arg, opt, shared
from consilience.options.probe import at_url

SuiteKind = Literal["questions", "facts", "judge"]

# fmt: off


class ExportOptions(Options):
    suite: str = arg("The suite: a name, a folder or a file of questions.", metavar="SUITE")
    format: ExportFormat | None = opt(
        "jsonl, csv, or a task of lm-evaluation-harness [default: by the name of --out].",
        default=None, panel="Output")
    out: OptionalPath = opt(
        "Write to this file; lm-eval: into this folder.", default=None, metavar="FILE", short="-o",
        panel="Output")
    perturbations: shared.FormNames = None
    limit: shared.Limit = None
    template: str | None = opt(
        "The text around what is asked, as of probe.", default=None, metavar="TEXT",
        panel="Questions")
    seed: int = opt("Seed of --limit.", default=0, min=0, panel="Questions")
    groups: shared.Groups = None
    data: shared.PairData = None
    vary: shared.Vary = None
    design: shared.DesignName = "full"
    columns: shared.ColumnNames = None
    shots: shared.Shots = 0


class MineOptions(Watched):
    corpus: FilePath = arg(
        "Texts: .jsonl, .parquet, or plain text by lines or paragraphs.", metavar="CORPUS")
    suite: str = opt(
        "These facts: a suite, or a table (relation, subject, object).",
        metavar="S", short="-s", panel="Questions")
    groups: shared.Groups = None
    against: Sequence[str] | None = opt(
        "Suites whose facts count as those of other relations.", default=None, metavar="S,S",
        panel="Questions")
    top: int = opt("Patterns of each relation.", default=20, min=1)
    title: str = opt(
        "The column of titles, which He, She, It and They stand for.", default="", metavar="NAME")
    out: OptionalPath = opt(
        "Write the proposals to this new file (.jsonl or .csv).", default=None, metavar="FILE",
        short="-o", panel="Output")


class ImportOptions(Options):
    path: FilePath = arg("A table, or a file of proposals.", metavar="FILE")
    into: FilePath = opt(
        "Add to this suite folder, which may be new.", metavar="DIR", panel="Output")
    groups: shared.Groups = None
    dry_run: bool = opt(
        "Show what would be imported; write nothing.", default=False, panel="Output")


class RewriteOptions(Watched):
    suite: str = arg("The suite: a name, a folder, or a file of questions.", metavar="SUITE")
    out: FilePath = opt(
        "Write the proposals to this new file (.jsonl or .csv).", metavar="FILE", short="-o",
        panel="Output")
    model: str | None = opt(
        "The model that writes [default: none; rules rewrite questions].", default=None,
        metavar="M", short="-m", panel="Model")
    columns: shared.ColumnNames = opt(default=None, panel="Questions")
    groups: shared.Groups = None
    samples: int = opt(
        "Texts for each base pattern or question.", default=8, min=1, panel="Questions")
    temperature: float = opt(
        "Sample tokens at this temperature.", default=0.7, min=0, panel="Questions")
    seed: int = opt("Seed of the samples.", default=0, min=0, panel="Questions")
    device: shared.Device = "auto"
    base_url: shared.BaseUrl = None
    api_key_env: shared.ApiKeyEnv = None

    def __post_init__(self) -> None:
        """Check every value, and name a model behind a URL as such."""
        super().__post_init__()
        if self.model:
            object.__setattr__(self, "model", at_url(self.model, self.base_url))

    @property
    def connection(self) -> Connection | None:
        """How a model that writes behind a URL is reached; None for a model that runs here."""
        if not str(self.model).startswith("openai:"):
            if self.base_url or self.api_key_env:
                raise ConsilienceError(
                    f"an option of models behind a URL with --model {self.model}",
                    expected="--model openai:NAME",
                    todo="Leave --base-url and --api-key-env out.",
                )
            return None
        if self.base_url is None:
            raise ConsilienceError(
                f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1"
            )
        return Connection(self.base_url, self.api_key_env)


class SheetOptions(Options):
    task: str = opt("The task: a name, or a TOML file.", metavar="T", panel="Questions")
    data: str = opt("Labelled pairs: a file, or hub:SPLIT.", metavar="F", panel="Questions")
    out: shared.SheetFolder
    items: int = opt("Pairs in a sheet.", default=30, min=1, panel="Questions")
    annotators: int = opt("How many sheets.", default=5, min=1, panel="Output")
    perturbations: Sequence[str] | None = opt(
        "Forms: names, or `all` [default: reverse,signal].", default=None, metavar="P,P",
        panel="Questions")
    seed: int = opt("Seed of the pairs and of their orders.", default=0, min=0, panel="Questions")


class PatternSheetOptions(Options):
    suite: shared.SuiteArgument
    out: shared.SheetFolder
    patterns: int = opt(
        "Patterns of each relation, at most.", default=5, min=1, panel="Questions")
    annotators: int = opt("How many sheets.", default=3, min=1, panel="Output")
    groups: shared.Groups = None
    seed: int = opt("Seed of the patterns, facts and orders.", default=0, min=0, panel="Questions")


class ScoreSheetsOptions(Options):
    folder: FilePath = arg("The folder with key.json and the answers.", metavar="SHEETS")
