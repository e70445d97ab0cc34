"""Scores over HTTP: those of the same weights here, or a refusal that names the field."""

import numpy as np
import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints import client
from consilience.endpoints.strategies import Proof
from consilience.models import load_model
from consilience.models.served import ServedFacts, TokenScorer, load_served_facts, open_server
from pair_builders import by_row
from reference import QUERIES, words_of
from replay_server import replay
from scoring_server import (
    LIES,
    LLAMA_CPP_PYTHON,
    OPENAI,
    SGLANG,
    VLLM,
    TinyServer,
    scoring_server,
)

WORDS = words_of("Paris", "Rome", "Berlin", "London", "Italy", "a b")
SOME = QUERIES[::4]


@pytest.fixture(scope="module")
def folder(model_folder):
    return model_folder("llama")


@pytest.fixture(scope="module")
def local(folder):
    """Log-probabilities (query, candidate) of the model in this process."""
    return by_row(load_model(str(folder)).score(SOME, WORDS), len(SOME))


def served(url, folder=None):
    connection = Connection(url, tokenizer=str(folder) if folder else None)
    return load_served_facts("openai:tiny", connection)


@pytest.mark.parametrize(("ways", "scoring"), [
    (VLLM, "prompt-logprobs"),
    (VLLM | {"shuffled"}, "prompt-logprobs"),
    (VLLM - {"prompt_logprobs"}, "echo"),
    (SGLANG, "echo"),
])  # fmt: skip
def test_scores_are_those_of_the_same_weights_here(folder, local, ways, scoring):
    """The first strategy that is proved."""
    with scoring_server(folder, ways) as server:
        model = served(server.url, folder)
        assert model.proof.strategy == model.identity["scoring"] == scoring
        assert model.proof.repeated == 0
        answered = []
        for scores in model.score(SOME, WORDS):
            answered += scores.rows.tolist()
            np.testing.assert_allclose(scores.logprob, local[scores.rows], atol=3e-5)
        assert sorted(answered) == list(range(len(SOME)))


def assert_best(found, local):
    """The best candidate of each is that of all scores, and the gold has one."""
    for scores in found:
        (row,) = scores.rows
        assert np.nanargmax(scores.totals[0]) == local[row].argmax()
        gold = WORDS.words.index(SOME[row].gold) if SOME[row].gold in WORDS.words else None
        assert gold is None or not np.isnan(scores.totals[0, gold])


@pytest.mark.parametrize(("ways", "message"), cases("scoring_ignored"))
def test_a_server_that_ignores_a_field_is_refused_by_its_name(folder, ways, message):
    with scoring_server(folder, ways) as server, pytest.raises(ConsilienceError) as error:
        served(server.url, folder)
    assert message in str(error.value) and "--as-questions" in error.value.todo


ECHOES = {"prompt-logprobs": VLLM, "echo": VLLM - {"prompt_logprobs"}}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("ways", ECHOES)
def test_values_that_do_not_depend_on_the_words_are_refused(folder, ways, lie):
    """One value for all tokens, one for each position, and minus infinity."""
    message = "as probable as|different next words|in place of a"
    with scoring_server(folder, ECHOES[ways] | {lie}) as server:
        refused(message, served, server.url, folder)


@pytest.mark.parametrize("lie", ["another prompt", "impossible"])
@pytest.mark.parametrize("ways", ECHOES)
def test_a_reply_that_is_not_as_in_the_proof_is_no_answer(folder, ways, lie, monkeypatch):
    """Replies to a prompt of the same length with another third token, or minus infinity."""
    monkeypatch.setattr(client, "WAITS", (0.001,) * 6)
    with scoring_server(folder, ECHOES[ways]) as server:
        model = served(server.url, folder)
        server.answer.ways.add(lie)
        for _, scores in zip(SOME, model.score(SOME, WORDS), strict=True):
            assert scores.error(0).startswith("the reply was not understood (200): '")
            assert "in place of" in scores.error(0) or "ignored it" in scores.error(0)


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("ways", ["prompt-logprobs", "echo"])
def test_a_question_is_one_request(folder, local, ways, every):
    with scoring_server(folder, ECHOES[ways]) as server:
        model = served(server.url, folder)
        before = len(server.bodies())
        assert_best(model.score(SOME, WORDS, every=every), local)
        assert len(server.bodies()) - before == len(SOME)


class Unsteady(TinyServer):
    """Every second reply has values that are smaller by 0.01 nats for each token."""

    requests = 0

    def complete(self, body):
        self.requests += 1
        return super().complete(body)

    def logprobs(self, ids):
        return super().logprobs(ids) - 0.01 * (self.requests % 2)


def test_scores_are_not_called_exact_where_equal_requests_differ(folder):
    with replay(Unsteady(folder, VLLM - {"prompt_logprobs"})) as server:
        model = served(server.url, folder)
    assert model.proof.repeated > 0.01
    assert "exact" not in model.notes[0] and "--concurrency 1" in model.notes[0]


def test_a_server_without_a_tokenizer_says_what_is_missing(folder):
    with scoring_server(folder, OPENAI) as server:
        refused("name the tokenizer of the model with --tokenizer", served, server.url)


def test_a_server_that_takes_no_token_ids_is_refused(folder):
    with scoring_server(folder, LLAMA_CPP_PYTHON) as server:
        refused("prompt: expected a text", served, server.url, folder)


@pytest.fixture(scope="module")
def tiny(model_folder, tmp_path_factory):
    """A tiny model on a server of llama.cpp, and here; random weights would prove nothing."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the extra test-server is not installed")
    from test_gguf import write_gguf

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


def test_scores_by_forced_tokens_are_those_of_the_same_weights_here(tiny):
    model, local = tiny
    assert model.server.kind == "llama.cpp"
    expected = by_row(local.score(SOME, WORDS), len(SOME))
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
