"""What a comparison says: constant runs, lacking answers, few relations, and which answers changed."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.analysis.examples import FLIP_SCHEMA, KINDS_OF_FLIPS, LOST, MOVED, WON, flip_rows
from consilience.core.errors import ConsilienceError
from consilience.core.schemas import COMPARISON_SCHEMA
from consilience.metrics.differences import compare
from consilience.metrics.measure import CheckedAnswers, asked_of_all, legible, measure
from consilience.metrics.registry import label_of, within
from consilience.metrics.statistics import mcnemar
from consilience.report import layouts
from consilience.types import FACT_WORDS, QUESTION_WORDS
from pair_builders import write_pairs
from test_metrics import PATTERNS, make_suite
from test_metrics import table as answers_table

# -- differences ----------------------------------------------------------------------------------


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
    return layouts.comparison_table(compare({"a": first, "b": second}, suite, "strict"), suite, by)


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
     ["b against a: consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to "
      "+10.0)."]),
    ([("accuracy", 0.1, 0.02, 0.1), ("consistency", -0.2, 0.01, 0.1)],  # 2 x .01 and .02
     ["b against a: consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to +10.0), accuracy 60.0 instead of "
      "50.0 % (+10.0 points, 95 % CI -10.0 to +10.0)."]),
    ([("accuracy", 0.1, 0.04, 0.1), ("consistency", -0.2, 0.03, math.nan)],
     ["b against a: no headline number differs clearly (least p 0.060 of 2 after Holm's correction); the largest difference is "
      "consistency 30.0 instead of 50.0 % (-20.0 points, 95 % CI -40.0 to +10.0)."]),
    ([("accuracy", 0.1, 0.04, 0.1), ("consistency", -0.9, 0.001, 0.1),
      ("corrected_consistency", math.nan, math.nan, math.nan)],  # against constant answers
     ["b against a: accuracy 60.0 instead of 50.0 % (+10.0 points, 95 % CI -10.0 to "
      "+10.0)."]),
])  # fmt: skip
def test_a_comparison_begins_with_its_result_in_words(values, sentences):
    rows = rows_of(values).with_columns(low=pl.col("difference") - 0.2, high=pl.lit(0.1))
    assert layouts.verdict(rows, make_suite()) == sentences


def test_names_keep_their_capitals_within_a_sentence():
    labels = map(label_of, ("f1", "brier_score", "accuracy"))
    assert [*map(within, labels)] == ["F1", "Brier score", "accuracy"]


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
    assert not any("consistency -" in sentence for sentence in layouts.verdict(compared, suite))
    table, varied = layouts.comparison_table(compared, suite), shown(VARIED, VARIED)
    assert [row[0] for row in table.rows] == [row[0] for row in varied.rows]
    assert layouts.CONSTANT in table.notes and layouts.CONSTANT not in varied.notes


def test_a_relation_that_no_run_answered_has_no_p_and_is_in_no_family():
    suite = make_suite(ids=("R", "empty"))
    none = run_of(*[[None, None, None]] * 4).with_columns(group=pl.lit("empty"))
    one, two = (pl.concat([run, none]) for run in (VARIED, PARTLY))
    rows = compare({"a": one, "b": two}, suite, "strict").filter(metric="accuracy", kind="whole")
    known, empty = (rows.filter(group=name).row(0, named=True) for name in ("R", "empty"))
    assert math.isnan(empty["p"]) and math.isnan(empty["p_holm"])
    assert known["p_holm"] == known["p"], "a family of one test"


def test_several_runs_are_compared_on_what_all_were_asked():
    """The first run has the same value beside each later one: (1/3 + 1 + 0) / 3."""
    tables = {"a": VARIED, "b": SAME, "c": PARTLY}
    runs = {name: CheckedAnswers(of, make_suite()) for name, of in tables.items()}
    compared = compare(asked_of_all(runs), make_suite(), "strict")
    of_first = compared.filter(metric="consistency", over="all", kind="whole")["first_value"]
    assert of_first.to_list() == pytest.approx([4 / 9, 4 / 9])  # "ooa", "aaa" and "bo"
    runs["none"] = CheckedAnswers(run_of(*[[None] * 3] * 4), make_suite())
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


# -- changed answers ------------------------------------------------------------------------------


def numbers_of(*pair, suite=None):
    suite = suite or make_suite()
    numbers, changed = flip_rows(tuple(CheckedAnswers(run, suite) for run in pair), "a", "b")
    return numbers.row(0, named=True), changed


def test_flips_by_hand():
    """Golds o a b o; the subjects' differences are 0, -1, 1 and 1: no sum is nearer 0 than 1."""
    row, changed = numbers_of(VARIED, run_of("oob", "aab", "bbb", "boo"))
    assert (row["n"], row["items"], row["items_changed"]) == (12, 4, 4)
    assert [row[name] for name in ("changed", LOST, WON, MOVED)] == [6 / 12, 2 / 12, 3 / 12, 1 / 12]
    assert (row["test"], row["p"]) == ("sign flips of subjects", 1)
    assert row["low"] < 0.5 < row["high"]
    assert changed.select("item", "variant", "first", "second", "flip").rows()[:2] == [
        ("0", PATTERNS[2], "a", "b", MOVED), ("1", PATTERNS[2], "a", "b", LOST),
    ]  # fmt: skip


def test_a_subject_with_several_golds_counts_once_and_any_of_them_is_right():
    """Slovenia borders four countries, Portugal one; the answer to a subject is that to each fact.

    Slovenia: Russia -> Italy, Italy -> Austria, Peru -> Chile. Portugal: Spain -> Italy, twice.
    """
    golds = {"Slovenia": ["Austria", "Croatia", "Hungary", "Italy"], "Portugal": ["Spain"]}

    def run(**answers):
        facts = [(subject, gold) for subject, of in golds.items() for gold in of]
        rows = [(str(at), *fact, answers[fact[0]].split()) for at, fact in enumerate(facts)]
        return answers_table(rows)

    one = run(Slovenia="Russia Italy Peru", Portugal="Spain Spain Spain")
    two = run(Slovenia="Italy Austria Chile", Portugal="Italy Italy Spain")
    suite = make_suite(cardinality="N-M")
    row, changed = numbers_of(one, two, suite=suite)
    assert (row["n"], row["items"], row["changed"]) == (6, 2, 5 / 6)
    assert [row[name] for name in KINDS_OF_FLIPS] == [2 / 6, 1 / 6, 1 / 6]
    assert changed["flip"].to_list() == [WON, "right to right", MOVED, LOST, LOST]
    part = one.with_columns(answer=pl.when(pl.col("item") != "0").then("answer"))
    assert numbers_of(part, two, suite=suite)[0] == row, "one has no answer"
    assert changed["gold"].to_list() == ["Austria|Croatia|Hungary|Italy"] * 3 + ["Spain"] * 2


def test_variants_of_one_item_are_not_independent():
    """Four subjects all become right: p is 2 / 2^4, not 2 / 2^12 of twelve answers."""
    row, _ = numbers_of(run_of("aaa", "bbb", "aaa", "aaa"), run_of("ooo", "aaa", "bbb", "ooo"))
    assert (row[WON], row["p"]) == (1, 0.125)
    assert mcnemar(0, 12) < 0.001


def test_one_answer_of_each_subject_is_mcnemars_test():
    suite = make_suite(PATTERNS[:1], edges={})

    def run(answers):
        rows = [(str(at), f"s{at}", "o", [answer]) for at, answer in enumerate(answers)]
        return answers_table(rows, patterns=PATTERNS[:1])

    row, _ = numbers_of(run("oaaaaaao"), run("aooooooo"), suite=suite)
    assert (row["test"], row["p"]) == ("exact McNemar", 2 * (1 + 7) / 2**7)


def test_no_answer_is_wrong_and_the_same_as_no_answer():
    """Golds o a b o: none to none, right and wrong to none, none to right; one was not asked."""
    one = run_of([None, "o", "a"], "aaa", "bbb", [None, "o", "o"]).drop("excluded")
    two = run_of([None, None, None], "aaa", "bbb", ["o", "o", "o"]).drop("excluded")
    row, changed = numbers_of(one, two)
    assert (row["n"], row["changed"], row["items_changed"]) == (12, 3 / 12, 2)
    assert changed["flip"].to_list() == [LOST, MOVED, WON]
    is_last = (pl.col("item") == "3") & pl.col("answer").is_null()
    row, _ = numbers_of(one.with_columns(excluded=pl.when(is_last).then(pl.lit("why"))), two)
    assert (row["n"], row["changed"]) == (11, 2 / 11)


def test_a_change_and_its_direction_in_words():
    row = dict.fromkeys(FLIP_SCHEMA, None) | {
        "first": "a", "second": "b", "over": "all", "level": "", "changed": 0.2, "low": 0.1,
        "high": 0.3, "n": 50, "items": 10, "items_changed": 4, LOST: 0.15, WON: 0.05, MOVED: 0.0,
        "p": 0.01, "test": "exact McNemar",
    }  # fmt: skip
    numbers = pl.DataFrame([row], FLIP_SCHEMA)
    changed, direction = layouts.flip_verdict(numbers, make_suite())
    assert changed == "b against a: 20.0 % of 50 answers changed, in 4 of 10 facts."
    assert direction == "Right to wrong is more frequent than wrong to right (p < 0.05)."
    assert [row[0] for row in layouts.flip_table(numbers, make_suite()).rows] == ["all answers"]


def test_the_command_and_the_page(consilience, tmp_path):
    """Three questions in three orders, to the first option and to random ones."""
    lines = [f"Q{at}?,right{at},a{at};b{at},g{at % 2}" for at in range(3)]
    text = "\n".join(["question,answer,distractors,group", *lines])
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    for name, model in (("old", "first"), ("again", "first"), ("new", "random")):
        output(consilience, "probe", "--suite", "own.csv", "--model", f"baseline:{model}", "--out",
               name, "--seed", "1")  # fmt: skip
    asked = ("compare", "old", "again", "new", "--flips")
    document = json.loads(output(consilience, *asked, "--json"))
    by_part = {(row["second"], row["over"], row["level"]): row for row in document["flips"]}
    same = by_part["baseline:first (again)", "all", ""]
    changed = by_part["baseline:random", "all", ""]
    assert (same["changed"], same["n"], changed["n"]) == (0, 9, 9)
    levels = {level for _, over, level in by_part if over == "order"}
    assert levels == {"ABC", "BCA", "CAB"}
    assert len(document["answers"]) == round(9 * changed["changed"]) > 0
    assert document["answers"][0]["prompt"].startswith("Question: Q")
    text = output(consilience, "compare", "old", "new", "--flips", "--format", "csv")
    assert "group,item,variant," in text.splitlines()[0]
    assert pl.read_csv(text.encode()).height == len(document["answers"])
    flips = cs.compare(tmp_path / "old", tmp_path / "new").flips()
    assert flips.to_polars().height == len(document["answers"])
    assert "expected two runs or more" in refusal(consilience, "compare", "old", "--flips")
    assert "--flips with --by" in refusal(consilience, *asked, "--by", "group")
    for later, is_shown in (("again", False), ("new", True)):
        output(consilience, "report", "old", later, "--out", "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert ("answers that changed, in percent" in page) is is_shown


def test_sentence_pairs_have_forms(consilience, tmp_path):
    data = write_pairs(tmp_path / "pairs.jsonl")
    for seed in (0, 1):
        output(consilience, "probe", "--model", "baseline:random", "--suite", "mrpc", "--data", data,
               "--seed", seed, "--out", f"seed-{seed}")  # fmt: skip
    whole, *forms = cs.compare("seed-0", "seed-1").flips().tables["flips"].rows(named=True)
    assert [row["level"] for row in forms] == ["original", "reverse", "signal"]
    assert {row["over"] for row in forms} == {"form"} and whole["over"] == "all"
    assert whole["changed"] > 0 and whole["n"] == sum(row["n"] for row in forms)
    assert whole["changed"] == pytest.approx(sum(row["changed"] for row in forms) / 3)
