"""GGUF files: expanded once into the cache, and the same model with the cache as without."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import WORDS
from consilience import Candidates, Pattern, Query, load_model
from consilience.models import loading as ours
from consilience.models.loading import load_parts
from consilience.models.sources import locate

gguf = pytest.importorskip("gguf")

WIDTH, LAYERS, HEADS = 64, 2, 4
QUERIES = [
    Query(Pattern.parse(text), subject, "Paris")
    for text in ("The capital of [X] is [Y].", "[Y] is the capital of [X].")
    for subject in ("France", "Italy")
]


def test_the_cache_lies_where_it_is_put(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "chosen"))
    assert ours.cache_folder() == tmp_path / "chosen"
    monkeypatch.delenv("CONSILIENCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ours.cache_folder() == tmp_path / "consilience" / "models"
    monkeypatch.setenv("CONSILIENCE_CACHE", "off")
    assert ours.cache_folder() is None


@pytest.fixture(scope="module")
def file(model_folder, tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model_folder("gpt2"))


def write_gguf(path, gpt2, texts=()):
    """A llama of two layers with the tokenizer of the tiny GPT-2; one tensor in eight bits.

    ``texts``: further metadata, pairs of a key and a text.
    """
    described = json.loads((gpt2 / "tokenizer.json").read_text())
    added = {each["content"]: each["id"] for each in described["added_tokens"]}
    vocabulary = described["model"]["vocab"] | added
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [" ".join(each) if isinstance(each, list) else each for each in
              described["model"]["merges"]]  # fmt: skip
    end = vocabulary["<|endoftext|>"]
    writer = gguf.GGUFWriter(path, "llama")
    described = {
        "context_length": 64, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": 2 * WIDTH, "head_count": HEADS, "head_count_kv": HEADS,
        "layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0, "vocab_size": len(tokens),
        "tokenizer_model": "gpt2", "token_list": tokens, "token_merges": merges,
        "token_types": [3 if token == "<|endoftext|>" else 1 for token in tokens],
        "bos_token_id": end, "eos_token_id": end,
    }  # fmt: skip
    for name, value in described.items():
        getattr(writer, f"add_{name}")(value)
    for key, text in texts:
        writer.add_string(key, text)
    rng = np.random.default_rng(0)

    def weight(*shape):
        return rng.normal(0, 0.2, shape).astype(np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    writer.add_tensor("token_embd.weight", weight(len(tokens), WIDTH))
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weight(WIDTH, WIDTH))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weight(2 * WIDTH, WIDTH))
        kind = gguf.GGMLQuantizationType.Q8_0
        small = gguf.quants.quantize(weight(WIDTH, 2 * WIDTH), kind)
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", small, raw_dtype=kind)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
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


def refuse(*arguments, **options):
    raise AssertionError("the file was parsed")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cache_changes_no_bit(file, cache, monkeypatch, dtype, capfd):
    """Without a cache, on the first run and on the second one, which does not read the file."""
    monkeypatch.setenv("CONSILIENCE_CACHE", "off")
    plain = asked(file, dtype=dtype)
    monkeypatch.setenv("CONSILIENCE_CACHE", str(cache))
    first = asked(file, dtype=dtype)
    (kept,) = cache.glob("weights-*/")
    assert not list(cache.glob(".*")), "nothing unfinished is left"
    monkeypatch.setattr(gguf, "GGUFReader", refuse)
    second = asked(file, dtype=dtype)
    assert plain[0] == first[0] == second[0]
    assert np.isfinite(plain[1]).all()
    assert np.array_equal(plain[1], first[1]) and np.array_equal(plain[1], second[1])
    assert kept.is_dir()
    assert capfd.readouterr().err == "", "no bar of a library"


def test_a_file_is_parsed_once(file, cache, monkeypatch):
    parsed, usual = [], gguf.GGUFReader.__init__
    monkeypatch.setattr(
        gguf.GGUFReader, "__init__", lambda self, path: parsed.append(path) or usual(self, path)
    )
    for count, kept in ((1, cache), (2, "off")):
        monkeypatch.setenv("CONSILIENCE_CACHE", str(kept))
        asked(file)
        assert len(parsed) == count


def change_last_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 255
    path.write_bytes(content)


def test_what_was_damaged_in_the_cache_is_made_anew(file, cache):
    before = asked(file)
    for name, damage in (
        ("model.safetensors", lambda path: os.truncate(path, 1000)),
        ("model.safetensors", change_last_byte),
        ("model.safetensors", Path.unlink),
        ("tokenizer.json", lambda path: path.write_text("{}")),
        ("config.json", Path.unlink),
        ("consilience.json", lambda path: path.write_text("[")),
    ):
        (kept,) = cache.glob("weights-*/")
        damage(kept / name)
        after = asked(file)
        assert before[0] == after[0]
        assert np.array_equal(before[1], after[1])


@pytest.mark.parametrize("damaged", [False, True])
def test_of_two_processes_that_expand_a_file_the_first_is_kept(file, cache, damaged, monkeypatch):
    """The second is done in the middle of the first one's work, and is still reading."""
    if damaged:
        asked(file)
        (kept,) = cache.glob("weights-*/")
        os.truncate(kept / "model.safetensors", 1000)
    folder, done = ours._folder(locate(str(file)).digest), []

    def slow(place, options):
        if not done:
            done.append(None)
            assert ours.expand(file, folder)
            done.append((folder / "model.safetensors").stat().st_ino)
        return load_parts(place, options)

    monkeypatch.setattr(ours, "load_parts", slow)
    with ours.reading_once():
        assert ours.expand(file, folder)
    assert list(cache.glob("*weights-*")) == [folder], "one folder, and nothing unfinished"
    assert (folder / "model.safetensors").stat().st_ino == done[1], "it was not replaced"


def test_what_a_killed_process_had_begun_is_removed_after_a_day(file, cache):
    for name, age in ((".weights-old", 2 * 86400), (".weights-new", 3600)):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (time.time() - age,) * 2)
    asked(file)
    assert [each.name for each in cache.glob(".*")] == [".weights-new"]


def test_the_model_that_was_unused_for_longest_makes_room(file, cache, monkeypatch, tmp_path):
    shutil.copy(file, tmp_path / "second.gguf")  # another name is another model
    asked(file)
    (first,) = cache.glob("weights-*/")
    size = sum(each.stat().st_size for each in first.iterdir())
    monkeypatch.setattr(ours, "LARGEST", size * 3 // 2)
    asked(tmp_path / "second.gguf")
    (second,) = cache.glob("weights-*/")
    assert second != first
    monkeypatch.setattr(ours, "LARGEST", size // 2)
    before = second.stat().st_mtime_ns
    asked(file)
    assert list(cache.glob("weights-*/")) == [second], "too large to be kept"
    assert second.stat().st_mtime_ns == before


def test_a_model_that_does_not_come_back_as_it_was_is_not_kept(file, cache, monkeypatch):
    """The check is made once; later runs read the file."""
    tampered = []

    def load(folder, options):
        parts = load_parts(folder, options)
        if "gguf_file" not in options:
            tampered.append(folder)
            with torch.no_grad():
                parts.model.get_input_embeddings().weight[0, 0] += 1e-6
        return parts

    folder = ours._folder("some digest")
    with ours.reading_once():
        for loads in (load, refuse):
            monkeypatch.setattr(ours, "load_parts", loads)
            assert not ours.expand(file, folder)
    assert len(tampered) == 1
    assert not list(cache.glob("weights-*/"))


def test_a_folder_that_cannot_be_written_is_no_error(file, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "file"))
    assert np.isfinite(asked(file)[1]).all()
