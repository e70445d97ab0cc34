"""Trees of token sequences: beginnings that sentences or prompts share are read once.

A causal model reads a tree as one row. Every token has the position that it has in its sentence and
attends to its own beginning only: an attention function registered with transformers sees to that,
and everything else is the family's own code. A family does so if it then scores sentences as alone.

The log-probability of a text is at most that of its beginning. So a candidate whose beginning is
less probable than some whole candidate of the same query need not be read on. The search is exact:
the best candidate is scored in full, and every candidate that is left out is known to be worse.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from consilience.core.items import Bools, Floats, Ints, padded
from consilience.models.batches import (
    Budget,
    TokenNoise,
    in_parts,
    sentence_logprobs,
    token_logprobs,
)
from consilience.models.fast.products import one_thread


@dataclass(frozen=True, slots=True)
class Tree:
    """Token sequences after one root token; equal beginnings share their nodes.

    Nodes are in depth-first order, so a parent precedes its children; node 0 is the root.
    """

    ids: Ints  # (node,) Token ids
    parents: Ints  # (node,) The parent of each node; -1 for the root
    depths: Ints  # (node,) Number of tokens after the root, the node's own included
    nodes: Ints  # (sequence, token) The node of each token; 0 beyond the end of a sequence
    lengths: Ints  # (sequence,) Tokens of each sequence
    children: Ints
    """Nodes by parent; those of ``n`` are ``children[first_child[n] : first_child[n + 1]]``."""
    first_child: Ints  # (node + 1,) Where the children of each node begin in ``children``
    holder: Ints  # (node,) A sequence that contains the node

    @classmethod
    def of(cls, root: int, sequences: Sequence[Sequence[int]]) -> Tree:
        """The tree of some sequences; equal sequences have equal nodes."""
        lengths = np.array([len(sequence) for sequence in sequences])
        tokens = padded(sequences, -1)
        order = np.lexsort(tokens.T[::-1])
        in_order = tokens[order]
        same = np.logical_and.accumulate(in_order[1:] == in_order[:-1], axis=1)
        is_new = in_order >= 0
        is_new[1:] &= ~same
        row, column = np.nonzero(is_new)
        created = np.zeros(tokens.shape, dtype=np.int64)
        created[row, column] = np.arange(1, len(row) + 1)
        in_nodes = np.where(in_order >= 0, np.maximum.accumulate(created, axis=0), 0)
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
    def has_children(self) -> Bools:
        """(node,) Whether something follows a node: a model need read no other."""
        return np.asarray(np.diff(self.first_child) > 0)

    @property
    def inner(self) -> Ints:
        """The nodes that have children, depth first."""
        return np.flatnonzero(self.has_children)

    def paths(self, nodes: Ints) -> Ints:
        """The ancestors of nodes and themselves (node, depth); -1 beyond their own depth."""
        depths = self.depths[nodes]
        paths = np.zeros((len(nodes), int(depths.max()) + 1), dtype=np.int64)
        paths[:, 1:] = self.nodes[self.holder[nodes], : paths.shape[1] - 1]
        paths[np.arange(paths.shape[1]) > depths[:, None]] = -1
        return paths

    def path_sums(self, steps: Floats) -> Floats:
        """Sum of ``steps`` (node,) over the tokens of each sequence (sequence,)."""
        inside = np.arange(self.nodes.shape[1]) < self.lengths[:, None]
        return np.asarray(np.where(inside, steps[self.nodes], 0).sum(axis=1))

    def child_steps(self, nodes: Ints, logits: torch.Tensor) -> tuple[Ints, Ints, Floats]:
        """Log-probabilities of the children of ``nodes``, from ``logits`` (node, entry).

        Three arrays (child,): the position of the parent in ``nodes``, the child, its
        log-probability.
        """
        first, last = self.first_child[nodes], self.first_child[nodes + 1]
        counts = last - first
        row = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        children = self.children[np.repeat(first, counts) + within]
        return row, children, token_logprobs(logits, row, self.ids[children])


class PartialScores:
    """How far the candidates of some queries have been scored.

    A candidate is a path in a tree of tokens. Its sum over the steps that are known is an upper
    bound of its log-probability.
    """

    def __init__(self, tree: Tree, steps: Floats, queries: int) -> None:
        """``steps``: log-probability of each node's token given its beginning; NaN until known.

        Either (query, node), where the queries share the tree of one list of candidates, or
        (node,), where the tree holds the candidates of the first query, then the second's, and so
        on. Whoever reads the tree fills it in.
        """
        is_shared = steps.ndim == 2
        width = len(tree.lengths) if is_shared else len(tree.lengths) // queries
        texts = np.arange(queries * width)
        self.tree = tree
        self.shape = queries, width
        self.sequence = texts % width if is_shared else texts  # (text,)
        self.lengths = tree.lengths[self.sequence]  # (text,) Tokens of each text
        self.known = np.zeros(len(texts), dtype=np.int64)  # (text,) Leading tokens that are known
        self._query = texts // width
        self._steps = steps
        self._sums = np.zeros(len(texts))

    def advance(self) -> None:
        texts = np.flatnonzero(self.known < self.lengths)
        while texts.size:
            nodes = self.tree.nodes[self.sequence[texts], self.known[texts]]
            is_shared = self._steps.ndim == 2
            step = self._steps[self._query[texts], nodes] if is_shared else self._steps[nodes]
            texts, step = texts[~np.isnan(step)], step[~np.isnan(step)]
            self._sums[texts] += step
            self.known[texts] += 1
            texts = texts[self.known[texts] < self.lengths[texts]]

    def bounds(self) -> Floats:
        """Upper bound (query, candidate) of each log-probability."""
        return self._sums.reshape(self.shape)

    def totals(self) -> Floats:
        """Log-probability (query, candidate) of finished candidates; NaN for the others."""
        is_finished = (self.known == self.lengths).reshape(self.shape)
        return np.where(is_finished, self.bounds(), np.nan)

    def live(self, slack: float) -> Bools:
        """Unfinished candidates (query, candidate) that may come within ``slack`` of the best."""
        totals = self.totals()
        best = np.where(np.isnan(totals), -np.inf, totals).max(axis=1, keepdims=True)
        return np.asarray(np.isnan(totals) & (self.bounds() >= best - slack))

    def ranks(self, live: Bools) -> Ints:
        """Rank (query, candidate) by bound among the ``live`` candidates of a query; best 0."""
        order = np.argsort(-np.where(live, self.bounds(), -np.inf), axis=1)
        return np.argsort(order, axis=1)

    def next_nodes(self, chosen: Bools) -> Bools:
        """The nodes (query, node) to read next for ``chosen`` (query, candidate) candidates."""
        texts = np.flatnonzero(chosen)
        column = self.known[texts] - 1
        nodes = np.where(column >= 0, self.tree.nodes[self.sequence[texts], column], 0)
        wanted = np.zeros((self.shape[0], len(self.tree.ids)), dtype=np.bool_)
        wanted[self._query[texts], nodes] = True
        return wanted


def search(partial: PartialScores, slack: float, read_next: Callable[[Bools], None]) -> Floats:
    """Log-probability (query, candidate) of the best and all within ``slack``; others may be NaN.

    ``read_next`` reads on for some of the live candidates (query, candidate) that it is given;
    which of them, and how many at once, depends on what the model computes efficiently.
    """
    partial.advance()
    while (live := partial.live(slack)).any():
        read_next(live)
        partial.advance()
    return partial.totals()


ATTENTION = "consilience_tree"  # The name of the attention function in transformers
BLOCK = 64  # Neighbouring tokens that gather their keys together; in a tree they share most of them


@dataclass(slots=True)
class _Pass:
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


@contextmanager
def _reading(row: _Pass) -> Iterator[None]:
    """Attention is that of ``row`` in this thread."""
    _current.row = row
    try:
        yield
    finally:
        _current.row = None


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, _mask)


def _short(model: PreTrainedModel) -> int:
    """Tokens up to which the rotation of a position does not depend on the longest text beside it.

    Beyond them LongRoPE takes other factors for all texts of a pass.
    """
    config = model.config.get_text_config()
    rotation = getattr(config, "rope_parameters", None) or {}
    if rotation.get("rope_type") != "longrope":
        return sys.maxsize
    return int(rotation.get("original_max_position_embeddings") or config.max_position_embeddings)


class KeyValueStore:
    """Keys and values of the tokens that a model has read, one slot a token."""

    def __init__(self, model: PreTrainedModel, capacity: int = 0) -> None:
        self.used = 0  # Slots in use. A smaller value forgets what was read last.
        self._model, self._capacity = model, capacity
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._longest = _short(model)

    @torch.inference_mode()
    def read(self, ids: Ints, depths: Ints, visible: Ints, block: int = BLOCK) -> torch.Tensor:
        """Read tokens in one row, into the next slots; their last hidden states (token, width).

        ``ids``, ``depths`` (token,). ``visible`` (token, position): the slots that each token
        attends to, its own included; -1 for none. ``block``: neighbours that gather keys together.
        """
        if depths.max() >= self._longest:
            raise NotImplementedError("a rotation that depends on the longest text")
        device, new = self._model.device, slice(self.used, self.used + len(ids))
        sight = _sight(visible, device, block)
        row = _Pass(self._layers, self._capacity, new, *sight, len(ids), int(depths.max()))
        with _reading(row):
            hidden: torch.Tensor = self._model.base_model(
                input_ids=torch.from_numpy(ids)[None].to(device),
                position_ids=torch.from_numpy(depths)[None].to(device),
                use_cache=False,
            )[0][0]
        self.used = new.stop
        return hidden

    @torch.inference_mode()
    def keep_only(self, slots: Ints) -> None:
        """Forget everything but these slots, which become the first."""
        chosen = torch.from_numpy(slots).to(self._model.device)
        for tensor in (tensor for pair in self._layers for tensor in pair):
            tensor[: len(slots)] = tensor[chosen]
        self.used = len(slots)


def _sight(
    visible: Ints, device: torch.device, size: int = BLOCK
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The ``queries``, ``keys`` and ``visible`` of a pass, in blocks of ``size`` tokens.

    ``visible`` (token, position): the slots that each token attends to, -1 for none.
    """
    count = -(-len(visible) // size)
    queries = np.zeros((count, size), dtype=np.int64)
    queries.ravel()[: len(visible)] = np.arange(len(visible))
    parts = [visible[start : start + size] for start in range(0, len(visible), size)]
    slots = [np.unique(part[part >= 0]) for part in parts]
    keys = padded(slots, 0)
    mask = np.zeros((count, size, keys.shape[1]), dtype=np.bool_)
    mask[:, :, 0] = True  # the empty rows of the last block
    for block, (block_slots, part) in enumerate(zip(slots, parts, strict=True)):
        row, column = np.nonzero(part >= 0)
        mask[block, : len(part), 0] = False
        mask[block, row, np.searchsorted(block_slots, part[row, column])] = True
    moved = [torch.from_numpy(array).to(device) for array in (queries, keys, mask)]
    return moved[0], moved[1], moved[2][:, None]


HEAD_ROWS = 64  # Tokens whose logits over the vocabulary are held at once
TRIED = 7  # Tokens of the sentences on which a family is tried when it is loaded
FILL = {"cpu": 192, "cuda": 2048}  # Tokens in a pass that make good use of a device, by its type
CANNOT = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What a family raises that cannot read a tree."""
TOLERANCE = defaultdict(lambda: 0.3, {torch.float32: 1e-3})
"""Half-precision sums differ in the last bits; a wrong mask or position differs by nats."""
Head = Callable[[torch.Tensor], torch.Tensor]  # (token, entry) logits of (token, width)


class TreeReader:
    """One tree while a model reads it; ``read_nodes`` counts the tokens that it read."""

    def __init__(self, model: PreTrainedModel, head: Head, tree: Tree, budget: Budget) -> None:
        self.tree = tree
        self.steps = np.full(len(tree.ids), np.nan)  # (node,) NaN until its parent is read
        self.steps[0] = 0.0
        self.read_nodes = 0
        self._stored = KeyValueStore(model)
        self._head = head
        self._budget = budget
        self._slot = np.full(len(tree.ids), -1)

    def is_read(self, nodes: Ints) -> Bools:
        return np.asarray(self._slot[nodes] >= 0)

    def read(self, nodes: Ints) -> None:
        in_parts(self._pass, nodes, 1, self._budget)

    def read_new(self, nodes: Ints) -> None:
        """Read those of ``nodes`` that have children and are not read yet."""
        nodes = np.unique(nodes)
        nodes = nodes[self.tree.has_children[nodes]]
        self.read(nodes[~self.is_read(nodes)])

    def read_all(self) -> None:
        """Read every node that has children, storing only what is still needed."""
        in_parts(self._forgetting_pass, self.tree.inner, 1, self._budget)

    def _forgetting_pass(self, nodes: Ints) -> None:
        """Read nodes, given depth first, and forget all others but the ancestors of the first."""
        ancestors = self.tree.paths(nodes[:1])[0, :-1]
        self._stored.keep_only(self._slot[ancestors])
        self._slot[:] = -1
        self._slot[ancestors] = np.arange(len(ancestors))
        self._pass(nodes)

    @torch.inference_mode()
    def _pass(self, nodes: Ints) -> None:
        tree = self.tree
        self._slot[nodes] = self._stored.used + np.arange(len(nodes))
        paths = tree.paths(nodes)
        visible = np.where(paths >= 0, self._slot[paths], -1)
        hidden = self._stored.read(tree.ids[nodes], tree.depths[nodes], visible)
        for start in range(0, len(nodes), HEAD_ROWS):
            part = slice(start, start + HEAD_ROWS)
            _, children, steps = tree.child_steps(nodes[part], self._head(hidden[part]))
            self.steps[children] = steps
        self.read_nodes += len(nodes)


class TreeScorer:
    """Log-probabilities of sentences under a causal model that can read trees."""

    def __init__(self, model: PreTrainedModel, head: Head, start: int, budget: Budget) -> None:
        self.head = head
        self._model, self._start, self._budget = model, start, budget

    def totals(
        self,
        sentences: list[list[int]],
        queries: int,
        golds: Ints | None = None,
        slack: float = 0.0,
    ) -> Floats:
        """Log-probability (query, candidate) of the sentences of all queries, query by query.

        With ``golds`` (query,), candidates that cannot come within ``slack`` nats of the best one
        may be NaN; the gold is finished in any case, -1 for none.
        """
        reader = self.read(sentences)
        if golds is None:
            reader.read_all()
            return reader.tree.path_sums(reader.steps).reshape(queries, -1)
        fill = FILL.get(self._model.device.type, FILL["cpu"])
        return best_and_gold(reader, golds, slack, fill)

    def read(self, sentences: list[list[int]]) -> TreeReader:
        tree = Tree.of(self._start, sentences)
        return TreeReader(self._model, self.head, tree, self._budget)


def best_and_gold(reader: TreeReader, gold: Ints, slack: float, fill: int) -> Floats:
    """Log-probability (query, candidate) of whole sentences; NaN for those that cannot win.

    The tree holds the sentences of the first query's candidates, then the second's, and so on.
    ``gold`` (query,): the candidate to finish in any case, -1 for none. ``fill``: tokens to read at
    once, if there are as many; the most promising come first.
    """
    tree, size = reader.tree, len(gold)
    partial = PartialScores(tree, reader.steps, size)
    texts = np.arange(len(tree.lengths)).reshape(size, -1)
    reader.read(_shared_nodes(tree, size))
    partial.advance()
    queries = np.arange(size)
    lead = texts[queries, partial.bounds().argmax(axis=1)]
    golds = texts[queries, gold][gold >= 0]
    reader.read_new(tree.nodes[np.unique(np.concatenate([lead, golds]))])

    def read_next(live: Bools) -> None:
        reader.read_new(
            next(
                nodes
                for nodes, is_last in _choices(partial, live)
                if is_last or np.count_nonzero(~reader.is_read(nodes)) >= fill
            )
        )

    return search(partial, slack, read_next)


def _choices(partial: PartialScores, live: Bools) -> Iterator[tuple[Ints, bool]]:
    """Nodes to read next, fewer first, and whether there are no more.

    First the next token of each query's most promising sentence, then of its two most promising,
    and so on; then the two next tokens of all live sentences, and so on.
    """
    tree, ranks = partial.tree, partial.ranks(live)
    longest = int((partial.lengths - partial.known).max())
    most = int(live.sum(axis=1).max())
    width, depth = 1, 1
    while True:
        sentences = np.flatnonzero(live & (ranks < width))
        columns = partial.known[sentences, None] - 1 + np.arange(depth)
        is_last = width >= most and depth >= longest
        inside = columns < tree.lengths[sentences, None] - 1
        column = np.clip(columns, 0, tree.nodes.shape[1] - 1)
        nodes = np.where(columns >= 0, tree.nodes[sentences[:, None], column], 0)
        yield np.unique(nodes[inside]), is_last
        if width < most:
            width *= 2
        else:
            depth += 1


def _shared_nodes(tree: Tree, size: int) -> Ints:
    """The root, and inner nodes that all candidates of a query or several queries share."""
    per_query = len(tree.lengths) // size
    query = np.arange(len(tree.lengths))[:, None] // per_query
    pairs = (tree.nodes * size + query)[tree.nodes > 0]
    keys, counts = np.unique(pairs, return_counts=True)
    nodes = keys // size
    queries_of = np.bincount(nodes, minlength=len(tree.ids))
    is_shared = queries_of > 1
    is_shared[np.unique(nodes[counts == per_query])] = True
    is_shared[0] = True
    return np.flatnonzero(is_shared & tree.has_children)


def _tried(model: PreTrainedModel) -> list[list[int]]:
    """Sentences of one length, to be read in one batch, which leave a stem at every token."""
    rng = np.random.default_rng(0)
    size = model.config.get_text_config().vocab_size
    stem = rng.integers(0, size, TRIED).tolist()
    branches = rng.integers(0, size, (TRIED - 1, TRIED)).tolist()
    return [stem[:at] + ids[at:] for at, ids in enumerate(branches, 1)]


def tree_scorer(model: PreTrainedModel, start: int, budget: Budget) -> TreeScorer | None:
    """Let a model read trees after the token ``start``; None, and unchanged, where it cannot."""
    base, attention = model.base_model, model.config._attn_implementation
    if base is model:
        return None
    sentences = _tried(model)
    head, tree = _Head(model), Tree.of(start, sentences)
    # In two parts, so that the second uses the beginnings that the first has read.
    reader = TreeReader(model, head, tree, Budget(-(-len(tree.inner) // 2)))
    with one_thread():
        alone = sentence_logprobs(model, start, sentences, budget)
        base.forward = head.forward
        model.set_attn_implementation(ATTENTION)
        with suppress(*CANNOT):
            reader.read_all()
            if np.allclose(
                tree.path_sums(reader.steps), alone, rtol=0, atol=TOLERANCE[model.dtype]
            ):
                return TreeScorer(model, head, start, budget)
    vars(base).pop("forward", None)
    model.set_attn_implementation(attention)
    return None


class _Head:
    """All that a model computes after its last layer, by the family's own code."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._whole = model.base_model.forward
        self._output: Any = None
        self._given = threading.local()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        self._given.hidden = hidden[None]
        try:
            ids = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            logits: torch.Tensor = self._model(input_ids=ids, use_cache=False).logits
        finally:
            self._given.hidden = None
        return logits[0]

    def forward(self, *args: object, **kwargs: object) -> object:
        """The layers, unless their result is given."""
        hidden = getattr(self._given, "hidden", None)
        if hidden is not None:
            return self._output(last_hidden_state=hidden)
        output = self._whole(*args, **kwargs)
        self._output = type(output)
        return output


def room_for_tokens(model: PreTrainedModel) -> int:
    """Tokens whose keys and values take 512 MiB, or a quarter of an accelerator's free memory."""
    config, room = model.config.get_text_config(), 2**29
    if model.device.type == "cuda":
        room = torch.cuda.mem_get_info(model.device)[0] // 4
    width = config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    layers = config.num_hidden_layers * model.dtype.itemsize
    token = 2 * layers * heads * (getattr(config, "head_dim", None) or width)
    return int(room // token)


class Prompts:
    """Prompts that are read once, for all answers that are scored or written after them.

    They are read as one tree, and their keys and values are stored. Then all are continued in
    parallel, whatever their lengths: by the tokens of an answer, to score it, or by the model's
    best token, again and again.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        head: Head,
        prompts: Sequence[Sequence[int]],
        targets: Sequence[Sequence[Sequence[int]]],
        budget: Budget,
        longest: int,
    ) -> None:
        """``targets``: the answers of each prompt, whose last tokens are not read."""
        self._head, self._budget = head, budget
        texts = [*prompts]
        self._steps: list[tuple[int, int, int, int]] = []
        """Of each token of the answers: its text, its position there, its answer, and itself."""
        self._sizes = [len(of_prompt) for of_prompt in targets]
        answer = 0
        for row, (prompt, of_prompt) in enumerate(zip(prompts, targets, strict=True)):
            for target in of_prompt:
                text = row if len(target) < 2 else len(texts)
                if len(target) > 1:
                    texts.append([*prompt, *target[:-1]])
                last = len(prompt) - 1
                self._steps += [(text, last + at, answer, id_) for at, id_ in enumerate(target)]
                answer += 1
        # The root is no token: prompts need not begin with the same one.
        tree = Tree.of(-1, texts)
        size = len(tree.ids) - 1
        self._stored = KeyValueStore(model, size + len(prompts) * longest)
        self._nodes = tree.nodes
        ends = tree.nodes[np.arange(len(prompts)), tree.lengths[: len(prompts)] - 1]
        needed = np.zeros(len(tree.ids), dtype=np.bool_)
        needed[ends] = True
        if self._steps:
            rows, columns, _, _ = np.array(self._steps).T
            needed[tree.nodes[rows, columns]] = True
        self._row = np.cumsum(needed) - 1  # (node,) The row of ``_hidden``
        hidden = []

        def read(nodes: Ints) -> None:
            slots = tree.paths(nodes)[:, 1:] - 1  # nodes are read in their order
            states = self._stored.read(tree.ids[nodes], tree.depths[nodes] - 1, slots)
            hidden.append(states[torch.from_numpy(needed[nodes]).to(states.device)])

        in_parts(read, np.arange(1, size + 1), 1, budget)
        self._hidden = torch.cat(hidden)
        self._paths = np.maximum(tree.paths(ends)[:, 1:] - 1, -1)
        self._ends = self._row[ends]

    @torch.inference_mode()
    def totals(self) -> list[Floats]:
        """For each prompt the log-probability (answer,) of the tokens of its answers, in nats."""
        totals = np.zeros(sum(self._sizes))
        if self._steps:
            texts, columns, answers, ids = np.array(self._steps).T
            rows = self._row[self._nodes[texts, columns]]
            for start in range(0, len(self._hidden), HEAD_ROWS):
                inside = np.flatnonzero((rows >= start) & (rows < start + HEAD_ROWS))
                if len(inside):
                    logits = self._head(self._hidden[start : start + HEAD_ROWS]).double()
                    row, token = rows[inside] - start, ids[inside]
                    steps = logits[row, token] - torch.logsumexp(logits, dim=-1)[row]
                    np.add.at(totals, answers[inside], steps.cpu().numpy())
        return np.split(totals, np.cumsum(self._sizes)[:-1])

    def write(
        self,
        most: int,
        is_complete: Callable[[int, list[int]], bool],
        alone: Callable[[int, list[int]], int],
        near: float,
        noises: Sequence[TokenNoise | None],
    ) -> list[list[int]]:
        """The best token after each prompt, again and again, at most ``most`` tokens.

        The best token has the largest sum of logit and noise (``noises``, for each prompt; None for
        none: the most probable token). ``is_complete(prompt, written)``: whether nothing follows.
        ``alone(prompt, written)``: the best token in a pass of its own, for steps whose best two
        tokens are closer than ``near`` nats.
        """
        written: list[list[int]] = [[] for _ in self._paths]
        rows, paths, hidden = np.arange(len(written)), self._paths, self._hidden[self._ends]
        used = self._stored.used
        for number in range(most):
            tokens, margins = self._best(hidden, [noises[row] for row in rows.tolist()], number)
            for at in np.flatnonzero(margins < near):
                tokens[at] = alone(int(rows[at]), written[rows[at]])
            for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                written[row].append(token)
            continues = np.array([not is_complete(row, written[row]) for row in rows.tolist()])
            if number + 1 == most or not continues.any():
                break
            rows = rows[continues]
            paths, later = self._read(paths[continues], tokens[continues, None])
            hidden = later[:, -1]
        self._stored.used = used
        return written

    @torch.inference_mode()
    def _read(self, paths: Ints, tokens: Ints) -> tuple[Ints, torch.Tensor]:
        """Read ``tokens`` (row, step) after ``paths`` (row, position).

        ``paths``: the slots of what precedes, -1 for none. Returns the longer paths and the hidden
        states (row, step, width).
        """
        count, steps = tokens.shape
        slots = self._stored.used + np.arange(tokens.size).reshape(tokens.shape)
        longer = np.concatenate([paths, slots], axis=1)
        hidden = []

        def read(rows: Ints) -> None:
            slots = self._stored.used + np.arange(len(rows) * steps).reshape(len(rows), steps)
            longer[rows, paths.shape[1] :] = slots
            visible = np.repeat(longer[rows], steps, axis=0)
            later = np.arange(steps) > np.arange(steps)[:, None]  # a token sees preceding ones
            visible[:, paths.shape[1] :][np.tile(later, (len(rows), 1))] = -1
            depths = (paths[rows] >= 0).sum(axis=1)[:, None] + np.arange(steps)
            states = self._stored.read(tokens[rows].ravel(), depths.ravel(), visible, block=steps)
            hidden.append(states.reshape(len(rows), steps, -1))

        in_parts(read, np.arange(count), steps, self._budget)
        return longer, torch.cat(hidden)

    @torch.inference_mode()
    def _best(
        self, hidden: torch.Tensor, noises: Sequence[TokenNoise | None], step: int
    ) -> tuple[Ints, Floats]:
        """The next token and its distance in nats from the second: (row,)."""
        tokens, margins = [], []
        for start, rows in zip(
            range(0, len(hidden), HEAD_ROWS), hidden.split(HEAD_ROWS), strict=True
        ):
            logits = self._head(rows).float()
            for at, noise in enumerate(noises[start : start + HEAD_ROWS]):
                if noise is not None:
                    logits[at] = noise.added_to(logits[at], step)
            best = logits.topk(2, dim=-1)
            tokens.append(best.indices[:, 0].cpu().numpy())
            margins.append((best.values[:, 0] - best.values[:, 1]).double().cpu().numpy())
        return np.concatenate(tokens), np.concatenate(margins)
