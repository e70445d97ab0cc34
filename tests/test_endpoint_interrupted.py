"""Whole runs of a server of chats, and such runs that a signal ended: nothing is paid for twice."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest

from checks import refused
from consilience.core.schemas import NOISE_FLOOR
from consilience.endpoints import REPLIES
from consilience.endpoints import client as sending
from consilience.gating import gate
from consilience.options.commands import ProbeOptions
from consilience.probing import plan_probe, probe
from consilience.report.page import repeat
from consilience.results.evaluation import output_of
from consilience.runs.folder import record_of
from pair_builders import write_pairs
from replay_server import completion, replay, written

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
        assert b"the same command resumes the work" in err
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


DYING = """
import itertools, json, os, sys, time
from replay_server import raw, replay, written

def answer(path, body, headers):
    if path != "/v1/chat/completions":
        return 404, {}, {}
    number = next(numbers)
    if number == int(sys.argv[1]):
        server.close()
        time.sleep(0.3)
        text = json.dumps(written(body))
        reply = raw(f"HTTP/1.1 200 OK\\r\\ncontent-length: {len(text)}\\r\\n\\r\\n{text}".encode())
        return lambda connection: (reply(connection), os._exit(9))
    time.sleep(0.05 * (number > int(sys.argv[1])))
    return raw() if number > int(sys.argv[1]) else written(body)

numbers = itertools.count(1)
with replay(answer) as server:
    print(server.url, flush=True)
    time.sleep(60)
"""
"""A server that dies at a request, which it answers while others of the same time fail."""


@pytest.fixture
def writing(arguments, tmp_path, monkeypatch):
    """Options of a run of 36 prompts, whose tries take less than a second."""
    monkeypatch.setattr(sending, "WAITS", (0.004,) * 6)
    chosen = {**arguments["questions"], "vary": ("order=all",), "generate": True}
    return {**chosen, "out": tmp_path / "run"}


def test_a_server_that_dies_leaves_no_failure_as_an_answer(writing):
    """At the last two requests, which alone can tell that the server is gone."""
    command = [sys.executable, "-c", DYING, "36"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
    )
    url = process.stdout.readline().strip()
    options = ProbeOptions(base_url=url, **writing)
    refused(r"cannot connect: .*\(7 tries\). Start the server", probe, options)
    assert process.wait(30) == 9
    process.stdout.close()
    refused("Check --base-url, and that it runs", probe, options)
    with replay(lambda path, body, headers: written(body), urlsplit(url).port) as server:
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
    assert record_of(writing["out"])["finished"], "no query is asked again"


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
    assert origin["Scored by"] == "written-answers (the model writes its answers)"


def test_facts_that_a_server_of_chats_cannot_score_are_questions(tmp_path):
    """The message names the command, and it works."""
    facts = {"model": "openai:m", "suite": "mini", "groups": ("capital",), "limit": 2}
    with replay(answer) as server:
        options = ProbeOptions(base_url=server.url, out=tmp_path / "run", **facts)
        refused("--as-questions 3", probe, options)
        options = ProbeOptions(base_url=server.url, out=tmp_path / "run", as_questions=3, **facts)
        counted = probe(options)
    assert counted.record["scoring"]["strategy"] == "written-answers"
