"""``plan``: how wide the intervals of a larger run are, from the answers of a pilot."""

import numpy as np
import pytest

import consilience as cs
from checks import output, refused
from consilience.results.planning import PLANNED, Pilot, number_of, plans_of
from test_phrasings import RIGHT, asked_in, write_answers
from test_phrasings import drawn as answers_of


def test_the_variance_by_hand():
    """Of 4 questions in 4 templates (``test_phrasings``) 11/768 over questions, of which 1.0625/144
    is the rest, and 11/288 over templates. In 8 x 10 the first have a half, the rest 16/80, the
    last 4/10.
    """
    rest = 1.0625 / 144
    found = number_of({"": asked_in(1 - np.array(RIGHT))}, "mean_accuracy")
    number = Pilot(found, {}, "mean_accuracy", 0).planned(8, 10)
    ((of_levels, apart, levels),) = number.phrasings.parts
    assert (apart, of_levels - apart) == pytest.approx((rest * 16 / 80, 11 / 288 * 4 / 10))
    assert number.error**2 == pytest.approx((11 / 768 - rest) / 2 + rest * 16 / 80)
    assert (levels, number.n_clusters, number.value) == (10, 8, 9 / 16)


@pytest.mark.parametrize("metric", PLANNED)
def test_plans_have_the_error_of_the_pilot_and_no_question_more_than_they_need(metric):
    grids = {"": asked_in(answers_of(1, effect=0.5))}
    pilot, number = Pilot.of(grids, metric, 6), number_of(grids, metric)
    same, drawn = pilot.planned(30, 6), pilot.planned(30, 6, 3)
    assert drawn.error > same.error == pytest.approx(number.error)
    assert same.phrasings.parts[0] == pytest.approx(number.phrasings.parts[0])
    assert drawn.phrasings.variance == pytest.approx(number.phrasings.variance)
    plans = plans_of([pilot], 0.06, 1, is_drawn=False)
    for row in plans:
        size = int(row["design"].partition(":")[2] or 0)
        fewer = pilot.half_width(row["questions"] - 1, row["phrasings"], size)
        assert row[metric] <= 0.06 < fewer
    (best,) = (row for row in plans if row["suggested"])
    others = [row["queries"] for row in plans if row["phrasings"] < best["phrasings"]]
    assert best["queries"] <= 1.1 * min(row["queries"] for row in plans) < min(others, default=1e9)


@pytest.fixture
def write(tmp_path):
    return lambda answers: write_answers(tmp_path / "pilot.csv", answers, "ab")


def test_what_the_command_says(write, consilience):
    file = str(write(answers_of(1, 30, 6, 0.5)))
    said = " ".join(output(consilience, "plan", file, "--target", "8").split())
    plans = cs.plan_run(file, target=8).tables["plans"]
    (best,) = plans.filter("suggested").to_dicts()
    assert (
        f"Suggested: {best['questions']:,} questions, each in {best['variants']} variants" in said
    )
    asked = f"--limit {-(-best['questions'] // 2)} --design {best['design']}"
    assert f"{asked}, and --vary template with {best['phrasings']} levels." in said
    assert "The intervals are over questions and templates." in said
    assert {*plans["design"]} == {"full", "random:2", "random:3", "random:5"}  # of 6 variants
    few = output(consilience, "plan", str(write(answers_of(1, 30, 3))), "--target", "5")
    assert "only: the pilot has fewer than 4 levels of paraphrase or template" in " ".join(
        few.split()
    )


@pytest.mark.parametrize(("answers", "message"), [
    ([[0] * 5] * 30, "mean accuracy does not vary between the questions"),
    ([[0] * 5, [1] * 5] * 15, "consistency does not vary between the questions"),
    ([[0, 1, 0, 1, 1], [1] * 5], "does not vary.*a pilot of 5 questions or more"),
    (answers_of(1, 30, 5, 1.0), "no number of questions in up to 100 phrasings reaches ± 1 points"),
])  # fmt: skip
def test_pilots_that_say_nothing_are_refused(answers, message, write):
    refused(message, cs.plan_run, write(answers), target=1)


def test_runs_of_facts_are_refused_and_drawn_variants_are_planned_as_such(tmp_path):
    run = cs.evaluate("mini", "baseline:random", limit=4, out=tmp_path / "run")
    refused("a run of facts; expected a run of questions", cs.plan_run, run.run.path)
    drawn = {"design": "random:3", "vary": ["order=rotations", "labels=A,1"], "limit": 20}
    run = cs.evaluate("mini-questions", "baseline:random", out=tmp_path / "drawn", **drawn)
    assert {*cs.plan_run(run.run.path, target=5).tables["plans"]["design"]} == {
        "random:2",
        "random:3",
    }
