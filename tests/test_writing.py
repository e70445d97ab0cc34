"""Answers in a model's own words: what is written, sampled, and made of it."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
import torch

from checks import PromptStub, refused
from conftest import cases
from consilience.core.errors import Loading
from consilience.core.factors import Factor, FactorialDesign
from consilience.core.free_text import rule_of
from consilience.core.items import Choice, Question
from consilience.models.batches import Budget
from consilience.models.classifier import EmbeddingJudge, contradict, load_judge
from consilience.models.loading import load_pretrained
from consilience.models.prompted import Continued, PromptModel
from consilience.models.prompts import Writing
from consilience.options.commands import ProbeOptions
from consilience.plans import questions as answering
from consilience.plans.presentation import Presentation, PromptBuilder, Template, present
from consilience.plans.questions import Presented, Writer, asks_of, write
from reference import Plain, written

CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }} | {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
TEXTS = ("Rome and Paris ?", "the capital Paris ?", "Rome and Rome ?", "the Italy ?")


def prompt(text, *, is_chat=False):
    question = Question("q", "g", {"": (text,)}, Choice("Rome"))
    return present(question, Presentation(template=Template("t", "{question}", is_chat)))


PROMPTS = [prompt(text) for text in TEXTS]


@pytest.fixture
def writer(model_folder):
    """``writer("gpt2", temperature=1.0)``: a tiny model that writes."""

    def load(family, **options):
        loaded = load_pretrained(str(model_folder(family)))
        loaded.model.config.max_position_embeddings = 512
        loaded.tokenizer.chat_template = CHAT
        return PromptModel(loaded, Writing(**{"most_written": 6} | options))

    return load


@pytest.mark.parametrize("family", ["llama", "mamba", "t5"])
def test_a_sample_is_that_of_one_prompt_alone(writer, family):
    """In a tree, in batches and in a decoder."""
    model = writer(family, temperature=1.5, seed=7)
    prompts = [*PROMPTS, prompt(TEXTS[0], is_chat=True)]
    texts = written(model, prompts)
    plain, ids = Plain(model.model, model.tokenizer), [*map(model.prompt_ids, prompts)]
    ones = (Continued.of(of, False, 1, model.writing) for of in ids)
    assert texts == [
        plain.text(of, 6, is_line=not asked.is_chat, noisy=one.noisy, ends=model.ends)
        for of, asked, one in zip(ids, prompts, ones, strict=True)
    ]
    assert len(set(texts)) > 1


def test_a_sample_depends_on_its_prompt_its_number_and_the_seed_only(writer):
    model = writer("llama", temperature=2.0, seed=1)
    prompts, samples = [*PROMPTS, *PROMPTS], [1] * 4 + [2] * 4
    texts = written(model, prompts, samples)
    assert texts[:4] != texts[4:]
    model.budget = Budget(3)
    assert written(model, prompts[::-1], samples[::-1]) == texts[::-1]
    assert [written(model, [asked], [2])[0] for asked in PROMPTS] == texts[4:]
    model.writing = replace(model.writing, seed=2)
    assert written(model, prompts, samples) != texts
    assert model.identity["temperature"] == 2.0
    assert model.identity["sampling_seed"] == 1


def test_a_text_that_is_no_chat_ends_with_its_first_line(writer):
    model = writer("llama")
    spelled = {1: "\n", 2: " a", 3: " b\n", 4: "c"}
    model.tokenizer.decode = lambda ids, **_: "".join(spelled[token] for token in ids)
    line, chat = (Continued([], is_one_line=is_line) for is_line in (True, False))
    lines = [model._is_complete(line, ids) for ids in ([1], [1, 2], [1, 2, 3])]
    assert lines == [False, False, True]
    assert not model._is_complete(chat, [1, 2, 3])
    assert model._is_complete(chat, [2, model.ends[0]])
    assert model._text(line, [1, 2, 3, 4]) == "a b"
    assert model._text(chat, [1, 2, 3, 4]) == "a b\nc"


def test_samples_are_distributed_as_the_softmax_at_the_temperature():
    """Three tokens with logits 0, ln 2 and ln 4 at temperature 2: 1 to sqrt 2 to 2."""
    logits = torch.tensor([1.0, 2.0, 4.0]).log()
    prompts = (Continued.of([5], False, sample, Writing(temperature=2.0)) for sample in range(4000))
    draws = [int(one.noisy(logits, 3).argmax()) for one in prompts]
    expected = np.array([1, 2**0.5, 2]) / (3 + 2**0.5)
    shares = np.bincount(draws, minlength=3) / 4000
    assert np.abs(shares - expected).max() < 3 * np.sqrt(0.25 / 4000)
    one = Continued.of([1, 2], False, 1, Writing(temperature=2.0))
    steps = [one.noisy(torch.zeros(20_000), step).numpy() for step in (0, 1)]
    assert abs(np.corrcoef(*steps)[0, 1]) < 0.03, "each step has noise of its own"
    others = product(([1], [1, 2]), (1, 2), (0, 1))
    seeds = {Continued.of(ids, False, at, Writing(seed=seed)).seed for ids, at, seed in others}
    assert len(seeds) == 8


class Scripted(PromptStub):
    """A model that writes what it is given, whatever it is asked."""

    def __init__(self, *texts):
        self.texts = texts

    def why_not(self, prompts):
        return ["too long" if "long" in prompt.text else None for prompt in prompts]

    def write(self, prompts, samples):
        self.samples = list(samples)
        yield np.arange(len(prompts)), list(self.texts)


OPTIONS = Question(
    "q", "g", {"": ("?",)}, Choice("Paris"), (Choice("Rome"), Choice("Paris"), Choice("Oslo"))
)


def asked(model, questions, design, presentation=None, **of_writer):
    prompt_builder = PromptBuilder(design, {}, presentation or Presentation())
    group = asks_of(questions, prompt_builder, "own", is_written=True)
    return write(questions, prompt_builder, group, Writer(model, **{"match": "exact"} | of_writer))


ORDERS = FactorialDesign.full([Factor("order", ("ABC", "BCA"))])


@pytest.mark.parametrize(
    ("texts", "labels", "option", "answer", "unmatched"), cases("written_options")
)
def test_labels_and_texts_are_options_in_any_order(texts, labels, option, answer, unmatched):
    """B is Paris as given and Oslo after one rotation; a text is the same option in both."""
    table = asked(Scripted(*texts), [OPTIONS], ORDERS, Presentation(labels=labels))
    columns = table.select("option", "answer", "unmatched", "text").to_dict(as_series=False)
    assert columns == {
        "option": option, "answer": answer, "unmatched": unmatched,
        "text": [text if text.strip() else None for text in texts],
    }  # fmt: skip
    assert table["error"].count() == answer.count(None)
    if labels == "A":
        assert table["label"].to_list() == (["B", "B"] if option[1] else ["B", None])


def test_open_questions_have_samples_aliases_and_their_own_words():
    design = FactorialDesign.full([Factor("sample", ("1", "2", "3"))])
    questions = [
        Question("q1", "g", {"": ("?",)}, Choice("Go", ("Golang",))),
        Question("q2", "g", {"": ("too long?",)}, Choice("Go")),
    ]
    model = Scripted("golang.", "The C Language", "c language!")
    table = asked(model, questions, design)
    assert model.samples == [1, 2, 3]
    assert table["sample"].to_list() == ["1", "2", "3"] * 2
    assert table["answer"].to_list() == ["Go", "c language", "c language", None, None, None]
    assert table["gold_option"].to_list() == [None] * 6
    assert table["unmatched"].to_list() == [None, "not the gold", "not the gold", None, None, None]
    assert table["excluded"].to_list() == [None] * 3 + ["too long"] * 3


def test_samples_need_a_temperature_and_rules_have_names():
    options = ProbeOptions(suite="mini-open", vary=["sample=3"])
    refused("--vary sample at temperature 0", Presented.of, options)
    (sample,) = Presented.of(replace(options, temperature=1.0)).design.factors
    assert sample == Factor("sample", ("1", "2", "3"))
    refused("no rule 'first'", rule_of, "first")
    refused("does not write answers", Writer.of, ProbeOptions(), object())


def test_answers_that_mean_the_same_are_merged():
    design = FactorialDesign.full([Factor("sample", ("1", "2", "3"))])
    model, question = (
        Scripted("big", "large", "green"),
        Question("q", "g", {"": ("?",)}, Choice("blue")),
    )
    table = asked(model, [question], design, judge=Same("big|large"), match=None)
    assert table["answer"].to_list() == ["big", "big", "green"]
    assert table["text"].to_list() == ["big", "large", "green"]


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
    low = load_judge(f"embedding:{folder}:1e-9")
    assert low.same([asked, ("the capital", "Rome", "not Rome")]) == [True, False], "contradict"
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
