"""The options of the commands that audit a suite and make it ready to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from consilience.workflow.options import (
    FACTS,
    OUTPUT,
    QUESTIONS,
    ColumnNames,
    DataDir,
    Groups,
    Option,
    SheetFolder,
    SuiteArgument,
)

AuditedSuite = Annotated[
    str,
    Option(
        "The suite: a name, a folder, or a file of questions.", metavar="SUITE", is_argument=True
    ),
]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Look for mistakes in a suite, and for what decides its numbers.

    Each finding has its severity, its place, the evidence, and what to do. Errors make the suite
    unusable, warnings are probable mistakes, and notes decide what numbers mean. Checks that need a
    parser or an encoder are run where these are installed.
    """

    suite: AuditedSuite
    runs: Annotated[
        Sequence[str],
        Option(
            "Also look for patterns whose answers differ from all others in these runs.",
            metavar="RUN,RUN",
            panel=FACTS,
        ),
    ] = ()
    fix: Annotated[
        bool,
        Option(
            "Correct spaces, final punctuation and exact duplicates in the files, and list every "
            "change.",
            panel=FACTS,
        ),
    ] = False
    columns: Annotated[ColumnNames, QUESTIONS] = None
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class PatternSheetOptions:
    """Ask people whether patterns mean the same as the base pattern (ParaRel paper, Section 4).

    Each annotator gets a page and a table with tasks of seven pairs of sentences: five patterns
    beside the base pattern of their relation, and two controls that do not mean the same. The page
    works without a network. Keep key.json to yourself.
    """

    suite: SuiteArgument
    folder: SheetFolder
    patterns: Annotated[
        int,
        Option("Ask about at most this many patterns of each relation.", min=1, panel=QUESTIONS),
    ] = 5
    people: Annotated[
        Sequence[str],
        Option(
            "Write a sheet for each of these people; the sign-off has their names.",
            metavar="NAME,NAME",
            panel=OUTPUT,
        ),
    ] = ("annotator-1", "annotator-2", "annotator-3")
    groups: Groups = None
    seed: Annotated[
        int, Option("Seed of the patterns, facts and orders.", min=0, panel=QUESTIONS)
    ] = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class CardOptions:
    """Write the data card (README.md) of a suite folder.

    The card has the statistics of the ParaRel paper's Tables 1 and 8, where the patterns come from,
    and who judged them. Only its own part of README.md is replaced. Name, description, licence,
    creator, url and date come from suite.json.
    """

    suite: SuiteArgument
    data_dir: DataDir = None
