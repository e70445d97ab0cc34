"""The options of commands that read runs: ``score``, ``compare`` and ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from consilience.workflow.options import (
    COUNTING,
    FACTS_AND_PAIRS,
    OUTPUT,
    PAIRS,
    QUESTIONS,
    ApiKeyEnv,
    BaseUrl,
    BootstrapSeed,
    ColumnNames,
    DataDir,
    FormNames,
    MaxRequests,
    MaxTokens,
    Option,
    RunProtocol,
    RunSpecs,
    RunSuite,
    TrustRemoteCode,
)


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Measure answers that were made elsewhere, or those of a run. No model is needed.

    A table of answers needs --suite and the columns item, variant and answer, or answer_index.
    It may be what `consilience suite export` wrote, with the answers added. docs/export.md has
    an example. The results of promptfoo (.json) need no suite. Logs of lm-evaluation-harness
    (--log_samples) and inspect_ai (.eval) are read, too: docs/harnesses.md.
    """

    answers: Annotated[
        Path,
        Option(
            "The folder of a run, or a table: .jsonl, .csv, .csv.gz, .tsv, .parquet, .xlsx.",
            metavar="ANSWERS",
            is_argument=True,
        ),
    ]
    suite: RunSuite = None
    protocol: RunProtocol = None
    match: Annotated[
        str | None,
        Option(
            "Find the option, label or object in an answer by this rule: exact, normalized, "
            "contains, first-word, number, date or regex:PATTERN [default: exact for facts, "
            "contains for open questions, else normalized].",
            metavar="RULE",
            panel=COUNTING,
        ),
    ] = None
    folder: Annotated[
        Path | None,
        Option(
            "Also keep answers to facts or questions as a run in this folder, for compare, report "
            "and analyze.",
            metavar="DIR",
            flag="--out",
            short="-o",
            panel=OUTPUT,
        ),
    ] = None
    columns: Annotated[ColumnNames, QUESTIONS] = None
    data: Annotated[
        str | None,
        Option(
            "Refuse answers to other pairs than those of this file, or of hub:SPLIT.",
            metavar="F",
            panel=PAIRS,
        ),
    ] = None
    perturbations: Annotated[
        Sequence[str] | None,
        Option(
            "Also read answers to these forms of your own: FILE.py:FUNCTION, first:COLUMN or "
            "second:COLUMN.",
            metavar="P,P",
            panel=FACTS_AND_PAIRS,
        ),
    ] = None
    provider: Annotated[
        str | None,
        Option(
            "Measure the answers of this provider, where a file of promptfoo has several.",
            metavar="P",
            panel=COUNTING,
        ),
    ] = None
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Compare runs on the same questions, or the languages of one run, with intervals and tests.

    Each difference is a later run minus the first: paired, with a 95 % confidence interval, an
    exact McNemar or permutation test, and the minimum detectable difference. With --by, p is
    also adjusted over relations or forms. One run of a suite with several languages: every two of
    its languages are compared on the same facts.
    """

    runs: RunSpecs
    suite: RunSuite = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Ask a sample of a run again, and say whether this machine gives the same answers.

    Answers files are checked against their digests. Exit status: 0 same answers, 3 answers
    differ, 2 the run cannot be verified. Nothing is written. A model behind a URL gets real
    requests, whose number is printed first; the limits of the run do not apply. What runs code or
    sends a key (--trust-remote-code, FILE.py:FUNCTION, --base-url, --api-key-env) is never taken
    from the record of a run: repeat these options if you trust the run.
    """

    run: Annotated[Path, Option("The folder of a run.", metavar="RUN", is_argument=True)]
    sample: Annotated[
        int, Option("Ask about this many queries again, whole items.", metavar="N", min=1)
    ] = 100
    seed: Annotated[int, Option("Choose the sample by this seed.", metavar="N")] = 0
    model: Annotated[
        str | None,
        Option("Ask this copy of the model [default: the run's].", metavar="M", is_of_run=True),
    ] = None
    device: Annotated[
        str | None,
        Option("Compute on this device [default: the run's].", metavar="DEVICE", is_of_run=True),
    ] = None
    trust_remote_code: TrustRemoteCode = False
    perturbations: FormNames = None
    base_url: BaseUrl = None
    api_key_env: ApiKeyEnv = None
    max_requests: MaxRequests = None
    max_tokens: MaxTokens = None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Make one page on a run, or on several side by side: numbers, figures, examples, cautions.

    It is one file that opens without a network, on a phone and on paper. docs/report.md
    explains each of its numbers.
    """

    runs: RunSpecs
    page: Annotated[
        Path | None,
        Option(
            "Write the page to this file [default: report.html in the folder of the run].",
            metavar="FILE",
            flag="--out",
            short="-o",
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
            "Show the patterns of this relation first [default: the least consistent].",
            metavar="G",
            panel=OUTPUT,
        ),
    ] = None
    suite: RunSuite = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None
