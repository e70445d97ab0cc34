"""The client of a server: what is sent, what comes back, and what failures mean."""

import gc
import threading

import pytest

from checks import refused
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.endpoints.client import Client, Refused, key_of
from replay_server import completion, replay
from test_endpoint_faults import KEY, client_of, first


def echo(path, body, headers):
    """Replies with what it was sent."""
    return completion(body, sent=body)


def test_replies_belong_to_their_requests():
    with client_of(echo) as client:
        replies = dict(client.post_all("completions", ({"prompt": str(n)} for n in range(40))))
    assert sorted(replies) == list(range(40))
    assert all(reply["sent"] == {"prompt": str(n)} for n, reply in replies.items())
    usage = client.usage
    assert (usage.requests, usage.tokens_read, usage.tokens_written) == (40, 120, 40)


def test_nothing_is_left_of_a_client_that_is_no_longer_used():
    """Neither the thread of its requests nor a connection, also where nobody closed it."""
    connections = set()

    def note(path, body, headers):
        connections.update(threading.enumerate())  # the server has a thread for each connection
        return completion(body)

    with replay(note) as server:
        before = set(threading.enumerate())
        client = Client(Connection(server.url))
        client.post("completions", {"prompt": "a"})
        del client
        gc.collect()
        for thread in (set(threading.enumerate()) | connections) - before:
            thread.join(10)
            assert not thread.is_alive(), thread.name


def test_paths_follow_the_base_url_or_stand_beside_its_version():
    with client_of(lambda path, body, headers: {"path": path}) as client:
        assert client.post("/props", None) == {"path": "/props"}
        assert client.usage.requests == 0, "routes that compute nothing are not counted"
        assert client.post("models", None) == {"path": "/v1/models"}


def test_a_request_that_is_refused_for_its_content_is_returned():
    with client_of(first((400, {"error": {"message": "prompt is too long"}}, {}))) as client:
        assert client.post("completions", {}) == Refused(400, "prompt is too long")


def test_the_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)

    def reject(path, body, headers):
        return 401, {"error": {"message": f"bad key {headers['authorization']}"}}, {}

    with client_of(reject, key_variable="MY_KEY") as client:
        with pytest.raises(ConsilienceError, match=r"bad key Bearer \[key\]") as raised:
            client.post("completions", {})
        assert client.server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert KEY not in repr(client.connection) + repr(client._key)
    assert KEY not in str(raised.value) + repr(raised.value.to_dict())


@pytest.mark.parametrize(("url", "is_sent"), cases("urls_with_key"))
def test_the_default_key_is_sent_over_https_and_to_this_machine_only(monkeypatch, url, is_sent):
    """One that is named is sent anywhere."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    expected = {"authorization": f"Bearer {KEY}"}
    assert key_of(Connection(url)).headers == (expected if is_sent else {})
    assert key_of(Connection(url, "OPENAI_API_KEY")).headers == expected


@pytest.mark.parametrize(("url", "message"), cases("urls_bad"))
def test_a_wrong_base_url_is_refused(url, message):
    assert "hunter2" not in refused(message, lambda: Client(Connection(url)))


def test_no_more_requests_are_sent_than_the_limit():
    with client_of(echo, max_requests=5) as client:
        message = "--max-requests 5 is reached: 5 requests sent"
        refused(message, lambda: list(client.post_all("completions", [{"n": n} for n in range(9)])))
        assert len(client.server.received) == client.usage.requests == 5


@pytest.mark.parametrize("written", [
    "abcd/efgh-1234567", r"abcd\/efgh-1234567", r"abcd\u002Fefgh-1234567", "abcd%2Fefgh-1234567",
])  # fmt: skip
def test_no_writing_of_the_key_reaches_a_text(written, monkeypatch):
    monkeypatch.setenv("K", "abcd/efgh-1234567")
    key = key_of(Connection("https://example.org/v1", "K"))
    assert key.removed_from(f"bad key {written}.") == "bad key [key]."


def test_a_server_that_asks_to_wait_for_a_day_is_not_waited_for():
    busy = first((429, {"error": {"message": "slow"}}, {"retry-after": "86400"}))
    with client_of(busy) as client:
        refused("slow; the server asks to wait 24 h", client.post, "completions", {})


def test_wrong_settings_of_proxies_are_one_message(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:1")
    client = Client(Connection("https://example.org/v1"))
    refused("the proxy or the certificates of the environment", client.post, "completions", {})
