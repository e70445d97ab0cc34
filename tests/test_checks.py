"""What is checked of every model: one function each, and the ways that call it."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from checks import refused
from conftest import WORDS
from consilience import Candidates, Pattern, Query, load_model
from consilience.core.items import Choice, Prompt
from consilience.models.classifier import load_pair_classifier
from consilience.models.loading import load_pretrained
from consilience.models.prompted import PromptModel
from consilience.models.prompts import LabelAsker, PromptReader
from consilience.models.tokens import rendered
from pair_builders import MRPC, PAIRS, SAME, forms_of

QUERIES = [Query(Pattern("The capital of [X] is [Y]."), "France", "Paris")]
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}"
FILE = "model.safetensors"
TURNS = [{"role": "user", "content": "What is it?"}]


def asked(text, answers=("Rome", "Paris"), *, is_chat=False):
    return Prompt((("user", text),), answers, (0, 1), are_labels=False, is_chat=is_chat)


def broken(folder, to):
    """A copy of a model whose hidden states overflow before its head."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    for name, weight in weights.items():
        if weight.dim() == 1 and ("norm" in name.lower() or "ln_" in name):
            weight.fill_(math.inf)
    save_file(weights, to / "model.safetensors", {"format": "pt"})
    return str(to)


def facts(folder):
    return [*load_model(folder).score(QUERIES, Candidates(tuple(WORDS), (1,) * len(WORDS)))]


def questions(folder):
    return [*PromptModel(load_pretrained(folder)).score([asked("the capital")])]


def writing(folder):
    return [*PromptModel(load_pretrained(folder)).write([asked("the capital")], [1])]


def pairs(folder):
    model = LabelAsker(PromptModel(load_pretrained(folder)), MRPC, "{text}:")
    return [*model.score(forms_of(PAIRS[:1]))]


def classes(folder):
    return [*load_pair_classifier(folder, SAME).score(forms_of(PAIRS[:1]))]


@pytest.mark.parametrize(("ask", "family"), [
    *((facts, family) for family in ("bert", "gpt2", "llama", "mamba", "t5")),
    *((ask, family) for ask in (questions, writing) for family in ("gpt2", "mamba", "t5")),
    *((pairs, family) for family in ("gpt2", "t5")), (classes, "bert"),
])  # fmt: skip
def test_a_model_of_no_numbers_is_refused(model_folder, classifier, tmp_path, ask, family):
    folder = classifier(family, SAME) if ask is classes else model_folder(family)
    refused("logits are not numbers in torch.float32", ask, broken(folder, tmp_path / "m"))


@pytest.mark.parametrize(("token", "special", "template", "is_refused"), [
    ("Wellington", False, None, True),  # any text may have it
    ("<image>", True, None, False),  # no text has it
    ("<turn>", True, CHAT + "<turn>", True),  # every chat has it
])  # fmt: skip
def test_ids_beyond_the_embeddings(model_folder, tmp_path, token, special, template, is_refused):
    folder = shutil.copytree(model_folder("llama"), tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([token], special_tokens=special)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    if is_refused:
        size = len(tokenizer)
        message = f"has {size} tokens, the model {size - 1} embeddings: .*{token}"
        refused(message, load_pretrained, str(folder))
    else:
        load_pretrained(str(folder))


def test_segments_beyond_those_of_the_model(classifier, tmp_path):
    """As of a RoBERTa with a tokenizer made for BERT."""
    folder = shutil.copytree(classifier("bert", SAME), tmp_path / "m")
    name, weights = "bert.embeddings.token_type_embeddings.weight", load_file(folder / FILE)
    save_file(weights | {name: weights[name][:1].clone()}, folder / FILE, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"type_vocab_size": 1}
    (folder / "config.json").write_text(json.dumps(config))
    refused("1 type of text", load_pair_classifier, str(folder), SAME)


@pytest.mark.parametrize(("template", "expected"), [
    (CHAT, "user: What is it?|"),
    ("{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
     "{% endif %}{% endfor %}{% endfor %}", "What is it?"),  # a model for images
    ("{{ messages[0].content[0].text }}", "What is it?"),
    ({"default": "{{ strftime_now('%d %b %Y') }}" + CHAT, "tools": ""},
     "26 Jul 2024user: What is it?|"),  # named templates
    ("Hello.", "leaves out the turn of the user"),
    ("{{ 1 + 'a' }}", "refuses the prompt: TypeError"),
    ("{{ raise_exception('no') }}", "refuses the prompt: no"),
    ({"tools": CHAT}, "refuses the prompt: ValueError"),
])  # fmt: skip
def test_a_chat_has_its_question(model_folder, template, expected):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("llama"))
    tokenizer.chat_template = template
    if expected.startswith(("leaves", "refuses")):
        message = f"the chat template of 'm' {expected}"
        refused(message, rendered, tokenizer, TURNS, "m", is_asked=True)
    else:
        assert rendered(tokenizer, TURNS, "m", is_asked=True) == expected


@pytest.mark.parametrize("template", [CHAT, "<s>" + CHAT])
def test_a_prompt_has_its_beginning_once_and_no_end(model_folder, template):
    """Whether or not the template writes it, and the tokenizer ends every text."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder("llama"))
    first, end = tokenizer.convert_tokens_to_ids("Rome"), tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        "Rome $A <|endoftext|>", None, [("Rome", first), ("<|endoftext|>", end)]
    )
    tokenizer.chat_template = template.replace("<s>", "Rome ")
    tokens = PromptReader(tokenizer, [end], "m")
    for is_chat in (False, True):
        ids = tokens.prompt_ids(asked("Paris", is_chat=is_chat))
        assert ids.count(first) == 1 and ids[0] == first and end not in ids


def test_options_that_the_tokenizer_does_not_know(model_folder):
    """Also where a label is scored, and the text is in the prompt only."""
    model = PromptModel(load_pretrained(str(model_folder("t5"))))
    labels = replace(asked("Rome", ("A", "B")), are_labels=True)
    odd = tuple(Choice(text) for text in ("Rome", "\u0b95"))
    reason = "the option '\u0b95': unknown to the tokenizer"
    shown = [asked("Rome", ("Rome", "\u0b95")), labels, replace(labels, choices=odd)]
    assert model.why_not(shown) == [reason, None, reason]
