"""GGUF files, read and expanded once: the weights are kept as safetensors in the cache.

transformers parses a GGUF file anew for the configuration, for the tokenizer and for the weights,
and expands the weights in numpy. Here all of it is done once a file, and later runs load the folder
of an ordinary model from the cache.
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

from consilience.models.cache import cache_folder, key_of, recall, remember

LARGEST = 8 * 2**30
"""Bytes of expanded weights that are kept; the ones unused for longest make room for others."""

ABANDONED = 24 * 60 * 60
"""Seconds after which an unfinished expansion is that of a process that was killed."""

NAME = "weights-"
RULES = (
    "special_tokens_map",
    "chat_template",
    "model_max_length",
    "padding_side",
    "truncation_side",
    "model_input_names",
)
"""What a tokenizer does beside its ``tokenizer.json``."""

WEIGHTS, STAMP = "model.safetensors", "consilience.json"

_alone = threading.Lock()


@dataclass(frozen=True, slots=True)
class Parts:
    """What transformers loads of a model."""

    config: Any
    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel


Load = Callable[[Path, Mapping[str, Any]], Parts]
"""Loads a language model in single precision from a folder, with options for transformers."""


@contextmanager
def reading_once() -> Iterator[None]:
    """Let transformers parse a GGUF file once, list its tensors' names once, and show no bar.

    What is parsed inside serves every call inside.
    """
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


def expanded(file: Path, digest: str, load: Load) -> Path | None:
    """The folder in the cache that a GGUF file was expanded to, now or by an earlier run.

    ``digest`` tells the file from any other. None where nothing is kept: the cache is off or has no
    room, or transformers does not give back from the folder what it read from the file.
    """
    folder = _folder(digest)
    if folder is None or _is_whole(folder):
        return folder
    size = _expanded_size(file)
    if size > LARGEST or recall(folder.name):
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
                remember(folder.name, {"kept": False})
    return folder if _is_whole(folder) else None


def _put(part: Path, folder: Path) -> None:
    """Give a whole folder its name, unless another process was faster.

    What that process put there is not touched: it may be reading it.
    """
    try:
        (part / "model").rename(folder)
    except OSError:  # there is something
        if not _is_whole(folder):
            folder.rename(part / "damaged")
            (part / "model").rename(folder)


def _expand(parts: Parts, folder: Path, load: Load) -> bool:
    """Save a model in single precision; whether it comes back as it was, to the last bit."""
    folder.mkdir()
    parts.config.save_pretrained(folder)
    parts.model.generation_config.save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    save_file(_once(parts.model), folder / WEIGHTS, {"format": "pt"})
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
    """Whether a model is there, and no file of it was touched since; notes that it is used."""
    try:
        whole: bool = _stamp(folder) == json.loads((folder / STAMP).read_bytes())
        os.utime(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return whole


def _folder(digest: str) -> Path | None:
    """Where the cache has the model of a digest, as the installed packages expand it."""
    cache = cache_folder()
    if cache is None:
        return None
    names = ("torch", "transformers", "tokenizers", "gguf")
    try:
        versions = {name: metadata.version(name) for name in names}
    except metadata.PackageNotFoundError:
        return None
    return cache / f"{NAME}{key_of({'digest': digest, **versions})}"


def _stamp(folder: Path) -> dict[str, list[int]]:
    """Tells the files of a model from ones that were changed, copied or truncated since."""
    files = {each.name: each.stat() for each in folder.iterdir() if each.name != STAMP}
    return {name: [found.st_size, found.st_mtime_ns] for name, found in files.items()}


def _make_room(cache: Path, size: int) -> None:
    """Remove the models that were used longest ago until ``size`` more bytes are within bounds.

    Whoever has one of them open keeps reading it. What a process that was killed had begun is
    removed after a day.
    """
    for each in cache.glob(f".{NAME}*/"):
        if time.time() - each.stat().st_mtime > ABANDONED:
            shutil.rmtree(each, ignore_errors=True)
    sizes = {
        each: sum(file.stat().st_size for file in each.iterdir())
        for each in cache.glob(f"{NAME}*/")
    }
    for each in sorted(sizes, key=lambda each: each.stat().st_mtime):
        if sum(sizes.values()) + size > LARGEST:
            shutil.rmtree(each, ignore_errors=True)
            del sizes[each]


def _once(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights by name; of tied ones the first."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, weight in model.state_dict().items():
        found.setdefault(weight.data_ptr(), (name, weight.contiguous()))
    return dict(found.values())


def _described(parts: Parts) -> tuple[object, ...]:
    """All that decides what a model answers: settings, the tokenizer's rules, every weight."""
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
    """A configuration without where and with what it was saved."""
    found = dict(config.to_dict())
    for name in ("_name_or_path", "transformers_version", "dtype", "quantization_config"):
        found.pop(name, None)
    return found
