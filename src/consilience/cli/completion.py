"""Values of options that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MODELS = (
    "packaged:smollm2",
    "packaged:minilm",
    "baseline:majority",
    "baseline:random",
    "baseline:oracle",
    "baseline:constant",
)
"""Models that need no network, as a user names them."""


def _models(options: Mapping[str, Any], incomplete: str) -> list[str]:
    return [name for name in MODELS if name.startswith(incomplete)]


def _tasks(options: Mapping[str, Any], incomplete: str) -> list[str]:
    from consilience.suites.pairs import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def _suites(options: Mapping[str, Any], incomplete: str) -> list[str]:
    from consilience.suites.question_suites import SUITE_NAMES

    names = [name for name in SUITE_NAMES if name.startswith(incomplete)]
    return names + _tasks(options, incomplete)


def _groups(options: Mapping[str, Any], incomplete: str) -> list[str]:
    """Relations of the suite that the command line names, or of mini; the last of a list."""
    from consilience.core.errors import ConsilienceError
    from consilience.suites import load_suite

    folder = options.get("data_dir")
    try:
        suite = load_suite(options.get("suite") or "mini", Path(folder) if folder else None)
    except ConsilienceError:
        return []
    done, comma, last = incomplete.rpartition(",")
    names = [relation.id for relation in suite.relations]
    return [f"{done}{comma}{name}" for name in names if name.startswith(last)]


COMPLETIONS: dict[str, Callable[[Mapping[str, Any], str], list[str]]] = {
    "--model": _models,
    "--suite": _suites,
    "--facts-from": _suites,
    "--task": _tasks,
    "--groups": _groups,
    "--train-groups": _groups,
    "--validation-groups": _groups,
    "--group": _groups,
    "--draw": _groups,
}
"""What completes a value, by the option that it is of, from the other options and its beginning."""
