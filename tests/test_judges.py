"""A judge: a question with two replies as its options. Kappa and position preference by hand."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from consilience.metrics.registry import METRICS
from grids import grid_of, places_of, value

LONG = "a longer reply"
ROWS = [
    ("one", LONG, "ok", "A"), ("two", "ok", LONG, "A"), ("three", LONG, "ok", "B"),
    ("four", "ok", LONG, "B"), ("five", "same", "size", "A"),
]  # fmt: skip
COLUMNS = {"context": "prompt", "options": "reply_1+reply_2", "answer": "human"}
ORDER = "order=rotations"


@pytest.fixture(scope="module")
def pairs():
    """Five pairs: the longer reply is a, b, a, b, none; people prefer a, a, b, b, a."""
    frame = pl.DataFrame(ROWS, ("prompt", "reply_1", "reply_2", "human"), orient="row")
    frame = frame.with_columns(question=pl.lit("Which?"))
    return cs.Questions.from_frame(frame, name="pairs", columns=COLUMNS)


def options_in(prompt):
    return re.findall(r"^([AB])\. (.*)$", prompt, re.MULTILINE)


def first(prompts):
    return [options_in(prompt)[0][0] for prompt in prompts]


def last(prompts):
    return [options_in(prompt)[1][0] for prompt in prompts]


def longer(prompts):
    return [max(options_in(prompt), key=lambda one: len(one[1]))[0] for prompt in prompts]


@pytest.mark.parametrize(("judge", "expected"), [
    # Both orders of each pair get the first one, or the last one.
    (first, {"position_preference": 1, "label_kappa": 0, "accuracy": 3 / 5}),
    (last, {"position_preference": -1, "label_kappa": 0}),
    # Replies of one length get the first place. Right are one, four and half of five: 5 of 10.
    # Answers a 5, b 5 and labels a 6, b 4: (5 - 5) / (10 - 5).
    (longer, {"position_preference": 1 / 5, "label_kappa": 0}),
    ("baseline:oracle", {"position_preference": 0, "label_kappa": 1, "accuracy": 1}),
])  # fmt: skip
def test_numbers_by_hand_are_in_the_summary(pairs, judge, expected):
    values = {row.metric: row.value for row in cs.evaluate(pairs, judge, vary=[ORDER]).summary.rows
              if row.kind == "whole"}  # fmt: skip
    assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_a_template_of_ones_own_has_a_slot_for_each_reply(pairs):
    """They are filled as shown; two slots are not for three options."""
    text, seen = r"chat:{question}\n[A] {option_1}\n[B] {option_2}", list[str]()

    def judge(prompts):
        seen.extend(prompts)
        return ["A"] * len(prompts)

    result = cs.evaluate(pairs, judge, vary=[ORDER], template=text)
    assert f"Which?\n[A] ok\n[B] {LONG}" in seen and result.answers["label"][0] == "A"
    one = cs.Questions.from_frame(
        pl.DataFrame({"question": "?", "options": "a;b;c", "answer": "A"})
    )
    refused("no {option_3} in the template", cs.evaluate, one, judge, template=text)


def test_the_page_says_where_the_preference_goes(pairs, tmp_path):
    def judge(prompts):
        return first(prompts)

    result = cs.evaluate(pairs, judge, vary=[ORDER], out=tmp_path / "run")
    text = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert (
        "It prefers the reply that is shown first: its position preference is 100.0, from -100"
        in text
    )


def test_without_orders_nothing_is_said_of_places(pairs):
    metrics = set(cs.evaluate(pairs, "baseline:first", vary=["labels=A,1"]).metrics["metric"])
    assert "label_kappa" in metrics and "position_preference" not in metrics
    assert not {"label_kappa"} & set(
        cs.evaluate("mini", "baseline:majority", limit=2).metrics["metric"]
    )


def test_kappa_of_unequal_margins_by_hand():
    """Answers in one variant: 8 of 10 right; 7 labels are a, answers 6 + 1, so p_e = .58.

    Kappa is (.8 - .58) / .42.
    """
    golds = np.array([[0]] * 7 + [[1]] * 3)
    answers = golds.copy()
    answers[[0, 9]] = 1 - golds[[0, 9]]
    grid = grid_of(answers, golds, places=places_of([2] * 10, ["AB"]))
    assert value("label_kappa", grid) == pytest.approx(0.22 / 0.42)


def test_kappa_is_of_shown_positions_by_hand():
    """Two questions in two orders: golds 0 and 1 are shown at 0, 1 and 1, 0, each place twice.

    The answers 0, 0 and 1, 0 are shown at 0, 1, 1, 1: 3 of 4 right, p_e = (1 * 2 + 3 * 2) / 16.
    """
    places = places_of([2, 2], ["AB", "BA"])
    grid = grid_of([[0, 0], [1, 0]], [0, 1], places=places, orders=np.array([[0, 1]]))
    assert value("label_kappa", grid) == pytest.approx((3 / 4 - 1 / 2) / (1 - 1 / 2))
    # Of other questions' places 1 * 1 and 0 * 1: by chance .5 at (0, 1) and (1, 0) of these pairs.
    tally = METRICS["chance_consistency"].tally(grid)
    # Answers at 0, 1 | 1, 1: pairs of two questions (0, 1) 2, (1, 1) 2 of 4, so Q(0, 1) = 1/4.
    assert tally.value == pytest.approx(1 / 4 + 1 / 4)


def test_position_preference_is_a_mean_over_items():
    """One question in two orders prefers the first place; one in four: 1 of its 6 pairs does."""
    orders = ["AB", "BA", "AB", "AB"]
    pairs = np.array([[0, 1], [1, 2], [1, 3]])
    asked = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
    answers = [[0, 1, -1, -1], [0, 1, 1, 1]]
    grid = grid_of(answers, 0, asked=asked, places=places_of([2, 2], orders), orders=pairs)
    assert value("position_preference", grid) == pytest.approx((1 + 1 / 3) / 2)
    none = replace(grid, answers=np.full((2, 4), -1))
    assert math.isnan(value("position_preference", none)), "nothing says where it leans"


def test_a_new_suite_is_checked_asked_and_gated(consilience, tmp_path):
    folder, run = tmp_path / "mine", tmp_path / "run"
    out = output(consilience, "suite", "new", folder, "--kind", "judge")
    assert "README.md, questions.csv" in out
    output(consilience, "suite", "check", folder)
    asked = ("--model", "baseline:first", "--vary", ORDER)
    output(consilience, "probe", "--suite", folder, *asked, "--out", run)
    rule = ("--rule", "position_preference <= 10 %")
    assert "fail" in consilience("gate", run, *rule)[1]
    refused("the kind 'judges'.* 'judge'", cs.new_suite, tmp_path / "x", kind="judges")


# The vote of the variants of an item: answers that the tests write down.


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
