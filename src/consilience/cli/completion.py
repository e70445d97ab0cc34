"""Values of options that a shell completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

MODELS = (
    "packaged:smollm2",
    "packaged:minilm",
    "baseline:majority",
    "baseline:random",
    "baseline:oracle",
    "baseline:constant",
)
"""Models that need no network, as a user names them."""


def _models(incomplete: str) -> list[str]:
    return [name for name in MODELS if name.startswith(incomplete)]


def _tasks(incomplete: str) -> list[str]:
    from consilience.suites.tasks import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def _suites(incomplete: str) -> list[str]:
    from consilience.suites import NAMES

    return [name for name in NAMES if name.startswith(incomplete)] + _tasks(incomplete)


def _groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Relations of the suite that the command line names, or of mini; the last of a list."""
    from consilience.errors import ConsilienceError
    from consilience.suites import load_suite

    params: dict[str, Any] = ctx.params
    folder = params.get("data_dir")
    try:
        suite = load_suite(params.get("suite") or "mini", Path(folder) if folder else None)
    except ConsilienceError:
        return []
    done, comma, last = incomplete.rpartition(",")
    names = [relation.id for relation in suite.relations]
    return [f"{done}{comma}{name}" for name in names if name.startswith(last)]


COMPLETIONS: dict[str, Callable[..., list[str]]] = {
    "model": _models,
    "suite": _suites,
    "facts_from": _suites,
    "task": _tasks,
    "groups": _groups,
    "train_groups": _groups,
    "validation_groups": _groups,
    "group": _groups,
    "draw": _groups,
}
"""What completes the values of an option, by its field."""
