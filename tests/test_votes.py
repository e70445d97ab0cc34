"""The vote of the variants of an item: answers that the tests write down, and runs of baselines."""

import math
from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.analysis.votes import right_counts
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.counts import Prepared
from consilience.metrics.definitions import voted
from consilience.metrics.measure import measure
from consilience.metrics.registry import METRICS, Grid
from test_comparison_tables import VARIED, run_of
from test_metrics import make_suite
from test_metrics import table as answers_table

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


def test_how_many_variants_are_right_by_hand():
    """Of three variants 2, 3, 2 and 1 are right; then one of four items lacks an answer."""
    suite = make_suite()
    curve = right_counts([Prepared(VARIED, suite)], suite, "strict")
    assert curve["k"].to_list() == [1, 2, 3]
    assert curve["at_least"].to_list() == pytest.approx([1, 3 / 4, 1 / 4])
    # C(c, k) / C(3, k): the means of 2/3, 1, 2/3, 1/3, of 1/3, 1, 1/3, 0, and of 0, 1, 0, 0.
    assert curve["all_of_k"].to_list() == pytest.approx([2 / 3, 5 / 12, 1 / 4])
    lacking = run_of(["o", None, "o"], "aaa", "bbo", "oab")
    curve = right_counts([Prepared(lacking, suite)], suite, "strict")
    assert curve["n"][0] == 3 and curve["at_least"].to_list() == pytest.approx([1, 2 / 3, 1 / 3])
    numbers = measure(VARIED, suite, "strict").filter(group="R", subset="all")
    known = dict(numbers.select("metric", "value").iter_rows())
    assert known["mean_accuracy"] == 8 / 12 and known["consistent_accuracy"] == 1 / 4


def test_means_of_relations_that_are_all_wrong_have_no_interval():
    """Three relations are no three independent items, of which 0 to 70.8 % may be right."""
    numbers, names = [{"right": ItemNumbers.mean(np.zeros(3))}], np.array(list("abc"), object)
    for are_means, expected in ((True, [np.nan] * 2), (False, [0, 1 - 0.025 ** (1 / 3)])):
        of = item_estimates(numbers, names, 0, are_means=are_means)["right"]
        np.testing.assert_allclose([of.low, of.high], expected)


def test_the_probability_that_all_of_k_are_right_has_no_bias():
    """600 items, right with a probability p of Beta(2, 2): the mean of p^2 is 0.3.

    The square of the share of right ones is on average 0.3 + E[p (1 - p)] / 3 = 0.367.
    """
    generator, suite = np.random.default_rng(1), make_suite()
    right = generator.random((600, 3)) < generator.beta(2, 2, 600)[:, None]
    rows = [(str(at), f"s{at}", "o", ["oa"[not one] for one in of]) for at, of in enumerate(right)]
    curve = right_counts([Prepared(answers_table(rows), suite)], suite, "strict")
    assert curve["all_of_k"][1] == pytest.approx(0.3, abs=0.03)
    assert curve["all_low"][1] < 0.3 < curve["all_high"][1]
    assert (right.mean(axis=1) ** 2).mean() > 0.34


def test_the_consistency_rate_of_score_is_pooled_consistency():
    """SCORE divides the equal pairs of all items by all pairs: 1, 3, 1 and 0 of 3 each."""
    answers = ["ooa", "aaa", "bbo", "oab"]
    pairs = [one == two for of in answers for one, two in combinations(of, 2)]
    numbers = measure(run_of(*answers), make_suite(), "strict")
    rate = numbers.filter(metric="consistency", group="MICRO", subset="all")["value"].item()
    assert rate == sum(pairs) / len(pairs) == 5 / 12
