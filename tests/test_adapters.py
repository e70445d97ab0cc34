"""Adapters of PEFT, merged into the weights of a model that is probed."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from checks import output, refusal, refused
from consilience.core.errors import Loading
from consilience.models.loading import load_classifier, load_pretrained
from consilience.runs.run import Run
from pair_builders import SAME


@pytest.fixture(scope="module")
def adapter_of(tmp_path_factory):
    """``adapter_of(folder)``: an adapter of that model, whose weights change what it answers."""

    def make(folder, rank=2):
        torch.manual_seed(5)
        loaded = load_pretrained(str(folder))
        config = LoraConfig(r=rank, target_modules="all-linear", init_lora_weights=False)
        tuned = get_peft_model(loaded.model, config)
        place = tmp_path_factory.mktemp("adapter")
        tuned.save_pretrained(str(place))
        return place, tuned.merge_and_unload().state_dict()

    return make


def test_an_adapter_is_merged_and_is_part_of_the_identity(model_folder, adapter_of):
    base, (adapter, merged) = model_folder("llama"), adapter_of(model_folder("llama"))
    alone, adapted = (load_pretrained(str(base), Loading(adapter=one)) for one in (None, adapter))
    for name, weight in adapted.model.state_dict().items():
        assert torch.allclose(weight, merged[name], atol=1e-6)
    assert any(not torch.equal(a, b) for a, b in zip(
        alone.model.state_dict().values(), adapted.model.state_dict().values(), strict=True
    ))  # fmt: skip
    assert "adapter" not in alone.identity and len(adapted.identity["adapter"]) == 64
    assert adapted.identity["digest"] == alone.identity["digest"]
    assert adapted.identity["parameters"] == alone.identity["parameters"]


def test_a_probe_with_an_adapter(consilience, model_folder, adapter_of):
    base, (adapter, _) = model_folder("llama"), adapter_of(model_folder("llama"))
    of = ("probe", "--model", base, "--suite", "mini", "--groups", "capital", "--limit", 2)
    output(consilience, *of, "--out", "alone")
    output(consilience, *of, "--adapter", adapter, "--out", "adapted")
    one, two = Run.open("alone"), Run.open("adapted")
    assert "adapter" in two.settings["model"]
    assert two.model_name == f"{base.name} + {adapter.name}"
    assert not one.answers["text_logprob"].equals(two.answers["text_logprob"])
    assert "adapter" in refusal(consilience, *of, "--out", "adapted"), "another model"


def test_refused_adapters(consilience, model_folder, adapter_of, tmp_path):
    (adapter, _), other = adapter_of(model_folder("llama")), tmp_path / "other"
    of = ("probe", "--suite", "mini", "--groups", "capital", "--limit", 1)
    said = refusal(consilience, *of, "--model", model_folder("gpt2"), "--adapter", adapter)
    assert "does not fit" in said and "this one is of" in said and "Traceback" not in said
    shutil.copytree(adapter, other)
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["q_proj"]}))
    said = refusal(consilience, *of, "--model", model_folder("llama"), "--adapter", other)
    assert "weights differ" in said
    (other / "adapter_model.safetensors").unlink()
    said = refusal(consilience, *of, "--model", model_folder("llama"), "--adapter", other)
    assert "no adapter; expected the folder of a PEFT adapter: adapter_config.json and" in said


def test_an_adapter_brings_its_tokens_and_its_chat_template(model_folder, tmp_path, recwarn):
    """As PEFT loads it, with embeddings for its tokens; nothing is printed."""
    folder = model_folder("llama")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), load_pretrained(str(folder)).model
    tokenizer.add_tokens(["<|turn|>"], special_tokens=True)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|turn|>{% endfor %}"
    model.resize_token_embeddings(len(tokenizer))
    saved = ["embed_tokens", "lm_head"]
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=saved)
    tuned = get_peft_model(model, config)
    for part in (tuned, tokenizer):
        part.save_pretrained(tmp_path)
    recwarn.clear()
    loaded = load_pretrained(str(folder), Loading(adapter=tmp_path))
    assert [*recwarn] == []
    ids = torch.tensor([loaded.tokenizer("Rome <|turn|>")["input_ids"]])
    assert loaded.tokenizer.chat_template == tokenizer.chat_template
    assert torch.allclose(loaded.model(ids).logits, tuned.eval()(ids).logits, atol=1e-5)


def test_an_adapter_brings_a_head(classifier, model_folder, tmp_path):
    """Of a base without one; prompt tuning brings nothing that can be merged."""
    base, head = tmp_path / "base", tmp_path / "head"
    whole = AutoModelForSequenceClassification.from_pretrained(classifier("bert", SAME))
    whole.bert.save_pretrained(base)
    AutoTokenizer.from_pretrained(classifier("bert", SAME)).save_pretrained(base)
    config = LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS")
    tuned = get_peft_model(whole, config)
    tuned.save_pretrained(head)
    loaded = load_classifier(str(base), Loading(adapter=head))
    assert torch.equal(
        loaded.model.classifier.weight, whole.classifier.modules_to_save.default.weight
    )
    tuning = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    get_peft_model(load_pretrained(str(model_folder("llama"))).model, tuning).save_pretrained(head)
    at = Loading(adapter=head)
    refused("PROMPT_TUNING changes no weights", load_pretrained, str(model_folder("llama")), at)
