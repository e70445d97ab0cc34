"""Forms of sentence pairs as a model is asked them: truncation, notes, changed answers."""

from dataclasses import replace
from functools import partial

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SENTENCES
from consilience.analysis.examples import CHANGED_ANSWERS_SCHEMA, changed_answers
from consilience.core.items import TextPair
from consilience.plans.asking import query_table
from consilience.plans.pairs import ask, present_pairs
from consilience.suites.pairs import PERTURBATIONS, Perturbation, chosen, original, t5_original
from pair_builders import (
    FORMS,
    MRPC,
    PAIRS,
    SAME,
    forms_of,
    present,
    shown,
    shuffled,
    suite_of,
    table,
)


def words(word, count):
    return " ".join([word] * count)


LONG = words("Rome", 40)


def long_pair(second="Oslo"):
    return TextPair("0", LONG, second, SAME[0])


def sentences(form):
    return {segment.indicator.casefold(): segment.sentence for segment in form}


def most_tokens(model, forms):
    return max(len(inputs["input_ids"]) for inputs in model.encode(forms))


ODD_PIECES = ["Rome", "", "[SEP]", "🙂", "👩‍👩‍👧", "é", "e\u0301", "\n", "ẞ", "İ", "Sentence1: "]
TEXTS = st.lists(st.sampled_from([*SENTENCES, *ODD_PIECES]), max_size=6).map(" ".join)


@pytest.mark.parametrize(("family", "longest"), [
    ("bert", 24), ("llama", 40), ("t5", 36), ("gpt2", 44),
])  # fmt: skip
def test_sentences_are_truncated_alike_in_every_form(family, longest, load, writer):
    """The two sentences are the same in all forms, beginnings of the whole ones, and each fits."""
    first = partial(original, indicators=MRPC.indicators)
    if family == "t5":
        model, first = writer("t5", longest=longest), partial(t5_original, task=MRPC)
    elif family == "gpt2":
        model = writer("gpt2", template="{text}:", longest=longest)
    else:
        model = load(family, longest=longest)
    assert model.longest == longest

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(TEXTS, TEXTS)
    def check(one, two):
        pair = TextPair("0", one, two, SAME[0])
        whole_forms = forms_of([pair], PERTURBATIONS, first=first)
        group, notes = present_pairs(MRPC, [pair], first, PERTURBATIONS, model)
        (forms,) = shown(group)
        assert group.variants == ("original", *PERTURBATIONS)
        for form, whole in zip(forms, whole_forms, strict=True):
            assert [segment.mark for segment in form] == [segment.mark for segment in whole]
            assert sentences(form) == sentences(forms[0])
            for name, text in sentences(form).items():
                assert sentences(whole)[name].startswith(text)
        truncated = any("were truncated" in note for note in notes)
        if {one.why_not for one in group.asks} == {None}:
            assert most_tokens(model, forms) <= longest
            assert truncated == (most_tokens(model, whole_forms) > longest)
        if not truncated:
            assert list(forms) == whole_forms

    check()


def test_items_that_are_too_long_are_cut(load):
    """The original and the forms of two of the three pairs fit; a form one token longer does not."""
    model = load("bert", longest=24)
    pairs = [TextPair(str(n), "Rome " * n, "Oslo", SAME[0]) for n in (1, 14, 15, 40)]
    lengths = [most_tokens(model, forms_of([pair])) for pair in pairs]
    assert lengths[1:3] == [24, 25]
    group, notes = present(pairs, FORMS[1:], model)
    assert {one.why_not for one in group.asks} == {None}
    note = (
        "2 of 4 items were too long for 24 tokens: 6 of their 6 forms were truncated, a sentence "
    )
    assert notes[0].startswith(note)
    assert sentences(shown(group)[2][0]) == {"sentence1": words("Rome", 14), "sentence2": "Oslo"}


def changed(first=None, second=None, indicators=None):
    """A user's perturbation: other sentences, other indicators."""

    def apply(form):
        texts = [first or form[0].sentence, second or form[1].sentence]
        names = indicators or [segment.indicator for segment in form]
        parts = zip(form, texts, names, strict=True)
        return tuple(replace(of, sentence=text, indicator=name) for of, text, name in parts)

    return Perturbation("changed", "for a test", apply)


def test_a_perturbation_that_changes_a_sentence_is_truncated_in_its_own_text(load):
    """24 tokens hold 15 words of two sentences, the longer one is shortened first.

    The longest form, signal's, spends 3 on [CLS] and two [SEP] and 6 on two marks of 3: 15 are left
    for the sentences, 3 of them a short second one. A paraphrase of both is shortened for itself.
    """
    model, pair = load("bert", longest=24), long_pair("Oslo is Oslo")
    both = changed(words("Berlin", 40), "Lisbon is Lisbon")
    formats = chosen(FORMS[1:]) | {"both": both, "short": changed("Berlin", "Lisbon")}
    group, notes = present([pair], formats, model)
    forms = dict(zip(group.variants, *shown(group), strict=True))
    alone, _ = present([pair], FORMS[1:], model)
    assert list(*shown(alone)) == [forms[name] for name in FORMS]
    assert sentences(forms["original"])["sentence1"] == words("Rome", 12)
    marks = 3 + 2 * 2  # the paraphrase stands behind the marks of the original, one token less each
    both = {"sentence1": words("Berlin", 24 - marks - 3), "sentence2": "Lisbon is Lisbon"}
    assert sentences(forms["both"]) == both
    assert sentences(forms["short"]) == {"sentence1": "Berlin", "sentence2": "Lisbon"}
    assert most_tokens(model, *shown(group)) == 24
    assert notes == [
        "1 of 1 items were too long for 24 tokens: 4 of their 5 forms were truncated, a sentence "
        "at the same place in every form that contains it"
    ]
    logprobs = dict(ask(MRPC, model, group).select("variant", "logprob").iter_rows())
    assert logprobs["both"] != logprobs["original"] != logprobs["short"]


def test_a_sentence_that_two_forms_share_ends_at_the_same_place(load):
    """A paraphrase of one sentence, three words longer: the other one loses three more everywhere."""
    model, pair = load("bert", longest=24), long_pair()
    perturbations = {"changed": changed(second="Oslo is in Europe")}
    ((one, two),) = shown(present([pair], perturbations, model)[0])
    ((alone,),) = shown(present([pair], [], model)[0])
    assert len(sentences(alone)["sentence1"].split()) == 16
    assert sentences(one) == {"sentence1": words("Rome", 13), "sentence2": "Oslo"}
    assert sentences(two) == {"sentence1": words("Rome", 13), "sentence2": "Oslo is in Europe"}


@pytest.mark.parametrize("second", ["Oslo", LONG])
def test_a_perturbation_may_rename_an_indicator(second, load):
    perturbations = {"changed": changed(indicators=("Paris", "Rome")), **chosen(["reverse"])}
    group, _ = present([long_pair(second)], perturbations, load("bert", longest=24))
    ((whole, renamed, turned),) = shown(group)
    assert [segment.indicator for segment in renamed] == ["Paris", "Rome"]
    assert [segment.sentence for segment in renamed] == [segment.sentence for segment in whole]
    assert turned == whole[::-1]


def changes_of(answers):
    """The changed answers to the first of the pairs."""
    first = partial(original, indicators=MRPC.indicators)
    pairs = PAIRS[: answers["item"].n_unique()]
    group, _ = present_pairs(MRPC, pairs, first, chosen(FORMS[1:]), None)
    queries = query_table(replace(group, id="t"), lambda form: [one.text for one in form])
    return changed_answers(queries, answers, suite_of(answers.drop_nulls("answer"), labels=SAME))


def test_changed_answers_the_surest_first():
    """Item 0 keeps its answer; 1 changes in both forms, 2 in signal; 3 has no answer.

    The margin of a change is the smaller one of both: item 1 min(2, 3) and min(2, .5), item 2 1.
    """
    no, yes = SAME
    said = [(yes, yes, yes), (yes, no, no), (no, no, yes), (None, None, None)]
    margins = [9, 9, 9, 2, 3, 0.5, 1, 7, 4, None, None, None]
    answers = table([(str(at), yes, row) for at, row in enumerate(said)])
    answers = answers.with_columns(margin=pl.Series(margins, dtype=pl.Float64))
    changes = changes_of(shuffled(answers))
    assert dict(changes.schema) == CHANGED_ANSWERS_SCHEMA
    columns = ["item", "perturbation", "original_answer", "answer", "margin"]
    assert changes.select(columns).rows() == [
        ("1", "reverse", yes, no, 2.0), ("2", "signal", no, yes, 1.0), ("1", "signal", yes, no, 0.5),
    ]  # fmt: skip
    assert changes.row(0, named=True) == {
        "group": "t", "perturbation": "reverse", "item": "1", "gold": yes,
        "original_answer": yes, "answer": no, "margin": 2.0,
        "original_1": "Sentence1: Paris is the capital of France.",
        "original_2": "Sentence2: Berlin is the capital of Germany.",
        "text_1": "Sentence2: Berlin is the capital of Germany.",
        "text_2": "Sentence1: Paris is the capital of France.",
    }  # fmt: skip


def test_an_answer_that_is_no_label_is_a_change():
    """The same string twice counts; a label after no label does as well."""
    rows = [("0", SAME[1], ["x", "x", SAME[1]]), ("1", SAME[1], [SAME[1]] * 3)]
    changes = changes_of(table(rows))
    found = changes.select("item", "perturbation", "answer").rows()
    assert found == [("0", "reverse", "x"), ("0", "signal", SAME[1])]
    assert changes["margin"].null_count() == 2
