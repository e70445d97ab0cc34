"""The options of ``reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.workflow.options import (
    DataDir,
    Option,
)

WITH = "'probe=--limit 5'"
"""An example of ``--with``."""


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """Reproduce a table or figure of the papers, or put your own model next to its rows.

    Runs the commands that the table needs and reuses existing runs. Rerun the same command to
    resume. A row whose model or data is missing is marked `unavailable`.
    """

    name: Annotated[
        str | None,
        Option("The table or figure to reproduce. Leave it out to list all.", is_argument=True),
    ] = None
    folder: Annotated[
        Path,
        Option(
            "Write the table and the runs that it needs to this folder.",
            metavar="DIR",
            flag="--out",
            short="-o",
        ),
    ] = Path("runs/reproduce")
    added: Annotated[
        Sequence[str] | None,
        Option(
            "Add a row for your own model. The paper's models are then run only if --only names "
            "them.",
            metavar="NAME=M",
            flag="--add",
            is_repeated=True,
        ),
    ] = None
    models: Annotated[
        Sequence[str] | None,
        Option(
            "Run this model in place of that of a row of the paper.",
            metavar="ROW=M",
            flag="--replace",
            is_repeated=True,
        ),
    ] = None
    only: Annotated[
        Sequence[str] | None,
        Option("Make only these rows, blocks or columns of the table.", metavar="ROW,ROW"),
    ] = None
    tolerance: Annotated[
        float | None,
        Option(
            "Call a percentage `within` if it differs from the paper's by at most this many "
            "points, else `outside`.",
            metavar="POINTS",
            min=0,
        ),
    ] = None
    is_strict: Annotated[
        bool,
        Option(
            "Exit with status 3 if a selected number is missing or differs from the paper's. "
            "With --tolerance, a percentage may differ by that many points.",
            flag="--strict",
        ),
    ] = False
    data: Annotated[
        Sequence[str] | None,
        Option(
            "Read a data set from a file: rte:train=FILE.",
            metavar="TASK:SPLIT=FILE",
            is_repeated=True,
        ),
    ] = None
    more: Annotated[
        Sequence[str] | None,
        Option(
            f"Pass more arguments to a command: {WITH} asks 5 facts a relation. Such runs have a "
            "separate folder.",
            metavar="C=ARGS",
            flag="--with",
            is_repeated=True,
        ),
    ] = None
    data_dir: DataDir = None
    device: Annotated[
        str,
        Option(
            "Run models on auto, cpu, cuda, cuda:1 or mps. Trainings run on cpu if it is named, "
            "else on auto.",
            metavar="DEVICE",
        ),
    ] = "auto"
    dry_run: Annotated[
        bool, Option("Print the commands and the number of queries, and run nothing.")
    ] = False
