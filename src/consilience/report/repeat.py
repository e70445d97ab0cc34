"""The last section of every report: how to repeat its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.endpoints.usage import cost_in_words
from consilience.report.page import Facts, Folded, Part, Section, Text


def described(record: Mapping[str, Any]) -> str:
    """A model in words, from ``run.json``; empty if the record has none."""
    model = record.get("settings", {}).get("model", {})
    if not model:
        return ""
    parts = [str(model.get("model"))]
    if model.get("architecture"):
        parts.append(f"{model['architecture']}, {model['parameters']:,} parameters")
        parts.append(f"{model['dtype']} on {model['device']}")
    if model.get("revision"):
        parts.append(f"revision {model['revision']}")
    if model.get("trust_remote_code"):
        parts.append("with the Python code that comes with it (--trust-remote-code)")
    return ", ".join(parts)


def again(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Section:
    """How to repeat each run, by name and record; a command of several runs is shown once."""
    parts: list[Part] = []
    origins: list[Part] = []
    previous = ""
    for name, record in runs:
        if not record:
            parts.append(Text([f"{name}: a table of answers; its origin is not known."]))
            continue
        command = record.get("command", "")
        if not command:
            parts.append(Text([f"{name}: no command is known; run.json has the settings."]))
        elif command != previous:
            parts.append(Text([command], code=True))
        previous = command
        origins.append(_origin(name, record))
    intro = ""
    if any(record.get("command") for _, record in runs):
        intro = "The same command with the same versions gives the same answers."
    parts += [Folded("Versions and digests", origins)] if origins else []
    return Section("repeat", "How to repeat", intro, parts)


def _origin(name: str, record: Mapping[str, Any]) -> Facts:
    """The time, versions and digests of a run."""
    settings = record["settings"]
    model = settings.get("model", {})
    weights = f"revision {model.get('revision') or 'not known'}"
    if model.get("kind") == "baseline":
        weights = "none, a baseline"
    if model.get("digest"):
        weights = f"SHA-256 {model['digest']}"
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    return Facts(
        [
            ("Run", name),
            ("Started", str(record.get("started"))),
            ("Finished", str(record.get("finished") or "not finished")),
            ("Versions", versions),
            ("Git", str(record.get("git") or "an installed package")),
            ("Questions", f"SHA-256 {settings.get('suite_digest') or settings.get('pairs')}"),
            ("Weights", weights),
            *([("Cost", cost_in_words(cost))] if (cost := record.get("cost")) else []),
        ]
    )
