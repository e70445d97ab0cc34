"""Computes a masked model's last layer and head at the mask only, in any family.

Nothing after the last attention mixes positions, so only the mask's position needs to be computed
from there on, and of the head only the rows of the candidates. The family's own last layer is
called twice: the first call stops when the attention is done; the second is given the mask's
position only, and the attention's result there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from consilience.models.batches import one_thread


@dataclass(frozen=True, slots=True)
class HeadRows:
    """What the head needs for some vocabulary entries."""

    ids: torch.Tensor
    """(entry,) The entries."""
    weight: torch.Tensor | None
    """(entry, width) In single precision; None where the family's head cannot be taken apart."""
    bias: torch.Tensor | None
    """(entry,) In single precision; None where the head has none."""


@dataclass(slots=True)
class _Request:
    """What the forward pass of one thread shall compute."""

    queries: torch.Tensor
    """(query,) Their numbers."""
    at: torch.Tensor
    """(query,) Positions of the masks."""
    rows: HeadRows | None
    """The entries; None for all."""
    visits: int
    """How often the last layer is still to be called as usual, plus one."""
    stage: str = "all"
    """``attention`` in the first call of the last layer, ``mask`` in the second."""
    attention: Any = None
    """The attention's result at the masks."""


class _AttentionIsDone(Exception):  # noqa: N818 - a signal, not an error
    pass


class AtMask:
    """A masked model that is evaluated at one position of each query.

    ``saved`` says what is saved: the last layer and the head, the head only, or nothing.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.saved = "head"
        self._thread = threading.local()
        self._visits = 0
        with one_thread():  # distributing a few tokens takes longer than computing them
            self.saved = "head" if self._replace_head() and self._is_same() else "nothing"
            if self.saved == "head" and self._replace_last_layer():
                if self._is_same():
                    self.saved = "last layer and head"
                else:
                    self._visits = 0

    @torch.inference_mode()
    def head_rows(self, ids: torch.Tensor) -> HeadRows:
        """What the head needs for the vocabulary entries ``ids`` (entry,)."""
        ids = ids.to(self.model.device)
        head = self.model.get_output_embeddings()
        if self.saved == "nothing":
            return HeadRows(ids, None, None)
        bias = None if head.bias is None else head.bias[ids].float()
        return HeadRows(ids, head.weight[ids].float(), bias)

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        """Logits (query, entry) at the positions ``at`` (query,) of ``ids`` (query, token).

        ``rows`` names the vocabulary entries; None means the whole vocabulary.
        """
        if self.saved == "nothing":
            return self._plain(ids, at, rows)
        return self._reduced(ids, at, rows)

    def _plain(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids).logits
        logits = logits[torch.arange(len(ids), device=ids.device), at]
        return logits if rows is None else logits[:, rows.ids]

    def _reduced(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        queries = torch.arange(len(ids), device=ids.device)
        self._thread.request = _Request(queries, at, rows, self._visits)
        try:
            logits: torch.Tensor = self.model(input_ids=ids).logits
        finally:
            self._thread.request = None
        return logits[:, 0]

    @property
    def _request(self) -> _Request | None:
        return getattr(self._thread, "request", None)

    @torch.inference_mode()
    def _is_same(self) -> bool:
        """Whether three rows of tokens get the logits of the plain model."""
        size, device = self.model.config.vocab_size, self.model.device
        ids = (torch.arange(21, device=device).reshape(3, 7) * 31 + 5) % size
        at = torch.tensor([1, 5, 3], device=device)
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=device)
        plain = self._plain(ids, at, HeadRows(some, None, None)).float()
        try:
            reduced = self._reduced(ids, at, self.head_rows(some)).float()
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
            return False
        scale = max(1.0, float(plain.abs().max()))
        tolerance = scale * (1e-4 if self.model.dtype == torch.float32 else 5e-2)
        return reduced.shape == plain.shape and bool(
            torch.allclose(reduced, plain, atol=tolerance, rtol=0)
        )

    def _replace_head(self) -> bool:
        """Let the output embedding see the masks only, and compute the candidates' rows."""
        head = self.model.get_output_embeddings()
        if not isinstance(head, torch.nn.Linear):
            return False
        whole = head.forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:
            request = self._request
            if request is None:
                return whole(hidden)
            if hidden.shape[1] > 1:
                hidden = _at_mask(hidden, request)
            if request.rows is None or request.rows.weight is None:
                return whole(hidden)
            return torch.nn.functional.linear(
                hidden.float(), request.rows.weight, request.rows.bias
            )

        head.forward = forward  # type: ignore[method-assign,assignment]
        return True

    def _replace_last_layer(self) -> bool:
        """Replace the last layer and its attention; False where the family has none such."""
        last = self._last_attention()
        if last is None:
            return False
        layer, attention, self._visits = last
        layer_forward, attention_forward = layer.forward, attention.forward

        def forward_attention(*args: Any, **kwargs: Any) -> Any:
            request = self._request
            if request is None or request.stage == "all":
                return attention_forward(*args, **kwargs)
            if request.stage == "mask":
                return request.attention
            request.attention = _at_mask(attention_forward(*args, **kwargs), request)
            raise _AttentionIsDone

        def forward_layer(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            request = self._request
            if request is None or self._visits == 0:
                return layer_forward(hidden, *args, **kwargs)
            request.visits -= 1
            if request.visits:
                return layer_forward(hidden, *args, **kwargs)
            request.stage = "attention"
            try:
                layer_forward(hidden, *args, **kwargs)
            except _AttentionIsDone:
                request.stage = "mask"
                return layer_forward(_at_mask(hidden, request), *args, **kwargs)
            raise RuntimeError("the last layer did not call its attention")

        layer.forward, attention.forward = forward_layer, forward_attention
        return True

    @torch.inference_mode()
    def _last_attention(self) -> tuple[torch.nn.Module, torch.nn.Module, int] | None:
        """The last layer, its innermost attention, and how often that layer is called.

        A layer is the innermost module of a list of modules that holds an attention. ALBERT calls
        its only layer several times.
        """
        modules = dict(self.model.named_modules())
        names = [name for name, part in modules.items() if "Attention" in type(part).__name__]
        inner = [name for name in names if not any(other.startswith(name + ".") for other in names)]
        called: list[str] = []
        hooks = [
            modules[name].register_forward_hook(lambda *_, name=name: called.append(name))
            for name in inner
        ]
        try:
            self.model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=self.model.device))
        finally:
            for hook in hooks:
                hook.remove()
        if not called:
            return None
        name = called[-1]
        while name and not isinstance(modules[name.rpartition(".")[0]], torch.nn.ModuleList):
            name = name.rpartition(".")[0]
        return (modules[name], modules[called[-1]], called.count(called[-1])) if name else None


def _at_mask(value: Any, request: _Request) -> Any:
    """Hidden states (query, token, width) at the masks (query, 1, width); also in a tuple."""
    if isinstance(value, tuple):
        return (_at_mask(value[0], request), *value[1:])
    return value[request.queries, request.at][:, None]
