"""The section of a report on servers: which one answered, how it scored, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consilience.endpoints.usage import cost_in_words
from consilience.report.noise_tables import noise_sentence
from consilience.report.page import Facts, Part, Section
from consilience.report.run_view import RunView
from consilience.text import counted

INTRO = (
    "The model answered behind a URL or in llama.cpp. How its candidates were scored was proved on "
    "a few known prompts before anything of the suite was sent."
)
"""What the section shows."""

OF_SERVER = "the server "
"""How notes of a run on what its server did begin."""


def server_sections(runs: Sequence[RunView]) -> list[Section]:
    """The servers of runs; none where all models ran without one."""
    parts: list[Part] = []
    for run in runs:
        if rows := [*_server_rows(run)]:
            name = [("Run", run.name)] if len(runs) > 1 else []
            parts.append(Facts([*name, *rows]))
    return [Section("server", "Server", INTRO, parts)] if parts else []


def server_line(run: RunView) -> list[str]:
    """The server of a run in one line, with how it scored; no line without one."""
    rows = dict(_server_rows(run))
    if not rows:
        return []
    parts = [f"{rows['Model']} at {rows['Address']}" if "Address" in rows else rows["Model"]]
    if "Scoring" in rows:
        parts.append(f"scored by {rows['Scoring']}")
    if "Requests" in rows:
        parts.append(rows["Requests"].partition(",")[0])
    return [f"Server: {'; '.join(parts)}."]


def _server_rows(run: RunView) -> Iterator[tuple[str, str]]:
    """Names and values of what is known of the server of a run."""
    record: Mapping[str, Any] = run.records[0] if run.records else {}
    model = record.get("settings", {}).get("model", {})
    if "server" not in model and not {"cost", "scoring"} & record.keys():
        return
    yield "Model", str(model.get("model", run.name))
    if names := record.get("served_as"):
        yield "Name in replies", ", ".join(names)
    if address := model.get("server"):
        yield "Address", str(address)
    scoring = record.get("scoring", {})
    if scoring:
        yield "Scoring", f"{scoring.get('strategy')} ({scoring.get('gives')})"
        yield "Proof", _proof(scoring)
        if refused := scoring.get("refused"):
            yield "Other strategies", "; ".join(f"{name}: {why}" for name, why in refused.items())
    elif model.get("kind") == "decisions":
        yield "Scoring", "the probability of every option, which the server replies"
    yield "Limits and notes", " ".join(_limits(run, scoring))
    if cost := record.get("cost"):
        yield "Requests", cost_in_words(cost)
    yield "Noise floor", noise_sentence(run.metrics).partition(": ")[2] or "not measured"


def _proof(scoring: Mapping[str, Any]) -> str:
    """What the proof of a strategy found."""
    checks = [counted(int(scoring.get("requests", 0)), "request") + " on known prompts"]
    for name, text in (
        ("repeated", "equal requests differ by {:.1e} nats"),
        ("other_route", "another route differs by {:.1e} nats"),
        ("total_probability", "the probabilities of some next tokens have a sum of {:.3f}"),
    ):
        value = scoring.get(name)
        if isinstance(value, int | float) and not math.isnan(value):
            checks.append(text.format(value))
    return "; ".join(checks)


def _limits(run: RunView, scoring: Mapping[str, Any]) -> Iterator[str]:
    """What the notes of the run say about its server, such as how many scores are bounds."""
    notes = [note[0].upper() + note[1:] for note in run.warnings if note.startswith(OF_SERVER)]
    if notes:
        yield from (f"{note}." for note in notes)
    elif scoring:
        yield "No bound was used: every score is a value."
    else:
        yield "None known."
