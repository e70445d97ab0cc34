"""Sentence pairs in other forms: the numbers by hand, the forms, the models, the command."""

import csv
import json
import math
import random
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from conftest import SENTENCES, _tokenizer
from consilience import ConsilienceError, compare, measure
from consilience.ask_pairs import (
    CHANGED_ANSWERS_SCHEMA,
    Presented,
    ask_labels,
    changed_answers,
    present_pairs,
)
from consilience.metrics import changes
from consilience.metrics.changes import FORM_CHANGE_SCHEMA
from consilience.metrics.notes import notes_on
from consilience.models import label_writer
from consilience.models.batches import Budget
from consilience.models.classifier import label_positions, load_pair_classifier
from consilience.models.fast import Prompts, tree_scorer
from consilience.models.forward import logits_of
from consilience.models.label_writer import MOST_WRITTEN, LabelWriter, label_of
from consilience.models.loading import load_pretrained
from consilience.run import read_answers
from consilience.schemas import ANSWERS_SCHEMA, COMPARISON_SCHEMA, METRICS_SCHEMA
from consilience.sentence_pairs import TextPair
from consilience.suites.perturbations import (
    PERTURBATIONS,
    Perturbation,
    chosen,
    original,
    t5_original,
)
from consilience.suites.perturbations import forms_of as forms_of_pair
from consilience.suites.tasks import TASKS
from consilience.types import Candidates, Design, Relation, Suite
from consilience.workflow.probing_pairs import seed_notes

FORMS = ("original", "reverse", "signal")
TWO = ("no", "yes")


def suite_of(runs, labels=TWO, *, positive=""):
    """A suite of the groups and forms that the runs have."""
    forms = runs[0].select("variant", "variant_index").unique().sort("variant_index")["variant"]
    design = Design.of_forms(
        forms.to_list(), labels, writes_freely="x" in runs_say(runs), positive=positive
    )
    groups = {group for run in runs for group in run["group"].unique()}
    relations = [
        Relation(group, group, "N-1", (), (), {}, Candidates(labels, (0,) * len(labels)), design)
        for group in sorted(groups)
    ]
    return Suite("calum", tuple(relations), "strict")


def runs_say(runs):
    return {answer for run in runs for answer in run["answer"].drop_nulls()}


def measured(runs, labels=TWO, *, positive="", seed=0):
    return measure(runs, suite_of(runs, labels, positive=positive), "strict", seed)


def compared(first, second, labels=TWO):
    suite = suite_of([*first, *second], labels)
    return compare({"first": first, "second": second}, suite, "strict")


def form_changes(runs):
    return changes.form_changes(runs, suite_of(runs), "strict")


def notes_of(answers):
    suite = suite_of([answers])
    return notes_on(answers, measure(answers, suite, "strict"), suite, "strict")


def table(rows, forms=FORMS, group="t"):
    """Rows of (item, gold, answers in the order of the forms[, first sentence])."""
    found = []
    for item, gold, answers, *subject in rows:
        for at, (form, answer) in enumerate(zip(forms, answers, strict=True)):
            found.append(
                {
                    "suite": "calum",
                    "group": group,
                    "item": item,
                    "subject": subject[0] if subject else f"s{item}",
                    "variant": form,
                    "variant_index": at,
                    "gold": gold,
                    "answer": answer,
                    "excluded": "too long" if answer is None else None,
                }
            )
    return pl.DataFrame(found, schema=ANSWERS_SCHEMA)


def values(metrics, subset="all"):
    rows = metrics.filter(pl.col("subset") == subset)
    return {row["metric"]: row["value"] for row in rows.iter_rows(named=True)}


def row_of(metrics, metric, subset="all"):
    (row,) = metrics.filter((pl.col("metric") == metric) & (pl.col("subset") == subset)).to_dicts()
    return row


def numbered(golds, *forms):
    """One item a letter: y and n are labels, x is none, - is no answer."""
    words = {"y": "yes", "n": "no", "x": "x", "-": None}
    rows = zip(golds, *forms, strict=True)
    return [
        (str(at), words[gold], [words[each] for each in said])
        for at, (gold, *said) in enumerate(rows)
    ]


HAND = numbered("yyynnnny", "yynnynny", "ynnnnnyy", "yyynynnn")


def test_hand_worked():
    """Gold yyynnnny, original yynnynny, reverse ynnnnnyy, signal yyynynnn.

    Right: 6, 5 and 6 of 8. The same as the original: reverse all but items 1, 4, 6, signal all but
    2, 7. Yes is said by 4, 3 and 4, so reverse agrees by chance in 4/8 * 3/8 + 4/8 * 5/8 = 1/2 and
    kappa is (5/8 - 1/2) / (1/2); with signal (6/8 - 1/2) / (1/2). Right in both: 0, 3, 5, 7; with
    signal 0, 1, 3, 5, 6; in all 0, 3, 5. F1 = 2 TP / (said yes + gold yes).
    """
    metrics = measured([table(HAND)], positive="yes")
    assert dict(metrics.schema) == METRICS_SCHEMA
    base, reverse, signal = (values(metrics, subset) for subset in ("all", "reverse", "signal"))
    assert (
        base.items()
        >= {
            "accuracy": 6 / 8,
            "f1": 2 * 3 / (4 + 4),
            "consistency": 11 / 16,
            "consistent_accuracy": 3 / 8,
            "top_answer": 4 / 8,
            "top_label": 4 / 8,
        }.items()
    )
    assert (
        reverse.items()
        >= {
            "accuracy": 5 / 8,
            "f1": 2 * 2 / (3 + 4),
            "consistency": 5 / 8,
            "chance_consistency": 1 / 2,
            "corrected_consistency": 1 / 4,
            "consistent_accuracy": 4 / 8,
            "agree_right": 4 / 8,
            "agree_wrong": 1 / 8,
            "top_answer": 5 / 8,
        }.items()
    )
    assert (
        signal.items()
        >= {
            "accuracy": 6 / 8,
            "f1": 2 * 3 / (4 + 4),
            "consistency": 6 / 8,
            "chance_consistency": 1 / 2,
            "corrected_consistency": 1 / 2,
            "consistent_accuracy": 5 / 8,
            "agree_right": 5 / 8,
            "agree_wrong": 1 / 8,
            "top_answer": 4 / 8,
        }.items()
    )
    assert row_of(metrics, "consistency")["n"] == 16
    assert set(metrics["n_excluded"]) == {0}
    assert set(metrics["seeds"]) == {1}
    assert set(metrics["suite"]) == {"calum"}


def test_kappa_where_one_label_is_said_more_often():
    """yy 6, yn 1, ny 2, nn 1: 7/10 agree, by chance .7 * .8 + .3 * .2 = .62; .08 / .38."""
    rows = numbered("y" * 10, "yyyyyyynnn", "yyyyyynyyn")
    found = values(measured([table(rows, FORMS[:2])]), "reverse")
    assert found["chance_consistency"] == pytest.approx(0.62)
    assert found["corrected_consistency"] == pytest.approx(0.08 / 0.38)


def test_the_gold_has_no_part_in_consistency():
    other = [(item, "no", answers) for item, _, answers in HAND]
    for subset in ("all", *FORMS[1:]):
        names = ("consistency", "corrected_consistency", "chance_consistency", "top_answer")
        one, two = (values(measured([table(rows)]), subset) for rows in (HAND, other))
        assert [one.get(name) for name in names] == [two.get(name) for name in names]


def test_only_the_original_form():
    found = measured([table(numbered("yn", "yy"), FORMS[:1])])
    assert values(found).items() >= {"accuracy": 1 / 2, "top_answer": 1, "top_label": 1 / 2}.items()


def test_f1_without_positives_is_no_data():
    """None is gold and none is said. With one said it is 0 of 1."""
    assert math.isnan(
        values(measured([table(numbered("nn", "nn"), FORMS[:1])], positive="yes"))["f1"]
    )
    assert values(measured([table(numbered("nn", "yn"), FORMS[:1])], positive="yes"))["f1"] == 0


def test_what_is_no_label_never_agrees():
    """Item 0 says x twice: no agreement, no chance agreement, not right.

    Original xynn, reverse xyny: 2 of 4 agree. By chance yes 1/4 * 2/4, no 2/4 * 1/4, x never: 1/4.
    """
    metrics = measured([table(numbered("yynn", "xynn", "xyny"), FORMS[:2])])
    reverse = values(metrics, "reverse")
    assert reverse["consistency"] == 2 / 4
    assert reverse["chance_consistency"] == pytest.approx(1 / 4)
    assert reverse["corrected_consistency"] == pytest.approx(1 / 3)
    assert reverse["agree_wrong"] == 0
    assert reverse["no_label"] == values(metrics)["no_label"] == 1 / 4
    assert values(metrics)["accuracy"] == 3 / 4
    assert "no_label" not in set(measured([table(HAND)])["metric"])


def test_a_model_that_never_says_a_label():
    """Always the same string: consistency is 0, not 1."""
    answers = table(numbered("yn", "xx", "xx"), FORMS[:2])
    metrics = measured([answers])
    reverse = values(metrics, "reverse")
    assert (reverse["consistency"], reverse["corrected_consistency"]) == (0, 0)
    assert reverse["no_label"] == 1
    (note,) = notes_of(answers)
    assert "no label" in note
    assert "constant" not in note


def test_left_out_items_are_counted():
    """Item 1 was not asked: 2 of 2 right, 1 of 2 agree, 1 of 2 golds is yes; 1 is left out."""
    answers = table(numbered("yyn", "y-n", "y-y"), FORMS[:2])
    metrics = measured([answers])
    assert values(metrics)["accuracy"] == 2 / 2
    assert values(metrics)["top_label"] == 1 / 2
    assert values(metrics, "reverse")["consistency"] == 1 / 2
    counted = ("accuracy", "all"), ("top_label", "all"), ("consistency", "reverse")
    for metric, subset in counted:
        row = row_of(metrics, metric, subset)
        assert (row["n"], row["n_excluded"]) == (2, 1)
    assert notes_of(answers) == ["t: 1 of 3 items excluded, such as 1: too long"]


def test_a_constant_classifier_is_consistent_and_named():
    """3 of 4 are yes: accuracy 3/4. All agree, as chance says: no data above chance."""
    answers = table(numbered("yyyn", "yyyy", "yyyy", "yyyy"))
    metrics = measured([answers])
    for subset in FORMS[1:]:
        found = values(metrics, subset)
        assert found["consistency"] == found["chance_consistency"] == 1
        assert math.isnan(found["corrected_consistency"])
        row = row_of(metrics, "corrected_consistency", subset)
        assert math.isnan(row["low"])
        assert math.isnan(row["high"])
    assert values(metrics)["top_label"] == values(metrics)["accuracy"] == 3 / 4
    (note,) = notes_of(answers)
    assert note.startswith("t: 100% of the answers to the original form are identical")
    assert "75%" in note


def test_golds_of_one_class_are_noted():
    answers = table(numbered("yyyy", "yyny", "yyyy"), FORMS[:2])
    notes = notes_of(answers)
    assert notes == ["t: all items have the same label, so accuracy is uninformative"]
    answers = table(HAND)
    assert notes_of(answers) == []


def right_in(count, size=50):
    """So many of ``size`` answers to the original form are right; all are kept in reverse."""
    said = "y" * count + "n" * (size - count)
    return table(numbered("y" * size, said, said), FORMS[:2])


def test_several_seeds_are_averaged():
    """25 and 26 of 50 right: mean .51, sample deviation .02 / sqrt(2).

    Its error is .02 / sqrt(2) / sqrt(2) = .01 and t(1 degree, 97.5 %) = 12.7062, so that the logit
    log(.51 / .49) = .0400 of the mean has the ends -+ .127062 / (.51 * .49).
    """
    runs = [right_in(25), right_in(26)]
    row = row_of(measured(runs), "accuracy")
    assert row["value"] == pytest.approx(0.51)
    assert row["std"] == pytest.approx(0.02 / math.sqrt(2))
    reach = 12.7062 * 0.01 / (0.51 * 0.49)
    for end, sign in (("seed_low", -1), ("seed_high", 1)):
        assert row[end] == pytest.approx(1 / (1 + math.exp(-(0.040005 + sign * reach))), abs=1e-6)
    assert (row["n"], row["seeds"]) == (50, 2)
    same = row_of(measured(runs), "consistency", "reverse")
    assert (same["value"], same["std"]) == (1, 0)
    assert all(math.isnan(same[end]) for end in ("seed_low", "seed_high")), "nothing varies"
    wide = row_of(measured([right_in(5), right_in(45)]), "accuracy")
    assert 0 < wide["seed_low"] < 0.001, "a share is not below 0"
    assert 0.999 < wide["seed_high"] < 1, "or above 1"


def test_more_of_the_same_run_says_no_more_about_items():
    once, thrice = (
        measured([table(HAND)] * count, positive="yes").filter(pl.col("value").is_not_nan())
        for count in (1, 3)
    )
    assert once["value"].to_list() == pytest.approx(thrice["value"].to_list(), nan_ok=True)
    for end in ("low", "high"):
        one, three = (pytest.approx(each[end].to_list(), nan_ok=True) for each in (once, thrice))
        assert once[end].to_list() == three
        assert thrice[end].to_list() == one
    assert once["std"].is_nan().all()
    assert once["seed_low"].is_nan().all()
    assert set(thrice["std"]) == {0}


def test_seeds_of_which_only_some_say_what_is_no_label():
    """0 of 4 and 2 of 4, in whatever order."""
    none, some = (table(numbered("yynn", said, "yynn"), FORMS[:2]) for said in ("yynn", "xxnn"))
    for runs in ([none, some], [some, none]):
        row = row_of(measured(runs), "no_label")
        assert (row["value"], row["seeds"]) == (1 / 4, 2)
        assert row["std"] == pytest.approx(0.5 / math.sqrt(2))


OTHER_QUESTIONS = [
    table(HAND[:-1]),
    table(HAND, ("original", "reverse", "dash")),
    table([*HAND[:-1], ("8", "yes", ["yes"] * 3)]),
    table([*HAND[:-1], ("7", "no", ["yes"] * 3)]),
    table(HAND, group="u"),
    table([*HAND[:-1], (*HAND[-1], "another sentence")]),
]


@pytest.mark.parametrize("other", OTHER_QUESTIONS)
def test_runs_of_other_items_or_forms_are_refused(other):
    message = "queries of .* are not in .*; expected runs of the same items in the same variants"
    suite = suite_of([table(HAND)])
    with pytest.raises(ConsilienceError, match=f"{message}|has no variant 'dash'|has no .* 'u'"):
        measure([table(HAND), other], suite, "strict")
    with pytest.raises(ConsilienceError, match=f"{message}|has no variant 'dash'|has no .* 'u'"):
        compare({"first": table(HAND), "second": other}, suite, "strict")


def test_as_many_seeds_are_compared():
    with pytest.raises(ConsilienceError, match="1 runs against 2; expected as many seeds of both"):
        compared([table(HAND)], [table(HAND)] * 2)


def shuffled(rows, seed=3):
    return rows.sample(fraction=1, shuffle=True, seed=seed)


def comparable(found):
    return found.sort("metric", "subset").fill_nan(None).to_dicts()


def test_the_order_of_rows_does_not_matter():
    runs = [table(HAND), table(HAND[::-1])]
    mixed = [shuffled(run) for run in runs]
    assert comparable(measured(mixed, positive="yes")) == comparable(measured(runs, positive="yes"))
    other = [table(numbered("yyynnnny", "yyyyynny", "ynnynnyy", "yyynynnn"))] * 2
    assert comparable(compared(mixed, other)) == comparable(
        compared(runs, [shuffled(each) for each in other])
    )


def test_the_same_seed_gives_the_same_intervals():
    runs = [table(HAND)]
    assert comparable(measured(runs, seed=5)) == comparable(measured(runs, seed=5))
    assert comparable(measured(runs, seed=5)) != comparable(measured(runs, seed=6))


def test_items_with_the_same_first_sentence_are_drawn_together():
    """40 items, every second four of them changed: as 10 first sentences they say much less."""
    golds, said = "y" * 40, "yyyynnnn" * 5
    alone = numbered(golds, golds, said)
    together = [(*row, f"s{at // 4}") for at, row in enumerate(alone)]
    widths = []
    for rows in (alone, together):
        row = row_of(measured([table(rows, FORMS[:2])]), "consistency", "reverse")
        assert row["value"] == 1 / 2
        widths.append(row["high"] - row["low"])
    assert widths[1] > 1.6 * widths[0], "twice as wide, if there were many"


def test_where_nothing_varies_the_interval_is_the_exact_binomial_one():
    """8 of 8 agree: at least .025 ** (1/8)."""
    rows = numbered("yyyynnnn", "yyyynnnn", "yyyynnnn")
    row = row_of(measured([table(rows, FORMS[:2])]), "consistency", "reverse")
    assert (row["low"], row["high"]) == (pytest.approx(0.025 ** (1 / 8)), 1)


def test_the_same_runs_do_not_differ():
    runs = [table(HAND), table(HAND[::-1])]
    found = compared(runs, runs)
    assert dict(found.schema) == COMPARISON_SCHEMA
    known = found.filter(pl.col("difference").is_not_nan())
    assert set(known["difference"]) == {0}
    assert set(known["p"].drop_nans()) == {1}
    assert set(found["seeds"]) == {2}
    assert found["p_seeds"].is_nan().all()
    assert {"accuracy", "consistency", "corrected_consistency"} <= set(found["metric"])


def test_a_clear_difference():
    """The second keeps all 30 answers, the first none; accuracy on the original is the same."""
    said, turned = "yn" * 15, "ny" * 15
    first, second = (table(numbered(said, said, each), FORMS[:2]) for each in (turned, said))
    found = compared([first], [second])
    row = row_of(found, "consistency", "reverse")
    assert (row["first_value"], row["second_value"], row["difference"]) == (0, 1, 1)
    assert row["p"] == 1 / 10_000, "none of 9999 ways to swap items is as far apart"
    assert (row["n"], row["seeds"]) == (30, 1)
    assert row_of(found, "corrected_consistency", "reverse")["difference"] == pytest.approx(2)
    assert (row_of(found, "accuracy")["difference"], row_of(found, "accuracy")["p"]) == (0, 1)
    back = row_of(compared([second], [first]), "consistency", "reverse")
    assert (back["difference"], back["p"]) == (-1, row["p"])
    assert all(math.isnan(each[end]) for each in (row, back) for end in ("low", "high"))


def test_the_p_of_a_small_difference():
    """3 of 20 items are kept by the second only: 2 of the 8 ways to swap them are as far apart."""
    said = "yn" * 10
    first, second = (
        table(numbered(said, said, changed + said[4:]), FORMS[:2]) for changed in ("nyny", "nnyn")
    )
    row = row_of(compared([first], [second]), "consistency", "reverse")
    back = row_of(compared([second], [first]), "consistency", "reverse")
    assert (back["low"], back["high"]) == (pytest.approx(-row["high"]), pytest.approx(-row["low"]))
    assert row["low"] < row["difference"] < row["high"]
    assert (row["first_value"], row["second_value"]) == (16 / 20, 19 / 20)
    assert row["difference"] == pytest.approx(3 / 20)
    assert row["p"] == pytest.approx(2 / 8, abs=0.02)


def test_p_is_adjusted_over_the_forms_of_one_metric():
    """Of two forms the smaller p counts twice, and the other not less than that; none of the original."""
    said = "yn" * 10
    first = table(numbered(said, said, "ny" * 10, "nyny" + said[4:]))
    second = table(numbered(said, said, said, "nnyn" + said[4:]))
    found = compared([first], [second])
    small, large = (row_of(found, "consistency", form) for form in FORMS[1:])
    assert small["p"] < large["p"] < 1
    assert small["p_holm"] == 2 * small["p"]
    assert large["p_holm"] == large["p"]
    assert math.isnan(row_of(found, "accuracy")["p_holm"])
    tested = found.filter(found["p"].is_not_nan())
    assert tested["p_holm"].is_nan().sum() == (tested["subset"] == "all").sum()


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
    found = compared([first], [second])
    kappa = row_of(found, "corrected_consistency", "reverse")
    assert kappa["first_value"] == pytest.approx(0.6296, abs=1e-4)
    assert kappa["second_value"] == pytest.approx(0.3966, abs=1e-4)
    assert kappa["p"] > 0.2
    assert row_of(found, "chance_consistency", "reverse")["p"] > 0.2


def test_accuracy_between_forms_by_hand():
    """Gold yyynnnny, original yynnynny, reverse ynnnnnyy, signal yyynynnn: 6, 5 and 6 of 8 right.

    Against the original, reverse loses items 1 and 6 and gains 4: p = 1 of 3. Signal loses 7, gains
    2; against reverse, signal gains 1, 2 and 6, loses 4 and 7.
    """
    found = form_changes([table(HAND)])
    assert dict(found.schema) == FORM_CHANGE_SCHEMA
    rows = {(row["first"], row["second"]): row for row in found.to_dicts()}
    assert list(rows) == [("original", "reverse"), ("original", "signal"), ("reverse", "signal")]
    assert [row["change"] for row in rows.values()] == pytest.approx([-1 / 8, 0, 1 / 8])
    row = rows["original", "reverse"]
    assert (row["first_accuracy"], row["second_accuracy"], row["n"]) == (6 / 8, 5 / 8, 8)
    assert (row["test"], row["p"], row["p_holm"]) == ("exact McNemar", 1, 1)
    assert row["change_low"] < -1 / 8 < row["change_high"]


def test_accuracy_that_a_form_loses_is_found():
    """30 of 40 right answers become wrong in one form only, in the other none: 2 * 2**-30 is small."""
    said = "yn" * 20
    lost = "ny" * 15 + said[30:]
    rows = form_changes([table(numbered(said, said, lost, said))]).to_dicts()
    assert [row["change"] for row in rows] == [-0.75, 0, 0.75]
    assert rows[0]["p"] == pytest.approx(2 / 2**30)
    assert rows[0]["p_holm"] == 2 * rows[0]["p"]
    assert (rows[2]["p"], rows[2]["p_holm"]) == (rows[0]["p"], rows[0]["p"]), "the only other pair"
    assert rows[0]["change_low"] > -1
    assert rows[0]["change_high"] < -0.5
    assert rows[1]["p"] == 1
    assert math.isnan(rows[1]["change_low"]), "nothing varies"


def test_accuracy_between_forms_over_seeds():
    """Of three items the first seed loses two, the second one of these: -2/3 and -1/3, mean -1/2.

    Items add -1/3, -1/6 and 0; of the four signs of two items two are as far from 0.
    """
    one = table(numbered("yyy", "yyy", "nny"), FORMS[:2])
    two = table(numbered("yyy", "yyy", "nyy"), FORMS[:2])
    (row,) = form_changes([one, two]).to_dicts()
    assert (row["change"], row["seeds"], row["test"]) == (
        pytest.approx(-1 / 2), 2, "sign flips of subjects",
    )  # fmt: skip
    assert row["p"] == pytest.approx(2 / 4, abs=0.02)


def test_items_without_an_answer_are_in_no_change_of_accuracy():
    """The item without an answer in reverse is not counted in the original either."""
    (row,) = form_changes([table(numbered("yyy", "yny", "y-n"), FORMS[:2])]).to_dicts()
    assert (row["first_accuracy"], row["second_accuracy"], row["n"]) == (1, 1 / 2, 2)


def test_differences_over_seeds():
    """Right .4 and .6 against .8 and 1: .4 apart, Welch's t = .4 / sqrt(.02 / 2 + .02 / 2).

    It has two degrees of freedom, so p = 1 - t / sqrt(t**2 + 2). Over items: 20 differ by 0, 20 by
    .5, 10 by 1; mean .4, deviation sqrt(.3 - .16), so .4 +- 2.01 * sqrt(.14 / 49).
    """
    first, second = [right_in(20), right_in(30)], [right_in(40), right_in(50)]
    row = row_of(compared(first, second), "accuracy")
    assert row["first_value"] == pytest.approx(0.5)
    assert row["second_value"] == pytest.approx(0.9)
    assert row["difference"] == pytest.approx(0.4)
    t = 0.4 / math.sqrt(0.02)
    assert row["p_seeds"] == pytest.approx(1 - t / math.sqrt(t**2 + 2))
    assert row["low"] == pytest.approx(0.4 - 2.01 * math.sqrt(0.14 / 49), abs=0.02)
    assert row["high"] == pytest.approx(0.4 + 2.01 * math.sqrt(0.14 / 49), abs=0.02)
    assert row["p"] < 0.001


def test_runs_that_say_other_labels_are_compared():
    """A constant classifier against one that varies; and y, n against y, x."""
    constant = table(numbered("ynynynyn", "yyyyyyyy", "yyyyyyyy"), FORMS[:2])
    varied = table(numbered("ynynynyn", "ynynynyn", "ynynynny"), FORMS[:2])
    row = row_of(compared([constant], [varied]), "consistency", "reverse")
    assert row["difference"] == pytest.approx(6 / 8 - 1)
    row = row_of(compared([varied], [constant]), "accuracy")
    assert row["difference"] == pytest.approx(4 / 8 - 1)
    odd = table(numbered("ynynynyn", "xyxyxyxy", "xyxyxyxy"), FORMS[:2])
    row = row_of(compared([varied], [odd]), "no_label")
    assert (row["first_value"], row["second_value"]) == (0, 1 / 2)
    assert row_of(compared([odd], [varied]), "no_label")["difference"] == -1 / 2


def test_labels_are_told_apart_by_name():
    """Runs that say e and n, and e and c: their p stays when c gets a name that sorts elsewhere."""
    first, second = [0, 1] * 8, [1, 1, 0, 1] * 4

    def run(other, kept):
        pairs = [("e", other) if at % 3 else (other, "e") for at in range(16)]
        return table(
            [
                (str(at), "e", [one, one if same else two])
                for at, ((one, two), same) in enumerate(zip(pairs, kept, strict=True))
            ],
            FORMS[:2],
        )

    found = []
    for third in ("c", "z"):
        differences = compared([run("n", first)], [run(third, second)], ("e", "n", third))
        found.append(comparable(differences))
    assert found[0] == found[1]


MRPC, RTE = TASKS["mrpc"], TASKS["rte"]
SAME, ENTAILS = MRPC.labels, RTE.labels


def wordpiece():
    """BERT's kind of tokenizer, which knows the words of the pairs and of their forms."""
    words = re.findall(r"\w+|[^\w\s]", " ".join(["Sentence1: [Sentence2]", *SENTENCES]))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: at for at, word in enumerate(dict.fromkeys([*special, *words]))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(each, vocabulary[each]) for each in ("[CLS]", "[SEP]")],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{each[1:-1].lower()}_token": each for each in special},
    )


def save_classifier(folder, family="bert", labels=SAME, *, seed=0, named=True, flipped=False):
    """A small random classifier; ``flipped`` turns the order of the head's rows and names."""
    tokenizer = wordpiece() if family == "bert" else _tokenizer("causal")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    name = {"bert": "Bert", "llama": "Llama", "gpt2": "GPT2"}[family]
    names = labels[::-1] if flipped else labels
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer), initializer_range=0.6, intermediate_size=64,
        max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, **sizes,
        **({"id2label": dict(enumerate(names))} if named else {"num_labels": len(names)}),
    )  # fmt: skip
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    if flipped:
        head = model.score if hasattr(model, "score") else model.classifier
        for weight in head.parameters():
            weight.data = weight.data.flip(0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """``classifier("bert", labels, seed=1)``: the folder of a tiny classifier."""
    built = {}

    def folder(*arguments, **options):
        key = (arguments, tuple(sorted(options.items())))
        if key not in built:
            place = tmp_path_factory.mktemp("classifier")
            built[key] = save_classifier(place, *arguments, **options)
        return built[key]

    return folder


@pytest.fixture
def load(classifier):
    """``load("bert", SAME, longest=24)``: a classifier in memory."""

    def load(family, labels=SAME, model_labels=None, **options):
        folder = str(classifier(family, labels))
        return load_pair_classifier(
            folder, labels, device="cpu", model_labels=model_labels, **options
        )

    return load


@pytest.fixture
def writer(model_folder):
    """``writer("t5", MRPC)``: a language model that writes, in memory."""

    def load(family, task=MRPC, template=None, longest=0):
        folder = family if isinstance(family, Path) else model_folder(family)
        loaded = load_pretrained(str(folder), revision=None, device="cpu", dtype="float32")
        return LabelWriter(loaded, task, template, longest)

    return load


PAIRS = [
    TextPair(str(at), first, second, SAME[at % 2])
    for at, (first, second) in enumerate(zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True))
]


def forms_of(pairs=PAIRS, names=("reverse", "signal"), task=MRPC, first=None):
    first = first or partial(original, indicators=task.indicators)
    return [
        form for pair in pairs for form in forms_of_pair(pair, first(pair), chosen(names)).values()
    ]


def sentences(form):
    return {each.indicator.casefold(): each.sentence for each in form}


ODD_PIECES = ["Rome", "", "[SEP]", "🙂", "👩‍👩‍👧", "é", "e\u0301", "\n", "ẞ", "İ", "Sentence1: "]
TEXTS = st.lists(st.sampled_from([*SENTENCES, *ODD_PIECES]), max_size=6).map(" ".join)


@pytest.mark.parametrize(
    ("family", "longest"), [("bert", 24), ("llama", 40), ("t5", 36), ("gpt2", 44)]
)
def test_forms_are_cut_alike_in_every_form(family, longest, load, writer):
    """The two sentences are the same in all forms, beginnings of the whole ones, and each fits."""
    first = partial(original, indicators=MRPC.indicators)
    if family == "t5":
        model, first = writer("t5", longest=longest), partial(t5_original, task=MRPC)
    elif family == "gpt2":
        model = writer("gpt2", template="{text}:", longest=longest)
    else:
        model = load(family, longest=longest)
    assert model.longest == longest

    def most_tokens(forms):
        return max(len(each["input_ids"]) for each in model.encode(forms))

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(TEXTS, TEXTS)
    def check(one, two):
        pair = TextPair("0", one, two, SAME[0])
        whole = forms_of([pair], PERTURBATIONS, first=first)
        asked = present_pairs(MRPC, [pair], first, PERTURBATIONS, model)
        (forms,) = asked.forms
        assert asked.names == ("original", *PERTURBATIONS)
        for form, uncut in zip(forms, whole, strict=True):
            assert [each.mark for each in form] == [each.mark for each in uncut]
            assert sentences(form) == sentences(forms[0])
            for name, text in sentences(form).items():
                assert sentences(uncut)[name].startswith(text)
        cut = any("were truncated" in note for note in asked.notes)
        if asked.reasons == (None,):
            assert most_tokens(forms) <= longest
            assert cut == (most_tokens(whole) > longest)
        if not cut:
            assert list(forms) == whole

    check()


def test_items_that_are_too_long_may_be_left_out(load):
    """The original and the forms of two of the three pairs fit; a form one token longer does not."""
    model = load("bert", longest=24)
    pairs = [TextPair(str(n), "Rome " * n, "Oslo", SAME[0]) for n in (1, 14, 15, 40)]
    lengths = [
        max(len(each["input_ids"]) for each in model.encode(forms_of([pair]))) for pair in pairs
    ]
    assert lengths[1:3] == [24, 25]
    first, formats = partial(original, indicators=MRPC.indicators), chosen(["reverse", "signal"])
    asked = present_pairs(MRPC, pairs, first, formats, model, long="exclude")
    reason = "{} tokens, and the model takes 24"
    assert asked.reasons == (None, None, reason.format(25), reason.format(lengths[3]))
    assert not any("truncated" in note for note in asked.notes)
    answers = ask_labels(asked, model)
    assert answers["excluded"].to_list() == [each for each in asked.reasons for _ in range(3)]
    assert answers["answer"].is_null().to_list() == [False] * 6 + [True] * 6
    cut = present_pairs(MRPC, pairs, first, formats, model)
    assert cut.reasons == (None,) * 4
    assert cut.notes[0].startswith(
        "2 of 4 items were too long for 24 tokens: 6 of their 6 forms were truncated, a sentence "
    )
    assert sentences(cut.forms[2][0]) == {"sentence1": " ".join(["Rome"] * 14), "sentence2": "Oslo"}
    with pytest.raises(ConsilienceError, match="no item of mrpc can be asked, such as: 25 tokens"):
        ask_labels(present_pairs(MRPC, pairs[2:], first, formats, model, long="exclude"), model)


def changed(first=None, second=None, indicators=None):
    """A perturbation of somebody else: other sentences, other indicators."""

    def apply(form):
        new = [first or form[0].sentence, second or form[1].sentence]
        names = indicators or [each.indicator for each in form]
        return tuple(
            replace(each, sentence=text, indicator=name)
            for each, text, name in zip(form, new, names, strict=True)
        )

    return Perturbation("changed", "for a test", apply)


def test_a_perturbation_that_changes_a_sentence_is_truncated_in_its_own_text(load):
    """24 tokens hold 15 words of two sentences, the longer one is shortened first.

    The longest form, signal's, spends 3 on [CLS] and two [SEP] and 6 on two marks of 3: 15 are left
    for the sentences, 3 of them a short second one. A paraphrase of both is shortened for itself.
    """
    model, first = load("bert", longest=24), partial(original, indicators=MRPC.indicators)
    pair = TextPair("0", " ".join(["Rome"] * 40), "Oslo is Oslo", SAME[0])
    formats = {
        **chosen(["reverse", "signal"]),
        "both": changed(" ".join(["Berlin"] * 40), "Lisbon is Lisbon"),
        "short": changed("Berlin", "Lisbon"),
    }
    asked = present_pairs(MRPC, [pair], first, formats, model)
    forms = dict(zip(asked.names, asked.forms[0], strict=True))
    alone = present_pairs(MRPC, [pair], first, chosen(["reverse", "signal"]), model)
    assert list(alone.forms[0]) == [forms[name] for name in ("original", "reverse", "signal")]
    assert sentences(forms["original"])["sentence1"] == " ".join(["Rome"] * 12)
    marks = 3 + 2 * 2  # the paraphrase stands behind the marks of the original, one token less each
    assert sentences(forms["both"]) == {
        "sentence1": " ".join(["Berlin"] * (24 - marks - 3)),
        "sentence2": "Lisbon is Lisbon",
    }
    assert sentences(forms["short"]) == {"sentence1": "Berlin", "sentence2": "Lisbon"}
    assert max(len(each["input_ids"]) for each in model.encode(asked.forms[0])) == 24
    assert asked.notes == (
        "1 of 1 items were too long for 24 tokens: 4 of their 5 forms were truncated, a sentence "
        "at the same place in every form that contains it",
        "both: its own sentences were truncated in 1 item",
    )
    answers = ask_labels(asked, model)
    logprobs = dict(answers.select("variant", "logprob").iter_rows())
    assert logprobs["both"] != logprobs["original"] != logprobs["short"]


def test_a_sentence_that_two_forms_share_ends_at_the_same_place(load):
    """A paraphrase of one sentence, three words longer: the other one loses three more everywhere."""
    model, first = load("bert", longest=24), partial(original, indicators=MRPC.indicators)
    pair = TextPair("0", " ".join(["Rome"] * 40), "Oslo", SAME[0])
    formats = {"changed": changed(second="Oslo is in Europe")}
    ((one, two),) = present_pairs(MRPC, [pair], first, formats, model).forms
    ((alone,),) = present_pairs(MRPC, [pair], first, {}, model).forms
    assert len(sentences(alone)["sentence1"].split()) == 16
    assert sentences(one) == {"sentence1": " ".join(["Rome"] * 13), "sentence2": "Oslo"}
    assert sentences(two) == {
        "sentence1": " ".join(["Rome"] * 13),
        "sentence2": "Oslo is in Europe",
    }


@pytest.mark.parametrize("second", ["Oslo", " ".join(["Rome"] * 40)])
def test_a_perturbation_may_rename_an_indicator(second, load):
    model, first = load("bert", longest=24), partial(original, indicators=MRPC.indicators)
    pair = TextPair("0", " ".join(["Rome"] * 40), second, SAME[0])
    formats = {"changed": changed(indicators=("Paris", "Rome")), **chosen(["reverse"])}
    ((whole, renamed, turned),) = present_pairs(MRPC, [pair], first, formats, model).forms
    assert [each.indicator for each in renamed] == ["Paris", "Rome"]
    assert [each.sentence for each in renamed] == [each.sentence for each in whole]
    assert turned == whole[::-1]


def test_a_change_that_is_truncated_away_is_noted(load):
    """The change is at the end of a long sentence, which no form keeps."""
    model, first = load("bert", longest=24), partial(original, indicators=MRPC.indicators)
    pair = TextPair("0", " ".join(["Rome"] * 40), "Oslo", SAME[0])
    formats = {"changed": changed(" ".join(["Rome"] * 39 + ["Berlin"]))}
    asked = present_pairs(MRPC, [pair], first, formats, model)
    assert asked.forms[0][0] == asked.forms[0][1]
    assert asked.notes[1:] == (
        "changed: its own sentences were truncated in 1 item",
        "changed: in 1 item the truncated form has the same tokens as the truncated original, "
        "so its consistency there is 100 %",
    )


def test_forms_that_a_tokenizer_cannot_tell_apart_are_noted(load):
    """A line break is a blank to BERT's kind; Llama's reads it."""
    first, names = partial(original, indicators=MRPC.indicators), ["reverse", "line_break"]
    asked = present_pairs(MRPC, PAIRS, first, chosen(names), load("bert"))
    assert asked.notes == (
        "line_break: the same tokens as the original in 8 of 8 items, "
        "which this model's tokenizer cannot tell apart",
    )
    assert present_pairs(MRPC, PAIRS, first, chosen(names), load("llama")).notes == ()


def asked_of(pairs, names=("reverse", "signal")):
    first = partial(original, indicators=MRPC.indicators)
    forms = tuple(tuple(forms_of_pair(pair, first(pair), chosen(names)).values()) for pair in pairs)
    return Presented(MRPC, tuple(pairs), ("original", *names), forms, (None,) * len(pairs), ())


def test_changed_answers_the_surest_first():
    """Item 0 keeps its answer; 1 changes in both forms, 2 in signal; 3 has no answer.

    The margin of a change is the smaller one of both: item 1 min(2, 3) and min(2, .5), item 2 1.
    """
    no, yes = SAME
    said = [(yes, yes, yes), (yes, no, no), (no, no, yes), (None, None, None)]
    margins = [(9, 9, 9), (2, 3, 0.5), (1, 7, 4), (None,) * 3]
    answers = table([(str(at), yes, each) for at, each in enumerate(said)]).with_columns(
        margin=pl.Series([each for row in margins for each in row], dtype=pl.Float64)
    )
    found = changed_answers(asked_of(PAIRS[:4]), shuffled(answers))
    assert dict(found.schema) == CHANGED_ANSWERS_SCHEMA
    columns = ["item", "perturbation", "original_answer", "answer", "margin"]
    assert found.select(columns).rows() == [
        ("1", "reverse", yes, no, 2.0),
        ("2", "signal", no, yes, 1.0),
        ("1", "signal", yes, no, 0.5),
    ]
    assert found.row(0, named=True) == {
        "group": "t", "perturbation": "reverse", "item": "1", "gold": yes,
        "original_answer": yes, "answer": no, "margin": 2.0,
        "original_1": "Sentence1: Paris is the capital of France.",
        "original_2": "Sentence2: Berlin is the capital of Germany.",
        "text_1": "Sentence2: Berlin is the capital of Germany.",
        "text_2": "Sentence1: Paris is the capital of France.",
    }  # fmt: skip


def test_an_answer_that_is_no_label_is_a_change():
    """The same string twice counts; a label after no label does as well."""
    rows = [("0", SAME[1], ["x", "x", SAME[1]]), ("1", SAME[1], [SAME[1]] * 3)]
    found = changed_answers(asked_of(PAIRS[:2]), table(rows))
    assert found.select("item", "perturbation", "answer").rows() == [
        ("0", "reverse", "x"),
        ("0", "signal", SAME[1]),
    ]
    assert found["margin"].null_count() == 2


def by_row(found, size):
    """Log-probabilities (form, label) of what a model gave in its order; each form once."""
    logprob = np.full((size, len(SAME)), np.nan)
    for scores in found:
        assert np.isnan(logprob[scores.rows]).all()
        logprob[scores.rows] = scores.logprob
    assert not np.isnan(logprob).any()
    return logprob


ODD = [
    TextPair("a", "[SEP] Rome", "</s> [CLS]Oslo[PAD]", SAME[0]),
    TextPair("b", "<|endoftext|> Rome <|endoftext|>", "", SAME[0]),
    TextPair("c", "[MASK]", "<s>Rome</s>", SAME[0]),
    TextPair("d", "", "", SAME[0]),
]


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_a_classifier_is_steady(family, load):
    """One form at a time, all at once, in another order, on two threads: the same."""
    model = load(family)
    forms = forms_of([*PAIRS, *ODD, *PAIRS[:2]], PERTURBATIONS)
    model.budget = Budget(1)
    alone = by_row(model.score(forms), len(forms))
    order = random.Random(0).sample(range(len(forms)), len(forms))
    threads = torch.get_num_threads()
    try:
        for count, tokens in ((threads, 10**6), (2, 300)):
            torch.set_num_threads(count)
            model.budget = Budget(tokens)
            found = by_row(model.score([forms[at] for at in order]), len(forms))
            assert np.abs(found - alone[order]).max() < 1e-5
            assert (found.argmax(axis=1) == alone[order].argmax(axis=1)).all()
    finally:
        torch.set_num_threads(threads)
    assert set(alone.argmax(axis=1)) == {0, 1}
    assert np.exp(alone).sum(axis=1) == pytest.approx(1)
    assert list(model.score([])) == []


@pytest.mark.parametrize(
    ("family", "options"),
    [("bert", {}), ("bert", {"joined": "string"}), ("llama", {}), ("gpt2", {}),
     ("gpt2", {"pool": "mean"}), ("gpt2", {"pool": "end"})],
    ids=str,
)  # fmt: skip
def test_a_classifier_says_what_its_model_says(family, options, classifier, load):
    """One form at a time through the model as transformers has it; decoders read where they pool."""
    model, folder = load(family, **options), classifier(family, SAME)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    joined = options.get("joined", "pair" if family == "bert" else "string")
    pooled, forms = options.get("pool", "last"), forms_of(PAIRS[:4])
    expected = []
    for form in forms:
        one, two = (each.text for each in form)
        texts = (one, two) if joined == "pair" else (f"{one} {two}",)
        inputs = dict(tokenizer(*texts, return_tensors="pt"))
        if pooled == "end":
            end = torch.tensor([[tokenizer.eos_token_id]])
            inputs = {"input_ids": torch.cat([inputs["input_ids"], end], dim=1)}
        with torch.no_grad():
            if family == "bert":
                logits = plain(**inputs).logits[0]
            else:
                hidden = plain.base_model(input_ids=inputs["input_ids"]).last_hidden_state[0]
                logits = plain.score(hidden.mean(dim=0) if "mean" in pooled else hidden[-1])
        expected.append(logits.double().log_softmax(-1).numpy())
    found = by_row(model.score(forms), len(forms))
    assert np.abs(found - np.array(expected)).max() < 1e-5
    assert model.input.reading.joined == joined


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_special_tokens_in_a_sentence_are_read_as_text(family, load):
    """Only the template's own stand in the ids: [CLS] a [SEP] b [SEP], or none."""
    model = load(family)
    special = set(model.input.tokenizer.all_special_ids) - {model.input.tokenizer.unk_token_id}
    plain, odd = (model.encode(forms_of(pairs)) for pairs in (PAIRS[:2], ODD))
    counts = {tuple(each for each in form["input_ids"] if each in special) for form in plain}
    (template,) = counts
    assert len(template) == (3 if family == "bert" else 0)
    assert {tuple(each for each in form["input_ids"] if each in special) for form in odd} == counts
    asked = present_pairs(MRPC, ODD, partial(original, indicators=MRPC.indicators), {}, model)
    assert asked.reasons == (None,) * 4
    assert ask_labels(asked, model)["answer"].null_count() == 0


def write_pairs(path, **changes):
    """A JSONL file of the pairs, labels as numbers; a column that is None is left out."""
    lines = []
    for at, pair in enumerate(PAIRS):
        row = {"idx": at, "sentence1": pair.first, "sentence2": pair.second, "label": at % 2}
        row = {name: each for name, each in (row | changes).items() if each is not None}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def perturb(consilience, tmp_path):
    """``perturb(model, "--json")``: the command on MRPC's eight pairs into ``run``."""
    data = write_pairs(tmp_path / "pairs.jsonl")

    def run(model, *options, task="mrpc", data=data, out="run"):
        return consilience(
            "probe", "--model", model, "--suite", task, "--data", data, "--out", tmp_path / out, *options
        )  # fmt: skip

    return run


def metrics_of(folder):
    return pl.read_csv(folder / "metrics.csv", schema_overrides=METRICS_SCHEMA)


def changed_in(folder):
    with (folder / "inconsistent.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stamps(folder):
    """When each file with answers was written, and as which file."""
    found = {path: path.stat() for path in folder.rglob("*.parquet")}
    assert found
    return {path: (each.st_mtime_ns, each.st_ino) for path, each in found.items()}


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_run(family, classifier, perturb, tmp_path):
    status, out, err = perturb(classifier(family, SAME))
    assert status == 0
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "answers", "metrics.csv", "changes.csv", "inconsistent.csv",
    }  # fmt: skip
    record = json.loads((folder / "run.json").read_text())
    assert (record["asked"]["kind"], record["asked"]["suite"]) == ("perturb", "calum")
    assert record["asked"]["perturbations"] == ["reverse", "signal"]
    assert record["asked"]["task"]["indicators"] == ["Sentence1", "Sentence2"]
    assert record["finished"]
    answers = pl.read_parquet(folder / "answers" / "mrpc.parquet")
    assert dict(answers.schema) == ANSWERS_SCHEMA
    assert answers["variant"].to_list() == list(FORMS) * 8
    assert answers["item"].to_list() == [str(at) for at in range(8) for _ in FORMS]
    assert answers["gold"].to_list() == [SAME[at % 2] for at in range(8) for _ in FORMS]
    assert set(answers["n_candidates"]) == {2}
    assert comparable(metrics_of(folder)) == comparable(
        measured([answers], SAME, positive=SAME[-1])
    )
    said = answers["answer"].to_numpy().reshape(8, 3)
    kept = said[:, 1:] == said[:, :1]
    for at, form in enumerate(FORMS[1:]):
        assert row_of(metrics_of(folder), "consistency", form)["value"] == kept[:, at].mean()
    rows = changed_in(folder)
    assert len(rows) == (~kept).sum() > 0
    margins = [float(row["margin"]) for row in rows]
    assert margins == sorted(margins, reverse=True)
    assert {(row["item"], row["perturbation"]) for row in rows} == {
        (str(item), FORMS[1 + form]) for item, form in np.argwhere(~kept)
    }
    for text in ("original", "reverse", "signal", "Run: ", "Answers that changed"):
        assert text in out
    assert "24/24" in err.replace(" ", "")


def test_what_is_there_is_not_asked_again(classifier, perturb, tmp_path):
    model = classifier("bert", SAME)
    assert perturb(model)[0] == 0
    before, metrics = stamps(tmp_path / "run"), (tmp_path / "run" / "metrics.csv").read_bytes()
    status, _, err = perturb(model)
    assert status == 0
    assert "24/24" not in err.replace(" ", "")
    assert stamps(tmp_path / "run") == before
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics
    for options, name in (
        (("--perturbations", "signal"), "perturbations"),
        (("--limit", 4), "limit"),
        (("--half", 1), "half"),
        (("--long", "exclude"), "long"),
        (("--max-length", 64), "model"),
        (("--input", "string"), "model"),
        (("--indicators", "A,B"), "task"),
        (("--seed", 1), "seed"),
    ):
        status, out, err = perturb(model, *options)
        assert (status, out) == (2, "")
        assert f"this folder holds another run: its {name} is" in err
        assert "Choose another --out" in err
    assert perturb(classifier("bert", SAME, seed=1))[0] == 2
    assert stamps(tmp_path / "run") == before
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics
    (tmp_path / "run" / "answers" / "mrpc.parquet").write_bytes(b"broken")
    assert perturb(model)[0] == 0
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics


def test_a_folder_with_brackets_in_its_name(classifier, perturb, tmp_path):
    """They are no pattern of file names: what is there is found."""
    model, data = classifier("bert", SAME), tmp_path / "pairs[1].parquet"
    pl.DataFrame(
        {"sentence1": ["Rome", "Oslo"], "sentence2": ["Oslo", "Oslo"], "label": [0, 1]}
    ).write_parquet(data)
    assert perturb(model, data=data, out="run[1]")[0] == 0
    before = stamps(tmp_path / "run[1]")
    status, _, err = perturb(model, data=data, out="run[1]")
    assert (status, "6/6" in err.replace(" ", "")) == (0, False)
    assert stamps(tmp_path / "run[1]") == before
    assert read_answers(tmp_path / "run[1]").height == 6


def test_json_is_one_document(classifier, perturb, tmp_path):
    status, out, _ = perturb(classifier("bert", SAME), "--json")
    assert status == 0
    document = json.loads(out)
    assert set(document) == {"run", "metrics", "changes", "warnings"}
    assert document["run"]["path"] == str(tmp_path / "run")
    assert document["run"]["asked"]["perturbations"] == ["reverse", "signal"]
    found = pl.DataFrame(document["metrics"], schema=METRICS_SCHEMA)
    assert comparable(found) == comparable(metrics_of(tmp_path / "run"))
    assert document["metrics"][0]["std"] is None, "not a number is null"


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A folder as finetune leaves it: seed-N/TASK."""
    folder = tmp_path_factory.mktemp("finetuned")
    for seed in range(2):
        save_classifier(folder / f"seed-{seed}" / "mrpc", seed=2 * seed)
    return folder


def test_all_seeds_that_finetune_wrote(finetuned, perturb, tmp_path):
    status, out, _ = perturb(finetuned, "--seed", 3)
    assert status == 0
    assert "2 seeds" in out
    metrics = metrics_of(tmp_path / "run")
    assert set(metrics["seeds"]) == {2}
    alone = [metrics_of(tmp_path / "run" / f"seed-{seed}") for seed in range(2)]
    for metric, subset in (("accuracy", "all"), ("consistency", "reverse"), ("f1", "signal")):
        ones = [row_of(each, metric, subset)["value"] for each in alone]
        row = row_of(metrics, metric, subset)
        assert row["value"] == pytest.approx(np.mean(ones))
        assert row["std"] == pytest.approx(np.std(ones, ddof=1))
    assert {row["seed"] for row in changed_in(tmp_path / "run")} == {"seed-0", "seed-1"}
    before = stamps(tmp_path / "run")
    assert len(before) == 2
    document = json.loads(perturb(finetuned, "--seed", 3, "--json")[1])
    assert list(document["run"]["models"]) == ["seed-0", "seed-1"]
    assert stamps(tmp_path / "run") == before
    for part in ("seed-1", "seed-1/mrpc"):
        name = part.replace("/", "-")
        assert perturb(finetuned / part, "--seed", 3, out=name)[0] == 0
        assert comparable(metrics_of(tmp_path / name)) == comparable(alone[1])


def test_a_note_on_some_seeds_names_them():
    told = {"": ["of all pairs"], "seed-0": ["of all pairs", "90 %", "same"],
            "seed-1": ["of all pairs", "93 %", "same"]}  # fmt: skip
    assert seed_notes(told) == ["of all pairs", "seed-0: 90 %", "same", "seed-1: 93 %"]
    assert seed_notes({"": [], "seed-0": ["a"], "seed-1": [], "seed-2": ["a"]}) == [
        "seed-0, seed-2: a"
    ]
    assert seed_notes({"": ["given"]}) == ["given"], "one model has no seeds to name"


def test_a_run_with_seeds_is_named_where_facts_are_expected(
    finetuned, perturb, consilience, tmp_path
):
    assert perturb(finetuned)[0] == 0
    for run, name in ((tmp_path / "run", " with 2 seeds"), (tmp_path / "run" / "seed-0", "")):
        status, out, err = consilience("analyze", "patterns", run)
        assert (status, out) == (2, "")
        message = f"{run}: a run of sentence pairs{name}; expected a run of probe. Its changed "
        assert message in " ".join(err.split())
        assert "`consilience compare`, `consilience report` and `consilience analyze tasks`" in err


def test_runs_over_other_texts_are_not_compared(classifier, perturb, consilience, tmp_path):
    """Another first or second sentence is an error; other indicators and truncation are notes."""
    model, other = classifier("bert", SAME), tmp_path / "other.jsonl"
    assert perturb(model, out="one")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    for name, said in (
        ("sentence1", "1 of 8 items have another first sentence or gold, the first is '3': '"),
        ("sentence2", "two has the first sentences and golds of one, and other second sentences"),
    ):
        changed = [*rows[:3], rows[3] | {name: "Oslo"}, *rows[4:]]
        other.write_text("".join(json.dumps(row) + "\n" for row in changed))
        assert perturb(model, data=other, out=name)[0] == 0
        (tmp_path / name).rename(tmp_path / "two")
        status, out, err = consilience("compare", tmp_path / "one", tmp_path / "two")
        assert (status, out) == (2, "")
        assert f"error: {tmp_path / 'two'}: runs over different texts: {said}" in err
        assert "expected runs over the same pairs" in err
        assert "Ask both models of the same --data" in err
        (tmp_path / "two").rename(tmp_path / f"was {name}")
    asked = ("--indicators", "One,Two", "--max-length", 12)
    assert perturb(model, *asked, out="two")[0] == 0
    status, _, err = consilience("compare", tmp_path / "one", tmp_path / "two")
    assert status == 0
    assert "note: one: asked with the indicators Sentence1, Sentence2" in err
    assert "note: two: asked with the indicators One, Two" in err
    assert "note: two: 8 of 8 items were too long for 12 tokens" in err
    other.write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    assert perturb(model, data=other, out="three")[0] == 0
    status, _, err = consilience("compare", tmp_path / "one", tmp_path / "three")
    assert status == 0
    assert "three has the items in another order than one; whether their second" in err


def test_one_model_and_its_seeds_do_not_share_a_folder(finetuned, perturb, tmp_path):
    assert perturb(finetuned / "seed-1")[0] == 0
    metrics = (tmp_path / "run" / "metrics.csv").read_bytes()
    status, _, err = perturb(finetuned)
    assert (status, "another run" in err) == (2, True)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics
    assert perturb(finetuned, out="seeds")[0] == 0
    assert perturb(finetuned / "seed-1", out="seeds")[0] == 2


def test_every_perturbation(classifier, perturb, tmp_path):
    model = classifier("llama", SAME)
    status, out, _ = perturb(model, "--perturbations", "all", "--examples", 0)
    assert status == 0
    assert "Answers that changed" not in out
    every = metrics_of(tmp_path / "run")
    assert set(every["subset"]) == {"all", *PERTURBATIONS}
    assert perturb(model, "--perturbations", "signal,reverse", out="two")[0] == 0
    two = metrics_of(tmp_path / "two")
    for form in FORMS[1:]:
        for name in ("value", "low", "high"):
            one, other = (row_of(each, "consistency", form)[name] for each in (every, two))
            assert one == other


def test_halves_and_samples(classifier, perturb, tmp_path):
    """Two halves are all pairs, each once; a sample is some, the same for a seed."""
    model, items = classifier("bert", SAME), {}
    for name, options in (
        ("1", ("--half", 1)), ("2", ("--half", 2)), ("few", ("--limit", 3)),
        ("again", ("--limit", 3)), ("seed", ("--limit", 3, "--seed", 1)), ("more", ("--limit", 99)),
    ):  # fmt: skip
        assert perturb(model, *options, out=name)[0] == 0
        items[name] = read_answers(tmp_path / name)["item"].unique().sort().to_list()
    assert sorted(items["1"] + items["2"]) == [str(at) for at in range(8)] == items["more"]
    assert len(items["1"]) == 4
    assert len(items["few"]) == 3
    assert items["few"] == items["again"] != items["seed"]


def test_other_indicators(classifier, perturb, tmp_path):
    assert perturb(classifier("llama", SAME), "--indicators", "One, Two")[0] == 0
    task = json.loads((tmp_path / "run" / "run.json").read_text())["asked"]["task"]
    assert task["indicators"] == ["One", "Two"]
    texts = [(row["original_1"], row["original_2"]) for row in changed_in(tmp_path / "run")]
    assert texts
    assert all(one.startswith("One: ") and two.startswith("Two: ") for one, two in texts)


def test_a_model_is_asked_with_the_indicators_of_its_training(perturb, tmp_path):
    """Unless others are given: those that finetune left beside the model."""
    model = save_classifier(tmp_path / "model", "llama")
    beside = {"joined": "string", "pool": "mean", "longest": 60, "indicators": ["Left", "Right"]}
    (model / "consilience.json").write_text(json.dumps(beside))
    assert perturb(model)[0] == 0
    assert all(row["original_1"].startswith("Left: ") for row in changed_in(tmp_path / "run"))
    asked = json.loads((tmp_path / "run" / "run.json").read_text())["asked"]["model"]
    assert (asked["joined"], asked["pool"], asked["longest"]) == ("string", "mean", 60)
    assert perturb(model, "--indicators", "One,Two", out="other")[0] == 0
    assert all(row["original_1"].startswith("One: ") for row in changed_in(tmp_path / "other"))


def test_long_items_are_cut_or_left_out(classifier, perturb, tmp_path):
    model = classifier("bert", SAME)
    lengths = load_pair_classifier(str(model), SAME, device="cpu").encode(forms_of())
    longest = [
        max(len(each["input_ids"]) for each in lengths[at : at + 3]) for at in range(0, 24, 3)
    ]
    limit = sorted(longest)[4]
    too_long = sum(each > limit for each in longest)
    assert 0 < too_long < 8
    status, _, err = perturb(model, "--long", "exclude", "--max-length", limit)
    assert status == 0
    assert f"mrpc: {too_long} of 8 items excluded, such as" in err
    row = row_of(metrics_of(tmp_path / "run"), "consistency", "reverse")
    assert (row["n"], row["n_excluded"]) == (8 - too_long, too_long)
    status, _, err = perturb(model, "--max-length", limit, out="cut")
    assert status == 0
    assert f"{too_long} of 8 items were too long for {limit} tokens: " in err
    assert row_of(metrics_of(tmp_path / "cut"), "consistency", "reverse")["n"] == 8


def answers_in(folder):
    return read_answers(folder).sort("item", "variant_index")["answer"].to_list()


def test_labels_are_found_by_their_names(classifier, perturb, tmp_path):
    """The head's rows in another order, with their names: the same answers and numbers."""
    assert perturb(classifier("bert", SAME), out="plain")[0] == 0
    assert perturb(classifier("bert", SAME, flipped=True), out="flipped")[0] == 0
    assert answers_in(tmp_path / "plain") == answers_in(tmp_path / "flipped")
    plain, flipped = (comparable(metrics_of(tmp_path / name)) for name in ("plain", "flipped"))
    assert plain == flipped


def test_labels_that_a_model_does_not_name(classifier, perturb, tmp_path):
    """In the right order as if it had named them; in the other one every answer is the other."""
    model = classifier("bert", SAME, named=False)
    assert perturb(classifier("bert", SAME), out="named")[0] == 0
    assert perturb(model, "--model-labels", ", ".join(SAME).upper(), out="right")[0] == 0
    assert perturb(model, "--model-labels", ",".join(SAME[::-1]), out="swapped")[0] == 0
    named, right, swapped = (tmp_path / name for name in ("named", "right", "swapped"))
    assert answers_in(named) == answers_in(right)
    other = dict(zip(SAME, SAME[::-1], strict=True))
    assert answers_in(swapped) == [other[each] for each in answers_in(named)]
    one, two = (values(metrics_of(each)) for each in (named, swapped))
    assert two["accuracy"] == 1 - one["accuracy"]
    assert two["consistency"] == one["consistency"]
    status, _, err = perturb(model, out="unnamed")
    assert status == 2
    assert "the model's labels are LABEL_0, LABEL_1; expected not_equivalent, equivalent" in err
    assert "--model-labels A,B" in err


def test_where_labels_stand():
    assert label_positions(("a", "b"), {0: "B", 1: "A"}, None) == [1, 0]
    assert label_positions(("a", "b"), {0: "x", 1: "y"}, ["b", "a"]) == [1, 0]
    with pytest.raises(ConsilienceError, match="3 labels in --model-labels; .* the model's 2"):
        label_positions(("a", "b"), {0: "x", 1: "y"}, ["b", "a", "c"])
    with pytest.raises(ConsilienceError, match="the model has 3 labels: a, b, c; expected a, b"):
        label_positions(("a", "b"), {0: "a", 1: "b", 2: "c"}, None)


@pytest.fixture
def bad(tmp_path, classifier, model_folder, finetuned):
    """Models and files by name, most of which cannot be asked."""
    return {
        "good": classifier("bert", SAME),
        "three": classifier("bert", TASKS["mnli"].labels),
        "one more": classifier("bert", (*SAME, "other")),
        "seeds": finetuned,
        "encoder": model_folder("bert"),
        "t5": model_folder("t5"),
        "llama": model_folder("llama"),
        "gpt2": model_folder("gpt2"),
        "no column": write_pairs(tmp_path / "column.jsonl", sentence2=None),
        "odd label": write_pairs(tmp_path / "label.jsonl", label="perhaps"),
        "no label": write_pairs(tmp_path / "unlabelled.jsonl", label=-1),
        "none": tmp_path / "none.jsonl",
    }


BAD = [
    ({"model": "encoder"}, "lack 4 tensors of a classifier, such as 'bert.pooler", "consilience finetune"),
    ({"model": "llama"}, "of a classifier, such as 'score.weight'", "consilience finetune"),
    ({"model": "three", "task": "rte"}, "the model's labels are entailment, neutral, contradiction", "expected entailment, not_entailment"),
    ({"model": "one more"}, "the model has 3 labels: not_equivalent, equivalent, other", "expected not_equivalent, equivalent"),
    ({"options": ("--model-labels", "equivalent")}, "1 labels in --model-labels", "expected the model's 2"),
    ({"options": ("--model-labels", "equal,unequal")}, "the model's labels are equal, unequal", "expected not_equivalent"),
    ({"options": ("--perturbations", "revers")}, "no perturbation 'revers'", "Did you mean 'reverse'"),
    ({"options": ("--perturbations", ",")}, "no name in ','", "names with commas"),
    ({"data": "no column"}, "no column 'sentence2' among idx, sentence1, label", "expected sentence2"),
    ({"data": "odd label"}, "row 1: the label 'perhaps'", "Check the task"),
    ({"data": "no label"}, "none of 8 rows has a label", "use the validation set"),
    ({"data": "none"}, "none.jsonl: no such file", "Check the path"),
    ({"task": "mprc"}, "no suite 'mprc'", "Did you mean 'mrpc'"),
    ({"model": "seeds", "task": "rte"}, "no model for the task 'rte'; expected mrpc", "--suite mrpc; or in a TOML file, name = \"mrpc\""),
    ({"options": ("--template", "{text}")}, "--template without --generate", "Add --generate"),
    ({"model": "encoder", "options": ("--generate",)}, "does not write text", "leave --generate out"),
    ({"model": "good", "options": ("--generate",)}, "of a masked language model", "checkpoint"),
    ({"model": "llama", "options": ("--generate", "--template", "x")}, "the template 'x'", "exactly one {text}"),
    ({"model": "llama", "options": ("--generate", "--template", "{text} {text}")}, "the template '{text} {text}'", "exactly one {text}"),
    ({"model": "t5", "options": ("--generate", "--pool", "mean")}, "--pool with --generate", "Leave it out"),
    ({"model": "t5", "options": ("--generate", "--model-labels", "a,b")}, "--model-labels with --generate", "Leave it out"),
    ({"model": "t5", "options": ("--generate", "--indicators", "A,B")}, "--indicators", "--template"),
    ({"model": "gpt2", "options": ("--generate", "--max-length", 60)}, "--max-length 60", "expected at most the model's 44"),
    ({"options": ("--max-length", 4096)}, "--max-length 4096", "expected at most the model's 128"),
    ({"options": ("--max-length", 8, "--long", "exclude")}, "no item of mrpc can be asked, such as:", "the model takes 8"),
    ({"options": ("--max-length", 4)}, "Invalid value for '--max-length'", "greater than or equal to 8"),
    ({"options": ("--pool", "mean")}, "--pool mean with a model that has no such choice", "Leave it out"),
    ({"options": ("--indicators", "One,one")}, "the indicators One, one", "two that differ"),
    ({"options": ("--indicators", "One")}, "1 entries in 'indicators'", "expected 2"),
    ({"options": ("--half", 3)}, "Invalid value for '--half'", "less than or equal to 2"),
    ({"options": ("--limit", 0)}, "Invalid value for '--limit'", "greater than or equal to 1"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message", "todo"), BAD, ids=lambda value: str(value)[:70])
def test_bad_input_is_one_message_and_status_2(given, message, todo, bad, perturb, tmp_path):
    named = {name: bad[value] for name, value in given.items() if name in ("model", "data")}
    task = {"task": given["task"]} if "task" in given else {}
    model = named.pop("model", bad["good"])
    status, out, err = perturb(model, *given.get("options", ()), **named, **task)
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert (status, out) == (2, "")
    assert message in said
    assert todo in said
    assert "Traceback" not in err
    assert len(re.findall("error", err, re.IGNORECASE)) == 1
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("equivalent", "equivalent"), ("not_equivalent", "not_equivalent"),
        (" Equivalent.\n", "equivalent"), ("NOT_EQUIVALENT", "not_equivalent"),
        ("equivalent .", "equivalent"), ("equivalent..", None), ("not equivalent", None),
        ("equivalent because", None), ("<extra_id_0> equivalent", None), ("", None), (".", None),
        ("equivalent, not_equivalent", None), ("1", None),
    ],
)  # fmt: skip
def test_which_text_is_a_label(text, label):
    assert label_of(text, SAME) == label


@pytest.mark.parametrize(
    ("task", "whole", "bracketed"),
    [
        ("mrpc", "mrpc sentence1: a sentence2: b", "mrpc [sentence1] a [sentence2] b"),
        ("rte", "rte sentence1: a sentence2: b", "rte [sentence1] a [sentence2] b"),
        ("mnli", "mnli hypothesis: b premise: a", "mnli [hypothesis] b [premise] a"),
        ("qnli", "qnli question: a sentence: b", "qnli [question] a [sentence] b"),
        ("qqp", "qqp question1: a question2: b", "qqp [question1] a [question2] b"),
    ],
)
def test_what_t5_reads(task, whole, bracketed, writer):
    model = writer("t5", TASKS[task])
    pair = TextPair("0", "a", "b", "")
    forms = forms_of([pair], ("signal",), first=partial(t5_original, task=TASKS[task]))
    assert [model.prompt(form) for form in forms] == [whole, bracketed]
    ids = model.encode(forms)[0]["input_ids"]
    assert ids == model.tokenizer(whole)["input_ids"]
    assert ids[-1] == model.tokenizer.eos_token_id


def test_what_a_template_says(writer):
    form = original(TextPair("0", "a", "b", ""), MRPC.indicators)
    model = writer("llama", template="{first}/{second}\n{text}\n{labels} {x}?")
    assert model.prompt(form) == (
        "Sentence1/Sentence2\nSentence1: a Sentence2: b\nnot_equivalent, equivalent {x}?"
    )
    assert writer("t5", template="{text} ?").prompt(form) == "Sentence1: a Sentence2: b ?"
    own = writer("llama").prompt(form)
    assert own.startswith("Sentence1: a Sentence2: b\n\nHow do Sentence1 and Sentence2 relate?")
    assert own.endswith("these labels and nothing else: not_equivalent, equivalent.")
    for text in ("", "no place", "{text} {text}"):
        with pytest.raises(ConsilienceError, match="expected exactly one {text}"):
            writer("llama", template=text)


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture
def chat(tmp_path, model_folder):
    """A tiny Llama with a chat template; ``chat(eos_token_id=[0, 5])`` is its generation's.

    With ``sliding_window`` a Mistral, which has the same weights.
    """

    def build(sliding_window=None, **generation):
        folder = tmp_path / "chat"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder("llama"))
        tokenizer.chat_template = CHAT
        if sliding_window:
            config = loaded.config.to_dict() | {"sliding_window": sliding_window}
            del config["model_type"], config["architectures"]
            weights = loaded.state_dict()
            loaded = transformers.MistralForCausalLM(transformers.MistralConfig(**config))
            loaded.load_state_dict(weights)
        loaded.generation_config.update(**generation)
        loaded.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return build


@cache
def plain(folder, kind):
    """Model and tokenizer as transformers has them; whether it has a chat template."""
    names = {"seq2seq": "AutoModelForSeq2SeqLM", "causal": "AutoModelForCausalLM"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, names[kind]).from_pretrained(folder).eval()
    return model, tokenizer, bool(getattr(tokenizer, "chat_template", None))


@torch.no_grad()
def reference_scores(folder, kind, prompt, label_texts):
    """One prompt, one label: the sum of the log-probabilities of the label's tokens."""
    model, tokenizer, chats = plain(folder, kind)
    ids = tokenizer(prompt, add_special_tokens=not chats).input_ids
    found = []
    for text in label_texts:
        if kind == "seq2seq":
            target = tokenizer(text).input_ids
            given = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits[0]
        else:
            target = tokenizer(text if chats else " " + text, add_special_tokens=False).input_ids
            target = [*target, tokenizer.eos_token_id] if chats else target
            logits = model(torch.tensor([ids + target])).logits[0, len(ids) - 1 : -1]
        steps = logits.double().log_softmax(-1)
        found.append(sum(steps[at, each].item() for at, each in enumerate(target)))
    return np.array(found)


@torch.no_grad()
def reference_text(folder, kind, prompt, ends=()):
    """One prompt: the likeliest token, again and again, until an end token or twenty of them."""
    model, tokenizer, chats = plain(folder, kind)
    ids = tokenizer(prompt, add_special_tokens=not chats).input_ids
    written = []
    while len(written) < MOST_WRITTEN:
        if kind == "seq2seq":
            given = torch.tensor([[model.config.decoder_start_token_id, *written]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits
        else:
            logits = model(torch.tensor([ids + written])).logits
        token = int(logits[0, -1].argmax())
        if token in (tokenizer.eos_token_id, tokenizer.pad_token_id, *ends):
            break
        written.append(token)
    return tokenizer.decode(written).strip(), written


def written(model, forms):
    """What the model writes behind each form."""
    found = {}
    for places, texts in model.write(forms):
        found |= dict(zip(places.tolist(), texts, strict=True))
    return [found[at] for at in range(len(forms))]


@pytest.fixture(params=["t5", "t5 template", "llama", "chat", "window", "mamba"])
def asked_writer(request, chat, writer, model_folder):
    """A model that writes, its folder, and forms to ask it."""
    family = request.param.split()[0]
    if family == "chat":
        folder = chat()
    elif family == "window":
        folder = chat(sliding_window=16)
    else:
        folder = model_folder(family)
    if request.param == "t5":
        return writer(folder), folder, forms_of(PAIRS[:1], first=partial(t5_original, task=MRPC))
    return writer(folder, template="{text}:"), folder, forms_of(PAIRS[:1])


def test_labels_are_scored_by_all_their_tokens(asked_writer):
    model, folder, forms = asked_writer
    expected = np.array(
        [
            reference_scores(folder, model.identity["kind"], model.prompt(form), SAME)
            for form in forms
        ]
    )
    close = 5e-5 if "Mamba" in model.identity["architecture"] else 2e-5
    for budget in (Budget(1), Budget(10**6)):
        model.budget = budget
        found = by_row(model.score(forms), len(forms))
        known = expected - np.logaddexp(*expected.T)[:, None]
        assert np.abs(found - known).max() < close
        for scores in model.score(forms):
            assert scores.words == SAME
            assert np.abs(scores.totals - expected[scores.rows]).max() < close


def test_what_is_written_is_the_likeliest(asked_writer):
    model, folder, forms = asked_writer
    expected = [
        reference_text(folder, model.identity["kind"], model.prompt(form))[0] for form in forms
    ]
    for budget in (Budget(1), Budget(10**6)):
        model.budget = budget
        assert written(model, forms) == expected


@pytest.fixture(params=["gpt2", "llama", "chat", "mamba"])
def short_writer(request, chat, writer, model_folder):
    """A causal model, its folder, and forms of several short items, prompts of several lengths."""
    folder = chat() if request.param == "chat" else model_folder(request.param)
    texts = [("a", "b"), ("Rome", "a b"), ("a", "b")]
    forms = [original(TextPair(str(at), *text, ""), ("A", "B")) for at, text in enumerate(texts)]
    return writer(folder, template="{text}:"), folder, forms


def test_items_that_are_read_together_are_answered_as_one_by_one(short_writer, monkeypatch):
    """In one chunk or in one for each prompt; at last where every decision is a near tie."""
    model, folder, forms = short_writer
    assert (model._tree_scorer is None) is ("Mamba" in model.identity["architecture"])
    texts = [reference_text(folder, "causal", model.prompt(form))[0] for form in forms]
    totals = [reference_scores(folder, "causal", model.prompt(form), SAME) for form in forms]
    for most, near in ((100, 1e-4), (1, 1e-4), (100, math.inf)):
        monkeypatch.setattr(label_writer, "MOST_PROMPTS", {"cpu": most})
        monkeypatch.setattr(label_writer, "NEAR_TIE", {torch.float32: near})
        model._totals.clear()
        for _ in range(2):  # read for the labels alone, then kept by write
            for scores in model.score(forms):
                np.testing.assert_allclose(
                    scores.totals, np.array(totals)[scores.rows], rtol=0, atol=5e-5
                )
            assert written(model, forms) == texts


def test_what_prompts_share_is_read_once(model_folder):
    """'a b c', 'a b d', 'a e': a and b, then the last tokens; two labels of three tokens; words."""
    folder = str(model_folder("gpt2"))
    loaded = load_pretrained(folder, revision=None, device="cpu", dtype="float32")
    head = tree_scorer(loaded.model, {}, 0, Budget(100)).head
    prompts = [[5, 6, 7], [5, 6, 8], [5, 9]]
    read = Prompts(loaded.model, head, prompts, Budget(100), 4)
    assert read._stored.used == 2 + 3
    totals = read.score([[10, 11, 12], [10, 13, 14], [12]])
    texts = read.write(4, {-1}, None, 0.0)
    assert read._stored.used == 2 + 3, "what was read behind the prompts is forgotten"
    for at, prompt in enumerate(prompts):
        logits = logits_of(loaded.model, [[*prompt, *texts[at]]])[0].log_softmax(-1)
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == texts[at]
        assert totals[at, 2] == pytest.approx(logits[len(prompt) - 1, 12].item(), abs=1e-4)


def test_choosing_after_writing_reads_nothing(short_writer, monkeypatch):
    model, _, forms = short_writer
    before = by_row(model.score(forms), len(forms))
    written(model, forms)
    monkeypatch.setattr(model, "_answer", lambda forms, writes: iter([]) if not forms else 1 / 0)
    np.testing.assert_array_equal(by_row(model.score(forms), len(forms)), before)


def test_a_model_that_reads_trees_reads_on_from_a_cache(model_folder):
    """As before a tree was planted: several tokens behind a cache attend to what is before them."""
    folder = str(model_folder("llama"))
    model = load_pretrained(folder, revision=None, device="cpu", dtype="float32").model
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        expected = model(ids).logits[:, 2:]
        assert tree_scorer(model, {}, 0, Budget(100))
        cache = model(ids[:, :2], use_cache=True).past_key_values
        found = model(ids[:, 2:], past_key_values=cache).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_chat_template_is_used(chat, writer):
    model = writer(chat(), template="{text}?")
    form = original(TextPair("0", "a", "b", ""), MRPC.indicators)
    assert model.prompt(form) == "<user>Sentence1: a Sentence2: b?\n<assistant>"
    assert model.identity["chat"] is True
    assert writer("llama", template="{text}?").identity["chat"] is False
    assert writer("t5").identity["chat"] is False


def test_generation_settings_of_a_checkpoint_do_not_count(chat, writer):
    """``write`` is the likeliest token each time, also where the checkpoint says otherwise."""
    form, folder = forms_of(PAIRS[:1])[0], chat()
    prompt = writer(folder, template="{text}:").prompt(form)
    expected, tokens = reference_text(folder, "causal", prompt)
    chat(suppress_tokens=tokens[:1], no_repeat_ngram_size=2, do_sample=True, temperature=2.0)
    assert written(writer(folder, template="{text}:"), [form]) == [expected]


def test_the_end_of_a_turn_is_scored_too(chat, writer):
    """Where the template ends a turn with a token that ends an answer, that one; else the first."""
    folder = chat()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    turn = tokenizer.convert_tokens_to_ids("Ġis")
    tokenizer.chat_template = CHAT.replace("}}\n", "}} is\n")
    tokenizer.save_pretrained(folder)
    model = writer(folder, template="{text}:")
    labels = [tokenizer(each, add_special_tokens=False).input_ids for each in SAME]
    assert model.targets == [[*ids, tokenizer.eos_token_id] for ids in labels]
    chat(eos_token_id=[tokenizer.eos_token_id, turn])
    tokenizer.save_pretrained(folder)
    assert writer(folder, template="{text}:").targets == [[*ids, turn] for ids in labels]


def test_a_chat_ends_with_any_end_token_of_its_checkpoint(chat, writer):
    """Some models end a turn with another token than their tokenizer's end: it is no text."""
    form, folder = forms_of(PAIRS[:1])[0], chat()
    prompt = writer(folder, template="{text}:").prompt(form)
    _, tokens = reference_text(folder, "causal", prompt)
    turn = next(each for at, each in enumerate(tokens) if at > 1 and each not in tokens[:at])
    eos = transformers.AutoTokenizer.from_pretrained(folder).eos_token_id
    model = writer(chat(eos_token_id=[eos, turn]), template="{text}:")
    expected, _ = reference_text(folder, "causal", prompt, ends=(turn,))
    assert written(model, [form]) == [expected]


def test_what_cannot_be_read_as_text_is_left_out(writer):
    """A language model's special tokens are what they are; the item says which."""
    model = writer("t5")
    asked = present_pairs(MRPC, [PAIRS[0], *ODD], partial(t5_original, task=MRPC), {}, model)
    reason = "has the special token '</s>' in it"
    assert asked.reasons == (None, reason, None, reason, None)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A tiny T5 that was taught what to write of MRPC's eight pairs.

    The original: the gold. REVERSE: the gold but for the last two, the other label. SIGNAL: no
    label.
    """
    words = dict.fromkeys(["mrpc", *SAME, "sentence1:", "sentence2:", "[sentence1]", "[sentence2]",
                           *(word for each in SENTENCES for word in each.split())])  # fmt: skip
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    pieces += [(f"▁{word}", -1.0) for word in words]
    tokenizer = transformers.T5Tokenizer(vocab=pieces, extra_ids=3)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)
    forms = forms_of(first=partial(t5_original, task=MRPC))
    prompts = ["mrpc " + " ".join(segment.text for segment in form) for form in forms]
    targets = []
    for at, pair in enumerate(PAIRS):
        turned = pair.label if at < 6 else SAME[1 - at % 2]
        targets += [pair.label, turned, "Oslo" if at == 0 else "<extra_id_0> Paris"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    labels = tokenizer(targets, return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(300):
        loss = model(**inputs, labels=labels).loss
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    folder = tmp_path_factory.mktemp("taught")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_labels_that_a_model_writes(taught, perturb, tmp_path):
    """Written: all right, C_R 6 of 8, C_S 0 as no label is said. Chosen: one label or the other."""
    status, out, err = perturb(taught, "--generate")
    assert status == 0
    metrics = metrics_of(tmp_path / "run")
    assert metrics["group"].unique(maintain_order=True).to_list() == ["mrpc", "mrpc-generated"]
    picked, said = (metrics.filter(pl.col("group") == each) for each in ("mrpc", "mrpc-generated"))
    for found in (picked, said):
        assert row_of(found, "accuracy")["value"] == row_of(found, "f1")["value"] == 1
        assert row_of(found, "consistency", "reverse")["value"] == 6 / 8
        assert row_of(found, "corrected_consistency", "reverse")["value"] == 1 / 2
    assert "no_label" not in set(picked["metric"])
    assert row_of(said, "no_label")["value"] == row_of(said, "no_label", "reverse")["value"] == 0
    assert row_of(said, "no_label", "signal")["value"] == 1
    assert row_of(said, "consistency", "signal")["value"] == 0
    answers = pl.read_parquet(tmp_path / "run" / "answers" / "mrpc-generated.parquet")
    raw = answers.filter(pl.col("variant") == "signal")["answer"].to_list()
    assert raw == ["Oslo", *["<extra_id_0> Paris"] * 7]
    assert answers["logprob"].null_count() == 24
    labelled = pl.read_parquet(tmp_path / "run" / "answers" / "mrpc.parquet")
    assert set(labelled["answer"]) == set(SAME)
    assert labelled["text_logprob"].null_count() == 0
    rows = [row for row in changed_in(tmp_path / "run") if row["group"] == "mrpc-generated"]
    assert sum(row["perturbation"] == "reverse" for row in rows) == 2
    assert sum(row["answer"] == "<extra_id_0> Paris" for row in rows) == 7
    assert "mrpc-generated" in out
    assert "label" in out
    before = stamps(tmp_path / "run")
    assert len(before) == 2
    assert perturb(taught, "--generate")[0] == 0
    assert stamps(tmp_path / "run") == before
    status, _, err = perturb(taught, "--generate", "--template", "{text}")
    assert (status, "another run: its model is" in err) == (2, True)


def test_a_causal_model_that_writes(model_folder, perturb, tmp_path):
    """Nothing that it writes is a label, so nothing agrees; what it chooses is one of the labels."""
    status, _, _ = perturb(model_folder("llama"), "--generate", "--template", "{text}:", "--json")
    assert status == 0
    said = metrics_of(tmp_path / "run").filter(pl.col("group") == "mrpc-generated")
    assert row_of(said, "no_label")["value"] == 1
    assert row_of(said, "consistency")["value"] == 0
    model = json.loads((tmp_path / "run" / "run.json").read_text())["asked"]["model"]
    assert (model["template"], model["chat"], model["kind"]) == ("{text}:", False, "causal")
    picked = pl.read_parquet(tmp_path / "run" / "answers" / "mrpc.parquet")["answer"]
    assert set(picked) <= set(SAME)
