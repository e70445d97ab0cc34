"""Runs of models behind a URL: nothing is paid for twice, and the record has what was paid."""

import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from checks import ScoringFunction, refused
from conftest import cases
from consilience.core.errors import Connection
from consilience.endpoints import REPLIES, Journal, Usage, cost_in_words, cost_record
from consilience.endpoints.client import Client
from consilience.options.commands import ProbeOptions
from consilience.probing import plan_probe, probe
from consilience.runs.folder import record_of
from replay_server import completion, replay


def score(path, body, headers):
    """A score of any text, always the same."""
    return completion(body, score=-float(zlib.crc32(body["prompt"].encode()) % 97))


def served(url):
    """A model of facts behind a URL."""
    client = Client(Connection(url))

    def totals_of(sentences):
        totals = [0.0] * len(sentences)
        ask = lambda text: client.post("completions", {"prompt": text})  # noqa: E731
        for at, reply in client.each(ask, sentences):
            totals[at] = reply["score"]
        return totals

    model = ScoringFunction(totals_of)
    model.client = client
    return model


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
    record = cost_record(usage, {"requests": 1000, "tokens_read": 2_000_000})
    assert cost_in_words(record) == (
        "2,234 requests (2 sent again; tokens of failed tries are not counted), 2,005,000 tokens "
        "read and 100 written"
    )
    none = cost_record(Usage(), {})
    assert cost_in_words(none) == "0 requests, 0 tokens read and 0 written"


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
