"""A judge: a question with two replies as its options. Kappa and position preference by hand."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import consilience as cs
from checks import output, refused
from consilience.analysis.judges import prediction_powered, rogan_gladen
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


@pytest.mark.parametrize(("judge", "preference", "exact", "kappa", "accuracy"), [
    # Both orders of each pair get the first one, or the last one. Of five pairs that all lean one
    # way the bound is .025^(1/5) = .478; of none of five 1 - .478.
    (first, 1, (0.4782, 1), 0, 3 / 5), (last, -1, (-1, -0.4782), 0, 2 / 5),
    # Replies of one length get the first place. Right are one, four and half of five: 5 of 10.
    # Answers a 5, b 5 and labels a 6, b 4: (5 - 5) / (10 - 5).
    (longer, 1 / 5, None, 0, None), ("baseline:oracle", 0, (-0.5218, 0.5218), 1, 1),
])  # fmt: skip
def test_numbers_by_hand_are_in_the_summary(pairs, judge, preference, exact, kappa, accuracy):
    """A preference without exception has an exact interval."""
    summary = cs.evaluate(pairs, judge, vary=[ORDER]).summary
    rows = {row.metric: row for row in summary.rows if row.kind == "whole"}
    assert rows["position_preference"].value == pytest.approx(preference)
    assert rows["label_kappa"].value == pytest.approx(kappa)
    assert accuracy is None or rows["accuracy"].value == pytest.approx(accuracy)
    interval = rows["position_preference"].low, rows["position_preference"].high
    assert exact is None or interval == pytest.approx(exact, abs=1e-4)


def test_a_template_of_ones_own_has_a_slot_for_each_reply(pairs):
    """They are filled as shown; two slots are not for three options."""
    text, seen = r"chat:{question}\n[A] {option_1}\n[B] {option_2}", list[str]()

    def judge(prompts):
        seen.extend(prompts)
        return ["A"] * len(prompts)

    result = cs.evaluate(pairs, judge, vary=[ORDER], template=text)
    assert f"Which?\n[A] ok\n[B] {LONG}" in seen and result.answers["label"][0] == "A"
    three = pl.DataFrame({"question": "?", "options": "a;b;c", "answer": "A"})
    one = cs.Questions.from_frame(three)
    refused("no {option_3} in the template", cs.evaluate, one, judge, template=text)


def test_the_page_has_a_card_of_the_preference(pairs, tmp_path):
    result = cs.evaluate(pairs, first, vary=[ORDER], out=tmp_path / "run")
    text = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Toward the option shown first; 0 is none." in text
    assert "changes answers" not in text, "order alone varies"


def test_without_orders_nothing_is_said_of_places(pairs):
    metrics = set(cs.evaluate(pairs, "baseline:first", vary=["labels=A,1"]).metrics["metric"])
    assert "label_kappa" in metrics and "position_preference" not in metrics
    facts = cs.evaluate("mini", "baseline:majority", limit=2)
    assert "label_kappa" not in facts.metrics["metric"]


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


# Rates that labels of people correct.

F, Y = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 0.0]), np.array([1, 1, 0, 0, 0.0])
"""What a judge says of ten items, and people of the first five."""


def test_corrected_rates_by_hand():
    """Of items that the judge gives the label, people do 2 of 3; of the others 0 of 2: 2/3 of 7/10.

    With four more items: slope (3 - 5 * 4 / 9) / (5 - 5^2 / 9) = .35, so 4/9 + .35 (9/14 - 5/9) =
    .475. The squares of residuals are 20/9 - .35 * 7/9 = 1.95, so the error is the root of 1.95 /
    63 + .35^2 * (9/14) (5/14) / 14 = .03296, and t of 8 degrees of freedom is 2.306.

    Sensitivity is 2/2, specificity 2/3: (.7 + 2/3 - 1) / (1 + 2/3 - 1).
    """
    assert prediction_powered(F, F[:5], Y) == pytest.approx((7 / 15, 0.0563, 0.8937), abs=1e-4)
    assert rogan_gladen(F, F[:5], Y) == pytest.approx((0.55, 0, 1))


def test_the_interval_of_rogan_and_gladen_by_hand():
    """p 300 of 1000, sensitivity 90 of 100, specificity 80 of 100: (.3 + .8 - 1) / .7.

    With z^2 = 3.8415: p' = 301.92 / 1003.84, 91/102, 81/102, so the middle is .138259; it moves by
    2 z^2 (.138259 * .096213 / 102 - .861741 * .163495 / 102) = -.00961, and reaches z times the
    root of .0014178 over .686275.
    """
    judged, people = np.repeat([1.0, 0], [300, 700]), np.repeat([1.0, 0], 100)
    of_labelled = np.repeat([1.0, 0, 1, 0], [90, 10, 20, 80])
    expected = (1 / 7, 0.02111, 0.23619)
    assert rogan_gladen(judged, of_labelled, people) == pytest.approx(expected, abs=1e-5)


def test_corrected_rates_at_their_ends():
    """All items labelled: people's rate. A judge at chance or below, or one label: no R-G."""
    people = np.array([1, 0, 0, 1, 1, 0, 0, 0.0])
    judged = np.array([1, 0, 0.5, 1, 0.5, 1, 0, 0.0])
    for of in (prediction_powered, rogan_gladen):
        value, low, high = of(judged, judged, people)
        assert value == pytest.approx(3 / 8) and 0 <= low < value < high <= 1
    for wrong in (1 - people, people * 0):
        assert np.isnan(rogan_gladen(wrong, wrong, people)).all()
        assert prediction_powered(wrong, wrong, people)[0] == pytest.approx(3 / 8)
    for same in (people * 0, people * 0 + 1):
        value, low, high = prediction_powered(judged, judged, same)
        assert value == same[0] and high - low > 0.3, "8 of 8 do not show that all are"
        assert np.isnan(rogan_gladen(judged, judged, same)).all()
    value, low, high = prediction_powered(judged, judged[:1], people[:1])
    assert (value, low, high) == (1, 0, 1)


def rows_of(judged, options, order=("AB", "BA")):
    """Rows of ``score``: the answers of each item in two orders; all have the first as gold."""
    return [
        {"item": item, "order": name, "options": [*shown], "gold": options(item)[0], "answer": said}
        for item, answers in judged.items()
        for name, shown, said in zip(order, (options(item), options(item)[::-1]), answers, strict=True)
    ]  # fmt: skip


def replies(item):
    return f"{item}, yes", f"{item}, no"


JUDGED = {"1": "AB", "2": "AA", "3": "BA", "4": ("A", "a tie"), "5": "BB"}
"""Of both orders the first reply gets 2, 1, 0, 1, 1; shown first: 1, 2, 1, 1, 0 of 2."""


def test_a_judge_of_replies_beside_people_by_hand(tmp_path, consilience):
    """The rates of the replies are those of their places; labels are texts or letters."""
    rows = rows_of(JUDGED, replies)
    labels = [("1", "A"), ("2", ""), ("3", "3, no"), ("4", "4, yes"), ("5", " B")]
    pl.DataFrame(labels, ("item", "gold"), orient="row").write_csv(tmp_path / "labels.csv")
    file = tmp_path / "rows.jsonl"
    file.write_bytes(pl.DataFrame(rows[::-1]).write_ndjson().encode())
    found = cs.analyze_judge(file, tmp_path / "labels.csv").tables["judge"]
    first, second, shown = found.to_dicts()
    assert [first["label"], second["label"], shown["label"]] == ["A", "B", "shown first"]
    assert (first["value"], second["value"]) == pytest.approx((0.5, 0.4)), "a tie is neither"
    assert shown["value"] == pytest.approx(0.5) and shown["corrected_value"] is None
    # Labelled are 1, 3, 4, 5 with A at 1, 4: sensitivity (1 + .5) / 2, specificity 1 - (0 + .5) / 2.
    assert (first["people_value"], first["sensitivity"], first["specificity"]) == (0.5, 0.75, 0.75)
    # f 1, 0, .5, .5 and y 1, 0, 1, 0: slope .5 / .5, and the means of f are .5.
    assert first["corrected_value"] == pytest.approx(0.5)
    text = output(consilience, "analyze", "judge", file, tmp_path / "labels.csv")
    assert "The judge chooses A in 50.0 %; corrected with 4 labels of people it is 50.0 %" in text
    text = output(consilience, "analyze", "judge", file)
    assert "The judge chooses the option shown first in 50.0 %." in text


def test_labels_are_counted_by_their_text(tmp_path):
    """Whatever the order of the options of an item, and whatever its group."""
    rows = rows_of({"1": "AB", "2": "BA", "3": "AB"}, lambda item: ("good", "bad"))
    others = rows_of({"1": "AB"}, lambda item: ("bad", "good"))
    rows = [row | {"group": "one"} for row in rows] + [row | {"group": "other"} for row in others]
    (tmp_path / "rows.jsonl").write_bytes(pl.DataFrame(rows).write_ndjson().encode())
    labels = pl.DataFrame({"item": ["1", "2"], "group": ["other", None], "label": ["good", "bad"]})
    labels.write_csv(tmp_path / "labels.csv")
    found = cs.analyze_judge(tmp_path / "rows.jsonl", tmp_path / "labels.csv").tables["judge"]
    of = {row["label"]: row for row in found.to_dicts()}
    assert of["good"]["value"] == pytest.approx(2 / 4) and of["bad"]["value"] == pytest.approx(0.5)
    assert of["good"]["people_value"] == 0.5 and of["good"]["sensitivity"] == 0


def test_labels_that_do_not_fit_are_refused(tmp_path):
    file, path = tmp_path / "rows.jsonl", tmp_path / "labels.csv"
    file.write_bytes(pl.DataFrame(rows_of(JUDGED, replies)).write_ndjson().encode())
    for text, found in (
        ("9,A", "the item '9'.*expected an item of the run"), ("1,C", "the gold 'C'.*A, B"),
        ("1,A\n1,B", "another label of the item '1'"), ("1,", "no labels"),
    ):  # fmt: skip
        path.write_text(f"item,gold\n{text}\n")
        refused(found, cs.analyze_judge, file, path)
    run = tmp_path / "facts"
    cs.evaluate("mini", "baseline:majority", limit=2, out=run)
    refused("no judge", cs.analyze_judge, run)


def test_the_same_reply_in_both_places_shows_the_favourite_place(pairs, tmp_path):
    """A judge that cannot tell them apart takes one by its place: here always the first."""
    same, seen = r"{question}\nA. {option_1}\nB. {option_1}", list[str]()

    def judge(prompts):
        seen.extend(prompts)
        return first(prompts)

    cs.evaluate(pairs, judge, vary=[ORDER], template=same, out=tmp_path / "run")
    assert all(one[0][1] == one[1][1] for one in map(options_in, seen))
    assert len({*seen}) == 4, "each reply is shown"
    found = cs.analyze_judge(tmp_path / "run").tables["judge"].to_dicts()
    # 5 of 5 items: 1 - (1 - .025)^(1/5) lacks in the exact interval.
    row = found[-1]
    assert (row["value"], row["low"]) == pytest.approx((1, 0.025 ** (1 / 5)))
    lacks = "{question} {option_1}"
    refused("no {option_2} in the template", cs.evaluate, pairs, judge, template=lacks)


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
