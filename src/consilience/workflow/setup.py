"""What a run asks, the same for facts, sentence pairs and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience.ask import Progress
from consilience.core.errors import Protocol
from consilience.runs.folder import RunFolder
from consilience.types import Suite
from consilience.workflow.counting import CountedRun
from consilience.workflow.probe_options import ProbeOptions


@dataclass(frozen=True, slots=True)
class Setup:
    """What one model is asked, known before the model is loaded.

    The groups are independent: their answers are the same wherever and in whatever order they are
    asked.
    """

    options: ProbeOptions
    """The options of the command."""
    suite: Suite
    """The groups in their variants, as they are counted."""
    protocol: Protocol
    """How answers are counted."""
    groups: Mapping[str, int]
    """The number of queries of each group, in the order in which the groups are asked."""
    unit: str
    """What queries are called, in the plural."""
    extent: Mapping[str, Any]
    """Fields of a ``ProbePlan``: suite, items, variants and candidates."""
    samples: Mapping[str, Sequence[str]]
    """Some items of each group, which a plan asks to measure the rate."""
    load: Callable[[], Loaded]
    """Loads the model."""
    seed: str = ""
    """The folder of a seed in that of the run; empty for a single model."""
    together: Callable[[Mapping[str, CountedRun]], CountedRun] = lambda runs: runs[""]
    """The numbers of the runs of all seeds, by their folders."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is loaded, and how it is asked what its setup says."""

    model: Any
    """The model."""
    settings: Mapping[str, object]
    """Everything that decides the answers."""
    folder: Path
    """The folder of the run."""
    describe: Callable[[RunFolder], None]
    """Puts into the record what a reader of the answers needs beside the settings."""
    ask: Callable[..., pl.DataFrame]
    """The answers of a ``group``; of some ``items``, in the ``variants`` at some positions, only.
    ``progress`` is called with the number of queries that have just been answered."""
    prompts: Callable[[str], pl.DataFrame] | None = None
    """What is sent for a group, which a run of questions or sentence pairs keeps."""
    notes_on: Callable[[pl.DataFrame], Sequence[str]] = lambda answers: ()
    """What a reader should know of the answers of all groups."""
    changed: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Of sentence pairs: every answer that a perturbation changed."""
    noise_floor: Callable[[Progress], pl.DataFrame | None] | None = None
    """Rows of the metrics table: a sample is asked again of a model that runs here."""
