"""The vote of the variants of an item: answers that the tests write down."""

import math

import numpy as np

from consilience.metrics.registry import METRICS
from grids import grid_of

A, B, C, NO = 0, 1, 2, -1
ANSWERS = np.array([[A, A, B], [B, A, A], [A, B, C], [NO, B, A], [NO, NO, NO]])
GOLDS = np.array([A, B, C, A, A])
SURE = np.log([[0.5, 0.5, 0.9], [0.5] * 3, [0.4, 0.5, 0.6], [0.9, 0.5, 0.6], [0.5] * 3])


def test_the_vote_and_its_ties_by_hand():
    """Item 1: a by two votes, item 2: a, wrong. Items 3 and 4 are ties: the most probable answer.

    Without log-probabilities the first variant decides. A text that is no option has no vote.
    """
    for logprob, wins in ((SURE, [1, 0, 1, 1, 0]), (np.full((5, 3), math.nan), [1, 0, 0, 0, 0])):
        grid = grid_of(ANSWERS, GOLDS, logprob=logprob)
        tally = METRICS["vote_accuracy"].tally(grid)
        assert tally.scores[:, 0].tolist() == wins
        assert (tally.value, tally.n) == (sum(wins) / 5, 5)
