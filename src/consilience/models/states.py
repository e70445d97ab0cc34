"""Vectors of queries: a model's hidden states where it predicts the object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from consilience.core.errors import ConsilienceError
from consilience.core.items import Ints
from consilience.models import LanguageModel
from consilience.models.batches import score_batches
from consilience.types import Query

Vectors = npt.NDArray[np.float32]


def vector_array(
    model: LanguageModel,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Vectors:
    """Hidden states (query, layer, width) where the object is predicted; NaN where not readable.

    Layers are those of transformers' ``hidden_states``: 0 is the input of the first layer, 1 its
    output, -1 the last; families that end in a layer norm (GPT-2, Llama, T5) have that after it.
    Masked models: at the mask; without ``special_tokens`` of the sentence without ``[CLS]`` and
    ``[SEP]``, as the released code encodes it. Causal models: at the last token before the object,
    which may be the start token. Sequence-to-sequence models: at the last token that the decoder is
    given before the object.
    """
    family: Any = model
    if not hasattr(family, "hidden_states"):
        expected = "a masked, causal or sequence-to-sequence model"
        found = f"'{model.identity.get('model')}' has no hidden states to look at"
        raise ConsilienceError(found, expected=expected)
    device, inputs = family.model.device, family.inputs(queries, special=special_tokens)
    readable = [ids for ids in inputs if family.why_not(ids) is None]

    @torch.inference_mode()
    def states_of(rows: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        states: list[torch.Tensor] = family.hidden_states(torch.tensor(rows, device=device))
        return states

    def read_batch(batch: Ints) -> Vectors:
        states = states_of([readable[at] for at in batch])
        return torch.stack([states[layer] for layer in layers], dim=1).float().cpu().numpy()

    widths = [state.shape[-1] for state in states_of([[0]])]
    if absent := [layer for layer in layers if not -len(widths) <= layer < len(widths)]:
        raise ConsilienceError(
            f"'{model.identity['model']}' has no layer {absent[0]}",
            expected=f"0 (the embeddings) to {len(widths) - 1}, or -1 (the last) to {-len(widths)}",
        )
    vectors = np.full((len(queries), len(layers), widths[layers[0]]), np.nan, dtype=np.float32)
    lengths = [*map(len, readable)]
    for batch, states in score_batches(read_batch, lengths, family.budget, device):
        for at, of_sentence in zip(batch, states, strict=True):
            vectors[inputs[readable[at]]] = of_sentence
    return vectors
