"""Linear layers that multiply in bfloat16 on request, with everything else in float32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from consilience.models.fast.libraries import Products, Shape, Work, measured_products
from consilience.models.fast.onednn import (
    ACTIVATIONS,
    Activation,
    Tensor,
    example_numbers,
    is_plain,
    linear,
    packed_parts,
)


class HalfPrecision:
    """Inside ``with half_precision:`` linear layers multiply in bfloat16, in all threads.

    The weights are stored in both precisions.
    """

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, *, head: bool) -> None:
        """``head``: the output embedding multiplies in bfloat16 too."""
        self.is_on = False
        for layer in _screened_layers(model, head=head):
            weight, activation = packed_parts(layer)
            half = _half(weight.to_dense() if weight.is_mkldnn else weight)
            vars(layer)["forward"] = partial(self._multiply, layer, layer.forward, half, activation)

    def __enter__(self) -> None:
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.is_on = False

    def _multiply(
        self,
        layer: Any,
        exact: Callable[[Tensor], Tensor],
        half: Tensor,
        activation: Activation,
        hidden: Tensor,
    ) -> Tensor:
        if self.is_on and not is_plain():  # a near tie is decided in float32 here too
            return _in_bfloat16(half, layer.bias, activation, hidden)
        return exact(hidden)


def measured_screen(model: PreTrainedModel, *, head: bool) -> Products:
    """How fast the linear layers of a model multiply in bfloat16 and in float32, as it is now.

    Inputs and results are in float32. ``gflops`` has both, unless the products are too small to be
    measured.
    """
    parts = [packed_parts(layer) for layer in _screened_layers(model, head=head)]
    names = {id(activation): name for name, activation in ACTIVATIONS.items()}
    shapes = Counter(
        Shape(weight.shape[1], weight.shape[0], names[id(activation)])
        for weight, activation in parts
    )
    is_packed = any(weight.is_mkldnn for weight, _ in parts)

    def work(shape: Shape, tokens: int) -> Mapping[str, Work]:
        numbers = (tensor.to(model.device) for tensor in example_numbers(shape, tokens))
        hidden, weight, bias = numbers
        activation, half = ACTIVATIONS[shape.activation], _half(weight)
        if is_packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight)

        def exact() -> Tensor:
            if is_packed:
                return linear(weight, bias, activation, hidden)
            return activation.plain(functional.linear(hidden, weight, bias))

        ways = {
            "float32": exact,
            "bfloat16": lambda: _in_bfloat16(half, bias, activation, hidden),
        }
        return {name: partial(_finish, way, model.device) for name, way in ways.items()}

    with torch.inference_mode():
        return measured_products(shapes, "screening", work, model.device)


def _screened_layers(model: PreTrainedModel, *, head: bool) -> list[Any]:
    output = model.get_output_embeddings()
    return [
        module
        for module in model.modules()
        if type(module) in (torch.nn.Linear, Conv1D) and (head or module is not output)
    ]


def _half(weight: Tensor) -> Tensor:
    """A weight (out, in) in bfloat16, in oneDNN's order on a processor."""
    half = weight.bfloat16().contiguous()
    if half.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return half
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(half)
    return packed


def _in_bfloat16(
    half: Tensor, bias: Tensor | None, activation: Activation, hidden: Tensor
) -> Tensor:
    """The product of ``hidden`` (..., in) in bfloat16, back in float32: (..., out)."""
    if half.is_mkldnn:
        return linear(half, bias, activation, hidden.bfloat16()).float()
    bias = None if bias is None else bias.bfloat16()
    return activation.plain(functional.linear(hidden.bfloat16(), half, bias)).float()


def _finish(way: Callable[[], Tensor], device: torch.device) -> None:
    way()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
