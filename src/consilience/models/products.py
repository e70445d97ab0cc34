"""Matrix products of linear layers: torch's own, or oneDNN's with packed weights.

With weights packed in its own order oneDNN does twice the products in float32 on an AMD EPYC; on an
Intel Xeon both are about equally fast (docs/log.md). So it multiplies on processors of AMD. The two
add in different orders: the last bits of a score differ, no answer does (docs/decisions.md).
"""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch.nn import Embedding, Linear, Parameter
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

Library = Literal["onednn", "torch"]
ALIGNED = 64  # Torch allocates tensors at multiples of so many bytes
PREPARED = "64"  # Products that oneDNN keeps ready, a third of a megabyte each; its default: 1,024

_thread = threading.local()  # ``is_plain``: this thread uses torch's own products


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
    with suppress(OSError, IndexError):
        return str(re.findall("model name\\s*: (.*)", Path("/proc/cpuinfo").read_text())[0])
    return platform.processor() or platform.machine()


def speed_up(model: PreTrainedModel, library: Library | None = None) -> dict[str, object]:
    """Let linear layers multiply with the faster library, or with ``library``; says which it is.

    The output embedding is packed as a copy, because input embeddings often share its weight, and
    only of a model that writes. Only float32 on a processor is packed, where logits stay the same.
    """
    device = model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    head = None if model.can_generate() else model.get_output_embeddings()
    library = library or ("onednn" if name.startswith("AMD") else "torch")
    layers: list[Any] = [part for part in model.modules() if type(part) in (Linear, Conv1D)]
    layers = [part for part in layers if part is not head]
    can_pack = (device.type, model.dtype) == ("cpu", torch.float32)
    if not (library == "onednn" and can_pack and _pack(model, layers)):
        library = "torch"
        for layer in layers:  # where a weight begins in memory decides the order of MKL's sums
            if layer.weight.data_ptr() % ALIGNED:
                layer.weight.data = layer.weight.data.clone()
    return {"library": library, "processor": name, "threads": torch.get_num_threads()}


def _pack(model: PreTrainedModel, layers: list[Any]) -> bool:
    """Pack the weights of layers; undone, and False, where the logits are then others."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)  # read at the first product
    shared = {id(part.weight) for part in model.modules() if isinstance(part, Embedding)}
    shared.add(id(model.get_output_embeddings()))
    weights, inputs = [layer.weight for layer in layers], torch.tensor([[5, 6, 7, 8]])
    inputs %= model.config.get_text_config().vocab_size
    if isinstance(end := getattr(model.config, "eos_token_id", None), int):
        inputs[0, -1] = end  # where some classifiers read
    more = {"decoder_input_ids": inputs} if model.config.is_encoder_decoder else {}
    with one_thread(), torch.no_grad(), suppress(RuntimeError, AttributeError, TypeError):
        before = model(input_ids=inputs, **more).logits
        for layer in layers:
            weight = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
            vars(layer)["forward"] = partial(_multiply, layer, packed)
            if not shared & {id(layer), id(layer.weight)}:
                layer.weight = Parameter(packed, requires_grad=False)
        after, scale = model(input_ids=inputs, **more).logits, max(1.0, float(before.abs().max()))
        if torch.allclose(after, before, rtol=0, atol=1e-4 * scale):
            return True
    for layer, weight in zip(layers, weights, strict=True):  # a family that reads its weights
        vars(layer).pop("forward", None)
        layer.weight = weight
    return False


def _multiply(layer: Any, packed: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """``layer`` by oneDNN, whose weight (out, in) is ``packed``: ``hidden`` (..., in)."""
    if not getattr(_thread, "is_plain", False):
        multiply: Any = torch.ops.mkldnn._linear_pointwise
        return cast(torch.Tensor, multiply(hidden, packed, layer.bias, "none", [], ""))
    weight = packed.to_dense()
    if isinstance(layer, Conv1D):
        rows = torch.addmm(layer.bias, hidden.reshape(-1, len(weight.T)), weight.T.contiguous())
        return rows.view(*hidden.shape[:-1], layer.nf)
    return linear(hidden, weight, layer.bias)
