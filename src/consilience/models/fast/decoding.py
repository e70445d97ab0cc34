"""A tree of candidates in the decoder of a sequence-to-sequence model.

An input is encoded once. The decoder reads each beginning that candidates share once an input,
level by level, from transformers' own cache.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from transformers import EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput

from consilience.core.errors import ConsilienceError
from consilience.models.batches import ACTIVATIONS, Budget, in_parts
from consilience.models.fast.search import Mask, PartialScores, search
from consilience.models.fast.tree import Tree
from consilience.models.forward import Floats, Ints


class Decoding:
    """Log-probabilities of candidates after some inputs of one length.

    ``read_nodes`` counts the tokens that the decoder read after the prefix, with its last one.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        tree: Tree,
        budget: Budget,
        inputs: list[list[int]],
        prefix: list[int],
    ) -> None:
        """``prefix``: the tokens before a candidate; the last one is the root of ``tree``."""
        self.tree = tree
        self.steps = np.full((len(inputs), len(tree.ids)), np.nan)
        """(query, node) Log-probability of the node's token; NaN until its parent is read."""
        self.steps[:, 0] = 0.0
        self.read_nodes = len(inputs)
        self._partial = PartialScores(tree, self.steps, len(inputs))
        self._model = model
        self._budget = budget
        # Nodes whose cache is needed later: those with a child that has children.
        self._is_needed = np.zeros(len(tree.ids), dtype=np.bool_)
        self._is_needed[tree.parents[tree.inner[1:]]] = True
        output = model(
            input_ids=torch.tensor(inputs, device=model.device),
            decoder_input_ids=torch.tensor([prefix] * len(inputs), device=model.device),
            use_cache=True,
        )
        self._encoded: torch.Tensor = output.encoder_last_hidden_state
        self._cross: Cache = output.past_key_values.cross_attention_cache
        self._row_tokens = 1 + _row_size(self._cross) // (ACTIVATIONS * self._encoded.shape[-1])
        # At each depth the self-attention cache of the rows that were read, and the row of each
        # query and node in it.
        self._caches: list[list[Cache]] = [[] for _ in range(int(tree.lengths.max()) + 1)]
        self._caches[0].append(output.past_key_values.self_attention_cache)
        self._row = np.full(self.steps.shape, -1)
        self._row[:, 0] = queries = np.arange(len(inputs))
        self._is_read = self._row >= 0
        self._score_children(queries, np.zeros_like(queries), output.logits[:, -1])

    def totals(self) -> Floats:
        """Log-probability (query, candidate); NaN for candidates that are not read to their end."""
        self._partial.advance()
        return self._partial.totals()

    def read_all(self) -> None:
        """Read every node that has children."""
        for depth in range(1, len(self._caches)):
            self._read_level(depth, np.ones(self.steps.shape, dtype=np.bool_))

    def read_best(self, wanted: Mask, slack: float) -> None:
        """Read ``wanted`` (query, node) and all that may come within ``slack`` nats of the best.

        First, each query follows its most probable token at every level, for a bound. Then, level
        by level, everything is read that is no less probable than the best whole candidate.
        """
        self._follow_most_probable(wanted)

        def read_lowest_level(live: Mask) -> None:
            nodes = self._partial.next_nodes(live)
            depth = int(self.tree.depths[nodes.any(axis=0)].min())
            self._read_level(depth, nodes)

        search(self._partial, slack, read_lowest_level)

    def _follow_most_probable(self, wanted: Mask) -> None:
        queries = np.arange(len(wanted))
        lead = np.zeros_like(queries)
        for depth in range(1, len(self._caches)):
            self._partial.advance()
            follows = np.tile(self.tree.lengths >= depth, (len(wanted), 1))
            if depth > 1:
                follows &= self.tree.nodes[:, depth - 2] == lead[:, None]
            best = np.where(follows, self._partial.bounds(), -np.inf).argmax(axis=1)
            lead = np.where(follows.any(axis=1), self.tree.nodes[best, depth - 1], lead)
            level = wanted.copy()
            level[queries, lead] = True
            self._read_level(depth, level)

    def _read_level(self, depth: int, wanted: Mask) -> None:
        """Read the ``wanted`` nodes of a depth that have children and are not read yet."""
        at_depth = (self.tree.depths == depth) & self.tree.has_children
        queries, nodes = np.nonzero(wanted & at_depth & ~self._is_read)
        if not queries.size:
            return
        above = self._caches[depth - 1] = [_joined(self._caches[depth - 1])]

        def read(part: Ints) -> None:
            self._pass(depth, queries[part], nodes[part], above[0])

        in_parts(read, np.arange(len(queries)), self._row_tokens, self._budget)

    @torch.inference_mode()
    def _pass(self, depth: int, queries: Ints, nodes: Ints, above: Cache) -> None:
        """Let the decoder read one token in each row, after the caches of the parents."""
        device = self._model.device
        inputs = torch.from_numpy(queries).to(device)
        parents = torch.from_numpy(self._row[queries, self.tree.parents[nodes]]).to(device)
        cache = EncoderDecoderCache(_rows(above, parents), _rows(self._cross, inputs))
        output = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._encoded[inputs]),
            decoder_input_ids=torch.from_numpy(self.tree.ids[nodes])[:, None].to(device),
            past_key_values=cache,
            use_cache=True,
        )
        self._score_children(queries, nodes, output.logits[:, -1])
        needed = np.flatnonzero(self._is_needed[nodes])
        if needed.size:
            chosen = _rows(cache.self_attention_cache, torch.from_numpy(needed).to(device))
            stored = int((self._row[:, self.tree.depths == depth] >= 0).sum())
            self._row[queries[needed], nodes[needed]] = stored + np.arange(len(needed))
            self._caches[depth].append(chosen)
        self._is_read[queries, nodes] = True
        self.read_nodes += len(nodes)

    def _score_children(self, queries: Ints, nodes: Ints, logits: torch.Tensor) -> None:
        """Steps of the children of ``nodes``, each for its query, from ``logits`` (row, entry)."""
        row, children, steps = self.tree.child_steps(nodes, logits)
        if np.isnan(steps).any():
            raise ConsilienceError(
                f"the model's logits are not numbers in {self._model.dtype}",
                expected="a dtype that holds what the model computes",
                todo="Use --dtype float32, or bfloat16: T5 was trained in it.",
            )
        self.steps[queries[row], children] = steps


def _rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """A cache of some rows of another, which stays as it is."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen


def _row_size(cache: Cache) -> int:
    """Numbers in one row of a cache."""
    layers: list[Any] = list(cache.layers)
    return sum(layer.keys[0].numel() + layer.values[0].numel() for layer in layers)


def _joined(caches: list[Cache]) -> Cache:
    """One cache of the rows of several."""
    if len(caches) == 1:
        return caches[0]
    whole = copy.copy(caches[0])
    parts: list[list[Any]] = [list(cache.layers) for cache in caches]
    whole.layers = [copy.copy(layer) for layer in parts[0]]
    layer: Any
    for layer, same in zip(whole.layers, zip(*parts, strict=True), strict=True):
        layer.keys = torch.cat([part.keys for part in same])
        layer.values = torch.cat([part.values for part in same])
    return whole
