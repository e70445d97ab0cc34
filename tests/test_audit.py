"""The checks of suites, each on a suite that is worked out by hand."""

import json

import polars as pl
import pytest

from checks import output
from conftest import cases
from consilience.authoring.checks import findings_of
from consilience.core.items import Choice, Question
from consilience.suites.questions import Questions
from consilience.types import Suite

CAPITALS = [("France", "Paris"), ("Italy", "Rome")]


def of_patterns(*texts):
    return Suite.from_patterns({"r": list(texts)}, {"r": CAPITALS})


def of_facts(*facts):
    return Suite.from_patterns({"r": ["[X] [Y]."]}, {"r": list(facts)})


def question(item, group, texts, gold, *others, context=""):
    right = Choice(gold)
    return Question(item, group, {"": texts}, right, (right, *map(Choice, others)), context)


def of_questions(*items):
    return Questions("s", tuple(question(*item) for item in items))


WRONG = [
    (of, *case)
    for of, name in ((of_patterns, "patterns"), (of_facts, "facts"), (of_questions, "questions"))
    for case in cases(f"audit_{name}")
]


@pytest.mark.parametrize(("of", "name", "parts", "wrong"), WRONG)
def test_what_is_wrong_with_patterns_facts_and_questions(of, name, parts, wrong):
    found = [one for one in findings_of(of(*parts)) if one.check == name]
    assert (len(found) if of is of_patterns else sum(one.count for one in found)) == wrong


def test_check_shows_five_notes_of_each_check_and_counts_the_suite(write_suite, consilience):
    texts = [f"[X]  {word} [Y]." for word in "abcdef"]
    folder = write_suite(patterns=[{"relation": "capital", "pattern": text} for text in texts])
    out = output(consilience, "suite", "check", folder)
    assert out.count("[X]  ") == 5 and "1 further note: --format csv" in out
    assert "spaces: Write single spaces." in out
    assert "no problems, 6 notes; 1 relation, 6 patterns, 3 facts" in out
    csv = output(consilience, "suite", "check", folder, "--format", "csv")
    assert pl.read_csv(csv.encode())["check"].to_list() == ["spaces"] * 6
    document = json.loads(output(consilience, "suite", "check", folder, "--json"))
    assert (document["patterns"], document["problems"], len(document["notes"])) == (6, [], 6)
