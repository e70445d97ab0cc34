"""Faster float32 matrix products on a processor, through oneDNN.

Torch multiplies with MKL or with oneDNN. With weights packed in its own order oneDNN does twice the
products on an AMD EPYC; on an Intel Xeon both are about equally fast (docs/log.md). So both are
timed when a model is loaded. They add in another order: the choice
changes the last bits of a score and no answer (docs/decisions/0007).
"""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

Library = Literal["onednn", "torch"]
Tensor = torch.Tensor
CPU_TOKENS = 512  # Tokens in a batch for one core: it fits the core's cache (docs/log.md)

CLEARLY = 1.2
"""How many times faster a library has to be to replace the usual one. Those processors are far from
it on both sides, so the choice does not differ from start to start."""

SMALL, TIMED = 3e7, 1e9
"""Operations: of the largest product of a full batch, below which torch's own is used, untimed; and
of the product that is timed, with fewer tokens if the layer is wide."""

PREPARED = "64"
"""Products that oneDNN keeps prepared, one for each number of tokens (its default: 1,024).

Each takes a third of a megabyte, and a batch needs fewer than ten (docs/log.md).
"""

ALIGNED = 64  # Torch allocates tensors at multiples of so many bytes

_thread = threading.local()  # ``is_plain``: this thread uses torch's own products


@dataclass(frozen=True, slots=True)
class Products:
    """What multiplies in a model, on which processor or accelerator, and why."""

    library: str
    processor: str
    threads: int  # Threads that torch used when it was timed
    gflops: Mapping[str, float] = field(default_factory=dict)  # If timed, at best


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, whatever the run uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def reproducibly() -> Iterator[None]:
    """Compute on one thread and with torch's own products, whatever is chosen: for near ties."""
    _thread.is_plain = True
    try:
        with one_thread():
            yield
    finally:
        _thread.is_plain = False


@cache
def processor() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def speed_up(model: PreTrainedModel, *, head: bool, library: Library | None = None) -> Products:
    """Let linear layers multiply with the faster library, or with ``library``; returns which.

    With oneDNN the weights are stored in its order only. The output embedding is packed as a copy
    if ``head`` is set, because input embeddings often share its weight. Nothing is changed on an
    accelerator, in half precision, and where the model would fail or give other logits.
    """
    output = model.get_output_embeddings()
    layers: list[Any] = [
        part for part in model.modules() if type(part) in (torch.nn.Linear, Conv1D)
    ]
    chosen = _choose(model, layers, library)
    if chosen.library == "onednn":
        packed = [layer for layer in layers if head or layer is not output]
        if _pack(model, packed, output):
            return chosen
        chosen = Products("torch", chosen.processor, chosen.threads)
    for layer in layers:  # where a weight begins in memory decides the order of MKL's sums
        if layer.weight.data_ptr() % ALIGNED:
            layer.weight.data = layer.weight.data.clone()
    return chosen


def _choose(model: PreTrainedModel, layers: list[Any], library: Library | None) -> Products:
    """``library``, else the faster one, by the product that takes most of the time of ``layers``.

    Each thread computes a batch of its own, so one is timed.
    """
    device, threads = model.device, torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    torchs_own = Products("torch", name, threads)
    if (device.type, model.dtype) != ("cpu", torch.float32):
        return torchs_own
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)  # read at the first product
    output = getattr(model, "get_output_embeddings", lambda: None)()
    weights = [_weight(layer) for layer in layers if layer is not output]
    shapes = Counter(tuple(weight.shape) for weight in weights)
    out, into = max(shapes, key=lambda shape: shape[0] * shape[1] * shapes[shape], default=(0, 0))
    a_token = 2 * out * into
    tokens = min(CPU_TOKENS, max(32, int(TIMED / max(1, a_token))))
    try:
        _product(torch.ones(1, 2), torch.ones(1, 2), None)
        if library is not None:
            return Products(library, name, threads)
        if CPU_TOKENS * a_token < SMALL:
            return torchs_own
        with torch.inference_mode(), one_thread():
            seconds = _time(tokens, into, out)
    except (RuntimeError, AttributeError):  # another torch
        return torchs_own
    speeds = {
        way: round(tokens * a_token / min(rounds) / 1e9, 1) for way, rounds in seconds.items()
    }
    chosen: Library = "torch" if is_faster(seconds["torch"], seconds["onednn"]) else "onednn"
    return Products(chosen, name, threads, speeds)


def is_faster(seconds: list[float], than: list[float]) -> bool:
    """Whether the first is ``CLEARLY`` faster, in the median and in the fastest round."""
    return all(of(than) >= CLEARLY * of(seconds) for of in (statistics.median, min))


def _time(tokens: int, into: int, out: int, rounds: int = 5) -> dict[str, list[float]]:
    """Seconds (round,) of a product with each library, in turn, after a round that prepares it."""
    hidden, weight = torch.full((tokens, into), 0.5), torch.full((out, into), 0.01)
    bias = torch.full((out,), 0.1)
    onednns = torch.ops.mkldnn._reorder_linear_weight(weight)
    seconds: dict[str, list[float]] = {"onednn": [], "torch": []}
    for _ in range(1 + rounds):
        for name, of_rounds in seconds.items():
            start = time.perf_counter()
            if name == "onednn":
                _product(hidden, onednns, bias)
            else:
                linear(hidden, weight, bias)
            of_rounds.append(time.perf_counter() - start)
    return {name: of_rounds[1:] for name, of_rounds in seconds.items()}


def _product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear`` by oneDNN: ``hidden`` (..., in), ``weight`` (out, in), packed."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(hidden, weight, bias, "none", [], ""))


def _weight(layer: Any) -> Tensor:
    weight: Tensor = layer.weight.detach()
    return weight.T if isinstance(layer, Conv1D) else weight


def _pack(model: PreTrainedModel, layers: list[Any], output: Any) -> bool:
    """Pack the weights of layers; undone, and False, where the logits are then others."""
    embeddings = (part for part in model.modules() if isinstance(part, torch.nn.Embedding))
    shared = {id(output)} | {id(embedding.weight) for embedding in embeddings}
    weights = [layer.weight for layer in layers]
    with one_thread():  # distributing a few tokens takes longer than computing them
        before = _logits(model)
        with suppress(RuntimeError, AttributeError, TypeError):  # a family that reads its weights
            for layer in layers:
                packed = torch.ops.mkldnn._reorder_linear_weight(_weight(layer).contiguous())
                vars(layer)["forward"] = partial(_multiply, layer, packed)
                if not shared & {id(layer), id(layer.weight)}:
                    layer.weight = torch.nn.Parameter(packed, requires_grad=False)
            scale = max(1.0, float(before.abs().max()))
            if torch.allclose(_logits(model), before, rtol=0, atol=1e-4 * scale):
                return True
    for layer, weight in zip(layers, weights, strict=True):
        vars(layer).pop("forward", None)
        layer.weight = weight
    return False


@torch.inference_mode()
def _logits(model: PreTrainedModel) -> Tensor:
    """Logits of a few tokens, the last of them the end, where some classifiers read."""
    ids = torch.tensor([[5, 6, 7, 8]]) % model.config.get_text_config().vocab_size
    if isinstance(end := getattr(model.config, "eos_token_id", None), int):
        ids[0, -1] = end
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    return cast(Tensor, model(input_ids=ids, **extra).logits)


def _multiply(layer: Any, packed: Tensor, hidden: Tensor) -> Tensor:
    if not getattr(_thread, "is_plain", False):
        return _product(hidden, packed, layer.bias)
    weight = packed.to_dense()
    if isinstance(layer, Conv1D):
        rows = torch.addmm(layer.bias, hidden.reshape(-1, len(weight.T)), weight.T.contiguous())
        return rows.view(*hidden.shape[:-1], layer.nf)
    return linear(hidden, weight, layer.bias)
