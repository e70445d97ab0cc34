"""Servers that fail in every way that a transport can, and what the client makes of it."""

import asyncio
import gzip
import itertools
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints import client as sending
from consilience.endpoints.client import Client, Clock, Failed, Refused, message_of, wait_of
from replay_server import completion, raw, replay

KEY = "sk-secret-0123456789"
JSON = b"content-type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + JSON


class FakeTime:
    """A clock that waits for nothing; ``waits`` are the seconds that it was to wait."""

    def __init__(self):
        self.time, self.waits = 0.0, []
        self.clock = Clock(lambda: self.time, self.sleep)

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@contextmanager
def client_of(answer, *, timeout=5.0, **connection):
    """A client of a server that answers so; time passes at once where the client waits."""
    fake = FakeTime()
    with replay(answer) as server:
        client = Client(Connection(server.url, timeout=timeout, **connection), clock=fake.clock)
        client.server, client.waits = server, fake.waits
        yield client
        client.close()


def first(*replies, then=None):
    """An answer that gives these replies once each, and then the last, or ``then``."""
    queue = itertools.chain(replies, itertools.repeat(then or replies[-1]))
    return lambda path, body, headers: next(queue)


def html(path, body, headers):
    return 200, b"<!doctype html><h1>Welcome</h1>", {"content-type": "text/html"}


def chunked(*chunks):
    lines = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return raw(OK + b"transfer-encoding: chunked\r\n\r\n", *lines)


@pytest.mark.parametrize(("reply", "message"), [
    (raw(OK + b'content-length: 9\r\n\r\n{"a": 1, '), "no JSON: Expecting property name"),
    (raw(OK + b'content-length: 3\r\n\r\n{"a": 1}'), "no JSON: Unterminated string"),
    (raw(OK + b"content-length: 0\r\n\r\n"), "no JSON: Expecting value"),
    ((200, b"[" * 5000, {}), "no JSON"),
    ((200, b"\xff\xfe\x00", {}), "no JSON"),
    ((200, b"<html>hello", {"content-type": "text/html"}), "an HTML page of type 'text/html'"),
    ((404, {"detail": "Not Found"}, {}), "status 404: Not Found.*usually ends in /v1"),
    ((403, {"error": "forbidden"}, {}), "status 403: forbidden.*a key"),
    ((405, b"", {}), "status 405: no message"),
    ((302, b"", {"location": "http://other.example/v1"}), "redirect to 'http://other.example"),
    ((308, b"", {"location": "/v2/completions"}), "redirect to '/v2/completions'"),
    ((200, b"x", {"content-encoding": "br"}), "a reply with the encoding 'br'; expected gzip"),
    ((200, b"not gzip", {"content-encoding": "gzip"}), "a reply that cannot be unpacked"),
    ((429, {"error": {"code": "insufficient_quota", "message": "no credit"}}, {}), "Pay for"),
    ((429, {}, {"retry-after": "3600"}), "asks to wait 60 min"),
])  # fmt: skip
def test_a_reply_that_another_try_would_repeat_ends_the_run(reply, message):
    """At once; only after what is no JSON, such as a truncated text, the request is sent again."""
    tries = 2 if message.startswith("no JSON") else 1
    with client_of(first(reply)) as client:
        refused(message, client.post, "completions", {"prompt": "x"})
        assert len(client.server.received) == tries


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
    times = 1 if isinstance(reply, tuple) and reply[0] == 200 else 2
    with client_of(first(*[reply] * times, {"id": "x"})) as client:
        assert client.post("completions", {"prompt": "x"}) == {"id": "x"}
        assert (client.usage.requests, client.usage.retries) == (times + 1, times)
        assert 0.25 <= client.waits[0] <= 0.5 and 0.5 <= sum(client.waits) + (2 - times) <= 1.5


def test_trouble_that_does_not_pass_says_how_to_resume():
    with client_of(first((500, {"message": "oops"}, {}))) as client:
        refused(r"oops \(8 tries\).*Run the same command again", client.post, "completions", {})
        assert client.usage.requests == sending.TRIES
        assert 20 <= sum(client.waits) <= 62, "7 waits, of 0.5 to 30 s"
    with client_of(first((501, {"message": "no decision model"}, {}))) as client:
        refused("status 501: no decision model", client.post, "completions", {})
        assert client.usage.requests == 1 and not client.waits, "what it cannot do is not repeated"


def test_one_request_in_trouble_among_others_is_refused():
    def answer(path, body, headers):
        return (500, {"message": "bad row"}, {}) if body["n"] == 3 else completion(body)

    with client_of(answer, concurrency=2) as client:
        replies = dict(client.post_all("completions", ({"n": n} for n in range(30))))
    assert replies[3] == Failed(500, "bad row (8 tries)") != Refused(500, "bad row (8 tries)")
    assert replies[3].reason == "no reply from the server (500): bad row (8 tries)"
    assert all(isinstance(replies[n], dict) for n in replies if n != 3)
    assert client.usage.refused == 1


def test_a_request_that_reaches_no_server_is_not_counted():
    """It uses nothing of a limit, and the error is about the server."""
    once = raw(OK + b'connection: close\r\ncontent-length: 8\r\n\r\n{"n": 1}')
    with client_of(first(once), max_requests=2) as client:
        assert client.post("completions", {}) == {"n": 1}
        client.server.close()
        refused(r"cannot connect: .* \(8 tries\).*Start the server", client.post, "completions", {})
        assert (client.usage.requests, client.usage.retries) == (1, 0)
        assert len(client.waits) == sending.TRIES - 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_storm_of_refusals_is_waited_out(status):
    """Half of all requests are refused, and everything is answered in the end."""
    turns = itertools.count()

    def answer(path, body, headers):
        return (status, {}, {}) if next(turns) % 2 else completion(body)

    with client_of(answer) as client:
        replies = dict(client.post_all("completions", ({"n": n} for n in range(40))))
    assert all(isinstance(reply, dict) for reply in replies.values())
    assert client.usage.retries == len(client.server.received) - 40 > 0


def test_retry_after_is_waited_for_by_all_requests():
    with client_of(first((429, {}, {"retry-after": "7"}), then={"id": "a"})) as client:
        client.post("completions", {})
    assert sum(client.waits) == pytest.approx(7)
    later = {"retry-after": "Mon, 23 Nov 2026 12:00:30 GMT"}
    noon = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert wait_of(later, noon) == 30
    assert wait_of({"retry-after": "Mon, 23 Nov 2026 11:00:00 GMT"}, noon) == 0
    assert [wait_of({"retry-after": text}) for text in ("", "soon", "nan", "inf")] == [None] * 4


def test_a_hang_ends_by_timeout():
    released = threading.Event()

    def hang(path, body, headers):
        released.wait(50)
        return {}

    with client_of(hang, timeout=0.05) as client:
        refused(r"no complete reply in 0.05 s \(3 tries\)", client.post, "completions", {})
        released.set()


LONG = OK + b"content-length: 1000\r\n\r\n"


@pytest.mark.parametrize("beginning", [LONG, b"HTTP/1.1 200 OK\r\n"])
def test_a_slow_drip_ends_by_timeout(beginning):
    """Each byte comes in time, and the whole does not; in the body, and in the headers."""
    released = threading.Event()

    def drip(connection):
        connection.sendall(beginning)
        while not released.wait(0.01):
            connection.sendall(b"x")

    with client_of(first(drip), timeout=0.05) as client:
        refused("no complete reply", client.post, "completions", {})
        released.set()


def test_an_endless_body_and_a_gzip_bomb_are_cut(monkeypatch):
    monkeypatch.setattr(sending, "LARGEST_REPLY", 1 << 20)

    def endless(connection):
        connection.sendall(OK + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    bomb = gzip.compress(b" " * (20 << 20))
    assert len(bomb) < 32_000
    for reply in (endless, (200, bomb, {"content-encoding": "gzip"})):
        with client_of(first(reply)) as client:
            refused("a reply of more than 1 MiB", client.post, "completions", {})


def test_a_gzip_reply_is_read_and_cookies_are_not_sent_back():
    packed = gzip.compress(b'{"id": "a"}')
    more = {"content-encoding": "gzip", "set-cookie": "who=me; path=/"}
    with client_of(first((200, packed, more))) as client:
        assert [client.post("completions", {}) for _ in range(2)] == [{"id": "a"}] * 2
        assert client.server.headers[0]["accept-encoding"] == "gzip"
        assert "cookie" not in client.server.headers[1]


def test_the_key_is_in_nothing_that_comes_back(monkeypatch):
    """A server may send back the key in any reply, a valid one included."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    escaped = "".join(f"\\u{ord(character):04X}" for character in KEY)
    replies = [{"seen": KEY}, (400, {"error": f"got {KEY}"}, {}), (200, KEY.encode(), {})]
    replies = [(200, f'{{"seen": "\\n{escaped} \\u00e9"}}'.encode(), {}), *replies]
    with client_of(first(*replies)) as client:
        assert client.post("completions", {}) == {"seen": "\n[key] é"}
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


def test_a_key_that_is_encoded_for_a_url_is_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a/key+with=signs")
    with client_of(first({"seen": "?key=a%2Fkey%2Bwith%3Dsigns"})) as client:
        assert client.post("completions", {}) == {"seen": "?key=[key]"}


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
