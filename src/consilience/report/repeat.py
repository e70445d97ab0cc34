"""What every report ends with: which model was asked, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.report.page import Facts, Part, Section, Text


def described(record: Mapping[str, Any]) -> str:
    """A model in words."""
    model = record.get("asked", {}).get("model", {})
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
    """How to make each run again, by name and record; a command that made several stands once."""
    parts: list[Part] = []
    said = ""
    for name, record in runs:
        if not record:
            parts.append(Text([f"{name}: a table of answers; how they came about is not known."]))
            continue
        asked = record["asked"]
        model = asked.get("model", {})
        weights = f"revision {model.get('revision') or 'not known'}"
        if model.get("kind") == "baseline":
            weights = "none, a baseline"
        if model.get("digest"):
            weights = f"SHA-256 {model['digest']}"
        about = [
            ("Run", name),
            ("Began", str(record.get("started"))),
            ("Ended", str(record.get("finished") or "not finished")),
            ("Versions", ", ".join(f"{each} {v}" for each, v in record["versions"].items())),
            ("Git", str(record.get("git") or "an installed package")),
            ("Questions", f"SHA-256 {asked.get('suite_digest') or asked.get('pairs')}"),
            ("Weights", weights),
        ]
        command = record.get("command", "")
        if not command:
            parts.append(Text([f"{name}: no command is kept; its run.json says what was asked."]))
        elif command != said:
            parts.append(Text([command], code=True))
        said = command
        parts.append(Facts(about))
    intro = ""
    if any(record.get("command") for _, record in runs):
        intro = "The same command with the same versions gives the same answers."
    return Section("again", "How to repeat it", intro, parts)
