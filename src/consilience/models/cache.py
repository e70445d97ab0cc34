"""What is kept between runs: results that are slow to compute and the same at every start.

Everything here can be deleted at any time; it is then computed again. Only JSON and safetensors are
kept, so nothing that is read from the cache can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

IDENTITY = ("digest", "revision", "kind", "architecture", "parameters", "dtype", "device")
"""What of a model's identity the result of a check depends on; its name does not matter."""

OFF = "off"
"""The value of ``CONSILIENCE_CACHE`` with which nothing is kept and nothing is read."""


def cache_folder() -> Path | None:
    """The folder of the cache: ``CONSILIENCE_CACHE``, or ``models`` in the user's cache folder.

    None where ``CONSILIENCE_CACHE`` is ``off``. The folder need not exist.
    """
    if chosen := os.environ.get("CONSILIENCE_CACHE"):
        return None if chosen == OFF else Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # no home
        return None


def key_of(parts: Mapping[str, object]) -> str:
    """32 hexadecimal digits of the SHA-256 of what a result depends on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def checked(name: str, about: Mapping[str, object], check: Callable[[], bool]) -> bool:
    """The result of ``check``: as it was kept for a model like this one, or worked out now.

    ``about``: the identity of a model. A result is kept only where that has a digest or a revision,
    and holds for the same dtype, device, processor, versions of the libraries and code of ours.
    """
    if not (about.get("digest") or about.get("revision")):
        return check()
    parts = {name: about.get(name) for name in IDENTITY} | surroundings()
    kept = f"{name}-{key_of(parts)}"
    found = recall(kept)
    if found is None or not isinstance(found.get("passed"), bool):
        found = {"passed": check()}
        remember(kept, found)
    return bool(found["passed"])


@cache
def surroundings() -> dict[str, str]:
    """On what the computations of a model depend, apart from the model: for keys of results."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    found = {"code": code.hexdigest(), "machine": platform.machine(), "processor": _processor()}
    for name in ("torch", "transformers"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _processor() -> str:
    """The processor's own name; what Python knows of it where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "flags")):
                return line
    return platform.processor()


def recall(name: str) -> dict[str, Any] | None:
    """The result that was kept under a name; None where there is none, or none that is readable."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        found = json.loads((folder / f"{name}.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def remember(name: str, result: Mapping[str, object]) -> None:
    """Keep a result under a name. A cache that cannot be written is not an error.

    The file appears whole, whatever else writes it at the same time.
    """
    folder = cache_folder()
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        number, part = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(result, file)
            Path(part).replace(folder / f"{name}.json")
        except OSError:
            Path(part).unlink()
            raise
