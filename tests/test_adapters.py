"""Adapters of PEFT, merged into the weights of a model that is probed."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model

from checks import output, refusal
from consilience.core.errors import Loading
from consilience.models.loading import load_pretrained
from consilience.runs.run import Run


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
    of = (*of, "--keep-scores")
    output(consilience, *of, "--out", "alone")
    output(consilience, *of, "--adapter", adapter, "--out", "adapted")
    one, two = Run.open("alone"), Run.open("adapted")
    assert "adapter" in two.settings["model"]
    assert not one.answers["logprob"].equals(two.answers["logprob"])
    assert "adapter" in refusal(consilience, *of, "--out", "adapted"), "another model"
    assert "--adapter with --model baseline:random" in refusal(
        consilience, *of[:2], "baseline:random", "--adapter", adapter, "--suite", "mini")  # fmt: skip


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
    assert "no adapter_model.safetensors; expected the folder of a PEFT adapter" in said
