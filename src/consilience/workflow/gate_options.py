"""The options of ``gate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from consilience.core.errors import Undecided
from consilience.workflow.options import (
    BootstrapSeed,
    DataDir,
    Option,
    RunProtocol,
    RunSuite,
)


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Pass or fail a run by rules on its numbers: exit status 0 or 3, for CI.

    A rule passes if the 90 % interval of the number is on the right side of the limit (each bound
    is wrong with a probability of 5 %), fails if it is on the wrong side, and is else undecided.
    The gate passes if all rules pass. Rules are options, or `rule = ["..."]` in the table [gate]
    of consilience.toml. docs/gate.md has examples for GitHub Actions and GitLab.
    """

    runs: Annotated[
        Sequence[str],
        Option(
            "The folder of a run, or several runs of the same model on the same questions, whose "
            "numbers are averaged.",
            metavar="RUN",
            is_argument=True,
        ),
    ]
    rules: Annotated[
        Sequence[str],
        Option(
            'A rule, such as "consistency >= 0.8", "consistency in capital >= 70 %" or "accuracy '
            'no worse than baseline by 3 points".',
            metavar="RULE",
            flag="--rule",
            is_repeated=True,
        ),
    ] = ()
    baseline: Annotated[
        str | None,
        Option(
            "The run that rules compare with; only items that both runs have are compared.",
            metavar="RUN",
        ),
    ] = None
    passes: Annotated[
        int | None,
        Option(
            "Judge each run alone; a rule passes if it passes in at least this many of the runs "
            "[default: the numbers of all runs are averaged].",
            metavar="M",
            min=1,
        ),
    ] = None
    undecided: Annotated[Undecided, Option("What an undecided rule does to the exit status.")] = (
        "fail"
    )
    suite: RunSuite = None
    protocol: RunProtocol = None
    seed: BootstrapSeed = 0
    data_dir: DataDir = None
