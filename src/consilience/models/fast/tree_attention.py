"""Attention for trees of tokens: a causal model reads many sentences as one row.

Every token has the position that it has in its sentence and attends to its own beginning only. An
attention function registered with transformers sees to that; everything else is the model's own
code. Keys and values of tokens are stored, so a tree can be read in parts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from consilience.core.items import Ints

ATTENTION = "consilience_tree"  # The name of the attention function in transformers
BLOCK = 64  # Neighbouring tokens that gather their keys together; in a tree they share most of them


@dataclass(slots=True)
class _Pass:
    """One row of tokens on its way through the model."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    """Stored keys and values (slot, key head, width), by layer."""
    capacity: int  # Slots to allocate at once, at least
    new: slice  # The slots of this row's keys and values
    queries: torch.Tensor  # (block, query) Positions in the row
    keys: torch.Tensor  # (block, key) Slots
    visible: torch.Tensor  # (block, 1, query, key) Whether a query attends to a key
    tokens: int  # Tokens in the row
    deepest: int  # The largest position in a sentence


_current = threading.local()  # ``row``: the ``_Pass`` that this thread computes, if any


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of a row of tree nodes; for any other input that of transformers.

    ``query`` (1, head, token, width), ``key`` and ``value`` (1, key head, token, width); returns
    (1, token, head, width).
    """
    row: _Pass | None = getattr(_current, "row", None)
    if row is None:
        usual: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )
        return usual
    window = kwargs.get("sliding_window")
    special = [
        name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None
    ]
    if special or (window is not None and window <= row.deepest):
        raise NotImplementedError(f"attention with {special or 'a sliding window'}")
    stored = _store(row, module.layer_idx, key[0].transpose(0, 1), value[0].transpose(0, 1))
    groups = query.shape[1] // key.shape[1]
    queries = query[0].transpose(0, 1)[row.queries].transpose(1, 2)
    keys, values = (
        tensor.index_select(0, row.keys.flatten()).unflatten(0, row.keys.shape).transpose(1, 2)
        for tensor in stored
    )
    if row.queries.shape[1] == 1:  # the heads of one key head become several queries
        queries = queries.reshape(len(keys), key.shape[1], groups, -1)
    else:
        keys, values = (tensor.repeat_interleave(groups, dim=1) for tensor in (keys, values))
    attended = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=row.visible, scale=kwargs.get("scaling")
    )
    attended = attended.reshape(len(keys), query.shape[1], row.queries.shape[1], -1)
    return attended.transpose(1, 2).flatten(0, 1)[None, : row.tokens], None


def _store(
    row: _Pass, layer: int, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Store ``key`` and ``value`` (token, key head, width); all that is stored of the layer."""
    while len(row.layers) <= layer:
        row.layers.append((key[:0], value[:0]))
    capacity = len(row.layers[layer][0])
    if capacity < row.new.stop:
        more = max(row.new.stop, 2 * capacity, row.capacity) - capacity
        row.layers[layer] = tuple(  # type: ignore[assignment]
            torch.cat([old, new.new_empty((more, *new.shape[1:]))])
            for old, new in zip(row.layers[layer], (key, value), strict=True)
        )
    for old, new in zip(row.layers[layer], (key, value), strict=True):
        old[row.new] = new
    return row.layers[layer]


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    """No mask for a row of tree nodes; any other input has that of transformers."""
    if getattr(_current, "row", None) is not None:
        return None
    mask: torch.Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, _mask)


class KeyValueStore:
    """Keys and values of the tokens that a model has read, one slot a token."""

    def __init__(self, model: PreTrainedModel, capacity: int = 0) -> None:
        """``capacity``: slots that will be needed, as far as is known."""
        self.used = 0  # Slots in use. A smaller value forgets what was read last.
        self._model, self._capacity = model, capacity
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def read(self, ids: Ints, depths: Ints, visible: Ints, block: int = BLOCK) -> torch.Tensor:
        """Read tokens in one row, into the next slots; their last hidden states (token, width).

        ``ids``, ``depths`` (token,). ``visible`` (token, position): the slots that each token
        attends to, its own included; -1 for none. ``block``: neighbours that gather keys together.
        """
        device, new = self._model.device, slice(self.used, self.used + len(ids))
        queries, keys, mask = _blocks(visible, block)
        _current.row = _Pass(
            self._layers,
            self._capacity,
            new,
            torch.from_numpy(queries).to(device),
            torch.from_numpy(keys).to(device),
            torch.from_numpy(mask)[:, None].to(device),
            len(ids),
            int(depths.max()),
        )
        try:
            hidden: torch.Tensor = self._model.base_model(
                input_ids=torch.from_numpy(ids)[None].to(device),
                position_ids=torch.from_numpy(depths)[None].to(device),
                use_cache=False,
            )[0][0]
        finally:
            _current.row = None
        self.used = new.stop
        return hidden

    @torch.inference_mode()
    def keep_only(self, slots: Ints) -> None:
        """Forget everything but these slots, which become the first."""
        chosen = torch.from_numpy(slots).to(self._model.device)
        for tensor in (tensor for pair in self._layers for tensor in pair):
            tensor[: len(slots)] = tensor[chosen]
        self.used = len(slots)


def _blocks(visible: Ints, size: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Blocks of ``size`` tokens: (block, query) tokens, (block, key) slots, and who sees what.

    ``visible`` (token, position): the slots that each token attends to, -1 for none.
    """
    count = -(-len(visible) // size)
    queries = np.zeros((count, size), dtype=np.int64)
    queries.ravel()[: len(visible)] = np.arange(len(visible))
    parts = [visible[start : start + size] for start in range(0, len(visible), size)]
    slots = [np.unique(part[part >= 0]) for part in parts]
    keys = np.zeros((count, max(map(len, slots))), dtype=np.int64)
    mask = np.zeros((count, size, keys.shape[1]), dtype=np.bool_)
    mask[:, :, 0] = True  # the empty rows of the last block
    for block, (block_slots, part) in enumerate(zip(slots, parts, strict=True)):
        keys[block, : len(block_slots)] = block_slots
        row, column = np.nonzero(part >= 0)
        mask[block, : len(part), 0] = False
        mask[block, row, np.searchsorted(block_slots, part[row, column])] = True
    return queries, keys, mask
