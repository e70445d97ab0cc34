"""A cache between runs, for results that are slow to compute and the same at every start.

It can be deleted at any time; its contents are then computed again. It holds only JSON and
safetensors, so nothing that is read from it can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.files import write_whole

IDENTITY = ("digest", "revision", "kind", "architecture", "parameters", "dtype", "device")
"""The parts of a model's identity that the result of a check depends on; not its name."""

OFF = "off"
"""The value of ``CONSILIENCE_CACHE`` that turns the cache off."""


def cache_folder() -> Path | None:
    """The folder of the cache: ``CONSILIENCE_CACHE``, or ``models`` in the user's cache folder.

    None if ``CONSILIENCE_CACHE`` is ``off``. The folder need not exist.
    """
    if chosen := os.environ.get("CONSILIENCE_CACHE"):
        return None if chosen == OFF else Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # no home
        return None


def key_of(parts: Mapping[str, object]) -> str:
    """32 hexadecimal digits of the SHA-256 of all that a result depends on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def key_of_check(name: str, identity: Mapping[str, object]) -> str:
    """The name under which a result about a model is remembered; empty where it cannot be.

    ``identity``: that of the model, which needs a digest or a revision. A result holds for the same
    dtype, device, processor, versions of the libraries and code of this package.
    """
    if not (identity.get("digest") or identity.get("revision")):
        return ""
    parts = {part: identity.get(part) for part in IDENTITY} | surroundings()
    return f"{name}-{key_of(parts)}"


def checked(name: str, identity: Mapping[str, object], check: Callable[[], bool]) -> bool:
    """The result of ``check``, remembered for the same model (``key_of_check``)."""
    key = key_of_check(name, identity)
    if not key:
        return check()
    result = recall(key)
    if result is None or not isinstance(result.get("passed"), bool):
        result = {"passed": check()}
        remember(key, result)
    return bool(result["passed"])


@cache
def surroundings() -> dict[str, str]:
    """What a computation depends on apart from the model: code, machine, library versions."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    parts = {"code": code.hexdigest(), "machine": platform.machine(), "processor": processor()}
    for name in ("torch", "transformers"):
        with suppress(metadata.PackageNotFoundError):
            parts[name] = metadata.version(name)
    return parts


@cache
def processor() -> str:
    """The name of the processor."""
    return cpuinfo().get("model name") or platform.processor() or platform.machine()


@cache
def cpuinfo() -> dict[str, str]:
    """Linux's description of the first processor; empty elsewhere."""
    info: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return info
    for line in lines:
        name, _, value = line.partition(":")
        info.setdefault(name.strip(), value.strip())
    return info


def recall(name: str) -> dict[str, Any] | None:
    """The result that was remembered under a name; None if there is none that can be read."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        result = json.loads((folder / f"{name}.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


def remember(name: str, result: Mapping[str, object]) -> None:
    """Store a result under a name. A cache that cannot be written is not an error."""
    folder = cache_folder()
    if folder is None:
        return
    with suppress(OSError, ConsilienceError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.json", json.dumps(result).encode())
