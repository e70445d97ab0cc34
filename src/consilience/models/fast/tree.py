"""Token sequences as one tree, in which equal beginnings are one path, and a search for the best.

The log-probability of a text is at most that of its beginning. So a candidate whose beginning is
less probable than some whole candidate of the same query need not be read on. The search is exact:
the best candidate is scored in full, and every candidate that is left out is known to be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from consilience.core.items import Bools, Floats, Ints
from consilience.models.forward import token_logprobs


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
        tokens = np.full((len(sequences), int(lengths.max(initial=0))), -1)
        for at, sequence in enumerate(sequences):
            tokens[at, : len(sequence)] = sequence
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
        flags: Bools = np.diff(self.first_child) > 0
        return flags

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
        sums: Floats = np.where(inside, steps[self.nodes], 0).sum(axis=1)
        return sums

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
        self.sequence = texts % width if is_shared else texts
        """(text,) The sequence of the tree, for each query and candidate, query by query."""
        self.lengths = tree.lengths[self.sequence]  # (text,) Tokens of each text
        self.known = np.zeros(len(texts), dtype=np.int64)
        """(text,) Number of leading tokens whose log-probability is known."""
        self._query = texts // width
        self._steps = steps
        self._sums = np.zeros(len(texts))

    def advance(self) -> None:
        """Add the steps that have become known."""
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
        live: Bools = np.isnan(totals) & (self.bounds() >= best - slack)
        return live

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
