"""llama.cpp in this process: exact scores by tokens, and how far its quantised products are off."""

import gc
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checks import refused
from consilience import Pattern, Query
from consilience.core.errors import ConsilienceError
from consilience.endpoints import server
from consilience.endpoints.chats import Chats
from consilience.endpoints.scorer import STRATEGIES, Continuations, Scorer, prove
from consilience.endpoints.server import LlamaCppClient, Server
from consilience.models import load_model
from consilience.models.served import file_of, prompt_tokens
from consilience.models.sources import locate
from reference import words_of

pytest.importorskip("xllamacpp", reason="needs the extra llamacpp")

FLOAT32 = json.loads((Path(__file__).parent / "data" / "smollm2_float32.json").read_text())
"""Log-probabilities of candidates by transformers, from the expanded weights in float32."""

LARGEST, MEDIAN = 1.0, 0.25
"""Bounds of the difference to these, in nats (docs/endpoints.md)."""


def has_smollm2():
    try:
        return bool(file_of("packaged:smollm2"))
    except ConsilienceError:
        return False


pytestmark = pytest.mark.skipif(not has_smollm2(), reason="needs the package with SmolLM2")


@pytest.fixture(scope="module", autouse=True)
def one_core():
    """One thread: torch is loaded here, and its OpenMP spins while other tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def model(one_core):
    """One server for all tests of this module."""
    model = load_model("llamacpp:packaged:smollm2")
    yield model
    model.server.client.close()


def test_scores_are_those_of_the_expanded_weights_within_a_bound(model):
    """The weights are quantised to 4 bits in both; llama.cpp quantises the activations, too."""
    differences, answers = [], 0
    for row in FLOAT32:
        query = Query(Pattern.parse(row["pattern"]), row["subject"], row["words"][0])
        [scores] = model.score([query], words_of(*row["words"]))
        differences += np.abs(scores.logprob[0] - row["logprobs"]).tolist()
        answers += scores.logprob[0].argmax() == np.argmax(row["logprobs"])
    assert max(differences) < LARGEST and np.median(differences) < MEDIAN
    assert answers == len(FLOAT32)
    [best] = model.score([query], words_of(*row["words"]), every=False)
    assert np.nanargmax(best.totals[0]) == scores.logprob[0].argmax()


def test_the_weights_are_part_of_what_a_run_is(model):
    assert model.identity["digest"] == locate("packaged:smollm2").digest


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_scores_are_those_of_a_chain_over_the_vocabulary(model, end, monkeypatch):
    """`` Antananarivo`` is several tokens: a grammar of texts would let others spell it.

    Nor has a grammar a place for what ends a text, be it the model's own end or another.
    """
    tokens = prompt_tokens(model.server, "smollm2")
    prefix, *targets = tokens.ids(["The capital of France is", f" Antananarivo{end}"])
    parts = Continuations(tuple(prefix), tuple(map(tuple, targets)))
    decode, decoded = tokens.tokenizer.decode, list[int]()
    monkeypatch.setattr(tokens.tokenizer, "decode", lambda ids: decoded.extend(ids) or decode(ids))
    [(_, totals)] = Scorer(model.server, STRATEGIES["forced-tokens"]).totals([parts])
    assert not totals.is_bound.any() and len(decoded) == len({*decoded}), "each is asked once"
    chain = []
    for target in targets:
        total = 0.0
        for at, token in enumerate(target):
            body = {"prompt": prefix + target[:at], "n_predict": 1, "n_probs": 49152}
            reply = model.server.client.post("/completion", body | {"temperature": 0})
            top = reply["completion_probabilities"][0]["top_logprobs"]
            total += next(entry["logprob"] for entry in top if entry["id"] == token)
        chain.append(total)
    np.testing.assert_allclose(totals.values, chain, atol=1e-3)


def test_tokens_that_are_parts_of_characters_are_scored_one_by_one(model):
    """llama.cpp fails where a grammar forces them; values of transformers in float32."""
    float32 = {"日本": -8.201, "Paris": -13.257}
    tokenizer = model.server.tokenizer
    targets = [tuple(tokenizer.ids(word)) for word in float32]
    assert [any(token in tokenizer.parts for token in ids) for ids in targets] == [True, False]
    parts = Continuations(tuple(tokenizer.ids("フランスの首都は")), tuple(targets))
    scorer = Scorer(model.server, STRATEGIES["forced-tokens"])
    [(_, totals)] = scorer.totals([parts])
    assert not totals.is_bound.any()
    np.testing.assert_allclose(totals.values, list(float32.values()), atol=LARGEST)


def test_fields_that_the_server_ignores_are_named(model, monkeypatch):
    refused("'echo'", load_model, "llamacpp:packaged:smollm2", scoring="echo")
    named = replace(model.server.client.connection, scoring="prompt-logprobs")
    monkeypatch.setattr(model.server.client, "connection", named)
    refused("'prompt_logprobs'", prove, model.server)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF nonsense")
    refused("llama.cpp cannot load 'bad.gguf'", load_model, f"llamacpp:{tmp_path / 'bad.gguf'}")
    refused("names no GGUF file", load_model, "llamacpp:")
    refused("no such file", load_model, f"llamacpp:{tmp_path / 'none.gguf'}")


def test_nothing_is_left_when_a_model_is_no_longer_used(monkeypatch):
    """Neither its folder nor its memory; and a second one loads after it."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        monkeypatch.setattr(tempfile, "tempdir", folder)
        for _ in range(2):
            client = LlamaCppClient(Path(file_of("packaged:smollm2")))
            assert Server(client, "smollm2").kind == "llama.cpp"
            assert len(list(Path(folder).iterdir())) == 1
            del client
            gc.collect()
            assert not list(Path(folder).iterdir())


def test_llama_cpp_enforces_one_of_the_options(model):
    """Options that the model would not write, with quotes and letters of other alphabets."""
    asked = Chats(model.server)
    assert asked.prove("answers-only").requests == 2 and not asked.notes
    options = ['"quoted"', "日本", "7, or 8"]
    chats = [([{"role": "user", "content": "What is the capital of France?"}], options)] * 2
    (_, first), (_, again) = asked.replies("answers-only", chats)
    assert first == again and isinstance(first, int)
