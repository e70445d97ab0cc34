"""Facts, questions and sentence pairs over HTTP: as the same weights here, or a named refusal."""

import json
from dataclasses import replace

import numpy as np
import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.core.items import Ask, Choice, Item, TextPair
from consilience.endpoints import client, strategies
from consilience.endpoints.strategies import Proof
from consilience.models import load_model, load_prompt_model, served
from consilience.models.loading import load_pretrained
from consilience.models.prompted import PromptModel
from consilience.models.prompts import DEFAULT_WRITING, LONGEST_LABEL, LabelAsker, Writing
from consilience.models.served import EndpointFactModel, TokenScorer, load_served_facts, open_server
from consilience.plans.asking import answers_of
from consilience.plans.presentation import Presentation, PromptBuilder, Template
from consilience.plans.questions import prompts_of
from consilience.suites.pairs import TASKS, original
from pair_builders import by_row
from reference import QUERIES, words_of, written
from replay_server import completion, replay
from scoring_server import LIES, OPENAI, SGLANG, VLLM, TinyServer, scoring_server
from test_prompted import CHAT, DESIGN, QUESTIONS

PAIRS = [("Rome is big.", "Paris is big."), ("a b", "c d")]
PLAIN = Template("short", "{question} {options}")
SYSTEM = replace(PLAIN, is_chat=True, system="Be calm.")
CHATS = "/v1/chat/completions"
RECORDED = """What is the capital of France?
A. Rome
B. Paris
Answer with the letter of the right option and nothing else."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client, "WAITS", (0.001,) * 6)


@pytest.fixture
def loaded(model_folder):
    """A tiny chat model with room for prompts."""
    loaded = load_pretrained(str(model_folder("llama")))
    loaded.model.config.max_position_embeddings = 512
    loaded.tokenizer.chat_template = CHAT
    return loaded


@pytest.fixture
def connect(loaded, tmp_path):
    """A connection to a server, with the tokenizer of the chat model."""
    loaded.tokenizer.save_pretrained(tmp_path)
    loaded.model.config.save_pretrained(tmp_path)
    return lambda server, **more: Connection(server.url, tokenizer=str(tmp_path), **more)


def prompts(template, labels="A"):
    base = Presentation(template=template, labels=labels)
    return [prompt for _, _, prompt in prompts_of(QUESTIONS, PromptBuilder(DESIGN, {}, base))]


def asker(connection, task, template=None):
    """A server that is asked for labels of sentence pairs."""
    how = {"writing": Writing(LONGEST_LABEL), "asks_labels": False, "connection": connection}
    return LabelAsker(load_prompt_model("openai:tiny", **how), task, template)


def forms_of_mrpc():
    """The forms of two sentence pairs as they are."""
    task = TASKS["mrpc"]
    pairs = (TextPair(str(at), *texts, task.labels[0]) for at, texts in enumerate(PAIRS))
    return task, [original(pair, indicators=task.indicators) for pair in pairs]


def writer_of(server, writing=DEFAULT_WRITING, **how):
    opened = served.open_server("openai:x", Connection(server.url))
    return served.Writer(opened, "openai:x", writing=writing, **how)


def listed_by(loaded):
    """The most probable first token of an answer to ``x``."""
    asked = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 1}
    tiny = TinyServer(loaded.model.name_or_path, (), chat_template=CHAT)
    reply = tiny.chat({**asked, "max_tokens": 1})
    return reply["choices"][0]["logprobs"]["content"][0]["token"]


def scored(model, asked):
    """By row the scores of the answers and the numbers of their tokens."""
    found = {}
    for scores in model.score(asked):
        for row, *values in zip(scores.rows.tolist(), scores.totals, scores.lengths, strict=True):
            found[row] = [of_row[: len(asked[row].answers)] for of_row in values]
    return found


@pytest.mark.parametrize("labels", ["A", "none"])
@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_scores_of_options_are_those_of_these_weights(loaded, connect, template, labels):
    """Labels and texts, with and without a chat template and a system prompt."""
    local = PromptModel(loaded)
    asked = prompts(template, labels)
    expected = scored(local, asked)
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        model = served.load_served("openai:tiny", connect(server))
        assert [model.text(prompt) for prompt in asked] == [local.text(prompt) for prompt in asked]
        assert not any(model.why_not(asked))
        found = scored(model, asked)
        assert sorted(found) == list(range(len(asked)))
        for row, (totals, sizes) in found.items():
            np.testing.assert_allclose(totals, expected[row][0], atol=3e-5)
            assert (sizes == expected[row][1]).all()


@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_written_answers_are_those_of_the_same_weights_here(loaded, connect, template):
    """As text, and as messages of a chat, whether or not a tokenizer is named."""
    asked = prompts(template)
    expected = written(PromptModel(loaded, Writing(4)), asked)
    assert any(expected)
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        assert written(writer_of(server, Writing(4)), asked) == expected
        model = served.load_served("openai:tiny", connect(server), Writing(4))
        assert written(model, asked) == expected


def test_a_local_tokenizer_is_part_of_what_a_run_is(loaded, connect, tmp_path):
    """Its chat template, too; where there is none nothing is added."""
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        connection = connect(server)
        first, again = (served.load_served("openai:tiny", connection).identity for _ in "ab")
        (tmp_path / "chat_template.jinja").write_text(f"{CHAT} ")
        other = served.load_served("openai:tiny", connection).identity
        plain = writer_of(server).identity
    assert first == again != other == {**first, "tokenizer": other["tokenizer"]}
    assert {*first} - {*plain} == {"tokenizer", "scoring"}


@pytest.mark.parametrize("row", cases("providers"))
def test_what_the_shapes_of_a_provider_give(loaded, connect, monkeypatch, row):
    """The strategy that is chosen, and what is refused: texts of options, and facts."""
    monkeypatch.setattr(strategies, "KNOWN_LISTED", (("x", listed_by(loaded)),))
    with scoring_server(loaded.model.name_or_path, row["ways"], chat_template=CHAT) as server:
        connection = connect(server) if row.get("tokenizer") else Connection(server.url)
        model = served.load_served("openai:tiny", connection)
        assert model.proof.strategy == row["strategy"] and row["gives"] in model.proof.note
        assert model.notes[0] == model.proof.note and "\n" not in model.proof.note
        (why, *_) = model.why_not(prompts(SYSTEM, "none"))
        assert row.get("texts", "") in (why or "") and bool(why) == ("texts" in row)
        if "facts" in row:
            refused(row["facts"], load_model, "openai:tiny", connection=connection)


@pytest.mark.parametrize("ways", [OPENAI, OPENAI | {"five"}, OPENAI | {"fewer"}])
def test_a_server_of_chats_has_values_of_listed_labels(loaded, monkeypatch, ways):
    """The first token of an answer is all that such a server tells, of 20, 5 or 19 tokens."""
    monkeypatch.setattr(strategies, "KNOWN_LISTED", (("x", listed_by(loaded)),))
    asked = prompts(SYSTEM)
    expected = {row: totals for row, (totals, _) in scored(PromptModel(loaded), asked).items()}
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT) as server:
        model = served.load_served("openai:tiny", Connection(server.url))
        assert model.server.least == {"five": 5, "fewer": 19}.get("".join(ways - OPENAI), 20)
        assert model.why_not(prompts(PLAIN))[0] and not any(model.why_not(asked))
        assert model.text(asked[0]).startswith("system: Be calm.\nuser: ")
        for scores in model.score(asked):
            (row,), (values,) = scores.rows, scores.totals
            known = ~np.isnan(values)
            np.testing.assert_allclose(values[known], expected[row][known], atol=3e-5)
            assert scores.is_complete == known.all() and known.any() == (scores.errors == [None])
        numbered = replace(asked[0], answers=tuple(map(str, range(1, 11))))
        assert "a label begins another" in model.why_not([numbered])[0]
        assert model.why_not([replace(numbered, answers=numbered.answers[:9])]) == [None]


def test_the_proof_of_listed_tokens_has_the_difference_of_equal_chats():
    """The two replies to the second known chat differ by almost 0.25 nats, those to the first do not.

    A reply with fewer tokens than in the proof is not understood, and asked for again.
    """
    sent = []

    def answer(path, body, headers):
        if path != CHATS:
            return 404, {"error": {"message": f"no route {path}"}}, {}
        sent.append(body)
        letter = "2" if "digit" in body["messages"][0]["content"] else "A"
        value = -0.75 if len(sent) == 4 else -0.5
        most = {5: 3, 6: 0}.get(len(sent), 19)
        listed = [{"token": letter, "logprob": value, "top_logprobs": [
            {"token": letter, "logprob": value}, {"token": letter, "logprob": -5.0},
            *({"token": f"x{at}", "logprob": -9.0} for at in range(most - 1)),
        ]}]  # fmt: skip
        logprobs = {"content": listed} if most else None
        return completion(body, choices=[{"message": {"content": letter}, "logprobs": logprobs}])

    with replay(answer) as server:
        model = served.load_served("openai:m", Connection(server.url))
        assert len(sent) == 4 and 0.24 < model.proof.repeated < 0.25
        assert "equal requests differ by 2.5e-01 nats" in model.proof.note
        [scores] = model.score(prompts(SYSTEM)[:1])
    assert len(sent) == 7, "3 tokens, none, and 20"
    assert scores.totals[0, 0] == pytest.approx(np.log(np.exp(-0.5) + np.exp(-5))), "of one text"
    assert np.isnan(scores.totals[0, 1:]).all() and not scores.is_complete


@pytest.mark.parametrize("row", cases("recorded"), ids=lambda row: row["server"])
def test_what_real_servers_replied(row):
    """Replies of servers of SmolLM2, by the requests that they were sent."""
    known = {json.dumps(request): (status, value, {}) for *request, status, value in row["replies"]}
    asked = replace(prompts(SYSTEM)[0], system="", turns=(("user", RECORDED),), labels=("A", "B"))
    asked = replace(asked, answers=("A", "B"), choices=(Choice("Rome"), Choice("Paris")))
    with replay(lambda path, body, headers: known[json.dumps([path, body])]) as server:
        model = served.load_served(f"openai:{row['model']}", Connection(server.url))
        assert model.server.kind == row["kind"]
        [scores] = model.score([asked])
    if isinstance(row["expected"], str):
        assert scores.texts == [row["expected"]] and scores.totals[0, 0] == 0.0
    else:
        np.testing.assert_allclose(scores.totals[0], row["expected"], atol=1e-6)


def scripted(script):
    """A server of chats that answers ``Hello``, and then each chat by a script."""

    def answer(path, body, headers):
        if path != CHATS:
            return 404, {}, {}
        text = body["messages"][-1]["content"]
        reply = script.pop(0) if text != "Hello" and len(script) > 1 else script[0]
        if text == "Hello":
            reply = {"message": {"content": "Hi"}}
        if isinstance(reply, list):
            return reply[0], {"error": {"message": reply[1]}}, {}
        return completion(body, choices=[reply])

    return answer


@pytest.mark.parametrize(("script", "answer", "reason"), cases("chats"))
def test_what_a_server_of_chats_writes(script, answer, reason):
    """Read as an option, and kept as a text; or why there is no answer, which ends no run."""
    proof = strategies.Proof(strategies.WRITTEN, "the model writes its answers")
    asked = replace(prompts(SYSTEM)[0], answers=("A", "B"), labels=("A", "B"))
    with replay(scripted([*script])) as server:
        model = writer_of(server)
        text = written(model, [asked])[0]
        assert getattr(text, "reason", None) == (None if text == "" else reason)
    with replay(scripted([*script])) as server:
        model = writer_of(server, proof=proof)
        [scores] = model.score([asked])
    assert scores.error(0) == reason and scores.answers_only
    if answer in asked.answers:
        assert scores.totals[0, asked.answers.index(answer)] == 0.0
    elif answer:
        assert scores.texts == [answer] and (scores.totals == -np.inf).all()


@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
@pytest.mark.parametrize(("messages", "sent", "notes"), cases("refused_fields"))
def test_a_field_that_changes_nothing_is_left_out(template, messages, sent, notes):
    """In chats and in completions alike, by a known request; other requests are sent once."""
    template = PLAIN if "stop" in messages[0] else template  # chats have none
    left = [*messages]

    def answer(path, body, headers):
        if path.endswith("models"):
            return 404, {}, {}
        if left:
            return 400, {"error": {"message": left.pop(0)}}, {}
        return completion(body, choices=[{"text": "x"}])

    with replay(answer) as server:
        model = writer_of(server)
        asked = prompts(template)[:2]
        assert {*written(model, asked)} == {"x"}
        bodies = [body for _, body in server.received if body]
        assert model.notes == notes and len(bodies) == len(messages) + 1 + 2
        others = {"model", "prompt", "messages", "stop"}
        size = sent.get("max_tokens") if template is SYSTEM else min(32, sent.get("max_tokens", 32))
        expected = sent | ({"max_tokens": size} if "max_tokens" in sent else {})
        assert {k: v for k, v in bodies[-1].items() if k not in others} == expected


def test_a_chosen_temperature_is_not_left_out():
    answer = lambda *_: (400, {"message": "temperature: range: 0..1"}, {})  # noqa: E731
    with replay(answer) as server:
        model = writer_of(server, Writing(temperature=1.5))
        refused("temperature: range: 0..1", written, model, prompts(SYSTEM))


def test_an_answer_that_follows_an_empty_line_is_asked_for_without_a_stop():
    def answer(path, body, headers):
        text = "" if "stop" in (body or {}) else "\n B\nC"
        return {"choices": [{"text": text, "finish_reason": "stop"}]}

    with replay(answer) as server:
        assert {*written(writer_of(server), prompts(PLAIN))} == {"B"}


@pytest.mark.parametrize("end", ["length", "stop"])
def test_a_model_that_thinks_gets_room(end):
    """If the limit ended a known chat before its text began."""

    def answer(path, body, headers):
        text = "B" if body and body.get("max_tokens", 0) > 1000 else ""
        return {"choices": [{"message": {"content": text}, "finish_reason": end}]}

    with replay(answer) as server:
        texts = written(writer_of(server), prompts(SYSTEM))
    assert {*texts} == {"B" if end == "length" else ""}


@pytest.mark.parametrize("template", [None, "{text}?"])
def test_labels_of_sentence_pairs_are_those_of_the_same_weights_here(loaded, connect, template):
    """Scores of the labels, and what is written, after the same prompts; a reply may have begun."""
    task, forms = forms_of_mrpc()
    local = LabelAsker(PromptModel(loaded, Writing(LONGEST_LABEL)), task, template)
    expected = {}
    for scores in local.score(forms):
        expected |= dict(zip(scores.rows.tolist(), scores.totals, strict=True))
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        model = asker(connect(server), task, template)
        assert [model.text(form) for form in forms] == [local.text(form) for form in forms]
        for _, scores in zip(forms, model.score(forms), strict=True):
            np.testing.assert_allclose(scores.totals[0], expected[scores.rows[0]], atol=3e-5)
        assert written(model, forms) == written(local, forms)


def test_labels_of_sentence_pairs_are_read_in_what_a_server_of_chats_writes():
    """Each chat is sent once, for what is written and for the label."""
    task, forms = forms_of_mrpc()
    replies = [{"message": {"content": one}} for one in (f"{task.labels[1].upper()}.", "both", "")]
    with replay(scripted(replies)) as server:
        connection = Connection(server.url, concurrency=1)
        model = asker(connection, task)
        assert model.identity["scoring"] == "written-answers" and len(server.bodies(CHATS)) == 0
        assert "Label:" not in model.text(forms[0]) and "Rome is big." in model.text(forms[0])
        texts = written(model, forms)
        assert texts == [f"{task.labels[1].upper()}.", "both"]
        items = [Item("", "", task.labels[0], task.labels, 0)]
        asks = [Ask(0, 0, None, task.labels)]
        answers = [answers_of(one, asks, items)["answer"][0] for one in model.score(forms)]
        assert answers == [task.labels[1], "both"] and len(server.bodies(CHATS)) == 3
        assert [one.error(0) for one in model.score(forms)] == ["the model wrote no text"] * 2
        assert len(server.bodies(CHATS)) == 5, "once more, as for a noise floor"
        message = "of a server that takes whole chats only"
        refused(message, asker, connection, task, "{text} {reply}Label:")


WORDS = words_of("Paris", "Rome", "Berlin", "London", "Italy", "a b")
SOME = QUERIES[::4]


@pytest.fixture(scope="module")
def folder(model_folder):
    return model_folder("llama")


@pytest.fixture(scope="module")
def local(folder):
    """Log-probabilities (query, candidate) of the model in this process."""
    return by_row(load_model(str(folder)).score(SOME, WORDS), len(SOME))


def facts_at(url, folder=None):
    connection = Connection(url, tokenizer=str(folder) if folder else None)
    return load_served_facts("openai:tiny", connection)


@pytest.mark.parametrize(("ways", "scoring"), [
    (VLLM, "prompt-logprobs"),
    (VLLM | {"shuffled"}, "prompt-logprobs"),
    (VLLM - {"prompt_logprobs"}, "echo"),
    (SGLANG, "echo"),
])  # fmt: skip
def test_scores_are_those_of_the_same_weights_here(folder, local, ways, scoring):
    """The first strategy that is proved. A question is one request, also if only the best counts."""
    with scoring_server(folder, ways) as server:
        model = facts_at(server.url, folder)
        assert model.proof.strategy == model.identity["scoring"] == scoring
        assert model.proof.repeated == 0
        answered = []
        for scores in model.score(SOME, WORDS):
            answered += scores.rows.tolist()
            np.testing.assert_allclose(scores.logprob, local[scores.rows], atol=3e-5)
        assert sorted(answered) == list(range(len(SOME)))
        before = len(server.bodies())
        for scores in model.score(SOME, WORDS, every=False):
            (row,), (totals,) = scores.rows, scores.totals
            assert np.nanargmax(totals) == local[row].argmax()
            assert not any(np.isnan(of) for of, word in zip(totals, WORDS.words, strict=True)
                           if word == SOME[row].gold)  # fmt: skip
        assert len(server.bodies()) - before == len(SOME)


@pytest.mark.parametrize(("ways", "message"), cases("scoring_ignored"))
def test_a_server_that_ignores_a_field_is_refused_by_its_name(folder, ways, message):
    with scoring_server(folder, ways) as server, pytest.raises(ConsilienceError) as error:
        facts_at(server.url, folder)
    assert message in str(error.value) and "--as-questions" in error.value.todo


ECHOES = {"prompt-logprobs": VLLM, "echo": VLLM - {"prompt_logprobs"}}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("ways", ECHOES)
def test_values_that_do_not_depend_on_the_words_are_refused(folder, ways, lie):
    """One value for all tokens, one for each position, and minus infinity."""
    message = "as probable as|different next words|in place of a"
    with scoring_server(folder, ECHOES[ways] | {lie}) as server:
        refused(message, facts_at, server.url, folder)


@pytest.mark.parametrize("lie", ["another prompt", "impossible"])
@pytest.mark.parametrize("ways", ECHOES)
def test_a_reply_that_is_not_as_in_the_proof_is_no_answer(folder, ways, lie):
    """Replies to a prompt of the same length with another third token, or minus infinity."""
    with scoring_server(folder, ECHOES[ways]) as server:
        model = facts_at(server.url, folder)
        server.answer.ways.add(lie)
        for _, scores in zip(SOME, model.score(SOME, WORDS), strict=True):
            assert scores.error(0).startswith("the reply was not understood (200): '")
            assert "in place of" in scores.error(0) or "ignored it" in scores.error(0)


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
        model = facts_at(server.url, folder)
    assert model.proof.repeated > 0.01
    assert "exact" not in model.notes[0] and "--concurrency 1" in model.notes[0]


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
    yield EndpointFactModel(model), load_model(str(file))


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
