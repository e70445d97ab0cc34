"""The options of commands on runs, of analyses, of studies and of ``reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from consilience.options import FilePath, Option, OptionalPath, Options, Watched, shared

# fmt: off


@dataclass(frozen=True)
class ScoreOptions(Options):
    answers: Annotated[FilePath, Option(
        "The folder of a run, a table, or a log of another harness.", "ANSWERS")]
    _: KW_ONLY
    factor: Annotated[Sequence[str], Option(
        "A factor and its field, such as template=doc.style.", "NAME=FIELD", is_repeated=True)] = ()
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
class ReproduceOptions(Watched):
    name: Annotated[str | None, Option(
        "pararel, calum, or one table or figure. Leave it out to list all.")] = None
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Write the tables and their runs to this folder.", "DIR", "-o")] = Path("runs/reproduce")
    add: Annotated[Sequence[str] | None, Option(
        "Add a row for your own model; others only if --only names them.", "NAME=M",
        is_repeated=True)] = None
    only: Annotated[Sequence[str] | None, Option("Make only these rows.", "ROW,ROW")] = None
    tolerance: Annotated[float | None, Option(
        "Points from the paper's number that are `within`.", "POINTS", min=0)] = None
    data: Annotated[OptionalPath, Option(
        "Read tasks from the files TASK/SPLIT.* of this folder [default: from the Hub].",
        "DIR")] = None
    device: Annotated[str, Option(
        "auto, cpu, cuda, cuda:1 or mps; trainings: cpu, else auto.", "DEVICE")] = "auto"
    dry_run: Annotated[bool, Option("Print the commands, and run nothing.")] = False
