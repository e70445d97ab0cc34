"""The same products in single precision, by the faster of torch's libraries.

Torch multiplies on a processor with MKL, which uses half of what an AMD processor can do; oneDNN,
which torch carries too, uses all of it, and keeps the weights in the order that it reads them in.
Both add in another order, so results differ in the last bits (docs/log.md has the figures).
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

PREPARED = "64"
"""How many products oneDNN keeps prepared, one for each number of tokens; by itself 1,024.

Each takes a third of a megabyte, and a batch needs fewer than ten (docs/log.md).
"""


def pack_linears(model: PreTrainedModel, *, head: bool) -> bool:
    """Keep the weights of linear layers in oneDNN's order; whether that was done.

    Nothing is changed on an accelerator, in half precision, where torch lacks oneDNN, and where the
    model would then fail or give other logits. The packed weights take the place of the others,
    except in the output embedding: it is packed as a copy if ``head`` is asked for, because input
    embeddings often share its weight, and left otherwise.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return False
    # Read by oneDNN once, when it first prepares a product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    output = model.get_output_embeddings()
    shared = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)}
    packed: list[tuple[Any, torch.nn.Parameter]] = []
    before = _logits(model)
    try:
        module: Any
        for module in model.modules():
            if type(module) in (torch.nn.Linear, Conv1D) and (head or module is not output):
                packed.append((module, module.weight))
                _pack(module, keep_weight=module is output or id(module.weight) in shared)
        tolerance = 1e-4 * max(1.0, float(before.abs().max()))
        if torch.allclose(_logits(model), before, rtol=0, atol=tolerance):
            return True
    except (
        RuntimeError,
        AttributeError,
        TypeError,
    ):  # another torch, or a family that looks inside
        pass
    for module, weight in packed:
        module.__dict__.pop("forward", None)
        module.weight = weight
    return False


def train_faster(model: PreTrainedModel) -> None:
    """Have linear layers multiply with oneDNN forwards and backwards, where that can be done.

    The weights stay where they are, so that they can be trained. Nothing is changed on an
    accelerator, in half precision and where torch lacks oneDNN.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    try:
        torch.ops.mkldnn._linear_pointwise(torch.ones(1, 2), torch.ones(1, 2), None, "none", [], "")
    except (RuntimeError, AttributeError):  # another torch
        return
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            vars(module)["forward"] = partial(_trained, module)


def _trained(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    apply: Any = _Product.apply
    product: torch.Tensor = apply(hidden, module.weight, module.bias)
    return product


class _Product(torch.autograd.Function):
    """``hidden`` (..., in) times ``weight`` (out, in) plus ``bias`` (out,): (..., out)."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        return _linear(weight, bias, hidden)

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        hidden, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _linear(weight.T, None, gradient) if needs_hidden else None,
            _linear(hidden.reshape(-1, hidden.shape[-1]).T, None, rows.T) if needs_weight else None,
            rows.sum(dim=0) if needs_bias else None,
        )


def _pack(module: Any, *, keep_weight: bool) -> None:
    weight = module.weight.detach()
    plain = weight.T.contiguous() if isinstance(module, Conv1D) else weight
    packed = torch.ops.mkldnn._reorder_linear_weight(plain)
    module.forward = partial(_linear, packed, module.bias)
    if not keep_weight:
        module.weight = torch.nn.Parameter(packed, requires_grad=False)


@torch.inference_mode()
def _logits(model: PreTrainedModel) -> torch.Tensor:
    """Logits of a few tokens, the last of them the end, at which some classifiers read."""
    ids = torch.tensor([[5, 6, 7, 8]]) % model.config.vocab_size
    if isinstance(end := getattr(model.config, "eos_token_id", None), int):
        ids[0, -1] = end
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    logits: torch.Tensor = model(input_ids=ids, **extra).logits
    return logits


def _linear(packed: torch.Tensor, bias: torch.Tensor | None, hidden: torch.Tensor) -> torch.Tensor:
    """``hidden`` (..., in) times the packed weight, plus the bias: (..., out)."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(hidden, packed, bias, "none", [], "")
    return product
