"""A real server of llama.cpp: exact scores by forced tokens, those of the same weights here."""

import numpy as np
import pytest

from consilience.core.errors import Connection
from consilience.endpoints.strategies import Proof
from consilience.models import load_model
from consilience.models.served import ServedFacts, TokenScorer, open_server
from test_endpoint_scoring import SOME, WORDS
from test_gguf import write_gguf

xllamacpp = pytest.importorskip("xllamacpp", reason="the extra test-server is not installed")


@pytest.fixture(scope="module")
def tiny(model_folder, tmp_path_factory):
    """A tiny model on its server, and here. Its weights are random, so it would prove nothing."""
    file, folder = tmp_path_factory.mktemp("served") / "tiny.gguf", model_folder("gpt2")
    write_gguf(file, folder)
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.hostnames, parameters.port = str(file), ["127.0.0.1"], 0
    parameters.cpuparams.n_threads, parameters.n_parallel, parameters.verbosity = 1, 1, -1
    running = xllamacpp.Server(parameters)
    connection = Connection(f"{running.listening_address}/v1", tokenizer=str(folder))
    server = open_server("openai:tiny", connection)
    model = TokenScorer(server, "openai:tiny", Proof("forced-tokens", "exact"))
    yield ServedFacts(model), load_model(str(file))


def test_scores_are_those_of_the_same_weights_here(tiny):
    model, local = tiny
    assert model.server.kind == "llama.cpp"
    expected = np.full((len(SOME), len(WORDS.words)), np.nan)
    for scores in local.score(SOME, WORDS):
        expected[scores.rows] = scores.logprob
    for scores in model.score(SOME, WORDS):  # llama.cpp quantises activations, too
        np.testing.assert_allclose(scores.logprob, expected[scores.rows], atol=0.3)
    for scores in model.score(SOME, WORDS, every=False):
        assert np.nanargmax(scores.totals[0]) == expected[scores.rows[0]].argmax()


def test_tokens_that_are_parts_of_characters_and_ends_are_scored(tiny):
    """llama.cpp fails where a grammar forces them."""
    model = tiny[0].model
    ids = lambda text: model.tokenizer(text)["input_ids"]  # noqa: E731
    targets = [ids("é"), ids(" Paris"), [*ids(" Paris"), model.tokenizer.eos_token_id]]
    part = ids("The capital of France is"), targets
    [(_, (totals, reason))] = model.totals([part], [-1], every=True)
    assert reason is None and (totals < 0).all()
