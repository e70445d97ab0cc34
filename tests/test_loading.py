"""From a name to a model: code that comes with it, what its digest covers, and messages."""

import hashlib
import io
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
    PreTrainedModel,
)

from checks import output, refusal, refused
from conftest import WORDS, cases
from consilience import Candidates, Pattern, Query, evaluate, load_model
from consilience.core.errors import ConsilienceError, Loading
from consilience.models import loading
from consilience.models.loading import load_classifier, load_pretrained, locate
from consilience.models.served import open_server
from consilience.options.commands import ProbeOptions
from consilience.runs.run import Run
from pair_builders import SAME
from replay_server import replay

CANDIDATES = Candidates(tuple(WORDS), (1,) * len(WORDS))
QUERIES = [Query(Pattern("The capital of [X] is [Y]."), "France", "Paris")]

PAIRS = "sentence1\tsentence2\tlabel\nA b.\tC d.\tentailment\nE f.\tG h.\tnot_entailment\n"

CODE = """
from pathlib import Path
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
Path({marker!r}).write_text("this code was run")
class OwnConfig(BertConfig):
    model_type = {name!r}
class OwnForMaskedLM(BertForMaskedLM):
    config_class = OwnConfig
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def scores_of(model):
    (scores,) = model.score(QUERIES, CANDIDATES)
    return scores.logprob


@pytest.fixture
def with_code(model_folder, tmp_path):
    """A folder whose model, or tokenizer only, names Python code in it; and what that writes.

    Every folder has a family of its own: transformers remembers the families that it has loaded.
    """

    def make(what, name):
        folder = tmp_path / name
        shutil.copytree(model_folder("bert"), folder)
        marker = folder / "marker"
        (folder / "own.py").write_text(CODE.format(marker=str(marker), name=name))
        changed = "tokenizer_config.json" if what == "tokenizer" else "config.json"
        settings = json.loads((folder / changed).read_text())
        if what == "tokenizer":
            settings["auto_map"] = {"AutoTokenizer": [None, "own.OwnTokenizer"]}
            settings["tokenizer_class"] = "OwnTokenizer"
        else:
            auto = {"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.OwnForMaskedLM"}
            settings |= {"model_type": name, "architectures": ["OwnForMaskedLM"], "auto_map": auto}
        (folder / changed).write_text(json.dumps(settings))
        return folder, marker

    return make


@pytest.mark.parametrize("what", ["model", "tokenizer"])
def test_code_runs_only_where_it_is_trusted(what, with_code, model_folder):
    """Then the model is that of the family without code, to the last bit.

    A family that transformers has is loaded without the code of a tokenizer, from tokenizer.json.
    """
    folder, marker = with_code(what, f"own_{what}")
    if what == "model":
        refused("only with the Python code .* was not run", load_model, str(folder))
    else:
        assert load_model(str(folder)).identity["tokenizer"] != "OwnTokenizer"
    assert not marker.exists()
    model = load_model(str(folder), trust_remote_code=True)
    assert marker.read_text() == "this code was run"
    own = ("architecture", "OwnForMaskedLM") if what == "model" else ("tokenizer", "OwnTokenizer")
    assert own in model.identity.items()
    assert model.identity["trust_remote_code"] is True
    plain = load_model(str(model_folder("bert")))
    assert "trust_remote_code" not in plain.identity
    assert np.array_equal(scores_of(model), scores_of(plain))


@pytest.mark.parametrize("is_trusted", [False, True])
def test_the_code_of_a_local_tokenizer_runs_only_where_it_is_trusted(is_trusted, with_code):
    """That of a model behind a URL."""
    folder, marker = with_code("tokenizer", f"own_local_{is_trusted}")
    with replay(lambda *_: (404, {}, {})) as server:
        named = {"base_url": server.url, "tokenizer": str(folder)}
        options = ProbeOptions(model="openai:m", trust_remote_code=is_trusted, **named)
        tokenizer = open_server(options.model, options.connection).tokenizer
    assert (type(tokenizer).__name__ == "OwnTokenizer") == is_trusted == marker.exists()


def test_code_that_is_not_needed_is_not_run(with_code):
    """A family that transformers has is loaded without the code that comes with the folder."""
    folder, marker = with_code("model", "own_known")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "bert"}))
    assert load_model(str(folder)).identity["architecture"] == "BertForMaskedLM"
    assert not marker.exists()


def test_the_command_line_asks_nothing_and_records_what_it_ran(consilience, with_code, monkeypatch):
    folder, marker = with_code("model", "own_command")
    typed = io.StringIO("y\ny\ny\n")
    monkeypatch.setattr("sys.stdin", typed)
    asked = ("probe", "--model", folder, "--groups", "capital", "--limit", "1", "--out", "run")
    status, out, err = consilience(*asked)
    assert (status, out, typed.tell(), marker.exists()) == (2, "", 0, False)
    assert err.count("error: ") == 1 and "if you trust it, add --trust-remote-code." in err
    output(consilience, *asked, "--trust-remote-code")
    assert marker.exists()
    record = json.loads(Path("run/run.json").read_text())
    assert record["settings"]["model"]["trust_remote_code"] is True
    assert consilience("report", "run")[0] == 0
    assert "trust_remote_code" in Path("run/report.html").read_text()
    refusal(consilience, *asked)


@pytest.mark.parametrize("command", [
    "probe --suite rte --data pairs.tsv", "probe --suite rte --data pairs.tsv --generate",
    "finetune --task rte --train pairs.tsv --validation pairs.tsv",
    "improve --suite mini --train-groups capital --validation-groups sport --train-facts 4 --limit 1",
])  # fmt: skip
def test_every_command_runs_the_code_of_a_model_only_if_told(consilience, with_code, command):
    """Trusted, the code is run; what follows may then fail for other reasons, such as its head."""
    Path("pairs.tsv").write_text(PAIRS)
    command = [*command.split(), "--out", "o"]
    folder, marker = with_code("model", f"own_{command[0]}_{len(command)}")
    err = refusal(consilience, *command, "--model", folder)
    assert "that code was not run" in " ".join(err.split())
    assert not marker.exists()
    consilience(*command, "--model", folder, "--trust-remote-code")
    assert marker.exists()


def test_the_digest_covers_every_file_that_changes_what_a_model_says(model_folder, tmp_path):
    """Weights, templates, settings and the tokenizer's files; not what is beside them."""
    shutil.copytree(model_folder("gpt2"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "additional_chat_templates").mkdir()
    seen = [locate(str(tmp_path)).digest]
    for name in (
        "chat_template.jinja", "additional_chat_templates/tools.jinja", "generation_config.json",
        "merges.txt", "source.spm", "bpe.codes", "vocab.bpe", "model.safetensors",
    ):  # fmt: skip
        for text in ("{}", "{ }"):
            (tmp_path / name).write_text(text)
            seen.append(locate(str(tmp_path)).digest)
    assert len(set(seen)) == len(seen), "a file was added or changed, and the digest was not"
    (tmp_path / "README.md").write_text("what it is")
    (tmp_path / "model.py").write_text("print('never run')")
    assert locate(str(tmp_path)).digest == seen[-1]
    runs_code = locate(str(tmp_path), Loading(trust_remote_code=True))
    assert runs_code.digest != seen[-1], "code that may run is part of it"


def test_the_digest_of_a_folder_without_templates_is_what_it_was(model_folder):
    """SHA-256 over name, 0 and SHA-256 of each file, in their order; runs of before resume."""
    folder, whole = model_folder("bert"), hashlib.sha256()
    for path in sorted(folder.iterdir()):
        content = hashlib.sha256(path.read_bytes()).digest()
        whole.update(path.name.encode() + b"\0" + content)
    assert load_model(str(folder)).identity["digest"] == whole.hexdigest()


def test_without_the_variable_that_keeps_from_the_network_this_is_named(monkeypatch):
    source = loading.ModelSource("nobody/none", "nobody/none", {}, {})
    monkeypatch.setattr(loading, "is_offline_mode", lambda: False)
    message = "no such model. Check the spelling and the network"
    with pytest.raises(ConsilienceError, match=message), loading.errors_of(source):
        raise OSError("no such model")


def test_loading_shows_nothing_in_python(model_folder, capfd):
    folder = model_folder("bert")
    capfd.readouterr()
    load_model(str(folder))
    assert capfd.readouterr() == ("", "")


def test_an_encoder_without_a_trained_head_is_refused(model_folder, tmp_path):
    source = model_folder("bert")
    BertModel.from_pretrained(source).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)
    refused("lack .* tensors of a masked language model", load_model, str(tmp_path))


def test_a_masked_model_without_a_mask_token_is_refused(model_folder, tmp_path):
    shutil.copytree(model_folder("bert"), tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "m")
    refused(r"has no mask token; expected .*Use a model", load_model, str(tmp_path / "m"))


@pytest.mark.parametrize("family", ["gpt2", "t5", "baseline:majority", "a function"])
def test_only_masked_models_choose_among_their_vocabulary(family, model_folder, tmp_path):
    """Others are refused, and no run is begun."""
    model = str.upper if family == "a function" else family
    model = str(model_folder(family)) if family in ("gpt2", "t5") else model
    options = {"candidates": "vocabulary", "out": tmp_path / "run"}
    message = "the whole vocabulary of a .*; expected a masked model"
    refused(message, evaluate, "mini", model, **options)
    assert not (tmp_path / "run").exists()


def test_a_revision_of_the_hub_follows_the_name():
    for spec, revision in (("a/b@c", {"revision": "c"}), ("a/b", {})):
        source = locate(spec)
        assert source.location == "a/b"
        assert dict(source.options) == {"trust_remote_code": False, **revision}


@pytest.mark.parametrize(("spec", "message"), cases("models_bad"))
def test_a_model_that_is_not_there_is_refused(spec, message):
    refused(message, load_model, spec)


def test_a_device_or_dtype_that_is_not_there_is_refused(model_folder):
    folder = str(model_folder("bert"))
    refused("no device 'nowhere'; expected auto, cpu", load_model, folder, device="nowhere")
    refused("dtype 'int3'; expected float32", load_model, folder, dtype="int3")


def test_threads_load_one_after_the_other(model_folder, monkeypatch):
    """transformers replaces ``tie_weights`` while it loads; a second thread would keep that."""
    folder, usual = str(model_folder("bert")), sys.getswitchinterval()
    usual_tie = PreTrainedModel.tie_weights
    monkeypatch.setattr(PreTrainedModel, "tie_weights", usual_tie)  # put back if this fails
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert len([*pool.map(load_model, [folder] * 16)]) == 16
    finally:
        sys.setswitchinterval(usual)
    assert PreTrainedModel.tie_weights is usual_tie


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
    before = alone.model.state_dict()
    assert any(not torch.equal(before[name], weight) for name, weight in merged.items())
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
    expected = whole.classifier.modules_to_save.default.weight
    assert torch.equal(loaded.model.classifier.weight, expected)
    tuning = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    get_peft_model(load_pretrained(str(model_folder("llama"))).model, tuning).save_pretrained(head)
    at = Loading(adapter=head)
    refused("PROMPT_TUNING changes no weights", load_pretrained, str(model_folder("llama")), at)
