"""Which software this is: versions, the revision, what other packages add as entry points."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from consilience.core.errors import ConsilienceError

_version = cache(metadata.version)  # What a process has loaded stays as it is


def versions() -> dict[str, str]:
    """The versions that a reader needs to repeat the run."""
    versions_by_name = {"python": platform.python_version()}
    for name in ("consilience", "torch", "transformers", "tokenizers", "polars", "numpy"):
        with suppress(metadata.PackageNotFoundError):
            versions_by_name[name] = _version(name)
    return versions_by_name


@cache
def build() -> str:
    """The version of this package, and a digest of its source: the same on all machines."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{versions().get('consilience', 'uninstalled')} (source {digest.hexdigest()[:12]})"


@cache
def git_revision() -> str | None:
    """The git revision of this package's checkout, with ``+`` where it has been changed."""
    here = Path(__file__).resolve().parents[1]
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--match="],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    inside = any((folder / ".git").exists() for folder in (here.parents[1], here.parents[0]))
    return answer.stdout.strip() if inside else None


def cores() -> int:
    """The cores that this process may use: in a job of a cluster, not all of the machine."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Group = Literal["consilience.models", "consilience.suites", "consilience.metrics"]


def plugin(group: Group, name: str) -> Any | None:
    """What another package offers under a name; None if no package has it."""
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except Exception as error:
            raise ConsilienceError(
                f"the plugin '{name}' ({entry.value}) cannot be loaded: {error}",
                todo="Install it again, or ask its authors.",
            ) from error
    return None


def load_all(group: Group) -> None:
    """Load everything that other packages offer in a group."""
    for name in sorted(entry_points(group=group).names):
        plugin(group, name)
