"""llama.cpp in this process: its server behind a private Unix socket."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import httpx2

from consilience.core.errors import Connection, ConsilienceError, needs_extra
from consilience.core.provenance import cores
from consilience.endpoints.client import Client

SLOTS, TOKENS_A_SLOT = 8, 2048
"""Prompts that are read at once, and tokens of each with its answer, at most; keys and values of
all slots are in memory."""

QUIET = -1
"""The verbosity at which llama.cpp writes nothing."""

WAITING = "OMP_WAIT_POLICY"
"""The environment variable that says how OpenMP's threads wait."""

BASE_URL = "http://localhost/v1"


class LlamaCppClient(Client):
    """A client of a server that runs in this process, and ends with it."""

    is_free = True

    def __init__(self, path: Path, scoring: str | None = None) -> None:
        """``path``: a GGUF file."""
        if not path.is_file():
            raise ConsilienceError("no such file", where=str(path), todo="Check the path.")
        xllamacpp = _library()
        folder = tempfile.mkdtemp(prefix="consilience-")
        socket = f"{folder}/s.sock"
        parameters = xllamacpp.CommonParams()
        parameters.model.path, parameters.hostnames = str(path), [socket]
        parameters.n_parallel, parameters.n_ctx = SLOTS, SLOTS * TOKENS_A_SLOT
        parameters.verbosity, parameters.warmup = QUIET, False
        for threads in (parameters.cpuparams, parameters.cpuparams_batch):
            threads.n_threads, threads.poll = cores(), 0
        try:
            self.server = xllamacpp.Server(parameters)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, RuntimeError | ValueError | OSError):
                raise
            raise ConsilienceError(
                f"llama.cpp cannot load '{path.name}': {error}",
                expected="a GGUF file of a language model",
                where=str(path),
            ) from error
        self._folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(
            Connection(BASE_URL, concurrency=SLOTS, scoring=scoring),
            transport=httpx2.AsyncHTTPTransport(uds=socket),
        )

    def close(self) -> None:
        """End the server and free the weights."""
        super().close()
        self.server = None
        self._folder()


def _library() -> Any:
    """The package of llama.cpp, whose threads wait without spinning.

    OpenMP reads how from the environment when it is loaded. With other work on the machine,
    spinning takes tens of times longer (docs/log.md).
    """
    before = os.environ.get(WAITING)
    os.environ.setdefault(WAITING, "passive")
    try:
        with needs_extra("llamacpp"):
            import xllamacpp
    finally:
        if before is None:
            del os.environ[WAITING]
    return xllamacpp
