"""Servers that fail in every way that a transport can, and what the client makes of it."""

import asyncio
import itertools
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints.client import Client, Failed, Refused, message_of, wait_of
from replay_server import completion, raw, replay

KEY = "sk-secret-0123456789"
JSON = b"content-type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + JSON


@contextmanager
def client_of(answer, **connection):
    """A client of a server that answers so, which notes its ``waits`` and does not wait."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        await asyncio.sleep(0)

    with replay(answer) as server:
        client = Client(Connection(server.url, **connection), sleep)
        client.server, client.waits = server, waits
        yield client
        client.close()


def first(*replies, then=None):
    """An answer that gives these replies once each, and then the last, or ``then``."""
    queue = itertools.chain(replies, itertools.repeat(then or replies[-1]))
    return lambda path, body, headers: next(queue)


def html(path, body, headers):
    return 200, b"<!doctype html><h1>Welcome</h1>", {"content-type": "text/html"}


@pytest.mark.parametrize(("reply", "message"), [
    ((200, b'{"a": 1, ', {}), "no JSON: Expecting property name"),
    ((200, b"", {}), "no JSON: Expecting value"),
    ((200, b"[" * 5000, {}), "no JSON"),
    ((200, b"\xff\xfe\x00", {}), "no JSON"),
    ((200, b"<html>hello", {"content-type": "text/html"}), "an HTML page"),
    ((404, {"detail": "Not Found"}, {}), "status 404: Not Found.*usually ends in /v1"),
    ((403, {"error": "forbidden"}, {}), "status 403: forbidden.*a key"),
    ((405, b"", {}), "status 405: no message"),
    ((302, b"", {"location": "http://other.example/v1"}), "status 302: a redirect"),
    ((429, {"error": {"code": "insufficient_quota", "message": "no credit"}}, {}), "Pay for"),
])  # fmt: skip
def test_a_reply_that_another_try_would_repeat_ends_the_run(reply, message):
    """At once; only after what is no JSON, such as a truncated text, the request is sent again."""
    tries = 7 if message.startswith("no JSON") else 1
    with client_of(first(reply)) as client:
        refused(message, client.post, "completions", {"prompt": "x"})
        assert client.usage.requests == tries


def test_a_redirect_to_another_host_is_not_followed_and_takes_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with replay(lambda path, body, headers: {}) as other:
        with client_of(first((307, b"", {"location": other.url}))) as client:
            refused("Give the address that answers", client.post, "completions", {})
            assert client.server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert not other.received


@pytest.mark.parametrize("reply", [
    raw(OK + b'content-length: 90\r\n\r\n{"a": 1}'),
    raw(OK + b'transfer-encoding: chunked\r\n\r\n8\r\n{"a": '),
    raw(),
    raw(b"HTTP/1.1 banana\r\n\r\n"),
    (200, b'{"id": "x", "choi', {}),
    (500, b"<h1>Internal error</h1>", {"content-type": "text/html"}),
    (502, {"error": {"message": "bad gateway"}}, {}),
    (408, {}, {}),
    (425, {}, {}),
    {"error": {"code": 502, "message": "upstream"}},
    {"choices": [{"finish_reason": "error", "message": {"content": "so fa"}}]},
])  # fmt: skip
def test_trouble_that_passes_is_tried_again(reply):
    with client_of(first(reply, reply, {"id": "x"})) as client:
        assert client.post("completions", {"prompt": "x"}) == {"id": "x"}
        assert (client.usage.requests, client.usage.retries, client.waits) == (3, 2, [1, 2])


def test_trouble_that_does_not_pass_says_how_to_resume():
    with client_of(first((500, {"message": "oops"}, {}))) as client:
        refused(r"oops \(7 tries\).*Run the same command again", client.post, "completions", {})
        assert client.usage.requests == 7 and client.waits == [1, 2, 4, 8, 16, 32]
    with client_of(first((501, {"message": "no decision model"}, {}))) as client:
        refused("status 501: no decision model", client.post, "completions", {})
        assert client.usage.requests == 1 and not client.waits, "what it cannot do is not repeated"


def test_one_request_in_trouble_among_others_is_refused():
    def answer(path, body, headers):
        return (500, {"message": "bad row"}, {}) if body["n"] == 3 else completion(body)

    with client_of(answer, concurrency=2) as client:
        replies = dict(client.post_all("completions", ({"n": n} for n in range(30))))
    assert replies[3] == Failed(500, "bad row (7 tries)") != Refused(500, "bad row (7 tries)")
    assert replies[3].reason == "no reply from the server (500): bad row (7 tries)"
    assert all(isinstance(replies[n], dict) for n in replies if n != 3)
    assert client.usage.refused == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_storm_of_refusals_is_waited_out(status):
    """Each request is refused once, and everything is answered in the end."""
    seen = set()

    def answer(path, body, headers):
        is_first = body["n"] not in seen
        seen.add(body["n"])
        return (status, {}, {}) if is_first else completion(body)

    with client_of(answer) as client:
        replies = dict(client.post_all("completions", ({"n": n} for n in range(40))))
    assert all(isinstance(reply, dict) for reply in replies.values())
    assert client.usage.retries == len(client.server.received) - 40 == 40


def test_retry_after_is_waited_for():
    with client_of(first((429, {}, {"retry-after": "7"}), then={"id": "a"})) as client:
        client.post("completions", {})
    assert client.waits == [7]
    later = {"retry-after": "Mon, 23 Nov 2026 12:00:30 GMT"}
    noon = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert wait_of(later, noon) == 30
    assert wait_of({"retry-after": "Mon, 23 Nov 2026 11:00:00 GMT"}, noon) == 0
    assert [wait_of({"retry-after": text}) for text in ("", "soon", "nan", "inf")] == [None] * 4


def test_the_key_is_in_nothing_that_comes_back(monkeypatch):
    """A server may send back the key in any reply, a valid one included."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    replies = [{"seen": KEY}, (400, {"error": f"got {KEY}"}, {}), (200, KEY.encode(), {})]
    with client_of(first(*replies)) as client:
        assert client.post("completions", {}) == {"seen": "[key]"}
        assert client.post("completions", {}) == Refused(400, "got [key]")
        with pytest.raises(ConsilienceError, match=r"\[key\]") as raised:
            client.post("completions", {})
        del client.server  # it has what it received
        assert KEY not in repr(vars(client)) + str(raised.value)


@pytest.mark.parametrize("reply", [5, [], {"choices": 5}, {"choices": [1]}, {"error": None}])
def test_a_reply_of_another_form_is_passed_on(reply):
    with client_of(first(reply)) as client:
        assert client.post("completions", {}) == reply


def test_the_first_refusals_end_the_run_also_after_a_known_request():
    with client_of(first({"id": "x"}, then=(400, {"message": "no seed"}, {}))) as client:
        client.post("completions", {})
        refused("no seed.*so far for every", list, client.post_all("completions", [{}] * 99))
        assert client.usage.requests < 30


def test_replies_that_were_filtered_are_answers_that_cost_and_end_no_run():
    """The server read all of them: none is a reason to stop, and each is paid for."""
    filtered = {"choices": [{"finish_reason": "content_filter"}]}
    filtered["usage"] = {"prompt_tokens": 3, "completion_tokens": 1}
    with client_of(first(filtered, then=filtered)) as client:
        replies = list(client.post_all("completions", [{}] * 20))
    assert all("content_filter" in reply.message for _, reply in replies)
    assert (client.usage.tokens_read, client.usage.tokens_written) == (60, 20)


def test_a_server_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with client_of(first({"id": "a"})) as client:
        assert client.post("completions", {}) == {"id": "a"}


@pytest.mark.parametrize(("name", "kept"), cases("model_names"))
def test_the_folder_of_a_model_on_the_server_is_not_kept(name, kept):
    with client_of(first({"model": name})) as client:
        client.post("completions", {})
        assert client.models == {kept}


def test_messages_are_found_in_what_servers_send():
    assert message_of('{"error": {"message": "a"}}') == "a"
    assert message_of('{"detail": [{"msg": "b"}]}') == '[{"msg": "b"}]'
    assert message_of("plain\n text") == "plain text"
    assert message_of("") == ""
    assert len(message_of("x" * 10_000)) < 400
