"""Questions and sentence pairs over HTTP, against the same weights here."""

import json
from dataclasses import replace

import numpy as np
import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection
from consilience.core.items import Ask, Item, TextPair
from consilience.endpoints import chats as chat_module
from consilience.endpoints import client
from consilience.models import load_model, served
from consilience.models.loading import load_pretrained
from consilience.models.prompted import AnswerWriter, OptionScorer
from consilience.plans.asking import judge
from consilience.plans.presentation import Presentation, Presenter, Template
from consilience.plans.questions import prompts_of
from consilience.suites.pairs import TASKS, original
from replay_server import completion, replay
from scoring_server import LLAMA_CPP, LLAMA_CPP_PYTHON, OPENAI, VLLM, TinyServer, scoring_server
from test_prompted import CHAT, DESIGN, QUESTIONS

PAIRS = [("Rome is big.", "Paris is big."), ("a b", "c d")]
PLAIN = Template("short", "{question} {options}")
SYSTEM = replace(PLAIN, is_chat=True, system="Be calm.")


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

    def connection(server, **more):
        return Connection(server.url, tokenizer=str(tmp_path), **more)

    return connection


def enforced(server):
    """A model whose answers the server enforces."""
    opened = served.open_server("openai:x", Connection(server.url))
    return served.ChatScorer(opened, "openai:x", "answers-only")


def prompts(template, labels="A"):
    base = Presentation(template=template, labels=labels)
    return [prompt for _, _, prompt in prompts_of(QUESTIONS, Presenter(DESIGN, {}, base))]


def forms_of_mrpc():
    """The forms of two sentence pairs as they are."""
    task = TASKS["mrpc"]
    pairs = (TextPair(str(at), *texts, task.labels[0]) for at, texts in enumerate(PAIRS))
    return task, [original(pair, indicators=task.indicators) for pair in pairs]


def written(model, asked):
    """By row what is written."""
    found = {}
    for rows, texts in model.write(asked, [1] * len(asked)):
        found |= dict(zip(rows.tolist(), texts, strict=True))
    return found


def scored(model, asked):
    """By row the scores of the answers and the numbers of their tokens."""
    found = {}
    for scores in model.score(asked):
        for row, *values in zip(scores.rows.tolist(), scores.totals, scores.lengths, strict=True):
            found[row] = [of_row[: len(asked[row].answers)] for of_row in values]
    return found


@pytest.mark.parametrize("ways", [VLLM, LLAMA_CPP])
@pytest.mark.parametrize("labels", ["A", "none"])
@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_scores_of_options_are_those_of_these_weights(loaded, connect, template, labels, ways):
    """Labels and texts, with and without a chat template and a system prompt."""
    local = OptionScorer(loaded)
    asked = prompts(template, labels)
    expected = scored(local, asked)
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT, longest=512) as server:
        model = served.load_served("openai:tiny", connect(server))
        assert [model.text(prompt) for prompt in asked] == [local.text(prompt) for prompt in asked]
        assert not any(model.why_not(asked))
        found = scored(model, asked)
        assert sorted(found) == list(range(len(asked)))
        for row, (totals, sizes) in found.items():
            np.testing.assert_allclose(totals, expected[row][0], atol=3e-5)
            assert (sizes == expected[row][1]).all()


@pytest.mark.parametrize("ways", [VLLM, LLAMA_CPP, LLAMA_CPP_PYTHON])
@pytest.mark.parametrize("template", [PLAIN, SYSTEM])
def test_written_answers_are_those_of_the_same_weights_here(loaded, connect, ways, template):
    """As token ids, as text, and as messages of a chat."""
    asked = prompts(template)
    local = AnswerWriter(loaded, most_written=4)
    expected = written(local, asked)
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT, longest=512) as server:
        connection = Connection(server.url) if ways is LLAMA_CPP_PYTHON else connect(server)
        asked_server = served.open_server("openai:tiny", connection)
        model = served.Writer(asked_server, "tiny", most_written=4)
        found = written(model, asked)
    assert found == expected and any(found.values())


def test_a_local_tokenizer_is_part_of_what_a_run_is(loaded, connect, tmp_path):
    """Its chat template, too; where there is none nothing is added."""
    with scoring_server(loaded.model.name_or_path, VLLM, chat_template=CHAT) as server:
        connection = connect(server)
        first, again = (served.load_served("openai:tiny", connection).identity for _ in "ab")
        (tmp_path / "chat_template.jinja").write_text(f"{CHAT} ")
        other = served.load_served("openai:tiny", connection).identity
        plain = served.Served(served.open_server("openai:t", Connection(server.url)), "t", None)
    assert first == again != other == {**first, "tokenizer": other["tokenizer"]}
    assert {*first} - {*plain.identity} == {"tokenizer", "scoring"}


def test_a_server_of_chats_has_values_of_listed_labels(loaded, monkeypatch):
    """The first token of an answer is all that such a server tells."""
    monkeypatch.setattr(chat_module, "KNOWN_LISTED", ())
    asked = prompts(SYSTEM)
    expected = {row: totals for row, (totals, _) in scored(OptionScorer(loaded), asked).items()}
    with scoring_server(loaded.model.name_or_path, OPENAI, chat_template=CHAT) as server:
        model = served.load_served("openai:tiny", Connection(server.url))
        assert model.why_not(prompts(PLAIN))[0] and not any(model.why_not(asked))
        assert model.text(asked[0]).startswith("system: Be calm.\nuser: ")
        for scores in model.score(asked):
            (row,), (values,) = scores.rows, scores.totals
            known = ~np.isnan(values)
            np.testing.assert_allclose(values[known], expected[row][known], atol=3e-5)
            assert scores.is_complete == known.all() and known.any() == (scores.errors == [None])


def test_the_proof_of_listed_tokens_has_the_difference_of_equal_chats():
    """The two replies to the second known chat differ by 0.25 nats, those to the first do not."""
    sent = []

    def answer(path, body, headers):
        if not path.endswith("chat/completions"):
            return 404, {"error": {"message": f"no route {path}"}}, {}
        sent.append(body)
        letter = "A" if "letter" in body["messages"][0]["content"] else "2"
        value = -0.75 if len(sent) == 4 else -0.5
        listed = [{"token": letter, "logprob": value, "top_logprobs": [
            {"token": letter, "logprob": value},
            *({"token": f"x{at}", "logprob": -9.0} for at in range(19)),
        ]}]  # fmt: skip
        content = {"message": {"content": letter}, "logprobs": {"content": listed}}
        return completion(body, choices=[content])

    with replay(answer) as server:
        asked = served.open_server("openai:m", Connection(server.url))
        proof = chat_module.Chats(asked).prove("chat-top-k")
    assert len(sent) == 4 and proof.repeated == 0.25
    assert "equal requests differ by 2.5e-01 nats" in proof.note


def test_labels_that_are_not_listed_have_no_value():
    listed = [("A", -0.5), (" B", -1.5), *((f"x{at}", -5.0 - at / 10) for at in range(18))]
    values = chat_module.values_of(listed, ["A", "B", "C"])
    np.testing.assert_equal(values, [-0.5, np.nan, np.nan])
    values = chat_module.values_of([*listed[:-1], ("A", -5.0)], ["A"])
    assert np.exp(values) == pytest.approx(np.exp(-0.5) + np.exp(-5)), "two tokens with one text"


@pytest.mark.parametrize(("ways", "message"), [
    (OPENAI | {"no logprobs"}, "chat-top-k: 'logprobs': the server ignored it"),
    (OPENAI | {"fewer"}, "'top_logprobs': 19 tokens where 20 were asked for"),
    (OPENAI | {"above 1"}, "'logprobs': probabilities with a sum of"),
    (OPENAI, "'top_logprobs': 'no word' is not listed as an answer to 'x'"),
])  # fmt: skip
def test_a_server_of_chats_that_ignores_a_field_is_refused(loaded, monkeypatch, ways, message):
    monkeypatch.setattr(chat_module, "KNOWN_LISTED", (("x", "no word"),))
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT) as server:
        refused(message, served.load_served, "openai:tiny", Connection(server.url))


def test_labels_of_sentence_pairs_are_those_of_the_same_weights_here(writer):
    """Scores of the labels, and what is written, after the same prompts."""
    task, forms = forms_of_mrpc()
    local = writer("llama")
    expected = {}
    for scores in local.score(forms):
        expected |= dict(zip(scores.rows.tolist(), scores.totals, strict=True))
    with scoring_server(local.model.name_or_path, VLLM) as server:
        connection = Connection(server.url, tokenizer=local.model.name_or_path)
        model = served.load_served_labels("openai:tiny", connection, task)
        assert [model.text(form) for form in forms] == [local.text(form) for form in forms]
        for scores in model.score(forms):
            np.testing.assert_allclose(scores.totals[0], expected[scores.rows[0]], atol=3e-5)
        assert sorted(int(rows[0]) for rows, _ in model.write(forms)) == [0, 1]


@pytest.mark.parametrize("ways", [
    OPENAI | {"no logprobs", "enforces"}, OPENAI | {"reasons", "enforces"},
])  # fmt: skip
def test_answers_without_scores_are_those_of_the_same_weights_here(loaded, ways):
    """A server that lists no tokens enforces an answer."""
    asked = prompts(SYSTEM)
    best = {row: t.argmax() for row, (t, _) in scored(OptionScorer(loaded), asked).items()}
    with scoring_server(loaded.model.name_or_path, ways, chat_template=CHAT) as server:
        model = served.load_served("openai:tiny", Connection(server.url))
        assert model.proof.strategy == model.identity["scoring"] == "answers-only"
        assert "chat-top-k" in model.proof.refused
        assert model.notes[0].startswith("the server gives answers that ")
        assert ("temperature" in model.identity) == ("reasons" in ways) == (len(model.notes) == 2)
        assert model.why_not(prompts(PLAIN))[0] and not any(model.why_not(asked))
        answers = {}
        for scores in model.score(asked):
            (row,), (totals,) = scores.rows.tolist(), scores.totals
            assert (scores.lengths, scores.errors) == (None, [None])
            assert sorted(totals)[:-1] == [-np.inf] * (len(totals) - 1)
            answers[row] = totals.argmax()
    assert answers == best


@pytest.mark.parametrize(("reply", "message"), cases("enforced_bad"))
def test_a_server_that_does_not_enforce_answers_is_refused_by_the_field(reply, message):
    def answer(path, body, headers):
        if path != "/v1/chat/completions":
            return 404, {}, {}
        end = (reply or {}).get("finish_reason", "stop")
        return {"choices": [] if reply is None else [{"message": reply, "finish_reason": end}]}

    with replay(answer) as server:
        said = refused("answers-only: 'response_format': ", enforced, server)
    assert message in said


def test_an_enforced_answer_that_does_not_come_is_none_or_ends_the_run():
    """After a limit and a refusal there is no answer. Any other text shows that nothing is enforced."""
    ends = [
        ({"content": '{"answer": "B'}, "length"),
        ({"content": None, "refusal": "No."}, "stop"),
        ({"content": "B"}, "stop"),
        ({"content": None}, "stop"),
        ({"content": '{"answer": "B"}'}, "content_filter"),
        (
            {
                "content": [
                    {"type": "thinking", "text": "C"},
                    {"type": "text", "text": '{"answer": "B"}'},
                ]
            },
            "stop",
        ),
    ]

    def answer(path, body, headers):
        if path != "/v1/chat/completions":
            return 404, {}, {}
        options = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
        turns = [turn["content"] for turn in body["messages"]]
        message, end = {"content": json.dumps({"answer": options[0]})}, "stop"
        if turns[-1].isdigit():
            message, end = ends[int(turns[-1])]
        return {"choices": [{"message": message, "finish_reason": end}]}

    with replay(answer) as server:
        model = enforced(server)
        chats = [([{"role": "user", "content": text}], ["A", "B"]) for text in "?01345"]
        assert dict(model.chats.replies("answers-only", chats)) == {
            0: 0,
            1: "the server ended the answer early ('finish_reason' is 'length')",
            2: "the model refused to answer: 'No.'",
            3: "'' in place of one of the options",
            4: "the server refused the request (200): 'finish_reason' is 'content_filter'",
            5: 1,
        }
        asked = replace(prompts(SYSTEM)[0], turns=(("user", "2"),))
        refused("not as in the proof: 'response_format': 'B'", lambda: list(model.score([asked])))


@pytest.mark.parametrize(("message", "temperature", "kept"), [
    ("`temperature` and `top_p` cannot both be specified", 0.0, {"temperature": 0.0}),
    ("temperature: range: 0..1", 1.5, {"temperature": 1.5, "top_p": 1}),
])  # fmt: skip
def test_only_a_field_that_changes_nothing_is_left_out(message, temperature, kept, monkeypatch):
    """A chosen temperature is not; then all requests are refused for it."""
    monkeypatch.setattr(client, "WAITS", (0.001,))

    def answer(path, body, headers):
        both = {"temperature", "top_p"} <= body.keys()
        return (400, {"message": message}, {}) if both else completion(body)

    with replay(answer) as server:
        chats = chat_module.Chats(
            served.open_server("openai:x", Connection(server.url)), temperature
        )
        chats.settle()
        assert chats.sampling == kept


def test_a_limit_that_thoughts_reach_may_be_refused():
    """Room for them is asked for, as where they end a reply."""

    def answer(path, body, headers):
        if path != "/v1/chat/completions":
            return 404, {}, {}
        if body["max_tokens"] < 1000:
            return 400, {"message": "max_tokens or model output limit was reached"}, {}
        options = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
        return {"choices": [{"message": {"content": json.dumps({"answer": options[0]})}}]}

    with replay(answer) as server:
        model = enforced(server)
    assert model.chats.room == chat_module.ROOM


def test_a_label_that_begins_another_is_not_read_by_its_first_token(loaded, monkeypatch):
    monkeypatch.setattr(chat_module, "KNOWN_LISTED", ())
    tiny, asked = loaded.model.name_or_path, prompts(SYSTEM)
    numbered = replace(asked[0], answers=tuple(map(str, range(1, 11))))
    with scoring_server(tiny, OPENAI, chat_template=CHAT) as server:
        model = served.load_served("openai:tiny", Connection(server.url))
    assert "a label begins another" in model.why_not([numbered])[0]
    assert model.why_not([replace(numbered, answers=numbered.answers[:9])]) == [None]


def test_labels_of_sentence_pairs_are_enforced_by_a_server_of_chats(writer):
    """The label is the most probable one after the same chat; what is written has no scores."""
    task, forms = forms_of_mrpc()
    folder = writer("llama").model.name_or_path
    ways = OPENAI | {"enforces", "reasons"}
    with scoring_server(folder, ways, chat_template=CHAT, longest=512) as server:
        model = served.load_served_labels("openai:tiny", Connection(server.url), task)
        assert model.identity["scoring"] == "answers-only"
        assert "Label:" not in model.text(forms[0]) and "Rome is big." in model.text(forms[0])
        tiny = server.answer
        for scores in model.score(forms):
            (row,) = scores.rows
            chat = [{"role": "user", "content": model.text(forms[row])}]
            shown = {"add_generation_prompt": True, "return_dict": False}
            ids = tiny.tokenizer.apply_chat_template(chat, **shown)
            totals = tiny.totals(ids, task.labels)
            item = Item("", "", task.labels[0], task.labels, 0)
            columns = judge(scores, [Ask(0, 0, None)], [item])
            assert columns["answer"].tolist() == [task.labels[totals.index(max(totals))]]
            assert columns["error"].tolist() == [None] and "text_logprob" not in columns
        message = "of a server that takes whole chats only"
        refused(message, served.ServedLabels, model.model, task, "{text} {reply}Label:")


def test_a_written_answer_that_does_not_come_is_none():
    """A request that is refused, and a model that used up its tokens before it wrote."""

    def answer(path, body, headers):
        if path != "/v1/chat/completions":
            return 404, {}, {}
        if "temperature" in body or "max_tokens" in body:
            field = "temperature" if "temperature" in body else "max_completion_tokens"
            return 400, {"error": {"message": f"no such field here: {field}"}}, {}
        if "Rust" in body["messages"][-1]["content"]:
            return 400, {"error": {"message": "a bad word"}}, {}
        if "Ada" in body["messages"][-1]["content"]:
            return {"choices": [{"message": {"content": "B"}, "finish_reason": "content_filter"}]}
        no_text = {} if "Zig" in body["messages"][-1]["content"] else {"content": ""}
        choice = {"message": no_text, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"prompt_tokens": 1}}

    with replay(answer) as server:
        model = served.Writer(served.open_server("openai:x", Connection(server.url)), "openai:x")
        assert model.notes == ["the server takes no temperature: its answers are sampled"]
        asked = [
            replace(prompts(SYSTEM)[0], turns=(("user", t),)) for t in ("Rust", "Go", "Zig", "Ada")
        ]
        texts = {int(rows[0]): text for rows, (text,) in model.write(asked, [1] * 4)}
    assert texts[0].reason == "the server refused the request (400): a bad word"
    assert texts[1].reason.endswith("before its text began (--max-new-tokens)")
    assert texts[2].reason == texts[1].reason, "a message without its content"
    assert "'content_filter'" in texts[3].reason


@pytest.mark.parametrize("row", cases("providers"))
def test_what_the_shapes_of_a_provider_give(loaded, connect, monkeypatch, row):
    """The strategy that is chosen, and what is refused: texts of options, and facts."""
    asked = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 1}
    tiny = TinyServer(loaded.model.name_or_path, (), chat_template=CHAT)
    listed = tiny.chat({**asked, "max_tokens": 1})["choices"][0]["logprobs"]["content"][0]["token"]
    monkeypatch.setattr(chat_module, "KNOWN_LISTED", (("x", listed),))
    with scoring_server(loaded.model.name_or_path, row["ways"], chat_template=CHAT) as server:
        connection = Connection(server.url)
        if row.get("tokenizer"):
            connection = connect(server)
        if "refused" in row:
            refused(row["refused"], served.load_served, "openai:tiny", connection)
            return
        model = served.load_served("openai:tiny", connection)
        assert model.proof.strategy == row["strategy"]
        (why, *_) = model.why_not(prompts(SYSTEM, "none"))
        assert row.get("texts", "") in (why or "") and bool(why) == ("texts" in row)
        if "facts" in row:
            refused(row["facts"], load_model, "openai:tiny", connection=connection)
