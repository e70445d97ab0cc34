"""What finetune and perturb share: tasks, their pairs, and how a model reads them."""

from __future__ import annotations

from typing import Annotated

import typer

from consilience.choices import Joined, Pool
from consilience.cli.shared import names_in
from consilience.suites.pairs import Pairs, half_of, read_pairs, sample_pairs
from consilience.suites.tasks import load_task
from consilience.types import Task

HALF_SEED = 0
"""Draws the halves: always the same ones."""


TaskOption = Annotated[
    str, typer.Option("--task", help="A task's name, or a TOML file of one.", metavar="T")
]
IndicatorsOption = Annotated[
    str | None,
    typer.Option(help="What stands before each sentence: Premise,Hypothesis.", metavar="A,B"),
]
JoinedOption = Annotated[
    Joined | None,
    typer.Option(
        "--input",
        help="pair: two segments, as encoders have by themselves; string: one, as all others.",
    ),
]
PoolOption = Annotated[
    Pool | None,
    typer.Option(help="Decoders: read the last token, an end token behind it, or the mean."),
]
LongestOption = Annotated[
    int | None,
    typer.Option("--max-length", help="Tokens; by itself what the model takes.", min=8),
]


def task_of(spec: str, indicators: str | None) -> Task:
    """The task, with other indicators where some are given."""
    return load_task(spec, None if indicators is None else names_in(indicators))


def pairs_of(
    source: str, task: Task, *, half: int | None = None, limit: int | None = None, seed: int = 0
) -> Pairs:
    """The pairs of a file or of the Hub; one half of them, a sample of them."""
    pairs = read_pairs(source, task)
    if half is not None:
        pairs = half_of(pairs, half, HALF_SEED)
    return pairs if limit is None else sample_pairs(pairs, limit, seed)
