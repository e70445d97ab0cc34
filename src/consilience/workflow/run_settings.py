"""The settings of a run, and the folder that is named by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from consilience.run_folder import fingerprint
from consilience.suites.perturbations import Perturbation


def perturbation_settings(chosen: Mapping[str, Perturbation]) -> dict[str, object]:
    """The perturbations of a run by name, and where those of a user are from."""
    sources = {name: dict(form.source) for name, form in chosen.items() if form.source}
    return {"perturbations": list(chosen)} | ({"perturbation_sources": sources} if sources else {})


def default_folder(model: str, settings: Mapping[str, object], kind: str = "") -> Path:
    """A folder under ``runs``, named by suite, model and all other settings.

    ``kind``: also in the name, for what is no probe.
    """
    name = model.removesuffix("/").split("/")[-1].removesuffix(".gguf")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings['suite']}-{name}")
    return Path("runs") / f"{words}{kind}-{fingerprint(settings)[:8]}"
