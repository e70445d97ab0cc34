"""The options of the commands on suites and annotation sheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.workflow.options import (
    ADVANCED,
    COUNTING,
    FACTS,
    OUTPUT,
    QUESTIONS,
    AsShipped,
    ColumnNames,
    DataDir,
    Indicators,
    Option,
    SheetFolder,
    SuiteArgument,
)


@dataclass(frozen=True, slots=True)
class SuiteListOptions:
    """List the suites that have a name, with their folders."""

    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Download a suite of the papers, and check every file."""

    name: Annotated[str, Option("The suite to download: pararel.", is_argument=True)]
    data_dir: DataDir = None
    source: Annotated[
        str | None,
        Option(
            "Download the same files from another URL.",
            metavar="URL",
            flag="--from",
            panel=ADVANCED,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class NewSuiteOptions:
    """Write a working example of a suite into a new folder, to be edited.

    The folder has the data and a README that explains its columns. An existing folder must be
    empty.
    """

    folder: Annotated[
        Path, Option("Write the example to this folder.", metavar="DIR", is_argument=True)
    ]
    facts: Annotated[bool, Option("Write facts with cloze patterns in place of questions.")] = False


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Check a suite: list every error in its files by file and line.

    Notes point out what is no error but changes what the numbers mean: subjects of an N-1
    relation with several objects, duplicate facts, objects that differ only in case or spaces,
    and relations with one pattern. The TOML file of a task of sentence pairs is checked, too.
    """

    suite: Annotated[
        str,
        Option(
            "The suite: a name, a folder, a file of questions, or a task of sentence pairs or its "
            "TOML file.",
            metavar="SUITE",
            is_argument=True,
        ),
    ]
    columns: Annotated[ColumnNames, QUESTIONS] = None
    shared: Annotated[
        bool,
        Option(
            "Also demand what a shared suite of facts needs: provenance with a licence and an "
            "accepted sign-off for every pattern, and a current data card.",
            panel=FACTS,
        ),
    ] = False
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """Count the relations, patterns and facts of a suite (ParaRel paper, Table 1)."""

    suite: SuiteArgument
    columns: Annotated[ColumnNames, QUESTIONS] = None
    data_dir: DataDir = None
    as_shipped: AsShipped = False


@dataclass(frozen=True, slots=True)
class SheetOptions:
    """Sample sentence pairs, and write a page and a table with all their forms per annotator.

    Give each annotator the page or the table, and never key.json. The page works without a
    network. It downloads a table of answers: put that table into the folder, in place of the
    empty one.
    """

    task: Annotated[
        str,
        Option("Ask about this task: a name, or a TOML file.", metavar="T", panel=QUESTIONS),
    ]
    data: Annotated[
        str,
        Option(
            "Read labelled pairs from this file or from hub:SPLIT.", metavar="F", panel=QUESTIONS
        ),
    ]
    folder: SheetFolder
    items: Annotated[int, Option("Sample this many pairs.", min=1, panel=QUESTIONS)] = 30
    annotators: Annotated[int, Option("Write this many sheets.", min=1, panel=OUTPUT)] = 5
    perturbations: Annotated[
        Sequence[str] | None,
        Option(
            "Also ask in these forms: names, or `all` [default: reverse,signal].",
            metavar="P,P",
            panel=QUESTIONS,
        ),
    ] = None
    indicators: Annotated[Indicators, QUESTIONS] = None
    question: Annotated[
        str, Option("Ask this question [default: that of the task].", panel=QUESTIONS)
    ] = ""
    seed: Annotated[
        int, Option("Seed of the pairs and of their orders.", min=0, panel=QUESTIONS)
    ] = 0


@dataclass(frozen=True, slots=True)
class ScoreSheetsOptions:
    """Measure annotators' accuracy, consistency and agreement (CALUM paper, Section 4.4).

    For sheets on patterns: agreement with the suite on paraphrases and on controls, and between
    annotators (ParaRel paper, Section 4).
    """

    folder: Annotated[
        Path,
        Option("The folder with key.json and the answers.", metavar="SHEETS", is_argument=True),
    ]
    seed: Annotated[int, Option("Seed of the bootstrap.", min=0, panel=COUNTING)] = 0
    sign: Annotated[
        Path | None,
        Option(
            "Record the verdicts on patterns in signoff.jsonl of this suite's folder.",
            metavar="SUITE",
            panel=OUTPUT,
        ),
    ] = None
