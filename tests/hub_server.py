"""A Hub of our own over HTTP: repositories in memory."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """What the server has, and what it was asked."""

    def __init__(self):
        self.repositories = {}
        """The files of each repository by its path, such as ``datasets/me/name``."""
        self.requests = []
        self.url = ""


def _handler(hub):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *values):
            pass

        def reply(self, status, document=None, **headers):
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def missing(self):
            return self.reply(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            hub.requests.append(("GET", self.path))
            path = self.path.split("?")[0].strip("/")
            if path.startswith("api/"):
                name, is_tree, _ = (
                    path.removeprefix("api/").removeprefix("models/").partition("/tree/")
                )
                if name not in hub.repositories:
                    return self.missing()
                contents = hub.repositories[name]
                if is_tree:
                    sizes = [(file, len(content)) for file, content in contents.items()]
                    return self.reply(
                        200,
                        [
                            {"type": "file", "path": file, "size": size, "oid": "0"}
                            for file, size in sizes
                        ],
                    )
                files = [{"rfilename": file} for file in contents]
                return self.reply(200, {"id": name, "private": False, "siblings": files})
            name, _, file = path.partition("/resolve/")
            revision, _, file = file.partition("/")
            commit = revision if len(revision) == 40 else "c" * 40
            if name not in hub.repositories:
                return self.missing()
            if file not in hub.repositories[name]:
                return self.reply(404, {"error": "no entry"}, X_Error_Code="EntryNotFound")
            content = hub.repositories[name][file]
            return self.reply(200, content, ETag=f'"{len(content)}"', X_Repo_Commit=commit)

    return Handler


@contextmanager
def serving():
    """A server with a ``Hub``."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
