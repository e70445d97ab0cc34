"""Sentences as one tree of tokens, read by a causal model so that every beginning is read once.

The tokens of many sentences go through the model as one row. Each has the position that it has in
its sentence and attends to its own beginning only, which an attention function of ours sees to;
everything else is the model's own code. Keys and values of tokens that later ones attend to are
kept, so a tree can be read in parts and as far as is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from consilience.models.batches import Budget, halving

Ints = npt.NDArray[np.int64]

ATTENTION = "consilience_tree"

BLOCK = 64
"""Tokens that look for what they attend to together; neighbours in a tree share most of it."""

HEAD_ROWS = 64
"""Tokens whose logits over the vocabulary are held at once."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Token sequences behind one root token; equal beginnings share their nodes.

    Nodes come depth first, so a parent stands before its children; node 0 is the root. ``ids``,
    ``parents``, ``depths`` (node,). ``nodes`` (sentence, token): the node of each token, 0 beyond
    the end. ``lengths`` (sentence,). ``children``: nodes but the root, by parent; those of node
    ``n`` are ``children[first_child[n] : first_child[n + 1]]``. ``holder`` (node,): a sentence
    that it is of.
    """

    ids: Ints
    parents: Ints
    depths: Ints
    nodes: Ints
    lengths: Ints
    children: Ints
    first_child: Ints
    holder: Ints

    @classmethod
    def of(cls, root: int, sentences: Sequence[Sequence[int]]) -> Tree:
        """The tree of sentences; the same one twice has the same nodes."""
        lengths = np.array([len(each) for each in sentences])
        tokens = np.full((len(sentences), int(lengths.max(initial=0))), -1)
        for at, sentence in enumerate(sentences):
            tokens[at, : len(sentence)] = sentence
        order = np.lexsort(tokens.T[::-1])
        in_order = tokens[order]
        same = np.logical_and.accumulate(in_order[1:] == in_order[:-1], axis=1)
        new = in_order >= 0
        new[1:] &= ~same
        row, column = np.nonzero(new)
        made = np.zeros(tokens.shape, dtype=np.int64)
        made[row, column] = np.arange(1, len(row) + 1)
        in_nodes = np.where(in_order >= 0, np.maximum.accumulate(made, axis=0), 0)
        parents = np.where(column > 0, in_nodes[row, column - 1], 0)
        nodes = np.empty_like(in_nodes)
        nodes[order] = in_nodes
        parents = np.concatenate([[-1], parents])
        children = 1 + np.argsort(parents[1:], kind="stable")
        return cls(
            np.concatenate([[root], in_order[row, column]]),
            parents,
            np.concatenate([[0], column + 1]),
            nodes,
            lengths,
            children,
            np.searchsorted(parents[children], np.arange(len(parents) + 1)),
            np.concatenate([order[:1], order[row]]),
        )

    @property
    def inner(self) -> Ints:
        """Nodes that something follows: all that a model need read, depth first."""
        return np.flatnonzero(np.diff(self.first_child))

    def paths(self, nodes: Ints) -> Ints:
        """The ancestors of nodes and themselves (node, depth), -1 beyond their own depth."""
        depths = self.depths[nodes]
        paths = np.zeros((len(nodes), int(depths.max()) + 1), dtype=np.int64)
        paths[:, 1:] = self.nodes[self.holder[nodes], : paths.shape[1] - 1]
        paths[np.arange(paths.shape[1]) > depths[:, None]] = -1
        return paths

    def path_sums(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Sum of ``steps`` (node,) over the tokens of each sentence (sentence,)."""
        own = np.where(np.arange(self.nodes.shape[1]) < self.lengths[:, None], steps[self.nodes], 0)
        total: npt.NDArray[np.float64] = own.sum(axis=1)
        return total


@dataclass(slots=True)
class _Pass:
    """One row of tokens on its way through the model.

    ``room``: places to make at once, at least. ``new``: where their keys and values are kept.
    ``queries`` (block, query): places in the row. ``keys`` (block, key): places in what is kept.
    ``visible`` (block, 1, query, key).
    """

    kept: list[tuple[torch.Tensor, torch.Tensor]]
    room: int
    new: slice
    queries: torch.Tensor
    keys: torch.Tensor
    visible: torch.Tensor
    tokens: int
    deepest: int


_now = threading.local()


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of a row of tree nodes; of anything else as transformers has it.

    ``query`` (1, head, token, width), ``key`` and ``value`` (1, key head, token, width); gives
    (1, token, head, width).
    """
    now: _Pass | None = getattr(_now, "reading", None)
    if now is None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )
        return found
    window = kwargs.get("sliding_window")
    special = [
        name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None
    ]
    if special or (window is not None and window <= now.deepest):
        raise NotImplementedError(f"attention with {special or 'a sliding window'}")
    kept = _keep(now, module.layer_idx, key[0].transpose(0, 1), value[0].transpose(0, 1))
    groups = query.shape[1] // key.shape[1]
    queries = query[0].transpose(0, 1)[now.queries].transpose(1, 2)
    keys, values = (
        each.index_select(0, now.keys.flatten()).unflatten(0, now.keys.shape).transpose(1, 2)
        for each in kept
    )
    if now.queries.shape[1] == 1:  # the heads of one key head take the place of several queries
        queries = queries.reshape(len(keys), key.shape[1], groups, -1)
    else:
        keys, values = (each.repeat_interleave(groups, dim=1) for each in (keys, values))
    attended = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=now.visible, scale=kwargs.get("scaling")
    )
    attended = attended.reshape(len(keys), query.shape[1], now.queries.shape[1], -1)
    return attended.transpose(1, 2).flatten(0, 1)[None, : now.tokens], None


def _keep(
    now: _Pass, layer: int, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep ``key`` and ``value`` (token, key head, width) of a layer; all that is kept of it."""
    while len(now.kept) <= layer:
        now.kept.append((key[:0], value[:0]))
    room = len(now.kept[layer][0])
    if room < now.new.stop:
        more = max(now.new.stop, 2 * room, now.room) - room
        now.kept[layer] = tuple(  # type: ignore[assignment]
            torch.cat([old, new.new_empty((more, *new.shape[1:]))])
            for old, new in zip(now.kept[layer], (key, value), strict=True)
        )
    for old, new in zip(now.kept[layer], (key, value), strict=True):
        old[now.new] = new
    return now.kept[layer]


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    """The mask of a row of tree nodes is ours; any other is as transformers has it."""
    if getattr(_now, "reading", None) is not None:
        return None
    mask: torch.Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, _mask)


class Kept:
    """Keys and values of tokens that a model has read, each at its place; more can be read.

    ``used``: places that are taken. To set it back forgets what was read last. ``room``: places
    that will be needed, as far as is known.
    """

    def __init__(self, model: PreTrainedModel, room: int = 0) -> None:
        self.used = 0
        self._model, self._room = model, room
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def read(self, ids: Ints, depths: Ints, places: Ints, together: int = BLOCK) -> torch.Tensor:
        """Let the model read tokens in one row; their last hidden states (token, width).

        They are kept at the next places. ``ids`` and ``depths`` (token,). ``places`` (token,
        position): where the tokens are that each attends to, itself among them, -1 for none.
        ``together``: so many neighbours look for what they attend to at once.
        """
        device, new = self._model.device, slice(self.used, self.used + len(ids))
        queries, keys, visible = _blocks(places, together)
        _now.reading = _Pass(
            self._layers,
            self._room,
            new,
            torch.from_numpy(queries).to(device),
            torch.from_numpy(keys).to(device),
            torch.from_numpy(visible)[:, None].to(device),
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
            _now.reading = None
        self.used = new.stop
        return hidden

    @torch.inference_mode()
    def keep_only(self, places: Ints) -> None:
        """Forget everything but what is at these places, which becomes the first."""
        chosen = torch.from_numpy(places).to(self._model.device)
        for each in (tensor for pair in self._layers for tensor in pair):
            each[: len(places)] = each[chosen]
        self.used = len(places)


def _blocks(places: Ints, together: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """For each block of tokens: which they are, what they attend to, and who sees what."""
    count = -(-len(places) // together)
    queries = np.zeros((count, together), dtype=np.int64)
    queries.ravel()[: len(places)] = np.arange(len(places))
    own = [places[start : start + together] for start in range(0, len(places), together)]
    wanted = [np.unique(each[each >= 0]) for each in own]
    keys = np.zeros((count, max(map(len, wanted))), dtype=np.int64)
    visible = np.zeros((count, together, keys.shape[1]), dtype=np.bool_)
    visible[:, :, 0] = True  # the empty rows of the last block
    for block, (seen, places_here) in enumerate(zip(wanted, own, strict=True)):
        keys[block, : len(seen)] = seen
        row, column = np.nonzero(places_here >= 0)
        visible[block, : len(places_here), 0] = False
        visible[block, row, np.searchsorted(seen, places_here[row, column])] = True
    return queries, keys, visible


class Reading:
    """A tree while a model reads it.

    ``steps`` (node,): log-probability of the node's token behind its beginning; NaN until its
    parent has been read. ``read_nodes`` counts what went through the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        logits: Callable[[torch.Tensor], torch.Tensor],
        tree: Tree,
        budget: Budget,
    ) -> None:
        self.tree = tree
        self.steps = np.full(len(tree.ids), np.nan)
        self.steps[0] = 0.0
        self.read_nodes = 0
        self._kept = Kept(model)
        self._logits = logits
        self._budget = budget
        self._place = np.full(len(tree.ids), -1)

    def is_read(self, nodes: Ints) -> npt.NDArray[np.bool_]:
        """Which nodes the model has read (and nothing has been forgotten)."""
        read: npt.NDArray[np.bool_] = self._place[nodes] >= 0
        return read

    def read(self, nodes: Ints) -> None:
        """Read nodes, given depth first, whose parents have been read or are among them."""
        start = 0
        while start < len(nodes):
            part = nodes[start : start + self._budget.tokens]
            halving(self._pass, part, 1, self._budget)
            start += len(part)

    def read_all(self) -> None:
        """Read every node that something follows, keeping only what is still needed."""
        nodes = self.tree.inner
        start = 0
        while start < len(nodes):
            part = nodes[start : start + self._budget.tokens]
            halving(self._pass, part, 1, self._budget)
            start += len(part)
            if start < len(nodes):
                self._forget_all_but(self.tree.paths(nodes[start : start + 1])[0, :-1])

    def _forget_all_but(self, nodes: Ints) -> None:
        self._kept.keep_only(self._place[nodes])
        self._place[:] = -1
        self._place[nodes] = np.arange(len(nodes))

    @torch.inference_mode()
    def _pass(self, nodes: Ints) -> None:
        """Let the model read nodes in one row."""
        tree = self.tree
        self._place[nodes] = self._kept.used + np.arange(len(nodes))
        paths = tree.paths(nodes)
        places = np.where(paths >= 0, self._place[paths], -1)
        hidden = self._kept.read(tree.ids[nodes], tree.depths[nodes], places)
        for start in range(0, len(nodes), HEAD_ROWS):
            self._score_children(
                nodes[start : start + HEAD_ROWS], hidden[start : start + HEAD_ROWS]
            )
        self.read_nodes += len(nodes)

    def _score_children(self, nodes: Ints, hidden: torch.Tensor) -> None:
        """Log-probabilities of what follows ``nodes``, from ``hidden`` (node, width)."""
        first, last = self.tree.first_child[nodes], self.tree.first_child[nodes + 1]
        counts = last - first
        row = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        children = self.tree.children[np.repeat(first, counts) + within]
        logits = self._logits(hidden).float()
        rows = torch.from_numpy(row).to(logits.device)
        ids = torch.from_numpy(self.tree.ids[children]).to(logits.device)
        steps = logits[rows, ids].double() - torch.logsumexp(logits, dim=-1)[rows].double()
        self.steps[children] = steps.cpu().numpy()
