"""Reads trees of sentences with a causal model, if its family scores them there as it does alone.

The family's own code is unchanged: it is called with the attention of ``tree_attention.py``, and
its language-model head is called separately.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.models.batches import Budget, in_parts, one_thread
from consilience.models.fast.search import Mask, PartialScores, search
from consilience.models.fast.tree import Tree
from consilience.models.fast.tree_attention import ATTENTION, KeyValueStore
from consilience.models.forward import Floats, Ints, sentence_logprobs
from consilience.models.sources import checked

HEAD_ROWS = 64
"""Tokens whose logits over the vocabulary are held at once."""

TRIED = 7
"""Tokens of the sentences on which a family is tried when it is loaded."""

FILL = {"cpu": 192, "cuda": 2048}
"""Tokens in a pass that make good use of a device, by its type."""

Head = Callable[[torch.Tensor], torch.Tensor]
"""Logits (token, entry) of last hidden states (token, width)."""


class TreeReader:
    """One tree while a model reads it.

    ``read_nodes`` counts the tokens that went through the model.
    """

    def __init__(self, model: PreTrainedModel, head: Head, tree: Tree, budget: Budget) -> None:
        self.tree = tree
        self.steps = np.full(len(tree.ids), np.nan)
        """(node,) Log-probability of the node's token; NaN until its parent is read."""
        self.steps[0] = 0.0
        self.read_nodes = 0
        self._stored = KeyValueStore(model)
        self._head = head
        self._budget = budget
        self._slot = np.full(len(tree.ids), -1)

    def is_read(self, nodes: Ints) -> Mask:
        """Whether the keys and values of nodes are stored."""
        is_read: Mask = self._slot[nodes] >= 0
        return is_read

    def read(self, nodes: Ints) -> None:
        """Read nodes, given depth first, whose parents are read or among them."""
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
        """Read nodes in one row."""
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
        """A reader of the tree of some sentences."""
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

    def read_next(live: Mask) -> None:
        reader.read_new(
            next(
                nodes
                for nodes, is_last in _choices(partial, live)
                if is_last or np.count_nonzero(~reader.is_read(nodes)) >= fill
            )
        )

    return search(partial, slack, read_next)


def _choices(partial: PartialScores, live: Mask) -> Iterator[tuple[Ints, bool]]:
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
    inner: Ints = np.flatnonzero(is_shared & tree.has_children)
    return inner


def tree_scorer(
    model: PreTrainedModel, identity: Mapping[str, object], start: int, budget: Budget
) -> TreeScorer | None:
    """Let a model read trees. None, and an unchanged model, where its family cannot.

    ``start``: the token that sentences begin with.
    """
    base, attention = model.base_model, model.config._attn_implementation
    if base is model:
        return None
    head = _Head(model)
    scorer = TreeScorer(model, head, start, budget)

    def replace() -> None:
        base.forward = head.forward
        model.set_attn_implementation(ATTENTION)

    def is_same() -> bool:
        with one_thread():
            return _scores_are_the_same(model, head, replace, start, budget)

    if checked("tree", identity, is_same):
        replace()
        return scorer
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


@torch.inference_mode()
def _scores_are_the_same(
    model: PreTrainedModel, head: Head, replace: Callable[[], None], start: int, budget: Budget
) -> bool:
    """Whether sentences in a tree get the scores that they get alone, after ``replace``."""
    rng = np.random.default_rng(0)
    stem = rng.integers(0, model.config.vocab_size, TRIED).tolist()
    branches = rng.integers(0, model.config.vocab_size, (24, TRIED)).tolist()
    # Of one length, so that they are read in one batch; they leave the stem at every token.
    sentences = [
        stem[: 1 + at % (TRIED - 1)] + ids[1 + at % (TRIED - 1) :]
        for at, ids in enumerate(branches)
    ]
    alone = sentence_logprobs(model, start, sentences, budget)
    # Half-precision sums differ in the last bits; a wrong mask or position differs by nats.
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.3
    try:
        replace()
        tree = Tree.of(start, sentences)
        # In two parts, so that the second uses the beginnings that the first has read.
        half = -(-len(tree.inner) // 2)
        reader = TreeReader(model, head, tree, Budget(half))
        reader.read_all()
        return np.allclose(tree.path_sums(reader.steps), alone, rtol=0, atol=tolerance)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError):
        return False


def room_for_tokens(model: PreTrainedModel) -> int:
    """Tokens whose keys and values take 512 MiB, or a quarter of an accelerator's free memory."""
    config, room = model.config, 2**29
    if model.device.type == "cuda":
        room = torch.cuda.mem_get_info(model.device)[0] // 4
    width = config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    layers = config.num_hidden_layers * model.dtype.itemsize
    token = 2 * layers * heads * (getattr(config, "head_dim", None) or width)
    return int(room // token)
