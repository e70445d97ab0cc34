"""Token sequences as one tree, in which equal beginnings are one path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from consilience.models.forward import Floats, Ints, token_logprobs


@dataclass(frozen=True, slots=True)
class Tree:
    """Token sequences after one root token; equal beginnings share their nodes.

    Nodes are in depth-first order, so a parent precedes its children; node 0 is the root.
    """

    ids: Ints
    """(node,) Token ids."""
    parents: Ints
    """(node,) The parent of each node; -1 for the root."""
    depths: Ints
    """(node,) Number of tokens after the root, the node's own included."""
    nodes: Ints
    """(sequence, token) The node of each token; 0 beyond the end of a sequence."""
    lengths: Ints
    """(sequence,) Tokens of each sequence."""
    children: Ints
    """Nodes by parent; those of ``n`` are ``children[first_child[n] : first_child[n + 1]]``."""
    first_child: Ints
    """(node + 1,) Where the children of each node begin in ``children``."""
    holder: Ints
    """(node,) A sequence that contains the node."""

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
    def has_children(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(node,) Whether something follows a node: a model need read no other."""
        flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.diff(self.first_child) > 0
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
