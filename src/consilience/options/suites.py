"""The options of commands that make, export and annotate suites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from consilience.core.errors import ExportFormat
from consilience.options import FilePath, Option, OptionalPath, Watched, shared
from consilience.options.probe import AskedOptions, ProbeOptions

SuiteKind = Literal["questions", "facts", "judge"]

# fmt: off


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
