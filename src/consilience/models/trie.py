"""Sentences as one tree of tokens, so that a common beginning is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TRIE_NODES = 512
"""Nodes that a model reads at once: their attention mask and logits grow with it."""


@dataclass(frozen=True, slots=True)
class TrieLayout:
    """A trie as arrays. Nodes come in order of creation, so a parent stands before its children.

    ``fed_ids`` and ``depths`` (fed,): token and position of the nodes that the model reads; a leaf
    is not among them, for nothing follows it. ``visible`` (fed, fed): whether the second is the
    first or an ancestor of it. ``ids`` and ``parents`` (node,): token of every node but the root,
    and the place of its parent among the fed. ``levels``: nodes by depth. ``ends`` (sentence,).
    """

    fed_ids: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]
    visible: npt.NDArray[np.bool_]
    ids: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int64]
    node_parents: npt.NDArray[np.int64]
    levels: list[npt.NDArray[np.int64]]
    ends: npt.NDArray[np.int64]

    def path_sums(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Sum of ``steps`` (node,) on the way from the root to each sentence's end (sentence,)."""
        sums = np.zeros(len(steps) + 1)
        for level in self.levels:
            sums[level] = sums[self.node_parents[level - 1]] + steps[level - 1]
        return sums[self.ends]


class Trie:
    """Token sequences behind one root token; equal beginnings share their nodes."""

    def __init__(self, root: int) -> None:
        self._ids = [root]
        self._parents = [-1]
        self._depths = [0]
        self._children: dict[tuple[int, int], int] = {}
        self._ends: list[int] = []

    @property
    def full(self) -> bool:
        """Whether the model should read what is here before more is added."""
        return len(self._ids) >= TRIE_NODES

    def add(self, sentence: Sequence[int]) -> None:
        """Add one sentence; the same one twice has two ends at one node."""
        node = 0
        for id_ in sentence:
            child = self._children.get((node, id_))
            if child is None:
                child = len(self._ids)
                self._children[node, id_] = child
                self._ids.append(id_)
                self._parents.append(node)
                self._depths.append(self._depths[node] + 1)
            node = child
        self._ends.append(node)

    def layout(self) -> TrieLayout:
        """The trie as the arrays that a model reads."""
        ids, parents = np.array(self._ids), np.array(self._parents)
        depths = np.array(self._depths)
        fed = np.unique(parents[1:]) if len(ids) > 1 else np.array([0])
        place = np.full(len(ids), -1)
        place[fed] = np.arange(len(fed))
        visible = np.eye(len(fed), dtype=np.bool_)
        for row, node in enumerate(fed[1:], start=1):
            visible[row] |= visible[place[parents[node]]]
        levels = [np.flatnonzero(depths == depth) for depth in range(1, int(depths.max()) + 1)]
        return TrieLayout(
            ids[fed],
            depths[fed],
            visible,
            ids[1:],
            place[parents[1:]],
            parents[1:],
            levels,
            np.array(self._ends),
        )
