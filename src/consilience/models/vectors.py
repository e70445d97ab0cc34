"""What a model holds where it is to answer: hidden states at the object (ParaRel, Section 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from consilience.errors import ConsilienceError
from consilience.models import LanguageModel
from consilience.models.batches import equal_length_batches, halving, side_by_side
from consilience.models.candidates import encode
from consilience.models.causal import CausalModel
from consilience.models.masked import MaskedModel
from consilience.models.pieces import PiecewiseModel
from consilience.models.seq2seq import Seq2SeqModel
from consilience.types import Query

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Inputs = dict[tuple[int, ...], list[int]]
"""Sequences of tokens, and of each the rows of the queries that have the model read it."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """How a kind of model reads queries.

    ``states``: of sequences (batch, token), after each layer, the hidden state where the object is
    predicted (batch, width). ``why_not``: why it cannot read one. ``shortest``: one that it can.
    """

    model: MaskedModel | CausalModel | Seq2SeqModel
    inputs: Inputs
    states: Callable[[torch.Tensor], list[torch.Tensor]]
    why_not: Callable[[Sequence[int]], str | None]
    shortest: int


def vectors(
    model: LanguageModel,
    queries: Sequence[Query],
    layers: Sequence[int],
    *,
    special_tokens: bool = True,
) -> Iterator[tuple[Rows, Vectors]]:
    """Hidden states where the object is predicted: rows (row,) and vectors (row, layer, width).

    Each query comes in exactly one block, in any order; the vectors of one that the model cannot
    read are NaN. Layer 0 is what goes into the first layer (the embeddings), 1 what comes out of
    it, -1 the last: ``hidden_states`` of transformers. The last one is what goes into the
    language-model head: of families that end in a layer norm (GPT-2, Llama, T5, ModernBERT) behind
    that norm, as no other layer is.

    Masked models: at the mask; without ``special_tokens`` of the sentence without ``[CLS]`` and
    ``[SEP]``, as the released code encodes it (other kinds do not look at that). Causal models: at
    the last token of the text before the object; where the object stands first that is the start
    token, whose vectors are the same for every subject. Sequence-to-sequence models: at the last
    token that the decoder is given before the object, the same at layer 0 for every query.
    """
    reader = _reader(model, queries, special_tokens)
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
    found = np.concatenate([block for _, block in blocks])
    ordered = np.empty_like(found)
    ordered[np.concatenate([rows for rows, _ in blocks])] = found
    return ordered


def _reader(model: LanguageModel, queries: Sequence[Query], special_tokens: bool) -> _Reader:
    if isinstance(model, PiecewiseModel):
        model = model.masked
    if isinstance(model, MaskedModel):
        return _masked(model, queries, special_tokens)
    if isinstance(model, CausalModel):
        return _causal(model, queries)
    if isinstance(model, Seq2SeqModel):
        return _seq2seq(model, queries)
    raise ConsilienceError(
        f"'{model.identity.get('model')}' has no hidden states to look at",
        expected="a masked, causal or sequence-to-sequence model",
    )


def _masked(model: MaskedModel, queries: Sequence[Query], special_tokens: bool) -> _Reader:
    base, mask = model.model.base_model, model.tokenizer.mask_token_id
    contexts = [query.pattern.around_object(query.subject) for query in queries]
    texts = [left + str(model.tokenizer.mask_token) + right for left, right in contexts]

    def states(ids: torch.Tensor) -> list[torch.Tensor]:
        hidden = base(input_ids=ids, output_hidden_states=True).hidden_states
        rows, at = torch.arange(len(ids), device=ids.device), (ids == mask).int().argmax(dim=1)
        return [each[rows, at] for each in hidden]

    inputs = _inputs(encode(model.tokenizer, texts, special=special_tokens))
    return _Reader(model, inputs, states, lambda ids: model._why_not(list(ids)), mask)


def _causal(model: CausalModel, queries: Sequence[Query]) -> _Reader:
    base = model.model.base_model
    lefts = [query.pattern.around_object(query.subject)[0].rstrip() for query in queries]

    def states(ids: torch.Tensor) -> list[torch.Tensor]:
        hidden = base(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
        return [each[:, -1] for each in hidden]

    inputs = _inputs([model.start, *ids] for ids in encode(model.tokenizer, lefts))
    return _Reader(model, inputs, states, lambda ids: model._why_not(len(ids)), model.start)


def _seq2seq(model: Seq2SeqModel, queries: Sequence[Query]) -> _Reader:
    def states(ids: torch.Tensor) -> list[torch.Tensor]:
        prefix = torch.tensor([model.prefix] * len(ids), device=ids.device)
        output = model.model(input_ids=ids, decoder_input_ids=prefix, output_hidden_states=True)
        return [each[:, -1] for each in output.decoder_hidden_states]

    return _Reader(model, model._inputs(queries), states, model._why_not, model.close)


def _inputs(sequences: Iterable[Sequence[int]]) -> Inputs:
    rows_of: Inputs = {}
    for row, ids in enumerate(sequences):
        rows_of.setdefault(tuple(ids), []).append(row)
    return rows_of


@torch.inference_mode()
def _check_layers(layers: Sequence[int], reader: _Reader) -> int:
    """The width of the layers, where the model has them all."""
    ids = torch.tensor([[reader.shortest]], device=reader.model.model.device)
    widths = [each.shape[-1] for each in reader.states(ids)]
    last = len(widths) - 1
    for layer in layers:
        if not -last - 1 <= layer <= last:
            raise ConsilienceError(
                f"'{reader.model.identity['model']}' has no layer {layer}",
                expected=f"0 (the embeddings) to {last}, or -1 (the last) to {-last - 1}",
            )
    chosen = {widths[layer] for layer in layers}
    if len(chosen) != 1:
        raise ConsilienceError(
            f"layers of {len(chosen)} widths: {list(layers)}",
            expected="one layer at least, all of the same width",
        )
    return int(chosen.pop())


def _read(reader: _Reader, layers: Sequence[int], width: int) -> Iterator[tuple[Rows, Vectors]]:
    model = reader.model
    readable = [ids for ids in reader.inputs if reader.why_not(ids) is None]
    unread = [row for ids, rows in reader.inputs.items() if reader.why_not(ids) for row in rows]

    @torch.inference_mode()
    def read(batch: Rows) -> Vectors:
        ids = torch.tensor([readable[each] for each in batch], device=model.model.device)
        states = reader.states(ids)
        return torch.stack([states[layer] for layer in layers], dim=1).float().cpu().numpy()

    def work(batch: Rows) -> Vectors:
        return np.concatenate(halving(read, batch, len(readable[batch[0]]), model.budget))

    if unread:
        yield np.array(unread), np.full((len(unread), len(layers), width), np.nan, np.float32)
    batches = equal_length_batches([len(ids) for ids in readable], model.budget)
    for batch, found in side_by_side(work, batches, model.model.device):
        rows = [reader.inputs[readable[each]] for each in batch]
        yield np.concatenate(rows), np.repeat(found, [len(each) for each in rows], axis=0)
