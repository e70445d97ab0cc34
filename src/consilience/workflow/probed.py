"""What a probed model answered, and how its run is recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience.analysis.patterns import pattern_table
from consilience.choices import Protocol
from consilience.report.summary import Summary
from consilience.run_folder import fingerprint
from consilience.suites.perturbations import Perturbation
from consilience.types import Suite


@dataclass(frozen=True, slots=True)
class Probed:
    """Answers and their numbers."""

    suite: Suite
    """The questions, as groups of items in variants."""
    protocol: Protocol
    """How the answers were counted."""
    answers: Sequence[pl.DataFrame]
    """The answers table of each seed."""
    summary: Summary
    """The headline numbers, with those of the majority baseline."""
    metrics: pl.DataFrame
    """The metrics table (``METRICS_SCHEMA``)."""
    changes: pl.DataFrame
    """What accuracy loses or gains between forms (``FORM_CHANGE_SCHEMA``)."""
    left_out: str
    """How many facts the accuracy is over, where it is not over all of them."""
    notes: Sequence[str]
    """What a reader should know."""
    record: Mapping[str, Any]
    """Settings, versions and the like, for a JSON document."""
    changed_answers: pl.DataFrame | None = None
    """Of sentence pairs: every answer that a perturbation changed."""

    @property
    def is_of_pairs(self) -> bool:
        """Whether sentence pairs were asked."""
        return not self.suite.relations[0].patterns

    def patterns(self) -> pl.DataFrame:
        """Accuracy and agreement of each pattern (``analysis.patterns``), of all seeds together."""
        tables = [pattern_table(seed, self.suite, self.protocol) for seed in self.answers]
        keys = ["group", "variant_index", "variant"]
        numbers = pl.col("accuracy", "agreement").fill_nan(None).mean()
        mean = pl.concat(tables).group_by(keys, maintain_order=True).agg(numbers, pl.col("n").min())
        return mean.with_columns(pl.col("accuracy", "agreement").fill_null(float("nan")))


def perturbation_settings(chosen: Mapping[str, Perturbation]) -> dict[str, object]:
    """The perturbations of a run by name, and where those of a user are from."""
    sources = {name: dict(form.source) for name, form in chosen.items() if form.source}
    return {"perturbations": list(chosen)} | ({"perturbation_sources": sources} if sources else {})


def default_folder(model: str, settings: Mapping[str, object]) -> Path:
    """A folder under ``runs``, named by suite, model and all other settings."""
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings['suite']}-{name}")
    return Path("runs") / f"{words}-{fingerprint(settings)[:8]}"
