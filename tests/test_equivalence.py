"""Answers that mean the same: clusters, what is merged, the judge."""

import polars as pl
import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Loading
from consilience.core.items import Choice, Question
from consilience.models.classifier import EmbeddingJudge, contradict, load_judge
from consilience.plans import questions as answering


class Same:
    """A judge that knows which answers are the same."""

    identity, notes = {}, []

    def __init__(self, *groups):
        self.groups = [set(group.split("|")) for group in groups]
        self.asked = []

    def same(self, pairs):
        self.asked += pairs
        return [any({one, two} <= group for group in self.groups) for _, one, two in pairs]


def test_clusters_begin_with_the_most_frequent_text_and_are_no_chains():
    """b is like a and like c, but a is not like c: a, the most frequent, takes b; c stays alone."""
    judge = Same("a|b", "b|c")
    assert answering.clusters({"c": 1, "a": 2, "b": 1}, "?", judge) == [["a", "b"], ["c"]]
    alphabetical = answering.clusters({"b": 1, "c": 1, "a": 1}, "?", judge)
    assert alphabetical == [["a", "b"], ["c"]]
    assert answering.clusters({"c": 3, "b": 1, "a": 1}, "?", judge) == [["c", "b"], ["a"]]
    assert answering.clusters({"a": 1}, "?", judge) == [["a"]]
    assert answering.clusters({}, "?", judge) == []


def test_only_unmatched_answers_of_one_item_are_merged():
    texts = {item: (f"{item}?", "other phrasing") for item in ("q1", "q2")}
    questions = [Question(item, "g", {"": of}, Choice("gold")) for item, of in texts.items()]
    table = pl.DataFrame({
        "group": ["g"] * 7,
        "item": ["q1"] * 5 + ["q2"] * 2,
        "answer": ["big", "large", "gold", "big", None, "large", "gold"],
        "unmatched": ["no", "no", None, "no", None, "no", None],
    })  # fmt: skip
    judge = Same("big|large|gold")
    merged = answering.merge_answers(table, questions, judge)
    expected = ["big", "big", "gold", "big", None, "large", "gold"]
    assert merged["answer"].to_list() == expected
    assert judge.asked == [("q1?", "big", "large")]
    assert merged.columns == table.columns
    assert answering.merge_answers(table, questions, Same()).equals(table)


def test_an_embedding_judge_compares_cosines_with_its_threshold(model_folder):
    folder = model_folder("bert")
    judge = EmbeddingJudge(str(folder), loading=Loading())
    asked = ("the capital", "Rome", "Paris")
    (cosine,) = judge.similarities([asked])
    assert judge.similarities([("the capital", "Paris", "Rome")]) == [cosine]
    assert judge.similarities([("the capital", "Rome", "Rome")]) == [pytest.approx(1)]
    assert 0 < cosine < 1
    for threshold, is_same in ((cosine - 1e-6, True), (cosine + 1e-6, False)):
        assert load_judge(f"embedding:{folder}:{threshold}").same([asked]) == [is_same]
    assert judge.identity["threshold"] == 0.96


@pytest.mark.parametrize(("one", "two", "expected"), cases("contradictions"))
def test_other_numbers_and_a_negation_contradict(one, two, expected):
    assert contradict(one, two) == contradict(two, one) == expected


def test_a_long_question_does_not_hide_its_answers(model_folder):
    judge = EmbeddingJudge(str(model_folder("bert")))
    asked = ("the capital is cats ? " * 100, "Rome", "Paris")
    assert judge.similarities([asked]) == judge.similarities([(asked[0][-300:], *asked[1:])])


def test_what_is_no_judge():
    for spec in ("minilm", "nli:x", "embedding:"):
        refused("expected embedding:MODEL", load_judge, spec)
    refused("above 0, at most 1", load_judge, "embedding:x:1.5")
