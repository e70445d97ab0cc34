"""The scoring rule as a factor: what other rules read in the replies of a run."""

import itertools
import json
from zlib import crc32

import polars as pl
import pytest

import consilience as cs
from checks import output, refusal
from conftest import cases
from consilience.analysis.rules import RECORDED, read_by, reread, variance_by_rule
from consilience.core.items import Choice
from grids import grid_of
from test_elsewhere import eee

SAID = (
    "A", "B.", "the answer is C", "", "I do not know", "Answer: b", "<think>A</think>2", "3) ",
    "Paris", "no, not Paris", "10", "100", "東京", "(a)", "Final answer: **Berlin**", "A and B",
    "It is 10.", "<think>The answer is", "?",
)  # fmt: skip
"""What a model might write, whatever it is asked."""

QUESTIONS = [
    {"item": "1", "question": "Capital of France?", "answer": "Paris", "aliases": "Lutetia;Lutèce",
     "options": "Berlin;Paris;東京;London"},
    {"item": "2", "question": "Ten?", "answer": "10", "options": "100;10;A;B"},
    {"item": "3", "question": "Which?", "answer": "B", "options": "C;B;A;no"},
]  # fmt: skip
OPEN = [{name: row[name] for name in row if name != "options"} for row in QUESTIONS]
RULES = [None, "exact", "contains", "number", "last-number", r"regex:([A-D])\b"]
VARIED = {"order": "rotations", "labels": "A,a,1,none", "template": "plain,chat"}


def said(prompt):
    return SAID[crc32(str(prompt).encode()) % len(SAID)]


def the_rule_reproduces(run, rule):
    """Whether the rule of the run reads again what the run recorded, and is its first row."""
    answer = pl.when(pl.col("gold_option").is_null()).then("answer")
    names = ["option", "unmatched", answer.alias("of")]
    assert reread(run.answers, rule).select(names).equals(run.answers.select(names))
    assert cs.analyze_rules(run).tables["rules"]["rule"][0] == rule


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_of_the_run_gives_the_answers_that_it_recorded(rule, tmp_path):
    """Of a model asked here, and of a table, whatever is written and however options are shown."""
    for frame, usual in ((QUESTIONS, "exact"), (OPEN, "contains")):
        vary = VARIED if usual == "exact" else {"template": "plain,chat"}
        run = cs.evaluate(pl.DataFrame(frame), said, vary=vary, generate=True, match=rule)
        assert run.answers.height == (3 * 4 * 4 * 2 if usual == "exact" else 3 * 2)
        the_rule_reproduces(run, rule or usual)
        rows = [
            {"item": of["item"], "gold": of["answer"], "options": of.get("options"), "template": str(at),
             "answer": text, "labels": style} for of in frame for style in ("A", "none")
            for at, text in enumerate(SAID, 100 * (style == "none"))
        ]  # fmt: skip
        the_rule_reproduces(cs.score(pl.DataFrame(rows), match=rule), rule or usual)
    pairs = [
        {"item": item, "form": form, "gold": "yes", "options": "no;yes", "answer": text}
        for item in "ab" for form, text in zip(("original", "reverse"), ("Yes.", item), strict=True)
    ]  # fmt: skip
    the_rule_reproduces(cs.score(pl.DataFrame(pairs), match=rule), rule or "exact")


@pytest.mark.parametrize(("rule", "reply", "texts", "labels", "at"), cases("rules_of_harnesses"))
def test_what_the_rules_of_harnesses_read(rule, reply, texts, labels, at):
    assert read_by(rule, reply, [*map(Choice, texts)], [*labels]).position == at


def table(*replies):
    """Two questions in two templates, the right options A and B."""
    golds = {"one": "Paris", "two": "Rome"}
    asked = itertools.product(golds, "xy")
    return [
        {"item": item, "template": template, "gold": golds[item], "options": '["Paris", "Rome"]',
         "answer": reply} for (item, template), reply in zip(asked, replies, strict=True)
    ]  # fmt: skip


def test_the_numbers_of_a_small_table(consilience, tmp_path):
    """By hand, whatever the order of rows.

    ``exact`` reads A, nothing, B and B; of ``It is Paris`` the rules ``contains`` and ``closest``
    make Paris, which is as like ``A. Paris`` as 6 of 19 characters in both, twice.
    """
    rows = table("A", "It is Paris", "B", "B")
    found = cs.analyze_rules(cs.score(rows))
    names = ("rule", "value", "consistency_value", "read", "differ", "share", "alone")
    read = 1.0, 1.0, 1.0, 1, 0.25, 0
    none = 0.75, 0.5, 0.75, 0, 0.0, 0
    assert found.tables["rules"].select(names).rows() == [
        ("exact", *none), ("contains", *read), ("strict", *none), ("first-letter", *none),
        ("answer-line", 0.0, 0.0, 0.0, 3, 0.75, 0), ("closest", *read),
    ]  # fmt: skip
    assert found.verdict == [
        "Under another rule accuracy would be 0.0 to 100.0 % (exact: 75.0 %); 4 of 4 replies are read "
        "otherwise by at least one rule, 0 as another answer; the rule moves accuracy by 100.0 points, "
        "the variant by 50.0 points."
    ]
    again = cs.analyze_rules(cs.score([{**row, "item": row["item"] + "!"} for row in rows[::-1]]))
    for name, frame in found.tables.items():
        assert again.tables[name].equals(frame)
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    text = output(consilience, "analyze", "rules", "rows.json")
    assert "Shares of the variance of correctness" in text
    assert output(consilience, "analyze", "rules", "rows.json", "--format", "csv").count("\n") == 7
    output(consilience, "score", "rows.json", "--out", "kept")
    of_file, of_run = (
        output(
            consilience, "score", path, "--match", "contains", "--by", "metric", "--format", "csv"
        )
        for path in ("rows.json", "kept")
    )
    assert (
        of_file
        == of_run
        != output(consilience, "score", "kept", "--by", "metric", "--format", "csv")
    )


def test_the_parts_of_the_variance_by_hand():
    """One question is right in a cell of four, one in all, so every part is a 12th of the whole.

    Within the first the variance is 3/16, in equal parts by variant, rule and both; its mean over
    questions is 3/32. Between their means, 1/4 and 1, it is 9/32. A third one was asked once.
    """
    one, other = (grid_of(answers, golds=0) for answers in ([[0, -1], [0, 0]], [[-1, -1], [0, 0]]))
    parts = variance_by_rule([[one, other]])
    assert parts["part"].to_list() == ["variant", "rule", "variant x rule"]
    assert parts["value"].to_list() == pytest.approx([1 / 12] * 3)
    asked = [[True, False]]
    alone = [grid_of(answers, golds=0, asked=asked) for answers in ([[0, -1]], [[-1, -1]])]
    parts = variance_by_rule([[one, other], alone])
    within, between = (3 / 16 + 1 / 4) / 3, 7 / 48
    assert parts["value"].to_list() == pytest.approx(
        [part / 3 / (within + between) for part in (1 / 16, 1 / 16 + 1 / 4, 1 / 16)]
    )


def test_verdicts_of_records_are_a_row_of_their_own(tmp_path):
    """They count, and no rule gives them; where all rules agree, the sentence says so."""
    of = {"choices": ["oak", "elm"]}
    records = [eee(name, "oak", ["oak"], right=name == "a", **of) for name in "abc"]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, records)))
    rules = cs.analyze_rules(tmp_path / "log.jsonl").tables["rules"]
    assert rules["rule"].to_list()[:2] == [RECORDED, "exact"]
    assert rules["value"].to_list()[:2] == [pytest.approx(1 / 3), 1.0]
    rows = [{"item": name, "gold": "oak", "answer": "oak"} for name in "ab"]
    found = cs.analyze_rules(cs.score(rows))
    assert "; 0 of 2 replies are read otherwise" in found.verdict[0]
    assert found.tables["components"]["value"].is_nan().all(), "nothing varies"


def test_runs_without_replies_are_refused(consilience, tmp_path):
    asked = ("--model", "baseline:first", "--suite", "mini-questions", "--limit", "1")
    output(consilience, "probe", *asked, "--out", "run")
    assert "no written replies" in refusal(consilience, "analyze", "rules", "run")
