"""What may leave this machine of a run: no path, no host name, no key, no text without a licence.

``workflow/public_runs.py`` makes a ``PublicRun`` from a ``Run``, field by field; nothing else of a
record is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from consilience.choices import Protocol
from consilience.publishing.licences import may_be_shared
from consilience.report.export import as_markdown
from consilience.report.summary import Summary
from consilience.types import Suite

Files = Mapping[str, bytes]
"""Files to publish: their content by their path in the folder or repository, with ``/``."""

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
class PublicSuite:
    """A suite as the world knows it."""

    name: str
    kind: Kind
    """What its items are."""
    digest: str
    """SHA-256 of its texts."""
    suite: Suite
    """Its groups."""
    licence: str
    """An SPDX expression; empty where none is stated."""
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

    @property
    def may_be_shared(self) -> bool:
        """Whether its texts may be published."""
        return may_be_shared(self.licence)


@dataclass(frozen=True, slots=True)
class PublicRun:
    """All that may be published of a run."""

    model: str
    """The model's id on the Hub, or one of the same form: ``ORGANISATION/NAME``."""
    model_facts: Mapping[str, str]
    """What is known of it: ``MODEL_FIELDS``, and ``source``: Hub, local files or server."""
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
    changes: Sequence[str]
    """The same of a suite that is not as it was when it was asked."""
    answers: pl.DataFrame
    """All answers; of several seeds with a column ``seed``."""
    prompts: pl.DataFrame | None
    """The prompts: ``group, item, variant, prompt``; None where they may not be published."""

    @property
    def day(self) -> str:
        """The day on which the run ended."""
        return self.finished[:10]

    @property
    def version(self) -> str:
        """The version of consilience; empty where it was not installed."""
        return self.versions.get("consilience", "")

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

    def as_markdown(self) -> str:
        """The headline numbers, and what a reader needs to understand and repeat them."""
        details = "".join(f"- {name}: {value}\n" for name, value in self._details())
        return f"{as_markdown(self.summary.table())}\n{details}"

    def _details(self) -> Iterator[tuple[str, str]]:
        suite = self.suite
        yield "model", ", ".join([self.model, *(f"{n} {v}" for n, v in self.model_facts.items())])
        licence = f"licence {suite.licence}" if suite.licence else "no licence stated"
        yield "suite", f"{suite.name} ({suite.kind}, SHA-256 {suite.digest}, {licence})"
        yield "protocol", self.protocol
        yield "intervals", f"95 %: {INTERVAL}"
        yield "versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())
        if self.command:
            yield "command", f"`{self.command}`"
        yield "date", self.day
        for note in (*self.changes, *self.notes):
            yield "note", note
