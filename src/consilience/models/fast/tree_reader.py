"""Reads trees of sentences and of prompts with a causal model.

A family does so if it scores sentences in a tree as it does alone. Its own code is unchanged: it
is called with the attention of ``tree_attention.py``, and its language-model head is called
separately.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from consilience.core.items import Bools, Floats, Ints
from consilience.models.batches import Budget, in_parts, one_thread
from consilience.models.fast.tree import PartialScores, Tree, search
from consilience.models.fast.tree_attention import ATTENTION, KeyValueStore
from consilience.models.forward import sentence_logprobs
from consilience.models.steering import TokenNoise

HEAD_ROWS = 64  # Tokens whose logits over the vocabulary are held at once
TRIED = 7  # Tokens of the sentences on which a family is tried when it is loaded
FILL = {"cpu": 192, "cuda": 2048}  # Tokens in a pass that make good use of a device, by its type

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

    def is_read(self, nodes: Ints) -> Bools:
        """Whether the keys and values of nodes are stored."""
        is_read: Bools = self._slot[nodes] >= 0
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
    inner: Ints = np.flatnonzero(is_shared & tree.has_children)
    return inner


def tree_scorer(model: PreTrainedModel, start: int, budget: Budget) -> TreeScorer | None:
    """Let a model read trees. None, and an unchanged model, where its family cannot.

    ``start``: the token that sentences begin with.
    """
    base, attention = model.base_model, model.config._attn_implementation
    if base is model:
        return None
    rng = np.random.default_rng(0)
    stem = rng.integers(0, model.config.vocab_size, TRIED).tolist()
    branches = rng.integers(0, model.config.vocab_size, (TRIED - 1, TRIED)).tolist()
    # Of one length, so that they are read in one batch; they leave the stem at every token.
    sentences = [stem[:at] + ids[at:] for at, ids in enumerate(branches, 1)]
    head, tree = _Head(model), Tree.of(start, sentences)
    # In two parts, so that the second uses the beginnings that the first has read.
    reader = TreeReader(model, head, tree, Budget(-(-len(tree.inner) // 2)))
    # Half-precision sums differ in the last bits; a wrong mask or position differs by nats.
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.3
    with one_thread():
        alone = sentence_logprobs(model, start, sentences, budget)
        base.forward = head.forward
        model.set_attn_implementation(ATTENTION)
        with suppress(RuntimeError, TypeError, ValueError, LookupError, AttributeError):
            reader.read_all()
            if np.allclose(tree.path_sums(reader.steps), alone, rtol=0, atol=tolerance):
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
    config, room = model.config, 2**29
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
        """``targets``: the answers of each prompt; ``longest``: tokens that are written, at most.

        An answer's last token is not read: nothing is asked of it.
        """
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
        self._row = np.cumsum(needed) - 1
        """(node,) The row of ``_hidden`` for a node that is needed."""
        hidden = []

        def read(nodes: Ints) -> None:
            slots = tree.paths(nodes)[:, 1:] - 1  # nodes are read in their order
            states = self._stored.read(tree.ids[nodes], tree.depths[nodes] - 1, slots)
            hidden.append(states[torch.from_numpy(needed[nodes]).to(states.device)])

        in_parts(read, np.arange(1, size + 1), 1, budget)
        self._hidden = torch.cat(hidden)
        self._paths = tree.paths(ends)[:, 1:] - 1
        self._paths[self._paths < 0] = -1
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
