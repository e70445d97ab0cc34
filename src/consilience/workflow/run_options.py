"""The options of commands that read runs: ``score``, ``compare`` and ``report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.workflow.options import (
    OUTPUT,
    BootstrapSeed,
    DataDir,
    Option,
    RunProtocol,
    RunSpecs,
    RunSuite,
)


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Which answers are measured, and how."""

    answers: Annotated[
        Path,
        Option(
            "The folder of a run, or a table: .parquet, .csv, .csv.gz.",
            metavar="ANSWERS",
            is_argument=True,
        ),
    ]
    suite: RunSuite = None
    protocol: RunProtocol = None
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Which runs are compared, and how."""

    runs: RunSpecs
    suite: RunSuite = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which runs are reported, and how."""

    runs: RunSpecs
    page: Annotated[
        Path | None,
        Option(
            "The page [default: report.html in the folder of the run].",
            metavar="FILE",
            flag="--out",
            panel=OUTPUT,
        ),
    ] = None
    figures: Annotated[
        Path | None,
        Option(
            "Write every figure to this folder, as SVG, PNG and PDF.", metavar="DIR", panel=OUTPUT
        ),
    ] = None
    tables: Annotated[
        Path | None,
        Option(
            "Write the papers' tables of these runs to this folder, as CSV, Markdown and LaTeX.",
            metavar="DIR",
            panel=OUTPUT,
        ),
    ] = None
    group: Annotated[
        str | None,
        Option(
            "Relation whose patterns are shown first [default: the least consistent].",
            metavar="G",
            panel=OUTPUT,
        ),
    ] = None
    suite: RunSuite = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None
