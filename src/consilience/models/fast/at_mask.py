"""The head of a masked model at the mask only, and for the candidates only.

The head is nearly a quarter of what BERT-base computes at a token. The layers before it are
computed at every token, because attention mixes positions.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from consilience.models.fast.products import one_thread


@dataclass(frozen=True, slots=True)
class HeadRows:
    """What the head needs for some vocabulary entries: their ids, and weights in float32."""

    ids: torch.Tensor
    weight: torch.Tensor | None = None
    """(entry, width) None where the family's head is computed whole."""
    bias: torch.Tensor | None = None  # (entry,) None where the head has none


class AtMask:
    """A masked model at one position; ``is_reduced``: whether its head can be taken apart."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._head: Any = model.get_output_embeddings()
        self._thread = threading.local()
        self.is_reduced = isinstance(self._head, torch.nn.Linear)
        if self.is_reduced:
            self._whole = self._head.forward
            self._head.forward = self._at_mask
            with one_thread():  # distributing a few tokens takes longer than computing them
                self.is_reduced = self._is_same()

    def _at_mask(self, hidden: torch.Tensor) -> torch.Tensor:
        """The forward method of the output embedding, of (query, token, width)."""
        request = getattr(self._thread, "request", None)
        if request is None:
            whole: torch.Tensor = self._whole(hidden)
            return whole
        at, rows = request
        hidden = hidden[torch.arange(len(at), device=at.device), at][:, None]
        if rows is None:
            return self._whole(hidden)  # type: ignore[no-any-return]
        return torch.nn.functional.linear(hidden.float(), rows.weight, rows.bias)

    @torch.inference_mode()
    def head_rows(self, ids: torch.Tensor) -> HeadRows:
        """What the head needs for the vocabulary entries ``ids`` (entry,)."""
        ids = ids.to(self.model.device)
        if not self.is_reduced:
            return HeadRows(ids)
        bias = None if self._head.bias is None else self._head.bias[ids].float()
        return HeadRows(ids, self._head.weight[ids].float(), bias)

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        """Logits (query, entry) at ``at`` (query,) of ``ids`` (query, token); None: all entries."""
        self._thread.request = (at, rows) if self.is_reduced else None
        try:
            logits: torch.Tensor = self.model(input_ids=ids).logits
        finally:
            self._thread.request = None
        if self.is_reduced:
            return logits[:, 0]
        logits = logits[torch.arange(len(ids), device=ids.device), at]
        return logits if rows is None else logits[:, rows.ids]

    @torch.inference_mode()
    def _is_same(self) -> bool:
        size, device = self.model.config.vocab_size, self.model.device
        ids = (torch.arange(21, device=device).reshape(3, 7) * 31 + 5) % size
        at = torch.tensor([1, 5, 3], device=device)
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=device)
        plain = self.model(input_ids=ids).logits[torch.arange(3, device=device), at][:, some]
        try:
            reduced = self.logits(ids, at, self.head_rows(some)).float()
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
            return False
        scale = max(1.0, float(plain.abs().max()))
        tolerance = scale * (1e-4 if self.model.dtype == torch.float32 else 5e-2)
        return reduced.shape == plain.shape and bool(
            torch.allclose(reduced, plain.float(), atol=tolerance, rtol=0)
        )
