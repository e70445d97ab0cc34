"""Classifiers of sentence pairs: steady, as their model says, and special tokens as text."""

import random

import numpy as np
import pytest
import torch
import transformers

from checks import refused
from consilience.core.errors import Loading
from consilience.models.batches import Budget
from consilience.models.classifier import PairClassifier, PairFormat, label_positions
from consilience.models.loading import load_classifier
from consilience.plans.pairs import ask
from consilience.suites.pairs import PERTURBATIONS
from pair_builders import MRPC, ODD, PAIRS, SAME, by_row, forms_of, present


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_a_classifier_is_steady(family, load):
    """One form at a time, all at once, in another order, on two threads: the same."""
    model = load(family)
    forms = forms_of([*PAIRS, *ODD, *PAIRS[:2]], PERTURBATIONS)
    model.budget = Budget(1)
    alone = by_row(model.score(forms), len(forms))
    order = random.Random(0).sample(range(len(forms)), len(forms))
    threads = torch.get_num_threads()
    try:
        for count, tokens in ((threads, 10**6), (2, 300)):
            torch.set_num_threads(count)
            model.budget = Budget(tokens)
            found = by_row(model.score([forms[at] for at in order]), len(forms))
            assert np.abs(found - alone[order]).max() < 1e-5
            assert (found.argmax(axis=1) == alone[order].argmax(axis=1)).all()
    finally:
        torch.set_num_threads(threads)
    assert set(alone.argmax(axis=1)) == {0, 1}
    assert np.exp(alone).sum(axis=1) == pytest.approx(1)
    assert list(model.score([])) == []


@pytest.mark.parametrize(("family", "options"), [
    ("bert", {"joined": "string"}), ("gpt2", {"pool": "mean"}), ("gpt2", {"pool": "end"}),
], ids=str)  # fmt: skip
def test_a_classifier_says_what_its_model_says(family, options, classifier, load):
    """One form at a time through the model as transformers has it; decoders read where they pool."""
    folder, joined = classifier(family, SAME), "pair" if family == "bert" else "string"
    reading = PairFormat(**({"joined": joined} | options))
    model = PairClassifier(load_classifier(str(folder), Loading("cpu")), SAME, reading)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    joined = reading.joined
    pooled, forms = options.get("pool", "last"), forms_of(PAIRS[:4])
    expected = []
    for form in forms:
        one, two = (each.text for each in form)
        texts = (one, two) if joined == "pair" else (f"{one} {two}",)
        inputs = dict(tokenizer(*texts, return_tensors="pt"))
        if pooled == "end":
            end = torch.tensor([[tokenizer.eos_token_id]])
            inputs = {"input_ids": torch.cat([inputs["input_ids"], end], dim=1)}
        with torch.no_grad():
            if family == "bert":
                logits = plain(**inputs).logits[0]
            else:
                hidden = plain.base_model(input_ids=inputs["input_ids"]).last_hidden_state[0]
                logits = plain.score(hidden.mean(dim=0) if "mean" in pooled else hidden[-1])
        expected.append(logits.double().log_softmax(-1).numpy())
    assert np.abs(by_row(model.score(forms), len(forms)) - np.array(expected)).max() < 1e-5
    assert load(family).input.reading.joined == ("pair" if family == "bert" else "string")


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_special_tokens_in_a_sentence_are_read_as_text(family, load):
    """The ids contain only the template's special tokens: [CLS] a [SEP] b [SEP], or none."""
    model = load(family)
    special = set(model.input.tokenizer.all_special_ids) - {model.input.tokenizer.unk_token_id}
    plain, odd = (model.input.encode(forms_of(pairs)) for pairs in (PAIRS[:2], ODD))
    counts = {tuple(each for each in form["input_ids"] if each in special) for form in plain}
    (template,) = counts
    assert len(template) == (3 if family == "bert" else 0)
    assert {tuple(each for each in form["input_ids"] if each in special) for form in odd} == counts
    asked = present(ODD, [], model)
    assert [one.why_not for one in asked.asks] == [None] * 4
    assert ask(MRPC, model, asked)["answer"].null_count() == 0


def test_where_labels_stand():
    assert label_positions(("a", "b"), {0: "B", 1: "A"}) == [1, 0]
    message = "the model's labels are a, b, c; expected a, b"
    refused(message, label_positions, ("a", "b"), {0: "a", 1: "b", 2: "c"})
