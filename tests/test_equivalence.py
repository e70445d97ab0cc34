"""Answers that mean the same: clusters, what is merged, the judges and their error."""

import polars as pl
import pytest

from checks import refused
from conftest import cases
from consilience.asking import questions as answering
from consilience.core.items import Choice, Question
from consilience.models.judges import EmbeddingJudge, EntailmentJudge, contradict, load_judge


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
        "group": ["g"] * 8,
        "item": ["q1"] * 6 + ["q2"] * 2,
        "answer": ["big", "large", "gold", "big", "(no text)", None, "large", "gold"],
        "unmatched": ["no", "no", None, "no", "no text", None, "no", None],
    })  # fmt: skip
    judge = Same("big|large|gold|(no text)")
    merged = answering.merge_answers(table, questions, judge)
    expected = ["big", "big", "gold", "big", "(no text)", None, "large", "gold"]
    assert merged["answer"].to_list() == expected
    assert judge.asked == [("q1?", "big", "large")]
    assert merged.columns == table.columns
    assert answering.merge_answers(table, questions, Same()).equals(table)


@pytest.mark.parametrize(("true_same", "false_same", "false_different", "text"), [
    (3, 1, 2, "on 10 pairs labelled by hand: precision 75% (30% to 95%), recall 60% (23% to 88%), "
              "error 30% (11% to 60%)"),
    (0, 0, 2, "precision undefined, recall 0%"),
    (10, 0, 0, "precision 100% (72% to 100%), recall 100% (72% to 100%), error 0% "),
])  # fmt: skip
def test_the_error_of_a_judge_is_counted(true_same, false_same, false_different, text):
    """Pairs are the same or different, and judged so or otherwise."""
    rest = 10 - true_same - false_same - false_different
    outcomes = [(True, True)] * true_same + [(False, True)] * false_same
    outcomes += [(True, False)] * false_different + [(False, False)] * rest

    class Known:
        def same(self, pairs):
            return [judged for _, judged in outcomes]

    pairs = [answering.LabelledPair(("q", "a", "b"), is_same) for is_same, _ in outcomes]
    assert text in answering.error_of(Known(), pairs)


def test_the_labelled_pairs_are_enough_and_their_parts_share_no_question():
    pairs = answering.labelled_pairs()
    parts = {part: answering.labelled_pairs(part) for part in ("tune", "test")}
    assert len(pairs) == sum(map(len, parts.values())) > 200
    assert min(map(len, parts.values())) > 100
    assert not {p.pair[0] for p in parts["tune"]} & {p.pair[0] for p in parts["test"]}
    assert len({frozenset(p.pair) for p in pairs}) == len(pairs)
    for part in parts.values():
        assert 0.4 < sum(p.is_same for p in part) / len(part) < 0.6
    assert all(p.pair[1] != p.pair[2] for p in pairs)


def test_an_embedding_judge_compares_cosines_with_its_threshold(model_folder):
    folder = model_folder("bert")
    judge = EmbeddingJudge(str(folder))
    asked = ("the capital", "Rome", "Paris")
    (cosine,) = judge.similarities([asked])
    assert judge.similarities([("the capital", "Paris", "Rome")]) == [cosine]
    assert judge.similarities([("the capital", "Rome", "Rome")]) == [pytest.approx(1)]
    assert 0 < cosine < 1
    for threshold, is_same in ((cosine - 1e-6, True), (cosine + 1e-6, False)):
        assert load_judge(f"embedding:{folder}:{threshold}").same([asked]) == [is_same]
    assert judge.identity["threshold"] == 0.96


def test_a_long_question_does_not_hide_its_answers(model_folder, classifier):
    """Of a text that a model reads in part, or not at all, the end with the answer counts."""
    embedding = EmbeddingJudge(str(model_folder("bert")))
    asked = ("the capital is cats ? " * 100, "Rome", "Paris")
    short = (asked[0][-300:], *asked[1:])
    assert embedding.similarities([asked]) == embedding.similarities([short])
    entailment = load_judge(f"nli:{classifier('bert', ('entailment', 'neutral'))}")
    entailment._classifier.longest = 24
    assert entailment.same([("is", "cats " * 99, "cats " * 99 + "dogs")]) == entailment.same(
        [("is", "cats " * 99, "cats " * 99)]
    )


@pytest.mark.parametrize(("one", "two", "expected"), cases("contradictions"))
def test_other_numbers_and_a_negation_contradict(one, two, expected):
    assert contradict(one, two) == contradict(two, one) == expected


@pytest.mark.parametrize("names", ["neutral ENTAILMENT contradiction", "entailment not_entailment"])
def test_an_entailment_judge_asks_both_directions(classifier, names):
    """It agrees with transformers on each direction, whatever the order of its labels."""
    import torch
    import transformers

    folder = classifier("bert", tuple(names.split()))
    judge = load_judge(f"nli:{folder}")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = ("Sentence1", "a", "b", "cats", "dogs", "the", "is")
    pairs = [("is", one, two) for one in words for two in words if one != two]

    @torch.inference_mode()
    def entails(one, two):
        encoded = tokenizer(one, two, return_tensors="pt")
        label = model.config.id2label[int(model(**encoded).logits.argmax())]
        return label.casefold() == "entailment"

    texts = [(f"{q} {one}", f"{q} {two}") for q, one, two in pairs]
    expected = [entails(one, two) and entails(two, one) for one, two in texts]
    assert judge.same(pairs) == expected
    assert (judge.same([(q, two, one) for q, one, two in pairs]), judge.same([])) == (expected, [])


def test_what_is_no_judge(classifier):
    refused("expected nli:MODEL or embedding:MODEL", load_judge, "minilm")
    refused("Did you mean 'embedding'", load_judge, "embeding:x")
    refused("Name a model", load_judge, "nli:")
    refused("above 0, at most 1", load_judge, "embedding:x:1.5")
    refused("the label 'entailment'", EntailmentJudge, str(classifier("bert")))
