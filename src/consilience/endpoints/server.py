"""A server that has a model: which server it is, its tokenizer, and how it samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from consilience.core.errors import ConsilienceError
from consilience.endpoints.client import Client
from consilience.endpoints.replies import Refused
from consilience.endpoints.server_tokenizer import ServerTokenizer

ServerKind = Literal["llama.cpp", "vLLM", "other"]
"""Servers that take token ids, and all others. SGLang has the routes of vLLM."""

QUEUED = 2
"""Requests that wait in llama.cpp's server for a slot. Of more, some wait for all others."""

ABSENT = ("status 404", "status 405", "status 501", "an HTML page")
"""How an error begins where a server does not have a route."""


class Server:
    """A model behind a URL.

    ``context``: tokens of a prompt with its answer; None where the server does not say.
    ``tokenizer``: one with the calls of transformers' that families use, llama.cpp's own or the
    local one that the connection names; None without one.
    """

    def __init__(
        self, client: Client, name: str, local_tokenizer: Callable[[str], Any] | None = None
    ) -> None:
        """``name``: what the server calls the model. ``local_tokenizer`` loads one by its name."""
        self.client, self.name = client, name
        self.kind: ServerKind = "other"
        self.context: int | None = None
        self.tokenizer: Any = None
        props = optional(client, "/props")
        if isinstance(props, dict) and "default_generation_settings" in props:
            self.kind = "llama.cpp"
            self.context = _whole(props["default_generation_settings"], "n_ctx")
            self.tokenizer = ServerTokenizer(client, props)
            if slots := _whole(props, "total_slots"):
                client.set_most_in_flight(slots + QUEUED)
        else:
            reply = optional(client, "/tokenize", {"model": name, "prompt": "a"})
            if isinstance(reply, dict) and isinstance(reply.get("tokens"), list):
                self.kind, self.context = "vLLM", _whole(reply, "max_model_len")
        if client.connection.tokenizer and local_tokenizer:
            self.tokenizer = local_tokenizer(client.connection.tokenizer)

    @property
    def plain_sampling(self) -> dict[str, Any]:
        """Fields that switch off what a server changes of the probabilities before it samples.

        vLLM and SGLang take defaults from the files of a model, llama.cpp has its own.
        """
        if self.kind == "other":
            return {"top_p": 1}
        off = {"top_p": 1, "min_p": 0, "repetition_penalty": 1}
        return off | {"top_k": 0 if self.kind == "llama.cpp" else -1, "repeat_penalty": 1}


def optional(client: Client, path: str, body: Any = None) -> Any:
    """The reply of a route that a server may not have; None without it."""
    try:
        reply = client.post(path, body)
    except ConsilienceError as error:
        if error.found.startswith(ABSENT):
            return None
        raise
    return None if isinstance(reply, Refused) else reply


def _whole(values: Any, name: str) -> int | None:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, int) and value > 0 else None
