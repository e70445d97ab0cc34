"""The checks of suites, each on a suite that is worked out by hand."""

import json

import polars as pl
import pytest

from checks import output
from conftest import cases
from consilience.authoring.checks import audit
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
    assert audit(of(*parts)).filter(check=name)["count"].sum() == wrong


def test_check_shows_an_example_of_each_group_and_counts_the_suite(write_suite, consilience):
    ids = "abcdef"
    tables = {
        "relations": [{"relation": id_} for id_ in ids],
        "patterns": [{"relation": id_, "pattern": text} for id_ in ids
                     for text in ("[X]  is [Y].", "[X] is  [Y]", "[X] has [Y]")],
        "facts": [{"relation": id_, "subject": "A", "object": "B"} for id_ in ids],
    }  # fmt: skip
    folder = write_suite(**tables)
    out = output(consilience, "suite", "check", folder)
    assert out.count("'[X]  is [Y].'") == 10 and "2 more: --format csv" in out
    assert "Write single spaces." in " ".join(out.split())
    assert "no problems, 12 notes; 6 relations, 18 patterns, 6 facts" in out
    csv = output(consilience, "suite", "check", folder, "--format", "csv")
    rows = pl.read_csv(csv.encode()).filter(check="duplicate_variants")
    assert rows["example"][0] == "'[X]  is [Y].'; '[X] is  [Y]'" and rows["count"][0] == 2
    document = json.loads(output(consilience, "suite", "check", folder, "--json"))
    assert (document["patterns"], document["problems"], len(document["notes"])) == (18, [], 12)
