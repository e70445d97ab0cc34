"""The numbers of sentence pairs, worked out by hand: metrics, comparisons, accuracy by form."""

import math

import numpy as np
import pytest

from checks import refused
from conftest import cases, number
from consilience import measure
from consilience.core.schemas import METRICS_SCHEMA
from consilience.metrics import differences
from consilience.metrics.differences import FORM_CHANGE_SCHEMA
from consilience.metrics.measure import CheckedAnswers
from consilience.report.cautions import Known, cautions
from pair_builders import (
    FORMS,
    answers_of,
    comparable,
    compared,
    measured,
    numbered,
    row_of,
    suite_of,
    table,
)

HAND = numbered("yyynnnny", "yynnynny", "ynnnnnyy", "yyynynnn")


def form_changes(run):
    return differences.form_changes(run, suite_of(run), "strict")


@pytest.mark.parametrize("case", cases("pair_numbers"), ids=lambda case: case["case"])
def test_numbers_by_hand(case):
    answers = answers_of(case["golds"], *case["answers"])
    metrics = measured(answers, positive=case.get("positive", ""))
    assert dict(metrics.schema) == METRICS_SCHEMA
    for subset, values in case["expected"].items():
        for name, value in values.items():
            metric, _, column = name.partition(" ")
            measured_value = row_of(metrics, metric, subset)[column or "value"]
            expected = pytest.approx(number(value), rel=1e-12, nan_ok=True)
            assert measured_value == expected, (subset, name)
    if "-" not in "".join(case["answers"]):
        assert set(metrics["n_excluded"]) == {0}
    for row, counts in case.get("counts", {}).items():
        assert [row_of(metrics, *row.split())[name] for name in ("n", "n_excluded")] == counts
    assert not set(case.get("absent", ())) & set(metrics["metric"])
    if "notes" in case:
        suite = suite_of(answers)
        metrics = measure(answers, suite, "strict")
        notes = cautions(
            Known(suite=suite, answers=CheckedAnswers(answers, suite), metrics=metrics)
        )
        notes = [note for note in notes if "comes out too low" not in note]
        assert len(notes) == len(case["notes"]), notes
        assert all(part in note for part, note in zip(case["notes"], notes, strict=True)), notes


def test_a_form_that_one_run_lacks_is_left_out():
    two = table([(item, gold, said[:2]) for item, gold, said in HAND], FORMS[:2])
    row = row_of(compared(table(HAND), two), "consistency", "signal")
    assert (row["n"], row["n_excluded"]) == (0, 8)
    assert math.isnan(row["difference"])


def test_a_form_or_group_that_the_suite_does_not_have_is_refused():
    suite = suite_of(table(HAND))
    for other in (table(HAND, ("original", "reverse", "dash")), table(HAND, group="u")):
        refused("no variant 'dash'|has no .* 'u'", measure, other, suite, "strict")


SAID = "yn" * 15


def test_a_clear_difference():
    """The second keeps all 30 answers, the first none; accuracy on the original is the same."""
    first, second = (answers_of(SAID, SAID, letters) for letters in ("ny" * 15, SAID))
    comparison = compared(first, second)
    row = row_of(comparison, "consistency", "reverse")
    assert (row["first_value"], row["second_value"], row["difference"]) == (0, 1, 1)
    assert row["p"] == 1 / 10_000, "none of 9999 ways to swap items is as far apart"
    assert row["n"] == 30
    kappa = row_of(comparison, "corrected_consistency", "reverse")
    assert kappa["difference"] == pytest.approx(1 + 30 / 28), "of two items 15 * 30 / 30 * 29"
    accuracy = row_of(comparison, "accuracy")
    assert (accuracy["difference"], accuracy["p"]) == (0, 1)
    back = row_of(compared(second, first), "consistency", "reverse")
    assert (back["difference"], back["p"]) == (-1, row["p"])


def test_the_p_of_a_small_difference():
    """3 of 20 items are kept by the second only: 2 of the 8 ways to swap them are as far apart."""
    said = SAID[:20]
    first, second = (answers_of(said, said, start + said[4:]) for start in ("nyny", "nnyn"))
    row = row_of(compared(first, second), "consistency", "reverse")
    back = row_of(compared(second, first), "consistency", "reverse")
    assert (back["low"], back["high"]) == (pytest.approx(-row["high"]), pytest.approx(-row["low"]))
    assert row["low"] < row["difference"] < row["high"]
    assert (row["first_value"], row["second_value"]) == (16 / 20, 19 / 20)
    assert (row["difference"], row["p"]) == (pytest.approx(3 / 20), pytest.approx(2 / 8, abs=0.02))


def test_p_is_adjusted_over_the_forms_of_one_metric():
    """The smaller p of two forms is doubled, the other not below that; the original's is not."""
    said = SAID[:20]
    first = answers_of(said, said, "ny" * 10, "nyny" + said[4:])
    second = answers_of(said, said, said, "nnyn" + said[4:])
    comparison = compared(first, second)
    small, large = (row_of(comparison, "consistency", form) for form in FORMS[1:])
    assert small["p"] < large["p"] < 1
    assert (small["p_holm"], large["p_holm"]) == (2 * small["p"], large["p"])
    assert math.isnan(row_of(comparison, "accuracy")["p_holm"])
    tested = comparison.filter(comparison["p"].is_not_nan())
    assert tested["p_holm"].is_nan().sum() == (tested["kind"] == "whole").sum()


def test_opposite_labels_are_no_difference_of_kappa():
    """Most often no, or most often yes: kappa .63 and .40 of 60 items each is within chance.

    Permuting items between the models gives p = .036, and .0001 for the agreement by chance.
    """

    def of(counts):
        answers = [pair for pair, count in counts.items() for _ in range(count)]
        np.random.default_rng(len(answers) + counts["no", "no"]).shuffle(answers)
        return table([(str(n), "no", pair) for n, pair in enumerate(answers)], FORMS[:2])

    first = of({("no", "no"): 52, ("yes", "yes"): 4, ("no", "yes"): 2, ("yes", "no"): 2})
    second = of({("no", "no"): 3, ("yes", "yes"): 50, ("no", "yes"): 3, ("yes", "no"): 4})
    comparison = compared(first, second)
    kappa = row_of(comparison, "corrected_consistency", "reverse")
    values = [kappa["first_value"], kappa["second_value"]]
    assert values == pytest.approx([0.6335, 0.4006], abs=1e-4)
    assert kappa["p"] > 0.2
    assert row_of(comparison, "chance_consistency", "reverse")["p"] > 0.2


GOLD = "ynynynyn"
CONSTANT = (GOLD, "yyyyyyyy", "yyyyyyyy")
VARIED = (GOLD, GOLD, "ynynynny")
OTHER_LABEL = (GOLD, "xyxyxyxy", "xyxyxyxy")


@pytest.mark.parametrize(("first", "second", "metric", "subset", "values"), [
    (CONSTANT, VARIED, "consistency", "reverse", (1, 6 / 8)),
    (VARIED, CONSTANT, "accuracy", "all", (1, 4 / 8)),
    (VARIED, OTHER_LABEL, "no_option", "all", (0, 1 / 2)),
    (OTHER_LABEL, VARIED, "no_option", "all", (1 / 2, 0)),
])  # fmt: skip
def test_runs_that_say_other_labels_are_compared(first, second, metric, subset, values):
    row = row_of(compared(answers_of(*first), answers_of(*second)), metric, subset)
    assert (row["first_value"], row["second_value"]) == values
    assert row["difference"] == pytest.approx(values[1] - values[0])


def test_labels_are_told_apart_by_name():
    """Runs that say e and n, and e and c: their p stays when c gets a name that sorts elsewhere."""

    def run(other, keeps):
        pairs = [("e", other) if at % 3 else (other, "e") for at in range(16)]
        both = enumerate(zip(pairs, keeps, strict=True))
        rows = [(str(at), "e", [one, one if same else two]) for at, ((one, two), same) in both]
        return table(rows, FORMS[:2])

    def compare_with(third):
        runs = run("n", [0, 1] * 8), run(third, [1, 1, 0, 1] * 4)
        return comparable(compared(*runs, ("e", "n", third)))

    assert compare_with("c") == compare_with("z")


def test_accuracy_between_forms_by_hand():
    """Gold yyynnnny, original yynnynny, reverse ynnnnnyy, signal yyynynnn: 6, 5 and 6 of 8 right.

    Against the original, reverse loses items 1 and 6 and gains 4: p = 1 of 3. Signal loses 7, gains
    2; against reverse, signal gains 1, 2 and 6, loses 4 and 7.
    """
    table_of_changes = form_changes(table(HAND))
    assert dict(table_of_changes.schema) == FORM_CHANGE_SCHEMA
    rows = {(row["first"], row["second"]): row for row in table_of_changes.to_dicts()}
    assert list(rows) == [("original", "reverse"), ("original", "signal"), ("reverse", "signal")]
    assert [row["change"] for row in rows.values()] == pytest.approx([-1 / 8, 0, 1 / 8])
    row = rows["original", "reverse"]
    assert (row["first_accuracy"], row["second_accuracy"], row["n"]) == (6 / 8, 5 / 8, 8)
    assert (row["p"], row["p_holm"]) == (1, 1)
    assert row["change_low"] < -1 / 8 < row["change_high"]


def test_accuracy_that_a_form_loses_is_found():
    """30 of 40 right answers become wrong in one form, in the other none: 2 * 2**-30 is small."""
    said = "yn" * 20
    rows = form_changes(answers_of(said, said, "ny" * 15 + said[30:], said)).to_dicts()
    assert [row["change"] for row in rows] == [-0.75, 0, 0.75]
    assert (rows[0]["p"], rows[0]["p_holm"]) == (pytest.approx(2 / 2**30), 2 * rows[0]["p"])
    assert (rows[2]["p"], rows[2]["p_holm"]) == (rows[0]["p"], rows[0]["p"]), "the only other pair"
    assert -1 < rows[0]["change_low"] < rows[0]["change_high"] < -0.5 and rows[1]["p"] == 1
    assert rows[1]["change_low"] == pytest.approx(-rows[1]["change_high"])


def test_items_without_an_answer_are_in_no_change_of_accuracy():
    (row,) = form_changes(answers_of("yyy", "yny", "y-n")).to_dicts()
    assert (row["first_accuracy"], row["second_accuracy"], row["n"]) == (1, 1 / 2, 2)
