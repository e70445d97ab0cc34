"""Products with gradients through oneDNN, where that is measured to be faster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from consilience.models.fast.libraries import Library, Products, Shape, Work
from consilience.models.fast.onednn import (
    ACTIVATIONS,
    PREPARED,
    Tensor,
    choose_products,
    example_numbers,
    linear,
    shape_of,
    torchs_own,
)


def speed_up_training(model: PreTrainedModel, library: Library | None = None) -> Products:
    """Let linear layers multiply with the faster library forwards and backwards; which it is.

    The weights stay where they are, so that they can be trained. Nothing is changed on an
    accelerator, in half precision and where torch lacks oneDNN. ``library`` replaces the
    measurement.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return torchs_own(model)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    layers = [module for module in model.modules() if type(module) is torch.nn.Linear]
    output = getattr(model, "get_output_embeddings", lambda: None)()
    shapes = Counter(shape_of(layer, "none") for layer in layers if layer is not output)
    try:
        linear(torch.ones(1, 2), None, ACTIVATIONS["none"], torch.ones(1, 2))
        chosen = choose_products(shapes, library, "training", _training_work)
    except (RuntimeError, AttributeError):  # another torch
        return torchs_own(model)
    if chosen.library == "onednn":
        for layer in layers:
            vars(layer)["forward"] = partial(_trained, layer)
    return chosen


def _training_work(shape: Shape, tokens: int) -> Mapping[str, Work]:
    inputs = [tensor.requires_grad_() for tensor in example_numbers(shape, tokens)]
    gradient = torch.full((tokens, shape.out), 0.01)
    apply: Any = _Product.apply

    def forwards_and_backwards(product: Callable[..., Tensor]) -> Work:
        return lambda: torch.autograd.grad(product(*inputs), inputs, gradient)

    return {
        "onednn": forwards_and_backwards(apply),
        "torch": forwards_and_backwards(functional.linear),
    }


def _trained(module: Any, hidden: Tensor) -> Tensor:
    apply: Any = _Product.apply
    product: Tensor = apply(hidden, module.weight, module.bias)
    return product


class _Product(torch.autograd.Function):
    """``hidden`` (..., in) times ``weight`` (out, in) plus ``bias`` (out,): (..., out)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return linear(weight, bias, ACTIVATIONS["none"], hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        columns = hidden.reshape(-1, hidden.shape[-1]).T
        plain = ACTIVATIONS["none"]
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            linear(weight.T, None, plain, gradient) if needs_hidden else None,
            linear(columns, None, plain, rows.T) if needs_weight else None,
            rows.sum(dim=0) if needs_bias else None,
        )
