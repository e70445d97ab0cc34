"""The options of ``suite export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.core.errors import ExportFormat
from consilience.workflow.options import (
    ADVANCED,
    FACTS,
    FACTS_AND_PAIRS,
    OUTPUT,
    QUESTIONS,
    AsShipped,
    ColumnNames,
    DataDir,
    DesignName,
    FactsFrom,
    FormNames,
    Groups,
    Half,
    Indicators,
    Limit,
    Option,
    PairData,
    Shots,
    SystemPrompt,
    Vary,
)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Write the prompts of a suite, to send them to a model elsewhere.

    A row is an item in a variant: the prompt, what may be answered and the gold. Add a column
    `answer` with what the model answered, and measure it: consilience score FILE --suite S.
    docs/export.md has an example. The prompts go to standard output, or to --out. --format lm-eval
    writes a task of lm-evaluation-harness into the folder --out (docs/harnesses.md).
    """

    suite: Annotated[
        str,
        Option(
            "The suite: a name, a folder or a file of questions.", metavar="SUITE", is_argument=True
        ),
    ]
    format_: Annotated[
        ExportFormat | None,
        Option(
            "Write JSON Lines, CSV, or a task of lm-evaluation-harness [default: by the name of "
            "--out, else jsonl].",
            flag="--format",
            panel=OUTPUT,
        ),
    ] = None
    file: Annotated[
        Path | None,
        Option(
            "Write to this file; lm-eval: into this folder.",
            metavar="FILE",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    perturbations: Annotated[FormNames, FACTS_AND_PAIRS] = None
    limit: Limit = None
    template: Annotated[
        str | None,
        Option(
            "Write the prompt like this: a text with {text} and {labels} for sentence pairs; for "
            "questions plain (the default), chat, a text with {question}, or a file of templates.",
            metavar="TEXT",
            panel=ADVANCED,
        ),
    ] = None
    seed: Annotated[int, Option("Seed of --limit.", min=0, panel=QUESTIONS)] = 0
    groups: Groups = None
    facts_from: FactsFrom = None
    data_dir: Annotated[DataDir, FACTS] = None
    as_shipped: Annotated[AsShipped, FACTS] = False
    data: PairData = None
    indicators: Indicators = None
    half: Half = None
    vary: Vary = None
    design: DesignName = "full"
    columns: ColumnNames = None
    shots: Shots = 0
    system: SystemPrompt = None
