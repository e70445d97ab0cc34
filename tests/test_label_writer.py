"""Sentence pairs: classifiers, and language models that write labels or score them."""

import math
import random
from functools import cache, partial

import numpy as np
import pytest
import torch
import transformers

from checks import refused
from conftest import cases
from consilience.core.items import TextPair
from consilience.models import prompted
from consilience.models.batches import Budget
from consilience.models.classifier import label_positions
from consilience.models.prompts import LONGEST_LABEL
from consilience.plans.pairs import ask, present_pairs
from consilience.suites.pairs import PERTURBATIONS, TASKS, original, t5_original
from pair_builders import MRPC, ODD, PAIRS, SAME, by_row, forms_of, present
from reference import Plain, written


@pytest.mark.parametrize(("task", "whole", "bracketed"), cases("t5_prompts"))
def test_what_t5_reads(task, whole, bracketed, writer):
    model = writer("t5", TASKS[task])
    pair = TextPair("0", "a", "b", "")
    forms = forms_of([pair], ("signal",), first=partial(t5_original, task=TASKS[task]))
    assert [model.text(form) for form in forms] == [whole, bracketed]
    ids = model.model.prompt_ids(model.prompt(forms[0]))
    tokenizer = model.model.tokenizer
    assert (ids, ids[-1]) == (tokenizer(whole)["input_ids"], tokenizer.eos_token_id)


def targets(model):
    """The tokens of the labels."""
    return model.model.encode(model.prompt(forms_of(PAIRS[:1], ())[0]))[1]


@pytest.mark.parametrize(("template", "gap"), [
    ("{text}\nLabel:", " "), ("{text}\nLabel: ", " "), ("{text}\nLabel:\n", ""), ("{text}", " "),
])  # fmt: skip
def test_a_label_follows_the_template_by_one_space_or_a_line_break(writer, template, gap):
    model = writer("gpt2", template=template)
    (form,) = forms_of(PAIRS[:1], ())[:1]
    assert model.text(form).endswith(template.removeprefix("{text}").rstrip(" "))
    decode = model.model.tokenizer.decode
    assert [decode(ids) for ids in targets(model)] == [gap + one for one in SAME]


def test_what_a_template_says(writer):
    form = original(TextPair("0", "a", "b", ""), MRPC.indicators)
    model = writer("llama", template="{first}/{second}\n{text}\n{labels} {x}?")
    assert model.text(form) == (
        "Sentence1/Sentence2\nSentence1: a Sentence2: b\nnot_equivalent, equivalent {x}?"
    )
    assert writer("t5", template="{text} ?").text(form) == "Sentence1: a Sentence2: b ?"
    own = writer("llama").text(form)
    assert own.startswith("Sentence1: a Sentence2: b\n\nHow do Sentence1 and Sentence2 relate?")
    assert own.endswith("these labels and nothing else: not_equivalent, equivalent.\nLabel:")
    reply = "where the pair stands, and at most one {reply} after it"
    for text, message in (
        *((text, "expected exactly one {text}") for text in ("", "no place", "{text} {text}")),
        *((text, reply) for text in ("{reply} {text}", "{text} {reply} {reply}")),
    ):
        refused(message, writer, "llama", template=text)


def test_the_beginning_of_a_reply_follows_the_turn_of_a_chat(chat, writer):
    """The label is scored after it with a space, and the model goes on writing after it."""
    folder = chat()
    model = writer(folder, template="{text}?\n{reply}a")
    (form,) = forms_of(PAIRS[:1], ())[:1]
    prompt = model.text(form)
    assert prompt.startswith("<user>Sentence1: ")
    end = model.model.tokenizer.eos_token
    assert prompt.endswith(f"?{end}<assistant>a")
    decode = model.model.tokenizer.decode
    assert [*map(decode, targets(model))] == [f" {label}{end}" for label in SAME]
    assert written(model, [form]) == [likeliest(folder, prompt)[0]]
    model = writer(folder, template="{text}?")
    assert model.text(form).endswith("<assistant>") and model.text(form).startswith("<user>Sent")
    assert model.identity["chat"] is True
    assert writer("llama", template="{text}?").identity["chat"] is False
    assert writer("t5").identity["chat"] is False


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture
def chat(tmp_path, model_folder):
    """A tiny Llama with a chat template; ``chat(eos_token_id=[0, 5])`` is its generation's."""

    def build(**generation):
        folder = tmp_path / "chat"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder("llama"))
        tokenizer.chat_template = CHAT
        loaded.generation_config.update(**generation)
        loaded.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return build


@cache
def reference(folder):
    """The model of transformers; what it writes has one line without a chat template."""
    names = ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM")
    is_decoder = transformers.AutoConfig.from_pretrained(folder).is_encoder_decoder
    model = getattr(transformers, names[not is_decoder]).from_pretrained(folder).eval()
    return Plain(model, transformers.AutoTokenizer.from_pretrained(folder))


def likeliest(folder, prompt, **how):
    """Of one prompt the text that is written, and its tokens."""
    one = reference(folder)
    chats = bool(one.tokenizer.chat_template)
    ids = one.tokenizer(prompt, add_special_tokens=not chats).input_ids
    return one.text(ids, LONGEST_LABEL, is_line=not chats, **how), one.tokens(ids, LONGEST_LABEL)


def totals(folder, prompt):
    """Of one prompt the log-probability of each label with what ends it."""
    one = reference(folder)
    chats = bool(one.tokenizer.chat_template)
    texts = SAME if one.is_decoder or chats else [f" {label}" for label in SAME]
    targets = [one.tokenizer(text, add_special_tokens=one.is_decoder).input_ids for text in texts]
    ids = one.tokenizer(prompt, add_special_tokens=not chats).input_ids
    return [one.total(ids, [*of, *[one.tokenizer.eos_token_id] * chats]) for of in targets]


@pytest.mark.parametrize("family", ["t5", "t5 template", "gpt2", "llama", "chat", "mamba"])
def test_labels_are_scored_and_the_likeliest_text_is_written(family, chat, writer, model_folder, monkeypatch):  # fmt: skip
    """By all tokens, read together as one by one, also where every decision is a near tie."""
    folder = chat() if family == "chat" else model_folder(family.split()[0])
    own = {"first": partial(t5_original, task=MRPC)} if family == "t5" else {}
    forms = forms_of([TextPair("0", "Rome", "a b", ""), *PAIRS[:1]], ("signal",), **own)
    model, forms = writer(folder, template=None if own else "{text}:"), [*forms, forms[0]]
    texts = [model.text(form) for form in forms]
    expected = np.array([totals(folder, text) for text in texts])
    best = [likeliest(folder, text)[0] for text in texts]
    for most, near in ((1, 1e-4), (10**6, math.inf), (10**6, 1e-4)):
        monkeypatch.setattr(prompted, "MOST_PROMPTS", {"cpu": most})
        model.model.budget, model.model.tie = Budget(most), near
        for scores in model.score(forms):  # sums of -80, in single precision
            np.testing.assert_allclose(scores.totals, expected[scores.rows], rtol=0, atol=1e-4)
        assert written(model, forms) == best


def test_generation_settings_of_a_checkpoint_do_not_count_but_for_its_end_tokens(chat, writer):
    """``write`` is the likeliest token each time, also where the checkpoint says otherwise.

    Some models end a turn with another token than their tokenizer's end: it is no text.
    """
    form, folder = forms_of(PAIRS[:1])[0], chat()
    prompt = writer(folder, template="{text}:").text(form)
    expected, tokens = likeliest(folder, prompt)
    chat(suppress_tokens=tokens[:1], no_repeat_ngram_size=2, do_sample=True, temperature=2.0)
    assert written(writer(folder, template="{text}:"), [form]) == [expected]
    turn = next(each for at, each in enumerate(tokens) if at > 1 and each not in tokens[:at])
    eos = transformers.AutoTokenizer.from_pretrained(folder).eos_token_id
    model = writer(chat(eos_token_id=[eos, turn]), template="{text}:")
    expected, _ = likeliest(folder, prompt, ends=(turn,))
    assert written(model, [form]) == [expected]


def test_what_cannot_be_read_as_text_is_left_out(writer):
    """A language model's special tokens are what they are; the item says which."""
    model = writer("t5")
    asked = present_pairs(MRPC, [PAIRS[0], *ODD], partial(t5_original, task=MRPC), {}, model)
    reason = "has the special token '</s>' in it"
    assert [one.why_not for one in asked.asks] == [None, reason, None, reason, None]


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
