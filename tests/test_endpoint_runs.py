"""The client of a server, and runs of models behind it, whole and ended by a signal: nothing is paid for twice."""

import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest

from checks import refused, served
from conftest import cases
from consilience.core.errors import Connection, ConsilienceError
from consilience.core.schemas import NOISE_FLOOR
from consilience.endpoints import REPLIES, Journal, Usage, cost_in_words, cost_record
from consilience.endpoints import client as sending
from consilience.endpoints.client import Client, RefusedError, UnreadError, key_of
from consilience.gating import gate
from consilience.options.commands import ProbeOptions
from consilience.probing import plan_probe, probe
from consilience.report.page import repeat
from consilience.results.evaluation import output_of
from consilience.runs.folder import record_of
from pair_builders import write_pairs
from replay_server import client_of, completion, first, raw, replay, written


def score(path, body, headers):
    """A score of any text, always the same."""
    return completion(body, score=-float(zlib.crc32(body["prompt"].encode()) % 97))


def options(folder, limit=2):
    chosen = {"suite": "mini", "groups": ("continent", "animal_class"), "limit": limit}
    return ProbeOptions(out=folder, model="served", **chosen)


KILLED = """
import os, sys
from pathlib import Path
from consilience.core.errors import Connection
from consilience.endpoints.client import Client
from consilience.endpoints import Journal
client = Client(Connection(sys.argv[1]))
client.journal = Journal(Path(sys.argv[2]))
ask = lambda n: client.post("completions", {"prompt": str(n)})
for number, _ in enumerate(client.each(ask, range(60))):
    if number == 20:
        os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_its_replies(tmp_path):
    """Only requests that had no reply yet when it was killed are sent again."""
    path = tmp_path / REPLIES
    with replay(score) as server:
        command = [sys.executable, "-c", KILLED, server.url, str(path)]
        assert subprocess.run(command, check=False).returncode == -9
        assert (tmp_path / f"{REPLIES}-wal").is_file(), "it had no time to close the table"
        time.sleep(0.3)  # for what was under way
        first = len(server.received)
        journal = Journal(path)
        [(kept,)] = journal._rows("SELECT count(*) FROM replies")
        client = Client(Connection(server.url))
        client.journal = journal
        bodies = [{"prompt": str(n)} for n in range(60)]
        replies = dict(client.each(lambda body: client.post("completions", body), bodies))
    assert 20 < kept <= first < 60
    assert len(server.received) - first == 60 - kept == client.usage.requests
    expected = [score("", body, {})["score"] for body in bodies]
    assert [replies[n]["score"] for n in range(60)] == expected


def test_a_repeat_within_a_run_is_a_request_of_its_own(tmp_path):
    """Also in another part of a run, whichever parts an interrupted run had completed."""
    sections = {"group a": 2, "noise floor": 1}
    with replay(score) as server:
        for section, sent in ({"group b": 1}, 4), ({}, 4):
            client = Client(Connection(server.url))
            client.journal = Journal(tmp_path / REPLIES)
            for name, times in (sections | section).items():
                client.journal.begin(name)
                for _ in range(times):
                    client.post("completions", {"prompt": "x"})
            assert len(server.received) == sent
            client.journal.close()


def test_two_processes_in_one_folder_are_one_too_many(tmp_path):
    """The second is refused while the first is there; both would pay for the same replies."""
    path = tmp_path / REPLIES
    journal = Journal(path)
    message = "another process asks a model in this folder"
    with ThreadPoolExecutor() as pool:
        refused(message, pool.submit(Journal, path).result)
    open_it = "import sys; from pathlib import Path; from consilience.endpoints import *; "
    command = [sys.executable, "-c", open_it + "Journal(Path(sys.argv[1]))", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr
    journal.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_a_cost_in_words():
    usage = Usage(requests=1234, retries=2, tokens_read=5000, tokens_written=100)
    said = cost_in_words(cost_record(usage, {"requests": 1000, "tokens_read": 2_000_000}))
    assert said.startswith("2,234 requests (2 sent again")
    assert said.endswith("2,005,000 tokens read and 100 written")


@pytest.mark.parametrize(("reply", "counted"), cases("token_counts"))
def test_tokens_are_counted_in_the_fields_of_every_kind_of_server(reply, counted):
    usage = Usage()
    usage.add_tokens(reply)
    assert [usage.tokens_read, usage.tokens_written] == counted


def test_a_run_without_a_single_answer_is_not_complete(consilience, tmp_path):
    """Status 3 with the reason, and the same command asks again; 2 if a known chat is refused."""
    reply = {"choices": [{"message": {"content": "Paris"}}]}
    says = {"name": "no such model 'x'", "filter": "a bad word"}

    def answer(path, body, headers):
        if not path.endswith("/chat/completions"):
            return 404, {}, {}
        is_known = body["messages"][-1]["content"] == "Hello"
        if server.fault == "name" or (server.fault == "filter" and not is_known):
            return 400, {"error": {"message": says[server.fault]}}, {}
        return completion(body, **reply)

    with replay(answer) as server:
        command = ["probe", "--suite", "mini-questions", "--groups", "capital", "--limit", 2]
        command += ["--vary", "paraphrase=2", "--model", "x", "--base-url", server.url]
        command += ["--generate", "--template", "chat", "--out", tmp_path / "run"]
        for server.fault, expected in ("name", 2), ("filter", 3):
            status, _, err = consilience(*command)
            assert status == expected and says[server.fault] in err
            record = record_of(tmp_path / "run")
            assert (record["finished"], record["answers"]) == (None, {})
            assert not list((tmp_path / "run" / "answers").iterdir())
        server.fault = ""
        assert consilience(*command)[0] == 0
        assert record_of(tmp_path / "run")["finished"]
        cost = record_of(tmp_path / "run")["cost"]
        assert cost["requests"] == len(server.bodies("/v1/chat/completions"))


def test_a_dry_run_estimates_the_requests_and_writes_nothing(tmp_path):
    with replay(score) as server:
        plan = plan_probe(options(tmp_path / "run"), model=served(server.url))
        sent = len(server.bodies())
        probe(options(tmp_path / "run", 2), model=served(server.url))
        needed = len(server.bodies()) - sent
    assert (plan.queries, plan.timed, plan.complete) == (36, 4, 0)
    assert needed / 2 < plan.requests < 2 * needed


def test_a_file_of_replies_that_is_damaged_is_named(tmp_path):
    (tmp_path / REPLIES).write_bytes(b"\xff" * 5000)
    refused("replies.sqlite: .* cannot be used: .*Remove the file", Journal, tmp_path / REPLIES)


KEY = "sk-secret-0123456789"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def echo(path, body, headers):
    """Replies with what it was sent."""
    return completion(body, sent=body)


def post_all(client, bodies):
    """The replies to some requests by their positions; or why there are none."""

    def outcome(body):
        try:
            return client.post("completions", body)
        except RefusedError as error:
            return str(error)

    return dict(client.each(outcome, bodies))


@pytest.mark.parametrize("row", cases("transcripts"))
def test_what_replies_mean(row):
    """The last request of a transcript; a request before it is one that was answered."""
    replies = [(status, one.encode() if isinstance(one, str) else one, *(more or [{}]))
               for status, one, *more in row["replies"]]  # fmt: skip
    is_second = replies[0][1] == {"id": "x"} and len(replies) > 1
    with client_of(first(*replies)) as client:
        if is_second:
            client.post("completions", {})
        ask = lambda: client.post("completions", {}, is_known="known" in row)  # noqa: E731
        if "raises" in row:
            refused(row["raises"], ask)
        elif "refused" in row:
            with pytest.raises(RefusedError) as error:
                ask()
            assert str(error.value) == row["refused"]
        else:
            assert ask() == row["value"]
        waits = row.get("waits", [])
        assert client.waits == waits and client.usage.retries == len(waits)
        assert len(client.server.received) == client.usage.requests == is_second + len(waits) + 1


@pytest.mark.parametrize("reply", [
    raw(OK + b'content-length: 90\r\n\r\n{"a": 1}'),
    raw(OK + b'transfer-encoding: chunked\r\n\r\n8\r\n{"a": '),
    raw(),
    raw(b"HTTP/1.1 banana\r\n\r\n"),
])  # fmt: skip
def test_a_connection_that_breaks_is_tried_again(reply):
    with client_of(first(reply, reply, {"id": "x"})) as client:
        assert client.post("completions", {"prompt": "x"}) == {"id": "x"}
        assert client.waits == [1, 2]


def test_a_reply_is_kept_when_it_was_understood(tmp_path):
    """Not before: the same command asks again for what was not."""

    def read(reply):
        if reply["choices"][0] is None:
            raise UnreadError("logprobs", "none")
        return reply["choices"][0]

    bad, good = {"choices": [None]}, {"choices": [7]}
    for replies, expected in ([bad, bad, bad, bad], None), ([bad, good], 7), ([], 7):
        with client_of(first(*replies or [(400, {}, {})])) as client:
            client.journal = Journal(tmp_path / REPLIES)
            if expected:
                assert client.post("completions", {}, read) == expected
            else:
                with pytest.raises(RefusedError, match=r"not understood.*'logprobs': none"):
                    client.post("completions", {}, read)
            client.journal.close()
            assert len(client.server.received) == len(replies)
    with client_of(first(bad)) as client, pytest.raises(UnreadError):
        client.post("completions", {}, read, is_known=True)
    assert client.usage.requests == 1, "a known request says that a field is not there"


def test_replies_belong_to_their_requests():
    with client_of(echo) as client:
        replies = post_all(client, ({"prompt": str(n)} for n in range(40)))
    assert sorted(replies) == list(range(40))
    assert all(reply["sent"] == {"prompt": str(n)} for n, reply in replies.items())
    usage = client.usage
    assert (usage.requests, usage.tokens_read, usage.tokens_written) == (40, 120, 40)


def test_no_more_requests_are_sent_than_the_limit():
    with client_of(echo, max_requests=5) as client:
        message = "--max-requests 5 is reached: 5 requests sent"
        refused(message, post_all, client, [{"n": n} for n in range(9)])
        assert len(client.server.received) == client.usage.requests == 5


def test_a_route_that_costs_nothing_is_not_counted_and_may_be_absent():
    with client_of(first((500, {}, {}), (404, {}, {}), (200, b"<html>", {}), {"a": 1})) as client:
        assert [client.get("models") for _ in range(4)] == [None, None, None, {"a": 1}]
        assert client.usage.requests == 0 and client.server.received[0][0] == "/v1/models"


def test_a_redirect_to_another_host_is_not_followed_and_takes_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with replay(lambda path, body, headers: {}) as other:
        with client_of(first((307, b"", {"location": other.url}))) as client:
            refused("Give the address that answers", client.post, "completions", {})
            assert client.server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert not other.received


@pytest.mark.parametrize(("key", "written"), [
    (KEY, KEY), (KEY, r"sk\u002dsecret-0123456789"), ("abcd/efgh", r"abcd\/efgh"), ("abcd/efgh", "abcd%2Fefgh"),
])  # fmt: skip
def test_the_key_is_in_nothing_that_comes_back(monkeypatch, key, written):
    """A server may send back the key in any reply, a valid one included."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    content = f'{{"message": "got {written}"}}'.encode()
    with client_of(first(*((status, content, {}) for status in (200, 400, 401)))) as client:
        assert client.post("completions", {}) == {"message": "got [key]"}
        with pytest.raises(RefusedError, match=r"got \[key\]"):
            client.post("completions", {})
        with pytest.raises(ConsilienceError, match=r"got \[key\]") as raised:
            client.post("completions", {})
        del client.server  # it has what it received
        assert key not in repr(vars(client)) + repr(raised.value.to_dict())


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


def test_a_server_on_this_machine_is_asked_without_a_proxy_and_a_wrong_one_is_named(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with client_of(first({"id": "a"})) as client:
        assert client.post("completions", {}) == {"id": "a"}
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:1")
    client = Client(Connection("https://example.org/v1"))
    refused("the proxy or the certificates of the environment", client.post, "completions", {})


@pytest.mark.parametrize(("name", "kept"), cases("model_names"))
def test_the_folder_of_a_model_on_the_server_is_not_kept(name, kept):
    with client_of(first({"model": name})) as client:
        client.post("completions", {})
        assert client.models == {kept}


# Whole runs of a server of chats, and such runs that a signal ended: nothing is paid for twice.


CHATS = "/v1/chat/completions"


def answer(path, body, headers):
    """A server of chats without log-probabilities: an answer by the text."""
    if path != CHATS:
        return 404, {"error": {"message": f"no route {path}"}}, {}
    text = json.dumps(body["messages"])
    if "logprobs" in body:
        return 403, {"error": {"message": "You are not allowed to request logprobs"}}, {}
    content = ["A", "B", "equivalent", "x y"][zlib.crc32(text.encode()) % 4]
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    return completion(body, model="m", choices=[choice])


@pytest.fixture
def arguments(tmp_path):
    """The options of ``probe`` for questions and for sentence pairs."""
    rows = [f"q{at},What is {at} and {at}?,{at};{2 * at};x y,{2 * at}" for at in range(3, 9)]
    questions = tmp_path / "sums.csv"
    questions.write_text("\n".join(["item,question,options,answer", *rows]))
    pairs = write_pairs(tmp_path / "pairs.jsonl")
    shared = {"model": "openai:m", "concurrency": 2}
    return {
        "questions": shared | {"suite": str(questions), "vary": ("order=all", "labels=A,none")},
        "pairs": shared | {"suite": "mrpc", "data": str(pairs), "generate": True},
    }


def paid(server):
    """The requests of the suite, without those that test the server."""
    bodies = server.bodies(CHATS)
    of_suite = [one for one in bodies if one["messages"][-1]["content"] != "Hello"]
    return sorted(json.dumps(one) for one in of_suite if "logprobs" not in one)


def flags(options):
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            yield f"--{name.replace('_', '-')}"
            if one is not True:
                yield str(one)


@pytest.mark.parametrize("kind", ["questions", "pairs"])
def test_a_signal_and_the_same_command_again_pay_for_nothing_twice(kind, arguments, tmp_path):
    """A process is ended in the middle, and the run is resumed.

    By SIGTERM, which goes the way of Ctrl-C: a shell may start tests with Ctrl-C switched off. The
    replies to the two requests in flight come after the signal, and are kept.
    """
    released = threading.Event()
    released.set()

    def gated(path, body, headers):
        if path == CHATS and len(server.received) > 16:
            released.wait(30)
        return answer(path, body, headers)

    options, folder = arguments[kind], tmp_path / "run"
    with replay(gated) as server:
        whole = probe(ProbeOptions(base_url=server.url, out=tmp_path / "whole", **options))
        expected = paid(server)
        server.received.clear()
        released.clear()
        named = flags(options | {"base_url": server.url, "out": folder})
        command = [sys.executable, "-m", "consilience", "probe", *named]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while len(server.received) < 18 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        released.set()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 143, err
        assert b"the same command does the rest" in err
        assert 0 < len(paid(server)) < len(expected)
        with sqlite3.connect(folder / REPLIES) as table:
            (kept,) = table.execute("SELECT count(reply) FROM replies").fetchone()
        table.close()
        assert kept == len(paid(server)) + 1, "with the chat that tests the server"
        resumed = probe(ProbeOptions(base_url=server.url, out=folder, **options))
    assert paid(server) == expected
    cost = record_of(folder)["cost"]
    assert cost["requests"] == len(server.bodies(CHATS)), "with both proofs"
    assert resumed.metrics.equals(whole.metrics, null_equal=True)
    assert not (folder / REPLIES).exists()


@pytest.fixture
def writing(arguments, tmp_path, monkeypatch):
    """Options of a run of 36 prompts, whose tries take less than a second."""
    monkeypatch.setattr(sending, "WAITS", (0.004,) * 6)
    chosen = {**arguments["questions"], "vary": ("order=all",), "generate": True}
    return {**chosen, "out": tmp_path / "run"}


def test_a_server_that_dies_leaves_no_failure_as_an_answer(writing):
    """At the last two requests: it answers one while the other, of the same time, fails."""
    numbers = itertools.count(1)

    def dying(path, body, headers):
        if path != CHATS:
            return 404, {}, {}
        if (number := next(numbers)) == 36:
            server.close()
        return raw() if number > 36 else written(body)

    with replay(dying) as server:
        options = ProbeOptions(base_url=server.url, **writing)
        refused(r"cannot connect: .*\(7 tries\). Start the server", probe, options)
    refused("Check --base-url, and that it runs", probe, options)
    with replay(lambda path, body, headers: written(body), urlsplit(server.url).port) as server:
        counted = probe(options)
        assert len(paid(server)) == 1 + 1, "one was left, and the noise floor"
    record = record_of(options.out)
    assert record["finished"] and not counted.checked.answers["error"].count()
    assert record["cost"]["requests"] >= 36 + 1 + 2 + 1, "one was sent twice; two tests"


def test_what_a_server_filters_or_leaves_blank_was_asked(writing):
    """Of 36 prompts 12 are filtered and 1 gets a blank: 36 % have no answer, and none is left out."""

    def answer(path, body, headers):
        text = json.dumps(body)
        if path == CHATS and ("6 and 6" in text or "7 and 7" in text):
            choice = {"message": {"content": "A"}, "finish_reason": "content_filter"}
            return completion(body, choices=[choice])
        is_blank = "What is 5 and 5?\\nA. 5\\nB. 10" in text
        return written(body, " \n" if is_blank else "A")

    with replay(answer) as server:
        probe(ProbeOptions(base_url=server.url, **writing))
    answers = pl.read_parquet(writing["out"] / "answers" / "*.parquet")
    lacking = answers.filter(pl.col("answer").is_null())
    assert lacking["error"].value_counts(sort=True).rows() == [
        ("the server refused the request (200): 'finish_reason' is 'content_filter'", 12),
        ("the model wrote no text", 1),
    ]
    assert answers["excluded"].count() == 0 and answers["answer"].count() == 36 - 13
    assert lacking["text"].count() == 0
    record = record_of(writing["out"])
    assert record["finished"], "no query is asked again"
    assert record["cost"]["refused"] == 12


def test_a_query_without_a_reply_is_asked_again_by_the_same_command(writing):
    """Until then the run is not finished, its exit status is 3, and no gate takes it."""
    faults = [(500, {"message": "bad row"}, {})] * 100

    def answer(path, body, headers):
        is_bad = "What is 5 and 5?\\nA. 5" in json.dumps(body) and path == CHATS and faults
        return faults.pop() if is_bad else written(body)

    with replay(answer) as server:
        options = ProbeOptions(base_url=server.url, **writing)
        first = probe(options)
        assert output_of(first).status == 3
        assert first.notes[0].startswith("Not finished")
        reason = "no reply from the server (500): bad row (7 tries)"
        assert reason in "".join(first.notes)
        refused("the run is not finished", gate, options.out, ["accuracy >= 0.1"], None)
        server.received.clear()
        faults.clear()
        counted = probe(options)
        assert len(paid(server)) == 2, "both that failed are sent"
        server.received.clear()
        again = probe(options)
        assert not server.bodies(CHATS), "nothing is sent where nothing is left"
        assert again.metrics.equals(counted.metrics, null_equal=True)
        record = json.loads((options.out / "run.json").read_text())
        rows = Path(options.suite).read_text().replace("What is 5", "How much is 5")
        Path(options.suite).write_text(rows)
        refused("this folder holds another run: its queries are others", probe, options)
        assert json.loads((options.out / "run.json").read_text()) == record
    assert output_of(counted).status == 0
    assert "no reply" not in "".join(counted.notes) + json.dumps(record_of(options.out))
    assert not (options.out / REPLIES).exists()


def test_a_folder_without_any_answer_is_free_for_another_run(writing):
    """A text for a server of chats; then replies of which none is an answer, and are not kept."""
    texts = [""]

    def of_chats(path, body, headers):
        return written(body, texts[0]) if path == CHATS else (404, {"error": "no route"}, {})

    with replay(of_chats) as server:
        options = ProbeOptions(**writing | {"base_url": server.url})
        text = replace(options, template="Q: {question} {options} A:")
        refused("/completions: .*404.*no route.*begin the template with 'chat:'", probe, text)
        assert not (options.out / REPLIES).exists()
        refused("none of 36 queries has an answer", probe, options)
        texts[0] = "A"
        assert probe(options).record["finished"], "the same command asks again"
        refused("this folder holds another run: its templates", probe, text)


def test_a_noise_floor_that_was_not_measured_is_measured_by_the_same_command(writing):
    """The limit has room for 36 prompts and the chat that tests the server."""
    with replay(lambda path, body, headers: written(body)) as server:
        options = ProbeOptions(**writing | {"max_requests": 37, "base_url": server.url})
        assert "the noise floor of the server was not measured" in "".join(probe(options).notes)
        server.received.clear()
        assert NOISE_FLOOR in probe(options).metrics["metric"]
        assert len(paid(server)) == 1, "a prompt is sent again"


def test_a_server_that_can_only_write_is_asked_to_write(arguments, tmp_path):
    """Without --generate; one line says so, and the run and the report have it."""
    folder = tmp_path / "run"
    with replay(answer) as server:
        options = ProbeOptions(base_url=server.url, out=folder, **arguments["questions"])
        assert plan_probe(options).queries == 6 * (6 + 6)
        counted = probe(options)
    record = record_of(folder)
    assert record["scoring"]["strategy"] == record["settings"]["model"]["scoring"]
    assert "not allowed to request logprobs" in record["scoring"]["refused"]["written-answers"]
    note = "the server gives no log-probabilities: the model writes its answers (written-answers)"
    assert note in counted.notes
    answers = pl.read_parquet(folder / "answers" / "*.parquet")
    unknown = ["logprob", "gold_logprob", "gold_rank", "margin", "text_logprob", "option_scores"]
    assert answers.select(pl.col(unknown).is_not_null().any()).row(0) == (False,) * len(unknown)
    assert answers["answer"].null_count() == answers["error"].count() == 0
    assert 0 < answers["option"].null_count() < answers.height, "some texts are no option"
    assert "total_variation" not in counted.metrics["metric"].to_list()
    origin = repeat([("run", record)])[-1]
    scored = "strategy written-answers, gives the model writes its answers"
    assert origin["Scored by"].startswith(scored)
    assert f"server {server.url}" in origin["Model"] and "requests" in origin["Cost"]
