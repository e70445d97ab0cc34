"""GGUF files are parsed and expanded once; the cache stores their weights as safetensors.

transformers parses a GGUF file three times, for the configuration, the tokenizer and the weights,
and expands the weights in numpy. Here all of it is done once a file, and later runs load the folder
of an ordinary model from the cache. The cache can be deleted at any time. It holds only JSON and
safetensors, so nothing that is read from it can run code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

LARGEST = 8 * 2**30
"""Bytes of expanded weights in the cache; the least recently used are removed first."""

ABANDONED = 24 * 60 * 60
"""Seconds after which an unfinished expansion belongs to a process that was killed."""

NAME = "weights-"
RULES = (
    "special_tokens_map",
    "chat_template",
    "model_max_length",
    "padding_side",
    "truncation_side",
    "model_input_names",
)
"""Settings of a tokenizer beside its ``tokenizer.json``."""

WEIGHTS, STAMP = "model.safetensors", "consilience.json"

_alone = threading.Lock()


@dataclass(frozen=True, slots=True)
class Parts:
    """What transformers loads for a model."""

    config: Any
    """Its configuration."""
    tokenizer: PreTrainedTokenizerBase
    """Its tokenizer."""
    model: PreTrainedModel
    """Its weights."""


Load = Callable[[Path, Mapping[str, Any]], Parts]
"""Loads a language model in single precision from a folder, with options for transformers."""


@contextmanager
def reading_once() -> Iterator[None]:
    """Inside, transformers parses a GGUF file once, for all calls, and shows no progress bar."""
    try:
        import gguf
        from transformers import modeling_gguf_pytorch_utils
    except ImportError:  # transformers then says what to install
        yield
        return
    reader: Any = gguf
    bars: Any = modeling_gguf_pytorch_utils
    with _alone:
        usual = reader.GGUFReader, reader.get_tensor_name_map, bars.tqdm
        reader.GGUFReader, reader.get_tensor_name_map = map(functools.cache, usual[:2])
        bars.tqdm = functools.partial(usual[2], disable=True)
        try:
            yield
        finally:
            reader.GGUFReader, reader.get_tensor_name_map, bars.tqdm = usual


def expanded_before(digest: str) -> Path | None:
    """The folder in the cache that an earlier run expanded a GGUF file to; ``digest``: the file."""
    folder = _folder(digest)
    return folder if folder is not None and _is_whole(folder) else None


def expanded(file: Path, digest: str, load: Load) -> Path | None:
    """The folder in the cache that a GGUF file was expanded to, now or by another process.

    ``digest`` identifies the file. None if the cache is off or has no room, or if transformers does
    not load from the folder what it read from the file.
    """
    folder = _folder(digest)
    if folder is None or _is_whole(folder):
        return folder
    size = _expanded_size(file)
    refused = folder.with_name(f"{folder.name}.json")
    if size > LARGEST or refused.exists():
        return None
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_room(folder.parent, size)
        if shutil.disk_usage(folder.parent).free < 2 * size:
            return None
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{NAME}") as part:
            if _expand(load(file.parent, {"gguf_file": file.name}), Path(part) / "model", load):
                _put(Path(part), folder)
            else:
                refused.write_text('{"kept": false}', encoding="utf-8")
    return folder if _is_whole(folder) else None


def _put(part: Path, folder: Path) -> None:
    """Give a complete folder its name, unless another process was faster.

    The other process's folder is left alone: it may be in use.
    """
    try:
        (part / "model").rename(folder)
    except OSError:  # the name is taken
        if not _is_whole(folder):
            folder.rename(part / "damaged")
            (part / "model").rename(folder)


def _expand(parts: Parts, folder: Path, load: Load) -> bool:
    """Save a model in single precision; whether it loads again identical to the last bit."""
    folder.mkdir()
    parts.config.save_pretrained(folder)
    parts.model.generation_config.save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    save_file(untied_weights(parts.model), folder / WEIGHTS, {"format": "pt"})
    (folder / STAMP).write_text(json.dumps(_stamp(folder)), encoding="utf-8")
    described = _described(parts)
    del parts
    try:
        return _described(load(folder, {})) == described
    except Exception:  # transformers raises nearly anything
        return False


def _expanded_size(file: Path) -> int:
    import gguf

    return sum(4 * int(tensor.n_elements) for tensor in gguf.GGUFReader(str(file)).tensors)


def _is_whole(folder: Path) -> bool:
    """Whether a model is complete and its files are unchanged; records that it is used."""
    try:
        whole: bool = _stamp(folder) == json.loads((folder / STAMP).read_bytes())
        os.utime(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return whole


def cache_folder() -> Path | None:
    """The folder of the cache: ``CONSILIENCE_CACHE``, or ``models`` in the user's cache folder.

    None if ``CONSILIENCE_CACHE`` is ``off``. The folder need not exist.
    """
    if chosen := os.environ.get("CONSILIENCE_CACHE"):
        return None if chosen == "off" else Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "consilience" / "models"
    except RuntimeError:  # no home
        return None


def _folder(digest: str) -> Path | None:
    """The cache folder for a model's digest and the versions of the packages that expand it."""
    cache = cache_folder()
    if cache is None:
        return None
    names = ("torch", "transformers", "tokenizers", "gguf")
    try:
        versions = {name: metadata.version(name) for name in names}
    except metadata.PackageNotFoundError:
        return None
    parts = json.dumps({"digest": digest, **versions}, sort_keys=True)
    return cache / f"{NAME}{hashlib.sha256(parts.encode()).hexdigest()[:32]}"


def _stamp(folder: Path) -> dict[str, list[int]]:
    """Sizes and times of a model's files: they differ if one was changed, copied or truncated."""
    files = {path.name: path.stat() for path in folder.iterdir() if path.name != STAMP}
    return {name: [status.st_size, status.st_mtime_ns] for name, status in files.items()}


def _make_room(cache: Path, size: int) -> None:
    """Remove the least recently used models until ``size`` more bytes are within bounds.

    A process that has one of them open can still read it. What a killed process had begun is
    removed after a day.
    """
    for unfinished in cache.glob(f".{NAME}*/"):
        if time.time() - unfinished.stat().st_mtime > ABANDONED:
            shutil.rmtree(unfinished, ignore_errors=True)
    sizes = {
        folder: sum(file.stat().st_size for file in folder.iterdir())
        for folder in cache.glob(f"{NAME}*/")
    }
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if sum(sizes.values()) + size > LARGEST:
            shutil.rmtree(folder, ignore_errors=True)
            del sizes[folder]


def untied_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights by name, on the processor; tied ones under their first name."""
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        first.setdefault(id(weight), (name, weight.detach().cpu().contiguous()))
    return dict(first.values())


def _described(parts: Parts) -> tuple[object, ...]:
    """Everything that decides what a model answers: settings, tokenizer, weights."""
    tokenizer: Any = parts.tokenizer
    rules = [getattr(tokenizer, name) for name in RULES]
    return (
        type(parts.model),
        _settings(parts.config),
        _settings(parts.model.generation_config),
        type(tokenizer),
        tokenizer.backend_tokenizer.to_str(),
        rules,
        {
            name: (f"{weight.dtype}", hashlib.sha256(weight.contiguous().numpy()).digest())
            for name, weight in parts.model.state_dict().items()
        },
    )


def _settings(config: Any) -> dict[str, Any]:
    """A configuration without the fields that only say how it was saved."""
    settings = dict(config.to_dict())
    for name in ("_name_or_path", "transformers_version", "dtype", "quantization_config"):
        settings.pop(name, None)
    return settings
