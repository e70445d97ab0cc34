"""Faster float32 matrix products on a processor, through oneDNN.

Torch multiplies with MKL or with oneDNN; ``libraries.py`` measures which is faster at the model's
shapes. oneDNN stores weights in its own order and computes the activation that follows a linear
layer in the product. The libraries add in another order, so results differ in the last bits
(docs/log.md has the figures).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from consilience.models.batches import one_thread
from consilience.models.fast.libraries import (
    Library,
    Products,
    Purpose,
    Shape,
    Ways,
    Work,
    measured_products,
)
from consilience.models.sources import key_of_check, processor, recall, remember

PREPARED = "64"
"""Products that oneDNN keeps prepared, one for each number of tokens (its default: 1,024).

Each takes a third of a megabyte, and a batch needs fewer than ten (docs/log.md).
"""

ALIGNED = 64
"""Torch allocates tensors at multiples of so many bytes."""

Tensor = torch.Tensor


class Activation(NamedTuple):
    """An activation that oneDNN computes in a product."""

    name: str
    """Its name in oneDNN."""
    algorithm: str
    """Its variant in oneDNN."""
    plain: Callable[[Tensor], Tensor]
    """Torch's own."""


ACTIVATIONS: Mapping[str, Activation] = {
    "none": Activation("none", "", lambda hidden: hidden),
    "gelu": Activation("gelu", "none", functional.gelu),
    "gelu_tanh": Activation("gelu", "tanh", partial(functional.gelu, approximate="tanh")),
    "silu": Activation("swish", "", functional.silu),
    "relu": Activation("relu", "", functional.relu),
}

_thread = threading.local()
"""``is_plain``: whether this thread uses torch's own products, whatever was chosen."""


@contextmanager
def reproducibly() -> Iterator[None]:
    """Compute on one thread and with torch's own products: near ties are decided so.

    The result depends neither on the number of threads nor on the library that was chosen.
    """
    _thread.is_plain = True
    try:
        with one_thread():
            yield
    finally:
        _thread.is_plain = False


def is_plain() -> bool:
    """Whether this thread is inside ``reproducibly()``."""
    return getattr(_thread, "is_plain", False)


@dataclass(frozen=True, slots=True)
class _Linears:
    """The linear layers of a model."""

    layers: list[Any]
    """The layers."""
    activation: Mapping[int, str]
    """By ``id`` of a layer, the name of the activation that follows it and is its only reader."""
    followers: list[torch.nn.Module]
    """The modules of those activations."""

    def activation_of(self, layer: Any) -> str:
        return self.activation.get(id(layer), "none")

    def without_activations(self) -> _Linears:
        return _Linears(self.layers, {}, [])

    def record(self, model: PreTrainedModel) -> dict[str, object]:
        """What ``known`` reads: modules by their name in the model."""
        name_of = {id(module): name for name, module in model.named_modules()}
        return {
            "activation": {name_of[layer]: name for layer, name in self.activation.items()},
            "followers": [name_of[id(module)] for module in self.followers],
        }

    @classmethod
    def known(cls, model: PreTrainedModel, record: Mapping[str, Any]) -> _Linears | None:
        """The linear layers as an earlier run found and proved them; None if it did not."""
        modules = dict(model.named_modules())
        try:
            activation = {
                id(modules[layer]): name
                for layer, name in record["activation"].items()
                if name in ACTIVATIONS
            }
            return cls(linear_layers(model), activation, [modules[n] for n in record["followers"]])
        except (LookupError, AttributeError, TypeError):
            return None


def linear_layers(model: PreTrainedModel) -> list[Any]:
    """The linear layers of a model, in the order of its modules."""
    return [module for module in model.modules() if type(module) in (torch.nn.Linear, Conv1D)]


def speed_up(
    model: PreTrainedModel,
    *,
    head: bool,
    library: Library | None = None,
    identity: Mapping[str, object] = MappingProxyType({}),
) -> Products:
    """Let linear layers multiply with the faster library; returns which one that is.

    With oneDNN the weights are stored in its order only, and an activation module after a linear
    layer becomes part of its product. The output embedding is packed as a copy if ``head`` is set,
    because input embeddings often share its weight, and left alone otherwise.

    Nothing is changed where torch's own products are as fast, on an accelerator, in half precision,
    where torch lacks oneDNN, and where the model would then fail or give other logits. ``library``
    replaces the measurement. ``identity``: that of the model, for which the check is remembered.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return torchs_own(model)
    # Read by oneDNN once, when it first prepares a product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    output = model.get_output_embeddings()
    before, key = None, key_of_check("head-packed" if head else "packed", identity)
    linears = _Linears.known(model, (key and recall(key)) or {})
    if linears is None:
        with one_thread():  # distributing a few tokens takes longer than computing them
            before, linears = _look_into(model)
    body = [layer for layer in linears.layers if layer is not output]
    try:
        shapes = Counter(shape_of(layer, linears.activation_of(layer)) for layer in body)
        chosen = choose_products(shapes, library, "inference", _inference_work)
    except (RuntimeError, AttributeError):  # another torch
        return torchs_own(model)
    if chosen.library == "onednn":
        layers = linears.layers if head else body
        for part in (linears, linears.without_activations()):
            packed = _Packed(model, layers, part, output)
            if before is None:
                packed.pack()
            elif not _pack_checked(packed, before):
                continue
            elif key and part is linears:
                remember(key, linears.record(model))
            return chosen
        chosen = torchs_own(model)
    _align(linears.layers)
    return chosen


def _pack_checked(packed: _Packed, before: Tensor) -> bool:
    """Pack a model; undo it and return False where the logits are not those of ``before``."""
    tolerance = 1e-4 * max(1.0, float(before.abs().max()))
    with suppress(RuntimeError, AttributeError, TypeError):  # a family that reads its weights
        packed.pack()
        with one_thread():
            after = _logits(packed.model)
        if torch.allclose(after, before, rtol=0, atol=tolerance):
            return True
    packed.unpack()
    return False


def _align(layers: list[Any]) -> None:
    """Move weights to where torch allocates tensors; those of a file lie anywhere.

    The order of MKL's sums, and so the last bits, depends on where in memory a weight begins.
    """
    for layer in layers:
        if layer.weight.data_ptr() % ALIGNED:
            layer.weight.data = layer.weight.data.clone()


def torchs_own(model: PreTrainedModel) -> Products:
    """Torch's products without a measurement."""
    device = model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return Products("torch", name, torch.get_num_threads(), {})


def choose_products(
    shapes: Mapping[Shape, int], library: Library | None, purpose: Purpose, work: Ways
) -> Products:
    """The library for a model with ``shapes``: ``library``, else what is measured."""
    if library is not None:
        return Products(library, processor(), torch.get_num_threads(), {})
    with torch.inference_mode(purpose == "inference"):
        return measured_products(shapes, purpose, work)


def shape_of(layer: Any, activation: str) -> Shape:
    """The widths of a linear layer, with the activation that follows it."""
    into, out = layer.weight.shape if isinstance(layer, Conv1D) else layer.weight.shape[::-1]
    return Shape(into, out, activation)


def _inference_work(shape: Shape, tokens: int) -> Mapping[str, Work]:
    hidden, weight, bias = example_numbers(shape, tokens)
    activation = ACTIVATIONS[shape.activation]
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return {
        "onednn": lambda: linear(packed, bias, activation, hidden),
        "torch": lambda: activation.plain(functional.linear(hidden, weight, bias)),
    }


def example_numbers(shape: Shape, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """``hidden`` (token, in), ``weight`` (out, in), ``bias`` (out,); no time depends on them."""
    return (
        torch.full((tokens, shape.into), 0.5),
        torch.full((shape.out, shape.into), 0.01),
        torch.full((shape.out,), 0.1),
    )


class _Packed:
    """Packs the linear layers of a model, and restores them."""

    def __init__(
        self, model: PreTrainedModel, layers: list[Any], linears: _Linears, output: Any
    ) -> None:
        embeddings = (part for part in model.modules() if isinstance(part, torch.nn.Embedding))
        self.model = model
        self._shared = {id(embedding.weight) for embedding in embeddings}
        self._layers, self._linears, self._output = layers, linears, output
        self._weights = [layer.weight for layer in layers]

    def pack(self) -> None:
        for layer, weight in zip(self._layers, self._weights, strict=True):
            plain = weight.detach()
            if isinstance(layer, Conv1D):
                plain = plain.T.contiguous()
            packed = torch.ops.mkldnn._reorder_linear_weight(plain)
            activation = ACTIVATIONS[self._linears.activation_of(layer)]
            layer.forward = partial(_multiply, layer, packed, activation)
            if layer is not self._output and id(weight) not in self._shared:
                layer.weight = torch.nn.Parameter(packed, requires_grad=False)
        for follower in self._linears.followers:
            vars(follower)["forward"] = partial(_follow, follower.forward)

    def unpack(self) -> None:
        for layer, weight in zip(self._layers, self._weights, strict=True):
            vars(layer).pop("forward", None)
            layer.weight = weight
        for follower in self._linears.followers:
            vars(follower).pop("forward", None)


def _look_into(model: PreTrainedModel) -> tuple[Tensor, _Linears]:
    """A few logits of a model, and its linear layers with the activations that follow them.

    An activation follows a layer if each call of the module has the output of one call of a layer
    as its input, and each output of the layer becomes its input. That nothing else reads the output
    is left to the check of the logits.
    """
    layers = linear_layers(model)
    outputs: list[tuple[Any, Tensor]] = []
    calls: list[tuple[torch.nn.Module, Any]] = []  # a module without parts, the preceding layer

    def after_layer(layer: Any, _: Any, output: Tensor) -> None:
        outputs.append((layer, output))

    def before_module(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        value = inputs[0] if len(inputs) == 1 else None
        calls.append((module, next((layer for layer, out in outputs if out is value), None)))

    simple = [
        module
        for module in model.modules()
        if not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    ]
    hooks = [layer.register_forward_hook(after_layer) for layer in layers]
    hooks += [module.register_forward_pre_hook(before_module) for module in simple]
    try:
        logits = _logits(model)
    finally:
        for hook in hooks:
            hook.remove()
    uses = Counter(id(layer) for layer, _ in outputs)
    followed = Counter((id(module), id(layer)) for module, layer in calls)
    activation: dict[int, str] = {}
    followers: list[torch.nn.Module] = []
    for module in simple:
        preceding = {id(layer): layer for called, layer in calls if called is module}
        is_only_reader = preceding and all(
            layer is not None and followed[id(module), key] == uses[key]
            for key, layer in preceding.items()
        )
        if is_only_reader and (name := _activation_name(module)):
            activation.update(dict.fromkeys(preceding, name))
            followers.append(module)
    return logits, _Linears(layers, activation, followers)


@torch.inference_mode()
def _activation_name(module: torch.nn.Module) -> str | None:
    """Which of ``ACTIVATIONS`` a module computes, by its values from -8 to 8."""
    inputs = torch.linspace(-8, 8, 1001)
    with suppress(Exception):  # a module with other inputs is none of them
        values = module(inputs.clone())
        for name, activation in ACTIVATIONS.items():
            expected = activation.plain(inputs)
            if name != "none" and torch.allclose(values, expected, rtol=0, atol=2e-6):
                return name
    return None


def _multiply(layer: Any, packed: Tensor, activation: Activation, hidden: Tensor) -> Tensor:
    """The forward method of a packed layer: one product with the activation that follows it."""
    if not is_plain():
        return linear(packed, layer.bias, activation, hidden)
    weight = packed.to_dense()
    if isinstance(layer, Conv1D):
        rows = torch.addmm(layer.bias, hidden.reshape(-1, len(weight.T)), weight.T.contiguous())
        return rows.view(*hidden.shape[:-1], layer.nf)
    return functional.linear(hidden, weight, layer.bias)


def packed_parts(layer: Any) -> tuple[Tensor, Activation]:
    """The weight (out, in) of a layer, packed or not, and the activation in its product."""
    forward = vars(layer).get("forward")
    if isinstance(forward, partial) and forward.func is _multiply:
        _, packed, activation = forward.args
        return packed, activation
    weight = layer.weight.detach()
    return weight.T if isinstance(layer, Conv1D) else weight, ACTIVATIONS["none"]


def _follow(compute: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """The forward method of an activation that the product before it has computed."""
    return compute(hidden) if is_plain() else hidden


@torch.inference_mode()
def _logits(model: PreTrainedModel) -> Tensor:
    """Logits of a few tokens, the last of them the end, where some classifiers read."""
    ids = torch.tensor([[5, 6, 7, 8]]) % model.config.vocab_size
    if isinstance(end := getattr(model.config, "eos_token_id", None), int):
        ids[0, -1] = end
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    logits: Tensor = model(input_ids=ids, **extra).logits
    return logits


def linear(packed: Tensor, bias: Tensor | None, activation: Activation, hidden: Tensor) -> Tensor:
    """``hidden`` (..., in) times the weight, plus the bias, then the activation: (..., out)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        hidden, packed, bias, activation.name, [], activation.algorithm
    )
    return product
