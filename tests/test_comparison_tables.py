"""What the table of a comparison says about constant runs, lacking answers and few relations."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from checks import refusal
from consilience.core.errors import ConsilienceError
from consilience.core.schemas import COMPARISON_SCHEMA
from consilience.metrics.counts import Prepared, asked_of_all
from consilience.metrics.differences import compare
from consilience.metrics.measure import legible, measure
from consilience.report.comparison_tables import CONSTANT, comparison_table, verdict
from consilience.report.table import number_text
from consilience.types import FACT_WORDS, QUESTION_WORDS
from test_metrics import make_suite
from test_metrics import table as answers_table


def run_of(*rows):
    golds = "oabo"
    named = [(str(n), f"s{n}", golds[n], list(answers)) for n, answers in enumerate(rows)]
    left_out = pl.when(pl.col("answer").is_null()).then(pl.lit("split into 2"))
    return answers_table(named).with_columns(excluded=left_out)


VARIED = run_of("ooa", "aaa", "bbo", "oab")
SAME = run_of("ooo", "ooo", "ooo", "ooo")
PARTLY = run_of("ooa", "aaa", [None, "b", "o"], [None, None, None])


def shown(first, second, by=None):
    suite = make_suite()
    return comparison_table(compare({"a": first, "b": second}, suite, "strict"), suite, by)


def rows_of(values, n=13):
    """Rows of means over relations: metric, difference, p and what could be seen."""
    columns = ("metric", "difference", "p", "detectable")
    empty = dict.fromkeys(COMPARISON_SCHEMA, None)
    named = {"over": "mean", "group": "", "kind": "whole", "level": "", "n": n}
    named |= {"first": "a", "second": "b", "first_value": 0.5}
    rows = [empty | named | dict(zip(columns, row, strict=True)) for row in values]
    frame = pl.DataFrame(rows, schema=COMPARISON_SCHEMA)
    return frame.with_columns(second_value=pl.col("first_value") + pl.col("difference"))


@pytest.mark.parametrize(("values", "sentences"), [
    ([("accuracy", 0.1, 0.03, 0.1), ("consistency", -0.2, 0.01, 0.1),
      ("consistent_accuracy", 0.04, 0.2, 0.17)],  # Holm: 3 x .01, 2 x .03 and .2
     ["b against a: consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to +10.0); p < 0.05 after Holm's "
      "correction over 3 headline numbers."]),
    ([("accuracy", 0.1, 0.02, 0.1), ("consistency", -0.2, 0.01, 0.1)],  # 2 x .01 and .02
     ["b against a: consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to +10.0), accuracy 60.0 instead of "
      "50.0 % (+10.0 points, 95 % CI -10.0 to +10.0); p < 0.05 after Holm's correction over 2 headline numbers."]),
    ([("accuracy", 0.1, 0.04, 0.1), ("consistency", -0.2, 0.03, math.nan)],
     ["b against a: no headline number differs clearly (p >= 0.05 after Holm's correction over 2 "
      "headline numbers), but 3 of 20 answers changed.",
      "The largest difference is consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to "
      "+10.0)."]),
    ([("accuracy", 0.1, 0.04, 0.1), ("consistency", -0.9, 0.001, 0.1),
      ("corrected_consistency", math.nan, math.nan, math.nan)],  # against constant answers
     ["b against a: accuracy 60.0 instead of 50.0 % (+10.0 points, 95 % CI -10.0 to +10.0); p < 0.05 after Holm's "
      "correction over 1 headline number."]),
])  # fmt: skip
def test_a_comparison_begins_with_its_result_in_words(values, sentences):
    flips = pl.DataFrame({"over": "all", "second": ["b"], "changed": 0.15, "n": 20})
    rows = rows_of(values).with_columns(low=pl.col("difference") - 0.2, high=pl.lit(0.1))
    assert verdict(rows, make_suite(), flips) == sentences


def test_a_constant_run_has_a_row_without_a_difference():
    table = shown(SAME, VARIED)
    labels = ["Accuracy", "Consistency", "Chance-corrected consistency", "Consistent accuracy"]
    assert [row[0] for row in table.rows] == labels
    _, first, second, difference, *_ = table.rows[2]
    assert math.isnan(first) and math.isnan(difference)
    group = shown(VARIED, VARIED).rows[2]
    assert second == pytest.approx(group[1])
    assert CONSTANT in table.notes and CONSTANT not in shown(VARIED, VARIED).notes


@pytest.mark.parametrize("words", [QUESTION_WORDS, FACT_WORDS])
def test_consistency_is_left_out_against_one_answer_to_everything(words):
    """The corrected consistency of the other one is (c - e) / (1 - e)."""
    suite = replace(make_suite(), words=words)
    compared = compare({"a": SAME, "b": VARIED}, suite, "strict")
    whole = compared.filter(kind="whole", over=words.over)
    agree, chance, row = (
        whole.filter(metric=name)
        for name in ("consistency", "chance_consistency", "corrected_consistency")
    )
    (agree, chance) = (of["second_value"].item() for of in (agree, chance))
    assert row["first_value"].is_nan().all()
    assert row["second_value"].item() == pytest.approx((agree - chance) / (1 - chance))
    assert not any("consistency -" in sentence for sentence in verdict(compared, suite))
    assert CONSTANT in comparison_table(compared, suite).notes


def test_the_facts_that_both_runs_were_asked_are_counted():
    note = "Compared on 2 of 4 facts: those that all runs were asked."
    assert note in shown(VARIED, PARTLY).notes
    assert note in shown(PARTLY, VARIED, by="group").notes
    assert "Compared on 4 facts." in shown(VARIED, SAME).notes


def test_a_relation_that_no_run_answered_has_no_p_and_is_in_no_family():
    suite = make_suite(ids=("R", "empty"))
    none = run_of(*[[None, None, None]] * 4).with_columns(group=pl.lit("empty"))
    one, two = (pl.concat([run, none]) for run in (VARIED, PARTLY))
    rows = compare({"a": one, "b": two}, suite, "strict").filter(metric="accuracy", kind="whole")
    known, empty = (rows.filter(group=name).row(0, named=True) for name in ("R", "empty"))
    assert math.isnan(empty["p"]) and math.isnan(empty["p_holm"])
    assert known["p_holm"] == known["p"], "a family of one test"
    line = "Compared on 2 of 8 facts: those that all runs were asked."
    assert line in comparison_table(rows, suite).notes


def test_a_detectable_difference_above_the_scale_is_shown_as_such():
    assert [number_text(x, "detectable") for x in (0.123, 1, 1.059)] == ["12.3", "100.0", ">100"]


def test_several_runs_are_compared_on_what_all_were_asked():
    """The first run has the same value beside each later one: (1/3 + 1 + 0) / 3."""
    tables = {"a": VARIED, "b": SAME, "c": PARTLY}
    runs = {name: Prepared(of, make_suite()) for name, of in tables.items()}
    compared = compare(asked_of_all(runs), make_suite(), "strict")
    of_first = compared.filter(metric="consistency", over="all", kind="whole")["first_value"]
    assert of_first.to_list() == pytest.approx([4 / 9, 4 / 9])  # "ooa", "aaa" and "bo"
    runs["none"] = Prepared(run_of(*[[None] * 3] * 4), make_suite())
    with pytest.raises(ConsilienceError, match="no query that all runs were asked"):
        asked_of_all(runs)


@pytest.mark.parametrize(("facts", "relations", "shown"), [
    (4, 1, False), (5, 1, True), (5, 4, False), (2, 5, True),
])  # fmt: skip
def test_an_interval_over_fewer_than_five_facts_or_relations_is_not_shown(facts, relations, shown):
    names = [f"R{at}" for at in range(1, relations + 1)]
    answers = {at: "ooa" if at % 3 else "oaa" for at in range(9)}
    tables = [
        answers_table([(f"{at}", f"{name}{at}", "o", [*answers[at + place]])
                       for at in range(facts)], name)
        for place, name in enumerate(names)
    ]  # fmt: skip
    metrics = legible(measure(pl.concat(tables), make_suite(ids=names), "strict"))
    (low,) = metrics.filter(metric="mean_accuracy", over="mean")["low"]
    assert math.isnan(low) != shown


def test_runs_with_another_limit_are_compared_on_the_facts_that_both_have(consilience, tmp_path):
    probe = ("probe", "-m", "baseline:majority", "--groups", "capital", "-o")
    consilience(*probe, "few", "--limit", 4)
    consilience(*probe, "all")
    consilience(*probe[:4], "continent", "-o", "other")
    for first, second in (("few", "all"), ("all", "few")):
        status, out, err = consilience("compare", first, second, "--by", "metric", "--json")
        assert status == 0
        assert "Compared on the 36 queries (4 facts) that all runs have" in err + out
        rows = json.loads(out)["differences"]
        assert {row["n"] for row in rows if row["metric"] == "accuracy"} == {1, 4}
    err = refusal(consilience, "compare", "other", "all")
    assert "no query that all runs have: baseline:majority (other) has" in err
    assert "Probe all models with the same --suite" in err
