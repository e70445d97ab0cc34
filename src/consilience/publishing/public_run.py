"""What may leave this machine of a run: no path, no host name, no key, no text without a licence.

``workflow/publication.py`` makes a ``PublicRun`` from a ``Run``, field by field; nothing else of a
record is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import polars as pl

from consilience.choices import Protocol
from consilience.report.summary import Summary
from consilience.types import Suite

Kind = Literal["facts", "questions", "sentence pairs"]
"""What the items of a suite are."""

MODEL_FIELDS = ("kind", "architecture", "parameters", "revision", "digest", "dtype")
"""What is published of the identity of a model; its address and its folder are not."""

INTERVAL = (
    "two-way clustered bootstrap with logit-scale bounds; exact binomial (Clopper-Pearson) "
    "for shares of 0 or 1"
)
"""How the bounds of the 95 % intervals are computed (docs/statistics.md)."""

NUMBERS = (
    "n_candidates", "logprob", "gold_logprob", "gold_rank", "margin", "text_logprob",
    "gold_text_logprob", "option", "gold_option",
)  # fmt: skip
"""Columns of answers that say nothing of the texts of a suite."""


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file to publish."""

    name: str
    """Its path in the folder or repository, with ``/``."""
    content: bytes
    """What is in it."""


@dataclass(frozen=True, slots=True)
class PublicModel:
    """A model as the world knows it."""

    id: str
    """Its id on the Hub, or one of the same form: ``ORGANISATION/NAME``."""
    facts: Mapping[str, str]
    """What is known of it: ``MODEL_FIELDS``, and ``source``: the Hub, local files or a server."""
    is_served: bool
    """Whether a server answered."""
    is_from_hub: bool
    """Whether its weights were read from the Hub."""

    @property
    def developer(self) -> str:
        """The first part of its id."""
        return self.id.split("/")[0]

    @property
    def name(self) -> str:
        """The last part of its id."""
        return self.id.split("/")[-1]


@dataclass(frozen=True, slots=True)
class PublicSuite:
    """A suite as the world knows it."""

    name: str
    """What it is called."""
    kind: Kind
    """What its items are."""
    digest: str
    """SHA-256 of its texts."""
    suite: Suite
    """Its groups."""
    licence: str
    """An SPDX expression; empty where none is stated."""
    may_be_shared: bool
    """Whether its texts may be published."""
    url: str = ""
    """Where it is published, as it states; empty where it states nothing."""
    dataset: str = ""
    """Its data set on the Hub; empty for one that is elsewhere."""
    config: str = ""
    """The configuration of that data set."""
    split: str = ""
    """The split of that data set."""

    @property
    def slug(self) -> str:
        """Its name as a part of a path."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-").lower() or "suite"


@dataclass(frozen=True, slots=True)
class PublicRun:
    """All that may be published of a run."""

    model: PublicModel
    """Which model answered."""
    suite: PublicSuite
    """Which suite it answered."""
    protocol: Protocol
    """How the answers were counted."""
    command: str
    """The command of the run, without folders and addresses; empty where it is not known."""
    versions: Mapping[str, str]
    """Versions of libraries."""
    finished: str
    """When the run ended: ISO 8601."""
    fingerprint: str
    """SHA-256 of the settings of the run."""
    summary: Summary
    """The headline numbers."""
    metrics: pl.DataFrame
    """All numbers (``METRICS_SCHEMA``)."""
    notes: Sequence[str]
    """What a reader of the numbers should know."""
    answers: pl.DataFrame
    """All answers; of several seeds with a column ``seed``."""
    prompts: pl.DataFrame | None
    """The prompts: ``group, item, variant, prompt``; None where they may not be published."""

    @property
    def time(self) -> datetime:
        """When the run ended."""
        return datetime.fromisoformat(self.finished)

    @property
    def day(self) -> str:
        """The day on which the run ended."""
        return self.finished[:10]

    @property
    def seeds(self) -> int:
        """How many runs with different seeds the numbers are the mean of."""
        return self.summary.seeds

    def shared_answers(self) -> pl.DataFrame:
        """The answers as they may be published.

        Without a licence of the suite its texts are left out: ``item`` is the position of the item
        in its group, ``variant`` that of the variant, and equal numbers in ``answer`` are equal
        answers of a group.
        """
        if self.suite.may_be_shared:
            reasons = pl.col("excluded").str.replace_all(r"\w+://\S+|\b[\w.-]+:\d{2,5}\b", "URL")
            return self.answers.with_columns(reasons)
        columns = [name for name in NUMBERS if name in self.answers.columns]
        seed = ["seed"] if "seed" in self.answers.columns else []
        return self.answers.select(
            *seed,
            "group",
            pl.col("item").rle_id().over(*seed, "group").cast(pl.Int32),
            pl.col("variant_index").alias("variant"),
            (pl.col("answer").rank("dense").over("group") - 1).cast(pl.Int32),
            self.is_right(),
            *columns,
        )

    def is_right(self) -> pl.Expr:
        """Whether an answer is the gold, or the position of its option; null without an answer."""
        same = pl.col("answer") == pl.col("gold")
        if "gold_option" in self.answers.columns:
            same = pl.coalesce(pl.col("option") == pl.col("gold_option"), same)
        return same.alias("is_right")

    def details(self) -> Iterator[tuple[str, str]]:
        """What a reader needs to understand and repeat the numbers: names and values."""
        suite, model = self.suite, self.model
        yield "model", ", ".join([model.id, *(f"{n} {v}" for n, v in model.facts.items())])
        licence = f"licence {suite.licence}" if suite.licence else "no licence stated"
        yield "suite", f"{suite.name} ({suite.kind}, SHA-256 {suite.digest}, {licence})"
        yield "protocol", self.protocol
        yield "intervals", f"95 %: {INTERVAL}"
        yield "versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())
        if self.command:
            yield "command", f"`{self.command}`"
        yield "date", self.day


def written(folder: Path, files: Sequence[PublicFile]) -> list[Path]:
    """Write files into a folder; their paths."""
    from consilience.files import cannot_write, write_whole

    paths = [folder / file.name for file in files]
    for path, file in zip(paths, files, strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        write_whole(path, file.content)
    return paths
