"""Language models that write labels: prompts, scores of labels, and the text they write."""

import math
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
import transformers

from checks import refused
from consilience.core.free_text import RULES, match
from consilience.core.items import Choice, TextPair
from consilience.models import prompted
from consilience.models.batches import Budget
from consilience.models.loading import load_pretrained
from consilience.models.prompt_tokens import LONGEST_LABEL
from consilience.plans.pairs import present_pairs
from consilience.suites.pairs import TASKS, original, t5_original
from pair_builders import MRPC, ODD, PAIRS, SAME, by_row, forms_of


@pytest.mark.parametrize(("text", "label"), [
    ("equivalent", "equivalent"), ("not_equivalent", "not_equivalent"),
    (" Equivalent.\n", "equivalent"), ("NOT_EQUIVALENT", "not_equivalent"),
    ("equivalent .", "equivalent"), ("equivalent..", "equivalent"),
    ("not equivalent", "not_equivalent"), ("The label is equivalent.", "equivalent"),
    ("Answer: equivalent\nbecause", "equivalent"), ("(equivalent)", "equivalent"),
    ("equivalent because", None), ("<extra_id_0> equivalent", None), ("", None), (".", None),
    ("equivalent, not_equivalent", None), ("1", None),
])  # fmt: skip
def test_which_text_is_a_label(text, label):
    position = match(text, [*map(Choice, SAME)], RULES["exact"]).position
    assert (None if position is None else SAME[position]) == label


@pytest.mark.parametrize(("task", "whole", "bracketed"), [
    ("mrpc", "mrpc sentence1: a sentence2: b", "mrpc [sentence1] a [sentence2] b"),
    ("rte", "rte sentence1: a sentence2: b", "rte [sentence1] a [sentence2] b"),
    ("mnli", "mnli hypothesis: b premise: a", "mnli [hypothesis] b [premise] a"),
    ("qnli", "qnli question: a sentence: b", "qnli [question] a [sentence] b"),
    ("qqp", "qqp question1: a question2: b", "qqp [question1] a [question2] b"),
])  # fmt: skip
def test_what_t5_reads(task, whole, bracketed, writer):
    model = writer("t5", TASKS[task])
    pair = TextPair("0", "a", "b", "")
    forms = forms_of([pair], ("signal",), first=partial(t5_original, task=TASKS[task]))
    assert [model.text(form) for form in forms] == [whole, bracketed]
    ids = model.encode(forms)[0]["input_ids"]
    assert (ids, ids[-1]) == (model.tokenizer(whole)["input_ids"], model.tokenizer.eos_token_id)


def test_a_label_that_begins_another_is_scored_with_its_end(writer):
    task = replace(MRPC, labels=("a", "a b"))
    short, long = writer("gpt2", task, template="{text}").targets
    assert short[-1] == long[-1] and long[: len(short)] != short
    assert [len(one) for one in writer("gpt2", MRPC, template="{text}").targets] != [1, 1]


@pytest.mark.parametrize(("template", "gap"), [
    ("{text}\nLabel:", " "), ("{text}\nLabel: ", " "), ("{text}\nLabel:\n", ""), ("{text}", " "),
])  # fmt: skip
def test_a_label_follows_the_template_by_one_space_or_a_line_break(writer, template, gap):
    model = writer("gpt2", template=template)
    (form,) = forms_of(PAIRS[:1], ())[:1]
    assert model.text(form).endswith(template.removeprefix("{text}").rstrip(" "))
    assert [model.tokenizer.decode(ids) for ids in model.targets] == [gap + one for one in SAME]


def test_a_tokenizer_without_places_of_tokens_takes_long_pairs(tmp_path):
    """ByT5's is written in Python."""
    tokenizer = transformers.ByT5Tokenizer()
    tokenizer.save_pretrained(tmp_path)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    model = prompted.LabelWriter(load_pretrained(str(tmp_path)), MRPC, None)
    model.longest = 40
    (form,) = forms_of([TextPair("0", "a" * 30, "b" * 60, "")], ())[:1]
    (fitted,) = model.fit([form])
    assert len(model.encode([fitted])[0]["input_ids"]) == 40


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
    assert prompt.endswith("?\n<assistant>a")
    assert "?\n\n" not in prompt
    for label, target in zip(SAME, model.targets, strict=True):
        assert target[:-1] == model.tokenizer(" " + label, add_special_tokens=False)["input_ids"]
    assert written(model, [form]) == [reference_text(folder, "causal", prompt)[0]]
    model = writer(folder, template="{text}?")
    assert model.text(form).endswith("?\n<assistant>") and model.text(form).startswith("<user>Sent")
    assert model.identity["chat"] is True
    assert writer("llama", template="{text}?").identity["chat"] is False
    assert writer("t5").identity["chat"] is False


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture
def chat(tmp_path, model_folder):
    """A tiny Llama with a chat template; ``chat(eos_token_id=[0, 5])`` is its generation's.

    With ``sliding_window`` a Mistral, which has the same weights.
    """

    def build(sliding_window=None, **generation):
        folder = tmp_path / "chat"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder("llama"))
        tokenizer.chat_template = CHAT
        if sliding_window:
            config = loaded.config.to_dict() | {"sliding_window": sliding_window}
            del config["model_type"], config["architectures"]
            weights = loaded.state_dict()
            loaded = transformers.MistralForCausalLM(transformers.MistralConfig(**config))
            loaded.load_state_dict(weights)
        loaded.generation_config.update(**generation)
        loaded.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return build


@cache
def plain(folder, kind):
    """Model and tokenizer as transformers has them; whether it has a chat template."""
    names = {"seq2seq": "AutoModelForSeq2SeqLM", "causal": "AutoModelForCausalLM"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, names[kind]).from_pretrained(folder).eval()
    return model, tokenizer, bool(getattr(tokenizer, "chat_template", None))


@torch.no_grad()
def reference_scores(folder, kind, prompt, label_texts):
    """One prompt, one label: the sum of the log-probabilities of the label's tokens."""
    model, tokenizer, chats = plain(folder, kind)
    ids = tokenizer(prompt, add_special_tokens=not chats).input_ids
    found = []
    for text in label_texts:
        if kind == "seq2seq":
            target = tokenizer(text).input_ids
            given = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits[0]
        else:
            target = tokenizer(text if chats else " " + text, add_special_tokens=False).input_ids
            target = [*target, tokenizer.eos_token_id] if chats else target
            logits = model(torch.tensor([ids + target])).logits[0, len(ids) - 1 : -1]
        steps = logits.double().log_softmax(-1)
        found.append(sum(steps[at, each].item() for at, each in enumerate(target)))
    return np.array(found)


@torch.no_grad()
def reference_text(folder, kind, prompt, ends=()):
    """One prompt: the likeliest token, again and again, until an end token or twenty of them."""
    model, tokenizer, chats = plain(folder, kind)
    ids = tokenizer(prompt, add_special_tokens=not chats).input_ids
    written = []
    while len(written) < LONGEST_LABEL:
        if kind == "seq2seq":
            given = torch.tensor([[model.config.decoder_start_token_id, *written]])
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits
        else:
            logits = model(torch.tensor([ids + written])).logits
        token = int(logits[0, -1].argmax())
        if token in (tokenizer.eos_token_id, tokenizer.pad_token_id, *ends):
            break
        written.append(token)
    return tokenizer.decode(written).strip(), written


def written(model, forms):
    """What the model writes behind each form."""
    found = {}
    for places, texts in model.write(forms, [1] * len(forms)):
        found |= dict(zip(places.tolist(), texts, strict=True))
    return [found[at] for at in range(len(forms))]


@pytest.fixture(params=["t5", "t5 template", "llama", "chat", "window", "mamba"])
def asked_writer(request, chat, writer, model_folder):
    """A model that writes, its folder, and forms to ask it."""
    family = request.param.split()[0]
    made = {"chat": chat, "window": partial(chat, sliding_window=16)}
    folder = made.get(family, partial(model_folder, family))()
    if request.param == "t5":
        return writer(folder), folder, forms_of(PAIRS[:1], first=partial(t5_original, task=MRPC))
    return writer(folder, template="{text}:"), folder, forms_of(PAIRS[:1])


def test_labels_are_scored_by_all_their_tokens_and_the_likeliest_text_is_written(asked_writer):
    model, folder, forms = asked_writer
    kind, texts = model.identity["kind"], [model.text(form) for form in forms]
    expected = np.array([reference_scores(folder, kind, text, SAME) for text in texts])
    likeliest = [reference_text(folder, kind, text)[0] for text in texts]
    close = 1e-4  # of sums of -80, in single precision
    for budget in (Budget(1), Budget(10**6)):
        model.budget = budget
        found = by_row(model.score(forms), len(forms))
        known = expected - np.logaddexp(*expected.T)[:, None]
        assert np.abs(found - known).max() < close
        for scores in model.score(forms):
            assert np.abs(scores.totals - expected[scores.rows]).max() < close
        assert written(model, forms) == likeliest


@pytest.fixture(params=["gpt2", "llama", "chat", "mamba"])
def short_writer(request, chat, writer, model_folder):
    """A causal model, its folder, and forms of several short items, prompts of several lengths."""
    folder = chat() if request.param == "chat" else model_folder(request.param)
    texts = [("a", "b"), ("Rome", "a b"), ("a", "b")]
    forms = [original(TextPair(str(at), *text, ""), ("A", "B")) for at, text in enumerate(texts)]
    return writer(folder, template="{text}:"), folder, forms


def test_items_that_are_read_together_are_answered_as_one_by_one(short_writer, monkeypatch):
    """In one chunk or in one for each prompt; also where every decision is a near tie."""
    model, folder, forms = short_writer
    assert (not model.texts.longest) is ("Mamba" in model.identity["architecture"])
    texts = [reference_text(folder, "causal", model.text(form))[0] for form in forms]
    totals = [reference_scores(folder, "causal", model.text(form), SAME) for form in forms]
    for most, near in ((1, 1e-4), (100, math.inf), (100, 1e-4)):
        monkeypatch.setattr(prompted, "MOST_PROMPTS", {"cpu": most})
        model.tie = near
        for scores in model.score(forms):
            known = np.array(totals)[scores.rows]
            np.testing.assert_allclose(scores.totals, known, rtol=0, atol=1e-4)
        assert written(model, forms) == texts


def test_generation_settings_of_a_checkpoint_do_not_count(chat, writer):
    """``write`` is the likeliest token each time, also where the checkpoint says otherwise."""
    form, folder = forms_of(PAIRS[:1])[0], chat()
    prompt = writer(folder, template="{text}:").text(form)
    expected, tokens = reference_text(folder, "causal", prompt)
    chat(suppress_tokens=tokens[:1], no_repeat_ngram_size=2, do_sample=True, temperature=2.0)
    assert written(writer(folder, template="{text}:"), [form]) == [expected]


def test_the_end_of_a_turn_is_scored_too(chat, writer):
    """Where the template ends a turn with a token that ends an answer, that one; else the first."""
    folder = chat()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    turn = tokenizer.convert_tokens_to_ids("Ġis")
    tokenizer.chat_template = CHAT.replace("}}\n", "}} is\n")
    tokenizer.save_pretrained(folder)
    model = writer(folder, template="{text}:")
    labels = [tokenizer(each, add_special_tokens=False).input_ids for each in SAME]
    assert model.targets == [[*ids, tokenizer.eos_token_id] for ids in labels]
    chat(eos_token_id=[tokenizer.eos_token_id, turn])
    tokenizer.save_pretrained(folder)
    assert writer(folder, template="{text}:").targets == [[*ids, turn] for ids in labels]


def test_a_chat_ends_with_any_end_token_of_its_checkpoint(chat, writer):
    """Some models end a turn with another token than their tokenizer's end: it is no text."""
    form, folder = forms_of(PAIRS[:1])[0], chat()
    prompt = writer(folder, template="{text}:").text(form)
    _, tokens = reference_text(folder, "causal", prompt)
    turn = next(each for at, each in enumerate(tokens) if at > 1 and each not in tokens[:at])
    eos = transformers.AutoTokenizer.from_pretrained(folder).eos_token_id
    model = writer(chat(eos_token_id=[eos, turn]), template="{text}:")
    expected, _ = reference_text(folder, "causal", prompt, ends=(turn,))
    assert written(model, [form]) == [expected]


def test_what_cannot_be_read_as_text_is_left_out(writer):
    """A language model's special tokens are what they are; the item says which."""
    model = writer("t5")
    asked, _ = present_pairs(MRPC, [PAIRS[0], *ODD], partial(t5_original, task=MRPC), {}, model)
    reason = "has the special token '</s>' in it"
    assert [one.why_not for one in asked.asks] == [None, reason, None, reason, None]
