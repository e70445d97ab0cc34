"""What the table of a comparison says about constant runs, lacking answers and few relations."""

import math

import pytest

from consilience.metrics.differences import compare
from consilience.report.comparison_tables import comparison_table
from test_metrics import make_suite
from test_metrics import table as answers_table

CONSTANT_NOTE = "A constant model is 100 % consistent: compare chance-corrected consistency."


def run_of(*rows):
    golds = "oabo"
    named = [(str(n), f"s{n}", golds[n], list(answers)) for n, answers in enumerate(rows)]
    return answers_table(named)


VARIED = run_of("ooa", "aaa", "bbo", "oab")
CONSTANT = run_of("ooo", "ooo", "ooo", "ooo")
PARTLY = run_of("ooa", "aaa", [None, "b", "o"], [None, None, None])


def shown(first, second, by=None):
    suite = make_suite()
    return comparison_table(compare({"a": first, "b": second}, suite, "strict"), suite, (), by)


def test_a_constant_run_has_a_row_without_a_difference():
    table = shown(CONSTANT, VARIED)
    labels = ["Accuracy", "Consistency", "Chance-corrected consistency", "Consistent accuracy"]
    assert [row[0] for row in table.rows] == labels
    _, first, second, difference, *_ = table.rows[2]
    assert math.isnan(first) and math.isnan(difference)
    group = shown(VARIED, VARIED).rows[2]
    assert second == pytest.approx(group[1])
    assert CONSTANT_NOTE in table.notes
    assert CONSTANT_NOTE not in shown(VARIED, VARIED).notes


def test_the_facts_that_both_runs_answered_are_counted():
    note = "Compared on 2 of 4 facts: those that both runs answered."
    assert note in shown(VARIED, PARTLY).notes
    assert note in shown(PARTLY, VARIED, by="group").notes
    assert not any("ompared on" in text for text in shown(VARIED, CONSTANT).notes)


def test_runs_of_different_questions_name_the_option(consilience, tmp_path):
    probe = ("probe", "-m", "baseline:majority", "--groups", "capital", "-o")
    consilience(*probe, "few", "--limit", 4)
    consilience(*probe, "all")
    status, _, err = consilience("compare", "few", "all")
    assert status == 2
    assert "few used --limit 4; all asked all facts. Use the same option for both." in err
