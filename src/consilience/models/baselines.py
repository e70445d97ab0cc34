"""Baselines: models without weights, to compare the numbers of a real one with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from consilience.core.errors import ConsilienceError, did_you_mean
from consilience.types import Candidates, Query, Scores

CELLS = 4_000_000
"""Scores that are held in memory at once, unless one query has more."""

Choose = Callable[[Query, Candidates], int]


def majority(query: Query, candidates: Candidates) -> int:
    """The most frequent object of the relation; of equally frequent ones the first.

    The paper's baseline (Section 5.1), perfectly consistent by construction.
    """
    return max(range(len(candidates.words)), key=candidates.counts.__getitem__)


def oracle(query: Query, candidates: Candidates) -> int:
    """The gold object."""
    return candidates.words.index(query.gold)


def constant(query: Query, candidates: Candidates) -> int:
    """The first object of the relation for every query."""
    return 0


def random_choice(query: Query, candidates: Candidates, seed: int = 0) -> int:
    """A uniformly random candidate; the same one for the same query and seed."""
    key = f"{seed}\t{query.pattern.text}\t{query.subject}"
    return random.Random(key).randrange(len(candidates.words))


BASELINES: dict[str, Choose] = {
    "majority": majority,
    "random": random_choice,
    "oracle": oracle,
    "constant": constant,
}


class Baseline:
    """Puts all probability on one candidate: the one at the position that ``choose`` returns."""

    def __init__(self, choose: Choose, identity: dict[str, object]) -> None:
        self.choose = choose
        self.identity = identity
        self.notes: list[str] = []

    def score(
        self, queries: Sequence[Query], candidates: Candidates | None, *, every: bool = True
    ) -> Iterator[Scores]:
        """Log-probability 0 for the chosen candidate, minus infinity for all others."""
        if candidates is None:
            raise ConsilienceError(
                "a baseline has no vocabulary", todo="Ask it with --candidates objects."
            )
        width = len(candidates.words)
        step = max(1, CELLS // width)
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            chosen = [self.choose(query, candidates) for query in part]
            logprob = np.full((len(part), width), -np.inf)
            logprob[np.arange(len(part)), chosen] = 0.0
            yield Scores(start + np.arange(len(part)), candidates.words, logprob)


def load_baseline(name: str, seed: int) -> Baseline:
    """The baseline of that name; an unknown name is an error."""
    if name not in BASELINES:
        raise ConsilienceError(
            f"no baseline '{name}'",
            expected=", ".join(f"baseline:{known}" for known in BASELINES),
            todo=did_you_mean(name, list(BASELINES)),
        )
    identity: dict[str, object] = {"model": f"baseline:{name}", "kind": "baseline"}
    if name == "random":
        identity["seed"] = seed
        return Baseline(partial(random_choice, seed=seed), identity)
    return Baseline(BASELINES[name], identity)
