"""What is private to this machine, and is looked for in everything that is published."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import get_token

from consilience.errors import ConsilienceError
from consilience.publishing.public_run import Files
from consilience.run import Run

SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
"""How names of environment variables end that hold secrets."""

SHORTEST = 12
"""Characters of the shortest secret that is looked for."""

TEXTS = (".md", ".json", ".yaml")
"""Files that consilience words itself; others hold the texts of a suite and of a model."""


def refuse_private(files: Files, runs: Sequence[Run]) -> None:
    """Raise where a file has a key of this machine, or a text of ours a folder or an address of it.

    ``PublicRun`` has no field for any of them. This finds what a suite, a model or an option holds.
    """
    secrets, places = dict(_secrets()), dict[str, str]()
    for run in runs:
        places |= dict(_places(run))
    for name, content in files.items():
        known = secrets | places if name.endswith(TEXTS) else secrets
        for text, meaning in known.items():
            if text.encode() in content:
                raise ConsilienceError(
                    f"it would publish {meaning}",
                    where=name,
                    todo="Nothing was written. Rename the suite, the model or the option that "
                    "holds it, and run again.",
                )


def _secrets() -> Iterator[tuple[str, str]]:
    for name, value in os.environ.items():
        if name.upper().endswith(SECRET_ENDINGS) and len(value) >= SHORTEST:
            yield value, f"the value of {name}"
    if token := get_token():
        yield token, "your token of the Hub"


def _places(run: Run) -> Iterator[tuple[str, str]]:
    home = str(Path.home())
    if home != os.sep:
        yield home + os.sep, "the path of your home folder"
    yield str(run.path.resolve()), "the path of the run"
    source = run.record.get("suite_source", {})
    if path := source.get("folder") or source.get("file"):
        yield path, "the path of the suite"
    server = run.settings.get("model", {}).get("server")
    if server and (host := urlsplit(str(server)).netloc):
        yield host, "the address of the server"
