"""The vote of the variants of an item: answers that the tests write down, and runs of baselines."""

import math

import numpy as np
import pytest

import consilience as cs
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.definitions import voted
from consilience.metrics.registry import METRICS, Grid

A, B, C, NO = 0, 1, 2, -1
ANSWERS = np.array([[A, A, B], [B, A, A], [A, B, C], [NO, B, A], [NO, NO, NO]])
GOLDS = np.array([A, B, C, A, A])
SURE = np.log([[0.5, 0.5, 0.9], [0.5] * 3, [0.4, 0.5, 0.6], [0.9, 0.5, 0.6], [0.5] * 3])


def test_the_vote_and_its_ties_by_hand():
    """Item 1: a by two votes, item 2: a, wrong. Items 3 and 4 are ties: the most probable answer.

    Without log-probabilities the first variant decides. A text that is no option has no vote.
    """
    names = np.array(["q1", "q2", "q3", "q4", "q5"], dtype=object)
    for logprob, wins in ((SURE, [1, 0, 1, 1, 0]), (np.full((5, 3), math.nan), [1, 0, 0, 0, 0])):
        answers, golds = np.where(ANSWERS < 0, 3, ANSWERS), np.repeat(GOLDS[:, None], 3, axis=1)
        grid = Grid(answers, golds, None, names, np.arange(4), (3,), scores={"logprob": logprob})
        assert voted(grid).tolist() == wins
        tally = METRICS["vote_accuracy"].tally(grid)
        assert (tally.share().value, tally.n) == (sum(wins) / 5, 5)


def test_the_vote_of_questions(consilience, tmp_path):
    """The first option shown, in three rotations: each is right in a third, and all tie."""
    lines = [f"Q{at}?,right{at},a{at};b{at},g{at % 2}" for at in range(6)]
    text = "\n".join(["question,answer,distractors,group", *lines])
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    metrics = cs.evaluate(tmp_path / "own.csv", "baseline:first").metrics
    values = dict(metrics.filter(group="MICRO", subset="all")["metric", "value"].iter_rows())
    assert values["mean_accuracy"] == pytest.approx(1 / 3)
    assert values["vote_accuracy"] == values["accuracy"], "the first variant decides"


def test_means_of_relations_that_are_all_wrong_have_no_interval():
    """Three relations are no three independent items, of which 0 to 70.8 % may be right."""
    numbers, names = [{"right": ItemNumbers.mean(np.zeros(3))}], np.array(list("abc"), object)
    for are_means, expected in ((True, [np.nan] * 2), (False, [0, 1 - 0.025 ** (1 / 3)])):
        of = item_estimates(numbers, names, 0, are_means=are_means)["right"]
        np.testing.assert_allclose([of.low, of.high], expected)
