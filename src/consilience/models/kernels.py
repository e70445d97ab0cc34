"""The same products in single precision, by whichever of torch's libraries is faster here.

Torch multiplies on a processor with MKL or with oneDNN; ``products.py`` measures which is faster at
the model's shapes. oneDNN keeps the weights in the order in which it reads them, and computes the
activation that follows a linear layer in the product. The libraries add in another order, so
results differ in the last bits (docs/log.md has the figures).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from consilience.models.batches import one_thread
from consilience.models.products import (
    Library,
    Products,
    Shape,
    Work,
    measured_products,
    processor,
)

PREPARED = "64"
"""How many products oneDNN keeps prepared, one for each number of tokens (its default: 1,024).

Each takes a third of a megabyte, and a batch needs fewer than ten (docs/log.md).
"""

ALIGNED = 64
"""Torch's tensors begin at multiples of so many bytes."""

Tensor = torch.Tensor


class Activation(NamedTuple):
    """An activation that oneDNN computes in a product: its two names there, and torch's own."""

    name: str
    algorithm: str
    plain: Callable[[Tensor], Tensor]


ACTIVATIONS: Mapping[str, Activation] = {
    "none": Activation("none", "", lambda hidden: hidden),
    "gelu": Activation("gelu", "none", functional.gelu),
    "gelu_tanh": Activation("gelu", "tanh", partial(functional.gelu, approximate="tanh")),
    "silu": Activation("swish", "", functional.silu),
    "relu": Activation("relu", "", functional.relu),
}


_now = threading.local()
"""``plain``: whether this thread multiplies with torch's own products, whatever was chosen."""


@contextmanager
def near_tie() -> Iterator[None]:
    """Near ties are decided inside: on one thread, with torch's own products.

    What is computed depends neither on the number of threads of the run nor on the library that was
    chosen for it.
    """
    _now.plain = True
    try:
        with one_thread():
            yield
    finally:
        _now.plain = False


def _is_plain() -> bool:
    return getattr(_now, "plain", False)


@dataclass(frozen=True, slots=True)
class _Linears:
    """The linear layers of a model.

    ``activation``: the name of the one that follows a layer and nothing else reads; those modules
    are in ``followers``.
    """

    layers: list[Any]
    activation: Mapping[int, str]
    followers: list[torch.nn.Module]

    def of(self, layer: Any) -> str:
        return self.activation.get(id(layer), "none")

    def without_activations(self) -> _Linears:
        return _Linears(self.layers, {}, [])


def pack_linears(model: PreTrainedModel, *, head: bool, library: Library | None = None) -> Products:
    """Have linear layers multiply with the faster library; which one that is.

    oneDNN gets its weights in its own order, which take the place of the others, except in the
    output embedding: it is packed as a copy if ``head`` is asked for, because input embeddings
    often share its weight, and left otherwise. An activation module behind a linear layer becomes
    part of its product.

    Nothing is changed where torch's own products are as good, on an accelerator, in half precision,
    where torch lacks oneDNN, and where the model would then fail or give other logits. ``library``
    takes the place of the measurement.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return _torchs_own(model)
    # Read by oneDNN once, when it first prepares a product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    output = model.get_output_embeddings()
    with one_thread():  # a few tokens: to share them out takes longer than to compute them
        before, found = _look_into(model)
    body = [each for each in found.layers if each is not output]
    try:
        chosen = _choose(Counter(_shape(each, found.of(each)) for each in body), library)
    except (RuntimeError, AttributeError):  # another torch
        return _torchs_own(model)
    if chosen.library != "onednn":
        _align(found.layers)
        return chosen
    layers = found.layers if head else body
    tolerance = 1e-4 * max(1.0, float(before.abs().max()))
    for linears in (found, found.without_activations()):
        undo = _Packed(model, layers, linears, output)
        with suppress(RuntimeError, AttributeError, TypeError):  # a family that looks inside
            undo.pack()
            with one_thread():
                after = _logits(model)
            if torch.allclose(after, before, rtol=0, atol=tolerance):
                return chosen
        undo.unpack()
    _align(found.layers)
    return _torchs_own(model)


def train_faster(model: PreTrainedModel, library: Library | None = None) -> Products:
    """Have linear layers multiply with the faster library forwards and backwards; which it is.

    The weights stay where they are, so that they can be trained. Nothing is changed on an
    accelerator, in half precision and where torch lacks oneDNN. ``library`` takes the place of the
    measurement.
    """
    if (model.device.type, model.dtype) != ("cpu", torch.float32):
        return _torchs_own(model)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PREPARED)
    layers = [each for each in model.modules() if type(each) is torch.nn.Linear]
    output = getattr(model, "get_output_embeddings", lambda: None)()
    shapes = Counter(_shape(each, "none") for each in layers if each is not output)
    try:
        _linear(torch.ones(1, 2), None, ACTIVATIONS["none"], torch.ones(1, 2))
        chosen = _choose(shapes, library, training=True)
    except (RuntimeError, AttributeError):  # another torch
        return _torchs_own(model)
    if chosen.library == "onednn":
        for layer in layers:
            vars(layer)["forward"] = partial(_trained, layer)
    return chosen


def _align(layers: list[Any]) -> None:
    """Move weights to where torch allocates them; a file's are anywhere.

    The order of MKL's sums, and so the last bits, depends on where in memory a weight begins.
    """
    for layer in layers:
        if layer.weight.data_ptr() % ALIGNED:
            layer.weight.data = layer.weight.data.clone()


def measured_screen(model: PreTrainedModel, *, head: bool) -> Products:
    """How fast the linear layers of a model multiply in bfloat16 and in float32, as it is now.

    Inputs come in float32 and results leave in float32. ``gflops`` has both, unless the products
    are too small to be measured.
    """
    parts = [_parts(layer) for layer in _screened_layers(model, head=head)]
    names = {id(each): name for name, each in ACTIVATIONS.items()}
    shapes = Counter(
        Shape(own.shape[1], own.shape[0], names[id(activation)]) for own, activation in parts
    )
    packed = any(own.is_mkldnn for own, _ in parts)

    def work(shape: Shape, tokens: int) -> Mapping[str, Work]:
        hidden, weight, bias = (each.to(model.device) for each in _numbers(shape, tokens))
        activation, half = ACTIVATIONS[shape.activation], _half(weight)
        if packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight)

        def exact() -> Tensor:
            if packed:
                return _linear(weight, bias, activation, hidden)
            return activation.plain(functional.linear(hidden, weight, bias))

        ways = {
            "float32": exact,
            "bfloat16": lambda: _in_bfloat16(half, bias, activation, hidden),
        }
        return {name: partial(_finished, way, model.device) for name, way in ways.items()}

    with torch.inference_mode():
        return measured_products(shapes, "screening", work, model.device)


class Screen:
    """The linear layers of a model multiply in bfloat16 inside ``with screen:``, in all threads.

    Everything between them stays in float32. ``head``: the output embedding multiplies so too. The
    weights are kept in both precisions.
    """

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, *, head: bool) -> None:
        self.on = False
        for layer in _screened_layers(model, head=head):
            weight, activation = _parts(layer)
            half = _half(weight.to_dense() if weight.is_mkldnn else weight)
            vars(layer)["forward"] = partial(self._multiply, layer, layer.forward, half, activation)

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False

    def _multiply(
        self,
        layer: Any,
        exact: Callable[[Tensor], Tensor],
        half: Tensor,
        activation: Activation,
        hidden: Tensor,
    ) -> Tensor:
        if self.on and not _is_plain():  # a near tie is decided in float32 here too
            return _in_bfloat16(half, layer.bias, activation, hidden)
        return exact(hidden)


def _screened_layers(model: PreTrainedModel, *, head: bool) -> list[Any]:
    output = model.get_output_embeddings()
    return [
        each
        for each in model.modules()
        if type(each) in (torch.nn.Linear, Conv1D) and (head or each is not output)
    ]


def _parts(layer: Any) -> tuple[Tensor, Activation]:
    """The weight (out, in) of a layer, packed or not, and the activation in its product."""
    own = vars(layer).get("forward")
    if isinstance(own, partial) and own.func is _multiply:
        _, packed, activation = own.args
        return packed, activation
    weight = layer.weight.detach()
    return weight.T if isinstance(layer, Conv1D) else weight, ACTIVATIONS["none"]


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
    """The product of ``hidden`` (..., in) in bfloat16, in float32 again: (..., out)."""
    if half.is_mkldnn:
        return _linear(half, bias, activation, hidden.bfloat16()).float()
    bias = None if bias is None else bias.bfloat16()
    return activation.plain(functional.linear(hidden.bfloat16(), half, bias)).float()


def _finished(way: Callable[[], Tensor], device: torch.device) -> None:
    way()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _torchs_own(model: PreTrainedModel) -> Products:
    on = model.device
    name = torch.cuda.get_device_name(on) if on.type == "cuda" else processor()
    return Products("torch", name, torch.get_num_threads(), {})


def _choose(
    shapes: Mapping[Shape, int], library: Library | None, *, training: bool = False
) -> Products:
    if library is not None:
        return Products(library, processor(), torch.get_num_threads(), {})
    if training:
        return measured_products(shapes, "training", _training_work)
    with torch.inference_mode():
        return measured_products(shapes, "inference", _inference_work)


def _shape(layer: Any, activation: str) -> Shape:
    into, out = layer.weight.shape if isinstance(layer, Conv1D) else layer.weight.shape[::-1]
    return Shape(into, out, activation)


def _inference_work(shape: Shape, tokens: int) -> Mapping[str, Work]:
    hidden, weight, bias = _numbers(shape, tokens)
    activation = ACTIVATIONS[shape.activation]
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return {
        "onednn": lambda: _linear(packed, bias, activation, hidden),
        "torch": lambda: activation.plain(functional.linear(hidden, weight, bias)),
    }


def _training_work(shape: Shape, tokens: int) -> Mapping[str, Work]:
    inputs = [each.requires_grad_() for each in _numbers(shape, tokens)]
    gradient = torch.full((tokens, shape.out), 0.01)
    apply: Any = _Product.apply

    def there_and_back(product: Callable[..., Tensor]) -> Work:
        return lambda: torch.autograd.grad(product(*inputs), inputs, gradient)

    return {"onednn": there_and_back(apply), "torch": there_and_back(functional.linear)}


def _numbers(shape: Shape, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """``hidden`` (token, in), ``weight`` (out, in), ``bias`` (out,); no time depends on them."""
    return (
        torch.full((tokens, shape.into), 0.5),
        torch.full((shape.out, shape.into), 0.01),
        torch.full((shape.out,), 0.1),
    )


class _Packed:
    """A model whose linear layers are packed, and the way back."""

    def __init__(
        self, model: PreTrainedModel, layers: list[Any], linears: _Linears, output: Any
    ) -> None:
        embeddings = (each for each in model.modules() if isinstance(each, torch.nn.Embedding))
        self._shared = {id(each.weight) for each in embeddings}
        self._layers, self._linears, self._output = layers, linears, output
        self._weights = [each.weight for each in layers]

    def pack(self) -> None:
        for layer, weight in zip(self._layers, self._weights, strict=True):
            plain = weight.detach()
            if isinstance(layer, Conv1D):
                plain = plain.T.contiguous()
            packed = torch.ops.mkldnn._reorder_linear_weight(plain)
            activation = ACTIVATIONS[self._linears.of(layer)]
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
    layers = [each for each in model.modules() if type(each) in (torch.nn.Linear, Conv1D)]
    outputs: list[tuple[Any, Tensor]] = []
    calls: list[tuple[torch.nn.Module, Any]] = []  # a module without parts, the layer before it

    def after_layer(layer: Any, _: Any, output: Tensor) -> None:
        outputs.append((layer, output))

    def before_module(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        given = inputs[0] if len(inputs) == 1 else None
        calls.append((module, next((each for each, out in outputs if out is given), None)))

    parts = [
        each
        for each in model.modules()
        if not any(True for _ in each.children()) and not any(True for _ in each.parameters())
    ]
    with _hooks(
        [each.register_forward_hook(after_layer) for each in layers]
        + [each.register_forward_pre_hook(before_module) for each in parts]
    ):
        logits = _logits(model)
    uses = Counter(id(layer) for layer, _ in outputs)
    followed = Counter((id(module), id(layer)) for module, layer in calls)
    activation: dict[int, str] = {}
    followers: list[torch.nn.Module] = []
    for module in parts:
        own = {id(layer): layer for called, layer in calls if called is module}
        if own and all(
            layer is not None and followed[id(module), key] == uses[key]
            for key, layer in own.items()
        ):
            name = _name_of(module)
            if name is not None:
                activation.update(dict.fromkeys(own, name))
                followers.append(module)
    return logits, _Linears(layers, activation, followers)


@contextmanager
def _hooks(handles: list[Any]) -> Any:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.inference_mode()
def _name_of(module: torch.nn.Module) -> str | None:
    """Which of ``ACTIVATIONS`` a module computes, by its values from -8 to 8."""
    given = torch.linspace(-8, 8, 1001)
    with suppress(Exception):  # whatever it wants, it is none of them
        values = module(given.clone())
        for name, activation in ACTIVATIONS.items():
            if name != "none" and torch.allclose(
                values, activation.plain(given), rtol=0, atol=2e-6
            ):
                return name
    return None


def _multiply(layer: Any, packed: Tensor, activation: Activation, hidden: Tensor) -> Tensor:
    """The layer's own forward, in one product with the activation that follows it."""
    if not _is_plain():
        return _linear(packed, layer.bias, activation, hidden)
    weight = packed.to_dense()
    if isinstance(layer, Conv1D):
        rows = torch.addmm(layer.bias, hidden.reshape(-1, len(weight.T)), weight.T.contiguous())
        return rows.view(*hidden.shape[:-1], layer.nf)
    return functional.linear(hidden, weight, layer.bias)


def _follow(own: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """An activation that the product before it has computed, unless products are plain."""
    return own(hidden) if _is_plain() else hidden


def _trained(module: Any, hidden: Tensor) -> Tensor:
    apply: Any = _Product.apply
    product: Tensor = apply(hidden, module.weight, module.bias)
    return product


class _Product(torch.autograd.Function):
    """``hidden`` (..., in) times ``weight`` (out, in) plus ``bias`` (out,): (..., out)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return _linear(weight, bias, ACTIVATIONS["none"], hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        columns = hidden.reshape(-1, hidden.shape[-1]).T
        plain = ACTIVATIONS["none"]
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _linear(weight.T, None, plain, gradient) if needs_hidden else None,
            _linear(columns, None, plain, rows.T) if needs_weight else None,
            rows.sum(dim=0) if needs_bias else None,
        )


@torch.inference_mode()
def _logits(model: PreTrainedModel) -> Tensor:
    """Logits of a few tokens, the last of them the end, at which some classifiers read."""
    ids = torch.tensor([[5, 6, 7, 8]]) % model.config.vocab_size
    if isinstance(end := getattr(model.config, "eos_token_id", None), int):
        ids[0, -1] = end
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    logits: Tensor = model(input_ids=ids, **extra).logits
    return logits


def _linear(packed: Tensor, bias: Tensor | None, activation: Activation, hidden: Tensor) -> Tensor:
    """``hidden`` (..., in) times the weight, plus the bias, then the activation: (..., out)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        hidden, packed, bias, activation.name, [], activation.algorithm
    )
    return product
