"""Which candidate makes the most probable sentence, without finishing those that cannot win.

The log-probability of a sentence is at most that of its beginning. So a candidate whose beginning
is less probable than some whole sentence of the same query is not read on. Nothing is guessed: the
best candidate and the gold are scored in full, and whatever was left is known to be worse.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from consilience.models.tree import Ints, Reading, Tree

Floats = npt.NDArray[np.float64]


def best_and_gold(reading: Reading, gold: Ints, slack: float, fill: int) -> Floats:
    """Log-probability (query, candidate) of whole sentences; NaN for those that cannot win.

    The tree's sentences are those of the first query's candidates, then the second's, and so on.
    ``gold`` (query,) is the candidate to be finished whatever happens, -1 for none. Candidates
    within ``slack`` nats of the best are finished too. ``fill`` is how many tokens it takes to
    make good use of the device: so many are read at a time, the most promising first.
    """
    tree = reading.tree
    size = len(gold)
    race = _Race(tree, size)
    reading.read(_shared(tree, size))
    race.advance(reading.steps)
    lead = race.bounds().argmax(axis=1)
    queries = np.arange(size)
    wanted = np.concatenate([race.at[queries, lead], race.at[queries, gold][gold >= 0]])
    while True:
        _read(reading, tree.nodes[np.unique(wanted)])
        race.advance(reading.steps)
        live = race.live(slack)
        if not live.any():
            return race.totals()
        wanted_nodes = next(
            nodes
            for nodes, last in race.choices(live)
            if last or np.count_nonzero(~reading.is_read(nodes)) >= fill
        )
        _read(reading, wanted_nodes)
        race.advance(reading.steps)
        wanted = np.empty(0, dtype=np.int64)


class _Race:
    """How far each candidate's sentence has been scored.

    ``at`` (query, candidate): the sentence. ``sums``, ``known`` (sentence,): log-probability of
    its first ``known`` tokens.
    """

    def __init__(self, tree: Tree, size: int) -> None:
        self.tree = tree
        self.at = np.arange(len(tree.lengths)).reshape(size, -1)
        self.known = np.zeros(len(tree.lengths), dtype=np.int64)
        self.sums = np.zeros(len(tree.lengths))

    def advance(self, steps: Floats) -> None:
        """Add what has become known."""
        open_ = np.flatnonzero(self.known < self.tree.lengths)
        while open_.size:
            step = steps[self.tree.nodes[open_, self.known[open_]]]
            open_, step = open_[~np.isnan(step)], step[~np.isnan(step)]
            self.sums[open_] += step
            self.known[open_] += 1
            open_ = open_[self.known[open_] < self.tree.lengths[open_]]

    def bounds(self) -> Floats:
        """What each sentence's log-probability is at most (query, candidate)."""
        return self.sums[self.at]

    def totals(self) -> Floats:
        """Log-probability (query, candidate) of the finished sentences; NaN for the others."""
        finished = (self.known == self.tree.lengths)[self.at]
        return np.where(finished, self.bounds(), np.nan)

    def live(self, slack: float) -> npt.NDArray[np.bool_]:
        """Which unfinished sentences (query, candidate) may still win, or come near it."""
        totals = self.totals()
        best = np.where(np.isnan(totals), -np.inf, totals).max(axis=1, keepdims=True)
        alive: npt.NDArray[np.bool_] = np.isnan(totals) & (self.bounds() >= best - slack)
        return alive

    def choices(self, live: npt.NDArray[np.bool_]) -> Iterator[tuple[Ints, bool]]:
        """Nodes to read next, fewer first, and whether there are no more.

        First the next token of each query's most promising sentence, of its two most promising,
        and so on; then the two next tokens of all that live, and so on.
        """
        rank = np.argsort(np.argsort(-np.where(live, self.bounds(), -np.inf), axis=1), axis=1)
        longest = int((self.tree.lengths - self.known).max())
        most = int(live.sum(axis=1).max())
        width, depth = 1, 1
        while True:
            sentences = self.at[live & (rank < width)]
            first = self.known[sentences] - 1
            columns = first[:, None] + np.arange(depth)
            last = width >= most and depth >= longest
            inside = columns < self.tree.lengths[sentences, None] - 1
            at = np.clip(columns, 0, self.tree.nodes.shape[1] - 1)
            nodes = np.where(columns >= 0, self.tree.nodes[sentences[:, None], at], 0)
            yield np.unique(nodes[inside]), last
            if width < most:
                width *= 2
            else:
                depth += 1


def _read(reading: Reading, nodes: Ints) -> None:
    """Read those of ``nodes``, and only those, that are not read and that something follows."""
    nodes = np.unique(nodes)
    inner = np.diff(reading.tree.first_child)[nodes] > 0
    nodes = nodes[inner]
    reading.read(nodes[~reading.is_read(nodes)])


def _shared(tree: Tree, size: int) -> Ints:
    """Inner nodes, the root among them, that all candidates of a query or two queries share."""
    per_query = len(tree.lengths) // size
    query = np.arange(len(tree.lengths))[:, None] // per_query
    pairs = (tree.nodes * size + query)[tree.nodes > 0]
    keys, counts = np.unique(pairs, return_counts=True)
    nodes = keys // size
    queries_of = np.bincount(nodes, minlength=len(tree.ids))
    whole = np.unique(nodes[counts == per_query])
    shared = queries_of > 1
    shared[whole] = True
    shared[0] = True
    inner: Ints = np.flatnonzero(shared & (np.diff(tree.first_child) > 0))
    return inner
