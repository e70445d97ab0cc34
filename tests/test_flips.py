"""Which answers changed between two runs, in which direction, and whether that is noise."""

import json

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from consilience.analysis.flips import FLIP_SCHEMA, KINDS, LOST, MOVED, WON, flip_rows
from consilience.metrics.counts import Prepared
from consilience.metrics.statistics import mcnemar
from consilience.report.comparison_tables import flip_table, flip_verdict
from pair_builders import write_pairs
from test_comparison_tables import VARIED, run_of
from test_metrics import PATTERNS, make_suite
from test_metrics import table as answers_table


def numbers_of(*pair, suite=None):
    suite = suite or make_suite()
    numbers, changed = flip_rows(tuple(Prepared(run, suite) for run in pair), "a", "b")
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
    assert flip_verdict(pl.DataFrame([row], FLIP_SCHEMA), suite)[0].endswith(
        "16.7 % from wrong to wrong, 16.7 % from right to right.")  # fmt: skip
    assert (row["n"], row["items"], row["changed"]) == (6, 2, 5 / 6)
    assert [row[name] for name in KINDS] == [2 / 6, 1 / 6, 1 / 6]
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
    assert flip_verdict(numbers, make_suite()) == [
        "b against a: 20.0 % of 50 answers changed (95 % CI 10.0 to 30.0), in 4 of 10 facts: "
        "15.0 % from right to wrong, 5.0 % from wrong to right.",
        "Right to wrong is more frequent than wrong to right (p < 0.05).",
    ]
    assert [row[0] for row in flip_table(numbers, make_suite()).rows] == ["all answers"]


def test_the_command_and_the_page(consilience, tmp_path):
    """Three questions in three orders, to the first option and to random ones."""
    lines = [f"Q{at}?,right{at},a{at};b{at},g{at % 2}" for at in range(3)]
    text = "\n".join(["question,answer,distractors,group", *lines])
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    for name, model in (("old", "first"), ("again", "first"), ("new", "random")):
        output(consilience, "probe", "--suite", "own.csv", "--model", f"baseline:{model}", "--out",
               name, "--seed", "1")  # fmt: skip
    document = json.loads(
        output(consilience, "compare", "old", "again", "new", "--flips", "--json")
    )
    by_part = {(row["second"], row["over"], row["level"]): row for row in document["flips"]}
    same = by_part["baseline:first (again)", "all", ""]
    changed = by_part["baseline:random", "all", ""]
    assert (same["changed"], same["n"], changed["n"]) == (0, 9, 9)
    assert {level for _, over, level in by_part if over == "order"} == {
        "ABC", "BCA", "CAB",
    }  # fmt: skip
    assert len(document["answers"]) == round(9 * changed["changed"]) > 0
    assert document["answers"][0]["prompt"].startswith("Question: Q")
    text = output(consilience, "compare", "old", "new", "--flips", "--format", "csv")
    assert "group,item,variant," in text.splitlines()[0]
    assert pl.read_csv(text.encode()).height == len(document["answers"])
    assert len(cs.compare(tmp_path / "old", tmp_path / "new").flips().to_polars()) == (
        len(document["answers"])
    )
    assert "expected two runs or more" in refusal(consilience, "compare", "old", "--flips")
    assert "--flips with --by" in refusal(
        consilience, "compare", "old", "new", "--flips", "--by", "group"
    )
    for later, is_shown in (("again", False), ("new", True)):
        output(consilience, "report", "old", later, "--out", "page.html")
        assert (
            "answers that changed, in percent"
            in (tmp_path / "page.html").read_text(encoding="utf-8")
        ) is is_shown


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
