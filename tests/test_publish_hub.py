"""publish --push: what is shown, what is sent, and refusals, against a Hub of our own over HTTP."""

import io
import json
import os
import signal
import subprocess
import sys
import threading

import polars as pl
import pytest
from huggingface_hub import ModelCard, constants

from checks import refused
from consilience.app import process
from consilience.kinds.probing import probe
from consilience.options.probe import ProbeOptions
from consilience.options.runs import PublishOptions
from consilience.publish import publication
from consilience.publish.publication import publish, send_publication
from hub_server import serving

TOKEN = "hf_of_the_tests_1234"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pushed") / "run"
    options = {"groups": ("capital",), "limit": 2, "out": folder}
    probe(ProbeOptions(model="baseline:random", suite="mini", **options))
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub that huggingface_hub uses in this process."""
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        files = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server


def options_of(run, tmp_path, format_, repository, **more):
    folder = tmp_path / "out"
    return PublishOptions(run, format_, folder, "me/model", push=repository, **more)


def test_nothing_is_sent_without_yes_and_the_plan_says_what_would_be(run, hub, tmp_path):
    hub.repositories["datasets/me/data"] = {"README.md": b"old", "other.txt": b"stays"}
    hub.private.add("datasets/me/data")
    planned = publish(options_of(run, tmp_path, "dataset", "me/data"))
    assert (planned.push.visibility, planned.push.replaced) == ("private", {"README.md"})
    assert planned.push.size == sum(path.stat().st_size for path in planned.paths)
    assert not planned.address
    assert {method for method, _ in hub.requests} == {"GET"}
    sent = send_publication(planned)
    assert sent.address == f"{hub.url}/datasets/me/data/commit/{'c' * 40}"
    kept = hub.repositories["datasets/me/data"]
    assert kept == {**planned.files, "other.txt": b"stays"}
    assert pl.read_parquet(io.BytesIO(kept["data/answers.parquet"])).height == 18


@pytest.mark.parametrize(("public", "visibility"), [(False, "private"), (True, "public")])
def test_a_new_data_set_is_private_unless_public_is_asked(run, hub, tmp_path, public, visibility):
    options = options_of(run, tmp_path, "eee", "me/records", yes=True, public=public)
    sent = publish(options)
    assert sent.push.visibility == f"new, {visibility}"
    assert ("datasets/me/records" in hub.private) == (visibility == "private")
    assert len(hub.repositories["datasets/me/records"]) == 2


def test_a_model_card_on_the_hub_keeps_what_it_has(run, hub, tmp_path):
    hub.repositories["me/model"] = {"README.md": b"---\nlicense: mit\n---\n\n# Mine\n"}
    sent = publish(options_of(run, tmp_path, "model-card", "me/model", yes=True, create_pr=True))
    assert sent.address == f"{hub.url}/me/model/discussions/1"
    card = ModelCard(hub.repositories["me/model"]["README.md"].decode())
    assert card.data.license == "mit"
    assert "# Mine" in card.text
    assert {result.dataset_name for result in card.data.eval_results} == {"mini"}
    none = options_of(run, tmp_path, "model-card", "me/none", yes=True)
    refused("no model repository 'me/none' that you may read", publish, none)


@pytest.mark.parametrize(("refusal", "message"), [
    (401, "the Hub says 401.*Log in with `hf auth login`, or set HF_TOKEN"),
    (403, "the Hub says 403.*right to write to it, or add --create-pr"),
    (429, "the Hub says 429.*Wait some minutes"),
    ('"license" must be one of', 'Invalid metadata in README.md.*"license" must'),
])  # fmt: skip
def test_a_refusal_says_what_to_do(run, hub, tmp_path, monkeypatch, refusal, message):
    """By its status, or by what is wrong with the card of a data set."""
    hub.repositories["datasets/me/data"], is_card = {}, isinstance(refusal, str)
    planned = publish(options_of(run, tmp_path, "dataset" if is_card else "eee", "me/data"))
    setattr(hub, "fault" if is_card else "refusal", refusal)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert TOKEN not in refused(message, send_publication, planned)


def test_without_a_network_a_token_or_a_possible_name(run, hub, tmp_path, monkeypatch):
    refused(
        "'a/b/c'.*expected ORGANISATION/NAME", publish, options_of(run, tmp_path, "eee", "a/b/c")
    )
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    options = options_of(run, tmp_path, "eee", "me/data")
    refused(r"the Hub cannot be reached.*Check the network", publish, options)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("consilience.publish.publication.get_token", lambda: None)
    refused("no token of the Hub.*hf auth login", publish, options)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("HF_HUB_OFFLINE is set.*files are written. Unset", publish, options)


def test_the_command_asks_before_it_sends(run, hub, tmp_path, consilience, monkeypatch):
    arguments = ("publish", run, "--format", "eee", "--model-id", "me/model", "--push", "me/data")
    arguments += ("--out", tmp_path / "out")
    status, out, err = consilience(*arguments)
    assert status == 2
    assert "To be sent: 2 files" in out
    assert f"To: {hub.url}/datasets/me/data (dataset, new, private), as a commit to main" in out
    assert "nothing was sent: there is nobody to ask. Add --yes" in err
    for answer in ("", "n\n", "Y\n"):
        last = "Sent: " if answer == "Y\n" else "Nothing was sent."
        terminal = io.StringIO(answer)
        terminal.isatty = lambda: True
        monkeypatch.setattr(publication.sys, "stdin", terminal)
        status, out, err = consilience(*arguments)
        assert err.endswith("Send them? [y/N]: ")
        assert (status, out.splitlines()[-1].startswith(last)) == (0, True)
        assert ("datasets/me/data" in hub.repositories) == (answer == "Y\n")


def test_the_command_sends_to_the_endpoint_of_the_environment(run, hub, tmp_path):
    words = ["publish", run, "--format", "eee", "--model-id", "me/model", "--out", tmp_path / "out"]
    words += ["--push", "me/data", "--yes", "--json"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    answer = subprocess.run(
        [sys.executable, "-m", "consilience", *map(str, words)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["push"]["sent"].startswith(hub.url)
    assert len(hub.repositories["datasets/me/data"]) == len(document["files"]) == 2


def test_ctrl_c_in_an_upload_leaves_nothing_half_sent(run, hub, tmp_path, consilience, monkeypatch):
    """The server raises the signal, and is silent until the command has ended."""
    arguments = ("publish", run, "--format", "eee", "--model-id", "me/model", "--push", "me/data")
    arguments += ("--out", tmp_path / "out", "--yes")
    ended, was_late = threading.Event(), threading.Event()

    def stall():
        os.kill(os.getpid(), signal.SIGINT)
        if not ended.wait(5):
            was_late.set()
        return False

    hub.on_commit = stall
    before = signal.signal(signal.SIGINT, process._stop)

    try:
        status, out, err = consilience(*arguments)
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)
    assert (status, hub.repositories["datasets/me/data"]) == (130, {})
    assert not was_late.is_set(), "the read of the answer goes on after Ctrl-C"
    assert "To be sent: 2 files" in out and TOKEN not in out + err
    hub.on_commit = lambda: True
    status, out, _ = consilience(*arguments)
    assert (status, len(hub.repositories["datasets/me/data"])) == (0, 2)
    assert "(dataset, private)" in out
