"""Scores over HTTP: those of the same weights here, or a refusal that names the field."""

import numpy as np
import pytest

from checks import refused
from conftest import cases
from consilience.asking.asker import UNCERTAIN
from consilience.asking.facts import ask, judge
from consilience.core.errors import Connection, ConsilienceError
from consilience.models import load_model
from consilience.models.served import ServedFacts, TokenScorer, load_served
from consilience.types import Fact, Relation
from reference import QUERIES, words_of
from replay_server import replay
from scoring_server import (
    LIES,
    LLAMA_CPP,
    LLAMA_CPP_PYTHON,
    OLLAMA,
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
    values = np.full((len(SOME), len(WORDS.words)), np.nan)
    for scores in load_model(str(folder)).score(SOME, WORDS):
        values[scores.rows] = scores.logprob
    return values


def served(url, folder=None, **more):
    connection = Connection(url, tokenizer=str(folder) if folder else None, **more)
    model = load_served("openai:tiny", connection, in_chats=())
    assert isinstance(model, TokenScorer)
    return ServedFacts(model)


@pytest.mark.parametrize(("ways", "scoring", "takes_ids"), [
    (VLLM, "prompt-logprobs", True),
    (VLLM | {"shuffled"}, "prompt-logprobs", True),
    (VLLM - {"prompt_logprobs"}, "echo", True),
    (VLLM - {"prompt_logprobs", "echo"}, "label-ids", True),
    (SGLANG, "echo", True),
    (LLAMA_CPP, "echo", True),
    (LLAMA_CPP_PYTHON, "echo", False),
])  # fmt: skip
def test_scores_are_those_of_the_same_weights_here(folder, local, ways, scoring, takes_ids):
    """The first strategy that is proved; a server without token ids gets texts."""
    with scoring_server(folder, ways) as server:
        model = served(server.url, folder)
        assert model.proof.strategy == model.identity["scoring"] == scoring
        assert (model.proof.as_text, model.proof.repeated) == (not takes_ids, 0)
        assert (model.proof.other_route or 0) < 1e-9
        assert (model.proof.other_route is None) == ("tokenize" not in ways)
        assert 0 < model.proof.total_probability <= 1
        answered = []
        for scores in model.score(SOME, WORDS):
            answered += scores.rows.tolist()
            np.testing.assert_allclose(scores.logprob, local[scores.rows], atol=3e-5)
        assert sorted(answered) == list(range(len(SOME)))


LABEL_IDS = VLLM - {"prompt_logprobs", "echo"}


def assert_best(found, local):
    """The best candidate of each is that of all scores, and the gold has one."""
    for scores in found:
        (row,) = scores.rows
        assert np.nanargmax(scores.totals[0]) == local[row].argmax()
        gold = WORDS.words.index(SOME[row].gold) if SOME[row].gold in WORDS.words else None
        assert gold is None or not np.isnan(scores.totals[0, gold])


@pytest.mark.parametrize("ways", [OPENAI, OLLAMA])
def test_candidates_that_are_not_listed_have_bounds(folder, local, ways):
    """A bound is never below the value, an answer is the one of all scores, and none is made up."""
    with scoring_server(folder, ways) as server:
        model = served(server.url, folder)
        assert model.proof.strategy == "top-k"
        kinds = set()
        for scores in model.score(SOME, WORDS):
            (row,) = scores.rows
            judged = judge(scores, [SOME[row].gold])
            bounds = np.zeros((1, 6), bool) if scores.bounds is None else scores.bounds
            exact = np.flatnonzero(~bounds[0])
            if len(exact) > 1:
                differences = scores.totals[0, exact] - local[row, exact]
                np.testing.assert_allclose(differences, differences[0], atol=3e-5)
            if len(exact):
                offset = scores.totals[0, exact[0]] - local[row, exact[0]]
                assert (scores.totals[0] >= local[row] + offset - 3e-5).all()
            if judged["excluded"][0] is None:
                assert judged["answer"][0] == WORDS.words[local[row].argmax()]
            else:
                assert judged["excluded"][0] in (UNCERTAIN, "the gold is not among the candidates")
            kinds.add((bool(bounds.any()), judged["excluded"][0]))
        assert (True, UNCERTAIN) in kinds


def test_answers_count_the_candidates_of_which_only_a_bound_is_known(folder):
    """A server that scores every candidate has no bounds, and its answers no such column."""
    facts = tuple(Fact(str(at), query.subject, "Rome") for at, query in enumerate(SOME))
    relation = Relation("r", "r", "N-1", (SOME[0].pattern,), facts, {}, WORDS)
    queries = [relation.query(relation.patterns[0], fact) for fact in facts]
    with scoring_server(folder, OPENAI) as server:
        model = served(server.url, folder)
        known = {int(one.rows[0]): one.bounds for one in model.score(queries, WORDS, every=False)}
        counts = [0 if known[at] is None else known[at].sum() for at in range(len(facts))]
        assert ask(relation, model, "s")["n_bounds"].to_list() == counts
    assert max(counts) > 0
    with scoring_server(folder, VLLM) as server:
        assert "n_bounds" not in ask(relation, served(server.url, folder), "s").columns


@pytest.mark.parametrize(("ways", "message"), cases("scoring_ignored"))
def test_a_server_that_ignores_a_field_is_refused_by_its_name(folder, ways, message):
    scoring = "prompt-logprobs" if "'prompt_logprobs'" in message else None
    with scoring_server(folder, ways) as server, pytest.raises(ConsilienceError) as error:
        served(server.url, folder, scoring=scoring)
    todo = "Leave --scoring out" if scoring else "--generate"
    assert message in str(error.value) and todo in error.value.todo


ECHOES = {"prompt-logprobs": VLLM, "echo": VLLM - {"prompt_logprobs"}, "as text": LLAMA_CPP_PYTHON}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("ways", ECHOES)
def test_values_that_do_not_depend_on_the_words_are_refused(folder, ways, lie):
    """One value for all tokens, one for each position, and minus infinity."""
    name = "echo" if ways == "as text" else ways
    message = "as probable as|different next words|in place of a"
    with scoring_server(folder, ECHOES[ways] | {lie}) as server:
        refused(message, served, server.url, folder, scoring=name)


@pytest.mark.parametrize("lie", ["another prompt", "impossible"])
@pytest.mark.parametrize("ways", ECHOES)
def test_a_server_that_lies_after_its_proof_is_refused(folder, ways, lie):
    """By replies to a prompt of the same length with another third token, or by minus infinity."""
    with scoring_server(folder, ECHOES[ways]) as server:
        model = served(server.url, folder)
        assert list(model.score(SOME, WORDS))
        server.answer.ways.add(lie)
        message = "not as in the proof.*(ignored it|in place of)"
        refused(message, lambda: list(model.score(SOME, WORDS)))


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
        model = served(server.url, folder, scoring="echo")
    assert model.proof.repeated > 0.01
    assert "exact" not in model.notes[0] and "--concurrency 1" in model.notes[0]


def test_a_server_without_a_tokenizer_says_what_is_missing(folder):
    with scoring_server(folder, OPENAI) as server:
        refused("name one with --tokenizer", served, server.url)
