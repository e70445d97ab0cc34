"""The options of the commands that audit a suite and make it ready to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from consilience.workflow.options import (
    FACTS,
    QUESTIONS,
    ColumnNames,
    DataDir,
    Option,
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
