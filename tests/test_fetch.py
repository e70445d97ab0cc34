"""Fetching against a server on this machine: whole, altered, missing, breaking off."""

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from checks import refused
from consilience.suites import layouts as module
from consilience.suites.layouts import SOURCES, altered, fetch, listing
from wild_server import wild_server

FILES = {"a/one.txt": b"first file\n" * 400, "two.txt": b"second\n"}


class Server(ThreadingHTTPServer):
    """Serves FILES; ``break_after`` sends so many bytes of the next answer and hangs up."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests, self.errors = dict(FILES), [], []
        self.break_after = None
        self.url = f"http://127.0.0.1:{self.server_port}/data"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        path = self.path.removeprefix("/data/")
        server.requests.append(path)
        if server.errors:
            self.send_error(server.errors.pop())
            return
        if path not in server.files:
            self.send_error(404)
            return
        body = server.files[path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.break_after is not None:
            body, server.break_after = body[: server.break_after], None
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(server):
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def server(monkeypatch):
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
    listed = [module.ReleasedFile(path, len(FILES[path]), digests[path]) for path in FILES]
    monkeypatch.setattr(module, "listing", lambda name: listed)
    with serving(Server()) as server:
        yield server


def content(folder):
    return {path: (folder / path).read_bytes() for path in FILES}


def test_fetched_once_and_kept(server, tmp_path):
    steps = []
    shown = {"progress": lambda *step: steps.append(step)}
    folder, fetched = fetch("pararel", tmp_path, base=server.url, **shown)
    assert folder == tmp_path / "pararel"
    assert (content(folder), fetched, steps) == (FILES, 2, [(0, 2), (1, 2), (1, 2)])
    assert fetch("pararel", tmp_path, base=server.url)[1] == 0
    assert len(server.requests) == 2
    assert altered("pararel", folder) == []
    (folder / "two.txt").write_bytes(b"changed")
    assert altered("pararel", folder) == ["two.txt"]
    assert fetch("pararel", tmp_path, base=server.url)[1] == 1
    assert content(folder) == FILES
    assert content(fetch("pararel", tmp_path / "copy", base=str(folder))[0]) == FILES


def test_a_broken_connection_is_tried_again(server, tmp_path):
    server.break_after = 1000
    folder, _ = fetch("pararel", tmp_path, base=server.url)
    assert content(folder) == FILES
    assert server.requests[:2] == ["a/one.txt"] * 2


def test_a_file_with_another_digest_is_never_put_in_place(server, tmp_path):
    server.files["two.txt"] = b"SECOND\n"
    refused(r"not the released file; expected SHA-256", fetch, "pararel", tmp_path, base=server.url)
    assert not (tmp_path / "pararel" / "two.txt").exists()
    assert (tmp_path / "pararel" / "a" / "one.txt").exists(), "what was right is kept"
    server.files["two.txt"] = FILES["two.txt"]
    assert content(fetch("pararel", tmp_path, base=server.url)[0]) == FILES


def test_servers_that_stumble_and_files_that_are_gone(server, tmp_path):
    server.errors = [503, 500]
    assert content(fetch("pararel", tmp_path / "a", base=server.url)[0]) == FILES
    del server.files["two.txt"]
    gone = r"two\.txt: cannot be fetched: the server says 404"
    refused(gone, fetch, "pararel", tmp_path / "b", base=server.url)
    server.errors, broken = [500] * 9, "cannot be fetched: .*Check the network"
    refused(broken, fetch, "pararel", tmp_path / "c", base=server.url)


@pytest.fixture
def hostile(server):
    """``hostile(deed)``: the URL of a server that does nothing else."""
    return lambda deed: wild_server(FILES, lambda: deed)


@pytest.mark.parametrize(("deed", "message"), [
    ("drip", r"one\.txt: cannot be fetched: no 4,400 bytes in 1 "),
    ("endless", "not the released file"), ("length", "not the released file"),
    ("file", "cannot be fetched: the server says 302 .*file:"),
])  # fmt: skip
def test_a_server_that_does_harm_is_left(deed, message, hostile, tmp_path, monkeypatch):
    """4,400 bytes at 20 bytes a second take 220 seconds, and the socket is never silent."""
    monkeypatch.setattr(module, "SILENCE", 0.5)
    refused(message, fetch, "pararel", tmp_path, base=hostile(deed))
    assert not (tmp_path / "pararel").exists()


@pytest.mark.parametrize("url", [
    "http://user:secret@127.0.0.1:9/data", "http://user@127.0.0.1:9/data", "//user:secret@127.0.0.1",
    "http://user:secret/x@127.0.0.1:9/data", "http://127.0.0.1:secret/data",
])  # fmt: skip
def test_no_message_shows_a_password(url, tmp_path):
    said = refused("a user name, a password or a port", fetch, "pararel", tmp_path, base=url)
    assert "secret" not in said and "user@" not in said


def test_an_at_sign_in_a_path_is_no_password(server, tmp_path):
    server.files = {f"v@1/{path}": content for path, content in FILES.items()}
    assert content(fetch("pararel", tmp_path, base=f"{server.url}/v@1")[0]) == FILES


def test_nobody_there(tmp_path):
    lost, url = r"cannot be fetched: .*refused.*network.*--from URL", "http://127.0.0.1:9/data"
    refused(lost, fetch, "pararel", tmp_path, base=url)
    refused("Did you mean 'pararel'", fetch, "paralel", tmp_path)


def test_the_listing_of_the_release_is_pinned_and_whole():
    files = listing("pararel")
    assert len(files) == 3 * 38
    assert all(len(file.sha256) == 64 and file.size > 0 for file in files)
    assert SOURCES["pararel"].split("/")[-2] == "cb5554678457beb5ac163d888f1ce8cf174b3f0b"
