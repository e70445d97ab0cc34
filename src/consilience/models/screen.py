"""`--fast`: most queries are answered in bfloat16, and exactly those that it leaves in doubt.

The linear layers of a model multiply in bfloat16 where the device is faster at that; everything
between them stays in single precision. How far that moves a candidate against the one that seems
best is measured on a sample of the very queries that are asked, and a query whose two best
candidates are nearer than twice the most that was seen is asked again in full precision.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from consilience.errors import ConsilienceError
from consilience.models.batches import one_thread

SAMPLE = 128
"""Queries of each relation that are asked in both precisions."""

SAFETY = 2.0
"""How many times the largest error that was seen the bound is."""

WORTH = 1.2
"""How many times faster bfloat16 must be."""

TOKENS = 512
"""Tokens of the product that is timed."""


class Screen:
    """Cheap products of a model, beside its own. Make it, pack the model, then ``attach``.

    ``bound`` is in nats; it grows as errors are seen. ``asked`` and ``settled`` count queries.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.bound = 0.0
        self.asked = self.settled = 0
        self._cheap = threading.local()
        self._device = model.device
        self._on_cpu = model.device.type == "cpu"
        head = model.get_output_embeddings()
        self._products = {
            module: self._in_half(module)
            for module in model.modules()
            if type(module) is torch.nn.Linear and module is not head
        }

    def attach(self) -> None:
        """Let every layer choose its product by what its thread does; refuse if not worth it."""
        for module, cheap in self._products.items():
            exact = module.forward

            def forward(
                hidden: torch.Tensor,
                exact: Callable[[torch.Tensor], torch.Tensor] = exact,
                cheap: Callable[[torch.Tensor], torch.Tensor] = cheap,
            ) -> torch.Tensor:
                return (cheap if getattr(self._cheap, "on", False) else exact)(hidden)

            module.forward = forward  # type: ignore[method-assign,assignment]
        faster = self._how_much_faster()
        if faster < WORTH:
            raise ConsilienceError(
                f"--fast: bfloat16 is {faster:.1f} times as fast as float32 here",
                expected=f"{WORTH} times, as on a GPU or a processor with AVX-512 BF16 or AMX",
                todo="Leave --fast out: the answers are the same.",
            )

    @contextmanager
    def cheap(self) -> Iterator[None]:
        """Inside, this thread's products are in bfloat16."""
        self._cheap.on = True
        try:
            yield
        finally:
            self._cheap.on = False

    def learn(self, exact: npt.NDArray[np.float64], cheap: npt.NDArray[np.float64]) -> None:
        """Widen the bound by what a sample shows, both (query, candidate)."""
        queries = np.arange(len(cheap))
        best = cheap.argmax(axis=1)
        moved = (exact - exact[queries, best][:, None]) - (cheap - cheap[queries, best][:, None])
        self.bound = max(self.bound, SAFETY * float(moved.max(initial=0.0)))

    @property
    def note(self) -> str:
        """What a reader of the run should know."""
        return (
            f"--fast: screened in bfloat16; {self.settled:,} of {self.asked:,} queries, whose best "
            f"two candidates were within {self.bound:.3f} nats ({SAFETY:.0f} times the largest "
            "error in samples of every relation), were settled in float32; log-probabilities of "
            "candidates are not kept"
        )

    def _in_half(self, module: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        weight = module.weight.detach().bfloat16()
        bias = None if module.bias is None else module.bias.detach().bfloat16()
        if self._on_cpu and torch.backends.mkldnn.is_available():
            packed = torch.ops.mkldnn._reorder_linear_weight(weight)

            def by_onednn(hidden: torch.Tensor) -> torch.Tensor:
                product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                    hidden.bfloat16(), packed, bias, "none", [], ""
                )
                return product.float()

            return by_onednn
        return lambda hidden: torch.nn.functional.linear(hidden.bfloat16(), weight, bias).float()

    @torch.inference_mode()
    def _how_much_faster(self) -> float:
        """Time of the largest layer's product in full precision over that in bfloat16."""
        module = max(self._products, key=lambda each: each.in_features * each.out_features)
        hidden = torch.randn(TOKENS, module.in_features, device=self._device)

        def seconds() -> float:
            module(hidden)
            found = []
            for _ in range(5):
                start = time.perf_counter()
                module(hidden)
                if not self._on_cpu:
                    torch.cuda.synchronize(self._device)
                found.append(time.perf_counter() - start)
            return min(found)

        with one_thread():
            exact = seconds()
            with self.cheap():
                return exact / seconds()
