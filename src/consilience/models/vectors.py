"""Hidden states where the object is predicted (ParaRel, Section 7.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from consilience.core.errors import ConsilienceError
from consilience.models import LanguageModel
from consilience.models.forward import Ints
from consilience.models.scoring import StateReader, score_batches
from consilience.types import Query

Vectors = npt.NDArray[np.float32]


def vectors(
    model: LanguageModel,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Iterator[tuple[Ints, Vectors]]:
    """Hidden states where the object is predicted: rows (row,) and vectors (row, layer, width).

    Each query is in exactly one block, in any order; the vectors of one that the model cannot read
    are NaN. Layers are those of transformers' ``hidden_states``: 0 is the input of the first layer
    (the embeddings), 1 its output, -1 the last. The last one is the input of the language-model
    head: in families that end in a layer norm (GPT-2, Llama, T5, ModernBERT) after that norm,
    unlike any other layer.

    Masked models: at the mask; without ``special_tokens`` of the sentence without ``[CLS]`` and
    ``[SEP]``, as the released code encodes it (other kinds ignore the option). Causal models: at
    the last token before the object; where the object comes first that is the start token, whose
    vectors are the same for every subject. Sequence-to-sequence models: at the last token that the
    decoder is given before the object, the same at layer 0 for every query.
    """
    reader_of = getattr(model, "hidden_states", None)
    if reader_of is None:
        raise ConsilienceError(
            f"'{model.identity.get('model')}' has no hidden states to look at",
            expected="a masked, causal or sequence-to-sequence model",
        )
    reader: StateReader = reader_of(queries, special_tokens=special_tokens)
    return _read(reader, layers, _check_layers(layers, reader))


def vector_array(
    model: LanguageModel,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Vectors:
    """The ``vectors`` of all queries in one array (query, layer, width), in their order."""
    blocks = list(vectors(model, queries, layers, special_tokens=special_tokens))
    if not blocks:
        raise ConsilienceError("no queries", expected="one at least")
    unordered = np.concatenate([block for _, block in blocks])
    ordered = np.empty_like(unordered)
    ordered[np.concatenate([rows for rows, _ in blocks])] = unordered
    return ordered


@torch.inference_mode()
def _check_layers(layers: Sequence[int], reader: StateReader) -> int:
    """The width of the layers; an error if the model lacks one, or they differ in width."""
    ids = torch.tensor([[reader.shortest]], device=reader.family.model.device)
    widths = [state.shape[-1] for state in reader.states(ids)]
    last = len(widths) - 1
    for layer in layers:
        if not -last - 1 <= layer <= last:
            raise ConsilienceError(
                f"'{reader.family.identity['model']}' has no layer {layer}",
                expected=f"0 (the embeddings) to {last}, or -1 (the last) to {-last - 1}",
            )
    chosen = {widths[layer] for layer in layers}
    if len(chosen) != 1:
        raise ConsilienceError(
            f"layers of {len(chosen)} widths: {list(layers)}",
            expected="one layer at least, all of the same width",
        )
    return int(chosen.pop())


def _read(reader: StateReader, layers: Sequence[int], width: int) -> Iterator[tuple[Ints, Vectors]]:
    device = reader.family.model.device
    readable = [ids for ids in reader.inputs if reader.why_not(ids) is None]
    unread = [row for ids, rows in reader.inputs.items() if reader.why_not(ids) for row in rows]

    @torch.inference_mode()
    def read_batch(batch: Ints) -> Vectors:
        ids = torch.tensor([readable[at] for at in batch], device=device)
        states = reader.states(ids)
        return torch.stack([states[layer] for layer in layers], dim=1).float().cpu().numpy()

    if unread:
        yield np.array(unread), np.full((len(unread), len(layers), width), np.nan, np.float32)
    lengths = [len(ids) for ids in readable]
    for batch, states in score_batches(read_batch, lengths, reader.family.budget, device):
        rows = [reader.inputs[readable[at]] for at in batch]
        yield np.concatenate(rows), np.repeat(states, [len(queries) for queries in rows], axis=0)
