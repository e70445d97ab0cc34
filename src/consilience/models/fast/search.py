"""Best-first search: the best candidate, without finishing candidates that cannot win.

The log-probability of a text is at most that of its beginning. So a candidate whose beginning is
less probable than some whole candidate of the same query need not be read on. The search is exact:
the best candidate is scored in full, and every candidate that is left out is known to be worse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from consilience.models.fast.tree import Tree
from consilience.models.forward import Floats, Ints

Mask = npt.NDArray[np.bool_]


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
        self.lengths = tree.lengths[self.sequence]
        """(text,) Tokens of each text."""
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

    def live(self, slack: float) -> Mask:
        """Unfinished candidates (query, candidate) that may come within ``slack`` of the best."""
        totals = self.totals()
        best = np.where(np.isnan(totals), -np.inf, totals).max(axis=1, keepdims=True)
        live: Mask = np.isnan(totals) & (self.bounds() >= best - slack)
        return live

    def ranks(self, live: Mask) -> Ints:
        """Rank (query, candidate) by bound among the ``live`` candidates of a query; best 0."""
        order = np.argsort(-np.where(live, self.bounds(), -np.inf), axis=1)
        return np.argsort(order, axis=1)

    def next_nodes(self, chosen: Mask) -> Mask:
        """The nodes (query, node) to read next for ``chosen`` (query, candidate) candidates."""
        texts = np.flatnonzero(chosen)
        column = self.known[texts] - 1
        nodes = np.where(column >= 0, self.tree.nodes[self.sequence[texts], column], 0)
        wanted = np.zeros((self.shape[0], len(self.tree.ids)), dtype=np.bool_)
        wanted[self._query[texts], nodes] = True
        return wanted


def search(partial: PartialScores, slack: float, read_next: Callable[[Mask], None]) -> Floats:
    """Log-probability (query, candidate) of the best and all within ``slack``; others may be NaN.

    ``read_next`` reads on for some of the live candidates (query, candidate) that it is given;
    which of them, and how many at once, depends on what the model computes efficiently.
    """
    partial.advance()
    while (live := partial.live(slack)).any():
        read_next(live)
        partial.advance()
    return partial.totals()
