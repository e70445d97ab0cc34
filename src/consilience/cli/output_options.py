"""Options of what a command prints; all others are those of its workflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.core.errors import By, TableFormat
from consilience.workflow.options import GENERAL, OUTPUT, PAIRS, Option

AsJson = Annotated[bool, Option("Print only one JSON document.", flag="--json", panel=OUTPUT)]
CsvFile = Annotated[
    Path | None,
    Option("Also write the table to this CSV file.", metavar="FILE", flag="--csv", panel=OUTPUT),
]
TableBy = Annotated[
    By | None,
    Option(
        "Print a table of details, with a row for each relation, task or group of questions "
        "(group), kind of edit, pattern, form, factor, variant or metric.",
        panel=OUTPUT,
    ),
]
Format = Annotated[
    TableFormat,
    Option(
        "Print in this format: a table, Markdown (md), LaTeX (latex), CSV with all digits, or "
        "json, the document that --json prints.",
        flag="--format",
        panel=OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True)
class GeneralOptions:
    """What every command has."""

    config: Annotated[
        str | None,
        Option(
            "Read defaults from this TOML file [default: consilience.toml, if there is one].",
            metavar="FILE",
            panel=GENERAL,
        ),
    ] = None
    quiet: Annotated[
        bool,
        Option(
            "Print results and errors only: no progress and no notes on standard error.",
            short="-q",
            panel=GENERAL,
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """For people or for programs."""

    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class TableOutput:
    """A table, also as a file."""

    file: CsvFile = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class FactorsOutput:
    """The tables of factors."""

    file: CsvFile = None
    format_: Format = "table"
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class ProbeOutput:
    """The summary of a run, or one of its tables."""

    by: TableBy = None
    examples: Annotated[
        int,
        Option(
            "Print this many changed answers as examples; inconsistent.csv has all.",
            min=0,
            panel=PAIRS,
        ),
    ] = 0
    format_: Format = "table"
    as_json: AsJson = False
    dry_run: Annotated[
        bool,
        Option(
            "Print what would be asked, and an estimate of the time; write nothing.", panel=OUTPUT
        ),
    ] = False
    shard: Annotated[
        str | None,
        Option(
            "Ask only part I of N parts of the groups, such as 1/8. The process that completes the "
            "run prints its numbers (docs/reliability.md).",
            metavar="I/N",
            panel=OUTPUT,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class StudyRunOutput:
    """How far a study is."""

    dry_run: Annotated[
        bool,
        Option(
            "Print the runs, with the requests and the cost of models behind a URL; write nothing.",
            panel=OUTPUT,
        ),
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class ScoreOutput:
    """The summary of answers, or one of their tables."""

    by: TableBy = None
    file: CsvFile = None
    format_: Format = "table"
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class CompareOutput:
    """The differences of runs."""

    show: Annotated[
        Sequence[str],
        Option(
            "Print these metrics [default: those of the summary]; --csv and --json have all.",
            metavar="M,M",
            panel=OUTPUT,
        ),
    ] = ()
    by: TableBy = None
    file: CsvFile = None
    format_: Format = "table"
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class GateOutput:
    """The checks of a gate, or its plan."""

    plan: Annotated[
        bool,
        Option(
            "Check nothing: print the power of each rule, and how many items, groups and repeats "
            "give a power of 80 %.",
            panel=OUTPUT,
        ),
    ] = False
    junit: Annotated[
        Path | None,
        Option(
            "Also write the checks to this file as JUnit XML, which CI systems show.",
            metavar="FILE",
            panel=OUTPUT,
        ),
    ] = None
    format_: Format = "table"
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class ImproveOutput:
    """The result of a training."""

    details: Annotated[
        bool,
        Option(
            "Also print Table 7, every training, and the differences of each relation.",
            panel=OUTPUT,
        ),
    ] = False
    as_json: AsJson = False
