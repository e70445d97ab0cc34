"""The options of ``study``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from consilience.workflow.options import OUTPUT, BootstrapSeed, Option

StudyFile = Annotated[
    Path, Option("The study: a TOML file (docs/studies.md).", metavar="FILE", is_argument=True)
]


@dataclass(frozen=True, slots=True)
class StudyRunOptions:
    """Ask every model of a study every suite, in every combination of factors.

    Worker processes ask the groups of all runs; each loads a model once. A run that fails is
    recorded, and the others are asked; the exit status is then 2. Rerun the same command to ask
    what is not yet complete.
    """

    file: StudyFile
    engine: Annotated[
        Literal["local", "ray"],
        Option("Work in processes on this machine, or on a Ray cluster."),
    ] = "local"
    workers: Annotated[
        int | None,
        Option(
            "Use this many workers at once [default: 1; with --engine ray one for each CPU of the "
            "cluster].",
            min=1,
            metavar="N",
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        Option(
            "With --engine ray: join the cluster at this address, HOST:PORT or auto [default: "
            "$RAY_ADDRESS, else a cluster of this machine alone].",
            metavar="A",
        ),
    ] = None
    shard: Annotated[
        str | None,
        Option(
            "Ask only part I of N parts of the study, such as 1/8. All parts have one folder, and "
            "the process that completes a run counts it.",
            metavar="I/N",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class StudyStatusOptions:
    """Show which runs of a study are complete, part (some groups), waiting or failed.

    No model is loaded.
    """

    file: StudyFile


@dataclass(frozen=True, slots=True)
class StudyReportOptions:
    """Make one table and one page of all complete runs of a study, and compare its models.

    Models are compared on each suite with each combination of factors. p is adjusted over all
    comparisons of the study.
    """

    file: StudyFile
    page: Annotated[
        Path | None,
        Option(
            "Write the page to this file [default: report.html in the folder of the study].",
            metavar="FILE",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    tables: Annotated[
        Path | None,
        Option(
            "Write the tables to this folder, as CSV, Markdown and LaTeX.",
            metavar="DIR",
            panel=OUTPUT,
        ),
    ] = None
    seed: BootstrapSeed = 0
