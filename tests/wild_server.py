"""A server on this machine that answers as badly as a test asks."""

import contextlib
import os
import socket
import threading
import time

DEEDS = ("drip", "silent", "close", "short", "endless", "length", "chunks", "file", "loop",
         "garbage", "status", "range", "negative", "flood")  # fmt: skip
"""What it may do; anything else is to answer as it should."""


def wild_server(files, choose):
    """The URL of a server of these files; ``choose`` says what it does at each request."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def serve():
        while True:
            arguments = (listener.accept()[0], files, choose(), url)
            threading.Thread(target=_answer, args=arguments, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return url


def _answer(connection, files, deed, url):
    with contextlib.suppress(OSError, IndexError), connection:
        path = connection.recv(4096).split()[1].decode().removeprefix("/")
        body = files.get(path, b"")
        if deed == "short":
            body, length = body[: len(body) // 2], len(body)
        else:
            length = {"length": 1 << 60, "negative": -1}.get(deed, len(body))
        start = {"status": "500 Broken", "file": "302 Found", "loop": "302 Found",
                 "range": "206 Partial Content"}.get(deed, "200 OK")  # fmt: skip
        head = f"HTTP/1.1 {start}\r\nContent-Length: {length}\r\n"
        head += {"file": "Location: file:///etc/passwd\r\n", "loop": f"Location: {url}/{path}\r\n",
                 "chunks": "Transfer-Encoding: chunked\r\n"}.get(deed, "")  # fmt: skip
        if deed == "silent":
            time.sleep(5)
        elif deed == "garbage":
            connection.sendall(os.urandom(3000))
        elif deed == "flood":
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000)
        elif deed == "drip":
            connection.sendall(head.encode() + b"\r\n")
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.05)
        elif deed == "chunks":
            connection.sendall(head.encode() + b"\r\n" + b"ffffffffffff\r\n" + body * 99)
        elif deed in ("endless", "length"):
            connection.sendall(
                head.replace(f"Content-Length: {len(body)}\r\n", "").encode() + b"\r\n"
            )
            while True:
                connection.sendall(b"x" * 65536)
        elif deed != "close":
            connection.sendall(head.encode() + b"\r\n" + body)
