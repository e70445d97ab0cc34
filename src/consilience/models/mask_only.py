"""Computes a masked model's last layer and head where the mask stands only, in any family.

Nothing after the last attention mixes positions, so only the mask's position need go on from there,
and of the head's rows only those of the candidates. How each family computes is left to
transformers: its own last layer is called twice. The first call stops when the attention is done;
the second is given the mask's position only, and that attention's result there.
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
    """Some vocabulary entries ``ids`` (entry,), and what the head needs for them.

    ``weight`` (entry, width) and ``bias`` (entry,) in single precision; None where the family's
    head cannot be taken apart.
    """

    ids: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None


@dataclass(slots=True)
class _Ask:
    """What the forward pass of one thread is asked for.

    ``queries``, ``at`` (query,): where the masks stand. ``rows``: for which entries; None for all.
    ``visits``: how often the last layer is still to be passed over.
    """

    queries: torch.Tensor
    at: torch.Tensor
    rows: HeadRows | None
    visits: int
    stage: str = "all"
    attention: Any = None


class _AttentionIsDone(Exception):  # noqa: N818 - a signal, not an error
    pass


class MaskOnly:
    """A masked model that is asked at one position a query.

    ``cut`` says what is saved: the last layer and the head, the head only, or nothing.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.cut = "head"
        self._now = threading.local()
        self._visits = 0
        with one_thread():  # a few tokens: to share them out takes longer than to compute them
            self.cut = "head" if self._replace_head() and self._fits() else "nothing"
            if self.cut == "head" and self._replace_last_layer():
                if self._fits():
                    self.cut = "last layer and head"
                else:
                    self._visits = 0

    @torch.inference_mode()
    def head_rows(self, ids: torch.Tensor) -> HeadRows:
        """Of the head what the vocabulary entries ``ids`` (entry,) need."""
        ids = ids.to(self.model.device)
        head = self.model.get_output_embeddings()
        if self.cut == "nothing":
            return HeadRows(ids, None, None)
        bias = None if head.bias is None else head.bias[ids].float()
        return HeadRows(ids, head.weight[ids].float(), bias)

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        """Logits (query, entry) at the positions ``at`` (query,) of ``ids`` (query, token).

        ``rows`` names the vocabulary entries; None gives the whole vocabulary.
        """
        if self.cut == "nothing":
            return self._plain(ids, at, rows)
        return self._cut(ids, at, rows)

    def _plain(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids).logits
        logits = logits[torch.arange(len(ids), device=ids.device), at]
        return logits if rows is None else logits[:, rows.ids]

    def _cut(self, ids: torch.Tensor, at: torch.Tensor, rows: HeadRows | None) -> torch.Tensor:
        queries = torch.arange(len(ids), device=ids.device)
        self._now.ask = _Ask(queries, at, rows, self._visits)
        try:
            logits: torch.Tensor = self.model(input_ids=ids).logits
        finally:
            self._now.ask = None
        return logits[:, 0]

    @torch.inference_mode()
    def _fits(self) -> bool:
        """Whether three rows of tokens get the logits that they get without any cut."""
        size, device = self.model.config.vocab_size, self.model.device
        ids = (torch.arange(21, device=device).reshape(3, 7) * 31 + 5) % size
        at = torch.tensor([1, 5, 3], device=device)
        some = torch.tensor([size // 2, 1, size - 1, 7 % size], device=device)
        plain = self._plain(ids, at, HeadRows(some, None, None)).float()
        try:
            cut = self._cut(ids, at, self.head_rows(some)).float()
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
            return False
        scale = max(1.0, float(plain.abs().max()))
        tolerance = scale * (1e-4 if self.model.dtype == torch.float32 else 5e-2)
        return cut.shape == plain.shape and bool(torch.allclose(cut, plain, atol=tolerance, rtol=0))

    def _replace_head(self) -> bool:
        """Let the output embedding see the mask's position, and compute the candidates' rows."""
        head = self.model.get_output_embeddings()
        if not isinstance(head, torch.nn.Linear):
            return False
        whole = head.forward

        def forward(hidden: torch.Tensor) -> torch.Tensor:
            ask: _Ask | None = getattr(self._now, "ask", None)
            if ask is None:
                return whole(hidden)
            if hidden.shape[1] > 1:
                hidden = _at_mask(hidden, ask)
            if ask.rows is None or ask.rows.weight is None:
                return whole(hidden)
            return torch.nn.functional.linear(hidden.float(), ask.rows.weight, ask.rows.bias)

        head.forward = forward  # type: ignore[method-assign,assignment]
        return True

    def _replace_last_layer(self) -> bool:
        """Find the last layer and its attention; False where the family has none such."""
        found = self._last_attention()
        if found is None:
            return False
        layer, attention, self._visits = found
        layer_forward, attention_forward = layer.forward, attention.forward

        def forward_attention(*args: Any, **kwargs: Any) -> Any:
            ask: _Ask | None = getattr(self._now, "ask", None)
            if ask is None or ask.stage == "all":
                return attention_forward(*args, **kwargs)
            if ask.stage == "mask":
                return ask.attention
            ask.attention = _at_mask(attention_forward(*args, **kwargs), ask)
            raise _AttentionIsDone

        def forward_layer(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            ask: _Ask | None = getattr(self._now, "ask", None)
            if ask is None or self._visits == 0:
                return layer_forward(hidden, *args, **kwargs)
            ask.visits -= 1
            if ask.visits:
                return layer_forward(hidden, *args, **kwargs)
            ask.stage = "attention"
            try:
                layer_forward(hidden, *args, **kwargs)
            except _AttentionIsDone:
                ask.stage = "mask"
                return layer_forward(_at_mask(hidden, ask), *args, **kwargs)
            raise RuntimeError("the last layer did not call its attention")

        layer.forward, attention.forward = forward_layer, forward_attention
        return True

    @torch.inference_mode()
    def _last_attention(self) -> tuple[torch.nn.Module, torch.nn.Module, int] | None:
        """The last layer, its innermost attention, and how often that layer is passed.

        A layer is the innermost module of a list of modules that holds an attention; ALBERT's
        only layer is passed again and again.
        """
        modules = dict(self.model.named_modules())
        attentions = [name for name, each in modules.items() if _is_attention(each)]
        inner = [
            name
            for name in attentions
            if not any(other.startswith(name + ".") for other in attentions)
        ]
        called: list[str] = []
        handles = [
            modules[name].register_forward_hook(lambda *_, name=name: called.append(name))
            for name in inner
        ]
        try:
            self.model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=self.model.device))
        finally:
            for handle in handles:
                handle.remove()
        if not called:
            return None
        name = called[-1]
        while name and not isinstance(modules[name.rpartition(".")[0]], torch.nn.ModuleList):
            name = name.rpartition(".")[0]
        return (modules[name], modules[called[-1]], called.count(called[-1])) if name else None


def _is_attention(module: torch.nn.Module) -> bool:
    return "Attention" in type(module).__name__


def _at_mask(value: Any, ask: _Ask) -> Any:
    """Of hidden states (query, token, width) the mask's (query, 1, width); also in a tuple."""
    if isinstance(value, tuple):
        return (_at_mask(value[0], ask), *value[1:])
    return value[ask.queries, ask.at][:, None]
