"""What a probed model answered, and how its run is recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from consilience.report.summary import Summary
from consilience.run_folder import fingerprint
from consilience.suites.perturbations import Perturbation
from consilience.types import Protocol, Suite


@dataclass(frozen=True, slots=True)
class Probed:
    """Answers and their numbers."""

    suite: Suite
    """What was asked."""
    protocol: Protocol
    """How the answers were counted."""
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


def perturbation_settings(chosen: Mapping[str, Perturbation]) -> dict[str, object]:
    """The perturbations of a run by name, and where those of a user are from."""
    sources = {name: dict(each.source) for name, each in chosen.items() if each.source}
    return {"perturbations": list(chosen)} | ({"perturbation_sources": sources} if sources else {})


def default_folder(model: str, settings: Mapping[str, object]) -> Path:
    """A folder under ``runs``, named by suite, model and all other settings."""
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings['suite']}-{name}")
    return Path("runs") / f"{words}-{fingerprint(settings)[:8]}"
