"""A server on loopback that answers requests as a test says, faults of transport included."""

import itertools
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from consilience.core.errors import Connection
from consilience.endpoints.client import Client

COUNTS = {"prompt_tokens": 3, "completion_tokens": 1}


@dataclass
class Replay:
    """What a server replies, and what it was sent."""

    answer: object
    """A function of a request (path, body, headers) that returns what is sent: a value as JSON, a
    tuple of status, value and headers, or a function of the open socket."""
    url: str = ""
    """The base URL."""
    received: list = field(default_factory=list)
    """Requests: path and body, in the order of arrival."""
    headers: list = field(default_factory=list)
    """Their headers."""
    close: object = None
    """Accept no further connection."""

    def bodies(self, path="/v1/completions"):
        return [body for name, body in self.received if name == path]


@contextmanager
def replay(answer, port=0):
    """A running server; it ends with the block. ``port``: 0 for any that is free."""
    state = Replay(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            size = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            state.received.append((self.path, body))
            state.headers.append({name.lower(): text for name, text in self.headers.items()})
            reply = state.answer(self.path, body, state.headers[-1])
            if callable(reply):
                self.close_connection = True
                reply(self.connection)
                return
            status, value, headers = reply if isinstance(reply, tuple) else (200, reply, {})
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            headers = {"content-type": "application/json", "content-length": len(content)} | headers
            lines = [f"HTTP/1.1 {status} x", *(f"{name}: {headers[name]}" for name in headers)]
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_):
            """The client may close a connection at any time."""

    server = Server(("127.0.0.1", port), Handler)
    state.close = lambda: server.socket.shutdown(socket.SHUT_RDWR)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def raw(*parts):
    """A reply that is these bytes; then the connection is closed."""

    def send(connection):
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_RDWR)

    return send


def completion(body, **fields):
    """A reply to a completion, with its counts."""
    return {"id": f"cmpl-{id(body)}-{json.dumps(body)}", "usage": COUNTS, **fields}


def written(body, text="A"):
    """A reply to a chat."""
    return completion(body, choices=[{"message": {"content": text}, "finish_reason": "stop"}])


def first(*replies, then=None):
    """An answer that gives these replies once each, and then the last, or ``then``."""
    queue = itertools.chain(replies, itertools.repeat(then or replies[-1]))
    return lambda path, body, headers: next(queue)


@contextmanager
def client_of(answer, **connection):
    """A client of a server that answers so, which notes its ``waits`` and does not wait."""
    waits = []
    with replay(answer) as server:
        note = lambda stop, seconds: waits.append(seconds)  # noqa: E731
        client = Client(Connection(server.url, **connection), note)
        client.server, client.waits = server, waits
        yield client
