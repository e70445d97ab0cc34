"""The vote of the variants of an item: answers that the tests write down, and runs of baselines."""

import json
import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.analysis.votes import Ballots, _left_out, right_counts, ways_of
from consilience.metrics.components import ItemNumbers, item_estimates
from consilience.metrics.counts import Prepared
from consilience.metrics.measure import measure
from pair_builders import write_pairs
from test_comparison_tables import VARIED, run_of
from test_metrics import make_suite
from test_metrics import table as answers_table

A, B, C, NO = 0, 1, 2, -1
ANSWERS = np.array([[A, A, B], [B, A, A], [A, B, C], [NO, B, A], [NO, NO, NO]])
GOLDS = np.array([A, B, C, A, A])
SURE = np.log([[0.5, 0.5, 0.9], [0.5] * 3, [0.4, 0.5, 0.6], [0.9, 0.5, 0.6], [0.5] * 3])


def ballots(logprob=SURE):
    right = GOLDS[:, None] == ANSWERS
    names = np.array(["q1", "q2", "q3", "q4", "q5"], dtype=object)
    return Ballots(ANSWERS, right, np.ones_like(right), logprob, names)


def test_the_vote_and_its_ties_by_hand():
    """Item 1: a by two votes, item 2: a, wrong. Items 3 and 4 are ties: the most probable answer.

    Without log-probabilities the first variant decides. A text that is no option has no vote.
    """
    every = np.ones((3, 1), dtype=bool)
    for logprob, wins in ((SURE, [1, 0, 1, 1, 0]), (np.full((5, 3), math.nan), [1, 0, 0, 0, 0])):
        right, tied = ballots(logprob).vote(every)
        assert right[:, 0].tolist() == wins
        assert tied[:, 0].tolist() == [False, False, True, True, False]


def test_votes_of_fewer_variants_by_hand():
    """Item 1 is right in the first two variants; in the others a ties with a surer b."""
    of = ballots()
    assert of.accuracy(1, 0) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 0])
    # Item 2: b ties with a twice, as probable, and is first; item 4: a alone, or the surer one.
    assert of.accuracy(2, 0) == pytest.approx([1 / 3, 2 / 3, 2 / 3, 2 / 3, 0])
    assert of.accuracy(3, 0).tolist() == of.accuracy(7, 0).tolist() == [1, 0, 1, 1, 0]


def test_fewer_variants_are_drawn_from_those_that_an_item_has():
    """Both are right in two of three; the second has three variants only, of which a is first."""
    answers = np.array([[A, A, B, A, A, B], [A, A, B, NO, NO, NO], [NO] * 6])
    subjects = np.array(["q1", "q2", "q3"], object)
    of = Ballots(answers, answers == A, answers >= 0, np.zeros(answers.shape), subjects)
    for size, first in ((1, 4 / 6), (2, 12 / 15), (3, 16 / 20)):
        found = of.accuracy(size, 0)
        assert found[:2] == pytest.approx([first, [2 / 3, 1, 1][size - 1]]) and np.isnan(found[2])


def test_a_variant_is_left_out_only_where_others_vote():
    """The second question has one phrasing, so nobody votes in its place."""
    answers = np.array([[A, A], [A, NO]])
    subjects = np.array(["q1", "q2"], object)
    of = Ballots(answers, answers == A, answers >= 0, np.zeros(answers.shape), subjects)
    rows = _left_out(("", "paraphrase=1", "paraphrase=2"), [of])
    assert [(row["accuracy"], row["others"], row["difference"]) for row in rows] == [(1, 1, 0)] * 2


def test_a_drawn_expectation_is_near_the_exact_one():
    """Seven of 13 variants are right: three or more of five drawn are by the hypergeometric law."""
    answers = np.array([[A] * 7 + [B] * 6])
    of = Ballots(answers, answers == A, answers >= 0, np.zeros((1, 13)), np.array(["q"], object))
    exact = sum(math.comb(7, k) * math.comb(6, 5 - k) for k in (3, 4, 5)) / math.comb(13, 5)
    assert math.comb(13, 5) > 1000 and of.accuracy(5, 1) == pytest.approx([exact], abs=0.05)


def test_the_best_variant_is_chosen_on_all_items_or_on_others():
    """The variants are right in 2, 1 and 2 of 5 items: the first one.

    Of two subjects each is the other's half: item 3 gets the variant that is right in items 1 and
    2, the first; they get that of item 3, the last.
    """
    of = ballots()
    assert of.right.sum(axis=0).tolist() == [2, 1, 2]
    assert of.best(0, others=False).tolist() == [1, 1, 0, 0, 0]
    right = np.array([[True, False, True], [True, True, False], [False, False, True]])
    assert of_right(right, ["q1", "q1", "q2"]).best(0, others=True).tolist() == [1, 0, 0]


def of_right(right, subjects=None):
    names = np.array(subjects or list(map(str, range(len(right)))), dtype=object)
    return Ballots(np.where(right, A, B), right, np.ones_like(right), np.zeros(right.shape), names)


@pytest.mark.parametrize(("chances", "items", "low", "high"), [
    ([0.2] * 4, 10, 0.17, 0.23), ([0.5] * 9, 30, 0.47, 0.53),  # equal: no better than the mean
    ([0.7] + [0.5] * 8, 10, 0.53, 0.7), ([0.7] + [0.5] * 8, 30, 0.58, 0.7),
    ([0.7] + [0.5] * 8, 100, 0.66, 0.71),
])  # fmt: skip
def test_the_best_variant_of_a_half_is_neither_too_good_nor_absurd(chances, items, low, high):
    """Choosing on all but one item gives a standard deviation of .25 with ten items, not .13."""
    random = np.random.default_rng(0)
    draws = [random.random((items, len(chances))) < chances for _ in range(60)]
    found = [of_right(right).best(0, others=True).mean() for right in draws]
    assert low < np.mean(found) < high and np.std(found) < 0.17


@pytest.mark.parametrize(("most", "sizes"), [
    (2, [2]), (5, [3, 5]), (6, [3, 5, 6]), (24, [5, 9, 13, 17, 21, 24]),
])  # fmt: skip
def test_the_numbers_of_variants(most, sizes):
    assert [size for way, size in ways_of(most) if way == "vote"] == sizes


def test_questions(consilience, tmp_path):
    """The first option shown, in three rotations: each is right in a third, and all tie."""
    lines = [f"Q{at}?,right{at},a{at};b{at},g{at % 2}" for at in range(6)]
    text = "\n".join(["question,answer,distractors,group", *lines])
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    of = ("--suite", "own.csv", "--model")
    output(consilience, "probe", *of, "baseline:first", "--out", "first")
    document = json.loads(output(consilience, "analyze", "vote", "first", "--json"))
    single, *_, vote = document["votes"]
    assert (single["answer"], vote["answer"], vote["variants"]) == ("single variant", "vote", 3)
    assert single["accuracy"] == pytest.approx(1 / 3) and vote["n"] == document["tied"] == 6
    first = document["left_out"][0]
    assert vote["accuracy"] == first["accuracy"], "the first variant decides"
    assert len(document["verdict"]) == 1, "six items are too few to choose a variant"
    best = [row for row in document["votes"] if row["answer"].startswith("best")]
    assert {row[name] for row in best for name in ("p", "difference_low")} == {None}
    change = 100 * (vote["accuracy"] - 1 / 3)
    assert document["verdict"][0] == (
        f"The vote of 3 variants is right in {100 * vote['accuracy']:.1f} %, {change:+.1f} points "
        f"over the mean of single variants (p = {vote['p']:.3f}, not a clear difference), at 3 "
        "times the cost."
    )
    assert "there the first variant decides" in output(consilience, "analyze", "vote", "first")
    output(consilience, "probe", *of, "baseline:majority", "--vary", "order=given,reversed",
           "--generate", "--out", "written")  # fmt: skip
    written = cs.analyze_vote("written")
    assert written.tables["votes"]["n"].to_list() == [6] * 4, "of written texts, too"
    output(consilience, "probe", *of, "baseline:first", "--vary", "paraphrase=1", "--out", "one")
    assert "1 variant to vote" in refusal(consilience, "analyze", "vote", "one")


def test_sentence_pairs_and_seeds(consilience, tmp_path):
    """Three forms, of two seeds: labels drawn at random; a single form is right on average."""
    data = write_pairs(tmp_path / "pairs.jsonl")
    for seed in (0, 1):
        output(consilience, "probe", "--model", "baseline:random", "--suite", "mrpc", "--data", data,
               "--seed", seed, "--out", f"run/seed-{seed}")  # fmt: skip
    analysis = cs.analyze_vote("run")
    single, vote = (analysis.tables["votes"]["accuracy"][at] for at in (0, -1))
    left_out = analysis.tables["left_out"]
    assert single == pytest.approx(left_out["accuracy"].mean()) and 0 <= vote <= 1
    assert analysis.notes == ["means over 2 seeds"] and left_out["variant"][0] == "original"


def test_facts_are_means_over_relations(tmp_path):
    """The accuracy of single variants is the mean of the patterns, of relations with one answer."""
    groups = ["capital", "currency", "borders"]
    result = cs.evaluate("mini", "baseline:random", groups=groups, limit=6, out=tmp_path / "run")
    votes = cs.analyze_vote(tmp_path / "run").tables["votes"]
    relations = cs.analyze_patterns(result).tables["patterns"].group_by("group")
    by_group = dict(relations.agg(accuracy=pl.col("accuracy").mean()).iter_rows())
    known = [by_group["capital"], by_group["currency"]]
    assert votes["accuracy"][0] == pytest.approx(np.mean(known)) and set(votes["n"]) == {2}
    assert votes["p"][:3].is_nan().to_list() == [True, False, False], "relations are independent"
    result = cs.evaluate("mini", "baseline:random", groups=["capital", "author"])
    assert (
        "best single variant, chosen on one half of the facts" in cs.analyze_vote(result).verdict[1]
    )


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
