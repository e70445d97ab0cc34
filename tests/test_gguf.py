"""GGUF files: converted once into the cache, and refused where transformers reads less."""

import json

import numpy as np
import pytest
import torch
import transformers

from checks import refused
from conftest import WORDS, cases
from consilience import Candidates, Pattern, Query, load_model
from consilience.models.loading import cache_folder

gguf = pytest.importorskip("gguf")

WIDTH, LAYERS, HEADS = 64, 2, 4
PATTERN = Pattern("The capital of [X] is [Y].")
QUERIES = [Query(PATTERN, subject, "Paris") for subject in ("France", "Italy")]
SPM = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdef"]
"""The pieces of a SentencePiece vocabulary."""


def write_gguf(
    path, gpt2, *, without="", fields=(), tensors=(), is_spm=False, family="llama", weights=None
):
    """A llama of two layers with the tokenizer of the tiny GPT-2; one tensor in eight bits.

    ``without``: a tensor that is left out. ``fields`` and ``tensors``: more of them, by name.
    ``weights``: those of another ``family``.
    """
    described = json.loads((gpt2 / "tokenizer.json").read_text())
    added = {each["content"]: each["id"] for each in described["added_tokens"]}
    vocabulary = described["model"]["vocab"] | added
    tokens = SPM if is_spm else sorted(vocabulary, key=vocabulary.__getitem__)
    end = 2 if is_spm else vocabulary["<|endoftext|>"]
    writer = gguf.GGUFWriter(path, family)
    settings = {
        "context_length": 64, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": 2 * WIDTH, "head_count": HEADS, "head_count_kv": HEADS,
        "layer_norm_rms_eps": 1e-5, "layer_norm_eps": 1e-5, "rope_freq_base": 10000.0,
        "vocab_size": len(tokens), "token_list": tokens,
        "tokenizer_model": ("t5" if weights else "llama") if is_spm else "gpt2",
        "bos_token_id": end, "eos_token_id": end,
    }  # fmt: skip
    if is_spm:
        settings["token_scores"] = [-float(at) for at in range(len(tokens))]
    else:
        pairs = described["model"]["merges"]
        settings["token_merges"] = [of if isinstance(of, str) else " ".join(of) for of in pairs]
        settings["token_types"] = [3 if token == "<|endoftext|>" else 1 for token in tokens]
    for name, value in settings.items():
        getattr(writer, f"add_{name}")(value)
    kinds = {str: "string", float: "float32", bool: "bool", int: "uint32"}
    for key, value in dict(fields).items():
        getattr(writer, f"add_{kinds[type(value)]}")(key, value)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for layer in range(LAYERS):
        square = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH))
        wide = dict.fromkeys(("ffn_gate", "ffn_up"), (2 * WIDTH, WIDTH))
        norms = dict.fromkeys(("attn_norm", "ffn_norm"), (WIDTH,))
        of_layer = square | wide | {"ffn_down": (WIDTH, 2 * WIDTH)} | norms
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    for name, shape in (shapes | dict(tensors)).items():
        weight = rng.normal(0, 0.2, shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0 if "ffn_down" in name else None
        if len(shape) == 1:
            weight[:] = 1
        if kind is not None:
            weight = gguf.quants.quantize(weight, kind)
        if name != without and weights is None:
            writer.add_tensor(f"{name}.weight", weight, raw_dtype=kind)
    for name, weight in (weights or {}).items():
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def asked(file, **options):
    """Identity, and every log-probability (query, candidate)."""
    model = load_model(str(file), **options)
    found = np.full((len(QUERIES), len(WORDS)), np.nan)
    for scores in model.score(QUERIES, Candidates(tuple(WORDS), (1,) * len(WORDS))):
        found[scores.rows] = scores.logprob
    return model.identity, found


def test_a_file_is_converted_once(model_folder, cache, tmp_path, monkeypatch):
    """What it is asked later does not read the file, and is the same to the last bit."""
    none = {"llama.rope.scaling.type": "none"}
    file = write_gguf(tmp_path / "tiny.gguf", model_folder("gpt2"), fields=none)
    first = asked(file)
    (kept,) = cache.iterdir()
    monkeypatch.setattr(gguf, "GGUFReader", None)
    second, half = asked(file), asked(file, dtype="bfloat16")
    assert first[0] == second[0] and np.isfinite(first[1]).all()
    assert np.array_equal(first[1], second[1]) and not np.array_equal(first[1], half[1])
    assert [*cache.iterdir()] == [kept], "nothing unfinished is left"


@pytest.mark.parametrize(("change", "lost"), cases("gguf_lost"))
def test_what_transformers_does_not_read_is_refused(model_folder, cache, tmp_path, change, lost):
    file = write_gguf(tmp_path / "tiny.gguf", model_folder("gpt2"), **change)
    for _ in range(2):
        refused(f"{lost}.*llama-server.*--base-url", load_model, str(file))
    assert [*cache.iterdir()] == []


def test_a_sentencepiece_vocabulary_with_its_space_is_read(model_folder, cache, tmp_path):
    file = write_gguf(tmp_path / "tiny.gguf", model_folder("gpt2"), is_spm=True)
    assert load_model(str(file)).tokenizer.tokenize("a") == ["▁", "a"]


OTHERS = {"falcon": transformers.FalconForCausalLM, "t5": transformers.T5ForConditionalGeneration}


@pytest.mark.parametrize("family", OTHERS)
def test_an_output_that_is_a_copy_of_the_embeddings_is_read(model_folder, cache, tmp_path, family):
    """As llama.cpp writes it for Falcon; T5 is refused: transformers reads ReLU for any activation."""
    sizes = {
        "vocab_size": len(SPM), "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "d_ff": 128,
        "num_attention_heads": HEADS, "feed_forward_proj": "gated-gelu", "d_kv": 16,
    }  # fmt: skip
    model = OTHERS[family](OTHERS[family].config_class(**sizes)).eval()
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], LAYERS)
    of_names = (name.rpartition(".") for name in model.state_dict())
    names = [f"{known.get_name(base)}.{kind}" for base, _, kind in of_names]
    file = write_gguf(
        tmp_path / "tiny.gguf", model_folder("gpt2"), is_spm=True, family=family,
        weights=dict(zip(names, model.state_dict().values(), strict=True)),
        fields={"t5.attention.key_length": 16},
    )  # fmt: skip
    if family == "t5":
        refused("AutoModelForCausalLM.*llama-server", load_model, str(file))
        return
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(load_model(str(file)).model(ids).logits, model(ids).logits)


def test_the_cache_lies_where_it_is_put(cache, monkeypatch, tmp_path):
    assert cache_folder() == cache
    monkeypatch.delenv("CONSILIENCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "consilience" / "models"
